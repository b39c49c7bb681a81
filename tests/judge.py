"""A real redis-server as the judge: started here, on a free port, from an empty folder, and stopped here.

A harness never talks to a server that it did not start, so a stray FLUSHALL costs nobody their data.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import redis


def free_port() -> int:
    """Return a TCP port on 127.0.0.1 that nobody listens on.

    It is none of those that the system gives to outgoing connections: another test could have it before the server.
    """
    while True:
        port = random.SystemRandom().randrange(10_000, 22_000)  # the bus of a cluster listens 10,000 above
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def redis_binary() -> str | None:
    """Return the path of redis-server, or None where it is not installed."""
    return shutil.which("redis-server")


@dataclass
class Judge:
    """A running redis-server: its port, its folder and its process."""

    port: int
    folder: Path
    process: subprocess.Popen[bytes]

    def client(self, **options: object) -> redis.Redis:
        """Return a new redis-py client whose replies are undecoded and unparsed by name."""
        client = redis.Redis(host="127.0.0.1", port=self.port, protocol=2, **options)  # type: ignore[arg-type]
        client.response_callbacks.clear()
        return client


@contextmanager
def running_redis(*arguments: str, binary: str | None = None, conf: Path | None = None,
                  folder: Path | None = None,
                  environment: dict[str, str] | None = None) -> Iterator[Judge]:  # fmt: skip
    """Start redis-server with the arguments in an empty folder, wait until it answers, stop it at the end.

    With a configuration file and a folder, what that file says about saving and logging stands. A server whose folder
    is removed is killed: an orderly end takes a tenth of a second.
    """
    program = binary or redis_binary()
    assert program is not None, "redis-server is not installed"
    given = folder
    folder = folder or Path(tempfile.mkdtemp(prefix="rillet-judge-"))
    port = free_port()
    quiet = ["--save", "", "--appendonly", "no"] if conf is None else []
    command = [program, *([str(conf)] if conf is not None else []), "--port", str(port), "--bind", "127.0.0.1",
               "--dir", str(folder), *quiet, "--enable-debug-command", "yes", "--enable-protected-configs", "yes",
               *arguments]  # fmt: skip
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={**os.environ, **(environment or {})}
    )
    try:
        await_ready(port, process)
        yield Judge(port, folder, process)
    finally:
        if given is None and "--dir" not in arguments:
            process.kill()
        else:
            process.terminate()
        process.wait(timeout=60)
        if given is None:
            shutil.rmtree(folder, ignore_errors=True)


def await_ready(port: int, process: subprocess.Popen[Any]) -> None:
    """Return when the server answers a PING; AssertionError if it ended, or after a minute."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        assert process.poll() is None, "redis-server ended at once"
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=1) as connection:
                connection.sendall(b"PING\r\n")
                if connection.recv(16).startswith(b"+PONG"):
                    return
        except OSError:
            time.sleep(0.02)
    raise AssertionError("redis-server did not answer within 60 seconds")


PEERS = {
    "7.0": "",
    "7.2": "RILLET_REDIS_7_2",
    "7.4": "RILLET_REDIS_7_4",
    "8.0": "RILLET_REDIS_8_0",
    "8.2": "RILLET_REDIS_8_2",
    "8.6": "RILLET_REDIS_8_6",
    "newest": "RILLET_NEWER_REDIS",
    "valkey": "RILLET_VALKEY",
}
"""Values of `compat` that have a judge, with the environment variable that names its binary (7.0's is installed)."""


def peer_binary(compat: str) -> str | None:
    """Return the path of the server that a compat is judged by, or None where nobody named one."""
    variable = PEERS[compat]
    if not variable:
        return redis_binary()
    path = os.environ.get(variable, "")
    assert not path or os.access(path, os.X_OK), f"{variable} names {path}, which is no program"
    return path or None


def required_binary(compat: str) -> str:
    """Return the path of the server that a compat is judged by; skip the test if there is none."""
    binary = peer_binary(compat)
    if binary is None:
        pytest.skip(f"no server to judge compat {compat}: {PEERS[compat] or 'redis-server'} names none")
    return binary

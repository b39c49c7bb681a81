"""The servers of a round of the matrix: each is a process that can be killed and started again, behind a proxy.

    node ──► node.link (proxy) ──► its master        shut and opened, cut, and led to another master by the round

A node keeps its folder, port and options, so that a restart finds its files. `rillet` runs with the `compat` of the
servers around it.
"""

from __future__ import annotations

import contextlib
import os
import random
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import redis

from tests.forked import Forked
from tests.judge import peer_binary
from tests.replication.load import info
from tests.replication.proxy import Proxy

PATIENCE = 300.0  # seconds; a busy machine may take a minute to start a server


_PORTS = range(10_000, 32_000)  # below those that the system gives to the other ends of connections


class Stuck(AssertionError):
    """A condition did not become true in time."""


def until(condition: Callable[[], object], what: str, seconds: float = PATIENCE) -> None:
    """Wait until a condition is true; a connection that fails meanwhile counts as false."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            if condition():
                return
        except (redis.ConnectionError, redis.TimeoutError):
            pass
        if time.monotonic() > deadline:
            raise Stuck(f"{what}: not within {seconds:g} s")
        time.sleep(0.02)


def _lasting_port() -> int:
    """Return a port that stays free while a node is down: the system gives it to no connection."""
    while True:
        port = random.SystemRandom().choice(_PORTS)
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


class Node:
    """One server; `kind` is rillet or a value of `compat`, `compat` the commands that it knows."""

    def __init__(self, name: str, kind: str, compat: str, folder: Path, options: list[str]) -> None:
        self.name, self.kind, self.compat, self.folder, self.options = name, kind, compat, folder, options
        self.port = _lasting_port()
        self.link: Proxy | None = None
        self.master: Node | None = None
        self.process: subprocess.Popen[Any] | None = None
        self._client: redis.Redis | None = None
        folder.mkdir(parents=True)

    def __str__(self) -> str:
        return f"{self.name}:{self.kind}"

    # -- the process -----------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the process and wait until it has loaded its data."""
        words = ["--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.folder), "--logfile",
                 str(self.folder / "log"), "--enable-debug-command", "yes", "--repl-diskless-sync-delay", "0",
                 *self.options]  # fmt: skip
        if self.link is not None:
            words += ["--replicaof", f"127.0.0.1 {self.link.port}"]
        with open(self.folder / "output", "ab") as output:
            if self.kind == "rillet":
                words = ["serve", "--compat", self.compat, *words]
                self.process = Forked(words, cwd=self.folder, stdout=output, stderr=output)
            else:
                binary = peer_binary(self.kind)
                assert binary is not None
                self.process = subprocess.Popen([binary, *words], cwd=self.folder, stdout=output, stderr=output)
        self._client = None
        until(self._is_ready, f"{self} starts")

    def _is_ready(self) -> bool:
        assert self.process is not None
        if self.process.poll() is not None:
            raise AssertionError(f"{self} ended at its start: {(self.folder / 'output').read_text()[-3000:]}")
        try:
            return b"\r\nloading:0\r\n" in self.client.execute_command("INFO", "persistence")
        except redis.exceptions.BusyLoadingError:
            return False

    def kill(self) -> None:
        """Kill the process, as a lack of memory would do it."""
        self._drop_client()
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        """End the process orderly. A server that writes its first log refuses to end until it is complete."""
        self._drop_client()
        assert self.process is not None
        deadline = time.monotonic() + PATIENCE
        while self.process.poll() is None:
            if time.monotonic() > deadline:
                raise Stuck(f"{self} does not stop")
            self.process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(2)

    def close(self) -> None:
        """End everything."""
        self._drop_client()
        if self.process is not None:
            self.process.kill()
            self.process.wait()
        if self.link is not None:
            self.link.__exit__()

    def _drop_client(self) -> None:
        if self._client is not None:
            self._client.close()
        self._client = None

    # -- clients ---------------------------------------------------------------------------------------------

    @property
    def client(self) -> redis.Redis:
        """The connection of the round."""
        if self._client is None:
            self._client = self.connect()
        return self._client

    def connect(self, timeout: float = 60.0) -> redis.Redis:
        """Return a new connection whose replies are bytes."""
        made = redis.Redis(port=self.port, protocol=2, socket_timeout=timeout)
        made.response_callbacks.clear()
        return made

    def facts(self) -> dict[str, str]:
        """Return INFO replication."""
        return info(self.client)

    def counters(self) -> tuple[int, int]:
        """Return the numbers of full and partial resynchronisations that this server has served."""
        text = self.client.execute_command("INFO", "stats").decode()
        found = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
        return int(found["sync_full"]), int(found["sync_partial_ok"])

    def logged(self, text: str) -> int:
        """Return how often the server's log contains a text."""
        try:
            return (self.folder / "log").read_text(errors="replace").count(text)
        except OSError:
            return 0

    # -- the link --------------------------------------------------------------------------------------------

    def follow(self, master: Node | None, *, shut: bool = False) -> None:
        """Make a running server a replica of another one, through a new proxy; None: make it a master."""
        old, self.link, self.master = self.link, None, master
        if master is None:
            self.client.execute_command("REPLICAOF", "NO", "ONE")
        else:
            self.link = Proxy(master.port)
            self.link.shut = shut
            self.client.execute_command("REPLICAOF", "127.0.0.1", self.link.port)
        if old is not None:
            old.__exit__()

    def lead_to(self, master: Node) -> None:
        """Prepare to be started as a replica."""
        self.master, self.link = master, Proxy(master.port)

    def shut(self) -> None:
        """Cut the link to the master, and let none begin."""
        assert self.link is not None
        self.link.shut = True
        self.link.cut()
        until(self.is_cut_off, f"{self} notices the cut")

    def open(self, cuts: list[int]) -> None:
        """Let links begin: the first ones end after so many bytes of the master."""
        assert self.link is not None
        self.link.limits = [-1] * self.link.links + cuts
        self.link.shut = False

    def is_cut_off(self) -> bool:
        """Return whether a replica has noticed that its link has ended."""
        return self.facts()["master_link_status"] == "down"

    def follows(self) -> bool:
        """Return whether the replica has everything that its master has."""
        assert self.master is not None
        mine, its = self.facts(), self.master.facts()
        return (mine["role"] == "slave" and mine["master_link_status"] == "up"
                and mine["master_replid"] == its["master_replid"]
                and int(mine["slave_repl_offset"]) == int(its["master_repl_offset"]))  # fmt: skip


def binaries_for(compat: str) -> bool:
    """Return whether the machine has the server of a compat."""
    return bool(peer_binary(compat)) and os.access(str(peer_binary(compat)), os.X_OK)


__all__ = ["Node", "Stuck", "binaries_for", "until"]

"""The commands of docs/operations.md that move a live server, run while clients write."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import redis

from tests.judge import free_port, running_redis
from tests.package.test_modes import ROOT
from tests.replication.load import await_equal
from tests.replication.test_replica_following import client_of

_SECTION = re.compile(r"^## Move a live server without downtime\n(.*?)^## ", re.MULTILINE | re.DOTALL)
_STEP = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def steps() -> list[str]:
    """Return the commands of the section, one text for each block."""
    section = _SECTION.search((ROOT / "docs" / "operations.md").read_text())
    assert section is not None
    return _STEP.findall(section[1])


class Shell:
    """A shell that runs the steps one after the other, and ends at the first command that fails."""

    def __init__(self, folder: Path, addresses: dict[str, int]) -> None:
        programs = folder / "bin"
        programs.mkdir()
        launcher = programs / "rillet"
        launcher.write_text(f'#!/bin/sh\nexec {sys.executable} -m rillet "$@"\n')
        launcher.chmod(0o755)
        self._addresses = addresses
        self._process = subprocess.Popen(
            ["sh", "-e"], cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True,
            env={**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"})  # fmt: skip

    def __enter__(self) -> Shell:
        return self

    def __exit__(self, *_: object) -> None:
        """End everything that the steps have started and that still runs."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.communicate()

    def run(self, step: str) -> str:
        """Run a step and return what it prints."""
        for named, port in self._addresses.items():
            step = step.replace(named, str(port))
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{step}\necho step ends\n")
        self._process.stdin.flush()
        said = ""
        while (line := self._process.stdout.readline()) not in ("step ends\n", ""):
            said += line
        assert line, f"the step failed: {step}"
        return said

    def end(self) -> None:
        """End the shell, which waits for the servers that it has started."""
        assert self._process.stdin is not None
        self._process.stdin.write("wait\nexit 0\n")
        self._process.stdin.flush()
        assert self._process.wait(60) == 0


class Writer(threading.Thread):
    """A client that writes, and repeats a write at the other address if a server is read-only.

    Its short pauses leave time for the servers.
    """

    def __init__(self, number: int, ports: tuple[int, int], stop: threading.Event) -> None:
        super().__init__()
        self._name, self._stop_now = f"writer:{number}", stop
        self._clients = [redis.Redis(port=port) for port in ports]
        self.acknowledged = 0
        self.moves = 0

    def run(self) -> None:
        at = 0
        while not self._stop_now.wait(0.0005):
            try:
                transaction = self._clients[at].pipeline()
                transaction.xadd("log", {"writer": self._name, "number": self.acknowledged})
                transaction.incr(self._name)
                transaction.execute()
            except redis.exceptions.ReadOnlyError:
                at = 1 - at
                self.moves += 1
                continue
            self.acknowledged += 1

    def check(self, client: Any) -> None:
        """Assert that the server has each write once."""
        assert int(client.get(self._name)) == self.acknowledged
        mine = [entry for _, entry in client.xrange("log") if entry[b"writer"] == self._name.encode()]
        assert [int(entry[b"number"]) for entry in mine] == list(range(self.acknowledged))


@pytest.mark.skipif(shutil.which("redis-cli") is None, reason="redis-cli is not installed")
@pytest.mark.timeout(120)
def test_a_live_server_moves_into_rillet_and_back_without_a_lost_or_repeated_write(tmp_path: Path) -> None:
    names, follow, look, exchange, check, back, stop = steps()
    new = free_port()
    with running_redis("--repl-diskless-sync-delay", "0") as judge, ExitStack() as stack:
        old = judge.client()
        old.function_load("#!lua name=lib\nredis.register_function('f', function() return 'here' end)")
        for number in range(2000):
            old.set(f"key:{number}", number, ex=10_000)
        shell, ended = stack.enter_context(Shell(tmp_path, {"6379": judge.port, "7000": new})), threading.Event()
        writers = [Writer(number, (judge.port, new), ended) for number in range(3)]
        try:
            for writer in writers:
                writer.start()
            shell.run(names)
            assert f"port={new},state=online" in shell.run(follow)
            assert shell.run(look).count("db0:keys=2004,expires=2000") == 2
            shell.run(exchange)
            moved = redis.Redis(port=new)
            until_all(writers, 1)
            assert "role:master" in shell.run(check)
            assert moved.fcall("f", 0) == b"here"
            shell.run(back)
            until_all(writers, 2)
        finally:
            ended.set()
            for writer in writers:
                writer.join()
        await_equal(old, client_of(new))
        assert b"role:slave" in client_of(new).execute_command("INFO", "replication")
        for writer in writers:
            writer.check(redis.Redis(port=judge.port))
            writer.check(moved)
        shell.run(stop)
        shell.end()


def until_all(writers: list[Writer], moves: int) -> None:
    """Wait until each writer has moved so often, and has written since then."""
    marks: dict[Writer, int] = {}
    while len(marks) < len(writers) or any(writer.acknowledged == mark for writer, mark in marks.items()):
        for writer in writers:
            assert writer.is_alive()
            if writer.moves >= moves:
                marks.setdefault(writer, writer.acknowledged)
        threading.Event().wait(0.01)

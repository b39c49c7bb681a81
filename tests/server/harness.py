"""A server in a separate process, and clients that see the bytes of its replies.

The server starts as a user starts it, on a free port, in an empty folder, with uvloop or with asyncio. It prints a line
when it listens, so the tests do not sleep.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rillet.protocol.command_parser import pack_command
from tests.forked import Forked
from tests.judge import free_port

LOOPS = ("uvloop", "asyncio")
TIMEOUT = 60.0
# Code that runs before the console script: hides modules, sets limits of the process.
_LAUNCH = "import sys; {before}; from rillet.cli import main; sys.exit(main())"


def launch(
    arguments: list[str], *, loop: str = "uvloop", before: str = "", fresh: bool = False
) -> subprocess.Popen[str]:
    """Start `rillet serve`; its output is read from the pipes. `fresh`, and code `before`: in a new Python."""
    if not fresh and not before:
        return Forked(["serve", *arguments], hidden=["uvloop"] if loop == "asyncio" else [])
    steps = [before or "pass"]
    if loop == "asyncio":
        steps.append("sys.modules['uvloop'] = None")
    if os.environ.get("RILLET_NO_CYTHON"):
        steps.append("sys.modules['cython'] = None")
    code = _LAUNCH.format(before="; ".join(steps))
    return subprocess.Popen([sys.executable, "-c", code, "serve", *arguments], text=True, errors="backslashreplace",
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE)  # fmt: skip


@dataclass
class Running:
    """A server that listens."""

    process: subprocess.Popen[str]
    port: int
    folder: Path
    told: list[str]

    @property
    def banner(self) -> str:
        """The line that reports that the server listens."""
        return self.told[-1]

    def client(self) -> Client:
        """Return a new connection."""
        return connected(self.port)

    def stop(self, number: int = signal.SIGTERM) -> tuple[int, str]:
        """Send the signal, wait for the end, and return the exit status and the complete output."""
        self.process.send_signal(number)
        return self.ended()

    def ended(self) -> tuple[int, str]:
        """Wait for the end, and return the exit status and the complete output: log and stderr."""
        said, errors = self.process.communicate(timeout=TIMEOUT)
        return self.process.returncode, "".join(self.told) + said + errors


def line_of(process: subprocess.Popen[str]) -> str:
    """Read a line from the pipe without buffering, so that `communicate` can read the rest."""
    assert process.stdout is not None
    line = b""
    while not line.endswith(b"\n") and (byte := os.read(process.stdout.fileno(), 1)):
        line += byte
    return line.decode()


def _listening(process: subprocess.Popen[str]) -> list[str]:
    """Return the server's output up to the line that reports that it listens."""
    told: list[str] = []
    alarm = threading.Timer(TIMEOUT, process.kill)
    alarm.start()
    try:
        while not told or "listening" not in told[-1]:
            line = line_of(process)
            if not line:
                process.kill()
                raise AssertionError(f"the server did not start: {''.join(told)}{process.communicate()[1]}")
            told.append(line)
    finally:
        alarm.cancel()
    return told


@contextmanager
def running(
    folder: Path, *arguments: str, loop: str = "uvloop", before: str = "", fresh: bool = False
) -> Iterator[Running]:
    """Start a server, and stop it at the end if it still runs; fail if its stderr has a traceback."""
    port = free_port()
    words = ["--port", str(port), "--dir", str(folder), *arguments]
    with launch(words, loop=loop, before=before, fresh=fresh) as process:
        try:
            server = Running(process, port, folder, _listening(process))
            yield server
            if process.returncode is None:
                status, errors = server.stop()
                assert status == 0, errors
                assert "Traceback" not in errors, errors
        finally:
            process.kill()


def connected(port: int) -> Client:
    """Return a new connection to a server on this machine."""
    return Client(socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT))


class Client:
    """A connection that sends commands and returns the bytes of each reply."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self.file = connection.makefile("rb")

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self.file.close()
        self.socket.close()

    def send(self, *commands: str) -> None:
        """Send commands in one write; each is split at blanks."""
        self.socket.sendall(b"".join(pack_command(command.encode().split()) for command in commands))

    def reply(self) -> bytes:
        """Return the bytes of one reply, or b"" if the server disconnected."""
        line = self.file.readline()
        kind, rest = line[:1], line[1:-2]
        if kind in b"$=" and rest != b"-1" and line:
            return line + self.file.read(int(rest) + 2)
        if kind in b"*%~>" and rest != b"-1" and line:
            return line + b"".join(self.reply() for _ in range(int(rest) * (2 if kind == b"%" else 1)))
        return line

    def call(self, command: str) -> bytes:
        """Send one command and return its reply."""
        self.send(command)
        return self.reply()

    def wait_in(self, command: str) -> None:
        """Send a command that blocks; return once it is blocked, which the reply to a preceding PING shows."""
        self.send("PING", command)
        assert self.reply() == b"+PONG\r\n"

    def rest(self) -> bytes:
        """Return all bytes until the server disconnects."""
        try:
            return self.file.read()
        except ConnectionResetError:
            return b""

    def rewritten(self) -> None:
        """Return once no rewrite of the log is running or scheduled."""
        busy = (b"aof_rewrite_in_progress:1", b"aof_rewrite_scheduled:1")
        while any(fact in told for told in [self.call("INFO persistence")] for fact in busy):
            threading.Event().wait(0.005)

    def info(self, field: str) -> str:
        """Return one field of INFO."""
        text = self.call("INFO everything").decode()
        return next(line.partition(":")[2] for line in text.splitlines() if line.startswith(field + ":"))


def field(client: Client, who: int, name: str) -> str:
    """Return one field of a client's line in CLIENT LIST."""
    line = client.call(f"CLIENT LIST ID {who}").decode()
    return next(word.partition("=")[2] for word in line.split() if word.startswith(name + "="))

"""Both sides of a comparison: an engine in this process, and a socket to a real server; replies as raw bytes.

A reply is compared byte by byte. Where the clock shows (idle times, times of delivery), both sides are
read into trees that keep every type byte (a null and a null array differ) and numbers of milliseconds may
differ by the time that passed.
"""

from __future__ import annotations

import socket
from typing import Any

from rillet.protocol.command_parser import CommandParser
from rillet.runtime.engine import Engine
from rillet.runtime.session import Session
from rillet.runtime.settings.settings import Settings

TOLERANCE_MS = 10_000


class Redis:
    """A raw connection to a server: commands out in one write, replies back as their bytes."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        self.file = self.socket.makefile("rb")

    def __enter__(self) -> Redis:
        return self

    def __exit__(self, *_: object) -> None:
        self.file.close()
        self.socket.close()

    def run(self, *commands: list[bytes]) -> list[bytes]:
        """Send the commands in one write and return the reply of each."""
        self.send(*commands)
        return [self._reply() for _ in commands]

    def send(self, *commands: list[bytes]) -> None:
        """Send the commands in one write."""
        self.socket.sendall(b"".join(pack(argv) for argv in commands))

    def reply(self) -> bytes:
        """Return the next reply."""
        return self._reply()

    def _reply(self) -> bytes:
        line = self.file.readline()
        assert line.endswith(b"\r\n"), line
        kind, rest = line[:1], line[1:-2]
        if kind in b"$=" and rest != b"-1":
            return line + self.file.read(int(rest) + 2)
        if kind in b"*%~>" and rest != b"-1":
            return line + b"".join(self._reply() for _ in range(int(rest) * (2 if kind == b"%" else 1)))
        return line


class Local:
    """A session of an engine in this process; with a door, commands go through the parser, as a socket's do."""

    def __init__(self, engine: Engine | None = None, resp: int = 2, door: bool = False) -> None:
        self.parser = CommandParser() if door else None
        self.engine = engine or Engine(Settings(compat="7.0"))
        self.session: Session = self.engine.session()
        self.session.out.resp = resp

    def run(self, argv: list[bytes]) -> bytes:
        """Run a command and return its reply; what would wait is given up at once."""
        if self.parser is not None:
            self.parser.feed(pack(argv))
            while self.engine.drain(self.session, self.parser, 1 << 30):
                pass
            if self.session.blocked is not None:
                self.engine.blocking.expire(self.session)
        elif not self.engine.execute(self.session, list(argv)):
            self.engine.blocking.expire(self.session)
        return self.session.out.take_bytes()

    def __call__(self, *words: bytes | str | int) -> Any:
        """Run a command given as words and return its reply read by `read`."""
        return read(self.run([word if isinstance(word, bytes) else str(word).encode() for word in words]))


def pack(argv: list[bytes]) -> bytes:
    """Return a command as a RESP array of bulk strings."""
    return b"*%d\r\n" % len(argv) + b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in argv)


def tree(reply: bytes) -> Any:
    """Return a reply as nested (type byte, value) pairs."""
    node, end = _tree(reply, 0)
    assert end == len(reply), "bytes behind the reply"
    return node


def _tree(data: bytes, at: int) -> tuple[Any, int]:
    stop = data.index(b"\r\n", at)
    kind, rest = data[at : at + 1], data[at + 1 : stop]
    at = stop + 2
    if kind in b"$=" and rest != b"-1":
        return (kind, data[at : at + int(rest)]), at + int(rest) + 2
    if kind == b":":
        return (kind, int(rest)), at
    if kind in b"*%~>" and rest != b"-1":
        children = []
        for _ in range(int(rest) * (2 if kind == b"%" else 1)):
            child, at = _tree(data, at)
            children.append(child)
        return (kind, children), at
    return (kind, rest), at


def read(reply: bytes) -> Any:
    """Return a reply as plain values: bytes, int, list, None; an error as its text; a map as a flat list."""
    return _plain(tree(reply))


def _plain(node: Any) -> Any:
    kind, value = node
    if kind in b"*%~>" and isinstance(value, list):
        return [_plain(child) for child in value]
    if kind == b"_" or (kind in b"*$" and value == b"-1" and kind == b"*"):
        return None
    return value.decode() if kind == b"-" else value


def differ(ours: Any, theirs: Any) -> bool:
    """Whether two trees differ by more than milliseconds that passed."""
    if ours[0] != theirs[0]:
        return True
    if isinstance(ours[1], list) and isinstance(theirs[1], list):
        return len(ours[1]) != len(theirs[1]) or any(map(differ, ours[1], theirs[1]))
    if ours[0] == b":" and is_time(ours[1]) and is_time(theirs[1]):
        return abs(ours[1] - theirs[1]) > TOLERANCE_MS
    return bool(ours[1] != theirs[1])


def is_time(value: int) -> bool:
    """Whether a number can only be a time since the epoch (ms)."""
    return 1_500_000_000_000 < value < 3_000_000_000_000

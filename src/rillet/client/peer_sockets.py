"""Connections to other servers for MIGRATE, kept for ten seconds (Redis: cluster.c, migrateGetSocket).

    (host, port) ──► socket, its selected database, the time of its last use

`exchange` sends all commands in one write and reads one reply line for each. A cached connection that the other server
has closed meanwhile is replaced once; after a timeout nothing is repeated, because the other server may still run the
commands.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator

from rillet.protocol.command_parser import pack_command
from rillet.protocol.peer_replies import Replies
from rillet.real_time import monotonic

MOST = 64
"""Cached connections (cluster.c: MIGRATE_SOCKET_CACHE_ITEMS)."""
IDLE = 10.0
"""Seconds after which an unused connection is closed (MIGRATE_SOCKET_CACHE_TTL)."""
_CHUNK = 1 << 16


class _Broken(Exception):
    """A connection failed while reading or writing; timed_out: the other server did not answer in time."""

    def __init__(self, what: str, replies: Replies, timed_out: bool) -> None:
        super().__init__(what)
        self.replies = replies
        self.timed_out = timed_out


class _Peer:
    """One connection and the database that it has selected."""

    __slots__ = ("database", "socket", "used")

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self.database = -1
        self.used = monotonic()


class PeerSockets:
    """The connections of one engine."""

    def __init__(self) -> None:
        self._peers: dict[tuple[str, str], _Peer] = {}

    def __len__(self) -> int:
        return len(self._peers)

    def close_idle(self) -> None:
        """Close the connections that were not used for ten seconds. O(connections)"""
        oldest = monotonic() - IDLE
        for address in [address for address, peer in self._peers.items() if peer.used < oldest]:
            self._close(address)

    def close(self) -> None:
        """Close all connections."""
        for address in list(self._peers):
            self._close(address)

    def exchange(self, address: tuple[str, str], setup: list[list[bytes]], database: int,
                 commands: list[list[bytes]], timeout_ms: int) -> Replies:  # fmt: skip
        """Send the commands and return their reply lines; the field `broken` names what failed."""
        retry = True
        while True:
            cached = address in self._peers
            try:
                peer = self._peers[address] if cached else self._connect(address, timeout_ms / 1000)
            except (OSError, ValueError, OverflowError):  # also a port that is not a number
                return Replies([], [], "connecting to the client")
            try:
                return self._run(peer, setup, database, commands, timeout_ms / 1000)
            except _Broken as error:
                self._close(address)
                if not (cached and retry) or error.timed_out or error.replies.keys:
                    error.replies.broken = str(error)
                    return error.replies
                retry = False

    def _connect(self, address: tuple[str, str], seconds: float) -> _Peer:
        self.close_idle()
        if len(self._peers) >= MOST:
            self._close(next(iter(self._peers)))
        host, port = address
        peer = self._peers[address] = _Peer(socket.create_connection((host, int(port)), seconds))
        peer.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return peer

    def _close(self, address: tuple[str, str]) -> None:
        self._peers.pop(address).socket.close()

    def _run(self, peer: _Peer, setup: list[list[bytes]], database: int, commands: list[list[bytes]],
             seconds: float) -> Replies:  # fmt: skip
        before = list(setup)
        if peer.database != database:
            before.append([b"SELECT", str(database).encode()])
        replies = Replies([], [])
        peer.socket.settimeout(seconds)
        what = "writing to target instance"
        try:
            peer.socket.sendall(b"".join(map(pack_command, (*before, *commands))))
            what = "reading from target instance"
            lines = _lines(peer.socket)
            for _ in before:
                replies.setup.append(next(lines))
            for _ in commands:
                replies.keys.append(next(lines))
        except (OSError, StopIteration) as error:
            raise _Broken(what, replies, isinstance(error, TimeoutError)) from error
        failed = any(line.startswith(b"-") for line in replies.setup)
        peer.database = -1 if failed else database
        peer.used = monotonic()
        return replies


def _lines(connection: socket.socket) -> Iterator[bytes]:
    """Yield the lines that a socket receives, without their ends; stop at the end of the connection."""
    buffer = bytearray()
    while True:
        end = buffer.find(b"\r\n")
        if end < 0:
            data = connection.recv(_CHUNK)
            if not data:
                return
            buffer += data
        else:
            yield bytes(buffer[:end])
            del buffer[: end + 2]

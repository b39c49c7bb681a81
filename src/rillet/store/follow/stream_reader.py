"""Reads the stream of changes of a server from a position, without data: for consumers that are behind, and for Spark.

    PSYNC <id> <offset + 1> ──► +CONTINUE      the backlog of the server holds what follows the position
                            ──► +FULLRESYNC    it does not: StreamLost

INFO is asked first, because the server would prepare a snapshot together with the second reply. A user that may not run
INFO still gets the right answer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import TracebackType
from typing import NamedTuple

from rillet.client.address import Address
from rillet.client.connection import Connection
from rillet.client.errors import ConnectionLost
from rillet.client.sentinel import current_master
from rillet.protocol.command_parser import pack_command
from rillet.protocol.reply_parser import ReplyError
from rillet.real_time import monotonic
from rillet.replication.changes import ChangePosition
from rillet.replication.errors import LinkError
from rillet.replication.handshake import (
    Continued,
    FullSync,
    LinkOptions,
    MasterLink,
    Position,
    SnapshotData,
    SnapshotEnd,
    StreamData,
)

_TURN = 0.25
_ACK_SECONDS = 1.0
CONNECT_SECONDS = 5.0
VERSION = b"9.1.0"  # Valkey sends its newer formats only to replicas that name its version; Redis ignores it


class StreamLost(Exception):
    """The server does not hold the stream from this position on."""


class ServerPosition(NamedTuple):
    """The position of a server's stream (INFO replication)."""

    id: str
    id2: str
    second_offset: int
    offset: int
    first: int  # the first byte of the backlog; 0: there is none

    def holds(self, position: ChangePosition) -> bool:
        """Return whether the stream continues from a position."""
        known = position.id == self.id or (position.id == self.id2 and position.offset < self.second_offset)
        return known and 0 < self.first <= position.offset + 1 <= self.offset + 1


def server_of(address: Address) -> Address:
    """Return the address of the server to connect to: of the current master, if sentinels watch it; ConnectorError."""
    return address if address.sentinels is None else current_master(address)


def server_position(connection: Connection) -> ServerPosition | None:
    """Return the position of a server; None if the user may not run INFO."""
    (reply,) = connection.replies([[b"INFO", b"replication"]])
    if isinstance(reply, ReplyError) or not isinstance(reply, bytes):
        return None
    lines = (line.split(":", 1) for line in reply.decode("utf-8", "replace").splitlines() if ":" in line)
    facts = {name: value.strip() for name, value in lines}

    def number(name: str) -> int:
        return int(facts.get(name, "0") or 0)

    first = number("repl_backlog_first_byte_offset") if facts.get("repl_backlog_active") == "1" else 0
    return ServerPosition(facts.get("master_replid", ""), facts.get("master_replid2", ""), number("second_repl_offset"),
                          number("master_repl_offset"), first)  # fmt: skip


class StreamReader:
    """A connection that receives the stream after a position; StreamLost, ConnectionLost, ConnectorError."""

    def __init__(self, address: Address, position: ChangePosition, timeout: float = CONNECT_SECONDS) -> None:
        self.id = position.id
        self.offset = position.offset  # of the received bytes
        self._acknowledged = monotonic()
        self._ready: list[bytes] = []
        self._connection = Connection(replace(server_of(address), db=0, protocol=2), timeout)
        try:
            there = server_position(self._connection)
            if there is not None and not there.holds(position):
                raise StreamLost
            self._begin(position, timeout)
        except BaseException:
            self.close()
            raise

    @classmethod
    def with_snapshot(cls, address: Address, write: Callable[[bytes], object], *, empty: bool = False,
                      timeout: float = CONNECT_SECONDS, silence: float = 60.0) -> StreamReader:  # fmt: skip
        """Receive a snapshot, whose bytes `write` takes, and return the reader of the stream that follows.

        empty: ask for a snapshot without data. A server that does not know the filter (before 7.0) sends all.
        The stream begins with a SELECT unless it begins in database 0. ConnectionLost after `silence` seconds without
        a byte.
        """
        self = cls.__new__(cls)
        self._ready = []
        self._acknowledged = monotonic()
        self._connection = Connection(replace(server_of(address), db=0, protocol=2), timeout)
        try:
            if empty:
                self._connection.replies([[b"REPLCONF", b"rdb-filter-only", b""]])
            self._receive_snapshot(write, silence)
        except BaseException:
            self.close()
            raise
        return self

    def _receive_snapshot(self, write: Callable[[bytes], object], silence: float) -> None:
        link, connection = MasterLink(LinkOptions(version=VERSION), None), self._connection
        complete, heard = False, monotonic()
        while not complete:
            out = link.outgoing()
            if out:
                connection.send(out)
            data = connection.receive_within(_TURN)
            heard = monotonic() if data else heard
            if monotonic() - heard > silence:
                raise ConnectionLost(f"rillet: {connection.address} sent nothing for {silence:g} s")
            try:
                events = link.receive(data)
            except LinkError as error:
                raise ConnectionLost(f"rillet: {connection.address}: {error}") from error
            for event in events:
                if isinstance(event, FullSync):
                    self.id, self.offset = event.id, event.offset
                elif isinstance(event, SnapshotData):
                    write(event.data)
                elif isinstance(event, SnapshotEnd):
                    complete = True
                elif isinstance(event, StreamData):
                    self._ready.append(event.data)
        self._acknowledge()

    def _acknowledge(self) -> None:
        """Report the position: the server disconnects a replica that is silent."""
        self._acknowledged = monotonic()
        self._connection.send(pack_command([b"REPLCONF", b"ACK", b"%d" % self.offset]))

    def _begin(self, position: ChangePosition, timeout: float) -> None:
        link = MasterLink(LinkOptions(version=VERSION), Position(position.id, position.offset))
        deadline = monotonic() + timeout
        continued = False
        while not continued:
            self._connection.send(link.outgoing())
            try:
                events = link.receive(self._connection.receive_within(_TURN))
            except LinkError as error:
                raise ConnectionLost(f"rillet: {self._connection.address}: {error}") from error
            for event in events:
                if isinstance(event, FullSync):
                    raise StreamLost
                if isinstance(event, Continued):
                    continued = True
                    self.id = event.id or self.id
                elif isinstance(event, StreamData):
                    self._ready.append(event.data)
            if monotonic() > deadline and not continued:
                raise ConnectionLost(f"rillet: {self._connection.address} did not answer PSYNC within {timeout:g} s")

    def receive(self, seconds: float = _TURN) -> bytes:
        """Return the next bytes, b"" if none arrive in that time."""
        data = b"".join(self._ready) if self._ready else self._connection.receive_within(seconds)
        self._ready = []
        self.offset += len(data)
        if monotonic() - self._acknowledged >= _ACK_SECONDS:
            self._acknowledge()
        return data

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def __enter__(self) -> StreamReader:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:  # fmt: skip
        self.close()

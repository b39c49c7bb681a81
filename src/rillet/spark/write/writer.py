"""Packed rows on their way to servers: pipelined and bounded.

    Sender         rows are laid out (targets.py) and packed; its subclasses send what is packed
    PlainSender    XADD XADD XADD ... in chunks, each sent before the one before is answered
    transactions.py has the third, which writes exactly once

Rows leave in chunks of 256 KiB, and two chunks are under way, so neither side ever holds more.

Answers are counted, not parsed: an ID is two lines, QUEUED is one, and a line that begins with - is the first refusal
(`Replies`); 5 nanoseconds a row instead of 150.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from rillet.client.connection import RECEIVE, Connection
from rillet.client.errors import ConnectorError
from rillet.client.servers import Servers
from rillet.columns.row_packing import RowPacker
from rillet.spark.options import Options
from rillet.spark.write.commits import shown
from rillet.spark.write.row_encoder import RowEncoder

CHUNK = 1 << 18


class ReplyStream:
    """The answers that come over a connection, passed over by lines or read one by one."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._data = bytearray()
        self._room = bytearray(RECEIVE)

    def space(self, size: int) -> memoryview:
        """Return the place for bytes to come (what Connection.receive asks for)."""
        return memoryview(self._room)

    def filled(self, size: int) -> None:
        """Take the bytes that have come."""
        self._data += memoryview(self._room)[:size]

    def _more(self) -> None:
        self.connection.receive(self)  # type: ignore[arg-type]

    def skip(self, lines: int) -> int:
        """Pass over lines up to the first that is an error; return how many are left."""
        while lines:
            there = self._data.count(b"\r\n")
            if there == 0:
                self._more()
                continue
            if there <= lines:
                end = self._data.rfind(b"\r\n") + 2
            else:
                there = lines
                end = len(self._data) - len(self._data.split(b"\r\n", lines)[lines])
            if self._data.startswith(b"-"):
                return lines
            refused = self._data.find(b"\r\n-", 0, end)
            if refused >= 0:
                there = self._data.count(b"\r\n", 0, refused + 2)
                end = refused + 2
            del self._data[:end]
            lines -= there
            if refused >= 0:
                return lines
        return 0

    def starts_with(self, kind: bytes) -> bool:
        """Return whether the next reply is of this kind."""
        while not self._data:
            self._more()
        return self._data.startswith(kind)

    def line(self) -> bytes:
        """Return the next line."""
        while (end := self._data.find(b"\r\n")) < 0:
            self._more()
        line = bytes(self._data[:end])
        del self._data[: end + 2]
        return line

    def reply(self) -> Any:
        """Return the next reply of RESP2; an error as a Refused."""
        line = self.line()
        kind, rest = line[:1], line[1:]
        if kind == b"*":
            return None if rest == b"-1" else [self.reply() for _ in range(int(rest))]
        if kind == b"$":
            return None if rest == b"-1" else self._bulk(int(rest))
        if kind == b"-":
            return Refused(rest.decode(errors="backslashreplace"))
        return int(rest) if kind == b":" else rest

    def _bulk(self, size: int) -> bytes:
        while len(self._data) < size + 2:
            self._more()
        text = bytes(self._data[:size])
        del self._data[: size + 2]
        return text


class Refused(str):
    """An error line."""

    __slots__ = ()


def append_words(options: Options, stream: bytes) -> list[bytes]:
    """Return an XADD up to, without, its ID."""
    words = [b"XADD", stream]
    sign = b"=" if options.trim_exactly else b"~"
    if options.maxlen is not None:
        words += [b"MAXLEN", sign, b"%d" % options.maxlen]
    if options.minid is not None:
        words += [b"MINID", sign, options.minid.encode()]
    return words


class Sender:
    """What both ways of writing share: rows are laid out and packed; `Way` subclasses send chunks."""

    def __init__(self, servers: Servers, options: Options, layout: RowEncoder, partition: int) -> None:
        self.servers = servers
        self.options = options
        self.layout = layout
        self.partition = partition
        self.turn = partition
        self.packers: dict[bytes, RowPacker] = {}
        self.rows: dict[bytes, int] = {}

    def send(self, batch: Any) -> None:
        """Append the rows of a record batch."""
        for stream, rows in self.layout.shares(batch, self.turn):
            if stream not in self.rows:
                self.rows[stream] = 0
                self.begin(stream)
            self.rows[stream] += rows.num_rows
            self._pack(stream, rows)
        self.turn += batch.num_rows

    def _pack(self, stream: bytes, rows: Any) -> None:
        # A stream's packer stays where there is one stream; many would hold 64 KiB each.
        packer = self.packers.get(stream) or self.packer(stream)
        if self.layout.single:
            self.packers[stream] = packer
        self.layout.load(packer, rows, self.ids(stream, rows))
        row = 0
        while row < rows.num_rows:
            before = row
            try:
                row = packer.pack(row, self.bound(stream, row, rows.num_rows), CHUNK)
            except ValueError as error:
                raise ConnectorError(f"rillet: writing to {shown(stream)}: {error}") from None
            self.packed(stream, packer, rows, before, row)
            if packer.used >= CHUNK:
                self.chunk(stream, packer)
        if packer.used and not self.layout.single:
            self.chunk(stream, packer)

    def packer(self, stream: bytes) -> RowPacker:
        """Return a packer of a stream's commands."""
        return RowPacker(append_words(self.options, stream))

    def ids(self, stream: bytes, rows: Any) -> Any:
        """Return the rows' IDs; None lets the server choose."""
        return rows.column(self.options.id_column) if self.options.id_column else None

    def bound(self, stream: bytes, row: int, stop: int) -> int:
        """Return before which row packing has to pause."""
        return stop

    def packed(self, stream: bytes, packer: RowPacker, rows: Any, start: int, stop: int) -> None:
        """Take note of rows that were packed."""

    def begin(self, stream: bytes) -> None:
        """Meet a stream for the first time; it is a stream, or nothing yet."""
        kind = self.servers.call(stream, b"TYPE", stream)
        if kind not in (b"stream", b"none"):
            address = self.servers.connection(stream).address
            raise ConnectorError(f"rillet: {shown(stream)} at {address} is no stream but a {kind.decode()}")

    def chunk(self, stream: bytes, packer: RowPacker) -> None:
        """Send what a packer holds."""
        raise NotImplementedError

    def finish(self) -> dict[bytes, int]:
        """Send what is left, wait until everything is answered; return rows by stream."""
        raise NotImplementedError


def refusal(connection: Connection, stream: bytes, line: str, row_id: object = "") -> ConnectorError:
    """Return the error for a refused row."""
    which = f" (the row with ID {row_id})" if row_id else ""
    return ConnectorError(f"rillet: {connection.address} refused to append to {shown(stream)}: {line}{which}")


class PlainSender(Sender):
    """At least once: a task that runs again appends its rows again."""

    def __init__(self, servers: Servers, options: Options, layout: RowEncoder, partition: int) -> None:
        super().__init__(servers, options, layout, partition)
        self._ways: dict[bytes, Connection] = {}
        self._sent: dict[Connection, deque[tuple[bytes, bytearray, int]]] = {}
        self._replies: dict[Connection, ReplyStream] = {}

    def begin(self, stream: bytes) -> None:
        """Meet a stream for the first time, when nothing else is to come over its connection."""
        self._wait()
        super().begin(stream)
        connection = self._ways[stream] = self.servers.connection(stream)
        self._sent.setdefault(connection, deque())
        self._replies.setdefault(connection, ReplyStream(connection))

    def chunk(self, stream: bytes, packer: RowPacker) -> None:
        """Send a chunk, then read the replies of the one before."""
        connection = self._ways[stream]
        waiting = self._sent[connection]
        commands = packer.commands
        data = packer.take()
        connection.send(data)
        waiting.append((stream, data, commands))
        while len(waiting) > 1:
            self._answered(connection, *waiting.popleft())

    def _answered(self, connection: Connection, stream: bytes, data: bytearray, commands: int) -> None:
        replies = self._replies[connection]
        left = replies.skip(2 * commands)
        if left:
            row_id = id_in(data, commands - (left + 1) // 2, self.options) if self.options.id_column else ""
            raise refusal(connection, stream, replies.reply(), row_id)

    def _wait(self) -> None:
        for connection, waiting in self._sent.items():
            while waiting:
                self._answered(connection, *waiting.popleft())

    def finish(self) -> dict[bytes, int]:
        """Send what is left, wait until everything is answered; return rows by stream."""
        for stream, packer in self.packers.items():
            if packer.used:
                self.chunk(stream, packer)
        self._wait()
        return self.rows


def id_in(data: bytearray, command: int, options: Options) -> str:
    """Return the ID in a packed chunk's n-th XADD."""
    place = len(append_words(options, b""))
    at = 0
    while True:
        end = data.index(b"\r\n", at)
        words = int(data[at + 1 : end])
        at = end + 2
        for word in range(words):
            end = data.index(b"\r\n", at)
            size = int(data[at + 1 : end])
            if command == 0 and word == place:
                return data[end + 2 : end + 2 + size].decode(errors="backslashreplace")
            at = end + size + 4
        command -= 1

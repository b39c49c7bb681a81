"""Senders: classes that pack rows as XADD commands and send the commands in bounded pipelines.

    Sender              encodes rows (row_encoder.py) and packs them; subclasses send the packed chunks
    PlainSender         XADD XADD XADD ... in chunks, each sent before the replies to the previous one; at least once.
                        Each chunk may end with a note of its number, which shows later whether a server has lost chunks
    ProducerSender      XADD with IDMP arguments; the server skips repeated rows (producers.py)
    TransactionSender   transactions that also record their progress; exactly once (transactions.py)

Rows are sent in chunks of 256 KiB. At most two chunks wait for replies, which bounds the memory of client and server.
Replies are counted, not parsed (client/reply_stream.py).
"""

from __future__ import annotations

from collections import deque
from typing import Any

from rillet.client.cluster import slot_of
from rillet.client.connection import Connection
from rillet.client.errors import ConnectionLost, ConnectorError
from rillet.client.reply_stream import ReplyStream
from rillet.client.servers import Servers
from rillet.columns.row_packing import RowPacker
from rillet.spark.options import Options
from rillet.spark.write.commits import shown
from rillet.spark.write.query_record import TaskNotes
from rillet.spark.write.row_encoder import RowEncoder

CHUNK = 1 << 18


def append_words(options: Options, stream: bytes) -> list[bytes]:
    """Return the arguments of XADD before the ID: XADD, the key and the options."""
    words = [b"XADD", stream]
    sign = b"=" if options.trim_exactly else b"~"
    if options.maxlen is not None:
        words += [b"MAXLEN", sign, b"%d" % options.maxlen]
    if options.minid is not None:
        words += [b"MINID", sign, options.minid.encode()]
    return words


class Sender:
    """Encodes rows and packs them as XADD commands; subclasses send the packed chunks."""

    def __init__(self, servers: Servers, options: Options, layout: RowEncoder, partition: int) -> None:
        self.servers = servers
        self.options = options
        self.layout = layout
        self.partition = partition
        self.turn = partition
        self.packers: dict[bytes, RowPacker] = {}
        self.rows: dict[bytes, int] = {}

    def send(self, batch: Any) -> None:
        """Pack the rows of a record batch as XADD commands, and send full chunks."""
        for stream, rows in self.layout.shares(batch, self.turn):
            if stream not in self.rows:
                self.rows[stream] = 0
                self.begin(stream)
            self.rows[stream] += rows.num_rows
            self._pack(stream, rows)
        self.turn += batch.num_rows

    def _pack(self, stream: bytes, rows: Any) -> None:
        # Keep the packer only if all rows go to one stream, because each packer takes 64 KiB.
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
        """Return a packer for the XADD commands of a stream."""
        return RowPacker(append_words(self.options, stream))

    def ids(self, stream: bytes, rows: Any) -> Any:
        """Return the rows' IDs; None if the server generates them."""
        return rows.column(self.options.id_column) if self.options.id_column else None

    def bound(self, stream: bytes, row: int, stop: int) -> int:
        """Return the index of the row before which packing must pause: `stop`, or less in a subclass."""
        return stop

    def packed(self, stream: bytes, packer: RowPacker, rows: Any, start: int, stop: int) -> None:
        """Handle the rows from `start` to `stop` that were packed; a hook for subclasses."""

    def begin(self, stream: bytes) -> None:
        """Prepare to write to a stream; raise ConnectorError if the key holds another type."""
        self.check_type(stream)

    def check_type(self, stream: bytes) -> None:
        """Raise ConnectorError if the key holds another type than a stream."""
        kind = self.servers.call(stream, b"TYPE", stream)
        if kind not in (b"stream", b"none"):
            raise another_type(self.servers, stream, kind)

    def chunk(self, stream: bytes, packer: RowPacker) -> None:
        """Take the XADD commands out of a packer and send them, or keep them for a transaction."""
        raise NotImplementedError

    def finish(self) -> dict[bytes, int]:
        """Send the remaining rows and wait for all replies; return the number of rows of each stream."""
        raise NotImplementedError

    def groups(self) -> dict[bytes, int] | None:
        """Return the number of rows of each group of streams that share a record; None if no streams do."""
        return None

    def close(self) -> None:
        """Free what a failed task holds besides its connections: nothing, except in a subclass."""


def another_type(servers: Servers, stream: bytes, kind: bytes) -> ConnectorError:
    """Return the error for a key that is not a stream."""
    address = servers.connection(stream).address
    return ConnectorError(f"rillet: {shown(stream)} at {address} is a {kind.decode()}, not a stream")


def refusal(connection: Connection, stream: bytes, line: str, row_id: object = "") -> ConnectorError:
    """Return the error for a row whose XADD the server rejected."""
    which = f" (the row with ID {row_id})" if row_id else ""
    return ConnectorError(f"rillet: {connection.address} refused to append to {shown(stream)}: {line}{which}")


class PlainSender(Sender):
    """Writes rows at least once: if a task is repeated, it appends its rows again."""

    def __init__(
        self, servers: Servers, options: Options, layout: RowEncoder, partition: int, notes: TaskNotes | None = None
    ) -> None:
        super().__init__(servers, options, layout, partition)
        self.notes = notes
        self._noted: dict[bytes, Connection] = {}  # by the key of the notes
        self._connections: dict[bytes, Connection] = {}
        self._sent: dict[Connection, deque[tuple[bytes, bytearray, int]]] = {}
        self._replies: dict[Connection, ReplyStream] = {}

    def begin(self, stream: bytes) -> None:
        """Read all outstanding replies on the stream's connection, then check that the key is a stream."""
        self._drain()
        super().begin(stream)
        connection = self._connections[stream] = self.servers.connection(stream)
        self._sent.setdefault(connection, deque())
        self._replies.setdefault(connection, ReplyStream(connection))

    def chunk(self, stream: bytes, packer: RowPacker) -> None:
        """Send a chunk of XADD commands, then read the replies to the previous chunk."""
        connection = self._connections[stream]
        unanswered = self._sent[connection]
        commands = packer.commands
        data = packer.take_bytes()
        if self.notes is not None:
            key, note = self.notes.next(slot_of(stream) if self.servers.is_cluster else None)
            data += note
            if self._noted.setdefault(key, connection) is not connection:
                raise ConnectionLost(
                    f"rillet: a connection to {connection.address} was lost; Spark must run the task again"
                )
        connection.send(data)
        unanswered.append((stream, data, commands))
        while len(unanswered) > 1:
            self._read_replies(connection, *unanswered.popleft())

    def _read_replies(self, connection: Connection, stream: bytes, data: bytearray, commands: int) -> None:
        replies = self._replies[connection]
        noted = 0 if self.notes is None else 1
        left = replies.skip(2 * commands + noted)
        if left:
            row = commands - (left - noted + 1) // 2
            row_id = id_in(data, row, self.options) if self.options.id_column and row < commands else ""
            raise refusal(connection, stream, str(replies.reply()), row_id)

    def _drain(self) -> None:
        for connection, unanswered in self._sent.items():
            while unanswered:
                self._read_replies(connection, *unanswered.popleft())

    def finish(self) -> dict[bytes, int]:
        """Send the remaining rows and wait for all replies; return the number of rows of each stream."""
        for stream, packer in self.packers.items():
            if packer.used:
                self.chunk(stream, packer)
        self._drain()
        return self.rows


def id_in(data: bytearray, command: int, options: Options) -> str:
    """Return the ID in the n-th XADD command of a packed chunk."""
    return word_in(data, command, len(append_words(options, b""))).decode(errors="backslashreplace")


def word_in(data: bytes | bytearray, command: int, place: int) -> bytes:
    """Return a word of the n-th command of a packed chunk. O(bytes before it)"""
    at = 0
    while True:
        end = data.index(b"\r\n", at)
        words = int(data[at + 1 : end])
        at = end + 2
        for word in range(words):
            end = data.index(b"\r\n", at)
            size = int(data[at + 1 : end])
            if command == 0 and word == place:
                return bytes(data[end + 2 : end + 2 + size])
            at = end + size + 4
        command -= 1

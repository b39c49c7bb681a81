"""The tasks of groupMode=deliver: they read entries that were delivered to the query's consumer as record batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rillet.client.errors import ConnectionLost, ConnectorError, StaysAway
from rillet.client.protocol import pack
from rillet.client.redirection import Patience
from rillet.client.servers import Servers
from rillet.columns.arrow_batch import record_batch, rows_for
from rillet.columns.resp_decoder import MORE, RangeDecoder, ReplyFailed
from rillet.columns.row_builder import RowBuilder
from rillet.errors import ProtocolError
from rillet.spark.groups.group_position import GroupPosition
from rillet.spark.groups.pending import pending_after
from rillet.spark.options import Options
from rillet.spark.read.data_loss import DataLoss
from rillet.spark.read.metadata import id_text
from rillet.spark.read.offsets import Part
from rillet.spark.read.page_reader import MAX_BATCH_BYTES
from rillet.types.stream.id import StreamID

FIRST_PAGE = 32  # entries of the first page, which shows how large the entries are


class GroupRead:
    """Reads one stream with XREADGROUP; removes the head of the reply so that a RangeDecoder can decode the entries."""

    def __init__(self, servers: Servers, stream: str) -> None:
        self.servers = servers
        self.key = stream.encode()
        self.head = b"*1\r\n*2\r\n$%d\r\n%b\r\n" % (len(self.key), self.key)
        self.entries = self.missing = 0
        self.last = StreamID(0, 0)

    def read(self, rows: RowBuilder, group: bytes, consumer: bytes, start: bytes, count: int) -> int:
        """Append up to `count` entries to the rows; return the number of entries, including deleted ones."""
        words = (b"XREADGROUP", b"GROUP", group, consumer, b"COUNT", b"%d" % count, b"STREAMS", self.key, start)
        while True:
            connection = self.servers.connection(self.key)
            receiver = HeadSkipper(RangeDecoder(rows, 1 << 62, 1 << 62), self.head)
            try:
                connection.send(pack(*words))
                while receiver.skipping or receiver.decoder.decode() == MORE:
                    connection.receive(receiver)  # type: ignore[arg-type]
            except ConnectionLost:
                self.servers.forget(connection)
                raise
            except ReplyFailed as error:
                if self.servers.redirected(self.key, str(error)):
                    continue
                raise ConnectorError(
                    f"rillet: reading {self.key.decode()!r} at {connection.address} as {consumer.decode()!r} of "
                    f"the group {group.decode()!r}: {error}"
                ) from None
            except ProtocolError as error:
                raise ConnectorError(
                    f"rillet: reading {self.key.decode()!r} from {connection.address}: {error}"
                ) from error
            decoder = receiver.decoder
            self.entries, self.missing = decoder.entries, decoder.missing
            self.last = StreamID(decoder.last_ms, decoder.last_seq)
            return self.entries


class HeadSkipper:
    """A receive buffer that removes the part of a reply before the entries and passes the rest to a decoder."""

    def __init__(self, decoder: RangeDecoder, head: bytes) -> None:
        self.decoder = decoder
        self.head = head
        self.skipping = True
        self.received = b""
        self.room = bytearray()

    def space(self, n: int) -> memoryview:
        """Return a buffer with room for at least n received bytes."""
        if not self.skipping:
            return self.decoder.space(n)
        self.room = bytearray(n)
        return memoryview(self.room)

    def filled(self, n: int) -> None:
        """Process n received bytes; pass a null or error reply, which has no head, to the decoder as a whole."""
        if not self.skipping:
            self.decoder.filled(n)
            return
        self.received += self.room[:n]
        if len(self.received) < len(self.head) and self.head.startswith(self.received):
            return
        self.skipping = False
        self.decoder.feed(self.received.removeprefix(self.head))


class DeliveredRange:
    """A range of the consumer's pending entries, read page by page; `after` is the last ID that was read."""

    def __init__(self, options: Options, servers: Servers, part: Part) -> None:
        self.group = GroupPosition(options, servers)
        self.stream, self.after, self.last = part
        self.missing = 0

    def page(self, rows: RowBuilder, count: int) -> bool:
        """Append the next `count` entries to the rows; return False at the end of the range.

        XPENDING first returns how many entries of the range remain, because XREADGROUP would also read beyond `last`.
        """
        group = self.group
        options, servers = group.options, group.servers
        ids = pending_after(group, self.stream, self.after, id_text(self.last), count)
        if not ids:  # other consumers have claimed the entries, or a client moved the group back
            position = group.positions([self.stream]).get(self.stream)
            if options.fail_on_data_loss and position is not None and position < self.last:
                raise moved_back(options, servers, self.stream, position, self.last)
            return False
        request = GroupRead(servers, self.stream)
        entries = request.read(rows, group.name, group.consumer, id_text(self.after), len(ids))
        self.missing += request.missing
        if entries != len(ids) or request.last != ids[-1]:
            raise ConnectorError(
                f"rillet: the pending entries of the consumer {options.consumer!r} in {self.stream!r} changed while "
                "they were read: set the option consumer to a different name for each query"
            )
        self.after = ids[-1]
        return self.after < self.last


def moved_back(options: Options, servers: Servers, stream: str, position: StreamID, delivered: StreamID) -> DataLoss:
    """Return the error for a group whose last-delivered-id is before entries that it has already delivered."""
    where = servers.connection(stream.encode()).address
    return DataLoss(
        f"rillet: entries may have been lost before being read: the group {options.group!r} of the stream {stream!r} "
        f"at {where} is at {position}, although it has delivered entries up to {delivered}: it was moved back, or its "
        "server crashed and lost the last changes. Set failOnDataLoss=false to read again the entries that are "
        "delivered again"
    )


def deleted_entries(options: Options, servers: Servers, stream: str, entries: int) -> DataLoss:
    """Return the error for entries that were delivered to the consumer and deleted before they were read."""
    where = servers.connection(stream.encode()).address
    lost = f"{entries} {'entry was' if entries == 1 else 'entries were'}"
    return DataLoss(
        f"rillet: {lost} lost before being read: delivered from the stream {stream!r} at {where} to the consumer "
        f"{options.consumer!r} of the group {options.group!r} and then deleted. Set failOnDataLoss=false to continue "
        "without them"
    )


def read_range(options: Options, servers: Servers, part: Part, schema: Any) -> Iterator[Any]:
    """Yield a range of the consumer's pending entries as record batches of an Arrow schema, in order.

    After a lost connection, connect again for up to `timeout`: the entries are still pending. A page is one reply. Its
    number of entries is chosen, from the size of earlier entries, so that a batch stays below MAX_BATCH_BYTES.
    """
    delivered = DeliveredRange(options, servers, part)
    more, patience = True, Patience(options.timeout)
    count = min(FIRST_PAGE, options.batch_entries)
    while more:
        rows = rows_for(schema, part[0].encode(), options.mode, options.corrupt_column)
        try:
            more = delivered.page(rows, count)
            patience = Patience(options.timeout)
        except StaysAway:
            raise
        except ConnectionLost:
            if not patience.again():
                raise
            continue
        if delivered.missing and options.fail_on_data_loss:
            raise deleted_entries(options, servers, part[0], delivered.missing)
        fitting = count * MAX_BATCH_BYTES // max(rows.nbytes, 1)
        count = max(1, min(options.batch_entries, 16 * count, fitting))
        if rows.length:
            yield record_batch(rows, schema)


def read_delivered(options: Options, ranges: Sequence[Part], schema: Any) -> Iterator[Any]:
    """Yield the pending entries in a task's ranges as record batches, one range after the other."""
    with Servers(options) as servers:
        servers.waits = True  # the planner has just reached the server, so wait if it is unavailable
        for part in ranges:
            yield from read_range(options, servers, part, schema)

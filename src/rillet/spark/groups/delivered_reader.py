"""Reads entries that were delivered to the query's consumer as record batches, in the tasks of groupMode=deliver."""

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
from rillet.spark.options import Options
from rillet.spark.read.metadata import id_text
from rillet.spark.read.offsets import Part
from rillet.spark.read.page_reader import MAX_BATCH_BYTES
from rillet.types.stream.id import StreamID

FIRST_PAGE = 32  # entries in the first page, whose size determines later pages


def read_group(group: GroupPosition, stream: str, rows: RowBuilder, start: bytes, count: int) -> RangeDecoder:
    """Append up to `count` entries from XREADGROUP to `rows`; return the decoder, which has counted the entries."""
    servers, key = group.servers, stream.encode()
    words = (b"XREADGROUP", b"GROUP", group.name, group.consumer, b"COUNT", b"%d" % count, b"STREAMS", key, start)
    while True:
        connection = servers.connection(key)
        decoder = RangeDecoder(rows, 1 << 62, 1 << 62)
        receiver = HeadSkipper(decoder, b"*1\r\n*2\r\n$%d\r\n%b\r\n" % (len(key), key))
        try:
            connection.send(pack(*words))
            while receiver.skipping or decoder.decode() == MORE:
                connection.receive(receiver)  # type: ignore[arg-type]
            return decoder
        except ConnectionLost:
            servers.forget(connection)
            raise
        except ReplyFailed as error:
            if not servers.redirected(key, str(error)):
                raise ConnectorError(
                    f"rillet: reading {stream!r} at {connection.address} as {group.options.consumer!r} of the group "
                    f"{group.options.group!r}: {error}"
                ) from None
        except ProtocolError as error:
            raise ConnectorError(f"rillet: reading {stream!r} from {connection.address}: {error}") from error


def last_id(decoder: RangeDecoder) -> StreamID:
    """Return the ID of the last entry that a decoder has read."""
    return StreamID(decoder.last_ms, decoder.last_seq)


class HeadSkipper:
    """A receive buffer that passes an XREADGROUP reply to a decoder without the RESP bytes before its entries."""

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
        """Process n received bytes; pass a null reply or an error reply to the decoder unchanged."""
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
        """Append the next `count` entries to `rows`; return False at the end of the range.

        XPENDING first returns the IDs of the page, because XREADGROUP would also read beyond `last`.
        """
        group = self.group
        ids = group.pending_after(self.stream, self.after, id_text(self.last), count)
        if not ids:  # another consumer claimed the entries, or a client moved the group
            position = group.positions([self.stream]).get(self.stream)
            if group.options.fail_on_data_loss and position is not None and position < self.last:
                raise group.moved_back(self.stream, position, self.last)
            return False
        decoder = read_group(group, self.stream, rows, id_text(self.after), len(ids))
        self.missing += decoder.missing
        if decoder.entries != len(ids) or last_id(decoder) != ids[-1]:
            raise ConnectorError(
                f"rillet: the pending entries of the consumer {group.options.consumer!r} in {self.stream!r} changed "
                "while they were read: set the option consumer to a different name for each query"
            )
        self.after = ids[-1]
        return self.after < self.last


def read_range(options: Options, servers: Servers, part: Part, schema: Any) -> Iterator[Any]:
    """Yield a range of the consumer's pending entries as record batches of an Arrow schema, in order.

    After a lost connection, connect again for up to `timeout`, because the entries are still pending. A page is one
    reply. Its number of entries depends on the size of earlier entries, so that a batch stays below MAX_BATCH_BYTES.
    """
    delivered = DeliveredRange(options, servers, part)
    more, patience = True, Patience(options.timeout)
    count = min(FIRST_PAGE, options.batch_entries)
    while more:
        rows = rows_for(schema, part[0].encode(), options.mode, options.corrupt_column, options.readers)
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
            raise delivered.group.deleted_entries(part[0], delivered.missing)
        fitting = count * MAX_BATCH_BYTES // max(rows.nbytes, 1)
        count = max(1, min(options.batch_entries, 16 * count, fitting))
        if rows.length:
            yield record_batch(rows, schema)


def read_delivered(options: Options, ranges: Sequence[Part], schema: Any) -> Iterator[Any]:
    """Yield the pending entries in a task's ranges as record batches, one range after the other."""
    with Servers(options) as servers:
        servers.waits = True  # wait for an unavailable server, which the driver has just reached
        for part in ranges:
            yield from read_range(options, servers, part, schema)

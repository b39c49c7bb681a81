"""What is asked of a server to read from a stream: its ends, samples of it, a page after the other.

`read_range` is the whole work of a task: page through (after, last] with XRANGE COUNT and give out record
batches. The request for a page leaves as soon as the last ID of the page before is known, and a batch is handed
to Spark while the server works on that page.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from rillet.columns.arrow import record_batch, rows_for
from rillet.columns.resp import DONE, FULL, MORE, RangeDecoder, ReplyFailed
from rillet.errors import ProtocolError
from rillet.spark.connection import Connection, ConnectionLost, ConnectorError, endpoint, pack
from rillet.spark.offsets import PROBE, Range, number, successor
from rillet.spark.options import Options
from rillet.types.stream_id import StreamID

LARGE_ENTRY = 16384  # bytes; beyond it samples are not worth their transfer
MAX_BATCH_BYTES = 32 << 20
ATTEMPTS = 3
IDLE_MS = 100


@dataclass(frozen=True)
class Extent:
    """What XINFO STREAM tells: how long a stream is, where its entries begin, and the last ID ever given."""

    length: int
    first: StreamID | None
    last: StreamID
    large: bool


def extent(connection: Connection, stream: str) -> Extent:
    """Ask for the ends of a stream; a missing key or one of another type raises ConnectorError, named."""
    key = stream.encode()
    try:
        flat = connection.call(b"XINFO", b"STREAM", key)
    except ConnectorError as error:
        if isinstance(error, ConnectionLost):
            raise
        if "no such key" not in str(error):
            raise ConnectorError(f"{error} (stream {stream!r})") from None
        raise ConnectorError(f"rillet: there is no stream {stream!r} at {connection.address}") from None
    told = dict(zip(flat[::2], flat[1::2], strict=False))
    edges = [entry for entry in (told.get(b"first-entry"), told.get(b"last-entry")) if entry]
    large = any(sum(map(len, entry[1] or [])) > LARGE_ENTRY for entry in edges)
    first = StreamID.parse(edges[0][0]) if edges else None
    return Extent(told[b"length"], first, StreamID.parse(told[b"last-generated-id"]), large)


def probe(connection: Connection, stream: str, starts: Sequence[StreamID]) -> list[list[StreamID]]:
    """Return the IDs of the next few entries after each start."""
    key, count = stream.encode(), b"%d" % PROBE
    asked = [(b"XRANGE", key, _text(successor(start)), b"+", b"COUNT", count) for start in starts]
    return [[StreamID.parse(entry[0]) for entry in reply] for reply in connection.calls(asked)]


def _text(bound: StreamID) -> bytes:
    return b"%d-%d" % bound


def page_request(key: bytes, after: StreamID, last: StreamID, count: int) -> bytes:
    """Return the packed XRANGE of the next `count` entries of (after, last]."""
    return pack(b"XRANGE", key, _text(successor(after)), _text(last), b"COUNT", b"%d" % count)


def read_range(options: Options, part: Range, schema: Any) -> Iterator[Any]:
    """Yield the entries of a range as record batches of an Arrow schema, in order.

    A lost connection is made again and reading goes on after the last whole entry, three times without progress.
    """
    pages = Pages(options, part, schema)
    tries = 0
    while not pages.ended:
        before = pages.after
        try:
            yield from pages.read()
        except ConnectionLost:
            tries = tries + 1 if pages.after == before else 0
            if tries == ATTEMPTS:
                raise
    if pages.rows.length:
        yield record_batch(pages.rows, schema)


class Pages:
    """The pages of a range, decoded into rows; `after` is the last entry that is in them."""

    def __init__(self, options: Options, part: Range, schema: Any) -> None:
        self.options = options
        self.key = options.stream.encode()
        self.rows = rows_for(schema, self.key)
        self.schema = schema
        self.after, self.last = part.after, part.last
        self.ended = False

    def read(self) -> Iterator[Any]:
        """Yield full batches, over one connection; the rest of the rows stays when the range has ended."""
        address = endpoint(self.options)
        decoder = RangeDecoder(self.rows, self.options.batch_entries, MAX_BATCH_BYTES)
        try:
            with Connection(address, self.options.timeout) as connection:
                connection.send(self._request())
                while not self.ended:
                    state = decoder.decode()
                    if state == MORE:
                        self._note(decoder)
                        connection.receive(decoder)
                        continue
                    if state == DONE:
                        self._note(decoder)
                        if decoder.entries < self.options.page_entries or self.after == self.last:
                            self.ended = True
                            return
                        connection.send(self._request())
                    if state == FULL or self.rows.length + self.options.page_entries > self.options.batch_entries:
                        yield record_batch(self.rows, self.schema)
        except (ReplyFailed, ProtocolError) as error:
            raise ConnectorError(f"rillet: reading {self.options.stream!r} from {address}: {error}") from error

    def _request(self) -> bytes:
        return page_request(self.key, self.after, self.last, self.options.page_entries)

    def _note(self, decoder: RangeDecoder) -> None:
        if decoder.last_ms or decoder.last_seq:
            self.after = StreamID(decoder.last_ms, decoder.last_seq)


def wait_for_entry(connection: Connection, stream: str, after: StreamID) -> None:
    """Wait until there is an entry after this ID, IDLE_MS at the longest: Spark asks an idle query without a pause."""
    connection.call(b"XREAD", b"COUNT", b"1", b"BLOCK", b"%d" % IDLE_MS, b"STREAMS", stream.encode(), _text(after))


def skip_ahead(connection: Connection, options: Options, after: StreamID, last: StreamID, entries: int) -> StreamID:
    """Return the ID of the entry that is `entries` further than `after`, or `last` if that comes first.

    Redis has no rank, so the entries travel here to be counted: O(entries), about 0.7 us each.
    """
    from rillet.columns.builder import Rows

    key = options.stream.encode()
    rows = Rows(key)
    decoder = RangeDecoder(rows, 1 << 62, 1 << 62)
    left = entries
    while left > 0 and number(after) < number(last):
        count = min(left, options.page_entries)
        connection.send(page_request(key, after, last, count))
        while decoder.decode() == MORE:
            connection.receive(decoder)
        if decoder.entries < count:
            return last
        after = StreamID(decoder.last_ms, decoder.last_seq)
        left -= count
    return after

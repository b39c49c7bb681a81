"""Ranges of streams become record batches: the whole work of a task.

`read_task` pages through its ranges with XRANGE COUNT and gives out record batches. Requests for several ranges are
under way at the same time, so that many small ranges do not cost a round trip each:

    waiting      D E F ...
                 │ sent, as long as fewer than WINDOW are under way
                 ▼
    under way    A B C     their replies come in this order from each node, and are decoded in this order,
                 │         each by the decoder of its connection, all into the same rows
                 ▼
    A has more:  sent again at once, after C;   A has ended: forgotten

All pages under way together hold `pageEntries` at the most, so memory is bounded, and a range that is alone gets
all of them in one page. The request for its next page leaves as soon as the last ID of the page before is known, and a
batch is handed to Spark while the server works on that page. What comes first is decided by the plan and the replies
alone: a task that runs again gives the same rows in the same order, after a lost connection too.

A lost connection is made again and reading goes on after the last whole entry, for as long as `timeout` without
progress, with pauses: a server that restarts costs the pause. The planner has had an answer a moment ago, so that is
true of the first connection too. A node that sends us elsewhere is obeyed; from then on one request is under way at a
time, because the answer to it decides whom to ask next. A replica that has no more, before the range has ended, may lag
behind: the rest comes from its master.

Where losses are to be noticed, every page begins at the entry that was read last, which proves that nothing between
the two is missing (overtaking.py).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

from rillet.client.connection import Connection
from rillet.client.errors import ConnectionLost, ConnectorError, StaysAway
from rillet.client.protocol import pack
from rillet.client.redirection import Patience
from rillet.client.servers import Servers
from rillet.columns.arrow_batch import record_batch, rows_for
from rillet.columns.resp_decoder import BEGUN, DONE, FULL, MORE, RangeDecoder, ReplyFailed
from rillet.errors import ProtocolError
from rillet.spark.options import Options
from rillet.spark.read.data_loss import Place
from rillet.spark.read.metadata import id_text
from rillet.spark.read.node_reader import read_nodes
from rillet.spark.read.offsets import Part, successor
from rillet.spark.read.trim_detection import TrimWatch
from rillet.types.stream.id import StreamID

MAX_BATCH_BYTES = 32 << 20
WINDOW = 16


def read_task(
    options: Options, ranges: Sequence[Part], schema: Any, since: Mapping[str, Place] | None = None,
    free: Set[str] = frozenset(),
) -> Iterator[Any]:  # fmt: skip
    """Yield the entries of ranges as record batches of an Arrow schema, those of a stream in order.

    since: that entries are removed before they were read is noticed, and is DataLoss; where the batch's streams
    were read up to, as far as counters are known there; free: streams of which nothing was promised yet.
    """
    if ranges:
        with Servers(options) as servers, Servers(options) as aside:
            servers.waits = aside.waits = True
            pages = PageReader(options, servers, schema, None if since is None else TrimWatch(aside, since, free))
            # A server of our own ships whole nodes; what is left is read by XRANGE.
            pages.add((yield from read_nodes(options, servers, ranges, schema, pages.rows, pages.watch)))
            yield from pages.read()


@dataclass
class Cursor:
    """Where reading of a range is: after `after`, so many of its entries read; its next page has `count`, or fewer."""

    part: Part
    key: bytes
    after: StreamID
    last: StreamID
    read: int = 0
    count: int = 0
    master: bool = False  # the replica had no more

    @classmethod
    def of(cls, part: Part) -> Cursor:
        """Return the beginning of a range."""
        return cls(part, part[0].encode(), part[1], part[2])

    def request(self, proving: bool) -> bytes:
        """Return the packed request for the next page; proving: from the last entry on, that one included."""
        low, count = (self.after, self.count + 1) if proving else (successor(self.after), self.count)
        return pack(b"XRANGE", self.key, id_text(low), id_text(self.last), b"COUNT", b"%d" % count)


class PageReader:
    """The pages of a task's ranges, decoded into rows."""

    def __init__(self, options: Options, servers: Servers, schema: Any, watch: TrimWatch | None = None) -> None:
        self.options = options
        self.servers = servers
        self.schema = schema
        self.watch = watch
        self.rows = rows_for(schema, b"", options.mode, options.corrupt_column)
        self.waiting: deque[Cursor] = deque()
        self.under_way: deque[tuple[Cursor, Connection]] = deque()
        self.decoders: dict[Connection, RangeDecoder] = {}
        self.window = WINDOW
        self.moved = False  # whether anything was read since the last trouble

    def add(self, ranges: Sequence[Part]) -> None:
        """Add ranges to what is to be read."""
        self.waiting.extend(map(Cursor.of, ranges))

    def read(self) -> Iterator[Any]:
        """Yield batches until every range has ended."""
        patience: Patience | None = None
        while self.waiting or self.under_way:
            try:
                self._send()
                yield from self._page()
            except StaysAway:
                raise
            except ConnectionLost:
                self._begin_again()
                if self.moved or patience is None:
                    patience = Patience(self.options.timeout)
                self.moved = False
                if not patience.again():
                    raise
        if self.rows.length:
            yield record_batch(self.rows, self.schema)

    def _send(self) -> None:
        """Send requests until there are enough under way."""
        requests: dict[Connection, list[bytes]] = {}
        while self.waiting and len(self.under_way) < self.window:
            cursor = self.waiting[0]
            connection = self.servers.connection(cursor.key) if cursor.master else self.servers.readers(cursor.key)
            self.waiting.popleft()
            if not cursor.count:
                sharing = min(self.window, len(self.waiting) + len(self.under_way) + 1)
                cursor.count = max(1, self.options.page_entries // sharing)
            self.under_way.append((cursor, connection))
            requests.setdefault(connection, []).append(cursor.request(self.watch is not None))
        for connection, packed in requests.items():
            if connection not in self.decoders:
                self.decoders[connection] = RangeDecoder(self.rows, self.options.batch_entries, MAX_BATCH_BYTES)
            connection.send(b"".join(packed))

    def _page(self) -> Iterator[Any]:
        """Decode the page that comes next; yield the batches that it fills."""
        cursor, connection = self.under_way[0]
        decoder = self.decoders[connection]
        if self.rows.key != cursor.key:
            self.rows.key = bytearray(cursor.key)
        decoder.last_ms = decoder.last_seq = 0  # those of another range
        if self.watch is not None:
            decoder.expect(*cursor.after, cursor.count)
        while True:
            try:
                state = decoder.decode()
            except ReplyFailed as error:
                self._refused(cursor, connection, str(error))
                return
            except ProtocolError as error:
                raise self._error(cursor, connection, error) from error
            if state == BEGUN:
                if self.watch is not None and not decoder.met:
                    self.watch.settle(cursor.part, cursor.after, cursor.read)
                continue
            self._note(cursor, decoder)
            if state == MORE:
                connection.receive(decoder)
                continue
            if state == DONE:
                self._ended(cursor, connection, decoder.entries)
                self._send()
            if state == FULL or self.rows.length + self.options.page_entries > self.options.batch_entries:
                batch = record_batch(self.rows, self.schema)
                if batch.num_rows:  # none, where all were dropped
                    yield batch
            if state == DONE:
                return

    def _note(self, cursor: Cursor, decoder: RangeDecoder) -> None:
        """Note the last entry that is in the rows."""
        if decoder.last_ms or decoder.last_seq:
            cursor.after = StreamID(decoder.last_ms, decoder.last_seq)
            self.moved = True

    def _ended(self, cursor: Cursor, connection: Connection, entries: int) -> None:
        """Go on in a range whose page was read, if there is more."""
        self.under_way.popleft()
        self.moved = True
        cursor.read += entries
        short, cursor.count = entries < cursor.count, 0
        if cursor.after < cursor.last and (not short or (connection.replica and not cursor.master)):
            cursor.master = short
            self.waiting.appendleft(cursor)

    def _refused(self, cursor: Cursor, connection: Connection, line: str) -> None:
        """Go where a node sends us; one that is loading was waited for, and is asked the same again."""
        if not self.servers.redirected(cursor.key, line):
            raise self._error(cursor, connection, line)
        if line.startswith("LOADING"):
            self._begin_again()
            return
        self.under_way.popleft()
        if self.under_way:
            self._begin_again()
        cursor.count = 0
        self.waiting.appendleft(cursor)
        self.window = 1

    def _begin_again(self) -> None:
        """Give up what is under way: the same pages, or what is missing of them, are asked for once more."""
        lost = {connection for _, connection in self.under_way}
        if self.under_way:
            cursor, connection = self.under_way[0]
            decoder = self.decoders.get(connection)
            if decoder is not None and decoder.left == 0 < decoder.extra:  # all that counts of it is decoded
                self._ended(cursor, connection, decoder.entries)
            elif decoder is not None and decoder.left >= 0:  # half decoded
                cursor.count -= decoder.entries - decoder.left
                cursor.read += decoder.entries - decoder.left
        for connection in lost:
            if self.decoders.pop(connection, None) is not None:
                self.servers.forget(connection)
        while self.under_way:
            self.waiting.appendleft(self.under_way.pop()[0])

    def _error(self, cursor: Cursor, connection: Connection, reason: object) -> ConnectorError:
        return ConnectorError(f"rillet: reading {cursor.part[0]!r} from {connection.address}: {reason}")

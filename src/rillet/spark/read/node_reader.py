"""Ranges of streams from a server of our own: whole nodes instead of entries.

    task      RILLET.XNODES events 0-0 9-9 COUNT 20000 ────────────────────────►  copies listpacks into a reply
              ◄─────────────────────── go on after 5-2, first 0-1, node, node ...
              RILLET.XNODES events 5-2 9-9 COUNT 20000 ─────────►                 has the next page ready while
              decodes the nodes where they lie in the buffer                      this one is decoded
              ◄──────────────────────────────────── nil, first 0-1, node, node    the end: the next range is asked for

A reply begins with the ID to go on after, so the next request leaves before the page is decoded, and with the stream's
first ID, which tells whether a trim has overtaken the task (overtaking.py). The server's work is
one copy of each node, about 1/30 of what XRANGE costs it, and the decoder's a third: no length, no name and no
number is text (`columns/node_decoder.py`).

The first answer tells whether the server knows the command. Whatever error it answers with (Redis says "unknown
command", a cluster where the key has gone) the ranges that are left are read by XRANGE, which knows what to do with
each; but a server that is loading its data is waited for. So are those read that a replica serves: it may lag, and
that is handled there.

A lost connection is made again, and reading goes on after the last entry that was decoded, for as long as `timeout`
without progress, with pauses. What arrives is checked as bytes from outside are; a node that is not sound ends the
task.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any

from rillet.client.connection import Connection
from rillet.client.errors import ConnectionLost, ConnectorError, StaysAway
from rillet.client.protocol import pack
from rillet.client.redirection import Patience
from rillet.client.servers import Servers
from rillet.columns.arrow_batch import record_batch
from rillet.columns.node_decoder import NodeReader
from rillet.columns.node_pages import ANSWER, FULL, MORE, NodePages
from rillet.columns.resp_decoder import ReplyFailed
from rillet.columns.row_builder import RowBuilder
from rillet.errors import Corrupt, ProtocolError
from rillet.spark.options import Options
from rillet.spark.read.offsets import Part, successor
from rillet.spark.read.trim_detection import TrimWatch
from rillet.types.stream.id import StreamID

MAX_BATCH_BYTES = 32 << 20
PAGES = 8  # a page of nodes holds so many pages of XRANGE: it costs the server less to send


@dataclass
class NodeRange:
    """A range that is being read: after which ID the last page was asked for, and who decodes them."""

    part: Part
    asked: StreamID
    reader: NodeReader
    before: int = 0  # entries that were read by other readers

    @classmethod
    def of(cls, part: Part, options: Options, rows: RowBuilder) -> NodeRange:
        """Return the beginning of a range."""
        return cls(part, part[1], NodeReader(rows, part[1], part[2], options.batch_entries, MAX_BATCH_BYTES))

    @property
    def stream(self) -> str:
        """The stream's key."""
        return self.part[0]

    @property
    def read(self) -> int:
        """How many of its entries were read."""
        return self.before + self.reader.entries

    @property
    def after(self) -> StreamID:
        """The last one of them."""
        return StreamID(self.reader.last_ms, self.reader.last_seq)

    def rest(self, options: Options, rows: RowBuilder) -> NodeRange:
        """Return what is not in the rows yet, to be asked for anew."""
        reader = NodeReader(rows, self.after, self.part[2], options.batch_entries, MAX_BATCH_BYTES)
        return NodeRange(self.part, self.after, reader, self.read)


def read_nodes(
    options: Options,
    servers: Servers,
    ranges: Sequence[Part],
    schema: Any,
    rows: RowBuilder,
    watch: TrimWatch | None = None,
) -> Generator[Any, None, list[Part]]:
    """Yield full batches of the rows; return the ranges that this server has to be asked for by XRANGE.

    The last entries stay in the rows.
    """
    reading = NodesReading(options, servers, ranges, schema, rows, watch)
    patience: Patience | None = None
    before = (0, 0)
    while reading.waiting or reading.under_way:
        try:
            if (yield from reading.read()):
                break
        except StaysAway:
            raise
        except ConnectionLost:
            reading.begin_again()
            if patience is None or before != reading.progress:
                patience = Patience(options.timeout)
            before = reading.progress
            if not patience.again():
                raise
    return [(span.stream, span.after, span.part[2]) for span in reading.waiting]


class NodesReading:
    """The ranges of a task, one after the other, the next request always ahead of the decoder."""

    def __init__(
        self,
        options: Options,
        servers: Servers,
        ranges: Sequence[Part],
        schema: Any,
        rows: RowBuilder,
        watch: TrimWatch | None,
    ) -> None:
        self.options = options
        self.servers = servers
        self.schema = schema
        self.rows = rows
        self.watch = watch
        self.waiting = deque(NodeRange.of(part, options, rows) for part in ranges)
        self.under_way: deque[tuple[NodeRange, Connection]] = deque()
        self.pages: dict[Connection, NodePages] = {}
        self.ended = 0  # pages
        self.count = b"%d" % (PAGES * options.page_entries)

    @property
    def progress(self) -> tuple[int, int]:
        """Return what grows with all that is read, when nothing is under way."""
        return self.ended, self.waiting[0].read if self.waiting else 0

    def read(self) -> Generator[Any, None, bool]:
        """Yield batches until all is read (False), or until a server answers with an error (True)."""
        while self.waiting or self.under_way:
            if not self.under_way and not self._begin():
                return True
            span, connection = self.under_way[0]
            try:
                yield from self._page(span, connection)
            except ReplyFailed as error:
                loading = str(error).startswith("LOADING") and self.servers.redirected(span.stream.encode(), str(error))
                self.begin_again(keep=connection if len(self.under_way) == 1 else None)
                if not loading:
                    return True
            except (Corrupt, ProtocolError) as error:
                self.servers.forget(connection)
                raise ConnectorError(f"rillet: reading {span.stream!r} from {connection.address}: {error}") from error
        return False

    def _begin(self) -> bool:
        """Ask for the first page of the range that comes next; False where a replica would answer."""
        span = self.waiting[0]
        connection = self.servers.readers(span.stream.encode())
        if connection.replica:
            return False
        self._ask(self.waiting.popleft(), connection)
        return True

    def _ask(self, span: NodeRange, connection: Connection) -> None:
        """Ask for a page."""
        self.under_way.append((span, connection))
        stream, _, last = span.part
        words = (b"RILLET.XNODES", stream.encode(), str(span.asked).encode(), str(last).encode())
        connection.send(pack(*words, b"COUNT", self.count))

    def _page(self, span: NodeRange, connection: Connection) -> Generator[Any, None, None]:
        """Decode the page that comes next; yield the batches that it fills."""
        pages = self.pages.get(connection)
        if pages is None:
            pages = self.pages[connection] = NodePages(span.reader)
        pages.reader = span.reader
        key = span.stream.encode()
        if self.rows.key != key:
            self.rows.key = bytearray(key)
        while True:
            state = pages.decode()
            if state == MORE:
                connection.receive(pages)
            elif state == FULL:
                batch = record_batch(self.rows, self.schema)
                if batch.num_rows:  # none, where all were dropped
                    yield batch
            elif state == ANSWER:
                self._prove(span, pages.first)
                self._go_on(span, pages.go_on, connection)
            else:
                self.ended += 1
                self.under_way.popleft()
                return

    def _prove(self, span: NodeRange, first: StreamID | None) -> None:
        """Raise DataLoss if what a page should begin with may have been trimmed; `first` is the stream's first ID."""
        if self.watch is not None and (first is None or first > successor(span.asked)):
            self.watch.settle(span.part, span.asked, span.read)

    def _go_on(self, span: NodeRange, after: StreamID | None, connection: Connection) -> None:
        """Send the request that follows one whose answer has begun."""
        if after is None:
            if self.waiting:
                self._begin()
        elif after <= span.asked:
            raise ProtocolError(f"a page that goes on after {after}, where it began")
        else:
            span.asked = after
            self._ask(span, connection)

    def begin_again(self, keep: Connection | None = None) -> None:
        """Give up what is under way: what is missing of it waits again. Connections but one to keep are forgotten."""
        spans = {id(span): span for span, _ in self.under_way}
        for connection in {connection for _, connection in self.under_way}:
            self.pages.pop(connection, None)
            if connection is not keep:
                self.servers.forget(connection)
        self.under_way.clear()
        self.waiting.extendleft(reversed([span.rest(self.options, self.rows) for span in spans.values()]))

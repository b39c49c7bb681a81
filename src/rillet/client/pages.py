"""Reading streams page by page: RangeReader for bulk reads, reply_pages for small replies.

    RangeReader    ranges of streams -> rows of columns (columns/row_builder.py), by RILLET.XNODES or XRANGE
    reply_pages    any command that replies with a list: XRANGE, XREVRANGE, XPENDING

**RangeReader.** A rillet server sends whole nodes (RILLET.XNODES), which takes 1/30 of XRANGE's time in the server
and a third in the decoder. Any other server rejects this command, and the reader uses XRANGE instead. It uses XRANGE
for a range from a replica, too.

The reader sends requests ahead, so that it does not wait a round trip for each small range or for each page of a large
one:

    waiting      D E F ...
                 │ sent while fewer than WINDOW are under way (one with XNODES, whose pages are larger)
                 ▼
    under way    A B C     the replies of each node arrive and are decoded in this order, all into the same rows
                 │
                 ▼
    A has more:  requested again at once, before the caller takes the rows

All XRANGE pages under way together have at most `page_entries` entries, which bounds the memory. The order of the
entries depends only on the ranges and the replies, so a second run yields the same rows in the same order, also after a
lost connection.

**Parts.** XRANGE's next page begins at the last entry of the page before, so a single range would have one request
under way, and the server would idle while its reply is decoded. So the reader cuts parts of a large range off in
advance. A part is as wide in milliseconds as the entries of the last page suggest, times PART_FILL:

    range        (after ................................... last]
                  │ part   │ part   │ part   │ rest, cut when a reply was decoded
                  └ AHEAD parts are under way; their replies arrive in order

If a part has more entries than its page, the replies of the parts behind it are skipped, and the rest is cut anew; a
stream whose IDs cannot be foreseen is soon read without parts. A part without entries costs a small request, and the
next one is wider. Only a `fixed` range is cut, to which no entry can be added: otherwise an entry that is appended to
an empty part after its reply would be missed, while the next part has a later one. A range is not cut either if it is
read from a replica, because the master would have to serve the end of each part.

**Failures.** A lost connection is opened again and the range continues after the last whole entry, as long as there is
progress within the client's timeout. MOVED and ASK are followed; from then on one request is under way at a time,
because its reply decides where the next one goes. A replica that has no more entries before the range ends may lag
behind, so its master serves the remaining entries.

**Trimming.** `check` is called when a page does not prove that it continues the page before. By XRANGE, a page is then
requested from the last entry that was read, that entry included: if the entry is present, nothing after it was
trimmed. XNODES returns the first ID of the stream, which must not be beyond the page's beginning. `check` raises an
error if entries are lost; if it returns, the reader continues.

A part that is requested in advance begins at a cut, before the last entry of the page before is known. So a second
request follows it, for one entry up to the cut. Trims remove entries from the front only: if the stream still has such
an entry after the part was read, nothing behind the cut was trimmed before.

    XRANGE s (cut end COUNT n      the part
    XRANGE s - cut COUNT 1         its proof: one entry is enough

Until the proof has arrived, the part is in doubt, and no batch that contains its rows is passed on. If a batch is full
before that, or the connection is lost, `check` decides, with the entries that were read before the part.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from rillet.client.connection import Connection
from rillet.client.errors import ConnectionLost, ConnectorError, StaysAway
from rillet.client.protocol import pack
from rillet.client.redirection import Patience
from rillet.client.servers import Servers
from rillet.columns.node_decoder import NodeReader
from rillet.columns.node_pages import ANSWER, NodePages
from rillet.columns.resp_decoder import BEGUN, DONE, FULL, MORE, RangeDecoder, ReplyFailed
from rillet.columns.row_builder import RowBuilder
from rillet.errors import Corrupt, ProtocolError
from rillet.types.stream.id import MAX, StreamID

WINDOW = 16
AHEAD = 3  # parts of one range that are under way
PART_FILL = 0.75  # the share of a page that a part of a range probably fills
NODE_PAGE = 8  # an XNODES page has as many entries as this number of XRANGE pages
UNLIMITED = 1 << 62
_HEAD = BEGUN
assert _HEAD == ANSWER  # the decoders of XRANGE and of XNODES use the same numbers for their states


def successor(identifier: StreamID) -> StreamID:
    """Return the next larger ID; for the largest ID, return the same ID."""
    ms, seq = identifier
    if seq < MAX:
        return StreamID(ms, seq + 1)
    return StreamID(ms + 1, 0) if ms < MAX else identifier


@dataclass(eq=False)
class PageRange:
    """A range to read: up to `limit` entries with after < ID <= last. `after` advances to the last decoded entry."""

    key: bytes
    after: StreamID
    last: StreamID
    limit: int = UNLIMITED
    read: int = 0  # number of entries of this range that were read
    master: bool = False  # the replica had no more entries: read the remaining entries from the master
    count: int = 0  # number of entries to request with the next XRANGE
    asked: StreamID | None = None  # the start ID of the last XNODES request
    reader: NodeReader | None = None
    before: int = 0  # the value of `read` when `reader` was created
    whole: PageRange | None = None  # the range of which this one is a part
    cut: bool = False  # `start` is a cut between two parts, not the last entry that was read
    proves: bool = False  # the request under way is followed by one that proves that nothing behind the cut was trimmed
    dropped: bool = False  # skip its reply
    start: StreamID = field(init=False)

    def __post_init__(self) -> None:
        self.start = self.after

    def advance(self, after: StreamID) -> None:
        """Set the last decoded entry, also of the range of which this one is a part."""
        self.after = after
        if self.whole is not None:
            self.whole.after = after

    def add(self, entries: int) -> None:
        """Count entries that were read."""
        self.read += entries
        if self.whole is not None:
            self.whole.read += entries

    @property
    def ended(self) -> bool:
        """True if all entries of the range were read."""
        return self.after >= self.last or self.read >= self.limit


Check: TypeAlias = Callable[[PageRange, StreamID], None]  # called with the range and the ID before a possible gap


class _EntryPageDecoder:
    """Decodes the XRANGE replies of one connection into rows of columns."""

    def __init__(self, reader: RangeReader) -> None:
        self.buffer = RangeDecoder(reader.rows, reader.batch_entries, reader.batch_bytes)
        self.checks = reader.check is not None

    def request(self, pages: PageRange) -> bytes:
        """Return the request for the range's next page in RESP encoding."""
        pages.proves = self.checks and pages.cut and pages.after == pages.start
        met = self.checks and not pages.proves
        low, count = (pages.after, pages.count + 1) if met else (successor(pages.after), pages.count)
        request = pack(b"XRANGE", pages.key, b"%d-%d" % low, b"%d-%d" % pages.last, b"COUNT", b"%d" % count)
        if pages.proves:
            request += pack(b"XRANGE", pages.key, b"-", b"%d-%d" % pages.after, b"COUNT", b"1")
        return request

    def begin(self, pages: PageRange) -> None:
        """Prepare to decode the next page of a range."""
        self.buffer.last_ms = self.buffer.last_seq = 0  # the decoder's last ID belongs to another range
        if self.checks and not pages.proves:
            self.buffer.expect(*pages.after, pages.count)

    def note(self, pages: PageRange) -> bool:
        """Set the range's `after` to the last decoded entry; return whether any was decoded."""
        if self.buffer.last_ms or self.buffer.last_seq:
            pages.advance(StreamID(self.buffer.last_ms, self.buffer.last_seq))
            return True
        return False


class _NodePageDecoder:
    """Decodes the RILLET.XNODES replies of one connection into rows of columns."""

    def __init__(self, reader: RangeReader) -> None:
        self.rows = reader.rows
        self.limits = reader.batch_entries, reader.batch_bytes
        self.buffer = NodePages(NodeReader(reader.rows, (0, 0), (0, 0)))
        self.page = NODE_PAGE * reader.page_entries

    def request(self, pages: PageRange) -> bytes:
        """Return the request for the range's next page in RESP encoding."""
        asked = pages.asked = pages.after if pages.asked is None else pages.asked
        count = b"%d" % min(self.page, pages.limit - pages.read)
        return pack(b"RILLET.XNODES", pages.key, b"%d-%d" % asked, b"%d-%d" % pages.last, b"COUNT", count)

    def begin(self, pages: PageRange) -> None:
        """Prepare to decode the next page of a range."""
        if pages.reader is None:
            pages.before = pages.read
            pages.reader = NodeReader(self.rows, pages.after, pages.last, *self.limits)
        self.buffer.reader = pages.reader
        self.limit(pages)

    def limit(self, pages: PageRange) -> None:
        """Stop decoding at the range's `limit`, and skip the remaining bytes of the reply."""
        assert pages.reader is not None
        left = pages.limit - pages.read
        if left > 0:
            pages.reader.max_rows = min(self.limits[0], self.rows.length + left)
        else:
            self.buffer.reader = NodeReader(self.rows, (0, 0), (0, 0), UNLIMITED, UNLIMITED)

    def note(self, pages: PageRange) -> bool:
        """Set the range's `after` to the last decoded entry; return whether any was decoded."""
        reader = pages.reader
        assert reader is not None
        moved = pages.read != pages.before + reader.entries
        pages.read = pages.before + reader.entries
        pages.after = StreamID(reader.last_ms, reader.last_seq)
        self.limit(pages)
        return moved


_PageDecoder: TypeAlias = _EntryPageDecoder | _NodePageDecoder


class RangeReader:
    """Reads ranges of streams into rows.

    page_entries: the most entries that all requested XRANGE pages contain together. batch_entries, batch_bytes: the
    limits of a batch of rows. nodes: whether to try RILLET.XNODES. check: the function that is called when entries
    may have been trimmed between two pages (see the module's docstring). fixed: every range ends at or before the last
    ID of its stream, so no entry can be added to it.
    """

    def __init__(
        self, servers: Servers, rows: RowBuilder, ranges: Iterable[PageRange], *, page_entries: int = 2500,
        batch_entries: int = 16384, batch_bytes: int = 32 << 20, nodes: bool = True, check: Check | None = None,
        fixed: bool = False,
    ) -> None:  # fmt: skip
        self.servers = servers
        self.rows = rows
        self.page_entries = page_entries
        self.batch_entries = batch_entries
        self.batch_bytes = batch_bytes
        self.nodes = nodes
        self.check = check
        self.cuts = fixed
        self.window = WINDOW
        self.waiting = deque(ranges)
        self.under_way: deque[tuple[PageRange, Connection]] = deque()
        self.moved = False  # True if any entry was read since the last failure
        self.widths: dict[bytes, float] = {}  # milliseconds of stream IDs that an entry takes, by stream
        self.parts = self.misjudged = 0  # parts that were read; those that had more entries than a page
        self._doubt: tuple[PageRange, StreamID] | None = None  # the arguments for `check` of a part without proof
        self._decoders: dict[Connection, _PageDecoder] = {}

    def read(self) -> Iterator[None]:
        """Read all ranges into `rows`; yield for each full batch, and at the end, so that the caller takes the rows."""
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
                    patience = Patience(self.servers.options.timeout)
                self.moved = False
                if not patience.again():
                    raise
        if self.rows.length:
            yield

    # ---- requests ----

    def _send(self, ahead: int = 0) -> None:
        """Send requests until `window` replies are outstanding (XNODES: 1 + `ahead`)."""
        requests: dict[Connection, list[bytes]] = {}
        while self.waiting and len(self.under_way) < (1 + ahead if self.nodes else self.window):
            pages = self.waiting[0]
            if pages.ended:
                self.waiting.popleft()
                continue
            if pages.whole is not None and len(self.under_way) >= AHEAD:
                break
            connection = self.servers.connection(pages.key) if pages.master else self.servers.readers(pages.key)
            if self.nodes and connection.replica:
                if self.under_way:
                    break
                self._without_nodes()
            self.waiting.popleft()
            if not self.nodes and not pages.count:
                if not connection.replica:
                    pages = self._part(pages)
                parts = 1 if pages.whole is None else AHEAD
                sharing = max(parts, len(self.waiting) + len(self.under_way) + (pages.whole is None))
                pages.count = min(max(1, self.page_entries // min(self.window, sharing)), pages.limit - pages.read)
            self.under_way.append((pages, connection))
            requests.setdefault(connection, []).append(self._decoder(connection).request(pages))
        for connection, packed in requests.items():
            connection.send(b"".join(packed))

    def _part(self, pages: PageRange) -> PageRange:
        """Cut the part that a page probably holds off a range; the rest waits behind it."""
        width = self.widths.get(pages.key)
        if width is None or not self.cuts or pages.limit != UNLIMITED or self.window == 1:
            return pages
        if self.misjudged > 3 + self.parts // 8 or (pages.whole is None and len(self.waiting) >= AHEAD):
            return pages
        # At most so many other requests share the page: AHEAD - 1 parts, and the rest that waits.
        sharing = max(AHEAD, len(self.waiting) + len(self.under_way) + 1)
        expected = PART_FILL * max(1, self.page_entries // min(self.window, sharing))
        end = StreamID(pages.after.ms + max(1, int(width * expected)), MAX)
        if end >= pages.last:
            return pages
        whole = pages.whole or pages
        self.waiting.appendleft(PageRange(pages.key, end, pages.last, whole=whole, cut=True))
        at_cut = pages.cut and pages.after == pages.start
        return PageRange(pages.key, pages.after, end, whole=whole, cut=at_cut)

    def _measure(self, pages: PageRange, after: StreamID, entries: int) -> None:
        """Note how far apart the entries of a page are that began after the ID `after`."""
        if entries:
            self.widths[pages.key] = (pages.after.ms - after.ms) / entries
        elif pages.whole is not None:
            self.widths[pages.key] = 4 * max(self.widths.get(pages.key, 0.0), 1 / self.page_entries)

    def _decoder(self, connection: Connection) -> _PageDecoder:
        decoder = self._decoders.get(connection)
        if decoder is None:
            decoder = self._decoders[connection] = _NodePageDecoder(self) if self.nodes else _EntryPageDecoder(self)
        return decoder

    def _without_nodes(self) -> None:
        """Read all remaining pages by XRANGE instead of RILLET.XNODES."""
        self.nodes = False
        self._decoders.clear()

    # ---- replies ----

    def _page(self) -> Iterator[None]:
        """Decode the page whose reply arrives next; yield whenever a batch of rows is full."""
        self._settle()  # a part whose connection was lost before its proof
        if not self.under_way:
            return
        pages, connection = self.under_way[0]
        decoder = self._decoders[connection]
        if pages.dropped:
            self._skip(decoder, connection)
            return
        self.rows.key = pages.key
        decoder.begin(pages)
        if pages.proves:
            self._doubt = _read_before(pages), pages.after
        after, short = pages.after, False
        while True:
            try:
                state = decoder.buffer.decode()
            except ReplyFailed as error:
                self._doubt = None  # no entry of the part was read
                if pages.proves:
                    self._skipped(decoder, connection)
                self._failed(pages, connection, str(error))
                return
            except (Corrupt, ProtocolError) as error:
                self.servers.forget(connection)
                raise self._error(pages, connection, error) from error
            if state == _HEAD:
                self._begun(pages, connection, decoder)
                continue
            if decoder.note(pages):
                self.moved = True
            if state == MORE:
                connection.receive(decoder.buffer)
            elif state == FULL:
                if pages.read < pages.limit or self.rows.length >= self.batch_entries:
                    self._settle()
                    yield
                    if isinstance(decoder, _NodePageDecoder):
                        decoder.limit(pages)  # the decoder's row limit depends on the number of filled rows
            else:
                if isinstance(decoder, _EntryPageDecoder):
                    self._measure(pages, after, decoder.buffer.entries)
                    pages.add(decoder.buffer.entries)
                    short = decoder.buffer.entries < pages.count
                    if pages.proves:
                        self._prove(decoder, connection)
                self._page_ended(pages, connection, decoder, short)
                self._send()
                if not self.nodes and self.rows.length + self.page_entries > self.batch_entries:
                    yield
                return

    def _skip(self, decoder: _PageDecoder, connection: Connection) -> None:
        """Skip the reply that arrives next."""
        for _ in range(1 + self.under_way[0][0].proves):
            self._skipped(decoder, connection)
        self.under_way.popleft()

    def _skipped(self, decoder: _PageDecoder, connection: Connection) -> int:
        """Skip one reply to XRANGE; return its number of entries, 0 if it is an error."""
        assert isinstance(decoder, _EntryPageDecoder)
        decoder.buffer.skip()
        try:
            while decoder.buffer.decode() != DONE:
                connection.receive(decoder.buffer)
        except ReplyFailed:  # the request for the same entries fails, too
            decoder.buffer.expect(0, 0, 0)
            return 0
        except (Corrupt, ProtocolError) as error:
            self.servers.forget(connection)
            raise self._error(self.under_way[0][0], connection, error) from error
        return decoder.buffer.skipped

    def _prove(self, decoder: _EntryPageDecoder, connection: Connection) -> None:
        """Read the reply that proves that nothing was trimmed before a part; without an entry in it, call `check`."""
        try:
            if self._skipped(decoder, connection):
                self._doubt = None
        except ConnectionLost:
            del self._decoders[connection]  # the part's rows are complete, and counted
            raise
        self._settle()

    def _settle(self) -> None:
        """Call `check` for the part that is in doubt, if any."""
        if self._doubt is not None:
            assert self.check is not None
            self.check(*self._doubt)
            self._doubt = None

    def _begun(self, pages: PageRange, connection: Connection, decoder: _PageDecoder) -> None:
        """Check that a page continues the previous page; after the check of an XNODES page, request the next page."""
        if isinstance(decoder, _EntryPageDecoder):
            if self.check is not None and not decoder.buffer.met:
                self.check(pages.whole or pages, pages.after)
            return
        asked, after, first = pages.asked, decoder.buffer.go_on, decoder.buffer.first
        assert asked is not None
        if self.check is not None and (first is None or first > successor(asked)):
            self.check(pages, asked)
        pages.asked = after
        if after is None:
            self._send(ahead=1)
        elif after <= asked:
            self.servers.forget(connection)
            raise self._error(pages, connection, f"the server's page ends at {after}, the ID where it began")
        elif pages.limit - pages.read > decoder.page:
            self.under_way.append((pages, connection))
            connection.send(decoder.request(pages))

    def _page_ended(self, pages: PageRange, connection: Connection, decoder: _PageDecoder, short: bool) -> None:
        """After a page was decoded, put its range back into the waiting ranges unless the range has ended.

        short: an XRANGE page has fewer entries than were requested.
        """
        self.under_way.popleft()
        self.moved = True
        if isinstance(decoder, _NodePageDecoder):
            ahead = any(other is pages for other, _ in self.under_way)
            if pages.asked is not None and not ahead and not pages.ended:
                self.waiting.appendleft(pages)
            return
        pages.count = 0
        self.parts += pages.whole is not None
        if not pages.ended and (not short or (connection.replica and not pages.master)):
            if pages.whole is not None and pages.last != pages.whole.last:
                pages = self._rest_of(pages.whole)
            pages.master = short
            self.waiting.appendleft(pages)

    def _rest_of(self, whole: PageRange) -> PageRange:
        """Return what is left of a range of which a part has more entries than its page; drop the parts behind it."""
        self.misjudged += 1
        for pages, _ in self.under_way:
            pages.dropped = pages.dropped or pages.whole is whole
        self.waiting = deque(pages for pages in self.waiting if pages.whole is not whole)
        return PageRange(whole.key, whole.after, whole.last, whole=whole)

    # ---- failures ----

    def _failed(self, pages: PageRange, connection: Connection, line: str) -> None:
        """Follow a redirection, wait for a server that loads, or change to XRANGE; raise any other error reply."""
        if self.nodes:
            loading = line.startswith("LOADING") and self.servers.redirected(pages.key, line)
            self._begin_again(keep=connection if len(self.under_way) == 1 else None)
            if not loading:
                self._without_nodes()
            return
        if not self.servers.redirected(pages.key, line):
            raise self._error(pages, connection, line)
        if line.startswith("LOADING"):
            self._begin_again()
            return
        self.under_way.popleft()
        if self.under_way:
            self._begin_again()
        pages.count = 0
        self.waiting.appendleft(pages)
        self.window = 1

    def _begin_again(self, keep: Connection | None = None) -> None:
        """Drop all outstanding requests, so that they are sent again; close their connections except `keep`."""
        lost = {connection for _, connection in self.under_way if connection is not keep}
        if self.under_way:
            pages, connection = self.under_way[0]
            decoder = self._decoders.get(connection)
            if isinstance(decoder, _EntryPageDecoder) and not pages.dropped:
                buffer = decoder.buffer
                if buffer.left == 0 < buffer.extra:  # the lost reply contained all entries, and all are decoded
                    pages.add(buffer.entries)
                    self._page_ended(pages, connection, decoder, buffer.entries < pages.count)
                elif buffer.left >= 0:  # some entries of the lost reply are decoded
                    pages.count -= buffer.entries - buffer.left
                    pages.add(buffer.entries - buffer.left)
        for connection in lost:
            self._decoders.pop(connection, None)
            self.servers.forget(connection)
        while self.under_way:
            pages = self.under_way.pop()[0]
            pages.asked = pages.reader = None
            if not pages.dropped and not any(other is pages for other in self.waiting):
                self.waiting.appendleft(pages)

    def _error(self, pages: PageRange, connection: Connection, reason: object) -> ConnectorError:
        name = pages.key.decode("utf-8", "backslashreplace")
        line = reason if isinstance(reason, str) else ""
        return ConnectorError(f"rillet: reading {name!r} from {connection.address}: {reason}", line)


def _read_before(pages: PageRange) -> PageRange:
    """Return the range of a part as it is before the part is read: a copy, for `check`."""
    whole = pages.whole or pages
    before = PageRange(whole.key, whole.start, whole.last)
    before.read = whole.read
    return before


def reply_pages(
    send: Callable[[list[bytes]], Any], command: Callable[[bytes], Sequence[bytes]], start: bytes | None, count: int,
    following: Callable[[Any], bytes | None],
) -> Iterator[list[Any]]:  # fmt: skip
    """Yield the pages of a command whose reply is a list, such as XRANGE, XREVRANGE or XPENDING.

    command(start) returns the command for a page of `count` elements; following(last element) returns the start of the
    next page, None if there is none. A page shorter than `count` is the last page.
    """
    while start is not None:
        page = send(list(command(start)))
        if page:
            yield page
        if len(page) < count:
            return
        start = following(page[-1])

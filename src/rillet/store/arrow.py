"""Streams as Arrow tables and back, for every kind of store; pandas and polars from there.

    in this process    node ──NodeDecoder──► columns             under the lock, PIECE entries at a time
    attached           RILLET.XNODES ──► nodes ──► columns        over the owner's socket
    a rillet server    the same, off the socket's bytes           a line of redis-py's (rawline.py)
    Redis, Valkey      XRANGE ──RangeDecoder──► columns           the same line

`Source.fill` is the one loop behind all of them: it puts entries into `rows` and yields whenever they are to be
taken; `Columns` takes them. No value becomes a Python object on the way.

**Columns.** A schema (Arrow's, or Spark's words) settles them. Without one every field that occurs has a column of the
type that all its values fit (`discovered.py`). `fields="map"` leaves them in one map.

**A table is no snapshot.** Between two pieces others may add, trim and delete, as between two pages of XRANGE; IDs
rise, so nothing comes twice, and what is there all the time is in it.

Back: rows are packed into XADDs (`columns/row_packing.py`) in chunks of 256 KiB, and each chunk is one exchange, in
process
through the parser, which is the engine's shortest way.

pyarrow is imported when a function is called; without it the error says what to install.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from rillet.columns.column import COMPILED, NotPlain
from rillet.columns.node_decoder import DONE, FULL, NodeDecoder, NodeReader
from rillet.columns.node_pages import ANSWER, MORE, NodePages
from rillet.columns.resp_decoder import RangeDecoder, ReplyFailed
from rillet.columns.row_builder import RowBuilder, TooManyFields
from rillet.columns.row_packing import RowPacker
from rillet.commands.stream.arguments import Interval
from rillet.errors import CommandError, Corrupt, ProtocolError, StoreClosed, StoreError, WrongType
from rillet.protocol.command_parser import pack_command
from rillet.protocol.reply_parser import INCOMPLETE, ReplyError, ReplyParser, parse_all
from rillet.store.encoding import IDLike, encode_id
from rillet.store.schema_discovery import DiscoveredSchema
from rillet.store.transports.in_process import InProcessTransport
from rillet.store.transports.raw_connection import RawConnection
from rillet.store.transports.transport import RedisTransport, SocketTransport, error_of, raised
from rillet.types.stream.id import StreamID
from rillet.types.stream.value import Stream as StreamValue

if TYPE_CHECKING:
    from rillet.store.stream import Stream

PIECE = 16_384  # entries that are decoded under the lock: 3 ms, compiled
MAX_BYTES = 32 << 20
NODES = 20_000  # COUNT of XNODES
PAGE = 2_500  # COUNT of XRANGE
CHUNK = 1 << 18
ALL = 1 << 62
_ELSEWHERE = ("MOVED", "ASK", "TRYAGAIN", "CLUSTERDOWN")
OWN_COLUMNS = ("stream", "id", "id_ms", "id_seq", "timestamp")


def require_pyarrow(what: str) -> Any:
    """Return pyarrow, or raise StoreError that says how to get it."""
    try:
        import pyarrow
    except ModuleNotFoundError as error:
        raise StoreError(f"{what} needs pyarrow: pip install 'rillet[arrow]'") from error
    return pyarrow


# ---- out ---------------------------------------------------------------------------------------------------------


def to_arrow(
    stream: Stream, start: IDLike, end: IDLike, count: int | None, schema: Any, columns: Sequence[str] | None,
    fields: str,
) -> Any:  # fmt: skip
    """Return the entries from start to end as a pyarrow.Table."""
    require_pyarrow("to_arrow")
    after, last = bounds(start, end)

    def read(found: Columns) -> Any:
        for _ in Source(stream, found.rows, after, last, count).fill():
            found.take()
        return found.table()

    try:
        try:
            return read(Columns(stream.key, schema, columns, fields))
        except NotPlain:  # a column of numbers has something else farther behind
            return read(Columns(stream.key, schema, columns, fields, early=False))
    except TooManyFields as error:
        raise StoreError(f'the stream {stream.name!r} has {error}: pass columns, a schema, or fields="map"') from None


def to_pandas(table: Any, how: dict[str, Any]) -> Any:
    """Return a table as a pandas.DataFrame."""
    try:
        import pandas  # noqa: F401
    except ModuleNotFoundError as error:
        raise StoreError("to_pandas needs pandas: pip install 'rillet[pandas]'") from error
    return table.to_pandas(**how)


def to_polars(table: Any) -> Any:
    """Return a table as a polars.DataFrame."""
    try:
        import polars
    except ModuleNotFoundError as error:
        raise StoreError("to_polars needs polars: pip install 'rillet[polars]'") from error
    return polars.from_arrow(table)


def bounds(start: IDLike, end: IDLike) -> tuple[StreamID, StreamID]:
    """Return the ID after which a range begins, and its last one; CommandError where one of the two is none."""
    interval = Interval()
    interval.read_start(encode_id(start))
    interval.read_end(encode_id(end))
    first = (interval.start_ms << 64 | interval.start_seq) - 1
    after = StreamID(first >> 64, first & (2**64 - 1)) if first >= 0 else StreamID(0, 0)
    return after, StreamID(interval.end_ms, interval.end_seq)


class Columns:
    """The columns of a table in the making: rows to fill, and the batches taken from them."""

    def __init__(
        self, key: bytes, schema: Any, columns: Sequence[str] | None, fields: str, early: bool = COMPILED
    ) -> None:
        """ValueError names what cannot be a column; early: that a column is numbers may be decided before the end."""
        import pyarrow as pa

        from rillet.columns.arrow_batch import rows_for

        if fields not in ("infer", "map"):
            raise ValueError(f'fields is "infer" or "map", not {fields!r}')
        if isinstance(schema, str):
            from rillet.store.schema_inference import schema_of

            schema = schema_of(schema)
        if schema is None and fields == "map":
            moment = pa.timestamp("us", "UTC")
            names = pa.map_(pa.string(), pa.string())
            schema = pa.schema([("id", pa.string()), ("timestamp", moment), ("fields", names)])
        if schema is not None and columns is not None:
            missing = [name for name in columns if name not in schema.names]
            if missing:
                raise ValueError(f"not in the schema: {', '.join(missing)}")
            schema = pa.schema([schema.field(name) for name in columns], schema.metadata)
        self.schema = schema
        self.batches: list[Any] = []
        self.found = None if schema is not None else DiscoveredSchema(key, columns, early)
        self.rows = rows_for(schema, key) if self.found is None else self.found.rows

    def take(self) -> None:
        """Take what is in the rows as one more batch."""
        from rillet.columns.arrow_batch import record_batch

        if self.rows.length:
            if self.found is not None:
                self.found.take()
            else:
                self.batches.append(record_batch(self.rows, self.schema))

    def table(self) -> Any:
        """Return all that was taken."""
        import pyarrow as pa

        return self.found.table() if self.found is not None else pa.Table.from_batches(self.batches, self.schema)


class Source:
    """The entries of (after, last] of a stream, into rows, whatever kind of store it is in."""

    def __init__(self, stream: Stream, rows: RowBuilder, after: StreamID, last: StreamID, count: int | None) -> None:
        self.stream = stream
        self.rows = rows
        self.after = after
        self.last = last
        self.left = ALL if count is None else max(count, 0)

    def fill(self) -> Iterator[None]:
        """Put entries into the rows; yield when they are to be taken, at the end too."""
        link = self.stream.store.link
        if self.left == 0 or self.last <= self.after:
            return
        try:
            if isinstance(link, InProcessTransport):
                yield from self._local(link)
            elif isinstance(link, RedisTransport):
                yield from self._remote(link)
            else:
                yield from self._attached()
        except (Corrupt, ProtocolError) as error:
            raise StoreError(f"the stream {self.stream.name!r} cannot be read: {error}") from error

    def _taken(self) -> Iterator[None]:
        """Have the rows taken."""
        self.left -= self.rows.length
        yield

    def _local(self, link: InProcessTransport) -> Iterator[None]:
        """Decode the nodes of a stream in this process, a piece under the lock at a time."""
        more = True
        while more and self.left > 0:
            with link.lock:
                if link.closed:
                    raise StoreClosed("the store is closed")
                value = link.session().db.lookup_read(self.stream.key)
                if value is None:
                    return
                if not isinstance(value, StreamValue):
                    raise WrongType()
                decoder = NodeDecoder(self.rows, value, self.after, self.last, min(PIECE, self.left), MAX_BYTES)
                more = decoder.decode() == FULL
            self.after = StreamID(decoder.last_ms, decoder.last_seq)
            yield from self._taken()

    def _request(self, after: StreamID) -> list[bytes]:
        """Return the words that ask for a page of nodes."""
        words = [b"RILLET.XNODES", self.stream.key, encode_id(after), encode_id(self.last)]
        return [*words, b"COUNT", b"%d" % min(NODES, self.left)]

    def _attached(self) -> Iterator[None]:
        """Have the process that owns the store ship nodes."""
        reader = NodeReader(self.rows, self.after, self.last, min(PIECE, self.left), MAX_BYTES)
        after: StreamID | None = self.after
        while after is not None and self.left > 0:
            go_on, _, *nodes = self.stream.store.run(self._request(after))
            after = None if go_on is None else StreamID.parse(go_on)
            for key, node in zip(nodes[::2], nodes[1::2], strict=True):
                reader.open(bytearray(node), 0, len(node), *StreamID.unpack(key))
                while self.left > 0 and reader.decode() == FULL:
                    yield from self._taken()
                    reader.max_rows = min(PIECE, self.left)
        yield from self._taken()

    # ---- servers -----------------------------------------------------------------------------------------------

    def _remote(self, link: RedisTransport) -> Iterator[None]:
        """Have a server ship nodes, or entries where it knows no nodes."""
        with RawConnection(link, self.stream.key) as line:
            try:
                yield from self._nodes(line)
                return
            except ReplyFailed as error:
                line.whole = True
                if not str(error).startswith(("ERR unknown command", "NOPERM", *_ELSEWHERE)):
                    raise error_of(str(error)) from None
        while self.left > 0 and self.after < self.last:
            with RawConnection(link, self.stream.key) as line:
                try:
                    yield from self._pages(line)
                    break
                except ReplyFailed as error:
                    line.whole = True
                    if not str(error).startswith(_ELSEWHERE):
                        raise error_of(str(error)) from None
            if not self._page_by_client():
                break
        yield from self._taken()

    def _nodes(self, line: RawConnection) -> Iterator[None]:
        """Decode replies of XNODES; the next request leaves before a page is decoded."""
        reader = NodeReader(self.rows, self.after, self.last, min(PIECE, self.left), MAX_BYTES)
        pages = NodePages(reader)
        line.send(self._request(self.after))
        under_way = 1
        while under_way:
            state = pages.decode()
            if state == MORE:
                line.receive(pages)
            elif state == ANSWER:
                if pages.go_on is not None and self.left - self.rows.length > NODES:
                    line.send(self._request(pages.go_on))
                    under_way += 1
            elif state == FULL:
                yield from self._taken()
                reader.max_rows = min(PIECE, self.left)
                if self.left == 0:  # what is still to come of the reply is passed over
                    pages.reader = NodeReader(self.rows, (0, 0), (0, 0))
            else:
                under_way -= 1
        line.whole = True
        self.after = StreamID(reader.last_ms, reader.last_seq)
        yield from self._taken()

    def _pages(self, line: RawConnection) -> Iterator[None]:
        """Decode replies of XRANGE; `after` is the last entry that is in the rows, so that others can go on."""
        decoder = RangeDecoder(self.rows, PIECE, MAX_BYTES)
        while self.left > self.rows.length and self.after < self.last:
            count = min(PAGE, self.left - self.rows.length)
            line.send(self._range(count))
            while (state := decoder.decode()) != DONE:
                if state == MORE:
                    line.receive(decoder)
                else:
                    yield from self._taken()
            line.whole = True
            if decoder.last_ms or decoder.last_seq:
                self.after = StreamID(decoder.last_ms, decoder.last_seq)
            if decoder.entries < count:
                return
            if self.rows.length > PIECE - PAGE:
                yield from self._taken()

    def _range(self, count: int) -> list[bytes]:
        """Return the words that ask for a page of entries."""
        start = b"(" + encode_id(self.after)
        return [b"XRANGE", self.stream.key, start, encode_id(self.last), b"COUNT", b"%d" % count]

    def _page_by_client(self) -> bool:
        """Have redis-py bring a page, which follows a cluster that sends elsewhere; False where it was the last."""
        count = min(PAGE, self.left - self.rows.length)
        entries = self.stream.store.run(self._range(count))
        decoder = RangeDecoder(self.rows, ALL, ALL)
        flat = [b"*2\r\n%b%b" % (pack_command([one])[4:], pack_command(words)) for one, words in entries]
        decoder.feed(b"*%d\r\n%b" % (len(entries), b"".join(flat)))
        decoder.decode()
        if entries:
            self.after = StreamID(decoder.last_ms, decoder.last_seq)
        return len(entries) == count


# ---- in ----------------------------------------------------------------------------------------------------------


def add_arrow(
    stream: Stream, table: Any, id_column: str | None, columns: Sequence[str] | None, trimming: list[bytes]
) -> int:
    """Append the rows of a table as entries; return how many. The error of a row that is refused names it."""
    pa = require_pyarrow("add_arrow")
    if not isinstance(table, (pa.Table, pa.RecordBatch, pa.RecordBatchReader)):
        table = pa.table(table)
    chosen = fields_of(table.schema, id_column, columns)
    packer = RowPacker([b"XADD", stream.key, *trimming])
    batches = table if isinstance(table, pa.RecordBatchReader) else table.to_batches()
    added = 0
    for batch in batches:
        load(packer, batch, id_column, chosen)
        row = 0
        while row < batch.num_rows:
            try:
                after = packer.pack(row, batch.num_rows, CHUNK)
            except ValueError as error:
                raise ValueError(f"row {added + packer.commands}: {error}") from None
            send(stream, bytes(packer.take()), after - row, added)
            added += after - row
            row = after
    return added


def fields_of(schema: Any, id_column: str | None, columns: Sequence[str] | None) -> list[str]:
    """Return the columns that become fields; ValueError names those that cannot."""
    from rillet.columns.string_column import without_text

    if columns is None and "fields" in schema.names and _is_map(schema.field("fields").type):
        chosen = ["fields"]
    else:
        chosen = [name for name in schema.names if name not in (*OWN_COLUMNS, id_column)]
        chosen = chosen if columns is None else list(columns)
    wrong = [f"there is no column {name!r}" for name in (*chosen, id_column) if name and name not in schema.names]
    for name in chosen:
        kind = schema.field(name).type if name in schema.names else None
        if kind is not None and name == "fields" and _is_map(kind):
            kind = kind.item_type
        if kind is not None and without_text(kind):
            wrong.append(f"the column {name!r} is {kind}, which has no text")
    if not chosen:
        own = ", ".join(OWN_COLUMNS)
        wrong.append(f"no column is left for fields: {own} are not written unless columns names them")
    if wrong:
        raise ValueError("; ".join(wrong))
    return chosen


def _is_map(kind: Any) -> bool:
    import pyarrow as pa

    return kind is not None and bool(pa.types.is_map(kind))


def load(packer: RowPacker, batch: Any, id_column: str | None, chosen: list[str]) -> None:
    """Hand a batch's columns to a packer."""
    from rillet.columns.string_column import texts

    ids = texts(ids_of(batch.column(id_column))) if id_column is not None else None
    if chosen == ["fields"] and _is_map(batch.schema.field("fields").type):
        column = batch.column("fields")
        ends = column.buffers()[1].to_pybytes()
        packer.rows_of_map(ends, column.offset, texts(column.keys), texts(column.items), ids)
    else:
        packer.rows_of([texts(batch.column(name), name) for name in chosen], ids)


def ids_of(column: Any) -> Any:
    """Return a column of IDs as texts: moments become `ms-*`, whole numbers milliseconds, texts are IDs as they are."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_timestamp(column.type):
        moments = column.cast(pa.timestamp("ms", column.type.tz), safe=False).cast(pa.int64()).cast(pa.string())
        return pc.binary_join_element_wise(moments, "-*", "")
    return column


def send(stream: Stream, data: bytes, count: int, first: int) -> None:
    """Have packed XADDs carried out; the first that is refused is raised, named as row `first` and on."""
    for row, reply in _refused(stream, data, count):
        if isinstance(reply, ReplyError):
            raise error_of(f"{reply} (row {first + row})")
        raised(reply)


def _refused(stream: Stream, data: bytes, count: int) -> list[tuple[int, CommandError]]:
    """Carry out packed commands; return the refusals with their places."""
    link = stream.store.link
    if isinstance(link, InProcessTransport):
        raw = link.execute_packed(data)
        if not raw.startswith(b"-") and b"\r\n-" not in raw:
            return []
        replies = parse_all(raw)
    elif isinstance(link, SocketTransport):
        replies = link.execute_packed(data, count)
    else:
        assert isinstance(link, RedisTransport)
        replies = _exchanged(link, stream.key, data, count)
        moved = [row for row, reply in enumerate(replies) if str(reply).startswith(_ELSEWHERE)]
        if moved:  # redis-py follows
            commands = parse_all(data)
            again = link.execute_many([commands[row] for row in moved])
            for row, reply in zip(moved, again, strict=True):
                replies[row] = reply
    return [(row, reply) for row, reply in enumerate(replies) if isinstance(reply, CommandError)]


def _exchanged(link: RedisTransport, key: bytes, data: bytes, count: int) -> list[Any]:
    """Send packed commands over a line of redis-py's and return the replies."""
    parser = ReplyParser()
    replies: list[Any] = []
    with RawConnection(link, key) as line:
        line.send_packed(data)
        while len(replies) < count:
            reply = parser.next()
            if reply is INCOMPLETE:
                parser.feed(line.read())
            else:
                replies.append(reply)
        line.whole = True
    return replies

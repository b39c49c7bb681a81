"""Reading a stream as an Arrow table and writing a table to a stream; pandas and polars DataFrames.

Reading goes through `client.pages.RangeReader` for every kind of store. It requests whole nodes (RILLET.XNODES), or
entries (XRANGE) from a server that lacks this command, and decodes them into columns. In this process the command
runs in the engine (`InProcessPages`), otherwise on a server. No value becomes a Python object.

**Columns.** A schema (Arrow's, or in Spark's notation) determines them. Without one, every field of the stream becomes
a column of the type that all its values fit (schema_discovery.py). `fields="map"` puts all fields into one map column.

**A table is not a snapshot.** Between two pages other clients may add, trim and delete, as between two calls of XRANGE.
IDs rise, so no entry is read twice, and every entry that exists during the whole read is in the table.

For writing, rows are packed into XADDs (`columns/row_packing.py`) in chunks of 256 KiB. Each chunk is one exchange; in
process the engine parses it in one pipeline.

pyarrow is imported when a function is called; if it is missing, the error states what to install.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from rillet.client.errors import ConnectorError
from rillet.client.pages import UNLIMITED, PageRange, RangeReader
from rillet.columns.column import COMPILED, NotPlain
from rillet.columns.own_columns import INTEGER, OTHER, OWN_COLUMNS, TEXT, TIME, check_own_columns, own_columns
from rillet.columns.row_builder import TooManyFields
from rillet.columns.row_packing import RowPacker
from rillet.commands.stream.arguments import Interval
from rillet.errors import CommandError, Corrupt, NotSent, OutcomeUnknown, StoreError
from rillet.extras import require
from rillet.protocol.reply_parser import ReplyError
from rillet.store.arguments.positions import Position, encode_position
from rillet.store.retries import Retries, patiently
from rillet.store.tables.schema_discovery import DiscoveredSchema
from rillet.store.transports.transport import Transport, check_ready, error_of, raised
from rillet.types.stream.id import StreamID

if TYPE_CHECKING:
    from rillet.store.stream import Stream

BATCH = 16_384  # entries in a record batch
PAGE = 2_500  # entries that one XRANGE requests
CHUNK = 1 << 18
_READS = [[b"XRANGE"]]  # the command of a bulk read may be repeated
REMEDY = "name the columns to write with columns=, or leave these out"


def require_pyarrow(what: str) -> Any:
    """Return pyarrow, or raise MissingExtra with the package to install."""
    require("arrow", what)
    import pyarrow

    return pyarrow


# ---- reading streams ---------------------------------------------------------------------------------------------


def to_arrow(
    stream: Stream[Any], start: Position, end: Position, count: int | None, schema: Any, columns: Sequence[str] | None,
    fields: str,
) -> Any:  # fmt: skip
    """Return the entries from start to end as a pyarrow.Table."""
    require_pyarrow("to_arrow")
    after, last = bounds(start, end)

    def read(columns: Columns) -> Any:
        for _ in batches(stream, columns, PageRange(stream.key, after, last, UNLIMITED if count is None else count)):
            columns.finish_batch()
        return columns.table()

    try:
        try:
            return read(Columns(stream.key, schema, columns, fields))
        except NotPlain:  # a column began with numbers and contains another text later
            return read(Columns(stream.key, schema, columns, fields, early=False))
    except TooManyFields as error:
        raise StoreError(f'the stream {stream.name!r} has {error}: pass columns, a schema, or fields="map"') from None


def to_pandas(table: Any, how: dict[str, Any]) -> Any:
    """Return a table as a pandas.DataFrame."""
    return table.to_pandas(**how)


def to_polars(table: Any) -> Any:
    """Return a table as a polars.DataFrame."""
    import polars

    return polars.from_arrow(table)


def bounds(start: Position, end: Position) -> tuple[StreamID, StreamID]:
    """Return the ID before a range and the last ID of the range; raise CommandError if an ID is malformed."""
    interval = Interval()
    low, high = encode_position(start), encode_position(end)
    interval.read_start(low, len(low))
    interval.read_end(high, len(high))
    first = (interval.start_ms << 64 | interval.start_seq) - 1
    after = StreamID(first >> 64, first & (2**64 - 1)) if first >= 0 else StreamID(0, 0)
    return after, StreamID(interval.end_ms, interval.end_seq)


class Columns:
    """The columns of a table during the read of a stream: the current rows, and the batches of earlier rows."""

    def __init__(
        self, key: bytes, schema: Any, columns: Sequence[str] | None, fields: str, early: bool = COMPILED
    ) -> None:
        """Raise ValueError for an unknown column. early: decide after the first batch whether a column is numeric."""
        import pyarrow as pa

        from rillet.columns.arrow_batch import rows_for

        if fields not in ("infer", "map"):
            raise ValueError(f'fields must be "infer" or "map", not {fields!r}')
        if isinstance(schema, str):
            from rillet.store.tables.schema_inference import schema_of

            schema = schema_of(schema)
        if schema is None and fields == "map":
            moment = pa.timestamp("us", "UTC")
            names = pa.map_(pa.string(), pa.string())
            schema = pa.schema([("id", pa.string()), ("timestamp", moment), ("fields", names)])
        if schema is not None and columns is not None:
            missing = [name for name in columns if name not in schema.names]
            if missing:
                raise ValueError(f"these columns are not in the schema: {', '.join(missing)}")
            schema = pa.schema([schema.field(name) for name in columns], schema.metadata)
        self.schema = schema
        self.batches: list[Any] = []
        self.discovered = None if schema is not None else DiscoveredSchema(key, columns, early)
        self.rows = rows_for(schema, key) if self.discovered is None else self.discovered.rows

    def finish_batch(self) -> None:
        """Append the current rows to the batches."""
        from rillet.columns.arrow_batch import record_batch

        if self.rows.length:
            if self.discovered is not None:
                self.discovered.finish_batch()
            else:
                self.batches.append(record_batch(self.rows, self.schema))

    def table(self) -> Any:
        """Return all batches as one table."""
        import pyarrow as pa

        if self.discovered is not None:
            return self.discovered.table()
        return pa.Table.from_batches(self.batches, self.schema)


def batches(stream: Stream[Any], columns: Columns, pages: PageRange) -> Iterator[None]:
    """Read the entries of a range into columns; yield whenever the caller must call `Columns.take`.

    If the server is away, the range continues after the last entry that was read; see rillet.store.retries.
    """
    transport = stream.store.transport
    retries, read = Retries(), pages.read
    try:
        while True:
            try:
                with transport.page_source() as servers:
                    reader = RangeReader(servers, columns.rows, [pages], page_entries=PAGE, batch_entries=BATCH)
                    yield from reader.read()
                return
            except (NotSent, OutcomeUnknown) as error:
                if pages.read != read:
                    retries, read = Retries(), pages.read
                transport = stream.store.replacement(transport, error, retries, _READS)
                pages.asked, pages.reader, pages.count = None, None, 0
            time.sleep(retries.pause)
    except ConnectorError as error:
        if error.line:
            raise error_of(error.line) from None
        raise StoreError(f"the stream {stream.name!r} cannot be read: {error}") from error
    except Corrupt as error:
        raise StoreError(f"the stream {stream.name!r} cannot be read: {error}") from error


# ---- writing tables ----------------------------------------------------------------------------------------------


def add_arrow(
    stream: Stream[Any], table: Any, id_column: str | None, columns: Sequence[str] | None, options: list[bytes]
) -> int:
    """Append the rows of a table as entries; return how many. The error for a rejected row names the row."""
    pa = require_pyarrow("add_arrow")
    if not isinstance(table, (pa.Table, pa.RecordBatch, pa.RecordBatchReader)):
        table = pa.table(table)
    chosen = fields_of(table.schema, id_column, columns)
    packer = RowPacker([b"XADD", stream.key, *options])
    batches = table if isinstance(table, pa.RecordBatchReader) else table.to_batches()
    left_out = [] if columns is not None else left_out_of(table.schema, id_column)[0]
    added = 0
    for batch in batches:
        if not added:
            check_own_columns(left_out, batch, REMEDY)
        load(packer, batch, id_column, chosen)
        row = 0
        while row < batch.num_rows:
            try:
                after = packer.pack(row, batch.num_rows, CHUNK)
            except ValueError as error:
                raise ValueError(f"row {added + packer.commands}: {error}") from None
            send(stream, bytes(packer.take_bytes()), after - row, added)
            added += after - row
            row = after
    return added


def fields_of(schema: Any, id_column: str | None, columns: Sequence[str] | None) -> list[str]:
    """Return the columns that become fields; raise ValueError with the names of columns that cannot be fields."""
    from rillet.columns.string_column import without_text

    if columns is None and "fields" in schema.names and _is_map(schema.field("fields").type):
        chosen = ["fields"]
    else:
        left_out, unknown = left_out_of(schema, id_column)
        if unknown and columns is None:
            raise ValueError(f"the columns {', '.join(unknown)} may be those of entries that were read, which are not "
                             f"written, or yours: {REMEDY}")  # fmt: skip
        chosen = [name for name in schema.names if name not in (*left_out, id_column)]
        chosen = chosen if columns is None else list(columns)
    wrong = [f"there is no column {name!r}" for name in (*chosen, id_column) if name and name not in schema.names]
    for name in chosen:
        kind = schema.field(name).type if name in schema.names else None
        if kind is not None and name == "fields" and _is_map(kind):
            kind = kind.item_type
        if kind is not None and without_text(kind):
            wrong.append(f"the column {name!r} is {kind}, which has no text form")
    if not chosen:
        own = ", ".join(OWN_COLUMNS)
        wrong.append(f"no column remains to be written: {own} are written only if the argument columns names them")
    if wrong:
        raise ValueError("; ".join(wrong))
    return chosen


def left_out_of(schema: Any, id_column: str | None) -> tuple[list[str], list[str]]:
    """Return the columns that are left out as those of entries that were read, and those that may be the user's."""
    import pyarrow.types as pt

    def kind_of(kind: Any) -> str:
        kind = kind.value_type if pt.is_dictionary(kind) else kind
        if pt.is_string(kind) or pt.is_large_string(kind) or pt.is_string_view(kind):
            return TEXT
        return INTEGER if pt.is_int64(kind) else TIME if pt.is_timestamp(kind) else OTHER

    return own_columns({field.name: kind_of(field.type) for field in schema}, (id_column,))


def _is_map(kind: Any) -> bool:
    import pyarrow as pa

    return kind is not None and bool(pa.types.is_map(kind))


def load(packer: RowPacker, batch: Any, id_column: str | None, chosen: list[str]) -> None:
    """Load the columns of a record batch into the RowPacker, which writes each row as an XADD command."""
    from rillet.columns.string_column import texts

    ids = texts(ids_of(batch.column(id_column))) if id_column is not None else None
    if chosen == ["fields"] and _is_map(batch.schema.field("fields").type):
        column = batch.column("fields")
        ends = column.buffers()[1].to_pybytes()
        packer.rows_of_map(ends, column.offset, texts(column.keys), texts(column.items), ids)
    else:
        packer.rows_of([texts(batch.column(name), name) for name in chosen], ids)


def ids_of(column: Any) -> Any:
    """Return a column of IDs as text: timestamps become `ms-*`; whole numbers are milliseconds; text is not changed."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_timestamp(column.type):
        moments = column.cast(pa.timestamp("ms", column.type.tz), safe=False).cast(pa.int64()).cast(pa.string())
        return pc.binary_join_element_wise(moments, "-*", "")
    return column


def send(stream: Stream[Any], data: bytes, count: int, first: int) -> None:
    """Execute XADD commands in RESP encoding; raise the first error reply, with its row, counted from `first`."""

    def attempt(transport: Transport) -> list[tuple[int, CommandError]]:
        failed = transport.append_packed(stream.key, data, count)
        if len(failed) == count:
            check_ready([error for _, error in failed])
        return failed

    for row, reply in patiently(stream.store, attempt, [[b"XADD"]]):
        if isinstance(reply, ReplyError):
            raise error_of(f"{reply} (row {first + row})")
        raised(reply)

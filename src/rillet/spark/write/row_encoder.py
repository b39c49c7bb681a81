"""Converts the values of rows to text, and selects the stream for each row.

The columns that become fields, in this order of preference:

    fields = {"column": "field"}   these columns, under these names
    fieldColumns                   these columns, under their own names
    a map column `fields`          only the pairs of this map, so rows from the source can be written unchanged
    otherwise                      all columns except those that idColumn and streamColumn name

With the option `payload`, these columns are encoded as one field (payload/encoder.py).

Rows that were read can be written back: the source's own columns are left out (columns/own_columns.py). A column that
would be lost, and may be the user's, is an error that names it.

The stream of a row:

    stream                         the key that this option names
    stream, partitioned = n        <stream>:0 to <stream>:<n - 1>: crc32 of the text of partitionColumn, modulo n;
                                   without that column, row i of partition p goes to (p + i) modulo n
    streamColumn                   the key in that column; without `stream` and streamColumn, in the column `stream`

The text of a value: strings and binary values unchanged, numbers in decimal, booleans as true and false, timestamps as
ISO 8601 in UTC. Nulls are left out. Other types are rejected before the first row is written; to_json() converts them.

A batch with rows for several streams is sorted by stream (stable, by Arrow) and divided, so each stream is packed
separately and its rows keep their order: about 0.1 microseconds per row. crc32 is computed once for each distinct text
of a batch. Rejected: Python's `hash` (different in every process) and Spark's (other producers cannot compute it).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any
from zlib import crc32

from xxhash import xxh3_64_intdigest

from rillet.client.errors import ConnectorError
from rillet.columns.own_columns import INTEGER, OTHER, OWN_COLUMNS, TEXT, TIME, check_own_columns, own_columns
from rillet.columns.row_packing import RowPacker
from rillet.columns.string_column import as_texts, texts
from rillet.loggers import logger
from rillet.spark.options import NO_STREAM, OptionError, Options
from rillet.types.stream.id import StreamID

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

    from rillet.spark.payload.encoder import PayloadEncoder
    from rillet.store.partitions.layout import Layout

log = logger("spark")
REMEDY = "name the columns to write with fieldColumns, or leave these out with drop()"


class RowEncoder:
    """Selects the stream and the fields of rows; a small object, because Spark sends it with every task."""

    def __init__(self, options: Options, schema: StructType, partitions: Layout | None = None) -> None:
        """Check the schema of the rows; raise an OptionError that lists every column that cannot be written.

        partitions: the description of the partitioned stream to write to.
        """
        kinds = {field.name: field.dataType for field in schema.fields}
        self.stream = options.stream.encode()
        self.keys = None if partitions is None else partitions.streams()
        # The field by which the rows are distributed.
        self.by = "" if partitions is None else partitions.by.decode("utf-8", "surrogateescape")
        self.parts = options.partitioned if self.keys is None else len(self.keys)
        self.id_column = options.id_column
        self.part_column = options.partition_column
        named_here = bool(options.stream) or partitions is not None
        self.stream_column = options.stream_column or (None if named_here else "stream")
        used = (self.id_column, self.part_column, self.stream_column)
        known = {field.name: field.metadata or {} for field in schema.fields}
        aliased = [name for name, metadata in known.items() if {"field", "payload"} & metadata.keys()]
        self.left_out, unknown = _left_out(options, kinds, (*used, *aliased))
        self.fields = _fields(options, kinds, (*self.left_out, *unknown, self.id_column, self.stream_column))
        self.payload: PayloadEncoder | None = None
        named = (*self.fields, *used)
        wrong = [f"there is no column {name!r}" for name in named if name and name not in kinds]
        if not named_here and options.stream_column is None and "stream" not in kinds:
            wrong = [NO_STREAM, *wrong[:-1]]  # replaces: no column 'stream'
        if not self.fields:
            own = ", ".join(OWN_COLUMNS)
            wrong.append(f"there is no column to write; {own} are only written if fieldColumns names them")
        elif unknown:
            wrong.append(f"the columns {', '.join(unknown)} may be those of a source, which are not written, or yours: "
                         f"{REMEDY}")  # fmt: skip
        self.of_map = list(self.fields) == ["fields"] and _whole_entry(options, kinds)
        self.by_column = next((name for name, field in self.fields.items() if field == self.by), None)
        if self.by and self.by_column is None and not self.of_map:
            wrong.append(f"no column becomes the field {self.by!r}, which selects the partition of a row")
        if self.by and options.payload is not None:
            wrong.append(f"with a payload, an entry lacks the field {self.by!r} of the partitioned stream")
        if self.of_map and not options.fields and not options.field_columns:
            lost = [name for name in kinds if name not in ("fields", *self.left_out, *used)]
            text = f"the map column 'fields' is the whole entry, so there is no place for {', '.join(lost)}"
            if set(lost) & set(OWN_COLUMNS):
                wrong.append(f"{text}: add them to the map, or {REMEDY}")
            elif lost:
                log.warning("rillet: %s: these columns are not written", text)
        for name in dict.fromkeys(name for name in (named if options.payload is None else used) if name in kinds):
            wrong += _without_text(name, kinds[name], self.of_map)
        if wrong:
            raise OptionError("rillet: " + "; ".join(wrong))
        if options.payload is not None:
            from rillet.spark.payload.encoder import PayloadEncoder

            named_there = {name: str(known[name].get("payload", field)) for name, field in self.fields.items()}
            self.payload = PayloadEncoder(options, self.fields if options.fields else named_there, schema)

    def check(self, batch: Any) -> None:
        """Raise ConnectorError if the columns of a record batch that are left out are not a source's. O(rows)"""
        try:
            check_own_columns(self.left_out, batch, REMEDY)
        except ValueError as error:
            raise ConnectorError(f"rillet: {error}") from None

    @property
    def single(self) -> bool:
        """Return whether all rows of the write go to the same stream."""
        return self.stream_column is None and self.parts is None

    @property
    def by_turns(self) -> bool:
        """Return whether rows are distributed round-robin among the parts of a partitioned stream."""
        return self.parts is not None and self.part_column is None and not self.by

    def shares(self, batch: Any, turn: int) -> Iterator[tuple[bytes, Any]]:
        """Yield each stream with its rows of a record batch, in order; `turn` is the first row's number in the task."""
        import pyarrow as pa
        import pyarrow.compute as pc

        if self.single:
            yield self.stream, batch
            return
        if self.parts is not None and self.by_turns:
            for part in range(min(self.parts, batch.num_rows)):
                every = pa.array(range(part, batch.num_rows, self.parts), pa.int32())
                yield self._part((turn + part) % self.parts), batch.take(every)
            return
        names, codes = self.codes(batch)
        order = pc.sort_indices(codes)
        codes, batch = codes.take(order), batch.take(order)
        at = 0
        for pair in pc.value_counts(codes).to_pylist():  # value_counts keeps the order of the sorted codes
            yield names[pair["values"]], batch.slice(at, pair["counts"])
            at += pair["counts"]

    def codes(self, batch: Any) -> tuple[list[bytes], Any]:
        """Return the streams of a record batch's rows, and for every row the index of its stream."""
        import pyarrow as pa
        import pyarrow.compute as pc

        column = self._by_values(batch) if self.by else as_texts(batch.column(self.part_column or self.stream_column))
        if self.parts is None and column.null_count:
            raise ConnectorError(f"rillet: the column {self.stream_column!r} contains a null: every row needs a stream")
        encoded = pc.fill_null(column, b"" if pa.types.is_binary(column.type) else "").dictionary_encode()
        texts = encoded.dictionary.cast(pa.binary()).to_pylist()
        if self.parts is None:
            if b"" in texts:
                raise ConnectorError(f"rillet: the column {self.stream_column!r} contains an empty text, not a stream")
            return texts, encoded.indices
        of_text = crc32 if self.keys is None else xxh3_64_intdigest
        hashed = pa.array([of_text(text) % self.parts for text in texts], pa.int32())
        return [self._part(part) for part in range(self.parts)], hashed.take(encoded.indices)

    def _by_values(self, batch: Any) -> Any:
        """Return the values of the field that selects the partition; ConnectorError if a row lacks it."""
        import pyarrow.compute as pc

        if self.by_column is not None:
            column = as_texts(batch.column(self.by_column))
        else:
            column = as_texts(pc.map_lookup(batch.column("fields"), self.by, "first"))
        if column.null_count:
            raise ConnectorError(f"rillet: a row lacks the field {self.by!r}, which selects its partition")
        return column

    def _part(self, part: int) -> bytes:
        return b"%b:%d" % (self.stream, part) if self.keys is None else self.keys[part]

    def streams(self) -> list[bytes]:
        """Return the streams that the options name; none if a column names the stream."""
        if self.parts is not None:
            return [self._part(part) for part in range(self.parts)]
        return [self.stream] if self.single else []

    def load(self, packer: RowPacker, batch: Any, ids: Any, keys: Any = None) -> None:
        """Load the columns of a record batch, with those of IDs and streams, into a packer of XADD commands."""
        ids = None if ids is None else texts(ids)
        keys = None if keys is None else texts(keys)
        if self.payload is not None:
            packer.rows_of([texts(self.payload.payloads(batch), self.payload.field)], ids, keys)
        elif self.of_map:
            column = batch.column("fields")
            ends = column.buffers()[1].to_pybytes()
            packer.rows_of_map(ends, column.offset, texts(column.keys), texts(column.items), ids, keys)
        else:
            packer.rows_of([texts(batch.column(name), field) for name, field in self.fields.items()], ids, keys)


def _left_out(
    options: Options, kinds: dict[str, DataType], used: tuple[str | None, ...]
) -> tuple[list[str], list[str]]:
    """Return the source's columns, which are not written, and the columns that may be a source's or the user's."""
    if options.fields or options.field_columns:
        return [], []
    left_out, unknown = own_columns({name: _kind_of(kind) for name, kind in kinds.items()}, used)
    return ([*left_out, *unknown], []) if _whole_entry(options, kinds) else (left_out, unknown)


def _kind_of(kind: DataType) -> str:
    from pyspark.sql.types import LongType, StringType, TimestampNTZType, TimestampType

    for found, types in ((TEXT, StringType), (INTEGER, LongType), (TIME, (TimestampType, TimestampNTZType))):
        if isinstance(kind, types):
            return found
    return OTHER


def _fields(options: Options, kinds: dict[str, DataType], others: tuple[str | None, ...]) -> dict[str, str]:
    """Return the field name for each column to write; others: the columns that are not written by default."""
    if options.fields:
        return options.fields
    if options.field_columns:
        return {name: name for name in options.field_columns}
    if _whole_entry(options, kinds):
        return {"fields": "fields"}
    return {name: name for name in kinds if name not in others}


def _whole_entry(options: Options, kinds: dict[str, DataType]) -> bool:
    """Return whether the column `fields` is a map of all fields."""
    from pyspark.sql.types import MapType

    return options.payload is None and isinstance(kinds.get("fields"), MapType)


def _without_text(name: str, kind: DataType, of_map: bool) -> list[str]:
    """Return the reasons why a column cannot be converted to text; an empty list if it can."""
    from pyspark.sql.types import AtomicType, MapType, NumericType, StringType

    from rillet.spark.spark_versions import VariantType

    wrong = []
    if isinstance(kind, MapType) and of_map and name == "fields":
        if not isinstance(kind.keyType, StringType):
            wrong.append("the keys of the map column 'fields' must be strings")
        kind = kind.valueType
    if isinstance(kind, VariantType) or not isinstance(kind, (AtomicType, NumericType)):
        wrong.append(f"column {name!r} is {kind.simpleString()}, which cannot be converted to text: use to_json")
    return wrong


def id_numbers(ids: Any) -> tuple[Any, Any]:
    """Return a column of IDs as two columns of numbers: milliseconds and sequence numbers."""
    import pyarrow as pa
    import pyarrow.compute as pc

    halves = pc.split_pattern(ids.cast(pa.string()), "-", max_splits=1)
    whole = pc.equal(pc.list_value_length(halves), 2)
    seq = pc.if_else(whole, pc.list_flatten(pc.list_slice(halves, 1, 2, return_fixed_size_list=True)), "0")
    return pc.list_element(halves, 0).cast(pa.uint64()), seq.cast(pa.uint64())


def ids_that_rise(column: Any, name: str, above: StreamID) -> tuple[StreamID, StreamID]:
    """Return the first and last ID of a column; raise ConnectorError unless each is larger than the one before."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if column.null_count:
        raise ConnectorError(f"rillet: the idColumn {name!r} contains a null")
    try:
        ms, seq = id_numbers(as_texts(column))
    except pa.ArrowInvalid as error:
        raise ConnectorError(f"rillet: the idColumn {name!r} contains an invalid ID: {error}") from None
    rise = pc.or_(pc.greater(ms[1:], ms[:-1]), pc.and_(pc.equal(ms[1:], ms[:-1]), pc.greater(seq[1:], seq[:-1])))
    first = StreamID(ms[0].as_py(), seq[0].as_py())
    at = pc.index(rise, False).as_py()
    if at >= 0 or first <= above:
        before, after = (above, first) if first <= above else (column[at], column[at + 1])
        raise ConnectorError(f"rillet: IDs must rise, but in the idColumn {name!r} {after} follows {before}")
    return first, StreamID(ms[-1].as_py(), seq[-1].as_py())

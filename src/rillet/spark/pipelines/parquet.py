"""Writes entries into the Parquet files of an archive, and merges small files.

The input is the source's record batches, in ID order. The files omit the columns that their folder's name encodes:

    batches ──► runs of one stream and one day ──► one file per run, row groups of about 128 Ki rows

A task reads from the server into Arrow and writes Arrow to Parquet, so no entry becomes a row of Spark. IDs and times
are stored as differences (DELTA_BINARY_PACKED, DELTA_BYTE_ARRAY), all other columns with dictionaries.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from rillet.spark.archive.files import ArchiveError
from rillet.spark.archive.layout import DAY_MS, day_of
from rillet.spark.archive.manifest import Part, Value
from rillet.spark.archive.parquet_reader import entry_id
from rillet.spark.archive.partitions import pieces
from rillet.spark.archive.targets import FileTarget
from rillet.types.stream.id import StreamID

GROUP_ROWS = 1 << 17
GROUP_BYTES = 64 << 20
WAITING_BYTES = 128 << 20  # a task's buffered rows for all its open files, in bytes, at most
MOST_OPEN = 256
DELTAS = {
    "id": "DELTA_BYTE_ARRAY", "id_ms": "DELTA_BINARY_PACKED", "id_seq": "DELTA_BINARY_PACKED",
    "timestamp": "DELTA_BINARY_PACKED",
}  # fmt: skip
_U64 = 1 << 64
_Place = tuple[str, tuple[Value, ...]]  # a stream, and values of partition columns


class ArchiveFileWriter:
    """A Parquet file of one stream and day that is being written; rows are buffered until they fill a row group."""

    def __init__(
        self, target: FileTarget, schema: Any, stream: str, day: int | None, first: StreamID,
        values: tuple[Value, ...] = (),
    ) -> None:  # fmt: skip
        import pyarrow.parquet as pq

        self.stream, self.day, self.first, self.values = stream, day, first, values
        self._target = target
        self.path, self._file = target.create()
        columns = [field for field in schema.names if field not in DELTAS]
        self._writer = pq.ParquetWriter(
            self._file, schema, compression=target.compression,
            use_dictionary=_leaves(schema, columns),
            column_encoding={name: DELTAS[name] for name in schema.names if name in DELTAS},
        )  # fmt: skip
        self._schema = schema
        self._batches: list[Any] = []
        self._rows = self.waiting = 0
        self.rows = 0

    def write(self, batch: Any) -> None:
        """Add rows to the buffer of this Parquet file."""
        self._batches.append(batch)
        self._rows += batch.num_rows
        self.waiting += batch.nbytes
        if self._rows >= GROUP_ROWS or self.waiting >= GROUP_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write the buffered rows as a row group."""
        import pyarrow as pa

        if self._rows:
            self._writer.write_table(pa.Table.from_batches(self._batches, self._schema), row_group_size=self._rows)
        self.rows += self._rows
        self._batches, self._rows, self.waiting = [], 0, 0

    def close(self, last: StreamID) -> Part:
        """Complete the Parquet file, store it durably, and return its description; last: the ID of the last row."""
        self.flush()
        self._writer.close()
        part = Part(self.path, self.stream, self.day, self.first, last, self.rows, self._file.tell(), self.values)
        return self._target.finish(part, self._file)


def _leaves(schema: Any, names: Sequence[str]) -> list[str]:
    """Return the Parquet column paths of the named fields: a list has one, a map one for keys and one for values."""
    import pyarrow as pa

    paths = []
    for name in names:
        if pa.types.is_map(schema.field(name).type):
            paths += [f"{name}.key_value.key", f"{name}.key_value.value"]
        elif pa.types.is_list(schema.field(name).type):
            paths.append(f"{name}.list.element")
        else:
            paths.append(name)
    return paths


class PartitionedParquetWriter:
    """The open Parquet files of a task, one per stream and values, because the input may alternate between them."""

    def __init__(self, target: FileTarget) -> None:
        self.target = target
        self.open: dict[_Place, tuple[ArchiveFileWriter, StreamID]] = {}  # the open file, and the last row's ID
        self.parts: list[Part] = []

    def write(self, place: _Place, day: int | None, rows: Any) -> None:
        """Add rows of one place and day; their IDs must be larger than those of its earlier rows."""
        if place in self.open and self.open[place][0].day != day:
            self._close(place)
        if place in self.open:
            writer, _ = self.open.pop(place)
        else:
            while len(self.open) >= MOST_OPEN:
                self._close(next(iter(self.open)))  # close the least recently used file
            first = entry_id(rows, 0)
            writer = ArchiveFileWriter(self.target, rows.schema, place[0], day, first, place[1])
        writer.write(rows)
        self.open[place] = writer, entry_id(rows, rows.num_rows - 1)
        writers = [writer for writer, _ in self.open.values()]
        if sum(writer.waiting for writer in writers) > WAITING_BYTES:
            max(writers, key=lambda writer: writer.waiting).flush()

    def _close(self, place: _Place) -> None:
        writer, last = self.open.pop(place)
        self.parts.append(writer.close(last))

    def close(self) -> list[Part]:
        """Close all open Parquet files; return a description of each file that was written."""
        for place in list(self.open):
            self._close(place)
        return self.parts


def write_parts(batches: Iterable[Any], target: FileTarget, names: Sequence[str] = ()) -> list[Part]:
    """Write record batches as one file per stream, day, and values of the partition columns `names`.

    The batches have the columns stream, id_ms and id_seq; the IDs of each stream must rise.
    """
    writers = PartitionedParquetWriter(target)
    for batch in batches:
        for stream, day, piece in runs(batch):
            for values, rows in pieces(piece, names):
                in_name = [name for name in ("stream", *names) if name in rows.schema.names]
                writers.write((stream, values), day, rows.drop_columns(in_name))
    return writers.close()


def texts_of_bytes(batch: Any) -> Any:
    """Convert the map column `fields` of a record batch from bytes to strings; raise ArchiveError if not UTF-8."""
    import pyarrow as pa
    import pyarrow.compute as pc

    place = batch.schema.get_field_index("fields")
    column = batch.column(place)
    kind = pa.map_(pa.string(), pa.string())
    try:
        texts = column.cast(kind)
    except pa.ArrowInvalid:
        texts = None
    if texts is None or pc.any(pc.match_substring(texts.keys, "\ufffd")).as_py():
        stream = batch.column("stream")[0].as_py()
        first, last = (entry_id(batch, row) for row in (0, batch.num_rows - 1))
        raise ArchiveError(
            f"rillet: the stream {stream!r} has bytes that are not UTF-8 between {first} and {last}; the "
            "archive cannot hold them as strings, so trimming would lose them: archive the stream with the schema "
            "'fields map<string,binary>' into a separate folder, or without trim"
        )
    return batch.set_column(place, pa.field("fields", kind, batch.schema.field(place).nullable), texts)


def runs(batch: Any) -> Iterator[tuple[str, int | None, Any]]:
    """Yield (stream, day, rows) for consecutive rows of one stream and one day."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not batch.num_rows:
        return
    when = batch.column("id_ms")  # IDs from 2^63 ms on are negative and have no date; Arrow rounds towards 0
    days = pc.subtract(pc.divide(when, pa.scalar(DAY_MS, pa.int64())), pc.less(when, 0).cast(pa.int64()))
    ends = set()
    for column in (days, batch.column("stream")):
        if column[0] != column[-1] or pc.count_distinct(column).as_py() > 1:
            ends.update(pc.run_end_encode(column).run_ends.to_pylist())
    start = 0
    for end in sorted({*ends, batch.num_rows}):
        ms = batch.column("id_ms")[start].as_py() % _U64
        yield batch.column("stream")[start].as_py(), day_of(ms), batch.slice(start, end - start)
        start = end


def merge_parts(target: FileTarget, olds: Sequence[Part]) -> Part:
    """Merge Parquet files of one stream and day into one file, in ID order."""
    import pyarrow as pa

    writer: ArchiveFileWriter | None = None
    olds = sorted(olds, key=lambda part: part.first)
    schema = merged_schema(target, olds)
    for old in olds:
        with target.read(old.path) as file:
            if writer is None:
                writer = ArchiveFileWriter(target, schema, old.stream, old.day, old.first, old.values)
            for batch in file.iter_batches(GROUP_ROWS):
                columns = [
                    batch.column(field.name) if field.name in batch.schema.names else pa.nulls(len(batch), field.type)
                    for field in schema
                ]
                writer.write(pa.RecordBatch.from_arrays(columns, schema=schema))
    assert writer is not None
    part = writer.close(olds[-1].last)
    rows = sum(old.rows for old in olds)
    if part.rows != rows:
        raise ArchiveError(f"rillet: the files to merge, from {olds[0].path} on, hold {part.rows} rows, not {rows}")
    return part


def merged_schema(target: FileTarget, files: Sequence[Part]) -> Any:
    """Return the Arrow schema of several files: all columns, in order of appearance."""
    import pyarrow as pa

    columns: dict[str, Any] = {}
    for one in files:
        for field in target.schema(one.path):
            columns.setdefault(field.name, field)
    return pa.schema(list(columns.values()))

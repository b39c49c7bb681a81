"""Writes entries into the Parquet files of an archive, and merges files.

The input is record batches of the source, in ID order. The files omit the columns that the folder's name holds:

    batches ──► runs of one stream and one day ──► a file each, row groups of about 128 Ki rows

The rows never go through Spark's own rows: a task reads from the server into Arrow and writes Arrow to Parquet. IDs
and times are written as differences (DELTA_BINARY_PACKED, DELTA_BYTE_ARRAY), all else with dictionaries.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from rillet.spark.archive.layout import DAY_MS, ArchiveError, Part, day_of
from rillet.spark.archive.parquet_reader import IN_NAME, entry_id
from rillet.spark.option_types import EARLIEST
from rillet.types.stream.id import StreamID

GROUP_ROWS = 1 << 17
GROUP_BYTES = 64 << 20
WAITING_BYTES = 128 << 20  # of all files that a task has open
MOST_OPEN = 256
DELTAS = {
    "id": "DELTA_BYTE_ARRAY", "id_ms": "DELTA_BINARY_PACKED", "id_seq": "DELTA_BINARY_PACKED",
    "timestamp": "DELTA_BINARY_PACKED",
}  # fmt: skip
_U64 = 1 << 64


class ArchiveFileWriter:
    """A Parquet file in the making; rows are kept until there are enough for a row group."""

    def __init__(self, root: Path, staging: str, schema: Any, compression: str) -> None:
        import pyarrow.parquet as pq

        self.path = f"{staging}/{uuid.uuid4().hex}.part"
        self._file = open(root / self.path, "wb")  # noqa: SIM115 (closed when it is whole)
        columns = [field for field in schema.names if field not in DELTAS]
        self._writer = pq.ParquetWriter(
            self._file, schema, compression=compression,
            use_dictionary=_leaves(schema, columns),
            column_encoding={name: DELTAS[name] for name in schema.names if name in DELTAS},
        )  # fmt: skip
        self._schema = schema
        self._batches: list[Any] = []
        self._rows = self.waiting = 0
        self.rows = 0

    def write(self, batch: Any) -> None:
        """Add rows."""
        self._batches.append(batch)
        self._rows += batch.num_rows
        self.waiting += batch.nbytes
        if self._rows >= GROUP_ROWS or self.waiting >= GROUP_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write what waits as a row group."""
        import pyarrow as pa

        if self._rows:
            self._writer.write_table(pa.Table.from_batches(self._batches, self._schema), row_group_size=self._rows)
        self.rows += self._rows
        self._batches, self._rows, self.waiting = [], 0, 0

    def close(self) -> int:
        """Finish the file, bring it to the disk, and return its size."""
        self.flush()
        self._writer.close()
        self._file.flush()
        os.fsync(self._file.fileno())
        size = self._file.tell()
        self._file.close()
        return size


def _leaves(schema: Any, names: Sequence[str]) -> list[str]:
    """Return the paths of the Parquet columns of some fields: a map is two."""
    import pyarrow as pa

    found = []
    for name in names:
        if pa.types.is_map(schema.field(name).type):
            found += [f"{name}.key_value.key", f"{name}.key_value.value"]
        else:
            found.append(name)
    return found


class PartitionedParquetWriter:
    """The files that a task has open, one a stream: a source may give entries of several streams in turns."""

    def __init__(self, root: Path, staging: str, compression: str) -> None:
        self.root, self.staging, self.compression = root, staging, compression
        self.open: dict[str, tuple[ArchiveFileWriter, int | None, StreamID, StreamID]] = {}
        self.parts: list[Part] = []

    def write(self, stream: str, day: int | None, rows: Any) -> None:
        """Add rows of one stream and day, whose IDs are larger than those of the stream before."""
        known = self.open.pop(stream, None)
        if known is not None and known[1] != day:
            self._close(stream, known)
            known = None
        if known is None:
            while len(self.open) >= MOST_OPEN:  # the one that had nothing for the longest time
                oldest = next(iter(self.open))
                self._close(oldest, self.open.pop(oldest))
            known = (
                ArchiveFileWriter(self.root, self.staging, rows.schema, self.compression),
                day,
                entry_id(rows, 0),
                EARLIEST,
            )
        known[0].write(rows)
        self.open[stream] = (*known[:3], entry_id(rows, rows.num_rows - 1))
        if sum(writer.waiting for writer, *_ in self.open.values()) > WAITING_BYTES:
            max((writer for writer, *_ in self.open.values()), key=lambda writer: writer.waiting).flush()

    def _close(self, stream: str, known: tuple[ArchiveFileWriter, int | None, StreamID, StreamID]) -> None:
        writer, day, first, last = known
        size = writer.close()
        self.parts.append(Part(writer.path, stream, day, first, last, writer.rows, size))

    def close(self) -> list[Part]:
        """Finish all files."""
        for stream, known in self.open.items():
            self._close(stream, known)
        return self.parts


def write_parts(batches: Iterable[Any], root: Path, staging: str, compression: str) -> list[Part]:
    """Write record batches, a stream's in the order of their IDs, as a file for each stream and day.

    They have the columns stream, id_ms and id_seq.
    """
    writers = PartitionedParquetWriter(root, staging, compression)
    for batch in batches:
        for stream, day, piece in runs(batch):
            writers.write(stream, day, piece.drop_columns(list(IN_NAME)))
    return writers.close()


def texts_of_bytes(batch: Any) -> Any:
    """Return a batch whose map `fields` has texts in place of bytes; ArchiveError where some are none."""
    import pyarrow as pa
    import pyarrow.compute as pc

    place = batch.schema.get_field_index("fields")
    column = batch.column(place)
    kind = pa.map_(pa.string(), pa.string())
    try:
        found = column.cast(kind)
    except pa.ArrowInvalid:
        found = None
    if found is None or pc.any(pc.match_substring(found.keys, "\ufffd")).as_py():
        stream = batch.column("stream")[0].as_py()
        first, last = (entry_id(batch, row) for row in (0, batch.num_rows - 1))
        raise ArchiveError(
            f"rillet: the stream {stream!r} has bytes that are not UTF-8 between {first} and {last}, and the "
            "archive would hold texts and the stream be trimmed: archive it with the schema "
            "'fields map<string,binary>', into a folder of its own, or without trim"
        )
    return batch.set_column(place, pa.field("fields", kind, batch.schema.field(place).nullable), found)


def runs(batch: Any) -> Iterator[tuple[str, int | None, Any]]:
    """Yield (stream, day, rows) for the pieces of a batch that lie in one stream and one day."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not batch.num_rows:
        return
    when = batch.column("id_ms")  # negative: from 2^63 on, and no day; division goes towards 0, the first day
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


def merge_parts(root: Path, olds: Sequence[Part], staging: str, compression: str) -> Part:
    """Write the rows of some files of one folder, in the order of their IDs, into one."""
    import pyarrow.parquet as pq

    writer: ArchiveFileWriter | None = None
    olds = sorted(olds, key=lambda part: part.first)
    for old in olds:
        with pq.ParquetFile(root / old.path) as file:
            if writer is None:
                writer = ArchiveFileWriter(root, staging, file.schema_arrow, compression)
            for batch in file.iter_batches(GROUP_ROWS):
                writer.write(batch)
    assert writer is not None
    size = writer.close()
    rows = sum(old.rows for old in olds)
    if writer.rows != rows:
        raise ArchiveError(f"rillet: {olds[0].path} and those after it hold {writer.rows} rows, not {rows}")
    return Part(writer.path, olds[0].stream, olds[0].day, olds[0].first, olds[-1].last, rows, size)

"""Entries in Parquet files: what the tasks of archive, history and replay do.

Written are record batches of the source, in the order of their IDs, without the columns that the folder's name holds:

    batches ──► runs of one stream and one day ──► a file each, row groups of about 128 Ki rows

The rows never go through Spark's own rows: a task reads from the server into Arrow and writes Arrow to Parquet. IDs
and times are written as differences (DELTA_BINARY_PACKED, DELTA_BYTE_ARRAY), all else with dictionaries.

Read are files as record batches of any schema that the source would serve: columns that the file has, as they are; and
typed columns out of a file that has the map `fields`, by making an XRANGE reply of its rows (`reply_of`: Arrow's string
functions, no Python object for a value) and decoding that. So the text of a value means the same in the archive as in
the stream.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rillet.columns.arrow_batch import record_batch, rows_for
from rillet.columns.resp_decoder import DONE, MORE, RangeDecoder
from rillet.spark.options import EARLIEST, Options
from rillet.spark.pipelines.archive_layout import DAY_MS, ArchiveError, Part, day_of
from rillet.types.stream.id import StreamID

GROUP_ROWS = 1 << 17
GROUP_BYTES = 64 << 20
WAITING_BYTES = 128 << 20  # of all files that a task has open
MOST_OPEN = 256
IN_NAME = ("stream",)
DELTAS = {
    "id": "DELTA_BYTE_ARRAY", "id_ms": "DELTA_BINARY_PACKED", "id_seq": "DELTA_BINARY_PACKED",
    "timestamp": "DELTA_BINARY_PACKED",
}  # fmt: skip
_U64 = 1 << 64
_TRIES = 20
_PAUSE = 0.05  # between looks for a file that is on its way from one place to the next


# ---- writing ------------------------------------------------------------------------------------------------------


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


def entry_id(batch: Any, row: int) -> StreamID:
    """Return the ID of a row; the columns are signed, the halves are not."""
    return StreamID(batch.column("id_ms")[row].as_py() % _U64, batch.column("id_seq")[row].as_py() % _U64)


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


# ---- reading ------------------------------------------------------------------------------------------------------


def open_file(places: Sequence[Path]) -> Any:
    """Open a file of an archive at the first of its places where it is now."""
    import pyarrow.parquet as pq

    for attempt in range(_TRIES):
        for place in places:
            try:
                return pq.ParquetFile(place)
            except FileNotFoundError:
                continue
            except (OSError, ValueError) as error:
                raise ArchiveError(f"rillet: {place} cannot be read: {error}") from None
        if attempt + 1 < _TRIES:
            time.sleep(_PAUSE)
    raise ArchiveError(
        f"rillet: {places[0]} is gone: it was compacted longer ago than replaced files are kept; read again"
    )


@dataclass(frozen=True)
class ArchiveTask:
    """What a task reads of a file: entries with after < ID <= last, of the `number`-th of `shares` parts."""

    places: tuple[Path, ...]
    stream: str
    after: StreamID
    last: StreamID
    number: int = 0
    shares: int = 1


def read_share(share: ArchiveTask, schema: Any, options: Options) -> Iterator[Any]:
    """Yield the rows of a share as record batches of a schema of the source."""
    with open_file(share.places) as file:
        have = file.schema_arrow
        if missing := missing_columns(have, schema):
            raise ArchiveError(f"rillet: {share.places[0]} has no {', no '.join(missing)}, and no map called fields")
        direct = is_direct(have, schema)
        wanted = {field.name for field in schema} - set(IN_NAME) if direct else {"id", "fields"}
        columns = [name for name in have.names if name in wanted | {"id_ms", "id_seq"}]
        groups = [number for number in _groups(file, share) if _overlaps(file.metadata.row_group(number), share)]
        for batch in file.iter_batches(options.batch_entries, row_groups=groups, columns=columns):
            batch = between(batch, share.after, share.last)
            if batch.num_rows:
                yield shaped(batch, share.stream, schema) if direct else decoded(batch, share.stream, schema, options)


def _groups(file: Any, share: ArchiveTask) -> range:
    """Return the row groups of a share."""
    count = file.metadata.num_row_groups
    return range(count * share.number // share.shares, count * (share.number + 1) // share.shares)


def _overlaps(group: Any, share: ArchiveTask) -> bool:
    """Tell whether a row group may hold entries of a share, by its least and largest id_ms."""
    for number in range(group.num_columns):
        column = group.column(number)
        if column.path_in_schema == "id_ms":
            told = column.statistics
            if told is None or not told.has_min_max or told.min < 0:
                return True
            return bool(told.max >= share.after.ms and told.min <= share.last.ms)
    return True


def is_direct(have: Any, schema: Any) -> bool:
    """Tell whether a file has all columns of a schema as they are to be."""
    return all(
        field.name in IN_NAME or (field.name in have.names and have.field(field.name).type.equals(field.type))
        and not (field.metadata or {}).get(b"field")
        for field in schema
    )  # fmt: skip


def missing_columns(have: Any, schema: Any) -> list[str]:
    """Return the columns of a schema that a file cannot serve."""
    if is_direct(have, schema) or "fields" in have.names:
        return []
    return [
        f"{field.name} {field.type}" for field in schema
        if field.name not in IN_NAME
        and (field.name not in have.names or not have.field(field.name).type.equals(field.type))
    ]  # fmt: skip


def between(batch: Any, after: StreamID, last: StreamID) -> Any:
    """Return the rows of a batch in the order of IDs with after < ID <= last. O(log rows)"""
    high = batch.num_rows
    if not high or (entry_id(batch, 0) > after and entry_id(batch, high - 1) <= last):
        return batch
    start = _first_beyond(batch, after, 0)
    return batch.slice(start, _first_beyond(batch, last, start) - start)


def _first_beyond(batch: Any, bound: StreamID, low: int) -> int:
    high = int(batch.num_rows)
    while low < high:
        middle = (low + high) // 2
        if entry_id(batch, middle) > bound:
            high = middle
        else:
            low = middle + 1
    return low


def shaped(batch: Any, stream: str, schema: Any) -> Any:
    """Return the columns of a schema out of a file's rows, with the stream's name beside them."""
    import pyarrow as pa

    arrays = [
        pa.repeat(pa.scalar(stream, field.type), batch.num_rows) if field.name in IN_NAME else batch.column(field.name)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def decoded(batch: Any, stream: str, schema: Any, options: Options) -> Any:
    """Return the columns of a schema decoded out of a file's IDs and fields, as the source decodes a stream's."""
    rows = rows_for(schema, stream.encode(), options.mode, options.corrupt_column)
    decoder = RangeDecoder(rows, 1 << 62, 1 << 62)
    decoder.feed(b"*%d\r\n" % batch.num_rows)
    decoder.feed(reply_of(batch))
    state = decoder.decode()
    assert state == DONE, (state, MORE)
    return record_batch(rows, schema)


def reply_of(batch: Any) -> bytes:
    """Return the rows of (id, fields) as the entries of an XRANGE reply. O(bytes), in Arrow."""
    import pyarrow as pa
    import pyarrow.compute as pc

    fields = batch.column("fields")
    ends = fields.offsets  # of a null none: it has no pairs
    low, high = ends[0].as_py(), ends[-1].as_py()
    keys, items = (column.slice(low, high - low) for column in (fields.keys, fields.items))
    bulks = pc.binary_join_element_wise(_bulk(keys), _bulk(items), pa.scalar(b"", pa.binary()))
    joined = pc.binary_join(pa.ListArray.from_arrays(pc.subtract(ends, low), bulks), pa.scalar(b"", pa.binary()))
    words = pc.cast(pc.multiply(pc.subtract(ends[1:], ends[:-1]), 2), pa.string()).cast(pa.binary())
    pieces = [b"*2\r\n", _bulk(batch.column("id")), b"*", words, b"\r\n", joined]
    whole = pc.binary_join_element_wise(
        *(pa.scalar(piece, pa.binary()) if isinstance(piece, bytes) else piece for piece in pieces),
        pa.scalar(b"", pa.binary()),
    )
    _, offsets, data = whole.buffers()
    start, end = whole.offset, whole.offset + len(whole)
    places = memoryview(offsets).cast("i")
    return bytes(memoryview(data)[places[start] : places[end]])


def _bulk(texts: Any) -> Any:
    """Return strings as RESP bulk strings."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if texts.null_count:
        texts = texts.fill_null(b"" if pa.types.is_binary(texts.type) else "")
    plain = texts.cast(pa.binary())
    lengths = pc.cast(pc.binary_length(plain), pa.string()).cast(pa.binary())
    head, tail = pa.scalar(b"$", pa.binary()), pa.scalar(b"\r\n", pa.binary())
    return pc.binary_join_element_wise(head, lengths, tail, plain, tail, pa.scalar(b"", pa.binary()))

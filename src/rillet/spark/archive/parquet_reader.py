"""Reads the Parquet files of an archive as record batches of any schema that the source supports.

If the file has a column of the requested name and type, that column is copied. Other columns are decoded from the
file's map column `fields`: `reply_of` builds an XRANGE reply from the rows with Arrow's string functions (no Python
object per value), and the connector's decoder reads that reply. So a value is converted in the same way from the
archive and from the stream.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from rillet.columns.arrow_batch import record_batch, rows_for
from rillet.columns.resp_decoder import DONE, MORE, RangeDecoder
from rillet.spark.archive.files import ArchiveError
from rillet.spark.archive.manifest import Value
from rillet.spark.archive.targets import DeltaStorage
from rillet.spark.options import Options
from rillet.types.stream.id import StreamID

_U64 = 1 << 64
_TRIES = 20
_PAUSE = 0.05  # seconds between attempts to open a file that is being moved


def entry_id(batch: Any, row: int) -> StreamID:
    """Return the stream ID of a row of a record batch; convert the signed columns id_ms and id_seq to unsigned."""
    return StreamID(batch.column("id_ms")[row].as_py() % _U64, batch.column("id_seq")[row].as_py() % _U64)


def open_file(places: Sequence[Path]) -> Any:
    """Open a file of an archive at the first existing one of its possible paths."""
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
        f"rillet: {places[0]} no longer exists: compaction replaced it, and replaced files are kept for a limited "
        "time. Read the archive again"
    )


@dataclass(frozen=True)
class ArchiveTask:
    """The part of an archive file that a task reads: entries with after < ID <= last in some of its row groups."""

    places: tuple[Path, ...]
    stream: str
    after: StreamID
    last: StreamID
    number: int = 0
    shares: int = 1
    storage: DeltaStorage | None = None  # the Delta table that holds the file
    values: dict[str, Value] = field(default_factory=dict)  # of partition columns, which are not in the file

    def opened(self) -> Any:
        """Open the file, as a context manager."""
        return open_file(self.places) if self.storage is None else self.storage.read(str(self.places[0]))


def read_share(share: ArchiveTask, schema: Any, options: Options) -> Iterator[Any]:
    """Yield the rows of a task's part of an archive file as record batches of the given schema."""
    with share.opened() as file:
        have, constants = file.schema_arrow, {"stream": share.stream, **share.values}
        if missing := missing_columns(have, schema, constants):
            raise ArchiveError(f"rillet: {share.places[0]} has neither the map `fields` nor {', '.join(missing)}")
        direct = is_direct(have, schema, constants)
        wanted = {field.name for field in schema} - constants.keys() if direct else {"id", "fields"}
        columns = [name for name in have.names if name in wanted | {"id_ms", "id_seq"}]
        groups = [number for number in _groups(file, share) if _overlaps(file.metadata.row_group(number), share)]
        for batch in file.iter_batches(options.batch_entries, row_groups=groups, columns=columns):
            batch = between(batch, share.after, share.last)
            if batch.num_rows:
                yield shaped(batch, constants, schema) if direct else decoded(batch, share.stream, schema, options)


def field_names_in(task: ArchiveTask, rows: int = 1000) -> set[bytes] | None:
    """Return the keys of the map `fields` in an archive file's first rows; None if the file has typed columns."""
    with task.opened() as file:
        if "fields" not in file.schema_arrow.names:
            return None
        batch = next(file.iter_batches(rows, columns=["fields"]), None)
        return set() if batch is None else {str(key).encode() for key in batch.column(0).keys.unique().to_pylist()}


def _groups(file: Any, share: ArchiveTask) -> range:
    """Return the numbers of the row groups in a task's part of an archive file."""
    count = file.metadata.num_row_groups
    return range(count * share.number // share.shares, count * (share.number + 1) // share.shares)


def _overlaps(group: Any, share: ArchiveTask) -> bool:
    """Return whether a row group may hold entries that a task reads, from the statistics of id_ms."""
    for number in range(group.num_columns):
        column = group.column(number)
        if column.path_in_schema == "id_ms":
            bounds = column.statistics
            if bounds is None or not bounds.has_min_max or bounds.min < 0:
                return True
            return bool(bounds.max >= share.after.ms and bounds.min <= share.last.ms)
    return True


def _has(have: Any, field: Any, constants: Container[str]) -> bool:
    return field.name in constants or (field.name in have.names and have.field(field.name).type.equals(field.type))


def is_direct(have: Any, schema: Any, constants: Container[str]) -> bool:
    """Return whether a Parquet file, with its constant columns, has all columns of a schema with the same types."""
    return all(
        field.name == "stream" or (_has(have, field, constants) and not (field.metadata or {}).get(b"field"))
        for field in schema
    )


def missing_columns(have: Any, schema: Any, constants: Container[str]) -> list[str]:
    """Return the columns of a schema that an archive file without the map `fields` cannot provide."""
    if is_direct(have, schema, constants) or "fields" in have.names:
        return []
    return [f"{field.name} {field.type}" for field in schema if not _has(have, field, constants)]


def between(batch: Any, after: StreamID, last: StreamID) -> Any:
    """Return the rows with after < ID <= last of a batch that is sorted by ID. O(log rows)"""
    high = batch.num_rows
    if not high or (entry_id(batch, 0) > after and entry_id(batch, high - 1) <= last):
        return batch
    start = _first_beyond(batch, after, 0)
    return batch.slice(start, _first_beyond(batch, last, start) - start)


def _first_beyond(batch: Any, bound: StreamID, low: int) -> int:
    return bisect_right(range(batch.num_rows), bound, low, key=partial(entry_id, batch))


def shaped(batch: Any, constants: Mapping[str, Value], schema: Any) -> Any:
    """Return rows of an archive file as a record batch of a schema; add the stream's name and partition columns."""
    import pyarrow as pa

    arrays = [
        pa.repeat(pa.scalar(constants[field.name], field.type), batch.num_rows)
        if field.name in constants else batch.column(field.name)
        for field in schema
    ]  # fmt: skip
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def decoded(batch: Any, stream: str, schema: Any, options: Options) -> Any:
    """Decode the IDs and fields of archived rows into the columns of a schema, as the source decodes entries."""
    rows = rows_for(schema, stream.encode(), options.mode, options.corrupt_column)
    decoder = RangeDecoder(rows, 1 << 62, 1 << 62)
    decoder.feed(b"*%d\r\n" % batch.num_rows)
    decoder.feed(reply_of(batch))
    state = decoder.decode()
    assert state == DONE, (state, MORE)
    return record_batch(rows, schema)


def reply_of(batch: Any) -> bytes:
    """Encode rows of (id, fields) as the entries of an XRANGE reply, with Arrow's functions. O(bytes)"""
    import pyarrow as pa
    import pyarrow.compute as pc

    fields = batch.column("fields")
    ends = fields.offsets  # a null map has an empty range here
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
    """Return an Arrow column of strings encoded as RESP bulk strings."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if texts.null_count:
        texts = texts.fill_null(b"" if pa.types.is_binary(texts.type) else "")
    plain = texts.cast(pa.binary())
    lengths = pc.cast(pc.binary_length(plain), pa.string()).cast(pa.binary())
    head, tail = pa.scalar(b"$", pa.binary()), pa.scalar(b"\r\n", pa.binary())
    return pc.binary_join_element_wise(head, lengths, tail, plain, tail, pa.scalar(b"", pa.binary()))

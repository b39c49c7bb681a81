"""The archive of changes: rows of format("rillet.changes") in Parquet files by date and database, each exactly once.

    orders.changes/
      date=2024-05-01/db=0/5120-0_80013-0_c17.parquet     first and last offset, commit
      _rillet/manifest.json, commits/ ...                 the list of files, and the source's offset

The format and the commits are those of archive/layout.py. In the names, a change has the ID `offset-0`; a row of a
snapshot has that of its place in the snapshot, because all of them have the same offset.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from rillet.spark.archive.layout import day_of
from rillet.spark.archive.manifest import Part
from rillet.spark.archive.targets import FileTarget
from rillet.types.stream.id import StreamID

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from rillet.spark.pipelines.parquet import ArchiveFileWriter

DAY_US = 86_400_000_000
ROWS_OF_A_PART = 1 << 40  # more than a part of a snapshot has
RUN = "run"


def columns_of(given: StructType | None) -> StructType:
    """Return the columns of an archive: those of the source, then the typed columns of the given schema."""
    from pyspark.sql.types import (
        ArrayType,
        BinaryType,
        BooleanType,
        IntegerType,
        LongType,
        MapType,
        StringType,
        StructField,
        StructType,
        TimestampType,
    )

    own = {
        "offset": LongType(), "arrived": TimestampType(), "db": IntegerType(), "key": StringType(),
        "type": StringType(), "command": StringType(), "arguments": ArrayType(BinaryType()),
        "transaction": BooleanType(), "id": StringType(), "fields": MapType(StringType(), StringType()),
    }  # fmt: skip
    columns = [StructField(name, kind) for name, kind in own.items()]
    if given is not None:
        columns += [column for column in given.fields if column.name not in own]
    return StructType(columns)


def stored_schema(columns: StructType) -> str:
    """Return the schema that the archive keeps, as Spark's JSON."""
    from pyspark.sql.types import StringType, StructField, StructType

    text: str = StructType([*columns.fields, StructField(RUN, StringType())]).json()
    return text


def write_task(options: Mapping[str, str], schema: str, partition: Any, target: FileTarget) -> list[Part]:
    """Read a task of the source and write its rows to an archive's storage; runs on an executor."""
    from pyspark.sql.types import StructType

    from rillet.spark.changes.options import parse_changes
    from rillet.spark.changes.source import ChangesReader, SnapshotPartition

    reader = ChangesReader(parse_changes(options), StructType.fromJson(json.loads(schema)))
    number, run = -1, ""
    if isinstance(partition, SnapshotPartition):
        number, run = partition.number, partition.run
    else:
        run = partition.file.run
    return write_changes(reader.read(partition), target, run, number)


def write_changes(batches: Iterable[Any], target: FileTarget, run: str, number: int) -> list[Part]:
    """Write record batches as one file per date and database; number: of the part of a snapshot, -1 for changes."""
    import pyarrow as pa

    from rillet.spark.pipelines.parquet import ArchiveFileWriter

    files: dict[tuple[int, int], tuple[ArchiveFileWriter, StreamID]] = {}
    rows = max(number, 0) * ROWS_OF_A_PART
    for batch in batches:
        batch = batch.append_column(RUN, pa.repeat(pa.scalar(run, pa.string()), batch.num_rows))
        for (day, db), piece in _pieces(batch):
            offsets = piece.column("offset")
            first, last = (StreamID(offsets[at].as_py(), 0) for at in (0, piece.num_rows - 1))
            if number >= 0:
                first, last = StreamID(first.ms, rows), StreamID(last.ms, rows + piece.num_rows - 1)
                rows += piece.num_rows
            piece = piece.drop_columns(["db"])
            if (day, db) in files:
                writer, _ = files[day, db]
            else:
                writer = ArchiveFileWriter(target, piece.schema, str(db), day_of(day * 86_400_000), first)
            writer.write(piece)
            files[day, db] = writer, last
    return [writer.close(last) for writer, last in files.values()]


def _pieces(batch: Any) -> Iterator[tuple[tuple[int, int], Any]]:
    """Yield (day, database) and the rows of each, in order."""
    import pyarrow as pa
    import pyarrow.compute as pc

    days = pc.divide(batch.column("arrived").cast(pa.int64()), pa.scalar(DAY_US, pa.int64()))
    dbs = batch.column("db")
    found = sorted(set(zip(days.to_pylist(), dbs.to_pylist(), strict=True)))
    for day, db in found:
        whole = len(found) == 1
        yield (day, db), batch if whole else batch.filter(pc.and_(pc.equal(days, day), pc.equal(dbs, db)))

"""backfill: adds the entries of a range that an archive lacks, each exactly once, also while a job archives new ones.

    backfill(spark, "events.archive", url="redis://restored", stream="events", startingTimestamp="2024-05-01")

    the stream    ├── the range, up to the job's position ──┤─► the job archives what follows
    a task        entries of its part, without those whose IDs the archive's files have ──► Parquet ──► one commit

A task reads the IDs that the archive has in its range, so it does not matter how the files were merged, or how often
the command runs. The archive keeps its columns and its position. The source may be another server than that of the job:
a copy that still has what was trimmed, or a restored backup.

Rejected: to take what lies between the first and the last ID of a file as archived. A merged file spans the gap.

Cost: the range is read from the server, the IDs in it from the archive. A task holds these IDs, about 30 bytes each.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rillet.spark.archive.backends import AnyArchive, open_archive
from rillet.spark.archive.files import ArchiveError, ArchiveOvertaken
from rillet.spark.archive.manifest import ArchiveManifest, Part
from rillet.spark.archive.parquet_reader import ArchiveTask, read_share
from rillet.spark.archive.partitions import data_columns
from rillet.spark.archive.targets import FileTarget
from rillet.spark.options import Options
from rillet.spark.pipelines.archive_summary import WAIT, ArchiveSummary
from rillet.spark.pipelines.task_runner import TaskRunner
from rillet.types.stream.id import StreamID

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ATTEMPTS = 20  # to commit to a Delta table to which others write


def backfill(
    spark: SparkSession | TaskRunner | None,
    to: str | Path,
    *,
    compression: str = "zstd",
    storage_options: Mapping[str, str] | None = None,
    **options: str,
) -> ArchiveSummary:
    """Add the entries of a range that an archive lacks; options: those of a batch read of the streams.

    A job that archives into a folder waits meanwhile. In a Delta table it goes on, and the commit follows its commits.
    """
    runner, archive = TaskRunner.using(spark), open_archive(to, None, storage_options)
    partitions, entries = _partitions(archive.existing(), dict(options), runner)
    parts: list[Part] = []
    read: list[list[str]] | None = None  # the files whose IDs the tasks have left out
    for attempt in range(_ATTEMPTS):
        with archive.writing(WAIT) as manifest:
            held = [list(_held(archive, manifest, one.ranges)) for one in partitions]
            paths = [[file.path for file, _ in some] for some in held]
            if paths != read:
                target, names = archive.target(compression), data_columns(manifest.partition_by)
                tasks = [(backfill_task, options, manifest.schema, one, target, names, [task for _, task in some])
                         for one, some in zip(partitions, held, strict=True)]  # fmt: skip
                parts = [part for written in runner.work_for(entries)(tasks) for part in written]
                read = paths
            try:
                if parts:
                    archive.append(manifest, parts, manifest.offset, manifest.schema)
                break
            except ArchiveOvertaken:
                if attempt + 1 == _ATTEMPTS:
                    raise
    return ArchiveSummary(sum(part.rows for part in parts), len(parts), sum(part.bytes for part in parts), bool(parts))


def _partitions(manifest: ArchiveManifest, options: dict[str, str], runner: TaskRunner) -> tuple[list[Any], float]:
    """Return the tasks of a batch read up to the archive's position in each stream, and the most entries in them."""
    from pyspark.sql.types import StructType

    from rillet.spark.source import BatchReader, RilletDataSource

    source = RilletDataSource(options)
    source.default_parallelism = 1
    made = source.reader(StructType.fromJson(json.loads(manifest.schema)))
    assert isinstance(made, BatchReader)
    reader, positions, whole = made, manifest.offset.get("streams", {}), made.bounds
    entries = 0.0

    def bounds(known: Mapping[str, Any]) -> dict[str, tuple[StreamID, StreamID]]:
        nonlocal entries
        if new := [stream for stream in known if stream not in positions]:
            raise ArchiveError(f"rillet: the archive does not hold the stream {new[0]!r}: archive it before a backfill")
        entries = sum(info.length for info in known.values() if info is not None)
        reader.parallelism = runner.parallelism_for(entries)
        found = {one: (after, min(last, StreamID.parse(positions[one]))) for one, (after, last) in whole(known).items()}
        return {stream: (after, last) for stream, (after, last) in found.items() if after < last}

    reader.bounds = bounds  # type: ignore[method-assign, assignment]
    return [one for one in reader.partitions() if one.ranges], entries  # type: ignore[attr-defined]


def _held(
    archive: AnyArchive, manifest: ArchiveManifest, ranges: Sequence[tuple[str, StreamID, StreamID]]
) -> Iterator[tuple[Part, ArchiveTask]]:
    """Yield the archive's files in some ranges of streams, and how to read their rows there."""
    for stream, after, last in ranges:
        for file in manifest.files:
            if file.stream == stream and file.last > after and file.first <= last:
                yield file, archive.task(manifest, file, after, last)


def backfill_task(
    options: dict[str, str], schema: str, partition: Any, target: FileTarget, names: Sequence[str],
    held: Sequence[ArchiveTask],
) -> list[Part]:  # fmt: skip
    """Read a task's entries and write those that the archive lacks; runs on an executor."""
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from rillet.spark.pipelines.parquet import write_parts
    from rillet.spark.source import RilletDataSource

    kinds = pa.schema([("stream", pa.string()), ("id", pa.string()), ("id_ms", pa.int64())])
    known: dict[str, list[Any]] = {}
    for task in held:
        known.setdefault(task.stream, []).extend(read_share(task, kinds, Options()))
    archived = {stream: pa.Table.from_batches(batches, kinds) for stream, batches in known.items()}
    source = RilletDataSource(options)
    source.default_parallelism = 1
    reader: Any = source.reader(StructType.fromJson(json.loads(schema)))
    return write_parts(_missing(reader.read(partition), archived), target, names)


def _missing(batches: Iterator[Any], archived: Mapping[str, Any]) -> Iterator[Any]:
    """Yield the rows of record batches whose IDs the archive lacks; archived: by stream, its IDs in the range."""
    import pyarrow.compute as pc

    from rillet.spark.pipelines.parquet import runs

    for batch in batches:
        for stream, _, rows in runs(batch):
            there = archived.get(stream)
            if there is not None:
                low, high = (rows.column("id_ms")[at] for at in (0, rows.num_rows - 1))
                near = pc.and_(pc.greater_equal(there["id_ms"], low), pc.less_equal(there["id_ms"], high))
                found = there.filter(near)["id"].combine_chunks()
                rows = rows.filter(pc.invert(pc.is_in(rows.column("id"), value_set=found)))
            if rows.num_rows:
                yield rows

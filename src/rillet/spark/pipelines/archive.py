"""archive: copies streams into Parquet files, one folder per date and stream, each entry exactly once; can also trim.

    archive(spark, "events.archive", url="redis://localhost", stream="events", trim=True)

    server ──► source's tasks, in Spark or here ──► Parquet files in staging ──► commit ──► XTRIM MINID
                                                             archive/layout.py    │       archive_trim.py
               source's offset  ◄──────────────── kept in the manifest ◄──────────┘

The job calls the methods of the connector's streaming reader itself: `latestOffset` plans a batch, `partitions` returns
its tasks, `read` runs in each task. The job does not use Spark's checkpoint. The archive's manifest holds the offset
together with the list of files, in one commit, so the offset and the files cannot disagree. Batch limits, stream
patterns, clusters, groups and the data-loss check work as in any streaming query. A task writes its Arrow batches to
Parquet itself; Spark's writer would send every row through the JVM.

Cost: each entry is read and written once, about 1 us per core for an entry of five fields. A commit costs a few fsyncs
and one rename per file. Compaction reads and writes each byte again, log(target / batch) times, to the base
`small_files`.
"""

from __future__ import annotations

import argparse
import json
import math
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rillet.spark.archive.backends import FORMATS, AnyArchive, open_archive
from rillet.spark.archive.delta import DeltaArchive
from rillet.spark.archive.files import ArchiveError, ArchiveOvertaken
from rillet.spark.archive.layout import DAY_MS, NO_OBJECTS
from rillet.spark.archive.manifest import ArchiveManifest, Part
from rillet.spark.archive.partitions import check_columns, data_columns, partition_columns, partitioned
from rillet.spark.archive.targets import FileTarget
from rillet.spark.option_types import duration
from rillet.spark.options import OptionError, Options, parse
from rillet.spark.pipelines import cli_arguments, cli_common
from rillet.spark.pipelines.archive_offsets import entries_behind, merged, position_only, starting_offset
from rillet.spark.pipelines.archive_summary import WAIT, ArchiveSummary
from rillet.spark.pipelines.archive_trim import trim_errors, trim_streams
from rillet.spark.pipelines.tables import NOTHING, Progress, silent
from rillet.spark.pipelines.task_runner import TaskRunner, struct_of
from rillet.spark.read.offsets import Offset
from rillet.store.display.json_line import print_json
from rillet.units import counted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

    from rillet.spark.connect import Work
    from rillet.spark.read.data_loss import DataLossGuard
    from rillet.spark.read.micro_batch import MicroBatchReader

TARGET = 128 << 20  # bytes
SMALL_FILES = 16
BATCH_ENTRIES = 2_000_000
MERGES_A_COMMIT = 64
OWN = "stream string, id string, id_ms bigint, id_seq bigint, timestamp timestamp"

@dataclass(frozen=True)
class FileOptions:
    """The settings for writing and merging an archive's files; durations are in seconds, sizes in bytes."""

    small_files: int = SMALL_FILES  # minimum number of small files in a folder for a merge
    target_bytes: int = TARGET
    compression: str = "zstd"
    keep_replaced: float | None = None  # None: the default of the archive's format
    keep: float | None = None  # None: forever


def archive(
    spark: SparkSession | TaskRunner | None,
    to: str | Path,
    *,
    schema: str | StructType | None = None,
    every: float | None = None,
    stop: threading.Event | None = None,
    trim: bool = False,
    keep: float | None = None,
    small_files: int = SMALL_FILES,
    target_bytes: int = TARGET,
    compression: str = "zstd",
    keep_replaced: float | None = None,
    format: str | None = None,
    storage_options: Mapping[str, str] | None = None,
    merge_schema: bool = False,
    partition_by: str | None = None,
    progress: Progress = silent,
    each_round: AbstractContextManager[Any] = NOTHING,
    **options: str,
) -> ArchiveSummary:
    """Append the new entries of streams to an archive: once, or every `every` seconds until `stop` is set.

    spark: a session, or None to read and write in this process, without Java. options: the source's options.
    schema: typed columns instead of the map `fields`; an archive keeps its first schema. keep: seconds; whole days that
    ended longer ago are removed from the archive.
    format: `rillet` (a folder, the default) or `delta` (a Delta table; the default for URLs, and where one exists).
    storage_options: the object store's settings, as for deltalake. merge_schema: new columns extend a Delta table.
    partition_by: the columns of a new archive's folders, such as "date,region": date, hour (of the ID) and columns of
    the schema; an archive keeps them.
    each_round: a context manager around each round.
    """
    files = FileOptions(small_files, target_bytes, compression, keep_replaced, keep)
    job = ArchiveJob(
        open_archive(to, format, storage_options, merge_schema, _partition_columns(partition_by)),
        options, schema, TaskRunner.using(spark), files, trim=trim, stop=stop, progress=progress,
    )  # fmt: skip
    if trim and (wrong := trim_errors(job.parsed)):
        raise OptionError(f"rillet: {'; '.join(wrong)}")
    wait = WAIT
    while True:  # between two rounds, others may write to the archive: `compact`, other jobs
        try:
            with each_round, job.archive.writing(wait) as manifest:
                job.round(manifest)
        except ArchiveOvertaken:  # in a Delta table, others may write during a round
            if every is None:
                raise
        if every is None or job.stop.wait(every):
            return job.done
        wait = math.inf


def _partition_columns(text: str | None) -> tuple[str, ...] | None:
    try:
        return None if text is None else partition_columns(text)
    except ValueError as error:
        raise OptionError(f"rillet: partition_by is {text!r}: {error}") from None


def compact(
    spark: SparkSession | TaskRunner | None,
    to: str | Path,
    *,
    target_bytes: int = TARGET,
    compression: str = "zstd",
    keep_replaced: float | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> ArchiveSummary:
    """Merge the small files of an archive, folder by folder; readers see the same rows at every moment.

    In a Delta table, also remove the files that no version of the last `keep_replaced` seconds (a week) lists.
    """
    folder, done = open_archive(to, None, storage_options), ArchiveSummary()
    folder.existing()
    with folder.writing(WAIT) as manifest:
        files = FileOptions(2, target_bytes, compression, keep_replaced)
        merge_small(folder, manifest, files, TaskRunner.using(spark), done)
        if isinstance(folder, DeltaArchive):
            done.vacuumed = folder.vacuum(folder.keep_replaced if keep_replaced is None else keep_replaced)
    return done


class ArchiveJob:
    """An archive run over the selected streams; use it inside `Archive.writing`, which locks the archive."""

    def __init__(
        self, archive: AnyArchive, options: dict[str, str], schema: str | StructType | None, runner: TaskRunner,
        files: FileOptions, *, trim: bool = False, stop: threading.Event | None = None,
        progress: Progress = silent,
    ) -> None:  # fmt: skip
        from rillet.spark.source import RilletDataSource

        if "maxentriespertrigger" not in {name.lower() for name in options}:
            options = {**options, "maxEntriesPerTrigger": str(BATCH_ENTRIES)}
        self.archive, self.options, self.runner, self.files = archive, options, runner, files
        self.trim, self.progress = trim, progress
        self.stop = stop or threading.Event()
        self.source = RilletDataSource(options)
        self.source.default_parallelism = 1  # `round` sets it
        self.parsed: Options = self.source.parsed
        self.columns = columns_of(struct_of(self.source.schema() if schema is None else schema, runner))
        self.done = ArchiveSummary(trims=trim)
        self.total: int | None = None
        self.guard: DataLossGuard | None = None

    def round(self, manifest: ArchiveManifest) -> ArchiveManifest:
        """Archive the entries that the streams hold now, until `stop` is set; return the new manifest."""
        from rillet.client.servers import Servers
        from rillet.spark.read.stream_info import stream_infos

        schema = self.columns.json()
        if not self.archive.fits(manifest, schema):
            raise ArchiveError(_other_columns(self.archive.path, manifest.schema, self.columns))
        manifest = partitioned(manifest, self.archive.partition_by, self.archive.path)
        check_columns(manifest.partition_by, self.columns)
        reader = self.source.streamReader(self.columns)
        try:
            self._guarded(reader.follower)  # type: ignore[attr-defined]
            start = starting_offset(manifest, reader.initialOffset(), self.parsed)
            reader.prepareForTriggerAvailableNow()  # type: ignore[attr-defined]
            limit = reader.getDefaultReadLimit()
            with Servers(self.parsed) as servers:
                behind = entries_behind(servers, Offset.parse(start))
                self.total = self.done.entries + behind.entries
                self.progress(self.done.entries, self.total)
                work = self.runner.work_for(*behind)
                reader.follower.planner.parallelism = self.runner.parallelism_for(*behind)  # type: ignore[attr-defined]
                while True:
                    if self.trim:  # even without new entries: a group may have read more
                        self.done.trimmed += trim_streams(servers, manifest, Offset.parse(start).streams)
                    end = reader.latestOffset(start, limit)
                    for stream in Offset.parse(end).streams:
                        self.archive.check_stream(stream)
                    if Offset.parse(end).streams == Offset.parse(start).streams:
                        break
                    manifest = self.batch(manifest, reader.partitions(start, end), end, work)
                    if self.trim and self.guard is not None:  # this job removes entries itself from now on
                        self.guard.batch_was_read(stream_infos(servers, Offset.parse(end).streams))
                    start = position_only(end)
                    if self.stop.is_set():
                        return manifest
        finally:
            if self.guard is not None:
                self.done.lost, self.done.unsure = sum(self.guard.lost.values()), bool(self.guard.unsure)
            reader.stop()
        return merge_small(self.archive, manifest, self.files, self.runner, self.done)

    def _guarded(self, follower: MicroBatchReader) -> None:
        """Count each lost entry only once over all rounds; set the remedy that data-loss errors name."""
        guard, before = follower.guard, self.guard
        guard.restart = "use another folder to start over"
        if before is not None:
            guard.settled, guard.settled_more, guard.current = before.settled, before.settled_more, before.current
            guard.unbounded, guard.running = before.unbounded, before.running
        self.guard = guard

    def batch(
        self, manifest: ArchiveManifest, partitions: Sequence[Any], end: dict[str, Any], work: Work
    ) -> ArchiveManifest:
        """Write one batch of entries to Parquet files and commit it to the manifest."""
        schema, target = self.columns.json(), self.archive.target(self.files.compression)
        names = data_columns(manifest.partition_by)
        tasks = [(write_task, self.options, schema, one, target, self.trim, names) for one in partitions]
        parts: list[Part] = [part for written in work(tasks) for part in written]
        self.archive.at("written")
        offset = merged(manifest.offset, position_only(end))
        manifest = self.archive.append(manifest, parts, offset, schema)
        self.done.entries += sum(part.rows for part in parts)
        self.done.bytes += sum(part.bytes for part in parts)
        self.done.files += len(parts)
        self.done.commits += 1
        self.progress(self.done.entries, self.total)
        return manifest


def write_task(
    options: dict[str, str], schema: str, partition: Any, target: FileTarget, exact: bool = False,
    names: Sequence[str] = (),
) -> list[Part]:
    """Read a task's entries and write them to an archive's storage; runs on an executor.

    exact: raise ArchiveError if an entry has bytes that are not UTF-8, which a map of strings cannot hold.
    names: the partition columns of the data.
    """
    from pyspark.sql.types import BinaryType, MapType, StringType, StructType

    from rillet.spark.pipelines.parquet import texts_of_bytes, write_parts
    from rillet.spark.source import RilletDataSource

    columns = StructType.fromJson(json.loads(schema))
    as_texts = exact and "fields" in columns.names and columns["fields"].dataType == MapType(StringType(), StringType())
    if as_texts:
        columns["fields"].dataType = MapType(StringType(), BinaryType())
    batches = RilletDataSource(options).streamReader(columns).read(partition)
    return write_parts(map(texts_of_bytes, batches) if as_texts else batches, target, names)


def columns_of(requested: StructType) -> StructType:
    """Return the columns of an archive: the stream and ID columns, then the remaining columns of the given schema."""
    from pyspark.sql.types import LongType, StringType, StructField, StructType, TimestampType

    own = {"stream": StringType(), "id": StringType(), "id_ms": LongType(), "id_seq": LongType(),
           "timestamp": TimestampType()}  # fmt: skip
    columns = [StructField(name, kind) for name, kind in own.items()]
    return StructType([*columns, *(column for column in requested.fields if column.name not in own)])


def _other_columns(path: str | Path, stored: str, requested: StructType) -> str:
    from pyspark.sql.types import StructType

    before = StructType.fromJson(json.loads(stored)).simpleString()
    return f"rillet: the archive {path} has the columns {before}; the job writes {requested.simpleString()}"


# ---- compaction ---------------------------------------------------------------------------------------------------


def merge_small(
    archive: AnyArchive, manifest: ArchiveManifest, files: FileOptions, runner: TaskRunner, done: ArchiveSummary
) -> ArchiveManifest:
    """Merge the small files of each archive folder that has `small_files` of them; return the new manifest.

    Also remove the days that ended more than `keep` seconds ago, and files that were replaced more than `keep_replaced`
    seconds ago.
    """
    from rillet.spark.pipelines.parquet import merge_parts

    if files.keep is not None and (old := old_folders(manifest, time.time() - files.keep)):
        done.removed += sum(file.rows for folder in old for file in manifest.files.in_folder(folder))
        manifest = archive.remove(manifest, old)
    manifest = archive.forget(manifest, archive.keep_replaced if files.keep_replaced is None else files.keep_replaced)
    runs = archive.mergeable(manifest, files.small_files, files.target_bytes)
    if runs and not archive.can_merge():
        raise ArchiveError(
            f"rillet: the file system of {archive.path} cannot exchange two folders atomically, so readers would see a "
            "gap during compaction: use a larger interval, which makes larger files"
        )
    if not runs:
        return manifest
    work = runner.work_for(size=sum(part.bytes for run in runs for part in run))
    by_folder: dict[str, list[list[Part]]] = {}
    for run in runs:  # one commit must contain all merges in a folder
        by_folder.setdefault(run[0].path.rpartition("/")[0], []).append(run)
    waiting: list[list[Part]] = []
    for number, group in enumerate(by_folder.values(), 1):
        waiting += group
        if len(waiting) < MERGES_A_COMMIT and number < len(by_folder):
            continue
        target = archive.target(files.compression)
        merged_files = work([(merge_parts, target, run) for run in waiting])
        manifest = archive.merge(manifest, list(zip(waiting, merged_files, strict=True)))
        done.merged += sum(map(len, waiting))
        done.into += len(merged_files)
        waiting = []
    return manifest


def old_folders(manifest: ArchiveManifest, before: float) -> list[str]:
    """Return the folders of the days that ended before a time, in seconds since 1970. O(folders)"""
    last = int(before * 1000) // DAY_MS  # the day that contains the time; None is beyond the year 9999
    found = []
    for folder in manifest.files.folders():
        day = manifest.files.in_folder(folder)[0].day
        if day is not None and day < last:
            found.append(folder)
    return sorted(found)


# ---- the command --------------------------------------------------------------------------------------------------

SMALL_WITHOUT_SPARK = True
EPILOG = """examples:
  rillet pipeline archive events.archive --url redis://localhost --stream events --trim
  rillet pipeline archive all.archive --url redis://localhost --stream-pattern 'events:*' --every 30s
  rillet pipeline archive events.archive --compact
  rillet pipeline archive events.archive --backfill --url redis://restored --stream events \\
    --option startingTimestamp=2024-05-01T00:00:00Z --option endingTimestamp=2024-06-01T00:00:00Z
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("to", type=cli_arguments.folder_or_url, metavar="FOLDER",
                        help="the archive's folder, or a Delta table's URL; created if it does not exist")  # fmt: skip
    cli_arguments.source_arguments(parser)
    add = parser.add_argument_group("archive").add_argument
    add("--schema", help="typed columns instead of the map `fields`: 'carrier string, delay double'")
    add("--every", type=duration, metavar="TIME", help="keep running, with a batch every 30s, 5m ...")
    add("--trim", action="store_true", help="trim archived entries that no group needs")
    add("--compact", action="store_true", help="merge small files and exit; needs no source")
    add("--backfill", action="store_true", help="add entries of a range that the archive lacks, and exit")
    add("--keep", type=duration, metavar="TIME", help="remove days from the archive that ended longer ago: 90d")
    cli_arguments.file_options(add, SMALL_FILES, TARGET, "1h; in a Delta table 7d")
    add("--format", choices=FORMATS, help="rillet (a folder) or delta (a Delta table, also at a URL such as s3://...)")
    cli_arguments.storage_option(add)
    add("--partition-by", type=partition_columns, metavar="COLUMNS",
        help="the folders of a new archive: date, hour, and columns of --schema (default: date,stream)")  # fmt: skip
    add("--merge-schema", action="store_true", help="add new columns of --schema to a Delta table")


def argument_errors(options: argparse.Namespace) -> list[str]:
    others = {
        "--trim": options.trim, "--keep": options.keep, "--every": options.every, "--schema": options.schema,
        "--merge-schema": options.merge_schema, "--format": options.format, "--partition-by": options.partition_by,
    }  # fmt: skip
    if options.compact:
        others["--backfill"] = options.backfill
        return [f"--compact only merges: it cannot be combined with {flag}" for flag, value in others.items() if value]
    if options.backfill and (wrong := [flag for flag, value in others.items() if value]):
        return [f"--backfill cannot be combined with {flag}" for flag in wrong]
    errors = cli_arguments.source_errors(options)
    if options.format == "rillet" and "://" in str(options.to):
        errors.append(f"{options.to}: {NO_OBJECTS}")
    return errors or (trim_errors(parse(cli_arguments.source_options(options))) if options.trim else [])


def run(options: argparse.Namespace) -> int:
    """Archive the streams or compact the archive; print a summary line and return the exit status."""
    with cli_common.runner_of(options, "archive") as runner:
        if options.compact:
            done = compact(runner, options.to, target_bytes=options.file_size, compression=options.compression,
                           keep_replaced=options.keep_replaced,
                           storage_options=dict(options.storage_option))  # fmt: skip
            if options.json:
                print_json({"to": options.to, "merged": done.merged, "into": done.into, "in": runner.used})
                return cli_common.DONE
            merged_files = f"{counted(done.merged, 'small file')} merged into {done.into:,}"
            print(f"{options.to}: {f'{merged_files}, in {runner.used}' if done.merged else 'no small files to merge'}")
            return cli_common.DONE
        if options.backfill:
            from rillet.spark.pipelines.archive_backfill import backfill

            done = backfill(runner, options.to, compression=options.compression,
                            storage_options=dict(options.storage_option),
                            **cli_arguments.source_options(options))  # fmt: skip
            _print(options, done, runner)
            return cli_common.DONE
        stop = cli_common.stop_on_sigterm(options)
        with cli_common.progress_bar(options, f"archiving into {options.to}") as bar:
            done = archive(
                runner, options.to, schema=options.schema, every=options.every, stop=stop, trim=options.trim,
                keep=options.keep,
                small_files=options.small_files, target_bytes=options.file_size, compression=options.compression,
                keep_replaced=options.keep_replaced, format=options.format,
                storage_options=dict(options.storage_option), merge_schema=options.merge_schema,
                partition_by=options.partition_by, progress=bar,
                each_round=options.job, **cli_arguments.source_options(options),
            )  # fmt: skip
    _print(options, done, runner)
    return cli_common.DONE


def _print(options: argparse.Namespace, done: ArchiveSummary, runner: TaskRunner) -> None:
    if options.json:
        print_json({"to": options.to, **asdict(done), "in": runner.used})
    else:
        print(f"{done.line(options.to)}, in {runner.used}")

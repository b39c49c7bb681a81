"""archive: streams into Parquet files by date and stream, each entry exactly once; what is archived may be trimmed.

    archive(spark, "events.archive", url="redis://localhost", stream="events", trim=True)

    server ──► source's tasks on the executors ──► Parquet files in staging ──► commit ──► XTRIM MINID
                                                                     folder.py    │
               source's offset  ◄──────────────── kept in the manifest ◄──────────┘

It drives the connector's streaming reader itself: `latestOffset` plans a batch, `partitions` its tasks, `read` runs in
them. Spark's checkpoint is not used, because the archive's manifest holds the offset together with the files that it
speaks of, in one commit. There is no second place that could say something else, and no checkpoint that can be lost
beside the data. Caps, patterns, clusters, groups that follow and the guard against loss are the source's and work as in
any query. A task writes its entries from Arrow to Parquet itself: rows of Spark's own would cost a way through the JVM.

Trimming comes after the commit, when files and manifest are on the disk. It never takes

    the last archived entry       so that the guard sees at the next batch that nothing between is missing
    what a group has yet to read  the entry after its last-delivered-id, and its oldest pending one

so a stream ends up with what its slowest group needs. Nothing is taken where the last archived entry is not in the
stream: it may be another stream of that name, whose entries the archive does not have. Nor is anything where a map of
texts could not hold an entry's bytes. A reader that the server does not know of, such as another Spark job without a
group, is not waited for.

Cost: reading and writing, once each; about 1 us an entry of five fields and core. A commit is a few fsyncs and a
rename for each file. Compaction reads and writes each byte again about as often as small files make up a large one:
log(target / batch) to the base of `small_files`.
"""

from __future__ import annotations

import argparse
import json
import signal
import threading
from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rillet.client.errors import ConnectorError
from rillet.spark.archive.layout import (
    KEEP_REPLACED,
    NO_OBJECTS,
    Archive,
    ArchiveError,
    ArchiveManifest,
    Part,
    can_exchange,
    folder_of,
)
from rillet.spark.option_types import EARLIEST
from rillet.spark.options import OptionError, Options, parse
from rillet.spark.pipelines import cli_common as running
from rillet.spark.pipelines.cli_common import Progress, counted, silent
from rillet.spark.read.offsets import Offset
from rillet.store.names import matches
from rillet.types.stream.id import StreamID

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import DataType, StructField, StructType

    from rillet.client.servers import Servers
    from rillet.spark.read.data_loss import DataLossGuard
    from rillet.spark.read.micro_batch import MicroBatchReader

TARGET = 128 << 20
SMALL_FILES = 16
BATCH_ENTRIES = 2_000_000
MERGES_A_COMMIT = 64
OWN = "stream string, id string, id_ms bigint, id_seq bigint, timestamp timestamp"

Work = Callable[[Sequence[tuple[Any, ...]]], list[Any]]
"""Runs (function, arguments ...) tuples as tasks and returns their results, in order."""


@dataclass
class Archived:
    """What an archive run did."""

    entries: int = 0
    files: int = 0
    bytes: int = 0
    commits: int = 0
    trimmed: int = 0
    merged: int = 0
    into: int = 0
    lost: int = 0  # entries that were gone before they could be archived, as far as known
    unsure: bool = False  # whether it may be more
    trims: bool = False  # whether it was asked to; a group may still need everything

    def line(self, to: object) -> str:
        """Return it as one sentence."""
        told = f"{to}: {counted(self.entries, 'entry', 'entries')} archived in {counted(self.files, 'file')}"
        told += f" ({self.bytes / 1e6:,.1f} MB)"
        if self.trims:
            told += f", {self.trimmed:,} trimmed" if self.trimmed else ", nothing trimmed"
        if self.merged:
            told += f", {counted(self.merged, 'small file')} merged into {self.into:,}"
        if self.lost:
            told += f", {'at least ' * self.unsure}{counted(self.lost, 'entry', 'entries')} lost before"
        elif self.unsure:
            told += ", entries may have been lost before"
        return told


def archive(
    spark: SparkSession,
    to: str | Path,
    *,
    schema: str | StructType | None = None,
    every: float | None = None,
    stop: threading.Event | None = None,
    trim: bool = False,
    small_files: int = SMALL_FILES,
    target_bytes: int = TARGET,
    compression: str = "zstd",
    keep_replaced: float = KEEP_REPLACED,
    progress: Progress = silent,
    **options: str,
) -> Archived:
    """Bring everything that streams hold and the archive does not into it, once or every so many seconds until `stop`.

    options: the source's. schema: typed columns beside the ID's, in place of the map `fields`; it stays the archive's.
    """
    job = Job(Archive(to), options, schema, spark_work(spark), spark.sparkContext.defaultParallelism)
    job.settings(trim, small_files, target_bytes, compression, keep_replaced, progress)
    if trim and (wrong := untrimmed(job.parsed)):
        raise OptionError(f"rillet: {'; '.join(wrong)}")
    job.stop = stopped = stop or threading.Event()
    with job.archive.writing() as manifest:
        manifest = job.round(manifest)
        while every is not None and not stopped.wait(every):
            manifest = job.round(manifest)
    job.done.trims = trim
    return job.done


def compact(
    spark: SparkSession,
    to: str | Path,
    *,
    target_bytes: int = TARGET,
    compression: str = "zstd",
    keep_replaced: float = KEEP_REPLACED,
) -> Archived:
    """Merge the small files of an archive, folder by folder; who reads sees the same rows all the time."""
    folder, done = Archive(to), Archived()
    folder.existing()
    with folder.writing() as manifest:
        merge_small(folder, manifest, 2, target_bytes, compression, keep_replaced, spark_work(spark), done)
    return done


def spark_work(spark: SparkSession) -> Work:
    """Return what runs tasks on the executors of a session."""

    def work(tasks: Sequence[tuple[Any, ...]]) -> list[Any]:
        if not tasks:
            return []
        return list(spark.sparkContext.parallelize(tasks, len(tasks)).map(_do).collect())

    return work


def _do(task: tuple[Any, ...]) -> Any:
    function, *arguments = task
    return function(*arguments)


class Job:
    """Archives the streams that some options name; used inside `Archive.writing`."""

    trim = False
    small_files, target_bytes, compression, keep = SMALL_FILES, TARGET, "zstd", KEEP_REPLACED
    progress: Progress = staticmethod(silent)

    def __init__(
        self, archive: Archive, options: dict[str, str], schema: str | StructType | None, work: Work, parallelism: int
    ) -> None:
        from rillet.spark.source import RilletDataSource

        given = {name.lower() for name in options}
        if "maxentriespertrigger" not in given:
            options = {**options, "maxEntriesPerTrigger": str(BATCH_ENTRIES)}
        self.archive, self.options, self.work = archive, options, work
        self.source = RilletDataSource(options)
        self.source.default_parallelism = parallelism
        self.parsed: Options = self.source.parsed
        self.columns = columns_of(self.source.schema() if schema is None else schema)
        self.done = Archived()
        self.total: int | None = None
        self.stop = threading.Event()
        self.guard: DataLossGuard | None = None

    def settings(
        self, trim: bool, small_files: int, target_bytes: int, compression: str, keep: float, progress: Progress
    ) -> None:
        """Set what is not the source's."""
        self.trim, self.small_files, self.target_bytes = trim, small_files, target_bytes
        self.compression, self.keep, self.progress = compression, keep, progress

    def round(self, manifest: ArchiveManifest) -> ArchiveManifest:
        """Archive everything that the streams hold at this moment, less after `stop`; return the archive's state."""
        from rillet.client.servers import Servers

        schema = self.columns.json()
        if manifest.commit and manifest.schema != schema:
            raise ArchiveError(_other_columns(self.archive.path, manifest.schema, self.columns))
        reader = self.source.streamReader(self.columns)
        try:
            self._guarded(reader.follower)  # type: ignore[attr-defined]
            start = starting(manifest, reader.initialOffset(), self.parsed)
            reader.prepareForTriggerAvailableNow()  # type: ignore[attr-defined]
            limit = reader.getDefaultReadLimit()
            with Servers(self.parsed) as servers:
                self.total = self.done.entries + entries_after(servers, Offset.parse(start))
                while True:
                    if self.trim:  # also where nothing is new: a group may have moved on
                        self.done.trimmed += trim_streams(servers, manifest, Offset.parse(start).streams)
                    end = reader.latestOffset(start, limit)
                    for stream in Offset.parse(end).streams:
                        folder_of(stream, None)  # there may be no folder for it
                    if Offset.parse(end).streams == Offset.parse(start).streams:
                        break
                    manifest = self.batch(manifest, reader.partitions(start, end), end)
                    start = plain(end)
                    if self.stop.is_set():
                        return manifest
        finally:
            self._count_losses()
            reader.stop()
        return merge_small(
            self.archive, manifest, self.small_files, self.target_bytes, self.compression, self.keep, self.work,
            self.done,
        )  # fmt: skip

    def _guarded(self, follower: MicroBatchReader) -> None:
        """Have losses counted over all rounds, the same one once, and what fails say what to do with an archive."""
        guard, before = follower.guard, self.guard
        guard.anew = "another folder starts anew"
        if before is not None:
            guard.settled, guard.current, guard.unsure = before.settled, before.current, before.unsure
        self.guard = guard

    def _count_losses(self) -> None:
        if self.guard is not None:
            self.done.lost, self.done.unsure = sum(self.guard.lost.values()), bool(self.guard.unsure)

    def batch(self, manifest: ArchiveManifest, partitions: Sequence[Any], end: dict[str, Any]) -> ArchiveManifest:
        """Write one batch and commit it."""
        staging = self.archive.stage()
        schema = self.columns.json()
        root = str(self.archive.path.absolute())
        tasks = [
            (write_task, self.options, schema, one, root, staging, self.compression, self.trim) for one in partitions
        ]
        parts: list[Part] = [part for found in self.work(tasks) for part in found]
        self.archive.at("written")
        offset = merged(manifest.offset, plain(end))
        manifest = self.archive.append(manifest, parts, offset, schema)
        self.done.entries += sum(part.rows for part in parts)
        self.done.bytes += sum(part.bytes for part in parts)
        self.done.files += len(parts)
        self.done.commits += 1
        self.progress(self.done.entries, self.total)
        return manifest


def write_task(
    options: dict[str, str], schema: str, partition: Any, root: str, staging: str, compression: str, exact: bool = False
) -> list[Part]:
    """Read a task's entries and write them into staging; runs on an executor.

    exact: ArchiveError where a map of texts would hold something else than the bytes that the entries have.
    """
    from pyspark.sql.types import BinaryType, MapType, StringType, StructType

    from rillet.spark.pipelines.parquet import texts_of_bytes, write_parts
    from rillet.spark.source import RilletDataSource

    columns = StructType.fromJson(json.loads(schema))
    as_texts = exact and "fields" in columns.names and columns["fields"].dataType == MapType(StringType(), StringType())
    if as_texts:
        kinds = {"fields": MapType(StringType(), BinaryType())}
        columns = StructType([replace_type(column, kinds.get(column.name)) for column in columns])
    batches = RilletDataSource(options).streamReader(columns).read(partition)
    return write_parts(map(texts_of_bytes, batches) if as_texts else batches, Path(root), staging, compression)


def replace_type(column: StructField, kind: DataType | None) -> StructField:
    """Return a column with another type, if one is given."""
    from pyspark.sql.types import StructField

    return column if kind is None else StructField(column.name, kind, column.nullable, column.metadata)


def untrimmed(options: Options) -> list[str]:
    """Return why a stream that is read with these options cannot be trimmed: some entries are not archived."""
    left_out = [name for name in ("startingOffsets", "startingTimestamp") if name.lower() in options.named]
    wrong = [f"trim removes what is before {name}, too, which is not archived" for name in left_out]
    if options.mode == "DROPMALFORMED":
        wrong.append("trim removes what mode=DROPMALFORMED leaves out of the archive")
    return wrong


def columns_of(schema: str | StructType) -> StructType:
    """Return the columns of an archive: the ID's own, and those of a schema beside them."""
    from pyspark.sql.types import StructType

    own, asked = (StructType.fromDDL(one) if isinstance(one, str) else one for one in (OWN, schema))
    assert isinstance(own, StructType) and isinstance(asked, StructType)
    return StructType([*own.fields, *(column for column in asked.fields if column.name not in own.names)])


def _other_columns(path: Path, had: str, asked: StructType) -> str:
    from pyspark.sql.types import StructType

    before = StructType.fromJson(json.loads(had)).simpleString()
    return f"rillet: the archive {path} has the columns {before}, and {asked.simpleString()} are asked for"


# ---- offsets ------------------------------------------------------------------------------------------------------


def plain(offset: dict[str, Any]) -> dict[str, Any]:
    """Return what is kept of an offset: where the streams are, without how that batch was shared out."""
    found = Offset.parse(offset)
    return replace(found, plan=None, start=None, initial=False).json()


def merged(kept: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """Return the archive's offset after a batch: streams of other jobs stay where they were.

    All that is known of a stream goes with it, so that the next run alarms of no more than the same run would.
    """
    before, after = (Offset.parse({"streams": {}, **one}) for one in (kept, new))
    return combined(before, after, after.streams.keys()).json()


def combined(offset: Offset, other: Offset, streams: Set[str]) -> Offset:
    """Return an offset in which another one says all that there is to say of some streams."""

    def of(one: dict[str, Any], two: dict[str, Any]) -> dict[str, Any]:
        return {
            **{stream: told for stream, told in one.items() if stream not in streams},
            **{stream: told for stream, told in two.items() if stream in streams},
        }

    return Offset(
        of(offset.streams, other.streams), of(offset.added, other.added),
        unread=(offset.unread - streams) | (other.unread & streams), deleted=of(offset.deleted, other.deleted),
    )  # fmt: skip


def starting(manifest: ArchiveManifest, initial: dict[str, Any], options: Options) -> dict[str, Any]:
    """Return the offset from which a job goes on: the archive's, and the options' for streams that it does not know."""
    keys, pattern = options.keys(), options.stream_pattern
    kept, first = Offset.parse({"streams": {}, **manifest.offset}), Offset.parse(initial)
    known = {
        stream for stream in kept.streams
        if (stream in keys if keys is not None else pattern is not None and matches(pattern, stream))
    }  # fmt: skip
    if not known:
        return initial
    new = replace(first, unread=frozenset(first.streams))  # nothing is promised of what was there before
    return combined(new, kept, known).json()


def entries_after(servers: Servers, offset: Offset) -> int:
    """Return about how many entries lie after an offset: for a bar, nothing depends on it."""
    from rillet.spark.read.stream_info import facts_of

    total = 0
    for stream, facts in facts_of(servers, offset.streams).items():
        after, then = offset.streams[stream], offset.added.get(stream)
        if facts is None or facts.last <= after:
            continue
        if after != EARLIEST and then is not None and facts.added is not None:
            total += min(facts.length, max(facts.added - then, 0))
        else:
            total += facts.length
    return total


# ---- trimming and compaction --------------------------------------------------------------------------------------


def trim_streams(servers: Servers, manifest: ArchiveManifest, streams: Iterable[str]) -> int:
    """Remove from streams what is archived and no group needs; return how many entries went."""
    removed = 0
    for stream in streams:
        key, last = stream.encode(), manifest.held(stream)
        if last == EARLIEST:
            continue
        try:
            one = b"%d-%d" % last
            if not servers.call(key, b"XRANGE", key, one, one):
                continue  # another stream by now, or somebody trimmed it further
            bound = min([last, *needed(servers, key)])
            removed += servers.call(key, b"XTRIM", key, b"MINID", b"=", b"%d-%d" % bound)
        except ConnectorError as error:
            if "no such key" not in str(error):
                raise ConnectorError(f"{error} (trimming the stream {stream!r}, which is archived)") from None
    return removed


def needed(servers: Servers, key: bytes) -> list[StreamID]:
    """Return for each group of a stream an ID before which it needs nothing."""
    from rillet.spark.pipelines.group_info import groups_of

    found = []
    for group in groups_of(servers, key):  # a refusal is an error, not "no groups"
        found.append(StreamID.parse(group["last-delivered-id"]))
        if group["pending"]:
            oldest = servers.call(key, b"XPENDING", key, group["name"])[1]
            if oldest is not None:
                found.append(StreamID.parse(oldest))
    return found


def merge_small(
    archive: Archive, manifest: ArchiveManifest, least: int, target: int, compression: str, keep: float, work: Work,
    done: Archived,
) -> ArchiveManifest:  # fmt: skip
    """Merge the small files of folders with `least` of them or more; return the archive's state.

    Files that were replaced long ago go, whether there is anything to merge or not.
    """
    from rillet.spark.pipelines.parquet import merge_parts

    manifest = archive.forget(manifest, keep)
    runs = archive.mergeable(manifest, least, target)
    if runs and not can_exchange(archive.path / "_rillet"):
        raise ArchiveError(
            f"rillet: the file system of {archive.path} cannot exchange two folders at once, so that compaction would "
            "show readers a gap; a larger interval makes larger files"
        )
    by_folder: dict[str, list[list[Part]]] = {}
    for run in runs:  # all of a folder go into one commit
        by_folder.setdefault(run[0].path.rpartition("/")[0], []).append(run)
    waiting: list[list[Part]] = []
    for number, group in enumerate(by_folder.values(), 1):
        waiting += group
        if len(waiting) < MERGES_A_COMMIT and number < len(by_folder):
            continue
        staging, root = archive.stage(), archive.path.absolute()
        files = work([(merge_parts, root, run, staging, compression) for run in waiting])
        manifest = archive.merge(manifest, list(zip(waiting, files, strict=True)))
        done.merged += sum(map(len, waiting))
        done.into += len(files)
        waiting = []
    return manifest


# ---- the command --------------------------------------------------------------------------------------------------

EPILOG = """examples:
  rillet pipeline archive events.archive --url redis://localhost --stream events --trim
  rillet pipeline archive all.archive --url redis://localhost --stream-pattern 'events:*' --every 30s
  rillet pipeline archive events.archive --compact
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what the command takes."""
    parser.add_argument("to", type=_folder, metavar="FOLDER", help="the archive's folder; made if it is not there")
    running.source_arguments(parser)
    group = parser.add_argument_group("archive")
    group.add_argument("--schema", help="typed columns in place of the map of fields: 'carrier string, delay double'")
    group.add_argument("--every", type=running.seconds, metavar="TIME", help="go on, a batch every 30s, 5m ...")
    group.add_argument("--trim", action="store_true", help="remove from the stream what is archived and no group needs")
    group.add_argument("--compact", action="store_true", help="only merge small files; needs no source")
    group.add_argument("--small-files", type=running.whole_number(2), default=SMALL_FILES, metavar="N",
                       help=f"merge a day's files when so many are small (default: {SMALL_FILES})")  # fmt: skip
    group.add_argument("--file-size", type=running.size, default=TARGET, metavar="SIZE",
                       help="how large merged files may become (default: 128m)")  # fmt: skip
    group.add_argument("--compression", choices=("zstd", "snappy", "gzip", "lz4", "none"), default="zstd",
                       help="of the Parquet files (default: zstd)")  # fmt: skip
    group.add_argument("--keep-replaced", type=running.seconds, default=KEEP_REPLACED, metavar="TIME",
                       help="how long merged files are kept for those who read them (default: 1h)")  # fmt: skip
    running.spark_arguments(parser)


def _folder(text: str) -> Path:
    if "://" in text:
        raise ValueError(NO_OBJECTS)
    return running.folder(text)


def complaints(options: argparse.Namespace) -> list[str]:
    """Return what is wrong with the arguments taken together."""
    if options.compact:
        others = {"--trim": options.trim, "--every": options.every, "--schema": options.schema}
        return [f"--compact only merges files: not with {flag}" for flag, given in others.items() if given]
    wrong = running.source_complaints(options)
    return wrong or (untrimmed(parse(running.source_options(options))) if options.trim else [])


def run(options: argparse.Namespace) -> int:
    """Archive or compact; print one line."""
    spark = running.open_session(options, "archive")
    try:
        if options.compact:
            done = compact(spark, options.to, target_bytes=options.file_size, compression=options.compression,
                           keep_replaced=options.keep_replaced)  # fmt: skip
            merged_files = f"{counted(done.merged, 'small file')} merged into {done.into:,}"
            print(f"{options.to}: {merged_files if done.merged else 'no small files to merge'}")
            return running.DONE
        stop = threading.Event()
        signal.signal(signal.SIGTERM, lambda *_: stop.set())
        with running.PipelineProgressBar(f"archiving into {options.to}") as bar:
            done = archive(
                spark, options.to, schema=options.schema, every=options.every, stop=stop, trim=options.trim,
                small_files=options.small_files, target_bytes=options.file_size, compression=options.compression,
                keep_replaced=options.keep_replaced, progress=bar, **running.source_options(options),
            )  # fmt: skip
        print(done.line(options.to))
    finally:
        spark.stop()
    return running.DONE


__all__ = ["Archived", "OptionError", "archive", "compact"]

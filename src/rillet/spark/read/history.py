"""Reads an archive, and the entries of its streams that are not archived yet, as one table without gaps or duplicates.

    spark.read.format("rillet").option("archive", "events.archive").option("stream", "events")...

                     after                  seam: the last archived ID                      last
    archive ────────────(══════════════════════]
    stream        (trimmed)      ── entries ───(═══════════════════════════════════════════]──►

The planner reads the archive's manifest first. The last archived ID of each stream is the seam: entries up to it are
read from the archive, entries after it from the stream. An entry that is in both is read from the archive. An entry
that is archived while the query runs is still read from the stream.

The stream may be trimmed while the query runs. A trim always follows the commit that archived the trimmed entries. So
if the stream's first entry lies after the last ID read, the reader loads the manifest again. The files in the manifest
then hold the entries between these two IDs, unless another program removed them without archiving them.

The planner checks for such a trim before it chooses the seam. A task checks for one after it has read a record batch
from the stream and before it returns the batch. If entries were trimmed, the task discards the batch and reads them
from the archive. The check costs one small command for each 10,000 entries.

Three filters reduce the data that is read from the archive: the first and last ID of a file exclude files, Parquet
statistics exclude row groups, and the schema excludes columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

from rillet.client.errors import ConnectorError
from rillet.client.servers import Servers
from rillet.spark.archive.backends import AnyArchive, open_archive
from rillet.spark.archive.files import ArchiveError
from rillet.spark.archive.manifest import ArchiveManifest
from rillet.spark.archive.parquet_reader import ArchiveTask, field_names_in, read_share
from rillet.spark.options import Options
from rillet.spark.read.metadata import missing_stream, selected_streams
from rillet.spark.read.offsets import Part as Range
from rillet.spark.read.page_reader import read_task
from rillet.spark.read.range_planner import Planner, ranges_between
from rillet.spark.read.stream_info import StreamInfo, stream_infos
from rillet.spark.read.unknown_fields import check_fields
from rillet.structs.glob import matches
from rillet.types.stream.id import StreamID

TASK_ROWS = 500_000  # smallest task for archive files: reading a row from a file is cheap
GROUP_ROWS = 1 << 17
PLAN_ATTEMPTS = 20

Bounds = Mapping[str, tuple[StreamID, StreamID]]
Keeps = Callable[[str], bool]
BoundsOf = Callable[[Mapping[str, StreamInfo | None]], Bounds]


# ---- planning, on the driver --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class HistoryTask:
    """The input of one Spark task: rows of archive files, or ranges of entries after the streams' last archived IDs."""

    shares: tuple[ArchiveTask, ...] = ()
    ranges: tuple[Range, ...] = ()


def archive_of(options: Options) -> AnyArchive:
    """Return the archive that the options name."""
    return open_archive(str(options.archive), storage_options=options.archive_options)


def plan(
    options: Options, parallelism: int, keeps: Keeps, bounds_of: BoundsOf, schema: Any = None
) -> list[HistoryTask]:
    """Return the tasks of a batch read with the option `archive`.

    keeps(stream): whether the filters select a stream. bounds_of(counters): the range of IDs to read of each stream.
    schema: the Arrow schema, to report fields that occur neither in the archive nor in the streams.
    """
    archive = archive_of(options)
    with Servers(options) as servers:
        manifest, extents = consistent_state(archive, options, keeps, servers)
        if manifest.foreign:
            raise ArchiveError(
                f"rillet: {manifest.foreign} files of the Delta table {archive.path} were written by another program "
                "(OPTIMIZE is one): read the table with a reader of Delta Lake"
            )
        bounds = bounds_of(combined_extents(manifest, extents))
        archived, live = {}, {}
        for stream, (after, last) in bounds.items():
            seam = manifest.read_up_to(stream)
            archived[stream] = (after, min(last, seam))
            info = extents[stream]
            if info is not None and info.length and max(after, seam) < last:
                live[stream] = (max(after, seam), last)
        if schema is not None and (names := archived_fields(archive, manifest)) is not None:
            check_fields(
                options, servers, schema, live, names, f"the sampled entries of {archive.path} and its streams"
            )
        planner = Planner(options, servers, parallelism, hurried=False)
        spans = ranges_between({stream: extents[stream] for stream in live}, live)
        batch = planner.cut(planner.measure(spans), None)
    from_archive = archive_tasks(archive, manifest, archived, options.min_partitions or parallelism)
    return [*from_archive, *(HistoryTask(ranges=task) for task in batch.tasks)]


def consistent_state(
    archive: AnyArchive, options: Options, keeps: Keeps, servers: Servers
) -> tuple[ArchiveManifest, dict[str, StreamInfo | None]]:
    """Return the archive's manifest and the streams' counters; every entry is in the archive or in its stream."""
    manifest = archive.existing()
    for _ in range(PLAN_ATTEMPTS):
        archived = _selected_streams(manifest, options)
        streams = sorted(stream for stream in {*selected_streams(options, servers), *archived} if keeps(stream))
        extents = stream_infos(servers, streams)
        later = archive.existing()
        if all(
            (info is not None and info.first is not None and info.first <= manifest.read_up_to(stream))
            or later.read_up_to(stream) == manifest.read_up_to(stream)
            for stream, info in extents.items()
        ):
            break
        manifest = later
    for stream, info in extents.items():
        seam = manifest.read_up_to(stream)
        if info is None and stream not in archived and options.keys() is not None:
            raise missing_stream(servers, stream)
        if info is None:
            extents[stream] = StreamInfo(0, None, seam, None, None)
        elif info.last < seam and options.fail_on_data_loss:
            where = servers.connection(stream.encode()).address
            raise ConnectorError(
                f"rillet: the stream {stream!r} at {where} ends at {info.last}, but the archive {archive.path} ends at "
                f"{seam}: the stream was deleted and created again, or its server lost data. Set failOnDataLoss=false "
                "to read the archived entries only"
            )
    return manifest, extents


def combined_extents(
    manifest: ArchiveManifest, extents: Mapping[str, StreamInfo | None]
) -> dict[str, StreamInfo | None]:
    """Return each stream's counters with the last ID of archive and stream; the first ID is unknown (None)."""
    return {
        stream: replace(info, first=None, last=max(info.last, manifest.read_up_to(stream)))
        for stream, info in extents.items()
        if info is not None
    }


def archived_fields(archive: AnyArchive, manifest: ArchiveManifest) -> set[bytes] | None:
    """Return the names of fields in a sample of an archive's rows; None if the archive has typed columns."""
    names: set[bytes] = set()
    files = list(manifest.files)
    for file in files[:1] + files[1:][-1:]:
        found = field_names_in(archive.task(manifest, file, file.first, file.last))
        if found is None:
            return None
        names |= found
    return names


def _selected_streams(manifest: ArchiveManifest, options: Options) -> list[str]:
    """Return the archived streams that the options select."""
    keys, pattern = options.keys(), options.stream_pattern
    if keys is not None:
        return [stream for stream in manifest.streams() if stream in keys]
    return [stream for stream in manifest.streams() if matches(str(pattern).encode(), stream.encode())]


def archive_tasks(
    archive: AnyArchive, manifest: ArchiveManifest, bounds: Bounds, parallelism: int
) -> list[HistoryTask]:
    """Divide the rows of an archive among Spark tasks: small files whole, large files by row groups."""
    shares = []
    for file in manifest.files:
        after, last = bounds.get(file.stream, (file.last, file.last))
        if file.last > after and file.first <= last:
            shares.append((file, archive.task(manifest, file, after, last)))
    shares.sort(key=lambda share: (share[0].stream, share[0].first))
    rows = sum(file.rows for file, _ in shares)
    target = max(TASK_ROWS, rows // parallelism + 1)
    tasks: list[HistoryTask] = []
    pending: list[ArchiveTask] = []
    pending_rows = 0
    for file, share in shares:
        pieces = max(1, min(-(-file.rows // target), file.rows // GROUP_ROWS))
        for number in range(pieces):
            pending.append(replace(share, number=number, shares=pieces))
            pending_rows += file.rows // pieces
            if pending_rows >= target * 9 // 10:
                tasks.append(HistoryTask(tuple(pending)))
                pending, pending_rows = [], 0
    if pending:
        tasks.append(HistoryTask(tuple(pending)))
    return tasks


# ---- reading, in the tasks ----------------------------------------------------------------------------------------


def read(options: Options, task: HistoryTask, schema: Any) -> Iterator[Any]:
    """Yield a task's input as record batches: rows of archive files, then ranges of streams."""
    for share in task.shares:
        yield from read_share(share, schema, options)
    with Servers(options) as servers:
        for part in task.ranges:
            yield from read_after_seam(options, servers, part, schema)


def read_after_seam(options: Options, servers: Servers, part: Range, schema: Any) -> Iterator[Any]:
    """Yield the entries of a stream's range of IDs; if entries are trimmed meanwhile, read them from the archive."""
    import pyarrow as pa

    stream, after, last = part
    with_ids = pa.schema([*schema, pa.field("id_ms", pa.int64()), pa.field("id_seq", pa.int64())])
    lenient = replace(options, fail_on_data_loss=False)  # trimmed entries are in the archive
    while after < last:
        for batch in chain(read_task(lenient, [(stream, after, last)], with_ids), [None]):  # None marks the range's end
            manifest = archived_meanwhile(options, servers, stream, after)
            if manifest is not None:
                until = min(manifest.read_up_to(stream), last)
                yield from _read_archived(options, manifest, stream, after, until, schema)
                after = until
                break
            if batch is None:
                return
            end = batch.num_rows - 1
            after = StreamID(*(batch.column(number)[end].as_py() % (1 << 64) for number in (-2, -1)))
            yield pa.RecordBatch.from_arrays(batch.columns[:-2], schema=schema)


def archived_meanwhile(options: Options, servers: Servers, stream: str, after: StreamID) -> ArchiveManifest | None:
    """Return the archive's new manifest if entries after an ID were archived and may have been trimmed; else None."""
    key = stream.encode()
    first = servers.call(key, b"XRANGE", key, b"-", b"+", b"COUNT", b"1")
    if first and StreamID.parse(first[0][0]) <= after:
        return None
    manifest = archive_of(options).existing()
    return manifest if manifest.read_up_to(stream) > after else None


def _read_archived(
    options: Options, manifest: ArchiveManifest, stream: str, after: StreamID, last: StreamID, schema: Any
) -> Iterator[Any]:
    archive = archive_of(options)
    for file in manifest.files:
        if file.stream == stream and file.last > after and file.first <= last:
            yield from read_share(archive.task(manifest, file, after, last), schema, options)

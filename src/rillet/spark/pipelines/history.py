"""history: an archive and what its streams hold beyond it, as one table: no gap and no double at the seam.

    history(spark, "events", archive="events.archive", url="redis://localhost")
    spark.read.format("rillet").option("archive", "events.archive").option("stream", "events")...     the same

                     after                  seam: how far the archive goes                  last
    archive ────────────(══════════════════════]
    stream        (trimmed)      ── entries ───(═══════════════════════════════════════════]──►

The manifest is read first; what it says is the seam, and the stream is read strictly after it. So an entry that is in
both is read from the archive, and one that is archived while the query runs is read from the stream, where it was
planned. What may happen meanwhile is that it is trimmed, too. A trim comes after the commit that it follows, so:

    whoever finds that the stream begins after the place where he is reads the manifest again. What lay between is
    in it, or is not archived (somebody else removed it).

Planning does so before it settles the seam, and the tasks do so after each batch of the stream, before they hand it
on: the first entry of the stream still lies at or before the batch's beginning, or the batch is thrown away and the
archive is asked. That is one small command for each 10,000 entries.

Files are pruned by their first and last ID, row groups by their statistics, columns by the schema. Typed columns come
out of a file's map of fields by the connector's own decoder.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rillet.client.connection import ConnectorError
from rillet.spark.options import Options
from rillet.spark.pipelines import cli_common as running
from rillet.spark.pipelines.archive_layout import Archive, ArchiveManifest
from rillet.spark.pipelines.cli_common import counted
from rillet.spark.pipelines.parquet import ArchiveTask, read_share
from rillet.store.names import matches
from rillet.types.stream.id import StreamID

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from rillet.client.servers import Servers
    from rillet.spark.read.offsets import Part as Range
    from rillet.spark.read.stream_info import StreamInfo
    from rillet.spark.source import BatchReader

LEAST_ROWS = 500_000  # of a task; rows in a file are cheap
GROUP_ROWS = 1 << 17
LOOKS = 20

Bounds = Mapping[str, tuple[StreamID, StreamID]]


def history(
    spark: SparkSession,
    stream: str | None = None,
    *,
    archive: str | Path,
    schema: str | StructType | None = None,
    **options: str,
) -> DataFrame:
    """Return the entries of an archive and those that its streams hold beyond it; options are the batch reader's."""
    from rillet.spark.source import register

    register(spark)
    reader = spark.read.format("rillet").option("archive", str(Path(archive).absolute())).options(**options)
    if stream is not None:
        reader = reader.option("stream", stream)
    return (reader if schema is None else reader.schema(schema)).load()


# ---- planning, on the driver --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Shares:
    """One task's share of the archive."""

    shares: tuple[ArchiveTask, ...]


@dataclass(frozen=True)
class Tail:
    """One task's share of the streams beyond the archive."""

    ranges: tuple[Range, ...]


def plan(reader: BatchReader) -> list[Shares | Tail]:
    """Return the tasks of a batch read with the option `archive`."""
    from rillet.client.servers import Servers
    from rillet.spark.read.planner import Planner, spans_of

    options, archive = reader.options, Archive(str(reader.options.archive))
    with Servers(options) as servers:
        manifest, known = settled(archive, reader, servers)
        bounds = reader.bounds(whole(manifest, known))
        old, new = {}, {}
        for stream, (after, last) in bounds.items():
            seam = manifest.read_up_to(stream)
            old[stream] = (after, min(last, seam))
            new[stream] = (max(after, seam), last)
        planner = Planner(options, servers, reader.parallelism, hurried=False)
        live = {stream: extent for stream, extent in known.items() if extent is not None and extent.length}
        beyond = {stream: new[stream] for stream in live if stream in new and new[stream][0] < new[stream][1]}
        spans = spans_of({stream: live[stream] for stream in beyond}, beyond)
        batch = planner.cut(planner.weigh(spans), None)
    parallelism = options.min_partitions or reader.parallelism
    return [*archive_tasks(archive, manifest, old, parallelism), *map(Tail, batch.tasks)]


def settled(
    archive: Archive, reader: BatchReader, servers: Servers
) -> tuple[ArchiveManifest, dict[str, StreamInfo | None]]:
    """Return the archive's state and what the streams hold now, with nothing trimmed between the two unread."""
    from rillet.spark.read.metadata import found, missing
    from rillet.spark.read.stream_info import facts_of

    options, manifest = reader.options, archive.existing()
    for _ in range(LOOKS):
        archived = _of_options(manifest, options)
        streams = sorted(stream for stream in {*found(options, servers), *archived} if reader.keeps(stream))
        known = facts_of(servers, streams)
        later = archive.existing()
        if all(
            (extent is not None and extent.first is not None and extent.first <= manifest.read_up_to(stream))
            or later.read_up_to(stream) == manifest.read_up_to(stream)
            for stream, extent in known.items()
        ):
            break
        manifest = later
    for stream, extent in known.items():
        seam = manifest.read_up_to(stream)
        if extent is None and stream not in archived and options.keys() is not None:
            raise missing(servers, stream)
        if extent is None:
            known[stream] = _only_archived(seam)
        elif extent.last < seam and options.fail_on_data_loss:
            where = servers.connection(stream.encode()).address
            raise ConnectorError(
                f"rillet: the stream {stream!r} at {where} ends at {extent.last}, "
                f"and the archive {archive.path} at {seam}: it was deleted and made anew, or its server lost data; "
                "failOnDataLoss=false reads what is archived"
            )
    return manifest, known


def whole(manifest: ArchiveManifest, known: Mapping[str, StreamInfo | None]) -> dict[str, StreamInfo | None]:
    """Return the extents of archive and stream together, of which no first entry is known."""
    found: dict[str, StreamInfo | None] = {}
    for stream, extent in known.items():
        if extent is not None:
            found[stream] = replace(extent, first=None, last=max(extent.last, manifest.read_up_to(stream)))
    return found


def _of_options(manifest: ArchiveManifest, options: Options) -> list[str]:
    """Return the archived streams that the options name."""
    keys, pattern = options.keys(), options.stream_pattern
    if keys is not None:
        return [stream for stream in manifest.streams() if stream in keys]
    return [stream for stream in manifest.streams() if matches(str(pattern), stream)]


def _only_archived(seam: StreamID) -> StreamInfo:
    """Return the extent of a stream of which nothing is left at its server."""
    from rillet.spark.read.stream_info import StreamInfo

    return StreamInfo(0, None, seam, None, None)


def archive_tasks(archive: Archive, manifest: ArchiveManifest, bounds: Bounds, parallelism: int) -> list[Shares | Tail]:
    """Share the rows of an archive out among tasks: whole files, and row groups of large ones."""
    whole = []
    for file in manifest.files:
        after, last = bounds.get(file.stream, (file.last, file.last))
        if file.last > after and file.first <= last:
            whole.append((file, share_of(archive, manifest, file, after, last)))
    rows = sum(file.rows for file, _ in whole)
    enough = max(LEAST_ROWS, rows // parallelism + 1)
    tasks: list[Shares | Tail] = []
    waiting: list[ArchiveTask] = []
    held = 0
    for file, share in whole:
        pieces = max(1, min(-(-file.rows // enough), file.rows // GROUP_ROWS))
        for number in range(pieces):
            waiting.append(replace(share, number=number, shares=pieces))
            held += file.rows // pieces
            if held >= enough * 9 // 10:
                tasks.append(Shares(tuple(waiting)))
                waiting, held = [], 0
    if waiting:
        tasks.append(Shares(tuple(waiting)))
    return tasks


def share_of(archive: Archive, manifest: ArchiveManifest, file: Any, after: StreamID, last: StreamID) -> ArchiveTask:
    """Return the entries of a file with after < ID <= last."""
    return ArchiveTask(tuple(archive.places(manifest, file.path)), file.stream, after, last)


# ---- reading, in the tasks ----------------------------------------------------------------------------------------


def read(options: Options, task: Shares | Tail, schema: Any) -> Iterator[Any]:
    """Yield the record batches of a task."""
    if isinstance(task, Shares):
        for share in task.shares:
            yield from read_share(share, schema, options)
        return
    from rillet.client.servers import Servers

    with Servers(options) as servers:
        for part in task.ranges:
            yield from read_tail(options, servers, part, schema)


def read_tail(options: Options, servers: Servers, part: Range, schema: Any) -> Iterator[Any]:
    """Yield the entries of a range of a stream; those that were archived and trimmed meanwhile, from the archive."""
    import pyarrow as pa

    from rillet.spark.read.page_reader import read_task

    stream, after, last = part
    with_ids = pa.schema([*schema, pa.field("id_ms", pa.int64()), pa.field("id_seq", pa.int64())])
    lenient = replace(options, fail_on_data_loss=False)  # what is trimmed is looked for in the archive
    while after < last:
        for batch in _with_end(read_task(lenient, [(stream, after, last)], with_ids)):
            found = overtaken(options, servers, stream, after)
            if found is not None:
                upto = min(found.read_up_to(stream), last)
                yield from _archived(options, found, stream, after, upto, schema)
                after = upto
                break
            if batch is None:
                return
            end = batch.num_rows - 1
            after = StreamID(*(batch.column(number)[end].as_py() % (1 << 64) for number in (-2, -1)))
            yield pa.RecordBatch.from_arrays(batch.columns[:-2], schema=schema)


def _with_end(batches: Iterator[Any]) -> Iterator[Any]:
    """Yield batches, then None."""
    yield from batches
    yield None


def overtaken(options: Options, servers: Servers, stream: str, after: StreamID) -> ArchiveManifest | None:
    """Return the archive's state if entries after an ID were archived and may have been trimmed; else None."""
    key = stream.encode()
    first = servers.call(key, b"XRANGE", key, b"-", b"+", b"COUNT", b"1")
    if first and StreamID.parse(first[0][0]) <= after:
        return None
    found = Archive(str(options.archive)).existing()
    return found if found.read_up_to(stream) > after else None


def _archived(
    options: Options, manifest: ArchiveManifest, stream: str, after: StreamID, last: StreamID, schema: Any
) -> Iterator[Any]:
    archive = Archive(str(options.archive))
    for file in manifest.files:
        if file.stream == stream and file.last > after and file.first <= last:
            yield from read_share(share_of(archive, manifest, file, after, last), schema, options)


# ---- the command --------------------------------------------------------------------------------------------------

EPILOG = """examples:
  rillet pipeline history events.archive --url redis://localhost --stream events --where "id_ms >= 1714521600000"
  rillet pipeline history events.archive --url redis://localhost --stream events --to may.parquet
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what the command takes."""
    parser.add_argument("archive", type=running.folder, metavar="FOLDER", help="the archive's folder")
    running.source_arguments(parser)
    group = parser.add_argument_group("history")
    group.add_argument("--schema", help="typed columns in place of the map of fields: 'id string, delay double'")
    group.add_argument("--where", metavar="SQL", help="a condition on the columns")
    group.add_argument("--to", metavar="FOLDER", help="write Parquet files there, in place of printing rows")
    group.add_argument("--limit", type=running.whole_number(1), default=20, metavar="N",
                       help="how many rows are printed (default: 20)")  # fmt: skip
    running.spark_arguments(parser)


def complaints(options: argparse.Namespace) -> list[str]:
    """Return what is wrong with the arguments taken together."""
    wrong = running.source_complaints(options)
    if options.to is not None and Path(options.to).exists():
        wrong.append(f"--to is {options.to!r}: it is there already")
    return wrong


def run(options: argparse.Namespace) -> int:
    """Print rows, or write them; print one line."""
    spark = running.open_session(options, "history")
    try:
        table = history(spark, archive=options.archive, schema=options.schema, **running.source_options(options))
        if options.where is not None:
            table = table.where(options.where)
        if options.to is None:
            table.show(options.limit, truncate=False)
            print(f"{options.archive} and the stream: {counted(table.count(), 'entry', 'entries')}")
        else:
            table.write.parquet(options.to)
            print(f"{options.to}: {counted(spark.read.parquet(options.to).count(), 'entry', 'entries')}")
    finally:
        spark.stop()
    return running.DONE


__all__ = ["history"]

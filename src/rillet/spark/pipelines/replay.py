"""replay: writes rows with IDs to a stream, in order, at full speed or at their recorded pace.

    replay(spark.read.parquet("events.parquet"), "copy", url="redis://localhost")            IDs kept
    replay(table(spark, stream="events", url=url)[0], "again", url=url, retime=True, speed=10)   new IDs, at 10x speed

The DataFrame has the column `id` and the fields: a map `fields`, or one column per field, as in the sink. A single task
writes all rows in the order of their IDs, also with new IDs. A DataFrame that is not in this order is sorted first.

    IDs kept      the target's last ID must be smaller than the first row's ID
    retime        the same number of milliseconds is added to every ID, so that the first is the server's time at the
                  start; the time between two rows stays the same
    speed=N       rows are written at N times the recorded pace of their IDs; without `speed`, as fast as possible

replay_writer.py describes how a replay resumes after a kill.

Cost: the same as the sink's, and a sort in one task if the rows are not in ID order.
"""

from __future__ import annotations

import argparse
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from rillet.client.errors import ConnectorError
from rillet.spark.archive.layout import Archive
from rillet.spark.options import parse
from rillet.spark.pipelines import cli_arguments, cli_common
from rillet.spark.pipelines.cli_common import PipelineError
from rillet.spark.pipelines.replay_writer import replay_task
from rillet.spark.pipelines.tables import Progress, by_id, silent, watched
from rillet.spark.write.commits import record_key
from rillet.store.display.json_line import print_json
from rillet.units import counted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class ReplaySummary:
    """The result of a replay: the rows written by this run and by earlier runs, and the last row's ID in the target."""

    rows: int
    before: int
    last: str

    def line(self, to: str) -> str:
        """Return the result of the replay as one line of text."""
        text = f"{to}: {counted(self.rows, 'entry', 'entries')} replayed"
        if self.before:
            text += f" after {self.before:,} of an earlier run"
        return text + (f", the last as {self.last}" if self.last else "")


def replay(
    frame: DataFrame,
    to: str,
    *,
    retime: bool = False,
    speed: float | None = None,
    ordered: bool = False,
    source: str = "",
    anew: bool = False,
    progress: Progress = silent,
    total: int | None = None,
    **target: str,
) -> ReplaySummary:
    """Write the rows of a DataFrame to the stream `to`; skip rows that an earlier run of the same replay has written.

    target: the sink's connection options. ordered: the rows are already in ID order, as if read from one stream.
    source: the name that identifies an unfinished replay. anew: discard an unfinished replay.
    """
    from rillet.client.servers import Servers
    from rillet.spark.write.row_encoder import RowEncoder

    options = parse({**target, "stream": to, "idColumn": "id"})
    layout = RowEncoder(options, frame.schema)
    frame = in_order(frame, ordered).select("id", *(name for name in layout.fields if name != "id"))
    key = to.encode()
    record = record_key(key, "replay")
    done = 0
    with Servers(options) as servers:

        def written() -> tuple[int, int | None]:
            nonlocal done
            try:
                done = int(servers.call(key, b"HGET", record, b"rows") or 0)
            except ConnectorError:
                pass  # if the server stays unreachable, the Spark task raises the error
            return done, total

        if anew:
            servers.call(key, b"DEL", record)
        name = f"{source} {'re-timed' if retime else 'as it is'}"
        task = partial(replay_task, options, layout, name, retime, speed)
        work = frame.mapInArrow(task, "rows long, before long, last string").collect
        rows = work() if progress is silent else watched(frame.sparkSession, progress, work, written)
        servers.call(key, b"DEL", record)
    row = rows[0] if rows else None
    summary = ReplaySummary(0, 0, "") if row is None else ReplaySummary(row["rows"], row["before"], row["last"])
    progress(summary.rows + summary.before, total)
    return summary


def in_order(frame: DataFrame, ordered: bool) -> DataFrame:
    """Return the rows of a DataFrame as one partition, sorted by ID."""
    from pyspark.sql import functions as F

    if ordered:
        return frame.coalesce(1)
    return frame.repartition(1).sortWithinPartitions(*by_id(F.col("id")))


def table(
    spark: SparkSession, *, parquet: str | Path | None = None, archive: str | Path | None = None, **options: str
) -> tuple[DataFrame, bool]:
    """Return the rows to replay, from Parquet files, an archive or a stream, and whether they are in ID order."""
    if parquet is not None:
        frame = read_parquet(spark, str(parquet))
        stream = options.get("stream")
        if "id" not in frame.columns:
            raise PipelineError(f"rillet: the files of {parquet} have no column id")
        if "stream" in frame.columns:
            frame = _one_stream(frame, stream, str(parquet))
        return frame.drop("stream", "date", "id_ms", "id_seq", "timestamp"), False
    reader = spark.read.format("rillet").options(**options)
    if archive is not None:
        reader = reader.option("archive", str(Path(archive).absolute()))
        if '"name":"fields"' not in Archive(archive).existing().schema:
            return reader.load(), "stream" in options
    return reader.schema("id string, fields map<string,binary>").load(), "stream" in options


def read_parquet(spark: SparkSession, path: str) -> DataFrame:
    """Read Parquet files as a DataFrame; a stream name in a folder name stays a string (Spark turns 007 into 7)."""
    inference = "spark.sql.sources.partitionColumnTypeInference.enabled"
    before = spark.conf.get(inference)
    spark.conf.set(inference, "false")
    try:
        return spark.read.parquet(path)
    finally:
        spark.conf.set(inference, str(before))


def _one_stream(frame: DataFrame, stream: str | None, path: str) -> DataFrame:
    from pyspark.sql import functions as F

    if stream is not None:
        return frame.where(F.col("stream").cast("string") == stream)
    names = [str(row[0]) for row in frame.select("stream").distinct().limit(6).collect()]
    if len(names) > 1:
        raise PipelineError(f"rillet: {path} holds several streams; name one with --stream: {', '.join(sorted(names))}")
    return frame


# ---- the command --------------------------------------------------------------------------------------------------

EPILOG = """examples:
  rillet pipeline replay --parquet events.archive --to events --to-url redis://localhost
  rillet pipeline replay --url redis://localhost --stream events --start 1714521600000 --to again --retime --speed 10
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    cli_arguments.source_arguments(parser)
    folder, positive_number = cli_arguments.local_folder, cli_arguments.positive_number
    add = parser.add_argument_group("input").add_argument
    add("--parquet", metavar="FOLDER", help="Parquet files with `id` and fields, such as an archive")
    add("--archive", type=folder, metavar="FOLDER", help="read an archive and the later entries of its stream")
    add("--start", metavar="ID", help="the first ID, or its milliseconds")
    add("--end", metavar="ID", help="the last ID, or its milliseconds")
    group = parser.add_argument_group("target")
    cli_arguments.target_arguments(group)
    add = group.add_argument
    add("--retime", action="store_true", help="add time to the IDs, so that the first one is now")
    add("--speed", type=positive_number, metavar="N", help="N times the recorded pace (default: full speed)")
    add("--anew", action="store_true", help="discard an unfinished replay")


def argument_errors(options: argparse.Namespace) -> list[str]:
    errors = cli_arguments.target_errors(options, reads_stream=options.parquet is None)
    if options.parquet is not None and options.archive is not None:
        errors.append("give one of --parquet and --archive")
    if options.parquet is None:
        errors += cli_arguments.source_errors(options, **_range(options))
        if options.streams or options.stream_pattern:
            errors.append("replay reads exactly one stream: name it with --stream")
    else:
        bounds = {"--start": options.start, "--end": options.end}
        errors += [f"{flag} applies to a stream, not to Parquet files" for flag, value in bounds.items() if value]
        if not Path(options.parquet).exists():
            errors.append(f"--parquet is {options.parquet!r}: this folder does not exist")
        if not {"url", "path"} & cli_arguments.target_options(options).keys():
            errors.append("--to-url or --to-path is missing: the server or store of the target")
    return errors


def _range(options: argparse.Namespace) -> dict[str, str]:
    bounds = {"startingOffsets": options.start, "endingOffsets": options.end}
    return {name: value for name, value in bounds.items() if value is not None}


def run(options: argparse.Namespace) -> int:
    """Replay the rows and print a summary line; return the exit status."""
    with cli_common.session_of(options, "replay") as spark:
        given = {**cli_arguments.source_options(options), **_range(options)}
        frame, ordered = table(spark, parquet=options.parquet, archive=options.archive, **given)
        source = str(options.parquet or options.archive or given.get("url") or given.get("path"))
        source += f" {given.get('stream', '')} {options.start or ''} {options.end or ''}"
        with cli_common.progress_bar(options, f"replaying into {options.to}") as bar:
            summary = replay(
                frame, options.to, retime=options.retime, speed=options.speed, ordered=ordered, source=source,
                anew=options.anew, progress=bar, total=None, **cli_arguments.target_options(options),
            )  # fmt: skip
    if options.json:
        print_json({"to": options.to, **asdict(summary)})
    else:
        print(summary.line(options.to))
    return cli_common.DONE

"""aggregate: a Spark SQL query over a stream, written to Parquet files, to another stream, or to both.

    aggregate(spark, sql, url="redis://localhost", stream="flights", schema="origin string, dep_delay double",
              watermark=3 * 3600, parquet="delays", checkpoint="delays.checkpoint")

    SELECT window.start AS hour, origin, count(*) AS flights, percentile_approx(dep_delay, 0.95) AS p95
    FROM entries GROUP BY window(timestamp, '1 hour'), origin

The view `entries` holds the source's rows: the typed columns of `schema` or, without a schema, the connector's default
columns. A streaming query must group by `window(...)` or `session_window(...)` of the time column.

Streaming: a window is written once, when an entry arrives that is `watermark` newer than the window's end. Entries
that arrive later for that window are dropped. Batch: every window is written, because no later entries can arrive.

Outputs are exactly once. A micro-batch writes one Parquet folder, batch=<number>; a repetition overwrites the folder. A
write to a stream is identified by (query, batch), so the sink skips a write that it has already completed. Rows are
sorted by their columns in SELECT order, so that a repeated batch has the same rows in the same order. Therefore select
the window and the grouping columns before the measures: a repeated sum of doubles may differ in its last bit.
"""

from __future__ import annotations

import argparse
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rillet.spark.option_types import duration
from rillet.spark.options import OptionError, parse
from rillet.spark.pipelines import cli_arguments, cli_common
from rillet.spark.pipelines.cli_common import PipelineError, counted
from rillet.spark.pipelines.tables import Progress, silent

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

VIEW = "entries"
POLL = 1  # seconds between two reads of the streaming query's progress


@dataclass
class AggregateSummary:
    """The result of an aggregation: the number of rows written and, for a streaming query, of entries read."""

    rows: int = 0
    entries: int = 0

    def line(self, outputs: Outputs) -> str:
        """Return the result of the aggregation as one line of text."""
        source = f" from {counted(self.entries, 'entry', 'entries')}" if self.entries else ""
        return f"{outputs}: {counted(self.rows, 'row')}{source}"


@dataclass(frozen=True)
class Outputs:
    """The destinations of an aggregation: a folder of Parquet files, the options of a stream sink, or both."""

    parquet: str | None
    sink: Mapping[str, str] | None

    def __str__(self) -> str:
        names = [] if self.parquet is None else [self.parquet]
        if self.sink is not None:
            names.append(f"the stream {self.sink['stream']}")
        return " and ".join(names)

    def overwrite(self, rows: DataFrame, parquet: str | None, **transaction: str) -> None:
        """Write rows to the stream and the Parquet files, if requested; `parquet` is the folder to replace."""
        if parquet is not None:
            rows.write.mode("overwrite").parquet(parquet)
        if self.sink is not None:
            rows.write.format("rillet").mode("append").options(**self.sink, **transaction).save()


def aggregate(
    spark: SparkSession,
    sql: str,
    *,
    parquet: str | Path | None = None,
    sink: Mapping[str, str] | None = None,
    schema: str | None = None,
    time: str = "timestamp",
    watermark: float = 0.0,
    batch: bool = False,
    checkpoint: str | Path | None = None,
    every: float | None = None,
    stop: threading.Event | None = None,
    progress: Progress = silent,
    **source: str,
) -> AggregateSummary:
    """Run a query on a stream's new entries and write the result: once, or every `every` seconds until `stop` is set.

    sink: the connector's write options; url or path default to the source's. watermark: seconds. batch: read the whole
    stream once, without a checkpoint. source: the connector's read options.
    """
    outputs = Outputs(None if parquet is None else str(parquet), sink_options(source, sink))
    if parquet is None and sink is None:
        raise OptionError("rillet: the aggregation has no output: give parquet, sink, or both")
    if not batch and checkpoint is None:
        raise OptionError("rillet: a streaming aggregation needs a checkpoint folder; with batch=True it does not")
    frame = table(spark, source, schema, time, watermark, streaming=not batch)
    frame.createOrReplaceTempView(VIEW)
    try:
        result = spark.sql(sql)
    finally:
        spark.catalog.dropTempView(VIEW)
    if batch:
        return _once(result, outputs)
    return _follow(result, outputs, str(checkpoint), every, stop or threading.Event(), progress)


def sink_options(source: Mapping[str, str], sink: Mapping[str, str] | None) -> dict[str, str] | None:
    """Return the sink's options; the source's url or path is the default."""
    if sink is None:
        return None
    options = dict(sink)
    if not {"url", "path"} & options.keys():
        options.update({name: source[name] for name in ("url", "path") if name in source})
    parse(options).require_stream()
    return options


def table(
    spark: SparkSession, source: Mapping[str, str], schema: str | None, time: str, watermark: float, streaming: bool
) -> DataFrame:
    """Return the rows that the SQL query reads; add the time column `timestamp` to a schema that lacks it."""
    reader: Any = spark.readStream if streaming else spark.read
    reader = reader.format("rillet").options(**source)
    if schema is not None:
        reader = reader.schema(with_timestamp(schema) if time == "timestamp" else schema)
    frame: DataFrame = reader.load()
    return frame.withWatermark(time, f"{round(watermark * 1000)} milliseconds") if streaming else frame


def with_timestamp(schema: str) -> str:
    """Return a schema text with the connector's column `timestamp` added."""
    from pyspark.sql.types import StructType

    fields: Any = StructType.fromDDL(schema)
    return schema if "timestamp" in fields.names else f"timestamp timestamp, {schema}"


# ---- running ------------------------------------------------------------------------------------------------------


@contextmanager
def in_one_order(frame: DataFrame) -> Iterator[DataFrame]:
    """Yield a DataFrame's rows as one cached partition, sorted by every column that Spark can sort."""
    columns = [field.name for field in frame.schema if "map<" not in field.dataType.simpleString()]
    rows = frame.repartition(1).sortWithinPartitions(*(f"`{name}`" for name in columns)).persist()
    try:
        yield rows
    finally:
        rows.unpersist()


def _once(result: DataFrame, outputs: Outputs) -> AggregateSummary:
    if outputs.parquet is not None and (wrong := cli_common.foreign_files(outputs.parquet)):
        raise PipelineError(f"rillet: {'; '.join(wrong)}")
    with in_one_order(result) as rows:
        summary = AggregateSummary(rows.count())  # if the query fails, the old output stays in place
        outputs.overwrite(rows, outputs.parquet)
    return summary


def _follow(
    result: DataFrame, outputs: Outputs, checkpoint: str, every: float | None, stop: threading.Event,
    progress: Progress,
) -> AggregateSummary:  # fmt: skip
    summary = AggregateSummary()
    _require_own_folder(outputs, checkpoint)

    def write(batch: DataFrame, number: int) -> None:
        query_id = batch.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
        if query_id is None:  # the user has disabled PySpark's pinned threads
            raise PipelineError("rillet: Spark does not pass the query's ID to Python: unset PYSPARK_PIN_THREAD")
        with in_one_order(batch) as rows:
            count = rows.count()
            if count:
                write_batch(rows, outputs, query_id, number)
            summary.rows += count

    writer = result.writeStream.foreachBatch(write).outputMode("append").option("checkpointLocation", checkpoint)
    trigger = writer.trigger(availableNow=True) if every is None else writer.trigger(processingTime=f"{every} seconds")
    query = trigger.start()
    newest = ""

    def count_entries() -> None:
        nonlocal newest
        for report in query.recentProgress:
            if report["timestamp"] > newest:
                newest = report["timestamp"]
                summary.entries += int(report["numInputRows"])
        progress(summary.entries, None)

    while not query.awaitTermination(POLL):
        count_entries()
        if stop.is_set():
            query.stop()
    count_entries()
    return summary


def _require_own_folder(outputs: Outputs, checkpoint: str) -> None:
    """Raise an error if the checkpoint is new but the Parquet folder holds files, which new batches would overwrite."""
    begun = Path(checkpoint.removeprefix("file:")) / "offsets"
    folder = outputs.parquet
    if folder is None or "://" in checkpoint or "://" in folder or begun.exists():
        return
    if any(Path(folder).glob("*")):
        raise PipelineError(
            f"rillet: the checkpoint {checkpoint} is new, but {folder} already holds files, which the new batches "
            "would overwrite: name an empty folder, or the checkpoint that belongs to these files"
        )


def write_batch(rows: DataFrame, outputs: Outputs, query_id: str, number: int) -> None:
    """Write the rows of a micro-batch to all outputs; writing the same micro-batch again changes nothing."""
    folder = None if outputs.parquet is None else str(Path(outputs.parquet) / f"batch={number}")
    outputs.overwrite(rows, folder, txnAppId=query_id, txnVersion=str(number))


# ---- the command --------------------------------------------------------------------------------------------------

EPILOG = """examples:
  rillet pipeline aggregate --url redis://localhost --stream flights --schema 'origin string, dep_delay double' \\
    --sql "SELECT window.start AS hour, origin, count(*) AS flights, avg(dep_delay) AS mean_delay
           FROM entries GROUP BY window(timestamp, '1 hour'), origin" \\
    --watermark 3h --parquet delays --checkpoint delays.checkpoint --every 30s
  rillet pipeline aggregate --path demo-output/flights.rillet --stream flights --batch --to delays_by_airline \\
    --schema 'carrier string, origin string, dep_delay double, distance double' --sql-file examples/flights/delays.sql
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    cli_arguments.source_arguments(parser)
    add = parser.add_argument_group("query").add_argument
    add("--sql", help="a SELECT of Spark SQL over the view `entries`")
    add("--sql-file", type=sql_file, metavar="FILE", help="a file that holds the SELECT")
    add("--schema", help="names and types of the fields to read: 'origin string, delay double'")
    add("--time", default="timestamp", metavar="COLUMN", help="the event time (default: timestamp, the time of the ID)")
    add("--watermark", type=duration, default=0.0, metavar="TIME",
        help="how late an entry may arrive: 30s, 2h ... (default: 0s)")  # fmt: skip
    group = parser.add_argument_group("output")
    group.add_argument("--parquet", metavar="FOLDER", help="write Parquet files to this folder")
    cli_arguments.target_arguments(group, required=False)
    add = parser.add_argument_group("run").add_argument
    add("--batch", action="store_true", help="read the whole stream once, and write every window")
    add("--checkpoint", metavar="FOLDER", help="the folder in which a streaming run stores its position")
    add("--every", type=duration, metavar="TIME",
        help="keep running, with a micro-batch every 30s, 5m ... (default: run once)")  # fmt: skip


def sql_file(path: str) -> str:
    """Return the text of the file that an argument names."""
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise ValueError(f"cannot be read: {error.strerror}") from None


def argument_errors(options: argparse.Namespace) -> list[str]:
    errors = cli_arguments.source_errors(options) + cli_arguments.target_errors(options)
    if (options.sql is None) == (options.sql_file is None):
        errors.append("give one of --sql and --sql-file")
    if options.parquet is None and options.to is None:
        errors.append("give --parquet, --to, or both: the destination of the result")
    if options.batch:
        given = {"--checkpoint": options.checkpoint, "--every": options.every}
        errors += [f"--batch reads once: it cannot be combined with {flag}" for flag, value in given.items() if value]
    elif options.checkpoint is None:
        errors.append("--checkpoint is missing (or --batch)")
    return errors


def run(options: argparse.Namespace) -> int:
    """Run the aggregation and print a summary line; return the exit status."""
    source = cli_arguments.source_options(options)
    sink = None if options.to is None else {**cli_arguments.target_options(options), "stream": options.to}
    with cli_common.open_session(options, "aggregate") as spark:
        stop = cli_common.stop_on_sigterm()
        with cli_common.progress_bar("aggregating") as bar:
            summary = aggregate(
                spark, options.sql or options.sql_file, parquet=options.parquet, sink=sink, schema=options.schema,
                time=options.time, watermark=options.watermark, batch=options.batch, checkpoint=options.checkpoint,
                every=options.every, stop=stop, progress=bar, **source,
            )  # fmt: skip
    print(summary.line(Outputs(options.parquet, sink)))
    return cli_common.DONE


__all__ = ["AggregateSummary", "aggregate"]

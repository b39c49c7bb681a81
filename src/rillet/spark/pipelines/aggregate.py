"""aggregate: counts, rates, sums, means and quantiles by time window and fields, as a file declares them (declared.py).

    aggregate(spark, "delays.toml", checkpoint="delays.checkpoint")     what is new, then it ends; or every 30 s
    aggregate(spark, "delays.toml", batch=True)                         everything there is, once
    windowed(frame, load("delays.toml"))                                the DataFrame alone

A row of the result is a window and a group: window_start, window_end, the group's columns, the measures.

Streaming, a window is given out when the watermark has passed its end, that is, when an entry has come that is
`watermark` younger; later entries for it are dropped. So each window is written once, and the newest wait for what is
to come. In a batch there is nothing to wait for, and all windows are given out.

Outputs are exactly once. A micro-batch is one Parquet folder, batch=<number>, that is written anew when the batch is
repeated; a stream takes it with the name (query, batch), under which the sink knows what it has of it. Rows are sorted
by window and group first, so that a repeated batch is the same rows in the same order.
"""

from __future__ import annotations

import argparse
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rillet.spark.pipelines import cli_common as running
from rillet.spark.pipelines.aggregate_spec import WINDOW_COLUMNS, DeclarationError, Declared, Measure, Output, load
from rillet.spark.pipelines.cli_common import Progress, counted, silent

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

LOOK = 1  # seconds between two looks at how far a query is


@dataclass
class Aggregated:
    """What an aggregation did: rows of the result, entries that went into it, micro-batches."""

    rows: int = 0
    entries: int = 0
    batches: int = 0

    def line(self, declared: Declared) -> str:
        """Return it as one sentence."""
        to = " and ".join(one.parquet or f"the stream {one.options.get('stream')}" for one in declared.outputs)
        read = f" of {counted(self.entries, 'entry', 'entries')}" if self.entries else ""
        return f"{to}: {counted(self.rows, 'window', 'windows')} by group{read}"


def aggregate(
    spark: SparkSession,
    declared: str | Path | Declared,
    *,
    batch: bool = False,
    checkpoint: str | Path | None = None,
    every: float | None = None,
    stop: threading.Event | None = None,
    progress: Progress = silent,
) -> Aggregated:
    """Run what a file declares and write its outputs; `checkpoint` (or `batch`) is needed."""
    if not isinstance(declared, Declared):
        declared = load(declared)
    if batch:
        return _once(windowed(table(spark, declared), declared), declared)
    if checkpoint is None:
        raise DeclarationError("rillet: a streaming aggregation needs a checkpoint, where it keeps how far it is")
    if declared.parquet is not None:
        raise DeclarationError("rillet: Parquet files are aggregated as a batch")
    result = windowed(table(spark, declared, follow=True), declared)
    return _follow(result, declared, str(checkpoint), every, stop or threading.Event(), progress)


# ---- the frames ---------------------------------------------------------------------------------------------------


def table(spark: SparkSession, declared: Declared, follow: bool = False) -> DataFrame:
    """Return the rows that are aggregated."""
    if declared.parquet is not None:
        return spark.read.parquet(declared.parquet)
    reader: Any = spark.readStream if follow else spark.read
    reader = reader.format("rillet").options(**declared.source)
    if declared.schema is not None:
        schema = declared.schema
        if declared.time == "timestamp" and "timestamp" not in _names(schema):
            schema = f"timestamp timestamp, {schema}"
        reader = reader.schema(schema)
    found: DataFrame = reader.load()
    return found


def _names(schema: str) -> list[str]:
    from pyspark.sql.types import StructType

    found = StructType.fromDDL(schema)
    assert isinstance(found, StructType)
    return found.names


def windowed(frame: DataFrame, declared: Declared) -> DataFrame:
    """Return the measures of a frame's rows by window and group; DeclarationError names what Spark does not accept."""
    from pyspark.sql import functions as F

    _try_all(frame, declared)
    if declared.where is not None:
        frame = frame.where(declared.where)
    when = F.expr(declared.time)
    slide = None if declared.slide_ms is None else f"{declared.slide_ms} milliseconds"
    kept = frame.select(
        when.alias("_time"),
        *(F.expr(text).alias(f"_group_{name}") for name, text in declared.groups.items()),
        *(column for measure in declared.measures for column in _inputs(measure)),
    )
    if frame.isStreaming:
        kept = kept.withWatermark("_time", f"{declared.watermark_ms} milliseconds")
    window = F.window("_time", f"{declared.size_ms} milliseconds", slide)
    grouped = kept.groupBy(window, *(F.col(f"_group_{name}").alias(name) for name in declared.groups))
    found = grouped.agg(*(_result(measure, declared).alias(measure.name) for measure in declared.measures))
    start, end = WINDOW_COLUMNS
    return found.select(
        F.col("window.start").alias(start), F.col("window.end").alias(end), *declared.groups,
        *(measure.name for measure in declared.measures),
    )  # fmt: skip


def _inputs(measure: Measure) -> list[Column]:
    """Return what a measure takes of a row: 1 or null for a count, its value or null for others."""
    from pyspark.sql import functions as F

    value = F.expr(measure.of) if measure.of else F.lit(1)
    if measure.where is not None:
        value = F.when(F.expr(measure.where), value)
    return [value.alias(f"_of_{measure.name}")]


def _result(measure: Measure, declared: Declared) -> Column:
    """Return the aggregate of a measure."""
    from pyspark.sql import functions as F

    of = F.col(f"_of_{measure.name}")
    results: dict[str, Callable[[], Column]] = {
        "count": lambda: F.count(of),
        "rate": lambda: F.count(of) * F.lit(measure.per_ms / declared.size_ms),
        "sum": lambda: F.sum(of),
        "mean": lambda: F.avg(of),
        "min": lambda: F.min(of),
        "max": lambda: F.max(of),
        "stddev": lambda: F.stddev(of),
        "distinct": lambda: F.approx_count_distinct(of),
        "quantile": lambda: F.percentile_approx(of, measure.at, measure.accuracy),
    }
    return results[measure.kind]()


def _try_all(frame: DataFrame, declared: Declared) -> None:
    """Let Spark look at each expression on its own, so that all complaints come together."""
    from pyspark.errors import PySparkException
    from pyspark.sql import functions as F

    wanted: list[tuple[str, str | None, str | None]] = [
        ("window.time", declared.time, "timestamp"),
        ("rows.where", declared.where, "boolean"),
    ]
    wanted += [(f"rows.group_by.{name}", text, None) for name, text in declared.groups.items()]
    for measure in declared.measures:
        wanted.append((f"measures.{measure.name}.of", measure.of or None, None))
        wanted.append((f"measures.{measure.name}.where", measure.where, "boolean"))
    wrong = []
    for where, text, kind in wanted:
        if text is None:
            continue
        try:
            found = frame.select(F.expr(text)).schema[0].dataType.simpleString()
            if kind is not None and not found.startswith(kind):
                wrong.append(f"{where}: {text!r} is {found}, not {kind}")
        except PySparkException as error:
            reason = str(error).partition("\n")[0].partition(" SQLSTATE")[0]
            wrong.append(f"{where}: {reason}")
    if wrong:
        raise DeclarationError(f"rillet: {declared.place}: " + "; ".join(wrong))


# ---- running ------------------------------------------------------------------------------------------------------


def _once(result: DataFrame, declared: Declared) -> Aggregated:
    wrong = [text for one in declared.outputs if one.parquet is not None for text in running.in_the_way(one.parquet)]
    if wrong:
        raise DeclarationError(f"rillet: {declared.place}: {'; '.join(wrong)}")
    rows = result.repartition(1).sortWithinPartitions(*WINDOW_COLUMNS, *declared.groups).persist()
    try:
        done = Aggregated(rows.count())
        for output in declared.outputs:
            if output.parquet is not None:
                rows.write.mode("overwrite").parquet(output.parquet)
            elif done.rows:
                rows.write.format("rillet").mode("append").options(**output.options).save()
    finally:
        rows.unpersist()
    return done


def _follow(
    result: DataFrame, declared: Declared, checkpoint: str, every: float | None, stop: threading.Event,
    progress: Progress,
) -> Aggregated:  # fmt: skip
    done = Aggregated()
    _require_own_folders(declared, checkpoint)

    def write(batch: DataFrame, number: int) -> None:
        name = batch.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
        if name is None:  # not so with threads that are pinned, which is Spark's default
            raise DeclarationError("rillet: Spark does not tell which query this is: leave PYSPARK_PIN_THREAD alone")
        rows = batch.repartition(1).sortWithinPartitions(*WINDOW_COLUMNS, *declared.groups).persist()
        try:
            found = rows.count()
            for place, output in enumerate(declared.outputs):
                if found:
                    write_batch(rows, output, f"{name}-{place}", number)
            done.rows += found
            done.batches += 1
        finally:
            rows.unpersist()

    writer = result.writeStream.foreachBatch(write).outputMode("append").option("checkpointLocation", checkpoint)
    trigger = writer.trigger(availableNow=True) if every is None else writer.trigger(processingTime=f"{every} seconds")
    query = trigger.start()
    seen = -1
    while not query.awaitTermination(LOOK):
        last = query.lastProgress
        if last is not None and last["batchId"] != seen:
            seen = last["batchId"]
            done.entries = sum(int(one["numInputRows"]) for one in query.recentProgress)
            progress(done.entries, None)
        if stop.is_set():
            query.stop()
    done.entries = sum(int(one["numInputRows"]) for one in query.recentProgress)
    return done


def _require_own_folders(declared: Declared, checkpoint: str) -> None:
    """Refuse an output that another query has begun: the batches of this one would overwrite its."""
    begun = Path(checkpoint.removeprefix("file:")) / "offsets"
    if "://" in checkpoint or begun.exists():
        return
    wrong = [
        one.parquet for one in declared.outputs
        if one.parquet is not None and "://" not in one.parquet and any(Path(one.parquet).glob("*"))
    ]  # fmt: skip
    if wrong:
        raise DeclarationError(
            f"rillet: the checkpoint {checkpoint} is new, and in {', '.join(wrong)} there is something already, which "
            "its batches would overwrite: name another folder, or the checkpoint of before"
        )


def write_batch(rows: DataFrame, output: Output, name: str, number: int) -> None:
    """Write the rows of a micro-batch to one output; again, it changes nothing."""
    if output.parquet is not None:
        rows.write.mode("overwrite").parquet(str(Path(output.parquet) / f"batch={number}"))
        return
    known = {"txnAppId": name, "txnVersion": str(number)}
    rows.write.format("rillet").mode("append").options(**output.options, **known).save()


# ---- the command --------------------------------------------------------------------------------------------------

EPILOG = """examples:
  rillet pipeline aggregate examples/flights/delays.toml --batch
  rillet pipeline aggregate delays.toml --checkpoint delays.checkpoint --every 30s
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what the command takes."""
    parser.add_argument("file", type=Path, metavar="FILE.toml", help="what to aggregate (docs/pipelines.md)")
    group = parser.add_argument_group("aggregate")
    group.add_argument("--batch", action="store_true", help="everything there is, once, windows without end included")
    group.add_argument("--checkpoint", metavar="FOLDER", help="where a streaming aggregation keeps how far it is")
    group.add_argument("--every", type=running.seconds, metavar="TIME", help="go on, a micro-batch every 30s, 5m ...")
    running.spark_arguments(parser)


def complaints(options: argparse.Namespace) -> list[str]:
    """Return what is wrong with the arguments taken together, and with the file."""
    wrong = []
    if options.batch:
        given = {"--checkpoint": options.checkpoint, "--every": options.every}
        wrong += [f"--batch is once, from the beginning: not with {flag}" for flag, value in given.items() if value]
    elif options.checkpoint is None:
        wrong.append("--checkpoint is missing (or --batch)")
    if options.file is not None:
        try:
            load(options.file)
        except DeclarationError as error:
            wrong.append(str(error).removeprefix("rillet: "))
    return wrong


def run(options: argparse.Namespace) -> int:
    """Aggregate; print one line."""
    declared = load(options.file)
    spark = running.open_session(options, "aggregate")
    try:
        stop = threading.Event()
        signal.signal(signal.SIGTERM, lambda *_: stop.set())
        with running.PipelineProgressBar(f"aggregating by {options.file}") as bar:
            done = aggregate(
                spark, declared, batch=options.batch, checkpoint=options.checkpoint, every=options.every, stop=stop,
                progress=bar,
            )  # fmt: skip
        print(done.line(declared))
    finally:
        spark.stop()
    return running.DONE


__all__ = ["Aggregated", "aggregate", "load", "windowed"]

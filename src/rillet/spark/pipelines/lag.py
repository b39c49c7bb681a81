"""lag: samples each group's number of undelivered entries and the activity of its consumers, once or repeatedly.

    lag(spark, url="redis://localhost").show()                   # now: a row for each group of each stream
    history(spark, "lag/")                                       # the samples that the command wrote to Parquet
    report(history(spark, "lag/")).show()                        # a summary, one row per group

lag_sampling.py defines the columns and takes the samples.
"""

from __future__ import annotations

import argparse
import math
import signal
import threading
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rillet.client.errors import ConnectorError
from rillet.client.servers import Servers
from rillet.extras import require
from rillet.spark.option_types import timeout, whole_number
from rillet.spark.pipelines.cli_arguments import local_folder, source_arguments, source_errors, source_options
from rillet.spark.pipelines.cli_common import DONE, FAILED, progress_bar, session_of
from rillet.spark.pipelines.group_info import checked_options, or_all_streams, streams_of
from rillet.spark.pipelines.lag_sampling import MOST_PENDING, Samples, sample, schema, watch
from rillet.spark.pipelines.tables import in_time, table
from rillet.store.display.json_line import print_json
from rillet.units import counted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SHOWN = 8  # the maximum number of groups in a lag chart


# -- functions on DataFrames -------------------------------------------------------------------------------------------


def lag(spark: SparkSession, *, most_pending: int = MOST_PENDING, **options: str) -> DataFrame:
    """Return one sample of the groups of the selected streams; without a stream option, those of all streams."""
    from pyspark.sql.pandas.types import from_arrow_schema

    checked = checked_options(options)
    with Servers(checked) as servers:
        rows = sample(servers, streams_of(servers, checked), most_pending)
    columns = from_arrow_schema(schema())
    for row in rows:
        row["sampled"] = datetime.fromtimestamp(row["sampled"] / 1e6, timezone.utc)
    return spark.createDataFrame([[row[name] for name in columns.names] for row in rows], columns)


def history(spark: SparkSession, place: str | Path) -> DataFrame:
    """Return all samples in a folder of Parquet files; `rillet pipeline lag` may still be writing to the folder."""
    return spark.read.parquet(str(place))


def report(samples: DataFrame) -> DataFrame:
    """Summarize samples, a row per group: lag, pending entries, deliveries, longest time without progress."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    groups = ["stream", "group"]
    order = Window.partitionBy(*groups).orderBy("sampled")
    unread = (F.col("behind_ms") > 0) | (F.coalesce("lag", F.lit(0)) > 0)
    stands = F.lag("last_delivered_id").over(order).eqNullSafe(F.col("last_delivered_id")) & unread
    moved = samples.withColumn("run", F.sum(F.when(stands, 0).otherwise(1)).over(order))
    still = moved.groupBy(*groups, "run").agg(
        (F.unix_millis(F.max("sampled")) - F.unix_millis(F.min("sampled"))).alias("ms")
    )
    stood = still.groupBy(*groups).agg(F.max("ms").alias("still_ms"))
    minutes = F.unix_millis("sampled") / 60_000
    summed = samples.groupBy(*groups).agg(
        F.count("*").alias("samples"), F.min("sampled").alias("first"), F.max("sampled").alias("last"),
        F.max_by("lag", "sampled").alias("lag"), F.max("lag").alias("lag_max"),
        F.regr_slope("lag", minutes).alias("lag_a_minute"), F.max_by("behind_ms", "sampled").alias("behind_ms"),
        F.max("behind_ms").alias("behind_max_ms"), F.max_by("pending", "sampled").alias("pending"),
        F.max("pending").alias("pending_max"), F.max("age_p99_ms").alias("age_p99_ms"),
        F.max("deliveries_max").alias("deliveries_max"), F.max(F.size("consumers")).alias("consumers"),
    )  # fmt: skip
    return summed.join(stood, groups).orderBy(F.desc_nulls_last("lag_max"), *groups)


def chart(samples: DataFrame, target: str | Path, most: int = SHOWN) -> list[str]:
    """Draw lag, pending entries and their age over time as a PNG; return the drawn groups, largest lag first."""
    from pyspark.sql import functions as F

    worst = (
        samples.groupBy("stream", "group")
        .agg(F.max(F.coalesce("lag", "behind_ms")).alias("worst"))
        .orderBy(F.desc("worst"), "stream", "group")
        .limit(most)
    )
    columns = ["sampled", "stream", "group", "lag", "behind_ms", "pending", "age_p99_ms"]
    drawn = samples.join(worst.select("stream", "group"), ["stream", "group"]).select(*columns)
    rows = drawn.orderBy("sampled").collect()
    names = [f"{row['stream']} / {row['group']}" for row in worst.collect()]
    _draw(names, rows, Path(target))
    return names


def _draw(names: list[str], rows: list[Any], target: Path) -> None:
    """Draw the lag chart with three panels (lag, pending entries, age) and a line for each group."""
    require("pipelines", "a chart")
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    counts = any(row["lag"] is not None for row in rows)
    panels = (
        ("lag", 1, "entries behind") if counts else ("behind_ms", 1000, "seconds behind"),
        ("pending", 1, "pending entries"),
        ("age_p99_ms", 1000, "seconds since delivery, 99 %"),
    )
    figure = Figure(figsize=(11, 8), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(len(panels), 1, sharex=True)
    for axis, (column, unit, label) in zip(axes, panels, strict=True):
        for name in names:
            part = [row for row in rows if f"{row['stream']} / {row['group']}" == name]
            values = [math.nan if row[column] is None else row[column] / unit for row in part]
            axis.plot([row["sampled"] for row in part], values, lw=1.6, label=name)
        axis.set_ylabel(label)
        axis.set_ylim(bottom=0)
        axis.grid(color="#d9d9d6", lw=0.6)
        axis.spines[["top", "right"]].set_visible(False)
    if names:
        axes[0].legend(frameon=False, fontsize=9, loc="upper left")
    figure.autofmt_xdate()
    figure.savefig(target, dpi=130)


# -- the command -----------------------------------------------------------------------------------------------------

EPILOG = """\
rillet pipeline lag --url redis://localhost                                    the lag of all groups now
rillet pipeline lag --url redis://localhost --every 10s --for 1h --out lag     sample for an hour (or until ^C)
rillet pipeline lag --report lag --chart lag.png                               the samples as a table and a chart
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    source_arguments(parser)
    add = parser.add_argument
    add("--every", type=timeout, default=10.0, help="time between samples (default: 10s)")
    add("--for", dest="lasting", type=timeout, help="how long to sample (default: until ^C)")
    add("--out", type=local_folder, help="write samples to this folder as Parquet files (default: print one sample)")
    add("--most-pending", type=whole_number(1), default=MOST_PENDING, help="the most pending entries to read per group")
    add("--report", type=local_folder, help="summarize the samples in this folder instead of sampling")
    add("--chart", type=Path, help="with --report: also draw a PNG")


def argument_errors(options: argparse.Namespace) -> list[str]:
    errors = []
    if options.report is not None:
        if options.out is not None or options.lasting is not None or source_options(options):
            errors.append("--report can only be combined with --chart")
        if not any(options.report.glob("**/*.parquet")):
            errors.append(f"--report is {options.report}: this folder holds no samples")
    else:
        errors += source_errors(options, **or_all_streams(source_options(options)))
        if options.chart is not None:
            errors.append("--chart needs --report, the folder with the samples")
        if options.lasting is not None and options.out is None:
            errors.append("--for needs --out, the folder for the samples")
    return errors


def run(options: argparse.Namespace) -> int:
    """Sample the lag of groups, or report on stored samples; return the exit status."""
    if options.report is not None:
        return _report(options)
    checked = checked_options(source_options(options))
    samples = None if options.out is None else Samples(options.out)
    stopped: threading.Event = options.job.stop
    has_signals = threading.current_thread() is threading.main_thread()
    before = signal.getsignal(signal.SIGINT)

    def stop(number: int, frame: Any) -> None:
        if stopped.is_set() and number == signal.SIGINT:  # a second Ctrl-C stops even if the server does not reply
            raise KeyboardInterrupt
        stopped.set()

    if samples is None:
        stopped.set()  # take only one sample; Ctrl-C interrupts the command
    elif has_signals:
        signal.signal(signal.SIGINT, stop)
        signal.signal(signal.SIGTERM, stop)
    try:
        with progress_bar(options, "sampling", "samples") as bar:
            taken, missed, last = watch(
                checked, options.every, options.lasting, samples, stopped, options.most_pending, bar,
                options.job,
            )  # fmt: skip
    finally:
        if has_signals:
            signal.signal(signal.SIGINT, before)
    if options.json:
        for row in last:
            print_json(row)
        return DONE if taken else FAILED
    print(_table(last) if last else "no stream has a group")
    line = counted(taken, "sample") + (f", {missed} failed" if missed else "")
    streams = len({row["stream"] for row in last})
    line += f", {counted(len(last), 'group')} of {counted(streams, 'stream')}"
    print(line + (f", {counted(samples.files, 'file')} in {options.out}" if samples is not None else ""))
    return DONE if taken else FAILED


def _table(rows: list[dict[str, Any]]) -> str:
    head = ("stream", "group", "lag", "behind", "pending", "age 50 %", "age 99 %", "deliveries", "consumers")
    return table(head, [
        (row["stream"], row["group"], row["lag"], in_time(row["behind_ms"]), row["pending"], in_time(row["age_p50_ms"]),
         in_time(row["age_p99_ms"]), row["deliveries_max"], len(row["consumers"]))
        for row in sorted(rows, key=lambda row: (-(row["lag"] or 0), row["stream"], row["group"]))
    ])  # fmt: skip


def _report(options: argparse.Namespace) -> int:
    with session_of(options, "lag") as spark:
        samples = history(spark, options.report)
        rows = report(samples).collect()
        if options.chart is not None:
            try:
                chart(samples, options.chart)
            except OSError as error:
                raise ConnectorError(f"rillet: {options.chart} cannot be written: {error.strerror}") from None
    if options.json:
        for row in rows:
            print_json(row.asDict())
        return DONE
    head = ("stream", "group", "samples", "lag", "most", "a minute", "behind", "pending", "most", "age 99 %",
            "deliveries", "stood still")  # fmt: skip
    print(table(head, [
        (row["stream"], row["group"], row["samples"], row["lag"], row["lag_max"], row["lag_a_minute"],
         in_time(row["behind_ms"]), row["pending"], row["pending_max"], in_time(row["age_p99_ms"]),
         row["deliveries_max"], in_time(row["still_ms"]))
        for row in rows
    ]))  # fmt: skip
    span = (max(row["last"] for row in rows) - min(row["first"] for row in rows)).total_seconds() * 1000
    drawn = f", drawn in {options.chart}" if options.chart else ""
    print(f"{counted(len(rows), 'group')} over {in_time(span)}{drawn}")
    return DONE

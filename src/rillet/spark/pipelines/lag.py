"""How far groups are behind, and how their consumers do, over time.

    lag(spark, url="redis://localhost").show()                   # now: a row for each group of each stream
    history(spark, "lag/")                                       # what the command sampled into Parquet
    report(history(spark, "lag/")).show()                        # what of it matters, a row a group

A sample asks each stream XINFO STREAM and XINFO GROUPS, each group XINFO CONSUMERS and the pages of XPENDING, up to
`most_pending` entries of a group (those with the lowest IDs; `pending_seen` says how many it were). So it is bounded
however much is pending. All times are those of the server's clock (TIME), never of the machine that samples.

    lag            entries behind, as the server counts them; null where it cannot tell, and from servers before 7.0
    behind_ms      from the last delivered ID to the newest one, by their times, and from the stream's first entry where
                   nothing of it was delivered; known everywhere
    age_p50_ms ... how long ago the pending entries were delivered last: quantiles, and the longest
    oldest_ms      how long ago the oldest pending entry was added

The command writes a Parquet file a minute, complete or not at all (a hidden name until then), in folders by date. A
server that does not answer costs its samples and is told; sampling goes on.
"""

from __future__ import annotations

import argparse
import math
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rillet.client.errors import ConnectionLost, ConnectorError
from rillet.client.servers import Servers
from rillet.spark.option_types import timeout, whole_number
from rillet.spark.options import Options, parse
from rillet.spark.pipelines.cli_arguments import (
    local_folder,
    source_arguments,
    source_errors,
    source_options,
    spark_arguments,
)
from rillet.spark.pipelines.cli_common import DONE, FAILED, PipelineError, counted, open_session, progress_bar
from rillet.spark.pipelines.group_info import (
    PAGE,
    consumers_of,
    groups_of,
    milliseconds,
    pending_pages,
    stream_facts,
    streams_of,
)
from rillet.spark.pipelines.tables import in_time, table
from rillet.spark.server_address import require_store
from rillet.types.stream.id import StreamID

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MOST_PENDING = 100_000
FLUSH = 60.0  # seconds of samples in a file
_MOST = (1 << 63) - 1  # IDs may be any numbers
SHOWN = 8  # groups that a chart has lines for

_LONGS = (
    "length", "entries_added", "entries_read", "lag", "behind_ms", "pending", "pending_seen", "age_p50_ms",
    "age_p90_ms", "age_p99_ms", "age_max_ms", "oldest_ms", "redelivered", "deliveries_max",
)  # fmt: skip


def schema() -> Any:
    """Return the Arrow schema of a sample."""
    import pyarrow as pa

    consumer = [("name", pa.string()), *((name, pa.int64()) for name in ("pending", "idle_ms", "inactive_ms"))]
    return pa.schema([
        ("sampled", pa.timestamp("us", tz="UTC")), ("stream", pa.string()), ("group", pa.string()),
        ("last_generated_id", pa.string()), ("last_delivered_id", pa.string()),
        *((name, pa.int64()) for name in _LONGS), ("consumers", pa.list_(pa.struct(consumer))),
    ])  # fmt: skip


# -- a sample --------------------------------------------------------------------------------------------------------


def sample(servers: Servers, keys: Sequence[bytes], most_pending: int = MOST_PENDING) -> list[dict[str, Any]]:
    """Return a row for each group of the streams; those that are missing have none. O(groups + pending seen)"""
    return [row for key in keys for row in _stream_rows(servers, key, most_pending)]


def _stream_rows(servers: Servers, key: bytes, most_pending: int) -> Iterator[dict[str, Any]]:
    stream = stream_facts(servers, key)
    if stream is None:
        return
    for group in groups_of(servers, key):
        name: bytes = group["name"]
        (clock,) = servers.calls(key, [(b"TIME",)])
        now = milliseconds(clock)
        newest, last = StreamID.parse(stream["last-generated-id"]), StreamID.parse(group["last-delivered-id"])
        first = stream["first-entry"]  # what lies before it is not there to be read, and 0-0 is no time
        since = last if first is None else max(last, StreamID.parse(first[0]))
        yield {
            "sampled": now * 1000,
            "stream": key.decode("utf-8", "backslashreplace"),
            "group": name.decode("utf-8", "backslashreplace"),
            "last_generated_id": str(newest),
            "last_delivered_id": str(last),
            "length": stream["length"],
            "entries_added": stream.get("entries-added"),
            "entries_read": group.get("entries-read"),
            "lag": group.get("lag"),
            "behind_ms": min(max(newest.ms - since.ms, 0), _MOST) if newest > last and first is not None else 0,
            "pending": group["pending"],
            "consumers": [_consumer(one) for one in consumers_of(servers, key, name)],
            **_pending_facts(servers, key, name, now, most_pending),
        }


def _consumer(told: dict[str, Any]) -> dict[str, Any]:
    inactive = told.get("inactive", -1)  # before 7.2 nobody notes it; -1: never active
    return {
        "name": told["name"].decode("utf-8", "backslashreplace"),
        "pending": told["pending"],
        "idle_ms": told["idle"],
        "inactive_ms": None if inactive < 0 else inactive,
    }


def _pending_facts(servers: Servers, key: bytes, group: bytes, now: int, most: int) -> dict[str, int | None]:
    ages: list[int] = []
    seen = redelivered = deliveries = 0
    oldest = None
    for page in pending_pages(servers, key, group, page=min(PAGE, most)):
        if oldest is None:
            oldest = max(now - page[0].id.ms, 0)
        for one in page[: most - seen]:
            seen += 1
            if one.consumer:  # else it was released, and is nobody's
                ages.append(max(now - one.delivered, 0))
            redelivered += one.deliveries > 1
            deliveries = max(deliveries, one.deliveries)
        if seen >= most:
            break
    ages.sort()
    quantiles = {f"age_p{part}_ms": _quantile(ages, part) for part in (50, 90, 99)}
    return {
        "pending_seen": seen, **quantiles, "age_max_ms": ages[-1] if ages else None, "oldest_ms": oldest,
        "redelivered": redelivered, "deliveries_max": deliveries if seen else None,
    }  # fmt: skip


def _quantile(ordered: list[int], percent: int) -> int | None:
    """Return the smallest value that `percent` of all do not exceed."""
    return ordered[math.ceil(len(ordered) * percent / 100) - 1] if ordered else None


# -- over DataFrames -------------------------------------------------------------------------------------------------


def lag(spark: SparkSession, *, most_pending: int = MOST_PENDING, **options: str) -> DataFrame:
    """Return where the groups are at this moment; the options are the source's, all streams without one."""
    from pyspark.sql.pandas.types import from_arrow_schema

    checked = _checked(options)
    with Servers(checked) as servers:
        rows = sample(servers, streams_of(servers, checked), most_pending)
    columns = from_arrow_schema(schema())
    for row in rows:
        row["sampled"] = datetime.fromtimestamp(row["sampled"] / 1e6, UTC)
    return spark.createDataFrame([[row[name] for name in columns.names] for row in rows], columns)


def history(spark: SparkSession, place: str | Path) -> DataFrame:
    """Return all samples of a folder that the command wrote, and may still be writing."""
    return spark.read.parquet(str(place))


def report(samples: DataFrame) -> DataFrame:
    """Return a row for each group: how lag, pending entries and deliveries went, and for how long it stood still."""
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
    """Draw lag, pending entries and their age over time into a PNG; return the groups that it shows, worst first."""
    from pyspark.sql import functions as F

    worst = (
        samples.groupBy("stream", "group")
        .agg(F.max(F.coalesce("lag", "behind_ms")).alias("worst"))
        .orderBy(F.desc("worst"), "stream", "group")
        .limit(most)
    )
    wanted = ["sampled", "stream", "group", "lag", "behind_ms", "pending", "age_p99_ms"]
    rows = (
        samples.join(worst.select("stream", "group"), ["stream", "group"]).select(*wanted).orderBy("sampled").collect()
    )
    names = [f"{row['stream']} / {row['group']}" for row in worst.collect()]
    _draw(names, rows, Path(target))
    return names


def _draw(names: list[str], rows: list[Any], target: Path) -> None:
    """Draw three panels above one another, a line for each group."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise PipelineError("rillet: a chart needs matplotlib: pip install matplotlib") from error
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


# -- sampling into files ---------------------------------------------------------------------------------------------


class Samples:
    """Rows on their way into Parquet files, one for each minute and date."""

    def __init__(self, place: Path, flush: float = FLUSH) -> None:
        self.place = place
        self.flush_after = flush
        self.rows: list[dict[str, Any]] = []
        self.files = 0
        self._since = 0.0

    def add(self, rows: list[dict[str, Any]]) -> None:
        """Take the rows of a sample; write a file where it is time to."""
        if rows and not self.rows:
            self._since = time.monotonic()
        self.rows += rows
        if self.rows and time.monotonic() - self._since >= self.flush_after:
            self.flush()

    def flush(self) -> None:
        """Write what was gathered, by the dates of the server's clock."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        by_date: dict[str, list[dict[str, Any]]] = {}
        for row in self.rows:
            by_date.setdefault(f"{datetime.fromtimestamp(row['sampled'] / 1e6, UTC):%Y-%m-%d}", []).append(row)
        for date, rows in by_date.items():
            where = self.place / f"date={date}"
            where.mkdir(parents=True, exist_ok=True)
            name = f"lag-{rows[0]['sampled'] // 1000}-{os.getpid()}.parquet"
            pq.write_table(pa.Table.from_pylist(rows, schema=schema()), where / f".{name}")
            os.replace(where / f".{name}", where / name)
            self.files += 1
        self.rows = []


def watch(
    options: Options, every: float, lasting: float | None, samples: Samples | None, stopped: threading.Event,
    most_pending: int = MOST_PENDING, show: Any = None,
) -> tuple[int, int, list[dict[str, Any]]]:  # fmt: skip
    """Sample until the time is over or `stopped` is set; return (samples, missed ones, the last sample's rows)."""
    began = time.monotonic()
    total = None if lasting is None else max(math.ceil(lasting / every), 1)
    taken = missed = 0
    last: list[dict[str, Any]] = []
    with Servers(options) as servers:
        while True:
            try:
                last = sample(servers, streams_of(servers, options), most_pending)
                taken += 1
                if samples is not None:
                    samples.add(last)
            except ConnectionLost as error:
                if not taken and not missed:  # nobody was ever there: a wrong address, not an outage
                    raise
                missed += 1
                print(f"rillet: a sample is missing: {str(error).removeprefix('rillet: ')}", file=sys.stderr)
            if show is not None:
                show(taken, total)
            due = began + (taken + missed) * every
            if taken + missed == total or stopped.wait(max(due - time.monotonic(), 0)):
                break
    if samples is not None and samples.rows:
        samples.flush()
    return taken, missed, last


# -- the command -----------------------------------------------------------------------------------------------------

EPILOG = """\
rillet pipeline lag --url redis://localhost                                    where all groups are now
rillet pipeline lag --url redis://localhost --every 10s --for 1h --out lag     sampled for an hour (or until ^C)
rillet pipeline lag --report lag --chart lag.png                               what was sampled, as a table and a chart
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what the command takes."""
    source_arguments(parser)
    parser.add_argument("--every", type=timeout, default=10.0, help="time between samples (default 10s)")
    parser.add_argument("--for", dest="lasting", type=timeout, help="how long to sample; until ^C without it")
    parser.add_argument(
        "--out", type=local_folder, help="the folder of Parquet files to sample into; without it one sample"
    )
    parser.add_argument("--most-pending", type=whole_number(1), default=MOST_PENDING,
                        help="pending entries of a group that a sample looks at")  # fmt: skip
    parser.add_argument("--report", type=local_folder, help="summarise the samples of this folder in place of sampling")
    parser.add_argument("--chart", type=Path, help="with --report: draw a PNG of them, too")
    spark_arguments(parser)


def argument_errors(options: argparse.Namespace) -> list[str]:
    """Return what is wrong with the arguments taken together."""
    wrong = []
    if options.report is not None:
        if options.out is not None or options.lasting is not None or source_options(options):
            wrong.append("--report reads a folder: it goes with --chart alone")
        if not any(options.report.glob("**/*.parquet")):
            wrong.append(f"--report {options.report} holds no samples")
    else:
        wrong += source_errors(options, **_streams(source_options(options)))
        if options.chart is not None:
            wrong.append("--chart needs --report, the folder that was sampled into")
        if options.lasting is not None and options.out is None:
            wrong.append("--for needs --out, the folder to sample into")
    return wrong


def _streams(given: Mapping[str, str]) -> dict[str, str]:
    """Return that all streams are meant, where none is named."""
    names = {name.lower() for name in given}
    return {} if names & {"stream", "streams", "streampattern"} else {"streamPattern": "*"}


def _checked(given: Mapping[str, str]) -> Options:
    options = parse({**given, **_streams(given)})
    require_store(options)
    return options


def run(options: argparse.Namespace) -> int:
    """Sample, or report what was sampled; return the exit status."""
    if options.report is not None:
        return _report(options)
    checked = _checked(source_options(options))
    samples = None if options.out is None else Samples(options.out)
    stopped = threading.Event()
    before = signal.getsignal(signal.SIGINT)

    def stop(number: int, frame: Any) -> None:
        if stopped.is_set() and number == signal.SIGINT:  # a second time: the server does not answer
            raise KeyboardInterrupt
        stopped.set()

    if samples is None:
        stopped.set()  # one sample, which may be interrupted
    else:
        signal.signal(signal.SIGINT, stop)
        signal.signal(signal.SIGTERM, stop)
    try:
        with progress_bar("sampling", "samples") as bar:
            taken, missed, last = watch(
                checked, options.every, options.lasting, samples, stopped, options.most_pending, bar
            )
    finally:
        signal.signal(signal.SIGINT, before)
    print(_table(last) if last else "no stream here has a group")
    line = counted(taken, "sample") + (f", {missed} missed" if missed else "")
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
    spark = open_session(options, "lag")
    samples = history(spark, options.report)
    rows = report(samples).collect()
    if options.chart is not None:
        try:
            chart(samples, options.chart)
        except OSError as error:
            raise ConnectorError(f"rillet: {options.chart} cannot be written: {error.strerror}") from None
    head = ("stream", "group", "samples", "lag", "most", "a minute", "behind", "pending", "most", "age 99 %",
            "deliveries", "stood still")  # fmt: skip
    print(table(head, [
        (row["stream"], row["group"], row["samples"], row["lag"], row["lag_max"], row["lag_a_minute"],
         in_time(row["behind_ms"]), row["pending"], row["pending_max"], in_time(row["age_p99_ms"]),
         row["deliveries_max"], in_time(row["still_ms"]))
        for row in rows
    ]))  # fmt: skip
    span = (max(row["last"] for row in rows) - min(row["first"] for row in rows)).total_seconds() * 1000
    print(
        f"{counted(len(rows), 'group')} over {in_time(span)}" + (f", drawn in {options.chart}" if options.chart else "")
    )
    return DONE

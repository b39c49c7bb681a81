"""Following a stream in Spark local[2]: entries per second sustained, and the time to plan a micro-batch.

    python -m benchmarks spark_follow            the rows of the table
    python -m benchmarks.spark_follow --parts    the parts of a trigger, and processor time by process

Sustained: an available-now query reads five million entries and discards them (Spark's noop sink), in one batch and
with caps per micro-batch. The peer is a warmed-up batch read of the same entries to the same sink. The whole time of
each trigger counts, as Spark's progress reports it: planning, the job, and two small files in the checkpoint. This part
does not depend on the batch's size, which is why the cap matters. The query's one-time start, about a second, does not
count.

Planning: `latestOffset` alone, in this process, from the middle of a stream of ten million entries; the median of a
hundred calls. It includes all work of a micro-batch before its first task: the ends of the streams, the check for lost
entries, the batch's end, and the tasks.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from typing import TYPE_CHECKING, Any

from benchmarks.harness import Figure, redis_server, rillet_server
from benchmarks.processor_time import Meter
from benchmarks.spark_latency import parts_of_trigger
from benchmarks.spark_peers import COLUMNS, TASKS
from benchmarks.spark_read import KEY, MILLION, STEP_MS, fill_stream, spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CAPS = (500_000, 2_000_000)
CALLS = 100
PLANNING_MS = 5.0


def batch_rate(spark: SparkSession, url: str, count: int) -> float:
    """Return the entries per second of a batch read to the noop sink."""
    frame = spark.read.format("rillet").schema(COLUMNS).options(url=url, stream=KEY, minPartitions=str(TASKS)).load()
    began = time.perf_counter()
    frame.write.format("noop").mode("overwrite").save()
    return count / (time.perf_counter() - began)


def followed_rate(spark: SparkSession, url: str, count: int, cap: int | None, shows: bool = False) -> float:
    """Return the entries per second of an available-now query, over all its triggers; shows: print their parts."""
    source = spark.readStream.format("rillet").schema(COLUMNS).options(url=url, stream=KEY, minPartitions=str(TASKS))
    if cap is not None:
        source = source.option("maxEntriesPerTrigger", str(cap))
    with tempfile.TemporaryDirectory(prefix="rillet-bench-") as checkpoint:
        query = (
            source.load().writeStream.format("noop").option("checkpointLocation", checkpoint)
            .trigger(availableNow=True).start()
        )  # fmt: skip
        query.awaitTermination()
        if shows:
            parts = parts_of_trigger(query)
            print(", ".join(f"{part} {ms:.0f}" for part, ms in parts.items()), flush=True)
        read = sum(progress["numInputRows"] for progress in query.recentProgress)
        took = sum(progress["durationMs"]["triggerExecution"] for progress in query.recentProgress)
    assert read == count, f"followed {read} of {count} entries"
    return 1000 * count / took


def planning_ms(url: str, count: int, cap: int | None) -> float:
    """Return the median milliseconds of latestOffset, from the middle of the stream."""
    from pyspark.sql.types import StructType

    from rillet.spark import RilletDataSource
    from rillet.spark.spark_versions import ReadAllAvailable, ReadMaxRows

    options = {"url": url, "stream": KEY, "minPartitions": str(TASKS)}
    if cap is not None:
        options["maxEntriesPerTrigger"] = str(cap)
    schema = StructType()  # StructType.fromDDL would need a session
    for name, kind in (column.split() for column in COLUMNS.split(", ")):
        schema.add(name, kind)
    reader = RilletDataSource(options).streamReader(schema)
    start: dict[str, Any] = {"streams": {KEY: f"{1_700_000_000_000 + STEP_MS * (count // 2)}-0"}}
    times = []
    for _ in range(CALLS):
        began = time.perf_counter()
        end = reader.latestOffset(dict(start), ReadAllAvailable() if cap is None else ReadMaxRows(cap))
        times.append(time.perf_counter() - began)
        assert end["streams"][KEY] > start["streams"][KEY]
    reader.stop()
    return statistics.median(times) * 1000


def figures(rounds: int = 3, scale: float = 1.0) -> list[Figure]:
    """Return the rows of the benchmark table."""
    count = max(int(5 * MILLION * scale), 20_000)
    rates: dict[str | int, list[float]] = {name: [] for name in ("batch", "one", *CAPS)}
    with redis_server() as (port, _), spark_session() as spark:
        fill_stream(port, count)
        url = f"redis://127.0.0.1:{port}"
        for turn in range(rounds + 1):
            found: dict[str | int, float] = {
                "batch": batch_rate(spark, url, count),
                "one": followed_rate(spark, url, count, None),
                **{cap: followed_rate(spark, url, count, cap) for cap in CAPS},
            }
            if turn:
                for name, speed in found.items():
                    rates[name].append(speed)
    medians = {name: statistics.median(speeds) for name, speeds in rates.items()}
    what = f"Spark follows {count:,} entries"
    rows = [
        Figure(what, "the batch read", medians["batch"], medians["one"], "entries/s", 0.8),
        *(
            Figure(f"{what}, {cap:,} a trigger", "the batch read", medians["batch"], medians[cap], "entries/s", 0.8)
            for cap in CAPS
        ),
    ]
    return rows + planning(2 * count)


def planning(count: int) -> list[Figure]:
    """Return the rows about planning, whose peer is the target time."""
    rows = []
    for name, server in (("redis-server", redis_server()), ("rillet's server", rillet_server())):
        with server as (port, _):
            fill_stream(port, count)
            for cap in (None, CAPS[0]):
                took = planning_ms(f"redis://127.0.0.1:{port}", count, cap)
                title = f"planning a micro-batch of {count:,} entries in {name}" + ("" if cap is None else ", capped")
                rows.append(Figure(title, f"{PLANNING_MS:g} ms", PLANNING_MS, took, "ms", 1.0, less_is_better=True))
    return rows


def parts(count: int, rounds: int) -> None:
    """Print the parts of a trigger by its cap, and the processor time by process."""
    with redis_server() as (port, server), spark_session() as spark:
        fill_stream(port, count)
        url = f"redis://127.0.0.1:{port}"
        for turn in range(rounds + 1):
            with Meter(server=server) as meter:
                speed = batch_rate(spark, url, count)
            if turn:
                print(f"batch: {speed:,.0f}/s; {meter.per_row(count)}", flush=True)
            for cap in (None, *CAPS):
                with Meter(server=server) as meter:
                    speed = followed_rate(spark, url, count, cap, shows=turn > 0)
                if turn:
                    print(f"cap {cap}: {speed:,.0f}/s; {meter.per_row(count)}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--parts", action="store_true")
    parser.add_argument("--entries", type=int, default=5 * MILLION)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    if given.parts:
        parts(given.entries, given.rounds)
    else:
        for figure in figures(given.rounds):
            print(*figure.row(), sep="  ")

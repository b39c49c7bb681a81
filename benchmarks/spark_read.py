"""Reading a stream from redis-server into Spark local[2]: count and one sum, by ours and by readers on redis-py.

Every reader has the same columns (Spark's Python sources get no column list, so all are decoded), the same
number of tasks and one reading to warm up. The readers take turns; the medians are compared.
"""

from __future__ import annotations

import os
import statistics
import time
from typing import TYPE_CHECKING, Any

from benchmarks.harness import ROOT, Figure, redis_server
from benchmarks.memory import fill

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

READERS = ("rillet", "redis_arrow", "redis_rows", "redis_rows, hiredis")
DEFAULT_MAP = "rillet, default schema (map)"


def _time(spark: SparkSession, reader: str, port: int, entries: int) -> float:
    """Read everything once; return the entries per second."""
    from benchmarks.spark_peers import COLUMNS, TASKS

    source = spark.read.format(reader.partition(",")[0]).option("stream", "stream")
    if reader == DEFAULT_MAP:
        frame = source.option("url", f"redis://127.0.0.1:{port}").load()
        total = "sum(cast(fields['temperature'] as double))"
    else:
        total = "sum(temperature)"
        if reader == "rillet":
            source = (
                source.schema(COLUMNS).option("url", f"redis://127.0.0.1:{port}").option("minPartitions", str(TASKS))
            )
        else:
            parser = "no" if reader == "redis_rows" else "yes"
            source = source.option("port", str(port)).option("hiredis", parser)
        frame = source.load()
    began = time.perf_counter()
    count, _ = frame.selectExpr("count(*)", total).collect()[0]
    took = time.perf_counter() - began
    assert count == entries, f"{reader} read {count} of {entries} entries"
    return entries / took


def measure(rounds: int = 3, entries: int = 1_000_000) -> dict[str, Any]:
    """Return entries per second by reader, and our ratios to the other two."""
    before = os.environ.get("PYTHONPATH", "")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (before, str(ROOT))))
    from rillet.spark import session

    spark = session("local[2]", "rillet benchmark", spark_driver_memory="2g")
    try:
        spark.sparkContext.setLogLevel("ERROR")
        from benchmarks.spark_peers import ArrowSource, RowSource

        spark.dataSource.register(RowSource)
        spark.dataSource.register(ArrowSource)
        with redis_server() as (port, _):
            fill(port, "stream", entries)
            speeds: dict[str, list[float]] = {reader: [] for reader in (*READERS, DEFAULT_MAP)}
            for turn in range(rounds + 1):
                for reader, found in speeds.items():
                    speed = _time(spark, reader, port, entries)
                    if turn:  # the first warms Spark and the servers up
                        found.append(speed)
    finally:
        spark.stop()
        os.environ["PYTHONPATH"] = before
    figures: dict[str, Any] = {reader: statistics.median(found) for reader, found in speeds.items()}
    figures["against redis-py rows"] = figures["rillet"] / figures["redis_rows"]
    figures["against redis-py rows with hiredis"] = figures["rillet"] / figures["redis_rows, hiredis"]
    figures["against redis-py Arrow"] = figures["rillet"] / figures["redis_arrow"]
    return figures


def figures(rounds: int = 3, entries: int = 1_000_000) -> list[Figure]:
    """Return the rows of the benchmark table."""
    found = measure(rounds, max(entries, 20_000))
    what = "Spark batch read, count and sum, local[2]"
    return [
        Figure(what, "redis-py rows", found["redis_rows"], found["rillet"], "entries/s", 5.0),
        Figure(what, "redis-py + hiredis, rows", found["redis_rows, hiredis"], found["rillet"], "entries/s", None),
        Figure(what, "redis-py + hiredis, Arrow", found["redis_arrow"], found["rillet"], "entries/s", 1.3),
    ]


if __name__ == "__main__":
    for name, figure in measure().items():
        print(f"{name:36} {figure:>12,.2f}")

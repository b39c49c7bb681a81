"""Hashes as tables in Spark local[2]: the connector beside redis-py with hiredis in mapInPandas and foreachPartition.

Hashes of five fields, two of them double. Reading: each task of the peer scans all keys and reads its half by pipelined
HMGET; the connector divides the SCAN. Both produce typed columns, and Spark sums them. Another peer is redis-benchmark,
which sends HMGET of five fields for random keys, 64 at a time, and drops the replies.

    python -m benchmarks spark_tables            the rows of the table
    python -m benchmarks.spark_tables --cpu      processor time for a row, by process

Writing: HSET and EXPIRE for each row. The rows are cached in Spark in two partitions. The ways alternate, and the
medians are compared, after a turn as a warm-up.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from benchmarks.harness import ROOT, Figure, redis_benchmark, redis_server
from benchmarks.processor_time import Meter
from benchmarks.spark_write import COLUMNS, ask

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import DataFrame, SparkSession

TASKS = 2
PIPELINE = 1000
FIELDS = ("device", "temperature", "humidity", "status", "session")
SCHEMA = "id string, device string, temperature double, humidity double, status string, session string"
TARGET = 4.0
OF_SERVER = 0.5


def _client(port: int) -> Any:
    import redis
    from redis._parsers import _HiredisParser

    return redis.Redis(connection_pool=redis.ConnectionPool(port=port, protocol=2, parser_class=_HiredisParser))


def _pandas_reader(port: int) -> Any:
    """Return the function for mapInPandas: SCAN, then pipelined HMGET."""

    def read(batches: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        from zlib import crc32

        import pandas as pd

        def frame(keys: list[bytes], found: list[list[bytes]]) -> pd.DataFrame:
            columns: dict[str, Any] = {"id": [key.decode() for key in keys]}
            for place, name in enumerate(FIELDS):
                number = name in ("temperature", "humidity")
                columns[name] = [float(row[place]) if number else row[place].decode() for row in found]
            return pd.DataFrame(columns)

        share = next(iter(batches)).iloc[0, 0]
        with _client(port) as client:
            waiting: list[bytes] = []
            for key in client.scan_iter(match="s:*", count=1000):
                if crc32(key) % TASKS == share:
                    waiting.append(key)
                if len(waiting) == PIPELINE:
                    pipeline = client.pipeline(transaction=False)
                    for one in waiting:
                        pipeline.hmget(one, FIELDS)
                    yield frame(waiting, pipeline.execute())
                    waiting = []
            if waiting:  # Spark cannot convert an empty frame of texts
                pipeline = client.pipeline(transaction=False)
                for one in waiting:
                    pipeline.hmget(one, FIELDS)
                yield frame(waiting, pipeline.execute())

    return read


def _sums(frame: DataFrame, rows: int) -> None:
    """Evaluate all columns of the rows."""
    sums = frame.selectExpr("count(*) n", "sum(temperature) t", "sum(humidity) h", "sum(length(device)) d",
                            "sum(length(status)) s", "sum(length(session)) x", "sum(length(id)) i")  # fmt: skip
    (row,) = sums.collect()
    assert row.n == rows, f"{row.n} of {rows} rows were read"


def _writer_of_rows(port: int) -> Any:
    """Return the function for foreachPartition: HSET and EXPIRE."""

    def write(rows: Any) -> None:
        with _client(port) as client:
            pipeline = client.pipeline(transaction=False)
            for number, row in enumerate(rows, 1):
                fields = row.asDict()
                key = f"s:{fields.pop('id')}"
                pipeline.hset(key, mapping=fields)
                pipeline.expire(key, 3600)
                if number % PIPELINE == 0:
                    pipeline.execute()
            pipeline.execute()

    return write


def _read(spark: SparkSession, way: str, port: int, rows: int) -> float:
    began = time.perf_counter()
    if way == "redis-py":
        shares = spark.range(0, TASKS, 1, TASKS)
        _sums(shares.mapInPandas(_pandas_reader(port), SCHEMA), rows)
    else:
        reader = spark.read.format("rillet").schema(SCHEMA).option("url", f"redis://127.0.0.1:{port}")
        _sums(reader.options(type="hash", keyPattern="s:*", keyColumn="id").load(), rows)
    return rows / (time.perf_counter() - began)


def _write(frame: DataFrame, way: str, port: int, rows: int) -> float:
    began = time.perf_counter()
    if way == "redis-py":
        frame.foreachPartition(_writer_of_rows(port))
    else:
        writer = frame.write.format("rillet").mode("append").option("url", f"redis://127.0.0.1:{port}")
        writer.options(type="hash", keyColumn="id", keyPrefix="s:", ttl="1h").save()
    took = time.perf_counter() - began
    assert ask(port, b"DBSIZE") == b":%d\r\n" % rows, f"{way} lost rows"
    return rows / took


def measure(rounds: int = 3, rows: int = 1_000_000, shows: bool = False) -> dict[str, float]:
    """Return the rows per second by way; shows: print the processor time for a row."""
    before = os.environ.get("PYTHONPATH", "")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (before, str(ROOT))))
    from rillet.spark import session

    spark = session("local[2]", "rillet benchmark", spark_driver_memory="2g")
    speeds: dict[str, list[float]] = {}
    try:
        spark.sparkContext.setLogLevel("ERROR")
        # redis-benchmark writes random numbers as twelve digits, so its keys must have as many.
        frame = spark.range(0, rows, 1, TASKS).selectExpr("lpad(cast(id as string), 12, '0') id", *COLUMNS).cache()
        assert frame.count() == rows
        with redis_server() as (port, server):
            for turn in range(rounds + 1):
                for way in ("redis-py", "rillet"):
                    for what in ("write", "read"):
                        if what == "write":
                            ask(port, b"FLUSHALL")
                        with Meter(server=server) as meter:
                            speed = _write(frame, way, port, rows) if what == "write" else _read(spark, way, port, rows)
                        if shows and turn:
                            print(f"{what}, {way}: {speed:,.0f}/s; {meter.per_row(rows)}", flush=True)
                        if turn:  # the first turn is a warm-up
                            speeds.setdefault(f"{what}, {way}", []).append(speed)
                if turn:
                    assert ask(port, b"EXISTS", b"s:%012d" % (rows - 1)) == b":1\r\n"
                    command = ["-r", str(rows), "HMGET", "s:__rand_int__", *FIELDS]
                    speeds.setdefault("HMGET -P 64", []).append(redis_benchmark(port, rows, 50, 64, command))
    finally:
        spark.stop()
        os.environ["PYTHONPATH"] = before
    return {name: statistics.median(found) for name, found in speeds.items()}


def figures(rounds: int = 3, scale: float = 1.0) -> list[Figure]:
    """Return the rows of the benchmark table."""
    found = measure(rounds, max(20_000, int(1_000_000 * scale)))
    what = "Spark, hashes of five fields, typed, local[2]"
    read, write = found["read, rillet"], found["write, rillet"]
    return [
        Figure(f"{what}: read", "redis-py in mapInPandas", found["read, redis-py"], read, "rows/s", TARGET),
        Figure(f"{what}: read", "redis-benchmark HMGET -P 64", found["HMGET -P 64"], read, "rows/s", OF_SERVER),
        Figure(f"{what}: write with TTL", "redis-py in foreachPartition", found["write, redis-py"], write, "rows/s",
               TARGET),  # fmt: skip
    ]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--cpu", action="store_true")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    for label, figure in measure(given.rounds, given.rows, given.cpu).items():
        print(f"{label:30} {figure:>12,.0f}")

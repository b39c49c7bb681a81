"""A driver program for any PySpark from 3.5 on, whose last line is JSON with what it has found: see test_versions.py.

    python version_driver.py <redis url> <folder>

It needs redis-py and the package on PYTHONPATH, and no pytest.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyspark
import redis
from pyspark.sql import DataFrame, SparkSession

import rillet.spark
from rillet.spark.spark_versions import HAS_READ_LIMITS, HAS_SOURCES

URL, FOLDER = sys.argv[1], Path(sys.argv[2])
SCHEMA = "id string, n long, t timestamp"


def add(server: Any, numbers: range) -> None:
    """Append entries to the stream `events`."""
    pipe = server.pipeline()
    for n in numbers:
        pipe.xadd("events", {"n": n, "t": 1_700_000_000_000 + n})
    pipe.execute()


def copied(server: Any, stream: str = "copy") -> list[int]:
    """Return the numbers in a stream, in its order."""
    return [int(fields["n"]) for _, fields in server.xrange(stream)]


def forget_last_commit(checkpoint: Path) -> None:
    """Remove the newest file of `commits`: the query ended between the write and the commit of its last batch."""
    commits = (path for path in (checkpoint / "commits").iterdir() if path.name.isdigit())
    newest = max(commits, key=lambda path: int(path.name))
    (newest.parent / f".{newest.name}.crc").unlink(missing_ok=True)
    newest.unlink()


def streams(spark: SparkSession, server: Any) -> dict[str, Any]:
    """Run queries of format("rillet"): restarts, a repeated batch, a cap, a group, and filters."""
    found: dict[str, Any] = {}

    def start(to: str, checkpoint: str, now: bool, **options: str) -> Any:
        source = spark.readStream.format("rillet").schema(SCHEMA).options(url=URL, stream="events", **options).load()
        writer = source.select("n").writeStream.format("rillet").options(url=URL, stream=to)
        writer = writer.option("checkpointLocation", str(FOLDER / checkpoint))
        return (writer.trigger(availableNow=True) if now else writer).start()

    def run() -> None:
        start("copy", "first", True, group="seen").awaitTermination()

    run()
    add(server, range(1000, 1500))
    run()
    found["after a restart"] = copied(server) == list(range(1500))
    forget_last_commit(FOLDER / "first")
    add(server, range(1500, 1600))
    run()  # before 4.2, an available-now run that repeats a batch ends after it
    run()
    found["after a repeated batch"] = copied(server) == list(range(1600))
    (group,) = server.xinfo_groups("events")
    found["group"] = group["last-delivered-id"] <= server.xinfo_stream("events")["last-generated-id"]
    query = start("capped", "second", False, maxEntriesPerTrigger="300")
    until(lambda: server.xlen("capped") == 1600, query)
    add(server, range(1600, 1700))
    until(lambda: server.xlen("capped") == 1700, query)
    found["sizes"] = [p["numInputRows"] for p in query.recentProgress if p["numInputRows"]]
    found["rows of the last batch"] = getattr(rillet.spark.progress(query), "rows", None)
    query.stop()
    found["capped"] = copied(server, "capped") == list(range(1700))
    return found


def until(done: Callable[[], bool], query: Any) -> None:
    """Wait until a query has done something, for at most two minutes; raise its error if it has failed."""
    deadline = time.monotonic() + 120
    while not done():
        if query.exception() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"the query did not finish: {query.exception()}")
        query.processAllAvailable()


def functions(spark: SparkSession, server: Any) -> dict[str, Any]:
    """Run `read_batch` and `write_batch`, with a micro-batch that is repeated after its write."""
    found: dict[str, Any] = {}
    read = rillet.spark.read_batch(spark, schema=SCHEMA, url=URL, stream="events", minPartitions="3")
    found["partitions"] = read.rdd.getNumPartitions()
    count = server.xlen("events")
    row = read.selectExpr("count(*)", "sum(n)", "cast(max(t) as long)").collect()[0]
    found["read"] = tuple(row) == (count, count * (count - 1) // 2, (1_700_000_000_000 + count - 1) // 1000)
    write = rillet.spark.write_batch("copies", url=URL, stream="by function")
    broken = [True]

    def handle(batch: DataFrame, number: int) -> None:
        write(batch, number)
        if broken.pop():
            raise RuntimeError("the driver is killed")

    place = str(FOLDER / "numbers")
    for first in (0, 2000):
        spark.range(first, first + 2000).selectExpr("id as n").write.mode("append").parquet(place)
        source = spark.readStream.schema("n long").parquet(place).repartition(3)
        writer = source.writeStream.foreachBatch(handle).option("checkpointLocation", str(FOLDER / "third"))
        for _ in range(2):
            try:
                writer.trigger(availableNow=True).start().awaitTermination()
            except Exception as error:
                found["failed"] = "the driver is killed" in str(error)
            broken.append(False)
    found["written"] = sorted(copied(server, "by function")) == list(range(4000))
    hashes = {"type": "hash", "keyPrefix": "h:", "keyColumn": "n", "url": URL}
    rillet.spark.write_batch(**hashes)(spark.range(10).selectExpr("id as n", "id * 2 as twice"), 0)
    table = rillet.spark.read_batch(spark, schema="n string, twice int", **hashes)
    found["hashes"] = sorted(row.twice for row in table.collect()) == list(range(0, 20, 2))
    return found


def main() -> None:
    """Run everything that this version has."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    settings = {"spark.ui.enabled": "false", "spark.python.authenticate.socketTimeout": "250s",
                "spark.sql.session.timeZone": "UTC", "spark.sql.shuffle.partitions": "2"}
    builder = SparkSession.builder.master("local[2]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    server: Any = redis.Redis.from_url(URL, decode_responses=True)
    server.flushall()
    add(server, range(1000))
    found: dict[str, Any] = {"version": pyspark.__version__, "limits": HAS_READ_LIMITS, "sources": HAS_SOURCES}
    if HAS_SOURCES:
        spark.sql(f"CREATE TEMPORARY VIEW v (id string, n long) USING rillet OPTIONS (url '{URL}', stream 'events')")
        found["sql"] = list(spark.sql("SELECT count(*), sum(n) FROM v").collect()[0]) == [1000, 499_500]
        rillet.spark.register(spark)
        table = spark.read.format("rillet").options(url=URL, stream="events", pushFilters="true").schema(SCHEMA).load()
        newest = server.xrevrange("events", count=1)[0][0]
        found["filter"] = [row.n for row in table.where(f"id = '{newest}'").collect()] == [999]
        found.update(streams(spark, server))
    else:
        try:
            rillet.spark.register(spark)
        except Exception as error:
            found["refused"] = str(error)
    found.update(functions(spark, server))
    spark.stop()
    print(json.dumps(found))


if __name__ == "__main__":
    main()

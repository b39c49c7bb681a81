"""What a user's program does on a Spark of several processes: spark-submit ... standalone_driver.py PLAN

It imports nothing of the tests, since only the package is shipped. PLAN is JSON: url, streams, folder. The last line
that it prints is JSON: where the package came from, and what was read and written.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from typing import Any

from pyspark.sql import SparkSession

SCHEMA = "stream string, id string, n long"


def imported(_: Iterable[int]) -> Iterator[tuple[str, bool]]:
    """Yield where an executor has the package from, and whether it is compiled there."""
    import rillet

    yield rillet.__file__, rillet.compiled()


def unpacked(_: Iterable[int]) -> Iterator[list[Any]]:
    """Yield the same of a Python that has the unpacked archive on its path."""
    import os
    import subprocess

    told = "import json, rillet; print(json.dumps([rillet.__file__, rillet.compiled()]))"
    paths = {**os.environ, "PYTHONPATH": "./shipped"}
    yield json.loads(subprocess.run([sys.executable, "-c", told], env=paths, check=True, stdout=-1).stdout)


def measures(frame: Any) -> list[Any]:
    """Return what is compared: rows, and sums that show which they are."""
    return list(frame.selectExpr("count(*)", "sum(n)", "sum(n * n)").first())


def main() -> None:
    """Do what the plan says."""
    plan = json.loads(sys.argv[1])
    spark = SparkSession.builder.getOrCreate()
    from rillet.spark import register

    register(spark)
    where = {"url": plan["url"]}
    source = {**where, "streams": ",".join(plan["streams"])}
    two = spark.sparkContext.parallelize(range(2), 2)
    told: dict[str, Any] = {
        "imported": two.mapPartitions(imported).collect(),
        "unpacked": two.mapPartitions(unpacked).collect(),
    }
    events = spark.read.format("rillet").options(**source).schema(SCHEMA).load()
    told["batch"] = measures(events)
    told["tasks"] = events.rdd.getNumPartitions()
    streams(spark, plan, where, source, events, told)
    spark.stop()
    print(json.dumps(told), flush=True)


def streams(spark: Any, plan: dict[str, Any], where: dict[str, str], source: dict[str, str], events: Any,
            told: dict[str, Any]) -> None:  # fmt: skip
    """Write with the sink, follow with the source, into streams and into Parquet, and make an archive."""
    from rillet.spark.pipelines.archive import archive

    copies = events.selectExpr("concat('copy:', stream) target", "n")
    copies.write.format("rillet").mode("append").options(**where, streamColumn="target").save()
    followed = spark.readStream.format("rillet").options(**source, startingOffsets="earliest").schema(SCHEMA).load()
    told["formats"] = {}
    for name, writer in (
        ("rillet", followed.selectExpr("n").writeStream.format("rillet").options(**where, stream="followed")),
        ("parquet", followed.writeStream.format("parquet").option("path", f"{plan['folder']}/table")),
    ):
        writer = writer.option("checkpointLocation", f"{plan['folder']}/checkpoint-{name}")
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        told["formats"][name] = sum(progress.numInputRows for progress in query.recentProgress)
    told["parquet"] = measures(spark.read.schema(SCHEMA).parquet(f"{plan['folder']}/table"))
    options: dict[str, Any] = {**source}
    archived = archive(spark, f"{plan['folder']}/archive", schema="n long", **options)
    told["archived"] = archived.entries


if __name__ == "__main__":
    main()

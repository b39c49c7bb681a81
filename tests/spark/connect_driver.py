"""The program of a Spark Connect user: reads, follows, writes and archives a stream; prints what it saw as JSON.

This process is only a client of the server. `SparkSession.builder.remote("local[2]")` starts one in a JVM of its own.
"""

from __future__ import annotations

import json
import sys
import warnings
from typing import Any

from pyspark.sql import SparkSession


def main(plan: dict[str, Any]) -> dict[str, Any]:
    import rillet.spark
    from rillet.spark.pipelines import archive, compact

    told: dict[str, Any] = {}
    builder = SparkSession.builder.remote(plan["remote"])
    for name, value in plan["settings"].items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    try:
        told["session"] = type(spark).__module__
        rillet.spark.register(spark)
        source: dict[str, Any] = {"url": plan["url"], "stream": "events"}
        table = spark.read.format("rillet").schema("id string, n long").options(**source).load()
        told["batch"] = list(table.selectExpr("count(*)", "sum(n)").collect()[0])
        told["tasks"] = table.selectExpr("spark_partition_id() AS task").distinct().count()
        told["filtered"] = table.where(f"id = '{plan['id']}'").count()

        folder = plan["folder"]
        follow = spark.readStream.format("rillet").schema("id string, n long").options(**source).load()
        query = (
            follow.writeStream.format("parquet").option("path", f"{folder}/table")
            .option("checkpointLocation", f"{folder}/checkpoint").trigger(availableNow=True).start()
        )  # fmt: skip
        query.awaitTermination()
        progress = rillet.spark.progress(query)
        assert progress is not None
        told["progress"] = [progress.rows, progress.behind, progress.lost]
        told["followed"] = spark.read.parquet(f"{folder}/table").count()

        table.select("n").write.format("rillet").mode("append").options(url=plan["url"], stream="copy").save()

        done = archive(spark, f"{folder}/archive", trim=True, maxEntriesPerTrigger="4000", **source)
        told["archived"] = [done.entries, done.trimmed, done.commits]
        told["merged"] = compact(spark, f"{folder}/archive").merged
        both = rillet.spark.history(spark, "events", archive=f"{folder}/archive", url=plan["url"], schema="n long")
        told["history"] = list(both.selectExpr("count(*)", "sum(n)").collect()[0])
        try:
            spark.read.format("rillet").options(url=plan["url"], stream="absent").load().count()
        except Exception as error:
            told["error"] = rillet.spark.reason(error)
    finally:
        spark.stop()
    return told


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    print(json.dumps(main(json.loads(sys.argv[1]))))

"""The Spark part: the stream as a table, while it streams and at rest.

flights (stream) -> windows of an hour by airport, with the weather -> Parquet, and a stream `delays`
flights (batch)  -> worst routes, carriers ranked                    -> Parquet, and the tables printed
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DoubleType, StringType, StructField, StructType, TimestampType

from examples.flights import data

SCHEMA = "timestamp timestamp, carrier string, origin string, dest string, dep_delay int, arr_delay int, distance int"
LOGGING = Path(__file__).resolve().parent / "log4j2.properties"
# The Java compiler's second level and the parallel collector take a minute to pay off: this run is shorter.
SHORT_RUN = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
WEATHER_SCHEMA = StructType(
    [StructField("origin", StringType()), StructField("hour", TimestampType())]
    + [StructField(name, DoubleType()) for name in data.WEATHER[2:]]
)


def session() -> SparkSession:
    """Return a local Spark session with the format `rillet`."""
    from rillet.spark import register, require_java

    require_java()
    # Spark's workers must run this Python, not the first `python3` of the PATH.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    spark: SparkSession = (
        SparkSession.builder.master("local[2]")
        .appName("rillet flights")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "America/New_York")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.extraJavaOptions", f"{SHORT_RUN} -Dlog4j2.configurationFile={LOGGING.as_uri()}")
        .getOrCreate()
    )
    register(spark)
    return spark


def hourly_delays(spark: SparkSession, store_path: str, out: Path, progress: Callable[[int], None]) -> int:
    """Aggregate the followed stream into hourly windows with their weather; return the number of windows.

    A window is written once, when the watermark has passed its end, so the year's last hour is not written.
    """
    weather = spark.createDataFrame(data.weather_rows(), WEATHER_SCHEMA).dropDuplicates(["origin", "hour"])
    flights = (
        spark.readStream.format("rillet")
        .schema(SCHEMA)
        .option("path", store_path)
        .option("stream", "flights")
        .option("startingOffsets", "earliest")
        .option("maxEntriesPerTrigger", "100000")
        .load()
    )
    windows = (
        flights.withWatermark("timestamp", "0 seconds")
        .groupBy(F.window("timestamp", "1 hour").alias("window"), "origin")
        .agg(
            F.count("*").alias("flights"),
            F.round(F.avg("dep_delay"), 2).alias("mean_delay"),
            F.sum((F.col("dep_delay") > 60).cast("int")).alias("over_an_hour"),
            F.sum(F.col("dep_delay").isNull().cast("int")).alias("cancelled"),
        )
        .select(F.col("window.start").alias("hour"), "origin", "flights", "mean_delay", "over_an_hour", "cancelled")
    )

    def write(batch: DataFrame, number: int) -> None:
        joined = batch.join(F.broadcast(weather), ["origin", "hour"], "left").persist()
        # The folder has the batch's number, so a repeated batch overwrites itself.
        joined.coalesce(1).write.mode("overwrite").parquet(str(out / "delays_by_hour" / f"batch={number}"))
        text = joined.orderBy("hour", "origin").select(*(F.col(name).cast("string") for name in joined.columns))
        text.coalesce(1).write.format("rillet").mode("append").options(path=store_path, stream="delays").save()
        joined.unpersist()

    query = (
        windows.writeStream.foreachBatch(write)
        .outputMode("append")
        .option("checkpointLocation", str(out / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    while not query.awaitTermination(1):
        progress(sum(int(one["numInputRows"]) for one in query.recentProgress))
    return spark.read.parquet(str(out / "delays_by_hour")).count()


def rankings(spark: SparkSession, store_path: str, out: Path) -> tuple[list[Row], list[Row]]:
    """Read the stream as a table; write and return (worst routes, carriers), worst first."""
    flights = (
        spark.read.format("rillet").schema(SCHEMA).option("path", store_path).option("stream", "flights").load()
    ).persist()
    routes = (
        flights.groupBy("origin", "dest")
        .agg(F.count("*").alias("flights"), F.round(F.avg("arr_delay"), 1).alias("mean_delay"))
        .where("flights >= 300")
        .orderBy(F.desc("mean_delay"))
    )
    carriers = (
        flights.groupBy("carrier")
        .agg(
            F.count("*").alias("flights"),
            F.round(F.avg("dep_delay"), 1).alias("mean_delay"),
            F.round(100 * F.avg((F.col("dep_delay") > 15).cast("int")), 1).alias("late_percent"),
            F.round(100 * F.avg(F.col("dep_delay").isNull().cast("int")), 1).alias("cancelled_percent"),
        )
        .orderBy(F.desc("mean_delay"))
    )
    for name, table in (("worst_routes", routes), ("carriers", carriers)):
        table.coalesce(1).write.mode("overwrite").parquet(str(out / name))
    rows = routes.limit(8).collect(), carriers.collect()
    flights.unpersist()
    return rows


def by_hour_of_day(spark: SparkSession, out: Path) -> list[Row]:
    """Return (origin, hour of the day, flights, mean delay, mean delay in rain) from the hourly windows."""
    hours = spark.read.parquet(str(out / "delays_by_hour"))
    return (
        hours.groupBy("origin", F.hour("hour").alias("hour"))
        .agg(
            F.sum("flights").alias("flights"),
            (F.sum(F.col("mean_delay") * F.col("flights")) / F.sum("flights")).alias("mean_delay"),
            (
                F.sum(F.when(F.col("precip") > 0, F.col("mean_delay") * F.col("flights")))
                / F.sum(F.when(F.col("precip") > 0, F.col("flights")))
            ).alias("rain_delay"),
        )
        .orderBy("origin", "hour")
        .collect()
    )

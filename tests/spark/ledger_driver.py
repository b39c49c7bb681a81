"""The streaming query of the ledger, in a process that is killed: python -m tests.spark.ledger_driver PLAN

PLAN is JSON: master, sink (one of ledger.SINKS), folder, and the source's options. It says "batch <id> <rows>" for
every micro-batch. A query that fails, because its server is gone, is started again from its checkpoint. "finish" on
the standard input makes it read what there is, write down the numbers that are in the Parquet table, and end.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import functions as F
from pyspark.sql.streaming.listener import StreamingQueryListener

from rillet.spark import foreach_batch, session
from tests.spark.ledger_settling import CLASSES
from tests.spark.standalone import SMALL_JAVA

SMALL = {"transactionBytes": "20000"}  # several transactions for each task


class Told(StreamingQueryListener):
    """Says how far the query is."""

    def onQueryStarted(self, event: Any) -> None:
        """Say nothing: a started query has done nothing."""

    def onQueryProgress(self, event: Any) -> None:
        """Say which batch is through."""
        if event.progress.numInputRows:
            print(f"batch {event.progress.batchId} {event.progress.numInputRows}", flush=True)

    def onQueryIdle(self, event: Any) -> None:
        """Say nothing."""

    def onQueryTerminated(self, event: Any) -> None:
        """Say nothing: the loop below sees it."""


def settings(master: str) -> dict[str, str]:
    """Return Spark's settings: executors of their own are small, and a task lives through several of them."""
    shared = {"spark_driver_memory": "1g", "spark_sql_shuffle_partitions": "2"}
    if not master.startswith("spark://"):
        return shared
    return {
        **shared,
        "spark_driver_memory": "512m",
        "spark_driver_extraJavaOptions": SMALL_JAVA,
        "spark_driver_host": "127.0.0.1",
        "spark_executor_memory": "512m",
        "spark_executor_extraJavaOptions": SMALL_JAVA,
        "spark_executorEnv_PYTHONPATH": os.environ["PYTHONPATH"],
        "spark_task_maxFailures": "10",
    }


def writer_of(sink: str, frame: Any, plan: dict[str, Any]) -> Any:
    """Return what writes the numbers to a sink."""
    if sink == "parquet":
        return frame.writeStream.format("parquet").option("path", str(Path(plan["folder"]) / "table"))
    where = {name: text for name, text in plan["options"].items() if name in ("url", "path")}
    if sink == "hashes":
        return frame.writeStream.foreachBatch(written_as_hashes(where))
    if sink == "counters":
        frame = frame.selectExpr("n", "concat('event ', n) text", "1 times")
        more = {"type": "hash", "keyPrefix": "event:", "keyColumn": "n", "addColumns": "times", **SMALL}
    else:
        more = {"stream": "copied", **({"order": "stream", "orderWait": "200ms", **SMALL} if sink == "ordered" else {})}
    return frame.writeStream.format("rillet").options(**where, **more)


def written_as_hashes(where: dict[str, str]) -> Any:
    """Return a function for foreachBatch: upserts a hash for each event, and adds to the counters of its class."""
    hashes = {"type": "hash", **where}
    upsert = foreach_batch(keyPrefix="event:", keyColumn="n", **hashes)
    add = foreach_batch("ledger", keyPrefix="class:", keyColumn="class", addColumns="events,total", **hashes)

    def write(batch: Any, number: int) -> None:
        upsert(batch.selectExpr("n", "concat('event ', n) text"), number)
        classes = batch.groupBy((F.col("n") % CLASSES).alias("class"))
        sums = classes.agg(F.count("*").alias("events"), F.sum("n").alias("total"), F.max("n").alias("latest"))
        add(sums, number)

    return write


def started(spark: Any, plan: dict[str, Any], finishing: bool) -> Any:
    """Start the query from its checkpoint."""
    folder = Path(plan["folder"])
    source = spark.readStream.format("rillet").options(**plan["options"], timeout="10", minPartitions="2")
    if not finishing:
        source = source.option("maxEntriesPerTrigger", "3000")
    writer = writer_of(plan["sink"], source.schema("n long").load(), plan)
    writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
    writer = writer.trigger(availableNow=True) if finishing else writer.trigger(processingTime="100 milliseconds")
    return writer.start()


def main() -> None:
    """Run the query until it is told to finish, then to its end."""
    plan = json.loads(sys.argv[1])
    finish = threading.Event()

    def listen() -> None:
        sys.stdin.readline()
        finish.set()

    threading.Thread(target=listen, daemon=True).start()
    spark = session(plan["master"], "rillet ledger", **settings(plan["master"]))
    spark.sparkContext.setLogLevel("OFF")
    spark.streams.addListener(Told())
    ended = False
    while not ended:
        finishing = finish.is_set()
        try:
            query = started(spark, plan, finishing)
            while query.isActive and (finishing or not finish.is_set()):
                query.awaitTermination(0.2)
            query.stop()
            ended = finishing and query.exception() is None
            if query.exception() is not None:
                print("failed:", str(query.exception())[:2000], flush=True)
        except PySparkException as error:
            print("failed:", str(error)[:2000], flush=True)
    if plan["sink"] == "parquet":
        numbers = [row.n for row in spark.read.parquet(str(Path(plan["folder"]) / "table")).collect()]
        (Path(plan["folder"]) / "numbers.json").write_text(json.dumps(numbers))
    spark.stop()


if __name__ == "__main__":
    main()

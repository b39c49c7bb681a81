"""A streaming query whose writers are killed, in a process of its own: python -m tests.spark.struck_writer PLAN

PLAN is JSON: url, folder. The stream `events` is copied twice, each time in micro-batches of two tasks:

    into `plain`, at least once     batch 0: a writing worker is killed between two of its Arrow batches
                                    batch 1: a worker is killed after its task's last row
    into `once`, exactly once       the same kills; batch 2: the driver's JVM is killed between two Arrow batches

Each kill happens once, in the first task of its batch that reaches the moment: that task creates a file in the folder.
`exactTriggers` makes the batches equally large, so the number of batches does not depend on how the IDs are spread. A
task may fail three times (local[2,4]).
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark import TaskContext
from pyspark.errors import StreamingQueryException
from pyspark.sql.datasource import WriterCommitMessage

from rillet.spark import RilletDataSource, session
from rillet.spark.options import Options
from rillet.spark.sink import StreamingWriter
from rillet.spark.spark_versions import DataSourceStreamArrowWriter

PER_BATCH = 1000


class StruckSource(RilletDataSource):
    """The data source under another name; its writers are killed."""

    @classmethod
    def name(cls) -> str:
        """Return what format() takes."""
        return "struck"

    def streamWriter(self, schema: Any, overwrite: bool) -> DataSourceStreamArrowWriter:
        """Return the writer that is killed."""
        return StruckWriter(self.parsed, schema)


class StruckWriter(StreamingWriter):
    """Kills its own process, or the JVM, at the moments that the module's docstring lists."""

    def __init__(self, options: Options, schema: Any) -> None:
        super().__init__(options, schema)
        self.folder = Path(os.environ["RILLET_STRIKES"])

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """Write a task's rows, unless the process is killed first."""
        message = super().write(self._rows(iterator))
        self._strike("after", 1)
        return message

    def _rows(self, iterator: Iterator[Any]) -> Iterator[Any]:
        for place, batch in enumerate(iterator):
            if place == 1:
                self._strike("amid", 0)
                if self.options.exactly_once != "none":
                    self._strike("driver", 2)
            yield batch

    def _strike(self, name: str, batch: int) -> None:
        context = TaskContext.get()
        assert context is not None
        if context.getLocalProperty("streaming.sql.batchId") != str(batch):
            return
        try:
            (self.folder / f"{name}-{self.options.stream}").touch(exist_ok=False)
        except FileExistsError:
            return
        daemon = os.getppid()
        jvm = int(Path(f"/proc/{daemon}/stat").read_text().rpartition(")")[2].split()[1])
        os.kill(jvm if name == "driver" else os.getpid(), signal.SIGKILL)
        if name == "driver":
            signal.pause()  # the worker's daemon ends it


def copy(spark: Any, source: str, url: str, folder: Path, target: str, **options: str) -> Any:
    """Copy `events` into a stream with a checkpoint of its own, and return at the end of `events`."""
    frame = spark.readStream.format("rillet").options(url=url, stream="events", minPartitions="2")
    frame = frame.options(maxEntriesPerTrigger=str(PER_BATCH), exactTriggers="true")
    frame = frame.schema("n long, name string").load()
    writer = frame.writeStream.format(source).options(url=url, stream=target, transactionBytes="8192", **options)
    writer = writer.option("checkpointLocation", str(folder / target)).trigger(availableNow=True)
    while True:
        query = writer.start()
        try:
            query.awaitTermination()
            return query
        except StreamingQueryException as error:  # Spark gives a new Python process ten seconds, too few under load
            if "failed to connect back" not in str(error):
                raise


def main() -> None:
    """Run both copies."""
    plan = json.loads(sys.argv[1])
    folder = Path(plan["folder"])
    os.environ["RILLET_STRIKES"] = str(folder)
    spark = session("local[2,4]", "rillet strikes", spark_driver_memory="1g",
                    spark_sql_execution_arrow_maxRecordsPerBatch="100")  # fmt: skip
    spark.sparkContext.setLogLevel("OFF")
    spark.dataSource.register(StruckSource)
    copy(spark, "struck", plan["url"], folder, "plain", exactlyOnce="none")
    copy(spark, "struck", plan["url"], folder, "once")


if __name__ == "__main__":
    main()

"""A streaming query that loses executors at the worst moments, in a process of its own: see test_standalone.py.

    python -m tests.spark.struck_executors PLAN

PLAN is JSON: master, of a standalone cluster with two workers of one core; url; folder. The stream `events` is copied
into `once`, in micro-batches of two tasks, each a few transactions long. Each batch has a moment of its own:

    batch 0   task 0 is finished, and its executor is killed while task 1 is still at work
    batch 1   the executor of task 0 is killed after the last EXEC, before Spark is told that the task is finished
    batch 2   the executor of task 1 is killed before that EXEC, and its Python process lives on (it does not hear the
              SIGHUP of PySpark's daemon); it sends EXEC when another attempt has written and the batch is committed
    batch 3   task 1 is slow before that EXEC, and sends it when a speculative attempt has written all the same rows

What has happened is told by files: `<batch>.<task>.<attempt>` for each attempt, and those that are named below.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage

from rillet.client.servers import Servers
from rillet.spark import RilletDataSource, session
from rillet.spark.options import Options
from rillet.spark.sink import StreamingWriter
from rillet.spark.spark_versions import DataSourceStreamArrowWriter
from rillet.spark.write import writer as sending
from rillet.spark.write.commits import Identity
from tests import waiting
from tests.spark.ledger_driver import settings
from tests.spark.struck_writer import copy

PATIENCE = 300.0
until = partial(waiting.until, seconds=PATIENCE)


def parent(pid: int) -> int:
    """Return the process that started another."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


class LosingSource(RilletDataSource):
    """The data source under another name, with writers that lose their executors."""

    @classmethod
    def name(cls) -> str:
        """Return what format() takes."""
        return "losing"

    def streamWriter(self, schema: Any, overwrite: bool) -> DataSourceStreamArrowWriter:
        """Return the writer."""
        return LosingWriter(self.parsed, schema)


class LosingWriter(StreamingWriter):
    """Does what the essay above says, each of it once."""

    def __init__(self, options: Options, schema: Any) -> None:
        super().__init__(options, schema)
        self.folder = Path(os.environ["RILLET_STRIKES"])

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """Write a task's rows, if it lives so long."""
        sending.CHUNK = 1000  # a few hundred rows are many chunks
        context = TaskContext.get()
        assert context is not None
        batch, task = context.getLocalProperty("streaming.sql.batchId"), context.partitionId()
        self.moment = f"{batch}.{task}"
        self.first = not list(self.folder.glob(f"{self.moment}.*"))
        (self.folder / f"{self.moment}.{context.attemptNumber()}").touch()
        try:
            message = super().write(iterator)
        except BaseException as error:
            self._tell("orphan", "2.1", repr(error))
            raise
        self._written()
        return message

    def _sender(self, servers: Servers) -> tuple[Any, Identity | None]:
        sender, identity = super()._sender(servers)
        finish = sender.finish

        def finishing() -> dict[bytes, int]:
            self._before_the_last()
            return finish()

        sender.finish = finishing  # type: ignore[method-assign]
        return sender, identity

    def _before_the_last(self) -> None:
        """All rows have come, and those of the last transaction are sent and not executed."""
        if self.moment == "0.1":
            until((self.folder / "lost").exists, "an executor to be lost")
        elif self.moment == "2.1" and self.first:
            signal.signal(signal.SIGHUP, signal.SIG_IGN)
            os.kill(self._executor(), signal.SIGKILL)
            until((self.folder / "once" / "commits" / "2").exists, "the batch to be committed")
        elif self.moment == "3.1" and self.first:
            until((self.folder / "overtook").exists, "a speculative attempt to have written")

    def _written(self) -> None:
        """All rows are in the stream, and Spark does not know yet."""
        if self.moment == "0.0":
            self._tell("finished", "0.0", str(self._executor()))
        elif self.moment == "1.0" and self.first:
            os.kill(self._executor(), signal.SIGKILL)
            signal.pause()  # its daemon ends it
        elif self.moment == "3.1" and not self.first:
            self._tell("overtook", "3.1", "")
            until((self.folder / "overtaken").exists, "the slow attempt to end")  # Spark would kill it before
        self._tell("overtaken", "3.1", "")
        self._tell("orphan", "2.1", "written")

    def _tell(self, name: str, moment: str, text: str) -> None:
        """Write a file, if this is the attempt that the moment is about."""
        if self.moment != moment or not (self.first or name == "overtook"):
            return
        written = self.folder / f"{name}.new"
        written.write_text(text)
        written.rename(self.folder / name)
        if name == "orphan":
            os._exit(0)

    def _executor(self) -> int:
        return parent(os.getppid())


def lose_the_finished(spark: Any, folder: Path) -> None:
    """Kill the executor of a finished task when the driver knows of the one, and go on when it knows of the other."""
    until((folder / "finished").exists, "a task to be finished")
    tracker, store = spark.sparkContext.statusTracker(), spark.sparkContext._jsc.sc().statusStore()

    def known() -> bool:
        stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        return any(stage is not None and stage.numCompletedTasks == 1 for stage in stages)

    until(known, "the driver to know of a finished task")
    executor = int((folder / "finished").read_text())
    name = re.search(r"--executor-id\0(\d+)", Path(f"/proc/{executor}/cmdline").read_text())
    assert name is not None
    os.kill(executor, signal.SIGKILL)
    until(lambda: not store.executorSummary(name[1]).isActive(), "the driver to know of the lost executor")
    (folder / "lost").touch()


def main() -> None:
    """Make the copy."""
    plan = json.loads(sys.argv[1])
    folder = Path(plan["folder"])
    os.environ["RILLET_STRIKES"] = str(folder)
    spark = session(plan["master"], "rillet lost executors", **{
        **settings(plan["master"]),
        "spark_sql_execution_arrow_maxRecordsPerBatch": "100",
        "spark_cores_max": "2",
        "spark_scheduler_minRegisteredResourcesRatio": "1.0",  # both executors are there for batch 0
        "spark_scheduler_maxRegisteredResourcesWaitingTime": "300s",
        "spark_ui_liveUpdate_period": "0",  # what is asked of the driver is of now
        "spark_speculation": "true",
        "spark_speculation_quantile": "0.5",
        "spark_speculation_multiplier": "0.5",
        "spark_speculation_efficiency_enabled": "false",
    })  # fmt: skip
    spark.sparkContext.setLogLevel("OFF")
    spark.dataSource.register(LosingSource)
    threading.Thread(target=lose_the_finished, args=(spark, folder), daemon=True).start()
    copy(spark, "losing", plan["url"], folder, "once")
    until((folder / "orphan").exists, "the process that had lost its executor to end")
    spark.stop()


if __name__ == "__main__":
    main()

"""Where the tasks of a pipeline run: in this process, or in Spark, which starts when the work is large.

    runner = TaskRunner("auto", start)                  start() returns a Spark session
    work = runner.work_for(entries=12, size=900)    runs tasks, as `python_tasks(spark)` does
    runner.used                                     "this process", "Spark", or both

Spark takes 7 to 12 s to start on an idle machine, and 0.5 GB. In this time one process archives more than a million
entries of five fields (2 us of CPU each). So work up to MOST_ENTRIES and MOST_BYTES runs here, with the same planning,
the same tasks and the same commits. A pipeline that keeps running chooses for each round, so a job with little work
never starts Spark, and one that falls behind does. A session that was started stays.

The amount of work is an estimate. If it is wrong, the work takes longer, and nothing else changes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import TYPE_CHECKING, Any

from rillet.client.connection import Connection
from rillet.spark.connect import Work, default_parallelism, is_connect, python_tasks
from rillet.spark.options import OptionError
from rillet.spark.pipelines.tables import Progress, silent, watched

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

AUTO, ALWAYS, NEVER = CHOICES = ("auto", "always", "never")
MOST_ENTRIES = 1_000_000
MOST_BYTES = 256 << 20
THREADS = 8
HERE, SPARK = "this process", "Spark"


class TaskRunner:
    """Chooses where tasks run. With `never`, and no session, nothing here needs Java."""

    def __init__(self, choice: str, start: Callable[[], SparkSession]) -> None:
        """choice: auto, always or never; start: called once, when Spark is needed."""
        self.choice = choice
        self._start = start
        self._spark: SparkSession | None = None
        self._used: list[str] = []

    @classmethod
    def using(cls, spark: SparkSession | TaskRunner | None) -> TaskRunner:
        """Return the runner of a caller that has a session, or None to use this process."""
        if isinstance(spark, TaskRunner):
            return spark
        if spark is None:
            return cls(NEVER, _none)
        session = spark
        return cls(ALWAYS, lambda: session)

    @property
    def used(self) -> str:
        """Where tasks have run."""
        return " and ".join(self._used) or HERE

    @property
    def spark(self) -> SparkSession:
        """The Spark session, which starts now if it has not."""
        if self._spark is None:
            self._spark = self._start()
        if SPARK not in self._used:
            self._used.append(SPARK)
        return self._spark

    def is_small(self, entries: float = 0, size: float = 0) -> bool:
        """Return whether work runs in this process; entries, size: its estimated entries and bytes."""
        if self.choice == AUTO:
            return entries <= MOST_ENTRIES and size <= MOST_BYTES
        return self.choice == NEVER

    def work_for(self, entries: float = 0, size: float = 0) -> Work:
        """Return the function that runs the tasks of this much work."""
        if not self.is_small(entries, size):
            return python_tasks(self.spark)
        if HERE not in self._used:
            self._used.append(HERE)
        return here

    def run(
        self, tasks: Sequence[tuple[Any, ...]], show: Progress, entries: float = 0, size: float = 0
    ) -> list[Any]:
        """Run tasks of this much work; meanwhile call show(done, total) with the number of tasks."""
        work = self.work_for(entries, size)
        if work is here:
            return here(tasks, show)
        if is_connect(self.spark):
            return work(tasks)
        return watched(self.spark, show, lambda: work(tasks))

    def parallelism_for(self, entries: float = 0, size: float = 0) -> int:
        """Return the number of tasks into which to divide this much work."""
        if self.is_small(entries, size):
            return 1
        return default_parallelism(self.spark) or 1

    def stop(self) -> None:
        """Stop the session that this runner has started."""
        if self._spark is not None:
            self._spark.stop()
            self._spark = None


def _none() -> SparkSession:
    raise AssertionError("without Spark, all work is small")


def here(tasks: Sequence[tuple[Any, ...]], show: Progress = silent) -> list[Any]:
    """Run (function, arguments ...) tuples in this process, a few at a time: they mostly wait for servers and disks."""
    if len(tasks) < 2:
        return [task[0](*task[1:]) for task in tasks]
    with ThreadPoolExecutor(min(THREADS, len(tasks)), "rillet-task") as pool:
        waiting = [pool.submit(task[0], *task[1:]) for task in tasks]
        try:
            for done, _ in enumerate(as_completed(waiting), 1):
                show(done, len(tasks))
            return [one.result() for one in waiting]
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def memory_of(connections: Iterable[Connection]) -> float:
    """Return the bytes of memory that servers use: what their keys take, at most; infinite if INFO is refused."""
    found = 0.0
    for connection in connections:
        (reply,) = connection.replies([[b"INFO", b"memory"]])
        used = re.search(rb"^used_memory:(\d+)", reply, re.MULTILINE) if isinstance(reply, bytes) else None
        found += math.inf if used is None else float(used[1])
    return found


def struct_of(schema: str | StructType, runner: TaskRunner) -> StructType:
    """Return the schema that a text describes. Spark, which needs Java, parses what rillet's own parser does not."""
    if not isinstance(schema, str):
        return schema
    from pyspark.sql.pandas.types import from_arrow_schema

    from rillet.spark.spark_versions import struct_type
    from rillet.store.tables.schema_inference import schema_of

    try:
        return from_arrow_schema(schema_of(schema))
    except ValueError as error:
        if runner.choice == NEVER:
            raise OptionError(f"rillet: the schema {schema!r}: {error}") from None
    assert runner.spark is not None  # Spark's parser needs a session
    return struct_type(schema)

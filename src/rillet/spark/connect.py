"""The differences between a classic Spark session, whose driver is this process, and one over Spark Connect.

A Connect session has no `sparkContext`. The server plans and runs everything; this process only sends plans to it. So

    default_parallelism   is read from the plan of a table of numbers, which the server explains without running a job
    python_tasks          runs functions in a query (mapInArrow) instead of an RDD

rillet and its requirements must be installed for the Python of the server and of its executors.
"""

from __future__ import annotations

import io
import pickle
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_REGISTRY = "org.apache.spark.sql.execution.datasources.DataSourceManager"
Work = Callable[[Sequence[tuple[Any, ...]]], list[Any]]
"""Runs (function, arguments ...) tuples as tasks and returns their results, in order."""


def is_connect(spark: SparkSession) -> bool:
    """Return whether a session is one of Spark Connect."""
    return type(spark).__module__.startswith("pyspark.sql.connect.")


def default_parallelism(spark: SparkSession) -> int | None:
    """Return the number of tasks that Spark runs by default; None if a Connect server does not show it."""
    if not is_connect(spark):
        return spark.sparkContext.defaultParallelism
    with redirect_stdout(io.StringIO()) as plan:
        spark.range(1 << 20).explain()
    splits = re.search(r"splits=(?:Some\()?([0-9]+)", plan.getvalue())
    return int(splits[1]) if splits else None


@contextmanager
def replacing_quietly(spark: SparkSession) -> Iterator[None]:
    """Keep Spark's warning that a source was "replaced" out of the log: it has found the one in pyspark_rillet itself.

    Where the user has set a level for this logger, or Spark does not log by log4j, nothing changes.
    """
    if is_connect(spark):  # the server logs
        yield
        return
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]

    context = None
    try:
        log4j: Any = spark._jvm.org.apache.logging.log4j  # type: ignore[union-attr]
        context = log4j.LogManager.getContext(False)
        settings = context.getConfiguration()
        if not settings.getLoggers().containsKey(_REGISTRY):
            log4j.core.config.Configurator.setLevel(_REGISTRY, log4j.Level.ERROR)
        else:
            context = None
    except (Py4JError, TypeError):
        context = None
    try:
        yield
    finally:
        if context is not None:
            settings.removeLogger(_REGISTRY)
            context.updateLoggers()


def python_tasks(spark: SparkSession) -> Work:
    """Return a function that runs (function, arguments ...) tuples as Spark tasks and returns their results."""

    def classic(tasks: Sequence[tuple[Any, ...]]) -> list[Any]:
        if not tasks:
            return []
        return list(spark.sparkContext.parallelize(tasks, len(tasks)).map(lambda task: task[0](*task[1:])).collect())

    def by_query(tasks: Sequence[tuple[Any, ...]]) -> list[Any]:
        if not tasks:
            return []
        numbers = spark.range(0, len(tasks), 1, len(tasks))
        rows = numbers.mapInArrow(_runner(tasks), "number bigint, result binary").collect()
        return [pickle.loads(row["result"]) for row in sorted(rows, key=lambda row: row["number"])]

    return by_query if is_connect(spark) else classic


def _runner(tasks: Sequence[tuple[Any, ...]]) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """Return a function for mapInArrow: it runs the task of each number and returns the pickled result."""

    def run(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa

        for batch in batches:
            for number in batch.column(0).to_pylist():
                function, *arguments = tasks[number]
                result = pickle.dumps(function(*arguments))
                yield pa.RecordBatch.from_pydict({"number": [number], "result": [result]})

    return run

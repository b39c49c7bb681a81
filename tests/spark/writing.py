"""Runs a writing task without Spark: calls the writers as Spark does, with Arrow tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.pandas.types import from_arrow_schema

from rillet.spark.options import parse
from rillet.spark.sink import BatchWriter, RowsCommitted, StreamingWriter

QUERY = "5ab1e"


def table(**columns: Any) -> pa.Table:
    """Return a table of columns."""
    return pa.table(columns)


def numbered(numbers: Iterable[int]) -> pa.Table:
    """Return rows with a number and a text of some length."""
    wanted = list(numbers)
    return table(n=pa.array(wanted, pa.int64()), name=[f"row {n:06} of them all" for n in wanted])


def writer_of(rows: pa.Table, options: dict[str, str]) -> StreamingWriter:
    """Return the writer that Spark would make on its driver for a streaming query."""
    return StreamingWriter(parse(options), from_arrow_schema(rows.schema))


def batch_writer_of(rows: pa.Table, options: dict[str, str]) -> BatchWriter:
    """Return the writer that Spark would make on its driver for df.write."""
    return BatchWriter(parse(options), from_arrow_schema(rows.schema))


def in_task(partition: int = 0, batch: int = 0, query: str = QUERY) -> None:
    """Make this thread's process a task of a micro-batch."""
    context: Any = object.__new__(TaskContext)  # its arguments depend on the version of PySpark
    context._stageId = context._attemptNumber = context._taskAttemptId = 0
    context._partitionId, context._cpus, context._resources = partition, 1, {}
    context._localProperties = {"sql.streaming.queryId": query, "streaming.sql.batchId": str(batch)}
    TaskContext._setTaskContext(context)


def write(
    rows: pa.Table, options: dict[str, str], partition: int = 0, batch: int = 0, at_once: int = 100
) -> RowsCommitted:
    """Write a table as one attempt of a task; return what the task tells the driver."""
    writer = writer_of(rows, options)
    in_task(partition, batch)
    message = writer.write(iter(rows.to_batches(max_chunksize=at_once)))
    assert isinstance(message, RowsCommitted)
    return message


def interrupted(rows: pa.Table, what: Any, at_once: int = 100) -> Iterator[pa.RecordBatch]:
    """Yield a table's batches and do something between the first and the second."""
    for place, batch in enumerate(rows.to_batches(max_chunksize=at_once)):
        if place == 1:
            what()
        yield batch

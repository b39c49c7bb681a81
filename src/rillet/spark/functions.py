"""`read_batch` and `write_batch`: the readers and the writers of the data source as functions, also for Spark 3.5.

Spark 3.5 has no Python data sources. Both functions use `mapInArrow`, which it has:

    read_batch     driver: plan the tasks        executors: a row of `range` is the number of a task   -> rows
    write_batch    executors: append the rows    driver: collect what the tasks report, then commit

So a DataFrame of `read_batch` is planned when it is created: each of its jobs reads the same entries, and fails if they
were removed from the stream.

`write_batch` writes as df.write with the options txnAppId and txnVersion: each task records how many of its rows are in
the stream, in the transaction that appends them (write/commits.py). A repeated micro-batch has its earlier number.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from rillet.spark.connect import default_parallelism
from rillet.spark.errors import plainly
from rillet.spark.options import OptionError
from rillet.spark.source import RilletDataSource
from rillet.spark.spark_versions import DataSourceArrowWriter, DataSourceReader, InputPartition, struct_type
from rillet.spark.write.micro_batches import Save, saving

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


def read_batch(spark: SparkSession, *, schema: str | StructType | None = None, **options: str) -> DataFrame:
    """Return the entries of streams, or the rows of a table, that exist now. schema, options: as for `spark.read`."""
    source = RilletDataSource(options)
    source.default_parallelism = default_parallelism(spark)
    struct = struct_type(source.schema() if schema is None else schema)
    reader = source.reader(struct)
    tasks = list(reader.partitions())
    return spark.range(0, len(tasks), 1, len(tasks)).mapInArrow(_reading(reader, tasks), struct)


def _reading(reader: DataSourceReader, tasks: Sequence[InputPartition]) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """Return a function for mapInArrow that reads the tasks whose numbers are in its rows."""

    def read(numbers: Iterator[Any]) -> Iterator[Any]:
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                yield from reader.read(tasks[number])

    return read


def write_batch(name: str = "", **options: str) -> Save:
    """Return a function for `writeStream.foreachBatch` that appends each micro-batch to streams, or to a table.

    Each micro-batch is written exactly once, by its number. name: of the query; it must be unique on the server and
    stay the same after a restart. It may only be left out where a repeated batch has the same result (tables of hashes,
    for instance) or with exactlyOnce=none. options: as for `writeStream`, with `type` for tables.
    """
    source = RilletDataSource(options)
    parsed = source.parsed if source.table is None else source.table
    with plainly():
        for wrong in ("txnAppId", "txnVersion"):
            if wrong.lower() in parsed.named:
                raise OptionError(f"rillet: leave out {wrong}: write_batch takes it from the query")
        if source.table is None:
            place, adds = "stream", True
        else:
            place = f"{source.table.type} {source.table.key_prefix}"
            adds = source.table.adds
        recorded = parsed.exactly_once != "none"
        adds = adds and recorded
        if adds and not name:
            raise OptionError("rillet: write_batch needs a name for the query, because the rows are added once")
    writing = {key: value for key, value in options.items() if key.lower() != "failondataloss"}

    def save(batch: DataFrame, number: int) -> None:
        once = {"txnAppId": name, "txnVersion": str(number)} if adds else {}
        _write(batch, RilletDataSource({**writing, **once}).writer(batch.schema, False))

    return saving(parsed, f"{place} {name}", recorded, adds, save)


def _write(batch: DataFrame, writer: DataSourceArrowWriter) -> None:
    """Write a DataFrame: its tasks, then the commit on the driver; after a failure, tell the writer."""
    messages: list[Any] = []
    try:
        rows = batch.mapInArrow(_writing(writer), "message binary").collect()
        messages += [pickle.loads(row["message"]) for row in rows]
    except BaseException:
        writer.abort(messages)
        raise
    writer.commit(messages)


def _writing(writer: DataSourceArrowWriter) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """Return a function for mapInArrow that writes a task's rows and returns the pickled message of the writer."""

    def write(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa

        yield pa.RecordBatch.from_pydict({"message": [pickle.dumps(writer.write(batches))]})

    return write

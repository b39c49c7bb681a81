"""Reads tables without Spark: calls a reader as Spark does."""

from __future__ import annotations

from typing import Any

from pyspark import TaskContext
from pyspark.sql.types import BinaryType, DataType, MapType, StringType, StructType

from rillet.spark.table_options import parse_table
from rillet.spark.tables.reader import TableReader
from rillet.spark.tables.schema import default_schema
from rillet.spark.tables.writer import TableBatchWriter, TableStreamingWriter
from tests.spark.writing import in_task

NAMES = {"int": "integer", "bigint": "long", "tinyint": "byte", "smallint": "short"}
MAPS: dict[str, DataType] = {
    "map<string,string>": MapType(StringType(), StringType()), "map<string,binary>": MapType(StringType(), BinaryType())
}  # fmt: skip


def schema_of(text: str) -> StructType:
    """Return a schema from DDL, without a session."""
    fields = [part.split(None, 1) for part in _split(text)]
    schema = StructType()
    for name, kind in fields:
        schema = schema.add(name.strip("`"), MAPS.get(kind, NAMES.get(kind, kind)))
    return schema


def _split(text: str) -> list[str]:
    depth, parts, at = 0, [], 0
    for place, letter in enumerate(text):
        depth += (letter in "<(") - (letter in ">)")
        if letter == "," and depth == 0:
            parts.append(text[at:place].strip())
            at = place + 1
    return [*parts, text[at:].strip()]


def reader(parallelism: int = 2, schema: str = "", **options: str) -> TableReader:
    """Return the reader of a table."""
    parsed = parse_table(options)
    return TableReader(parsed, schema_of(schema or default_schema(parsed)), parallelism)


def rows(parallelism: int = 2, schema: str = "", **options: str) -> list[dict[str, Any]]:
    """Return all rows of a table."""
    table = reader(parallelism, schema, **options)
    return [row for part in table.partitions() for batch in table.read(part) for row in batch.to_pylist()]


def write(rows: Any, partitions: int = 1, overwrite: bool = False, streaming: bool = False, batch: int = 0,
          **options: str) -> Any:  # fmt: skip
    """Write an Arrow table as Spark would, in tasks of about equal size; return the writer."""
    from pyspark.sql.pandas.types import from_arrow_schema

    made = TableStreamingWriter if streaming else TableBatchWriter
    writer: Any = made(parse_table(options), from_arrow_schema(rows.schema), overwrite)
    size = -(-rows.num_rows // partitions)
    messages: list[Any] = []
    for partition in range(partitions):
        in_task(partition, batch)
        part = rows.slice(partition * size, size)
        try:
            messages.append(writer.write(iter(part.to_batches(max_chunksize=100))))
        finally:
            TaskContext._taskContext = None  # a Spark session may start in this process later
    if streaming:
        writer.commit(messages, batch)
    else:
        writer.commit(messages)
    return writer

"""Spark's own limit: a Python data source that yields prepared record batches.

Its cost is the Arrow stream from the Python worker to the JVM, and the JVM's work. A stream reader adds the cost of
reading. The values are ten thousand entries of the benchmark stream, repeated.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from benchmarks.spark_peers import COLUMNS

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

ROWS = 10_000
MAP = "stream string, id string, id_ms bigint, id_seq bigint, timestamp timestamp, fields map<string,string>"


class LimitReader(DataSourceReader):
    """Yields one record batch repeatedly."""

    def __init__(self, options: dict[str, str]) -> None:
        self.tasks = int(options["tasks"])
        self.entries = int(options["entries"])
        self.columns = options.get("columns", "typed")

    def partitions(self) -> list[InputPartition]:
        """Return one partition per task: its number of rows."""
        share, rest = divmod(self.entries, self.tasks)
        return [InputPartition(share + (number < rest)) for number in range(self.tasks)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield the rows of a partition."""
        batch = made(self.columns)
        left = partition.value
        while left:
            yield batch if left >= ROWS else batch.slice(0, left)
            left -= min(left, ROWS)


def made(columns: str) -> Any:
    """Return a record batch of the stream's values."""
    import pyarrow as pa

    from benchmarks.memory import entries

    rows = entries(ROWS)
    texts = {"id": [row[0].decode() for row in rows]}
    for place in range(1, 11, 2):
        texts[rows[0][place].decode()] = [row[place + 1].decode() for row in rows]
    if columns == "typed":
        arrays = [pa.array(texts[name]) for name in ("id", "device", "temperature", "humidity", "status", "session")]
        for place in (2, 3):
            arrays[place] = arrays[place].cast(pa.float64())
        names = ["id", "device", "temperature", "humidity", "status", "session"]
        return pa.RecordBatch.from_arrays(arrays, names)
    milliseconds = pa.array([int(text[:-2]) for text in texts["id"]], pa.int64())
    pairs = [[(name, texts[name][row]) for name in texts if name != "id"] for row in range(ROWS)]
    return pa.RecordBatch.from_arrays(
        [
            pa.array(["stream"] * ROWS), pa.array(texts["id"]), milliseconds, pa.array([0] * ROWS, pa.int64()),
            pa.array([int(text[:-2]) * 1000 for text in texts["id"]], pa.timestamp("us", "UTC")),
            pa.array(pairs, pa.map_(pa.string(), pa.string())),
        ],
        ["stream", "id", "id_ms", "id_seq", "timestamp", "fields"],
    )  # fmt: skip


class LimitSource(DataSource):
    """Options: entries, tasks, columns (typed or map)."""

    @classmethod
    def name(cls) -> str:
        """Return the name for format()."""
        return "rillet_limit"

    def schema(self) -> str:
        """Return the columns."""
        return COLUMNS if self.options.get("columns", "typed") == "typed" else MAP

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader."""
        return LimitReader(dict(self.options))

"""The usual ways to read a stream into Spark today: two Python data sources on redis-py, as peers.

Both page with XRANGE COUNT and split the stream into as many ID ranges as the connector. `RowSource` yields a tuple per
entry, with redis-py as pip installs it; the option hiredis=yes selects the parser in C. `ArrowSource` is the optimised
one: hiredis parses, the garbage collector is off, each page becomes a record batch, and Arrow parses the numbers.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

COLUMNS = "id string, device string, temperature double, humidity double, status string, session string"
TASKS = 2
PAGE = 2500


class _Reader(DataSourceReader):
    def __init__(self, options: dict[str, str]) -> None:
        self.port = int(options["port"])
        self.key = options["stream"]
        self.hiredis = options.get("hiredis") == "yes"

    def _client(self) -> Any:
        import redis
        from redis._parsers import _HiredisParser, _RESP2Parser

        parser = _HiredisParser if self.hiredis else _RESP2Parser
        return redis.Redis(connection_pool=redis.ConnectionPool(port=self.port, protocol=2, parser_class=parser))

    def partitions(self) -> list[InputPartition]:
        with self._client() as client:
            info = client.xinfo_stream(self.key)
        first, last = (int(info[edge][0].split(b"-")[0]) for edge in ("first-entry", "last-entry"))
        cuts = [first + (last + 1 - first) * i // TASKS for i in range(TASKS + 1)]
        return [InputPartition((cuts[i], cuts[i + 1] - 1)) for i in range(TASKS)]

    def _pages(self, partition: InputPartition) -> Iterator[list[tuple[bytes, dict[bytes, bytes]]]]:
        start, last = partition.value
        position = str(start)
        with self._client() as client:
            while True:
                page = client.xrange(self.key, position, last, count=PAGE)
                yield page
                if len(page) < PAGE:
                    return
                position = "(" + page[-1][0].decode()


class RowReader(_Reader):
    """Yields a tuple per entry."""

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        for page in self._pages(partition):
            for identifier, fields in page:
                yield (
                    identifier.decode(),
                    fields[b"device"].decode(),
                    float(fields[b"temperature"]),
                    float(fields[b"humidity"]),
                    fields[b"status"].decode(),
                    fields[b"session"].decode(),
                )


class ArrowReader(_Reader):
    """Yields a record batch per page."""

    def read(self, partition: InputPartition) -> Iterator[Any]:
        import pyarrow as pa

        gc.disable()
        try:
            for page in self._pages(partition):
                if page:
                    columns = {"id": pa.array([entry[0] for entry in page], pa.binary()).cast(pa.string())}
                    for name in ("device", "temperature", "humidity", "status", "session"):
                        key = name.encode()
                        texts = pa.array([entry[1][key] for entry in page], pa.binary()).cast(pa.string())
                        number = name in ("temperature", "humidity")
                        columns[name] = texts.cast(pa.float64()) if number else texts
                    yield pa.RecordBatch.from_pydict(columns)
        finally:
            gc.enable()


class RowSource(DataSource):
    """The data source that yields rows."""

    @classmethod
    def name(cls) -> str:
        return "redis_rows"

    def schema(self) -> str:
        return COLUMNS

    def reader(self, schema: StructType) -> DataSourceReader:
        return RowReader(dict(self.options))


class ArrowSource(RowSource):
    """The data source that yields pages as Arrow."""

    @classmethod
    def name(cls) -> str:
        return "redis_arrow"

    def reader(self, schema: StructType) -> DataSourceReader:
        return ArrowReader(dict(self.options))

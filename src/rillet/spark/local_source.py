"""A data source whose class is made where it is used: it is pickled by value, so executors need no registration."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


def data_source(
    format: str, columns: StructType, parts: Sequence[Any], read: Callable[[Any], Iterable[Any]]
) -> type[Any]:
    """Return the class of a data source with these columns; read(part), in a task, yields the rows of one of the parts.

    Spark pickles `parts`, each for its task, and `read`.
    """
    from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

    class LocalReader(DataSourceReader):
        def partitions(self) -> list[InputPartition]:
            return list(map(InputPartition, parts))

        def read(self, partition: InputPartition) -> Iterator[Any]:
            yield from read(partition.value)

    class LocalSource(DataSource):
        @classmethod
        def name(cls) -> str:
            return format

        def schema(self) -> StructType:
            return columns

        def reader(self, schema: StructType) -> DataSourceReader:
            return LocalReader()

    return LocalSource

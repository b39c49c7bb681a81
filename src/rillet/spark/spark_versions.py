"""What differs between the versions of PySpark. docs/spark-versions.md has the table for users.

    4.2, 4.3   the interface that this package is written for
    4.0, 4.1   no ReadLimit and no SupportsTriggerAvailableNow: Spark calls `latestOffset()` without arguments, so the
               reader supplies both (`EarlierCalls`); `to_arrow_schema` has no `timezone`: it is always UTC
    4.0        no DataSourceStreamArrowWriter: Spark passes Arrow batches to each DataSourceArrowWriter, also to that of
               a streaming query. No filter push-down: Spark never calls `pushFilters`. A source that Spark found in
               the package pyspark_rillet cannot be replaced
    3.5        no Python data sources: the base classes are empty here, and functions.py uses the readers and writers

**Where the next batch begins before 4.2.** Spark calls `latestOffset` after the batch before has ended, so the reader's
own last offset is the start, or after a restart the `end` of the last `partitions` call. After a restart, Spark calls
`partitions(last, last)` with the last offset of its log before anything else, and repeats that batch if it is not
committed. So `EarlierCalls.sure` is false after this call: the entries before `start` need not be in the sink yet. A
group is only moved up to an offset that is sure.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyspark

from rillet.errors import RilletError

HAS_SOURCES = int(pyspark.__version__.partition(".")[0]) >= 4
"""Whether this PySpark has Python data sources."""

if TYPE_CHECKING or HAS_SOURCES:
    from pyspark.sql.datasource import (
        DataSource,
        DataSourceArrowWriter,
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        InputPartition,
        WriterCommitMessage,
    )
    from pyspark.sql.types import StructType, VariantType
else:
    from pyspark.sql.types import StructType

    class DataSource:
        """The base class of sources."""

        def __init__(self, options: MutableMapping[str, str]) -> None:
            self.options = options

    class InputPartition:
        """The base class of a task of a reader."""

        def __init__(self, value: Any) -> None:
            self.value = value

    class DataSourceReader:
        """The base class of batch readers."""

    class DataSourceStreamReader:
        """The base class of streaming readers."""

    class DataSourceArrowWriter:
        """The base class of batch writers."""

    class DataSourceStreamWriter:
        """The base class of streaming writers."""

    class WriterCommitMessage:
        """The base class of what a write task sends to the driver."""

    class VariantType:
        """A type that Spark 3.5 does not have."""


if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import DataSourceStreamArrowWriter
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxRows,
        ReadMinRows,
        SupportsTriggerAvailableNow,
    )
else:
    try:
        from pyspark.sql.datasource import DataSourceStreamArrowWriter
    except ImportError:

        class DataSourceStreamArrowWriter(DataSourceStreamWriter, DataSourceArrowWriter):
            """A writer of a streaming query that receives Arrow batches; Spark 4.0 recognizes the second base class."""

    try:
        from pyspark.sql.streaming.datasource import (
            ReadAllAvailable,
            ReadLimit,
            ReadMaxRows,
            ReadMinRows,
            SupportsTriggerAvailableNow,
        )
    except ImportError:

        class ReadLimit:
            """The base class of limits of a micro-batch."""

        @dataclass
        class ReadAllAvailable(ReadLimit):
            """No limit."""

        @dataclass
        class ReadMinRows(ReadLimit):
            """At least so many rows."""

            min_rows: int

        @dataclass
        class ReadMaxRows(ReadLimit):
            """At most so many rows."""

            max_rows: int

        class SupportsTriggerAvailableNow:
            """A mark without effect: Spark calls `latestOffset` once, so an available-now query has one batch."""


HAS_READ_LIMITS = ReadLimit.__module__.startswith("pyspark.")
"""Whether Spark passes the start and the limit of a batch to `latestOffset`."""


class SparkTooOld(RilletError):
    """The installed PySpark has no Python data sources."""


def require_sources() -> None:
    """Raise SparkTooOld if this PySpark has no Python data sources."""
    if not HAS_SOURCES:
        raise SparkTooOld(
            f"rillet: format('rillet') needs PySpark 4.0 or newer, and this is {pyspark.__version__}: use "
            "rillet.spark.read_batch and rillet.spark.write_batch"
        )


@dataclass
class EarlierCalls:
    """The start of the next micro-batch of a reader that Spark before 4.2 calls without it."""

    start: dict[str, Any] | None = None  # None before the first call
    sure: bool = True  # whether all entries before `start` are in the sink

    def planned(self, start: dict[str, Any], end: dict[str, Any]) -> None:
        """Note a call of `partitions`."""
        if start != end or end != self.start:
            self.start, self.sure = end, start != end

    def returned(self, end: dict[str, Any]) -> None:
        """Note an offset that `latestOffset` has returned."""
        if end != self.start:
            self.start, self.sure = end, True


def register_again(spark: SparkSession, source: type[DataSource]) -> None:
    """Register a source, which replaces that of the package pyspark_rillet from Spark 4.1 on; in 4.0 that one stays."""
    from pyspark.errors import AnalysisException

    try:
        spark.dataSource.register(source)
    except AnalysisException as error:
        if "DATA_SOURCE_ALREADY_EXISTS" not in str(error):
            raise


def arrow_schema(schema: StructType) -> Any:
    """Return the Arrow schema of rows that Spark receives: times in UTC. Raise PySparkTypeError for other types."""
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(schema, timezone="UTC") if HAS_READ_LIMITS else to_arrow_schema(schema)


def struct_type(schema: str | StructType) -> StructType:
    """Return the schema that a text such as "id string, n long" describes. Before Spark 4.0 this needs a session."""
    from pyspark.sql import types

    if not isinstance(schema, str):
        return schema
    made = StructType.fromDDL(schema) if hasattr(StructType, "fromDDL") else types._parse_datatype_string(schema)
    assert isinstance(made, StructType)
    return made


__all__ = [
    "HAS_READ_LIMITS", "HAS_SOURCES", "DataSource", "DataSourceArrowWriter", "DataSourceReader",
    "DataSourceStreamArrowWriter", "DataSourceStreamReader", "EarlierCalls", "InputPartition", "ReadAllAvailable",
    "ReadLimit", "ReadMaxRows", "ReadMinRows", "SparkTooOld", "SupportsTriggerAvailableNow", "VariantType",
    "WriterCommitMessage", "arrow_schema", "register_again", "require_sources",
    "struct_type",
]  # fmt: skip

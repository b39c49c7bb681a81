"""The data source: what Spark calls, on the driver to plan and on the executors to read.

Spark pickles these objects and sends them around, so they hold options and a schema, never a connection.

    driver      RilletDataSource(options) -> reader(schema) -> partitions()
    executors   reader.read(partition) -> record batches

The streaming reader's offset is JSON, {"<stream>": "<last ID read>"}, in Spark's checkpoint. Two members may join it:

    "initial": true    in the offset that a new query starts from
    "from": "<ID>"     in the end of a query's first batch: where that batch starts

Spark does not write down where a query started before its first batch is committed: after a crash it asks
`initialOffset` anew, when "latest" has become another ID, and runs the batch that it had already planned.
Thanks to "from" that batch is the same entries again.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from rillet.spark.connection import Address, Connection, ConnectionLost, ConnectorError, endpoint, require_store
from rillet.spark.offsets import Range, split
from rillet.spark.options import BATCH_ONLY, FOLLOW_ONLY, WRITE_ONLY, OptionError, Options, parse
from rillet.spark.reading import Extent, extent, probe, read_range, skip_ahead, wait_for_entry
from rillet.types.stream_id import StreamID

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter
    from pyspark.sql.types import StructType

DEFAULT_SCHEMA = "stream string, id string, id_ms bigint, id_seq bigint, timestamp timestamp, fields map<string,string>"


class RilletDataSource(DataSource):
    """Redis Streams, as a source and as a sink, batch and streaming.

    Options: `url` or `path`, and `stream`; all of them are in docs/spark.md.

    >>> events = spark.read.format("rillet").option("url", "redis://localhost").option("stream", "events").load()
    >>> typed = spark.readStream.format("rillet").schema("id string, delay double")  # and the same options
    """

    default_parallelism: int | None = None

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self.parsed = parse(options)
        if self.parsed.url is not None:
            Address.parse(self.parsed.url)  # a malformed url is told now, not by a task

    @classmethod
    def name(cls) -> str:
        """Return what format() takes."""
        return "rillet"

    def schema(self) -> str:
        """Return the columns that a reader without a schema of its own gets."""
        return DEFAULT_SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the batch reader."""
        return BatchReader(self.parsed, schema, self._parallelism())

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return the streaming reader."""
        return StreamReader(self.parsed, schema, self._parallelism())

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """Return the batch writer; there is only append."""
        from rillet.spark.sink import BatchWriter

        if overwrite:
            raise OptionError("rillet: a stream is appended to: use mode('append')")
        return BatchWriter(self.parsed, schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        """Return the streaming writer; there is only append."""
        from rillet.spark.sink import StreamWriter

        if overwrite:
            raise OptionError("rillet: a stream is appended to: use outputMode('append')")
        return StreamWriter(self.parsed, schema)

    def _parallelism(self) -> int:
        import os

        return self.default_parallelism or os.cpu_count() or 1


def register(spark: SparkSession) -> None:
    """Make format("rillet") known to a session, with the session's default parallelism for `minPartitions`."""
    # A class made here is pickled with its attributes; one that is imported would be pickled by name, without.
    parallelism = {"default_parallelism": spark.sparkContext.defaultParallelism}
    spark.dataSource.register(type("RilletDataSource", (RilletDataSource,), parallelism))


class RangePartition(InputPartition):
    """One task's share of a stream."""

    def __init__(self, part: Range | None) -> None:
        super().__init__(None)
        self.part = part


class _Reading:
    """What both readers share: options, columns, planning and reading."""

    def __init__(self, options: Options, schema: StructType, parallelism: int) -> None:
        from pyspark.sql.pandas.types import to_arrow_schema

        from rillet.columns.arrow import rows_for

        options.refuse(WRITE_ONLY, "reading")
        self.options = options
        self.parallelism = options.min_partitions or parallelism
        self.arrow_schema: Any = to_arrow_schema(schema, timezone="UTC")
        try:
            rows_for(self.arrow_schema, b"")
        except ValueError as error:
            raise OptionError(f"rillet: the schema does not fit a stream: {error}") from None
        require_store(options)

    def connect(self) -> Connection:
        """Return a new connection to the server."""
        return Connection(endpoint(self.options), self.options.timeout)

    def shares(self, connection: Connection, known: Extent, whole: Range) -> list[InputPartition]:
        """Cut a range for the tasks."""
        if known.first is None or whole.last < known.first:
            return []
        low = max(whole.after, StreamID(0, 0))
        start = _just_before(known.first)
        whole = Range(max(low, start), whole.last)
        asking = None if known.large else lambda starts: probe(connection, self.options.stream, starts)
        exactly = self.options.min_partitions is not None
        expected = known.length if whole == Range(start, known.last) else None
        return [RangePartition(part) for part in split(whole, self.parallelism, asking, exactly, expected)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield the record batches of a partition."""
        part = getattr(partition, "part", None)
        if part is not None:
            yield from read_range(self.options, part, self.arrow_schema)


def _just_before(first: StreamID) -> StreamID:
    from rillet.spark.options import EARLIEST, before

    return before(first) if first > EARLIEST else first


class BatchReader(_Reading, DataSourceReader):
    """Reads the range that the options name, as it is when the query is planned."""

    def __init__(self, options: Options, schema: StructType, parallelism: int) -> None:
        options.refuse(FOLLOW_ONLY, "a batch read")
        super().__init__(options, schema, parallelism)

    def partitions(self) -> list[InputPartition]:
        """Return the tasks' ranges, none of which moves when entries arrive later."""
        with self.connect() as connection:
            known = extent(connection, self.options.stream)
            start = self.options.start_of(self.options.stream)
            end = self.options.end_of(self.options.stream)
            after = known.last if start is None else start
            last = known.last if end is None else min(end, known.last)
            return self.shares(connection, known, Range(after, last)) or [RangePartition(None)]


class StreamReader(_Reading, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows a stream: each micro-batch is the range from the last offset to the newest ID, or to the cap."""

    def __init__(self, options: Options, schema: StructType, parallelism: int) -> None:
        options.refuse(BATCH_ONLY, "a streaming read")
        super().__init__(options, schema, parallelism)
        self._initial: dict[str, Any] | None = None
        self._target: StreamID | None = None  # of an available-now query
        self._kept: Connection | None = None

    def _connection(self) -> Connection:
        """Return the planner's connection, which lives as long as the query."""
        if self._kept is None:
            self._kept = self.connect()
        return self._kept

    def _extent(self) -> Extent:
        """Ask for the stream's ends, over a new connection if the old one was lost."""
        try:
            return extent(self._connection(), self.options.stream)
        except ConnectionLost:
            self.stop()
            return extent(self._connection(), self.options.stream)

    def _id(self, offset: dict[str, Any]) -> StreamID:
        """Return the ID that an offset holds for our stream."""
        text = offset.get(self.options.stream)
        if text is None:
            others = ", ".join(repr(name) for name in offset if name not in ("initial", "from"))
            raise ConnectorError(
                f"rillet: the checkpoint belongs to the stream {others}, the query reads {self.options.stream!r}"
            )
        return StreamID.parse(str(text))

    def initialOffset(self) -> dict[str, Any]:
        """Return where a new query starts; "latest" is asked for once."""
        if self._initial is None:
            start = self.options.start_of(self.options.stream)
            known = self._extent()
            self._initial = {self.options.stream: str(known.last if start is None else start), "initial": True}
        return self._initial

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the cap of a micro-batch."""
        cap = self.options.max_entries_per_trigger
        return ReadAllAvailable() if cap is None else ReadMaxRows(cap)

    def prepareForTriggerAvailableNow(self) -> None:
        """Fix the last ID that this query reads."""
        self._target = self._extent().last

    def reportLatestOffset(self) -> dict[str, Any]:
        """Return the newest offset there is, for the query's progress."""
        return {self.options.stream: str(self._extent().last)}

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return the end of the next micro-batch; `start` itself when there is nothing new."""
        after = self._id(start)
        newest = self._extent().last
        if newest == after and self._target is None:
            wait_for_entry(self._connection(), self.options.stream, after)
            newest = self._extent().last
        if newest < after:
            raise ConnectorError(
                f"rillet: the stream {self.options.stream!r} at {self._connection().address} ends at {newest}, "
                f"before the offset {after} of the checkpoint: it was deleted and made anew, or its server lost data"
            )
        if self._target is not None:
            newest = max(after, min(newest, self._target))
        if isinstance(limit, ReadMaxRows):
            newest = skip_ahead(self._connection(), self.options, after, newest, limit.max_rows)
        if newest == after:
            return start
        end = {self.options.stream: str(newest)}
        if start.get("initial"):
            end["from"] = str(after)
        return end

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Return the tasks' ranges of a micro-batch."""
        after = StreamID.parse(end["from"]) if "from" in end else self._id(start)
        last = self._id(end)
        if last <= after:
            return []
        return self.shares(self._connection(), self._extent(), Range(after, last))

    def commit(self, end: dict[str, Any]) -> None:
        """Do nothing: Spark's checkpoint is the only place where the offset lives."""

    def stop(self) -> None:
        """Close the planner's connection."""
        if self._kept is not None:
            self._kept.close()
            self._kept = None

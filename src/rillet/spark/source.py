"""The data source: what Spark calls, on the driver to plan and on the executors to read.

Spark pickles these objects and sends them around, so they hold options and a schema, never a connection.

    driver      RilletDataSource(options) -> reader(schema) -> partitions()
    executors   reader.read(partition) -> record batches

Spark's calls of a streaming reader, and what happens in each:

    initialOffset()             where a new query starts; "latest" is settled here, once
    latestOffset(start)         everything up to `start` is in the sink. The batch that comes next is planned as a
                                whole, tasks and all, and stored in the offset (offsets.py says why)
    partitions(start, end)      the tasks, out of `end`
    commit(end)                 nothing: it comes a batch late, and never for the last one of an available-now query

A planner holds connections and asks for the streams again before each batch; following.py says what it does while a
server is away.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping, Sequence, Set
from typing import TYPE_CHECKING, Any, NoReturn

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from rillet.client.address import Address
from rillet.client.servers import Servers
from rillet.errors import RilletError
from rillet.spark.errors import plainly
from rillet.spark.groups.delivered_reader import read_delivered
from rillet.spark.groups.group_delivery import GroupDelivery
from rillet.spark.option_types import EARLIEST, before
from rillet.spark.options import BATCH_ONLY, FOLLOW_ONLY, WRITE_ONLY, OptionError, Options, parse
from rillet.spark.read.data_loss import Place
from rillet.spark.read.filters import EVERYTHING, SWITCH, Pushed
from rillet.spark.read.metadata import require_streams, selected_streams
from rillet.spark.read.micro_batch import MicroBatchReader
from rillet.spark.read.offsets import Offset, Task
from rillet.spark.read.page_reader import read_task
from rillet.spark.read.planner import Planner, ranges_between
from rillet.spark.read.stream_info import StreamInfo, stream_infos
from rillet.spark.server_address import require_store
from rillet.types.stream.id import StreamID

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, Filter
    from pyspark.sql.types import StructType

    from rillet.spark.read.history import HistoryTask

DEFAULT_SCHEMA = "stream string, id string, id_ms bigint, id_seq bigint, timestamp timestamp, fields map<string,string>"


class RilletDataSource(DataSource):
    """Redis Streams, as a source and as a sink, batch and streaming.

    Options: `url` or `path`, and `stream`; all of them are in docs/spark.md.

    >>> events = spark.read.format("rillet").option("url", "redis://localhost").option("stream", "events").load()
    >>> typed = spark.readStream.format("rillet").schema("id string, delay double")  # and the same options
    """

    default_parallelism: int | None = None
    pushes_filters = False  # whether the session lets Python sources have filters

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        with plainly():
            self.parsed = parse(options)
            if self.parsed.url is not None:
                Address.parse(self.parsed.url)  # a malformed url is told now, not by a task

    @classmethod
    def name(cls) -> str:
        """Return what format() takes."""
        return "rillet"

    def schema(self) -> StructType | str:
        """Return the columns that a reader without a schema of its own gets."""
        if self.parsed.infer_schema:
            from rillet.spark.read.schema_inference import infer

            with plainly():
                require_store(self.parsed)
                return infer(self.parsed)
        return DEFAULT_SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the batch reader, one that takes filters where Spark allows it and the options do not forbid it."""
        with plainly():
            made = FilteringReader if self.pushes_filters and self.parsed.push_filters else BatchReader
            return made(self.parsed, schema, self._parallelism())

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return the streaming reader; where there can be none, one that says why as soon as it is asked."""
        try:
            return StreamReader(self.parsed, schema, self._parallelism())
        except RilletError as error:
            return RefusedReader(error)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """Return the batch writer; there is only append."""
        from rillet.spark.sink import BatchWriter

        if overwrite:
            with plainly():
                raise OptionError("rillet: a stream is appended to: use mode('append')")
        return BatchWriter(self.parsed, schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        """Return the streaming writer; there is only append."""
        from rillet.spark.sink import StreamWriter

        if overwrite:
            with plainly():
                raise OptionError("rillet: a stream is appended to: use outputMode('append')")
        return StreamWriter(self.parsed, schema)

    def _parallelism(self) -> int:
        import os

        return self.default_parallelism or os.cpu_count() or 1


def register(spark: SparkSession) -> None:
    """Make format("rillet") known to a session, with its default parallelism, and let it push filters down."""
    # A class made here is pickled with its attributes; one that is imported would be pickled by name, without.
    from rillet.spark.packaging import found_on_driver

    spark.conf.set(SWITCH, "true")
    settings = {"default_parallelism": spark.sparkContext.defaultParallelism, "pushes_filters": True}
    with found_on_driver(spark):
        spark.dataSource.register(type("RilletDataSource", (RilletDataSource,), settings))


class RangePartition(InputPartition):
    """One task's share: ranges of streams, to be read one after the other."""

    def __init__(
        self, ranges: Task, guarded: bool = False, since: Mapping[str, Place] | None = None,
        unread: Set[str] = frozenset(),
    ) -> None:  # fmt: skip
        """guarded: that what was planned is gone before it is read is an error, if losses are, but in `unread` streams.

        since: where the batch's streams were read up to, as far as counters are known there.
        """
        super().__init__(None)
        self.ranges = ranges
        self.guarded = guarded
        self.since = {stream: since[stream] for stream, _, _ in ranges if stream in since} if since else {}
        self.unread = frozenset(stream for stream, _, _ in ranges if stream in unread)


class HistoryPartition(InputPartition):
    """One task's share of an archive and of the streams beyond it."""

    def __init__(self, task: HistoryTask) -> None:
        super().__init__(None)
        self.task = task


class _Reading:
    """What both readers share: options, columns and reading."""

    def __init__(self, options: Options, schema: StructType, parallelism: int) -> None:
        from pyspark.errors import PySparkTypeError
        from pyspark.sql.pandas.types import to_arrow_schema

        from rillet.columns.arrow_batch import rows_for
        from rillet.spark.column_types import refused

        options.refuse(WRITE_ONLY, "reading")
        options.require_stream()
        self.options = options
        self.parallelism = parallelism
        if wrong := refused(schema):
            raise OptionError(f"rillet: the schema does not fit a stream: {'; '.join(wrong)}")
        try:
            self.arrow_schema: Any = to_arrow_schema(schema, timezone="UTC")
            rows_for(self.arrow_schema, b"", options.mode, options.corrupt_column)
        except (ValueError, PySparkTypeError) as error:
            raise OptionError(f"rillet: the schema does not fit a stream: {error}") from None
        require_store(options)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield the record batches of a partition."""
        with plainly():
            if isinstance(partition, HistoryPartition):
                from rillet.spark.read.history import read as read_history

                yield from read_history(self.options, partition.task, self.arrow_schema)
                return
            ranges: Task = getattr(partition, "ranges", ())
            if self.options.group is not None and self.options.group_mode == "deliver":
                yield from read_delivered(self.options, ranges, self.arrow_schema)
            else:
                guarded = getattr(partition, "guarded", False) and self.options.fail_on_data_loss
                since = getattr(partition, "since", {}) if guarded else None
                unread: Set[str] = getattr(partition, "unread", frozenset())
                yield from read_task(self.options, ranges, self.arrow_schema, since, unread)


class BatchReader(_Reading, DataSourceReader):
    """Reads the ranges that the options name, as they are when the query is planned."""

    def __init__(self, options: Options, schema: StructType, parallelism: int) -> None:
        options.refuse(FOLLOW_ONLY, "a batch read")
        super().__init__(options, schema, parallelism)

    def partitions(self) -> list[InputPartition]:
        """Return the tasks' ranges, none of which moves when entries arrive later."""
        if self.options.archive is not None:
            from rillet.spark.read.history import plan

            with plainly():
                return [HistoryPartition(task) for task in plan(self)] or [RangePartition(())]
        guarded = "failondataloss" in self.options.named  # a stream that is being trimmed is read as far as it goes
        with plainly(), Servers(self.options) as servers:
            streams = [stream for stream in selected_streams(self.options, servers) if self.keeps(stream)]
            known = stream_infos(servers, streams)
            require_streams(self.options, servers, known)
            planner = Planner(self.options, servers, self.parallelism, hurried=False)
            batch = planner.cut(planner.measure(ranges_between(known, self.bounds(known))), None)
        # Of what is counted as removed now nothing is missed: what is there is all that was planned.
        since = {
            stream: Place(EARLIEST, facts.added - facts.length)
            for stream, facts in known.items()
            if facts is not None and facts.added is not None
        }
        return [RangePartition(task, guarded, since) for task in self.clip(batch.tasks) or ((),)]

    def keeps(self, stream: str) -> bool:
        """Return whether a stream is read at all."""
        return True

    def clip(self, tasks: Sequence[Task]) -> Sequence[Task]:
        """Leave out of the tasks what need not be read."""
        return tasks

    def bounds(self, streams: Mapping[str, StreamInfo | None]) -> dict[str, tuple[StreamID, StreamID]]:
        """Return where to read each stream from and to."""
        ranges = {}
        for stream, info in streams.items():
            if info is not None:
                start, end = self.options.start_of(stream), self.options.end_of(stream)
                ranges[stream] = (info.last if start is None else start, info.last if end is None else end)
        return ranges


class FilteringReader(BatchReader):
    """A batch reader that asks only for what the query's filters leave; Spark refuses its method where that is off."""

    def __init__(self, options: Options, schema: StructType, parallelism: int) -> None:
        super().__init__(options, schema, parallelism)
        self.pushed = Pushed.on(schema)

    def pushFilters(self, filters: list[Filter]) -> list[Filter]:
        """Take filters on IDs, times and streams; return those that Spark has to look at."""
        left = self.pushed.push(filters)
        return filters if self.options.archive is not None else left  # files are pruned by them, not cut

    def keeps(self, stream: str) -> bool:
        """Return whether the filters want anything of a stream."""
        return self.pushed.keeps(stream)

    def clip(self, tasks: Sequence[Task]) -> Sequence[Task]:
        """Cut the tasks' ranges to what the filters leave of them."""
        return [task for task in map(self.pushed.clip, tasks) if task]

    def bounds(self, streams: Mapping[str, StreamInfo | None]) -> dict[str, tuple[StreamID, StreamID]]:
        """Return where to read each stream from and to, narrowed by the filters."""
        ranges = super().bounds(streams)
        if self.pushed.ids == EVERYTHING:
            return ranges
        for stream, (after, last) in ranges.items():
            info = streams[stream]
            assert info is not None
            if info.first is not None and info.first > max(after, EARLIEST):
                after = before(info.first)
            ranges[stream] = self.pushed.bounds(after, last)
        return ranges


class StreamReader(_Reading, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows streams: each micro-batch is what came after the last offset, or as much of it as the cap allows."""

    def __init__(self, options: Options, schema: StructType, parallelism: int) -> None:
        options.refuse(BATCH_ONLY, "a streaming read")
        super().__init__(options, schema, parallelism)
        self._follower: MicroBatchReader | None = None

    @property
    def follower(self) -> MicroBatchReader:
        """Return what plans this query's batches; it holds connections, so it is made on the driver, when needed."""
        if self._follower is None:
            delivers = self.options.group is not None and self.options.group_mode == "deliver"
            self._follower = (GroupDelivery if delivers else MicroBatchReader)(self.options, self.parallelism)
        return self._follower

    def initialOffset(self) -> dict[str, Any]:
        """Return where a new query starts; "latest" is asked for once."""
        with plainly():
            return self.follower.initial().json()

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the cap of a micro-batch, or how many entries it waits for."""
        if self.options.max_entries_per_trigger is not None:
            return ReadMaxRows(self.options.max_entries_per_trigger)
        if self.options.min_entries_per_trigger is not None:
            return ReadMinRows(self.options.min_entries_per_trigger)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        """Fix the last IDs that this query reads."""
        with plainly():
            self.follower.fix_targets()

    def reportLatestOffset(self) -> dict[str, Any]:
        """Return what the query's progress shows: the newest offset, and how far behind it the query is."""
        with plainly():
            return self.follower.report()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return the end of the next micro-batch, its plan in it; `start` itself when there is nothing to do."""
        least, cap = None, None
        if isinstance(limit, ReadMaxRows):
            least, cap = self.options.min_entries_per_trigger, limit.max_rows
        elif isinstance(limit, ReadMinRows):
            least = limit.min_rows
        with plainly():
            end = self.follower.next(Offset.parse(start), least, cap)
        return start if end is None else end.json()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Return the tasks' ranges of a micro-batch."""
        if start == end:
            return []
        with plainly():
            begin = Offset.parse(start)
            # Of a stream's first batch nothing is promised: it begins where the stream is being trimmed, often.
            guarded = not begin.initial and not isinstance(self.follower, GroupDelivery)
            since = {name: Place(begin.streams[name], count) for name, count in begin.added.items()}
            tasks = self.follower.tasks(begin, Offset.parse(end))
            return [RangePartition(task, guarded, since, begin.unread) for task in tasks]

    def commit(self, end: dict[str, Any]) -> None:
        """Do nothing: Spark's checkpoint is the only place where the offset lives."""

    def stop(self) -> None:
        """Close the planner's connections."""
        if self._follower is not None:
            self._follower.close()


class RefusedReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Stands for a streaming reader that could not be made.

    An error while Spark's worker makes a streaming reader is replaced by one of the worker's own about a variable that
    it has not set; an error of a reader's method is told.
    """

    def __init__(self, error: RilletError) -> None:
        self.error = error

    def _tell(self) -> NoReturn:
        with plainly():
            raise self.error

    def initialOffset(self) -> dict[str, Any]:
        """Say what is wrong, as everything here does."""
        self._tell()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Say what is wrong."""
        self._tell()

    def getDefaultReadLimit(self) -> ReadLimit:
        """Say what is wrong."""
        self._tell()

    def prepareForTriggerAvailableNow(self) -> None:
        """Say what is wrong."""
        self._tell()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Say what is wrong."""
        self._tell()

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Say what is wrong."""
        self._tell()

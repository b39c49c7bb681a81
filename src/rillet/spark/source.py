"""The Spark data source: Spark calls the classes of this module on the driver to plan and on executors to read.

Spark pickles these objects and sends them to other processes, so they contain options and a schema, never a connection.

    driver      RilletDataSource(options) -> reader(schema) -> partitions()
    executors   reader.read(partition) -> record batches

Spark's calls of a streaming reader, in order:

    initialOffset()             returns the start of a new query; "latest" becomes an ID here, once
    latestOffset(start)         called when the sink has all entries up to `start`. Plans the next batch with its tasks
                                and returns the plan in the offset (read/offsets.py explains why)
    partitions(start, end)      returns the tasks that `end` contains
    commit(end)                 does nothing: Spark calls it one batch late, and never for the last batch of an
                                available-now query

The planner on the driver holds connections and reads the state of the streams before each batch. read/micro_batch.py
describes its behaviour while a server is unavailable.
"""

from __future__ import annotations

import os
import sys
import uuid
from collections.abc import Iterator, Mapping, MutableMapping, Set
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext

from rillet.client.address import Address
from rillet.client.errors import ConnectionLost
from rillet.client.servers import Servers
from rillet.errors import RilletError
from rillet.spark.connect import default_parallelism, replacing_quietly
from rillet.spark.errors import plainly
from rillet.spark.failed_reader import FailedReader
from rillet.spark.groups.delivered_reader import read_delivered
from rillet.spark.groups.group_delivery import GroupDelivery
from rillet.spark.option_types import EARLIEST, before
from rillet.spark.options import (
    BATCH_ONLY,
    FOLLOW_ONLY,
    NO_TABLE,
    WRITE_ONLY,
    OptionError,
    Options,
    is_catalog_table,
    parse,
)
from rillet.spark.read.data_loss import Place
from rillet.spark.read.filters import EVERYTHING, SWITCH, Pushed
from rillet.spark.read.metadata import require_streams, selected_streams
from rillet.spark.read.micro_batch import MicroBatchReader
from rillet.spark.read.offsets import Offset, Task
from rillet.spark.read.page_reader import read_task
from rillet.spark.read.planned_store import PlannedStore, planned_store
from rillet.spark.read.range_planner import Planner, ranges_between
from rillet.spark.read.stream_info import StreamInfo, stream_infos
from rillet.spark.read.unknown_fields import check_fields
from rillet.spark.server_address import require_store
from rillet.spark.spark_versions import (
    HAS_READ_LIMITS,
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    EarlierCalls,
    InputPartition,
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
    arrow_schema,
    register_again,
    require_sources,
)
from rillet.spark.table_options import TableOptions, parse_table, require_type, table_type
from rillet.spark.tables.reader import TableReader, infer_table
from rillet.spark.tables.schema import default_schema
from rillet.spark.worker_socket import InTask
from rillet.spark.write.ordered import mark_rows_in_order
from rillet.types.stream.id import StreamID

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, Filter
    from pyspark.sql.types import StructType

    from rillet.spark.payload.columns import PayloadColumns
    from rillet.spark.read.bad_records import TaskName
    from rillet.spark.read.history import HistoryTask

DEFAULT_SCHEMA = "stream string, id string, id_ms bigint, id_seq bigint, timestamp timestamp, fields map<string,string>"


class RilletDataSource(DataSource):
    """Redis Streams as a source and as a sink, batch and streaming.

    Options: `url` or `path`, and `stream`; docs/spark.md lists all of them.

    >>> events = spark.read.format("rillet").option("url", "redis://localhost").option("stream", "events").load()
    >>> typed = spark.readStream.format("rillet").schema("id string, delay double")  # and the same options
    """

    default_parallelism: int | None = None
    pushes_filters = False  # whether the Spark session supports filter push-down for Python data sources

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        with plainly():
            if is_catalog_table(options):
                raise OptionError(f"rillet: {NO_TABLE}")
            self.table = None if table_type(options) is None else parse_table(options)
            if self.table is not None:
                return
            require_type(options)
            self.parsed = parse(options)
            if self.parsed.url is not None:
                Address.parse(self.parsed.url)  # raises the error for a malformed url before a task starts

    @classmethod
    def name(cls) -> str:
        """Return the name that users pass to format()."""
        return "rillet"

    def schema(self) -> StructType | str:
        """Return the schema of a DataFrame for which the user gave no schema."""
        if self.table is not None:
            return self._table_schema(self.table)
        if self.parsed.infer_schema:
            from rillet.spark.read.schema_inference import infer

            with plainly():
                require_store(self.parsed.path)
                return infer(self.parsed)
        if self.parsed.payload is not None:
            from rillet.spark.payload.columns import payload_fields
            from rillet.spark.read.schema_inference import beside_own_columns, selects_several

            with plainly():
                fields, several = payload_fields(self.parsed), selects_several(self.parsed)
                if isinstance(fields, str):
                    return f"{'stream string, ' * several}id string, timestamp timestamp, {fields}"
                return beside_own_columns(fields, several, "payload")
        return DEFAULT_SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the batch reader; it supports filter push-down if the session and the options allow it."""
        with plainly():
            if self.table is not None:
                return TableReader(self.table, schema, self._parallelism())
            made = FilteringReader if self.pushes_filters and self.parsed.push_filters else BatchReader
            return made(self.parsed, schema, self._parallelism())

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return the streaming reader; if its creation fails, return a reader that raises the error when called."""
        try:
            if self.table is not None:
                problem = f"only streams can be read by a streaming query, not the type {self.table.type}"
                raise OptionError(f"rillet: {problem}")
            return StreamingReader(self.parsed, schema, self._parallelism())
        except RilletError as error:
            return FailedReader(error)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """Return the batch writer; for streams, only append is supported."""
        from rillet.spark.sink import BatchWriter

        if self.table is not None:
            from rillet.spark.tables.writer import TableBatchWriter

            with plainly():
                return TableBatchWriter(self.table, schema, overwrite)

        if overwrite:
            with plainly():
                raise OptionError("rillet: a stream can only be appended to: use mode('append')")
        return BatchWriter(self.parsed, schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        """Return the streaming writer; only append is supported."""
        from rillet.spark.sink import StreamingWriter

        if self.table is not None:
            from rillet.spark.tables.writer import TableStreamingWriter

            with plainly():
                return TableStreamingWriter(self.table, schema, overwrite)

        if overwrite:
            with plainly():
                raise OptionError("rillet: a stream can only be appended to: use outputMode('append')")
        return StreamingWriter(self.parsed, schema)

    def _table_schema(self, options: TableOptions) -> StructType | str:
        with plainly():
            require_store(options.path)
            return infer_table(options) if options.infer_schema else default_schema(options)

    def _parallelism(self) -> int:
        return self.default_parallelism or os.cpu_count() or 1


def register(spark: SparkSession) -> None:
    """Register format("rillet") with a session, with its parallelism and filter push-down, and "rillet.changes"."""
    require_sources()
    from rillet.spark.packaging import found_on_driver

    spark.conf.set(SWITCH, "true")
    settings = {"default_parallelism": default_parallelism(spark), "pushes_filters": True}
    # Spark pickles a class created in a function with its attributes, an imported class only by name.
    with found_on_driver(spark), replacing_quietly(spark):
        register_again(spark, type("RilletDataSource", (RilletDataSource,), settings))
        if sys.version_info >= (3, 11):
            # Imported here: each of Spark's Python processes imports this module, and only those of changes need the
            # store, which needs Python 3.11.
            from rillet.spark.changes.source import ChangesDataSource

            spark.dataSource.register(type("ChangesDataSource", (ChangesDataSource,), {}))


class RangePartition(InputPartition):
    """The ranges of stream entries that one Spark task reads."""

    def __init__(
        self, ranges: Task, since: Mapping[str, Place] | None = None, unread: Set[str] = frozenset(),
        store: PlannedStore | None = None, name: TaskName | None = None,
    ) -> None:  # fmt: skip
        """since: the position of each stream at the start of the batch, if the stream's counters are known.

        If `since` is given, reading raises DataLoss if planned entries are missing, except in `unread` streams. store:
        the owner and the files of an embedded store. name: that of the task, if bad records go to a stream.
        """
        super().__init__(None)
        self.ranges = ranges
        self.store = None if store is None else store.for_task(ranges)
        self.name = name
        self.since = None if since is None else {name: since[name] for name, _, _ in ranges if name in since}
        self.unread = frozenset(stream for stream, _, _ in ranges if stream in unread)


class HistoryPartition(InputPartition):
    """The rows of an archive and the ranges of stream entries that one Spark task reads."""

    def __init__(self, task: HistoryTask) -> None:
        super().__init__(None)
        self.task = task


class _SourceReader(InTask):
    """The base class of the batch reader and the streaming reader."""

    def __init__(self, options: Options, schema: StructType, parallelism: int) -> None:
        from pyspark.errors import PySparkTypeError

        from rillet.columns.arrow_batch import rows_for
        from rillet.spark.column_types import unsupported_columns

        options.refuse(WRITE_ONLY, "reading")
        options.require_stream()
        self.options = options
        self.parallelism = parallelism
        if wrong := unsupported_columns(schema):
            raise OptionError(f"rillet: the schema does not fit a stream: {'; '.join(wrong)}")
        self.payload: PayloadColumns | None = None
        try:
            if options.payload is None:
                self.arrow_schema: Any = arrow_schema(schema)
            else:
                from rillet.spark.payload.columns import PayloadColumns

                self.payload = PayloadColumns(options, schema)
                self.arrow_schema = self.payload.tasks
                self.options = options = replace(options, payload_decoder=self.payload.decoder)
            rows_for(self.arrow_schema, b"", options.mode, options.corrupt_column, options.readers)
        except (ValueError, PySparkTypeError) as error:
            raise OptionError(f"rillet: the schema does not fit a stream: {error}") from None
        require_store(options.path)

    def _task_names(self, end: Mapping[str, StreamID] | None, tasks: int) -> list[TaskName | None]:
        """Return the names of the tasks of a batch, for bad records; None if these go to no stream.

        end: the end of a micro-batch; None for a batch read.
        """
        if self.options.bad_records is None:
            return [None] * tasks
        from rillet.spark.read.bad_records import TaskName, batch_name

        batch = uuid.uuid4().hex if end is None else batch_name(end)
        return [TaskName(batch, number) for number in range(tasks)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield the record batches of a partition."""
        batches = self._batches(partition)
        if self.payload is None:
            yield from batches
            return
        with plainly():
            yield from map(self.payload.of_spark, batches)

    def _batches(self, partition: InputPartition) -> Iterator[Any]:
        if self.options.stream and self.options.partitioned is None:
            mark_rows_in_order(TaskContext.get())
        with plainly():
            if isinstance(partition, HistoryPartition):
                from rillet.spark.read.history import read as read_history

                yield from read_history(self.options, partition.task, self.arrow_schema)
                return
            assert isinstance(partition, RangePartition)
            if self.options.group is not None and self.options.group_mode == "deliver":
                yield from read_delivered(self.options, partition.ranges, self.arrow_schema)
            else:
                since = partition.since if self.options.fail_on_data_loss else None
                yield from read_task(
                    self.options, partition.ranges, self.arrow_schema, since, partition.unread, partition.store,
                    partition.name,
                )  # fmt: skip


class BatchReader(_SourceReader, DataSourceReader):
    """Reads the entries that exist when the query is planned."""

    def __init__(self, options: Options, schema: StructType, parallelism: int) -> None:
        options.refuse(FOLLOW_ONLY, "a batch read")
        super().__init__(options, schema, parallelism)
        self.pushed = Pushed.on(schema)  # selects all entries until Spark pushes filters

    def partitions(self) -> list[InputPartition]:
        """Return the tasks of a batch read; they do not read entries that arrive after this call."""
        if self.options.archive is not None:
            from rillet.spark.read.history import plan

            with plainly():
                parts = plan(self.options, self.parallelism, self.pushed.keeps, self.bounds, self.arrow_schema)
            return [HistoryPartition(part) for part in parts] or [RangePartition(())]
        guarded = "failondataloss" in self.options.named  # by default, a batch read skips trimmed entries
        with plainly(), Servers(self.options) as servers:
            streams = [stream for stream in selected_streams(self.options, servers) if self.pushed.keeps(stream)]
            known = stream_infos(servers, streams)
            require_streams(self.options, servers, known)
            bounds = self.bounds(known)
            if self.pushed.ids == EVERYTHING:  # a few selected entries may lack a field that the others have
                check_fields(self.options, servers, self.arrow_schema, bounds)
            planner = Planner(self.options, servers, self.parallelism, hurried=False)
            batch = planner.cut(planner.measure(ranges_between(known, bounds)), None)
            tasks: list[Task] = [task for task in map(self.pushed.clip, batch.tasks) if task] or [()]
            store = planned_store(self.options, servers, tasks)
        # Entries removed before the planning are not in the plan, so they do not count as lost.
        since = {
            stream: Place(EARLIEST, info.removed)
            for stream, info in known.items()
            if info is not None and info.removed is not None
        }
        names = self._task_names(None, len(tasks))
        return [RangePartition(task, since if guarded else None, store=store, name=name)
                for task, name in zip(tasks, names, strict=True)]  # fmt: skip

    def bounds(self, streams: Mapping[str, StreamInfo | None]) -> dict[str, tuple[StreamID, StreamID]]:
        """Return the ID range (after, last] to read of each stream: from the options, narrowed by pushed filters."""
        ranges = {}
        for stream, info in streams.items():
            if info is None:
                continue
            start, end = self.options.start_of(stream), self.options.end_of(stream)
            after, last = info.last if start is None else start, info.last if end is None else end
            if self.pushed.ids != EVERYTHING:
                if info.first is not None and info.first > max(after, EARLIEST):
                    after = before(info.first)
                after, last = self.pushed.bounds(after, last)
            ranges[stream] = (after, last)
        return ranges


class FilteringReader(BatchReader):
    """A batch reader with filter push-down; Spark rejects a reader with `pushFilters` if push-down is off."""

    def pushFilters(self, filters: list[Filter]) -> list[Filter]:
        """Use filters on IDs, times and streams to read less; return the filters that Spark must evaluate."""
        left = self.pushed.push(filters)
        # A read from an archive uses filters only to exclude files, so Spark must evaluate all filters.
        return filters if self.options.archive is not None else left


class StreamingReader(_SourceReader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads micro-batches: the entries after the last offset, limited by maxEntriesPerTrigger."""

    def __init__(self, options: Options, schema: StructType, parallelism: int) -> None:
        options.refuse(BATCH_ONLY, "a streaming read")
        if options.group_mode == "deliver" and not HAS_READ_LIMITS:
            raise OptionError("rillet: groupMode=deliver needs Spark 4.2, which states the offset that is in the sink")
        super().__init__(options, schema, parallelism)
        self._earlier = EarlierCalls()
        self._offsets: list[tuple[dict[str, Any], Offset]] = []  # the last two
        self._follower: MicroBatchReader | None = None
        self._fields_checked = False

    @property
    def follower(self) -> MicroBatchReader:
        """Return the planner of this query's batches; created at first use, because it has connections."""
        if self._follower is None:
            delivers = self.options.group is not None and self.options.group_mode == "deliver"
            self._follower = (GroupDelivery if delivers else MicroBatchReader)(self.options, self.parallelism)
        return self._follower

    def initialOffset(self) -> dict[str, Any]:
        """Return the offset at which a new query starts; "latest" is resolved once."""
        with plainly():
            return self.follower.initial().json()

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return Spark's ReadLimit: the largest or the smallest number of entries of a micro-batch."""
        if self.options.max_entries_per_trigger is not None:
            return ReadMaxRows(self.options.max_entries_per_trigger)
        if self.options.min_entries_per_trigger is not None:
            return ReadMinRows(self.options.min_entries_per_trigger)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        """Limit an available-now query to the last ID that each stream has now."""
        with plainly():
            self.follower.fix_targets()

    def reportLatestOffset(self) -> dict[str, Any]:
        """Return the source's metrics for Spark's progress report: the newest IDs and the number of unread entries."""
        with plainly():
            return self.follower.report()

    def latestOffset(self, start: dict[str, Any] | None = None, limit: ReadLimit | None = None) -> dict[str, Any]:
        """Return the offset at the end of the next micro-batch, with its plan; return `start` if no entry is unread.

        start, limit: None before Spark 4.2.
        """
        sure = True
        if start is None or limit is None:
            limit, sure = self.getDefaultReadLimit(), self._earlier.sure
            start = self._earlier.start or self.initialOffset()
        end = self._end(start, limit, sure)
        self._earlier.returned(end)
        return end

    def _end(self, start: dict[str, Any], limit: ReadLimit, sure: bool) -> dict[str, Any]:
        least, cap = None, None
        if isinstance(limit, ReadMaxRows):
            least, cap = self.options.min_entries_per_trigger, limit.max_rows
        elif isinstance(limit, ReadMinRows):
            least = limit.min_rows
        with plainly():
            begin = self._parsed(start)
            end = self.follower.next(begin, least, cap, sure)
            if end is None:
                return start
            if not self._fields_checked:
                self._check_fields(begin, end)
        value = end.json()
        self._keep(value, end)
        return value

    def _parsed(self, value: dict[str, Any]) -> Offset:
        """Return an offset; the same object for an equal value, because parsing 10,000 streams takes 30 ms."""
        for known, offset in self._offsets:
            if known == value:
                return offset
        return self._keep(value, Offset.parse(value))

    def _keep(self, value: dict[str, Any], offset: Offset) -> Offset:
        self._offsets = [*self._offsets[-1:], (value, offset)]
        return offset

    def _check_fields(self, begin: Offset, end: Offset) -> None:
        """Compare the schema with entries of the first batch; after a lost connection, with the next batch."""
        ranges = {stream: (begin.streams.get(stream, EARLIEST), last) for stream, last in end.streams.items()}
        try:
            check_fields(self.options, self.follower.servers, self.arrow_schema, ranges)
            self._fields_checked = True
        except ConnectionLost:
            pass

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Return the tasks of a micro-batch."""
        self._earlier.planned(start, end)
        if start == end:
            return []
        with plainly():
            begin, last = self._parsed(start), self._parsed(end)
            # The first batch is not checked for data loss, because other clients often trim the entries at its start.
            guarded = not begin.initial and not isinstance(self.follower, GroupDelivery)
            tasks = self.follower.tasks(begin, last)
            read = {name for task in tasks for name, _, _ in task}
            since = {name: Place(begin.streams[name], begin.added[name]) for name in read if name in begin.added}
            store = self.follower.store(tasks)
            names = self._task_names(last.streams, len(tasks))
            return [RangePartition(task, since if guarded else None, begin.unread, store, name)
                    for task, name in zip(tasks, names, strict=True)]  # fmt: skip

    def commit(self, end: dict[str, Any]) -> None:
        """Do nothing: Spark's checkpoint already contains the offset."""

    def stop(self) -> None:
        """Close the planner's connections."""
        if self._follower is not None:
            self._follower.close()

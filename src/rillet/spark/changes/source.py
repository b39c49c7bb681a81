"""format("rillet.changes"): the data source that Spark calls, and the reader of its micro-batches.

    driver      initialOffset()         always the same: the first trigger chooses where the query starts
                latestOffset(start)     writes what was received to the folder; returns the end of a batch of files
                partitions(start, end)  a task for each file between the two, and for each part of a snapshot
                commit(end)             deletes the files before `end`
    executors   read(partition)         a file into rows

A batch is the files between two offsets, so it has the same rows whenever Spark runs it again. Spark calls `commit` one
batch late, and never for the last batch of an available-now query: its files stay until the next run.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rillet.client.connection import Connection
from rillet.client.errors import StaysAway
from rillet.errors import RilletError
from rillet.real_time import monotonic
from rillet.spark.changes.offsets import ChangesOffset
from rillet.spark.changes.options import ChangesOptions, parse_changes
from rillet.spark.changes.receiver import Receiver
from rillet.spark.changes.rows import SCHEMA, check_schema, read_file, read_snapshot
from rillet.spark.changes.storage import Storage, StoredFile
from rillet.spark.errors import plainly
from rillet.spark.failed_reader import FailedReader
from rillet.spark.options import OptionError
from rillet.spark.read.data_loss import DataLoss
from rillet.spark.spark_versions import (
    DataSource,
    DataSourceStreamReader,
    EarlierCalls,
    InputPartition,
    ReadAllAvailable,
    ReadLimit,
    SupportsTriggerAvailableNow,
    arrow_schema,
)
from rillet.spark.worker_socket import InTask
from rillet.store.follow.stream_reader import StreamLost, server_position
from rillet.transfer.rdb_parts import SnapshotPart

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_IDLE = 0.1  # seconds that a trigger without news waits for some: Spark asks again at once


class ChangesPartition(InputPartition):
    """A file of changes."""

    def __init__(self, file: StoredFile) -> None:
        super().__init__(None)
        self.file = file


class SnapshotPartition(InputPartition):
    """A part of the snapshot of a run, whose changes begin at `offset`; made: ms since 1970."""

    def __init__(self, run: str, offset: int, made: int, number: int, part: SnapshotPart) -> None:
        super().__init__(None)
        self.run = run
        self.offset = offset
        self.made = made
        self.number = number
        self.part = part


class ChangesDataSource(DataSource):
    """Every change of a Redis, Valkey or rillet server as a row; docs/spark-changes.md lists the options.

    >>> changes = spark.readStream.format("rillet.changes").option("url", "redis://host").option("folder", "...").load()
    """

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        with plainly():
            self.parsed = parse_changes(options)

    @classmethod
    def name(cls) -> str:
        """Return the name that users pass to format()."""
        return "rillet.changes"

    def schema(self) -> str:
        """Return the columns of a DataFrame for which the user gave no schema."""
        return SCHEMA

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return the streaming reader; if its creation fails, return a reader that raises the error when called."""
        try:
            return ChangesReader(self.parsed, schema)
        except RilletError as error:
            return FailedReader(error)


class ChangesReader(InTask, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads micro-batches of changes."""

    def __init__(self, options: ChangesOptions, schema: StructType) -> None:
        from pyspark.errors import PySparkTypeError

        self.options = options
        try:
            self.arrow_schema: Any = arrow_schema(schema)
            check_schema(self.arrow_schema, options.mode)
        except (ValueError, PySparkTypeError) as error:
            raise OptionError(f"rillet: the schema does not fit changes: {error}") from None
        self._receiver: Receiver | None = None
        self._target: int | None = None
        self._earlier = EarlierCalls()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_receiver": None}

    # -- the driver ----------------------------------------------------------------------------------

    def initialOffset(self) -> dict[str, Any]:
        """Return the start of a new query."""
        return ChangesOffset().json()

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return no limit: the option maxBytesPerTrigger limits a batch."""
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        """Limit an available-now query to what the server has now."""
        with plainly():
            self._target = self._server_offset()

    def _server_offset(self) -> int:
        """Return the offset of the server; -1 if the user may not run INFO."""
        with Connection(self.options.address(), self.options.timeout) as connection:
            found = server_position(connection)
        return -1 if found is None else found.offset

    def latestOffset(self, start: dict[str, Any] | None = None, limit: ReadLimit | None = None) -> dict[str, Any]:
        """Return the end of the next micro-batch, whose bytes are in the folder; `start` if there is none.

        start, limit: None before Spark 4.2.
        """
        with plainly():
            if start is None:
                # The only call of an available-now query is also the first one: it reads what the server has now.
                self._target = self._server_offset() if self._receiver is None else None
                start = self._earlier.start or self.initialOffset()
            begin = ChangesOffset.parse(start)
            end = self._next(begin)
        found = start if end is None else end.json()
        self._earlier.returned(found)
        return found

    def _next(self, start: ChangesOffset) -> ChangesOffset | None:
        receiver = self._receiver
        if receiver is None:
            try:
                receiver = self._receiver = self._begin(start)
            except StreamLost:
                raise self._lost(start) from None
        if receiver.start.run != start.run:  # the first batch of a run: with a snapshot it has rows before any change
            start = receiver.start
            if start.snapshot:
                return receiver.end_after(start.since, self.options.max_bytes_per_trigger) or start
        if self._target is not None and 0 <= self._target <= start.offset:
            return None  # an available-now query ends, although the server has more by now
        deadline = monotonic() + self.options.timeout
        while True:
            reached = self._target is None or receiver.offset >= self._target  # before `end_after` looks
            found = receiver.end_after(start.offset, self.options.max_bytes_per_trigger)
            if found is not None and found.offset > start.offset:
                return found
            if receiver.lost:
                return self._after_loss(start)
            if reached and not receiver.is_away:
                return None if not self._wait_briefly(receiver) else self._again(receiver, start)
            if monotonic() > deadline:
                raise StaysAway(str(receiver.error or "rillet: the server sends nothing"))
            receiver.wait(receiver.offset, _IDLE)

    def _wait_briefly(self, receiver: Receiver) -> bool:
        """Wait a moment for changes, unless the query ends when there are none; return whether some came."""
        return self._target is None and receiver.wait(receiver.offset, _IDLE)

    def _again(self, receiver: Receiver, start: ChangesOffset) -> ChangesOffset | None:
        found = receiver.end_after(start.offset, self.options.max_bytes_per_trigger)
        return found if found is not None and found.offset > start.offset else None

    def _begin(self, start: ChangesOffset) -> Receiver:
        """Start to receive: at the beginning of the query, or after the last batch of the checkpoint."""
        storage = Storage(self.options.folder)
        if not start.run:
            return Receiver.new(self.options, storage)
        storage.create()
        return Receiver.resumed(self.options, storage, start)

    def _lost(self, start: ChangesOffset) -> DataLoss:
        return DataLoss(
            f"rillet: the changes after {start.position if start.run else self.options.starting_offsets} are lost: the "
            f"backlog of {self.options.place()} no longer holds them. Enlarge repl-backlog-size; to continue with the "
            "present changes, set failOnDataLoss to false, or use a new checkpoint"
        )

    def _after_loss(self, start: ChangesOffset) -> ChangesOffset | None:
        """Raise DataLoss, or begin another run after all files of the last one."""
        if self.options.fail_on_data_loss:
            raise self._lost(start)
        self.stop()
        if self._target is not None:
            self._target = self._server_offset()
        options = self.options
        if options.starting_offsets not in ("latest", "snapshot"):
            options = replace(options, starting_offsets="latest")
        self._receiver = Receiver.new(options, Storage(options.folder))
        return self._next(start)

    def beginning(self) -> dict[str, Any] | None:
        """Return the offset at which the present run begins, None before the first `latestOffset`; not for Spark."""
        return None if self._receiver is None else self._receiver.start.json()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Return the tasks of a micro-batch: its files."""
        self._earlier.planned(start, end)
        if start == end:
            return []
        with plainly():
            begin, last = ChangesOffset.parse(start), ChangesOffset.parse(end)
            is_first = begin.run != last.run
            offset = last.since if is_first else begin.offset
            storage = Storage(self.options.folder)
            files = storage.chain(last.run, offset, last.offset)
            there = files[-1].end if files else offset
            missing = is_first and last.snapshot and not storage.has_snapshot(last.run)
            if there != last.offset or missing:
                what = f"{last.run}.rdb" if missing else f"the changes from {there} to {last.offset}"
                raise DataLoss(f"rillet: the folder {self.options.folder} lacks {what} of a batch that is not "
                               "committed: it must not be emptied, and each query needs its own")  # fmt: skip
            tasks: list[InputPartition] = []
            if is_first and last.snapshot:
                made, parts = storage.parts(last.run)
                tasks += [SnapshotPartition(last.run, last.since, made, number, part)
                          for number, part in enumerate(parts)]  # fmt: skip
            return [*tasks, *map(ChangesPartition, files)]

    def commit(self, end: dict[str, Any]) -> None:
        """Delete the files of committed batches."""
        offset = ChangesOffset.parse(end)
        if not offset.run:
            return
        receiver = self._receiver
        keep = offset.run if receiver is None else receiver.start.run
        with plainly():
            Storage(self.options.folder).delete_until(offset.run, offset.offset, keep)
        if receiver is not None and receiver.start.run == offset.run:
            receiver.forget(offset.offset)

    def stop(self) -> None:
        """Stop to receive."""
        receiver, self._receiver = self._receiver, None
        if receiver is not None:
            receiver.stop()

    # -- the executors -------------------------------------------------------------------------------

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield the record batches of a partition."""
        with plainly():
            if isinstance(partition, SnapshotPartition):
                yield from read_snapshot(self.options, partition.run, partition.part, partition.offset, partition.made,
                                         self.arrow_schema, is_first=partition.number == 0)  # fmt: skip
            else:
                assert isinstance(partition, ChangesPartition)
                yield from read_file(self.options, partition.file, self.arrow_schema)

"""The Spark task of a replay: writes rows to one stream and, in the same transactions, stores its progress.

The progress record is a Redis hash in the cluster slot of the target stream. Each transaction writes a chunk of rows
and updates the record:

    WATCH stream record;  HMGET record;  XINFO stream;  MULTI     sent right after the EXEC before, without waiting
    XADD ... XADD;  HSET rillet:commits:{copy}:replay position shift first rows ...;  EXEC

So after a kill at any moment the record states exactly which rows are in the target, and how many milliseconds were
added to their IDs (the shift). The same replay, started again, continues after these rows. WATCH and XINFO detect
writes of other clients. Their entries are allowed if they precede the next row's ID; otherwise the replay ends with an
error. The record is deleted when all rows are written.

Rejected: resuming after the target's last ID (another client may have written it, and it does not contain the shift);
the clocks of executors; several writers at a time (XADD rejects an ID that is not larger than the last one).
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

from rillet.client.errors import ConnectionLost, ConnectorError
from rillet.client.protocol import pack
from rillet.client.redirection import Patience
from rillet.client.transaction import NotQueued, Transaction
from rillet.protocol.reply_parser import ReplyError
from rillet.real_time import monotonic
from rillet.spark.option_types import EARLIEST
from rillet.spark.options import Options
from rillet.spark.pipelines.group_info import milliseconds
from rillet.spark.read.stream_info import stream_error
from rillet.spark.write.commits import record_key
from rillet.types.stream.id import StreamID

if TYPE_CHECKING:
    from rillet.client.servers import Servers
    from rillet.spark.write.row_encoder import RowEncoder

T = TypeVar("T")

CHUNK_BYTES = 1 << 19
CHUNK_ROWS = 4000


def replay_task(
    options: Options, layout: RowEncoder, source: str, retime: bool, speed: float | None, batches: Iterable[Any]
) -> Iterator[Any]:
    """Write all rows of a replay in one Spark task; yield one record batch with the number of rows and the last ID."""
    import pyarrow as pa

    from rillet.client.servers import Servers

    with Servers(options) as servers:
        writer = ReplayWriter(servers, options, layout, source, retime, speed)
        for batch in batches:
            if batch.num_rows:
                writer.write(batch)
        names = {"rows": [writer.rows - writer.before], "before": [writer.before], "last": [writer.last_written()]}
        yield pa.RecordBatch.from_pydict(names, schema=pa.schema(
            [("rows", pa.int64()), ("before", pa.int64()), ("last", pa.string())]))  # fmt: skip


class ReplayWriter:
    """Writes rows to one stream; each transaction also stores the progress of the replay."""

    def __init__(
        self, servers: Servers, options: Options, layout: RowEncoder, source: str, retime: bool, speed: float | None,
        clock: Callable[[], float] = monotonic, sleep: Callable[[float], None] = time.sleep,
    ) -> None:  # fmt: skip
        from rillet.columns.row_packing import RowPacker

        self.servers, self.options, self.layout = servers, options, layout
        self.key = options.stream.encode()
        self.record = record_key(self.key, "replay")
        self.source, self.retime, self.speed = source, retime, speed
        self.clock, self.sleep = clock, sleep
        self.packer = RowPacker([b"XADD", self.key])
        self.transaction = Transaction(servers, self.key)
        self.target_end: StreamID | None = None  # The target's last ID; None: not read yet.
        self.first: StreamID | None = None  # The ID of the replay's first row.
        self.received = EARLIEST  # The ID of the last row that Spark has passed to this task.
        self.position = EARLIEST  # The ID of the last row that is in the target.
        self.shift = self.rows = self.before = 0
        self.opened = False  # Whether this writer has read the progress record.
        self.began: tuple[float, int] | None = None  # (Time of writing, ms of the ID) of this run's first row.

    def last_written(self) -> str:
        """Return the last written row's ID in the target stream."""
        return "" if not self.rows else str(StreamID(self.position.ms + self.shift, self.position.seq))

    # ---- the progress record ---------------------------------------------------------------------------------------

    def _begin(self) -> None:
        """Begin a transaction: watch and request the progress record and the target's last ID, without waiting."""
        fields = (b"source", b"first", b"shift", b"position", b"rows")
        self.target_end = None
        reads = [(b"HMGET", self.record, *fields), (b"XINFO", b"STREAM", self.key), (b"TIME",)]
        self.transaction.begin([self.key, self.record], reads)

    def _open(self) -> StreamID:
        """Return the target's last ID; the first call in a transaction also reads the progress record."""
        if not self.transaction.open:
            self._begin()
        if self.target_end is None:
            record, info, now = self.transaction.opening()
            for name, reply in (("HMGET", record), ("XINFO", info)):
                if isinstance(reply, ReplyError) and "no such key" not in str(reply):
                    raise stream_error(self.servers, self.key, name, str(reply))
            exists = not isinstance(info, ReplyError)
            self.target_end = StreamID.parse(info[info.index(b"last-generated-id") + 1]) if exists else EARLIEST
            self._read(record, milliseconds(now), self.target_end)
        return self.target_end

    def _read(self, record: list[Any], now: int, target_end: StreamID) -> None:
        """Resume after the rows that the progress record counts; raise an error if the record is of another replay."""
        assert self.first is not None
        if record[0] is not None:
            source, first = record[0].decode(), StreamID.parse(record[1])
            if source != self.source or first != self.first:
                raise ConnectorError(
                    f"rillet: another replay into {self.options.stream!r} is unfinished: {source}, from {first} on. "
                    "Complete it, or discard it (anew)"
                )
            self.shift, self.position, self.rows = int(record[2]), StreamID.parse(record[3]), int(record[4])
            if not self.opened:
                self.before = self.rows
        elif self.rows:
            raise ConnectorError(
                f"rillet: the replay into {self.options.stream!r} has stopped, because another client deleted the "
                "key that stores its progress"
            )
        elif self.retime and not self.opened:
            self.shift = max(now, target_end.ms + 1) - self.first.ms
        self.opened = True

    # ---- rows ------------------------------------------------------------------------------------------------------

    def write(self, batch: Any) -> None:
        """Write those rows of a record batch that are not in the target stream yet, at the requested speed."""
        from rillet.spark.write.row_encoder import id_numbers, ids_that_rise

        first, last = ids_that_rise(batch.column("id"), "id", self.received)
        self.received = last
        if self.first is None:
            self.first = first
            self._retry(self._open)
        if last <= self.position:
            return
        ms, seq = id_numbers(batch.column("id"))
        start = _beyond(ms, seq, self.position)
        batch, ms, seq = batch.slice(start), ms.slice(start), seq.slice(start)
        if self.shift:
            batch = batch.set_column(batch.schema.get_field_index("id"), "id", shifted(ms, seq, self.shift))
        self.layout.load(self.packer, batch, batch.column("id"))
        row = 0
        while row < batch.num_rows:
            stop = min(self._due(ms, row), row + CHUNK_ROWS)
            try:
                after = self.packer.pack(row, stop, CHUNK_BYTES)
            except ValueError as error:
                raise ConnectorError(f"rillet: replaying into {self.options.stream!r}: {error}") from None
            self._send(*(StreamID(ms[at].as_py(), seq[at].as_py()) for at in (row, after - 1)))
            row = after

    def _due(self, ms: Any, row: int) -> int:
        """Wait until a row is due; return the index of the first later row that is not due yet."""
        if self.speed is None:
            return len(ms)
        first = ms[row].as_py()
        if self.began is None:
            self.began = self.clock(), first
        began, base = self.began
        while (wait := began + (first - base) / 1000 / self.speed - self.clock()) > 0:
            self.sleep(wait)
        reached = base + int((self.clock() - began) * self.speed * 1000)
        return max(_beyond(ms, None, StreamID(reached, 0)), row + 1)

    def _send(self, first: StreamID, last: StreamID) -> None:
        """Write packed rows, whose IDs are `first` to `last`, and the progress record in one transaction."""
        commands = self.packer.commands
        data = bytes(self.packer.take_bytes())

        def attempt() -> bool:
            target_end = self._open()
            if self.position >= last:  # an earlier transaction wrote these rows, but its reply was lost
                return True
            if self.position >= first:
                raise ConnectorError(f"rillet: another process runs this replay into {self.options.stream!r}")
            upcoming = StreamID(max(first.ms + self.shift, 0), first.seq)
            if target_end >= upcoming:
                raise ConnectorError(
                    f"rillet: the stream {self.options.stream!r} at {self.servers} ends at {target_end}, but the next "
                    f"entry of the replay has the ID {upcoming}: name another target, or use new IDs (retime)"
                )
            return self._transaction(data, commands, last)

        while not self._retry(attempt):
            pass  # another client wrote to the target after it was watched: read its last ID again

    def _transaction(self, data: bytes, commands: int, last: StreamID) -> bool:
        """Execute the open transaction and begin the next one; return False if another client changed a watched key."""
        rows = self.rows + commands
        state = {b"source": self.source, b"first": self.first, b"shift": self.shift, b"position": last, b"rows": rows}
        words = (word for name, value in state.items() for word in (name, str(value).encode()))
        self.transaction.send(data + pack(b"HSET", self.record, *words), commands + 1)
        errors = self.transaction.execute(commands, 1)
        if errors:
            raise ConnectorError(f"rillet: {self.servers} rejected rows of the replay: {errors[0]}", str(errors[0]))
        if errors is None:
            return False
        self.position, self.rows = last, rows
        self._begin()
        return True

    def _retry(self, action: Callable[[], T]) -> T:
        """Call a function; repeat the call after a lost connection or a redirection, up to the timeout."""
        patience = Patience(self.options.timeout)
        while True:
            try:
                return action()
            except (ConnectionLost, NotQueued) as error:
                self.transaction.forget()
                moved = not isinstance(error, NotQueued) or self.servers.redirected(self.key, error.line)
                if not moved or not patience.again():
                    raise


def shifted(ms: Any, seq: Any, shift: int) -> Any:
    """Return IDs with `shift` milliseconds added."""
    import pyarrow as pa
    import pyarrow.compute as pc

    moved = pc.add(ms.cast(pa.int64()), shift).cast(pa.string())
    return pc.binary_join_element_wise(moved, seq.cast(pa.string()), "-")


def _beyond(ms: Any, seq: Any | None, bound: StreamID) -> int:
    """Return the index of the first row whose ID is larger than `bound`; O(log rows). seq: None if all are 0."""

    def identifier(row: int) -> StreamID:
        return StreamID(ms[row].as_py(), 0 if seq is None else seq[row].as_py())

    return bisect_right(range(len(ms)), bound, key=identifier)

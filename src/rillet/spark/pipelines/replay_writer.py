"""The Spark task of a replay: writes rows to one stream and, in the same transactions, stores its position.

The position is stored in the replay's progress record, a hash in the cluster slot of the target stream. Each chunk of
rows is written in one transaction with it:

    WATCH stream record;  MULTI;  XADD ... XADD;  HSET rillet:commits:{copy}:replay position shift first rows ...;  EXEC
    WATCH stream record;  XINFO stream        for the next chunk, in the same send

So after a kill at any moment the record states exactly which rows are in the target, and how many milliseconds were
added to their IDs (the shift). The same replay, started again, continues after these rows. WATCH detects writes of
other clients. Their entries are allowed if they precede the next row's ID; otherwise the replay ends with an error. The
record is deleted when all rows are written.

Rejected: resuming after the target's last ID (another client may have written it, and it does not contain the shift);
using the clocks of executors; several writers at a time (XADD rejects an ID that is not larger than the last one).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rillet.client.connection import Connection
from rillet.client.errors import ConnectionLost, ConnectorError
from rillet.client.protocol import pack
from rillet.protocol.reply_parser import ReplyError
from rillet.spark.option_types import EARLIEST
from rillet.spark.options import Options
from rillet.spark.write.commits import record_key
from rillet.types.stream.id import StreamID

if TYPE_CHECKING:
    from rillet.client.servers import Servers
    from rillet.spark.write.row_encoder import RowEncoder

CHUNK_BYTES = 1 << 18
CHUNK_ROWS = 2000
ATTEMPTS = 5


@dataclass(frozen=True)
class ReplayTask:
    """The function that writes all rows of a replay in one Spark task; mapInArrow calls it."""

    options: Options
    layout: RowEncoder
    source: str
    retime: bool
    speed: float | None

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        import pyarrow as pa

        from rillet.client.servers import Servers

        with Servers(self.options) as servers:
            writer = ReplayWriter(servers, self.options, self.layout, self.source, self.retime, self.speed)
            for batch in batches:
                if batch.num_rows:
                    writer.write(batch)
            names = {"rows": [writer.rows - writer.before], "before": [writer.before], "last": [writer.last_written()]}
            yield pa.RecordBatch.from_pydict(names, schema=pa.schema(
                [("rows", pa.int64()), ("before", pa.int64()), ("last", pa.string())]))  # fmt: skip


class ReplayWriter:
    """Writes rows to one stream and stores the progress of the replay with them."""

    def __init__(
        self, servers: Servers, options: Options, layout: RowEncoder, source: str, retime: bool, speed: float | None,
        clock: Callable[[], float] = time.monotonic, sleep: Callable[[float], None] = time.sleep,
    ) -> None:  # fmt: skip
        from rillet.columns.row_packing import RowPacker

        self.servers, self.options, self.layout = servers, options, layout
        self.key = options.stream.encode()
        self.record = record_key(self.key, "replay")
        self.source, self.retime, self.speed = source, retime, speed
        self.clock, self.sleep = clock, sleep
        self.packer = RowPacker([b"XADD", self.key])
        self.connection: Connection | None = None
        self.first: StreamID | None = None  # the ID of the first row
        self.received = EARLIEST  # the ID of the last row that Spark has passed to this task
        self.position = EARLIEST  # the ID of the last row that is in the target
        self.shift = self.rows = self.before = 0
        self.opened = False
        self.began: tuple[float, int] | None = None  # clock and ID time of this run's first row

    def last_written(self) -> str:
        """Return the last written row's ID in the target stream."""
        return "" if not self.rows else str(StreamID(self.position.ms + self.shift, self.position.seq))

    # ---- the progress record ---------------------------------------------------------------------------------------

    def open(self, next_row: StreamID) -> None:
        """Connect, watch the target and the progress record, and check that the record matches this writer's state."""
        connection = self.servers.connection(self.key)
        fields = (b"source", b"first", b"shift", b"position", b"rows")
        replies = connection.calls([
            (b"WATCH", self.key, self.record), (b"HMGET", self.record, *fields),
            (b"EXISTS", self.key), (b"TIME",),
        ])  # fmt: skip
        source, first, shift, position, rows = replies[1]
        last = self._last(connection) if replies[2] else EARLIEST
        if source is None:
            if self.rows:
                raise ConnectorError(
                    f"rillet: the replay into {self.options.stream!r} has stopped, because another client deleted the "
                    "key that stores its progress"
                )
            if not self.opened:
                self._begin(next_row, last, int(replies[3][0]) * 1000 + int(replies[3][1]) // 1000)
        else:
            self._resume(source.decode(), StreamID.parse(first), int(shift), StreamID.parse(position), int(rows))
        self.connection = connection
        upcoming = StreamID(max(next_row.ms + self.shift, 0), next_row.seq)
        if next_row > self.position and last >= upcoming:
            raise ConnectorError(
                f"rillet: the stream {self.options.stream!r} at {connection.address} ends at {last}, but the next "
                f"entry of the replay has the ID {upcoming}: name another target, or use new IDs (retime)"
            )

    def _last(self, connection: Connection) -> StreamID:
        info = connection.call(b"XINFO", b"STREAM", self.key)
        return StreamID.parse(dict(zip(info[::2], info[1::2], strict=False))[b"last-generated-id"])

    def _begin(self, first: StreamID, last: StreamID, now: int) -> None:
        if self.retime:
            self.shift = max(now, last.ms + 1) - first.ms

    def _resume(self, source: str, first: StreamID, shift: int, position: StreamID, rows: int) -> None:
        if source != self.source or first != self.first:
            raise ConnectorError(
                f"rillet: another replay into {self.options.stream!r} is unfinished: {source}, from {first} on. "
                "Complete it, or discard it (anew)"
            )
        if not self.opened:
            self.before = rows
        self.shift, self.position, self.rows = shift, position, rows

    # ---- rows ------------------------------------------------------------------------------------------------------

    def write(self, batch: Any) -> None:
        """Write the rows of a batch that are not in the target yet, at the requested speed."""
        from rillet.spark.write.row_encoder import ids_that_rise

        first, last = ids_that_rise(batch.column("id"), "id", self.received)
        self.received = last
        if self.first is None:
            self.first = first
            self._retry(lambda: self.open(first))
            self.opened = True
        if last <= self.position:
            return
        ms, seq = halves(batch.column("id"))
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
        """Write the packed rows with the IDs first to last in one transaction with the progress record."""
        commands = self.packer.commands
        data = bytes(self.packer.take())

        def attempt() -> bool:
            if self.connection is None:
                self.open(first)
                if self.position >= last:  # written, but the reply was lost
                    return True
                if self.position >= first:
                    raise ConnectorError(f"rillet: another process runs this replay into {self.options.stream!r}")
            return self._transaction(data, commands, last)

        while not self._retry(attempt):
            self.connection = None  # another client wrote to the target: connect and check again

    def _transaction(self, data: bytes, commands: int, last: StreamID) -> bool:
        """Execute the transaction; return False if another client changed the target or the progress record."""
        connection = self.connection
        assert connection is not None
        rows = self.rows + commands
        state = {b"source": self.source, b"first": self.first, b"shift": self.shift, b"position": last, b"rows": rows}
        note = pack(
            b"HSET", self.record, *(word for name, value in state.items() for word in (name, str(value).encode()))
        )
        # WATCH for the next transaction. XINFO shows whether another client wrote between EXEC and WATCH.
        watch = pack(b"WATCH", self.key, self.record) + pack(b"XINFO", b"STREAM", self.key)
        connection.send(pack(b"MULTI") + data + note + pack(b"EXEC") + watch)
        replies = [connection.reply() for _ in range(commands + 5)]
        *queued, executed, _, info = replies
        rejected = [reply for reply in (*queued, executed) if isinstance(reply, ReplyError)]
        if not rejected and executed is not None:
            rejected = [reply for reply in executed if isinstance(reply, ReplyError)]
        if rejected:
            if self.servers.redirected(self.key, str(rejected[0])):
                raise ConnectionLost(f"rillet: {self.options.stream!r} has moved to another node: {rejected[0]}")
            raise ConnectorError(
                f"rillet: {connection.address} rejected the replay into {self.options.stream!r}: {rejected[0]}"
            )
        if executed is None:
            return False
        self.position, self.rows = last, rows
        written = f"{last.ms + self.shift}-{last.seq}".encode()
        if isinstance(info, ReplyError) or info[info.index(b"last-generated-id") + 1] != written:
            self.connection = None  # `open` checks the target before the next chunk
        return True

    def _retry(self, action: Callable[[], Any]) -> Any:
        """Run a function; if the connection is lost, run it again on a new connection."""
        for attempt in range(ATTEMPTS):
            try:
                return action()
            except ConnectionLost:
                if attempt + 1 == ATTEMPTS:
                    raise
                if self.connection is not None:
                    self.servers.forget(self.connection)
                    self.connection = None
                self.sleep(0.1 * 2**attempt)
        raise AssertionError


def halves(ids: Any) -> tuple[Any, Any]:
    """Return a column of IDs as two columns: milliseconds and sequence numbers."""
    import pyarrow as pa
    import pyarrow.compute as pc

    parts = pc.split_pattern(ids.cast(pa.string()), "-", max_splits=1)
    whole = pc.equal(pc.list_value_length(parts), 2)
    second = pc.list_flatten(pc.list_slice(parts, 1, 2, return_fixed_size_list=True))
    return pc.list_element(parts, 0).cast(pa.uint64()), pc.if_else(whole, second, "0").cast(pa.uint64())


def shifted(ms: Any, seq: Any, shift: int) -> Any:
    """Return IDs with `shift` milliseconds added."""
    import pyarrow as pa
    import pyarrow.compute as pc

    moved = pc.add(ms.cast(pa.int64()), shift).cast(pa.string())
    return pc.binary_join_element_wise(moved, seq.cast(pa.string()), "-")


def _beyond(ms: Any, seq: Any | None, bound: StreamID) -> int:
    """Return the index of the first row with an ID (without `seq`: a time) larger than `bound`. O(log rows)"""
    low, high = 0, len(ms)
    while low < high:
        middle = (low + high) // 2
        here = (ms[middle].as_py(), 0 if seq is None else seq[middle].as_py())
        if here > (bound.ms, bound.seq):
            high = middle
        else:
            low = middle + 1
    return low

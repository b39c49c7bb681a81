"""replay: writes rows with IDs to a stream, in order, at full speed or at their recorded pace.

    replay(spark.read.parquet("events.parquet"), "copy", url="redis://localhost")            IDs kept
    replay(table(spark, stream="events", url=url)[0], "again", url=url, retime=True, speed=10)   now, ten times as fast

A frame has the column `id` and the fields: a map `fields`, or columns, as in the sink. One task writes, because IDs
must rise. A frame that is not in ID order is sorted first.

    IDs kept      the target must end before the first ID
    re-timed      the same number of milliseconds is added to every ID, so that the first is the server's time at the
                  start; distances in time stay
    speed N       each row is written at its time, N times as fast as the IDs; without it, as fast as possible

Each chunk of rows is written in one transaction with the replay's record (its position), in the target's slot:

    WATCH stream record;  MULTI;  XADD ... XADD;  HSET rillet:commits:{copy}:replay position shift first rows ...;  EXEC
    WATCH stream record;  XINFO stream        for the next chunk, in the same send

So after a kill at any moment the record states exactly which rows are in the target, and with which shift; the same
replay continues after them. WATCH detects writes of other clients. Their entries are allowed if they precede the next
row's ID; otherwise the replay ends with an error. The record is deleted when all rows are written.

Rejected: resuming after the target's last ID, which may be another writer's and does not contain the shift; the clocks
of executors; several writers (XADD rejects an ID that is too small).

Cost: that of the sink, and a sort in one task for frames that are not in order.
"""

from __future__ import annotations

import argparse
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rillet.client.connection import Connection
from rillet.client.errors import ConnectionLost, ConnectorError
from rillet.client.protocol import pack
from rillet.protocol.reply_parser import ReplyError
from rillet.spark.archive.layout import Archive
from rillet.spark.option_types import EARLIEST
from rillet.spark.options import Options, parse
from rillet.spark.pipelines import cli_arguments, cli_common
from rillet.spark.pipelines.cli_common import PipelineError, Progress, counted, silent
from rillet.spark.write.commits import record_key
from rillet.types.stream.id import StreamID

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from rillet.client.servers import Servers
    from rillet.spark.write.row_encoder import RowEncoder

CHUNK_BYTES = 1 << 18
CHUNK_ROWS = 2000
ATTEMPTS = 5
POLL = 0.5  # seconds between two reads of the progress


@dataclass(frozen=True)
class ReplaySummary:
    """The result of a replay: rows written, rows that an earlier run wrote, the ID of the last one in the target."""

    rows: int
    before: int
    last: str

    def line(self, to: str) -> str:
        """Return the summary as one line."""
        text = f"{to}: {counted(self.rows, 'entry', 'entries')} replayed"
        if self.before:
            text += f" after {self.before:,} of an earlier run"
        return text + (f", the last as {self.last}" if self.last else "")


def replay(
    frame: DataFrame,
    to: str,
    *,
    retime: bool = False,
    speed: float | None = None,
    ordered: bool = False,
    source: str = "",
    anew: bool = False,
    progress: Progress = silent,
    total: int | None = None,
    **target: str,
) -> ReplaySummary:
    """Write the rows of a frame to the stream `to`, except those that an earlier run of the same replay has written.

    target: the sink's connection options. ordered: the frame's partitions are in ID order, as those of one stream are.
    source: the name that identifies an unfinished replay. anew: discard an unfinished replay.
    """
    from rillet.client.servers import Servers
    from rillet.spark.write.row_encoder import RowEncoder

    options = parse({**target, "stream": to, "idColumn": "id"})
    layout = RowEncoder(options, frame.schema)
    frame = in_order(frame, ordered).select("id", *(name for name in layout.fields if name != "id"))
    key = to.encode()
    record = record_key(key, "replay")
    with Servers(options) as servers:
        if anew:
            servers.call(key, b"DEL", record)
        task = Task(options, layout, f"{source} {'re-timed' if retime else 'as it is'}", retime, speed)
        with _progress_of(options, key, record, progress, total):
            rows = frame.mapInArrow(task, "rows long, before long, last string").collect()
        servers.call(key, b"DEL", record)
    row = rows[0] if rows else None
    summary = ReplaySummary(0, 0, "") if row is None else ReplaySummary(row["rows"], row["before"], row["last"])
    progress(summary.rows + summary.before, total)
    return summary


def in_order(frame: DataFrame, ordered: bool) -> DataFrame:
    """Return a frame as one partition in ID order."""
    from pyspark.sql import functions as F

    if ordered:
        return frame.coalesce(1)
    halves = F.split(F.col("id"), "-")
    whole = "decimal(20,0)"  # an unsigned 64-bit number
    second = F.coalesce(F.get(halves, F.lit(1)), F.lit("0"))
    return frame.repartition(1).sortWithinPartitions(F.get(halves, F.lit(0)).cast(whole), second.cast(whole))


def table(
    spark: SparkSession, *, parquet: str | Path | None = None, archive: str | Path | None = None, **options: str
) -> tuple[DataFrame, bool]:
    """Return (rows to replay, whether they are in ID order) from Parquet files, an archive or a stream."""
    if parquet is not None:
        frame = read_parquet(spark, str(parquet))
        stream = options.get("stream")
        if "id" not in frame.columns:
            raise PipelineError(f"rillet: the files of {parquet} have no column id")
        if "stream" in frame.columns:
            frame = _one_stream(frame, stream, str(parquet))
        return frame.drop("stream", "date", "id_ms", "id_seq", "timestamp"), False
    reader = spark.read.format("rillet").options(**options)
    if archive is not None:
        reader = reader.option("archive", str(Path(archive).absolute()))
        if '"name":"fields"' not in Archive(archive).existing().schema:
            return reader.load(), "stream" in options
    return reader.schema("id string, fields map<string,binary>").load(), "stream" in options


def read_parquet(spark: SparkSession, path: str) -> DataFrame:
    """Return Parquet files as a frame; stream names in folder names stay strings, so 007 does not become 7."""
    inference = "spark.sql.sources.partitionColumnTypeInference.enabled"
    before = spark.conf.get(inference)
    spark.conf.set(inference, "false")
    try:
        return spark.read.parquet(path)
    finally:
        spark.conf.set(inference, str(before))


def _one_stream(frame: DataFrame, stream: str | None, path: str) -> DataFrame:
    from pyspark.sql import functions as F

    if stream is not None:
        return frame.where(F.col("stream").cast("string") == stream)
    names = [str(row[0]) for row in frame.select("stream").distinct().limit(6).collect()]
    if len(names) > 1:
        raise PipelineError(f"rillet: {path} holds several streams; name one with --stream: {', '.join(sorted(names))}")
    return frame


@contextmanager
def _progress_of(options: Options, key: bytes, record: bytes, progress: Progress, total: int | None) -> Iterator[None]:
    """Report the position in the record to `progress` while the body runs."""
    from rillet.client.servers import Servers

    ended = threading.Event()

    def look() -> None:
        with Servers(options) as servers:
            while not ended.wait(POLL):
                try:
                    progress(int(servers.call(key, b"HGET", record, b"rows") or 0), total)
                except ConnectorError:
                    pass  # the task raises it if it persists

    thread = threading.Thread(target=look, daemon=True)
    if progress is not silent:
        thread.start()
    try:
        yield
    finally:
        ended.set()
        if progress is not silent:
            thread.join()


# ---- in the task --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Task:
    """The one task that writes; mapInArrow calls it."""

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
    """Writes rows to one stream together with the record of the replay."""

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
        self.first: StreamID | None = None  # the first row's ID
        self.received = EARLIEST  # the last row that was received
        self.position = EARLIEST  # the last row that was written
        self.shift = self.rows = self.before = 0
        self.opened = False
        self.began: tuple[float, int] | None = None  # (clock, row time) of the first row of this run

    def last_written(self) -> str:
        """Return the ID that the last row has in the target."""
        return "" if not self.rows else str(StreamID(self.position.ms + self.shift, self.position.seq))

    # ---- the record ------------------------------------------------------------------------------------------------

    def open(self, next_row: StreamID) -> None:
        """Connect, watch the target and the record, and check the record against this writer's state."""
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
                raise ConnectorError(f"rillet: the record of the replay into {self.options.stream!r} was deleted")
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
        """Write the rows of a batch that are not in the target yet, at their pace."""
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
        """Wait until the time of a row; return the first row after it that is not due yet."""
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
        """Write the packed rows first..last in one transaction with the record."""
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
            self.connection = None  # another client wrote to the target

    def _transaction(self, data: bytes, commands: int, last: StreamID) -> bool:
        """Execute the transaction; return False if the target or the record has changed."""
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
                raise ConnectionLost(f"rillet: {self.options.stream!r} has moved: {rejected[0]}")
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
        """Run a function; run it again on a new connection if the connection was lost."""
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
    """Return the first row whose ID (without `seq`: whose time) is larger than a bound. O(log rows)"""
    low, high = 0, len(ms)
    while low < high:
        middle = (low + high) // 2
        here = (ms[middle].as_py(), 0 if seq is None else seq[middle].as_py())
        if here > (bound.ms, bound.seq):
            high = middle
        else:
            low = middle + 1
    return low


# ---- the command --------------------------------------------------------------------------------------------------

EPILOG = """examples:
  rillet pipeline replay --parquet events.archive --to events --to-url redis://localhost
  rillet pipeline replay --url redis://localhost --stream events --start 1714521600000 --to again --retime --speed 10
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    cli_arguments.source_arguments(parser)
    group = parser.add_argument_group("input")
    group.add_argument("--parquet", metavar="FOLDER", help="Parquet files with `id` and fields, such as an archive")
    group.add_argument(
        "--archive", type=cli_arguments.local_folder, metavar="FOLDER", help="an archive and the rest of its stream"
    )
    group.add_argument("--start", metavar="ID", help="the first ID, or its milliseconds")
    group.add_argument("--end", metavar="ID", help="the last ID, or its milliseconds")
    group = parser.add_argument_group("target")
    cli_arguments.target_arguments(group)
    group.add_argument("--retime", action="store_true", help="shift the IDs so that the first is now")
    group.add_argument(
        "--speed",
        type=cli_arguments.positive_number,
        metavar="N",
        help="N times the recorded pace (default: full speed)",
    )
    group.add_argument("--anew", action="store_true", help="discard an unfinished replay")
    cli_arguments.spark_arguments(parser)


def argument_errors(options: argparse.Namespace) -> list[str]:
    """Return the errors in the combination of the arguments."""
    errors = cli_arguments.target_errors(options, reads_stream=options.parquet is None)
    if options.parquet is not None and options.archive is not None:
        errors.append("give one of --parquet and --archive")
    if options.parquet is None:
        errors += cli_arguments.source_errors(options, **_range(options))
        if options.streams or options.stream_pattern:
            errors.append("replay reads one stream: --stream")
    else:
        errors += [f"--{name} applies to a stream, not to Parquet files" for name in ("start", "end")
                  if getattr(options, name) is not None]  # fmt: skip
        if not Path(options.parquet).exists():
            errors.append(f"--parquet is {options.parquet!r}: it does not exist")
        if not {"url", "path"} & cli_arguments.target_options(options).keys():
            errors.append("--to-url or --to-path is missing: the server or store of the target")
    return errors


def _range(options: argparse.Namespace) -> dict[str, str]:
    bounds = {"startingOffsets": options.start, "endingOffsets": options.end}
    return {name: value for name, value in bounds.items() if value is not None}


def run(options: argparse.Namespace) -> int:
    """Replay; print one line."""
    spark = cli_common.open_session(options, "replay")
    try:
        given = {**cli_arguments.source_options(options), **_range(options)}
        frame, ordered = table(spark, parquet=options.parquet, archive=options.archive, **given)
        source = str(options.parquet or options.archive or given.get("url") or given.get("path"))
        source += f" {given.get('stream', '')} {options.start or ''} {options.end or ''}"
        with cli_common.progress_bar(f"replaying into {options.to}") as bar:
            summary = replay(
                frame, options.to, retime=options.retime, speed=options.speed, ordered=ordered, source=source,
                anew=options.anew, progress=bar, total=None, **cli_arguments.target_options(options),
            )  # fmt: skip
        print(summary.line(options.to))
    finally:
        spark.stop()
    return cli_common.DONE


__all__ = ["ReplaySummary", "replay", "table"]

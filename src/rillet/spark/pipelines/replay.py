"""replay: rows with IDs -> a stream, in order, at full speed or at the pace at which they were recorded.

    replay(spark.read.parquet("events.parquet"), "copy", url="redis://localhost")            IDs kept
    replay(table(spark, stream="events", url=url)[0], "again", url=url, retime=True, speed=10)   now, ten times as fast

A frame has `id` and what becomes the fields: a map `fields`, or columns, as in the sink. One task writes, because IDs
have to rise; where the frame is not in order of its IDs it is sorted first.

    IDs kept      the target must end before the first of them
    re-timed      every ID gets the same number of milliseconds added, such that the first is the server's time at the
                  beginning: what lay an hour apart still does
    speed N       row by row at its time, N times as fast as the IDs tell; without it as fast as the server takes them

A chunk of rows is a transaction, and so is the record of how far the replay is, in the target's slot:

    WATCH stream record;  MULTI;  XADD ... XADD;  HSET rillet:commits:{copy}:replay position shift first rows ...;  EXEC
    WATCH stream record;  XINFO stream        of the next one, with the same send

So after a kill at any moment the record says exactly which rows are in the target, and with which shift; the same
replay goes on after them. WATCH notices everybody else who writes to the target: their entry is fine as long as it
lies before the next row's ID, and else the replay ends with a sentence. The record goes when all rows are written.

Rejected: resuming after the target's last ID, which is another writer's if there is one, and says nothing about
the shift; clocks of executors; several writers (XADD refuses what comes late).

Cost: what the sink costs, and for frames that are not in order a sort in one task.
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
LOOK = 0.5  # seconds between two looks at how far it is


@dataclass(frozen=True)
class ReplaySummary:
    """What a replay did: rows written by it, rows that were in the target already, and the ID of the last one there."""

    rows: int
    before: int
    last: str

    def line(self, to: str) -> str:
        """Return it as one sentence."""
        told = f"{to}: {counted(self.rows, 'entry', 'entries')} replayed"
        if self.before:
            told += f" after {self.before:,} that were there"
        return told + (f", the last as {self.last}" if self.last else "")


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
    """Write the rows of a frame to the stream `to`, or those that an earlier run of the same replay did not.

    target: the sink's options that say where. ordered: the frame's partitions are in the order of their IDs, as those
    of one stream are. source: a name by which an unfinished replay is known again. anew: forget an unfinished one.
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
        with _watching(options, key, record, progress, total):
            rows = frame.mapInArrow(task, "rows long, before long, last string").collect()
        servers.call(key, b"DEL", record)
    row = rows[0] if rows else None
    done = ReplaySummary(0, 0, "") if row is None else ReplaySummary(row["rows"], row["before"], row["last"])
    progress(done.rows + done.before, total)
    return done


def in_order(frame: DataFrame, ordered: bool) -> DataFrame:
    """Return a frame as one partition in the order of its IDs."""
    from pyspark.sql import functions as F

    if ordered:
        return frame.coalesce(1)
    halves = F.split(F.col("id"), "-")
    whole = "decimal(20,0)"  # 64 bits without a sign
    second = F.coalesce(F.get(halves, F.lit(1)), F.lit("0"))
    return frame.repartition(1).sortWithinPartitions(F.get(halves, F.lit(0)).cast(whole), second.cast(whole))


def table(
    spark: SparkSession, *, parquet: str | Path | None = None, archive: str | Path | None = None, **options: str
) -> tuple[DataFrame, bool]:
    """Return what to replay, and whether it is in order: Parquet files, an archive and its stream, or a stream."""
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
    """Return Parquet files as a frame; the streams in folders' names stay texts: 007 is no 7."""
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
        raise PipelineError(f"rillet: {path} holds several streams, name one of {', '.join(sorted(names))}")
    return frame


@contextmanager
def _watching(options: Options, key: bytes, record: bytes, progress: Progress, total: int | None) -> Iterator[None]:
    """Tell how far the record says that the replay is, while the body runs."""
    from rillet.client.servers import Servers

    ended = threading.Event()

    def look() -> None:
        with Servers(options) as servers:
            while not ended.wait(LOOK):
                try:
                    progress(int(servers.call(key, b"HGET", record, b"rows") or 0), total)
                except ConnectorError:
                    pass  # the task says it, if it lasts

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
    """What the one writing task does; called by mapInArrow."""

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
    """Writes rows to one stream and keeps the record of it."""

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
        self.first: StreamID | None = None  # of the rows
        self.seen = EARLIEST  # the last row that came
        self.position = EARLIEST  # the last row that is in the target
        self.shift = self.rows = self.before = 0
        self.opened = False
        self.began: tuple[float, int] | None = None  # when this run wrote the row of which time

    def last_written(self) -> str:
        """Return the ID that the last row has in the target."""
        return "" if not self.rows else str(StreamID(self.position.ms + self.shift, self.position.seq))

    # ---- the record ------------------------------------------------------------------------------------------------

    def open(self, next_row: StreamID) -> None:
        """Connect, watch target and record, and see that the record is what this writer knows."""
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
                raise ConnectorError(f"rillet: the record of the replay into {self.options.stream!r} is gone")
            if not self.opened:
                self._begin(next_row, last, int(replies[3][0]) * 1000 + int(replies[3][1]) // 1000)
        else:
            self._resume(source.decode(), StreamID.parse(first), int(shift), StreamID.parse(position), int(rows))
        self.connection = connection
        upcoming = StreamID(max(next_row.ms + self.shift, 0), next_row.seq)
        if next_row > self.position and last >= upcoming:
            raise ConnectorError(
                f"rillet: the stream {self.options.stream!r} at {connection.address} ends at {last}, and the next "
                f"entry of the replay has the ID {upcoming}: another target helps, or new IDs (retime)"
            )

    def _last(self, connection: Connection) -> StreamID:
        told = connection.call(b"XINFO", b"STREAM", self.key)
        return StreamID.parse(dict(zip(told[::2], told[1::2], strict=False))[b"last-generated-id"])

    def _begin(self, first: StreamID, last: StreamID, now: int) -> None:
        if self.retime:
            self.shift = max(now, last.ms + 1) - first.ms

    def _resume(self, source: str, first: StreamID, shift: int, position: StreamID, rows: int) -> None:
        if source != self.source or first != self.first:
            raise ConnectorError(
                f"rillet: another replay into {self.options.stream!r} was not finished: {source}, from {first} on; "
                "finish it, or forget it (anew)"
            )
        if not self.opened:
            self.before = rows
        self.shift, self.position, self.rows = shift, position, rows

    # ---- rows ------------------------------------------------------------------------------------------------------

    def write(self, batch: Any) -> None:
        """Write the rows of a batch that are not in the target yet, each not before its time."""
        from rillet.spark.write.row_encoder import ids_that_rise

        first, last = ids_that_rise(batch.column("id"), "id", self.seen)
        self.seen = last
        if self.first is None:
            self.first = first
            self._again(lambda: self.open(first))
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
        """Return before which row to stop now; waits until the first one's time has come."""
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
        """Write what is packed, from and to these rows, in one transaction with the record."""
        commands = self.packer.commands
        data = bytes(self.packer.take())

        def attempt() -> bool:
            if self.connection is None:
                self.open(first)
                if self.position >= last:  # it was written, and the answer was lost
                    return True
                if self.position >= first:
                    raise ConnectorError(f"rillet: another process runs this replay into {self.options.stream!r}")
            return self._transaction(data, commands, last)

        while not self._again(attempt):
            self.connection = None  # somebody wrote to the target

    def _transaction(self, data: bytes, commands: int, last: StreamID) -> bool:
        """Return whether it was executed; False where the target or the record had changed."""
        connection = self.connection
        assert connection is not None
        rows = self.rows + commands
        told = {b"source": self.source, b"first": self.first, b"shift": self.shift, b"position": last, b"rows": rows}
        note = pack(
            b"HSET", self.record, *(word for name, value in told.items() for word in (name, str(value).encode()))
        )
        # The next one is watched from here on. Between EXEC and WATCH others may come: XINFO shows whether they did.
        watch = pack(b"WATCH", self.key, self.record) + pack(b"XINFO", b"STREAM", self.key)
        connection.send(pack(b"MULTI") + data + note + pack(b"EXEC") + watch)
        replies = [connection.reply() for _ in range(commands + 5)]
        *queued, executed, _, found = replies
        refused = [reply for reply in (*queued, executed) if isinstance(reply, ReplyError)]
        if not refused and executed is not None:
            refused = [reply for reply in executed if isinstance(reply, ReplyError)]
        if refused:
            if self.servers.redirected(self.key, str(refused[0])):
                raise ConnectionLost(f"rillet: {self.options.stream!r} has moved: {refused[0]}")
            raise ConnectorError(
                f"rillet: {connection.address} refused the replay into {self.options.stream!r}: {refused[0]}"
            )
        if executed is None:
            return False
        self.position, self.rows = last, rows
        written = f"{last.ms + self.shift}-{last.seq}".encode()
        if isinstance(found, ReplyError) or found[found.index(b"last-generated-id") + 1] != written:
            self.connection = None  # and `open` looks at it before the next chunk
        return True

    def _again(self, what: Callable[[], Any]) -> Any:
        """Do something, again over a new connection where one was lost."""
        for attempt in range(ATTEMPTS):
            try:
                return what()
            except ConnectionLost:
                if attempt + 1 == ATTEMPTS:
                    raise
                if self.connection is not None:
                    self.servers.forget(self.connection)
                    self.connection = None
                self.sleep(0.1 * 2**attempt)
        raise AssertionError


def halves(ids: Any) -> tuple[Any, Any]:
    """Return the milliseconds and the sequence numbers of a column of IDs."""
    import pyarrow as pa
    import pyarrow.compute as pc

    parts = pc.split_pattern(ids.cast(pa.string()), "-", max_splits=1)
    whole = pc.equal(pc.list_value_length(parts), 2)
    second = pc.list_flatten(pc.list_slice(parts, 1, 2, return_fixed_size_list=True))
    return pc.list_element(parts, 0).cast(pa.uint64()), pc.if_else(whole, second, "0").cast(pa.uint64())


def shifted(ms: Any, seq: Any, shift: int) -> Any:
    """Return IDs whose milliseconds are moved."""
    import pyarrow as pa
    import pyarrow.compute as pc

    moved = pc.add(ms.cast(pa.int64()), shift).cast(pa.string())
    return pc.binary_join_element_wise(moved, seq.cast(pa.string()), "-")


def _beyond(ms: Any, seq: Any | None, bound: StreamID) -> int:
    """Return the first row whose ID is larger than a bound; without `seq`, whose time is. O(log rows)"""
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
    """Declare what the command takes."""
    cli_arguments.source_arguments(parser)
    group = parser.add_argument_group("what to replay")
    group.add_argument("--parquet", metavar="FOLDER", help="Parquet files with id and fields, such as an archive")
    group.add_argument(
        "--archive", type=cli_arguments.local_folder, metavar="FOLDER", help="an archive, and its stream beyond it"
    )
    group.add_argument("--start", metavar="ID", help="the first ID, or milliseconds")
    group.add_argument("--end", metavar="ID", help="the last ID, or milliseconds")
    group = parser.add_argument_group("where to")
    cli_arguments.target_arguments(group)
    group.add_argument("--retime", action="store_true", help="new IDs that begin now, with the same distances")
    group.add_argument(
        "--speed", type=cli_arguments.positive_number, metavar="N", help="N times the recorded pace (default: at once)"
    )
    group.add_argument("--anew", action="store_true", help="forget an earlier replay that was not finished")
    cli_arguments.spark_arguments(parser)


def argument_errors(options: argparse.Namespace) -> list[str]:
    """Return what is wrong with the arguments taken together."""
    wrong = cli_arguments.target_errors(options, reads_stream=options.parquet is None)
    if options.parquet is not None and options.archive is not None:
        wrong.append("give one of --parquet and --archive")
    if options.parquet is None:
        wrong += cli_arguments.source_errors(options, **_range(options))
        if options.streams or options.stream_pattern:
            wrong.append("one stream is replayed at a time: --stream")
    else:
        wrong += [f"--{name} is for a stream, not for Parquet files" for name in ("start", "end")
                  if getattr(options, name) is not None]  # fmt: skip
        if not Path(options.parquet).exists():
            wrong.append(f"--parquet is {options.parquet!r}: it is not there")
        if not {"url", "path"} & cli_arguments.target_options(options).keys():
            wrong.append("--to-url or --to-path is missing: where the stream to write to is")
    return wrong


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
            done = replay(
                frame, options.to, retime=options.retime, speed=options.speed, ordered=ordered, source=source,
                anew=options.anew, progress=bar, total=None, **cli_arguments.target_options(options),
            )  # fmt: skip
        print(done.line(options.to))
    finally:
        spark.stop()
    return cli_common.DONE


__all__ = ["ReplaySummary", "replay", "table"]

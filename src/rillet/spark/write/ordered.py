"""Writes the rows of one stream's batch in the order of its tasks: order=stream, exactly once (transactions.py).

A batch of a rillet source with one stream is divided into ranges of IDs, in the order of the partitions. So the copy is
in order if each task appends its rows in order, and after all rows of the lower partitions. The commit record shows
when: it is the turn of partition p when the record of partition p - 1 is `done` (commits.py). A task without rows
records `done`, too.

    partition 0    receive and pack ──► XADD in transactions                        done
    partition 1    receive and pack ──► local file ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ (waits)  ──► file ──► XADD in transactions   done
    partition 2    receive and pack ──► local file ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ...

All tasks receive and pack at the same time. Only the task whose turn it is appends; the server is the bottleneck there
in any case. The other tasks keep their packed rows in memory up to transactionBytes, and beyond in a temporary file.
While a task packs, it looks at the record before every chunk. It appends the file as soon as its turn has come, and the
rest directly.

**A waiting task must not block its predecessor.** It holds a slot of Spark that the predecessor may need: after the
loss of an executor, or if another order of the tasks is scheduled. So if the record has not changed for `orderWait`,
the task puts its packed rows aside on the server, in a list beside the record, and ends successfully:

    rillet:commits:{copy}:<query>:aside            a hash:  2 -> "42 <token> 17", the batch, the list, its length
    rillet:commits:{copy}:<query>:2:rows:<token>   a list of 17 chunks

Rows that were put aside are appended by the first of these: the task of the partition before, after its own rows; the
task itself, if its turn came while it put them aside; the driver's commit of the batch. Each uses the partition's own
record and fence, as every attempt of the task does. So it does not matter how many of them try, or where they stop.
Since `done` never reverts within a batch, rows are appended in order by whichever process appends them.

Rejected: waiting without a bound (a deadlock); failing for a retry (local mode fails the job at the first failure, and
a cluster after four); putting all rows aside (the server would store a whole batch in addition, and write it twice);
appending all rows in the driver's commit (packing and appending would no longer overlap). The design note 0026 has the
measurements.
"""

from __future__ import annotations

import os
import tempfile
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import IO, Any

from rillet.client.errors import ConnectorError
from rillet.client.servers import Servers
from rillet.client.transaction import multi_exec, retry
from rillet.real_time import monotonic
from rillet.spark.options import Options
from rillet.spark.write.commits import BATCH_SECONDS, Identity, Record, Written, record_key, shown
from rillet.spark.write.row_encoder import RowEncoder
from rillet.spark.write.transactions import Chunk, TaskTransactions, TransactionSender
from rillet.types.stream.id import StreamID

LOOK_SECONDS = 0.005  # the first pause between two looks at the record; it doubles up to LONGEST_LOOK
LONGEST_LOOK = 0.05
ASIDE_AT_ONCE = 8  # the number of chunks that are sent to the server, or read from it, in one round trip


class OrderedSender(TransactionSender):
    """Writes a task's rows exactly once, after the rows of all lower partitions."""

    def __init__(self, servers: Servers, options: Options, layout: RowEncoder, identity: Identity) -> None:
        super().__init__(servers, options, layout, identity)
        self.turn_has_come = identity.partition == 0
        self.put_aside = False
        self.spool: Spool | None = None

    def keep(self, share: TaskTransactions, chunk: Chunk) -> None:
        """Append a chunk if it is this task's turn; otherwise store it."""
        if not self.turn_has_come:
            self.turn_has_come = self._look(share.record)[0]
            if not self.turn_has_come:
                self.spool = self.spool or Spool(self.options.transaction_bytes)
                self.spool.add(chunk)
                return
        self._append_spool(share)
        self.append_packed(share, (chunk,))  # the stored rows may have shown that another attempt was faster

    def _append_spool(self, share: TaskTransactions) -> None:
        if self.spool is not None:
            spool, self.spool = self.spool, None
            with closing(spool):
                self.append_packed(share, spool)

    def append_packed(self, share: TaskTransactions, chunks: Iterable[Chunk]) -> None:
        """Append chunks that were packed earlier, except those whose rows are in the stream already."""
        for chunk in chunks:
            before = share.at.rows
            if share.closed or chunk.rows <= share.recorded.rows:
                share.at = chunk
            elif before < share.recorded.rows:
                raise ConnectorError(
                    f"rillet: another attempt of {self._task()} wrote to {shown(share.stream)} at the same time; Spark "
                    f"must run the task again"
                )
            else:
                super().keep(share, chunk)

    def finish(self) -> dict[bytes, int]:
        """Wait for this task's turn and append its rows, or put them aside; return the number of rows."""
        for stream, packer in self.packers.items():
            self.chunk(stream, packer)
        share = self._share()
        self._check_whole(share)
        if self._await_turn(share):
            self._complete(share)
            append_aside(self.servers, self.options, self.layout, self._next())
        else:
            self._put_aside(share)
            self.put_aside = True
            if retry(self.servers, lambda: self._look(share.record)[0]):  # the task before may have looked too early
                append_aside(self.servers, self.options, self.layout, self.identity)
        return self.rows

    def _share(self) -> TaskTransactions:
        """Return the task's rows for the only stream, also if it has none."""
        stream = self.layout.stream
        self.rows.setdefault(stream, 0)
        self.begin(stream)
        return self.shares[stream]

    def _complete(self, share: TaskTransactions) -> None:
        """Append all stored rows and record the task as complete."""
        self._append_spool(share)
        while not share.closed and share.recorded.state != "done":
            self._commit(share, "done")
        self._check_whole(share)

    def _next(self) -> Identity:
        return replace(self.identity, partition=self.identity.partition + 1)

    # ---- turns ----

    def _look(self, record: Record) -> tuple[bool, Any]:
        """Return whether all lower partitions are complete, and the record, whose changes are signs of life."""
        flat = self.servers.call(record.key, b"HGETALL", record.key)
        fields = dict(zip(flat[::2], flat[1::2], strict=True))
        before = Record(record.stream, replace(self.identity, partition=self.identity.partition - 1))
        progress = before.progress((fields.get(b"done"), fields.get(before.field)))
        return progress is None or progress.state == "done", fields

    def _await_turn(self, share: TaskTransactions) -> bool:
        """Wait until it is this task's turn; return False if the record did not change for orderWait."""
        if self.turn_has_come or share.closed or share.recorded.state == "done":
            return True
        pause = LOOK_SECONDS
        seen: Any = None
        since = monotonic()
        while True:
            self.turn_has_come, fields = retry(self.servers, lambda: self._look(share.record))
            if self.turn_has_come:
                return True
            if fields != seen:
                seen, since = fields, monotonic()
            elif monotonic() - since >= self.options.order_wait:
                return False
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_LOOK)

    # ---- rows put aside ----

    def _put_aside(self, share: TaskTransactions) -> None:
        """Store the packed rows on the server; an entry of an earlier attempt is replaced."""
        record, token = share.record, uuid.uuid4().hex
        chunks = 0
        for some in _grouped([] if self.spool is None else self.spool):
            words = [chunk_bytes(chunk) for chunk in some]
            chunks += len(words)
            retry(self.servers, partial(self._push, rows_key(record, token), words, chunks))
        note = f"{self.identity.batch} {token} {chunks}".encode()
        key = aside_key(record.stream, self.identity.query)
        (replaced,) = retry(self.servers, partial(self.servers.call, key, b"HMGET", key, record.field))
        multi_exec(self.servers, key, [(b"HSET", key, record.field, note), (b"EXPIRE", key, b"%d" % BATCH_SECONDS)])
        if replaced is not None:  # rows of an attempt that ended without a note expire after a day
            before = rows_key(record, replaced.decode().split()[1])
            self.servers.call(before, b"UNLINK", before)
        self.close()

    def close(self) -> None:
        """Delete the temporary file of packed rows, if there is one."""
        if self.spool is not None:
            self.spool.close()

    def _push(self, key: bytes, words: Sequence[bytes], length: int) -> None:
        """Append values to a list, which then has `length` values; may be repeated after a lost connection."""
        if self.servers.call(key, b"LLEN", key) < length:
            self.servers.calls(key, [(b"RPUSH", key, *words), (b"EXPIRE", key, b"%d" % BATCH_SECONDS)])


class Spool:
    """Packed chunks, in memory up to a limit and then in a temporary file; iterates over them in order, once."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.first: list[Chunk] = []
        self.size = 0
        self.file: IO[bytes] | None = None

    def add(self, chunk: Chunk) -> None:
        """Append a chunk."""
        if self.size + len(chunk.data) <= self.most:
            self.first.append(chunk)
            self.size += len(chunk.data)
            return
        self.size = self.most
        if self.file is None:
            self.file = tempfile.TemporaryFile(prefix="rillet-", dir=local_folder())  # noqa: SIM115
        data = chunk_bytes(chunk)
        self.file.write(b"%d\n" % len(data))
        self.file.write(data)

    def close(self) -> None:
        """Delete the file."""
        if self.file is not None:
            self.file.close()

    def __iter__(self) -> Iterator[Chunk]:
        yield from self.first
        if self.file is not None:
            self.file.seek(0)
            while size := self.file.readline():
                yield chunk_of(self.file.read(int(size)))


def chunk_bytes(chunk: Chunk) -> bytes:
    """Return a chunk as bytes: a line with its numbers, then the packed commands."""
    first = "-" if chunk.first_id is None else str(chunk.first_id)
    line = f"{chunk.commands} {chunk.rows} {chunk.size} {chunk.digest} {first}\n"
    return line.encode() + bytes(chunk.data)


def chunk_of(text: bytes) -> Chunk:
    """Return the chunk that `chunk_bytes` has converted."""
    line, _, data = text.partition(b"\n")
    commands, rows, size, digest, first = line.decode().split()
    return Chunk(data, int(commands), int(rows), int(size), digest, None if first == "-" else StreamID.parse(first))


def _grouped(chunks: Iterable[Chunk]) -> Iterator[list[Chunk]]:
    some: list[Chunk] = []
    for chunk in chunks:
        some.append(chunk)
        if len(some) == ASIDE_AT_ONCE:
            yield some
            some = []
    if some:
        yield some


# ---- rows put aside by tasks that have ended --------------------------------------------------------------------


def aside_key(stream: bytes, query: str) -> bytes:
    """Return the key of the hash that lists the rows put aside; it is in the stream's cluster slot."""
    return record_key(stream, query) + b":aside"


def rows_key(record: Record, token: str) -> bytes:
    """Return the key of a list of packed rows of one task."""
    return b"%b:rows:%b" % (record.fence, token.encode())


def append_aside(servers: Servers, options: Options, layout: RowEncoder, identity: Identity) -> None:
    """Append the rows that this partition has put aside, and those of the next ones, up to one that has put none aside.

    Call it when all lower partitions are complete. Repeating it, also in parallel, appends nothing twice.
    """
    key = aside_key(layout.stream, identity.query)
    while True:
        record = Record(layout.stream, identity)
        (note,) = retry(servers, partial(servers.call, key, b"HMGET", key, record.field))
        if note is None or int(note.split()[0]) != identity.batch:
            return
        _, token, chunks = note.decode().split()
        _append_rows(servers, options, layout, record, token, int(chunks))
        servers.calls(key, [(b"HDEL", key, record.field), (b"UNLINK", rows_key(record, token))])
        identity = replace(identity, partition=identity.partition + 1)


def _append_rows(
    servers: Servers, options: Options, layout: RowEncoder, record: Record, token: str, chunks: int
) -> None:
    sender = OrderedSender(servers, options, layout, record.identity)
    sender.turn_has_come = True
    sender.begin(record.stream)
    share = sender.shares[record.stream]
    if share.closed or share.recorded.state == "done":
        return
    key = rows_key(record, token)
    with Servers(options) as reading:  # the other connection has an open transaction
        for start in range(0, chunks, ASIDE_AT_ONCE):
            stop = min(start + ASIDE_AT_ONCE, chunks) - 1
            some = retry(reading, partial(reading.call, key, b"LRANGE", key, b"%d" % start, b"%d" % stop))
            if len(some) < stop + 1 - start:
                if _is_done(reading, record):  # another process has appended and deleted them
                    share.transaction.forget()
                    return
                raise ConnectorError(
                    f"rillet: rows of task {record.identity.partition} of batch {record.identity.batch} that were put "
                    f"aside for {shown(record.stream)} are gone: another client deleted {shown(key)}"
                )
            sender.append_packed(share, map(chunk_of, some))
    share.rows, share.size = share.at.rows, share.at.size
    sender._complete(share)


def _is_done(servers: Servers, record: Record) -> bool:
    progress = record.progress(retry(servers, partial(servers.call, record.key, *record.look())))
    return progress is None or progress.state == "done"


def append_all_aside(servers: Servers, options: Options, layout: RowEncoder, written: Sequence[Written]) -> None:
    """Append all rows that the tasks of a batch have put aside; raise ConnectorError if such rows are gone."""
    tasks = [one.identity for one in written if one.identity is not None]
    key = aside_key(layout.stream, tasks[0].query)
    flat = retry(servers, partial(servers.call, key, b"HGETALL", key))
    notes = dict(zip(flat[::2], flat[1::2], strict=True))
    aside = [int(task) for task, note in notes.items() if int(note.split()[0]) == tasks[0].batch]
    if aside:
        append_aside(servers, options, layout, replace(tasks[0], partition=min(aside)))
    if notes:
        retry(servers, partial(servers.call, key, b"UNLINK", key))
    record = record_key(layout.stream, tasks[0].query)
    flat = retry(servers, partial(servers.call, record, b"HGETALL", record))
    fields = dict(zip(flat[::2], flat[1::2], strict=True))
    for task in [one.identity for one in written if one.identity is not None and one.aside]:
        one = Record(layout.stream, task)
        progress = one.progress((fields.get(b"done"), fields.get(one.field)))
        if progress is not None and progress.state != "done":
            raise ConnectorError(
                f"rillet: the rows of task {task.partition} of batch {task.batch} were put aside for "
                f"{shown(layout.stream)} and are gone: the server restarted or failed over without them, another "
                f"client deleted them, or they expired after a day"
            )


# ---- rows from a rillet source with one stream ------------------------------------------------------------------

# Spark runs the reader and the writer of a task in two Python processes, and passes the writer nothing about the
# source. But both processes belong to one executor, whose local directory they know: the reader writes the task's
# number into a file there. If rows pass through a shuffle, reader and writer belong to different tasks.
#
# There is one file, and the place of a number in it is the number modulo MARKS: most readers have no writer that could
# remove what they have written. A number is overwritten after as many tasks of the executor.

MARKS = 4096
_MARK_BYTES = 8


def local_folder() -> str | None:
    """Return a local directory of this Spark executor; None outside of Spark's workers."""
    folder = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0]
    return folder if folder and Path(folder).is_dir() else None


def _mark(context: Any) -> tuple[Path, int, bytes] | None:
    """Return the file of the executor's marks, the place of a task's mark, and the mark."""
    folder = local_folder()
    if context is None or folder is None:
        return None
    task = context.taskAttemptId()
    mark = (task + 1).to_bytes(_MARK_BYTES, "big")
    return Path(folder, "rillet-in-order"), task % MARKS * _MARK_BYTES, mark


def mark_rows_in_order(context: Any) -> None:
    """Record that this task reads rows of one stream, in order; called by the reader."""
    if (found := _mark(context)) is not None:
        path, place, mark = found
        try:
            with os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o600), "r+b", buffering=0) as file:
                file.seek(place)
                file.write(mark)
        except OSError:  # without the mark, rows are appended without an order
            return


def rows_in_order(context: Any) -> bool:
    """Return whether the rows of this task come from a rillet source with one stream; called by the writer."""
    if (found := _mark(context)) is None:
        return False
    path, place, mark = found
    try:
        with path.open("rb", buffering=0) as file:
            file.seek(place)
            return file.read(_MARK_BYTES) == mark
    except OSError:
        return False

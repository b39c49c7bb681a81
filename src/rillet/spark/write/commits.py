"""Commit records: the number of a task's rows that are in a stream, stored by the transaction that appends them.

Spark repeats a task after a failure or in parallel to a slow attempt (speculation). After a restart of the driver, it
repeats all tasks of a batch. All attempts of a task share a name (query, batch, partition):

    streaming query    query = the ID in the checkpoint, batch = the micro-batch; from the task's local properties
    df.write           query = a random name that the driver generates for this write, batch = 0
    with txnAppId      query = txnAppId, batch = txnVersion: for writes in foreachBatch; `:` is encoded as %3A

There are two keys per stream and query, in the stream's slot of a cluster. Streams that a column names share two keys:
the name of their group takes the place of `events` (many_streams.py).

    rillet:commits:{events}:<query>      a hash, the record
        done    -> "41"                            batches up to this one are complete; written by the driver
        3       -> "42 52000 7182818 9a.. part"    partition 3 of batch 42: rows and bytes in the stream, their digest,
        4       -> "42 9000 1234567 77.. done"     and whether the task is complete
    rillet:commits:{events}:<query>:3    the fence of partition 3: every transaction of its attempts changes it

A transaction:

    WATCH fence;  HMGET record done 3;  MULTI;  XADD ... XADD;  HSET record 3 ...;  SET fence;  EXEC

An attempt sends EXEC only if HMGET has returned the expected record. If another attempt has written since WATCH,
the fence has changed and EXEC does nothing; the record then shows the new state. The record itself is not watched,
because all tasks of a batch write to it. The meaning of a record for the rows of a task:

    missing          no row is in the stream
    part, n rows     exactly the first n rows are in the stream: continue after them, if their digest is still the same
    done, n rows     all rows are in the stream. A repeated task must have as many rows and bytes, in any order
    done >= batch    all rows of all tasks of the batch are in the stream: write nothing

The driver's commit raises `done` and removes the tasks' fields, so the record of a streaming query has one field
between batches. This record never expires, so a query may pause for a year. The record of a df.write expires a day
after its last change; until then, a late attempt on a lost executor still finds it. A fence expires after an hour: only
attempts that run at the same time need it.

Rejected: WATCH on the record (parallel tasks would break each other's transactions); a field in the entries (consumers
would read this field); a script (rillet runs no scripts, and a script also executes a whole chunk at once); a record
per node of a cluster (a slot that moves to another node would leave its record behind).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from rillet.client.cluster import SLOTS, slot_of
from rillet.client.errors import ConnectorError
from rillet.client.servers import Servers
from rillet.client.transaction import multi_exec
from rillet.loggers import logger

if TYPE_CHECKING:
    from pyspark import TaskContext

log = logger("spark")

PREFIX = b"rillet:commits:"
BATCH_SECONDS = 86_400
FENCE_SECONDS = 3_600
RESERVED = ("replay", "dead-letters")  # Query names of pipelines, whose records have another format.
CLOSED = 1 << 62  # The value of `done` after a failed write; it blocks further attempts.
_GROUP = b"rillet:streams"  # the beginning of the names of groups of streams that share a record


@dataclass(frozen=True)
class Identity:
    """The name of a write task (query, batch, partition), which all attempts of the task share."""

    query: str
    batch: int
    partition: int
    lasting: bool  # whether the commit record is kept without an expiry time


class CommitProgress(NamedTuple):
    """The number of a task's rows that are in a stream, with their size and digest; one field of a commit record."""

    batch: int
    rows: int = 0
    size: int = 0
    digest: str = "-"
    state: str = "part"  # "part", "done" (all rows) or "torn" (also some later rows)

    @classmethod
    def parse(cls, text: bytes) -> CommitProgress:
        """Parse one partition's field of a commit record."""
        batch, rows, size, digest, state = text.decode().split()
        return cls(int(batch), int(rows), int(size), digest, state)

    def packed(self) -> bytes:
        """Return the value of one partition's field in a commit record."""
        return f"{self.batch} {self.rows} {self.size} {self.digest} {self.state}".encode()


class Record:
    """The keys of a task's commit record for one stream, and the commands that read and write it."""

    def __init__(self, stream: bytes, identity: Identity) -> None:
        self.identity = identity
        self.stream = stream
        self.key = record_key(stream, identity.query)
        self.field = b"%d" % identity.partition
        self.fence = b"%b:%d" % (self.key, identity.partition)

    def look(self) -> tuple[bytes, ...]:
        """Return the HMGET command that reads this task's part of the commit record."""
        return (b"HMGET", self.key, b"done", self.field)

    def progress(self, reply: Sequence[bytes | None]) -> CommitProgress | None:
        """Return the task's progress from the reply to the command of `look`; None if the whole batch is complete."""
        done, field = reply
        if done is not None and int(done) >= self.identity.batch:
            return None
        if field is not None and (progress := CommitProgress.parse(field)).batch == self.identity.batch:
            return progress
        return CommitProgress(self.identity.batch)

    def note(self, progress: CommitProgress) -> list[tuple[bytes, ...]]:
        """Return the commands that store the progress; send them in the transaction that appends the rows."""
        commands: list[tuple[bytes, ...]] = [
            (b"HSET", self.key, self.field, progress.packed()),
            (b"SET", self.fence, progress.packed(), b"EX", b"%d" % FENCE_SECONDS),
        ]
        if not self.identity.lasting:
            commands.append((b"EXPIRE", self.key, b"%d" % BATCH_SECONDS))
        return commands


def record_key(stream: bytes, query: str) -> bytes:
    """Return the key of a query's commit record for a stream; the key is in the stream's cluster slot."""
    start = stream.find(b"{")
    end = stream.find(b"}", start + 1)
    if start >= 0 and end > start + 1:  # the stream's key has a hash tag
        place = b"{%b}:%b" % (stream[start + 1 : end], stream)
    elif stream and b"}" not in stream:
        place = b"{%b}" % stream
    else:
        place = b"{%b}:%b" % (tag_of(slot_of(stream)), stream)
    return PREFIX + place + b":" + query.encode()


def group_name(stream: bytes, slot: int | None) -> bytes:
    """Return the name of the streams of a slot that share a record, a key in this slot; None: of a single server.

    stream: the option `stream`, the beginning of the streams' names.
    """
    return b"%b{%b}.%b" % (_GROUP, b"0" if slot is None else slot_tags()[slot], stream)


def name_in_keys(query: str) -> str:
    """Encode `:` in a query's name; otherwise `a:3` could name a record or the fence of query `a`, partition 3."""
    return query.replace("%", "%25").replace(":", "%3A")


def tag_of(slot: int) -> bytes:
    """Find a hash tag of a cluster slot by trial, for stream keys that contain `}`; takes a few milliseconds."""
    return next(tag for number in itertools.count() if slot_of(tag := b"%d" % number) == slot)


@lru_cache(maxsize=1)
def slot_tags() -> list[bytes]:
    """Return the hash tag of `tag_of` for each slot of a cluster; takes 0.1 s."""
    tags: dict[int, bytes] = {}
    numbers = itertools.count()
    while len(tags) < SLOTS:
        tag = b"%d" % next(numbers)
        tags.setdefault(slot_of(tag), tag)
    return [tags[slot] for slot in range(SLOTS)]


# ---- the driver's side -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Written:
    """The result of a write task: its identity, and the number of rows that it wrote to each stream."""

    identity: Identity | None  # None: the write has no records
    rows: dict[bytes, int]
    ordered: bool = False  # whether the task has waited for its turn (ordered.py)
    aside: bool = False  # whether it put its rows aside
    notes: dict[bytes, bytes] | None = None  # without transactions: the last chunk on each server (query_record.py)
    field: bytes = b""  # the field that has these notes
    groups: dict[bytes, int] | None = None  # the rows of each group of streams that share a record (many_streams.py)


def close_batch(servers: Servers, written: Sequence[Written]) -> list[bytes]:
    """Record that a batch is complete; raise ConnectorError unless each stream has the rows of just these tasks.

    Return the keys of the commit records. May be repeated after a lost connection: the records show what has run.
    """
    tasks: dict[bytes, dict[Identity, int]] = {}
    for task in written:
        if task.identity is not None and task.notes is None:
            for stream, rows in (task.rows if task.groups is None else task.groups).items():
                tasks.setdefault(stream, {})[task.identity] = rows
    return [_close(servers, stream, rows) for stream, rows in tasks.items()]


def _close(servers: Servers, stream: bytes, rows: dict[Identity, int]) -> bytes:
    identity = next(iter(rows))
    partitions = {one.partition for one in rows}
    key = record_key(stream, identity.query)
    flat = servers.call(key, b"HGETALL", key)
    fields: dict[bytes, bytes] = dict(zip(flat[::2], flat[1::2], strict=True))
    done = int(fields.pop(b"done", b"-1"))
    if done > identity.batch:
        log.warning(
            "rillet: batch %d of %s was not written to %s, because batch %d is already complete there. With a new "
            "checkpoint, use a new txnAppId",
            identity.batch, identity.query, shown(stream), done,
        )  # fmt: skip
    if done >= identity.batch:
        # A repeated commit writes again, so that waiting for copies (copies.py) waits for the earlier writes, too.
        servers.call(key, b"HSET", key, b"done", b"%d" % done)
        return key
    tasks = {int(name): CommitProgress.parse(text) for name, text in fields.items()}
    written = {task for task, progress in tasks.items() if progress.batch == identity.batch}
    others = sorted(written - partitions)
    if others:
        raise ConnectorError(
            f"rillet: batch {identity.batch} was written to {shown(stream)} by {len(partitions)} tasks, but an earlier "
            f"attempt with other tasks also wrote task {', '.join(map(str, others))}: rows may be duplicated "
            f"(record: {shown(key)})"
        )
    for task, count in rows.items():
        if count and task.partition not in written:
            raise rows_gone(str(task.partition), task.batch, str(servers.connection(key).address), stream)
    commands: list[tuple[bytes, ...]] = [(b"HSET", key, b"done", b"%d" % identity.batch)]
    if fields:
        commands.append((b"HDEL", key, *fields))
    if not identity.lasting:
        commands.append((b"EXPIRE", key, b"%d" % BATCH_SECONDS))
    multi_exec(servers, key, commands)
    return key


def rows_gone(partition: str, batch: int, where: str, stream: bytes = b"") -> ConnectorError:
    """Return the error for rows that a server lost between the end of their task and the commit of the batch."""
    of = f" of {shown(stream)}" if stream else ""
    return ConnectorError(
        f"rillet: {where} lost rows{of} that task {partition} of batch {batch} had written: it restarted or failed "
        f"over without its last writes before the batch was committed. Restart the query or repeat the write: the "
        f"batch writes what is missing"
    )


def give_up(servers: Servers, query: str, streams: Sequence[bytes]) -> None:
    """Close the commit records of a failed df.write, so that late attempts of its tasks write nothing."""
    for stream in streams:
        key = record_key(stream, query)
        servers.calls(key, [(b"HSET", key, b"done", b"%d" % CLOSED), (b"EXPIRE", key, b"%d" % BATCH_SECONDS)])


def shown(key: bytes) -> str:
    """Return a Redis key as text for error messages."""
    if key.startswith(_GROUP):
        return "its streams"
    return repr(key.decode(errors="backslashreplace"))


def task_identity(query: str | None, batch: int, context: TaskContext | None, lasting: bool) -> Identity:
    """Return the identity of the running task; if `query` is None, read query and batch from Spark's properties."""
    if context is None:
        raise ConnectorError("rillet: rows can only be written inside a Spark task")
    if query is not None:
        return Identity(query, batch, context.partitionId(), lasting)
    query = context.getLocalProperty("sql.streaming.queryId")
    number = context.getLocalProperty("streaming.sql.batchId")
    if query is None or number is None:
        raise ConnectorError(
            "rillet: exactlyOnce requires the query's ID and batch number, which Spark did not pass: set it to none"
        )
    return Identity(query, int(number), context.partitionId(), True)

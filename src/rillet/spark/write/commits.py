"""Commit records: what of a task's rows is in a stream already, written in the transaction that wrote them.

Spark runs tasks again: after a failure, beside a slow one (speculation), after a restart of the driver the whole batch.
What a task writes has a name that all of its attempts share, (query, batch, partition):

    streaming query    query = its ID in the checkpoint, batch = the micro-batch        from the task's local properties
    df.write           query = a name made with the writer on the driver, batch = 0
    with txnAppId      query = txnAppId, batch = txnVersion: what a write in foreachBatch needs; : is written %3A there

Two keys for each stream and query, in the stream's own slot of a cluster:

    rillet:commits:{events}:<query>      a hash, the record
        done    -> "41"                            batches up to this one are complete; written by the driver
        3       -> "42 52000 7182818 9a.. part"    partition 3 of batch 42: rows and bytes in the stream, their digest,
        4       -> "42 9000 1234567 77.. done"     and whether those are all the task's rows
    rillet:commits:{events}:<query>:3    the fence of partition 3: every transaction of its attempts changes it

A transaction of an attempt:

    WATCH fence;  HMGET record done 3;  MULTI;  XADD ... XADD;  HSET record 3 ...;  SET fence;  EXEC

EXEC is sent after HMGET's reply has shown the record to be what this attempt believes. Whoever else wrote since WATCH
has changed the fence, so EXEC does nothing, and the record tells the loser where things stand. The record itself is
not watched: all tasks of a batch write into it. What the record says about a task's rows:

    nothing          none of them is in the stream
    part, n rows     exactly the first n: go on after them, if the first n now have the same digest
    done, n rows     all of them, in whatever order they come now: n rows of as many bytes, or else these are other rows
    done >= batch    all rows of all tasks: nothing is to be written

The driver's commit moves `done` up and removes the tasks' fields: the record of a query that runs is one field between
batches. It stays, so that a query may rest for a year. Records of df.write go away a day after the last word
about them (a late attempt that the cluster's manager lost from sight still finds them); fences an hour after theirs,
which only attempts that run at the same moment need.

Rejected: WATCH on the record (parallel tasks would break each other's transactions); a field of the stream's entries
(others read them); a script (rillet has none, and one would run the whole chunk in one go as well); a record for each
server instead of each stream (a stream moved to another server would leave its record behind).
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from rillet.client.cluster import slot_of
from rillet.client.errors import ConnectionLost, ConnectorError
from rillet.client.redirection import Patience
from rillet.client.servers import Servers

log = logging.getLogger("rillet.spark")

PREFIX = b"rillet:commits:"
BATCH_SECONDS = 86_400
FENCE_SECONDS = 3_600
RESERVED = ("replay", "dead-letters")  # queries of the pipelines, whose records are other ones
CLOSED = 1 << 62  # `done` of a write that was given up: no attempt writes any more


@dataclass(frozen=True)
class Identity:
    """What all attempts of a task share."""

    query: str
    batch: int
    partition: int
    lasting: bool  # False: the record goes away by itself


class CommitProgress(NamedTuple):
    """How much of a task's rows is in a stream."""

    batch: int
    rows: int = 0
    size: int = 0
    digest: str = "-"
    state: str = "part"  # "done": all of them; "torn": some of the next ones too, and it cannot be told which

    @classmethod
    def parse(cls, text: bytes) -> CommitProgress:
        """Read a record's field."""
        batch, rows, size, digest, state = text.decode().split()
        return cls(int(batch), int(rows), int(size), digest, state)

    def packed(self) -> bytes:
        """Return the record's field."""
        return f"{self.batch} {self.rows} {self.size} {self.digest} {self.state}".encode()


class Record:
    """The keys of one stream's record and the commands about them."""

    def __init__(self, stream: bytes, identity: Identity) -> None:
        self.identity = identity
        self.stream = stream
        self.key = record_key(stream, identity.query)
        self.field = b"%d" % identity.partition
        self.fence = b"%b:%d" % (self.key, identity.partition)

    def look(self) -> tuple[bytes, ...]:
        """Return the command that reads what there is."""
        return (b"HMGET", self.key, b"done", self.field)

    def progress(self, reply: Sequence[bytes | None]) -> CommitProgress | None:
        """Return what the reply to `look` says of this task; None where the whole batch is complete."""
        done, field = reply
        if done is not None and int(done) >= self.identity.batch:
            return None
        found = CommitProgress.parse(field) if field is not None else None
        return (
            found if found is not None and found.batch == self.identity.batch else CommitProgress(self.identity.batch)
        )

    def note(self, progress: CommitProgress) -> list[tuple[bytes, ...]]:
        """Return the commands that write progress down, for the transaction that makes it true."""
        commands: list[tuple[bytes, ...]] = [
            (b"HSET", self.key, self.field, progress.packed()),
            (b"SET", self.fence, progress.packed(), b"EX", b"%d" % FENCE_SECONDS),
        ]
        if not self.identity.lasting:
            commands.append((b"EXPIRE", self.key, b"%d" % BATCH_SECONDS))
        return commands


def record_key(stream: bytes, query: str) -> bytes:
    """Return the key of a stream's record of a query: in the stream's slot."""
    start = stream.find(b"{")
    end = stream.find(b"}", start + 1)
    if start >= 0 and end > start + 1:  # the stream has a tag of its own
        place = b"{%b}:%b" % (stream[start + 1 : end], stream)
    elif stream and b"}" not in stream:
        place = b"{%b}" % stream
    else:
        place = b"{%b}:%b" % (tag_of(slot_of(stream)), stream)
    return PREFIX + place + b":" + query.encode()


def name_in_keys(query: str) -> str:
    """Return a query's name as it stands in keys: the record of `a:3` must not be the fence of partition 3 of `a`."""
    return query.replace("%", "%25").replace(":", "%3A")


def tag_of(slot: int) -> bytes:
    """Return a tag of a slot. O(16,384) on average: some milliseconds, for names that nobody should give."""
    return next(tag for number in itertools.count() if slot_of(tag := b"%d" % number) == slot)


# ---- the driver's side -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Written:
    """What a task tells the driver: which task it was, and how many rows went to which streams."""

    identity: Identity | None  # None: at least once, without records
    rows: dict[bytes, int]


def close_batch(servers: Servers, written: Sequence[Written]) -> None:
    """Record that a batch is complete; ConnectorError where rows of other tasks than these are in a stream."""
    tasks: dict[bytes, dict[int, Identity]] = {}
    for task in written:
        for stream in task.rows if task.identity else ():
            assert task.identity is not None
            tasks.setdefault(stream, {})[task.identity.partition] = task.identity
    for stream, known in tasks.items():
        patience = Patience(servers.options.timeout)
        while True:
            try:
                _close(servers, stream, next(iter(known.values())), set(known))
                break
            except ConnectionLost:  # it may have counted, and then the next look tells
                if not patience.again():
                    raise


def _close(servers: Servers, stream: bytes, identity: Identity, known: set[int]) -> None:
    key = record_key(stream, identity.query)
    flat = servers.call(key, b"HGETALL", key)
    fields: dict[bytes, bytes] = dict(zip(flat[::2], flat[1::2], strict=True))
    done = int(fields.pop(b"done", b"-1"))
    if done > identity.batch:
        log.warning(
            "rillet: batch %d of %s is an old one to %s, where batch %d is complete: nothing was written. A new "
            "checkpoint needs a new txnAppId",
            identity.batch, identity.query, shown(stream), done,
        )  # fmt: skip
    if done >= identity.batch:
        return
    tasks = {int(name): CommitProgress.parse(text) for name, text in fields.items()}
    strays = sorted(task for task, told in tasks.items() if told.batch == identity.batch and task not in known)
    if strays:
        raise ConnectorError(
            f"rillet: batch {identity.batch} was written to {shown(stream)} by {len(known)} tasks, and before, in "
            f"another split, by task {', '.join(map(str, strays))}: rows may be there twice (record: {shown(key)})"
        )
    commands: list[tuple[bytes, ...]] = [(b"MULTI",), (b"HSET", key, b"done", b"%d" % identity.batch)]
    if fields:
        commands.append((b"HDEL", key, *fields))
    if not identity.lasting:
        commands.append((b"EXPIRE", key, b"%d" % BATCH_SECONDS))
    servers.calls(key, [*commands, (b"EXEC",)])


def give_up(servers: Servers, query: str, streams: Sequence[bytes]) -> None:
    """Let no late attempt of a failed df.write append any more."""
    for stream in streams:
        key = record_key(stream, query)
        closing: list[tuple[bytes, ...]] = [(b"HSET", key, b"done", b"%d" % CLOSED)]
        servers.calls(key, [*closing, (b"EXPIRE", key, b"%d" % BATCH_SECONDS)])


def shown(key: bytes) -> str:
    """Return a key for messages."""
    return repr(key.decode(errors="backslashreplace"))


def identity_of(query: str | None, batch: int, context: Any, lasting: bool) -> Identity:
    """Return the identity of the running task; a query of None asks Spark's local properties."""
    if context is None:
        raise ConnectorError("rillet: rows are written by Spark's tasks, and this is none of them")
    if query is not None:
        return Identity(query, batch, context.partitionId(), lasting)
    query = context.getLocalProperty("sql.streaming.queryId")
    number = context.getLocalProperty("streaming.sql.batchId")
    if query is None or number is None:
        raise ConnectorError(
            "rillet: Spark does not tell this task its query and batch, which exactlyOnce needs: set it to none"
        )
    return Identity(query, int(number), context.partitionId(), True)

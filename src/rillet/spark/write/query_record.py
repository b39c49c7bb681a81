"""The record of a streaming query: the last batch that the sink has, stored on the server that has the rows.

    rillet:commits::<query>              on a single server: a hash
    rillet:commits:{<tag>}::<query>      in a cluster: one hash on each master, in a slot that the master owns
        done   -> "41"                   batches up to this one are complete; written by the driver's commit
        tags   -> "0 3 7"                in a cluster: the tags of all records of the query
        lost   -> "4"                    with failOnDataLoss=false: how many batches were lost
        3:9a41 -> "42 17"                an attempt of partition 3 has written 17 chunks of batch 42 to this server

A server that restarts from an older file, and a replica that takes over before it has all writes, lose the end of what
was written. Rows and record are on the same server, and the record is written last, so they are lost together:

    written    batch 1  done=1  batch 2  done=2  batch 3  done=3 ... batch 6  done=6
    there      batch 1  done=1  batch 2  done=2  batch 3                                  lost: batches 3 to 6

Spark starts batch n only after the sink has committed batch n - 1. So if `done` is below n - 1, batches are lost: all
of their rows, or some. Each commit writes `done`, also that of a batch without rows: Spark runs at least one task,
whose message names the query. Tasks look at the record before they write, and the driver's commit looks again, in the
transaction that writes `done`.

**No record at all.** Either the server lost everything, or the query's earlier batches are elsewhere: on another
server, or in a sink of another kind. The commit of its first batch wrote the record, so all batches since are lost. The
commit records of transactions (commits.py) may still show an older batch; they prove nothing.

**A loss between a task and the commit** of its batch is no data loss: Spark repeats the batch. The commit must fail for
it. Transactions show the loss themselves, because the commit record of the task is missing. Other sinks (hashes, sets,
idmp ...) count their chunks: each chunk ends with an HSET of its number (`TaskNotes`), so the number is there only if
all earlier chunks are. Attempts of a task have their own fields, because two of them may run at the same time.

`foreach_batch` writes by df.write, whose tasks know no query. It reads the record on the driver, and compares the run
IDs of the servers before and after a batch: a server that restarted meanwhile may have lost rows, so the batch is
written again, with the same result.

**Clusters.** Each master may lose its last writes alone, so each has a record. If slots were moved, the record of a
master may be elsewhere; `tags` lists the records that exist, so a master without one is new if its tag is not listed.

Rejected: a file in the checkpoint (executors and the driver's Python process have no access to Spark's file systems);
the number of entries of a stream (other clients append and trim).
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple

from rillet.client.cluster import slot_of
from rillet.client.errors import ConnectionLost, ConnectorError
from rillet.client.protocol import pack
from rillet.client.servers import Servers
from rillet.client.transaction import retry, transact
from rillet.loggers import logger
from rillet.protocol.reply_parser import ReplyError
from rillet.spark.connect import is_connect
from rillet.spark.options import SinkOptions
from rillet.spark.write.commits import (
    BATCH_SECONDS,
    PREFIX,
    Identity,
    Written,
    close_batch,
    rows_gone,
)
from rillet.spark.write.copies import wait_for_copies

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

log = logger("spark")

Fields = Mapping[bytes, bytes]
_OWN = (b"done", b"tags", b"lost")
_TRIES = 100  # nobody else writes to a record, except late attempts of tasks


class BatchesLost(ConnectorError):
    """The error for committed batches that the sink's server no longer has."""


class LostBatches(NamedTuple):
    """Committed batches that a server no longer has."""

    first: int
    last: int
    where: str  # the server's address
    recorded: bool = True  # whether the server has a record of the query

    @property
    def batches(self) -> int:
        """Return the number of batches."""
        return self.last - self.first + 1

    def __str__(self) -> str:
        which = f"the batches {self.first} to {self.last}: they were"
        if self.batches == 1:
            which = f"the batch {self.last}: it was"
        if self.recorded:
            there = f"the query's batches only up to {self.first - 1}" if self.first else "none of the query's batches"
            why = "it restarted or failed over without its last writes"
        else:
            there = "no record of this query"
            why = "it lost its data, the data was deleted, or the query wrote to another place before"
        return f"rillet: the sink lost {which} committed, but {self.where} has {there}, because {why}"


_REMEDY = (
    "Set failOnDataLoss=false to count lost batches and continue, or write everything again: with a new "
    "checkpointLocation, into an empty sink. The options waitReplicas and waitAof make such a loss rare"
)


class QueryRecord:
    """The records of a streaming query on its sink's servers."""

    def __init__(self, servers: Servers, query: str) -> None:
        self.servers = servers
        self.query = query.encode()
        self._tags: dict[object, bytes] | None = None  # by master

    # ---- keys ----

    def key_at(self, slot: int | None) -> bytes:
        """Return the key of the record on the master of a slot; None: on the only server."""
        if slot is None:
            return self._key(b"")
        owner = self.servers.owners()[slot]
        tags = self._tags_of_masters()
        if owner not in tags:  # the map of the cluster has changed
            self._tags = None
            tags = self._tags_of_masters()
        return self._key(tags[owner])

    def keys(self) -> list[bytes]:
        """Return the key of the record on each master."""
        if not self.servers.is_cluster:
            return [self._key(b"")]
        return [self._key(tag) for tag in self._tags_of_masters().values()]

    def _key(self, tag: bytes) -> bytes:
        place = b"{%b}:" % tag if tag else b""
        return PREFIX + place + b":" + self.query

    def _tags_of_masters(self) -> dict[object, bytes]:
        if self._tags is None:
            owners = self.servers.owners()
            left = {owner for owner in owners if owner is not None}
            self._tags = {}
            for number in count():
                if not left:
                    break
                owner = owners[slot_of(tag := b"%d" % number)]
                if owner in left:
                    left.discard(owner)
                    self._tags[owner] = tag
        return self._tags

    def _fields(self, keys: Sequence[bytes]) -> dict[bytes, Fields]:
        """Return the fields of records by key; none for a record that is missing."""
        replies = self.servers.each([(key, (b"HGETALL", key)) for key in keys])
        found: dict[bytes, Fields] = {}
        for key, reply in zip(keys, replies, strict=True):
            if isinstance(reply, ReplyError):
                raise ConnectorError(f"rillet: {self.servers} refused to read {key.decode()}: {reply}", str(reply))
            found[key] = dict(zip(reply[::2], reply[1::2], strict=True))
        return found

    # ---- losses ----

    def loss(self, batch: int) -> LostBatches | None:
        """Return the batches before `batch` that were committed and are lost; None if all are there."""
        if batch == 0:
            return None
        fields, newest = self._known()
        if newest is None:
            return LostBatches(0, batch - 1, str(self.servers), recorded=False)
        done = {key: _done(fields[key]) for key in self._listed(newest)}
        behind = min(done, key=done.__getitem__)
        if done[behind] >= batch - 1:
            return None
        return LostBatches(done[behind] + 1, batch - 1, str(self.servers.connection(behind).address))

    def _known(self) -> tuple[dict[bytes, Fields], Fields | None]:
        """Return the fields of all records by key, and those of the newest one."""
        fields = self._fields(self.keys())
        newest = max((one for one in fields.values() if b"done" in one), key=_done, default=None)
        if newest is not None:
            fields |= self._fields([key for key in self._listed(newest) if key not in fields])
        return fields, newest

    def _listed(self, newest: Fields) -> list[bytes]:
        return [self._key(tag) for tag in newest.get(b"tags", b"").split(b" ")]

    # ---- the driver's commit ----

    def close(self, batch: int, notes: Mapping[bytes, Fields], loss: LostBatches | None, lasting: bool) -> list[bytes]:
        """Record that the sink has a batch; return the keys. Raise ConnectorError if a chunk of `notes` is gone.

        notes: by key, the fields that tasks have written. May be repeated after a lost connection.
        """
        fields, newest = self._known()
        earlier = max((int(one.get(b"lost", b"0")) for one in fields.values()), default=0)
        before = set() if newest is None else set(self._listed(newest))
        keys = self.keys()
        common = [b"done", b"%d" % batch]
        if self.servers.is_cluster:
            common += [b"tags", b" ".join(self._tags_of_masters().values())]
        if loss is not None:
            common += [b"lost", b"%d" % (earlier + loss.batches)]
        for key in dict.fromkeys([*keys, *notes]):
            floor = (batch if loss is None else loss.first) - 1 if key in before and lasting else -1
            words = common if key in keys else []
            prepare = partial(self._closing, key, batch, notes.get(key, {}), words, floor, lasting)
            if transact(self.servers, key, [key], prepare, _TRIES) is None:
                raise ConnectorError(f"rillet: another client changes {key.decode()} all the time")
        for key in before.difference(keys):  # its slot belongs to another master now
            self.servers.call(key, b"UNLINK", key)
        return keys

    def _closing(
        self, key: bytes, batch: int, notes: Fields, words: list[bytes], floor: int, lasting: bool
    ) -> list[tuple[bytes, ...]]:
        """Return the commands that close a record, if all that was written before is there."""
        fields = self._fields([key])[key]
        done = _done(fields)
        if done >= batch and lasting:  # a commit that is repeated
            return [(b"HSET", key, b"done", b"%d" % done)]
        if done < floor:
            where = str(self.servers.connection(key).address)
            raise BatchesLost(f"{LostBatches(done + 1, floor, where)}. {_REMEDY}")
        for name, note in notes.items():
            if fields.get(name) != note:
                raise rows_gone(name.partition(b":")[0].decode(), batch, str(self.servers.connection(key).address))
        commands: list[tuple[bytes, ...]] = [(b"HSET", key, *words)] if words else []
        if old := [name for name in fields if name not in _OWN]:
            commands.append((b"HDEL", key, *old))
        if not lasting:
            commands.append((b"EXPIRE", key, b"%d" % BATCH_SECONDS))
        return commands

    def lost_batches(self) -> int:
        """Return how many batches were lost and counted since the query began."""
        fields = self._fields(self.keys())
        return max((int(one.get(b"lost", b"0")) for one in fields.values()), default=0)


def _done(fields: Fields) -> int:
    return int(fields.get(b"done", b"-1"))


def require_earlier_batches(servers: Servers, options: SinkOptions, identity: Identity) -> None:
    """Raise BatchesLost if the sink lost batches before that of a task, before the task writes anything."""
    if identity.batch == 0:
        try:  # a new query does not wait: a wrong address is more likely than an outage
            servers.connection(b"")
        except ConnectionLost:  # once, a connection may break
            servers.connection(b"")
        return
    if not options.fail_on_data_loss or (servers.is_cluster and identity.partition):
        return  # in a cluster, one task asks all masters
    record = QueryRecord(servers, identity.query)
    _refuse(retry(servers, partial(record.loss, identity.batch)), options)


def _refuse(loss: LostBatches | None, options: SinkOptions) -> None:
    """Raise BatchesLost for a loss, unless failOnDataLoss=false: then it is counted."""
    if loss and options.fail_on_data_loss:
        raise BatchesLost(f"{loss}. {_REMEDY}")


class _Losses:
    """The losses that the attempts to complete one batch find; the largest one is reported."""

    def __init__(self, record: QueryRecord, options: SinkOptions, batch: int) -> None:
        self._record = record
        self._options = options
        self._batch = batch
        self._largest: LostBatches | None = None

    def look(self) -> LostBatches | None:
        """Return the batches that are lost now; raise BatchesLost, unless failOnDataLoss=false."""
        loss = self._record.loss(self._batch)
        _refuse(loss, self._options)
        if loss and (self._largest is None or loss.first < self._largest.first):
            self._largest = loss
        return loss

    def close(self, notes: Mapping[bytes, Fields], loss: LostBatches | None, lasting: bool) -> list[bytes] | None:
        """Record the batch and a loss; return the keys; None: the server lost more since `loss`, which is counted."""
        try:
            return self._record.close(self._batch, notes, loss, lasting)
        except BatchesLost:
            if self._options.fail_on_data_loss:
                raise
            return None

    def report(self) -> None:
        """Warn of the loss that was counted."""
        if self._largest:
            log.warning("%s. The loss is counted (failOnDataLoss=false), and the query continues", self._largest)


def complete_batch(
    servers: Servers,
    options: SinkOptions,
    written: Sequence[Written],
    streaming: bool,
    append_rest: Callable[[], None] = lambda: None,
) -> None:
    """Record that the sink has a batch, and wait for its copies; BatchesLost or a count reports what was lost before.

    append_rest: what remains to be written after all tasks.
    """
    identity = next((one.identity for one in written if one.identity is not None), None)
    if identity is None:
        return
    losses = _Losses(QueryRecord(servers, identity.query), options, identity.batch)
    notes: dict[bytes, dict[bytes, bytes]] = {}
    for one in written:
        for key, note in (one.notes or {}).items():
            notes.setdefault(key, {})[one.field] = note

    def attempt() -> bool:
        loss = losses.look() if streaming else None
        append_rest()
        keys = close_batch(servers, written)
        if streaming or notes:
            closed = losses.close(notes, loss, streaming)
            if closed is None:
                return False
            keys += closed
        wait_for_copies(servers, options, keys)
        return True

    while not retry(servers, attempt):  # all of it again: after a failover, what was closed may be gone
        pass
    losses.report()


def query_of(batch: DataFrame) -> str | None:
    """Return the ID of the streaming query that calls a function of foreachBatch; None over Spark Connect."""
    session: Any = batch.sparkSession
    if is_connect(session):
        return None
    found = session.sparkContext.getLocalProperty("sql.streaming.queryId")
    return None if found is None else str(found)


def write_recorded(servers: Servers, options: SinkOptions, query: str, batch: int, save: Callable[[], None]) -> None:
    """Write a batch in foreachBatch by `save`, and record it; BatchesLost or a count reports what was lost before.

    If a server is another process afterwards, it may have lost what was written: then `save` runs again. Its repetition
    must have the same result.
    """
    servers.waits = True
    losses = _Losses(QueryRecord(servers, query), options, batch)

    def attempt() -> bool:
        before = _processes(servers)
        loss = losses.look()
        save()
        return _processes(servers) == before and losses.close({}, loss, True) is not None

    while not retry(servers, attempt):
        log.warning("rillet: %s restarted or failed over during batch %d, which is written again", servers, batch)
    losses.report()


def _processes(servers: Servers) -> list[bytes]:
    """Return the run ID of each master, which changes when the server restarts."""
    texts = [servers.ask(connection, b"INFO", b"server") for connection in servers.masters()]
    return [line for text in texts for line in text.splitlines() if line.startswith(b"run_id:")]


class TaskNotes:
    """Counts the chunks that an attempt of a task has written to each server without a transaction."""

    def __init__(self, servers: Servers, identity: Identity) -> None:
        self.servers = servers
        self.record = QueryRecord(servers, identity.query)
        self.identity = identity
        self.field = b"%d:%b" % (identity.partition, uuid.uuid4().hex[:12].encode())
        self.sent: dict[bytes, int] = {}  # by key: the number of the last chunk
        self.acknowledged: dict[bytes, bytes] = {}  # by key: the note of the last chunk that was executed

    def next(self, slot: int | None) -> tuple[bytes, bytes]:
        """Return the key of the server's record, and the packed command that ends the next chunk."""
        key = self.record.key_at(slot)
        self.sent[key] = self.sent.get(key, 0) + 1
        return key, pack(b"HSET", key, self.field, self._note(self.sent[key]))

    def _note(self, number: int) -> bytes:
        return b"%d %010d" % (self.identity.batch, number)

    def acknowledge(self, data: bytes | bytearray) -> None:
        """Remember that a server has executed a chunk, which ends with a note."""
        key, _, note = _last_words(data)
        self.acknowledged[key] = max(note, self.acknowledged.get(key, b""))

    def check(self, servers: Servers) -> None:
        """Raise ConnectorError if a server has lost chunks that it had acknowledged."""
        for key, note in self.acknowledged.items():
            found = servers.call(key, b"HGET", key, self.field)
            if found is None or found < note:
                where = str(servers.connection(key).address)
                raise rows_gone(str(self.identity.partition), self.identity.batch, where)

    def written(self) -> dict[bytes, bytes]:
        """Return, by key, the note of the last chunk."""
        return {key: self._note(number) for key, number in self.sent.items()}


def _last_words(data: bytes | bytearray) -> list[bytes]:
    """Return the arguments of the HSET that ends a packed chunk; none of them contains CR LF."""
    words = bytes(data[data.rindex(b"*4\r\n$4\r\nHSET\r\n") :]).split(b"\r\n")
    return words[4:9:2]

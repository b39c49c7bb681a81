"""Requeue: moves dead letters and pending entries back into their streams, each exactly once.

Each is moved exactly once even if Spark retries a task, or if two runs overlap, or after a stop. For dead letters, each
transaction also updates a record: a Redis hash of the moved letters, in the cluster slot of the target stream:

    WATCH record;  XRANGE letter;  HMGET record;  MULTI;  XADD stream * fields;  HSET record letter;  EXEC
    XDEL letter;  HDEL record

A second run that read the letter before its deletion fails in EXEC, because the first run has written the record since.
A second run that reads later finds no letter. If a run stops between EXEC and XDEL, the next run finds the letter in
the record and only deletes it. The record expires a week after its last use.

**Order.** The entries of one dead-letter stream are requeued in the order of this stream, and the pending entries of
one group in the order of their IDs: a single task requeues all entries of a target stream, batch by batch. Overlapping
runs keep this order, because a run comes to a batch after it has found all earlier letters moved. Entries that other
producers append meanwhile lie between them.

A pending entry is claimed first, so that no consumer handles it meanwhile. Then XADD and XACK are one transaction. The
entry gets a new ID, and every group of the stream receives it again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import astuple, dataclass
from functools import partial
from itertools import groupby, islice
from operator import add
from typing import TYPE_CHECKING, Any

from rillet.client.errors import ConnectorError
from rillet.client.servers import Servers
from rillet.client.transaction import Commands, transact
from rillet.protocol.reply_parser import ReplyError
from rillet.spark.options import Options
from rillet.spark.pipelines.cli_common import PipelineError
from rillet.spark.pipelines.group_info import STREAM_OPTIONS, checked_options
from rillet.spark.pipelines.tables import by_id
from rillet.spark.write.commits import record_key
from rillet.store.consuming.dead_letters import own_fields

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CONSUMER = b"rillet-dead-letters"
_BATCH = 100
_TRIES = 1000
_RECORD_SECONDS = 7 * 86_400
WHICH = {*STREAM_OPTIONS, "partitioned"}


def as_text(raw: bytes) -> str:
    """Return bytes as text; a byte sequence that is not UTF-8 becomes U+FFFD."""
    return raw.decode("utf-8", "replace")


@dataclass
class RequeueSummary:
    """The number of entries that were requeued, and the reasons why others were not."""

    moved: int = 0
    before: int = 0  # Dead letters that an earlier run had requeued but not yet deleted.
    gone: int = 0  # Dead letters and pending entries that no longer exist or that a consumer handles now.
    nowhere: int = 0  # Dead letters that lack the name of their stream.

    def __add__(self, other: RequeueSummary) -> RequeueSummary:
        return RequeueSummary(*map(add, astuple(self), astuple(other)))


def reprocess(
    spark: SparkSession, selection: DataFrame, *, to: str | None = None, min_idle_ms: int = 0, **options: str
) -> RequeueSummary:
    """Requeue the selected rows of `dead_letters` or `pending` into their streams or into `to`, exactly once.

    min_idle_ms: pending entries that were delivered more recently stay with their consumer.
    """
    from pyspark.sql import functions as F

    checked = checked_options({name: value for name, value in options.items() if name.lower() not in WHICH})
    keys = ["stream", "group", "id", "letter_stream", "letter_id"]
    tasks = max(spark.sparkContext.defaultParallelism, 1)
    # One task for each target stream. The shuffle completes all reads before the first delete.
    divided = selection.select(*keys).repartition(tasks, F.lit(to) if to else F.col("stream"))
    target = F.lit(to) if to else F.col("stream")
    group = F.when(F.col("letter_stream").isNull(), F.col("group"))
    identifier = F.coalesce("letter_id", "id")
    rows = divided.sortWithinPartitions(target, "letter_stream", group, *by_id(identifier)).select(*keys).rdd
    parts: list[RequeueSummary] = rows.mapPartitions(partial(requeue_task, checked, to, min_idle_ms)).collect()
    return sum(parts, RequeueSummary())


def requeue_task(options: Options, to: str | None, min_idle: int, rows: Iterable[Any]) -> Iterator[RequeueSummary]:
    """Requeue the selected rows of one Spark task, in batches and in order; yield the counts."""
    done = RequeueSummary()

    def together(row: Any) -> tuple[Any, ...]:
        """Return what the rows of a batch have in common; dead letters of several groups share a batch."""
        return (to or row[0], row[3], None, None) if row[3] is not None else (to or row[0], None, row[0], row[1])

    with Servers(options) as servers:
        for (target, letters, stream, group), part in groupby(rows, together):
            for batch in iter(partial(_batch, part), []):
                if target is None:
                    done.nowhere += len(batch)
                elif letters is not None:
                    ids = [row[4].encode() for row in batch]
                    done += put_back(servers, letters.encode(), ids, target.encode())
                else:
                    ids = [row[2].encode() for row in batch]
                    done += requeue(servers, stream.encode(), group.encode(), ids, target.encode(), min_idle)
    yield done


def _batch(rows: Iterator[Any]) -> list[Any]:
    return list(islice(rows, _BATCH))


def put_back(servers: Servers, letters: bytes, ids: list[bytes], target: bytes) -> RequeueSummary:
    """Move entries of a dead-letter stream into another stream, each exactly once."""
    record = record_key(target, "dead-letters")
    ids = list(dict.fromkeys(ids))  # the selection may contain a dead letter twice
    _require_stream(servers, target)
    names = [b"%b %b" % (letters, one) for one in ids]
    present: list[tuple[bytes, Any]] = []
    new: list[tuple[bytes, list[bytes]]] = []

    def prepare() -> Commands:
        entries = servers.calls(letters, [(b"XRANGE", letters, one, one) for one in ids])
        notes = servers.call(record, b"HMGET", record, *names)
        present[:] = [(name, entry[0]) for name, entry in zip(names, entries, strict=True) if entry]
        recorded = {name for name, note in zip(names, notes, strict=True) if note is not None}
        new[:] = [(name, own_fields(entry[1])) for name, entry in present if name not in recorded]
        marks = [word for name, _ in new for word in (name, b"1")]
        appends = [(b"XADD", target, b"*", *fields) for _, fields in new]
        return [*appends, (b"HSET", record, *marks)] if new else []

    replies = _transact(servers, record, record, prepare, letters)
    failed = [name for (name, _), reply in zip(new, replies, strict=False) if isinstance(reply, ReplyError)]
    if failed:  # the record must not list letters that XADD rejected
        servers.call(record, b"HDEL", record, *failed)
    _raise_errors(servers, replies)
    if present:
        servers.call(letters, b"XDEL", letters, *(entry[0] for _, entry in present))
    servers.calls(record, [(b"HDEL", record, *names), (b"EXPIRE", record, b"%d" % _RECORD_SECONDS)])
    return RequeueSummary(len(new), len(present) - len(new), len(ids) - len(present))


def requeue(
    servers: Servers, stream: bytes, group: bytes, ids: list[bytes], target: bytes, min_idle: int = 0
) -> RequeueSummary:
    """Append pending entries to their stream again and acknowledge them, each exactly once."""
    if target != stream:
        raise PipelineError("rillet: pending entries can only be requeued into their own stream")
    record = record_key(stream, "dead-letters")
    idle, ids = b"%d" % min_idle, list(dict.fromkeys(ids))
    present: list[Any] = []

    def prepare() -> Commands:
        # XCLAIM sets the idle time to `min_idle`, so that another run can claim the entries if this run stops.
        claim = (b"XCLAIM", stream, group, CONSUMER, idle, *ids, b"IDLE", idle, b"JUSTID")
        claimed = servers.call(stream, *claim)
        entries = servers.calls(stream, [(b"XRANGE", stream, one, one) for one in claimed])
        present[:] = [entry[0] for entry in entries if entry]
        if not present:
            return []
        return [
            *((b"XADD", stream, b"*", *fields) for _, fields in present),
            (b"XACK", stream, group, *(identifier for identifier, _ in present)),
            (b"HINCRBY", record, group, b"%d" % len(present)), (b"EXPIRE", record, b"%d" % _RECORD_SECONDS),
        ]  # fmt: skip

    _raise_errors(servers, _transact(servers, stream, record, prepare, stream))
    return RequeueSummary(moved=len(present), gone=len(ids) - len(present))


def _require_stream(servers: Servers, key: bytes) -> None:
    """Raise an error if a key is not a stream: EXEC would record a dead letter as moved although XADD failed."""
    kind = servers.call(key, b"TYPE", key)
    if kind not in (b"stream", b"none"):
        raise ConnectorError(f"rillet: {servers}: entries cannot go to {as_text(key)!r}, which is a {as_text(kind)}")


def _transact(servers: Servers, key: bytes, record: bytes, prepare: Callable[[], Commands], source: bytes) -> list[Any]:
    """Execute a transaction that watches the record of moved letters; return the replies, ReplyErrors included."""
    replies = transact(servers, key, [record], prepare, _TRIES)
    if replies is None:
        raise PipelineError(
            f"rillet: other clients changed {as_text(record)!r} in each of {_TRIES} attempts; some entries of "
            f"{as_text(source)!r} were not requeued. Run the command again"
        )
    return replies


def _raise_errors(servers: Servers, replies: list[Any]) -> None:
    for reply in replies:
        if isinstance(reply, ReplyError):
            raise ConnectorError(f"rillet: {servers} rejected the requeued entries: {reply}")

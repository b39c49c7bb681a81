"""Requeue: moves dead letters and pending entries back into their streams, each exactly once.

Each is moved exactly once even if Spark retries a task, a run is stopped, or two runs overlap. A batch of dead letters
("letters") is moved with a record, a hash of the letters that were moved, in the cluster slot of the target stream:

    WATCH record;  XRANGE letter;  HMGET record;  MULTI;  XADD stream * fields;  HSET record letter;  EXEC
    XDEL letter;  HDEL record

A second run that read the letter before its deletion fails in EXEC, because the first run has written the record since.
A second run that reads later finds no letter. A run after a stop between EXEC and XDEL finds the record, and only
deletes the letter. The record expires a week after its last use.

A pending entry is claimed first, so that no consumer handles it meanwhile. Then XADD and XACK are one transaction. The
entry gets a new ID, and every group of the stream receives it again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Any

from rillet.client.errors import ConnectorError
from rillet.client.servers import Servers
from rillet.protocol.reply_parser import ReplyError
from rillet.spark.options import Options, parse
from rillet.spark.pipelines.cli_common import PipelineError
from rillet.spark.server_address import require_store
from rillet.spark.write.commits import record_key

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

META = (b"_stream", b"_group", b"_id", b"_deliveries", b"_consumer", b"_reason", b"_error")
CONSUMER = b"rillet-dead-letters"
_BATCH = 100
_TRIES = 1000
_RECORD_SECONDS = 7 * 86_400
_WHICH = ("stream", "streams", "streampattern", "partitioned")


def checked_options(options: Mapping[str, str]) -> Options:
    """Return the connector's options; raise if an embedded store does not exist."""
    checked = parse(options)
    require_store(checked)
    return checked


def as_text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")


@dataclass
class RequeueSummary:
    """How many of the selected entries were requeued, and why the others were not."""

    moved: int = 0
    before: int = 0
    """Dead letters that an earlier run had requeued but not yet deleted."""
    gone: int = 0
    """Dead letters and pending entries that no longer exist, or that a consumer handles now."""
    nowhere: int = 0
    """Dead letters that lack the name of their stream."""

    def __add__(self, other: RequeueSummary) -> RequeueSummary:
        return RequeueSummary(
            self.moved + other.moved, self.before + other.before, self.gone + other.gone, self.nowhere + other.nowhere
        )


def reprocess(
    spark: SparkSession, selection: DataFrame, *, to: str | None = None, min_idle_ms: int = 0, **options: str
) -> RequeueSummary:
    """Requeue the selected rows of `dead_letters` or `pending` into their streams or into `to`, exactly once.

    min_idle_ms: pending entries that were delivered more recently stay with their consumer.
    """
    from pyspark.sql import functions as F

    checked = checked_options({"streamPattern": "*", **{n: v for n, v in options.items() if n.lower() not in _WHICH}})
    keys = ["stream", "group", "id", "letter_stream", "letter_id"]
    tasks = max(spark.sparkContext.defaultParallelism, 1)
    # One task for each target stream. The shuffle completes all reads before the first delete.
    sorted_rows = selection.select(*keys).repartition(tasks, F.lit(to) if to else F.col("stream"))
    rows = sorted_rows.sortWithinPartitions("stream", "letter_stream", "group").rdd
    parts: list[RequeueSummary] = rows.mapPartitions(partial(requeue_task, checked, to, min_idle_ms)).collect()
    return sum(parts, RequeueSummary())


def requeue_task(options: Options, to: str | None, min_idle: int, rows: Iterable[Any]) -> Iterator[RequeueSummary]:
    """Requeue the selected rows of one Spark task, in batches; yield the counts."""
    done = RequeueSummary()
    with Servers(options) as servers:
        for (stream, group, letters), part in groupby(rows, lambda row: (row[0], row[1], row[3])):
            target = to or stream
            for batch in _batches(part):
                if target is None:
                    done.nowhere += len(batch)
                elif letters is not None:
                    ids = [row[4].encode() for row in batch]
                    done += put_back(servers, letters.encode(), ids, target.encode())
                else:
                    ids = [row[2].encode() for row in batch]
                    done += requeue(servers, stream.encode(), group.encode(), ids, target.encode(), min_idle)
    yield done


def _batches(rows: Iterable[Any]) -> Iterator[list[Any]]:
    batch: list[Any] = []
    for row in rows:
        batch.append(row)
        if len(batch) == _BATCH:
            yield batch
            batch = []
    if batch:
        yield batch


def own_fields(flat: list[bytes]) -> list[bytes]:
    """Return the fields of a dead letter without the metadata fields at its end, the first of which is `_stream`."""
    end = len(flat) - 2
    while end > 0 and flat[end] in META:
        if flat[end] == META[0]:
            return flat[:end]
        end -= 2
    return flat


def put_back(servers: Servers, letters: bytes, ids: list[bytes], target: bytes) -> RequeueSummary:
    """Move entries of a dead-letter stream into another stream, each exactly once."""
    record = record_key(target, "dead-letters")
    ids = list(dict.fromkeys(ids))  # a selection may have duplicates
    _require_stream(servers, target)
    names = [b"%b %b" % (letters, one) for one in ids]
    for _ in range(_TRIES):
        servers.call(record, b"WATCH", record)
        entries = servers.calls(letters, [(b"XRANGE", letters, one, one) for one in ids])
        notes = servers.call(record, b"HMGET", record, *names)
        present = [(name, entry[0]) for name, entry in zip(names, entries, strict=True) if entry]
        recorded = {name for name, note in zip(names, notes, strict=True) if note is not None}
        new = [(name, own_fields(entry[1])) for name, entry in present if name not in recorded]
        commands = [(b"XADD", target, b"*", *fields) for _, fields in new]
        marks = [word for name, _ in new for word in (name, b"1")]
        if not new or _transaction(servers, record, [*commands, (b"HSET", record, *marks)]):
            break
    else:
        raise PipelineError(
            f"rillet: {as_text(record)!r} changed too often; some dead letters of {as_text(letters)!r} were not "
            "requeued. Run the command again"
        )
    if not new:
        servers.call(record, b"UNWATCH")
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
    for _ in range(_TRIES):
        servers.call(stream, b"WATCH", record)
        # The claim keeps the idle time at `min_idle`, so that another run can claim if this one stops here.
        claim = (b"XCLAIM", stream, group, CONSUMER, idle, *ids, b"IDLE", idle, b"JUSTID")
        claimed = servers.call(stream, *claim)
        entries = servers.calls(stream, [(b"XRANGE", stream, one, one) for one in claimed])
        present = [entry[0] for entry in entries if entry]
        if not present:
            servers.call(stream, b"UNWATCH")
            return RequeueSummary(gone=len(ids))
        commands: list[tuple[bytes, ...]] = [(b"XADD", stream, b"*", *entry[1]) for entry in present]
        commands.append((b"XACK", stream, group, *(entry[0] for entry in present)))
        commands += [(b"HINCRBY", record, group, b"%d" % len(present)), (b"EXPIRE", record, b"%d" % _RECORD_SECONDS)]
        if _transaction(servers, stream, commands):
            return RequeueSummary(moved=len(present), gone=len(ids) - len(present))
    raise PipelineError(
        f"rillet: {as_text(record)!r} changed too often; some pending entries of {as_text(stream)!r} were not "
        "requeued. Run the command again"
    )


def _require_stream(servers: Servers, key: bytes) -> None:
    """Raise an error if a key is not a stream: after a failed XADD, EXEC would still record a dead letter as moved."""
    kind = servers.call(key, b"TYPE", key)
    if kind not in (b"stream", b"none"):
        raise ConnectorError(f"rillet: {servers}: entries cannot go to {as_text(key)!r}, which holds a {as_text(kind)}")


def _transaction(servers: Servers, key: bytes, commands: list[tuple[bytes, ...]]) -> bool:
    """Run commands as one MULTI/EXEC transaction; return False if a watched key has changed."""
    replies = servers.replies(key, [(b"MULTI",), *commands, (b"EXEC",)])
    result = replies[-1]
    results = result if isinstance(result, list) else []
    refused = [reply for reply in (*replies, *results) if isinstance(reply, ReplyError)]
    if refused:
        if results and commands[-1][0] == b"HSET":  # remove the failed letters from the record
            _, record, *notes = commands[-1]
            failed = [name for name, reply in zip(notes[::2], results, strict=False) if isinstance(reply, ReplyError)]
            servers.call(key, b"HDEL", record, *failed)
        raise ConnectorError(f"rillet: {servers} rejected the requeued entries: {refused[0]}")
    return result is not None

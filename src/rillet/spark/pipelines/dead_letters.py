"""What failed: dead-letter streams and pending entries that nobody gets done, as one kind of table; and back again.

    letters = dead_letters(spark, url=..., stream="billing.dead")                 # what rillet's consumers bury
    stuck = pending(spark, url=..., stream="events", min_deliveries=5)            # what is delivered again and again
    report(letters).show()                                                        # by group, reason and age
    reprocess(spark, letters.where("reason LIKE '%timeout%'"), url=...)           # back into the stream

    stream group consumer id   where the entry was, who had it last where that is known, its ID there
    reason                     the letter's `_reason`, or the first of REASONS that it has, or how it came to be here
    deliveries failed added    how often it was delivered; when it was buried, or delivered last; when it was added
    age_seconds age            since `failed`, by the server's clock; and in words, for reports
    letter_stream letter_id    the dead letter itself; null of what is pending
    fields                     the entry's own

A consumer of rillet's (`messages(max_deliveries=..., dead_letters=...)`) appends to an entry it gives up `_stream`,
`_group`, `_id`, `_deliveries`; other libraries' letters have what they have, and `to` names the stream they belong in.

**Reprocessing is exactly once**, over retries of tasks, stops and runs at the same time. Of a letter, in the slot of
the stream that it goes to:

    WATCH record;  XRANGE letter;  HMGET record;  MULTI;  XADD stream * fields;  HSET record letter;  EXEC
    XDEL letter;  HDEL record

Whoever comes second has read the letter before it was deleted, and then his EXEC fails, since the record was written
between; or after, and finds none. A run that stopped after EXEC finds the record, and only deletes. The record goes
away a week after its last use. What is pending is claimed first (so that no consumer handles it now), then XADD and
XACK are one transaction. All groups of the stream see the entry again, with a new ID: that is what a stream can do.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Any

from rillet.client.errors import ConnectorError
from rillet.client.servers import Servers
from rillet.protocol.reply_parser import ReplyError
from rillet.spark.option_types import duration, whole_number
from rillet.spark.options import Options, parse
from rillet.spark.pipelines.cli_arguments import (
    local_folder,
    source_arguments,
    source_errors,
    source_options,
    spark_arguments,
)
from rillet.spark.pipelines.cli_common import DONE, PipelineError, counted, foreign_files, open_session, progress_bar
from rillet.spark.pipelines.group_info import groups_of, milliseconds, pending_pages, streams_of
from rillet.spark.pipelines.tables import table, watched
from rillet.spark.server_address import require_store
from rillet.spark.write.commits import record_key

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

REASONS = ("_reason", "_error", "reason", "error", "exception", "error_message")
META = (b"_stream", b"_group", b"_id", b"_deliveries", b"_consumer", b"_reason", b"_error")
CONSUMER = b"rillet-dead-letters"
_BATCH = 100
_TRIES = 1000
_RECORD_SECONDS = 7 * 86_400
_COLUMNS = (
    "stream", "group", "consumer", "id", "reason", "deliveries", "failed", "added", "age_seconds", "age",
    "letter_stream", "letter_id", "fields",
)  # fmt: skip
_PENDING_SCHEMA = (
    "stream string, group string, consumer string, id string, reason string, deliveries bigint, failed timestamp, "
    "added timestamp, fields map<string,string>"
)
_AGES = ((60, "under a minute"), (3600, "under an hour"), (86_400, "under a day"), (7 * 86_400, "under a week"))
_OLDEST = "a week and more"
_LATEST_MS = 253_402_300_799_999  # the last moment that Python has


# -- the two views ---------------------------------------------------------------------------------------------------


def dead_letters(spark: SparkSession, *, reasons: Iterable[str] = REASONS, **options: str) -> DataFrame:
    """Return the letters of dead-letter streams; `reasons` are the fields that may say why, the first one wins."""
    from pyspark.sql import functions as F

    now = _now(_checked(options))
    told = [F.col("fields")[name] for name in reasons]
    deliveries = F.expr("try_cast(fields['_deliveries'] AS BIGINT)")
    given_up = F.when(deliveries.isNotNull(), F.lit("delivered too often"))
    meta = [name.decode() for name in META]
    read = spark.read.format("rillet").options(**options).load()
    letters = read.select(
        F.col("fields")["_stream"].alias("stream"), F.col("fields")["_group"].alias("group"),
        F.col("fields")["_consumer"].alias("consumer"), F.col("fields")["_id"].alias("id"),
        F.coalesce(*told, given_up).alias("reason"), deliveries.alias("deliveries"),
        F.col("timestamp").alias("failed"),
        F.expr("timestamp_millis(try_cast(split_part(fields['_id'], '-', 1) AS BIGINT))").alias("added"),
        F.col("stream").alias("letter_stream"), F.col("id").alias("letter_id"),
        F.map_filter("fields", lambda name, _: ~name.isin(meta)).alias("fields"),
    )  # fmt: skip
    return _aged(letters, now)


def pending(spark: SparkSession, *, min_deliveries: int = 1, min_idle_ms: int = 0, **options: str) -> DataFrame:
    """Return what is pending in the groups of streams: a task for each group, read anew by every action."""
    from pyspark.sql import functions as F

    checked = _checked(options)
    with Servers(checked) as servers:
        keys = streams_of(servers, checked)
        parts = [(key, group["name"]) for key in keys for group in groups_of(servers, key) if group["pending"]]
    read = partial(_pending_rows, checked, min_deliveries, min_idle_ms)
    rows = spark.sparkContext.parallelize(parts, max(len(parts), 1)).flatMap(read)
    found = spark.createDataFrame(rows, _PENDING_SCHEMA)
    no_letter = found.withColumn("letter_stream", F.lit(None).cast("string")).withColumn(
        "letter_id", F.lit(None).cast("string")
    )
    return _aged(no_letter, _now(checked))


def _pending_rows(options: Options, least: int, idle: int, part: tuple[bytes, bytes]) -> Iterator[tuple[Any, ...]]:
    """Yield the pending entries of a group with their fields: what a task does."""
    key, group = part
    with Servers(options) as servers:
        for page in pending_pages(servers, key, group, idle=idle):
            chosen = [one for one in page if one.deliveries >= least]
            ids = [b"%d-%d" % one.id for one in chosen]
            entries = servers.calls(key, [(b"XRANGE", key, one, one) for one in ids])
            for one, raw, found in zip(chosen, ids, entries, strict=True):
                fields = None if not found else _texts(found[0][1])
                reason = "the entry was deleted" if not found else "not acknowledged" if one.consumer else "released"
                yield (
                    _text(key), _text(group), _text(one.consumer) or None, raw.decode(), reason, one.deliveries,
                    _moment(one.delivered), _moment(one.id.ms), fields,
                )  # fmt: skip


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")


def _texts(flat: list[bytes]) -> dict[str, str]:
    return {_text(name): _text(value) for name, value in zip(flat[::2], flat[1::2], strict=True)}


def _moment(ms: int) -> datetime | None:
    return datetime.fromtimestamp(ms / 1000, UTC) if 0 < ms <= _LATEST_MS else None


def _checked(options: Mapping[str, str]) -> Options:
    checked = parse(options)
    require_store(checked)
    return checked


def _now(options: Options) -> int:
    """Return the milliseconds of the server's clock."""
    with Servers(options) as servers:
        for connection in servers.masters():
            return milliseconds(connection.call(b"TIME"))
    raise ConnectorError("rillet: no server answers")


def _aged(rows: DataFrame, now: int) -> DataFrame:
    from pyspark.sql import functions as F

    age = ((F.lit(now) - F.unix_millis("failed")) / 1000).alias("age_seconds")
    words: Column = F.when(F.col("age_seconds").isNull(), "not known")
    for limit, name in _AGES:
        words = words.when(F.col("age_seconds") < limit, name)
    return rows.withColumn("age_seconds", age).withColumn("age", words.otherwise(_OLDEST)).select(*_COLUMNS)


def report(rows: DataFrame) -> DataFrame:
    """Return how many failed by stream, group, reason and age, most first."""
    from pyspark.sql import functions as F

    return (
        rows.groupBy("stream", "group", "reason", "age")
        .agg(
            F.count("*").alias("entries"),
            F.max("deliveries").alias("deliveries_max"),
            F.countDistinct("consumer").alias("consumers"),
            F.min("failed").alias("first"),
            F.max("failed").alias("last"),
        )  # fmt: skip
        .orderBy(F.desc("entries"), "stream", "group", "reason", "first")
    )


# -- back into the stream --------------------------------------------------------------------------------------------


@dataclass
class Reprocessed:
    """What became of a selection."""

    moved: int = 0
    before: int = 0
    """Letters that were back already: a run had stopped before it could delete them."""
    gone: int = 0
    """Letters and entries that are not there, or are being handled."""
    nowhere: int = 0
    """Letters that do not say which stream they are from."""

    def __add__(self, other: Reprocessed) -> Reprocessed:
        return Reprocessed(
            self.moved + other.moved, self.before + other.before, self.gone + other.gone, self.nowhere + other.nowhere
        )


def reprocess(
    spark: SparkSession, selection: DataFrame, *, to: str | None = None, min_idle_ms: int = 0, **options: str
) -> Reprocessed:
    """Put the selected rows of `dead_letters` or `pending` back into their streams, or into another one; exactly once.

    min_idle_ms: pending entries that were delivered more recently are left to whoever has them.
    """
    from pyspark.sql import functions as F

    checked = _checked({"streamPattern": "*", **{n: v for n, v in options.items() if n.lower() not in _WHICH}})
    keys = ["stream", "group", "id", "letter_stream", "letter_id"]
    tasks = max(spark.sparkContext.defaultParallelism, 1)
    # One task for each stream that is written to; the shuffle ends the reading before anything is deleted.
    sorted_rows = selection.select(*keys).repartition(tasks, F.lit(to) if to else F.col("stream"))
    rows = sorted_rows.sortWithinPartitions("stream", "letter_stream", "group").rdd
    parts: list[Reprocessed] = rows.mapPartitions(partial(_part, checked, to, min_idle_ms)).collect()
    return sum(parts, Reprocessed())


_WHICH = ("stream", "streams", "streampattern", "partitioned")


def _part(options: Options, to: str | None, min_idle: int, rows: Iterable[Any]) -> Iterator[Reprocessed]:
    """Put the rows of a task back, batch by batch."""
    done = Reprocessed()
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
    """Return the fields of a letter without those at its end, from `_stream` on, that say where it came from."""
    end = len(flat) - 2
    while end > 0 and flat[end] in META:
        if flat[end] == META[0]:
            return flat[:end]
        end -= 2
    return flat


def put_back(servers: Servers, letters: bytes, ids: list[bytes], target: bytes) -> Reprocessed:
    """Move dead letters into a stream, each exactly once."""
    record = record_key(target, "dead-letters")
    ids = list(dict.fromkeys(ids))  # a selection may name one twice
    _require_stream(servers, target)
    names = [b"%b %b" % (letters, one) for one in ids]
    for _ in range(_TRIES):
        servers.call(record, b"WATCH", record)
        found = servers.calls(letters, [(b"XRANGE", letters, one, one) for one in ids])
        noted = servers.call(record, b"HMGET", record, *names)
        there = [(name, entry[0]) for name, entry in zip(names, found, strict=True) if entry]
        known = {name for name, note in zip(names, noted, strict=True) if note is not None}
        new = [(name, own_fields(entry[1])) for name, entry in there if name not in known]
        commands = [(b"XADD", target, b"*", *fields) for _, fields in new]
        notes = [word for name, _ in new for word in (name, b"1")]
        if not new or _transaction(servers, record, [*commands, (b"HSET", record, *notes)]):
            break
    else:
        raise PipelineError(
            f"rillet: others change {_text(record)!r} all the time: letters of {_text(letters)!r} are left"
        )
    if not new:
        servers.call(record, b"UNWATCH")
    if there:
        servers.call(letters, b"XDEL", letters, *(entry[0] for _, entry in there))
    servers.calls(record, [(b"HDEL", record, *names), (b"EXPIRE", record, b"%d" % _RECORD_SECONDS)])
    return Reprocessed(len(new), len(there) - len(new), len(ids) - len(there))


def requeue(
    servers: Servers, stream: bytes, group: bytes, ids: list[bytes], target: bytes, min_idle: int = 0
) -> Reprocessed:
    """Append pending entries to a stream anew and acknowledge them, each exactly once."""
    if target != stream:
        raise PipelineError("rillet: what is pending goes back into its own stream: no other one can be named")
    record = record_key(stream, "dead-letters")
    idle, ids = b"%d" % min_idle, list(dict.fromkeys(ids))
    for _ in range(_TRIES):
        servers.call(stream, b"WATCH", record)
        # Claimed with the idle time that it needs to be claimed again, if this run stops here.
        claim = (b"XCLAIM", stream, group, CONSUMER, idle, *ids, b"IDLE", idle, b"JUSTID")
        mine = servers.call(stream, *claim)
        entries = servers.calls(stream, [(b"XRANGE", stream, one, one) for one in mine])
        there = [entry[0] for entry in entries if entry]
        if not there:
            servers.call(stream, b"UNWATCH")
            return Reprocessed(gone=len(ids))
        commands: list[tuple[bytes, ...]] = [(b"XADD", stream, b"*", *entry[1]) for entry in there]
        commands.append((b"XACK", stream, group, *(entry[0] for entry in there)))
        commands += [(b"HINCRBY", record, group, b"%d" % len(there)), (b"EXPIRE", record, b"%d" % _RECORD_SECONDS)]
        if _transaction(servers, stream, commands):
            return Reprocessed(moved=len(there), gone=len(ids) - len(there))
    raise PipelineError(f"rillet: others change {_text(record)!r} all the time: entries of {_text(stream)!r} are left")


def _require_stream(servers: Servers, key: bytes) -> None:
    """Raise where a key is no stream: EXEC goes on behind an XADD that fails, and would note what is not there."""
    kind = servers.call(key, b"TYPE", key)
    if kind not in (b"stream", b"none"):
        raise ConnectorError(f"rillet: {servers}: entries cannot go to {_text(key)!r}, which holds a {_text(kind)}")


def _transaction(servers: Servers, key: bytes, commands: list[tuple[bytes, ...]]) -> bool:
    """Run commands as one; False where what is watched has changed."""
    replies = servers.replies(key, [(b"MULTI",), *commands, (b"EXEC",)])
    result = replies[-1]
    done = result if isinstance(result, list) else []
    refused = [reply for reply in (*replies, *done) if isinstance(reply, ReplyError)]
    if refused:
        if done and commands[-1][0] == b"HSET":  # what was not appended must not stand in the record
            _, record, *notes = commands[-1]
            failed = [name for name, reply in zip(notes[::2], done, strict=False) if isinstance(reply, ReplyError)]
            servers.call(key, b"HDEL", record, *failed)
        raise ConnectorError(f"rillet: {servers} refused to put entries back: {refused[0]}")
    return result is not None


# -- the command -----------------------------------------------------------------------------------------------------

EPILOG = """\
rillet pipeline dead-letters --url redis://localhost --stream billing.dead
rillet pipeline dead-letters --url redis://localhost --stream billing.dead --where "reason LIKE '%timeout%'" --reprocess
rillet pipeline dead-letters --url redis://localhost --stream events --pending --min-deliveries 5 --min-idle 1h
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what the command takes."""
    source_arguments(parser)
    parser.add_argument("--pending", action="store_true", help="look at what is pending in the streams' groups instead")
    parser.add_argument(
        "--min-deliveries", type=whole_number(1), metavar="N", help="with --pending: delivered so often"
    )
    parser.add_argument(
        "--min-idle", type=duration, metavar="TIME", help="with --pending: not delivered for so long (30m)"
    )
    parser.add_argument("--where", metavar="SQL", help="select: an expression of the columns, \"group = 'billing'\"")
    parser.add_argument("--show", type=whole_number(1), metavar="N", help="print so many of what is selected")
    parser.add_argument("--out", type=local_folder, help="write what is selected to this folder, as Parquet")
    parser.add_argument("--reprocess", action="store_true", help="put what is selected back into its stream")
    parser.add_argument("--to", metavar="STREAM", help="with --reprocess: into this stream")
    spark_arguments(parser)


def argument_errors(options: argparse.Namespace) -> list[str]:
    """Return what is wrong with the arguments taken together."""
    wrong = source_errors(options)
    if not options.pending and (options.min_deliveries is not None or options.min_idle is not None):
        wrong.append("--min-deliveries and --min-idle need --pending")
    if options.out is not None:
        wrong += foreign_files(options.out)
    if options.to is not None and not options.reprocess:
        wrong.append("--to needs --reprocess")
    if options.to is not None and options.pending:
        wrong.append("--to is for dead letters: what is pending goes back into its own stream")
    if options.reprocess and options.pending and options.min_idle is None:
        wrong.append(
            "--reprocess of what is pending needs --min-idle: less than that, and somebody may be at work on it"
        )
    return wrong


def run(options: argparse.Namespace) -> int:
    """Report, and put back what is asked for; return the exit status."""
    spark = open_session(options, "dead-letters")
    given = source_options(options)
    idle = round((options.min_idle or 0) * 1000)
    if options.pending:
        rows = pending(spark, min_deliveries=options.min_deliveries or 1, min_idle_ms=idle, **given)
    else:
        rows = dead_letters(spark, **given)
    selected = rows if options.where is None else rows.where(options.where)
    selected = selected.persist()
    with progress_bar("reading", "tasks") as bar:
        groups = watched(spark, bar, lambda: report(selected).collect())
        if options.out is not None:
            watched(spark, bar, lambda: selected.write.mode("overwrite").parquet(str(options.out)))
        shown = [] if options.show is None else selected.orderBy("failed").limit(options.show).collect()
    head = ("stream", "group", "reason", "age", "entries", "deliveries", "last")
    print(table(head, [
        (row["stream"], row["group"], row["reason"], row["age"], row["entries"], row["deliveries_max"],
         None if row["last"] is None else f"{row['last']:%Y-%m-%d %H:%M:%S}") for row in groups
    ]))  # fmt: skip
    for row in shown:
        print(f"{row['letter_id'] or row['id']} {row['reason']}: {row['fields']}")
    total = sum(row["entries"] for row in groups)
    line = f"{counted(total, 'entry', 'entries')} {'pending' if options.pending else 'dead'}"
    line += " and selected" if options.where is not None else ""
    if options.out is not None:
        line += f", written to {options.out}"
    if options.reprocess:
        with progress_bar("putting back", "tasks") as bar:
            again = partial(reprocess, spark, selected, to=options.to, min_idle_ms=idle, **given)
            done = watched(spark, bar, again)
        line += f"; {done.moved:,} put back"
        parts = (
            (done.before, "were back already"),
            (done.gone, "gone meanwhile"),
            (done.nowhere, "without a stream, left"),
        )
        line += "".join(f", {count:,} {what}" for count, what in parts if count)
    print(line)
    return DONE

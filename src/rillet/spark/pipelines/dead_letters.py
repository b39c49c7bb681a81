"""dead-letters: shows failed entries, from dead-letter streams or from the pending entries of groups, as one table.

    letters = dead_letters(spark, url=..., stream="billing.dead")                 # written by rillet's consumers
    stuck = pending(spark, url=..., stream="events", min_deliveries=5)            # delivered 5 times or more
    report(letters).show()                                                        # counts by group, reason, age
    reprocess(spark, letters.where("reason LIKE '%timeout%'"), url=...)           # requeue into the stream

    stream group consumer id   the entry's stream, group, last consumer if known, and its ID there
    reason                     dead letter: the first of its fields that REASONS lists, or "delivered too often";
                               pending entry: its state
    deliveries failed added    number of deliveries; time of the letter or of the last delivery; time of the entry's ID
    age_seconds age            time since `failed`, by the server's clock, as a number and as a range for reports
    letter_stream letter_id    the dead letter itself; null for pending entries
    fields                     the entry's fields

The command reads few entries in this process (letters.py), as `rillet dead-letters` does.

A dead letter is a copy of an entry that a consumer gave up. A consumer of rillet
(`messages(max_deliveries=..., dead_letters=...)`) appends the fields `_stream`, `_group`, `_id` and `_deliveries` to
the copy, as the inspector does (consuming/dead_letters.py). Dead letters of other libraries may lack these fields;
requeuing them requires `to`, the name of the stream.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from rillet.client.errors import ConnectorError
from rillet.client.servers import Servers
from rillet.spark.option_types import duration, whole_number
from rillet.spark.options import Options
from rillet.spark.pipelines.cli_arguments import local_folder, source_arguments, source_errors, source_options
from rillet.spark.pipelines.cli_common import DONE, foreign_files, progress_bar, runner_of
from rillet.spark.pipelines.group_info import checked_options, milliseconds, streams_of
from rillet.spark.pipelines.letter_text import (
    AGES,
    HEAD,
    OLDEST,
    entries_text,
    letter_text,
    moment,
    report_text,
    requeued_text,
)
from rillet.spark.pipelines.letters import counts_of, pending_parts, read_letters, read_pending, requeue_here
from rillet.spark.pipelines.requeue import WHICH, RequeueSummary, reprocess
from rillet.spark.pipelines.tables import Progress, watched
from rillet.spark.pipelines.task_runner import TaskRunner
from rillet.spark.read.metadata import require_streams
from rillet.spark.read.stream_info import stream_infos
from rillet.store.consuming.dead_letters import BY_HAND, META, OLD_META, REASONS, TOO_OFTEN
from rillet.store.display.json_line import print_json
from rillet.types.stream.id import StreamID

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_COLUMNS = (
    "stream", "group", "consumer", "id", "reason", "deliveries", "failed", "added", "age_seconds", "age",
    "letter_stream", "letter_id", "fields",
)  # fmt: skip
_GROUPED = ("stream", "group", "reason", "age")
COST = 5  # an entry here costs as much as so many that only become columns
_PENDING_SCHEMA = (
    "stream string, group string, consumer string, id string, reason string, deliveries bigint, failed timestamp, "
    "added timestamp, fields map<string,string>"
)


# -- the two tables --------------------------------------------------------------------------------------------------


def dead_letters(spark: SparkSession, *, reasons: Iterable[str] = REASONS, **options: str) -> DataFrame:
    """Return the entries of dead-letter streams; the column `reason` is the first field of `reasons` that exists."""
    from pyspark.sql import functions as F

    now = _now(checked_options(options))
    field = F.col("fields").getItem
    stated = [field(name) for name in reasons]
    deliveries = F.expr("try_cast(fields['_deliveries'] AS BIGINT)")
    given_up = F.when(deliveries.isNotNull(), F.lit(TOO_OFTEN))
    by_hand = F.when(field("dead-letter-of").isNotNull(), F.lit(BY_HAND))
    identifier = F.coalesce(field("_id"), field("dead-letter-id"))
    meta = [name.decode() for name in (*META, *OLD_META)]
    read = spark.read.format("rillet").options(**options).load()
    letters = read.select(
        F.coalesce(field("_stream"), field("dead-letter-of")).alias("stream"),
        F.coalesce(field("_group"), field("dead-letter-group")).alias("group"),
        field("_consumer").alias("consumer"), identifier.alias("id"),
        F.coalesce(*stated, given_up, by_hand).alias("reason"), deliveries.alias("deliveries"),
        F.col("timestamp").alias("failed"),
        F.timestamp_millis(F.split_part(identifier, F.lit("-"), F.lit(1)).try_cast("bigint")).alias("added"),
        F.col("stream").alias("letter_stream"), F.col("id").alias("letter_id"),
        F.map_filter("fields", lambda name, _: ~name.isin(meta)).alias("fields"),
    )  # fmt: skip
    return _aged(letters, now)


def pending(spark: SparkSession, *, min_deliveries: int = 1, min_idle_ms: int = 0, **options: str) -> DataFrame:
    """Return the pending entries of the streams' groups as a DataFrame; each Spark action reads them again."""
    from pyspark.sql import functions as F

    checked = checked_options(options)
    with Servers(checked) as servers:
        parts = [(key, group) for key, group, _ in pending_parts(servers, checked)]
    read = partial(_pending_rows, checked, min_deliveries, min_idle_ms)
    rows = spark.sparkContext.parallelize(parts, max(len(parts), 1)).flatMap(read)
    entries = spark.createDataFrame(rows, _PENDING_SCHEMA)
    nothing = F.lit(None).cast("string")
    return _aged(entries.withColumns({"letter_stream": nothing, "letter_id": nothing}), _now(checked))


def _pending_rows(options: Options, least: int, idle: int, part: tuple[bytes, bytes]) -> Iterator[tuple[Any, ...]]:
    """Yield the pending entries of a group with their fields; runs in a Spark task."""
    with Servers(options) as servers:
        for one in read_pending(servers, *part, least, idle):
            yield (
                one.stream, one.group, one.consumer, one.id, one.reason, one.deliveries, moment(one.failed),
                moment(StreamID.parse(one.id or "0").ms), one.fields,
            )  # fmt: skip


def _now(options: Options) -> int:
    """Return the server's time in milliseconds."""
    with Servers(options) as servers:
        for connection in servers.masters():
            return milliseconds(connection.call(b"TIME"))
    raise ConnectorError("rillet: no node of the cluster answers")


def _aged(rows: DataFrame, now: int) -> DataFrame:
    """Add the columns `age_seconds` and `age` to failed entries; now: the server's time in milliseconds."""
    from pyspark.sql import functions as F

    age = ((F.lit(now) - F.unix_millis("failed")) / 1000).alias("age_seconds")
    words: Column = F.when(F.col("age_seconds").isNull(), "unknown")
    for limit, name in AGES:
        words = words.when(F.col("age_seconds") < limit, name)
    return rows.withColumn("age_seconds", age).withColumn("age", words.otherwise(OLDEST)).select(*_COLUMNS)


def report(rows: DataFrame) -> DataFrame:
    """Return the number of failed entries by stream, group, reason and age, largest first."""
    from pyspark.sql import functions as F

    counts = rows.groupBy(*_GROUPED).agg(
        F.count("*").alias("entries"), F.max("deliveries").alias("deliveries_max"),
        F.countDistinct("consumer").alias("consumers"), F.min("failed").alias("first"), F.max("failed").alias("last"),
    )  # fmt: skip
    return counts.orderBy(F.desc("entries"), "stream", "group", "reason", "first")


# -- the command -----------------------------------------------------------------------------------------------------

SMALL_WITHOUT_SPARK = True
EPILOG = """\
rillet pipeline dead-letters --url redis://localhost --stream billing.dead
rillet pipeline dead-letters --url redis://localhost --stream billing.dead --where "reason LIKE '%timeout%'" --requeue
rillet pipeline dead-letters --url redis://localhost --stream events --pending --min-deliveries 5 --min-idle 1h
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    source_arguments(parser)
    add = parser.add_argument
    add("--pending", action="store_true", help="list the pending entries of the streams' groups, not dead letters")
    add("--min-deliveries", type=whole_number(1), metavar="N", help="with --pending: delivered at least N times")
    add("--min-idle", type=duration, metavar="TIME", help="with --pending: not delivered for this long (30m)")
    add("--where", metavar="SQL", help="a condition on the columns, such as \"group = 'billing'\"")
    add("--show", type=whole_number(1), metavar="N", help="print N of the selected entries")
    add("--out", type=local_folder, help="write the selected entries to this folder as Parquet")
    add("--requeue", "--reprocess", action="store_true", help="append the selected entries to their stream again")
    add("--to", metavar="STREAM", help="with --requeue: append the entries to this stream instead")


def argument_errors(options: argparse.Namespace) -> list[str]:
    errors = source_errors(options)
    if not options.pending and (options.min_deliveries is not None or options.min_idle is not None):
        errors.append("--min-deliveries and --min-idle need --pending")
    if options.out is not None:
        errors += foreign_files(options.out)
    if options.to is not None and not options.requeue:
        errors.append("--to needs --requeue")
    if options.to is not None and options.pending:
        errors.append("--to applies to dead letters only: pending entries are always requeued into their own stream")
    if getattr(options, "spark", None) == "never" and (options.where is not None or options.out is not None):
        errors.append("--where and --out need Spark: they cannot be combined with --spark never")
    if options.requeue and options.pending and options.min_idle is None:
        errors.append(
            "--requeue with --pending needs --min-idle: a consumer may still be handling entries with less idle time"
        )
    return errors


@dataclass
class _Selected:
    """The failed entries that the arguments select: the rows of the report, the shown entries, and the requeue."""

    groups: Sequence[Sequence[Any]]
    shown: Sequence[tuple[str, str | None, Mapping[str, str] | None]]
    requeue: Callable[[Progress], RequeueSummary]


def run(options: argparse.Namespace) -> int:
    """Print the report on failed entries, requeue them if requested; return the exit status."""
    with runner_of(options, "dead-letters") as runner:
        selected = _here(options, runner) or _in_spark(options, runner.spark)
        if options.json:
            return _print_json(options, selected)
        print(report_text(selected.groups))
        for one in selected.shown:
            print(letter_text(*one))
        line = entries_text(sum(row[4] for row in selected.groups), "pending" if options.pending else "dead")
        line += " and selected" if options.where is not None else ""
        if options.out is not None:
            line += f", written to {options.out}"
        if options.requeue:
            with progress_bar(options, "requeueing", "tasks") as bar:
                line += f"; {requeued_text(selected.requeue(bar))}"
        print(f"{line}, in {runner.used}")
    return DONE


def _print_json(options: argparse.Namespace, selected: _Selected) -> int:
    """Print a line for each row of the report, each letter that --show selects, and the result of --requeue."""
    for row in selected.groups:
        print_json(dict(zip(HEAD, row, strict=True)))
    for identifier, reason, fields in selected.shown:
        print_json({"id": identifier, "reason": reason, "fields": fields})
    if options.requeue:
        with progress_bar(options, "requeueing", "tasks") as bar:
            print_json(asdict(selected.requeue(bar)))
    return DONE


def _here(options: argparse.Namespace, runner: TaskRunner) -> _Selected | None:
    """Select the entries in this process; None if there are too many, or if the arguments need Spark."""
    if options.where is not None or options.out is not None:
        return None
    checked, least, idle = checked_options(source_options(options)), options.min_deliveries or 1, _idle_ms(options)
    with Servers(checked) as servers:
        if options.pending:
            parts = pending_parts(servers, checked)
            entries = sum(number for _, _, number in parts)
        else:
            keys = streams_of(servers, checked)
            infos = stream_infos(servers, [key.decode() for key in keys])
            require_streams(checked, servers, infos)
            entries = sum(info.length for info in infos.values() if info is not None)
        if not runner.is_small(entries * COST):
            return None
        if options.pending:
            found = [one for key, group, _ in parts for one in read_pending(servers, key, group, least, idle)]
        else:
            found = list(read_letters(servers, checked))
    shown = sorted(found, key=lambda one: one.failed)[: options.show or 0]
    given = {name: value for name, value in source_options(options).items() if name.lower() not in WHICH}
    return _Selected(
        counts_of(found, _now(checked)),
        [(one.letter_id or one.id or "", one.reason, one.fields) for one in shown],
        lambda bar: requeue_here(checked_options(given), found, options.to, idle),
    )


def _in_spark(options: argparse.Namespace, spark: SparkSession) -> _Selected:
    given, idle = source_options(options), _idle_ms(options)
    if options.pending:
        rows = pending(spark, min_deliveries=options.min_deliveries or 1, min_idle_ms=idle, **given)
    else:
        rows = dead_letters(spark, **given)
    selected = (rows if options.where is None else rows.where(options.where)).persist()
    with progress_bar(options, "reading", "tasks") as bar:
        groups = watched(spark, bar, lambda: report(selected).collect())
        if options.out is not None:
            watched(spark, bar, lambda: selected.write.mode("overwrite").parquet(str(options.out)))
        shown = [] if options.show is None else selected.orderBy("failed").limit(options.show).collect()
    again = partial(reprocess, spark, selected, to=options.to, min_idle_ms=idle, **given)
    return _Selected(
        [tuple(row[name] for name in (*_GROUPED, "entries", "deliveries_max", "last")) for row in groups],
        [(row["letter_id"] or row["id"], row["reason"], row["fields"]) for row in shown],
        lambda bar: watched(spark, bar, again),
    )


def _idle_ms(options: argparse.Namespace) -> int:
    return round((options.min_idle or 0) * 1000)

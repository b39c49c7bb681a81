"""Streams from server to server, with their groups, what is pending, and their counters; verified.

    migrate(spark, {"url": "redis://old", "streamPattern": "orders:*"}, {"url": "redis+cluster://new"}).show()

Between Redis, Valkey, rillet, clusters of them, and embedded stores, either way, whatever their versions are: a small
stream travels as one DUMP payload where the target takes that, any other is rebuilt by commands (migrate_stream.py says
how, and what cannot be carried). A stream is a task of Spark's; the largest start first. The report has a row for each:

    stream, target   the keys                      equal          both sides were read and are alike
    how              restored, rebuilt, resumed    differences    what is not alike, in words
    entries, bytes, groups, pending, digest        notes          what commands cannot carry, if it matters
    rounds           how often it was looked again for something new at the source

A stream that is there already is refused before anything is copied, all of them named. `policy="resume"` goes on where
an earlier run ended, by what the target holds; "replace" deletes it first. Nothing else is kept anywhere: a run that
was stopped, or a task that Spark starts again, resumes from the target itself.

**A source that is still written to**: `follow=True` looks again until both sides are equal, or `follow_for` seconds are
over. So: follow, stop the producers and consumers, and when it has ended, start them at the target.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING

from rillet.client.servers import Servers
from rillet.errors import RilletError
from rillet.protocol.reply_parser import ReplyError
from rillet.spark.option_types import duration
from rillet.spark.options import OptionError, Options, parse
from rillet.spark.pipelines.cli_arguments import (
    name_value,
    source_arguments,
    source_options,
    spark_arguments,
    with_flags,
)
from rillet.spark.pipelines.cli_common import DONE, FAILED, PipelineError, counted, open_session, progress_bar
from rillet.spark.pipelines.group_info import streams_of
from rillet.spark.pipelines.migrate_stream import REFUSE, REPLACE, RESUME, Plan, StreamMigrated, copy_stream
from rillet.spark.pipelines.tables import in_bytes, table, watched
from rillet.spark.server_address import require_store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

POLICIES = (REFUSE, RESUME, REPLACE)
_SCHEMA = (
    "stream string, target string, how string, entries bigint, bytes bigint, groups bigint, pending bigint, "
    "rounds int, digest string, equal boolean, differences array<string>, notes array<string>, seconds double"
)
_NAMES = ("stream", "streams", "streampattern")


def migrate(
    spark: SparkSession,
    source: Mapping[str, str],
    target: Mapping[str, str],
    *,
    policy: str = REFUSE,
    prefix: str = "",
    follow: bool = False,
    follow_for: float | None = None,
    verify: bool = True,
) -> DataFrame:
    """Copy the streams that the source's options name (all without any), now; return the report.

    prefix: what goes before each name at the target. The options of the target say where it is, and name no stream.
    """
    plan = Plan(*checked(source, target, policy), policy=policy, follow=follow, follow_for=follow_for, verify=verify)
    rows = [asdict(one) for one in copy_all(spark, plan, prefix)]
    return spark.createDataFrame([tuple(row.values()) for row in rows], _SCHEMA)


def checked(source: Mapping[str, str], target: Mapping[str, str], policy: str = REFUSE) -> tuple[Options, Options]:
    """Return the options of both sides; OptionError names all that is wrong with them."""
    wrong = [] if policy in POLICIES else [f"policy is {policy!r}: none of {', '.join(POLICIES)}"]
    found: list[Options] = []
    everything = {} if {name.lower() for name in source} & set(_NAMES) else {"streamPattern": "*"}
    named = sorted({name.lower() for name in target} & set(_NAMES))
    if named:
        wrong.append(f"the target takes no {', '.join(named)}: streams keep their names (a prefix may go before them)")
    rest = {name: value for name, value in target.items() if name.lower() not in _NAMES}
    for side, given in (("source", {**source, **everything}), ("target", {**rest, "streamPattern": "*"})):
        try:
            found.append(parse(given))
        except OptionError as error:
            wrong.append(f"of the {side}: {str(error).removeprefix('rillet: ')}")
    if wrong:
        raise OptionError("rillet: " + "; ".join(wrong))
    require_store(found[0])
    return found[0], found[1]


def copy_all(spark: SparkSession, plan: Plan, prefix: str = "") -> list[StreamMigrated]:
    """Copy the streams of a plan, each as a task; PipelineError before anything is copied where one cannot be."""
    pairs = _planned(plan, prefix)
    if not pairs:
        return []

    def copied(part: Iterable[tuple[bytes, bytes]]) -> Iterator[StreamMigrated]:
        from dataclasses import replace

        from pyspark import TaskContext

        context = TaskContext.get()
        # What an earlier attempt of this task has begun is ours, and is gone on with.
        again = context is not None and context.attemptNumber() > 0
        mine = replace(plan, policy=RESUME) if again else plan
        for key, to in part:
            yield copy_stream(mine, key, to)

    done: list[StreamMigrated] = spark.sparkContext.parallelize(pairs, len(pairs)).mapPartitions(copied).collect()
    return sorted(done, key=lambda one: one.stream)


def places(servers: Servers) -> set[tuple[bytes, int]]:
    """Return the data behind some servers, by whatever name or address, or by way of which replica they were given."""
    found = set()
    for connection in servers.masters():
        told = connection.replies([(b"INFO", b"server"), (b"INFO", b"replication")])
        for line in b"\n".join([one for one in told if isinstance(one, bytes)]).splitlines():  # INFO may be forbidden
            if line.startswith((b"run_id:", b"master_replid:")):
                found.add((line, connection.address.db))
    return found


def _planned(plan: Plan, prefix: str) -> list[tuple[bytes, bytes]]:
    """Return the streams with their names at the target, the largest first."""
    with Servers(plan.source) as source, Servers(plan.target) as target:
        keys = streams_of(source, plan.source)
        pairs = [(key, prefix.encode() + key) for key in keys]
        if not prefix and (str(source) == str(target) or not places(source).isdisjoint(places(target))):
            raise PipelineError(f"rillet: source and target are the same, {source}: give a prefix, or another target")
        lengths = source.each([(key, (b"XLEN", key)) for key in keys])
        wrong = [
            f"{key.decode('utf-8', 'replace')!r}: {length}" for key, length in zip(keys, lengths, strict=True)
            if isinstance(length, ReplyError)
        ]  # fmt: skip
        if wrong:
            raise PipelineError(f"rillet: not to be read at {source}: {'; '.join(wrong)}")
        if plan.policy == REFUSE:
            there = target.each([(to, (b"EXISTS", to)) for _, to in pairs])
            full = [to.decode("utf-8", "replace") for (_, to), found in zip(pairs, there, strict=True) if found == 1]
            if full:
                shown = ", ".join(full[:10]) + (f" and {len(full) - 10} more" if len(full) > 10 else "")
                raise PipelineError(
                    f"rillet: at {target} there are already: {shown}: "
                    "resume goes on with them, replace deletes them first"
                )
    sizes = dict(zip(keys, lengths, strict=True))
    return sorted(pairs, key=lambda pair: -sizes[pair[0]])


# -- the command -----------------------------------------------------------------------------------------------------

EPILOG = """\
rillet pipeline migrate --url redis://old --to-url redis+cluster://new               all streams
rillet pipeline migrate --url redis://old --stream-pattern 'orders:*' --to-path store.rillet
rillet pipeline migrate --url redis://old --to-url redis://new --resume --follow     until both are equal
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what the command takes."""
    source_arguments(parser)
    group = parser.add_argument_group("target")
    group.add_argument("--to-url", help="redis://, rediss://, unix://, redis+cluster://")
    group.add_argument("--to-path", help="the directory of an embedded store; made where there is none")
    group.add_argument("--to-option", type=name_value, action="append", default=[], metavar="NAME=VALUE",
                       help="any other option of the target, again for each")  # fmt: skip
    group.add_argument("--prefix", default="", help="what goes before the names of the streams at the target")
    group.add_argument("--resume", action="store_true", help="go on with streams that are at the target already")
    group.add_argument("--replace", action="store_true", help="delete streams that are at the target already")
    parser.add_argument("--follow", action="store_true", help="look again for what is new until both sides are equal")
    parser.add_argument("--follow-for", type=duration, metavar="TIME", help="follow no longer than that (10m, 1h)")
    parser.add_argument("--no-verify", action="store_true", help="compare counters, not every entry")
    spark_arguments(parser)


def _target(options: argparse.Namespace) -> dict[str, str]:
    found = dict(one for one in options.to_option or () if one is not None)
    for name, value in (("url", options.to_url), ("path", options.to_path)):
        if value is not None:
            found[name] = value
    return found


def argument_errors(options: argparse.Namespace) -> list[str]:
    """Return what is wrong with the arguments taken together."""
    wrong = []
    try:
        checked(source_options(options), _target(options))
    except OptionError as error:
        wrong.append(_flagged(str(error).removeprefix("rillet: ")))
    except RilletError:
        pass  # no store there: not the arguments' fault, and `run` says it
    if options.resume and options.replace:
        wrong.append("give one of --resume and --replace")
    if options.follow_for is not None and not options.follow:
        wrong.append("--follow-for needs --follow")
    return wrong


def _flagged(complaint: str) -> str:
    """Return a complaint with the names of the command line, which the two sides have two of."""
    source, of, target = complaint.partition("of the target: ")
    theirs = with_flags(target).replace("--url", "--to-url").replace("--path", "--to-path")
    return with_flags(source) + of + theirs


def run(options: argparse.Namespace) -> int:
    """Copy, verify, tell; return the exit status."""
    policy = RESUME if options.resume else REPLACE if options.replace else REFUSE
    plan = Plan(
        *checked(source_options(options), _target(options), policy),
        policy=policy, follow=options.follow, follow_for=options.follow_for, verify=not options.no_verify,
    )  # fmt: skip
    spark = open_session(options, "migrate")
    with progress_bar("copying", "streams") as bar:
        done = watched(spark, bar, lambda: copy_all(spark, plan, options.prefix))
    if not done:
        print("no stream at the source")
        return DONE
    head = ("stream", "how", "entries", "groups", "pending", "rounds", "digest")
    print(table(head, [
        (one.target, one.how, one.entries, one.groups, one.pending, one.rounds, one.digest[:12] or None) for one in done
    ]))  # fmt: skip
    for one in done:
        for note in one.notes:
            print(f"{one.target}: {note}")
    different = [one for one in done if not one.equal]
    for one in different:
        for text in one.differences:
            print(f"DIFFERS {one.stream}: {text}")
    total = sum(one.entries for one in done)
    ways = [f"{sum(one.how == way for one in done)} {way}" for way in ("restored", "rebuilt", "resumed")]
    line = f"{counted(len(done), 'stream')}, {counted(total, 'entry', 'entries')}, "
    line += f"{in_bytes(sum(one.bytes for one in done))} ({', '.join(way for way in ways if way[0] != '0')}): "
    print(line + (f"{len(different)} not equal" if different else "all equal"))
    return FAILED if different else DONE

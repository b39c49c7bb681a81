"""migrate: copies streams from server to server with their groups, pending entries and counters, and verifies them.

migrate_keys.py copies keys of all other types.

    migrate(spark, {"url": "redis://old", "streamPattern": "orders:*"}, {"url": "redis+cluster://new"}).show()

Every entry keeps its ID, so the copy has the order of its source. One task copies a stream, from its first entry on.

Source and target may be Redis, Valkey, rillet, a cluster of one of them, or an embedded store, of any version. A small
stream is copied as one DUMP payload if the target accepts the payload. Any other stream is rebuilt by commands
(migrate_stream.py describes the steps, and the data that commands cannot copy). Each stream is a Spark task; the
largest streams start first. The report has one row per stream:

    stream, target   the keys                      equal          source and target were compared and are equal
    how              restored, rebuilt, resumed    differences    the differences between source and target, as text
    entries, bytes, groups, pending, digest        notes          data of the source that commands cannot copy
    rounds           number of rounds in which data was copied

If streams already exist at the target, the migration fails before it copies anything; the error names them.
`policy="resume"` continues from the target's current state; `"replace"` deletes the target stream first. A migration
stores no progress elsewhere: a run after a stop, or a task that Spark repeats, resumes from the target's state.

**A source that still receives writes**: `follow=True` copies new data until both streams are equal, or for `follow_for`
seconds. To switch over: follow, stop producers and consumers, wait for the end, then start them at the target.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, astuple, replace
from typing import TYPE_CHECKING

from rillet.client.servers import Servers
from rillet.errors import RilletError
from rillet.protocol.reply_parser import ReplyError
from rillet.spark.option_types import duration
from rillet.spark.options import OptionError, Options, parse
from rillet.spark.pipelines.cli_arguments import name_value, source_arguments, source_options, with_flags
from rillet.spark.pipelines.cli_common import DONE, FAILED, PipelineError, progress_bar, runner_of
from rillet.spark.pipelines.group_info import STREAM_OPTIONS, or_all_streams, shown, streams_of
from rillet.spark.pipelines.migrate_compare import POLICIES, REFUSE, REPLACE, RESUME, Plan, StreamMigrated, places
from rillet.spark.pipelines.migrate_keys import CONNECTION, KeysMigrated, KeysPlan, checked_sides, copy_keys
from rillet.spark.pipelines.migrate_stream import copy_stream
from rillet.spark.pipelines.tables import Progress, in_bytes, silent, table
from rillet.spark.pipelines.task_runner import TaskRunner, memory_of
from rillet.spark.server_address import require_store
from rillet.store.display.json_line import print_json
from rillet.units import counted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MEASURED = 1000  # streams whose memory is read one by one
_SCHEMA = (
    "stream string, target string, how string, entries bigint, bytes bigint, groups bigint, pending bigint, "
    "rounds int, digest string, equal boolean, differences array<string>, notes array<string>, seconds double"
)


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
    """Copy the streams that the source's options select, by default all; return the report as a DataFrame.

    prefix: added before each stream's name at the target. target: connection options only, without a stream.
    """
    plan = Plan(*checked(source, target, policy), policy=policy, follow=follow, follow_for=follow_for, verify=verify)
    return spark.createDataFrame([astuple(one) for one in copy_all(TaskRunner.using(spark), plan, prefix)], _SCHEMA)


def checked(source: Mapping[str, str], target: Mapping[str, str], policy: str = REFUSE) -> tuple[Options, Options]:
    """Return the checked options of source and target; raise one OptionError that lists every error."""
    wrong = [] if policy in POLICIES else [f"policy is {policy!r}: expected one of {', '.join(POLICIES)}"]
    sides: list[Options] = []
    named = [name for name in target if name.lower() in STREAM_OPTIONS]
    if named:
        wrong.append(
            f"the target does not accept {', '.join(named)}: streams keep their names, after an optional prefix"
        )
    rest = {name: value for name, value in target.items() if name not in named}
    for side, given in (("source", source), ("target", rest)):
        try:
            sides.append(parse(or_all_streams(given)))
        except OptionError as error:
            wrong.append(f"of the {side}: {str(error).removeprefix('rillet: ')}")
    if wrong:
        raise OptionError("rillet: " + "; ".join(wrong))
    require_store(sides[0].path)
    return sides[0], sides[1]


def copy_all(runner: TaskRunner, plan: Plan, prefix: str = "", show: Progress = silent) -> list[StreamMigrated]:
    """Copy each stream in a task; if a stream cannot be copied, raise PipelineError before the first copy."""
    pairs, entries, size = _planned(plan, prefix)
    results: list[StreamMigrated] = runner.run([(_copied, plan, *pair) for pair in pairs], show, entries, size)
    return sorted(results, key=lambda one: one.stream)


def _copied(plan: Plan, key: bytes, to: bytes) -> StreamMigrated:
    """Copy a stream; a task that Spark repeats resumes the copy that its earlier attempt began."""
    from pyspark import TaskContext

    context = TaskContext.get()
    again = context is not None and context.attemptNumber() > 0
    return copy_stream(replace(plan, policy=RESUME) if again else plan, key, to)


def _planned(plan: Plan, prefix: str) -> tuple[list[tuple[bytes, bytes]], int, float]:
    """Return (key at the source, key at the target) of each stream, the largest stream first; entries, and bytes."""
    with Servers(plan.source) as source, Servers(plan.target) as target:
        keys = streams_of(source, plan.source)
        pairs = [(key, prefix.encode() + key) for key in keys]
        if not prefix and (str(source) == str(target) or not places(source).isdisjoint(places(target))):
            raise PipelineError(
                f"rillet: source and target are the same server, {source}: give a prefix or another target"
            )
        lengths = source.each([(key, (b"XLEN", key)) for key in keys])
        sizes = dict(zip(keys, lengths, strict=True))
        wrong = [f"{shown(key)!r}: {length}" for key, length in sizes.items() if isinstance(length, ReplyError)]
        if wrong:
            raise PipelineError(f"rillet: {source} rejected the request for the length of streams: {'; '.join(wrong)}")
        if plan.policy == REFUSE:
            there = target.each([(to, (b"EXISTS", to)) for _, to in pairs])
            full = [shown(to) for (_, to), exists in zip(pairs, there, strict=True) if exists == 1]
            if full:
                names = ", ".join(full[:10]) + (f" and {len(full) - 10} more" if len(full) > 10 else "")
                raise PipelineError(
                    f"rillet: these streams already exist at {target}: {names}. "
                    "Continue them with resume, or delete them with replace"
                )
        entries, size = sum(sizes.values()), _size_of(source, keys)
    return sorted(pairs, key=lambda pair: -sizes[pair[0]]), entries, size


def _size_of(source: Servers, keys: Sequence[bytes]) -> float:
    """Return the bytes of memory that streams take, or at most; infinite if the server refuses to say."""
    if len(keys) > MEASURED:
        return memory_of(source.masters())
    replies = source.each([(key, (b"MEMORY", b"USAGE", key)) for key in keys])
    return sum(math.inf if isinstance(reply, ReplyError) else reply or 0 for reply in replies)


# -- the command -----------------------------------------------------------------------------------------------------

SMALL_WITHOUT_SPARK = True
EPILOG = """\
rillet pipeline migrate --url redis://old --to-url redis+cluster://new               all streams
rillet pipeline migrate --url redis://old --stream-pattern 'orders:*' --to-path store.rillet
rillet pipeline migrate --url redis://old --to-url redis://new --resume --follow     until both are equal
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    source_arguments(parser)
    add = parser.add_argument_group("target").add_argument
    add("--to-url", help="redis://, rediss://, unix://, redis+cluster://")
    add("--to-path", help="the directory of an embedded store; created if it does not exist")
    add("--to-option", type=name_value, action="append", default=[], metavar="NAME=VALUE",
        help="any other option of the target; may be repeated")  # fmt: skip
    add("--prefix", default="", help="a prefix for the names of the streams at the target")
    add("--resume", action="store_true", help="continue streams that already exist at the target")
    add("--replace", action="store_true", help="delete streams that already exist at the target")
    parser.add_argument("--keys", metavar="PATTERN",
                        help="also copy the keys of all other types that match this glob")  # fmt: skip
    parser.add_argument("--follow", action="store_true", help="copy new data until both streams are equal")
    parser.add_argument("--follow-for", type=duration, metavar="TIME", help="follow for at most this time (10m, 1h)")
    parser.add_argument("--no-verify", action="store_true", help="compare the counters instead of every entry")


def _target(options: argparse.Namespace) -> dict[str, str]:
    location = {"url": options.to_url, "path": options.to_path}
    values = dict(pair for pair in options.to_option or () if pair is not None)
    return values | {name: value for name, value in location.items() if value is not None}


def argument_errors(options: argparse.Namespace) -> list[str]:
    errors = []
    try:
        checked(source_options(options), _target(options))
    except OptionError as error:
        errors.append(_with_flags(str(error).removeprefix("rillet: ")))
    except RilletError:
        pass  # `run` raises the error again: the source's path is not a store
    if options.keys == "":
        errors.append("--keys is empty")
    if options.resume and options.replace:
        errors.append("give one of --resume and --replace")
    if options.follow_for is not None and not options.follow:
        errors.append("--follow-for needs --follow")
    return errors


def _with_flags(message: str) -> str:
    """Return an error message with option names replaced by the command-line flags of the source or target."""
    source, of, target = message.partition("of the target: ")
    theirs = with_flags(target).replace("--url", "--to-url").replace("--path", "--to-path")
    return with_flags(source) + of + theirs


def run(options: argparse.Namespace) -> int:
    """Copy the streams, verify them, print the report; return the exit status."""
    policy = RESUME if options.resume else REPLACE if options.replace else REFUSE
    plan = Plan(
        *checked(source_options(options), _target(options), policy),
        policy=policy, follow=options.follow, follow_for=options.follow_for, verify=not options.no_verify,
    )  # fmt: skip
    with runner_of(options, "migrate") as runner:
        return _migrate(options, runner, plan)


def _migrate(options: argparse.Namespace, runner: TaskRunner, plan: Plan) -> int:
    policy = plan.policy
    with progress_bar(options, "copying", "streams") as bar:
        results = copy_all(runner, plan, options.prefix, bar)
    status = _print_streams(results, runner, options.json)
    if options.keys is None:
        return status
    here, there = (
        {name: value for name, value in given.items() if name.lower() in CONNECTION}
        for given in (source_options(options), _target(options))
    )
    of_keys = KeysPlan(*checked_sides(here, there, policy, options.keys), options.keys, options.prefix, policy,
                       options.follow, options.follow_for)  # fmt: skip
    with progress_bar(options, "copying", "parts of the keys") as bar:
        parts = copy_keys(runner, of_keys, bar)
    return max(status, _print_keys(parts, runner, options.json))


def _print_keys(parts: Sequence[KeysMigrated], runner: TaskRunner, as_json: bool) -> int:
    """Print the report on keys of other types than streams; return the exit status."""
    equal = all(one.equal for one in parts)
    if as_json:
        for one in parts:
            print_json(asdict(one))
        return DONE if equal else FAILED
    for one in parts:
        for text in one.differences:
            print(f"DIFFERS {text}")
    counts = [sum(getattr(one, name) for one in parts) for name in ("keys", "copied", "rebuilt", "deleted")]
    digest = 0
    for one in parts:
        digest ^= int(one.target_digest, 16)
    line = "{}: {:,} copied ({:,} rebuilt), {:,} deleted".format(counted(counts[0], "key"), *counts[1:])
    print(f"{line}, digest {digest:032x}, in {runner.used}: {'all equal' if equal else 'not equal'}")
    return DONE if equal else FAILED


def _print_streams(results: Sequence[StreamMigrated], runner: TaskRunner, as_json: bool) -> int:
    """Print the report on streams; return the exit status."""
    if as_json:
        for one in results:
            print_json(asdict(one))
        return DONE if all(one.equal for one in results) else FAILED
    if not results:
        print("the source has no matching stream")
        return DONE
    head = ("stream", "how", "entries", "groups", "pending", "rounds", "digest")
    print(table(head, [
        (one.target, one.how, one.entries, one.groups, one.pending, one.rounds, one.digest[:12] or None) for one in
        results
    ]))  # fmt: skip
    for one in results:
        for note in one.notes:
            print(f"{one.target}: {note}")
    different = [one for one in results if not one.equal]
    for one in different:
        for text in one.differences:
            print(f"DIFFERS {one.stream}: {text}")
    total = sum(one.entries for one in results)
    ways = [f"{sum(one.how == way for one in results)} {way}" for way in ("restored", "rebuilt", "resumed")]
    line = f"{counted(len(results), 'stream')}, {counted(total, 'entry', 'entries')}, "
    line += f"{in_bytes(sum(one.bytes for one in results))} ({', '.join(way for way in ways if way[0] != '0')})"
    print(f"{line}, in {runner.used}: " + (f"{len(different)} not equal" if different else "all equal"))
    return FAILED if different else DONE

"""`rillet pipeline NAME ...`: the pipelines of rillet.spark.pipelines as commands.

    rillet pipeline                  which there are
    rillet pipeline NAME --help      what one takes

Each is a module there, with `add_arguments(parser)`, `run(options)` and, if it likes, `argument_errors(options)`; the
module is imported when it is asked for. Everything wrong with the arguments is one message, so argparse, which stops
at the first, is only the half of it (`running.Parser`).

Exit status: 0 done; 1 something failed on the way, the line says what; 2 the arguments are wrong, or Spark is missing;
130 it was interrupted.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec

from rillet.errors import RilletError
from rillet.spark.java import JavaMissing
from rillet.spark.options import OptionError

INTERRUPTED = 130  # as a shell has it: 128 and the number of SIGINT

PIPELINES: dict[str, str] = {
    "archive": "streams into Parquet files by date, each entry exactly once; trims what is archived",
    "history": "archive and live stream as one table: print it, or write it to Parquet",
    "replay": "Parquet files or a stream into another stream, at full speed or at a recorded pace",
    "aggregate": "run a Spark SQL query over a stream: windowed counts, sums, rates, quantiles",
    "snapshot": "what RDB files hold: keys, memory by type and prefix, stream entries, groups",
    "lag": "groups and consumers over time: lag, what is pending, how long, how often",
    "migrate": "streams with groups, pending entries and counters from server to server, verified",
    "dead-letters": "what failed, by group, reason and age; puts a selection back into its stream",
}
"""The pipelines, by the name of their command, with their line of help; `-` in a name is `_` in the module's."""


STOPPED: dict[str, str] = {
    "archive": "; what is committed stays, the next run goes on after it",
    "replay": "; what is written stays, the same command goes on after it",
    "aggregate": "; what is committed stays, the next run goes on after it",
    "migrate": "; --resume goes on with what is at the target",
    "dead-letters": "; what was put back stays, the same command does the rest",
}
"""What to know of those that were interrupted and change something."""


def run(given: Sequence[str]) -> int:
    """Run the pipeline that the words name, and return the exit status."""
    if not given or given[0].startswith("-") or given[0] not in PIPELINES:
        return _overview(given)
    try:
        return _run(given[0], given[1:])
    except BaseException as error:
        # What is cleared up after ^C may fail in its own way: Spark is interrupted, too.
        if not _interrupted(error):
            raise
        print(f"rillet: interrupted{STOPPED.get(given[0], '')}", file=sys.stderr)
        return INTERRUPTED


def _run(name: str, words: Sequence[str]) -> int:
    try:
        _require()
    except RilletError as error:
        print(f"rillet: {error}", file=sys.stderr)
        return 2
    from rillet.spark.pipelines.cli_arguments import PipelineParser
    from rillet.spark.pipelines.cli_common import FAILED, WRONG, error_line

    module = import_module(f"rillet.spark.pipelines.{name.replace('-', '_')}")
    parser = PipelineParser(
        prog=f"rillet pipeline {name}",
        description=PIPELINES[name][:1].upper() + PIPELINES[name][1:] + ".",
        epilog=getattr(module, "EPILOG", None),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    module.add_arguments(parser)
    try:
        status: int = module.run(parser.read(words, module))
    except (OptionError, JavaMissing) as error:
        print(f"rillet: {error_line(error)}", file=sys.stderr)
        return WRONG
    except Exception as error:
        foreign = not isinstance(error, (RilletError, OSError)) and not _of_spark(error)
        if foreign or _interrupted(error):
            raise
        print(f"rillet: {error_line(error)}", file=sys.stderr)
        return FAILED
    return status


def _of_spark(error: Exception) -> bool:
    return type(error).__module__.startswith(("py4j", "pyspark"))


def _interrupted(error: BaseException | None) -> bool:
    """Whether it was ^C, or came of it."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error is not None


def _require() -> None:
    """Raise RilletError where a package of the extra `spark` is missing."""
    missing = [name for name in ("pyspark", "pyarrow") if find_spec(name) is None]
    if missing:
        raise RilletError(f"pipelines need {' and '.join(missing)}: pip install 'rillet[spark]'")


def _overview(given: Sequence[str]) -> int:
    """Print which pipelines there are; an unknown name is said first."""
    unknown = bool(given) and not given[0].startswith("-")
    out = sys.stderr if unknown else sys.stdout
    if unknown:
        print(f"rillet: there is no pipeline {given[0]!r}", file=out)
    print("usage: rillet pipeline NAME ...        (rillet pipeline NAME --help says more)\n", file=out)
    for name, line in PIPELINES.items():
        print(f"  {name:<14} {line}", file=out)
    return 2 if unknown or not given else 0

"""`rillet pipeline NAME ...`: runs the pipelines of rillet.spark.pipelines as commands.

    rillet pipeline                  list the pipelines
    rillet pipeline NAME --help      list a pipeline's arguments

Each pipeline is a module of that package, imported when its command runs (cli_common.py lists its functions).

Exit status: 0 success; 1 a failure, or a difference found; 2 wrong arguments, or Spark is missing; 130 interrupted.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module

from rillet.cli.ends import INTERRUPTED, interrupted
from rillet.errors import RilletError
from rillet.extras import require

PIPELINES: dict[str, str] = {
    "archive": "write streams to Parquet files by date, each entry exactly once; optionally trim archived entries",
    "changes": "keep every change of a server in an archive, and the value of every key in a table",
    "history": "read an archive and its live stream as one table: print it, or write it to Parquet",
    "replay": "write Parquet files or a stream to another stream, at full speed or at the recorded pace",
    "snapshot": "report on RDB files: keys, memory by type and prefix, stream entries, groups",
    "lag": "show groups and consumers over time: lag, pending entries, their age and deliveries",
    "migrate": "copy streams with groups, pending entries and counters to another server, and verify them",
    "dead-letters": "list failed entries by group, reason and age; requeue a selection into its stream",
    "run": "run the jobs of a TOML file, each a pipeline, in one process with one Spark session",
}
"""The line of help of each pipeline, by command name; a `-` in the name is a `_` in the module's name."""


STOPPED: dict[str, str] = {
    "archive": "committed entries are kept, and the next run continues after them",
    "changes": "committed changes are kept, and the next run continues after them",
    "replay": "written entries are kept, and the same command continues after them",
    "migrate": "continue with --resume",
    "dead-letters": "requeued entries stay, and the same command requeues the rest",
    "run": "committed work is kept, and the next run continues after it",
}
"""How to continue after an interrupt; printed after `rillet: interrupted; `. Only for pipelines that write."""


def run(given: Sequence[str]) -> int:
    """Run the named pipeline and return the exit status."""
    if not given or given[0].startswith("-") or given[0] not in PIPELINES:
        return _overview(given)
    try:
        return _run(given[0], given[1:])
    except BaseException as error:
        # Clean-up after Ctrl-C may raise another error, because Spark is interrupted too.
        if not interrupted(error):
            raise
        remedy = STOPPED.get(given[0])
        print("rillet: interrupted" + (f"; {remedy}" if remedy else ""), file=sys.stderr)
        return INTERRUPTED


def _run(name: str, words: Sequence[str]) -> int:
    try:
        require("spark", "rillet pipeline")
    except RilletError as error:
        print(f"rillet: {error}", file=sys.stderr)
        return 2
    from rillet.spark.pipelines.cli_arguments import PipelineParser, common_arguments
    from rillet.spark.pipelines.cli_common import error_line, status_of
    from rillet.spark.pipelines.jobs import Job, served

    module = import_module(f"rillet.spark.pipelines.{name.replace('-', '_')}")
    parser = PipelineParser(
        prog=f"rillet pipeline {name}",
        description=PIPELINES[name][:1].upper() + PIPELINES[name][1:] + ".",
        epilog=getattr(module, "EPILOG", None),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    module.add_arguments(parser)
    common_arguments(parser, getattr(module, "SMALL_WITHOUT_SPARK", False))
    try:
        options = parser.read(words, module)
        options.job = Job(name, getattr(options, "every", None))
        with served([options.job], None if name == "run" else getattr(options, "metrics_port", None)):
            status: int = module.run(options)
    except Exception as error:
        failed = status_of(error)
        if failed is None or interrupted(error):
            raise
        print(f"rillet: {error_line(error)}", file=sys.stderr)
        return failed
    return status


def _overview(given: Sequence[str]) -> int:
    """Print the list of pipelines, after an error about an unknown name."""
    unknown = bool(given) and not given[0].startswith("-")
    out = sys.stderr if unknown else sys.stdout
    if unknown:
        print(f"rillet: unknown pipeline {given[0]!r}", file=out)
    print("usage: rillet pipeline NAME ...        (rillet pipeline NAME --help lists the arguments)\n", file=out)
    for name, line in PIPELINES.items():
        print(f"  {name:<14} {line}", file=out)
    return 2 if unknown or not given else 0

"""The `rillet` console script: one file per subcommand, each imported when it is asked for.

    rillet info                                    which build runs, and which optional packages it finds
    rillet serve [redis.conf] [--port N] [--dir D]
    rillet check PATH [--repair]                   whether what lies on the disk is whole
    rillet export SOURCE OUT.rdb [--rdb-version N] the data as an RDB file, for a server of any age
    rillet pipeline NAME ...                       archive, replay, aggregate ...: the pipelines on Spark
    rillet --version

A subcommand is a module of this package with `add_arguments(parser)` and `run(options)`, which returns the exit status.
`serve` takes redis-server's grammar, in which any `--name value` is a setting, and `pipeline` says everything that is
wrong with its arguments at once, so theirs do not pass through the parser here.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module

import rillet

SUBCOMMANDS = {
    "info": "show which build runs, and which optional packages it finds",
    "serve": "serve RESP on a socket: rillet serve [redis.conf] [--port N] [--dir D]",
    "check": "see whether a store, a log or an RDB file is whole: rillet check PATH [--repair]",
    "export": "write the data of a store, a log or an RDB file as an RDB file, for a server of any age",
    "pipeline": "archive, replay, aggregate and more on Spark: rillet pipeline NAME ...",
}
"""The names of the subcommands, with their line of help."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given[:1] in (["serve"], ["pipeline"]):
        own: int = import_module(f"rillet.cli.{given[0]}").run(given[1:])
        return own
    parser = _parser(given[0] if given else "")
    options = parser.parse_args(given)
    if options.command is None:
        parser.print_help()
        return 2
    status: int = import_module(f"rillet.cli.{options.command}").run(options)
    return status


def _parser(asked: str) -> argparse.ArgumentParser:
    """Return the parser, with the arguments of the subcommand that is asked for."""
    parser = argparse.ArgumentParser(prog="rillet", description="Redis Streams in Python.")
    speed = "compiled" if rillet.compiled() else "interpreted"
    parser.add_argument("--version", action="version", version=f"rillet {rillet.__version__} ({speed})")
    commands = parser.add_subparsers(dest="command", metavar="command")
    for name, line in SUBCOMMANDS.items():
        found = commands.add_parser(name, help=line, description=line)
        if name == asked:
            import_module(f"rillet.cli.{name}").add_arguments(found)
    return parser

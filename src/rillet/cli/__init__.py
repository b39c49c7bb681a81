"""The `rillet` console script: one module per subcommand, imported on demand.

    rillet info                                    the build and the optional packages that are installed
    rillet serve [redis.conf] [--port N] [--dir D]
    rillet check PATH [--repair] [--salvage OUT]   check the files of a store or server; save what is sound
    rillet backup SOURCE TARGET                    copy a running store or server without a stall
    rillet restore BACKUP TARGET [--to TIME]       make a new directory from a backup, as of a second
    rillet export SOURCE OUT.rdb [--rdb-version N] write the data as an RDB file for any server version
    rillet import SOURCE TARGET [--merge HOW]      copy files or a server into a store or a server
    rillet stats PLACE [--watch] [--json]          streams, groups, lag, pending messages by age, memory
    rillet groups PLACE [STREAM]                   groups with their consumers and pending messages
    rillet delayed PLACE [STREAM]                  entries and retries that wait until they are due
    rillet partitions PLACE [STREAM]               partitioned streams, and who reads which partition
    rillet tail PLACE STREAM ...                   print entries, and new ones as they are added
    rillet inspect PLACE [--write]                 a local web page: streams, groups, pending entries, bytes, keys
    rillet top PLACE                               streams, groups and lag in the terminal, live
    rillet report PLACE -o report.html             the streams of a place as one self-contained page
    rillet completion bash|zsh|fish|tcsh           print a script for the completion of commands in a shell
    rillet pipeline NAME ...                       archive, replay, aggregate ...: the pipelines on Spark
    rillet --version

A subcommand is a module of this package with `add_arguments(parser)` and `run(options)`, which returns the exit status.
`serve` uses redis-server's grammar, in which any `--name value` is a setting, and `pipeline` reports all errors in its
arguments together, so this parser skips the arguments of both.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING

import rillet

if TYPE_CHECKING:
    import argparse

SUBCOMMANDS = {
    "info": "show the build and the optional packages that are installed",
    "serve": "serve RESP on a socket: rillet serve [redis.conf] [--port N] [--dir D]",
    "check": "check the files of a store or server for damage: rillet check PATH [--repair] [--salvage OUT]",
    "backup": "copy the data of a running store or server, and verify the copy: rillet backup SOURCE TARGET",
    "restore": "make a new directory from a backup, as it was at a time: rillet restore BACKUP TARGET [--to TIME]",
    "export": "write the data of a store, a log or an RDB file as an RDB file of any version",
    "import": "copy an RDB file, a log or a server into a store or a server: rillet import SOURCE TARGET",
    "stats": "show streams, groups, lag, pending messages by age and memory of a store or server",
    "groups": "show groups with their consumers and pending messages; --collect deletes silent consumers",
    "delayed": "show entries and retries that wait until they are due",
    "partitions": "show partitioned streams, and who reads which partition; --repartition changes their number",
    "tail": "print the last entries of streams, and new ones as they are added",
    "inspect": "serve a local web page that shows streams, groups, pending entries and bytes: rillet inspect PATH|URL",
    "top": "show streams, groups and lag in the terminal, live: rillet top PATH|URL",
    "report": "write the streams of a place as one self-contained page: rillet report PATH|URL -o report.html",
    "completion": "print a script that completes commands and options in bash, zsh, fish or tcsh",
    "pipeline": "archive, replay, aggregate and more on Spark: rillet pipeline NAME ...",
}
"""The subcommands and their help lines."""
_MODULES = {"import": "import_data"}  # the names that Python reserves


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status; ^C and a closed pipe end it silently (rillet.cli.ends)."""
    try:
        try:
            return _run(list(sys.argv[1:] if arguments is None else arguments))
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()
    except BaseException as error:
        from rillet.cli.ends import status_of

        status = status_of(error)
        if status is None:
            raise
        return status


def _run(given: list[str]) -> int:
    if sys.version_info < (3, 11) and given[:1] not in ([], ["pipeline"], ["info"], ["--version"]):
        print("rillet: this needs Python 3.11 or newer; on 3.10, rillet.spark works", file=sys.stderr)
        return 2
    if given[:1] in (["serve"], ["pipeline"]):
        own: int = import_module(f"rillet.cli.{given[0]}").run(given[1:])
        return own
    parser = _parser(given[0] if given else "")
    options = parser.parse_args(given)
    if options.command is None:
        parser.print_help()
        return 2
    status: int = import_module(module_of(options.command)).run(options)
    return status


def module_of(name: str) -> str:
    """Return the module of a subcommand."""
    return f"rillet.cli.{_MODULES.get(name, name)}"


def _parser(name_given: str) -> argparse.ArgumentParser:
    """Return the parser, with the arguments of the given subcommand."""
    import argparse  # here, so that ^C during an import is silent

    parser = argparse.ArgumentParser(prog="rillet", description="Redis Streams in Python.")
    speed = "compiled" if rillet.compiled() else "interpreted"
    parser.add_argument("--version", action="version", version=f"rillet {rillet.__version__} ({speed})")
    commands = parser.add_subparsers(dest="command", metavar="command")
    for name, line in SUBCOMMANDS.items():
        found = commands.add_parser(name, help=line, description=line)
        if name == name_given:
            import_module(module_of(name)).add_arguments(found)
    return parser

"""The `rillet` console script: one module per subcommand, imported on demand.

    rillet info                                    the build and the optional packages that are installed
    rillet serve [redis.conf] [--port N] [--dir D]
    rillet check PATH [--repair] [--salvage OUT]   check the files of a store or server; save what is sound
    rillet backup PATH|URL TARGET                  copy a running store or server without a stall
    rillet restore PATH TARGET [--to TIME]         make a new directory from a backup, as of a second
    rillet export PATH OUT.rdb [--rdb-version N]   write the data as an RDB file for any server version
    rillet import PATH|URL TARGET [--merge HOW]    copy files or a server into a store or a server
    rillet stats PATH|URL [--watch] [--json]       streams, groups, lag, pending messages by age, memory
    rillet groups PATH|URL [STREAM]                groups with their consumers and pending messages
    rillet dead-letters PATH|URL [STREAM]          what consumers gave up, and why; requeue it, or drop it
    rillet delayed PATH|URL [STREAM]               entries and retries that wait until they are due
    rillet partitions PATH|URL [STREAM]            partitioned streams, and who reads which partition
    rillet tail PATH|URL STREAM ...                print entries, and new ones as they are added
    rillet exec PATH|URL COMMAND ...               run a command, also on a directory without a server
    rillet cli PATH|URL                            a prompt for commands, with history and completion
    rillet inspect PATH|URL ... [--write]          a local web page: streams, groups, dead letters, bytes, keys
    rillet top PATH|URL                            streams, groups and lag in the terminal, live
    rillet report PATH|URL -o report.html          the streams of a place as one self-contained page
    rillet completion bash|zsh|fish|tcsh           print a script for the completion of commands in a shell
    rillet pipeline NAME ...                       archive, replay, migrate ...: the pipelines on Spark
    rillet --version

A subcommand is a module of this package with `add_arguments(parser)` and `run(options)`, which returns the exit status.
`serve` uses redis-server's grammar, in which any `--name value` is a setting, and `pipeline` reports all errors in its
arguments together, so this parser skips the arguments of both.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING

import rillet

if TYPE_CHECKING:
    import argparse

SUBCOMMANDS = {
    "info": "show the build and the optional packages that are installed",
    "serve": "serve RESP on a socket: rillet serve [redis.conf] [--port N] [--dir D]",
    "check": "check the files of a store or server for damage: rillet check PATH [--repair] [--salvage OUT]",
    "backup": "copy the data of a running store or server, and verify the copy: rillet backup PATH|URL TARGET",
    "restore": "make a new directory from a backup, as it was at a time: rillet restore PATH TARGET [--to TIME]",
    "export": "write the data of a store, a log or an RDB file as an RDB file of any version",
    "import": "copy an RDB file, a log or a server into a store or a server: rillet import PATH|URL TARGET",
    "stats": "show streams, groups, lag, pending messages by age and memory of a store or server",
    "groups": "show groups, consumers and pending messages; --collect deletes silent consumers, --reset moves a group",
    "dead-letters": "show what consumers gave up, and why; --requeue adds it to its stream again, --drop deletes it",
    "delayed": "show entries and retries that wait until they are due",
    "partitions": "show partitioned streams, and who reads which partition; --repartition changes their number",
    "tail": "print the last entries of streams, and new ones as they are added",
    "exec": "run a command and print its reply: rillet exec PATH|URL XADD orders '*' customer 42",
    "cli": "a prompt for commands, with history and completion: rillet cli PATH|URL",
    "inspect": "serve a local web page that shows streams, groups, keys and bytes: rillet inspect PATH|URL ...",
    "top": "show streams, groups and lag in the terminal, live: rillet top PATH|URL",
    "report": "write the streams of a place as one self-contained page: rillet report PATH|URL -o report.html",
    "completion": "print a script that completes commands and options in bash, zsh, fish or tcsh",
    "pipeline": "archive, replay, migrate and more on Spark: rillet pipeline NAME ...",
}
"""The subcommands and their help lines."""
# Names that Python reserves or has, and one with a hyphen.
_MODULES = {"import": "import_data", "exec": "execute", "cli": "prompt", "dead-letters": "dead_letters"}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status; ^C and a closed pipe end it silently (rillet.cli.ends)."""
    try:
        try:
            return _run(list(sys.argv[1:] if arguments is None else arguments))
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()
            if arguments is None:
                _end_at_interrupts()
    except BaseException as error:
        from rillet.cli.ends import status_of

        status = status_of(error)
        if status is None:
            raise
        return status


def _end_at_interrupts() -> None:
    """Let ^C end this process without a traceback: the command is done, and the interpreter has yet to end."""
    import signal

    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # a server ignores it by now
        with suppress(ValueError):  # in another thread than the main one
            signal.signal(signal.SIGINT, signal.SIG_DFL)


def _run(given: list[str]) -> int:
    if sys.version_info < (3, 11) and given[:1] not in ([], ["pipeline"], ["info"], ["--version"]):
        print("rillet: this needs Python 3.11 or newer; on 3.10, rillet.spark works", file=sys.stderr)
        return 2
    if given[:1] in (["serve"], ["pipeline"]):
        own: int = import_module(f"rillet.cli.{given[0]}").run(given[1:])
        return own
    import argparse  # here, so that ^C during an import is silent

    if given[:1] and given[0] in SUBCOMMANDS:
        name, module = given[0], import_module(module_of(given[0]))
        parser = argparse.ArgumentParser(prog=f"rillet {name}", description=SUBCOMMANDS[name])
        module.add_arguments(parser)
        # Options may stand between names; after `exec`, all words belong to the command.
        read = parser.parse_args if name == "exec" else parser.parse_intermixed_args
        status: int = module.run(read(given[1:]))
        return status
    parser = _parser()
    parser.parse_args(given)
    parser.print_help()
    return 2


def module_of(name: str) -> str:
    """Return the module of a subcommand."""
    return f"rillet.cli.{_MODULES.get(name, name)}"


def _parser() -> argparse.ArgumentParser:
    """Return the parser of everything but a subcommand: the help, the version, the error for an unknown name."""
    import argparse

    parser = argparse.ArgumentParser(prog="rillet", description="Redis Streams in Python.")
    speed = "compiled" if rillet.compiled() else "interpreted"
    parser.add_argument("--version", action="version", version=f"rillet {rillet.__version__} ({speed})")
    commands = parser.add_subparsers(dest="command", metavar="command")
    for name, line in SUBCOMMANDS.items():
        commands.add_parser(name, help=line)
    return parser

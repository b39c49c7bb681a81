"""The `rillet` console script: one file per subcommand, each imported when it is asked for.

    rillet info                         which build runs, and which optional packages it finds
    rillet serve [redis.conf] [--port N] [--dir D]
    rillet --version

A subcommand is a module of this package with a function `run`. `serve` takes redis-server's grammar, in which any
`--name value` is a setting, so its arguments never pass through argparse.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

import rillet


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given[:1] == ["serve"]:
        from rillet.cli import serve

        return serve.run(given[1:])
    parser = _parser()
    options = parser.parse_args(given)
    if options.command is None:
        parser.print_help()
        return 2
    from rillet.cli import info

    return info.run()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="rillet", description="Redis Streams in Python.")
    speed = "compiled" if rillet.compiled() else "interpreted"
    parser.add_argument("--version", action="version", version=f"rillet {rillet.__version__} ({speed})")
    commands = parser.add_subparsers(dest="command", metavar="command")
    commands.add_parser("info", help="show which build runs, and which optional packages it finds")
    commands.add_parser("serve", help="serve RESP on a socket: rillet serve [redis.conf] [--port N] [--dir D]")
    return parser

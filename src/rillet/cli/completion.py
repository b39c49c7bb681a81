"""`rillet completion SHELL`: print a script that completes rillet's commands, options and paths with the TAB key.

    eval "$(rillet completion bash)"                                          in ~/.bashrc
    rillet completion zsh > "${fpath[1]}/_rillet"                             once
    rillet completion fish > ~/.config/fish/completions/rillet.fish           once

The script is made from the argument parsers and contains every command and option, so completing starts no Python. Make
it again after an upgrade. The options of `rillet pipeline` are included if Spark is installed.

Exit status: 0, or 2 without shtab.
"""

from __future__ import annotations

import argparse
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rillet.cli.output import guarded
from rillet.errors import RilletError
from rillet.extras import require

SHELLS = ("bash", "zsh", "fish", "tcsh")
_VALUES = {"appendfsync": ("always", "everysec", "no"), "loglevel": ("debug", "verbose", "notice", "warning"),
           "rdb-foreign": ("refuse", "skip", "keep"), "dump-format": ("oldest", "native")}  # fmt: skip
_FOLDERS, _FILES = ("dir",), ("unixsocket", "logfile")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=SHELLS, help="the shell")


def run(options: argparse.Namespace) -> int:
    """Print the script; return the exit status."""
    return guarded(lambda: print(script(options.shell)))


def script(shell: str) -> str:
    """Return the script for a shell; RilletError if the installed shtab does not support it."""
    require("completion", "completion")
    import shtab

    if shell not in shtab.SUPPORTED_SHELLS:
        raise RilletError(f"the installed shtab has no support for {shell}: pip install --upgrade shtab")
    parser = whole_parser()
    _mark_paths(parser, shtab.FILE, shtab.DIRECTORY)
    text: str = shtab.complete(parser, shell)
    return text


def whole_parser() -> argparse.ArgumentParser:
    """Return a parser with the arguments of all subcommands, also of those that have their own grammar."""
    from rillet.cli import SUBCOMMANDS, module_of

    parser = argparse.ArgumentParser(prog="rillet", description="Redis Streams in Python.")
    parser.add_argument("--version", action="store_true", help="show the version")
    commands = parser.add_subparsers(dest="command", metavar="command")
    for name, line in SUBCOMMANDS.items():
        found = commands.add_parser(name, help=line, description=line)
        if name == "serve":
            _settings(found)
        elif name == "pipeline":
            _pipelines(found)
        else:
            import_module(module_of(name)).add_arguments(found)
        if name == "exec":
            _command_names(found)
    return parser


def _command_names(parser: argparse.ArgumentParser) -> None:
    """Let the words after PATH|URL be completed by the names of commands."""
    from rillet import commands
    from rillet.runtime.registry import TABLE

    commands.load()
    for action in parser._actions:
        if action.dest == "words":
            action.nargs = "*"  # shtab completes the words of neither REMAINDER nor "..."
            action.choices = sorted(command.name.upper() for command in TABLE)


def _settings(parser: argparse.ArgumentParser) -> None:
    """Add the settings of `rillet serve` as options."""
    from rillet.runtime.settings.settings import PARAMETERS
    from rillet.types.compat import COMPATS

    parser.add_argument("config", nargs="?", type=Path, help="a redis.conf")
    for name, setting in sorted(PARAMETERS.items()):
        # A hidden setting is internal, unless it can only be set at the start: then it is an option of rillet.
        if (setting.hidden and setting.mutable) or setting.alias or setting.absent:
            continue
        values = {**_VALUES, "compat": tuple(COMPATS)}.get(name)
        if values is None and setting.show(setting.default) in ("yes", "no"):
            values = ("yes", "no")
        help = setting.about.replace("%", "%%")
        action = parser.add_argument(f"--{name}", choices=values, metavar=None if values else "VALUE", help=help)
        if name in (*_FOLDERS, *_FILES):
            action.type = Path


def _pipelines(parser: argparse.ArgumentParser) -> None:
    """Add the pipelines as subcommands, with their options if Spark is installed."""
    from rillet.cli.pipeline import PIPELINES

    names = parser.add_subparsers(dest="pipeline", metavar="NAME")
    has_spark = find_spec("pyspark") is not None and find_spec("pyarrow") is not None
    for name, line in PIPELINES.items():
        found = names.add_parser(name, help=line, description=line)
        if has_spark:
            from rillet.spark.pipelines.cli_arguments import common_arguments

            module = import_module(f"rillet.spark.pipelines.{name.replace('-', '_')}")
            module.add_arguments(found)
            common_arguments(found, getattr(module, "SMALL_WITHOUT_SPARK", False))


def _mark_paths(parser: argparse.ArgumentParser, file: Any, folder: Any) -> None:
    """Let arguments that are paths complete files or directories."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for one in action.choices.values():
                _mark_paths(one, file, folder)
        elif action.dest in ("place", "places", *_FOLDERS):
            action.complete = folder  # type: ignore[attr-defined]
        elif action.type is Path or action.dest in ("source", "target"):
            action.complete = file  # type: ignore[attr-defined]

"""Command-line arguments of the pipelines: a parser that reports all errors together, value types, argument groups.

argparse stops at the first bad argument. `PipelineParser` instead collects all errors and reports them in one message:
values that a `type` function rejects, missing arguments, unknown arguments, and the errors that the pipeline's function
`argument_errors` returns.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

from rillet.spark.option_types import duration, whole_number
from rillet.spark.options import OptionError, parse


class _Missing:
    """The value of a flag that the user gave without its value."""


class PipelineParser(argparse.ArgumentParser):
    """An argument parser that reports all errors together."""

    def error(self, message: str) -> NoReturn:
        """Raise OptionError instead of exiting the process."""
        raise OptionError(message)

    def read(self, words: Sequence[str], module: ModuleType) -> argparse.Namespace:
        """Return the parsed arguments of a pipeline module; raise one OptionError that lists every error."""
        if {"-h", "--help"} & set(words):
            return self.parse_args(words)
        errors: list[str] = []
        required: list[argparse.Action] = []
        for action in self._actions:
            if action.required:
                required.append(action)
                action.required = False
                if not action.option_strings:
                    action.nargs = "?" if action.nargs is None else "*"
            if action.option_strings and action.nargs is None and not isinstance(action, argparse._VersionAction):
                action.nargs, action.const = "?", _Missing
            if action.nargs != 0:
                action.type = _collecting(self.name_of(action), action, errors)
                action.choices = None
        options, unknown = self.parse_known_args(words)
        for action in self._actions:
            name, value = self.name_of(action), getattr(options, action.dest, None)
            if value is _Missing or (isinstance(value, list) and _Missing in value):
                errors.append(f"{name} needs a value")
                setattr(options, action.dest, None)
            elif action in required and value in (None, []) and not any(one.startswith(f"{name} ") for one in errors):
                errors.append(f"{name} is missing: {action.help}")
        errors += [f"unknown argument {word}" for word in unknown]
        errors += module.argument_errors(options)
        if errors:
            raise OptionError("; ".join(errors))
        return options

    def name_of(self, action: argparse.Action) -> str:
        """Return the name of an argument in errors."""
        return action.option_strings[-1] if action.option_strings else str(action.metavar or action.dest)


def _collecting(name: str, action: argparse.Action, errors: list[str]) -> Callable[[str], Any]:
    """Return a `type` function for argparse that appends an error to `errors`, instead of raising it."""
    convert: Callable[[str], Any] = action.type if callable(action.type) else str
    choices = action.choices

    def read(text: str) -> Any:
        try:
            value = convert(text)
            if choices is not None and value not in choices:
                raise ValueError(f"expected one of {', '.join(map(str, choices))}")
        except (ValueError, TypeError, argparse.ArgumentTypeError) as error:
            errors.append(f"{name} is {text!r}: {error}")
            return None
        return value

    return read


# ---- types of values ----------------------------------------------------------------------------------------------


def byte_size(text: str) -> int:
    """Return a size in bytes, from a number with or without a unit: 64k, 128m, 1g."""
    match = re.fullmatch(r"([0-9]+)([kmg]?)b?", text.strip().lower())
    if match is None or not int(match[1]):
        raise ValueError("expected a size in bytes, or a number with a unit (64k, 128m, 1g)")
    return int(match[1]) << {"": 0, "k": 10, "m": 20, "g": 30}[match[2]]


def positive_number(text: str) -> float:
    """Return a number above 0, such as 0.5 or 10."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1e9:
        raise ValueError("expected a number above 0")
    return value


def address_and_port(text: str) -> tuple[str, int]:
    """Return an address, by default that of this machine only, and a port: 9122, 0.0.0.0:9122."""
    address, _, port = text.rpartition(":")
    if not re.fullmatch("[0-9]{1,5}", port) or not 0 < int(port) < 65536:
        raise ValueError("expected a port, or an address and a port: 9122, 0.0.0.0:9122")
    return address or "127.0.0.1", int(port)


def name_value(text: str) -> tuple[str, str]:
    """Return (NAME, VALUE) from an argument of the form NAME=VALUE."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise ValueError("expected NAME=VALUE")
    return name, value


def local_folder(text: str) -> Path:
    """Return the path of a folder; reject a file, and a URL such as s3a://bucket, which pathlib would misread."""
    if "://" in text:
        raise ValueError("expected a folder of a file system that all executors share")
    path = Path(text)
    if path.exists() and not path.is_dir():
        raise ValueError("expected a folder, not a file")
    return path


def folder_or_url(text: str) -> Path | str:
    """Return the path of a folder, or a URL."""
    return text if "://" in text else local_folder(text)


def file_options(add: Callable[..., Any], small_files: int, size: int, kept: str) -> None:
    """Declare the options of the files of an archive; small_files, size, kept: the defaults."""
    add("--small-files", type=whole_number(2), default=small_files, metavar="N",
        help=f"merge the archive's files of a day when this many are small (default: {small_files})")  # fmt: skip
    add("--file-size", type=byte_size, default=size, metavar="SIZE",
        help=f"the largest size of a merged file (default: {size >> 20}m)")  # fmt: skip
    add("--compression", choices=("zstd", "snappy", "gzip", "lz4", "none"), default="zstd",
        help="codec of the Parquet files (default: zstd)")  # fmt: skip
    add("--keep-replaced", type=duration, metavar="TIME",
        help=f"how long replaced files are kept for running readers (default: {kept})")  # fmt: skip


def storage_option(add: Callable[..., Any]) -> None:
    """Declare --storage-option."""
    add("--storage-option", action="append", type=name_value, default=[], metavar="NAME=VALUE",
        help="a setting of the object store, as for deltalake: AWS_REGION=eu-west-1")  # fmt: skip


# ---- the source: --url, --path, --stream ... ----------------------------------------------------------------------

_SOURCE = (  # flag, name of the connector's option, help
    ("--url", "url", "redis://[user:password@]host[:port][/db], rediss://, unix://, redis+cluster://"),
    ("--path", "path", "the directory of an embedded store, instead of a url"),
    ("--stream", "stream", "the stream's key"),
    ("--streams", "streams", "several keys, separated by commas"),
    ("--stream-pattern", "streamPattern", "a glob of keys, matched again for every batch"),
)


def source_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments that name the source; `source_options` reads them."""
    group = parser.add_argument_group("source")
    for flag, _, line in _SOURCE:
        group.add_argument(flag, help=line)
    group.add_argument("--option", type=name_value, action="append", default=[], metavar="NAME=VALUE",
                       help="any other option of the source; may be repeated (docs/spark.md)")  # fmt: skip


def source_options(options: argparse.Namespace) -> dict[str, str]:
    """Return the connector's options from the arguments that `source_arguments` declared."""
    values = dict(pair for pair in options.option or () if pair is not None)
    for flag, name, _ in _SOURCE:
        value = getattr(options, flag[2:].replace("-", "_"), None)
        if value is not None:
            values[name] = value
    return values


def source_errors(options: argparse.Namespace, **more: str) -> list[str]:
    """Return the connector's errors about its options, with command-line flags in place of option names."""
    try:
        parse({**source_options(options), **more}).require_stream()
    except OptionError as error:
        return [with_flags(str(error).removeprefix("rillet: "))]
    return []


def with_flags(message: str) -> str:
    """Return an error message of the connector with its option names replaced by command-line flags."""
    parts = message.replace("one of url (", "one of --url (").replace(" and path (", " and --path (").split("; ")
    for number, part in enumerate(parts):
        before, colon, text = part.rpartition("of the source: ")  # `migrate` adds this prefix to errors
        word, _, rest = text.partition(" ")
        for flag, name, line in _SOURCE:
            if word == name:
                parts[number] = f"{before}{colon}{flag} {rest}"
                if name == "stream" and rest.startswith("is missing"):
                    parts[number] = f"{before}{colon}{flag} is missing: {line} (or --streams, --stream-pattern)"
    return "; ".join(parts)


# ---- the target: --to, --to-url, --to-path ------------------------------------------------------------------------

CONNECTION = ("url", "path", "user", "password", "cafile", "certfile", "keyfile", "tlsverify", "timeout")
"""The source's connection options, which also apply to a target on the same server."""


def target_arguments(group: Any) -> None:
    """Declare the arguments that name the stream to write to; `target_options` reads them."""
    group.add_argument("--to", required=True, metavar="KEY", help="the stream to write to")
    group.add_argument("--to-url", metavar="URL", help="the target's server (default: the source's)")
    group.add_argument("--to-path", metavar="FOLDER", help="the target's embedded store, instead of a server")


def target_options(options: argparse.Namespace) -> dict[str, str]:
    """Return the connector options with which to connect to the target's server or store."""
    if options.to_url is not None:
        return {"url": options.to_url}
    if options.to_path is not None:
        return {"path": options.to_path}
    return {name: value for name, value in source_options(options).items() if name.lower() in CONNECTION}


def target_errors(options: argparse.Namespace, reads_stream: bool = True) -> list[str]:
    """Return the error messages if two targets are given, or if the target is the same stream as the source."""
    errors = []
    if options.to_url is not None and options.to_path is not None:
        errors.append("give one of --to-url and --to-path")
    source = source_options(options)
    same = all(source.get(name) == value for name, value in target_options(options).items() if name in ("url", "path"))
    if reads_stream and options.to is not None and options.to == options.stream and same:
        errors.append(f"--to is {options.to!r}: the source and the target are the same stream")
    return errors


def common_arguments(parser: argparse.ArgumentParser, is_optional: bool = False) -> None:
    """Declare the arguments of all pipelines: those of the Spark session, --json, and --metrics-port beside --every.

    is_optional: whether small work runs without Spark.
    """
    from rillet.spark.pipelines.task_runner import CHOICES

    parser.add_argument("--json", action="store_true", help="print each result as one line of JSON")
    if {"every", "file"} & {action.dest for action in parser._actions}:
        parser.add_argument("--metrics-port", type=address_and_port, metavar="PORT",
                            help="serve /metrics and /healthz at 127.0.0.1:PORT, or at ADDRESS:PORT")  # fmt: skip
    group = parser.add_argument_group("Spark")
    if is_optional:
        group.add_argument("--spark", choices=CHOICES, default="auto",
                           help="auto: start Spark for large work only (default); always; never")  # fmt: skip
    group.add_argument("--master", default="local[*]", help="local[n], spark://host:port, ... (default: local[*])")
    group.add_argument("--conf", type=name_value, action="append", default=[], metavar="NAME=VALUE",
                       help="a Spark setting; may be repeated")  # fmt: skip

"""What the commands of all pipelines share: arguments that are checked together, a session, a bar, one line at the end.

A pipeline is a module of this package with a function over DataFrames, and for `rillet pipeline NAME`:

    add_arguments(parser)          plain argparse: required=, type=, choices= as usual
    complaints(options) -> list    optional: what is wrong with arguments taken together; one that did not read is None
    run(options) -> int            the work; prints its one line, returns the exit status

argparse stops at the first argument that it does not like. `Parser` goes on: what a `type` refuses, what is missing and
what nobody knows is collected, `complaints` adds its own, and all of it is one message.

The bar is rich's where rich is installed and somebody is looking; else a plain line every few seconds, so that a log
says how far a long run was. Nothing is shown of a run that ends at once.
"""

from __future__ import annotations

import argparse
import logging
import os
import re
import signal
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, NoReturn, TextIO

from rillet.errors import RilletError
from rillet.spark.errors import reason
from rillet.spark.options import OptionError, parse

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DONE, FAILED, WRONG = 0, 1, 2
_EVERY = 5.0  # seconds between plain lines
_AFTER = 1.0  # seconds until a bar is shown

Progress = Callable[[int, int | None], None]
"""Called with what is done and what there is in all (None: nobody knows), in the unit of the bar."""


class PipelineError(RilletError):
    """A pipeline cannot do what was asked; the text is one sentence."""


def silent(done: int, total: int | None) -> None:
    """Show no progress."""


# ---- arguments ---------------------------------------------------------------------------------------------------


class _Missing:
    """Stands for the value that an argument has no word for."""


class PipelineParser(argparse.ArgumentParser):
    """An argument parser that finds everything that is wrong before it says so."""

    def error(self, message: str) -> NoReturn:
        """Raise OptionError in place of leaving the process."""
        raise OptionError(message)

    def read(self, given: Sequence[str], module: ModuleType) -> argparse.Namespace:
        """Return the options of a pipeline's module; OptionError names all that is wrong with them."""
        if {"-h", "--help"} & set(given):
            return self.parse_args(given)
        wrong: list[str] = []
        needed: list[argparse.Action] = []
        for action in self._actions:
            if action.required:
                needed.append(action)
                action.required = False
                if not action.option_strings:
                    action.nargs = "?" if action.nargs is None else "*"
            if action.option_strings and action.nargs is None and not isinstance(action, argparse._VersionAction):
                action.nargs, action.const = "?", _Missing
            if action.nargs != 0:
                action.type = _collecting(action, wrong)
                action.choices = None
        options, unknown = self.parse_known_args(given)
        for action in self._actions:
            value = getattr(options, action.dest, None)
            if value is _Missing or (isinstance(value, list) and _Missing in value):
                wrong.append(f"{_name(action)} needs a value")
                setattr(options, action.dest, None)
            elif action in needed and value in (None, []) and not _mentioned(wrong, action):
                wrong.append(f"{_name(action)} is missing: {action.help}")
        wrong += [f"unknown argument {word}" for word in unknown]
        wrong += getattr(module, "complaints", lambda _: [])(options)
        if wrong:
            raise OptionError("; ".join(wrong))
        return options


def _name(action: argparse.Action) -> str:
    return action.option_strings[-1] if action.option_strings else str(action.metavar or action.dest)


def _mentioned(wrong: list[str], action: argparse.Action) -> bool:
    return any(text.startswith(f"{_name(action)} ") for text in wrong)


def _collecting(action: argparse.Action, wrong: list[str]) -> Callable[[str], Any]:
    """Return what reads an argument's text as its type does, and notes the complaint where that refuses."""
    reader: Callable[[str], Any] = action.type if callable(action.type) else str
    choices = action.choices

    def read(text: str) -> Any:
        try:
            value = reader(text)
            if choices is not None and value not in choices:
                raise ValueError(f"none of {', '.join(map(str, choices))}")
        except (ValueError, TypeError, argparse.ArgumentTypeError) as error:
            wrong.append(f"{_name(action)} is {text!r}: {error}")
            return None
        return value

    return read


def whole_number(least: int) -> Callable[[str], int]:
    """Return what reads a whole number from `least` up."""

    def read(text: str) -> int:
        if not text.isascii() or not text.isdigit() or int(text) < least:
            raise ValueError(f"not a whole number from {least} up")
        return int(text)

    return read


_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*(ms|s|m|h|d)?")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, None: 1.0}


def seconds(text: str) -> float:
    """Return seconds, of a number or a number with a unit: 500ms, 30s, 15m, 1h, 7d."""
    found = _DURATION.fullmatch(text.strip())
    if found is None:
        raise ValueError("not a time in seconds, or with a unit (500ms, 30s, 15m, 1h, 7d)")
    return float(found[1]) * _SECONDS[found[2]]


def size(text: str) -> int:
    """Return bytes, of a number or a number with a unit: 64k, 128m, 1g."""
    found = re.fullmatch(r"([0-9]+)([kmg]?)b?", text.strip().lower())
    if found is None or not int(found[1]):
        raise ValueError("not a size in bytes, or with a unit (64k, 128m, 1g)")
    return int(found[1]) << {"": 0, "k": 10, "m": 20, "g": 30}[found[2]]


def factor(text: str) -> float:
    """Return a number above 0, such as 0.5 or 10."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1e9:
        raise ValueError("not a number above 0")
    return value


def setting(text: str) -> tuple[str, str]:
    """Return the halves of NAME=VALUE."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise ValueError("not NAME=VALUE")
    return name, value


_WHERE = (
    ("--url", "url", "redis://[user:password@]host[:port][/db], rediss://, unix://, redis+cluster://"),
    ("--path", "path", "the directory of an embedded store, in place of a url"),
)
_WHICH = (
    ("--stream", "stream", "the stream's key"),
    ("--streams", "streams", "several keys, with commas between them"),
    ("--stream-pattern", "streamPattern", "a glob of keys, looked up again for every batch"),
)


def source_arguments(parser: argparse.ArgumentParser, streams: bool = True) -> None:
    """Declare where to read from; `source_options` collects what was said."""
    group = parser.add_argument_group("source")
    for flag, _, line in _WHERE + (_WHICH if streams else ()):
        group.add_argument(flag, help=line)
    group.add_argument("--option", type=setting, action="append", default=[], metavar="NAME=VALUE",
                       help="any other option of the source, again for each (docs/spark.md)")  # fmt: skip


def source_options(options: argparse.Namespace) -> dict[str, str]:
    """Return the source's options of the arguments that `source_arguments` declared."""
    found = dict(one for one in options.option or () if one is not None)
    for flag, name, _ in (*_WHERE, *_WHICH):
        value = getattr(options, flag[2:].replace("-", "_"), None)
        if value is not None:
            found[name] = value
    return found


def source_complaints(options: argparse.Namespace, **more: str) -> list[str]:
    """Return what the source says to its options."""
    try:
        parse({**source_options(options), **more}).require_stream()
    except OptionError as error:
        return [flagged(str(error).removeprefix("rillet: "))]
    return []


def flagged(complaint: str) -> str:
    """Return a complaint of the source's with the names that its options have on a command line."""
    parts = complaint.replace("one of url (", "one of --url (").replace(" and path (", " and --path (").split("; ")
    for place, part in enumerate(parts):
        before, colon, said = part.rpartition("of the source: ")  # of migrate, which has two sides
        word, _, rest = said.partition(" ")
        for flag, name, line in (*_WHERE, *_WHICH):
            if word == name:
                parts[place] = f"{before}{colon}{flag} {rest}"
                if name == "stream" and rest.startswith("is missing"):
                    parts[place] = f"{before}{colon}{flag} is missing: {line} (or --streams, --stream-pattern)"
    return "; ".join(parts)


def spark_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare which Spark does the work."""
    group = parser.add_argument_group("Spark")
    group.add_argument("--master", default="local[*]", help="local[n], spark://host:port, ... (default: local[*])")
    group.add_argument("--conf", type=setting, action="append", default=[], metavar="NAME=VALUE",
                       help="a setting of Spark's, again for each")  # fmt: skip


def open_session(options: argparse.Namespace, name: str) -> SparkSession:
    """Return the Spark session of a command; ConnectorError before it is made where the source cannot be reached."""
    from rillet.spark.sessions import session

    _reach(source_options(options) if "url" in options else {})
    conf = dict(options.conf)
    local = options.master.startswith("local")
    if local:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")  # else it warns of every machine that has another
    with _held(), _quiet(options, conf):
        spark = session(options.master, f"rillet pipeline {name}", **conf)
        if not _has_own_log(options):
            # What fails is told in a sentence of ours; of executors elsewhere only the log knows more.
            spark.sparkContext.setLogLevel("OFF" if local else "ERROR")
    return spark


def _reach(given: Mapping[str, str]) -> None:
    """Connect to where a source is: a JVM takes seconds to start, and says the same in more words."""
    from rillet.client.servers import Servers
    from rillet.spark.server_address import require_store

    if not given:
        return
    options = parse({"streamPattern": "*", **given} if not _named(given) else given)
    require_store(options)
    if options.url is not None:
        with Servers(options) as servers:
            for _ in servers.masters():
                return


def _named(given: Mapping[str, str]) -> bool:
    return any(name.lower() in ("stream", "streams", "streampattern") for name in given)


@contextmanager
def _held() -> Iterator[None]:
    """Have ^C wait until the JVM is up: one that is left behind half started goes on, and complains later."""
    ignored = signal.getsignal(signal.SIGINT) == signal.SIG_IGN
    if ignored or threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []

    def note(number: int, frame: object) -> None:
        came.append(number)

    before = signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGINT) is note:  # else Spark has put its own there
            signal.signal(signal.SIGINT, before)
    if came:
        raise KeyboardInterrupt


JAVA_OPTIONS = "spark.driver.extraJavaOptions"


def _has_own_log(options: argparse.Namespace) -> bool:
    """Whether somebody may have configured what Spark logs."""
    return bool({"SPARK_CONF_DIR", "SPARK_HOME"} & os.environ.keys()) or JAVA_OPTIONS in dict(options.conf)


@contextmanager
def _quiet(options: argparse.Namespace, conf: dict[str, str]) -> Iterator[None]:
    """Have a JVM that is started inside log errors only, from its first line on."""
    warnings.filterwarnings("ignore", category=FutureWarning, module="pyspark")
    logging.getLogger("py4j").setLevel(logging.CRITICAL)  # what it says of a ^C
    if _has_own_log(options):
        yield
        return
    with tempfile.NamedTemporaryFile("w", prefix="rillet-log4j2-", suffix=".properties") as file:
        file.write(_LOG)
        file.flush()
        conf[JAVA_OPTIONS] = f"-Dlog4j2.configurationFile={file.name}"
        yield


_LOG = """\
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = error
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{yy/MM/dd HH:mm:ss} %p %c{1}: %m%n
"""


# ---- telling ------------------------------------------------------------------------------------------------------


class PipelineProgressBar:
    """How far a pipeline is: called with (done, in all); a context manager that clears up behind itself."""

    def __init__(self, title: str, unit: str = "entries", stream: TextIO | None = None) -> None:
        self.title, self.unit = title, unit
        self.stream = sys.stderr if stream is None else stream
        self._began = time.monotonic()
        self._next = self._began + _EVERY
        self._rich: Any = None
        self._task: Any = None
        self._columns = _rich_columns() if self.stream.isatty() else None

    def __enter__(self) -> PipelineProgressBar:
        return self

    def __exit__(self, *_: object) -> None:
        if self._rich is not None:
            self._rich.stop()

    def __call__(self, done: int, total: int | None = None) -> None:
        """Show how much is done, of how much where that is known."""
        now = time.monotonic()
        if self._columns is not None:
            if now - self._began >= _AFTER:
                self._draw(done, total)
        elif now >= self._next:
            self._next = now + _EVERY
            of = "" if total is None else f" of {total:,}"
            rate = done / (now - self._began)
            self.stream.write(f"{self.title}: {done:,}{of} {self.unit}, {rate:,.0f} a second\n")
            self.stream.flush()

    def _draw(self, done: int, total: int | None) -> None:
        if self._rich is None:
            from rich.console import Console
            from rich.progress import Progress as RichProgress

            console = Console(file=self.stream)
            self._rich = RichProgress(*(self._columns or ()), console=console, transient=True)
            self._rich.start()
            self._task = self._rich.add_task(self.title, total=total, unit=self.unit)
        self._rich.update(self._task, completed=done, total=total)


def _rich_columns() -> list[Any] | None:
    """Return the parts of rich's bar; None where rich is not installed."""
    try:
        from rich import progress as parts
    except ImportError:
        return None
    return [
        parts.TextColumn("{task.description}"), parts.BarColumn(), parts.TaskProgressColumn(),
        parts.TextColumn("{task.completed:,} {task.fields[unit]}"), parts.TimeElapsedColumn(),
    ]  # fmt: skip


def told(error: BaseException) -> str:
    """Return the one sentence of an error, which may be buried in a traceback of Spark's, without `rillet: `."""
    return reason(error).removeprefix("rillet: ") or type(error).__name__


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """Return the number with its noun: 1 file, 2,000 files."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def folder(text: str) -> Path:
    """Return a folder's path; a file is refused, and so is what would not be where it seems to be (s3a://...)."""
    if "://" in text:
        raise ValueError("it is no folder of a file system that all executors see")
    path = Path(text)
    if path.exists() and not path.is_dir():
        raise ValueError("it is a file, not a folder")
    return path


def in_the_way(path: str | Path) -> list[str]:
    """Return why a folder cannot be written anew: it holds something else than a Parquet table."""
    for one in Path(path).rglob("*"):
        if one.is_file() and one.suffix not in (".parquet", ".crc") and not one.name.startswith("_"):
            return [
                f"{path} would be written anew, and holds {one.relative_to(path)}, which is no part of such a table"
            ]
    return []

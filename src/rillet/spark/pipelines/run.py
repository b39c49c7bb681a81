"""run: runs the jobs of a TOML file in one process, each in a thread, with one Spark session for all.

    rillet pipeline run jobs.toml

    [orders]                            # the job's name
    pipeline = "archive"
    to = "orders.archive"               # an argument without a flag has the name `to`, `archive` or `places`
    url = "redis://localhost"
    stream = "orders"
    every = "30s"                       # --every 30s
    trim = true                         # a flag without a value
    option = { pageEntries = 500 }      # --option pageEntries=500

A table becomes a command line, and the parser of its pipeline reads it: the command line defines names, types and
errors. A job with `every` that fails runs again after this time; the other jobs are not affected.
"""

from __future__ import annotations

import argparse
import re
import signal
import sys
import threading
import traceback
from collections.abc import Iterator, Mapping
from contextlib import nullcontext, suppress
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from rillet.spark.options import OptionError
from rillet.spark.pipelines import cli_arguments, cli_common
from rillet.spark.pipelines.cli_arguments import PipelineParser
from rillet.spark.pipelines.cli_common import PipelineError
from rillet.spark.pipelines.jobs import Job, served

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    Planned = tuple[Job, ModuleType, argparse.Namespace]


# ---- the file -----------------------------------------------------------------------------------------------------


class TableParser(PipelineParser):
    """Reads the arguments of a pipeline from a table of TOML; errors name the table's keys."""

    def name_of(self, action: argparse.Action) -> str:
        """Return the key of an argument: its flag without the dashes."""
        return action.option_strings[-1].removeprefix("--") if action.option_strings else action.dest

    def read_table(self, table: Mapping[str, Any], module: ModuleType) -> argparse.Namespace:
        """Return the arguments; raise one OptionError that lists every error."""
        words, errors = self._words(table)
        try:
            options = self.read(words, module)
        except OptionError as error:
            errors += [re.sub(r"--(?=[a-z])", "", str(error))]
        if errors:
            raise OptionError("; ".join(errors))
        return options

    def _words(self, table: Mapping[str, Any]) -> tuple[list[str], list[str]]:
        """Return the command line of a table, and the errors in it."""
        known = {self.name_of(action): action for action in self._actions if action.dest != "help"}
        flags: list[str] = []
        places: list[str] = []
        errors = []
        for key, value in table.items():
            action = known.get(key)
            if action is None:
                close = get_close_matches(key, known, 1)
                errors.append(f"unknown option {key}" + (f" (did you mean {close[0]}?)" if close else ""))
                continue
            texts = _texts(value, action)
            if texts is None:
                errors.append(f"{key} is {value!r}: expected {_kind(action)}")
            elif action.nargs == 0:
                flags += [action.option_strings[-1]] * value
            elif action.option_strings:
                flags += [f"{action.option_strings[-1]}={text}" for text in texts]
            else:
                places += texts
        return [*flags, "--", *places] if places else flags, errors


def _texts(value: Any, action: argparse.Action) -> list[str] | None:
    """Return a value of TOML as words of the command line; None if the argument does not take its type."""
    if action.nargs == 0:
        return [] if isinstance(value, bool) else None
    if action.type is cli_arguments.name_value:
        pairs = value.items() if isinstance(value, dict) else ()
        value = [f"{name}={str(one).lower() if isinstance(one, bool) else one}" for name, one in pairs] or None
    several = action.nargs == "+" or isinstance(action, argparse._AppendAction)
    values = value if isinstance(value, list) and several else [value]
    if all(isinstance(one, (str, int, float)) and not isinstance(one, bool) for one in values):
        return [str(one) for one in values]
    return None


def _kind(action: argparse.Action) -> str:
    if action.nargs == 0:
        return "true or false"
    return "a table of names and values" if action.type is cli_arguments.name_value else "a string or a number"


def _read(path: Path) -> dict[str, Any]:
    """Return the tables of a file; raise ValueError if it is not readable as TOML."""
    try:
        import tomllib
    except ImportError:
        raise ValueError("`rillet pipeline run` needs Python 3.11 or newer") from None
    try:
        tables = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise ValueError(error.strerror) from None
    if not tables:
        raise ValueError("the file has no tables: each is a job")
    return tables


def _module(table: Mapping[str, Any]) -> ModuleType:
    """Return the module of a job's pipeline."""
    name = table.get("pipeline")
    if name is None:
        raise OptionError("pipeline is missing: archive, changes, ...")
    if isinstance(name, str) and re.fullmatch("[a-z]+(-[a-z]+)*", name) and name != "run":
        with suppress(ImportError):
            module = import_module(f"{__package__}.{name.replace('-', '_')}")
            if hasattr(module, "add_arguments"):
                return module
    raise OptionError(f"pipeline is {name!r}: `rillet pipeline` lists the pipelines")


def planned(tables: Mapping[str, Any], errors: list[str]) -> Iterator[Planned]:
    """Yield the jobs of a file; append what is wrong to `errors`."""
    for name, table in tables.items():
        try:
            if not isinstance(table, dict):
                raise OptionError("expected a table, [name]: each is a job")
            module = _module(table)
            parser = TableParser(prog=name, add_help=False, allow_abbrev=False)
            module.add_arguments(parser)
            options = parser.read_table({key: value for key, value in table.items() if key != "pipeline"}, module)
            yield Job(name, getattr(options, "every", None)), module, options
        except OptionError as error:
            errors.append(f"[{name}]: {str(error).removeprefix('rillet: ')}")


# ---- the jobs -----------------------------------------------------------------------------------------------------


class SharedSession:
    """The Spark session of all jobs; it starts when the first one needs it."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._lock = threading.Lock()
        self._spark: SparkSession | None = None

    def __call__(self) -> SparkSession:
        """Return the session."""
        with self._lock:
            if self._spark is None:
                self._spark = cli_common.open_session(self._options, "run")
            return self._spark

    def stop(self) -> None:
        """Stop the session, if it has started."""
        if self._spark is not None:
            self._spark.stop()


def _keep(job: Job, module: ModuleType, options: argparse.Namespace, place: str) -> None:
    """Run a job to its end; after a failure again, if it has an interval."""
    while True:
        try:
            with job if job.every is None else nullcontext():  # else the pipeline notes the end of each round
                if status := module.run(options):
                    raise PipelineError(f"the pipeline ended with status {status}")
            break
        except Exception as error:
            if cli_common.status_of(error) is None:
                traceback.print_exc()
            job.fail(cli_common.error_line(error))
            print(f"rillet: {place} [{job.name}]: {job.error}", file=sys.stderr)
        if job.every is None or job.stop.wait(job.every):
            break
    job.ended = True


# ---- the command --------------------------------------------------------------------------------------------------

SMALL_WITHOUT_SPARK = True
EPILOG = """example, a file with two jobs:
  [orders]
  pipeline = "archive"
  to = "orders.archive"
  url = "redis://localhost"
  stream = "orders"
  every = "30s"

  [lag]
  pipeline = "lag"
  url = "redis://localhost"
  out = "lag"
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", type=Path, metavar="FILE", help="TOML: each table is a job, named by its header")


def argument_errors(options: argparse.Namespace) -> list[str]:
    if options.file is None:
        return []
    errors: list[str] = []
    try:
        options.jobs = list(planned(_read(options.file), errors))
    except ValueError as error:
        errors = [str(error)]
    return [f"{options.file}: {error}" for error in errors]


def run(options: argparse.Namespace) -> int:
    """Run the jobs until all have ended; return 1 if the last round of one of them failed."""
    session = SharedSession(options)
    jobs: list[Job] = []
    threads = []
    for job, module, arguments in options.jobs:
        for name in ("json", "spark", "master", "conf"):
            setattr(arguments, name, getattr(options, name))
        job.session, arguments.job = session, job
        jobs.append(job)
        threads.append(threading.Thread(target=_keep, args=(job, module, arguments, options.file), daemon=True))
    interrupts: list[int] = []

    def stop(number: int, frame: object) -> None:
        if interrupts:  # a second ^C does not wait for the batches
            raise KeyboardInterrupt
        interrupts.extend([number] * (number == signal.SIGINT))
        for job in jobs:
            job.stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    with served(jobs, options.metrics_port):
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    session.stop()
    if interrupts:
        raise KeyboardInterrupt
    return cli_common.FAILED if any(job.error for job in jobs) else cli_common.DONE

"""The parts that all pipeline commands share: the Spark session, error lines, and the progress callback.

A pipeline is a module of this package with a function on DataFrames. For `rillet pipeline NAME` the module also has

    add_arguments(parser)              declares arguments as for argparse: required=, type=, choices=
    argument_errors(options) -> list   returns the errors in combinations of arguments; invalid arguments are None
    run(options) -> int                runs the pipeline, prints one line, returns the exit status
    EPILOG                             examples for --help; optional
    SMALL_WITHOUT_SPARK = True         small work runs in this process (task_runner.py), so there is an option --spark
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import tempfile
import threading
import warnings
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rillet.errors import RilletError
from rillet.spark.errors import reason
from rillet.spark.java import JavaMissing
from rillet.spark.options import OptionError
from rillet.spark.pipelines.cli_arguments import source_options
from rillet.spark.pipelines.group_info import checked_options
from rillet.spark.pipelines.jobs import Job
from rillet.spark.pipelines.jvm_errors import without_broken_pipes
from rillet.spark.pipelines.tables import Progress, silent
from rillet.spark.pipelines.task_runner import ALWAYS, TaskRunner
from rillet.store.display.progress import ProgressBar

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DONE, FAILED, WRONG = 0, 1, 2

class PipelineError(RilletError):
    """A pipeline cannot continue; the message is one sentence."""


# ---- the session --------------------------------------------------------------------------------------------------


def open_session(options: argparse.Namespace, name: str) -> SparkSession:
    """Return a command's Spark session."""
    from rillet.spark.sessions import session

    conf = dict(options.conf)
    local = options.master.startswith("local")
    if local:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")  # else Spark warns that the host has several addresses
    with _deferred_interrupt(), _quiet(options, conf):
        spark = session(options.master, f"rillet pipeline {name}", **conf)
        if not _has_own_log(options):
            # The command prints a local failure as one line. Errors of remote executors appear only in Spark's log.
            spark.sparkContext.setLogLevel("OFF" if local else "ERROR")
    return spark


@contextmanager
def runner_of(options: argparse.Namespace, name: str, source: Mapping[str, str] | None = None) -> Iterator[TaskRunner]:
    """Yield the task runner of a job, which opens a session when it is needed; stop a session of its own.

    source: the options to connect with, by default those of the arguments. Raise ConnectorError if it is unreachable.
    """
    if source is None:
        source = source_options(options) if "url" in options else {}
    _check_connection(source)
    shared = options.job.session
    runner = TaskRunner(getattr(options, "spark", ALWAYS), shared or (lambda: open_session(options, name)))
    try:
        yield runner
    finally:
        if shared is None:
            runner.stop()


@contextmanager
def session_of(options: argparse.Namespace, name: str) -> Iterator[SparkSession]:
    """Yield the Spark session of a job whose pipeline always needs one; as `runner_of`."""
    with runner_of(options, name) as runner:
        yield runner.spark


def _check_connection(given: Mapping[str, str]) -> None:
    """Connect to the source before Spark starts, so that a connection error is one line after milliseconds."""
    from rillet.client.servers import Servers

    if not given:
        return
    options = checked_options(given)
    if options.url is not None:
        with Servers(options) as servers:
            next(servers.masters())


@contextmanager
def _deferred_interrupt() -> Iterator[None]:
    """Defer Ctrl-C until the JVM has started: a JVM that is interrupted earlier keeps running and prints errors."""
    ignored = signal.getsignal(signal.SIGINT) == signal.SIG_IGN
    if ignored or threading.current_thread() is not threading.main_thread():
        yield
        return
    received: list[int] = []

    def note(number: int, frame: object) -> None:
        received.append(number)

    before = signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGINT) is note:  # else Spark has installed its own Ctrl-C handler
            signal.signal(signal.SIGINT, before)
    if received:
        raise KeyboardInterrupt


def stop_on_sigterm(options: argparse.Namespace) -> threading.Event:
    """Return the event that ends a pipeline after its current batch. SIGTERM sets it."""
    stop: threading.Event = options.job.stop
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, lambda *_: stop.set())
    return stop


JAVA_OPTIONS = "spark.driver.extraJavaOptions"


def _has_own_log(options: argparse.Namespace) -> bool:
    """Return whether the user may have configured Spark's logging."""
    return bool({"SPARK_CONF_DIR", "SPARK_HOME"} & os.environ.keys()) or JAVA_OPTIONS in dict(options.conf)


@contextmanager
def _quiet(options: argparse.Namespace, conf: dict[str, str]) -> Iterator[None]:
    """Limit the log of a JVM that starts inside this context manager to errors, and its stderr to what matters."""
    warnings.filterwarnings("ignore", category=FutureWarning, module="pyspark")
    logging.getLogger("py4j").setLevel(logging.CRITICAL)  # py4j logs an error for every Ctrl-C
    if _has_own_log(options):
        yield
        return
    with tempfile.NamedTemporaryFile("w", prefix="rillet-log4j2-", suffix=".properties") as file:
        file.write(_LOG)
        file.flush()
        conf[JAVA_OPTIONS] = f"-Dlog4j2.configurationFile={file.name}"
        with without_broken_pipes():
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


@contextmanager
def progress_bar(options: argparse.Namespace, title: str, unit: str = "entries") -> Iterator[Progress]:
    """Yield a job's progress display: a bar on a terminal, otherwise a log line every few seconds.

    Several jobs of one process have no display, but metrics.
    """
    job: Job = options.job
    with ExitStack() as stack:
        bar = silent if job.session else stack.enter_context(ProgressBar(title, unit=unit, log=True))

        def show(done: int, total: int | None = None) -> None:
            job.progress(done, total if unit == "entries" else None)
            bar(done, total)

        yield show


# ---- messages -----------------------------------------------------------------------------------------------------


def status_of(error: BaseException) -> int | None:
    """Return the exit status after an error that a user can cause; None after a defect."""
    if isinstance(error, (OptionError, JavaMissing)):
        return WRONG
    expected = isinstance(error, (RilletError, OSError)) or type(error).__module__.startswith(("py4j", "pyspark"))
    return FAILED if expected else None


def error_line(error: BaseException) -> str:
    """Return an error's message as one line without the prefix `rillet: `, extracted from Spark's traceback if any."""
    return reason(error).removeprefix("rillet: ") or type(error).__name__


def foreign_files(path: str | Path) -> list[str]:
    """Return [error message] if a folder to overwrite holds files other than a Parquet table's; otherwise []."""
    for file in Path(path).rglob("*"):
        if file.is_file() and file.suffix not in (".parquet", ".crc") and not file.name.startswith("_"):
            return [f"{path} would be overwritten, but it holds {file.relative_to(path)}, which is not a Parquet file"]
    return []

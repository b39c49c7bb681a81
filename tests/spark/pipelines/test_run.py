"""`rillet pipeline run FILE`: jobs from a TOML file; their metrics and health, also of a single job."""

from __future__ import annotations

import signal
import subprocess
from argparse import SUPPRESS
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from rillet.cli import main
from rillet.cli.pipeline import PIPELINES
from rillet.spark.pipelines import jobs
from rillet.spark.pipelines.jobs import Job, served
from tests import waiting
from tests.forked import Forked
from tests.judge import Judge, free_port, redis_binary
from tests.spark.sink_server import SinkServer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Said = pytest.CaptureFixture[str]

pytest.importorskip("pyspark")
pytest.importorskip("tomllib")


@pytest.fixture(autouse=True)
def signals() -> Iterator[None]:
    """Restore the handlers that the command installs."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def file(tmp_path: Path) -> Callable[[str], str]:
    """Write a file of jobs, and return its path."""

    def write(text: str) -> str:
        (tmp_path / "jobs.toml").write_text(text)
        return str(tmp_path / "jobs.toml")

    return write


def fetch(port: int, path: str) -> tuple[int, str]:
    try:
        with urlopen(f"http://127.0.0.1:{port}{path}", timeout=60) as reply:
            return reply.status, reply.read().decode()
    except HTTPError as error:
        with error:
            return error.code, error.read().decode()


def values(port: int) -> dict[str, dict[str, float]]:
    """Return the metrics of each job."""
    from prometheus_client.parser import text_string_to_metric_families

    found: dict[str, dict[str, float]] = {}
    for family in text_string_to_metric_families(fetch(port, "/metrics")[1]):
        for sample in family.samples:
            found.setdefault(sample.labels["job"], {})[sample.name.removeprefix("rillet_pipeline_")] = sample.value
    return found


@contextmanager
def command(*words: str) -> Iterator[subprocess.Popen[str]]:
    """Run `rillet pipeline ...` as a process."""
    with Forked(["pipeline", *words]) as process:
        try:
            yield process
        finally:
            process.kill()


def test_all_errors_of_a_file_are_reported_before_a_job_runs(file: Callable[[str], str], capsys: Said) -> None:
    path = file("""
        [good]
        pipeline = "archive"
        to = "never.archive"
        url = "redis://127.0.0.1:1"
        stream = "s"

        [bad]
        pipeline = "archive"
        every = "soon"
        strea = "s"
        trim = "yes"
        option = "pageEntries=5"
        small-files = 1
        metrics-port = 9122

        [other]
        pipeline = "archives"
        [nameless]
        [recursive]
        pipeline = "run"
        file = "jobs.toml"
        [module]
        pipeline = "letters"
        [lag]
        pipeline = "lag"
        path = "x"
        for = "1h"
        chart = ["a", "b"]
    """)
    assert main(["pipeline", "run", path]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert "[good]" not in err
    for problem in (
        "[bad]: unknown option strea (did you mean stream?)", "trim is 'yes': expected true or false",
        "option is 'pageEntries=5': expected a table of names and values", "unknown option metrics-port",
        "every is 'soon': expected a time", "small-files is '1': expected", "to is missing",
        "[other]: pipeline is 'archives'", "[nameless]: pipeline is missing", "[recursive]: pipeline is 'run'",
        "[module]: pipeline is 'letters'", "[lag]: chart is ['a', 'b']: expected a string or a number",
        "for needs out, the folder for the samples",
    ):  # fmt: skip
        assert problem in err, err
    assert err.count(f"{path}: [bad]: ") == 1
    for text, problem in (("[a\nb", "at line 1"), ("", "has no tables"), ("every = 5", "[every]: expected a table")):
        assert main(["pipeline", "run", file(text)]) == 2
        assert problem in capsys.readouterr().err
    assert main(["pipeline", "run", path + ".none"]) == 2
    assert capsys.readouterr().err == f"rillet: {path}.none: No such file or directory\n"


def test_the_file_of_the_guide_is_right() -> None:
    import tomllib

    from rillet.spark.pipelines.run import planned

    page = (Path(__file__).parents[3] / "docs" / "pipelines.md").read_text()
    errors: list[str] = []
    found = list(planned(tomllib.loads(page.split("```toml\n")[1].split("```")[0]), errors))
    assert not errors
    assert [(job.name, job.every) for job, _, _ in found] == [("orders", 30.0), ("changes", 60.0)]


def test_a_table_has_the_arguments_of_the_command_line() -> None:
    """Each flag is a key; the parser of the command line reads the values."""
    from rillet.spark.pipelines.run import TableParser

    for name in set(PIPELINES) - {"run"}:
        module = import_module(f"rillet.spark.pipelines.{name.replace('-', '_')}")
        parser = TableParser(prog="x", add_help=False)
        module.add_arguments(parser)
        keys = [parser.name_of(action) for action in parser._actions if action.help is not SUPPRESS]
        assert len(keys) == len(set(keys)) == len(parser._actions)
        assert not any(key.startswith("-") for key in keys)
    module = import_module("rillet.spark.pipelines.archive")
    parser = TableParser(prog="x", add_help=False)
    module.add_arguments(parser)
    table = {"to": "-a b", "url": "redis://h", "stream": "-s", "every": 30, "trim": True, "compact": False,
             "option": {"pageEntries": 500, "failOnDataLoss": False}, "file-size": "64m"}  # fmt: skip
    found = parser.read_table(table, module)
    assert (str(found.to), found.stream, found.every, found.trim, found.compact) == ("-a b", "-s", 30.0, True, False)
    assert found.option == [("pageEntries", "500"), ("failOnDataLoss", "false")]
    assert found.file_size == 64 << 20


@pytest.mark.slow
def test_a_failed_job_stops_no_other_job_and_shows_in_health_metrics_and_status(
    judge: Judge, url: str, add: Callable[..., None], file: Callable[[str], str], tmp_path: Path
) -> None:
    import pyarrow.dataset

    late = SinkServer(tmp_path / "late", redis_binary())
    late.kill()
    away, port = late.port, free_port()
    jobs = "".join(f"""
        [{name}]
        pipeline = "archive"
        to = "{tmp_path / name}"
        url = "{place}"
        stream = "events"
        every = "50ms"
    """ for name, place in (("orders", url), ("other", f"redis://127.0.0.1:{away}")))  # fmt: skip
    add(range(100))
    path = file(jobs)
    with command("run", path, "--spark", "never", "--metrics-port", str(port)) as process:
        assert process.stderr is not None
        assert process.stderr.readline().startswith(f"rillet: {path} [other]: no server answers at 127.0.0.1:{away}")
        waiting.until(lambda: values(port)["orders"].get("rows_total") == 100, "the archive")
        add(range(100, 150))
        waiting.until(lambda: values(port)["orders"]["rows_total"] == 150, "the next round")
        found = values(port)
        orders, other = found["orders"], found["other"]
        assert orders["last_success_timestamp_seconds"] > 1.7e9
        assert orders["last_duration_seconds"] > 0
        assert (orders["healthy"], orders["failures_total"], orders["lag_entries"]) == (1, 0, 0)
        assert (other["healthy"], other["rows_total"]) == (0, 0)
        assert other["failures_total"] >= 1
        assert "last_success_timestamp_seconds" not in other
        status, text = fetch(port, "/healthz")
        assert status == 503
        assert text.startswith("other: no server answers at")
        assert "orders" not in text
        assert fetch(port, "/")[0] == 404
        late.start()
        try:
            late.run("XADD", "events", "*", "n", 1)
            waiting.until(lambda: fetch(port, "/healthz") == (200, "ok\n"), "health")  # the job was tried again
            process.send_signal(signal.SIGTERM)
            out, _ = process.communicate(timeout=60)
        finally:
            late.kill()
        assert process.returncode == 0
        assert f"{tmp_path / 'orders'}: 150 entries archived" in out
    with command("run", path, "--spark", "never") as process:
        assert process.stderr is not None
        process.stderr.readline()
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
        assert process.returncode == 1
    rows = pyarrow.dataset.dataset(tmp_path / "orders", partitioning="hive").to_table(columns=["id"])
    assert len(set(rows["id"].to_pylist())) == 150


@pytest.mark.slow
def test_a_single_job_has_metrics_too(
    judge: Judge, url: str, add: Callable[..., None], tmp_path: Path, capsys: Said
) -> None:
    add(range(10))
    port = free_port()
    source = ("--url", url, "--stream", "events", "--spark", "never")
    with command("archive", str(tmp_path / "a"), *source, "--every", "50ms", "--metrics-port", str(port)) as process:
        waiting.until(lambda: process.poll() is None and _rows(port) == 10, "the archive")
        assert fetch(port, "/healthz") == (200, "ok\n")
        assert main(["pipeline", "archive", str(tmp_path / "b"), *source, "--metrics-port", str(port)]) == 1
        assert capsys.readouterr().err == f"rillet: --metrics-port: 127.0.0.1:{port}: Address already in use\n"
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
        assert process.returncode == 0
    assert main(["pipeline", "archive", str(tmp_path / "b"), *source, "--metrics-port", "http"]) == 2
    assert "--metrics-port is 'http': expected a port" in capsys.readouterr().err


def _rows(port: int) -> float | None:
    try:
        return values(port).get("archive", {}).get("rows_total")
    except OSError:
        return None


def test_a_job_without_progress_for_three_intervals_is_overdue(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(jobs, "monotonic", lambda: now[0])
    port = free_port()
    job, quick, once = Job("orders", every=100.0), Job("quick", every=1.0), Job("once")
    with served([job, quick, once], ("127.0.0.1", port)):
        now[0] = 60.0
        assert fetch(port, "/healthz") == (200, "ok\n")
        now[0] = 61.0  # one interval is less than a minute
        assert fetch(port, "/healthz") == (503, "quick: overdue: no progress for 61 s\n")
        with quick:
            now[0] = 62.0
        assert fetch(port, "/healthz")[0] == 200
        quick.ended = True
        now[0] = 300.0
        job.progress(5, 10)  # a long round that writes
        now[0] = 600.0
        assert fetch(port, "/healthz")[0] == 200
        now[0] = 601.0
        assert fetch(port, "/healthz") == (503, "orders: overdue: no progress for 301 s\n")
        assert values(port)["orders"]["lag_entries"] == 5
        assert values(port)["quick"]["last_duration_seconds"] == 1.0
        job.fail("a reason")
        job.progress(2, 2)
        assert fetch(port, "/healthz") == (503, "orders: a reason\n")
        assert values(port)["orders"]["rows_total"] == 7
        with job:
            pass
        assert fetch(port, "/healthz")[0] == 200


@pytest.mark.spark
@pytest.mark.slow
def test_jobs_share_a_spark_session(
    spark: SparkSession, judge: Judge, url: str, add: Callable[..., None], file: Callable[[str], str], tmp_path: Path,
    capsys: Said, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    opened: list[Any] = []

    def session(options: object, name: str) -> SparkSession:
        opened.append(name)
        return spark

    monkeypatch.setattr("rillet.spark.pipelines.cli_common.open_session", session)
    monkeypatch.setattr(type(spark), "stop", lambda self: opened.append("stop"))
    add(range(200))
    path = file(f"""
        [first]
        pipeline = "archive"
        to = "{tmp_path / "first"}"
        url = "{url}"
        stream = "events"
        [second]
        pipeline = "archive"
        to = "{tmp_path / "second"}"
        url = "{url}"
        stream-pattern = "event*"
        schema = "n bigint, amount double"
        [copy]
        pipeline = "replay"
        to = "copy"
        url = "{url}"
        stream = "events"
        [broken]
        pipeline = "history"
        archive = "{tmp_path / "none"}"
        url = "{url}"
        stream = "events"
    """)
    assert main(["pipeline", "run", path, "--spark", "always"]) == 1
    assert opened == ["run", "stop"]
    said = capsys.readouterr()
    assert said.err.startswith(f"rillet: {path} [broken]: there is no archive at {tmp_path / 'none'}")
    assert said.err.count("\n") == 1
    for name in ("first", "second"):
        assert f"{tmp_path / name}: 200 entries archived" in said.out
        assert spark.read.parquet(str(tmp_path / name)).select("id").distinct().count() == 200
    assert "copy: 200 entries replayed" in said.out

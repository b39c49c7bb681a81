"""`rillet pipeline` reports all errors at once, before Spark starts; a run prints one line."""

from __future__ import annotations

import importlib
import io
import json
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from rillet.cli import main
from rillet.cli.pipeline import PIPELINES
from rillet.spark.pipelines.cli_common import error_line
from rillet.store.display.progress import ProgressBar
from rillet.units import counted
from tests.judge import Judge
from tests.spark.conftest import entry_id

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Said = pytest.CaptureFixture[str]


def test_the_command_without_a_name_lists_the_pipelines(capsys: Said) -> None:
    assert main(["pipeline", "--help"]) == 0
    shown = capsys.readouterr().out
    assert main(["pipeline"]) == 2
    assert capsys.readouterr().out == shown
    assert all(f"  {name} " in shown for name in PIPELINES)
    assert {"archive", "replay", "migrate"} <= set(PIPELINES)
    assert main(["pipeline", "archives"]) == 2
    assert capsys.readouterr().err.startswith("rillet: unknown pipeline 'archives'\n")


@pytest.mark.parametrize("name", list(PIPELINES))
def test_each_pipeline_has_help_and_reports_all_wrong_arguments(name: str, capsys: Said) -> None:
    pytest.importorskip("pyspark")
    with pytest.raises(SystemExit) as ended:
        main(["pipeline", name, "--help"])
    assert ended.value.code == 0
    shown = capsys.readouterr().out
    assert f"usage: rillet pipeline {name}" in shown
    assert "--master" in shown
    assert main(["pipeline", name, "--such", "--conf", "x"]) == 2
    err = capsys.readouterr().err
    assert err.startswith("rillet: ")
    assert err.count("\n") == 1
    assert "unknown argument --such" in err
    assert "--conf is 'x': expected NAME=VALUE" in err


def test_wrong_arguments_and_wrong_combinations_are_reported(tmp_path: Path, capsys: Said) -> None:
    pytest.importorskip("pyspark")

    def wrong(*words: str) -> str:
        assert main(["pipeline", *words]) == 2
        return capsys.readouterr().err

    err = wrong(
        "archive", "--url", "redis://x", "--path", "y", "--every", "soon", "--small-files", "1", "--file-size", "big",
        "--compression", "best", "--option", "minPartitons=2", "--trim", "--schema",
    )  # fmt: skip
    for what in (
        "--every is 'soon': expected a time", "--small-files is '1': expected a whole number of at least 2",
        "--file-size is 'big'",
        "--compression is 'best': expected one of zstd,", "unknown option minpartitons (did you mean minPartitions?)",
        "give one of --url (redis://host:port/db) and --path (", "--stream is missing: the stream's key (or --streams,",
        "--schema needs a value",
    ):  # fmt: skip
        assert what in err
    err = wrong("archive", str(tmp_path), "--compact", "--trim", "--every", "5s")
    assert (
        err == "rillet: --compact only merges: it cannot be combined with --trim; "
        "--compact only merges: it cannot be combined with --every\n"
    )
    source = ("--url", "redis://x", "--stream", "s")
    assert "use the format delta there" in wrong("archive", "s3a://bucket/a", "--format", "rillet", *source)
    err = wrong("migrate", "--url", "http://x", "--prefix", "a:")
    assert "of the source: --url is neither redis://" in err
    assert "of the target: give one of --to-url (redis://host:port/db) and --to-path (" in err
    assert wrong("snapshot") == "rillet: PLACE is missing: RDB files, folders of them, or globs\n"
    err = wrong("replay", "--parquet", str(tmp_path / "no"), "--archive", str(tmp_path), "--speed", "0", "--start", "5")
    for what in (
        "--to is missing", "give one of --parquet and --archive", "this folder does not exist", "--speed is '0'",
        "--start applies to a stream", "--to-url or --to-path is missing",
    ):  # fmt: skip
        assert what in err
    err = wrong("replay", "--url", "redis://x", "--stream", "a", "--to", "a", "--start", "x")
    assert "the source and the target are the same stream" in err
    assert "startingOffsets is 'x'" in err


def test_an_unreachable_server_is_reported_before_a_jvm_starts(
    capsys: Said, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytest.importorskip("pyspark")

    def started(*_: object, **__: object) -> None:
        raise AssertionError("Spark was started")

    monkeypatch.setattr("rillet.spark.sessions.session", started)
    away = ("--url", "redis://127.0.0.1:1")
    for words in (("archive", str(tmp_path / "a"), *away, "--stream", "s"), ("dead-letters", *away, "--stream", "s"),
                  ("migrate", *away, "--to-url", "redis://127.0.0.1:2"), ("lag", *away)):  # fmt: skip
        assert main(["pipeline", *words]) == 1
        assert capsys.readouterr().err == "rillet: no server answers at 127.0.0.1:1: [Errno 111] Connection refused\n"
    assert main(["pipeline", "dead-letters", "--path", str(tmp_path / "none"), "--stream", "s"]) == 1
    assert capsys.readouterr().err == f"rillet: there is no store at {tmp_path / 'none'}\n"


def test_a_target_at_the_same_server_uses_the_source_s_connection_options() -> None:
    pytest.importorskip("pyspark")
    from rillet.spark.pipelines import cli_arguments

    module = importlib.import_module("rillet.spark.pipelines.replay")

    def target(*words: str) -> dict[str, str]:
        parser = cli_arguments.PipelineParser(prog="x")
        module.add_arguments(parser)
        return cli_arguments.target_options(parser.read(words, module))

    source = ("--url", "rediss://h", "--stream", "a", "--option", "user=u", "--option", "caFile=c", "--to", "b")
    assert target(*source, "--option", "pageEntries=9") == {"url": "rediss://h", "user": "u", "caFile": "c"}
    assert target(*source, "--to-url", "redis://other") == {"url": "redis://other"}


@pytest.fixture
def keyboard() -> Iterator[None]:
    """Install Python's handler of SIGINT, which a Spark session of this process may have replaced."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("keyboard")
def test_an_interrupted_command_exits_with_130(capsys: Said, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Ctrl-C may arrive directly, or as the cause of another error. While the JVM starts, it is deferred."""
    pytest.importorskip("pyspark")
    from rillet.spark.pipelines import cli_common

    def interrupted(*_: object, **__: object) -> None:
        signal.raise_signal(signal.SIGINT)

    def broken(*_: object, **__: object) -> None:
        try:
            interrupted()
        except KeyboardInterrupt:
            raise OSError("the gateway is gone")  # noqa: B904 (without `from`, as in a library)

    monkeypatch.setattr("rillet.spark.pipelines.cli_common._check_connection", lambda given: None)
    words = ["pipeline", "archive", str(tmp_path / "a"), "--url", "redis://x", "--stream", "s",
             "--schema", "n int COMMENT 'only Spark parses this'"]  # fmt: skip
    for session in (interrupted, broken):
        monkeypatch.setattr("rillet.spark.pipelines.cli_common.open_session", session)
        assert main(words) == 130
        assert capsys.readouterr().err == (
            "rillet: interrupted; committed entries are kept, and the next run continues after them\n"
        )
    reached = []

    def starting() -> None:
        with cli_common._deferred_interrupt():
            interrupted()
            reached.append("the end")

    with pytest.raises(KeyboardInterrupt):
        starting()
    assert reached
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_off_a_terminal_the_progress_bar_writes_a_log_line_every_five_seconds() -> None:
    now = [0.0]
    log = io.StringIO()
    with ProgressBar("archiving", log, lambda: now[0], unit="entries", log=True) as bar:
        bar(10, 100)
        now[0] = 5.0
        bar(5000, 100_000)
        now[0] = 6.0
        bar(6000, 100_000)
        now[0] = 12.0
        bar(12_000)
    assert log.getvalue() == (
        "archiving: 5,000 of 100,000 entries, 1,000 a second\narchiving: 12,000 entries, 1,000 a second\n"
    )


def test_numbers_have_nouns_and_errors_are_one_line() -> None:
    assert counted(1, "entry", "entries") == "1 entry"
    assert counted(2000, "file") == "2,000 files"
    assert error_line(RuntimeError("x\n  rillet.spark.E: rillet: no stream 'a' at b\n")) == "no stream 'a' at b"


@pytest.mark.spark
@pytest.mark.slow
def test_commands_print_one_line_each(
    spark: SparkSession, judge: Judge, url: str, add: Callable[..., None], tmp_path: Path, capsys: Said,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """The commands share the session of the tests; a JVM per command would take seconds."""
    monkeypatch.setattr("rillet.spark.pipelines.cli_common.open_session", lambda *_: spark)
    monkeypatch.setattr(type(spark), "stop", lambda self: None)
    monkeypatch.setattr("signal.signal", lambda *_: None)

    def run(*words: str) -> str:
        assert main(["pipeline", *words]) == 0
        return capsys.readouterr().out

    folder = str(tmp_path / "a")
    add(range(600))
    source = ("--url", url, "--stream", "events")
    printed = run("archive", folder, *source, "--trim", "--option", "maxEntriesPerTrigger=400", "--spark", "always")
    assert f"{folder}: 600 entries archived in 2 files" in printed
    assert printed.endswith(", in Spark\n")
    add(range(600, 700))
    assert run("archive", folder, "--compact") == f"{folder}: 2 small files merged into 1, in this process\n"
    assert run("archive", folder, "--compact") == f"{folder}: no small files to merge\n"
    shown = run("history", folder, *source, "--where", f"id = '{entry_id(650)}'")
    assert entry_id(650) in shown
    assert shown.endswith("and the stream: 1 entry\n")
    shown = run("replay", "--parquet", folder, "--to", "copy", "--to-url", url)
    assert shown == f"copy: 600 entries replayed, the last as {entry_id(599)}\n"
    # --json: one line for each result.
    def lines(*words: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in run(*words, "--json").splitlines()]

    add(range(700, 710))
    (done,) = lines("archive", folder, *source)
    assert (done["to"], done["entries"], done["in"]) == (folder, 110, "this process")
    (row,) = lines("history", folder, *source, "--where", f"id = '{entry_id(650)}'")
    assert row["id"] == entry_id(650)
    assert lines("replay", "--parquet", folder, "--to", "again", "--to-url", url)[0]["rows"] == 710
    judge.client().execute_command("XGROUP", "CREATE", "events", "billing", "0")
    (group,) = lines("lag", *source)
    assert (group["stream"], group["group"]) == ("events", "billing")
    judge.client().execute_command("XADD", "dead", "*", "n", 1, "_stream", "events", "_group", "billing", "_id", "1-1",
                                   "_deliveries", 5)  # fmt: skip
    counted_row, letter = lines("dead-letters", "--url", url, "--stream", "dead", "--show", "1")
    assert (counted_row["stream"], counted_row["entries"], counted_row["deliveries"]) == ("events", 1, 5)
    assert letter["fields"] == {"n": "1"}
    assert main(["pipeline", "history", str(tmp_path / "none"), *source]) == 1
    assert capsys.readouterr().err.startswith(f"rillet: there is no archive at {tmp_path / 'none'}")

"""`rillet pipeline`: what is wrong is said at once, before Spark starts; a run prints its one line."""

from __future__ import annotations

import importlib
import io
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rillet.cli import main
from rillet.cli.pipeline import PIPELINES
from rillet.spark.pipelines.cli_common import PipelineProgressBar, counted, told
from tests.judge import Judge
from tests.spark.conftest import entry_id

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Said = pytest.CaptureFixture[str]


@pytest.mark.once
def test_which_pipelines_there_are(capsys: Said) -> None:
    assert main(["pipeline", "--help"]) == 0
    shown = capsys.readouterr().out
    assert main(["pipeline"]) == 2
    assert capsys.readouterr().out == shown
    assert all(f"  {name} " in shown for name in PIPELINES) and {"archive", "replay", "aggregate"} <= set(PIPELINES)
    assert main(["pipeline", "archives"]) == 2
    assert capsys.readouterr().err.startswith("rillet: there is no pipeline 'archives'\n")


@pytest.mark.once
@pytest.mark.parametrize("name", list(PIPELINES))
def test_each_has_help_and_names_what_is_wrong_at_once(name: str, capsys: Said) -> None:
    pytest.importorskip("pyspark")
    with pytest.raises(SystemExit) as ended:
        main(["pipeline", name, "--help"])
    assert ended.value.code == 0
    shown = capsys.readouterr().out
    assert f"usage: rillet pipeline {name}" in shown and "--master" in shown
    assert main(["pipeline", name, "--such", "--conf", "x"]) == 2
    err = capsys.readouterr().err
    assert err.startswith("rillet: ") and err.count("\n") == 1
    assert "unknown argument --such" in err and "--conf is 'x': not NAME=VALUE" in err


@pytest.mark.once
def test_arguments_alone_and_together(tmp_path: Path, capsys: Said) -> None:
    pytest.importorskip("pyspark")

    def wrong(*words: str) -> str:
        assert main(["pipeline", *words]) == 2
        return capsys.readouterr().err

    err = wrong(
        "archive", "--url", "redis://x", "--path", "y", "--every", "soon", "--small-files", "1", "--file-size", "big",
        "--compression", "best", "--option", "minPartitons=2", "--trim", "--schema",
    )  # fmt: skip
    for what in (
        "--every is 'soon': not a time", "--small-files is '1': not a whole number from 2 up", "--file-size is 'big'",
        "--compression is 'best': none of zstd,", "unknown option minpartitons (did you mean minPartitions?)",
        "give one of --url (redis://host:port/db) and --path (", "--stream is missing: the stream's key (or --streams,",
        "--schema needs a value",
    ):  # fmt: skip
        assert what in err
    err = wrong("archive", str(tmp_path), "--compact", "--trim", "--every", "5s")
    assert (
        err == "rillet: --compact only merges files: not with --trim; --compact only merges files: not with --every\n"
    )
    assert "have Spark's own sink write there (writeStream.format('parquet'))" in wrong("archive", "s3a://bucket/a")
    err = wrong("migrate", "--url", "http://x", "--prefix", "a:")
    assert "of the source: --url is neither redis://" in err
    assert "of the target: give one of --to-url (redis://host:port/db) and --to-path (" in err
    assert wrong("snapshot") == "rillet: PLACE is missing: RDB files, folders of them, or globs\n"
    err = wrong("replay", "--parquet", str(tmp_path / "no"), "--archive", str(tmp_path), "--speed", "0", "--start", "5")
    for what in ("--to is missing", "give one of --parquet and --archive", "it is not there", "--speed is '0'",
                 "--start is for a stream", "--to-url or --to-path is missing"):  # fmt: skip
        assert what in err
    err = wrong("replay", "--url", "redis://x", "--stream", "a", "--to", "a", "--start", "x")
    assert "a stream cannot be replayed into itself" in err and "startingOffsets is 'x'" in err
    (tmp_path / "a.toml").write_text("[source]\nurl = 'redis://x'\n")
    err = wrong("aggregate", str(tmp_path / "a.toml"), "--batch", "--every", "1s")
    assert "not with --every" in err and "source: stream is missing" in err and "[window] is missing" in err


@pytest.mark.once
def test_a_server_that_is_not_there_is_said_before_a_jvm_starts(
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


@pytest.mark.once
def test_a_replay_reaches_the_target_as_it_does_the_source() -> None:
    pytest.importorskip("pyspark")
    from rillet.spark.pipelines import cli_common as running

    module = importlib.import_module("rillet.spark.pipelines.replay")

    def target(*words: str) -> dict[str, str]:
        parser = running.PipelineParser(prog="x")
        module.add_arguments(parser)
        found: dict[str, str] = module._target(parser.read(words, module))
        return found

    source = ("--url", "rediss://h", "--stream", "a", "--option", "user=u", "--option", "caFile=c", "--to", "b")
    assert target(*source, "--option", "pageEntries=9") == {"url": "rediss://h", "user": "u", "caFile": "c"}
    assert target(*source, "--to-url", "redis://other") == {"url": "redis://other"}


@pytest.fixture
def keyboard() -> Iterator[None]:
    """Python's own handler of ^C, which a Spark session of this process may have replaced."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.once
@pytest.mark.usefixtures("keyboard")
def test_an_interruption_is_no_failure(capsys: Said, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """At once, or by way of what it breaks; while the JVM starts it waits for that."""
    pytest.importorskip("pyspark")
    from rillet.spark.pipelines import cli_common as running

    def interrupted(*_: object, **__: object) -> None:
        signal.raise_signal(signal.SIGINT)

    def broken(*_: object, **__: object) -> None:
        try:
            interrupted()
        except KeyboardInterrupt:
            raise OSError("the gateway is gone")  # noqa: B904 (as it comes)

    monkeypatch.setattr("rillet.spark.pipelines.cli_common._reach", lambda given: None)
    words = ["pipeline", "archive", str(tmp_path / "a"), "--url", "redis://x", "--stream", "s"]
    for session in (interrupted, broken):
        monkeypatch.setattr("rillet.spark.pipelines.cli_common.open_session", session)
        assert main(words) == 130
        assert capsys.readouterr().err == (
            "rillet: interrupted; what is committed stays, the next run goes on after it\n"
        )
    reached = []

    def starting() -> None:
        with running._held():
            interrupted()
            reached.append("the end")

    with pytest.raises(KeyboardInterrupt):
        starting()
    assert reached and signal.getsignal(signal.SIGINT) is signal.default_int_handler


class Terminal(io.StringIO):
    """A stream that somebody looks at."""

    def isatty(self) -> bool:
        return True


@pytest.mark.once
def test_the_bar_is_for_people_and_lines_are_for_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("rillet.spark.pipelines.cli_common.time.monotonic", lambda: now[0])
    log = io.StringIO()
    with PipelineProgressBar("archiving", stream=log) as bar:
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
    assert counted(1, "entry", "entries") == "1 entry" and counted(2000, "file") == "2,000 files"
    assert told(RuntimeError("x\n  rillet.spark.E: rillet: no stream 'a' at b\n")) == "no stream 'a' at b"


@pytest.mark.spark
@pytest.mark.slow
def test_commands_run(
    spark: SparkSession, judge: Judge, url: str, add: Callable[..., None], tmp_path: Path, capsys: Said,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """In the session of the tests: a JVM for each command would cost seconds."""
    monkeypatch.setattr("rillet.spark.pipelines.cli_common.open_session", lambda options, name: spark)
    monkeypatch.setattr(type(spark), "stop", lambda self: None)
    monkeypatch.setattr("signal.signal", lambda *_: None)

    def run(*words: str) -> str:
        assert main(["pipeline", *words]) == 0
        return capsys.readouterr().out

    folder = str(tmp_path / "a")
    add(range(600))
    source = ("--url", url, "--stream", "events")
    assert f"{folder}: 600 entries archived in 2 files" in run("archive", folder, *source, "--trim",
                                                             "--option", "maxEntriesPerTrigger=400")  # fmt: skip
    add(range(600, 700))
    assert run("archive", folder, "--compact") == f"{folder}: 2 small files merged into 1\n"
    assert run("archive", folder, "--compact") == f"{folder}: no small files to merge\n"
    shown = run("history", folder, *source, "--where", f"id = '{entry_id(650)}'")
    assert entry_id(650) in shown and shown.endswith("and the stream: 1 entry\n")
    shown = run("replay", "--parquet", folder, "--to", "copy", "--to-url", url)
    assert shown == f"copy: 600 entries replayed, the last as {entry_id(599)}\n"
    assert main(["pipeline", "history", str(tmp_path / "none"), *source]) == 1
    assert capsys.readouterr().err.startswith(f"rillet: there is no archive at {tmp_path / 'none'}")

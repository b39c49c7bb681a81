"""`rillet pipeline`: what is wrong is said at once, before Spark starts; a run prints its one line."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rillet.cli import main
from rillet.cli.pipeline import PIPELINES
from rillet.spark.pipelines.running import Bar, counted, told
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
        "give one of url", "stream is missing", "--schema needs a value",
    ):  # fmt: skip
        assert what in err
    err = wrong("archive", str(tmp_path), "--compact", "--trim", "--every", "5s")
    assert (
        err == "rillet: --compact only merges files: not with --trim; --compact only merges files: not with --every\n"
    )
    err = wrong("replay", "--parquet", str(tmp_path / "no"), "--archive", str(tmp_path), "--speed", "0", "--start", "5")
    for what in ("--to is missing", "give one of --parquet and --archive", "it is not there", "--speed is '0'",
                 "--start is for a stream", "--to-url or --to-path is missing"):  # fmt: skip
        assert what in err
    err = wrong("replay", "--url", "redis://x", "--stream", "a", "--to", "a", "--start", "x")
    assert "a stream cannot be replayed into itself" in err and "startingOffsets is 'x'" in err
    (tmp_path / "a.toml").write_text("[source]\nurl = 'redis://x'\n")
    err = wrong("aggregate", str(tmp_path / "a.toml"), "--batch", "--every", "1s")
    assert "not with --every" in err and "source: stream is missing" in err and "[window] is missing" in err


class Terminal(io.StringIO):
    """A stream that somebody looks at."""

    def isatty(self) -> bool:
        return True


@pytest.mark.once
def test_the_bar_is_for_people_and_lines_are_for_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("rillet.spark.pipelines.running.time.monotonic", lambda: now[0])
    log = io.StringIO()
    with Bar("archiving", stream=log) as bar:
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
    monkeypatch.setattr("rillet.spark.pipelines.running.open_session", lambda options, name: spark)
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

"""Backfill adds what an archive lacks, each entry exactly once, also while a job archives new ones."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

from rillet.cli import main
from rillet.spark.archive.delta import DeltaArchive
from rillet.spark.archive.files import ArchiveError, ArchiveOvertaken
from rillet.spark.archive.layout import Archive
from rillet.spark.pipelines import archive, backfill, compact
from tests.judge import Judge, running_redis
from tests.spark.pipelines.test_archive import DAY, Killed, by_glob, by_manifest, fill
from tests.spark.pipelines.test_history import Reader

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]

FIRST = 1_700_000_000_000


def test_a_range_is_added_once_with_the_columns_of_the_archive(judge: Judge, url: str, tmp_path: Path) -> None:
    ids = fill(judge, range(900))
    source: dict[str, Any] = {"url": url, "stream": "events"}
    late = FIRST + DAY
    archive(None, tmp_path / "a", schema="n int", startingTimestamp=str(late), **source)
    place = Archive(tmp_path / "a")
    assert by_glob(place.path) == [one for one in ids if int(one.split("-")[0]) >= late]
    before = place.manifest()
    bounds: dict[str, Any] = {"startingTimestamp": str(FIRST + DAY // 4), "endingTimestamp": str(FIRST + DAY // 2)}
    done = backfill(None, place.path, **source, **bounds)
    part = [one for one in ids if FIRST + DAY // 4 <= int(one.split("-")[0]) < FIRST + DAY // 2]
    assert done.entries == len(part) == 100
    assert backfill(None, place.path, **source, **bounds).entries == 0
    assert backfill(None, place.path, **source).entries == 900 - 500 - 100
    assert by_glob(place.path) == by_manifest(place) == sorted(ids)
    after = place.manifest()
    assert (after.schema, after.offset) == (before.schema, before.offset)
    ids += fill(judge, range(900, 950))
    assert backfill(None, place.path, **source).entries == 0  # they are the job's
    assert archive(None, place.path, schema="n int", **source).entries == 50
    assert by_glob(place.path) == sorted(ids)
    fill(judge, range(3), "other")
    with pytest.raises(ArchiveError, match="the archive does not hold the stream 'other': archive it before"):
        backfill(None, place.path, url=url, stream="other")
    with pytest.raises(ArchiveError, match="there is no archive"):
        backfill(None, tmp_path / "none", **source)


def test_another_server_has_what_was_lost(judge: Judge, url: str, tmp_path: Path, capsys: Any) -> None:
    """Entries in the middle were trimmed before the job came to them; a copy of the stream still has them."""
    ids = fill(judge, range(300))
    source: dict[str, Any] = {"url": url, "stream": "events"}
    with running_redis() as copy:
        fill(copy, range(900))
        archive(None, tmp_path / "a", **source)
        with judge.client() as client:
            client.execute_command("XTRIM", "events", "MAXLEN", "0")
        later = fill(judge, range(600, 900))
        assert archive(None, tmp_path / "a", failOnDataLoss="false", **source).entries == 300
        assert by_glob(tmp_path / "a") == sorted(ids + later)
        words = ["pipeline", "archive", str(tmp_path / "a"), "--backfill", "--stream", "events"]
        assert main([*words, "--url", f"redis://127.0.0.1:{copy.port}"]) == 0
        assert "300 entries archived" in capsys.readouterr().out
        assert len(by_glob(tmp_path / "a")) == len(set(by_glob(tmp_path / "a"))) == 900
    assert main([*words, "--url", url, "--every", "5s", "--trim"]) == 2
    error = capsys.readouterr().err
    assert "--backfill cannot be combined with --trim; --backfill cannot be combined with --every" in error


@pytest.mark.parametrize("kind", ["rillet", "delta"])
def test_a_running_job_lets_others_write_between_its_rounds(
    judge: Judge, url: str, tmp_path: Path, kind: str
) -> None:
    if kind == "delta":
        pytest.importorskip("deltalake")
    ids = fill(judge, range(400))
    source: dict[str, Any] = {"url": url, "stream": "events"}
    late, stop = str(FIRST + DAY // 2), threading.Event()
    archive(None, tmp_path / "a", format=kind, startingTimestamp=late, **source)
    failed: list[BaseException] = []

    def job() -> None:
        try:
            archive(None, tmp_path / "a", every=0.01, stop=stop, startingTimestamp=late, **source)
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=job)
    thread.start()
    added = 0
    try:
        for n in range(4):
            ids += fill(judge, range(400 + 10 * n, 410 + 10 * n))
            while True:
                try:
                    until = str(FIRST + (n + 1) * DAY // 8)
                    added += backfill(None, tmp_path / "a", **source, endingTimestamp=until).entries
                    compact(None, tmp_path / "a")
                    break
                except ArchiveOvertaken:  # in a Delta table
                    continue
    finally:
        stop.set()
        thread.join()
    assert failed == []
    assert added == 200
    archive(None, tmp_path / "a", **source)
    place: Any = Archive(tmp_path / "a") if kind == "rillet" else DeltaArchive(tmp_path / "a")
    manifest = place.manifest()
    assert sum(file.rows for file in manifest.files) == len(ids)
    if kind == "rillet":
        assert by_glob(place.path) == by_manifest(place) == sorted(ids)


@pytest.mark.parametrize("step", ["staged", "drafted", "committed", "placed", "settled"])
def test_a_killed_backfill_is_completed_by_the_next(
    judge: Judge, url: str, tmp_path: Path, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = fill(judge, range(900))
    source: dict[str, Any] = {"url": url, "stream": "events"}
    archive(None, tmp_path / "a", startingTimestamp=str(FIRST + DAY), **source)
    killed = [True]

    def at(reached: str) -> None:
        if reached == step and killed:
            killed.clear()
            raise Killed

    def opened(*_: object) -> Archive:
        return Archive(tmp_path / "a", at)

    with monkeypatch.context() as patch:
        patch.setattr("rillet.spark.pipelines.archive_backfill.open_archive", opened)
        with pytest.raises(Killed):
            backfill(None, tmp_path / "a", **source)
    assert not killed
    backfill(None, tmp_path / "a", **source)
    assert by_glob(tmp_path / "a") == by_manifest(Archive(tmp_path / "a")) == sorted(ids)


@pytest.mark.parametrize("kind", ["rillet", "delta"])
def test_a_gap_inside_a_merged_file_is_filled(judge: Judge, url: str, tmp_path: Path, kind: str) -> None:
    """Files before and after a gap are merged into one, whose first and last ID span the gap."""
    if kind == "delta":
        pytest.importorskip("deltalake")
    source: dict[str, Any] = {"url": url, "stream": "events"}
    words: dict[str, Any] = {"format": kind, "schema": "user string, n bigint", "partition_by": "date,user"}
    with running_redis() as copy:
        fill(copy, range(300))
        fill(judge, range(100))
        archive(None, tmp_path / "a", **words, **source)
        with judge.client() as client:
            client.execute_command("XTRIM", "events", "MAXLEN", "0")
        fill(judge, range(200, 300))
        archive(None, tmp_path / "a", failOnDataLoss="false", **words, **source)
        assert compact(None, tmp_path / "a").merged
        restored: dict[str, Any] = {"url": f"redis://127.0.0.1:{copy.port}", "stream": "events"}
        assert backfill(None, tmp_path / "a", **restored).entries == 100
        assert backfill(None, tmp_path / "a", **restored).entries == 0
        compact(None, tmp_path / "a")
        assert backfill(None, tmp_path / "a", **restored).entries == 0
    place: Any = Archive(tmp_path / "a") if kind == "rillet" else DeltaArchive(tmp_path / "a")
    manifest = place.manifest()
    assert sum(file.rows for file in manifest.files) == 300
    assert {file.values for file in manifest.files} == {(f"u{n}",) for n in range(7)}
    assert sorted(Reader(url, tmp_path / "a").numbers()) == list(range(300))


def test_a_delta_table_may_grow_during_a_backfill(judge: Judge, url: str, tmp_path: Path) -> None:
    """The job commits before the backfill does: the files are kept, and committed after it."""
    pytest.importorskip("deltalake")
    ids = fill(judge, range(300))
    source: dict[str, Any] = {"url": url, "stream": "events"}
    archive(None, tmp_path / "a", format="delta", startingTimestamp=str(FIRST + DAY // 2), **source)
    commits = [3]

    def at(reached: str) -> None:
        if reached == "drafted" and commits[0]:
            commits[0] -= 1
            ids.extend(fill(judge, range(len(ids), len(ids) + 10)))
            archive(None, tmp_path / "a", **source)

    def opened(*_: object) -> DeltaArchive:
        return DeltaArchive(tmp_path / "a", at=at)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("rillet.spark.pipelines.archive_backfill.open_archive", opened)
        assert backfill(None, tmp_path / "a", **source).entries == 200
    assert commits == [0]
    assert sum(file.rows for file in DeltaArchive(tmp_path / "a").manifest().files) == len(ids) == 330


def test_spark_runs_the_tasks(spark: SparkSession, judge: Judge, url: str, tmp_path: Path) -> None:
    ids = fill(judge, range(900))
    source: dict[str, Any] = {"url": url, "stream": "events"}
    archive(spark, tmp_path / "a", startingTimestamp=str(FIRST + DAY), **source)
    assert backfill(spark, tmp_path / "a", minPartitions="4", **source).entries == 400
    assert backfill(spark, tmp_path / "a", minPartitions="4", **source).entries == 0
    assert by_glob(tmp_path / "a") == sorted(ids)

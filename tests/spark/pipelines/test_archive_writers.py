"""A job that keeps running lets others write to its archive between two rounds."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

from rillet.spark.archive.delta import DeltaArchive
from rillet.spark.archive.files import ArchiveOvertaken
from rillet.spark.archive.layout import Archive
from rillet.spark.pipelines import archive, compact
from tests.judge import Judge
from tests.spark.pipelines.test_archive import by_glob, by_manifest, fill


@pytest.mark.parametrize("kind", ["rillet", "delta"])
def test_a_running_job_lets_others_write_between_its_rounds(judge: Judge, url: str, tmp_path: Path, kind: str) -> None:
    """Another job, with another stream, and compaction; each entry is archived once."""
    if kind == "delta":
        pytest.importorskip("deltalake")
    ids, others, stop = fill(judge, range(400)), [], threading.Event()
    source: dict[str, Any] = {"url": url, "stream": "events"}
    archive(None, tmp_path / "a", format=kind, **source)
    failed: list[BaseException] = []

    def job() -> None:
        try:
            archive(None, tmp_path / "a", every=0.01, stop=stop, **source)
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=job)
    thread.start()
    try:
        for n in range(4):
            ids += fill(judge, range(400 + 10 * n, 410 + 10 * n))
            others += fill(judge, range(10 * n, 10 * n + 10), "others")
            for other in (lambda: archive(None, tmp_path / "a", url=url, stream="others"),
                          lambda: compact(None, tmp_path / "a")):  # fmt: skip
                while True:
                    try:
                        other()
                        break
                    except ArchiveOvertaken:  # in a Delta table
                        continue
    finally:
        stop.set()
        thread.join()
    assert failed == []
    archive(None, tmp_path / "a", **source)
    place: Any = Archive(tmp_path / "a") if kind == "rillet" else DeltaArchive(tmp_path / "a")
    manifest = place.manifest()
    rows = {name: sum(file.rows for file in manifest.files if file.stream == name) for name in manifest.streams()}
    assert rows == {"events": len(ids), "others": len(others)}
    if kind == "rillet":
        assert by_glob(place.path) == by_manifest(place) == sorted(ids + others)


def test_a_writer_waits_for_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entered, leave = threading.Event(), threading.Event()

    def first() -> None:
        with Archive(tmp_path / "a").writing():
            entered.set()
            leave.wait()

    thread = threading.Thread(target=first)

    def turn(_: float) -> None:
        leave.set()
        thread.join()

    monkeypatch.setattr("rillet.spark.archive.layout.time", SimpleNamespace(sleep=turn, time=time.time))
    thread.start()
    entered.wait()
    with Archive(tmp_path / "a").writing(60.0) as manifest:
        assert manifest.commit == 0
    assert leave.is_set()

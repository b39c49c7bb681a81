"""A Delta archive on a disk that fails or loses its power, without Spark's JVM."""

from __future__ import annotations

import io
import os
import pickle
import time
from pathlib import Path

import pytest

pytest.importorskip("deltalake")
pytest.importorskip("pyspark")

from rillet.spark.archive.delta import DeltaArchive
from rillet.spark.archive.files import ArchiveError
from rillet.spark.archive.manifest import Part
from rillet.spark.archive.parquet_reader import ArchiveTask
from rillet.spark.archive.targets import delta_storage
from rillet.spark.pipelines.parquet import merge_parts
from rillet.spark.read.history import HistoryTask
from rillet.types.stream.id import StreamID
from tests.spark.pipelines.test_archive_delta import in_table, written


class Disk:
    """Records the paths that are synced; a sync of a path that contains `broken` fails."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.synced: list[Path] = []
        self.broken = ""
        real = os.fsync

        def fsync(descriptor: int) -> None:
            path = os.readlink(f"/proc/self/fd/{descriptor}")
            if self.broken and self.broken in path:
                raise OSError(5, "Input/output error")
            self.synced.append(Path(path))
            real(descriptor)

        monkeypatch.setattr(os, "fsync", fsync)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    if not Path("/proc/self/fd").exists():
        pytest.skip("needs /proc to name the synced files")
    return Disk(monkeypatch)


def test_the_state_is_on_disk_before_the_log_names_it(tmp_path: Path, disk: Disk) -> None:
    place, before = tmp_path / "t", list[Path]()
    archive = DeltaArchive(place, at=lambda step: before.extend(disk.synced) if step == "transacting" else None)
    written(archive, 1, {"id": "1-0"})
    (state,) = (place / "_rillet").glob("state-*.json")
    assert before.index(state) < before.index(state.parent)
    assert place in before[before.index(state) :]


def test_a_log_that_cannot_be_synced_is_reported_and_synced_before_the_next_commit(tmp_path: Path, disk: Disk) -> None:
    place = tmp_path / "t"
    written(DeltaArchive(place), 1, {"id": "1-0"})
    disk.broken = "_delta_log"
    message = "the Delta table .* cannot be synced, so whether commit 2 is durable is unknown: Input/output error"
    with pytest.raises(ArchiveError, match=message):
        written(DeltaArchive(place), 2, {"id": "2-0"})
    assert DeltaArchive(place).manifest().commit == 2
    message = "cannot be synced, so whether commit 2 is durable is unknown: Input/output error"
    with pytest.raises(ArchiveError, match=message), DeltaArchive(place).writing():
        pass  # a job would trim what commit 2 holds
    disk.broken, disk.synced = "", []
    with DeltaArchive(place).writing() as manifest:
        assert manifest.commit == 2
        assert {path.name for path in disk.synced if path.suffix == ".json"} >= {f"{one:020}.json" for one in (1, 2)}


def test_vacuum_keeps_the_fresh_files_of_a_running_job(tmp_path: Path) -> None:
    """keep = 0 removes replaced files at once, but nothing that a job may be about to commit."""
    archive = DeltaArchive(tmp_path / "t")
    for number in (1, 2):
        written(archive, number, {"id": f"{number}-0"})
    manifest = archive.manifest()
    replaced = archive.storage.folder / next(iter(manifest.files)).path  # type: ignore[operator]
    target = archive.target("none")
    (run,) = archive.mergeable(manifest, 2, 1 << 20)
    archive.merge(manifest, [(run, merge_parts(target, run))])
    running = DeltaArchive(tmp_path / "t").target("none")
    path, file = running.create()
    file.write(b"rows")
    part = running.finish(Part(path, "s", 0, StreamID(9, 0), StreamID(9, 0), 1, 4), file)
    begun, unfinished = running.create()
    unfinished.close()
    running.upload("_rillet/state-4-77.json", io.BytesIO(b"{}"))
    fresh = [tmp_path / "t" / part.path, Path(begun), tmp_path / "t" / "_rillet" / "state-4-77.json"]
    old = [tmp_path / "t" / "_rillet" / "state-1-5.json", fresh[0].with_name("1-0_1-0_left.parquet")]
    for one in old:
        one.write_bytes(b"{}")
        os.utime(one, (time.time() - 2 * 3600,) * 2)
    assert DeltaArchive(tmp_path / "t").vacuum(0.0) == 2 + 1
    assert not replaced.exists()
    assert [one.exists() for one in (*fresh, *old)] == [True, True, True, False, False]
    assert in_table(DeltaArchive(tmp_path / "t")) == ["1-0", "2-0"]


def test_no_text_of_a_task_shows_the_credentials_of_an_object_store() -> None:
    options = {"AWS_SECRET_ACCESS_KEY": "hunter2", "AWS_ACCESS_KEY_ID": "hunter1"}
    storage = delta_storage("s3://bucket/events", options)
    task = ArchiveTask((Path("a.parquet"),), "events", StreamID(0, 0), StreamID(1, 0), storage=storage)
    for value in (storage, task, HistoryTask((task,))):
        assert "hunter" not in f"{value!r} {value}"
        assert pickle.loads(pickle.dumps(value)) == value  # the tasks have them
    assert storage.storage_options == options
    assert "bucket" in repr(task)

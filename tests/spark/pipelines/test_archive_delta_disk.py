"""A Delta archive on a disk that fails or loses its power, without Spark's JVM."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

pytest.importorskip("deltalake")
pytest.importorskip("pyspark")

from rillet.spark.archive.delta import DeltaArchive
from tests.spark.pipelines.test_archive_delta import written

pytestmark = pytest.mark.once


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

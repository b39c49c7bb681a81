"""Archives and checkpoints of earlier versions are read and continued (in tests/spark/earlier, by made_earlier.py)."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from rillet.spark.archive.layout import MANIFEST, Archive
from rillet.types.stream.id import StreamID
from tests.judge import Judge
from tests.spark.made_earlier import ENTRIES, entry_id, fill
from tests.spark.pipelines.test_archive import by_glob, by_manifest, job

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow

__all__ = ["job"]  # the fixture

EARLIER = Path(__file__).with_name("earlier") / "format-1"


@pytest.mark.parametrize("name", ["archive", "killed"])
def test_an_archive_of_format_1_is_read_and_continued(
    judge: Judge, url: str, tmp_path: Path, job: Callable[..., Any], name: str
) -> None:
    """`killed` was left between a commit and the renames that remain after it."""
    shutil.copytree(EARLIER / name, tmp_path / "a")
    archive, ids = Archive(tmp_path / "a"), [entry_id(number) for number in range(ENTRIES)]
    before = archive.existing()
    assert json.loads((archive.path / MANIFEST).read_bytes())["format"] == 1
    assert bool([place for place in before.place.values() if (archive.path / place).exists()]) == (name == "killed")
    assert by_manifest(archive) == sorted(ids)
    assert before.held("events") == StreamID.parse(ids[-1])
    fill(judge.port, range(ENTRIES + 8))
    with archive.writing() as manifest:
        made = job(archive, url, stream="events", maxEntriesPerTrigger="4")
        manifest = made.round(manifest)
    assert (made.done.entries, made.done.commits) == (8, 2)
    assert by_manifest(archive) == by_glob(archive.path) == sorted(entry_id(number) for number in range(ENTRIES + 8))
    assert manifest.commit > before.commit
    assert json.loads((archive.path / MANIFEST).read_bytes())["format"] == 2


def test_a_checkpoint_is_continued(spark: SparkSession, judge: Judge, url: str, tmp_path: Path) -> None:
    shutil.copytree(EARLIER / "checkpoint", tmp_path / "checkpoint")
    fill(judge.port, range(ENTRIES + 5))
    rows: list[tuple[int, str]] = []
    source = spark.readStream.format("rillet").schema("id string, n long").options(url=url, stream="events").load()
    query = source.writeStream.foreachBatch(lambda batch, _: rows.extend((row.n, row.id) for row in batch.collect()))
    query = query.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)
    query.start().awaitTermination()
    assert sorted(rows) == [(n, entry_id(n)) for n in range(ENTRIES, ENTRIES + 5)]

"""Tables of text, sizes and times, and the progress of tasks."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from rillet.spark.pipelines.tables import in_bytes, in_time, table, watched


def test_columns_of_numbers_are_aligned_right() -> None:
    shown = table(("group", "lag", "note"), [("billing", 1234, "x"), ("g", None, "long"), ("h", 5, "")])
    assert shown.splitlines() == [
        "group      lag  note",
        "billing  1,234  x",
        "g            -  long",
        "h            5",
    ]
    assert table(("a", "b"), []) == "a  b"
    assert table(("share",), [(0.25,), (True,)]).splitlines()[1:] == ["  0.2", " True"]


@pytest.mark.parametrize(("size", "text"), [(None, "-"), (0, "0 bytes"), (999, "999 bytes"), (1500, "1.5 KB"),
                                            (2_000_000, "2.0 MB"), (3e12, "3.0 TB"), (5e15, "5,000.0 TB")])  # fmt: skip
def test_sizes_have_units(size: float | None, text: str) -> None:
    assert in_bytes(size) == text


TIMES = [
    (None, "-"), (0, "0 ms"), (999, "999 ms"), (1500, "1.5 s"), (119_000, "119.0 s"), (120_000, "2.0 m"),
    (7_200_000, "2.0 h"), (10 * 86_400_000, "10.0 d"),
]  # fmt: skip


@pytest.mark.parametrize(("ms", "text"), TIMES)
def test_durations_have_units(ms: float | None, text: str) -> None:
    assert in_time(ms) == text


class Context:
    """Stands for Spark's status tracker: one job with two stages, of which Spark knows one."""

    def __init__(self) -> None:
        self.group = ""
        self.cancelled: list[str] = []

    def setJobGroup(self, group: str, description: str, interruptOnCancel: bool) -> None:
        self.group = group

    def cancelJobGroup(self, group: str) -> None:
        self.cancelled.append(group)

    def statusTracker(self) -> Any:
        stages = {1: SimpleNamespace(numTasks=4, numCompletedTasks=3)}
        return SimpleNamespace(
            getJobIdsForGroup=lambda group: [7, 8] if group == self.group else [],
            getJobInfo=lambda job: SimpleNamespace(stageIds=[1, 2]) if job == 7 else None,
            getStageInfo=stages.get,
        )


def test_watched_shows_progress_and_returns_the_result_or_raises() -> None:
    spark: Any = SimpleNamespace(sparkContext=Context())
    looked = threading.Event()
    seen: list[tuple[int, int | None]] = []

    def show(done: int, total: int | None) -> None:
        seen.append((done, total))
        looked.set()

    assert watched(spark, show, lambda: looked.wait(30)) is True
    assert seen[0] == (3, 4)
    with pytest.raises(ZeroDivisionError):
        watched(spark, show, lambda: 1 / 0)
    release = threading.Event()

    def interrupted(*_: Any) -> None:
        release.set()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        watched(spark, interrupted, lambda: release.wait(30))
    assert len(spark.sparkContext.cancelled) == 1

"""What commands show beside their one line: how far Spark's tasks are, and tables of text.

    tasks = watched(spark, bar, work)        work() in a thread of its own; the bar counts its tasks that ended
    print(table(("group", "lag"), rows))     columns as wide as they need, numbers to the right

Spark tells of a running job by its group: how many tasks its stages have and how many are done. That is asked four
times a second, and is all that a driver knows of rows that travel between executors and files.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_EVERY = 0.25
T = TypeVar("T")


def watched(spark: SparkSession, show: Callable[[int, int | None], None], work: Callable[[], T]) -> T:
    """Run what starts Spark jobs and return its result; `show` is told (tasks done, tasks in all) meanwhile."""
    context = spark.sparkContext
    group = f"rillet-{id(work):x}"
    result: list[T] = []
    failure: list[BaseException] = []
    ended = threading.Event()

    def run() -> None:
        try:
            context.setJobGroup(group, "rillet pipeline", interruptOnCancel=True)
            result.append(work())
        except BaseException as error:  # carried over to whoever waits
            failure.append(error)
        finally:
            ended.set()

    thread = threading.Thread(target=run, name=group, daemon=True)
    thread.start()
    try:
        while not ended.wait(_EVERY):
            show(*_tasks(context.statusTracker(), group))
    except KeyboardInterrupt:
        context.cancelJobGroup(group)
        raise
    finally:
        thread.join()
    if failure:
        raise failure[0]
    return result[0]


def _tasks(tracker: Any, group: str) -> tuple[int, int | None]:
    done = total = 0
    for job in tracker.getJobIdsForGroup(group):
        found = tracker.getJobInfo(job)
        for stage in found.stageIds if found is not None else ():
            facts = tracker.getStageInfo(stage)
            if facts is not None:
                done += facts.numCompletedTasks
                total += facts.numTasks
    return done, total or None


def table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Return rows as text below their head; None is a dash."""
    texts = [["-" if cell is None else _text(cell) for cell in row] for row in rows]
    right = [all(isinstance(row[i], (int, float, type(None))) for row in rows) and bool(rows) for i in range(len(head))]
    widths = [max(len(name), *(len(row[i]) for row in texts), 0) for i, name in enumerate(head)]
    lines = []
    for row in (list(head), *texts):
        cells = [cell.rjust(w) if r else cell.ljust(w) for cell, w, r in zip(row, widths, right, strict=True)]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def _text(cell: object) -> str:
    if isinstance(cell, bool) or not isinstance(cell, (int, float)):
        return str(cell)
    return f"{cell:,}" if isinstance(cell, int) else f"{cell:,.1f}"


def in_bytes(number: float | None) -> str:
    """Return a size as people read it."""
    if number is None:
        return "-"
    for unit in ("bytes", "KB", "MB", "GB"):
        if abs(number) < 1000:
            return f"{number:,.0f} {unit}" if unit == "bytes" else f"{number:,.1f} {unit}"
        number /= 1000
    return f"{number:,.1f} TB"


def in_time(milliseconds: float | None) -> str:
    """Return a time as people read it."""
    if milliseconds is None:
        return "-"
    seconds = milliseconds / 1000
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:,.1f} {unit}"
    return f"{seconds:,.1f} s" if seconds >= 1 else f"{milliseconds:,.0f} ms"

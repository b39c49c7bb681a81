"""Shared parts of the pipelines: the progress of Spark jobs, text tables, and the order of IDs.

    result = watched(spark, bar, work)       runs work() in a thread; the bar shows the completed Spark tasks
    print(table(("group", "lag"), rows))     prints columns as wide as needed, with numbers aligned right

Spark reports the progress of a job group: the number of tasks in its stages, and how many of them are complete. The
driver has no information about rows that executors read and write, unless the pipeline stores it on a server.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession

_EVERY = 0.25  # seconds between two updates of the displayed progress
T = TypeVar("T")
Progress = Callable[[int, int | None], None]
"""A function that is called with the work done and the total (None if unknown), in the unit of the progress bar."""


NOTHING: AbstractContextManager[Any] = nullcontext()
"""A context manager without effect: the default of what surrounds a round."""


def silent(done: int, total: int | None) -> None:
    """Do nothing: the default progress callback."""


def by_id(identifier: Column) -> list[Column]:
    """Return the columns to sort by for the order of IDs, which are text: milliseconds and sequence number."""
    from pyspark.sql import functions as F

    halves = F.split(identifier, "-")
    whole = "decimal(20,0)"  # holds an unsigned 64-bit number
    return [F.get(halves, F.lit(0)).cast(whole), F.coalesce(F.get(halves, F.lit(1)), F.lit("0")).cast(whole)]


def watched(
    spark: SparkSession, show: Progress, work: Callable[[], T],
    progress: Callable[[], tuple[int, int | None]] | None = None,
) -> T:  # fmt: skip
    """Return the result of work(), which runs Spark jobs; meanwhile call show(done, total) four times a second.

    progress: returns done and total; by default, the numbers of completed tasks and of all tasks.
    """
    context = spark.sparkContext
    group = f"rillet-{id(work):x}"
    result: list[T] = []
    failure: list[BaseException] = []
    ended = threading.Event()

    def run() -> None:
        try:
            context.setJobGroup(group, "rillet pipeline", interruptOnCancel=True)
            result.append(work())
        except BaseException as error:  # raised again in the calling thread
            failure.append(error)
        finally:
            ended.set()

    thread = threading.Thread(target=run, name=group, daemon=True)
    thread.start()
    try:
        while not ended.wait(_EVERY):
            show(*(_tasks(context.statusTracker(), group) if progress is None else progress()))
    except KeyboardInterrupt:
        context.cancelJobGroup(group)
        raise
    finally:
        thread.join()
    if failure:
        raise failure[0]
    return result[0]


def _tasks(tracker: Any, group: str) -> tuple[int, int | None]:
    """Return the numbers of completed tasks and of all tasks in the stages of a Spark job group."""
    done = total = 0
    for job in tracker.getJobIdsForGroup(group):
        job_info = tracker.getJobInfo(job)
        for stage in job_info.stageIds if job_info is not None else ():
            stage_info = tracker.getStageInfo(stage)
            if stage_info is not None:
                done += stage_info.numCompletedTasks
                total += stage_info.numTasks
    return done, total or None


def table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Return a text table with a header line; None becomes a dash."""
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
    """Return a number of bytes as text with a unit, such as 1.5 MB."""
    if number is None:
        return "-"
    for unit in ("bytes", "KB", "MB", "GB"):
        if abs(number) < 1000:
            return f"{number:,.0f} {unit}" if unit == "bytes" else f"{number:,.1f} {unit}"
        number /= 1000
    return f"{number:,.1f} TB"


def in_time(milliseconds: float | None) -> str:
    """Return a duration as text with a unit, such as 2.5 h."""
    if milliseconds is None:
        return "-"
    seconds = milliseconds / 1000
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:,.1f} {unit}"
    return f"{seconds:,.1f} s" if seconds >= 1 else f"{milliseconds:,.0f} ms"

"""Dead letters as text: the report that `rillet dead-letters` and `rillet pipeline dead-letters` print, without Spark.

    stream  group    reason             age            entries  deliveries  last
    orders  billing  ValueError: total  under an hour       12           5  2026-11-30 01:12:00

    1795435200123-0 ValueError: total: {'customer': '42'}      with --show, each letter
    12 entries dead; 12 requeued
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from rillet.spark.pipelines.tables import table
from rillet.units import counted

if TYPE_CHECKING:
    from rillet.spark.pipelines.requeue import RequeueSummary

AGES = ((60, "under a minute"), (3600, "under an hour"), (86_400, "under a day"), (7 * 86_400, "under a week"))
OLDEST = "a week or more"
LATEST_MS = 253_402_300_799_999  # the latest time that Python's datetime can represent
HEAD = ("stream", "group", "reason", "age", "entries", "deliveries", "last")


def age_of(seconds: float | None) -> str:
    """Return the range in which an age lies."""
    if seconds is None:
        return "unknown"
    return next((name for limit, name in AGES if seconds < limit), OLDEST)


def moment(ms: int) -> datetime | None:
    """Return a time in milliseconds since 1970 as a datetime, None if it is not one."""
    return datetime.fromtimestamp(ms / 1000, timezone.utc) if 0 < ms <= LATEST_MS else None


def report_text(groups: Iterable[Sequence[Any]]) -> str:
    """Return the table of the columns in HEAD; the last one is a datetime or None."""
    rows = [(*map(_shown, row[:-1]), None if row[-1] is None else f"{row[-1]:%Y-%m-%d %H:%M:%S}") for row in groups]
    return table(HEAD, rows)


def letter_text(id: str, reason: str | None, fields: Mapping[str, str] | None) -> str:
    """Return the line of a letter."""
    return f"{id} {_shown(reason)}: {fields}"


def _shown(cell: Any) -> Any:
    """Return text without control characters, which could move a terminal's cursor; other cells as they are."""
    if not isinstance(cell, str) or cell.isprintable():
        return cell
    return cell.encode("unicode_escape", "surrogatepass").decode()


def requeued_text(summary: RequeueSummary) -> str:
    """Return how many entries were requeued, and why others were not."""
    parts = (
        (summary.before, "requeued by an earlier run"),
        (summary.gone, "no longer there"),
        (summary.nowhere, "without a stream, not requeued"),
    )
    return f"{summary.moved:,} requeued" + "".join(f", {count:,} {text}" for count, text in parts if count)


def entries_text(total: int, kind: str = "dead") -> str:
    """Return the number of entries."""
    return f"{counted(total, 'entry', 'entries')} {kind}"

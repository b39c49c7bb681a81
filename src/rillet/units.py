"""Sizes and durations as texts with units, for the terminal and for reports."""

from __future__ import annotations

_SIZES = ((10**9, "GB"), (10**6, "MB"), (10**3, "kB"))
_DURATIONS = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1000, "s"))


def size(value: int | None) -> str:
    """Return a number of bytes with a unit; "?" for None."""
    if value is None:
        return "?"
    for limit, unit in _SIZES:
        if value >= limit:
            return f"{value / limit:.1f} {unit}"
    return f"{value} B"


def duration(ms: int | None) -> str:
    """Return milliseconds with the largest fitting unit; "-" for None or a negative number."""
    if ms is None or ms < 0:
        return "-"
    for limit, unit in _DURATIONS:
        if ms >= limit:
            return f"{ms / limit:.1f} {unit}"
    return f"{ms} ms"


__all__ = ["duration", "size"]

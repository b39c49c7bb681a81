"""Sizes, durations and numbers as texts with units or nouns, for the terminal and for reports."""

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


def counted(number: int | None, noun: str, plural: str | None = None) -> str:
    """Return a number with its noun, and maybe its verb: 1 file, 1 entry waits, 2 entries wait; "?" for None."""
    return f"{'?' if number is None else format(number, ',')} {noun if number == 1 else plural or noun + 's'}"

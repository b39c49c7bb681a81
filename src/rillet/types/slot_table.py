"""Scans of a list whose elements have positions (slots): the members of a sorted set (ZSCAN).

A removal moves the last element into the gap. A scan iterates over the slots from the last one down: an element only
ever moves to a lower slot, so an element that exists during the whole scan is returned at least once.
"""

from __future__ import annotations

from typing import TypeVar

T = TypeVar("T")


def scan_slots(items: list[T], cursor: int, count: int) -> tuple[int, list[T]]:
    """Return the next cursor (0 at the end) and up to `count` items that precede the slot `cursor` (0: all slots)."""
    stop = min(cursor, len(items)) if cursor else len(items)
    start = max(stop - count, 0)
    return start, items[start:stop]

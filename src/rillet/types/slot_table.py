"""A list of distinct byte strings with the position (slot) of each: the members of a set, the fields of a hash.

Adding, removing, finding, and picking a random string are O(1). A removal moves the last string into the gap. A scan
(SSCAN, HSCAN, ZSCAN) iterates over the slots from the last one down: a string only ever moves to a lower slot, so a
string that exists during the whole scan is returned at least once. A dict alone would need a walk to find a random
string or to resume a scan.
"""

from __future__ import annotations

import sys
from typing import TypeVar

T = TypeVar("T")


class SlotTable:
    """Distinct byte strings (`items`) and the index of each in this list (`slot_of`)."""

    __slots__ = ("items", "slot_of")

    def __init__(self, items: list[bytes]) -> None:
        self.items = items
        self.slot_of = {item: slot for slot, item in enumerate(items)}

    def add(self, item: bytes) -> bool:
        """Append a string. Return False if it already exists."""
        if item in self.slot_of:
            return False
        self.slot_of[item] = len(self.items)
        self.items.append(item)
        return True

    def remove(self, item: bytes) -> bool:
        """Remove a string; the last string takes its slot. Return False if it does not exist."""
        slot = self.slot_of.pop(item, None)
        if slot is None:
            return False
        last = self.items.pop()
        if slot < len(self.items):
            self.items[slot] = last
            self.slot_of[last] = slot
        return True

    def copy(self) -> SlotTable:
        """Return a copy with the same slots, without hashing the items again. O(n)"""
        twin = SlotTable([])
        twin.items, twin.slot_of = self.items[:], self.slot_of.copy()
        return twin

    def __sizeof__(self) -> int:
        """Return the size in bytes, without the strings themselves."""
        # CPython allocates an int object for each slot number above 256.
        numbers = max(0, len(self.items) - 257) * sys.getsizeof(1 << 29)
        return object.__sizeof__(self) + sys.getsizeof(self.items) + sys.getsizeof(self.slot_of) + numbers

    def check(self) -> None:
        """Raise AssertionError if a slot is wrong. O(n)"""
        assert len(self.slot_of) == len(self.items)
        assert all(self.items[slot] == item for item, slot in self.slot_of.items())


def scan_slots(items: list[T], cursor: int, count: int) -> tuple[int, list[T]]:
    """Return the next cursor (0 at the end) and up to `count` items that precede the slot `cursor` (0: all slots)."""
    stop = min(cursor, len(items)) if cursor else len(items)
    start = max(stop - count, 0)
    return start, items[start:stop]

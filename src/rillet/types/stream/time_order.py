"""A linked list of one group's pending entries by delivery time. Released entries (XNACK) come first.

    head ─► released ─► ... ─► zone ─► oldest ─► ... ─► newest = tail

A slot is the number of a pending entry's record. The records contain the links (`PendingTable.earlier`, `later`); this
class contains the ends. `zone` is the last released slot; released slots are in the order of their release. Redis 8.4:
streamCG.pel_time_head and pel_time_tail; 8.8: pel_nack_tail.
"""

from __future__ import annotations

import sys

from rillet._cython import cython, public
from rillet.types.stream.pending import PendingTable

_NONE = cython.declare(cython.Py_ssize_t, 0xFFFFFFFF)


@cython.final
@cython.no_gc
@cython.cclass
class TimeOrder:
    """A doubly linked list of the slots of one group."""

    __slots__ = ("head", "released", "tail", "zone")
    head: public[cython.Py_ssize_t]
    tail: public[cython.Py_ssize_t]
    zone: public[cython.Py_ssize_t]
    released: public[cython.Py_ssize_t]

    def __init__(self) -> None:
        self.clear()

    @cython.ccall
    def clear(self) -> cython.bint:
        """Remove all slots."""
        self.head = self.tail = self.zone = _NONE
        self.released = 0
        return True

    def renumber(self, new: bytearray) -> None:
        """Replace the slots by their new numbers, which `PendingTable.pack` returned."""
        self.head, self.tail, self.zone = (
            slot if slot == _NONE else int.from_bytes(new[4 * slot : 4 * slot + 4], sys.byteorder)
            for slot in (self.head, self.tail, self.zone)
        )

    @cython.cfunc
    def _insert_after(self, table: PendingTable, after: cython.Py_ssize_t, slot: cython.Py_ssize_t) -> cython.bint:
        """Link a slot after the slot `after`, or at the head of the list if `after` is _NONE."""
        if after == _NONE:
            later: cython.Py_ssize_t = self.head
            self.head = slot
        else:
            later = table.later(after)
            table.set_later(after, slot)
        if later == _NONE:
            self.tail = slot
        else:
            table.set_earlier(later, slot)
        table.set_earlier(slot, after)
        table.set_later(slot, later)
        return True

    @cython.ccall
    def append(self, table: PendingTable, slot: cython.Py_ssize_t) -> cython.bint:
        """Add the slot of an entry that is delivered now, at the end of the list. O(1)"""
        return self._insert_after(table, self.tail, slot)

    @cython.ccall
    def insert(self, table: PendingTable, slot: cython.Py_ssize_t) -> cython.bint:
        """Insert a slot by its delivery time, after equal times. O(1) for the newest time, else O(distance to an end).

        Redis (pelListInsertSorted) searches only from the newest end. If times rise, the position is the same.
        """
        time: cython.longlong = table.delivery_time(slot)
        back: cython.Py_ssize_t = self.tail
        if self.head == _NONE or time >= table.delivery_time(back):
            return self._insert_after(table, back, slot)
        forth: cython.Py_ssize_t = self.head if self.zone == _NONE else table.later(self.zone)
        while back != self.zone and table.delivery_time(back) > time:
            if forth == _NONE or table.delivery_time(forth) > time:
                back = self.zone if forth == _NONE else table.earlier(forth)
                break
            forth = table.later(forth)
            back = table.earlier(back)
        return self._insert_after(table, back, slot)

    @cython.ccall
    def release(self, table: PendingTable, slot: cython.Py_ssize_t) -> cython.bint:
        """Add a slot after the last released one, and set its time to 0. O(1) Redis 8.8: pelListInsertNacked"""
        table.set_time(slot, 0)
        self._insert_after(table, self.zone, slot)
        self.zone = slot
        self.released += 1
        return True

    @cython.ccall
    def remove(self, table: PendingTable, slot: cython.Py_ssize_t, released: cython.bint) -> cython.bint:
        """Unlink a slot. `released` must be True for a released entry. O(1)"""
        earlier: cython.Py_ssize_t = table.earlier(slot)
        later: cython.Py_ssize_t = table.later(slot)
        if released:
            self.released -= 1
        if slot == self.zone:
            self.zone = earlier
        if earlier == _NONE:
            self.head = later
        else:
            table.set_later(earlier, later)
        if later == _NONE:
            self.tail = earlier
        else:
            table.set_earlier(later, earlier)
        return True

    @cython.ccall
    def contains(self, table: PendingTable, slot: cython.Py_ssize_t) -> cython.bint:
        """Return whether the list contains a slot of the group. Slots added by `Group.load` are not in the list yet."""
        return slot == self.head or table.earlier(slot) != _NONE

    def slots(self, table: PendingTable) -> list[int]:
        """Return all slots in order. Raise AssertionError if the links are inconsistent."""
        slots: list[int] = []
        before = _NONE
        slot = self.head
        while slot != _NONE:
            assert table.earlier(slot) == before, "earlier is the inverse of later"
            assert len(slots) < table.slots, "the list ends"
            slots.append(slot)
            before, slot = slot, table.later(slot)
        assert self.tail == before, "the list ends at its tail"
        return slots

"""Pending entries: one table of records for each stream, and sorted indexes into it.

A pending entry is a stream entry that was delivered to a consumer and not yet acknowledged (Redis: streamNACK). It is
stored as a record of 52 bytes in the stream's `PendingTable`. The number of a record in the table is called its *slot*.

     0        8        16              24               32      36      40      44        48
    +--------+--------+---------------+----------------+-------+-------+-------+---------+-------+
    | ms     | seq    | delivery time | delivery count | owner | next  | prev  | earlier | later |
    +--------+--------+---------------+----------------+-------+-------+-------+---------+-------+
      the entry's ID    ms              unsigned         number  same ID in     by time of
                                                                 other groups   delivery

Three indexes contain each slot: the group's (its PEL), the consumer's (its PEL), and the stream's `refs`, which finds
the groups that have an entry pending. Each is a `PendingIndex`: slots of four bytes, sorted by ID, on pages of at most
256 slots. The first IDs of the pages are in one array for the binary search. If an entry is pending in several groups,
`refs` contains one of its slots, and next and prev link the others. The entries of a group are also linked by time of
delivery (`TimeOrder`); entries released by XNACK come first.

    bytes per pending entry   52 + 3 x 4 and the free space of the pages: 65 to 70 in practice
    Redis 7.0.15              136 (two radix trees and an allocation), without references
    Redis 8.6.3               315, with references

Entries are delivered by rising ID, so an index usually grows at its end, and an append compares the new ID with the
last slot only. Entries are mostly acknowledged in order of delivery, so each index remembers the position of its last
search (the *finger*) and tries it first. Any other search is binary: first for the page, then on the page. There it
starts at the position that the ID would have if times rose evenly, because each record that it reads costs a cache miss
in a large table. These misses were a fifth of the time of XCLAIM with a million pending entries.

Each page has a *bound*, an ID that is at most its first ID and greater than the last ID of the preceding page.
Invariants (`check`): IDs rise strictly within an index; no page is empty or has more than 256 slots; bounds are
correct; every slot of an index is in use.

Costs: append O(1); find, insert and remove O(log n), plus moving at most 1 KB, plus 16 bytes per page if a page is
added or removed. A page that is less than a quarter full is merged with a neighbour if both fit into half a page, so
that a few entries that are never acknowledged do not each keep a page. A table that is mostly free is packed
(`Stream.tidy_pending`). An index does not refer to its table, which is a parameter instead: without reference cycles a
stream is freed when it is deleted, not by the garbage collector. Rejected: an object per entry in two radix trees (330
bytes); references in a third radix tree (Redis: 179 bytes more); no index of references, because a trim would have to
search every group for each entry.
"""

from __future__ import annotations

import sys
from typing import Any

from rillet._cython import cython, readonly
from rillet.structs.memory import copy_slice

if cython.compiled:
    from cython.cimports.libc.string import memcpy

_RECORD = cython.declare(cython.Py_ssize_t, 52)  # the size of a record in bytes
_SLOTS = cython.declare(cython.Py_ssize_t, 256)  # the maximum number of slots on a page of an index
_NONE = cython.declare(cython.Py_ssize_t, 0xFFFFFFFF)
_SMALL = cython.declare(cython.Py_ssize_t, 1024)  # a table with at most this many slots is never packed

# The offsets of the fields in a record.
_TIME = cython.declare(cython.Py_ssize_t, 16)
_COUNT = cython.declare(cython.Py_ssize_t, 24)
_OWNER = cython.declare(cython.Py_ssize_t, 32)
_NEXT = cython.declare(cython.Py_ssize_t, 36)
_PREV = cython.declare(cython.Py_ssize_t, 40)
_EARLIER = cython.declare(cython.Py_ssize_t, 44)
_LATER = cython.declare(cython.Py_ssize_t, 48)


@cython.cfunc
@cython.inline
def _get64(buf: bytearray, pos: cython.Py_ssize_t) -> cython.ulonglong:
    value: cython.ulonglong = 0
    if pos < 0 or pos > len(buf) - 8:
        raise IndexError("pending entries: a read would exceed the table")
    if cython.compiled:
        fr: cython.p_uchar = buf
        memcpy(cython.address(value), fr + pos, 8)
        return value
    return int.from_bytes(buf[pos : pos + 8], sys.byteorder)


@cython.cfunc
@cython.inline
def _put64(buf: bytearray, pos: cython.Py_ssize_t, value: cython.ulonglong) -> cython.bint:
    if pos < 0 or pos > len(buf) - 8:
        raise IndexError("pending entries: a write would exceed the table")
    if cython.compiled:
        to: cython.p_uchar = buf
        memcpy(to + pos, cython.address(value), 8)
    else:
        buf[pos : pos + 8] = value.to_bytes(8, sys.byteorder)
    return True


@cython.cfunc
@cython.inline
def _get32(buf: bytearray, pos: cython.Py_ssize_t) -> cython.Py_ssize_t:
    value: cython.uint = 0
    if pos < 0 or pos > len(buf) - 4:
        raise IndexError("pending entries: a read would exceed the table")
    if cython.compiled:
        fr: cython.p_uchar = buf
        memcpy(cython.address(value), fr + pos, 4)
        return value
    return int.from_bytes(buf[pos : pos + 4], sys.byteorder)


@cython.cfunc
@cython.inline
def _put32(buf: bytearray, pos: cython.Py_ssize_t, number: cython.Py_ssize_t) -> cython.bint:
    # Compiled, the cast masks; a mask of 32 bits would be a Python object.
    value: cython.uint = cython.cast(cython.uint, number) if cython.compiled else number & 0xFFFFFFFF
    if pos < 0 or pos > len(buf) - 4:
        raise IndexError("pending entries: a write would exceed the table")
    if cython.compiled:
        to: cython.p_uchar = buf
        memcpy(to + pos, cython.address(value), 4)
    else:
        buf[pos : pos + 4] = number.to_bytes(4, sys.byteorder)
    return True


@cython.cfunc
@cython.inline
def _id(ms: cython.ulonglong, seq: cython.ulonglong) -> bytearray:
    """Return an ID as two 8-byte numbers in native byte order, as records and page bounds store it."""
    key: bytearray = bytearray(16)
    _put64(key, 0, ms)
    _put64(key, 8, seq)
    return key


@cython.final
@cython.no_gc
@cython.cclass
class PendingPage:
    """One page of an index: slots sorted by ID, four bytes each."""

    __slots__ = ("buf", "count")
    buf: readonly[bytearray]
    count: readonly[cython.Py_ssize_t]

    def __init__(self, room: cython.Py_ssize_t) -> None:
        self.buf = bytearray(4 * room)
        self.count = 0

    @cython.cfunc
    def insert(self, pos: cython.Py_ssize_t, slot: cython.Py_ssize_t) -> cython.bint:
        """Insert a slot at a position of a page that is not full."""
        if 4 * self.count == len(self.buf):
            self.buf.extend(bytes(min(len(self.buf), 4 * _SLOTS - len(self.buf))))
        if pos < self.count:
            copy_slice(self.buf, 4 * pos + 4, self.buf, 4 * pos, 4 * (self.count - pos))
        _put32(self.buf, 4 * pos, slot)
        self.count += 1
        return True

    @cython.cfunc
    def remove(self, pos: cython.Py_ssize_t) -> cython.bint:
        """Remove the slot at a position."""
        self.count -= 1
        if pos < self.count:
            copy_slice(self.buf, 4 * pos, self.buf, 4 * pos + 4, 4 * (self.count - pos))
        return True

    @cython.cfunc
    def move_from(self, other: PendingPage, start: cython.Py_ssize_t) -> cython.bint:
        """Move slots from another page, those at position `start` and after, to the end of this page."""
        moved: cython.Py_ssize_t = other.count - start
        if 4 * (self.count + moved) > len(self.buf):
            self.buf.extend(bytes(4 * (self.count + moved) - len(self.buf)))
        copy_slice(self.buf, 4 * self.count, other.buf, 4 * start, 4 * moved)
        self.count += moved
        other.count = start
        return True


@cython.final
@cython.cclass
class PendingTable:
    """The pending entries of all groups of one stream: an array of records, and the index `refs`.

    Pass only slots that are in use: the record of a free slot has no valid content.
    """

    __slots__ = ("buf", "count", "free", "owners", "refs", "slots", "spare_owners")
    buf: readonly[bytearray]
    count: readonly[cython.Py_ssize_t]  # number of slots in use
    slots: readonly[cython.Py_ssize_t]  # number of all slots, in use or free
    free: readonly[cython.Py_ssize_t]  # the first free slot; the field `later` of each free slot links the next one
    owners: readonly[list[Any]]
    spare_owners: readonly[list[int]]
    refs: readonly[PendingIndex]

    def __init__(self) -> None:
        self.buf = bytearray()
        self.count = 0
        self.slots = 0
        self.free = _NONE
        self.owners = []
        self.spare_owners = []
        self.refs = PendingIndex()

    # -- the fields of a record

    @cython.ccall
    @cython.exceptval(-1, check=True)
    def ms(self, slot: cython.Py_ssize_t) -> cython.ulonglong:
        """Return the milliseconds of a pending entry's ID."""
        return _get64(self.buf, slot * _RECORD)

    @cython.ccall
    @cython.exceptval(-1, check=True)
    def seq(self, slot: cython.Py_ssize_t) -> cython.ulonglong:
        """Return the sequence number of a pending entry's ID."""
        return _get64(self.buf, slot * _RECORD + 8)

    @cython.ccall
    @cython.exceptval(-1, check=True)
    def delivery_time(self, slot: cython.Py_ssize_t) -> cython.longlong:
        """Return the time of the entry's last delivery in ms; 0 if the entry was released (XNACK)."""
        value: cython.ulonglong = _get64(self.buf, slot * _RECORD + _TIME)
        if cython.compiled:
            return cython.cast(cython.longlong, value)
        return value - (1 << 64) if value >> 63 else value

    @cython.ccall
    @cython.exceptval(-1, check=True)
    def delivery_count(self, slot: cython.Py_ssize_t) -> cython.ulonglong:
        """Return how often a pending entry was delivered."""
        return _get64(self.buf, slot * _RECORD + _COUNT)

    @cython.ccall
    def set_count(self, slot: cython.Py_ssize_t, count: cython.ulonglong) -> cython.bint:
        """Set the delivery count of a pending entry."""
        return _put64(self.buf, slot * _RECORD + _COUNT, count)

    @cython.ccall
    def set_time(self, slot: cython.Py_ssize_t, time: cython.longlong) -> cython.bint:
        """Set the time of the entry's last delivery in ms. The caller moves the slot in the group's `TimeOrder`."""
        if cython.compiled:
            return _put64(self.buf, slot * _RECORD + _TIME, cython.cast(cython.ulonglong, time))
        return _put64(self.buf, slot * _RECORD + _TIME, time & 0xFFFF_FFFF_FFFF_FFFF)

    @cython.ccall
    def owner(self, slot: cython.Py_ssize_t) -> Any:
        """Return the consumer that owns a pending entry, or the group's `nobody` if the entry was released."""
        return self.owners[_get32(self.buf, slot * _RECORD + _OWNER)]

    @cython.ccall
    def owner_number(self, slot: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Return the number of the consumer that owns the entry (see `add_owner`)."""
        return _get32(self.buf, slot * _RECORD + _OWNER)

    @cython.ccall
    def set_owner(self, slot: cython.Py_ssize_t, number: cython.Py_ssize_t) -> cython.bint:
        """Set the consumer that owns the entry, by its number (`add_owner`)."""
        return _put32(self.buf, slot * _RECORD + _OWNER, number)

    @cython.ccall
    def compare(self, slot: cython.Py_ssize_t, ms: cython.ulonglong, seq: cython.ulonglong) -> cython.Py_ssize_t:
        """Compare a slot's ID with an ID: -2 if the slot's is smaller (-1 signals an exception), 0 if equal, else 1."""
        at: cython.Py_ssize_t = slot * _RECORD
        mine: cython.ulonglong = _get64(self.buf, at)
        if mine == ms:
            mine = _get64(self.buf, at + 8)
            ms = seq
        if mine == ms:
            return 0
        return 1 if mine > ms else -2

    @cython.ccall
    @cython.exceptval(-2, check=False)
    def next_by_time(self, slot: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Return the next slot in the group's list by time of delivery, or -1 after the last slot."""
        later: cython.Py_ssize_t = _get32(self.buf, slot * _RECORD + _LATER)
        return -1 if later == _NONE else later

    # -- links between the slots of a `TimeOrder`; 0xFFFFFFFF = the end of the list

    @cython.ccall
    def earlier(self, slot: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Return the previous slot in the group's list by time of delivery."""
        return _get32(self.buf, slot * _RECORD + _EARLIER)

    @cython.ccall
    def later(self, slot: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Return the following slot in the group's list by time of delivery; 0xFFFFFFFF after the last."""
        return _get32(self.buf, slot * _RECORD + _LATER)

    @cython.ccall
    def set_earlier(self, slot: cython.Py_ssize_t, other: cython.Py_ssize_t) -> cython.bint:
        """Set the previous slot in the group's list by time of delivery."""
        return _put32(self.buf, slot * _RECORD + _EARLIER, other)

    @cython.ccall
    def set_later(self, slot: cython.Py_ssize_t, other: cython.Py_ssize_t) -> cython.bint:
        """Set the following slot in the group's list by time of delivery."""
        return _put32(self.buf, slot * _RECORD + _LATER, other)

    # -- consumers that own records

    @cython.ccall
    def add_owner(self, owner: object) -> cython.Py_ssize_t:
        """Register a consumer and return its number, which records use to refer to it."""
        if self.spare_owners:
            number: cython.Py_ssize_t = self.spare_owners.pop()
            self.owners[number] = owner
            return number
        self.owners.append(owner)
        return len(self.owners) - 1

    @cython.ccall
    def remove_owner(self, number: cython.Py_ssize_t) -> cython.bint:
        """Unregister a consumer that owns no slot."""
        self.owners[number] = None
        self.spare_owners.append(number)
        return True

    # -- allocating and freeing slots

    @cython.ccall
    def new(
        self,
        ms: cython.ulonglong,
        seq: cython.ulonglong,
        time: cython.longlong,
        count: cython.ulonglong,
        owner: cython.Py_ssize_t,
    ) -> cython.Py_ssize_t:
        """Allocate a slot and add it to `refs`. The caller adds it to the other indexes and to the `TimeOrder`."""
        slot: cython.Py_ssize_t = self.free
        if slot == _NONE:
            slot = self.slots
            if slot >= _NONE:
                raise MemoryError("a stream holds at most 4,294,967,295 pending entries")
            if (slot + 1) * _RECORD > len(self.buf):
                # Grow the table by a sixteenth: doubling would leave up to half of a large table unused.
                self.buf.extend(bytes(_RECORD * (4 + slot // 16)))
            self.slots += 1
            at: cython.Py_ssize_t = slot * _RECORD
        else:
            at = slot * _RECORD
            self.free = _get32(self.buf, at + _LATER)
        _put64(self.buf, at, ms)
        _put64(self.buf, at + 8, seq)
        self.set_time(slot, time)
        _put64(self.buf, at + _COUNT, count)
        _put32(self.buf, at + _OWNER, owner)
        _put32(self.buf, at + _NEXT, _NONE)
        _put32(self.buf, at + _PREV, _NONE)
        _put32(self.buf, at + _EARLIER, _NONE)
        _put32(self.buf, at + _LATER, _NONE)
        self.count += 1
        self._refer(slot, ms, seq)
        return slot

    @cython.ccall
    def release(self, slot: cython.Py_ssize_t) -> cython.bint:
        """Free a slot and remove it from `refs`. The caller has removed it from the other indexes and `TimeOrder`."""
        self._unrefer(slot)
        self.count -= 1
        if self.count == 0:
            self.buf = bytearray()
            self.slots = 0
            self.free = _NONE
            return True
        _put32(self.buf, slot * _RECORD + _LATER, self.free)
        self.free = slot
        return True

    @cython.cfunc
    def _refer(self, slot: cython.Py_ssize_t, ms: cython.ulonglong, seq: cython.ulonglong) -> cython.bint:
        """Add a slot to the index `refs`. If `refs` has a slot with the same ID, link the new slot to that slot."""
        if self.refs.insert(self, slot, ms, seq):
            return True
        head: cython.Py_ssize_t = self.refs.found
        after: cython.Py_ssize_t = _get32(self.buf, head * _RECORD + _NEXT)
        _put32(self.buf, slot * _RECORD + _NEXT, after)
        _put32(self.buf, slot * _RECORD + _PREV, head)
        _put32(self.buf, head * _RECORD + _NEXT, slot)
        if after != _NONE:
            _put32(self.buf, after * _RECORD + _PREV, slot)
        return True

    @cython.cfunc
    def _unrefer(self, slot: cython.Py_ssize_t) -> cython.bint:
        """Remove a slot from the index `refs`. The next slot with the same ID, if there is one, replaces it there."""
        at: cython.Py_ssize_t = slot * _RECORD
        after: cython.Py_ssize_t = _get32(self.buf, at + _NEXT)
        before: cython.Py_ssize_t = _get32(self.buf, at + _PREV)
        if before != _NONE:
            _put32(self.buf, before * _RECORD + _NEXT, after)
        if after != _NONE:
            _put32(self.buf, after * _RECORD + _PREV, before)
        if before != _NONE:
            return True
        if after != _NONE:
            return self.refs.replace(self, slot, after)
        return self.refs.remove(self, slot)

    @cython.ccall
    @cython.exceptval(-2, check=False)
    def first_reference(self, ms: cython.ulonglong, seq: cython.ulonglong) -> cython.Py_ssize_t:
        """Return a slot of the entry in any group, or -1 if the entry is not pending in any group."""
        return self.refs.find(self, ms, seq)

    # -- packing the table

    @cython.ccall
    def wants_packing(self) -> cython.bint:
        """Return whether to pack the table: it is large, and more than three quarters of its slots are free.

        Packing visits every consumer, so a table with fewer slots than consumers is not packed.
        """
        return self.slots > _SMALL + len(self.owners) and 4 * self.count < self.slots

    @cython.ccall
    def pack(self, indexes: list[Any]) -> bytearray:
        """Remove all free slots and renumber the others. Return the new number of each old slot, four bytes per slot.

        indexes: the indexes of all groups and consumers. The caller renumbers all other uses of slots. O(slots)
        """
        old: bytearray = self.buf
        # Allocate everything first: running out of memory must change nothing.
        new: bytearray = bytearray(4 * self.slots)
        packed: bytearray = bytearray(_RECORD * self.count)
        index: PendingIndex
        page: PendingPage
        pos: cython.Py_ssize_t
        number: cython.Py_ssize_t = 0
        for page in self.refs.pages:
            for pos in range(page.count):
                slot: cython.Py_ssize_t = _get32(page.buf, 4 * pos)
                while slot != _NONE:
                    _put32(new, 4 * slot, number)
                    copy_slice(packed, number * _RECORD, old, slot * _RECORD, _RECORD)
                    number += 1
                    slot = _get32(old, slot * _RECORD + _NEXT)
        for number in range(self.count):
            for pos in range(_NEXT, _RECORD, 4):
                slot = _get32(packed, number * _RECORD + pos)
                if slot != _NONE:
                    _put32(packed, number * _RECORD + pos, _get32(new, 4 * slot))
        self.buf = packed
        self.slots = self.count
        self.free = _NONE
        for index in indexes:
            index.renumber(new)
        self.refs.renumber(new)
        return new

    def check(self) -> None:
        """Raise AssertionError with the first broken invariant of the table or of `refs`. O(slots)"""
        self.refs.check(self)
        count = 0
        for slot in self.refs.slots():
            before = _NONE
            key = (self.ms(slot), self.seq(slot))
            while slot != _NONE:
                assert slot < self.slots, "a slot is within the table"
                assert (self.ms(slot), self.seq(slot)) == key, "linked slots have the same ID"
                assert _get32(self.buf, slot * _RECORD + _PREV) == before, "prev is the inverse of next"
                assert self.owners[_get32(self.buf, slot * _RECORD + _OWNER)] is not None, "a slot has an owner"
                count += 1
                before, slot = slot, _get32(self.buf, slot * _RECORD + _NEXT)
        assert count == self.count, "every slot in use is in refs"
        unused = 0
        slot = self.free
        while slot != _NONE:
            unused += 1
            assert unused <= self.slots, "the list of free slots ends"
            slot = _get32(self.buf, slot * _RECORD + _LATER)
        assert unused + self.count == self.slots, "every slot is in use or free"


# These empty objects are shared by all indexes that have no pages or no bounds. They are never changed.
_NO_PAGES = cython.declare(list, [])
_NO_BOUNDS = cython.declare(bytearray, bytearray())


@cython.final
@cython.no_gc
@cython.cclass
class PendingIndex:
    """Slots sorted by ID; each ID occurs once."""

    __slots__ = ("at_page", "at_pos", "bounds", "count", "found", "pages", "version")
    pages: readonly[list[PendingPage]]
    # `bounds` has an ID of 16 bytes per page: at most the page's first ID, and greater than the last ID of the page
    # before it. A single page needs no bound. Empty indexes share `_NO_PAGES` and `_NO_BOUNDS`, which saves memory.
    bounds: readonly[bytearray]
    count: readonly[cython.Py_ssize_t]
    version: readonly[cython.longlong]  # incremented when slots move, so that iterators search their position again
    found: readonly[cython.Py_ssize_t]  # set when `insert` returns False: the slot that already has the ID
    at_page: readonly[cython.Py_ssize_t]  # page at which the last search ended (the finger)
    at_pos: readonly[cython.Py_ssize_t]

    def __init__(self) -> None:
        self.pages = _NO_PAGES
        self.bounds = _NO_BOUNDS
        self.count = 0
        self.version = 0
        self.found = -1
        self.at_page = 0
        self.at_pos = 0

    def __len__(self) -> int:
        return self.count

    # -- searching the index

    @cython.cfunc
    def locate(self, table: PendingTable, ms: cython.ulonglong, seq: cython.ulonglong) -> cython.bint:
        """Return whether the index contains an ID. Set at_page and at_pos to the position at which the ID belongs."""
        npages: cython.Py_ssize_t = len(self.pages)
        if npages == 0:
            self.at_page = self.at_pos = 0
            return False
        if self.at_page < npages:  # entries are mostly acknowledged in order, so try the last position first
            page: PendingPage = cython.cast(PendingPage, self.pages[self.at_page])
            if self.at_pos < page.count and table.compare(_get32(page.buf, 4 * self.at_pos), ms, seq) == 0:
                return True
        low: cython.Py_ssize_t = 0
        high: cython.Py_ssize_t = npages - 1
        while low < high:  # find the last page whose bound is at most the ID
            middle: cython.Py_ssize_t = (low + high + 1) // 2
            bound: cython.ulonglong = _get64(self.bounds, 16 * middle)
            if bound < ms or (bound == ms and _get64(self.bounds, 16 * middle + 8) <= seq):
                low = middle
            else:
                high = middle - 1
        self.at_page = low
        page = cython.cast(PendingPage, self.pages[low])
        low = 0
        high = page.count
        middle = self._guess(high, ms)
        step: cython.Py_ssize_t = 0
        # Each comparison reads a record, which is a cache miss in a large table. IDs mostly rise evenly, so compare
        # first at the position that an even distribution predicts, then at doubling distances from it, but never
        # further away than a binary search would.
        while low < high:
            order: cython.Py_ssize_t = table.compare(_get32(page.buf, 4 * middle), ms, seq)
            if order == 0:
                self.at_pos = middle
                return True
            if order < 0:
                low = middle + 1
                middle = min(low + step, (low + high) // 2)
            else:
                high = middle
                middle = max(high - 1 - step, (low + high) // 2)
            step = 2 * step + 1
        self.at_pos = low
        return False

    @cython.cfunc
    def _guess(self, count: cython.Py_ssize_t, ms: cython.ulonglong) -> cython.Py_ssize_t:
        """Predict the position of an ID on the page at_page, as if the page's times rose evenly."""
        if self.at_page + 1 >= len(self.pages):
            return count // 2
        first: cython.ulonglong = _get64(self.bounds, 16 * self.at_page)
        if ms < first:
            return 0
        ms -= first
        span: cython.ulonglong = _get64(self.bounds, 16 * self.at_page + 16) - first
        if ms >= span:  # the times on the page are nearly equal and predict no position
            return count // 2
        while span > 0xFFFF_FFFF_FFFF:  # so that the product below does not overflow
            span //= 256
            ms //= 256
        return min(count - 1, cython.cast(cython.Py_ssize_t, ms * count // span))

    @cython.ccall
    @cython.exceptval(-2, check=False)
    def find(self, table: PendingTable, ms: cython.ulonglong, seq: cython.ulonglong) -> cython.Py_ssize_t:
        """Return the slot with the given ID, or -1 if the index does not contain the ID. O(log n)"""
        if not self.locate(table, ms, seq):
            return -1
        page: PendingPage = cython.cast(PendingPage, self.pages[self.at_page])
        return _get32(page.buf, 4 * self.at_pos)

    @cython.ccall
    @cython.exceptval(-2, check=False)
    def edge(self, first: cython.bint) -> cython.Py_ssize_t:
        """Return the slot with the lowest ID if `first`, else the slot with the highest; -1 if the index is empty."""
        if self.count == 0:
            return -1
        if first:
            page: PendingPage = cython.cast(PendingPage, self.pages[0])
            return _get32(page.buf, 0)
        page = cython.cast(PendingPage, self.pages[len(self.pages) - 1])
        return _get32(page.buf, 4 * (page.count - 1))

    # -- changing the index

    @cython.ccall
    def insert(
        self, table: PendingTable, slot: cython.Py_ssize_t, ms: cython.ulonglong, seq: cython.ulonglong
    ) -> cython.bint:
        """Add a slot. If the index already contains its ID, return False and set `found`. O(log n), O(1) at the end"""
        npages: cython.Py_ssize_t = len(self.pages)
        if npages == 0:
            return self._add_page(table, slot, ms, seq)
        page: PendingPage = cython.cast(PendingPage, self.pages[npages - 1])
        if table.compare(_get32(page.buf, 4 * (page.count - 1)), ms, seq) < 0:
            if page.count == _SLOTS:
                return self._add_page(table, slot, ms, seq)
            page.insert(page.count, slot)
            self.count += 1
            return True
        if self.locate(table, ms, seq):
            page = cython.cast(PendingPage, self.pages[self.at_page])
            self.found = _get32(page.buf, 4 * self.at_pos)
            return False
        self.version += 1
        page = cython.cast(PendingPage, self.pages[self.at_page])
        if page.count == _SLOTS:
            page = self._split(table, page)
        if self.at_pos == 0 and self.bounds:  # the new slot is the page's first: its ID is the new bound
            _put64(self.bounds, 16 * self.at_page, ms)
            _put64(self.bounds, 16 * self.at_page + 8, seq)
        page.insert(self.at_pos, slot)
        self.count += 1
        return True

    @cython.cfunc
    def _add_page(
        self, table: PendingTable, slot: cython.Py_ssize_t, ms: cython.ulonglong, seq: cython.ulonglong
    ) -> cython.bint:
        """Append a page that contains one slot. The first page has room for 4 slots, as most indexes stay small."""
        page: PendingPage = PendingPage(_SLOTS if self.pages else 4)
        page.insert(0, slot)
        if self.pages:
            self._bound(table)
            self.bounds += _id(ms, seq)
            self.pages.append(page)
        else:
            self.pages = [page]
        self.count += 1
        return True

    @cython.cfunc
    def _bound(self, table: PendingTable) -> cython.bint:
        """Set the bound of the first page, before a second page is added: a single page has no bound."""
        page: PendingPage = cython.cast(PendingPage, self.pages[0])
        slot: cython.Py_ssize_t = _get32(page.buf, 0)
        if not self.bounds:
            self.bounds = _id(table.ms(slot), table.seq(slot))
        return True

    @cython.cfunc
    def _split(self, table: PendingTable, page: PendingPage) -> PendingPage:
        """Split the full page at_page into two; return the half that contains at_pos."""
        half: cython.Py_ssize_t = _SLOTS // 2
        upper: PendingPage = PendingPage(_SLOTS)
        self._bound(table)
        upper.move_from(page, half)
        self.pages.insert(self.at_page + 1, upper)
        first: cython.Py_ssize_t = _get32(upper.buf, 0)
        at = 16 * (self.at_page + 1)
        self.bounds[at:at] = _id(table.ms(first), table.seq(first))
        if self.at_pos <= half:
            return page
        self.at_page += 1
        self.at_pos -= half
        return upper

    @cython.ccall
    def remove(self, table: PendingTable, slot: cython.Py_ssize_t) -> cython.bint:
        """Remove a slot. Return False if the index does not contain it."""
        if not self.locate(table, table.ms(slot), table.seq(slot)):
            return False
        page: PendingPage = cython.cast(PendingPage, self.pages[self.at_page])
        if _get32(page.buf, 4 * self.at_pos) != slot:
            return False
        page.remove(self.at_pos)
        self.version += 1
        self.count -= 1
        if page.count == 0:
            self._drop_page()
        elif page.count < _SLOTS // 4 and len(self.pages) > 1 and not self._merge() and self.at_page > 0:
            # Merging moves this page's slots to the end of the preceding page. Move the search position with them.
            self.at_page -= 1
            at_pos: cython.Py_ssize_t = self.at_pos + cython.cast(PendingPage, self.pages[self.at_page]).count
            if self._merge():
                self.at_pos = at_pos
            else:
                self.at_page += 1
        return True

    @cython.ccall
    def replace(self, table: PendingTable, slot: cython.Py_ssize_t, other: cython.Py_ssize_t) -> cython.bint:
        """Replace a slot by another slot with the same ID. Return False if the index does not contain the ID."""
        if not self.locate(table, table.ms(slot), table.seq(slot)):
            return False
        page: PendingPage = cython.cast(PendingPage, self.pages[self.at_page])
        return _put32(page.buf, 4 * self.at_pos, other)

    @cython.cfunc
    def _drop_page(self) -> cython.bint:
        """Remove the page at_page. The search position moves to the start of the next page."""
        self.at_pos = 0
        if len(self.pages) == 1:
            self.pages = _NO_PAGES
            self.bounds = _NO_BOUNDS
            return True
        del self.pages[self.at_page]
        del self.bounds[16 * self.at_page : 16 * self.at_page + 16]
        return True

    @cython.cfunc
    def _merge(self) -> cython.bint:
        """Merge the page at_page with the next page. Return False if both together have too many slots."""
        page: PendingPage = cython.cast(PendingPage, self.pages[self.at_page])
        if self.at_page + 1 >= len(self.pages):
            return False
        after: PendingPage = cython.cast(PendingPage, self.pages[self.at_page + 1])
        if page.count + after.count > _SLOTS // 2:
            return False
        page.move_from(after, 0)
        del self.pages[self.at_page + 1]
        del self.bounds[16 * self.at_page + 16 : 16 * self.at_page + 32]
        return True

    @cython.ccall
    def clear(self) -> cython.bint:
        """Remove all slots."""
        self.pages = _NO_PAGES
        self.bounds = _NO_BOUNDS
        self.count = 0
        self.version += 1
        return True

    @cython.ccall
    def renumber(self, new: bytearray) -> cython.bint:
        """Replace every slot by its new number, which `PendingTable.pack` returned."""
        page: PendingPage
        pos: cython.Py_ssize_t
        self.version += 1
        for page in self.pages:
            for pos in range(page.count):
                _put32(page.buf, 4 * pos, _get32(new, 4 * _get32(page.buf, 4 * pos)))
        return True

    def slots(self) -> list[int]:
        """Return all slots sorted by ID. O(n)"""
        return [_get32(page.buf, 4 * pos) for page in self.pages for pos in range(page.count)]

    def check(self, table: PendingTable) -> None:
        """Verify the index: rising IDs, pages, bounds, count. Raise AssertionError with the broken invariant. O(n)"""
        assert not _NO_PAGES and not _NO_BOUNDS, "the shared empty list and bytes are empty"
        alone = len(self.pages) == 1 and not self.bounds
        assert alone or len(self.bounds) == 16 * len(self.pages), "every page has a bound, except a single page"
        before = (-1, -1)
        total = 0
        for number, page in enumerate(self.pages):
            assert 0 < page.count <= _SLOTS and 4 * page.count <= len(page.buf), "no page is empty or too full"
            bound = (0, 0)
            if not alone:
                bound = (_get64(self.bounds, 16 * number), _get64(self.bounds, 16 * number + 8))
            assert before < bound, "a page's bound is greater than the preceding page's IDs"
            for pos in range(page.count):
                slot = _get32(page.buf, 4 * pos)
                key = (table.ms(slot), table.seq(slot))
                assert before < key and bound <= key, "IDs rise, and none is smaller than its page's bound"
                before = key
            total += page.count
        assert total == self.count, "count is the number of slots"


@cython.final
@cython.cclass
class PendingIterator:
    """Iterates over an index by rising ID. After a change to the index it continues after the last ID.

    `next` sets the attributes slot, ms and seq.
    """

    __slots__ = ("_index", "_page", "_pos", "_version", "ms", "seq", "slot", "_inclusive", "_table")
    _table: PendingTable
    _index: PendingIndex
    _page: cython.Py_ssize_t
    _pos: cython.Py_ssize_t
    _version: cython.longlong
    _inclusive: cython.bint
    slot: readonly[cython.Py_ssize_t]
    ms: readonly[cython.ulonglong]
    seq: readonly[cython.ulonglong]

    def __init__(
        self, table: PendingTable, index: PendingIndex, ms: cython.ulonglong = 0, seq: cython.ulonglong = 0
    ) -> None:
        self._table = table
        self._index = index
        self.slot = -1
        self.seek(ms, seq)

    @cython.ccall
    def seek(self, ms: cython.ulonglong, seq: cython.ulonglong) -> cython.bint:
        """Move the iterator so that `next` returns the first ID that is at least the given one."""
        self.ms = ms
        self.seq = seq
        self._inclusive = True
        self._version = -1
        return True

    @cython.ccall
    def next(self) -> cython.bint:
        """Move to the next slot. Return False at the end."""
        index: PendingIndex = self._index
        if self._version != index.version:
            if index.locate(self._table, self.ms, self.seq) and not self._inclusive:
                index.at_pos += 1
            self._page = index.at_page
            self._pos = index.at_pos
            self._version = index.version
        while self._page < len(index.pages):
            page: PendingPage = cython.cast(PendingPage, index.pages[self._page])
            if self._pos < page.count:
                self.slot = _get32(page.buf, 4 * self._pos)
                self.ms = self._table.ms(self.slot)
                self.seq = self._table.seq(self.slot)
                self._pos += 1
                self._inclusive = False
                return True
            self._page += 1
            self._pos = 0
        self._version = -1  # search again next time: entries may be appended to the last page
        return False

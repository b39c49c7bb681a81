"""Pending entries: one table of records for a stream, and sorted indexes into it.

A delivered and unacknowledged entry (Redis calls it a NACK) is a *slot*: the number of a record of 52
bytes in the stream's `Pending`.

     0        8        16              24               32      36      40      44        48
    +--------+--------+---------------+----------------+-------+-------+-------+---------+-------+
    | ms     | seq    | delivery time | delivery count | owner | next  | prev  | earlier | later |
    +--------+--------+---------------+----------------+-------+-------+-------+---------+-------+
      the entry's ID    ms              unsigned         number  same ID in     by time of
                                                                 other groups   delivery

Three indexes lead to a slot: its group's (all that is pending there), its consumer's (that consumer's history),
and the stream's (`refs`: is this entry referenced at all?). Each is a `PendingIndex`: slots of
four bytes in the order of their IDs, on pages of at most 256, whose first IDs lie side by side for
the binary search. Entries that are pending in several groups hang on one slot of `refs` by next and
prev. Entries of a group are chained by time of delivery (`TimeOrder`); released ones (XNACK) come first.

    per pending entry    52 + 3 x 4 bytes, and what pages have to spare: 65 to 70 in practice
    Redis 7.0.15         136 (two radix trees and an allocation), without an index of references
    Redis 8.6.3          315, with it

Entries are delivered in rising order, so an index grows at its end: an append looks at the last slot
only. They are mostly acknowledged in the order in which they came, so every index remembers where it
found something last (the finger) and looks there first. Anything else is a binary search for the page, and on it
a search that begins where the ID should be if times rose evenly: a record that is looked at and is not the one is a
cache line fetched for nothing, and XCLAIM of any of a million took a fifth of its time for them.

Invariants (`check`): IDs rise strictly within an index; no page is empty or over-full; the ID noted for a page is
not behind its first slot's and beyond the last of the page before; every slot of an index is in use.

Costs: append O(1); find, insert and remove O(log n) and the move of at most 1 KB, with 16 bytes a page moved
where a page comes or goes. A page below a quarter joins either neighbour where both fit into a half: the few entries
that are never acknowledged do not each keep a page. A table that is mostly holes is packed (`Stream.tidy_pending`).
An index does not know its table, which is handed in: so nothing here refers in a ring, and a stream is
freed the moment it is dropped, without the garbage collector.
Rejected: an object per entry in two radix trees (330 bytes), and an index of references as a third tree
(Redis: 179 bytes more); no index of references at all, because a trim would ask every group for each entry.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

try:
    import cython
except ModuleNotFoundError:  # interpreted, Cython not installed
    from rillet import _cython as cython

if TYPE_CHECKING:  # C's own, known to the compiled module through the .pxd
    memcpy: Any
if not cython.compiled:  # compiled code has it as a C function, through the .pxd
    from rillet.structs.memory import copy_slice

RECORD_BYTES = 52
"""Bytes of one pending entry in the table."""
PAGE_SLOTS = 256
"""Most slots of one page of an index."""

_RECORD = cython.declare(cython.Py_ssize_t, 52)
_SLOTS = cython.declare(cython.Py_ssize_t, 256)
_NONE = cython.declare(cython.Py_ssize_t, 0xFFFFFFFF)
_SMALL = cython.declare(cython.Py_ssize_t, 1024)  # a table of no more slots is never packed

# Offsets in a record.
_TIME = cython.declare(cython.Py_ssize_t, 16)
_COUNT = cython.declare(cython.Py_ssize_t, 24)
_OWNER = cython.declare(cython.Py_ssize_t, 32)
_NEXT = cython.declare(cython.Py_ssize_t, 36)
_PREV = cython.declare(cython.Py_ssize_t, 40)
_EARLIER = cython.declare(cython.Py_ssize_t, 44)
_LATER = cython.declare(cython.Py_ssize_t, 48)


@cython.cfunc
@cython.inline
@cython.exceptval(-1, check=True)
def _get64(buf: bytearray, pos: cython.Py_ssize_t) -> cython.ulonglong:
    value: cython.ulonglong = 0
    if pos < 0 or pos > len(buf) - 8:
        raise IndexError("read outside the table")
    if cython.compiled:
        fr: cython.p_uchar = buf
        memcpy(cython.address(value), fr + pos, 8)  # noqa: F821
        return value
    return int.from_bytes(buf[pos : pos + 8], sys.byteorder)


@cython.cfunc
@cython.inline
@cython.exceptval(-1, check=False)
def _put64(buf: bytearray, pos: cython.Py_ssize_t, value: cython.ulonglong) -> cython.bint:
    if pos < 0 or pos > len(buf) - 8:
        raise IndexError("write outside the table")
    if cython.compiled:
        to: cython.p_uchar = buf
        memcpy(to + pos, cython.address(value), 8)  # noqa: F821
    else:
        buf[pos : pos + 8] = value.to_bytes(8, sys.byteorder)
    return True


@cython.cfunc
@cython.inline
@cython.exceptval(-1, check=False)
def _get32(buf: bytearray, pos: cython.Py_ssize_t) -> cython.Py_ssize_t:
    value: cython.uint = 0
    if pos < 0 or pos > len(buf) - 4:
        raise IndexError("read outside the table")
    if cython.compiled:
        fr: cython.p_uchar = buf
        memcpy(cython.address(value), fr + pos, 4)  # noqa: F821
        return value
    return int.from_bytes(buf[pos : pos + 4], sys.byteorder)


@cython.cfunc
@cython.inline
@cython.exceptval(-1, check=False)
def _put32(buf: bytearray, pos: cython.Py_ssize_t, number: cython.Py_ssize_t) -> cython.bint:
    value: cython.uint = number & 0xFFFFFFFF
    if pos < 0 or pos > len(buf) - 4:
        raise IndexError("write outside the table")
    if cython.compiled:
        to: cython.p_uchar = buf
        memcpy(to + pos, cython.address(value), 4)  # noqa: F821
    else:
        buf[pos : pos + 4] = number.to_bytes(4, sys.byteorder)
    return True


@cython.cfunc
@cython.inline
def _id(ms: cython.ulonglong, seq: cython.ulonglong) -> bytearray:
    """Return an ID as it stands in a record and in bounds."""
    key: bytearray = bytearray(16)
    _put64(key, 0, ms)
    _put64(key, 8, seq)
    return key


@cython.final
@cython.no_gc
@cython.cclass
class PendingPage:
    """Some slots of an index, in the order of their IDs, four bytes each."""

    __slots__ = ("buf", "count")
    buf: bytearray
    count: cython.Py_ssize_t

    def __init__(self, room: cython.Py_ssize_t) -> None:
        self.buf = bytearray(4 * room)
        self.count = 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def insert(self, pos: cython.Py_ssize_t, slot: cython.Py_ssize_t) -> cython.bint:
        """Put a slot at a position; the page is not full."""
        if 4 * self.count == len(self.buf):
            self.buf.extend(bytes(min(len(self.buf), 4 * _SLOTS - len(self.buf))))
        if pos < self.count:
            copy_slice(self.buf, 4 * pos + 4, self.buf, 4 * pos, 4 * (self.count - pos))
        _put32(self.buf, 4 * pos, slot)
        self.count += 1
        return True

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def remove(self, pos: cython.Py_ssize_t) -> cython.bint:
        """Take the slot at a position out."""
        self.count -= 1
        if pos < self.count:
            copy_slice(self.buf, 4 * pos, self.buf, 4 * pos + 4, 4 * (self.count - pos))
        return True

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def take(self, other: PendingPage, start: cython.Py_ssize_t) -> cython.bint:
        """Append the other page's slots from a position on, which leave it."""
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
    """The pending entries of one stream, of all its groups: records by slot, and the index of references.

    Functions that take a slot take one in use; they read garbage from one that is not.
    """

    __slots__ = ("buf", "count", "free", "owners", "refs", "slots", "spare_owners")
    buf: bytearray
    count: cython.Py_ssize_t  # slots in use
    slots: cython.Py_ssize_t  # slots that there are
    free: cython.Py_ssize_t  # head of the list of free slots, which hang together by `later`
    owners: list[Any]
    spare_owners: list[int]
    refs: PendingIndex

    def __init__(self) -> None:
        self.buf = bytearray()
        self.count = 0
        self.slots = 0
        self.free = _NONE
        self.owners = []
        self.spare_owners = []
        self.refs = PendingIndex()

    # -- fields

    @cython.ccall
    @cython.exceptval(-1, check=True)
    def ms(self, slot: cython.Py_ssize_t) -> cython.ulonglong:
        """Return the first half of the entry's ID."""
        return _get64(self.buf, slot * _RECORD)

    @cython.ccall
    @cython.exceptval(-1, check=True)
    def seq(self, slot: cython.Py_ssize_t) -> cython.ulonglong:
        """Return the second half of the entry's ID."""
        return _get64(self.buf, slot * _RECORD + 8)

    @cython.ccall
    @cython.exceptval(-1, check=True)
    def delivery_time(self, slot: cython.Py_ssize_t) -> cython.longlong:
        """Return when it was delivered last, in ms; 0 = released (XNACK)."""
        value: cython.ulonglong = _get64(self.buf, slot * _RECORD + _TIME)
        if cython.compiled:
            return cython.cast(cython.longlong, value)
        return value - (1 << 64) if value >> 63 else value

    @cython.ccall
    @cython.exceptval(-1, check=True)
    def delivery_count(self, slot: cython.Py_ssize_t) -> cython.ulonglong:
        """Return how often it was delivered."""
        return _get64(self.buf, slot * _RECORD + _COUNT)

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def set_count(self, slot: cython.Py_ssize_t, count: cython.ulonglong) -> cython.bint:
        """Set how often it was delivered."""
        return _put64(self.buf, slot * _RECORD + _COUNT, count)

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def set_time(self, slot: cython.Py_ssize_t, time: cython.longlong) -> cython.bint:
        """Set when it was delivered, in ms; its place in the order by time is `TimeOrder`'s to keep."""
        if cython.compiled:
            return _put64(self.buf, slot * _RECORD + _TIME, cython.cast(cython.ulonglong, time))
        return _put64(self.buf, slot * _RECORD + _TIME, time & 0xFFFF_FFFF_FFFF_FFFF)

    @cython.ccall
    def owner(self, slot: cython.Py_ssize_t) -> Any:
        """Return the consumer that it was delivered to; the group's `nobody` where that is gone."""
        return self.owners[_get32(self.buf, slot * _RECORD + _OWNER)]

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def owner_number(self, slot: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Return the number of the consumer that it was delivered to."""
        return _get32(self.buf, slot * _RECORD + _OWNER)

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def set_owner(self, slot: cython.Py_ssize_t, number: cython.Py_ssize_t) -> cython.bint:
        """Set the consumer that it was delivered to, by number (`add_owner`)."""
        return _put32(self.buf, slot * _RECORD + _OWNER, number)

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def compare(
        self, slot: cython.Py_ssize_t, ms: cython.ulonglong, seq: cython.ulonglong
    ) -> cython.Py_ssize_t:
        """Return below 0, 0 or above 0 as the slot's ID is before, at or beyond the given one; -1 only for before."""
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
        """Return the slot of the group that was delivered next, -1 behind the last."""
        later: cython.Py_ssize_t = _get32(self.buf, slot * _RECORD + _LATER)
        return -1 if later == _NONE else later

    # -- owners

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def add_owner(self, owner: object) -> cython.Py_ssize_t:
        """Return the number under which slots refer to the consumer from now on."""
        number: cython.Py_ssize_t
        if self.spare_owners:
            number = self.spare_owners.pop()
            self.owners[number] = owner
            return number
        self.owners.append(owner)
        return len(self.owners) - 1

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def remove_owner(self, number: cython.Py_ssize_t) -> cython.bint:
        """Forget a consumer, to whom no slot refers any more."""
        self.owners[number] = None
        self.spare_owners.append(number)
        return True

    # -- slots

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def new(
        self,
        ms: cython.ulonglong,
        seq: cython.ulonglong,
        time: cython.longlong,
        count: cython.ulonglong,
        owner: cython.Py_ssize_t,
    ) -> cython.Py_ssize_t:
        """Return a new slot, which is in `refs` and in no other index, and in no order by time."""
        slot: cython.Py_ssize_t = self.free
        at: cython.Py_ssize_t
        if slot == _NONE:
            slot = self.slots
            if slot >= _NONE:
                raise MemoryError("a stream holds at most 4,294,967,295 pending entries")
            if (slot + 1) * _RECORD > len(self.buf):
                # By a sixteenth, so that a large table does not carry half its size along.
                self.buf.extend(bytes(_RECORD * (4 + slot // 16)))
            self.slots += 1
            at = slot * _RECORD
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
    @cython.exceptval(-1, check=False)
    def release(self, slot: cython.Py_ssize_t) -> cython.bint:
        """Give up a slot that is in `refs`, in no other index any more, and in no order by time."""
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
    @cython.exceptval(-1, check=False)
    def _refer(self, slot: cython.Py_ssize_t, ms: cython.ulonglong, seq: cython.ulonglong) -> cython.bint:
        """Note in `refs` that the entry is pending: with a place of its own, or behind the one that has it."""
        head: cython.Py_ssize_t
        after: cython.Py_ssize_t
        if self.refs.insert(self, slot, ms, seq):
            return True
        head = self.refs.found
        after = _get32(self.buf, head * _RECORD + _NEXT)
        _put32(self.buf, slot * _RECORD + _NEXT, after)
        _put32(self.buf, slot * _RECORD + _PREV, head)
        _put32(self.buf, head * _RECORD + _NEXT, slot)
        if after != _NONE:
            _put32(self.buf, after * _RECORD + _PREV, slot)
        return True

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _unrefer(self, slot: cython.Py_ssize_t) -> cython.bint:
        """Take the slot out of `refs`; where it stands for others, the next of them takes its place."""
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
        """Return a slot of the entry in whatever group, -1 where it is pending in none."""
        return self.refs.find(self, ms, seq)

    # -- packing

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def wants_packing(self) -> cython.bint:
        """Say whether three quarters of a large table are holes.

        Packing looks at every consumer: a table that has fewer slots than there are of those stays.
        """
        return self.slots > _SMALL + len(self.owners) and 4 * self.count < self.slots

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def pack(self, orders: list[Any], indexes: list[Any]) -> cython.bint:
        """Give the slots in use new numbers without holes, in `refs`, the orders and the indexes. O(slots)

        These must be all that refer to the table; slots held elsewhere are void afterwards.
        """
        old: bytearray = self.buf
        # Of each slot its new number. All memory is taken before anything changes.
        new: bytearray = bytearray(4 * self.slots)
        packed: bytearray = bytearray(_RECORD * self.count)
        order: TimeOrder
        index: PendingIndex
        page: PendingPage
        pos: cython.Py_ssize_t
        slot: cython.Py_ssize_t
        number: cython.Py_ssize_t = 0
        for page in self.refs.pages:
            for pos in range(page.count):
                slot = _get32(page.buf, 4 * pos)
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
        for order in orders:
            order.renumber(new)
        for index in indexes:
            index.renumber(new)
        return self.refs.renumber(new)

    def check(self) -> None:
        """Verify the table and the index of references. O(slots); AssertionError names what does not hold."""
        self.refs.check(self)
        seen = 0
        for slot in self.refs.slots():
            before = _NONE
            key = (self.ms(slot), self.seq(slot))
            while slot != _NONE:
                assert slot < self.slots, "a slot of the table"
                assert (self.ms(slot), self.seq(slot)) == key, "entries that hang together have one ID"
                assert _get32(self.buf, slot * _RECORD + _PREV) == before, "prev leads back"
                assert self.owners[_get32(self.buf, slot * _RECORD + _OWNER)] is not None, "a slot has an owner"
                seen += 1
                before, slot = slot, _get32(self.buf, slot * _RECORD + _NEXT)
        assert seen == self.count, "every slot in use is referred to"
        holes = 0
        slot = self.free
        while slot != _NONE:
            holes += 1
            assert holes <= self.slots, "the list of free slots ends"
            slot = _get32(self.buf, slot * _RECORD + _LATER)
        assert holes + self.count == self.slots, "every slot is in use or free"


# What an index without pages and bounds has; nobody changes them.
_NO_PAGES = cython.declare(list, [])
_NO_BOUNDS = cython.declare(bytearray, bytearray())


@cython.final
@cython.no_gc
@cython.cclass
class PendingIndex:
    """Slots in the order of their IDs, each ID once; `len()` tells how many."""

    __slots__ = ("at_page", "at_pos", "bounds", "count", "found", "pages", "version")
    pages: list[PendingPage]
    # For each page 16 bytes, an ID not behind its first and beyond the last of the page before; a single page may be
    # without. What has no pages, or no bounds, has `_NO_PAGES` and `_NO_BOUNDS`: most consumers need neither.
    bounds: bytearray
    count: cython.Py_ssize_t
    version: cython.longlong  # changes whenever positions do
    found: cython.Py_ssize_t  # after `insert` gave False: the slot that has the ID
    at_page: cython.Py_ssize_t  # where the last search ended: the finger
    at_pos: cython.Py_ssize_t

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

    # -- searching

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def locate(self, table: PendingTable, ms: cython.ulonglong, seq: cython.ulonglong) -> cython.bint:
        """Set at_page and at_pos to the first slot not before the ID, or behind its page's last; is it there?"""
        npages: cython.Py_ssize_t = len(self.pages)
        page: PendingPage
        low: cython.Py_ssize_t
        high: cython.Py_ssize_t
        middle: cython.Py_ssize_t
        order: cython.Py_ssize_t
        bound: cython.ulonglong
        if npages == 0:
            self.at_page = self.at_pos = 0
            return False
        if self.at_page < npages:  # the finger: acknowledging goes on where it was
            page = cython.cast(PendingPage, self.pages[self.at_page])
            if self.at_pos < page.count and table.compare(_get32(page.buf, 4 * self.at_pos), ms, seq) == 0:
                return True
        low = 0
        high = npages - 1
        while low < high:  # the last page whose bound is not beyond the ID
            middle = (low + high + 1) // 2
            bound = _get64(self.bounds, 16 * middle)
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
        # Every look at a slot is a look at its record, far away in a large table. IDs mostly rise evenly, so the first
        # look is where the ID should be, and the next ones are near it, at doubling distances, up to halving.
        while low < high:
            order = table.compare(_get32(page.buf, 4 * middle), ms, seq)
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
    @cython.exceptval(-1, check=False)
    def _guess(self, count: cython.Py_ssize_t, ms: cython.ulonglong) -> cython.Py_ssize_t:
        """Return about where on the page at at_page the ID's time is, as if times rose evenly up to the next page."""
        first: cython.ulonglong
        span: cython.ulonglong
        if self.at_page + 1 >= len(self.pages):
            return count // 2
        first = _get64(self.bounds, 16 * self.at_page)
        if ms < first:
            return 0
        ms -= first
        span = _get64(self.bounds, 16 * self.at_page + 16) - first
        if ms >= span:  # all of the page, and what is looked for, are of one millisecond, or nearly
            return count // 2
        while span > 0xFFFF_FFFF_FFFF:  # so that the product does not run over
            span //= 256
            ms //= 256
        return min(count - 1, cython.cast(cython.Py_ssize_t, ms * count // span))

    @cython.ccall
    @cython.exceptval(-2, check=False)
    def find(self, table: PendingTable, ms: cython.ulonglong, seq: cython.ulonglong) -> cython.Py_ssize_t:
        """Return the slot of the ID, -1 where there is none. O(log n)"""
        if not self.locate(table, ms, seq):
            return -1
        page: PendingPage = cython.cast(PendingPage, self.pages[self.at_page])
        return _get32(page.buf, 4 * self.at_pos)

    @cython.ccall
    @cython.exceptval(-2, check=False)
    def edge(self, first: cython.bint) -> cython.Py_ssize_t:
        """Return the slot of the lowest (else the highest) ID, -1 where there is none."""
        page: PendingPage
        if self.count == 0:
            return -1
        if first:
            page = cython.cast(PendingPage, self.pages[0])
            return _get32(page.buf, 0)
        page = cython.cast(PendingPage, self.pages[len(self.pages) - 1])
        return _get32(page.buf, 4 * (page.count - 1))

    # -- changing

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def insert(
        self, table: PendingTable, slot: cython.Py_ssize_t, ms: cython.ulonglong, seq: cython.ulonglong
    ) -> cython.bint:
        """Add a slot of the ID; False and its slot in `found` where the ID is there. O(1) at the end, else O(log n)"""
        npages: cython.Py_ssize_t = len(self.pages)
        page: PendingPage
        if npages == 0:
            return self._add_page(table, slot, ms, seq)
        page = cython.cast(PendingPage, self.pages[npages - 1])
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
        if self.at_pos == 0 and self.bounds:  # the only page that something before its bound comes to is the first
            _put64(self.bounds, 16 * self.at_page, ms)
            _put64(self.bounds, 16 * self.at_page + 8, seq)
        page.insert(self.at_pos, slot)
        self.count += 1
        return True

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _add_page(
        self, table: PendingTable, slot: cython.Py_ssize_t, ms: cython.ulonglong, seq: cython.ulonglong
    ) -> cython.bint:
        """Begin a page at the end; the first one starts small, since most indexes stay small."""
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
    @cython.exceptval(-1, check=False)
    def _bound(self, table: PendingTable) -> cython.bint:
        """Note the first ID of the first page, where that was alone and needed no bound."""
        page: PendingPage = cython.cast(PendingPage, self.pages[0])
        slot: cython.Py_ssize_t = _get32(page.buf, 0)
        if not self.bounds:
            self.bounds = _id(table.ms(slot), table.seq(slot))
        return True

    @cython.cfunc
    def _split(self, table: PendingTable, page: PendingPage) -> PendingPage:
        """Halve the full page at at_page and return the half that at_pos is in now."""
        half: cython.Py_ssize_t = _SLOTS // 2
        upper: PendingPage = PendingPage(_SLOTS)
        first: cython.Py_ssize_t
        self._bound(table)
        upper.take(page, half)
        self.pages.insert(self.at_page + 1, upper)
        first = _get32(upper.buf, 0)
        at = 16 * (self.at_page + 1)
        self.bounds[at:at] = _id(table.ms(first), table.seq(first))
        if self.at_pos <= half:
            return page
        self.at_page += 1
        self.at_pos -= half
        return upper

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def remove(self, table: PendingTable, slot: cython.Py_ssize_t) -> cython.bint:
        """Take a slot out; False where it is not there."""
        page: PendingPage
        if not self.locate(table, table.ms(slot), table.seq(slot)):
            return False
        page = cython.cast(PendingPage, self.pages[self.at_page])
        if _get32(page.buf, 4 * self.at_pos) != slot:
            return False
        page.remove(self.at_pos)
        self.version += 1
        self.count -= 1
        if page.count == 0:
            self._drop_page()
        elif page.count < _SLOTS // 4 and len(self.pages) > 1 and not self._merge() and self.at_page > 0:
            # The finger goes along, whatever it stands at.
            self.at_page -= 1
            at_pos: cython.Py_ssize_t = self.at_pos + cython.cast(PendingPage, self.pages[self.at_page]).count
            if self._merge():
                self.at_pos = at_pos
            else:
                self.at_page += 1
        return True

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def replace(self, table: PendingTable, slot: cython.Py_ssize_t, other: cython.Py_ssize_t) -> cython.bint:
        """Put another slot of the same ID into a slot's place; False where the slot is not there."""
        page: PendingPage
        if not self.locate(table, table.ms(slot), table.seq(slot)):
            return False
        page = cython.cast(PendingPage, self.pages[self.at_page])
        return _put32(page.buf, 4 * self.at_pos, other)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _drop_page(self) -> cython.bint:
        """Remove the page at at_page; the finger moves to the beginning of the next."""
        self.at_pos = 0
        if len(self.pages) == 1:
            self.pages = _NO_PAGES
            self.bounds = _NO_BOUNDS
            return True
        del self.pages[self.at_page]
        del self.bounds[16 * self.at_page : 16 * self.at_page + 16]
        return True

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _merge(self) -> cython.bint:
        """Let the page at at_page take over the next one's slots where both are sparse, else False."""
        page: PendingPage = cython.cast(PendingPage, self.pages[self.at_page])
        after: PendingPage
        if self.at_page + 1 >= len(self.pages):
            return False
        after = cython.cast(PendingPage, self.pages[self.at_page + 1])
        if page.count + after.count > _SLOTS // 2:
            return False
        page.take(after, 0)
        del self.pages[self.at_page + 1]
        del self.bounds[16 * self.at_page + 16 : 16 * self.at_page + 32]
        return True

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def clear(self) -> cython.bint:
        """Forget all slots."""
        self.pages = _NO_PAGES
        self.bounds = _NO_BOUNDS
        self.count = 0
        self.version += 1
        return True

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def renumber(self, new: bytearray) -> cython.bint:
        """Replace every slot by its new number, four bytes each (`Pending.pack`)."""
        page: PendingPage
        pos: cython.Py_ssize_t
        self.version += 1
        for page in self.pages:
            for pos in range(page.count):
                _put32(page.buf, 4 * pos, _get32(new, 4 * _get32(page.buf, 4 * pos)))
        return True

    def slots(self) -> list[int]:
        """Return all slots in the order of their IDs. O(n)"""
        return [_get32(page.buf, 4 * pos) for page in self.pages for pos in range(page.count)]

    def check(self, table: PendingTable) -> None:
        """Verify the essay's invariants. O(n); AssertionError names what does not hold."""
        assert not _NO_PAGES and not _NO_BOUNDS, "what is empty stays empty"
        alone = len(self.pages) == 1 and not self.bounds
        assert alone or len(self.bounds) == 16 * len(self.pages), "a bound for each page, but for a single one"
        before = (-1, -1)
        total = 0
        for number, page in enumerate(self.pages):
            assert 0 < page.count <= _SLOTS and 4 * page.count <= len(page.buf), "no page is empty or over-full"
            bound = (0, 0)
            if not alone:
                bound = (_get64(self.bounds, 16 * number), _get64(self.bounds, 16 * number + 8))
            assert before < bound, "a page's bound is beyond the page before"
            for pos in range(page.count):
                slot = _get32(page.buf, 4 * pos)
                key = (table.ms(slot), table.seq(slot))
                assert before < key and bound <= key, "IDs rise, and none is before its page's bound"
                before = key
            total += page.count
        assert total == self.count, "count is the number of slots"


@cython.final
@cython.cclass
class PendingIterator:
    """A walk through an index by rising ID, which may change on the way: it goes on behind the last ID seen.

    Registers after `next`: slot, ms, seq.
    """

    __slots__ = ("_index", "_page", "_pos", "_version", "ms", "seq", "slot", "_inclusive", "_table")
    _index: PendingIndex
    _table: PendingTable
    _page: cython.Py_ssize_t
    _pos: cython.Py_ssize_t
    _version: cython.longlong
    _inclusive: cython.bint
    slot: cython.Py_ssize_t
    ms: cython.ulonglong
    seq: cython.ulonglong

    def __init__(
        self, table: PendingTable, index: PendingIndex, ms: cython.ulonglong = 0, seq: cython.ulonglong = 0
    ) -> None:
        self._table = table
        self._index = index
        self.slot = -1
        self.seek(ms, seq)

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def seek(self, ms: cython.ulonglong, seq: cython.ulonglong) -> cython.bint:
        """Begin with the first ID that is not before the given one."""
        self.ms = ms
        self.seq = seq
        self._inclusive = True
        self._version = -1
        return True

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def next(self) -> cython.bint:
        """Set the registers to the next slot; False when there is none."""
        index: PendingIndex = self._index
        page: PendingPage
        if self._version != index.version:
            if index.locate(self._table, self.ms, self.seq) and not self._inclusive:
                index.at_pos += 1
            self._page = index.at_page
            self._pos = index.at_pos
            self._version = index.version
        while self._page < len(index.pages):
            page = cython.cast(PendingPage, index.pages[self._page])
            if self._pos < page.count:
                self.slot = _get32(page.buf, 4 * self._pos)
                self.ms = self._table.ms(self.slot)
                self.seq = self._table.seq(self.slot)
                self._pos += 1
                self._inclusive = False
                return True
            self._page += 1
            self._pos = 0
        self._version = -1  # what is appended from now on may lie on the last page, which was left
        return False


@cython.final
@cython.no_gc
@cython.cclass
class TimeOrder:
    """The slots of one group by time of delivery; those that were released (XNACK) stand first, in their own order.

        head ──► released ──► … ──► zone ──► oldest ──► … ──► tail

    `zone` is the last released one. Redis 8.4: streamCG.pel_time_head, pel_time_tail; 8.8: pel_nack_tail.
    """

    __slots__ = ("head", "released", "tail", "zone")
    head: cython.Py_ssize_t
    tail: cython.Py_ssize_t
    zone: cython.Py_ssize_t
    released: cython.Py_ssize_t

    def __init__(self) -> None:
        self.clear()

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def clear(self) -> cython.bint:
        """Forget all slots."""
        self.head = self.tail = self.zone = _NONE
        self.released = 0
        return True

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def renumber(self, new: bytearray) -> cython.bint:
        """Replace the slots that are known here by their new numbers (`Pending.pack`)."""
        if self.head != _NONE:
            self.head = _get32(new, 4 * self.head)
            self.tail = _get32(new, 4 * self.tail)
        if self.zone != _NONE:
            self.zone = _get32(new, 4 * self.zone)
        return True

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _insert_after(self, table: PendingTable, after: cython.Py_ssize_t, slot: cython.Py_ssize_t) -> cython.bint:
        """Chain a slot behind another one, or at the head (_NONE)."""
        at: cython.Py_ssize_t = slot * _RECORD
        later: cython.Py_ssize_t
        if after == _NONE:
            later = self.head
            self.head = slot
        else:
            later = _get32(table.buf, after * _RECORD + _LATER)
            _put32(table.buf, after * _RECORD + _LATER, slot)
        if later == _NONE:
            self.tail = slot
        else:
            _put32(table.buf, later * _RECORD + _EARLIER, slot)
        _put32(table.buf, at + _EARLIER, after)
        _put32(table.buf, at + _LATER, later)
        return True

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def append(self, table: PendingTable, slot: cython.Py_ssize_t) -> cython.bint:
        """Chain a slot that was delivered just now. O(1)"""
        return self._insert_after(table, self.tail, slot)

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def insert(self, table: PendingTable, slot: cython.Py_ssize_t) -> cython.bint:
        """Chain a slot by its time, behind those of the same. O(1) for the newest, else the way from the nearer end.

        Redis: pelListInsertSorted, which walks from the newest; the place is the same while times rise.
        """
        time: cython.longlong = table.delivery_time(slot)
        back: cython.Py_ssize_t = self.tail
        forth: cython.Py_ssize_t
        if self.head == _NONE or time >= table.delivery_time(back):
            return self._insert_after(table, back, slot)
        forth = self.head if self.zone == _NONE else _get32(table.buf, self.zone * _RECORD + _LATER)
        while back != self.zone and table.delivery_time(back) > time:
            if forth == _NONE or table.delivery_time(forth) > time:
                back = self.zone if forth == _NONE else _get32(table.buf, forth * _RECORD + _EARLIER)
                break
            forth = _get32(table.buf, forth * _RECORD + _LATER)
            back = _get32(table.buf, back * _RECORD + _EARLIER)
        return self._insert_after(table, back, slot)

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def release(self, table: PendingTable, slot: cython.Py_ssize_t) -> cython.bint:
        """Chain a slot as the last released one, with the time 0. O(1) Redis 8.8: pelListInsertNacked"""
        table.set_time(slot, 0)
        self._insert_after(table, self.zone, slot)
        self.zone = slot
        self.released += 1
        return True

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def remove(self, table: PendingTable, slot: cython.Py_ssize_t, released: cython.bint) -> cython.bint:
        """Take a slot out; `released` tells whether it is one of those. O(1)"""
        at: cython.Py_ssize_t = slot * _RECORD
        earlier: cython.Py_ssize_t = _get32(table.buf, at + _EARLIER)
        later: cython.Py_ssize_t = _get32(table.buf, at + _LATER)
        if released:
            self.released -= 1
        if slot == self.zone:
            self.zone = earlier
        if earlier == _NONE:
            self.head = later
        else:
            _put32(table.buf, earlier * _RECORD + _LATER, later)
        if later == _NONE:
            self.tail = earlier
        else:
            _put32(table.buf, later * _RECORD + _EARLIER, earlier)
        return True

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def holds(self, table: PendingTable, slot: cython.Py_ssize_t) -> cython.bint:
        """Say whether a slot of the group is chained: one that was just loaded is not yet."""
        return slot == self.head or _get32(table.buf, slot * _RECORD + _EARLIER) != _NONE

    def slots(self, table: PendingTable) -> list[int]:
        """Return all slots, in order; AssertionError where the chain does not lead back."""
        found: list[int] = []
        before = _NONE
        slot = self.head
        while slot != _NONE:
            assert _get32(table.buf, slot * _RECORD + _EARLIER) == before, "earlier leads back"
            assert len(found) < table.slots, "the chain ends"
            found.append(slot)
            before, slot = slot, _get32(table.buf, slot * _RECORD + _LATER)
        assert self.tail == before, "the chain ends at its tail"
        return found

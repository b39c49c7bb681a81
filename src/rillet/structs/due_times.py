"""Names with a time each, ordered by time: fields of a hash or hashes of a database that expire (Redis: ebuckets.c).

    table    a Dict: name -> its time, as a double, plus a fraction
    order    a Skiplist of the entries of the table, the earliest first
    far      {name: time} of the times above 2^53, which a double rounds

A time is a positive integer of 64 bits, in ms since the epoch. Times up to 2^53, the year 287396, are exact in a
double.

Many names may have equal times: a server gives thousands of fields the same millisecond. To order them by their bytes,
a search would have to read the bytes of several names, each from another place in memory. So a time below 2^46 gets a
fraction, n/128, which the last two bytes of the name choose. Only names with the same fraction are ordered by their
bytes.

Costs: the time of a name and the earliest time O(1); a change O(log n). A name takes its own bytes and 30 to 45 more.

Rejected alternatives: Redis's buckets in a radix tree, which need a pointer in each field; a heap, which cannot remove
a name; a sorted list, whose insertions are O(n).
"""

from __future__ import annotations

from typing import Any

from rillet._cython import cython, readonly
from rillet.structs.dict import Dict
from rillet.structs.skiplist import Skiplist

_EXACT = cython.declare(cython.longlong, 1 << 53)
_FINE = cython.declare(cython.longlong, 1 << 46)  # below, a double has seven bits for the fraction


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _score(at: cython.p_const_uchar, size: cython.Py_ssize_t, when: cython.longlong) -> cython.double:
    """Return the score of a name with a time."""
    if when >= _FINE or size < 2:
        return float(when)  # rounded
    fraction: cython.int = at[size - 1] + 31 * at[size - 2] & 127
    return when + fraction / 128.0


@cython.final
@cython.cclass
class DueTimes:
    """A set of names with times."""

    __slots__ = ("far", "order", "table")
    table: readonly[Dict]
    order: readonly[Skiplist]
    far: readonly[dict[bytes, int]]

    def __init__(self) -> None:
        self.table = Dict(numbers=True, newest=True)
        self.order = Skiplist()
        self.table.owner = self.order
        self.far = {}

    def __len__(self) -> int:
        """Return the number of names. O(1)"""
        return self.count()

    @cython.ccall
    @cython.exceptval(check=False)
    def count(self) -> cython.Py_ssize_t:
        """Return the number of names. O(1)"""
        return self.order.length

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def get(self, name: bytes) -> cython.longlong:
        """Return the time of a name, 0 if it has none. O(1)"""
        return self.get_span(name, len(name))

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def get_span(self, at: cython.p_const_uchar, size: cython.Py_ssize_t) -> cython.longlong:
        """Do `get` for the bytes at a memory address."""
        n: cython.Py_ssize_t = self.table.find_span(at, size)
        return 0 if n < 0 else self._time(n)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _time(self, n: cython.Py_ssize_t) -> cython.longlong:
        """Return the time of an entry of the table."""
        score: cython.double = self.table.score(n)
        if score >= _EXACT and self.far:
            exact: Any = self.far.get(self.table.entry_key(n))
            if exact is not None:
                return exact  # type: ignore[no-any-return]
        return int(score)  # without the fraction

    @cython.ccall
    def set(self, name: bytes, when: cython.longlong) -> cython.bint:
        """Add a name, or change its time. O(log n)"""
        n: cython.Py_ssize_t = self.table.find(name)
        score: cython.double = _score(name, len(name), when)
        if n < 0:
            self.order.add(self.table, name, score)
        elif self.table.score(n) != score:
            self.order.move(self.table, n, score)
        if when > _EXACT:
            self.far[name] = when
        elif self.far:
            self.far.pop(name, None)
        return True

    @cython.cfunc
    def set_span(self, at: cython.p_const_uchar, size: cython.Py_ssize_t, when: cython.longlong) -> cython.bint:
        """Do `set` for the bytes at a memory address."""
        if when > _EXACT or self.far:
            return self.set(at[:size], when)
        self.order.put_span(self.table, at, size, _score(at, size, when))
        return True

    @cython.cfunc
    def remove_span(self, at: cython.p_const_uchar, size: cython.Py_ssize_t) -> cython.bint:
        """Do `remove` for the bytes at a memory address."""
        if self.far:
            return self.remove(at[:size])
        n: cython.Py_ssize_t = self.table.find_span(at, size)
        return n >= 0 and self.order.remove(self.table, n) and self.table.delete_entry(n)

    @cython.ccall
    def remove(self, name: bytes) -> cython.bint:
        """Remove a name; return False if it has no time. O(log n)"""
        if self.far:
            self.far.pop(name, None)
        return self.order.discard(self.table, name)

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def earliest(self) -> cython.longlong:
        """Return the earliest time, 0 if there are no names. O(1)"""
        return 0 if self.order.length == 0 else self._time(self.order.at(0))

    @cython.ccall
    def count_before(self, when: cython.longlong) -> cython.Py_ssize_t:
        """Return the number of names with a time before `when`. O(log n)"""
        return self.order.below(self.table, float(when), False)

    @cython.ccall
    def due(self, when: cython.longlong, limit: cython.Py_ssize_t) -> list[bytes]:
        """Return up to `limit` names whose time is at or before `when`, the earliest first. O(log n + names)"""
        found: list[bytes] = []
        rank: cython.Py_ssize_t
        count: cython.Py_ssize_t
        if when < _FINE:
            count = self.order.below(self.table, float(when + 1), False)
        else:
            count = self.order.below(self.table, float(when), True)
        for rank in range(min(count, limit)):
            found.append(self.table.entry_key(self.order.at(rank)))
        return found

    def items(self) -> list[tuple[bytes, int]]:
        """Return the names with their times, the earliest first. O(n)"""
        return [(name, self.far.get(name, int(score))) for name, score in self.order.iterate(self.table)]

    def copy(self) -> DueTimes:
        """Return a copy. O(n)"""
        twin = DueTimes()
        twin._take(self)
        return twin

    def _take(self, other: DueTimes) -> None:
        self.table, self.order, self.far = other.table.copy(), other.order.copy(), dict(other.far)
        self.table.owner = self.order

    @cython.ccall
    def memory_bytes(self) -> cython.Py_ssize_t:
        """Return the bytes that the names and times use. O(1)"""
        return self.table.memory_bytes() + self.order.memory_bytes()

    def check(self) -> None:
        """Raise AssertionError if the table and the order disagree, or a part's own check fails. O(n)"""
        self.table.check()
        self.order.check(self.table)
        assert self.table.owner is self.order and len(self.table) == len(self.order)
        assert all(when > 0 for _, when in self.items())
        assert all(score == _score(name, len(name), self.get(name)) for name, score in self.order.iterate(self.table))
        assert all(when > _EXACT and name in self.table for name, when in self.far.items())

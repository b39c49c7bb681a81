"""The intset: a sorted set of 64-bit integers in one block of bytes (Redis: intset.c).

    +--------------+-------------+----------+----------+-- .. --+-- .. ---+
    | encoding u32 | length u32  | member 0 | member 1 |        |  unused |
    +--------------+-------------+----------+----------+-- .. --+-- .. ---+
    0              4             8                              nbytes    len(buf)

All numbers are little-endian. `encoding` is the size of every member in bytes: 2, 4 or 8, whichever
the widest member ever added needs. Adding a wider member converts all members; nothing converts them
back, so a set that once held 70000 keeps four bytes per member after 70000 is removed. DUMP exposes
this, so it is preserved. `docs/formats/intset.md` draws the format.

Invariants (`check`): the members rise strictly, and each fits the encoding.

Costs: has O(log n); add and remove O(n), one move of the bytes after the member; number_at O(1).

Rejected alternatives: an `array`, which needs Python objects for each step of a search, and a list (an 8-byte
pointer and a 28-byte integer for each member).
"""

from __future__ import annotations

import random
from collections.abc import Iterator

from rillet._cython import cython, readonly

if cython.compiled:
    from cython.cimports.libc.string import memcpy  # type: ignore[import-not-found, unused-ignore]

from rillet.errors import Corrupt
from rillet.structs.dict_table import put_u32, put_u64, u32, u64
from rillet.structs.memory import copy_slice

HEADER_SIZE = 8
_HEADER = cython.declare(cython.Py_ssize_t, HEADER_SIZE)
_KEPT = cython.declare(cython.Py_ssize_t, 8192)  # bytes of a buffer that `clear` and `load` keep


@cython.ccall
def width_of(value: cython.longlong) -> cython.int:
    """Return the size that a member needs in bytes: 2, 4 or 8 (intset.c: _intsetValueEncoding)."""
    if -32768 <= value <= 32767:
        return 2
    return 4 if -2147483648 <= value <= 2147483647 else 8


@cython.final
@cython.cclass
class Intset:
    """A sorted set of signed 64-bit integers: `count` members of `width` bytes, behind the header in `buf`."""

    __slots__ = ("buf", "count", "width")
    buf: readonly[bytearray]
    count: readonly[cython.Py_ssize_t]
    width: readonly[cython.int]

    def __init__(self) -> None:
        self.buf = bytearray(_HEADER)
        self.clear()

    @staticmethod
    def from_bytes(data: bytes, deep: bool = True) -> Intset:
        """Parse the bytes of an intset; raise Corrupt if they are malformed or the set is empty.

        deep=False does not verify the order of the members. Source: intset.c, intsetValidateIntegrity.
        """
        width, length = int.from_bytes(data[:4], "little"), int.from_bytes(data[4:8], "little")
        if width not in (2, 4, 8) or not length or len(data) != HEADER_SIZE + length * width:
            raise Corrupt("intset: length and encoding do not match the number of bytes")
        intset: Intset = Intset()
        intset.load(data, len(data))
        if deep and not intset._rises():
            raise Corrupt("intset: the members are not in rising order")
        return intset

    @cython.cfunc
    def load(self, source: cython.p_const_uchar, size: cython.Py_ssize_t) -> cython.bint:
        """Replace the members by those of an intset in memory, whose bytes are trusted; keep a small `buf`. O(bytes)"""
        if size > len(self.buf) or len(self.buf) > _KEPT:
            self.buf = bytearray(size)
        p: cython.p_uchar = self.buf
        if cython.compiled:
            memcpy(p, source, size)
        else:
            p[:size] = source[:size]
        self.width = u32(p, 0)
        self.count = u32(p, 4)
        return True

    @cython.cfunc
    def clear(self) -> cython.bint:
        """Remove all members; the width is the smallest one again. A small `buf` is kept. O(1)"""
        if len(self.buf) > _KEPT:
            self.buf = bytearray(_HEADER)
        self.width = 2
        self.count = 0
        return self._put_header()

    @cython.cfunc
    def _put_header(self) -> cython.bint:
        p: cython.p_uchar = self.buf
        put_u32(p, 0, self.width)
        put_u32(p, 4, self.count)
        return True

    def to_bytes(self) -> bytes:
        """Return the serialized intset, as in DUMP and RDB. O(n)"""
        return bytes(self.buf[: self.nbytes()])

    @cython.ccall
    def nbytes(self) -> cython.Py_ssize_t:
        """Return the number of bytes that `to_bytes` returns (intset.c: intsetBlobLen)."""
        return _HEADER + self.count * self.width

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[int]:
        """Yield the members in rising order."""
        index: cython.Py_ssize_t
        for index in range(self.count):
            yield self.number_at(index)

    def __contains__(self, value: int) -> bool:
        return self.has(value)

    def __getitem__(self, index: int) -> int:
        """Return the member of a rank, 0 for the smallest; negative ranks count from the end."""
        rank = index + self.count if index < 0 else index
        if not 0 <= rank < self.count:
            raise IndexError("the intset has fewer members")
        return self.number_at(rank)

    def __repr__(self) -> str:
        return f"<Intset: {len(self)} members of {self.width} bytes>"

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def number_at(self, index: cython.Py_ssize_t) -> cython.longlong:
        """Return the member at an existing index."""
        start: cython.Py_ssize_t = _HEADER + index * self.width
        if not cython.compiled:
            return int.from_bytes(self.buf[start : start + self.width], "little", signed=True)
        p: cython.p_uchar = self.buf
        p += start
        if self.width == 2:
            return cython.cast(cython.short, p[0] | p[1] << 8)
        if self.width == 4:
            return cython.cast(cython.int, u32(p, 0))
        return cython.cast(cython.longlong, u64(p, 0))

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def _put(self, index: cython.Py_ssize_t, value: cython.longlong) -> cython.bint:
        start: cython.Py_ssize_t = _HEADER + index * self.width
        if not cython.compiled:
            self.buf[start : start + self.width] = value.to_bytes(self.width, "little", signed=True)
            return True
        p: cython.p_uchar = self.buf
        p += start
        if self.width == 2:
            p[0] = value & 0xFF
            p[1] = value >> 8 & 0xFF
        elif self.width == 4:
            put_u32(p, 0, value & 0xFFFFFFFF)
        else:
            put_u64(p, 0, value)
        return True

    @cython.cfunc
    @cython.exceptval(check=False)
    def _index(self, value: cython.longlong) -> cython.Py_ssize_t:
        """Return the index of an integer, or the one at which it belongs. O(log n)"""
        low: cython.Py_ssize_t = 0
        high: cython.Py_ssize_t = self.count
        middle: cython.Py_ssize_t
        if high > 0 and self.number_at(high - 1) < value:
            return high
        while low < high:
            middle = (low + high) >> 1
            if self.number_at(middle) < value:
                low = middle + 1
            else:
                high = middle
        return low

    @cython.ccall
    def has(self, value: cython.longlong) -> cython.bint:
        """Return whether an integer is a member. O(log n)"""
        at: cython.Py_ssize_t = self._index(value)
        return at < self.count and self.number_at(at) == value

    @cython.ccall
    def add(self, value: cython.longlong) -> cython.bint:
        """Add a 64-bit integer; return False if it is already a member (intset.c: intsetAdd). O(n)"""
        at: cython.Py_ssize_t = self._index(value)
        if at < self.count and self.number_at(at) == value:
            return False
        self._make_room(max(self.width, width_of(value)))
        start: cython.Py_ssize_t = _HEADER + at * self.width
        copy_slice(self.buf, start + self.width, self.buf, start, (self.count - at) * self.width)
        self._put(at, value)
        self.count += 1
        self._put_header()
        return True

    @cython.cfunc
    def _make_room(self, width: cython.int) -> cython.bint:
        """Make room for one more member of a width, to which all members are converted. O(1), O(n) if it is new"""
        need: cython.Py_ssize_t = _HEADER + (self.count + 1) * width
        have: cython.Py_ssize_t = len(self.buf)
        index: cython.Py_ssize_t = self.count
        if need > have:
            self.buf.extend(bytes(need + (need >> 1) - have))
        old: cython.int = self.width
        if width == old:
            return True
        while index > 0:  # from the end: no member is overwritten before it is read
            index -= 1
            self.width = old
            value: cython.longlong = self.number_at(index)
            self.width = width
            self._put(index, value)
        self.width = width
        return True

    @cython.ccall
    def remove(self, value: cython.longlong) -> cython.bint:
        """Remove a member; return False if it does not exist (intset.c: intsetRemove). O(n)"""
        at: cython.Py_ssize_t = self._index(value)
        if at == self.count or self.number_at(at) != value:
            return False
        start: cython.Py_ssize_t = _HEADER + at * self.width
        self.count -= 1
        copy_slice(self.buf, start, self.buf, start + self.width, (self.count - at) * self.width)
        self._put_header()
        return True

    def unused(self) -> int:
        """Return the bytes of the buffer that hold no member. O(1)"""
        return len(self.buf) - self.nbytes()

    def shrink(self) -> None:
        """Release the unused capacity. O(n)"""
        self.buf = self.buf[: self.nbytes()]

    def random(self) -> int:
        """Return a random member; the set must not be empty."""
        return self.number_at(random.randrange(self.count))

    def copy(self) -> Intset:
        """Return a copy with the same members and encoding. O(n)"""
        twin: Intset = Intset()
        twin.load(bytes(self.buf), self.nbytes())
        return twin

    @cython.cfunc
    def _rises(self) -> cython.bint:
        index: cython.Py_ssize_t
        for index in range(self.count - 1):
            if self.number_at(index) >= self.number_at(index + 1):
                return False
        return True

    def check(self) -> None:
        """Raise AssertionError if an invariant is broken. O(n)"""
        assert self.width in (2, 4, 8) and self.nbytes() <= len(self.buf)
        assert int.from_bytes(self.buf[:4], "little") == self.width
        assert int.from_bytes(self.buf[4:8], "little") == self.count
        assert self._rises()

"""Arrays: the value of a key that maps indexes to values (Redis: t_array.c).

An array has one encoding, sliced-array (sparse_array.py). Indexes go from 0 to 2^64 - 2, and most of them may
be empty: `count` is the number of values, the length is the highest index + 1. The insert index is the place of the
last ARINSERT or ARRING; the next one follows it.

A ring (ARRING) is an array of which only the indexes below a size are written. The size is an argument of each
command, so the ring has to be laid out again if it differs from the present length:

    ARRING k 4  a b c d e f        e f c d           the insert index is 1: the next value overwrites c
    ARRING k 3  g                  g e f             d e f are kept, oldest first, then g overwrites d
    ARRING k 8  x                  g e f ...         larger: the values move into their order of insertion

`rework` does that. It walks back from the last insert and stops at the first index without a value.
"""

from __future__ import annotations

from typing import Any

from rillet._cython import cython, readonly
from rillet.structs.array.sparse_array import NO_INDEX, SparseArray
from rillet.types.encoding_limits import DEFAULTS
from rillet.types.sized import SizedValue

_NO_INDEX = cython.declare(cython.ulonglong, NO_INDEX)


@cython.final
@cython.cclass
class Array(SizedValue):
    """The value of an array key: its `cells`."""

    __slots__ = ("cells",)
    cells: readonly[SparseArray]

    type_name = "array"

    def __init__(self, limits: Any = DEFAULTS) -> None:
        self.cells = SparseArray(limits.array_slice_size)
        self.charge = 0

    def __len__(self) -> int:
        """Return the number of values (ARCOUNT). O(1)"""
        return self.cells.count

    def encoding(self) -> str:
        """Return the encoding: sliced-array."""
        return "sliced-array"

    def copy(self) -> Array:
        """Return a copy with the same layout (arrayTypeDup). O(n)"""
        twin = Array()
        twin.cells = self.cells.copy()
        return twin

    @cython.ccall
    @cython.exceptval(7777777777777777777, check=True)
    def next_index(self) -> cython.ulonglong:
        """Return the index of the next insert; NO_INDEX if there is no index after the last one."""
        last: cython.ulonglong = self.cells.insert_index
        return 0 if last == _NO_INDEX else last + 1

    @cython.ccall
    def rework(self, size: cython.ulonglong, slice_size: cython.Py_ssize_t, kmax: cython.Py_ssize_t) -> cython.bint:
        """Lay out the array again if a ring of another size requires it (arRingNeedsRework, arRingRework). O(size)"""
        old: SparseArray = self.cells
        span: cython.ulonglong = old.length()
        following: cython.ulonglong = self.next_index()
        if span == 0 or size == span:
            return True
        if size > span and (old.insert_index == _NO_INDEX or following >= span):
            return True
        most: cython.ulonglong = size if size < span else span
        at: cython.ulonglong = span - 1 if old.insert_index == _NO_INDEX else old.insert_index % span
        kept: cython.ulonglong = 0
        while kept < most and old.word(at):
            kept += 1
            at = span - 1 if at == 0 else at - 1
        new: SparseArray = SparseArray(slice_size)
        index: cython.ulonglong = 0
        while index < kept:
            at = 0 if at == span - 1 else at + 1
            new.set(index, old.get(at), kmax)
            index += 1
        if kept:
            new.insert_index = kept - 1
        self.cells = new
        return True

    def check(self) -> None:
        """Raise AssertionError if the array is empty or its cells are inconsistent. O(n)"""
        assert self.cells.count
        self.cells.check()

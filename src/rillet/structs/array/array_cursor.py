"""A walk over the values of a sparse array, from one index to another, in both directions (Redis: arScanIter).

    cursor = ArrayCursor(array, 100, 0)
    while cursor.next(): cursor.index, array.data(cursor.word)

It visits the slices between the indexes, and in each of them the places of its values, so empty parts of a large array
cost nothing. The array must not change meanwhile. Cost: O(slices and windows between the indexes).
"""

from __future__ import annotations

from rillet._cython import cython, readonly
from rillet.structs.array.array_slice import ArraySlice, offset_at, word_at
from rillet.structs.array.sparse_array import ArrayBlock, SparseArray

_BLOCK_SLOTS = cython.declare(cython.longlong, 2048)
_BLOCK_BITS = cython.declare(cython.int, 11)


@cython.final
@cython.cclass
class ArrayCursor:
    """A walk over the values from index `start` to `end`, backwards if start > end; the array must not change.

    After `next` returned True, `index` and `word` are those of a value. O(slices and windows between the indexes)
    """

    __slots__ = ("array", "index", "word", "_at", "_backwards", "_base", "_end", "_high", "_low", "_number",
                 "_part", "_step")  # fmt: skip
    array: readonly[SparseArray]
    index: readonly[cython.ulonglong]
    word: readonly[cython.ulonglong]
    _backwards: cython.bint
    _step: cython.Py_ssize_t
    _low: cython.ulonglong
    _high: cython.ulonglong
    _base: cython.ulonglong
    _part: ArraySlice
    _at: cython.Py_ssize_t
    _end: cython.Py_ssize_t
    _number: cython.longlong

    def __init__(self, array: SparseArray, start: cython.ulonglong, end: cython.ulonglong) -> None:
        self.array = array
        self._backwards = start > end
        self._step = -1 if self._backwards else 1
        self._low = end if self._backwards else start
        self._high = start if self._backwards else end
        self.index = self.word = self._base = 0
        self._part = None  # type: ignore[assignment]
        self._at = self._end = 0
        highest: cython.longlong = array.highest
        limit: cython.ulonglong = (cython.cast(cython.ulonglong, highest) << array.shift) + (array.slice_size - 1)
        if self._high > limit:
            self._high = limit
        if array.count == 0 or self._low > self._high:
            self._low = 1
            self._high = 0
        self._number = (self._high if self._backwards else self._low) >> array.shift

    @cython.cfunc
    def _open(self, part: ArraySlice, number: cython.longlong) -> cython.bint:
        """Set the places of a slice to visit; return False if none of them is in the range."""
        array: SparseArray = self.array
        first: cython.Py_ssize_t = 0
        last: cython.Py_ssize_t = array.slice_size - 1
        mask: cython.ulonglong = array.slice_size - 1
        if number == cython.cast(cython.longlong, self._low >> array.shift):
            first = self._low & mask
        if number == cython.cast(cython.longlong, self._high >> array.shift):
            last = self._high & mask
        if part.dense:
            first = max(first - part.offset, 0)
            last = min(last - part.offset, part.room - 1)
            if part.top - part.offset < last:
                last = part.top - part.offset
        else:
            first = part.place(first)
            last = part.place(last + 1) - 1
        if first > last:
            return False
        self._part = part
        self._base = cython.cast(cython.ulonglong, number) << array.shift
        self._at = last if self._backwards else first
        self._end = (first if self._backwards else last) + self._step
        return True

    @cython.cfunc
    def _next_slice(self) -> cython.bint:
        """Open the next slice that has places in the range; return False if there is none."""
        array: SparseArray = self.array
        part: ArraySlice
        if self._low > self._high:
            return False
        least: cython.longlong = self._low >> array.shift
        most: cython.longlong = self._high >> array.shift
        number: cython.longlong = self._number
        if array.block_room == 0:
            while least <= number <= most:
                part = array.directory[number]
                number += self._step
                if part is not None and self._open(part, number - self._step):
                    self._number = number
                    return True
            self._number = number
            return False
        while least <= number <= most:
            at: cython.Py_ssize_t = array.block_at(number >> _BLOCK_BITS)
            block: ArrayBlock = array.blocks[at] if at < len(array.blocks) else None  # type: ignore[assignment]
            if block is None or block.number != number >> _BLOCK_BITS:
                # The block does not exist: continue in the next one of the direction.
                if self._backwards:
                    if at == 0:
                        break
                    block = array.blocks[at - 1]
                    number = block.number * _BLOCK_SLOTS + _BLOCK_SLOTS - 1
                elif block is None:
                    break
                else:
                    number = block.number * _BLOCK_SLOTS
                continue
            base: cython.longlong = block.number * _BLOCK_SLOTS
            while base <= number < base + _BLOCK_SLOTS and least <= number <= most:
                part = block.slots[number - base]
                number += self._step
                if part is not None and self._open(part, number - self._step):
                    self._number = number
                    return True
        self._low = 1
        self._high = 0
        return False

    @cython.ccall
    def next(self) -> cython.bint:
        """Go to the next value; return False at the end."""
        while True:
            part: ArraySlice = self._part
            if part is not None:
                while self._at != self._end:
                    at: cython.Py_ssize_t = self._at
                    self._at = at + self._step
                    self.word = word_at(part.words, at)
                    if self.word:
                        self.index = self._base + (part.offset + at if part.dense else offset_at(part.offsets, at))
                        return True
                self._part = None  # type: ignore[assignment]
            if not self._next_slice():
                return False

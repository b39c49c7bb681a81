"""A sparse array: values at indexes from 0 to 2^64 - 2, in slices that are sparse or dense (Redis: sparsearray.c).

    index 10,000,007   ->   slice 2441, offset 1671                  slices of `slice_size` = 4096 indexes
                             |
    flat directory           [ slice 0 | - | slice 2 | ... ]         up to slice 2047: a list, a power of two long
    blocks                   [ block 0 | block 1 | block 7 ]         from slice 2048 on: sorted; 2048 slices each

A new slice is sparse. It becomes dense with one value more than kmax, and sparse again with at most `array-sparse-kmin`
values, if that saves memory (array_slice.py). `reserve_range` makes slices dense before a range of values arrives.
The layout follows Redis in each step, because ARINFO shows it; the limits belong to the caller, which passes them.

Strings of 8 bytes and more are objects in `strings`; `spare` has the places that are free.

Costs: `word`, `put` and `remove` O(1), in blocks O(log blocks), in a sparse slice O(kmax). `remove_range` is
proportional to the slices and windows that it touches, not to the distance of the indexes. Rejected alternative: a dict
of index and bytes (10 times the memory, and no order).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rillet._cython import cython, public, readonly
from rillet.structs.array.array_slice import ArraySlice, data_of, offset_at, set_word, word_at, word_of

NO_INDEX = 2**64 - 1
"""The insert index of an array into which nothing was inserted; no value can be there."""
_NO_INDEX = cython.declare(cython.ulonglong, NO_INDEX)
_BLOCK_SLOTS = cython.declare(cython.longlong, 2048)
_BLOCK_BITS = cython.declare(cython.int, 11)
_LEAST_WINDOW = cython.declare(cython.Py_ssize_t, 8)
_NEW_ROOM = cython.declare(cython.Py_ssize_t, 4)


@cython.final
@cython.cclass
class ArrayBlock:
    """A part of a large directory: the slices from `number` * 2048 on."""

    __slots__ = ("count", "number", "slots")
    number: readonly[cython.longlong]
    count: readonly[cython.Py_ssize_t]
    slots: readonly[list[Any]]

    def __init__(self, number: cython.longlong) -> None:
        self.number = number
        self.count = 0
        self.slots = [None] * 2048


# -- the array ---------------------------------------------------------------------------------------


@cython.final
@cython.cclass
class SparseArray:
    """Values by index.

    count: values. insert_index: where the last value was inserted, NO_INDEX if none was. highest: the last slice.
    directory: the slices, while the array is flat. blocks, block_room: afterwards; 0 = flat. slices: their number.
    strings, spare: values of 8 bytes and more, and free places. slice_bytes, string_bytes: their memory.
    """

    __slots__ = (
        "block_room", "blocks", "count", "directory", "highest", "insert_index", "shift", "slice_bytes", "slice_size",
        "slices", "spare", "string_bytes", "strings", "_filled",
    )  # fmt: skip
    count: readonly[cython.ulonglong]
    insert_index: public[cython.ulonglong]
    highest: readonly[cython.longlong]
    slices: readonly[cython.Py_ssize_t]
    slice_size: readonly[cython.Py_ssize_t]
    shift: readonly[cython.int]
    directory: readonly[list[Any]]
    blocks: readonly[list[Any]]
    block_room: readonly[cython.Py_ssize_t]
    strings: readonly[list[Any]]
    spare: readonly[list[Any]]
    slice_bytes: readonly[cython.Py_ssize_t]
    string_bytes: readonly[cython.Py_ssize_t]
    _filled: cython.Py_ssize_t

    def __init__(self, slice_size: cython.Py_ssize_t = 4096) -> None:
        """slice_size: indexes per slice, a power of two from 256 to 65536."""
        self.count = 0
        self.insert_index = _NO_INDEX
        self.highest = 0
        self.slices = 0
        self.slice_size = slice_size
        self.shift = 0
        while 1 << self.shift < slice_size:
            self.shift += 1
        self.directory = []
        self.blocks = []
        self.block_room = 0
        self.strings = []
        self.spare = []
        self.slice_bytes = self.string_bytes = 0
        self._filled = 0

    def __len__(self) -> int:
        """Return the number of values; `length` is the highest index + 1. O(1)"""
        return self.count

    # -- the directory -------------------------------------------------------------------------------

    @cython.cfunc
    def block_at(self, number: cython.longlong) -> cython.Py_ssize_t:
        """Return the first place in `blocks` whose number is not lower (arSuperDirFind). O(log blocks)"""
        low: cython.Py_ssize_t = 0
        high: cython.Py_ssize_t = len(self.blocks)
        while low < high:
            middle: cython.Py_ssize_t = low + (high - low) // 2
            block: ArrayBlock = self.blocks[middle]
            if block.number < number:
                low = middle + 1
            else:
                high = middle
        return low

    @cython.cfunc
    def slice_at(self, number: cython.longlong) -> ArraySlice:
        """Return the slice of a number, or None."""
        if self.block_room == 0:
            if number >= len(self.directory):
                return None  # type: ignore[return-value]
            return self.directory[number]  # type: ignore[no-any-return]
        at: cython.Py_ssize_t = self.block_at(number >> _BLOCK_BITS)
        if at == len(self.blocks):
            return None  # type: ignore[return-value]
        block: ArrayBlock = self.blocks[at]
        if block.number != number >> _BLOCK_BITS:
            return None  # type: ignore[return-value]
        return block.slots[number & (_BLOCK_SLOTS - 1)]  # type: ignore[no-any-return]

    @cython.cfunc
    def _grow(self, number: cython.longlong) -> cython.bint:
        """Make room in the directory for a slice; from slice 2048 on, divide the directory into blocks (arDirGrow)."""
        if self.block_room:
            return True
        size: cython.longlong = len(self.directory)
        if number >= _BLOCK_SLOTS:
            if self.slices:
                block: ArrayBlock = ArrayBlock(0)
                block.slots[:size] = self.directory
                block.count = self.slices
                self.blocks.append(block)
            self.directory = []
            self.block_room = 4
        elif number >= size:
            room: cython.longlong = max(size, 1)
            while room <= number:
                room *= 2
            self.directory.extend([None] * (room - size))
        return True

    @cython.cfunc
    def _put_slice(
        self, number: cython.longlong, new: ArraySlice | None, old: ArraySlice | None
    ) -> cython.bint:
        """Put a slice into a directory that has room, None to remove the old one (arSetSlice)."""
        if self.block_room == 0:
            self.directory[number] = new
        else:
            at: cython.Py_ssize_t = self.block_at(number >> _BLOCK_BITS)
            block: ArrayBlock = self.blocks[at] if at < len(self.blocks) else None  # type: ignore[assignment]
            if block is None or block.number != number >> _BLOCK_BITS:
                block = ArrayBlock(number >> _BLOCK_BITS)
                self.blocks.insert(at, block)
                if len(self.blocks) > self.block_room:
                    self.block_room *= 2
            block.slots[number & (_BLOCK_SLOTS - 1)] = new
            block.count += (new is not None) - (old is not None)
            if block.count == 0:
                del self.blocks[at]
        self.slices += (new is not None) - (old is not None)
        self.slice_bytes += (0 if new is None else new.memory_bytes()) - (0 if old is None else old.memory_bytes())
        return True

    @cython.cfunc
    def _find_highest(self) -> cython.bint:
        """Find the last slice again, and shorten a flat directory by half or more (arDirMaybeShrink)."""
        if self.count == 0:
            return True
        at: cython.longlong
        if self.block_room:
            block: ArrayBlock = self.blocks[len(self.blocks) - 1]
            at = _BLOCK_SLOTS - 1
            while block.slots[at] is None:
                at -= 1
            self.highest = block.number * _BLOCK_SLOTS + at
            return True
        at = len(self.directory) - 1
        while at > 0 and self.directory[at] is None:
            at -= 1
        self.highest = at
        size: cython.longlong = len(self.directory)
        if at >= size * 9 // 10:
            return True
        room: cython.longlong = 1
        while room <= at:
            room *= 2
        if room < size:
            del self.directory[room:]
        return True

    # -- values --------------------------------------------------------------------------------------

    @cython.cfunc
    @cython.exceptval(7777777777777777777, check=True)
    def keep(self, data: bytes) -> cython.ulonglong:
        """Store a string in `strings`; return its word."""
        at: cython.Py_ssize_t
        if self.spare:
            at = self.spare.pop()
            self.strings[at] = data
        else:
            at = len(self.strings)
            self.strings.append(data)
        self.string_bytes += (len(data) + 48) & ~15
        return cython.cast(cython.ulonglong, at + 1) << 2

    @cython.cfunc
    def _release(self, word: cython.ulonglong) -> cython.bint:
        """Free the place of a value's string, if it has one."""
        if word & 3 == 0:
            at: cython.Py_ssize_t = (word >> 2) - 1
            data: bytes = self.strings[at]
            self.string_bytes -= (len(data) + 48) & ~15
            self.strings[at] = None
            self.spare.append(at)
            if len(self.spare) == len(self.strings):
                self.strings = []
                self.spare = []
        return True

    @cython.ccall
    def data(self, word: cython.ulonglong) -> bytes:
        """Return the bytes of a value's word (arDecode)."""
        if word & 3 == 0:
            return self.strings[(word >> 2) - 1]  # type: ignore[no-any-return]
        return data_of(word)

    @cython.ccall
    @cython.exceptval(7777777777777777777, check=True)
    def word(self, index: cython.ulonglong) -> cython.ulonglong:
        """Return the word at an index, 0 if there is no value (arGet). O(1)"""
        found: ArraySlice = self.slice_at(index >> self.shift)
        return 0 if found is None else found.word(index & (self.slice_size - 1))

    @cython.ccall
    def get(self, index: cython.ulonglong) -> bytes:
        """Return the value at an index, or None. O(1)"""
        word: cython.ulonglong = self.word(index)
        return self.data(word) if word else None  # type: ignore[return-value]

    @cython.ccall
    def set(self, index: cython.ulonglong, data: bytes, kmax: cython.Py_ssize_t = 10) -> cython.bint:
        """Set the value at an index up to 2^64 - 2; return whether it is new. O(1), in a sparse slice O(kmax)"""
        word: cython.ulonglong = word_of(data)
        return self.put(index, word or self.keep(data), kmax)

    @cython.ccall
    def put(self, index: cython.ulonglong, word: cython.ulonglong, kmax: cython.Py_ssize_t) -> cython.bint:
        """Store a value's word at an index; return whether a value is new there (arSet)."""
        number: cython.longlong = index >> self.shift
        offset: cython.Py_ssize_t = index & (self.slice_size - 1)
        found: ArraySlice = self.slice_at(number)
        if found is None:
            self._grow(number)
            if kmax > 0:
                found = ArraySlice(False, 0, min(kmax, _NEW_ROOM))
            else:
                found = ArraySlice(True, min(offset, self.slice_size - _LEAST_WINDOW), _LEAST_WINDOW)
            self._put_slice(number, found, None)
        at: cython.Py_ssize_t
        old: cython.ulonglong
        if not found.dense:
            at = found.place(offset)
            if at < found.count and offset_at(found.offsets, at) == offset:
                old = word_at(found.words, at)
                set_word(found.words, at, word)
                self._release(old)
                return False
            if found.count < kmax:
                if found.count >= found.room:
                    self.slice_bytes -= found.memory_bytes()
                    found.widen(min(2 * found.room, kmax))
                    self.slice_bytes += found.memory_bytes()
                found.insert(at, offset, word)
                return self._added(number)
            sparse: ArraySlice = found
            found = sparse.promoted(self.slice_size)
            self._put_slice(number, found, sparse)
        at = offset - found.offset
        if at < 0 or at >= found.room:
            self.slice_bytes -= found.memory_bytes()
            found.grow_to(offset, self.slice_size)
            self.slice_bytes += found.memory_bytes()
            at = offset - found.offset
        old = word_at(found.words, at)
        set_word(found.words, at, word)
        if old:
            self._release(old)
            return False
        found.count += 1
        if offset > found.top:
            found.top = offset
        return self._added(number)

    @cython.cfunc
    @cython.inline
    @cython.exceptval(-1, check=False)
    def _added(self, number: cython.longlong) -> cython.bint:
        self.count += 1
        if number > self.highest or self.count == 1:
            self.highest = number
        return True

    @cython.ccall
    def reserve_range(self, first: cython.ulonglong, last: cython.ulonglong, kmax: cython.Py_ssize_t) -> cython.bint:
        """Make the slices dense that values at all indexes from first to last will fill.

        Source: sparsearray.c arMayPromoteToDenseForRangeSet.
        """
        if kmax == 0:
            return True
        number: cython.longlong = first >> self.shift
        end: cython.longlong = last >> self.shift
        mask: cython.ulonglong = self.slice_size - 1
        self._grow(end)
        while number <= end:
            start: cython.Py_ssize_t = first & mask
            stop: cython.Py_ssize_t = self.slice_size
            if number == end:
                stop = (last & mask) + 1
            found: ArraySlice = self.slice_at(number)
            if found is None:
                if stop - start > kmax:
                    found = ArraySlice(True, min(start, self.slice_size - _LEAST_WINDOW), _LEAST_WINDOW)
                    self._put_slice(number, found, None)
            elif not found.dense:
                present: cython.Py_ssize_t = found.place(stop) - found.place(start)
                if stop - start > kmax or found.count + stop - start - present > kmax:
                    self._put_slice(number, found.promoted(self.slice_size), found)
            first = 0  # the first offset of the slices that follow
            number += 1
        return True

    @cython.ccall
    def remove(self, index: cython.ulonglong, kmax: cython.Py_ssize_t = 10, kmin: cython.Py_ssize_t = 5) -> cython.bint:
        """Remove the value at an index; return whether there was one (arDel). O(1), at the end of a slice O(window)"""
        number: cython.longlong = index >> self.shift
        offset: cython.Py_ssize_t = index & (self.slice_size - 1)
        found: ArraySlice = self.slice_at(number)
        if found is None:
            return False
        at: cython.Py_ssize_t
        old: cython.ulonglong
        if found.dense:
            at = offset - found.offset
            if at < 0 or at >= found.room:
                return False
            old = word_at(found.words, at)
            if old == 0:
                return False
            set_word(found.words, at, 0)
            found.count -= 1
        else:
            at = found.place(offset)
            if at == found.count or offset_at(found.offsets, at) != offset:
                return False
            old = word_at(found.words, at)
            found.cut(at, at + 1)
        self.count -= 1
        self._release(old)
        if found.count == 0:
            self._put_slice(number, None, found)
            if number >= self.highest:
                self._find_highest()
            else:
                self._shorten()
        elif found.dense:
            if offset == found.top:
                found.find_top()
            if found.is_wasteful(kmax, kmin):
                self._put_slice(number, found.demoted(kmin), found)
        return True

    @cython.cfunc
    @cython.inline
    @cython.exceptval(-1, check=False)
    def _shorten(self) -> cython.bint:
        """Shorten a flat directory that became longer than its last slice requires."""
        if self.block_room == 0 and self.highest < len(self.directory) * 9 // 10:
            self._find_highest()
        return True

    @cython.cfunc
    def _drop_slice(self, number: cython.longlong, found: ArraySlice) -> cython.bint:
        """Remove a slice with all its values."""
        at: cython.Py_ssize_t
        for at in range(found.room if found.dense else found.count):
            word: cython.ulonglong = word_at(found.words, at)
            if word:
                self._release(word)
        self.count -= found.count
        self._put_slice(number, None, found)
        return True

    @cython.cfunc
    def _clear_part(
        self, number: cython.longlong, first: cython.Py_ssize_t, last: cython.Py_ssize_t, kmax: cython.Py_ssize_t,
        kmin: cython.Py_ssize_t,
    ) -> cython.bint:  # fmt: skip
        """Remove the values at the offsets from first to last of one slice (arDeleteSliceRange)."""
        found: ArraySlice = self.slice_at(number)
        if found is None:
            return True
        at: cython.Py_ssize_t
        end: cython.Py_ssize_t
        word: cython.ulonglong
        before: cython.Py_ssize_t = found.count
        if found.dense:
            at = max(first - found.offset, 0)
            end = min(last - found.offset + 1, found.room)
            while at < end:
                word = word_at(found.words, at)
                if word:
                    set_word(found.words, at, 0)
                    found.count -= 1
                    self._release(word)
                at += 1
        else:
            at = found.place(first)
            end = found.place(last + 1)
            place: cython.Py_ssize_t
            for place in range(at, end):
                self._release(word_at(found.words, place))
            found.cut(at, end)
        self.count -= before - found.count
        if found.count == 0:
            self._put_slice(number, None, found)
        elif found.dense:
            found.find_top()
            if found.is_wasteful(kmax, kmin):
                self._put_slice(number, found.demoted(kmin), found)
        return True

    @cython.ccall
    @cython.exceptval(7777777777777777777, check=True)
    def remove_range(
        self, first: cython.ulonglong, last: cython.ulonglong, kmax: cython.Py_ssize_t = 10, kmin: cython.Py_ssize_t = 5
    ) -> cython.ulonglong:
        """Remove the values at the indexes from first to last; return their number (arDeleteRange).

        O(slices between them + the windows of both ends)
        """
        before: cython.ulonglong = self.count
        number: cython.longlong = first >> self.shift
        end: cython.longlong = last >> self.shift
        mask: cython.ulonglong = self.slice_size - 1
        if before == 0:
            return 0
        if number == end:
            self._clear_part(number, first & mask, last & mask, kmax, kmin)
        else:
            self._clear_part(number, first & mask, self.slice_size - 1, kmax, kmin)
            self._clear_part(end, 0, last & mask, kmax, kmin)
            self._drop_slices(number + 1, end - 1)
        if self.count == 0:
            self.highest = 0
        elif end >= self.highest:
            self._find_highest()
        else:
            self._shorten()
        return before - self.count

    @cython.cfunc
    def _drop_slices(self, first: cython.longlong, last: cython.longlong) -> cython.bint:
        """Remove the slices from first to last with all their values."""
        number: cython.longlong
        found: ArraySlice
        if self.block_room == 0:
            for number in range(first, min(last, len(self.directory) - 1) + 1):
                found = self.directory[number]
                if found is not None:
                    self._drop_slice(number, found)
            return True
        at: cython.Py_ssize_t = self.block_at((last >> _BLOCK_BITS) + 1)
        while at > 0:
            at -= 1
            block: ArrayBlock = self.blocks[at]
            base: cython.longlong = block.number * _BLOCK_SLOTS
            if base + _BLOCK_SLOTS <= first:
                return True
            for number in range(max(base, first), min(base + _BLOCK_SLOTS - 1, last) + 1):
                found = block.slots[number - base]
                if found is not None:
                    self._drop_slice(number, found)
        return True

    @cython.ccall
    @cython.exceptval(7777777777777777777, check=True)
    def length(self) -> cython.ulonglong:
        """Return the highest index with a value + 1, 0 if there is none (arLen). O(1)"""
        if self.count == 0:
            return 0
        last: ArraySlice = self.slice_at(self.highest)
        return (cython.cast(cython.ulonglong, self.highest) << self.shift) + last.last() + 1

    # -- the whole array -----------------------------------------------------------------------------

    @cython.ccall
    def memory_bytes(self) -> cython.Py_ssize_t:
        """Return the bytes of the array. O(1)"""
        places: cython.Py_ssize_t = len(self.directory) + len(self.strings) + len(self.spare)
        return 400 + self.slice_bytes + self.string_bytes + 8 * places + len(self.blocks) * (8 * _BLOCK_SLOTS + 128)

    @cython.ccall
    def numbered_slices(self) -> list[Any]:
        """Return (number, slice) of all slices in order. O(directory)"""
        found: list[Any] = []
        at: cython.Py_ssize_t
        if self.block_room == 0:
            for at in range(len(self.directory)):
                if self.directory[at] is not None:
                    found.append((at, self.directory[at]))
            return found
        block: ArrayBlock
        for block in self.blocks:
            for at in range(len(block.slots)):
                if block.slots[at] is not None:
                    found.append((block.number * _BLOCK_SLOTS + at, block.slots[at]))
        return found

    def items(self) -> Iterator[tuple[int, bytes]]:
        """Yield the indexes and values in order. O(n)"""
        for number, part in self.numbered_slices():
            for offset, word in part.places():
                yield (number << self.shift) + offset, self.data(word)

    @cython.ccall
    def copy(self) -> SparseArray:
        """Return a copy with the same layout (arDup). O(n)"""
        twin: SparseArray = SparseArray(self.slice_size)
        twin.count = self.count
        twin.insert_index = self.insert_index
        twin.highest = self.highest
        twin.slices = self.slices
        twin.block_room = self.block_room
        part: ArraySlice
        twin.directory = self.directory[:]
        twin.blocks = []
        at: cython.Py_ssize_t
        for at in range(len(self.directory)):
            part = self.directory[at]
            if part is not None:
                twin.directory[at] = part.copy()
        block: ArrayBlock
        for block in self.blocks:
            other: ArrayBlock = ArrayBlock(block.number)
            other.count = block.count
            for at in range(len(block.slots)):
                part = block.slots[at]
                if part is not None:
                    other.slots[at] = part.copy()
            twin.blocks.append(other)
        twin.strings = self.strings[:]
        twin.spare = self.spare[:]
        twin.slice_bytes = self.slice_bytes
        twin.string_bytes = self.string_bytes
        return twin

    @cython.ccall
    def free_some(self, parts: cython.Py_ssize_t) -> cython.bint:
        """Free some slices or strings of an array that is no longer used; return whether more remain."""
        rest: list[Any] = self.directory if self.directory else self.blocks if self.blocks else self.strings
        if rest is self.strings:
            parts *= 64
        del rest[max(len(rest) - parts, 0) :]
        return len(self.directory) > 0 or len(self.blocks) > 0 or len(self.strings) > 0

    @cython.ccall
    def begin_compaction(self) -> cython.bint:
        """Prepare `compact_slice`, which fills the lowest free places of `strings` first. O(free places)"""
        self.spare.sort()
        self._filled = 0
        return True

    @cython.ccall
    def compact_slice(self, part: ArraySlice) -> cython.bint:
        """Move the strings of a slice from the end of `strings` to free places; return whether any moved."""
        used: cython.Py_ssize_t = len(self.strings) - len(self.spare)
        moved: cython.bint = False
        at: cython.Py_ssize_t
        for at in range(part.room if part.dense else part.count):
            word: cython.ulonglong = word_at(part.words, at)
            if word & 3 or word >> 2 <= used:
                continue
            if self._filled >= len(self.spare):
                return moved
            new: cython.Py_ssize_t = self.spare[self._filled]
            if new >= used:
                return moved
            old: cython.Py_ssize_t = (word >> 2) - 1
            self.strings[new] = self.strings[old]
            self.strings[old] = None
            self.spare[self._filled] = old
            self._filled += 1
            set_word(part.words, at, cython.cast(cython.ulonglong, new + 1) << 2)
            moved = True
        return moved

    @cython.ccall
    def trim_strings(self) -> cython.bint:
        """Give back the free places at the end of `strings`. O(strings)"""
        end: cython.Py_ssize_t = len(self.strings)
        while end > 0 and self.strings[end - 1] is None:
            end -= 1
        if end < len(self.strings):
            self.strings = self.strings[:end]
            self.spare = [at for at in self.spare if at < end]
        return True

    def check(self) -> None:
        """Raise AssertionError if the array is inconsistent. O(n)"""
        used: list[int] = []
        count = size = 0
        last = -1
        numbered = self.numbered_slices()
        for number, part in numbered:
            assert number > last
            last = number
            words = part.places()
            offsets = [offset for offset, _ in words]
            assert offsets and offsets == sorted(set(offsets)) and 0 <= min(offsets) <= max(offsets) < self.slice_size
            assert part.count == len(words) and len(part.words) == 8 * part.room
            if part.dense:
                assert 8 <= part.room <= self.slice_size and part.room & (part.room - 1) == 0
                assert 0 <= part.offset <= self.slice_size - part.room and part.top == max(offsets)
            else:
                assert len(part.offsets) == 2 * part.room
            used += [(word >> 2) - 1 for _, word in words if not word & 3]
            count += len(words)
            size += part.memory_bytes()
        assert (count, len(numbered), size) == (self.count, self.slices, self.slice_bytes)
        assert self.highest == max(last, 0) or not count
        if self.block_room:
            assert not self.directory and len(self.blocks) <= self.block_room
            for block in self.blocks:
                assert block.count == sum(part is not None for part in block.slots) > 0
            numbers = [block.number for block in self.blocks]
            assert numbers == sorted(set(numbers))
        else:
            assert not self.blocks and len(self.directory) & (len(self.directory) - 1) == 0
        assert sorted(used + self.spare) == list(range(len(self.strings)))
        assert all(self.strings[at] is None for at in self.spare)
        texts = [self.strings[at] for at in used]
        assert self.string_bytes == sum((len(text) + 48) & ~15 for text in texts)

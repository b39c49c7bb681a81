"""The slices of a sparse array, and the words that stand for values (Redis: sparsearray.c).

    sparse slice             offsets [ 3 | 17 | 1671 ]                          up to `array-sparse-kmax` values, sorted
                             words   [ w | w  | w    ]
    dense slice              words   [ w | 0 | w | w | 0 | w | 0 | 0 ]          a window of 8, 16, 32 ... offsets
                                       `- offset                                0: no value

A value is a word of 64 bits, whose low two bits are a tag. The bytes of a value determine its word:

    integer         value << 2 | 1           canonical text of an integer of 62 bits
    double          bits & ~3 | 2            text such as 3.25 or 1.0 that a double without its low two bits reproduces
    short string    bytes from bit 8 on, length << 2, | 3                       up to 7 bytes
    string          (n + 1) << 2             anything else: `strings[n]` of the array

So a million counters take 8 MB and no object. Redis's word of a longer string is an address. The window of a dense
slice grows to both sides by doubling, as Redis's does, and never shrinks.

Costs: `word` O(1), in a sparse slice O(log values); an insertion into a sparse slice and a wider window O(their size).
Rejected alternative: Python lists of objects as windows (5 times the memory).
"""

from __future__ import annotations

import struct
from math import isfinite, isnan

from rillet._cython import cython, public
from rillet.structs.float_text import reply_text
from rillet.structs.integer_text import decimal
from rillet.structs.listpack import parse_digits
from rillet.structs.memory import copy_slice

if cython.compiled:
    from cython.cimports.cpython.bytearray import PyByteArray_AS_STRING
    from cython.cimports.cpython.bytes import PyBytes_AS_STRING
    from cython.cimports.libc.string import memcpy


LEAST_WINDOW = 8
"""The offsets of the smallest window."""
_LEAST_WINDOW = cython.declare(cython.Py_ssize_t, 8)
_SHORT = cython.declare(cython.Py_ssize_t, 7)  # bytes of a short string
_LONGEST_DOUBLE = cython.declare(cython.Py_ssize_t, 40)  # no double has a longer text without an exponent
_INTEGERS = cython.declare(cython.longlong, 1 << 61)
_ALL_BITS = cython.declare(cython.ulonglong, 2**64 - 1)
_TAG = cython.declare(cython.ulonglong, 3)
_SLICE = cython.declare(cython.Py_ssize_t, 32)  # of a slice of Redis, without its values
_OBJECT = cython.declare(cython.Py_ssize_t, 144)  # a slice and its buffer, without the values
_BUFFER = cython.declare(cython.Py_ssize_t, 64)
_NO_OFFSETS = cython.declare(bytearray, bytearray())


# -- words -------------------------------------------------------------------------------------------


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def word_at(words: bytearray, at: cython.Py_ssize_t) -> cython.ulonglong:
    """Return the word at a place that exists."""
    if cython.compiled:
        word: cython.ulonglong = 0
        memcpy(cython.address(word), PyByteArray_AS_STRING(words) + 8 * at, 8)
        return word
    return int.from_bytes(words[8 * at : 8 * at + 8], "little")


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def set_word(words: bytearray, at: cython.Py_ssize_t, word: cython.ulonglong) -> cython.bint:
    """Store a word at a place that exists."""
    if cython.compiled:
        memcpy(PyByteArray_AS_STRING(words) + 8 * at, cython.address(word), 8)
    else:
        words[8 * at : 8 * at + 8] = word.to_bytes(8, "little")
    return True


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def offset_at(offsets: bytearray, at: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """Return the offset at a place that exists."""
    if cython.compiled:
        offset: cython.ushort = 0
        memcpy(cython.address(offset), PyByteArray_AS_STRING(offsets) + 2 * at, 2)
        return offset
    return int.from_bytes(offsets[2 * at : 2 * at + 2], "little")


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def set_offset(offsets: bytearray, at: cython.Py_ssize_t, value: cython.Py_ssize_t) -> cython.bint:
    if cython.compiled:
        offset: cython.ushort = value
        memcpy(PyByteArray_AS_STRING(offsets) + 2 * at, cython.address(offset), 2)
    else:
        offsets[2 * at : 2 * at + 2] = value.to_bytes(2, "little")
    return True


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def integer_of(word: cython.ulonglong) -> cython.longlong:
    """Return the value of an integer's word."""
    if cython.compiled:
        return cython.cast(cython.longlong, word) >> 2
    return (word >> 2) - ((1 << 62) if word >> 63 else 0)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def double_of(word: cython.ulonglong) -> cython.double:
    """Return the value of a double's word."""
    bits: cython.ulonglong = word & (_ALL_BITS ^ _TAG)
    if cython.compiled:
        value: cython.double = 0
        memcpy(cython.address(value), cython.address(bits), 8)
        return value
    found: float = struct.unpack("<d", bits.to_bytes(8, "little"))[0]
    return found


@cython.ccall
@cython.exceptval(7777777777777777777, check=True)
def word_of_integer(value: cython.longlong) -> cython.ulonglong:
    """Return the word of an integer, 0 if it exceeds 62 bits."""
    if value < -_INTEGERS or value >= _INTEGERS:
        return 0
    if cython.compiled:
        return cython.cast(cython.ulonglong, value) << 2 | 1
    return (value << 2 | 1) & _ALL_BITS


@cython.ccall
@cython.exceptval(7777777777777777777, check=True)
def word_of_double(value: cython.double) -> cython.ulonglong:
    """Return the word of a double; its low two bits are lost."""
    if cython.compiled:
        bits: cython.ulonglong = 0
        memcpy(cython.address(bits), cython.address(value), 8)
        return bits & (_ALL_BITS ^ _TAG) | 2
    return int.from_bytes(struct.pack("<d", value), "little") & (_ALL_BITS ^ _TAG) | 2


@cython.ccall
@cython.exceptval(7777777777777777777, check=True)
def word_of_short(data: bytes) -> cython.ulonglong:
    """Return the word of a string of up to 7 bytes, whatever they contain."""
    size: cython.Py_ssize_t = len(data)
    assert size <= _SHORT
    if not cython.compiled:
        return 3 | size << 2 | int.from_bytes(data, "little") << 8
    word: cython.ulonglong = 0
    memcpy(cython.address(word), PyBytes_AS_STRING(data), size)
    return word << 8 | cython.cast(cython.ulonglong, size) << 2 | 3


@cython.cfunc
@cython.exceptval(7777777777777777777, check=True)
def _word_of_decimal(data: bytes, p: cython.p_const_uchar) -> cython.ulonglong:
    """Return the word of a text such as 3.25 that is exactly the text of a double's word, else 0 (arTryEncodeFloat)."""
    size: cython.Py_ssize_t = len(data)
    digits: cython.Py_ssize_t = 0
    points: cython.Py_ssize_t = 0
    at: cython.Py_ssize_t
    if size < 2 or size > _LONGEST_DOUBLE:
        return 0
    for at in range(1 if p[0] == 45 else 0, size):
        if p[at] == 46:
            points += 1
        elif p[at] < 48 or p[at] > 57:
            return 0
        else:
            digits += 1
    if points != 1 or digits == 0:
        return 0
    word: cython.ulonglong = word_of_double(float(data))
    return word if double_text(double_of(word)) == data else 0


@cython.ccall
@cython.exceptval(7777777777777777777, check=True)
def word_of(data: bytes) -> cython.ulonglong:
    """Return the word of a value's bytes, 0 if they need a place in `strings` (arEncode)."""
    size: cython.Py_ssize_t = len(data)
    p: cython.p_const_uchar = data
    if size > 0 and (p[0] <= 57) and size <= _LONGEST_DOUBLE:  # a digit, point or minus
        number: cython.longlong = parse_digits(p, size)
        if -_INTEGERS <= number < _INTEGERS:
            return word_of_integer(number)
        word: cython.ulonglong = _word_of_decimal(data, p)
        if word:
            return word
    return word_of_short(data) if size <= _SHORT else 0


def double_text(value: float) -> bytes:
    """Return a double as the text of a value: the shortest, with .0 if it looks like an integer (arFormatFloat)."""
    if isnan(value):
        return b"nan"
    text = reply_text(value, False)
    return text + b".0" if isfinite(value) and b"." not in text and b"e" not in text else text


@cython.cfunc
def data_of(word: cython.ulonglong) -> bytes:
    """Return the bytes of the word of an integer, a double or a short string."""
    tag: cython.int = word & 3
    if tag == 1:
        return decimal(integer_of(word))
    if tag == 2:
        return double_text(double_of(word))
    size: cython.Py_ssize_t = word >> 2 & 7
    if not cython.compiled:
        return (word >> 8).to_bytes(7, "little")[:size]
    word >>= 8
    return cython.cast(cython.p_char, cython.address(word))[:size]


# -- slices ------------------------------------------------------------------------------------------


@cython.final
@cython.cclass
class ArraySlice:
    """Values at offsets of one slice. `room`: places in `words`; `offset`, `top`: first and last offset, if dense."""

    __slots__ = ("count", "dense", "offset", "offsets", "room", "top", "words")
    dense: public[cython.bint]
    count: public[cython.Py_ssize_t]
    offset: public[cython.Py_ssize_t]
    room: public[cython.Py_ssize_t]
    top: public[cython.Py_ssize_t]
    words: public[bytearray]
    offsets: public[bytearray]

    def __init__(self, dense: cython.bint, offset: cython.Py_ssize_t, room: cython.Py_ssize_t) -> None:
        self.dense = dense
        self.count = self.top = 0
        self.offset = offset
        self.room = room
        self.words = bytearray(8 * room)
        self.offsets = _NO_OFFSETS if dense else bytearray(2 * room)

    @cython.ccall
    def memory_bytes(self) -> cython.Py_ssize_t:
        """Return the bytes of the slice with its buffers. O(1)"""
        size: cython.Py_ssize_t = _OBJECT + 8 * self.room
        return size if self.dense else size + _BUFFER + 2 * self.room

    @cython.cfunc
    def place(self, offset: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Return the first place of a sparse slice whose offset is not lower (arSparseFindPos). O(log count)"""
        low: cython.Py_ssize_t = 0
        high: cython.Py_ssize_t = self.count
        while low < high:
            middle: cython.Py_ssize_t = low + (high - low) // 2
            if offset_at(self.offsets, middle) < offset:
                low = middle + 1
            else:
                high = middle
        return low

    @cython.cfunc
    @cython.exceptval(check=False)
    def word(self, offset: cython.Py_ssize_t) -> cython.ulonglong:
        """Return the word at an offset, 0 if there is none."""
        at: cython.Py_ssize_t
        if self.dense:
            at = offset - self.offset
            return word_at(self.words, at) if 0 <= at < self.room else 0
        at = self.place(offset)
        return word_at(self.words, at) if at < self.count and offset_at(self.offsets, at) == offset else 0

    @cython.cfunc
    def last(self) -> cython.Py_ssize_t:
        """Return the highest offset with a value; the slice is not empty."""
        return self.top if self.dense else offset_at(self.offsets, self.count - 1)

    @cython.cfunc
    def move_window(self, offset: cython.Py_ssize_t, room: cython.Py_ssize_t) -> cython.bint:
        """Give a dense slice a larger window, which contains the present one."""
        words: bytearray = bytearray(8 * room)
        copy_slice(words, 8 * (self.offset - offset), self.words, 0, 8 * self.room)
        self.words = words
        self.offset = offset
        self.room = room
        return True

    @cython.cfunc
    def grow_to(self, offset: cython.Py_ssize_t, slice_size: cython.Py_ssize_t) -> cython.bint:
        """Grow the window of a dense slice until it contains an offset (arSliceDenseGrowIfNeeded)."""
        room: cython.Py_ssize_t = self.room
        start: cython.Py_ssize_t = self.offset
        if offset >= start + room:
            while offset >= start + room and room < slice_size:
                room *= 2
            if room >= slice_size:
                room = slice_size
                start = 0
            elif start + room > slice_size:
                start = slice_size - room
        elif offset < start:
            end: cython.Py_ssize_t = start + room
            room = _LEAST_WINDOW
            while room < end - offset:
                room *= 2
            room = min(room, slice_size)
            start = max(end - room, 0)
            if room == slice_size:
                start = 0
        else:
            return True
        return self.move_window(start, room)

    @cython.cfunc
    def promoted(self, slice_size: cython.Py_ssize_t) -> ArraySlice:
        """Return a dense slice with the values of this sparse one (arSparsePromote)."""
        if self.count == 0:
            return ArraySlice(True, 0, _LEAST_WINDOW)
        start: cython.Py_ssize_t = offset_at(self.offsets, 0)
        top: cython.Py_ssize_t = self.last()
        room: cython.Py_ssize_t = _LEAST_WINDOW
        while room < top - start + 1:
            room *= 2
        if room >= slice_size:
            room = slice_size
            start = 0
        elif start + room > slice_size:
            start = slice_size - room
        dense: ArraySlice = ArraySlice(True, start, room)
        at: cython.Py_ssize_t
        for at in range(self.count):
            set_word(dense.words, offset_at(self.offsets, at) - start, word_at(self.words, at))
        dense.count = self.count
        dense.top = top
        return dense

    @cython.cfunc
    def is_wasteful(self, kmax: cython.Py_ssize_t, kmin: cython.Py_ssize_t) -> cython.bint:
        """Return whether this dense slice should become sparse: few values, and memory to save (arDenseMaybeDemote)."""
        if kmax == 0 or self.count > kmin or self.count > kmax or self.room == _LEAST_WINDOW or self.room < 4 * kmin:
            return False
        sparse: cython.Py_ssize_t = _SLICE + ((2 * kmin + 7) & ~7) + 8 * kmin
        return _SLICE + 8 * self.room >= sparse * 5 // 4

    @cython.cfunc
    def demoted(self, kmin: cython.Py_ssize_t) -> ArraySlice:
        """Return a sparse slice with the values of this dense one."""
        sparse: ArraySlice = ArraySlice(False, 0, kmin)
        at: cython.Py_ssize_t
        for at in range(self.room):
            word: cython.ulonglong = word_at(self.words, at)
            if word:
                set_offset(sparse.offsets, sparse.count, self.offset + at)
                set_word(sparse.words, sparse.count, word)
                sparse.count += 1
        return sparse

    @cython.cfunc
    def insert(self, at: cython.Py_ssize_t, offset: cython.Py_ssize_t, word: cython.ulonglong) -> cython.bint:
        """Insert a value at a place of a sparse slice that has room."""
        copy_slice(self.offsets, 2 * at + 2, self.offsets, 2 * at, 2 * (self.count - at))
        copy_slice(self.words, 8 * at + 8, self.words, 8 * at, 8 * (self.count - at))
        set_offset(self.offsets, at, offset)
        set_word(self.words, at, word)
        self.count += 1
        return True

    @cython.cfunc
    def cut(self, first: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.bint:
        """Remove the places from first to end, exclusive, of a sparse slice."""
        copy_slice(self.offsets, 2 * first, self.offsets, 2 * end, 2 * (self.count - end))
        copy_slice(self.words, 8 * first, self.words, 8 * end, 8 * (self.count - end))
        self.count -= end - first
        return True

    @cython.cfunc
    def widen(self, room: cython.Py_ssize_t) -> cython.bint:
        """Give a sparse slice room for more values."""
        offsets: bytearray = bytearray(2 * room)
        words: bytearray = bytearray(8 * room)
        copy_slice(offsets, 0, self.offsets, 0, 2 * self.count)
        copy_slice(words, 0, self.words, 0, 8 * self.count)
        self.offsets = offsets
        self.words = words
        self.room = room
        return True

    @cython.cfunc
    def find_top(self) -> cython.bint:
        """Find the highest offset of a dense slice again after a removal. O(window)"""
        at: cython.Py_ssize_t = self.room - 1
        while at > 0 and word_at(self.words, at) == 0:
            at -= 1
        self.top = self.offset + at
        return True

    @cython.cfunc
    def copy(self) -> ArraySlice:
        twin: ArraySlice = ArraySlice(self.dense, self.offset, self.room)
        twin.count = self.count
        twin.top = self.top
        twin.words = self.words[:]
        if not self.dense:
            twin.offsets = self.offsets[:]
        return twin

    def places(self) -> list[tuple[int, int]]:
        """Return the offsets and words in order. O(room)"""
        if self.dense:
            words = [(self.offset + at, word_at(self.words, at)) for at in range(self.room)]
            return [pair for pair in words if pair[1]]
        return [(offset_at(self.offsets, at), word_at(self.words, at)) for at in range(self.count)]

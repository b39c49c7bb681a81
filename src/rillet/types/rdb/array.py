"""Arrays as RDB bytes (Redis: rdb.c, rdbSaveObject and rdbLoadObject).

    type 28    count | 0, or 1 and the insert index | for each value: index, kind, content

    kind 0     a string, which becomes an integer or double if it is the text of one
         1     an integer, 8 bytes, little endian
         2     a double, 8 bytes, little endian
         3     a string of up to 7 bytes, kept as a string

Counts, indexes and kinds are lengths (`primitives`). Redis writes the values in the order of their indexes, and reads
them in any order; the layout follows from the order and from the limits of the reader, so it may differ from that of
the array that was written. The type is part of RDB version 14.
"""

from __future__ import annotations

from collections.abc import Callable

from rillet._cython import cython
from rillet.errors import Corrupt
from rillet.structs.array.array_slice import (
    ArraySlice,
    double_of,
    integer_of,
    offset_at,
    word_at,
    word_of,
    word_of_integer,
    word_of_short,
)
from rillet.structs.array.sparse_array import NO_INDEX, SparseArray
from rillet.structs.integer_text import decimal
from rillet.types.array import Array
from rillet.types.encoding_limits import EncodingLimits
from rillet.types.rdb.primitives import RdbReader, RdbWriter

TYPE_ARRAY = 28
VERSION = 14
"""The first RDB version with arrays."""

_NO_INDEX = cython.declare(cython.ulonglong, NO_INDEX)
_ALL_BITS = cython.declare(cython.ulonglong, NO_INDEX)
_STRING = cython.declare(cython.ulonglong, 0)
_INTEGER = cython.declare(cython.ulonglong, 1)
_DOUBLE = cython.declare(cython.ulonglong, 2)
_SHORT = cython.declare(cython.ulonglong, 3)


def type_of(value: Array, version: int) -> int:
    """Return the RDB type for writing an array: the same in all versions."""
    return TYPE_ARRAY


@cython.cfunc
def _save_value(
    out: RdbWriter, cells: SparseArray, index: cython.ulonglong, word: cython.ulonglong
) -> cython.bint:
    """Append the value of a word at an index (rdbSaveArrayElement)."""
    tag: cython.ulonglong = word & 3
    out.length(index)
    out.length(tag)
    if tag == _INTEGER:
        return out.milliseconds(integer_of(word))  # also 64 bits, signed
    if tag == _DOUBLE:
        return out.number(double_of(word))
    return out.string(cells.data(word))


@cython.ccall
def save(out: RdbWriter, value: Array, kind: object = TYPE_ARRAY) -> cython.bint:
    """Append the array. O(bytes)"""
    cells: SparseArray = value.cells
    part: ArraySlice
    at: cython.Py_ssize_t
    out.length(cells.count)
    if cells.insert_index == _NO_INDEX:
        out.length(0)
    else:
        out.length(1)
        out.length(cells.insert_index)
    for number, found in cells.numbered_slices():
        part = found
        base: cython.ulonglong = cython.cast(cython.ulonglong, number) << cells.shift
        for at in range(part.room if part.dense else part.count):
            word: cython.ulonglong = word_at(part.words, at)
            if word:
                offset: cython.Py_ssize_t = part.offset + at if part.dense else offset_at(part.offsets, at)
                _save_value(out, cells, base + offset, word)
                out.spill()
    return True


@cython.cfunc
def _load_value(reader: RdbReader, cells: SparseArray, kmax: cython.Py_ssize_t) -> cython.bint:
    """Read an index and its value into the array."""
    index: cython.ulonglong = reader._length_or_special()
    if reader.special or index == _NO_INDEX:
        raise Corrupt("an index of an array is invalid", f"Invalid array index {index}")
    kind: cython.ulonglong = reader._length_or_special()
    data: bytes
    word: cython.ulonglong
    if kind == _INTEGER:
        number: cython.longlong = reader.milliseconds()
        word = word_of_integer(number) or cells.keep(decimal(number))
    elif kind == _DOUBLE:
        if cython.compiled:
            word = cython.cast(cython.ulonglong, reader.milliseconds())
        else:
            word = reader.milliseconds() & _ALL_BITS
        word = word & (_ALL_BITS ^ 3) | 2
    elif kind == _SHORT:
        data = reader.string()
        if len(data) > 7:
            raise Corrupt("a short string of an array is too long", f"Invalid small string length {len(data)} in array")
        word = word_of_short(data)
    elif kind == _STRING:
        data = reader.string()
        word = word_of(data) or cells.keep(data)
    else:
        raise Corrupt("a value of an array has an unknown kind", f"Unknown array element type_tag {kind}")
    cells.put(index, word, kmax)
    return True


def load_array(reader: RdbReader, limits: EncodingLimits) -> Array:
    """Read an array, laid out by the limits."""
    count: cython.ulonglong = reader._length_or_special()
    if not count:
        raise Corrupt("an array is empty", "Empty array (count == 0) is invalid")
    has_index: cython.ulonglong = reader._length_or_special()
    if has_index > 1:
        raise Corrupt("the insert index of an array is invalid", f"Invalid array insert_idx_flag {has_index}")
    value: Array = Array(limits)
    cells: SparseArray = value.cells
    if has_index:
        cells.insert_index = reader._length_or_special()
        if cells.insert_index == _NO_INDEX:
            raise Corrupt("the insert index of an array is invalid")
    kmax: cython.Py_ssize_t = limits.array_sparse_kmax
    while count:
        _load_value(reader, cells, kmax)
        count -= 1
    return value


LOADERS: dict[int, Callable[[RdbReader, EncodingLimits], Array]] = {TYPE_ARRAY: load_array}
"""The RDB type of arrays, with the function that reads it."""

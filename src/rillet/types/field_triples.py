"""The listpack of a hash with field expiry: field, value, time, field, value, time ... (Redis: t_hash.c, listpackEx).

    6 fields and 3 times             f4 v4 1700000000050 | f1 v1 1700000000100 | f6 v6 1700000000100 | f2 v2 0 | ...

A time is an integer in ms since the epoch; 0 means that the field does not expire. The fields that expire come first,
the earliest first. A field is inserted before the first one with the same or a later time, so among equal times the
last one that was set comes first. Fields without expiry keep the order in which they were set.

All functions are O(n), as in Redis; a hash of this encoding has at most hash-max-listpack-entries fields.
"""

from __future__ import annotations

from rillet._cython import cython
from rillet.structs.listpack import Listpack

WIDTH = 3
"""Entries of one field."""
_HEADER = cython.declare(cython.Py_ssize_t, 6)
_INT_ROOM = cython.declare(cython.Py_ssize_t, 10)  # of the longest integer entry
_HEADS = cython.declare(cython.Py_ssize_t, 20)  # of the encoding, length and backlen of two strings


@cython.ccall
@cython.exceptval(-2, check=True)
def find(packed: Listpack, field: bytes) -> cython.Py_ssize_t:
    """Return the position of a field, or -1."""
    return packed.find(_HEADER, field, 2)


@cython.ccall
@cython.exceptval(-77777777777, check=True)
def time_at(packed: Listpack, pos: cython.Py_ssize_t) -> cython.longlong:
    """Return the time of the field at a position."""
    return packed.get_int(packed.skip(pos, 2))


@cython.ccall
def insert(packed: Listpack, field: bytes, value: bytes, when: cython.longlong) -> cython.bint:
    """Insert a field that does not exist (listpackExAddInternal)."""
    return insert_span(packed, field, len(field), value, len(value), when)


@cython.cfunc
def insert_span(
    packed: Listpack, field: cython.p_const_uchar, size: cython.Py_ssize_t, value: cython.p_const_uchar,
    value_size: cython.Py_ssize_t, when: cython.longlong,
) -> cython.bint:  # fmt: skip
    """Do `insert` for the bytes at memory addresses. After MemoryError, the listpack is unchanged."""
    pos: cython.Py_ssize_t = packed.used - 1 if when == 0 else _place(packed, when, -1)
    packed.room(size + value_size + _HEADS + _INT_ROOM)
    if packed.is_end(pos):
        packed.append_span(field, size)
        packed.append_span(value, value_size)
        return packed.append_int(when)
    packed.insert_int(pos, when, False)
    packed.insert_span(pos, value, value_size)
    packed.insert_span(pos, field, size)
    return True


@cython.cfunc
def _place(packed: Listpack, when: cython.longlong, moved: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """Return the position of the first field that does not expire before `when`, or that of the end.

    moved: the position of a field that does not count, or -1.
    """
    pos: cython.Py_ssize_t = _HEADER
    at: cython.Py_ssize_t
    found: cython.longlong
    while not packed.is_end(pos):
        at = packed.skip(pos, 2)
        found = packed.get_int(at)
        if pos != moved and (found == 0 or found >= when):
            return pos
        pos = packed.at_next
    return pos


@cython.ccall
def remove(packed: Listpack, pos: cython.Py_ssize_t) -> cython.bint:
    """Remove the field at a position."""
    packed.gap(pos, packed.skip(pos, WIDTH) - pos, 0)
    return packed.recount(-WIDTH)


@cython.ccall
def set_time(packed: Listpack, pos: cython.Py_ssize_t, when: cython.longlong) -> cython.bint:
    """Give the field at a position another time, and move it to its place (listpackExUpdateExpiry).

    Redis removes the field and inserts it again, also if the time is the same. After MemoryError, nothing has changed.
    """
    at: cython.Py_ssize_t = packed.skip(pos, 2)
    end: cython.Py_ssize_t = packed.skip(at)
    to: cython.Py_ssize_t = packed.used - 1 if when == 0 else _place(packed, when, pos)
    packed.room(end - pos + 2 * _INT_ROOM)
    larger: cython.Py_ssize_t = -packed.used
    packed.replace_int(at, when)
    larger += packed.used
    end += larger
    if to > pos:
        to += larger
    return to == end or packed.move_range(pos, end, to)


def of_pairs(pairs: Listpack) -> Listpack:
    """Return the triples of fields and values that do not expire (hashTypeConvertListpack)."""
    packed = Listpack()
    words = pairs.texts()
    for at in range(0, len(words), 2):
        packed.append(words[at])
        packed.append(words[at + 1])
        packed.append_int(0)
    return packed


def rows(packed: Listpack) -> list[tuple[bytes, bytes, int]]:
    """Return field, value and time of each field, in order."""
    words = packed.texts()
    return [(words[at], words[at + 1], int(words[at + 2])) for at in range(0, len(words), WIDTH)]


def check(packed: Listpack) -> None:
    """Raise AssertionError if a field occurs twice, or if the times are not in order."""
    packed.check()
    assert packed.length() % WIDTH == 0
    found = rows(packed)
    times = [when for _, _, when in found if when]
    assert len({field for field, _, _ in found}) == len(found)
    assert times == sorted(times) and all(when > 0 for when in times)
    assert all(when for _, _, when in found[: len(times)])

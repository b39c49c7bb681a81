"""The listpack of a small sorted set: member, score, member, score ... in rising order (Redis: t_zset.c, zzl...).

A score is an integer, or the text of a double. The functions here read and write the listpack in place, so that
neither the members nor most scores become objects. `types/zset.py` has the type.

Costs: `put_span` O(n); a member that belongs at the end is appended without a walk.
"""

from __future__ import annotations

from rillet._cython import cython
from rillet.structs.float_text import digits_17, shortest
from rillet.structs.listpack import Listpack
from rillet.structs.memory import copy_out

_HEADER = cython.declare(cython.Py_ssize_t, 6)
_ROOM = cython.declare(cython.Py_ssize_t, 48)  # the entry of a score, and what a member's entry has beside its bytes
_EXACT = cython.declare(cython.double, 4611686018427387904.0)  # 2^62 (util.c: double2ll)


@cython.ccall
@cython.exceptval(-1, check=True)
def score_at(packed: Listpack, pos: cython.Py_ssize_t) -> cython.double:
    """Return the score at a position of the listpack; `at_next` is the position after it (zzlGetScore)."""
    if packed.decode(pos):
        text: bytes = copy_out(packed.buf, packed.at_start, packed.at_len)
        value: cython.double = float(text)
        return value
    return float(packed.at_int)


@cython.cfunc
def _place(
    packed: Listpack, member: cython.p_const_uchar, size: cython.Py_ssize_t, score: cython.double
) -> cython.Py_ssize_t:
    """Return the position before which a member with this score belongs."""
    pos: cython.Py_ssize_t = _HEADER
    end: cython.Py_ssize_t = packed.used - 1
    following: cython.Py_ssize_t
    found: cython.double
    if pos == end:
        return pos
    last: cython.Py_ssize_t = packed.last()
    if score > score_at(packed, last):
        return end
    while pos != end:
        found = score_at(packed, packed.skip(pos))
        following = packed.at_next
        if found > score or (found == score and packed.order(pos, member, size) > 0):
            return pos
        pos = following
    return end


@cython.cfunc
def put_span(
    packed: Listpack, member: cython.p_const_uchar, size: cython.Py_ssize_t, score: cython.double, classic: cython.bint
) -> cython.bint:
    """Insert a member that does not exist yet, and its score, at their position in the order (zzlInsert). O(n)"""
    number: cython.longlong = 0
    text: bytes = b""
    if -_EXACT <= score <= _EXACT:
        if cython.compiled:
            number = cython.cast(cython.longlong, score)
        else:
            number = int(score)
    if number != score:  # zzlInsertAt: an integer if it is one, else its text
        text = digits_17(score) if classic else shortest(score)
    packed.room(size + _ROOM)  # after MemoryError, the listpack is as before
    pos: cython.Py_ssize_t = _place(packed, member, size, score)
    pos = packed.insert_span(pos, member, size)
    if text:
        packed.insert_span(pos, text, len(text))
    else:
        packed.insert_int(pos, number, False)
    return True

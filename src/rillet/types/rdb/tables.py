"""The dicts of sets, hashes and sorted sets as RDB bytes, without an object per element.

The elements are written in the order in which they rest in memory, those of a sorted set by rank. `rillet.types.rdb`
has a module for each type, which calls these functions for the encodings hashtable and skiplist.
"""

from __future__ import annotations

import struct

from rillet._cython import cython
from rillet.errors import Corrupt
from rillet.structs.dict import Dict
from rillet.structs.dict_table import u64
from rillet.structs.skiplist import Skiplist
from rillet.types.rdb.primitives import RdbReader, RdbWriter

_FREE_MARK = cython.declare(cython.ulonglong, (1 << 64) - 1)
_MOST_BUCKETS = cython.declare(cython.ulonglong, 1 << 24)


@cython.cfunc
def write_key(out: RdbWriter, table: Dict, n: cython.Py_ssize_t) -> cython.bint:
    """Append the key of an entry as a string."""
    at: cython.p_const_uchar = table.key_span(n)
    if cython.compiled:
        return out.string_span(at, table.span_size)
    return out.string(bytes(at[: table.span_size]))


@cython.cfunc
def write_value(out: RdbWriter, table: Dict, n: cython.Py_ssize_t) -> cython.bint:
    """Append the value of an entry, which has bytes, as a string."""
    at: cython.p_const_uchar = table.value_span(n)
    if cython.compiled:
        return out.string_span(at, table.span_size)
    return out.string(bytes(at[: table.span_size]))


@cython.ccall
def save_table(out: RdbWriter, table: Dict) -> cython.bint:
    """Append the number of entries, then each key and, if the table has values, its value. O(bytes)"""
    n: cython.Py_ssize_t
    out.length(table.used0 + table.used1)
    for n in range(table._top):
        if u64(table._record(n), 8) != _FREE_MARK:
            write_key(out, table, n)
            if table.has_values:
                write_value(out, table, n)
            out.spill()
    return True


@cython.ccall
def save_ranked(out: RdbWriter, table: Dict, skiplist: Skiplist) -> cython.bint:
    """Append the number of members, then each member and its score in 8 bytes, from the greatest down. O(bytes)"""
    x: cython.Py_ssize_t = skiplist.tail
    i: cython.Py_ssize_t
    out.length(table.used0 + table.used1)
    while True:
        for i in range(skiplist.count_of(x) - 1, -1, -1):
            write_key(out, table, skiplist.entry_of(x, i))
            out.number(skiplist.score_of(x, i))
        out.spill()
        if x == 0:
            return True
        x = skiplist.before(x)


@cython.cfunc
def _make_room(table: Dict, count: cython.ulonglong) -> cython.bint:
    """Create the buckets for the entries that a file announces; the claim of a damaged file is limited."""
    return table.resize(min(count, _MOST_BUCKETS))


@cython.ccall
def load_ranked(reader: RdbReader, table: Dict, skiplist: Skiplist, count: cython.ulonglong) -> cython.bint:
    """Read members and their scores of 8 bytes into an empty sorted set; Corrupt for a duplicate or NaN. O(bytes)"""
    score: cython.double
    _make_room(table, count)
    while count > 0:
        count -= 1
        member: bytes = reader.string()
        data: bytes = reader.raw(8)
        if cython.compiled:
            p: cython.p_const_uchar = data
            score = cython.cast(cython.p_double, p)[0]
        else:
            score = struct.unpack("<d", data)[0]
        if score != score:
            raise Corrupt("a score in a sorted set is not a number", "Zset with NAN score detected")
        if not skiplist.add(table, member, score):
            raise Corrupt("a sorted set has a duplicate member", "Duplicate zset fields detected")
    return True

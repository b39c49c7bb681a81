"""Replies of the elements of a dict, a listpack or a skiplist, written from their memory without an object for each.

A reply of a million members is written in the order in which they rest, so memory is read in sequence. A range of a
sorted set jumps from the skiplist to the dict's records and from there to the members: `write_range` therefore loads
the records and members that follow into the processor's caches ahead of time.
"""

from __future__ import annotations

from rillet._cython import cython
from rillet.protocol.reply_writer import ReplyWriter
from rillet.structs.dict import Dict
from rillet.structs.dict_table import u64
from rillet.structs.float_text import reply_text
from rillet.structs.listpack import Listpack
from rillet.structs.skiplist import Skiplist
from rillet.types.packed_zset import score_at
from rillet.types.zset import Zset

if cython.compiled:
    from cython.cimports.rillet._extern import rillet_prefetch

_FREE_MARK = cython.declare(cython.ulonglong, (1 << 64) - 1)
_EXACT = cython.declare(cython.double, 1e15)  # integers below this have the same text in all formats
_RESERVED = cython.declare(cython.Py_ssize_t, 1000)  # elements; a larger reply reserves its room at once


@cython.cfunc
def write_entry(out: ReplyWriter, packed: Listpack, pos: cython.Py_ssize_t) -> cython.bint:
    """Write an entry of a listpack as a bulk string; `at_next` is the position after it."""
    if packed.decode(pos):
        return out.bulk_slice(packed.buf, packed.at_start, packed.at_len)
    return out.bulk_int(packed.at_int)


@cython.cfunc
def write_entries(
    out: ReplyWriter, packed: Listpack, pos: cython.Py_ssize_t, count: cython.Py_ssize_t, step: cython.Py_ssize_t
) -> cython.bint:
    """Write `count` existing entries from a position on, every `step`-th one, as bulk strings. O(count * step)"""
    while count > 0:
        write_entry(out, packed, pos)
        count -= 1
        if count:
            pos = packed.skip(packed.at_next, step - 1)
    return True


@cython.cfunc
def _reserve(out: ReplyWriter, table: Dict, count: cython.Py_ssize_t, extra: cython.Py_ssize_t) -> cython.bint:
    """Reserve room for a reply of many elements of a table, so that the buffer is not copied as it grows."""
    used: cython.Py_ssize_t = table.used0 + table.used1
    if count >= _RESERVED and used > 0:
        out.reserve((table.arena.live // used + 1 + extra) * count)
    return True


@cython.cfunc
@cython.inline
def _bulk(out: ReplyWriter, p: cython.p_const_uchar, size: cython.Py_ssize_t) -> cython.bint:
    if cython.compiled:
        return out.bulk_span(p, size)
    return out.bulk(bytes(p[:size]))


@cython.cfunc
@cython.inline
def _write_key(out: ReplyWriter, table: Dict, n: cython.Py_ssize_t) -> cython.bint:
    at: cython.p_const_uchar = table.key_span(n)
    return _bulk(out, at, table.span_size)


@cython.ccall
def write_table(out: ReplyWriter, table: Dict, keys: cython.bint, values: cython.bint) -> cython.bint:
    """Write the keys of a table, its values, or both alternately, without a header; in order of the entries. O(n)"""
    n: cython.Py_ssize_t
    _reserve(out, table, table.used0 + table.used1, 20)
    for n in range(table._top):
        if u64(table._record(n), 8) == _FREE_MARK:
            continue
        if keys:
            _write_key(out, table, n)
        if values:
            at: cython.p_const_uchar = table.value_span(n)
            _bulk(out, at, table.span_size)
    return True


@cython.ccall
def write_score(out: ReplyWriter, score: cython.double, classic: cython.bint) -> cython.bint:
    """Write a score (networking.c: addReplyDouble)."""
    if cython.compiled:
        if score > -_EXACT and score < _EXACT:
            number: cython.longlong = cython.cast(cython.longlong, score)
            # A zero may be negative.
            if number == score and number != 0:
                return out.bulk_int(number) if out.resp == 2 else out._header(44, number)
    text: bytes = reply_text(score, classic)
    if out.resp == 2:
        return out.bulk(text)
    out.raw(b",")
    out.raw(text)
    return out.raw(b"\r\n")


@cython.ccall
def write_range(
    out: ReplyWriter, zset: Zset, start: cython.Py_ssize_t, count: cython.Py_ssize_t, backwards: cython.bint,
    with_scores: cython.bint, classic: cython.bint,
) -> cython.bint:  # fmt: skip
    """Write an array of the members of an existing window, the last one first if `backwards`. O(log n + count)"""
    nested: cython.bint = with_scores and out.resp != 2
    out.array(2 * count if with_scores and not nested else count)
    if count <= 0:
        return True
    if backwards:
        start += count - 1
    packed: Listpack | None = zset.listpack
    if packed is not None:
        return _write_packed(out, packed, start, count, backwards, with_scores, classic)
    table: Dict | None = zset.table
    skiplist: Skiplist | None = zset.skiplist
    assert table is not None and skiplist is not None
    _reserve(out, table, count, 40 if with_scores else 8)
    skiplist.at(start)
    x: cython.Py_ssize_t = skiplist.at_node
    i: cython.Py_ssize_t = skiplist.at_index
    step: cython.Py_ssize_t = -1 if backwards else 1
    length: cython.Py_ssize_t = skiplist.count_of(x)
    while True:
        if cython.compiled:
            if i + 16 * step >= 0 and i + 16 * step < length:
                rillet_prefetch(table._record(skiplist.entry_of(x, i + 16 * step)))
                rillet_prefetch(table._item(skiplist.entry_of(x, i + 8 * step)))
        if nested:
            out.array(2)
        _write_key(out, table, skiplist.entry_of(x, i))
        if with_scores:
            write_score(out, skiplist.score_of(x, i), classic)
        count -= 1
        if count == 0:
            return True
        i += step
        if i < 0 or i == length:
            x = skiplist.before(x) if backwards else skiplist.next_of(x)
            length = skiplist.count_of(x)
            i = length - 1 if backwards else 0


@cython.cfunc
def _write_packed(
    out: ReplyWriter, packed: Listpack, start: cython.Py_ssize_t, count: cython.Py_ssize_t, backwards: cython.bint,
    with_scores: cython.bint, classic: cython.bint,
) -> cython.bint:  # fmt: skip
    """Write the members of a window of a listpack, from the one with the rank `start` on."""
    pos: cython.Py_ssize_t = packed.seek(2 * start)
    score: cython.Py_ssize_t
    while True:
        if with_scores and out.resp != 2:
            out.array(2)
        write_entry(out, packed, pos)
        score = packed.at_next
        if with_scores:
            write_score(out, score_at(packed, score), classic)
        count -= 1
        if count == 0:
            return True
        pos = packed.prev(packed.prev(pos)) if backwards else packed.skip(score)

"""The node of a stream: about a hundred entries in one listpack, delta-encoded against a master entry.

A stream is a radix tree of nodes. The key of a node is its *master ID*, the ID of the first
entry ever added to it. The listpack starts with the *master entry*, and the entries follow:

    master   ┌───────┬─────────┬────────────┬─────────┬─────┬─────────┬───┐
             │ count │ deleted │ num-fields │ field 1 │  …  │ field N │ 0 │
             └───────┴─────────┴────────────┴─────────┴─────┴─────────┴───┘
    entry    ┌───────┬──────────┬───────────┬────────────┬─────────┬─────────┬───┬──────────┐
             │ flags │ ms-delta │ seq-delta │ num-fields │ field 1 │ value 1 │ … │ lp-count │
             └───────┴──────────┴───────────┴────────────┴─────────┴─────────┴───┴──────────┘
    ... with ┌───────┬──────────┬───────────┬─────────┬───┬─────────┬──────────┐
    SAMEFIELDS flags │ ms-delta │ seq-delta │ value 1 │ … │ value N │ lp-count │
             └───────┴──────────┴───────────┴─────────┴───┴─────────┴──────────┘

Each box is one listpack element. The master entry is not an entry of the stream: every entry with the same field names
in the same order (flag SAMEFIELDS), such as the first one, uses the names of the master entry. The deltas are modulo
2^64 (`id.delta`). lp-count is the number of elements before it in its entry, so that a backward iteration finds the
start of the entry; the 0 at the end of the master entry ends a backward iteration.

A deleted entry keeps its place and has the flag DELETED; it is called a tombstone. `count` is the number of other
entries, `deleted` the number of tombstones. The caller removes a node that has only tombstones; after an exact MINID
trim such a node can remain, as in Redis.

Invariants of a valid node (`validate_node` checks all but the third, which Redis does not check either): the listpack
is valid; count + deleted is the number of entries, and each lp-count fits its entry; count is the number of entries
without DELETED; the first entry's ID is the master ID; IDs rise.

Costs: appending is O(fields); finding an entry is O(node). In an untrusted node, a number may be stored as text, which
Redis's lpGetIntegerIfValid and `int_at` accept.
Rejected: an index of entry positions beside the node, which costs more memory than the deltas save.
"""

from __future__ import annotations

from rillet._cython import cython
from rillet.errors import Corrupt
from rillet.structs.argument_spans import ArgumentSpans
from rillet.structs.listpack import Listpack, is_int64, parse_int64

DELETED = 1
"""Entry flag: a tombstone (STREAM_ITEM_FLAG_DELETED)."""
SAMEFIELDS = 2
"""Entry flag: the master entry has the field names (STREAM_ITEM_FLAG_SAMEFIELDS)."""

_DELETED = cython.declare(cython.longlong, 1)
_SAMEFIELDS = cython.declare(cython.longlong, 2)
_COUNT = cython.declare(cython.Py_ssize_t, 6)  # position of a node's entry count, after the listpack header


@cython.ccall
@cython.exceptval(-77777777777, check=True)
def int_at(lp: Listpack, pos: cython.Py_ssize_t) -> cython.longlong:
    """Return the number at pos, even if it is text; raise Corrupt for other text. lp.at_next is the next element."""
    if lp.decode(pos):
        return _int_of_text(lp)
    return lp.at_int


@cython.cfunc
@cython.exceptval(-77777777777, check=True)
def _int_of_text(lp: Listpack) -> cython.longlong:
    text: bytes = bytes(lp.buf[lp.at_start : lp.at_start + lp.at_len])
    if not is_int64(text):
        raise Corrupt("stream node: an element has text in place of a number")
    return parse_int64(text)


@cython.ccall
@cython.exceptval(-77777777777, check=True)
def size_at(lp: Listpack, pos: cython.Py_ssize_t) -> cython.longlong:
    """Return the number of fields stored at pos. Raise Corrupt if it is negative or exceeds the listpack."""
    n: cython.longlong = int_at(lp, pos)
    if n < 0 or n > lp.used:
        raise Corrupt("stream node: the number of fields is negative or exceeds the node")
    return n


@cython.ccall
def new_node(
    words: ArgumentSpans, start: cython.Py_ssize_t, nfields: cython.Py_ssize_t, capacity: cython.Py_ssize_t
) -> Listpack:
    """Create a node with a master entry. Its count is already 1: the caller must append the first entry next."""
    lp: Listpack = Listpack(capacity)
    lp.open(4, words, start, 2, nfields)
    lp.push_int(1)
    lp.push_int(0)
    lp.push_int(nfields)
    lp.push_words(words, start, 2, nfields)
    lp.push_int(0)
    lp.close(nfields + 4)
    return lp


@cython.ccall
def append_entry(
    lp: Listpack,
    same: cython.bint,
    ms_delta: cython.longlong,
    seq_delta: cython.longlong,
    words: ArgumentSpans,
    start: cython.Py_ssize_t,
    nfields: cython.Py_ssize_t,
) -> cython.bint:
    """Append an entry; the caller increments the master's count. O(fields). Redis: streamAppendItem."""
    step: cython.Py_ssize_t = 2 if same else 1
    count: cython.Py_ssize_t = nfields if same else 2 * nfields
    boxes: cython.Py_ssize_t = count + (3 if same else 4)
    if same:
        start += 1  # the first value follows the first name; only values are stored
    lp.open(5, words, start, step, count)
    lp.push_int(_SAMEFIELDS if same else 0)
    lp.push_int(ms_delta)
    lp.push_int(seq_delta)
    if not same:
        lp.push_int(nfields)
    lp.push_words(words, start, step, count)
    lp.push_int(boxes)
    return lp.close(boxes + 1)


@cython.ccall
def master_fields(lp: Listpack) -> cython.Py_ssize_t:
    """Return the number of fields of the master entry; lp.at_next is the first of them."""
    return size_at(lp, lp.skip(_COUNT, 2))


@cython.ccall
def first_entry(lp: Listpack) -> cython.Py_ssize_t:
    """Return the position of the first entry's flags, or of the final 0xFF if there is no entry."""
    nfields: cython.Py_ssize_t = master_fields(lp)
    return lp.skip(lp.at_next, nfields + 1)


@cython.ccall
@cython.exceptval(-2, check=True)
def entry_before(lp: Listpack, pos: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """Return the position of the flags of the entry that ends at pos, -1 for the master entry. O(its elements)."""
    pos = lp.prev(pos)
    if pos < 0:
        raise Corrupt("stream node: the master entry is missing")
    boxes: cython.longlong = size_at(lp, pos)
    if boxes == 0:
        return -1
    while boxes > 0:
        pos = lp.prev(pos)
        if pos < 0:
            raise Corrupt("stream node: the lp-count of an entry points before the start of the node")
        boxes -= 1
    return pos


@cython.ccall
def mark_deleted(lp: Listpack, pos: cython.Py_ssize_t, flags: cython.longlong) -> cython.Py_ssize_t:
    """Turn the entry at pos into a tombstone. Return by how many bytes the following entries moved."""
    before: cython.Py_ssize_t = lp.used
    lp.replace_int(pos, flags | _DELETED)
    return lp.used - before


@cython.ccall
def count_deleted(lp: Listpack, deleted: cython.longlong) -> cython.bint:
    """Move `deleted` entries from the master entry's count to its number of deleted entries."""
    count: cython.longlong = int_at(lp, _COUNT)
    lp.replace_int(_COUNT, _wrapped_sum(count, -deleted))
    pos: cython.Py_ssize_t = lp.skip(_COUNT, 1)
    count = int_at(lp, pos)
    lp.replace_int(pos, _wrapped_sum(count, deleted))
    return True


@cython.cfunc
@cython.exceptval(check=False)
def _wrapped_sum(a: cython.longlong, b: cython.longlong) -> cython.longlong:
    """Return a + b modulo 2^64 as a signed number: the counts of an untrusted node may have any value."""
    if (b > 0 and a > 9223372036854775807 - b) or (b < 0 and a < -9223372036854775807 - 1 - b):
        # a + b overflows. Subtract (b > 0) or add 2^63 to each before the addition, which then cannot overflow.
        if b > 0:
            return (a - 9223372036854775807 - 1) + (b - 9223372036854775807 - 1)
        return (a + 9223372036854775807 + 1) + (b + 9223372036854775807 + 1)
    return a + b


@cython.ccall
def validate_node(lp: Listpack, deep: cython.bint = True) -> cython.bint:
    """Return whether an untrusted listpack is a valid node. O(bytes). Redis: streamValidateListpackIntegrity.

    deep=False checks only the header and end of the listpack. deep=True accepts the nodes that Redis accepts, except
    those with a negative number of fields: Redis accepts them, and stops with an assertion when it reads them.
    """
    if not lp.validate(False):
        return False
    if not deep:
        return True
    try:
        return _validate_entries(lp)
    except (Corrupt, IndexError):
        return False


@cython.cfunc
def _validate_entries(lp: Listpack) -> cython.bint:
    if lp.used <= 7:
        return False
    entries: cython.longlong = int_at(lp, _sound(lp, _COUNT))
    pos: cython.Py_ssize_t = lp.at_next
    entries = _wrapped_sum(entries, int_at(lp, _sound(lp, pos)))
    nfields: cython.longlong = size_at(lp, _sound(lp, lp.at_next))
    pos = _sound_skip(lp, lp.at_next, nfields)
    if int_at(lp, _sound(lp, pos)) != 0 or entries < 0:
        return False
    pos = lp.at_next
    while entries > 0:
        same: cython.bint = int_at(lp, _sound(lp, pos)) & _SAMEFIELDS != 0
        int_at(lp, _sound(lp, lp.at_next))
        int_at(lp, _sound(lp, lp.at_next))
        pos = lp.at_next
        fields: cython.longlong = nfields
        extra: cython.longlong = 3
        if not same:
            fields = size_at(lp, _sound(lp, pos))
            pos = _sound_skip(lp, lp.at_next, fields)
            extra = fields + 4
        pos = _sound_skip(lp, pos, fields)
        if int_at(lp, _sound(lp, pos)) != fields + extra:
            return False
        pos = lp.at_next
        entries -= 1
    return lp.is_end(pos)


@cython.cfunc
@cython.inline
def _sound(lp: Listpack, pos: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """Return pos, after a check that the listpack element at pos is complete and has the right backlen."""
    if lp.prev(lp.skip(pos, 1)) != pos:
        raise Corrupt("stream node: a backlen does not match its entry")
    return pos


@cython.cfunc
@cython.inline
def _sound_skip(lp: Listpack, pos: cython.Py_ssize_t, count: cython.longlong) -> cython.Py_ssize_t:
    while count > 0:
        pos = lp.skip(_sound(lp, pos), 1)
        count -= 1
    return pos

"""Replies of list elements, written from the bytes of the nodes without an object per element."""

from __future__ import annotations

from typing import Any

from rillet._cython import cython
from rillet.protocol.reply_writer import ReplyWriter
from rillet.structs.listpack import Listpack
from rillet.structs.quicklist import Quicklist, QuicklistNode


@cython.ccall
def write_range(
    out: ReplyWriter, elements: Quicklist, start: cython.Py_ssize_t, count: cython.Py_ssize_t,
    backwards: cython.bint = False,
) -> cython.bint:  # fmt: skip
    """Write an array of `count` existing elements from an index on (addListRangeReply). O(nodes + count)"""
    out.array(count)
    return count == 0 or _write(out, elements, start, count, backwards)


@cython.ccall
def write_element(out: ReplyWriter, elements: Quicklist, index: Any) -> cython.bint:
    """Write the element at an index, negative from the end; return False if there is none. O(nodes)"""
    length = len(elements)
    return -length <= index < length and _write(out, elements, index, 1, False)


@cython.cfunc
def write_end(out: ReplyWriter, elements: Quicklist, head: cython.bint) -> cython.bint:
    """Write the first or the last element; the list must not be empty. O(1)"""
    node: QuicklistNode | None = elements.head if head else elements.tail
    assert node is not None
    packed: Listpack | None = node.packed
    if packed is None:
        return out.bulk(node.plain)  # type: ignore[arg-type]
    return _write_packed(out, packed, packed.first() if head else packed.last(), 1, False) == 1


@cython.cfunc
def _write(
    out: ReplyWriter, elements: Quicklist, start: cython.Py_ssize_t, count: cython.Py_ssize_t, backwards: cython.bint
) -> cython.bint:
    node: QuicklistNode | None = elements.head
    rank: cython.Py_ssize_t = start
    if elements.nodes > 1:
        found = elements.locate(start)
        assert found is not None, "a range of existing elements begins at a node"
        node = found[0]
        rank = found[1]
    while count > 0 and node is not None:
        closed: cython.bint = node.open()
        packed: Listpack | None = node.packed
        if packed is None:
            assert node.plain is not None, "an open node has a listpack or one plain element"
            out.bulk(node.plain)
            count -= 1
        else:
            count -= _write_packed(out, packed, packed.seek(rank), count, backwards)
        if closed:
            node.close()
        node = node.previous if backwards else node.next
        rank = -1 if backwards else 0
    return True


@cython.cfunc
def _write_packed(
    out: ReplyWriter, packed: Listpack, pos: cython.Py_ssize_t, count: cython.Py_ssize_t, backwards: cython.bint
) -> cython.Py_ssize_t:
    """Write up to `count` entries of a listpack to the reply, from a position on; return their number."""
    written: cython.Py_ssize_t = 0
    while pos != -1 and written < count:
        if packed.decode(pos):
            out.bulk_slice(packed.buf, packed.at_start, packed.at_len)
        else:
            out.bulk_int(packed.at_int)
        written += 1
        pos = packed.prev(pos) if backwards else packed.next(pos)
    return written

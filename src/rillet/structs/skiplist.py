"""The skiplist: entries of a dict ordered by score and key, with fast lookup by rank (Redis: t_zset.c, zskiplist).

It is unrolled: a node holds up to 160 members, and the levels link nodes instead of members.

    level 3   head ------------- 480 ------------> c ------------------ 260 (to the end)
    level 2   head ------------- 480 ------------> c ------ 150 -----> d ------ 110
    level 1   head --- 160 ---> a ---- 160 --> b ---- 160 --> c ... d ...       (and backward from each)

Every node is in level 1. One node in four of each level is also in the next one, up to level 12. A search follows the
highest level until the next node begins too far, then continues one level below; in level 1 it ends with a binary
search in one node. The numbers are spans: how many members a step crosses. A search adds up spans to compute the rank
of its target, or searches for a rank. The last span of each level reaches to the end of the list.

A node is a record of 2 KiB in a block of 64 KiB, so a skiplist contains no Python objects for its members:

    0            48           96         100       104   128                 140                        2048
    +------------+------------+----------+---------+-----+---------+---------+---------+---------+-----+
    | next u32   | span u32   | backward | levels  |     | score   | entry   | score   | entry   | ... |
    | 12 levels  | 12 levels  | u32      | u32     |     | double  | u32     | double  | u32     |     |
    +------------+------------+----------+---------+-----+---------+---------+---------+---------+-----+

The span of level 1 is the number of members in the node. `entry` is the number of the member's entry in a Dict with
numbers (structs/dict.py), which holds the member's bytes, and its score again as its number. The caller passes the
dict to each operation. A dict moves entries after deletions: it reports each new number (`entry_moves`).

Node 0 is the head. It has all levels, and it holds the first members, so a list of 160 members is one node; its block
starts with 256 bytes and doubles. The head alone may be empty. 0 as a next node means the end. Node numbers have no
gaps: the last node takes the place of one that is removed.

A node that is full is split in halves, except at both ends of the list: members that arrive in order fill their nodes.
A node that falls below a quarter takes the members of the next one if both fit into three quarters.

A number of levels is random; the order of the members and all replies are independent of it. Members with equal scores
are ordered by their bytes. A search by member alone (`below_member`) is meaningful only if all scores are equal.

Costs: insert, remove, rank, `at`, `below` and `below_member` O(log n), expected, and a copy of at most 2 KiB; a step to
a neighbour O(1); delete_range O(log n + members deleted). A member takes 12.8 bytes if members arrive in order, and
about 18 otherwise. `hops` counts the nodes that searches pass, so that a test can verify the cost without a clock.

Invariants (`check`): the order is strict; each level contains only nodes of the level below, and no level except the
first is empty; the spans are correct; the chain is consistent in both directions; only the head may be empty.

Rejected alternatives (docs/design/0024-a-skiplist-in-blocks.md): a node for each member as Python object or as record,
a sorted array, a balanced tree.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from random import getrandbits
from typing import Annotated, Any

from rillet._cython import cython, readonly
from rillet.structs.block_list import BlockList
from rillet.structs.dict import Dict
from rillet.structs.dict_table import EntryOwner, address, put_u32, u32, varint, varint_size

if cython.compiled:
    from cython.cimports.libc.string import memcmp, memcpy, memmove


MAX_LEVEL = 12
"""Levels of the head: 4**12 nodes are more than a dict has entries for."""
NODE_MEMBERS = 160

_MAX_LEVEL = cython.declare(cython.int, 12)
_NODE_SHIFT = cython.declare(cython.int, 5)  # nodes of a block
_NODE_MASK = cython.declare(cython.Py_ssize_t, 31)
_NODE_BYTES = cython.declare(cython.Py_ssize_t, 2048)
_FIRST_BYTES = cython.declare(cython.Py_ssize_t, 256)
_SPANS = cython.declare(cython.Py_ssize_t, 48)
_BACKWARD = cython.declare(cython.Py_ssize_t, 96)
_LEVELS = cython.declare(cython.Py_ssize_t, 100)
_PAIRS = cython.declare(cython.Py_ssize_t, 128)
_PAIR = cython.declare(cython.Py_ssize_t, 12)
_MEMBERS = cython.declare(cython.Py_ssize_t, 160)
_FEW = cython.declare(cython.Py_ssize_t, 40)
_MERGED = cython.declare(cython.Py_ssize_t, 120)
# Kinds of `_is_below`: what a search compares with its target.
_SCORE_BELOW = cython.declare(cython.int, 0)
_BELOW = cython.declare(cython.int, 2)
_UP_TO = cython.declare(cython.int, 5)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _score(p: cython.p_uchar, i: cython.Py_ssize_t) -> cython.double:
    """Return score i of a node. It is copied, because a pair of 12 bytes does not align it."""
    if cython.compiled:
        value: cython.double = 0.0
        memcpy(cython.address(value), p + _PAIRS + _PAIR * i, 8)
        return value
    score: float = struct.unpack_from("<d", p, 128 + 12 * i)[0]
    return score


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _entry(p: cython.p_uchar, i: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """Return entry i of a node."""
    return u32(p, _PAIRS + _PAIR * i + 8)


@cython.cfunc
@cython.inline
def _put_pair(p: cython.p_uchar, i: cython.Py_ssize_t, score: cython.double, n: cython.Py_ssize_t) -> cython.bint:
    if cython.compiled:
        memcpy(p + _PAIRS + _PAIR * i, cython.address(score), 8)
    else:
        struct.pack_into("<d", p, 128 + 12 * i, score)
    put_u32(p, _PAIRS + _PAIR * i + 8, n)
    return True


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _count(p: cython.p_uchar) -> cython.Py_ssize_t:
    return u32(p, _SPANS)


@cython.cfunc
@cython.inline
def _move_pairs(
    p: cython.p_uchar, at: cython.Py_ssize_t, q: cython.p_uchar, start: cython.Py_ssize_t, count: cython.Py_ssize_t
) -> cython.bint:
    """Copy pairs of the node q, from `start` on, to the position `at` of the node p; the nodes may be the same."""
    to: cython.Py_ssize_t = _PAIRS + _PAIR * at
    fr: cython.Py_ssize_t = _PAIRS + _PAIR * start
    if cython.compiled:
        memmove(p + to, q + fr, _PAIR * count)
    else:
        p[to : to + 12 * count] = bytes(q[fr : fr + 12 * count])
    return True


@cython.cfunc
@cython.exceptval(check=False)
def _order(table: Dict, n: cython.Py_ssize_t, at: cython.p_const_uchar, size: cython.Py_ssize_t) -> cython.int:
    """Return a negative number, 0 or a positive number if the key of entry n is below, equal to or above the bytes."""
    p: cython.p_uchar = table._item(n)
    length: cython.Py_ssize_t = varint(p, 0) >> 1
    i: cython.Py_ssize_t = varint_size(2 * length)
    if cython.compiled:
        order: cython.int = memcmp(p + i, at, min(length, size))
        if order == 0 and length != size:
            order = -1 if length < size else 1
        return order
    key, other = bytes(p[i : i + length]), bytes(at[:size])
    return (key > other) - (key < other)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _is_below(
    p: cython.p_uchar, i: cython.Py_ssize_t, kind: cython.int, score: cython.double, table: Dict,
    at: cython.p_const_uchar, size: cython.Py_ssize_t,
) -> cython.bint:  # fmt: skip
    """Return whether member i of a node is below a target.

    kind: 0 score <, 1 score <=, 2 (score, member) <, 3 member <, 4 member <=, 5 (score, member) <=
    """
    own: cython.double
    if kind != 3 and kind != 4:
        own = _score(p, i)
        if own != score:
            return own < score
        if kind < 2:
            return kind == 1
    order: cython.int = _order(table, _entry(p, i), at, size)
    return order < 0 or (order == 0 and kind > 3)


@cython.cfunc
def _chance() -> cython.int:
    """Return a random number of levels for a new node; each further level has probability 1/4 (zslRandomLevel)."""
    level: cython.int = 1
    bits: cython.ulonglong = getrandbits(62)
    while level < _MAX_LEVEL and bits & 3 == 3:
        bits >>= 2
        level += 1
    return level


@cython.final
@cython.cclass
class Skiplist(EntryOwner):
    """A skiplist of the entries of one dict; ranks count from 0."""

    __slots__ = (
        "_before", "_levels", "_ranks", "at_index", "at_node", "blocks", "hops", "length", "level", "nodes", "tail",
    )  # fmt: skip
    blocks: readonly[BlockList]
    nodes: readonly[cython.Py_ssize_t]
    length: readonly[cython.Py_ssize_t]
    level: readonly[cython.Py_ssize_t]
    tail: readonly[cython.Py_ssize_t]
    hops: readonly[cython.Py_ssize_t]
    at_node: readonly[cython.Py_ssize_t]
    at_index: readonly[cython.Py_ssize_t]
    _levels: cython.Py_ssize_t
    _before: Annotated[Any, cython.Py_ssize_t[12]]
    _ranks: Annotated[Any, cython.Py_ssize_t[12]]

    def __init__(self) -> None:
        self.blocks = BlockList()
        self.blocks.append(_FIRST_BYTES)
        self.nodes = 1
        self.length = 0
        self.level = 1
        self.tail = 0
        self.hops = 0
        self.at_node = self.at_index = 0
        self._levels = 0  # of the next node, if `_reserve_node` was called
        put_u32(self._node(0), _LEVELS, _MAX_LEVEL)
        if not cython.compiled:
            self._before = [0] * MAX_LEVEL
            self._ranks = [0] * MAX_LEVEL

    def __len__(self) -> int:
        return self.length

    def __repr__(self) -> str:
        return f"<Skiplist: {self.length} members in {self.nodes} nodes, {self.level} levels>"

    # -- nodes ---------------------------------------------------------------------------------------

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def _node(self, x: cython.Py_ssize_t) -> cython.p_uchar:
        """Return the address of a node; it is valid until a node is added."""
        return address(self.blocks, x >> _NODE_SHIFT, (x & _NODE_MASK) * _NODE_BYTES)

    @cython.cfunc
    @cython.exceptval(check=False)
    def count_of(self, x: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Return the number of members in a node."""
        return _count(self._node(x))

    @cython.cfunc
    @cython.exceptval(check=False)
    def entry_of(self, x: cython.Py_ssize_t, i: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Return the entry of member i of a node."""
        return _entry(self._node(x), i)

    @cython.cfunc
    @cython.exceptval(check=False)
    def score_of(self, x: cython.Py_ssize_t, i: cython.Py_ssize_t) -> cython.double:
        """Return the score of member i of a node."""
        return _score(self._node(x), i)

    @cython.cfunc
    @cython.exceptval(check=False)
    def next_of(self, x: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Return the node after a node, 0 at the end."""
        return u32(self._node(x), 0)

    @cython.cfunc
    @cython.exceptval(check=False)
    def before(self, x: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Return the node before a node; 0 is the head, which has none."""
        return u32(self._node(x), _BACKWARD)

    @cython.cfunc
    def _reserve_node(self) -> cython.bint:
        """Prepare a node after the last one, so that `_split` allocates nothing."""
        x: cython.Py_ssize_t = self.nodes
        block: cython.Py_ssize_t = x >> _NODE_SHIFT
        if self._levels == 0:
            self._levels = _chance()
        if block == len(self.blocks.blocks):
            self.blocks.append((_NODE_MASK + 1) * _NODE_BYTES)
        elif block == 0 and (x + 1) * _NODE_BYTES > len(self.blocks.blocks[0]):
            self.blocks.enlarge(0, 2 * len(self.blocks.blocks[0]))
        return True

    # -- searching -----------------------------------------------------------------------------------

    @cython.cfunc
    def _descend(
        self, kind: cython.int, score: cython.double, table: Dict, at: cython.p_const_uchar, size: cython.Py_ssize_t
    ) -> cython.Py_ssize_t:
        """Return the last node whose first member is below the target, or the head.

        `_before` and `_ranks` then contain the last such node of each level, and the rank of its first member.
        """
        x: cython.Py_ssize_t = 0
        rank: cython.Py_ssize_t = 0
        level: cython.Py_ssize_t = self.level
        p: cython.p_uchar = self._node(0)
        while level > 0:
            level -= 1
            following: cython.Py_ssize_t = u32(p, 4 * level)
            while following:
                q: cython.p_uchar = self._node(following)
                if not _is_below(q, 0, kind, score, table, at, size):
                    break
                rank += u32(p, _SPANS + 4 * level)
                self.hops += 1
                x = following
                p = q
                following = u32(p, 4 * level)
            self._before[level] = x
            self._ranks[level] = rank
        return x

    @cython.cfunc
    def _place(
        self, x: cython.Py_ssize_t, kind: cython.int, score: cython.double, table: Dict, at: cython.p_const_uchar,
        size: cython.Py_ssize_t,
    ) -> cython.Py_ssize_t:  # fmt: skip
        """Return how many members of a node are below the target."""
        p: cython.p_uchar = self._node(x)
        low: cython.Py_ssize_t = 0
        high: cython.Py_ssize_t = _count(p)
        while low < high:
            middle: cython.Py_ssize_t = (low + high) >> 1
            if _is_below(p, middle, kind, score, table, at, size):
                low = middle + 1
            else:
                high = middle
        return low

    @cython.cfunc
    def _find(self, table: Dict, n: cython.Py_ssize_t, score: cython.double) -> cython.Py_ssize_t:
        """Find the position of an entry that is in the list with this score: return its node, set `at_index`.

        Within the node, numbers of entries are compared: the bytes of members with equal scores are in other places.
        """
        p: cython.p_uchar = table._item(n)
        size: cython.Py_ssize_t = varint(p, 0) >> 1
        start: cython.Py_ssize_t = varint_size(2 * size)
        x: cython.Py_ssize_t
        if cython.compiled:
            x = self._descend(_UP_TO, score, table, p + start, size)
        else:
            x = self._descend(_UP_TO, score, table, p[start : start + size], size)
        node: cython.p_uchar = self._node(x)
        count: cython.Py_ssize_t = _count(node)
        i: cython.Py_ssize_t = self._place(x, _SCORE_BELOW, score, table, p, 0)
        while i < count and _entry(node, i) != n:
            i += 1
        assert i < count, "the skiplist does not contain this entry"
        self.at_index = i
        return x

    @cython.ccall
    def rank(self, table: Dict, n: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Return the number of members before that of an entry (zslGetRank). O(log n)"""
        self._find(table, n, table.score(n))
        first: cython.Py_ssize_t = self._ranks[0]
        return first + self.at_index

    @cython.ccall
    def below(self, table: Dict, score: cython.double, inclusive: cython.bint) -> cython.Py_ssize_t:
        """Return the number of members with a score below the given score, or equal to it if inclusive. O(log n)"""
        if cython.compiled:
            return self._below(1 if inclusive else 0, score, table, cython.NULL, 0)
        return self._below(1 if inclusive else 0, score, table, b"", 0)

    @cython.ccall
    def below_member(self, table: Dict, member: bytes, inclusive: cython.bint) -> cython.Py_ssize_t:
        """Return the number of members below `member`, or equal if inclusive. All scores must be equal. O(log n)"""
        at: cython.p_const_uchar = member
        return self._below(4 if inclusive else 3, 0.0, table, at, len(member))

    @cython.cfunc
    def _below(
        self, kind: cython.int, score: cython.double, table: Dict, at: cython.p_const_uchar, size: cython.Py_ssize_t
    ) -> cython.Py_ssize_t:
        """Return the number of leading members that are below the target."""
        x: cython.Py_ssize_t = self._descend(kind, score, table, at, size)
        first: cython.Py_ssize_t = self._ranks[0]
        return first + self._place(x, kind, score, table, at, size)

    @cython.ccall
    def at(self, rank: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Return the entry of an existing rank (zslGetElementByRank), and set `at_node` and `at_index`. O(log n)"""
        if rank < 0 or rank >= self.length:
            raise IndexError("the rank is negative or past the last member of the skiplist")
        x: cython.Py_ssize_t = 0
        left: cython.Py_ssize_t = rank
        level: cython.Py_ssize_t = self.level
        while level > 0:
            level -= 1
            p: cython.p_uchar = self._node(x)
            following: cython.Py_ssize_t = u32(p, 4 * level)
            span: cython.Py_ssize_t = u32(p, _SPANS + 4 * level)
            while following and span <= left:
                left -= span
                self.hops += 1
                x = following
                p = self._node(x)
                following = u32(p, 4 * level)
                span = u32(p, _SPANS + 4 * level)
            self._before[level] = x
        self.at_node = x
        self.at_index = left
        return _entry(self._node(x), left)

    # -- reading many members ------------------------------------------------------------------------

    @cython.ccall
    def pairs(
        self, table: Dict, start: cython.Py_ssize_t, count: cython.Py_ssize_t, backwards: cython.bint
    ) -> list[Any]:
        """Return (member, score) of `count` existing ranks from `start` on, or from it down. O(log n + count)"""
        found: list[Any] = []
        if count <= 0:
            return found
        self.at(start)
        x: cython.Py_ssize_t = self.at_node
        i: cython.Py_ssize_t = self.at_index
        while True:
            found.append((table.entry_key(self.entry_of(x, i)), self.score_of(x, i)))
            count -= 1
            if count == 0:
                return found
            if backwards:
                if i == 0:
                    x = self.before(x)
                    i = self.count_of(x)
                i -= 1
            else:
                i += 1
                if i == self.count_of(x):
                    x = self.next_of(x)
                    i = 0

    def iterate(self, table: Dict, backwards: bool = False) -> Iterator[tuple[bytes, float]]:
        """Yield (member, score) in rising or descending order; the list must not change meanwhile. O(n)"""
        x: cython.Py_ssize_t = self.tail if backwards else 0
        if not self.length:
            return
        while True:
            count: cython.Py_ssize_t = self.count_of(x)
            i: cython.Py_ssize_t
            for i in range(count):
                at: cython.Py_ssize_t = count - 1 - i if backwards else i
                yield table.entry_key(self.entry_of(x, at)), self.score_of(x, at)
            if backwards and x == 0:
                return
            x = self.before(x) if backwards else self.next_of(x)
            if x == 0 and not backwards:
                return

    # -- insertion and removal -----------------------------------------------------------------------

    @cython.ccall
    def add(self, table: Dict, member: bytes, score: cython.double) -> cython.bint:
        """Add a member to the dict and to the list; return False if it exists. O(log n)"""
        n: cython.Py_ssize_t = table.add_or_find(member)
        if not table.added:
            return False
        try:
            return self.insert(table, n, score)
        except BaseException:  # MemoryError: the list is unchanged
            table.delete_entry(n)
            raise

    @cython.cfunc
    def put_span(
        self, table: Dict, at: cython.p_const_uchar, size: cython.Py_ssize_t, score: cython.double
    ) -> cython.int:
        """Add a member or change its score; return 1 if it is new, 2 if its score changed, else 0. O(log n)"""
        n: cython.Py_ssize_t = table.add_span(at, size, at, -1)
        if not table.added:
            if table.score(n) == score:
                return 0
            self.move(table, n, score)
            return 2
        try:
            self.insert(table, n, score)
        except BaseException:  # MemoryError: the list is unchanged
            table.delete_entry(n)
            raise
        return 1

    @cython.ccall
    def discard(self, table: Dict, member: bytes) -> cython.bint:
        """Remove a member from the list and from the dict; return False if it does not exist. O(log n)"""
        n: cython.Py_ssize_t = table.find(member)
        return n >= 0 and self.remove(table, n) and table.delete_entry(n)

    @cython.ccall
    def insert(self, table: Dict, n: cython.Py_ssize_t, score: cython.double) -> cython.bint:
        """Add an entry that is not in the list, and set its number to the score (zslInsert). O(log n)

        After MemoryError, the list is unchanged.
        """
        table.set_score(n, score)
        p: cython.p_uchar = table._item(n)
        size: cython.Py_ssize_t = varint(p, 0) >> 1
        start: cython.Py_ssize_t = varint_size(2 * size)
        at: cython.p_const_uchar
        if cython.compiled:
            at = p + start
        else:
            at = p[start : start + size]
        x: cython.Py_ssize_t = self._descend(_BELOW, score, table, at, size)
        i: cython.Py_ssize_t = self._place(x, _BELOW, score, table, at, size)
        node: cython.p_uchar = self._node(x)
        count: cython.Py_ssize_t = _count(node)
        if count == _MEMBERS:
            # At the ends of the list, nodes stay full: only one member, or all, move to the new node.
            if i == count and x == self.tail:
                self._split(x, count - 1)
            else:
                self._split(x, 0 if x == 0 and i == 0 else count // 2)
            x = self._descend(_BELOW, score, table, at, size)
            i = self._place(x, _BELOW, score, table, at, size)
            node = self._node(x)
            count = _count(node)
        elif x == 0 and _PAIRS + _PAIR * (count + 1) > len(self.blocks.blocks[0]):
            self.blocks.enlarge(0, 2 * len(self.blocks.blocks[0]))
            node = self._node(x)
        _move_pairs(node, i + 1, node, i, count - i)
        _put_pair(node, i, score, n)
        return self._lengthen(1)

    @cython.cfunc
    def _lengthen(self, by: cython.Py_ssize_t) -> cython.bint:
        """Add to the spans along the path of the last search."""
        level: cython.Py_ssize_t
        for level in range(self.level):
            p: cython.p_uchar = self._node(self._before[level])
            put_u32(p, _SPANS + 4 * level, u32(p, _SPANS + 4 * level) + by)
        self.length += by
        return True

    @cython.cfunc
    def _split(self, x: cython.Py_ssize_t, keep: cython.Py_ssize_t) -> cython.bint:
        """Move the members of a node from `keep` on to a new node after it; the last search ended at the node."""
        self._reserve_node()
        y: cython.Py_ssize_t = self.nodes
        self.nodes = y + 1
        levels: cython.int = self._levels
        self._levels = 0
        p: cython.p_uchar = self._node(x)
        q: cython.p_uchar = self._node(y)
        level: cython.Py_ssize_t
        _move_pairs(q, 0, p, keep, _count(p) - keep)
        put_u32(q, _LEVELS, levels)
        put_u32(q, _BACKWARD, x)
        for level in range(self.level, levels):
            self._before[level] = self._ranks[level] = 0
            put_u32(self._node(0), 4 * level, 0)
            put_u32(self._node(0), _SPANS + 4 * level, self.length)
        self.level = max(self.level, levels)
        start: cython.Py_ssize_t = self._ranks[0]
        start += keep
        for level in range(levels):
            p = self._node(self._before[level])
            passed: cython.Py_ssize_t = self._ranks[level]
            passed = start - passed
            put_u32(q, 4 * level, u32(p, 4 * level))
            put_u32(q, _SPANS + 4 * level, u32(p, _SPANS + 4 * level) - passed)
            put_u32(p, 4 * level, y)
            put_u32(p, _SPANS + 4 * level, passed)
        following: cython.Py_ssize_t = u32(q, 0)
        if following:
            put_u32(self._node(following), _BACKWARD, y)
        else:
            self.tail = y
        return True

    @cython.ccall
    def remove(self, table: Dict, n: cython.Py_ssize_t) -> cython.bint:
        """Remove an entry from the list, which the caller then deletes from the dict (zslDelete). O(log n)"""
        x: cython.Py_ssize_t = self._find(table, n, table.score(n))
        return self._cut(table, x, self.at_index, 1)

    @cython.cfunc
    def _cut(self, table: Dict, x: cython.Py_ssize_t, i: cython.Py_ssize_t, count: cython.Py_ssize_t) -> cython.bint:
        """Remove members of a node at which the last search ended, and the node if it becomes empty."""
        p: cython.p_uchar = self._node(x)
        rest: cython.Py_ssize_t = _count(p) - count
        self._lengthen(-count)
        if rest == 0:
            # The bytes of the first member remain, so that the search for the node before it finds its place.
            return x == 0 or self._unlink(table, x)
        _move_pairs(p, i, p, i + count, rest - i)
        if rest < _FEW:
            y: cython.Py_ssize_t = u32(p, 0)
            if y and rest + _count(self._node(y)) <= _MERGED:
                _move_pairs(p, rest, self._node(y), 0, _count(self._node(y)))
                return self._unlink(table, y)
        return True

    @cython.cfunc
    def _search_before(self, table: Dict, x: cython.Py_ssize_t) -> cython.bint:
        """Search for the nodes before a node other than the head, in each level."""
        p: cython.p_uchar = self._node(x)
        item: cython.p_uchar = table._item(_entry(p, 0))
        size: cython.Py_ssize_t = varint(item, 0) >> 1
        start: cython.Py_ssize_t = varint_size(2 * size)
        if cython.compiled:
            self._descend(_BELOW, _score(p, 0), table, item + start, size)
        else:
            self._descend(_BELOW, _score(p, 0), table, item[start : start + size], size)
        return True

    @cython.cfunc
    def _unlink(self, table: Dict, x: cython.Py_ssize_t) -> cython.bint:
        """Remove a node that is empty, or whose members the node before it has taken (zslDeleteNode)."""
        self._search_before(table, x)
        p: cython.p_uchar = self._node(x)
        level: cython.Py_ssize_t
        for level in range(u32(p, _LEVELS)):
            q: cython.p_uchar = self._node(self._before[level])
            assert u32(q, 4 * level) == x, "the search path ends directly before the node to remove"
            put_u32(q, 4 * level, u32(p, 4 * level))
            put_u32(q, _SPANS + 4 * level, u32(q, _SPANS + 4 * level) + u32(p, _SPANS + 4 * level))
        following: cython.Py_ssize_t = u32(p, 0)
        if following:
            put_u32(self._node(following), _BACKWARD, u32(p, _BACKWARD))
        else:
            self.tail = u32(p, _BACKWARD)
        while self.level > 1 and u32(self._node(0), 4 * (self.level - 1)) == 0:
            self.level -= 1
        return self._close_gap(table, x)

    @cython.cfunc
    def _close_gap(self, table: Dict, x: cython.Py_ssize_t) -> cython.bint:
        """Move the last node to the place of a removed one, and free a block that is not needed."""
        last: cython.Py_ssize_t = self.nodes - 1
        if x != last:
            self._search_before(table, last)
            p: cython.p_uchar = self._node(last)
            q: cython.p_uchar = self._node(x)
            level: cython.Py_ssize_t
            for level in range(u32(p, _LEVELS)):
                put_u32(self._node(self._before[level]), 4 * level, x)
            if u32(p, 0):
                put_u32(self._node(u32(p, 0)), _BACKWARD, x)
            else:
                self.tail = x
            if cython.compiled:
                memcpy(q, p, _NODE_BYTES)
            else:
                q[:2048] = p[:2048]
        self.nodes = last
        # One empty block stays, so that a size at its edge does not create and free it again and again.
        if ((last + _NODE_MASK) >> _NODE_SHIFT) + 1 < len(self.blocks.blocks):
            self.blocks.pop()
        return True

    @cython.ccall
    def move(self, table: Dict, n: cython.Py_ssize_t, score: cython.double) -> cython.bint:
        """Change the score of an entry (zslUpdateScore). O(log n)"""
        x: cython.Py_ssize_t = self._find(table, n, table.score(n))
        i: cython.Py_ssize_t = self.at_index
        p: cython.p_uchar = self._node(x)
        count: cython.Py_ssize_t = _count(p)
        low: cython.bint = _score(p, i - 1) < score if i > 0 else x == 0
        high: cython.bint = _score(p, i + 1) > score if i + 1 < count else x == self.tail
        if low and high:  # it keeps its position
            _put_pair(p, i, score, n)
            return table.set_score(n, score)
        if self.nodes > 1:  # a single node is not full after the removal
            self._reserve_node()  # nothing may fail between the removal and the insertion
        self._cut(table, x, i, 1)
        return self.insert(table, n, score)

    @cython.ccall
    def delete_range(self, table: Dict, start: cython.Py_ssize_t, count: cython.Py_ssize_t) -> cython.bint:
        """Remove `count` existing ranks from `start` on, also from the dict (zslDeleteRangeByRank). O(log n + count)"""
        entries: list[Any] = []
        n: cython.Py_ssize_t
        i: cython.Py_ssize_t
        shrinks: cython.bint = table.newest
        while count > 0:
            self.at(start)
            x: cython.Py_ssize_t = self.at_node
            first: cython.Py_ssize_t = self.at_index
            some: cython.Py_ssize_t = min(count, self.count_of(x) - first)
            entries.clear()
            for i in range(first, first + some):
                entries.append(self.entry_of(x, i))
            self._cut(table, x, first, some)
            count -= some
            # While movement pauses, the entries that are still to be deleted keep their numbers. The dict does not
            # shrink either, because that allocates memory: the deletions must not stop in the middle.
            table.pauses += 1
            table.newest = False
            try:
                for n in entries:
                    table.delete_entry(n)
            finally:
                table.newest = shrinks
                table.pauses -= 1
            table.tidy(some)
            if shrinks:
                table.shrink_if_needed()
        return True

    @cython.ccall
    def entry_moves(self, table: object, old: cython.Py_ssize_t, new: cython.Py_ssize_t) -> cython.bint:
        """Refer to an entry of the dict by its new number; the old one is still valid. O(log n)"""
        entries: Dict = table  # type: ignore[assignment]
        x: cython.Py_ssize_t = self._find(entries, old, entries.score(old))
        p: cython.p_uchar = self._node(x)
        put_u32(p, _PAIRS + _PAIR * self.at_index + 8, new)
        return True

    # -- the whole list ------------------------------------------------------------------------------

    def copy(self) -> Skiplist:
        """Return a copy, for a copy of the dict, whose entries have the same numbers. O(n)"""
        twin = Skiplist()
        twin._take(self)
        return twin

    def _take(self, other: Skiplist) -> None:
        self.blocks, self.nodes, self.length = other.blocks.copy(), other.nodes, other.length
        self.level, self.tail = other.level, other.tail

    @cython.ccall
    def free_some(self, limit: cython.Py_ssize_t) -> cython.bint:
        """Free up to `limit` blocks of a list that is not used any more; return whether more remain. O(limit)"""
        while limit > 0 and len(self.blocks.blocks):
            self.blocks.pop()
            limit -= 1
        return len(self.blocks.blocks) > 0

    @cython.ccall
    def memory_bytes(self) -> cython.Py_ssize_t:
        """Return the bytes that the skiplist uses, without the dict. O(1)"""
        return self.blocks.memory_bytes() + 320

    def layout(self) -> list[dict[str, Any]]:
        """Return the nodes in the order of their members, which `check` verifies. O(n)"""
        found = []
        x: cython.Py_ssize_t = 0
        while True:
            p = self._node(x)
            levels: cython.Py_ssize_t = u32(p, _LEVELS)
            found.append({
                "number": x, "backward": u32(p, _BACKWARD),
                "next": [u32(p, 4 * level) for level in range(levels)],
                "span": [u32(p, _SPANS + 4 * level) for level in range(levels)],
                "pairs": [(self.score_of(x, i), self.entry_of(x, i)) for i in range(_count(p))],
            })  # fmt: skip
            x = u32(p, 0)
            if x == 0:
                return found

    def check(self, table: Dict) -> None:
        """Raise AssertionError if an invariant is broken. O(n)"""
        check_skiplist(self, table)


def check_skiplist(skiplist: Skiplist, table: Dict) -> None:
    """Raise AssertionError if the order, a link, a span or the dict of a skiplist is wrong. O(n)"""
    nodes = skiplist.layout()
    numbers = [node["number"] for node in nodes]
    assert sorted(numbers) == list(range(skiplist.nodes)), "a node is missing from the chain"
    assert numbers[0] == 0 and skiplist.tail == numbers[-1]
    assert [node["backward"] for node in nodes[1:]] == numbers[:-1]
    assert all(node["pairs"] for node in nodes[1:]), "a node other than the head is empty"
    entries = [entry for node in nodes for _, entry in node["pairs"]]
    ordered = [(score, table.entry_key(entry)) for node in nodes for score, entry in node["pairs"]]
    assert len(entries) == len(set(entries)) == skiplist.length == len(table)
    assert all(one < other for one, other in zip(ordered, ordered[1:], strict=False)), "the order is not strict"
    assert [score for score, _ in ordered] == [table.score(entry) for entry in entries], "a score differs or is NaN"
    starts, rank = {}, 0
    for node in nodes:
        starts[node["number"]] = rank
        rank += len(node["pairs"])
    assert skiplist.level == max((len(node["next"]) for node in nodes[1:]), default=1) <= MAX_LEVEL
    for level in range(skiplist.level):
        members = [node for node in nodes if level < len(node["next"])]
        for one, other in zip(members, [*members[1:], None], strict=True):
            assert one["next"][level] == (0 if other is None else other["number"])
            end = skiplist.length if other is None else starts[other["number"]]
            assert one["span"][level] == end - starts[one["number"]]
    skiplist.blocks.check()

"""The skiplist: members ordered by score, with fast lookup by rank (Redis: t_zset.c, zskiplist).

    level 3   head ------------ 3 -----------> c ------------------- 2 (to the end)
    level 2   head ------------ 3 -----------> c ----- 1 ---> d ---- 1
    level 1   head ---> a ---> b ------------> c -----------> d ---> e        (and backward from each)

Every node is in level 1. One node in four of each level is also in the next one, up to level 32. A search
follows the highest level until the next node would be too far, then continues one level below, so it passes
about four nodes per level. The numbers are spans: how many nodes of level 1 a step crosses. A search adds up
spans to compute the rank of its target, or searches for a rank. The last span of each level reaches to the
end of the list.

A node's number of levels is random; the order of the members and all replies are independent of it. Nodes are
ordered by score, then by the bytes of the member. A search by member alone (`below_member`) is meaningful only if
all scores are equal.

Three of four nodes are in level 1 only. A node therefore stores that level in its own attributes, and a list only
for the others: `tower` holds the next node and the span of level 2, of level 3, and so on.

Costs: insert, remove, rank, `at`, `below` and `below_member` O(log n), expected; a step to a neighbour O(1);
delete_range O(log n + nodes deleted). `hops` counts the nodes that searches pass, so that a test can verify the
cost without a clock.

Invariants (`check`): the order is strict; each level contains only nodes of the level below, and no level except the
first is empty; the spans are correct; the chain is consistent in both directions.

Rejected alternatives: a sorted array (a removal moves all later members: 4 MB each time for a million members), a
balanced tree (more code for the same costs, and range queries need the chain), and weak references backward (see
quicklist). The chain is a reference cycle, so the destructor unlinks it explicitly.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import getrandbits
from typing import Any

try:
    import cython
except ModuleNotFoundError:  # Cython is not installed: use a replacement for its names
    from rillet import _cython as cython

MAX_LEVEL = 32  # ZSKIPLIST_MAXLEVEL

_MAX_LEVEL = cython.declare(cython.Py_ssize_t, 32)


@cython.final
@cython.no_gc
@cython.cclass
class SkiplistNode:
    """A member and its score. The skiplist ignores `slot`, which its owner may use."""

    __slots__ = ("backward", "member", "next", "score", "slot", "tower")

    def __init__(self, score: cython.double, member: bytes, level: cython.Py_ssize_t = 1) -> None:
        self.score = score
        self.member = member
        self.slot = 0
        self.next: SkiplistNode | None = None
        self.backward: SkiplistNode | None = None
        self.tower: Any = None if level == 1 else [None, 0] * (level - 1)


@cython.cfunc
@cython.inline
@cython.exceptval(-1, check=False)
def _levels(node: SkiplistNode) -> cython.Py_ssize_t:
    return 1 if node.tower is None else len(node.tower) // 2 + 1


@cython.cfunc
@cython.inline
@cython.exceptval(-1, check=False)
def _precedes(node: SkiplistNode, score: cython.double, member: bytes) -> cython.bint:
    """Return whether the node sorts before the given score and member."""
    return node.score < score or (node.score == score and node.member < member)


@cython.cfunc
@cython.inline
@cython.exceptval(-1, check=False)
def _span(node: SkiplistNode, level: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """Return the span of the node's step in a level above the first."""
    span: cython.Py_ssize_t = node.tower[2 * level - 3]
    return span


@cython.cfunc
@cython.inline
@cython.exceptval(-1, check=False)
def _set(
    node: SkiplistNode, level: cython.Py_ssize_t, following: SkiplistNode | None, span: cython.Py_ssize_t
) -> cython.bint:
    node.tower[2 * level - 4] = following
    node.tower[2 * level - 3] = span
    return True


@cython.cfunc
@cython.inline
def _step(node: SkiplistNode, level: cython.Py_ssize_t) -> SkiplistNode | None:
    """Return the next node in a level above the first, or None at the end."""
    following: SkiplistNode | None = node.tower[2 * level - 4]
    return following


@cython.cfunc
@cython.exceptval(-1, check=False)
def _chance() -> cython.Py_ssize_t:
    """Return a random number of levels for a new node; each further level has probability 1/4 (zslRandomLevel)."""
    level: cython.Py_ssize_t = 1
    bits: cython.ulonglong = getrandbits(62)
    while level < _MAX_LEVEL and bits & 3 == 3:
        bits >>= 2
        level += 1
    return level


@cython.final
@cython.cclass
class Skiplist:
    """A skiplist: nodes ordered by score and member; ranks count from 0."""

    __slots__ = ("head", "hops", "length", "level", "tail")

    def __init__(self) -> None:
        self.head = SkiplistNode(0.0, b"", _MAX_LEVEL)
        self.tail: SkiplistNode | None = None
        self.length = 0
        self.level = 1
        self.hops = 0

    def __del__(self) -> None:
        node: SkiplistNode | None = self.head
        self.tail = None
        while node is not None:
            following: SkiplistNode | None = node.next
            node.next = node.backward = None
            node.tower = None
            node = following

    def free_some(self, limit: int) -> bool:
        """Free up to `limit` nodes of a list that is not used any more; return whether more remain. O(limit)"""
        node: SkiplistNode | None = self.head
        self.tail = None
        while node is not None and limit > 0:
            following: SkiplistNode | None = node.next
            node.next = node.backward = None
            node.tower = None
            node = following
            limit -= 1
        if node is not None:
            self.head = node
        return node is not None

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> Iterator[SkiplistNode]:
        """Yield the nodes in rising order."""
        node = self.head.next
        while node is not None:
            yield node
            node = node.next

    def __repr__(self) -> str:
        return f"<Skiplist: {self.length} members in {self.level} levels>"

    # -- searching -----------------------------------------------------------------------------------

    @cython.cfunc
    def _path(self, score: cython.double, member: bytes, ranks: list[Any]) -> list[Any]:
        """Return the search path: the last node before a score and member in each level, highest level first."""
        path: list[Any] = []
        node: SkiplistNode = self.head
        rank: cython.Py_ssize_t = 0
        level: cython.Py_ssize_t = self.level
        while level > 1:
            following: SkiplistNode | None = _step(node, level)
            while following is not None and _precedes(following, score, member):
                rank += _span(node, level)
                self.hops += 1
                node = following
                following = _step(node, level)
            path.append(node)
            ranks.append(rank)
            level -= 1
        following = node.next
        while following is not None and _precedes(following, score, member):
            rank += 1
            self.hops += 1
            node = following
            following = node.next
        path.append(node)
        ranks.append(rank)
        return path

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def rank(self, node: SkiplistNode) -> cython.Py_ssize_t:
        """Return the number of nodes before the given one (zslGetRank). O(log n)"""
        return self._below(node.score, node.member, 2)

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def below(self, score: cython.double, inclusive: cython.bint) -> cython.Py_ssize_t:
        """Return the number of nodes with a score below the given score, or equal to it if inclusive. O(log n)"""
        return self._below(score, b"", 1 if inclusive else 0)

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def below_member(self, member: bytes, inclusive: cython.bint) -> cython.Py_ssize_t:
        """Return the number of nodes with a member below `member`, or equal if inclusive. All scores must be equal."""
        return self._below(0.0, member, 4 if inclusive else 3)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _below(self, score: cython.double, member: bytes, kind: cython.int) -> cython.Py_ssize_t:
        """Return the number of leading nodes for which `_is_below` is true."""
        node: SkiplistNode = self.head
        rank: cython.Py_ssize_t = 0
        level: cython.Py_ssize_t = self.level
        while level > 1:
            following: SkiplistNode | None = _step(node, level)
            while following is not None and _is_below(following, score, member, kind):
                rank += _span(node, level)
                self.hops += 1
                node = following
                following = _step(node, level)
            level -= 1
        following = node.next
        while following is not None and _is_below(following, score, member, kind):
            rank += 1
            self.hops += 1
            following = following.next
        return rank

    @cython.ccall
    def at(self, rank: cython.Py_ssize_t) -> SkiplistNode:
        """Return the node of an existing rank (zslGetElementByRank). O(log n)"""
        node: SkiplistNode = self.head
        # The head is one position before rank 0.
        left: cython.Py_ssize_t = rank + 1
        level: cython.Py_ssize_t = self.level
        if rank < 0 or rank >= self.length:
            raise IndexError("the rank is negative or past the last member of the skiplist")
        while level > 1:
            following: SkiplistNode | None = _step(node, level)
            while following is not None and _span(node, level) <= left:
                left -= _span(node, level)
                self.hops += 1
                node = following
                following = _step(node, level)
            level -= 1
        while left > 0:
            following = node.next
            assert following is not None, "the skiplist has no node with this rank"
            left -= 1
            self.hops += 1
            node = following
        return node

    # -- insertion and removal -----------------------------------------------------------------------

    @cython.ccall
    def insert(self, score: cython.double, member: bytes) -> SkiplistNode:
        """Add a member that does not exist yet; return its node (zslInsert). O(log n)"""
        node: SkiplistNode = SkiplistNode(score, member, _chance())
        self._link(node)
        return node

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _link(self, node: SkiplistNode) -> cython.bint:
        """Link a node at the position of its score and member, in each of its levels."""
        ranks: list[Any] = []
        path: list[Any] = self._path(node.score, node.member, ranks)
        levels: cython.Py_ssize_t = _levels(node)
        top: cython.Py_ssize_t = self.level
        level: cython.Py_ssize_t
        rank: cython.Py_ssize_t = ranks[top - 1]
        for level in range(2, top + 1):
            before: SkiplistNode = path[top - level]
            if level <= levels:
                passed: cython.Py_ssize_t = ranks[top - level]
                passed = rank - passed
                _set(node, level, _step(before, level), _span(before, level) - passed)
                _set(before, level, node, passed + 1)
            else:
                _set(before, level, _step(before, level), _span(before, level) + 1)
        for level in range(top + 1, levels + 1):
            _set(node, level, None, self.length - rank)
            _set(self.head, level, node, rank + 1)
        self.level = max(top, levels)
        before = path[top - 1]
        node.next = before.next
        node.backward = None if before is self.head else before
        before.next = node
        if node.next is None:
            self.tail = node
        else:
            node.next.backward = node
        self.length += 1
        return True

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def remove(self, node: SkiplistNode) -> cython.bint:
        """Remove a node (zslDelete). O(log n)"""
        return self._unlink(node, self._path(node.score, node.member, []))

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _unlink(self, node: SkiplistNode, path: list[Any]) -> cython.bint:
        """Unlink the node that follows the last node of the path (zslDeleteNode)."""
        # `path` has one node per level, highest first. It is too long if the list has lost levels since `_path` ran.
        last: cython.Py_ssize_t = len(path) - 1
        level: cython.Py_ssize_t
        for level in range(2, self.level + 1):
            before: SkiplistNode = path[last + 1 - level]
            if _step(before, level) is node:
                _set(before, level, _step(node, level), _span(before, level) + _span(node, level) - 1)
            else:
                _set(before, level, _step(before, level), _span(before, level) - 1)
        before = path[last]
        assert before.next is node, "the search path ends directly before the node to remove"
        before.next = node.next
        if node.next is None:
            self.tail = node.backward
        else:
            node.next.backward = node.backward
        node.next = node.backward = None
        while self.level > 1 and _step(self.head, self.level) is None:
            self.level -= 1
        self.length -= 1
        return True

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def move(self, node: SkiplistNode, score: cython.double) -> cython.bint:
        """Change a node's score (zslUpdateScore). O(log n); O(1) if the node keeps its position"""
        lower: SkiplistNode | None = node.backward
        higher: SkiplistNode | None = node.next
        if (lower is None or lower.score < score) and (higher is None or higher.score > score):
            node.score = score
            return True
        self.remove(node)
        node.score = score
        return self._link(node)

    @cython.ccall
    def delete_range(self, start: cython.Py_ssize_t, count: cython.Py_ssize_t) -> list[Any]:
        """Remove `count` existing nodes from a rank on, and return them. O(log n + count)"""
        removed: list[Any] = []
        if count <= 0:
            return removed
        node: SkiplistNode = self.at(start)
        path: list[Any] = self._path(node.score, node.member, [])
        while count > 0:
            node = path[len(path) - 1].next
            self._unlink(node, path)
            removed.append(node)
            count -= 1
        return removed

    # -- checking ------------------------------------------------------------------------------------

    def check(self) -> None:
        """Raise AssertionError if an invariant is broken. O(n)"""
        nodes = list(self)
        assert len(nodes) == self.length
        assert [node.backward for node in nodes] == [None, *nodes][: len(nodes)]
        assert self.tail is (nodes[len(nodes) - 1] if nodes else None) and self.head.backward is None
        for one, other in zip(nodes, nodes[1:], strict=False):
            assert (one.score, one.member) < (other.score, other.member)
        assert all(node.score == node.score for node in nodes), "a score in the skiplist is NaN"
        ranks = {id(node): rank for rank, node in enumerate(nodes, 1)}
        assert self.level == max(map(_levels, nodes), default=1) <= MAX_LEVEL
        for level in range(2, self.level + 1):
            members = [node for node in nodes if _levels(node) >= level]
            before, rank = self.head, 0
            for node in members:
                assert _step(before, level) is node and _span(before, level) == ranks[id(node)] - rank
                before, rank = node, ranks[id(node)]
            assert members and _step(before, level) is None and _span(before, level) == self.length - rank


@cython.cfunc
@cython.inline
@cython.exceptval(-1, check=False)
def _is_below(node: SkiplistNode, score: cython.double, member: bytes, kind: cython.int) -> cython.bint:
    """Return whether a node is below a bound.

    kind: 0 score <, 1 score <=, 2 (score, member) <, 3 member <, 4 member <=
    """
    if kind == 0:
        return node.score < score
    if kind == 1:
        return node.score <= score
    if kind == 2:
        return _precedes(node, score, member)
    return node.member < member if kind == 3 else node.member <= member

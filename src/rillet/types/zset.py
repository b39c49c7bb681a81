"""Sorted sets: the value of a key that holds members, each with a score, in the order of those (Redis: t_zset.c).

A sorted set has one of two encodings, which clients see (OBJECT ENCODING) and DUMP tells apart:

    listpack     member, score, member, score, ...        up to zset-max-listpack-entries (128) members, each
                                                          of up to zset-max-listpack-value bytes (64)
    skiplist     a skiplist in the order, and             anything else
                 a dict from member to its node

In both the order is by score, then by the bytes of the member. A score stands in a listpack as an integer where it
is one, else as text (`structs.doubles`): the zero below zero is lost there, and kept in a skiplist. A listpack becomes
a skiplist and never the other way, except that a sorted set made anew (ZUNIONSTORE, an RDB file of type 5) begins as
what its members allow.

Every range, by rank, score or member, is a window: the rank where it begins and how many members it has. So reading,
counting, LIMIT, reverse order and removal are each written once. By member a range means something only
where all scores are equal; where they are not, a listpack is walked as Redis does it, and a skiplist answers something,
as Redis's does.

A node of the skiplist also knows its slot in a list of all nodes, as the members of a set do (`types.set`): a scan
walks the slots down, and a random member is one of them.

Costs: in a skiplist O(1) for a score, O(log n) for an addition, a removal, a rank or a window; in a listpack O(n) for
any of them, n being small.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterable, Iterator
from typing import Any

from rillet.structs.float_text import stored
from rillet.structs.listpack import Listpack
from rillet.structs.skiplist import Skiplist, SkiplistNode
from rillet.types.encoding_limits import DEFAULTS, EncodingLimits

Pair = tuple[bytes, float]
_SAFETY_LIMIT = 1 << 30  # listpack.c: LISTPACK_MAX_SAFETY_SIZE

LEAST = (0, b"")
"""Stands before every member, as - does in ZRANGEBYLEX."""
GREATEST = (2, b"")
"""Stands behind every member, as + does."""


class ScoreRange:
    """Scores between two, each of which may be left out (zrangespec)."""

    __slots__ = ("high", "high_open", "low", "low_open")

    def __init__(self, low: float, high: float, low_open: bool = False, high_open: bool = False) -> None:
        self.low = low
        self.high = high
        self.low_open = low_open
        self.high_open = high_open


class MemberRange:
    """Members between two, each of which may be left out: (1, member), LEAST or GREATEST (zlexrangespec)."""

    __slots__ = ("high", "high_open", "low", "low_open")

    def __init__(self, low: tuple[int, bytes], high: tuple[int, bytes], low_open: bool, high_open: bool) -> None:
        self.low = low
        self.high = high
        self.low_open = low_open
        self.high_open = high_open

    def is_empty(self) -> bool:
        """Whether no member can be within."""
        return self.low > self.high or (self.low == self.high and (self.low_open or self.high_open))

    def above_low(self, member: bytes) -> bool:
        """Whether the member is not below the range (zslLexValueGteMin)."""
        return self.low < (1, member) or (not self.low_open and self.low == (1, member))

    def below_high(self, member: bytes) -> bool:
        """Whether the member is not above the range (zslLexValueLteMax)."""
        return (1, member) < self.high or (not self.high_open and self.high == (1, member))


class Zset:
    """The members of one key: a `listpack`, or a `skiplist` with `nodes` and `slots`."""

    __slots__ = ("listpack", "nodes", "skiplist", "slots")

    type_name = "zset"

    def __init__(self) -> None:
        self.listpack: Listpack | None = Listpack()
        self.skiplist: Skiplist | None = None
        self.nodes: dict[bytes, SkiplistNode] = {}
        self.slots: list[SkiplistNode] = []

    @staticmethod
    def for_size(expected: int, widest: int, limits: EncodingLimits) -> Zset:
        """Return an empty sorted set fit for so many members of so many bytes (zsetTypeCreate)."""
        made = Zset()
        if expected > limits.zset_max_listpack_entries or widest > limits.zset_max_listpack_value:
            made.listpack, made.skiplist = None, Skiplist()
        return made

    @staticmethod
    def of(pairs: Iterable[Pair], limits: EncodingLimits) -> Zset:
        """Return a sorted set of these members, encoded as they allow (zsetConvertToListpackIfNeeded). O(n log n)"""
        ordered = sorted(pairs, key=_order)
        lengths = [len(member) for member, _ in ordered]
        widest = max(lengths, default=0) if sum(lengths) <= _SAFETY_LIMIT else sys.maxsize
        made = Zset.for_size(len(ordered), widest, limits)
        if made.listpack is not None:
            for member, score in ordered:
                _append(made.listpack, member, score, is_classic(limits))
        else:
            # The greatest first: each one is put before all others, at once.
            for member, score in reversed(ordered):
                made._insert(member, score)
        return made

    def encoding(self) -> str:
        """Return listpack or skiplist."""
        return "skiplist" if self.listpack is None else "listpack"

    # -- reading -------------------------------------------------------------------------------------

    def __len__(self) -> int:
        """Return the number of members (ZCARD). O(1)"""
        return len(self.nodes) if self.listpack is None else self.listpack.length() // 2

    def __contains__(self, member: bytes) -> bool:
        """Whether it is a member; O(1), in a listpack O(n)."""
        return self.score(member) is not None

    def __iter__(self) -> Iterator[Pair]:
        """Yield (member, score), the lowest first."""
        if self.listpack is not None:
            yield from _pairs(self.listpack.values())
        else:
            assert self.skiplist is not None
            for node in self.skiplist:
                yield node.member, node.score

    def backwards(self) -> Iterator[Pair]:
        """Yield (member, score), the highest first."""
        if self.listpack is not None:
            yield from self.slice(0, len(self), True)
            return
        assert self.skiplist is not None
        node = self.skiplist.tail
        while node is not None:
            yield node.member, node.score
            node = node.backward

    def score(self, member: bytes) -> float | None:
        """Return the score of a member, None where it is none (zsetScore). O(1), in a listpack O(n)"""
        if self.listpack is not None:
            pos = _find(self.listpack, member)
            return None if pos == -1 else _score_behind(self.listpack, pos)
        node = self.nodes.get(member)
        return None if node is None else node.score

    def rank(self, member: bytes) -> int | None:
        """Return how many members stand before one, None where it is none (zsetRank). O(log n), in a listpack O(n)"""
        if self.listpack is not None:
            for rank, (one, _) in enumerate(self):
                if one == member:
                    return rank
            return None
        node = self.nodes.get(member)
        assert self.skiplist is not None
        return None if node is None else self.skiplist.rank(node)

    def slice(self, start: int, count: int, backwards: bool = False) -> list[Pair]:
        """Return the members of a window, all of them there, the highest first if told so. O(log n + count)"""
        if count <= 0:
            return []
        if self.listpack is not None:
            found = list(_pairs(_some(self.listpack, 2 * start, 2 * count)))
            return found[::-1] if backwards else found
        assert self.skiplist is not None
        node: SkiplistNode | None = self.skiplist.at(start + count - 1 if backwards else start)
        found = []
        while node is not None and count:
            found.append((node.member, node.score))
            node = node.backward if backwards else node.next
            count -= 1
        return found

    def window_of_scores(self, wanted: ScoreRange) -> tuple[int, int]:
        """Return the window of a range of scores (zslFirstInRange, zslLastInRange)."""
        if self.listpack is not None:
            values = self.listpack.values()
            start = _below(values, wanted.low, wanted.low_open)
            return start, max(_below(values, wanted.high, not wanted.high_open) - start, 0)
        assert self.skiplist is not None
        start = self.skiplist.below(wanted.low, wanted.low_open)
        return start, max(self.skiplist.below(wanted.high, not wanted.high_open) - start, 0)

    def window_of_members(self, wanted: MemberRange, backwards: bool = False) -> tuple[int, int]:
        """Return the window of a range of members, found from its end if told so (zslFirstInLexRange and others)."""
        if wanted.is_empty():
            return 0, 0
        if self.listpack is not None:
            return _walk([member for member, _ in self], wanted, backwards)
        start = self._members_below(wanted.low, wanted.low_open)
        return start, max(self._members_below(wanted.high, not wanted.high_open) - start, 0)

    def _members_below(self, bound: tuple[int, bytes], inclusive: bool) -> int:
        assert self.skiplist is not None
        if bound[0] != 1:
            return 0 if bound == LEAST else len(self.skiplist)
        return self.skiplist.below_member(bound[1], inclusive)

    def random(self) -> Pair:
        """Return a member picked at random, each as likely as any other (zsetTypeRandomElement)."""
        if self.listpack is not None:
            return self.slice(random.randrange(len(self)), 1)[0]
        node = random.choice(self.slots)
        return node.member, node.score

    def sample(self, count: int) -> list[Pair]:
        """Return so many different members picked at random, at most all. O(count), in a listpack O(n)"""
        if self.listpack is not None:
            pairs = list(self)
            return [pairs[at] for at in sorted(random.sample(range(len(pairs)), count))]
        return [(node.member, node.score) for node in random.sample(self.slots, count)]

    def scan(self, cursor: int, count: int) -> tuple[int, list[Pair]]:
        """Return the next cursor (0 = the end) and some members; a listpack comes whole (scanGenericCommand)."""
        if self.listpack is not None:
            return 0, list(self)
        stop = min(cursor, len(self.slots)) if cursor else len(self.slots)
        start = max(stop - count, 0)
        return start, [(node.member, node.score) for node in self.slots[start:stop]]

    # -- change --------------------------------------------------------------------------------------

    def prepare(self, expected: int, limits: EncodingLimits) -> None:
        """Become a skiplist at once if so many members are to be added (zsetTypeMaybeConvert; since 7.2)."""
        if self.listpack is not None and expected > limits.zset_max_listpack_entries:
            self.to_skiplist()

    def add(self, member: bytes, score: float, limits: EncodingLimits = DEFAULTS) -> None:
        """Add what is no member yet (zsetAdd). O(log n), in a listpack O(n)"""
        if self.listpack is not None:
            if (
                self.listpack.length() // 2 < limits.zset_max_listpack_entries
                and len(member) <= limits.zset_max_listpack_value
                and self.listpack.can_append(len(member))
            ):
                _put(self.listpack, member, score, is_classic(limits))
                return
            self.to_skiplist()
        self._insert(member, score)

    def _insert(self, member: bytes, score: float) -> None:
        assert self.skiplist is not None
        node = self.nodes[member] = self.skiplist.insert(score, member)
        node.slot = len(self.slots)
        self.slots.append(node)

    def update(self, member: bytes, score: float, limits: EncodingLimits = DEFAULTS) -> None:
        """Give a member another score (zsetAdd). O(log n), in a listpack O(n)"""
        if self.listpack is not None:
            _cut(self.listpack, _find(self.listpack, member))
            _put(self.listpack, member, score, is_classic(limits))
        else:
            assert self.skiplist is not None
            self.skiplist.move(self.nodes[member], score)

    def remove(self, member: bytes) -> bool:
        """Remove a member; False where it is none (zsetDel). O(log n), in a listpack O(n)"""
        if self.listpack is not None:
            pos = _find(self.listpack, member)
            if pos != -1:
                _cut(self.listpack, pos)
            return pos != -1
        node = self.nodes.get(member)
        if node is None:
            return False
        assert self.skiplist is not None
        self.skiplist.remove(node)
        self._forget(node)
        return True

    def delete(self, start: int, count: int) -> None:
        """Remove the members of a window, all of them there. O(log n + count), in a listpack O(n)"""
        if self.listpack is not None:
            self.listpack.delete_range(2 * start, 2 * count)
            return
        assert self.skiplist is not None
        for node in self.skiplist.delete_range(start, count):
            self._forget(node)

    def _forget(self, node: SkiplistNode) -> None:
        del self.nodes[node.member]
        last = self.slots.pop()
        if node.slot < len(self.slots):
            self.slots[node.slot] = last
            last.slot = node.slot

    def to_skiplist(self) -> None:
        """Become a skiplist (zsetConvert). O(n)"""
        pairs = list(self)
        self.listpack, self.skiplist = None, Skiplist()
        for member, score in reversed(pairs):
            self._insert(member, score)

    # -- the whole -----------------------------------------------------------------------------------

    def copy(self) -> Zset:
        """Return a sorted set of its own with the same members and encoding (zsetDup). O(n)"""
        twin = Zset()
        if self.listpack is not None:
            twin.listpack = Listpack.from_bytes(self.listpack.to_bytes(), False)
        else:
            twin.listpack, twin.skiplist = None, Skiplist()
            for member, score in self.backwards():
                twin._insert(member, score)
        return twin

    def memory_usage(self, samples: int = 5) -> int:
        """Return the bytes that it takes in this process (MEMORY USAGE); samples = members looked at, 0 = all."""
        size = sys.getsizeof(self)
        if self.listpack is not None:
            return size + sys.getsizeof(self.listpack) + sys.getsizeof(self.listpack.buf)
        size += sys.getsizeof(self.nodes) + sys.getsizeof(self.slots) + sys.getsizeof(self.skiplist)
        seen = self.slots[:samples] if samples else self.slots
        # One node in four has a list for its higher levels: a third of a level for each node, and two words for each.
        each = sum(sys.getsizeof(node) + sys.getsizeof(node.member) for node in seen) / max(len(seen), 1)
        return size + round((each + sys.getsizeof([None, 0]) / 4 + 16 / 3) * len(self.slots))

    def check(self) -> None:
        """Assert the invariants: one encoding, a member at least, in order, each once and in its slot. O(n log n)"""
        pairs = list(self)
        assert pairs and pairs == sorted(pairs, key=_order) and len({member for member, _ in pairs}) == len(self)
        assert all(score == score for _, score in pairs), "not a number"
        if self.listpack is not None:
            assert self.skiplist is None and not self.nodes and not self.slots
            self.listpack.check()
            assert self.listpack.length() == 2 * len(pairs)
        else:
            assert self.skiplist is not None and len(self.skiplist) == len(self.nodes) == len(self.slots)
            self.skiplist.check()
            assert all(self.slots[node.slot] is node and self.nodes[node.member] is node for node in self.skiplist)


def is_classic(limits: EncodingLimits) -> bool:
    """Whether scores are written with 17 digits, as until 7.0."""
    return not limits.compat.knows(72)


# -- listpacks of members and scores -----------------------------------------------------------------


def _order(pair: Pair) -> tuple[float, bytes]:
    return pair[1], pair[0]


def _text(value: bytes | int) -> bytes:
    return value if isinstance(value, bytes) else b"%d" % value


def _pairs(values: list[Any]) -> Iterator[Pair]:
    """Yield (member, score) of values that stand in turns."""
    for at in range(0, len(values), 2):
        yield _text(values[at]), float(values[at + 1])


def _some(listpack: Listpack, index: int, count: int) -> list[Any]:
    """Return the values from an index on, all of them there."""
    if count * 4 > listpack.length():
        return listpack.values()[index : index + count]
    values, pos = [], listpack.seek(index)
    for _ in range(count):
        values.append(listpack.get(pos))
        pos = listpack.next(pos)
    return values


def _find(listpack: Listpack, member: bytes) -> int:
    """Return the position of a member, -1 where it is none (zzlFind)."""
    first = listpack.first()
    return -1 if first == -1 else listpack.find(first, member, 1)


def _score_behind(listpack: Listpack, pos: int) -> float:
    value: Any = listpack.get(listpack.next(pos))
    return float(value)


def _cut(listpack: Listpack, pos: int) -> None:
    """Remove the member at a position, and its score (zzlDelete)."""
    listpack.delete(listpack.delete(pos))


def _append(listpack: Listpack, member: bytes, score: float, classic: bool) -> None:
    listpack.append(member)
    value = stored(score, classic)
    if isinstance(value, int):
        listpack.append_int(value)
    else:
        listpack.append(value)


def _put(listpack: Listpack, member: bytes, score: float, classic: bool) -> None:
    """Put a member and its score where they belong (zzlInsert)."""
    values = listpack.values()
    low, high = 0, len(values) // 2
    while low < high:
        middle = (low + high) // 2
        found = float(values[2 * middle + 1])
        if found < score or (found == score and _text(values[2 * middle]) < member):
            low = middle + 1
        else:
            high = middle
    if 2 * low == len(values):
        _append(listpack, member, score, classic)
        return
    pos = listpack.insert(listpack.seek(2 * low), member, False)
    value = stored(score, classic)
    if isinstance(value, int):
        listpack.insert_int(pos, value, True)
    else:
        listpack.insert(pos, value, True)


def _below(values: list[Any], score: float, inclusive: bool) -> int:
    """Return how many members have a score below one, or up to and with it."""
    low, high = 0, len(values) // 2
    while low < high:
        middle = (low + high) // 2
        found = float(values[2 * middle + 1])
        if found < score or (inclusive and found == score):
            low = middle + 1
        else:
            high = middle
    return low


def _walk(members: list[bytes], wanted: MemberRange, backwards: bool) -> tuple[int, int]:
    """Return the window of a range of members in the order of their scores, whatever those are (zzlFirstInLexRange)."""
    if not members or not wanted.above_low(members[-1]) or not wanted.below_high(members[0]):
        return 0, 0
    if backwards:
        stop = len(members)
        while stop and not wanted.below_high(members[stop - 1]):
            stop -= 1
        start = stop
        while start and wanted.above_low(members[start - 1]):
            start -= 1
        return start, stop - start
    start = 0
    while start < len(members) and not wanted.above_low(members[start]):
        start += 1
    stop = start
    while stop < len(members) and wanted.below_high(members[stop]):
        stop += 1
    return start, stop - start


__all__ = ["GREATEST", "LEAST", "MemberRange", "Pair", "ScoreRange", "Zset", "is_classic"]

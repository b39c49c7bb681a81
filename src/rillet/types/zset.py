"""Sorted sets: the value of a key that holds members ordered by score (Redis: t_zset.c).

A sorted set has one of two encodings, which clients see (OBJECT ENCODING) and DUMP exposes:

    listpack     member, score, member, score, ...        up to zset-max-listpack-entries (128) members, each
                                                          of up to zset-max-listpack-value bytes (64)
    skiplist     a `Dict` of members with their scores,   anything else
                 and a skiplist of its entries in order

Both order by score, then by the bytes of the member. A listpack stores a score as an integer if it is one, otherwise
as text (`structs.float_text`); a listpack loses the sign of negative zero, which a skiplist keeps. A listpack becomes a
skiplist and never the reverse, but a newly created sorted set (ZUNIONSTORE, an RDB value of type 5) starts with the
encoding that its members allow.

Every range, by rank, score or member, is a *window*: the rank of its first member and its number of members. Reading,
counting, LIMIT, reverse order and removal are therefore each implemented once. A range by member is meaningful only if
all scores are equal. Otherwise the result is unspecified, but a listpack is walked exactly as in Redis.

The dict (structs/dict.py) holds the members as bytes. The skiplist (structs/skiplist.py) refers to its entries by
number, so a member in this encoding is no Python object. ZSCAN and ZRANDMEMBER read the dict, as in Redis.

`find_score`, `put` and `remove_span` take a member by its address, so that a command creates no object for it. They
also work on a small sorted set that a command has unpacked (keyspace/rest_buffer.py): one object of the engine holds
its listpack until the command ends (`hold`), and `detach` returns an object of its own.

Costs: in a skiplist O(1) for a score and O(log n) for an addition, a removal, a rank or a window; in a listpack O(n)
for each of these, with small n.
"""

from __future__ import annotations

import random
import sys
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from typing import Any

from rillet._cython import cython, public
from rillet.structs.dict import Dict
from rillet.structs.float_text import listpack_score
from rillet.structs.integer_text import decimal
from rillet.structs.listpack import HEADER_SIZE, Listpack
from rillet.structs.skiplist import Skiplist
from rillet.types.encoding_limits import DEFAULTS, EncodingLimits
from rillet.types.packed_zset import put_span, score_at
from rillet.types.sized import SizedValue

Pair = tuple[bytes, float]
_HEADER = cython.declare(cython.Py_ssize_t, HEADER_SIZE)
_NAN = cython.declare(cython.double, float("nan"))
_MOST = 2**62  # the greatest limit: settings have 64 bits
_SAFETY_LIMIT = 1 << 30  # listpack.c: LISTPACK_MAX_SAFETY_SIZE

NX = cython.declare(cython.int, 1)
XX = cython.declare(cython.int, 2)
GT = cython.declare(cython.int, 4)
LT = cython.declare(cython.int, 8)
"""Options of `Zset.put`: skip an existing member, a new one, a score that is not greater, one that is not less."""
ADDED = cython.declare(cython.int, 1)
UPDATED = cython.declare(cython.int, 2)
SKIPPED = cython.declare(cython.int, 4)
"""Results of `Zset.put`; 0: the member has this score already."""

LEAST = (0, b"")
"""The bound before every member: - in ZRANGEBYLEX."""
GREATEST = (2, b"")
"""The bound after every member: + in ZRANGEBYLEX."""


class ScoreRange:
    """A range of scores; each bound may be exclusive (zrangespec)."""

    __slots__ = ("high", "high_open", "low", "low_open")

    def __init__(self, low: float, high: float, low_open: bool = False, high_open: bool = False) -> None:
        self.low = low
        self.high = high
        self.low_open = low_open
        self.high_open = high_open


class MemberRange:
    """A range of members; each bound is (1, member), LEAST or GREATEST and may be exclusive (zlexrangespec)."""

    __slots__ = ("high", "high_open", "low", "low_open")

    def __init__(self, low: tuple[int, bytes], high: tuple[int, bytes], low_open: bool, high_open: bool) -> None:
        self.low = low
        self.high = high
        self.low_open = low_open
        self.high_open = high_open

    def is_empty(self) -> bool:
        """Return whether the range cannot contain any member."""
        return self.low > self.high or (self.low == self.high and (self.low_open or self.high_open))

    def above_low(self, member: bytes) -> bool:
        """Return whether the member is within the lower bound (zslLexValueGteMin)."""
        return self.low < (1, member) or (not self.low_open and self.low == (1, member))

    def below_high(self, member: bytes) -> bool:
        """Return whether the member is within the upper bound (zslLexValueLteMax)."""
        return (1, member) < self.high or (not self.high_open and self.high == (1, member))


@cython.final
@cython.cclass
class Zset(SizedValue):
    """The value of a sorted set key: a `listpack`, or a `skiplist` of the entries of a `table`."""

    __slots__ = ("listpack", "skiplist", "table")
    listpack: public[Listpack | None]
    skiplist: public[Skiplist | None]
    table: public[Dict | None]

    type_name = "zset"

    def __init__(self) -> None:
        self.charge = 0
        self.listpack = Listpack()
        self.skiplist = None
        self.table = None

    @staticmethod
    def for_size(expected: int, widest: int, limits: EncodingLimits) -> Zset:
        """Return an empty sorted set, encoded for `expected` members of at most `widest` bytes (zsetTypeCreate)."""
        made = Zset()
        if expected > limits.zset_max_listpack_entries or widest > limits.zset_max_listpack_value:
            made._start_skiplist()
        return made

    def _start_skiplist(self) -> None:
        """Replace the listpack by an empty skiplist and its dict."""
        self.table = Dict(numbers=True, newest=True)
        self.table.owner = self.skiplist = Skiplist()
        self.listpack = None

    @staticmethod
    def from_pairs(pairs: Iterable[Pair], limits: EncodingLimits) -> Zset:
        """Create a sorted set in the encoding that the limits allow (zsetConvertToListpackIfNeeded). O(n log n)"""
        ordered = sorted(pairs, key=_order)
        lengths = [len(member) for member, _ in ordered]
        widest = max(lengths, default=0) if sum(lengths) <= _SAFETY_LIMIT else sys.maxsize
        made = Zset.for_size(len(ordered), widest, limits)
        if made.listpack is not None:
            for member, score in ordered:
                _append(made.listpack, member, score, is_classic(limits))
        else:
            made._insert_all(ordered)
        return made

    def encoding(self) -> str:
        """Return the encoding: listpack or skiplist."""
        return "skiplist" if self.listpack is None else "listpack"

    # -- reading -------------------------------------------------------------------------------------

    def __len__(self) -> int:
        """Return the number of members (ZCARD). O(1)"""
        return self.count()

    @cython.cfunc
    def count(self) -> cython.Py_ssize_t:
        """Do `len`, for compiled callers."""
        if self.listpack is not None:
            return self.listpack.length() >> 1
        skiplist: Skiplist | None = self.skiplist
        assert skiplist is not None
        return skiplist.length

    def __contains__(self, member: bytes) -> bool:
        """Return whether the member exists; O(1), in a listpack O(n)."""
        return self.score(member) is not None

    def __iter__(self) -> Iterator[Pair]:
        """Yield (member, score) in rising order."""
        if self.listpack is not None:
            yield from _pairs(self.listpack.values())
        else:
            assert self.skiplist is not None and self.table is not None
            yield from self.skiplist.iterate(self.table)

    def backwards(self) -> Iterator[Pair]:
        """Yield (member, score) in descending order."""
        if self.listpack is not None:
            yield from self.slice(0, len(self), True)
            return
        assert self.skiplist is not None and self.table is not None
        yield from self.skiplist.iterate(self.table, True)

    def score(self, member: bytes) -> float | None:
        """Return the score of a member, or None if it does not exist (zsetScore). O(1), in a listpack O(n)"""
        found: cython.double = self.find_score(member, len(member))
        return found if found == found else None

    @cython.cfunc
    @cython.exceptval(-1, check=True)
    def find_score(self, at: cython.p_const_uchar, size: cython.Py_ssize_t) -> cython.double:
        """Do `score` for the bytes at a memory address; return NaN if the member does not exist."""
        packed: Listpack | None = self.listpack
        n: cython.Py_ssize_t
        if packed is not None:
            n = packed.find_span(_HEADER, at, size, 1)
            return _NAN if n == -1 else score_at(packed, packed.skip(n))
        table: Dict | None = self.table
        assert table is not None
        n = table.find_span(at, size)
        return _NAN if n < 0 else table.score(n)

    def rank(self, member: bytes) -> int | None:
        """Return the rank of a member, or None if it does not exist (zsetRank). O(log n), in a listpack O(n)"""
        if self.listpack is not None:
            for rank, (one, _) in enumerate(self):
                if one == member:
                    return rank
            return None
        assert self.skiplist is not None and self.table is not None
        n = self.table.find(member)
        return None if n < 0 else self.skiplist.rank(self.table, n)

    def slice(self, start: int, count: int, backwards: bool = False) -> list[Pair]:
        """Return the members of an existing window, in descending order if `backwards`. O(log n + count)"""
        if count <= 0:
            return []
        if self.listpack is not None:
            found = list(_pairs(_some(self.listpack, 2 * start, 2 * count)))
            return found[::-1] if backwards else found
        assert self.skiplist is not None and self.table is not None
        return self.skiplist.pairs(self.table, start + count - 1 if backwards else start, count, backwards)

    def window_of_scores(self, wanted: ScoreRange) -> tuple[int, int]:
        """Return the window of a score range (zslFirstInRange, zslLastInRange)."""
        if self.listpack is not None:
            values = self.listpack.values()
            start = _below(values, wanted.low, wanted.low_open)
            return start, max(_below(values, wanted.high, not wanted.high_open) - start, 0)
        assert self.skiplist is not None and self.table is not None
        start = self.skiplist.below(self.table, wanted.low, wanted.low_open)
        return start, max(self.skiplist.below(self.table, wanted.high, not wanted.high_open) - start, 0)

    def window_of_members(self, wanted: MemberRange, backwards: bool = False) -> tuple[int, int]:
        """Return the window of a member range; `backwards` searches from its end (zslFirst/LastInLexRange)."""
        if wanted.is_empty():
            return 0, 0
        if self.listpack is not None:
            return _walk([member for member, _ in self], wanted, backwards)
        start = self._members_below(wanted.low, wanted.low_open)
        return start, max(self._members_below(wanted.high, not wanted.high_open) - start, 0)

    def _members_below(self, bound: tuple[int, bytes], inclusive: bool) -> int:
        assert self.skiplist is not None and self.table is not None
        if bound[0] != 1:
            return 0 if bound == LEAST else len(self.skiplist)
        return self.skiplist.below_member(self.table, bound[1], inclusive)

    def random(self) -> Pair:
        """Return a uniformly random member (zsetTypeRandomElement)."""
        if self.listpack is not None:
            return self.slice(random.randrange(len(self)), 1)[0]
        assert self.table is not None
        return self._pair(self.table.uniform_entry())

    def _pair(self, n: int) -> Pair:
        """Return the member and the score of an entry of the dict."""
        assert self.table is not None
        return self.table.entry_key(n), self.table.score(n)

    def sample(self, count: int) -> list[Pair]:
        """Return up to `count` distinct random members. O(count), in a listpack O(n)"""
        if self.listpack is not None:
            pairs = list(self)
            return [pairs[at] for at in sorted(random.sample(range(len(pairs)), count))]
        assert self.table is not None
        return list(map(self._pair, self.table.distinct_sample(count)))

    def scan(self, cursor: int, count: int) -> tuple[int, list[Pair]]:
        """Return the next cursor (0 at the end) and some members, or all of a listpack (scanGenericCommand)."""
        if self.listpack is not None:
            return 0, list(self)
        assert self.table is not None
        following, entries = self.table.scan(cursor, count)
        return following, list(map(self._pair, entries))

    # -- changes -------------------------------------------------------------------------------------

    @cython.cfunc
    def put(
        self, at: cython.p_const_uchar, size: cython.Py_ssize_t, score: cython.double, options: cython.int,
        entries: cython.longlong, longest: cython.longlong, classic: cython.bint,
    ) -> cython.int:  # fmt: skip
        """Add the member at a memory address or change its score, unless an option skips it (zsetAdd).

        entries, longest, classic: the limits of a listpack, and `is_classic`. O(log n), in a listpack O(n)
        """
        packed: Listpack | None = self.listpack
        n: cython.Py_ssize_t
        old: cython.double
        if packed is not None:
            n = packed.find_span(_HEADER, at, size, 1)
            if n != -1:
                old = score_at(packed, packed.skip(n))
                if options and _skips(options, old, score):
                    return SKIPPED
                if score == old:
                    return 0
                packed.delete(packed.delete(n))
                put_span(packed, at, size, score, classic)
                return UPDATED
            if options & XX:
                return SKIPPED
            if packed.length() >> 1 < entries and size <= longest and packed.can_append(size):
                put_span(packed, at, size, score, classic)
                return ADDED
            self.to_skiplist()
        skiplist: Skiplist | None = self.skiplist
        table: Dict | None = self.table
        assert skiplist is not None and table is not None
        if options:
            n = table.find_span(at, size)
            if n < 0 and options & XX:
                return SKIPPED
            if n >= 0 and _skips(options, table.score(n), score):
                return SKIPPED
        return skiplist.put_span(table, at, size, score)

    def add(self, member: bytes, score: float, limits: EncodingLimits = DEFAULTS) -> None:
        """Add a member, or change its score (zsetAdd). O(log n), in a listpack O(n)"""
        entries = min(limits.zset_max_listpack_entries, _MOST)
        longest = min(limits.zset_max_listpack_value, _MOST)
        self.put(member, len(member), score, 0, entries, longest, is_classic(limits))

    def _insert_all(self, pairs: Iterable[Pair]) -> None:
        """Add members to an empty skiplist, in rising order, which fills its nodes."""
        assert self.skiplist is not None and self.table is not None
        for member, score in pairs:
            self.skiplist.add(self.table, member, score)

    def remove(self, member: bytes) -> bool:
        """Remove a member; return False if it does not exist (zsetDel). O(log n), in a listpack O(n)"""
        return self.remove_span(member, len(member))

    @cython.cfunc
    def remove_span(self, at: cython.p_const_uchar, size: cython.Py_ssize_t) -> cython.bint:
        """Do `remove` for the bytes at a memory address."""
        packed: Listpack | None = self.listpack
        n: cython.Py_ssize_t
        if packed is not None:
            n = packed.find_span(_HEADER, at, size, 1)
            if n != -1:
                packed.delete(packed.delete(n))
            return n != -1
        skiplist: Skiplist | None = self.skiplist
        table: Dict | None = self.table
        assert skiplist is not None and table is not None
        n = table.find_span(at, size)
        return n >= 0 and skiplist.remove(table, n) and table.delete_entry(n)

    def delete(self, start: int, count: int) -> None:
        """Remove the members of an existing window. O(log n + count), in a listpack O(n)"""
        if self.listpack is not None:
            self.listpack.delete_range(2 * start, 2 * count)
            return
        assert self.skiplist is not None and self.table is not None
        self.skiplist.delete_range(self.table, start, count)

    def to_skiplist(self) -> None:
        """Convert to a skiplist (zsetConvert). O(n)"""
        converted = Zset()
        converted._start_skiplist()
        converted._insert_all(self)
        self.listpack, self.skiplist, self.table = None, converted.skiplist, converted.table

    # -- the whole sorted set ------------------------------------------------------------------------

    @cython.cfunc
    def hold(self, packed: Listpack) -> Zset:
        """Become the sorted set in a listpack; return self. O(1)"""
        if self.listpack is not packed:
            self.listpack = packed
            self.skiplist = self.table = None
        return self

    @cython.cfunc
    def detach(self) -> Zset:
        """Return a sorted set with these members: a copy of the listpack, or the skiplist itself. O(bytes)"""
        made: Zset = Zset()
        made.listpack = None if self.listpack is None else self.listpack.copy()
        made.skiplist, made.table = self.skiplist, self.table
        return made

    def copy(self) -> Zset:
        """Return a copy with the same members and encoding (zsetDup). O(n)"""
        twin = Zset()
        if self.listpack is not None:
            twin.listpack = Listpack.from_bytes(self.listpack.to_bytes(), False)
        else:
            assert self.skiplist is not None and self.table is not None
            twin.listpack, twin.table, twin.skiplist = None, self.table.copy(), self.skiplist.copy()
            twin.table.owner = twin.skiplist
        return twin

    def check(self) -> None:
        """Raise AssertionError if the sorted set is empty, or an invariant of its encoding is broken. O(n log n)"""
        pairs = list(self)
        assert pairs and pairs == sorted(pairs, key=_order) and len({member for member, _ in pairs}) == len(self)
        assert all(score == score for _, score in pairs), "a score is NaN"
        if self.listpack is not None:
            assert self.skiplist is None and self.table is None
            self.listpack.check()
            assert self.listpack.length() == 2 * len(pairs)
        else:
            assert self.skiplist is not None and self.table is not None and self.table.owner is self.skiplist
            self.table.check()
            self.skiplist.check(self.table)


@cython.cfunc
def _skips(options: cython.int, old: cython.double, score: cython.double) -> cython.bint:
    """Return whether the options keep the old score of a member (zsetAdd)."""
    if options & NX:
        return True
    return (options & GT != 0 and score <= old) or (options & LT != 0 and score >= old)


def is_classic(limits: EncodingLimits) -> bool:
    """Return whether scores are formatted with 17 digits, as up to Redis 7.0."""
    return not limits.compat.knows(72)


# -- listpacks of members and scores -----------------------------------------------------------------


def _order(pair: Pair) -> tuple[float, bytes]:
    return pair[1], pair[0]


def _text(value: bytes | int) -> bytes:
    return value if isinstance(value, bytes) else decimal(value)


def _pairs(values: list[Any]) -> Iterator[Pair]:
    """Yield (member, score) pairs from alternating values."""
    for at in range(0, len(values), 2):
        yield _text(values[at]), float(values[at + 1])


def _some(listpack: Listpack, index: int, count: int) -> list[Any]:
    """Return `count` existing values of a listpack, from an index on."""
    if count * 4 > listpack.length():
        return listpack.values()[index : index + count]
    values, pos = [], listpack.seek(index)
    for _ in range(count):
        values.append(listpack.get(pos))
        pos = listpack.next(pos)
    return values


def _append(listpack: Listpack, member: bytes, score: float, classic: bool) -> None:
    listpack.append(member)
    value = listpack_score(score, classic)
    if isinstance(value, int):
        listpack.append_int(value)
    else:
        listpack.append(value)


def _below(values: list[Any], score: float, inclusive: bool) -> int:
    """Return the number of members with a score below the given score, or equal to it if `inclusive`."""
    return (bisect_right if inclusive else bisect_left)(values[1::2], score, key=float)


def _walk(members: list[bytes], wanted: MemberRange, backwards: bool) -> tuple[int, int]:
    """Return the window of a member range in a listpack, by walking the members as Redis does (zzlFirstInLexRange)."""
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

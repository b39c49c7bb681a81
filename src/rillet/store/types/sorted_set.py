"""SortedSet: unique members with a score under one key, in the order of the scores.

    scores = store.zset("scores")
    scores["ann"] = 31.5                   ZADD
    scores.incr("ann", 2)                  ZINCRBY
    scores.rank("ann")                     ZRANK
    scores.range(0, 9, reverse=True)       the ten highest: [("ann", 33.5), ...]
    for member, score in scores.items():   in the order of the scores

It is a mapping from member to score, whose order is the order of the scores; members with the same score are in the
order of their bytes. Ranges include both ends, as Redis's do: `range(0, -1)` is everything. A bound of a score is a
number, "-inf", "+inf", or text with "(" before it, which excludes the bound: "(1.5".

Iteration reads pages by rank (ZRANGE). If the sorted set changes meanwhile, a member may be skipped or yielded twice;
`scan` (ZSCAN) yields each member that stays at least once, in no order. `get_all` reads everything at one moment.
"""

from __future__ import annotations

from collections.abc import ItemsView, Iterable, Iterator, Mapping, MutableMapping, ValuesView
from itertools import chain
from typing import Any, TypeVar, overload

from rillet.store.arguments.argument_checks import (
    flag,
    integer_of,
    lex_bound,
    number_of,
    score_bound,
    values_of,
    whole_number,
)
from rillet.store.arguments.durations import Seconds
from rillet.store.arguments.encoding import pairs_of
from rillet.store.types.sortable import Sortable
from rillet.store.types.stored_key import MISSING, PAGE, V, replies_of, same_data, seconds_of, transaction

T = TypeVar("T")
Bound = float | str | bytes
_FLAGS = {"nx": b"NX", "xx": b"XX", "gt": b"GT", "lt": b"LT", "changed": b"CH"}


class SortedSet(Sortable[V], MutableMapping[V, float]):
    """A sorted set of the store as a MutableMapping from member to score. See the module for order and bounds."""

    __slots__ = ()
    __hash__ = None  # type: ignore[assignment]

    # -- one member ----------------------------------------------------------------------------------

    def get_value(self, member: V) -> float:
        """Return the score of a member; KeyError if there is none (ZSCORE). O(1)"""
        score = self.store.run([b"ZSCORE", self.key, self._encode(member)])
        if score is None:
            raise KeyError(member)
        return float(score)

    def set_value(self, member: V, score: float) -> bool:
        """Set the score of a member; return whether it is new (ZADD). O(log n)"""
        return bool(self.store.run([b"ZADD", self.key, _score(score, member), self._encode(member)]))

    @overload
    def get(self, member: V, default: None = None, /) -> float | None: ...
    @overload
    def get(self, member: V, default: float, /) -> float: ...
    @overload
    def get(self, member: V, default: T, /) -> float | T: ...
    def get(self, member: V, default: Any = None, /) -> Any:
        """Return the score of a member, or the default (ZSCORE). O(1)"""
        score = self.store.run([b"ZSCORE", self.key, self._encode(member)])
        return default if score is None else float(score)

    def setdefault(self, member: V, default: float = 0.0) -> float:
        """Add a member if it is missing; return its score (ZADD NX, ZSCORE). Atomic. O(log n)"""
        name, score = self._encode(member), None
        while score is None:  # another client may remove the member between the two commands
            add = [b"ZADD", self.key, b"NX", number_of(default, "default", finite=False), name]
            _, score = self.store.run_many([add, [b"ZSCORE", self.key, name]])
        return float(score)

    def contains(self, member: object) -> bool:
        """Return whether a value is a member (ZSCORE); False for a value that the codec rejects. O(1)"""
        try:
            return self.get(member) is not None  # type: ignore[arg-type]
        except TypeError:
            return False

    def incr(self, member: V, by: float = 1.0) -> float:
        """Add to the score of a member, 0 if missing; return the result (ZINCRBY). O(log n)"""
        argv = [b"ZINCRBY", self.key, number_of(by, "by", finite=False), self._encode(member)]
        return float(self.store.run(argv))

    def rank(self, member: V, *, reverse: bool = False) -> int | None:
        """Return the position of a member, 0 for the lowest score; None if missing (ZRANK, ZREVRANK). O(log n)"""
        command = b"ZREVRANK" if flag(reverse, "reverse") else b"ZRANK"
        rank: int | None = self.store.run([command, self.key, self._encode(member)])
        return rank

    @overload
    def pop(self, member: V, /) -> float: ...
    @overload
    def pop(self, member: V, default: float, /) -> float: ...
    @overload
    def pop(self, member: V, default: T, /) -> float | T: ...
    def pop(self, member: V, default: Any = MISSING, /) -> Any:
        """Remove a member and return its score, or the default (ZSCORE, ZREM in MULTI). O(log n)"""
        name = self._encode(member)
        commands = transaction([b"ZSCORE", self.key, name], [b"ZREM", self.key, name])
        score, _ = replies_of(self.store.run_many(commands))
        if score is None and default is MISSING:
            raise KeyError(member)
        return default if score is None else float(score)

    # -- several members -----------------------------------------------------------------------------

    def add(self, members: Mapping[V, float] | Iterable[tuple[V, float]], *, nx: bool = False, xx: bool = False,
            gt: bool = False, lt: bool = False, changed: bool = False) -> int:  # fmt: skip
        """Set the scores of members in one command; return how many are new (ZADD). O(log n) each

        nx: only add; xx: only update; gt, lt: update only to a higher or lower score; changed: count updates too.
        """
        flags = {"nx": nx, "xx": xx, "gt": gt, "lt": lt, "changed": changed}
        argv = [b"ZADD", self.key, *(_FLAGS[name] for name, wanted in flags.items() if flag(wanted, name))]
        size = len(argv)
        for member, score in pairs_of(members, "members"):
            argv += (_score(score, member), self._encode(member))
        return int(self.store.run(argv)) if len(argv) > size else 0

    def update(self, members: Any = (), /, **more: float) -> None:
        """Set the scores of members from a mapping, pairs, or keyword arguments, in one command (ZADD)."""
        self.add(chain(pairs_of(members, "members"), pairs_of(more)))

    def mget(self, members: Iterable[V]) -> list[float | None]:
        """Return the scores of several members in order, None for a missing one (ZMSCORE). O(members)"""
        argv = [b"ZMSCORE", self.key, *map(self._encode, values_of(members, "members"))]
        scores = self.store.run(argv) if len(argv) > 2 else []
        return [None if score is None else float(score) for score in scores]

    def remove(self, *members: V) -> int:
        """Remove members; return how many existed (ZREM). O(log n) each"""
        return int(self.store.run([b"ZREM", self.key, *map(self._encode, members)])) if members else 0

    def remove_range(self, start: int, end: int) -> int:
        """Remove the members from rank start to rank end; return how many (ZREMRANGEBYRANK). O(log n + removed)"""
        return int(self.store.run([b"ZREMRANGEBYRANK", self.key, *_ends(start, end)]))

    def remove_range_by_score(self, low: Bound = "-inf", high: Bound = "+inf") -> int:
        """Remove the members with scores from low to high; return how many (ZREMRANGEBYSCORE). O(log n + removed)"""
        return int(self.store.run([b"ZREMRANGEBYSCORE", self.key, *_scores(low, high)]))

    def remove_range_by_lex(self, low: str | bytes = "-", high: str | bytes = "+") -> int:
        """Remove the members from low to high; see range_by_lex (ZREMRANGEBYLEX). O(log n + removed)"""
        return int(self.store.run([b"ZREMRANGEBYLEX", self.key, *_members(low, high)]))

    def clear(self) -> None:
        """Delete the key (DEL). O(members)"""
        self.delete()

    def size(self) -> int:
        """Return the number of members (ZCARD). O(1)"""
        return int(self.store.run([b"ZCARD", self.key]))

    def count(self, low: Bound = "-inf", high: Bound = "+inf") -> int:
        """Return the number of members with scores from low to high (ZCOUNT). O(log n)"""
        return int(self.store.run([b"ZCOUNT", self.key, *_scores(low, high)]))

    def count_lex(self, low: str | bytes = "-", high: str | bytes = "+") -> int:
        """Return the number of members from low to high; see range_by_lex (ZLEXCOUNT). O(log n)"""
        return int(self.store.run([b"ZLEXCOUNT", self.key, *_members(low, high)]))

    def random(self) -> V | None:
        """Return a random member; None if the sorted set is empty (ZRANDMEMBER). O(1)"""
        raw = self.store.run([b"ZRANDMEMBER", self.key])
        return None if raw is None else self._decode(raw)

    # -- ranges --------------------------------------------------------------------------------------

    def range(self, start: int = 0, end: int = -1, *, reverse: bool = False) -> list[tuple[V, float]]:
        """Return members and scores from rank start to rank end; -1 is the last (ZRANGE). O(log n + returned)

        reverse: ranks count from the highest score.
        """
        argv = [b"ZRANGE", self.key, *_ends(start, end), *([b"REV"] if flag(reverse, "reverse") else []), b"WITHSCORES"]
        return self._scored(self.store.run(argv))

    def range_by_score(self, low: Bound = "-inf", high: Bound = "+inf", *, offset: int = 0, count: int | None = None,
                       reverse: bool = False) -> list[tuple[V, float]]:  # fmt: skip
        """Return members and scores with scores from low to high (ZRANGE BYSCORE). O(log n + offset + returned)

        reverse: the highest score first. offset, count: skip members, and return at most `count`.
        """
        argv = _range_arguments(self.key, b"BYSCORE", *_scores(low, high), offset, count, reverse)
        return self._scored(self.store.run([*argv, b"WITHSCORES"]))

    def range_by_lex(self, low: str | bytes = "-", high: str | bytes = "+", *, offset: int = 0,
                     count: int | None = None, reverse: bool = False) -> list[V]:  # fmt: skip
        """Return the members from low to high if all scores are equal (ZRANGE BYLEX). O(log n + offset + returned)

        A bound is "-", "+", or the bytes of a member after "[" (included) or "(" (excluded): "[ann".
        """
        argv = _range_arguments(self.key, b"BYLEX", *_members(low, high), offset, count, reverse)
        return list(map(self._decode, self.store.run(argv)))

    # -- popping -------------------------------------------------------------------------------------

    @overload
    def pop_min(self, *, block: Seconds | None = None) -> tuple[V, float]: ...
    @overload
    def pop_min(self, *, default: T, block: Seconds | None = None) -> tuple[V, float] | T: ...
    def pop_min(self, *, default: Any = MISSING, block: Seconds | None = None) -> Any:
        """Remove the member with the lowest score and return both (ZPOPMIN, BZPOPMIN). O(log n)

        If the sorted set is empty, wait `block` seconds (0: without limit), then return the default or raise KeyError.
        """
        return self._popped(self.store.run(_pop_arguments(b"ZPOPMIN", self.key, block)), default)

    @overload
    def pop_max(self, *, block: Seconds | None = None) -> tuple[V, float]: ...
    @overload
    def pop_max(self, *, default: T, block: Seconds | None = None) -> tuple[V, float] | T: ...
    def pop_max(self, *, default: Any = MISSING, block: Seconds | None = None) -> Any:
        """Remove the member with the highest score and return both (ZPOPMAX, BZPOPMAX); see pop_min. O(log n)"""
        return self._popped(self.store.run(_pop_arguments(b"ZPOPMAX", self.key, block)), default)

    def pop_min_many(self, count: int) -> list[tuple[V, float]]:
        """Remove up to `count` members with the lowest scores; return members and scores (ZPOPMIN)."""
        return self._scored(self.store.run([b"ZPOPMIN", self.key, integer_of(count, "count", 0)]))

    def pop_max_many(self, count: int) -> list[tuple[V, float]]:
        """Remove up to `count` members with the highest scores; return members and scores (ZPOPMAX)."""
        return self._scored(self.store.run([b"ZPOPMAX", self.key, integer_of(count, "count", 0)]))

    def popitem(self) -> tuple[V, float]:
        """Remove the member with the highest score, the last of the mapping; KeyError if there is none (ZPOPMAX)."""
        return self.pop_max()

    def _popped(self, reply: Any, default: Any) -> Any:
        if not reply:
            if default is MISSING:
                raise KeyError(f"the sorted set {self.name!r} is empty")
            return default
        return self._decode(reply[-2]), float(reply[-1])  # BZPOPMIN replies with the key first

    # -- all members ---------------------------------------------------------------------------------

    def get_all(self) -> dict[V, float]:
        """Return all members and scores, as they are at one moment, in the order of the scores (ZRANGE)."""
        return dict(self.range())

    def scan(self, match: str | bytes | None = None) -> Iterator[tuple[V, float]]:
        """Yield the members that match a glob, with their scores, in no order (ZSCAN)."""
        for page in self._scan(b"ZSCAN", match):
            for pair in self._scored(page):  # noqa: UP028  # see the rules in stored_key
                yield pair

    def pages(self, *, reverse: bool = False) -> Iterator[list[tuple[V, float]]]:
        """Yield all members with their scores in order, in lists of a thousand (ZRANGE)."""
        rev = [b"REV"] if flag(reverse, "reverse") else []
        start, more = 0, True
        while more:
            argv = [b"ZRANGE", self.key, integer_of(start, "start"), b"%d" % (start + PAGE - 1), *rev, b"WITHSCORES"]
            page = self._scored(self.store.run(argv))
            yield page
            start, more = start + PAGE, len(page) == PAGE

    def values(self) -> ValuesView[float]:
        """Return a view of the scores, in order."""
        return _Scores(self)

    def items(self) -> ItemsView[V, float]:
        """Return a view of the members with their scores, in the order of the scores."""
        return _ScoredMembers(self)

    def _scored(self, reply: Any) -> list[tuple[V, float]]:
        """Return the members and scores of a reply: flat, or pairs (RESP3)."""
        if reply and isinstance(reply[0], list):
            return [(self._decode(raw), float(score)) for raw, score in reply]
        return [(self._decode(raw), float(score)) for raw, score in zip(reply[::2], reply[1::2], strict=True)]

    # -- operators -----------------------------------------------------------------------------------

    def __getitem__(self, member: V) -> float:
        return self.get_value(member)

    def __setitem__(self, member: V, score: float) -> None:
        self.set_value(member, score)

    def __delitem__(self, member: V) -> None:
        if not self.remove(member):
            raise KeyError(member)

    def __contains__(self, member: object) -> bool:
        return self.contains(member)

    def __len__(self) -> int:
        return self.size()

    def __iter__(self) -> Iterator[V]:
        """Yield the members in the order of the scores, a page at a time."""
        return (member for page in self.pages() for member, _ in page)

    def __reversed__(self) -> Iterator[V]:
        """Yield the members from the highest score to the lowest."""
        return (member for page in self.pages(reverse=True) for member, _ in page)

    def __eq__(self, other: object) -> bool:
        """Compare with a mapping: all members and scores are read."""
        if not isinstance(other, Mapping):
            return NotImplemented
        return same_data(self, other) or self.get_all() == dict(other.items())


class _ScoredMembers(ItemsView[V, float]):
    """The items of a sorted set, read in pages."""

    _mapping: SortedSet[V]

    def __iter__(self) -> Iterator[tuple[V, float]]:
        return (pair for page in self._mapping.pages() for pair in page)


class _Scores(ValuesView[float]):
    """The scores of a sorted set, read in pages."""

    _mapping: SortedSet[Any]

    def __iter__(self) -> Iterator[float]:
        return (score for page in self._mapping.pages() for _, score in page)

    def __contains__(self, score: object) -> bool:
        """Return whether a member has this score (ZCOUNT). O(log n)"""
        return isinstance(score, (int, float)) and self._mapping.count(score, score) > 0


def _range_arguments(key: bytes, by: bytes, low: bytes, high: bytes, offset: int, count: int | None,
                     reverse: bool) -> list[bytes]:  # fmt: skip
    """Return ZRANGE BYSCORE or BYLEX; with REV, Redis expects the higher bound first."""
    argv = [b"ZRANGE", key, *((high, low) if flag(reverse, "reverse") else (low, high)), by]
    if reverse:
        argv.append(b"REV")
    skipped = whole_number(offset, "offset", 0)
    if skipped or count is not None:
        argv += [b"LIMIT", b"%d" % skipped, b"-1" if count is None else integer_of(count, "count", 0)]
    return argv


def _pop_arguments(command: bytes, key: bytes, block: Seconds | None) -> list[bytes]:
    """Return the command that pops, or its blocking form."""
    return [command, key] if block is None else [b"B" + command, key, seconds_of(block, "block")]


def _score(score: float, member: object) -> bytes:
    return number_of(score, f"the score of {member!r:.100}", finite=False)


def _scores(low: Bound, high: Bound) -> tuple[bytes, bytes]:
    return score_bound(low, "low"), score_bound(high, "high")


def _members(low: str | bytes, high: str | bytes) -> tuple[bytes, bytes]:
    return lex_bound(low, "low"), lex_bound(high, "high")


def _ends(start: int, end: int) -> tuple[bytes, bytes]:
    """Return the first and the last index of a range as arguments."""
    return integer_of(start, "start"), integer_of(end, "end")

"""The asyncio form of rillet.store.types.sorted_set: AsyncSortedSet.

Made from store/types/sorted_set.py by `python -m tools.make_aio`; edit that file, then run the command.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from itertools import chain
from typing import Any, overload

from rillet.store.aio.sortable import AsyncSortable
from rillet.store.arguments.argument_checks import flag, integer_of, number_of, values_of
from rillet.store.arguments.durations import Seconds
from rillet.store.arguments.encoding import pairs_of
from rillet.store.types.sorted_set import (
    _FLAGS,
    Bound,
    T,
    _ends,
    _members,
    _pop_arguments,
    _range_arguments,
    _score,
    _scores,
)
from rillet.store.types.stored_key import MISSING, PAGE, V, replies_of, transaction


class AsyncSortedSet(AsyncSortable[V]):
    """A sorted set of the store: members with a score; see rillet.store.types.sorted_set.

    `async for` yields the members in the order of the scores, a thousand at a time.
    """

    __slots__ = ()

    # -- one member ----------------------------------------------------------------------------------

    async def get_value(self, member: V) -> float:
        """Return the score of a member; KeyError if there is none (ZSCORE). O(1)"""
        score = await self.store.run([b"ZSCORE", self.key, self._encode(member)])
        if score is None:
            raise KeyError(member)
        return float(score)

    async def set_value(self, member: V, score: float) -> bool:
        """Set the score of a member; return whether it is new (ZADD). O(log n)"""
        return bool(await self.store.run([b"ZADD", self.key, _score(score, member), self._encode(member)]))

    @overload
    async def get(self, member: V, default: None = None, /) -> float | None: ...
    @overload
    async def get(self, member: V, default: float, /) -> float: ...
    @overload
    async def get(self, member: V, default: T, /) -> float | T: ...
    async def get(self, member: V, default: Any = None, /) -> Any:
        """Return the score of a member, or the default (ZSCORE). O(1)"""
        score = await self.store.run([b"ZSCORE", self.key, self._encode(member)])
        return default if score is None else float(score)

    async def setdefault(self, member: V, default: float = 0.0) -> float:
        """Add a member if it is missing; return its score (ZADD NX, ZSCORE). Atomic. O(log n)"""
        name, score = self._encode(member), None
        while score is None:  # another client may remove the member between the two commands
            add = [b"ZADD", self.key, b"NX", number_of(default, "default", finite=False), name]
            _, score = await self.store.run_many([add, [b"ZSCORE", self.key, name]])
        return float(score)

    async def contains(self, member: object) -> bool:
        """Return whether a value is a member (ZSCORE); False for a value that the codec rejects. O(1)"""
        try:
            return await self.get(member) is not None  # type: ignore[arg-type]
        except TypeError:
            return False

    async def incr(self, member: V, by: float = 1.0) -> float:
        """Add to the score of a member, 0 if missing; return the result (ZINCRBY). O(log n)"""
        argv = [b"ZINCRBY", self.key, number_of(by, "by", finite=False), self._encode(member)]
        return float(await self.store.run(argv))

    async def rank(self, member: V, *, reverse: bool = False) -> int | None:
        """Return the position of a member, 0 for the lowest score; None if missing (ZRANK, ZREVRANK). O(log n)"""
        command = b"ZREVRANK" if flag(reverse, "reverse") else b"ZRANK"
        rank: int | None = await self.store.run([command, self.key, self._encode(member)])
        return rank

    @overload
    async def pop(self, member: V, /) -> float: ...
    @overload
    async def pop(self, member: V, default: float, /) -> float: ...
    @overload
    async def pop(self, member: V, default: T, /) -> float | T: ...
    async def pop(self, member: V, default: Any = MISSING, /) -> Any:
        """Remove a member and return its score, or the default (ZSCORE, ZREM in MULTI). O(log n)"""
        name = self._encode(member)
        commands = transaction([b"ZSCORE", self.key, name], [b"ZREM", self.key, name])
        score, _ = replies_of(await self.store.run_many(commands))
        if score is None and default is MISSING:
            raise KeyError(member)
        return default if score is None else float(score)

    # -- several members -----------------------------------------------------------------------------

    async def add(self, members: Mapping[V, float] | Iterable[tuple[V, float]], *, nx: bool = False, xx: bool = False,
                  gt: bool = False, lt: bool = False, changed: bool = False) -> int:  # fmt: skip
        """Set the scores of members in one command; return how many are new (ZADD). O(log n) each

        nx: only add; xx: only update; gt, lt: update only to a higher or lower score; changed: count updates too.
        """
        flags = {"nx": nx, "xx": xx, "gt": gt, "lt": lt, "changed": changed}
        argv = [b"ZADD", self.key, *(_FLAGS[name] for name, wanted in flags.items() if flag(wanted, name))]
        size = len(argv)
        for member, score in pairs_of(members, "members"):
            argv += (_score(score, member), self._encode(member))
        return int(await self.store.run(argv)) if len(argv) > size else 0

    async def update(self, members: Any = (), /, **more: float) -> None:
        """Set the scores of members from a mapping, pairs, or keyword arguments, in one command (ZADD)."""
        await self.add(chain(pairs_of(members, "members"), pairs_of(more)))

    async def mget(self, members: Iterable[V]) -> list[float | None]:
        """Return the scores of several members in order, None for a missing one (ZMSCORE). O(members)"""
        argv = [b"ZMSCORE", self.key, *map(self._encode, values_of(members, "members"))]
        scores = await self.store.run(argv) if len(argv) > 2 else []
        return [None if score is None else float(score) for score in scores]

    async def remove(self, *members: V) -> int:
        """Remove members; return how many existed (ZREM). O(log n) each"""
        return int(await self.store.run([b"ZREM", self.key, *map(self._encode, members)])) if members else 0

    async def remove_range(self, start: int, end: int) -> int:
        """Remove the members from rank start to rank end; return how many (ZREMRANGEBYRANK). O(log n + removed)"""
        return int(await self.store.run([b"ZREMRANGEBYRANK", self.key, *_ends(start, end)]))

    async def remove_range_by_score(self, low: Bound = "-inf", high: Bound = "+inf") -> int:
        """Remove the members with scores from low to high; return how many (ZREMRANGEBYSCORE). O(log n + removed)"""
        return int(await self.store.run([b"ZREMRANGEBYSCORE", self.key, *_scores(low, high)]))

    async def remove_range_by_lex(self, low: str | bytes = "-", high: str | bytes = "+") -> int:
        """Remove the members from low to high; see range_by_lex (ZREMRANGEBYLEX). O(log n + removed)"""
        return int(await self.store.run([b"ZREMRANGEBYLEX", self.key, *_members(low, high)]))

    async def clear(self) -> None:
        """Delete the key (DEL). O(members)"""
        await self.delete()

    async def size(self) -> int:
        """Return the number of members (ZCARD). O(1)"""
        return int(await self.store.run([b"ZCARD", self.key]))

    async def count(self, low: Bound = "-inf", high: Bound = "+inf") -> int:
        """Return the number of members with scores from low to high (ZCOUNT). O(log n)"""
        return int(await self.store.run([b"ZCOUNT", self.key, *_scores(low, high)]))

    async def count_lex(self, low: str | bytes = "-", high: str | bytes = "+") -> int:
        """Return the number of members from low to high; see range_by_lex (ZLEXCOUNT). O(log n)"""
        return int(await self.store.run([b"ZLEXCOUNT", self.key, *_members(low, high)]))

    async def random(self) -> V | None:
        """Return a random member; None if the sorted set is empty (ZRANDMEMBER). O(1)"""
        raw = await self.store.run([b"ZRANDMEMBER", self.key])
        return None if raw is None else self._decode(raw)

    # -- ranges --------------------------------------------------------------------------------------

    async def range(self, start: int = 0, end: int = -1, *, reverse: bool = False) -> list[tuple[V, float]]:
        """Return members and scores from rank start to rank end; -1 is the last (ZRANGE). O(log n + returned)

        reverse: ranks count from the highest score.
        """
        argv = [b"ZRANGE", self.key, *_ends(start, end), *([b"REV"] if flag(reverse, "reverse") else []), b"WITHSCORES"]
        return self._scored(await self.store.run(argv))

    async def range_by_score(self, low: Bound = "-inf", high: Bound = "+inf", *, offset: int = 0,
                             count: int | None = None, reverse: bool = False) -> list[tuple[V, float]]:  # fmt: skip
        """Return members and scores with scores from low to high (ZRANGE BYSCORE). O(log n + offset + returned)

        reverse: the highest score first. offset, count: skip members, and return at most `count`.
        """
        argv = _range_arguments(self.key, b"BYSCORE", *_scores(low, high), offset, count, reverse)
        return self._scored(await self.store.run([*argv, b"WITHSCORES"]))

    async def range_by_lex(self, low: str | bytes = "-", high: str | bytes = "+", *, offset: int = 0,
                           count: int | None = None, reverse: bool = False) -> list[V]:  # fmt: skip
        """Return the members from low to high if all scores are equal (ZRANGE BYLEX). O(log n + offset + returned)

        A bound is "-", "+", or the bytes of a member after "[" (included) or "(" (excluded): "[ann".
        """
        argv = _range_arguments(self.key, b"BYLEX", *_members(low, high), offset, count, reverse)
        return list(map(self._decode, await self.store.run(argv)))

    # -- popping -------------------------------------------------------------------------------------

    @overload
    async def pop_min(self, *, block: Seconds | None = None) -> tuple[V, float]: ...
    @overload
    async def pop_min(self, *, default: T, block: Seconds | None = None) -> tuple[V, float] | T: ...
    async def pop_min(self, *, default: Any = MISSING, block: Seconds | None = None) -> Any:
        """Remove the member with the lowest score and return both (ZPOPMIN, BZPOPMIN). O(log n)

        If the sorted set is empty, wait `block` seconds (0: without limit), then return the default or raise KeyError.
        """
        return self._popped(await self.store.run(_pop_arguments(b"ZPOPMIN", self.key, block)), default)

    @overload
    async def pop_max(self, *, block: Seconds | None = None) -> tuple[V, float]: ...
    @overload
    async def pop_max(self, *, default: T, block: Seconds | None = None) -> tuple[V, float] | T: ...
    async def pop_max(self, *, default: Any = MISSING, block: Seconds | None = None) -> Any:
        """Remove the member with the highest score and return both (ZPOPMAX, BZPOPMAX); see pop_min. O(log n)"""
        return self._popped(await self.store.run(_pop_arguments(b"ZPOPMAX", self.key, block)), default)

    async def pop_min_many(self, count: int) -> list[tuple[V, float]]:
        """Remove up to `count` members with the lowest scores; return members and scores (ZPOPMIN)."""
        return self._scored(await self.store.run([b"ZPOPMIN", self.key, integer_of(count, "count", 0)]))

    async def pop_max_many(self, count: int) -> list[tuple[V, float]]:
        """Remove up to `count` members with the highest scores; return members and scores (ZPOPMAX)."""
        return self._scored(await self.store.run([b"ZPOPMAX", self.key, integer_of(count, "count", 0)]))

    async def popitem(self) -> tuple[V, float]:
        """Remove the member with the highest score, the last of the mapping; KeyError if there is none (ZPOPMAX)."""
        return await self.pop_max()

    def _popped(self, reply: Any, default: Any) -> Any:
        if not reply:
            if default is MISSING:
                raise KeyError(f"the sorted set {self.name!r} is empty")
            return default
        return self._decode(reply[-2]), float(reply[-1])  # BZPOPMIN replies with the key first

    # -- all members ---------------------------------------------------------------------------------

    async def get_all(self) -> dict[V, float]:
        """Return all members and scores, as they are at one moment, in the order of the scores (ZRANGE)."""
        return dict(await self.range())

    async def scan(self, match: str | bytes | None = None) -> AsyncIterator[tuple[V, float]]:
        """Yield the members that match a glob, with their scores, in no order (ZSCAN)."""
        async for page in self._scan(b"ZSCAN", match):
            for pair in self._scored(page):
                yield pair

    async def pages(self, *, reverse: bool = False) -> AsyncIterator[list[tuple[V, float]]]:
        """Yield all members with their scores in order, in lists of a thousand (ZRANGE)."""
        rev = [b"REV"] if flag(reverse, "reverse") else []
        start, more = 0, True
        while more:
            argv = [b"ZRANGE", self.key, integer_of(start, "start"), b"%d" % (start + PAGE - 1), *rev, b"WITHSCORES"]
            page = self._scored(await self.store.run(argv))
            yield page
            start, more = start + PAGE, len(page) == PAGE

    def _scored(self, reply: Any) -> list[tuple[V, float]]:
        """Return the members and scores of a reply: flat, or pairs (RESP3)."""
        if reply and isinstance(reply[0], list):
            return [(self._decode(raw), float(score)) for raw, score in reply]
        return [(self._decode(raw), float(score)) for raw, score in zip(reply[::2], reply[1::2], strict=True)]

    # -- operators -----------------------------------------------------------------------------------

    def __aiter__(self) -> AsyncIterator[V]:
        """Yield the members in the order of the scores, a page at a time."""
        return (member async for page in self.pages() for member, _ in page)

"""ZUNION, ZINTER, ZDIFF, and the variants that store or count their results (Redis: t_zset.c).

The sources are sorted sets, or sets whose members have the score 1. WEIGHTS multiplies the scores of each source.
AGGREGATE combines the scores of a member: SUM, MIN, MAX, or in the newest servers COUNT, the sum of the weights. The
sum of doubles depends on the order of addition, so the sources are added in Redis's order: by size, smallest first. A
result that is not a number (inf - inf, 0 * inf) counts as 0.

A stored result is a new sorted set: its encoding does not depend on the order of insertion.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from math import isnan

from rillet.commands.arguments import integer, positive, syntax_error
from rillet.commands.first_key_pop import KeysAfterNumber
from rillet.commands.set.operations import store_result
from rillet.commands.zset import command
from rillet.commands.zset.members import score_argument, write_pairs
from rillet.errors import CommandError, WrongType
from rillet.runtime.session import Session
from rillet.types.set import Set
from rillet.types.zset import Pair, Zset

_UNION = (
    "O(N)+O(M*log(M)) with N being the sum of the sizes of the input sorted sets, and M being the number of elements "
    "in the resulting sorted set."
)
_INTER = (
    "O(N*K)+O(M*log(M)) worst case with N being the smallest input sorted set, K being the number of input sorted sets "
    "and M being the number of elements in the resulting sorted set."
)
_DIFF = (
    "O(L + (N-K)log(N)) worst case where L is the total number of elements in all the sets, N is the size of the first "
    "set, and K is the size of the result set."
)
_WEIGHTED = "numkeys key [key ...] [WEIGHTS weight [weight ...]] [AGGREGATE <SUM | MIN | MAX | COUNT>]"


class _Source:
    """An operand of ZUNION, ZINTER or ZDIFF: a sorted set or set, and its weight (zsetopsrc)."""

    __slots__ = ("value", "weight")

    def __init__(self, session: Session, key: bytes) -> None:
        value = session.db.lookup_read(key)
        if value is not None and not isinstance(value, (Zset, Set)):
            raise WrongType()
        self.value = value
        self.weight = 1.0

    def __len__(self) -> int:
        return 0 if self.value is None else len(self.value)

    def __iter__(self) -> Iterator[Pair]:
        """Yield (member, score)."""
        if isinstance(self.value, Zset):
            yield from self.value
        elif self.value is not None:
            for member in self.value:
                yield member, 1.0

    def score(self, member: bytes) -> float | None:
        """Return the score of a member, None if it is missing (zuiFind)."""
        if isinstance(self.value, Zset):
            return self.value.score(member)
        return 1.0 if self.value is not None and member in self.value else None


def _sum(one: float, other: float) -> float:
    total = one + other
    return 0.0 if isnan(total) else total


def _least(one: float, other: float) -> float:
    return other if other < one else one


def _greatest(one: float, other: float) -> float:
    return other if other > one else one


_AGGREGATES: dict[bytes, Callable[[float, float], float]] = {
    b"sum": _sum, b"min": _least, b"max": _greatest, b"count": _sum,
}  # fmt: skip


class _Request:
    """The arguments of ZUNION and the like: sources, weights, aggregate, reply form (zunionInterDiffGenericCommand)."""

    __slots__ = ("aggregate", "counting", "limit", "sources", "with_scores")

    def __init__(self, session: Session, argv: list[bytes], at: int, options: frozenset[bytes]) -> None:
        numkeys = integer(argv[at])
        if numkeys < 1:
            raise CommandError(f"at least 1 input key is needed for '{session.command.fullname}' command")
        if numkeys > len(argv) - at - 1:
            raise syntax_error()
        self.sources = [_Source(session, key) for key in argv[at + 1 : at + 1 + numkeys]]
        self.aggregate: Callable[[float, float], float] = _sum
        self.counting = self.with_scores = False
        self.limit = 0
        rest = argv[at + 1 + numkeys :]
        while rest:
            option = rest[0].lower()
            if option not in options:
                raise syntax_error()
            rest = rest[1 + self._take(session, option, rest[1:]) :]

    def _take(self, session: Session, option: bytes, rest: list[bytes]) -> int:
        """Parse an option; return the number of its arguments."""
        if option == b"withscores":
            self.with_scores = True
            return 0
        needed = len(self.sources) if option == b"weights" else 1
        if len(rest) < needed:
            raise syntax_error()
        if option == b"weights":
            for source, raw in zip(self.sources, rest, strict=False):
                source.weight = score_argument(session, raw, "weight value is not a float")
        elif option == b"limit":
            self.limit = positive(rest[0], "LIMIT can't be negative")
        else:
            word = rest[0].lower()
            if word not in _AGGREGATES or (word == b"count" and not session.engine.settings.compat.knows(88)):
                raise syntax_error()
            self.aggregate, self.counting = _AGGREGATES[word], word == b"count"
        return needed

    def weighted(self, source: _Source, score: float) -> float:
        """Return the weighted score of a member (zuiWeightedScore)."""
        return source.weight if self.counting else source.weight * score

    # -- the operations ------------------------------------------------------------------------------

    def union(self) -> Iterable[Pair]:
        """Return the members of all sources with their scores."""
        found: dict[bytes, float] = {}
        for source in sorted(self.sources, key=len):
            for member, own in source:
                score = _number(self.weighted(source, own))
                old = found.get(member)
                found[member] = score if old is None else self.aggregate(old, score)
        return found.items()

    def intersection(self) -> Iterator[Pair]:
        """Yield the members that all sources contain, with their scores."""
        first, *others = sorted(self.sources, key=len)
        for member, own in first:
            score = _number(self.weighted(first, own))
            for other in others:
                its = own if other.value is first.value else other.score(member)
                if its is None:
                    break
                score = self.aggregate(score, self.weighted(other, its))
            else:
                yield member, score

    def difference(self) -> Iterator[Pair]:
        """Yield those members of the first source that are in no other source, with their scores."""
        first, *others = self.sources
        if any(other.value is first.value for other in others):
            return
        for member, score in first:
            if not any(other.score(member) is not None for other in others):
                yield member, score


def _number(score: float) -> float:
    return 0.0 if isnan(score) else score


_MAKE: dict[bytes, Callable[[_Request], Iterable[Pair]]] = {
    b"zunionstore": _Request.union, b"zinterstore": _Request.intersection, b"zdiffstore": _Request.difference,
}  # fmt: skip
_COMBINED = frozenset((b"weights", b"aggregate"))


def _read(session: Session, argv: list[bytes], options: frozenset[bytes],
          make: Callable[[_Request], Iterable[Pair]]) -> None:
    """Execute ZUNION, ZINTER or ZDIFF: reply with the members, ordered by score."""
    request = _Request(session, argv, 1, options | {b"withscores"})
    pairs = sorted(make(request), key=lambda pair: (pair[1], pair[0]))
    write_pairs(session, pairs, len(pairs), request.with_scores)


def _store(session: Session, argv: list[bytes], options: frozenset[bytes], event: bytes) -> None:
    """Execute ZUNIONSTORE, ZINTERSTORE or ZDIFFSTORE: store the sorted set at argv[1], and reply with its length."""
    request = _Request(session, argv, 2, options)
    result = Zset.from_pairs(_MAKE[event](request), session.engine.settings)
    store_result(session, argv[1], result, event, b"z")


@command("zunion", arity=-3, flags="readonly movablekeys", keys=(0, 0, 0), since="6.2.0",
         syntax=_WEIGHTED + " [WITHSCORES]", complexity=_UNION, get_keys=KeysAfterNumber(1))
def zunion(session: Session, argv: list[bytes]) -> None:
    """Return the union of sorted sets."""
    _read(session, argv, _COMBINED, _Request.union)


@command("zinter", arity=-3, flags="readonly movablekeys", keys=(0, 0, 0), since="6.2.0",
         syntax=_WEIGHTED + " [WITHSCORES]", complexity=_INTER, get_keys=KeysAfterNumber(1))
def zinter(session: Session, argv: list[bytes]) -> None:
    """Return the intersection of sorted sets."""
    _read(session, argv, _COMBINED, _Request.intersection)


@command("zdiff", arity=-3, flags="readonly movablekeys", keys=(0, 0, 0), since="6.2.0",
         syntax="numkeys key [key ...] [WITHSCORES]", complexity=_DIFF, get_keys=KeysAfterNumber(1))
def zdiff(session: Session, argv: list[bytes]) -> None:
    """Return the difference of the first sorted set and the others."""
    _read(session, argv, frozenset(), _Request.difference)


@command("zunionstore", arity=-4, flags="write denyoom movablekeys", since="2.0.0", syntax="destination " + _WEIGHTED,
         complexity=_UNION, get_keys=KeysAfterNumber(2, 1))
def zunionstore(session: Session, argv: list[bytes]) -> None:
    """Store the union of sorted sets."""
    _store(session, argv, _COMBINED, b"zunionstore")


@command("zinterstore", arity=-4, flags="write denyoom movablekeys", since="2.0.0", syntax="destination " + _WEIGHTED,
         complexity=_INTER, get_keys=KeysAfterNumber(2, 1))
def zinterstore(session: Session, argv: list[bytes]) -> None:
    """Store the intersection of sorted sets."""
    _store(session, argv, _COMBINED, b"zinterstore")


@command("zdiffstore", arity=-4, flags="write denyoom movablekeys", since="6.2.0",
         syntax="destination numkeys key [key ...]", complexity=_DIFF, get_keys=KeysAfterNumber(2, 1))
def zdiffstore(session: Session, argv: list[bytes]) -> None:
    """Store the difference of the first sorted set and the others."""
    _store(session, argv, frozenset(), b"zdiffstore")


@command("zintercard", arity=-3, flags="readonly movablekeys", keys=(0, 0, 0), since="7.0.0",
         syntax="numkeys key [key ...] [LIMIT limit]",
         complexity="O(N*K) worst case with N being the smallest input sorted set, K being the number of input sorted "
         "sets.", get_keys=KeysAfterNumber(1))
def zintercard(session: Session, argv: list[bytes]) -> None:
    """Return the size of the intersection of sorted sets, up to a limit."""
    request = _Request(session, argv, 1, frozenset((b"limit",)))
    members = request.intersection()
    session.out.integer(sum(1 for _ in (islice(members, request.limit) if request.limit else members)))

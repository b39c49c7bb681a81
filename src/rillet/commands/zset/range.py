"""Ranges of a sorted set: read, store, count and remove them (Redis: t_zset.c, zrangeGenericCommand).

    by rank      0 -1         both ends included, negative ones from the end
    by score     (1 +inf      ( excludes an end
    by member    [a (b - +    only if all scores are equal; [ includes an end

A range becomes a window: the rank of its first member, and a number of members (`types.zset`). LIMIT counts in reply
order: a negative offset leaves nothing, a negative count sets no limit. In the arguments of a reverse range, the high
end comes first: ZRANGE k 5 1 BYSCORE REV.
"""

from __future__ import annotations

from rillet._cython import cython
from rillet.commands.arguments import integer, syntax_error
from rillet.commands.list.elements import clamp
from rillet.commands.lookup import delete_if_empty, read_value, value_for_write
from rillet.commands.set.operations import store_result
from rillet.commands.table_replies import write_range
from rillet.commands.zset import command
from rillet.commands.zset.values import zset_at
from rillet.errors import CommandError
from rillet.keyspace.database import Database
from rillet.runtime.implementation import Implementation
from rillet.runtime.session import Session
from rillet.structs import float_text
from rillet.structs.argument_spans import ArgumentSpans
from rillet.structs.listpack import parse_digits
from rillet.types.compat import Compat
from rillet.types.zset import GREATEST, LEAST, MemberRange, ScoreRange, Zset

_NOT_INT = cython.declare(cython.longlong, -(2**63))
RANK, SCORE, MEMBER = "rank", "score", "lex"
_SEARCH = "O(log(N)+M) with N being the number of elements in the sorted set and M the number of elements"


# -- bounds ------------------------------------------------------------------------------------------


def score_range(low: bytes, high: bytes, compat: Compat) -> ScoreRange:
    """Parse a range of scores (zslParseRange)."""
    plain = compat.valkey or (compat.knows(80) and not compat.knows(88))
    ends = [float_text.parse_bound(raw[1:] if raw.startswith(b"(") else raw, plain) for raw in (low, high)]
    if ends[0] is None or ends[1] is None:
        raise CommandError("min or max is not a float")
    return ScoreRange(ends[0], ends[1], low.startswith(b"("), high.startswith(b"("))


def _member_bound(raw: bytes) -> tuple[tuple[int, bytes], bool]:
    """Parse an end of a range of members; return the end, and whether the range excludes it (zslParseLexRangeItem)."""
    # Redis compares C strings: bytes after a NUL do not count.
    if raw[:1] in (b"-", b"+") and raw[1:2] in (b"", b"\0"):
        return (LEAST if raw[:1] == b"-" else GREATEST), True
    if raw[:1] not in (b"(", b"["):
        raise CommandError("min or max not valid string range item")
    return (1, raw[1:]), raw[:1] == b"("


def member_range(low: bytes, high: bytes) -> MemberRange:
    """Parse a range of members (zslParseLexRange)."""
    (low_end, low_open), (high_end, high_open) = _member_bound(low), _member_bound(high)
    return MemberRange(low_end, high_end, low_open, high_open)


class Range:
    """A range of ranks, scores or members, given by the arguments of a command."""

    __slots__ = ("backwards", "bounds", "from_end", "limit", "offset", "start", "stop")

    def __init__(
        self, session: Session, kind: str, first: bytes, last: bytes, backwards: bool = False
    ) -> None:
        self.backwards = backwards
        compat = session.engine.settings.compat
        self.from_end = compat.valkey or (compat.knows(74) and not compat.knows(82))
        self.bounds: ScoreRange | MemberRange | None = None
        self.start = self.stop = 0
        self.offset, self.limit = 0, -1
        if kind == RANK:
            self.start, self.stop = integer(first), integer(last)
            return
        if backwards:
            first, last = last, first
        if kind == SCORE:
            self.bounds = score_range(first, last, compat)
        else:
            self.bounds = member_range(first, last)

    def window(self, value: Zset) -> tuple[int, int]:
        """Return the rank of the lowest member in the range, and the number of members."""
        if self.bounds is None:
            start, count = clamp(self.start, self.stop, len(value))
            return (len(value) - start - count if self.backwards else start), count
        if isinstance(self.bounds, ScoreRange):
            start, count = value.window_of_scores(self.bounds)
        else:
            start, count = value.window_of_members(self.bounds, self.backwards)
        rest = max(count - self.offset, 0)
        if self.offset < 0:
            # The skiplist of 7.4, 8.0 and Valkey reads a negative offset from the end (zslNthInRange).
            rest = -self.offset if self.from_end and value.listpack is None and -self.offset <= count else 0
        taken = rest if self.limit < 0 else min(rest, self.limit)
        return (start + rest - taken if self.backwards else start + count - rest), taken


# -- reading and storing -----------------------------------------------------------------------------


class _Request:
    """The arguments of a range command: its key, its range, and whether to reply with scores (zrangeGenericCommand)."""

    __slots__ = ("key", "range", "with_scores")

    def __init__(
        self, session: Session, argv: list[bytes], at: int = 1, kind: str = "", backwards: bool | None = None
    ) -> None:
        store = at == 2
        asked_kind, asked_backwards = kind, backwards
        self.with_scores = False
        offset, limit = 0, -1
        words = iter(argv[at + 3 :])
        left = len(argv) - at - 3
        for word in words:
            option = word.lower()
            left -= 1
            if option == b"withscores" and not store:
                self.with_scores = True
            elif option == b"limit" and left >= 2:
                offset, limit = integer(next(words)), integer(next(words))
                left -= 2
            elif option == b"rev" and asked_backwards is None:
                backwards = asked_backwards = True
            elif option in (b"bylex", b"byscore") and not asked_kind:
                kind = asked_kind = MEMBER if option == b"bylex" else SCORE
            else:
                raise syntax_error()
        kind = kind or RANK
        if limit != -1 and kind == RANK:
            raise CommandError(
                "syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX"
            )
        if self.with_scores and kind == MEMBER:
            raise CommandError("syntax error, WITHSCORES not supported in combination with BYLEX")
        self.key = argv[at]
        self.range = Range(session, kind, argv[at + 1], argv[at + 2], bool(backwards))
        self.range.offset, self.range.limit = offset, limit


def _read(session: Session, request: _Request) -> None:
    _reply(session, request, read_value(session, request.key, Zset))


def _reply(session: Session, request: _Request, value: Zset | None) -> None:
    if value is None:
        session.out.array(0)
        return
    start, count = request.range.window(value)
    classic = session.db.buffer.zset_classic
    write_range(session.out, value, start, count, request.range.backwards, request.with_scores, classic)


@cython.final
@cython.cclass
class Zrange(Implementation):
    """ZRANGE; without options, a range of ranks in rising order."""

    __slots__ = ()

    @cython.ccall
    def run(self, session: Session, words: ArgumentSpans) -> cython.bint:
        """Reply with the members in a range."""
        db: Database = session.db
        if words.count > 4:
            request: object = _Request(session, words.to_list())
            _reply(session, request, zset_at(db, db.locate_read(words)))  # type: ignore[arg-type]
            return True
        first: cython.longlong = self._rank(words, 2)
        last: cython.longlong = self._rank(words, 3)
        value: Zset | None = zset_at(db, db.locate_read(words))
        if value is None:
            return session.out.array(0)
        length: cython.Py_ssize_t = value.count()
        if first < 0:
            first = max(first + length, 0)
        last = last + length if last < 0 else min(last, length - 1)
        count: cython.Py_ssize_t = last - first + 1 if first <= last else 0
        return write_range(session.out, value, first, count, False, False, db.buffer.zset_classic)

    @cython.cfunc
    @cython.exceptval(-1, check=True)
    def _rank(self, words: ArgumentSpans, at: cython.Py_ssize_t) -> cython.longlong:
        """Parse a rank."""
        rank: cython.longlong = parse_digits(words.at[at], words.size[at])
        if rank == _NOT_INT:
            rank = integer(words.get(at))
        return rank


command("zrange", arity=-4, flags="readonly", since="1.2.0",
        syntax="key start stop [BYSCORE | BYLEX] [REV] [LIMIT offset count] [WITHSCORES]",
        summary="Return the members in a range of ranks, scores or members.",
        complexity=_SEARCH + " returned.")(Zrange)


@command("zrevrange", arity=-4, flags="readonly", since="1.2.0", syntax="key start stop [WITHSCORES]",
         complexity=_SEARCH + " returned.")
def zrevrange(session: Session, argv: list[bytes]) -> None:
    """Return the members in a range of ranks, the highest score first."""
    _read(session, _Request(session, argv, kind=RANK, backwards=True))


@command("zrangebyscore", arity=-4, flags="readonly", since="1.0.5",
         syntax="key min max [WITHSCORES] [LIMIT offset count]", complexity=_SEARCH + " being returned.")
def zrangebyscore(session: Session, argv: list[bytes]) -> None:
    """Return the members in a range of scores."""
    _read(session, _Request(session, argv, kind=SCORE, backwards=False))


@command("zrevrangebyscore", arity=-4, flags="readonly", since="2.2.0",
         syntax="key max min [WITHSCORES] [LIMIT offset count]", complexity=_SEARCH + " being returned.")
def zrevrangebyscore(session: Session, argv: list[bytes]) -> None:
    """Return the members in a range of scores, the highest score first."""
    _read(session, _Request(session, argv, kind=SCORE, backwards=True))


@command("zrangebylex", arity=-4, flags="readonly", since="2.8.9", syntax="key min max [LIMIT offset count]",
         complexity=_SEARCH + " being returned.")
def zrangebylex(session: Session, argv: list[bytes]) -> None:
    """Return the members in a lexicographical range of members that all have one score."""
    _read(session, _Request(session, argv, kind=MEMBER, backwards=False))


@command("zrevrangebylex", arity=-4, flags="readonly", since="2.8.9", syntax="key max min [LIMIT offset count]",
         complexity=_SEARCH + " being returned.")
def zrevrangebylex(session: Session, argv: list[bytes]) -> None:
    """Return the members in a lexicographical range of members that all have one score, the last one first."""
    _read(session, _Request(session, argv, kind=MEMBER, backwards=True))


@command("zrangestore", arity=-5, flags="write denyoom", keys=(1, 2, 1), since="6.2.0",
         syntax="dst src min max [BYSCORE | BYLEX] [REV] [LIMIT offset count]",
         complexity=_SEARCH + " stored into the destination key.")
def zrangestore(session: Session, argv: list[bytes]) -> None:
    """Store the members in a range as another sorted set."""
    request = _Request(session, argv, 2)
    settings = session.engine.settings
    value = read_value(session, request.key, Zset)
    # Insert the members in the order of the range: the score -0 keeps its sign only in some orders.
    found = [] if value is None else value.slice(*request.range.window(value), request.range.backwards)
    result = Zset.for_size(len(found) if request.range.bounds is None else 0, 0, settings)
    for member, score in found:
        result.add(member, score, settings)
    store_result(session, argv[1], result, b"zrangestore", b"z")


# -- counting ----------------------------------------------------------------------------------------


def _count(session: Session, argv: list[bytes], kind: str) -> None:
    wanted = Range(session, kind, argv[2], argv[3])
    value = read_value(session, argv[1], Zset)
    session.out.integer(0 if value is None else wanted.window(value)[1])


@command("zcount", arity=4, flags="readonly fast", since="2.0.0", syntax="key min max",
         complexity="O(log(N)) with N being the number of elements in the sorted set.")
def zcount(session: Session, argv: list[bytes]) -> None:
    """Return the number of members in a range of scores."""
    _count(session, argv, SCORE)


@command("zlexcount", arity=4, flags="readonly fast", since="2.8.9", syntax="key min max",
         complexity="O(log(N)) with N being the number of elements in the sorted set.")
def zlexcount(session: Session, argv: list[bytes]) -> None:
    """Return the number of members in a lexicographical range of members that all have one score."""
    _count(session, argv, MEMBER)


# -- removing ----------------------------------------------------------------------------------------


def _remove(session: Session, argv: list[bytes], kind: str, event: bytes) -> None:
    """Run ZREMRANGEBYRANK, ZREMRANGEBYSCORE or ZREMRANGEBYLEX (zremrangeGenericCommand)."""
    key = argv[1]
    wanted = Range(session, kind, argv[2], argv[3])
    value = value_for_write(session, key, Zset)
    count = 0
    if value is not None:
        start, count = wanted.window(value)
        if count:
            value.delete(start, count)
            session.modified(key)
            session.dirty += count - 1
            session.notify(b"z", event, key)
            delete_if_empty(session, key, value)
    session.out.integer(count)


@command("zremrangebyrank", arity=4, flags="write", since="2.0.0", syntax="key start stop",
         complexity=_SEARCH + " removed by the operation.")
def zremrangebyrank(session: Session, argv: list[bytes]) -> None:
    """Remove the members in a range of ranks."""
    _remove(session, argv, RANK, b"zremrangebyrank")


@command("zremrangebyscore", arity=4, flags="write", since="1.2.0", syntax="key min max",
         complexity=_SEARCH + " removed by the operation.")
def zremrangebyscore(session: Session, argv: list[bytes]) -> None:
    """Remove the members in a range of scores."""
    _remove(session, argv, SCORE, b"zremrangebyscore")


@command("zremrangebylex", arity=4, flags="write", since="2.8.9", syntax="key min max",
         complexity=_SEARCH + " removed by the operation.")
def zremrangebylex(session: Session, argv: list[bytes]) -> None:
    """Remove the members in a lexicographical range of members that all have one score."""
    _remove(session, argv, MEMBER, b"zremrangebylex")

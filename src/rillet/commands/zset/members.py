"""The members of one sorted set: ZADD, ZINCRBY, ZREM, ZSCORE, ZCARD, ZRANK (Redis: t_zset.c).

    range.py             ranges by rank, score and member: read, store, count, remove
    operations.py        ZUNION, ZINTER, ZDIFF
    pop.py               ZPOPMIN, ZMPOP and the blocking variants
    random_members.py    ZRANDMEMBER

A sorted set that loses its last member is deleted. A score in a reply is a double in RESP3 and text in RESP2. Members
with scores are nested pairs in RESP3 and a flat array in RESP2.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import isnan

from rillet.commands import table_replies
from rillet.commands.arguments import NOT_A_FLOAT, arity_error, syntax_error
from rillet.commands.keys.scan import scan_value
from rillet.commands.lookup import read_value, remove_members, value_for_write
from rillet.commands.zset import command
from rillet.commands.zset.fast_path import ZaddFastPath, ZincrbyFastPath, ZremFastPath, ZscoreFastPath
from rillet.commands.zset.fast_path import zcard as zcard_path
from rillet.errors import CommandError
from rillet.runtime.session import Session
from rillet.structs import float_text
from rillet.structs.integer_text import decimal
from rillet.types.zset import Pair, Zset, is_classic

_ZADD, _ZINCRBY, _ZREM, _ZSCORE = ZaddFastPath(), ZincrbyFastPath(), ZremFastPath(), ZscoreFastPath()
_ZCARD = zcard_path()
_NAN = "resulting score is not a number (NaN)"
_OPTIONS = frozenset((b"nx", b"xx", b"gt", b"lt", b"ch", b"incr"))


def score_argument(session: Session, raw: bytes, message: str = NOT_A_FLOAT) -> float:
    """Parse a double (object.c: getDoubleFromObjectOrReply)."""
    compat = session.engine.settings.compat
    value = float_text.parse(raw, not compat.valkey, compat.knows(88))
    if value is None:
        raise CommandError(message)
    return value


def write_score(session: Session, score: float) -> None:
    """Write a score (networking.c: addReplyDouble)."""
    table_replies.write_score(session.out, score, is_classic(session.engine.settings))


def write_pairs(session: Session, pairs: Iterable[Pair], count: int, with_scores: bool) -> None:
    """Write an array of `count` members, with their scores if `with_scores`."""
    out = session.out
    nested = with_scores and out.resp != 2
    out.array(2 * count if with_scores and not nested else count)
    for member, score in pairs:
        if nested:
            out.array(2)
        out.bulk(member)
        if with_scores:
            write_score(session, score)


# -- adding ------------------------------------------------------------------------------------------


class _Add:
    """A call of ZADD or ZINCRBY: its options, and the counts for its reply (zaddGenericCommand)."""

    __slots__ = ("added", "flags", "members", "scores", "updated")

    def __init__(self, session: Session, argv: list[bytes], incr: bool) -> None:
        self.flags = {b"incr"} if incr else set()
        self.added = self.updated = 0
        at = 2
        while at < len(argv) and argv[at].lower() in _OPTIONS:
            self.flags.add(argv[at].lower())
            at += 1
        pairs = argv[at:]
        if not pairs or len(pairs) % 2:
            raise syntax_error()
        if {b"nx", b"xx"} <= self.flags:
            raise CommandError("XX and NX options at the same time are not compatible")
        if len(self.flags & {b"nx", b"gt", b"lt"}) > 1:
            raise CommandError("GT, LT, and/or NX options at the same time are not compatible")
        if b"incr" in self.flags and len(pairs) > 2:
            raise CommandError("INCR option supports a single increment-element pair")
        compat = session.engine.settings.compat
        scores = float_text.parse_all(pairs[::2], not compat.valkey, compat.knows(88))
        if scores is None:
            raise CommandError(NOT_A_FLOAT)
        self.scores = scores
        self.members = pairs[1::2]

    def apply(self, session: Session, value: Zset) -> float | None:
        """Add the members; return the new score of the last member, None if an option such as NX skipped it."""
        result = None
        at, count, plain = 0, len(self.members), self.flags <= {b"ch"}
        while at < count and (value.skiplist is None or not plain):
            result = self._apply_one(session, value, self.members[at], self.scores[at])
            at += 1
        if at < count and value.skiplist is not None:
            assert value.table is not None
            added, updated = value.skiplist.put_all(value.table, self.members, self.scores, at)
            self.added += added
            self.updated += updated
        return result

    def _apply_one(self, session: Session, value: Zset, member: bytes, score: float) -> float | None:
        """Add or change one member (zsetAdd)."""
        old = value.score(member)
        if old is None:
            if b"xx" in self.flags:
                return None
            value.add(member, score, session.engine.settings)
            self.added += 1
            return score
        if b"nx" in self.flags:
            return None
        if b"incr" in self.flags:
            score += old
            if isnan(score):
                raise CommandError(_NAN)
        if (b"lt" in self.flags and score >= old) or (b"gt" in self.flags and score <= old):
            return None
        if score != old:
            value.update(member, score, session.engine.settings)
            self.updated += 1
        return score

    def target(self, session: Session, key: bytes) -> Zset | None:
        """Return the sorted set at the key, created if it is missing; None if XX forbids the creation."""
        settings = session.engine.settings
        value = value_for_write(session, key, Zset)
        classic = is_classic(settings)
        # The encoding of a new sorted set depends on the longest member in Valkey, on the first member in Redis.
        widest = max(map(len, self.members)) if settings.compat.valkey else len(self.members[0])
        if value is None:
            if b"xx" not in self.flags:
                value = Zset.for_size(1 if classic else len(self.members), widest, settings)
                session.db.set(key, value)
        elif not classic:
            value.prepare(len(self.members), settings)
            if settings.compat.valkey and widest > settings.zset_max_listpack_value and value.listpack is not None:
                value.to_skiplist()
        return value


def _add(session: Session, argv: list[bytes], incr: bool) -> None:
    key = argv[1]
    request = _Add(session, argv, incr)
    value = request.target(session, key)
    result = None if value is None else request.apply(session, value)
    changed = request.added + request.updated
    counts = b"incr" not in request.flags
    if counts:
        session.out.integer(changed if b"ch" in request.flags else request.added)
    elif result is None:
        session.out.null()
    else:
        write_score(session, result)
    if changed:
        session.modified(key)
        session.dirty += changed - 1
        session.notify(b"z", b"zadd" if counts else b"zincr", key)


@command("zadd", arity=-4, flags="write denyoom fast", since="1.2.0",
         syntax="key [NX | XX] [GT | LT] [CH] [INCR] score member [score member ...]",
         complexity="O(log(N)) for each item added, where N is the number of elements in the sorted set.",
         shortcut=ZaddFastPath)
def zadd(session: Session, argv: list[bytes]) -> None:
    """Add members to a sorted set, creating it if needed, or change their scores."""
    if _ZADD.execute(session, argv):
        if session.dirty:
            session.notify(b"z", b"zadd", argv[1])
        return
    _add(session, argv, False)


@command("zincrby", arity=4, flags="write denyoom fast", since="1.2.0", syntax="key increment member",
         complexity="O(log(N)) where N is the number of elements in the sorted set.", shortcut=ZincrbyFastPath)
def zincrby(session: Session, argv: list[bytes]) -> None:
    """Add to the score of a member; a new member starts at 0."""
    if _ZINCRBY.execute(session, argv):
        if session.dirty:
            session.notify(b"z", b"zincr", argv[1])
        return
    _add(session, argv, True)


@command("zrem", arity=-3, flags="write fast", since="1.2.0", syntax="key member [member ...]",
         complexity="O(M*log(N)) with N being the number of elements in the sorted set and M the number of elements to "
         "be removed.", shortcut=ZremFastPath)
def zrem(session: Session, argv: list[bytes]) -> None:
    """Remove members of a sorted set and return the number of removed ones."""
    if not session.engine.notify_events and _ZREM.execute(session, argv):
        return
    remove_members(session, argv, Zset, b"z", b"zrem")


# -- looking up --------------------------------------------------------------------------------------


@command("zcard", arity=2, flags="readonly fast", since="1.2.0", syntax="key", complexity="O(1)",
         shortcut=zcard_path)
def zcard(session: Session, argv: list[bytes]) -> None:
    """Return the number of members of a sorted set."""
    if _ZCARD.execute(session, argv):
        return
    value = read_value(session, argv[1], Zset)
    session.out.integer(0 if value is None else len(value))


def _write_score_or_null(session: Session, value: Zset | None, member: bytes) -> None:
    score = None if value is None else value.score(member)
    if score is None:
        session.out.null()
    else:
        write_score(session, score)


@command("zscore", arity=3, flags="readonly fast", since="1.2.0", syntax="key member", complexity="O(1)",
         shortcut=ZscoreFastPath)
def zscore(session: Session, argv: list[bytes]) -> None:
    """Return the score of a member."""
    if _ZSCORE.execute(session, argv):
        return
    _write_score_or_null(session, read_value(session, argv[1], Zset), argv[2])


@command("zmscore", arity=-3, flags="readonly fast", since="6.2.0", syntax="key member [member ...]",
         complexity="O(N) where N is the number of members being requested.")
def zmscore(session: Session, argv: list[bytes]) -> None:
    """Return the scores of several members."""
    value = read_value(session, argv[1], Zset)
    session.out.array(len(argv) - 2)
    for member in argv[2:]:
        _write_score_or_null(session, value, member)


def _rank(session: Session, argv: list[bytes], backwards: bool) -> None:
    """Run ZRANK or ZREVRANK (zrankGenericCommand); WITHSCORE exists since 7.2."""
    most = 4 if session.engine.settings.compat.knows(72) else 3
    if len(argv) > most:
        raise arity_error(session.command.fullname)
    with_score = len(argv) == 4
    if with_score and argv[3].lower() != b"withscore":
        raise syntax_error()
    value = read_value(session, argv[1], Zset)
    rank = None if value is None else value.rank(argv[2])
    if value is None or rank is None:
        if with_score:
            session.out.null_array()
        else:
            session.out.null()
        return
    if with_score:
        session.out.array(2)
    session.out.integer(len(value) - 1 - rank if backwards else rank)
    if with_score:
        _write_score_or_null(session, value, argv[2])


@command("zrank", arity=-3, flags="readonly fast", since="2.0.0", syntax="key member [WITHSCORE]",
         complexity="O(log(N))")
def zrank(session: Session, argv: list[bytes]) -> None:
    """Return the rank of a member, by ascending score."""
    _rank(session, argv, False)


@command("zrevrank", arity=-3, flags="readonly fast", since="2.0.0", syntax="key member [WITHSCORE]",
         complexity="O(log(N))")
def zrevrank(session: Session, argv: list[bytes]) -> None:
    """Return the rank of a member, by descending score."""
    _rank(session, argv, True)


# -- iterating ---------------------------------------------------------------------------------------


@command("zscan", arity=-3, flags="readonly", since="2.8.0", syntax="key cursor [MATCH pattern] [COUNT count]",
         complexity="O(COUNT) for a call, O(N) for a whole walk over N members.")
def zscan(session: Session, argv: list[bytes]) -> None:
    """Return some members of a sorted set with their scores, and the cursor for the next call."""
    value, pairs, bare = scan_value(session, argv, Zset, "ZSCAN")
    session.out.array(len(pairs) if bare else 2 * len(pairs))
    for member, score in pairs:
        session.out.bulk(member)
        if not bare:
            session.out.bulk(_score_text(session, value, score))


def _score_text(session: Session, value: Zset, score: float) -> bytes:
    """Return a score as ZSCAN writes it: as stored in a listpack, with 17 digits in a skiplist (db.c: scanCallback)."""
    if value.listpack is None:
        return float_text.digits_17(score)
    text = float_text.listpack_score(score, is_classic(session.engine.settings))
    return text if isinstance(text, bytes) else decimal(text)

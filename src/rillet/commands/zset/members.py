"""The members of one sorted set: ZADD, ZINCRBY, ZREM, ZSCORE, ZCARD, ZRANK (Redis: t_zset.c).

    range.py             ranges by rank, score and member: read, store, count, remove
    operations.py        ZUNION, ZINTER, ZDIFF
    pop.py               ZPOPMIN, ZMPOP and the blocking variants
    scan.py, random_members.py

A sorted set that loses its last member is deleted. A score in a reply is a double in RESP3 and text in RESP2. Members
with scores are nested pairs in RESP3 and a flat array in RESP2.
"""

from __future__ import annotations

from math import isnan

from rillet.commands.arguments import NOT_A_FLOAT, syntax_error
from rillet.errors import CommandError, WrongType
from rillet.runtime.registry import command
from rillet.runtime.session import Session
from rillet.structs import float_text
from rillet.types.zset import Pair, Zset, is_classic

_NAN = "resulting score is not a number (NaN)"
_OPTIONS = frozenset((b"nx", b"xx", b"gt", b"lt", b"ch", b"incr"))


def read_zset(session: Session, key: bytes) -> Zset | None:
    """Return the sorted set at a key, None if the key does not exist; WrongType for another type."""
    value = session.db.lookup_read(key)
    if value is not None and not isinstance(value, Zset):
        raise WrongType()
    return value


def zset_for_write(session: Session, key: bytes) -> Zset | None:
    """Return the sorted set at a key for a write, None if the key does not exist; WrongType for another type."""
    value = session.db.lookup(key)
    if value is not None and not isinstance(value, Zset):
        raise WrongType()
    return value


def score_argument(session: Session, raw: bytes, message: str = NOT_A_FLOAT) -> float:
    """Parse a double (object.c: getDoubleFromObjectOrReply)."""
    compat = session.engine.settings.compat
    value = float_text.parse(raw, not compat.valkey, compat.knows(88))
    if value is None:
        raise CommandError(message)
    return value


def write_score(session: Session, score: float) -> None:
    """Write a score (networking.c: addReplyDouble)."""
    out = session.out
    text = float_text.reply_text(score, is_classic(session.engine.settings))
    if out.resp == 2:
        out.bulk(text)
    else:
        out.raw(b",%b\r\n" % text)


def write_pairs(session: Session, pairs: list[Pair], with_scores: bool) -> None:
    """Write an array of members, with their scores if `with_scores`."""
    out = session.out
    nested = with_scores and out.resp != 2
    out.array(2 * len(pairs) if with_scores and not nested else len(pairs))
    for member, score in pairs:
        if nested:
            out.array(2)
        out.bulk(member)
        if with_scores:
            write_score(session, score)


def end_if_empty(session: Session, key: bytes, value: Zset) -> None:
    """Delete the key of an empty sorted set."""
    if len(value) == 0:
        session.db.delete(key)
        session.notify(b"g", b"del", key)


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
        self.scores = [score_argument(session, raw) for raw in pairs[::2]]
        self.members = pairs[1::2]

    def apply(self, session: Session, value: Zset) -> float | None:
        """Add the members; return the new score of the last one, None if the options skipped it."""
        result = None
        for member, score in zip(self.members, self.scores, strict=True):
            result = self._apply_one(session, value, member, score)
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
        """Return the sorted set to add to, creating it if needed; None if XX forbids that."""
        settings = session.engine.settings
        value = zset_for_write(session, key)
        classic = is_classic(settings)
        # Valkey considers the longest member for the encoding, Redis the first one.
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


@command("zadd", arity=-4, flags="write denyoom fast", keys=(1, 1, 1), group="sorted-set", since="1.2.0",
         complexity="O(log(N)) for each item added, where N is the number of elements in the sorted set.",
         syntax="key [NX | XX] [GT | LT] [CH] [INCR] score member [score member ...]")
def zadd(session: Session, argv: list[bytes]) -> None:
    """Add members to a sorted set, creating it if needed, or change their scores."""
    _add(session, argv, False)


@command("zincrby", arity=4, flags="write denyoom fast", keys=(1, 1, 1), group="sorted-set", since="1.2.0",
         complexity="O(log(N)) where N is the number of elements in the sorted set.", syntax="key increment member")
def zincrby(session: Session, argv: list[bytes]) -> None:
    """Add to the score of a member; a new member starts at 0."""
    _add(session, argv, True)


@command("zrem", arity=-3, flags="write fast", keys=(1, 1, 1), group="sorted-set", since="1.2.0",
         complexity="O(M*log(N)) with N being the number of elements in the sorted set and M the number of elements to "
         "be removed.", syntax="key member [member ...]")
def zrem(session: Session, argv: list[bytes]) -> None:
    """Remove members of a sorted set and return the number of removed ones."""
    key = argv[1]
    value = zset_for_write(session, key)
    removed = 0
    if value is not None:
        removed = sum(1 for member in argv[2:] if value.remove(member))
        if removed:
            session.notify(b"z", b"zrem", key)
            end_if_empty(session, key, value)
            session.modified(key)
            session.dirty += removed - 1
    session.out.integer(removed)


# -- looking up --------------------------------------------------------------------------------------


@command("zcard", arity=2, flags="readonly fast", keys=(1, 1, 1), group="sorted-set", since="1.2.0",
         complexity="O(1)", syntax="key")
def zcard(session: Session, argv: list[bytes]) -> None:
    """Return the number of members of a sorted set."""
    value = read_zset(session, argv[1])
    session.out.integer(0 if value is None else len(value))


def _write_score_or_null(session: Session, value: Zset | None, member: bytes) -> None:
    score = None if value is None else value.score(member)
    if score is None:
        session.out.null()
    else:
        write_score(session, score)


@command("zscore", arity=3, flags="readonly fast", keys=(1, 1, 1), group="sorted-set", since="1.2.0",
         complexity="O(1)", syntax="key member")
def zscore(session: Session, argv: list[bytes]) -> None:
    """Return the score of a member."""
    _write_score_or_null(session, read_zset(session, argv[1]), argv[2])


@command("zmscore", arity=-3, flags="readonly fast", keys=(1, 1, 1), group="sorted-set", since="6.2.0",
         complexity="O(N) where N is the number of members being requested.", syntax="key member [member ...]")
def zmscore(session: Session, argv: list[bytes]) -> None:
    """Return the scores of several members."""
    value = read_zset(session, argv[1])
    session.out.array(len(argv) - 2)
    for member in argv[2:]:
        _write_score_or_null(session, value, member)


def _rank(session: Session, argv: list[bytes], backwards: bool) -> None:
    """Run ZRANK or ZREVRANK (zrankGenericCommand); WITHSCORE exists since 7.2."""
    most = 4 if session.engine.settings.compat.knows(72) else 3
    if len(argv) > most:
        raise CommandError(f"wrong number of arguments for '{session.command.fullname}' command")
    with_score = len(argv) == 4
    if with_score and argv[3].lower() != b"withscore":
        raise syntax_error()
    value = read_zset(session, argv[1])
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


@command("zrank", arity=-3, flags="readonly fast", keys=(1, 1, 1), group="sorted-set", since="2.0.0",
         complexity="O(log(N))", syntax="key member [WITHSCORE]")
def zrank(session: Session, argv: list[bytes]) -> None:
    """Return the rank of a member, by ascending score."""
    _rank(session, argv, False)


@command("zrevrank", arity=-3, flags="readonly fast", keys=(1, 1, 1), group="sorted-set", since="2.0.0",
         complexity="O(log(N))", syntax="key member [WITHSCORE]")
def zrevrank(session: Session, argv: list[bytes]) -> None:
    """Return the rank of a member, by descending score."""
    _rank(session, argv, True)

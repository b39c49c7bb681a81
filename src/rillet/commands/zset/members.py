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

from rillet._cython import cython
from rillet.commands.arguments import NOT_A_FLOAT, arity_error, syntax_error
from rillet.commands.keys.scan import scan_value
from rillet.commands.lookup import read_value
from rillet.commands.table_replies import write_score
from rillet.commands.zset import command
from rillet.commands.zset.values import keep, new_zset, zset_at
from rillet.errors import CommandError
from rillet.keyspace.database import Database
from rillet.keyspace.rest_buffer import RestBuffer
from rillet.runtime.implementation import Implementation
from rillet.runtime.session import Session
from rillet.structs import float_text
from rillet.structs.argument_spans import ArgumentSpans
from rillet.structs.float_text import parse_plain
from rillet.structs.integer_text import decimal
from rillet.types.zset import ADDED, GT, LT, NX, SKIPPED, UPDATED, XX, Pair, Zset, is_classic

_CH = cython.declare(cython.int, 16)
_INCR = cython.declare(cython.int, 32)


def score_argument(session: Session, raw: bytes, message: str = NOT_A_FLOAT) -> float:
    """Parse a double (object.c: getDoubleFromObjectOrReply)."""
    compat = session.engine.settings.compat
    value = float_text.parse(raw, not compat.valkey, compat.knows(88))
    if value is None:
        raise CommandError(message)
    return value


def write_pairs(session: Session, pairs: Iterable[Pair], count: int, with_scores: bool) -> None:
    """Write an array of `count` members, with their scores if `with_scores`."""
    out, classic = session.out, session.db.buffer.zset_classic
    nested = with_scores and out.resp != 2
    out.array(2 * count if with_scores and not nested else count)
    for member, score in pairs:
        if nested:
            out.array(2)
        out.bulk(member)
        if with_scores:
            write_score(out, score, classic)


# -- adding ------------------------------------------------------------------------------------------


@cython.cfunc
@cython.exceptval(-1, check=True)
def score_of(
    session: Session, words: ArgumentSpans, at: cython.Py_ssize_t, message: str = NOT_A_FLOAT
) -> cython.double:
    """Parse the score in an argument, as `score_argument` does."""
    value: cython.double = parse_plain(words.at[at], words.size[at])
    if value != value:  # unusual, or no number
        value = score_argument(session, words.get(at), message)
    return value


@cython.cfunc
def _option(words: ArgumentSpans, at: cython.Py_ssize_t) -> cython.int:
    """Return the flag of an option of ZADD, 0 for another argument."""
    if words.is_digit(at):
        return 0
    if words.is_option(at, b"nx"):
        return NX
    if words.is_option(at, b"xx"):
        return XX
    if words.is_option(at, b"gt"):
        return GT
    if words.is_option(at, b"lt"):
        return LT
    if words.is_option(at, b"ch"):
        return _CH
    return _INCR if words.is_option(at, b"incr") else 0


@cython.cfunc
def add_members(session: Session, words: ArgumentSpans, options: cython.int) -> cython.bint:
    """Run ZADD, or ZINCRBY: then `options` contains INCR (zaddGenericCommand)."""
    at: cython.Py_ssize_t = 2
    option: cython.int = _option(words, at)
    while option:
        options |= option
        at += 1
        option = _option(words, at)
    if at == words.count or (words.count - at) & 1:
        raise syntax_error()
    if options & NX and options & XX:
        raise CommandError("XX and NX options at the same time are not compatible")
    if (options & NX and options & (GT | LT)) or (options & GT and options & LT):
        raise CommandError("GT, LT, and/or NX options at the same time are not compatible")
    if options & _INCR and words.count - at > 2:
        raise CommandError("INCR option supports a single increment-element pair")
    return _add(session, words, at, options)


@cython.cfunc
def _add(session: Session, words: ArgumentSpans, at: cython.Py_ssize_t, options: cython.int) -> cython.bint:
    """Add the members of the arguments `score member ...` from `at` on, or change their scores."""
    db: Database = session.db
    buffer: RestBuffer = db.buffer
    i: cython.Py_ssize_t
    widest: cython.Py_ssize_t = 0
    score: cython.double = 0.0
    for i in range(at, words.count, 2):
        score_of(session, words, i)  # nothing changes if one of them is no number
        widest = max(widest, words.size[i + 1])
    n: cython.Py_ssize_t = db.locate(words)
    value: Zset | None = zset_at(db, n)
    if value is None:
        if options & XX:
            return session.out.null() if options & _INCR else session.out.integer(0)
        value = new_zset(db)
    unpacked: cython.bint = value is buffer.zset
    # Up to 7.0, only the creation looks at the limits before members are added. The encoding depends on the longest
    # member in Valkey, on the first member of a new sorted set in Redis.
    expected: cython.Py_ssize_t = (words.count - at) >> 1
    if buffer.zset_classic:
        expected = 1 if n < 0 else 0
    if not buffer.valkey:
        widest = words.size[at + 1] if n < 0 else 0
    if value.listpack is not None and (expected > buffer.zset_entries or widest > buffer.zset_value):
        value.to_skiplist()
    result: cython.int = 0
    added: cython.Py_ssize_t = 0
    changed: cython.Py_ssize_t = 0
    for i in range(at, words.count, 2):
        score = score_of(session, words, i)
        if options & _INCR and not options & NX:
            old: cython.double = value.find_score(words.at[i + 1], words.size[i + 1])
            if old == old:
                score += old
                if score != score:
                    if value.listpack is None:
                        keep(session, words, n, value)
                    raise CommandError("resulting score is not a number (NaN)")
        result = value.put(
            words.at[i + 1], words.size[i + 1], score, options, buffer.zset_entries, buffer.zset_value,
            buffer.zset_classic,
        )  # fmt: skip
        if result & (ADDED | UPDATED):
            changed += 1
            added += result & ADDED
            if not unpacked:  # it has changed, whatever happens to the next members
                session.changed(words, 1)
    if unpacked and (changed or value.listpack is None):
        keep(session, words, n, value)
        session.changed(words, changed)
    if not options & _INCR:
        session.out.integer(changed if options & _CH else added)
    elif result & SKIPPED:
        session.out.null()
    else:
        write_score(session.out, score, buffer.zset_classic)
    if changed and db.notifies:
        return session.notify(b"z", b"zincr" if options & _INCR else b"zadd", words.get(1))
    return True


@cython.final
@cython.cclass
class Zadd(Implementation):
    """ZADD."""

    __slots__ = ()

    @cython.ccall
    def run(self, session: Session, words: ArgumentSpans) -> cython.bint:
        """Add members to a sorted set, or change their scores."""
        return add_members(session, words, 0)


command("zadd", arity=-4, flags="write denyoom fast", since="1.2.0",
        syntax="key [NX | XX] [GT | LT] [CH] [INCR] score member [score member ...]",
        summary="Add members to a sorted set, creating it if needed, or change their scores.",
        complexity="O(log(N)) for each item added, where N is the number of elements in the sorted set.")(Zadd)


@cython.final
@cython.cclass
class Zincrby(Implementation):
    """ZINCRBY."""

    __slots__ = ()

    @cython.ccall
    def run(self, session: Session, words: ArgumentSpans) -> cython.bint:
        """Add to the score of a member."""
        return add_members(session, words, _INCR)


command("zincrby", arity=4, flags="write denyoom fast", since="1.2.0", syntax="key increment member",
        summary="Add to the score of a member; a new member starts at 0.",
        complexity="O(log(N)) where N is the number of elements in the sorted set.")(Zincrby)


@cython.final
@cython.cclass
class Zrem(Implementation):
    """ZREM."""

    __slots__ = ()

    @cython.ccall
    def run(self, session: Session, words: ArgumentSpans) -> cython.bint:
        """Remove members (zremCommand)."""
        db: Database = session.db
        i: cython.Py_ssize_t
        removed: cython.Py_ssize_t = 0
        n: cython.Py_ssize_t = db.locate(words)
        value: Zset | None = zset_at(db, n)
        if value is not None:
            for i in range(2, words.count):
                removed += value.remove_span(words.at[i], words.size[i])
            if removed:
                if db.notifies:
                    session.notify(b"z", b"zrem", words.get(1))
                keep(session, words, n, value)
                session.changed(words, removed)
        return session.out.integer(removed)


command("zrem", arity=-3, flags="write fast", since="1.2.0", syntax="key member [member ...]",
        summary="Remove members of a sorted set and return the number of removed ones.",
        complexity="O(M*log(N)) with N being the number of elements in the sorted set and M the number of elements to "
        "be removed.")(Zrem)


# -- looking up --------------------------------------------------------------------------------------


@cython.final
@cython.cclass
class Zcard(Implementation):
    """ZCARD."""

    __slots__ = ()

    @cython.ccall
    def run(self, session: Session, words: ArgumentSpans) -> cython.bint:
        """Reply with the number of members."""
        value: Zset | None = zset_at(session.db, session.db.locate_read(words))
        return session.out.integer(0 if value is None else value.count())


command("zcard", arity=2, flags="readonly fast", since="1.2.0", syntax="key", complexity="O(1)",
        summary="Return the number of members of a sorted set.")(Zcard)


@cython.final
@cython.cclass
class Zscore(Implementation):
    """ZSCORE."""

    __slots__ = ()

    @cython.ccall
    def run(self, session: Session, words: ArgumentSpans) -> cython.bint:
        """Reply with the score of a member."""
        db: Database = session.db
        value: Zset | None = zset_at(db, db.locate_read(words))
        if value is None:
            return session.out.null()
        score: cython.double = value.find_score(words.at[2], words.size[2])
        if score != score:
            return session.out.null()
        return write_score(session.out, score, db.buffer.zset_classic)


command("zscore", arity=3, flags="readonly fast", since="1.2.0", syntax="key member", complexity="O(1)",
        summary="Return the score of a member.")(Zscore)


def _write_score_or_null(session: Session, value: Zset | None, member: bytes) -> None:
    score = None if value is None else value.score(member)
    if score is None:
        session.out.null()
    else:
        write_score(session.out, score, session.db.buffer.zset_classic)


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

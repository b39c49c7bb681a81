"""Walking over a sorted set, and picking from it by chance (Redis: t_zset.c, db.c).

ZSCAN shows scores in other words than the rest: a listpack's as they stand there, a skiplist's always with 17
digits, in any version (db.c: scanCallback), and none where Valkey is asked for NOSCORES.
"""

from __future__ import annotations

from random import choice

from rillet.commands.arguments import LLONG_MAX, LLONG_MIN, integer, syntax_error
from rillet.commands.keys.generic import parse_cursor, scan_options
from rillet.commands.zset.zset import read_zset, write_pairs, write_score
from rillet.errors import CommandError
from rillet.runtime.registry import command
from rillet.runtime.session import Session
from rillet.structs import float_text
from rillet.structs.glob import compiled
from rillet.types.zset import Zset, is_classic

_COUNT_RANGE = f"value is out of range, value must between {-LLONG_MAX} and {LLONG_MAX}"


@command("zscan", arity=-3, flags="readonly", keys=(1, 1, 1), group="sorted-set", since="2.8.0",
         complexity="O(COUNT) for a call, O(N) for a whole walk over N members.",
         syntax="key cursor [MATCH pattern] [COUNT count]")
def zscan(session: Session, argv: list[bytes]) -> None:
    """Walk over the members of a sorted set and their scores, some at a time."""
    cursor = parse_cursor(argv[2])
    value = read_zset(session, argv[1])
    following, texts = 0, list[bytes]()
    if value is not None:
        count, pattern, bare = scan_options(session, argv, 3, "ZSCAN")
        following, pairs = value.scan(cursor, count)
        if pattern != b"*":
            glob = compiled(pattern)
            pairs = [pair for pair in pairs if glob.matches(pair[0])]
        for member, score in pairs:
            texts.append(member)
            if not bare:
                texts.append(_score_text(session, value, score))
    session.out.array(2)
    session.out.bulk(b"%d" % following)
    session.out.array(len(texts))
    for text in texts:
        session.out.bulk(text)


def _score_text(session: Session, value: Zset, score: float) -> bytes:
    if value.listpack is None:
        return float_text.digits_17(score)
    text = float_text.listpack_score(score, is_classic(session.engine.settings))
    return text if isinstance(text, bytes) else b"%d" % text


@command("zrandmember", arity=-2, flags="readonly", keys=(1, 1, 1), group="sorted-set", since="6.2.0",
         complexity="O(N) where N is the absolute value of the count; in a listpack, the number of members.",
         syntax="key [count [WITHSCORES]]")
def zrandmember(session: Session, argv: list[bytes]) -> None:
    """Return a member picked at random, or several; with a negative count the same ones may come again."""
    if len(argv) == 2:
        value = read_zset(session, argv[1])
        if value is None:
            session.out.null()
        else:
            session.out.bulk(value.random()[0])
        return
    count = integer(argv[2])
    if count == LLONG_MIN:
        raise CommandError(_COUNT_RANGE)
    if len(argv) > 4 or (len(argv) == 4 and argv[3].lower() != b"withscores"):
        raise syntax_error()
    with_scores = len(argv) == 4
    if with_scores and abs(count) > LLONG_MAX // 2:
        raise CommandError("value is out of range")
    value = read_zset(session, argv[1])
    if value is None or not count:
        session.out.array(0)
    elif count < 0:
        _write_any(session, value, -count, with_scores)
    else:
        pairs = value.slice(0, len(value), True) if count >= len(value) else value.sample(count)
        write_pairs(session, pairs, with_scores)


def _write_any(session: Session, value: Zset, count: int, with_scores: bool) -> None:
    """Write so many members picked at random, each time from all."""
    nested = with_scores and session.out.resp != 2
    session.out.array(2 * count if with_scores and not nested else count)
    pairs = list(value) if value.listpack is not None else []
    for _ in range(count):
        member, score = choice(pairs) if pairs else value.random()
        if nested:
            session.out.array(2)
        session.out.bulk(member)
        if with_scores:
            write_score(session, score)

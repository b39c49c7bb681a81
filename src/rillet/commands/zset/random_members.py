"""ZRANDMEMBER (Redis: t_zset.c)."""

from __future__ import annotations

from random import choice

from rillet.commands.arguments import LLONG_MAX, LLONG_MIN, integer, syntax_error
from rillet.commands.zset.members import read_zset, write_pairs, write_score
from rillet.errors import CommandError
from rillet.runtime.registry import command
from rillet.runtime.session import Session
from rillet.types.zset import Zset

_COUNT_RANGE = f"value is out of range, value must between {-LLONG_MAX} and {LLONG_MAX}"


@command("zrandmember", arity=-2, flags="readonly", keys=(1, 1, 1), group="sorted-set", since="6.2.0",
         complexity="O(N) where N is the absolute value of the count; in a listpack, the number of members.",
         syntax="key [count [WITHSCORES]]")
def zrandmember(session: Session, argv: list[bytes]) -> None:
    """Return one or several random members; a negative count allows repetitions."""
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
    """Write `count` random members, with repetitions."""
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

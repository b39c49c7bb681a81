"""ZRANDMEMBER (Redis: t_zset.c)."""

from __future__ import annotations

from random import choice

from rillet.commands.arguments import random_count
from rillet.commands.lookup import read_value
from rillet.commands.replies import bulk_or_null
from rillet.commands.zset import command
from rillet.commands.zset.members import write_pairs
from rillet.runtime.session import Session
from rillet.types.zset import Zset


@command("zrandmember", arity=-2, flags="readonly", since="6.2.0", syntax="key [count [WITHSCORES]]",
         complexity="O(N) where N is the absolute value of the count; in a listpack, the number of members.")
def zrandmember(session: Session, argv: list[bytes]) -> None:
    """Return one or several random members; a negative count allows repetitions."""
    if len(argv) == 2:
        value = read_value(session, argv[1], Zset)
        bulk_or_null(session.out, None if value is None else value.random()[0])
        return
    count, with_scores = random_count(argv, b"withscores")
    value = read_value(session, argv[1], Zset)
    if value is None or not count:
        session.out.array(0)
    elif count < 0:
        # A listpack is read once; a skiplist finds each member by its rank.
        stored = list(value) if value.listpack is not None else []
        pairs = (choice(stored) if stored else value.random() for _ in range(-count))
        write_pairs(session, pairs, -count, with_scores)
    else:
        sample = value.slice(0, len(value), True) if count >= len(value) else value.sample(count)
        write_pairs(session, sample, len(sample), with_scores)

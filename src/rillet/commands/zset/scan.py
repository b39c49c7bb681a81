"""ZSCAN (Redis: t_zset.c, db.c).

ZSCAN formats scores in its own way: those of a listpack as they are stored, those of a skiplist always with 17 digits,
in any version (db.c: scanCallback), and none after Valkey's NOSCORES.
"""

from __future__ import annotations

from rillet.commands.keys.scan import scan_value
from rillet.commands.zset.members import read_zset
from rillet.runtime.registry import command
from rillet.runtime.session import Session
from rillet.structs import float_text
from rillet.types.zset import Zset, is_classic


@command("zscan", arity=-3, flags="readonly", keys=(1, 1, 1), group="sorted-set", since="2.8.0",
         complexity="O(COUNT) for a call, O(N) for a whole walk over N members.",
         syntax="key cursor [MATCH pattern] [COUNT count]")
def zscan(session: Session, argv: list[bytes]) -> None:
    """Iterate over the members of a sorted set and their scores, some per call."""
    value, pairs, bare = scan_value(session, argv, read_zset, "ZSCAN")
    session.out.array(len(pairs) if bare else 2 * len(pairs))
    for member, score in pairs:
        session.out.bulk(member)
        if not bare:
            session.out.bulk(_score_text(session, value, score))


def _score_text(session: Session, value: Zset, score: float) -> bytes:
    if value.listpack is None:
        return float_text.digits_17(score)
    text = float_text.listpack_score(score, is_classic(session.engine.settings))
    return text if isinstance(text, bytes) else b"%d" % text

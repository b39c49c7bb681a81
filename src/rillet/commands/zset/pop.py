"""ZPOPMIN, ZPOPMAX, ZMPOP and the blocking variants (Redis: t_zset.c, blocked.c; commands/first_key_pop.py).

    reply                               RESP2                              RESP3
    ZPOPMIN k                           member, score                      member, score
    ZPOPMIN k count                     member, score, member, score       [member, score], [member, score]
    BZPOPMIN k 0                        key, member, score                 key, member, score
    ZMPOP 1 k MIN                       key, [[member, score], ...]        key, [[member, score], ...]
"""

from __future__ import annotations

from rillet.commands.arguments import positive, syntax_error
from rillet.commands.first_key_pop import FirstKeyPop, KeysAfterNumber
from rillet.commands.lookup import delete_if_empty, value_for_write
from rillet.commands.table_replies import write_score
from rillet.commands.zset import command
from rillet.runtime.session import Session
from rillet.structs.integer_text import decimal
from rillet.types.zset import Pair, Zset

_POP = (
    "O(log(N)*M) with N being the number of elements in the sorted set, and M being the number of elements popped."
)
_MPOP = (
    "O(K) + O(M*log(N)) where K is the number of provided keys, N being the number of elements in the sorted set, and "
    "M being the number of elements popped."
)


def _take(session: Session, key: bytes, value: Zset, greatest: bool, count: int) -> list[Pair]:
    """Remove up to `count` members with the lowest or greatest scores and return them (genericZpopCommand)."""
    length = len(value)
    count = min(count, length)
    start = length - count if greatest else 0
    pairs = value.slice(start, count, greatest)
    value.delete(start, count)
    session.notify(b"z", b"zpopmax" if greatest else b"zpopmin", key)
    delete_if_empty(session, key, value)
    session.modified(key)
    session.dirty += count - 1
    return pairs


def _write_flat(session: Session, pairs: list[Pair]) -> None:
    for member, score in pairs:
        session.out.bulk(member)
        write_score(session.out, score, session.db.buffer.zset_classic)


def _write_nested(session: Session, pairs: list[Pair]) -> None:
    session.out.array(len(pairs))
    for pair in pairs:
        session.out.array(2)
        _write_flat(session, [pair])


# -- from one sorted set -----------------------------------------------------------------------------


def _pop(session: Session, argv: list[bytes], greatest: bool) -> None:
    """Run ZPOPMIN or ZPOPMAX (zpopMinMaxCommand)."""
    if len(argv) > 3:
        raise syntax_error()
    count = positive(argv[2]) if len(argv) == 3 else None
    value = value_for_write(session, argv[1], Zset)
    if value is None or count == 0:
        session.out.array(0)
        return
    pairs = _take(session, argv[1], value, greatest, 1 if count is None else count)
    if count is not None and session.out.resp != 2:
        _write_nested(session, pairs)
    else:
        session.out.array(2 * len(pairs))
        _write_flat(session, pairs)


@command("zpopmin", arity=-2, flags="write fast", since="5.0.0", syntax="key [count]", complexity=_POP)
def zpopmin(session: Session, argv: list[bytes]) -> None:
    """Remove the members with the lowest scores and return them."""
    _pop(session, argv, False)


@command("zpopmax", arity=-2, flags="write fast", since="5.0.0", syntax="key [count]", complexity=_POP)
def zpopmax(session: Session, argv: list[bytes]) -> None:
    """Remove the members with the highest scores and return them, the highest first."""
    _pop(session, argv, True)


# -- from the first of several sorted sets ----------------------------------------------------------


class _ZsetPop(FirstKeyPop):
    """A pop from the first of several sorted sets; from_end=True pops the members with the highest scores."""

    __slots__ = ()
    kind = Zset
    sides = (b"min", b"max")

    def pop(self, session: Session, key: bytes, value: Zset) -> None:
        """Pop from the sorted set, write the reply, and propagate ZPOPMIN or ZPOPMAX."""
        words = [b"ZPOPMAX" if self.from_end else b"ZPOPMIN", key]
        pairs = _take(session, key, value, self.from_end, 1 if self.count is None else self.count)
        session.out.array(3 if self.count is None else 2)
        session.out.bulk(key)
        if self.count is None:
            _write_flat(session, pairs)
        else:
            _write_nested(session, pairs)
            words.append(decimal(len(pairs)))
        session.propagate(words)


@command("bzpopmin", arity=-3, flags="write noscript fast blocking", keys=(1, -2, 1), since="5.0.0",
         syntax="key [key ...] timeout", complexity="O(log(N)) with N being the number of elements in the sorted set.")
def bzpopmin(session: Session, argv: list[bytes]) -> None:
    """Remove the member with the lowest score of the first sorted set that exists; block if none exists."""
    _ZsetPop(argv[1:-1], False, None).run_or_block(session, argv[-1])


@command("bzpopmax", arity=-3, flags="write noscript fast blocking", keys=(1, -2, 1), since="5.0.0",
         syntax="key [key ...] timeout", complexity="O(log(N)) with N being the number of elements in the sorted set.")
def bzpopmax(session: Session, argv: list[bytes]) -> None:
    """Remove the member with the highest score of the first sorted set that exists; block if none exists."""
    _ZsetPop(argv[1:-1], True, None).run_or_block(session, argv[-1])


@command("zmpop", arity=-4, flags="write movablekeys", keys=(0, 0, 0), since="7.0.0",
         syntax="numkeys key [key ...] <MIN | MAX> [COUNT count]", complexity=_MPOP, get_keys=KeysAfterNumber(1))
def zmpop(session: Session, argv: list[bytes]) -> None:
    """Remove and return the members with the lowest or highest scores of the first sorted set that exists."""
    _ZsetPop.read_mpop(argv, 1).run_or_null(session)


@command("bzmpop", arity=-5, flags="write blocking movablekeys", keys=(0, 0, 0), since="7.0.0",
         syntax="timeout numkeys key [key ...] <MIN | MAX> [COUNT count]", complexity=_MPOP,
         get_keys=KeysAfterNumber(2))
def bzmpop(session: Session, argv: list[bytes]) -> None:
    """Remove and return members with the lowest or highest scores, as ZMPOP does; block if no key exists."""
    _ZsetPop.read_mpop(argv, 2).run_or_block(session, argv[1])

"""What takes members from an end of a sorted set, and what waits for one (Redis: t_zset.c, blocked.c).

    at once                  waiting                     propagated as
    ZPOPMIN  ZPOPMAX         BZPOPMIN  BZPOPMAX          as it came; ZPOPMIN, ZPOPMAX
    ZMPOP                    BZMPOP                      ZPOPMIN or ZPOPMAX with the count that there was

Waiting is that of lists (`list_move`): the first key that holds a sorted set is taken, a key of another type is an
error on the way to it, but wakes nobody; in 7.0 a client is served from the key that woke it, later its command
is run again.

    reply                               RESP2                              RESP3
    ZPOPMIN k                           member, score                      member, score
    ZPOPMIN k count                     member, score, member, score       [member, score], [member, score]
    BZPOPMIN k 0                        key, member, score                 key, member, score
    ZMPOP 1 k MIN                       key, [[member, score], ...]        key, [[member, score], ...]
"""

from __future__ import annotations

from rillet.commands.arguments import positive, syntax_error
from rillet.commands.list.move import blocking_timeout, keys_after_number, read_mpop
from rillet.commands.zset.zset import end_if_empty, write_score, zset_for_write
from rillet.runtime.registry import command
from rillet.runtime.session import Session
from rillet.types.zset import Pair, Zset

_POP = (
    "O(log(N)*M) with N being the number of elements in the sorted set, and M being the number of elements popped."
)
_MPOP = (
    "O(K) + O(M*log(N)) where K is the number of provided keys, N being the number of elements in the sorted set, and "
    "M being the number of elements popped."
)


def _take(session: Session, key: bytes, value: Zset, greatest: bool, count: int) -> list[Pair]:
    """Remove up to count members from an end and return them (genericZpopCommand)."""
    length = len(value)
    count = min(count, length)
    start = length - count if greatest else 0
    pairs = value.slice(start, count, greatest)
    value.delete(start, count)
    session.notify(b"z", b"zpopmax" if greatest else b"zpopmin", key)
    end_if_empty(session, key, value)
    session.modified(key)
    session.dirty += count - 1
    return pairs


def _write_flat(session: Session, pairs: list[Pair]) -> None:
    for member, score in pairs:
        session.out.bulk(member)
        write_score(session, score)


def _write_nested(session: Session, pairs: list[Pair]) -> None:
    session.out.array(len(pairs))
    for pair in pairs:
        session.out.array(2)
        _write_flat(session, [pair])


# -- from one sorted set -----------------------------------------------------------------------------


def _pop(session: Session, argv: list[bytes], greatest: bool) -> None:
    """Answer ZPOPMIN and ZPOPMAX (zpopMinMaxCommand)."""
    if len(argv) > 3:
        raise syntax_error()
    count = positive(argv[2]) if len(argv) == 3 else None
    value = zset_for_write(session, argv[1])
    if value is None or count == 0:
        session.out.array(0)
        return
    pairs = _take(session, argv[1], value, greatest, 1 if count is None else count)
    if count is not None and session.out.resp != 2:
        _write_nested(session, pairs)
    else:
        session.out.array(2 * len(pairs))
        _write_flat(session, pairs)


@command("zpopmin", arity=-2, flags="write fast", keys=(1, 1, 1), group="sorted-set", since="5.0.0", complexity=_POP,
         syntax="key [count]")
def zpopmin(session: Session, argv: list[bytes]) -> None:
    """Remove the members with the lowest scores and return them."""
    _pop(session, argv, False)


@command("zpopmax", arity=-2, flags="write fast", keys=(1, 1, 1), group="sorted-set", since="5.0.0", complexity=_POP,
         syntax="key [count]")
def zpopmax(session: Session, argv: list[bytes]) -> None:
    """Remove the members with the highest scores and return them, the highest first."""
    _pop(session, argv, True)


# -- from the first sorted set that there is ---------------------------------------------------------


class _Pop:
    """A pop from the first sorted set among several keys; count None: one member, not in an array."""

    __slots__ = ("count", "greatest", "keys")

    def __init__(self, keys: list[bytes], greatest: bool, count: int | None) -> None:
        self.keys = keys
        self.greatest = greatest
        self.count = count

    def run(self, session: Session) -> bool:
        """Pop from the first sorted set that there is; False where there is none."""
        for key in self.keys:
            value = zset_for_write(session, key)
            if value is not None:
                self._pop(session, key, value)
                return True
        return False

    def _pop(self, session: Session, key: bytes, value: Zset) -> None:
        words = [b"ZPOPMAX" if self.greatest else b"ZPOPMIN", key]
        pairs = _take(session, key, value, self.greatest, 1 if self.count is None else self.count)
        session.out.array(3 if self.count is None else 2)
        session.out.bulk(key)
        if self.count is None:
            _write_flat(session, pairs)
        else:
            _write_nested(session, pairs)
            words.append(b"%d" % len(pairs))
        session.propagate(words)

    def run_or_wait(self, session: Session, timeout: int) -> None:
        """Pop at once, or wait for any of the keys (blockingGenericZpopCommand)."""
        if self.run(session):
            return
        if session.can_block:
            session.block(self.keys, timeout, self.serve, _timed_out)
        else:
            session.out.null_array()

    def serve(self, session: Session, key: bytes) -> bool:
        """Answer a waiting client one of whose keys changed (serveClientsBlockedOnSortedSetKey)."""
        value = session.db.lookup(key)
        if not isinstance(value, Zset):
            return False
        if session.engine.settings.compat.knows(72):
            return self.run(session)
        self._pop(session, key, value)
        return True


def _timed_out(session: Session) -> None:
    session.out.null_array()


def _blocking_pop(session: Session, argv: list[bytes], greatest: bool) -> None:
    timeout = blocking_timeout(session, argv[-1])
    _Pop(argv[1:-1], greatest, None).run_or_wait(session, timeout)


@command("bzpopmin", arity=-3, flags="write noscript fast blocking", keys=(1, -2, 1), group="sorted-set", since="5.0.0",
         complexity="O(log(N)) with N being the number of elements in the sorted set.", syntax="key [key ...] timeout")
def bzpopmin(session: Session, argv: list[bytes]) -> None:
    """Remove the member with the lowest score of the first sorted set that there is; wait where there is none."""
    _blocking_pop(session, argv, False)


@command("bzpopmax", arity=-3, flags="write noscript fast blocking", keys=(1, -2, 1), group="sorted-set", since="5.0.0",
         complexity="O(log(N)) with N being the number of elements in the sorted set.", syntax="key [key ...] timeout")
def bzpopmax(session: Session, argv: list[bytes]) -> None:
    """Remove the member with the highest score of the first sorted set that there is; wait where there is none."""
    _blocking_pop(session, argv, True)


def _read_mpop(argv: list[bytes], at: int) -> _Pop:
    """Return what ZMPOP or BZMPOP asks for, the number of keys standing at that word."""
    keys, side, count = read_mpop(argv, at, (b"min", b"max"))
    return _Pop(keys, side == b"max", count)


@command("zmpop", arity=-4, flags="write movablekeys", group="sorted-set", since="7.0.0", get_keys=keys_after_number(1),
         complexity=_MPOP, syntax="numkeys key [key ...] <MIN | MAX> [COUNT count]")
def zmpop(session: Session, argv: list[bytes]) -> None:
    """Remove members from an end of the first sorted set that there is, and return its key and them."""
    if not _read_mpop(argv, 1).run(session):
        session.out.null_array()


@command("bzmpop", arity=-5, flags="write blocking movablekeys", group="sorted-set", since="7.0.0",
         get_keys=keys_after_number(2), complexity=_MPOP,
         syntax="timeout numkeys key [key ...] <MIN | MAX> [COUNT count]")
def bzmpop(session: Session, argv: list[bytes]) -> None:
    """Remove members from an end of the first sorted set that there is; wait where there is none."""
    pop = _read_mpop(argv, 2)
    pop.run_or_wait(session, blocking_timeout(session, argv[1]))

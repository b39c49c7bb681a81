"""SPOP and SRANDMEMBER (Redis: t_set.c).

SPOP is random, so it is propagated as its effect: SREM of the removed members, or DEL if no member remains.
"""

from __future__ import annotations

from rillet.commands.arguments import positive, random_count, syntax_error
from rillet.commands.keys.expire import deletion
from rillet.commands.lookup import delete_if_empty, read_value, value_for_write
from rillet.commands.replies import bulk_or_null, write_bulks
from rillet.commands.set import command
from rillet.commands.set.members import write_members
from rillet.runtime.session import Session
from rillet.types.set import Set
from rillet.types.string import string2ll

# Members per logged SREM; Redis 7.0 logs one SREM per member.
_BATCH = 1024
# SPOP_MOVE_STRATEGY_MUL: beyond this ratio, pick the few members that remain instead of those to remove.
_MOVE_STRATEGY = 5


@command("spop", arity=-2, flags="write fast", since="1.0.0", syntax="key [count]",
         complexity="O(N) where N is the count; in a small set, the number of its members.")
def spop(session: Session, argv: list[bytes]) -> None:
    """Remove and return one or several random members."""
    if len(argv) > 3:
        raise syntax_error()
    key = argv[1]
    count = positive(argv[2]) if len(argv) == 3 else None
    value = value_for_write(session, key, Set)
    if count is not None:
        if value is None or not count:
            write_members(session, [])
        else:
            _pop_many(session, key, value, count)
        return
    if value is None:
        session.out.null()
        return
    member = value.random()
    value.remove(member)
    session.notify(b"s", b"spop", key)
    session.propagate([b"SREM", key, member])
    session.out.bulk(member)
    delete_if_empty(session, key, value)
    session.modified(key)


def _pop_many(session: Session, key: bytes, value: Set, count: int) -> None:
    """Remove several members and reply with them (spopWithCountCommand)."""
    size = len(value)
    count = min(count, size)
    session.notify(b"s", b"spop", key)
    if count == size:
        session.db.count_read(key, True)  # Redis replies with SUNION, which looks up the key again
        write_members(session, list(value))
        session.db.delete(key)
        session.notify(b"g", b"del", key)
        settings = session.engine.settings
        session.propagate(deletion(key, settings.lazyfree_lazy_server_del and settings.compat.knows(72)))
    else:
        if (size - count) * _MOVE_STRATEGY > count:
            gone = value.sample(count)
            for member in gone:
                value.remove(member)
        else:
            gone = _keep_few(session, key, value, size - count)
        write_members(session, gone)
        batch = _BATCH if session.db.buffer.set_limits.compact else 1
        for at in range(0, count, batch):
            session.propagate([b"SREM", key, *gone[at : at + batch]])
    session.modified(key)
    session.dirty += count - 1


def _keep_few(session: Session, key: bytes, value: Set, count: int) -> list[bytes]:
    """Replace a set by a new one with `count` of its members and a new encoding; return the other members."""
    limits = session.db.buffer.set_limits
    kept = value.sample(count)
    if limits.compact:
        few = Set.empty("intset" if value.intset is not None else "listpack")
    else:
        few = Set() if string2ll(kept[0]) is not None else Set.empty("hashtable")
    for member in kept:
        few.add(member, limits)
        value.remove(member)
    session.db.set(key, few, True)
    return list(value)


@command("srandmember", arity=-2, flags="readonly", since="1.0.0", syntax="key [count]",
         complexity="O(N) where N is the absolute value of the count; in a small set, the number of its members.")
def srandmember(session: Session, argv: list[bytes]) -> None:
    """Return one or several random members; a negative count allows repetitions."""
    if len(argv) > 3:
        raise syntax_error()
    if len(argv) == 2:
        value = read_value(session, argv[1], Set)
        bulk_or_null(session.out, None if value is None else value.random())
        return
    count, _ = random_count(argv)
    value = read_value(session, argv[1], Set)
    if value is None or not count:
        session.out.array(0)
    elif count < 0:
        session.out.array(-count)
        for _ in range(-count):
            session.out.bulk(value.random())
    else:
        members = list(value) if count >= len(value) else value.sample(count)
        write_bulks(session.out, members)

"""The set commands that touch one key, and SMOVE (Redis: t_set.c); unions and their like are in `set_algebra`.

A set that loses its last member goes with its key. What SPOP picks is up to chance, so it is propagated as
what it did: SREM of what went, DEL where all went.
"""

from __future__ import annotations

from rillet.commands.arguments import LLONG_MAX, LLONG_MIN, integer, positive, syntax_error
from rillet.commands.keys.expire import deletion
from rillet.commands.keys.generic import parse_cursor, scan_options
from rillet.errors import CommandError, WrongType
from rillet.runtime.registry import command
from rillet.runtime.session import Session
from rillet.structs.glob import compiled
from rillet.types.encoding_limits import has_compact
from rillet.types.set import Set
from rillet.types.string import string2ll

_COUNT_RANGE = f"value is out of range, value must between {-LLONG_MAX} and {LLONG_MAX}"
# How many of them one logged SREM takes; Redis 7.0 logs one each.
_BATCH = 1024
# SPOP_MOVE_STRATEGY_MUL: from here on the few that stay are picked, not the many that go.
_MOVE_STRATEGY = 5


def read_set(session: Session, key: bytes) -> Set | None:
    """Return the set at a key, None where there is no key; WrongType for another type."""
    value = session.db.lookup_read(key)
    if value is not None and not isinstance(value, Set):
        raise WrongType()
    return value


def set_for_write(session: Session, key: bytes) -> Set | None:
    """Return the set at a key, to be changed, None where there is no key; WrongType for another type."""
    value = session.db.lookup(key)
    if value is not None and not isinstance(value, Set):
        raise WrongType()
    return value


def write_members(session: Session, members: list[bytes], as_set: bool = True) -> None:
    """Reply with the members."""
    out = session.out
    if as_set:
        out.set(len(members))
    else:
        out.array(len(members))
    for member in members:
        out.bulk(member)


# -- members -----------------------------------------------------------------------------------------


@command("sadd", arity=-3, flags="write denyoom fast", keys=(1, 1, 1), group="set", since="1.0.0",
         complexity="O(1) for each element added, so O(N) to add N elements when the command is called with multiple "
         "arguments.", syntax="key member [member ...]")
def sadd(session: Session, argv: list[bytes]) -> None:
    """Add members to a set, creating it if needed, and count those that are new."""
    key, members = argv[1], argv[2:]
    limits = session.engine.settings
    value = set_for_write(session, key)
    if value is None:
        value = Set.for_value(members[0], len(members), limits)
        session.db.set(key, value)
    else:
        value.prepare(len(members), limits)
    added = 0
    for member in members:
        if value.add(member, limits):
            added += 1
    if added:
        session.modified(key)
        session.dirty += added - 1
        session.notify(b"s", b"sadd", key)
    session.out.integer(added)


def _end_if_empty(session: Session, key: bytes, value: Set) -> None:
    if len(value) == 0:
        session.db.delete(key)
        session.notify(b"g", b"del", key)


@command("srem", arity=-3, flags="write fast", keys=(1, 1, 1), group="set", since="1.0.0",
         complexity="O(N) where N is the number of members to be removed.", syntax="key member [member ...]")
def srem(session: Session, argv: list[bytes]) -> None:
    """Remove members from a set, and count those that were there."""
    key = argv[1]
    value = set_for_write(session, key)
    removed = 0
    if value is not None:
        removed = sum(1 for member in argv[2:] if value.remove(member))
        if removed:
            session.notify(b"s", b"srem", key)
            _end_if_empty(session, key, value)
            session.modified(key)
            session.dirty += removed - 1
    session.out.integer(removed)


@command("smove", arity=4, flags="write fast", keys=(1, 2, 1), group="set", since="1.0.0", complexity="O(1)",
         syntax="source destination member")
def smove(session: Session, argv: list[bytes]) -> None:
    """Move a member from one set to another."""
    source_key, target_key, member = argv[1:]
    limits = session.engine.settings
    source = session.db.lookup(source_key)
    target = session.db.lookup(target_key)
    if source is None:
        session.out.integer(0)
        return
    if not isinstance(source, Set) or not (target is None or isinstance(target, Set)):
        raise WrongType()
    if source is target:
        session.out.integer(member in source)
        return
    if not source.remove(member):
        session.out.integer(0)
        return
    session.notify(b"s", b"srem", source_key)
    _end_if_empty(session, source_key, source)
    if target is None:
        target = Set.for_value(member, 1, limits)
        session.db.set(target_key, target)
    session.modified(source_key)
    if target.add(member, limits):
        session.modified(target_key)
        session.notify(b"s", b"sadd", target_key)
    session.out.integer(1)


@command("scard", arity=2, flags="readonly fast", keys=(1, 1, 1), group="set", since="1.0.0", complexity="O(1)",
         syntax="key")
def scard(session: Session, argv: list[bytes]) -> None:
    """Return the number of members of a set."""
    value = read_set(session, argv[1])
    session.out.integer(0 if value is None else len(value))


@command("sismember", arity=3, flags="readonly fast", keys=(1, 1, 1), group="set", since="1.0.0", complexity="O(1)",
         syntax="key member")
def sismember(session: Session, argv: list[bytes]) -> None:
    """Tell whether a set has a member."""
    value = read_set(session, argv[1])
    session.out.integer(value is not None and argv[2] in value)


@command("smismember", arity=-3, flags="readonly fast", keys=(1, 1, 1), group="set", since="6.2.0",
         complexity="O(N) where N is the number of elements being checked for membership",
         syntax="key member [member ...]")
def smismember(session: Session, argv: list[bytes]) -> None:
    """Tell for several members whether a set has them."""
    value = read_set(session, argv[1])
    session.out.array(len(argv) - 2)
    for member in argv[2:]:
        session.out.integer(value is not None and member in value)


@command("smembers", arity=2, flags="readonly", keys=(1, 1, 1), group="set", since="1.0.0",
         complexity="O(N) where N is the set cardinality.", syntax="key")
def smembers(session: Session, argv: list[bytes]) -> None:
    """Return all members of a set."""
    value = read_set(session, argv[1])
    write_members(session, [] if value is None else list(value))


@command("sscan", arity=-3, flags="readonly", keys=(1, 1, 1), group="set", since="2.8.0",
         complexity="O(COUNT) for a call, O(N) for a whole walk over N members.",
         syntax="key cursor [MATCH pattern] [COUNT count]")
def sscan(session: Session, argv: list[bytes]) -> None:
    """Walk over the members of a set, some at a time."""
    cursor = parse_cursor(argv[2])
    value = read_set(session, argv[1])
    following, members = 0, list[bytes]()
    if value is not None:
        count, pattern, _ = scan_options(session, argv, 3)
        following, members = value.scan(cursor, count)
        if pattern != b"*":
            glob = compiled(pattern)
            members = [member for member in members if glob.matches(member)]
    session.out.array(2)
    session.out.bulk(b"%d" % following)
    write_members(session, members, False)


# -- chance ------------------------------------------------------------------------------------------


@command("spop", arity=-2, flags="write fast", keys=(1, 1, 1), group="set", since="1.0.0",
         complexity="O(N) where N is the count; in a small set, the number of its members.", syntax="key [count]")
def spop(session: Session, argv: list[bytes]) -> None:
    """Remove a member picked at random, or several, and return what was removed."""
    if len(argv) > 3:
        raise syntax_error()
    key = argv[1]
    count = positive(argv[2]) if len(argv) == 3 else None
    value = set_for_write(session, key)
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
    _end_if_empty(session, key, value)
    session.modified(key)


def _pop_many(session: Session, key: bytes, value: Set, count: int) -> None:
    """Remove and write some members (spopWithCountCommand)."""
    size = len(value)
    count = min(count, size)
    session.notify(b"s", b"spop", key)
    if count == size:
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
        batch = _BATCH if has_compact(session.engine.settings) else 1
        for at in range(0, count, batch):
            session.propagate([b"SREM", key, *gone[at : at + batch]])
    session.modified(key)
    session.dirty += count - 1


def _keep_few(session: Session, key: bytes, value: Set, count: int) -> list[bytes]:
    """Put a set of a few members in the place of one, whose encoding begins anew, and return the others."""
    limits = session.engine.settings
    kept = value.sample(count)
    if has_compact(limits):
        few = Set.empty("intset" if value.intset is not None else "listpack")
    else:
        few = Set() if string2ll(kept[0]) is not None else Set.empty("hashtable")
    for member in kept:
        few.add(member, limits)
        value.remove(member)
    session.db.set(key, few, True)
    return list(value)


@command("srandmember", arity=-2, flags="readonly", keys=(1, 1, 1), group="set", since="1.0.0",
         complexity="O(N) where N is the absolute value of the count; in a small set, the number of its members.",
         syntax="key [count]")
def srandmember(session: Session, argv: list[bytes]) -> None:
    """Return a member picked at random, or several; with a negative count the same ones may come again."""
    if len(argv) > 3:
        raise syntax_error()
    if len(argv) == 2:
        value = read_set(session, argv[1])
        if value is None:
            session.out.null()
        else:
            session.out.bulk(value.random())
        return
    count = integer(argv[2])
    if count == LLONG_MIN:
        raise CommandError(_COUNT_RANGE)
    value = read_set(session, argv[1])
    if value is None or not count:
        session.out.array(0)
    elif count < 0:
        session.out.array(-count)
        for _ in range(-count):
            session.out.bulk(value.random())
    else:
        members = list(value) if count >= len(value) else value.sample(count)
        write_members(session, members, False)

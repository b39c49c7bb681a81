"""The members of one set, and SMOVE: SADD, SREM, SISMEMBER, SMEMBERS, SSCAN (Redis: t_set.c).

A set that loses its last member is deleted.
"""

from __future__ import annotations

from rillet.commands.keys.scan import scan_value
from rillet.commands.lookup import delete_if_empty, read_value, remove_members, value_for_write
from rillet.commands.replies import write_bulks
from rillet.commands.set import command
from rillet.commands.set.fast_path import SaddFastPath, SismemberFastPath, SmembersFastPath, SremFastPath
from rillet.commands.set.fast_path import scard as scard_path
from rillet.commands.table_replies import write_table
from rillet.errors import WrongType
from rillet.runtime.session import Session
from rillet.types.set import Set

_SADD, _SREM, _SISMEMBER, _SMEMBERS = SaddFastPath(), SremFastPath(), SismemberFastPath(), SmembersFastPath()
_SCARD = scard_path()


def write_members(session: Session, members: list[bytes]) -> None:
    """Reply with a set of members."""
    session.out.set(len(members))
    for member in members:
        session.out.bulk(member)


@command("sadd", arity=-3, flags="write denyoom fast", since="1.0.0", syntax="key member [member ...]",
         complexity="O(1) for each element added, so O(N) to add N elements when the command is called with multiple "
         "arguments.", shortcut=SaddFastPath)
def sadd(session: Session, argv: list[bytes]) -> None:
    """Add members to a set, creating it if needed, and return the number of new ones."""
    if _SADD.execute(session, argv):
        if session.dirty:
            session.notify(b"s", b"sadd", argv[1])
        return
    key, members = argv[1], argv[2:]
    limits = session.engine.settings
    value = value_for_write(session, key, Set)
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


@command("srem", arity=-3, flags="write fast", since="1.0.0", syntax="key member [member ...]",
         complexity="O(N) where N is the number of members to be removed.", shortcut=SremFastPath)
def srem(session: Session, argv: list[bytes]) -> None:
    """Remove members of a set and return the number of removed ones."""
    if not session.engine.notify_events and _SREM.execute(session, argv):
        return
    remove_members(session, argv, Set, b"s", b"srem")


@command("smove", arity=4, flags="write fast", keys=(1, 2, 1), since="1.0.0", syntax="source destination member",
         complexity="O(1)")
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
    delete_if_empty(session, source_key, source)
    if target is None:
        target = Set.for_value(member, 1, limits)
        session.db.set(target_key, target)
    session.modified(source_key)
    if target.add(member, limits):
        session.modified(target_key)
        session.notify(b"s", b"sadd", target_key)
    session.out.integer(1)


@command("scard", arity=2, flags="readonly fast", since="1.0.0", syntax="key", complexity="O(1)",
         shortcut=scard_path)
def scard(session: Session, argv: list[bytes]) -> None:
    """Return the number of members of a set."""
    if _SCARD.execute(session, argv):
        return
    value = read_value(session, argv[1], Set)
    session.out.integer(0 if value is None else len(value))


@command("sismember", arity=3, flags="readonly fast", since="1.0.0", syntax="key member", complexity="O(1)",
         shortcut=SismemberFastPath)
def sismember(session: Session, argv: list[bytes]) -> None:
    """Return whether a set has a member."""
    if _SISMEMBER.execute(session, argv):
        return
    value = read_value(session, argv[1], Set)
    session.out.integer(value is not None and argv[2] in value)


@command("smismember", arity=-3, flags="readonly fast", since="6.2.0", syntax="key member [member ...]",
         complexity="O(N) where N is the number of elements being checked for membership")
def smismember(session: Session, argv: list[bytes]) -> None:
    """Return whether a set has each of several members."""
    value = read_value(session, argv[1], Set)
    session.out.array(len(argv) - 2)
    for member in argv[2:]:
        session.out.integer(value is not None and member in value)


@command("smembers", arity=2, flags="readonly", since="1.0.0", syntax="key",
         complexity="O(N) where N is the set cardinality.", shortcut=SmembersFastPath)
def smembers(session: Session, argv: list[bytes]) -> None:
    """Return all members of a set."""
    if _SMEMBERS.execute(session, argv):
        return
    value = read_value(session, argv[1], Set)
    if value is not None and value.table is not None:
        session.out.set(len(value))
        write_table(session.out, value.table, True, False)
    else:
        write_members(session, [] if value is None else list(value))


@command("sscan", arity=-3, flags="readonly", since="2.8.0", syntax="key cursor [MATCH pattern] [COUNT count]",
         complexity="O(COUNT) for a call, O(N) for a whole walk over N members.")
def sscan(session: Session, argv: list[bytes]) -> None:
    """Return some members of a set, and the cursor for the next call."""
    _, members, _ = scan_value(session, argv, Set, "SSCAN")
    write_bulks(session.out, members)

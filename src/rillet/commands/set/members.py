"""The members of one set, and SMOVE: SADD, SREM, SISMEMBER, SMEMBERS, SSCAN (Redis: t_set.c).

A set that loses its last member is deleted.
"""

from __future__ import annotations

from rillet._cython import cython
from rillet.commands.keys.scan import scan_value
from rillet.commands.lookup import delete_if_empty, read_value
from rillet.commands.replies import write_bulks
from rillet.commands.set import command
from rillet.commands.table_replies import write_entries, write_table
from rillet.errors import WrongType
from rillet.keyspace.database import Database
from rillet.protocol.reply_writer import ReplyWriter
from rillet.runtime.implementation import Implementation
from rillet.runtime.session import Session
from rillet.structs.argument_spans import ArgumentSpans
from rillet.structs.intset import Intset
from rillet.structs.listpack import HEADER_SIZE, Listpack
from rillet.types.set import Set, SetLimits

_HEADER = cython.declare(cython.Py_ssize_t, HEADER_SIZE)


@cython.cfunc
def set_at(db: Database, n: cython.Py_ssize_t) -> Set:
    """Return the set of an entry: its object, or the buffer's set, into which its bytes are unpacked."""
    value: object = db.keys.object_at(n)
    if value is None:
        value = db.buffer.unpack_set(db.keys, n)
    if type(value) is not Set:
        raise WrongType()
    return value


@cython.cfunc
def keep(db: Database, words: ArgumentSpans, n: cython.Py_ssize_t, value: Set) -> cython.bint:
    """Keep a set of `set_at` that changed: as bytes, if it has the limits of a value at rest; n < 0: of a new key."""
    if value is not db.buffer.set:
        return db.ledger.note(value)
    size: cython.Py_ssize_t = db.buffer.pack_set()
    if size >= 0:
        return db.keep_bytes(words, n, size)
    return db.keep_object(words, n, db.buffer.take_set())


def write_members(session: Session, members: list[bytes]) -> None:
    """Reply with a set of members."""
    session.out.set(len(members))
    for member in members:
        session.out.bulk(member)


@cython.final
@cython.cclass
class Sadd(Implementation):
    """SADD (saddCommand)."""

    __slots__ = ()

    @cython.ccall
    def run(self, session: Session, words: ArgumentSpans) -> cython.bint:
        """Add members to a set, creating it if needed, and reply with the number of new ones."""
        db: Database = session.db
        limits: SetLimits = db.buffer.set_limits
        n: cython.Py_ssize_t = db.locate(words)
        value: Set
        i: cython.Py_ssize_t
        added: cython.Py_ssize_t = 0
        converted: cython.bint = False
        if n < 0:
            value = db.buffer.new_set()
            value.start(words.at[2], words.size[2], words.count - 2, limits)
        else:
            value = set_at(db, n)
            converted = value.prepare(words.count - 2, limits)
        for i in range(2, words.count):
            added += value.put(words.at[i], words.size[i], limits)
        if added or converted:
            keep(db, words, n, value)
        session.changed(words, added)
        if added and db.notifies:
            session.notify(b"s", b"sadd", words.get(1))
        return session.out.integer(added)


command("sadd", arity=-3, flags="write denyoom fast", since="1.0.0", syntax="key member [member ...]",
        summary="Add members to a set, creating it if needed, and return the number of new ones.",
        complexity="O(1) for each element added, so O(N) to add N elements when the command is called with multiple "
        "arguments.")(Sadd)


@cython.final
@cython.cclass
class Srem(Implementation):
    """SREM (sremCommand)."""

    __slots__ = ()

    @cython.ccall
    def run(self, session: Session, words: ArgumentSpans) -> cython.bint:
        """Remove members of a set and reply with the number of removed ones."""
        db: Database = session.db
        n: cython.Py_ssize_t = db.locate(words)
        i: cython.Py_ssize_t
        removed: cython.Py_ssize_t = 0
        if n < 0:
            return session.out.integer(0)
        value: Set = set_at(db, n)
        for i in range(2, words.count):
            removed += value.remove_span(words.at[i], words.size[i])
        if removed:
            empty: cython.bint = value.count() == 0
            if not empty:
                keep(db, words, n, value)
            if db.notifies:
                session.notify(b"s", b"srem", words.get(1))
            if empty:
                db.delete(words.get(1))
                if db.notifies:
                    session.notify(b"g", b"del", words.get(1))
            session.changed(words, removed)
        return session.out.integer(removed)


command("srem", arity=-3, flags="write fast", since="1.0.0", syntax="key member [member ...]",
        summary="Remove members of a set and return the number of removed ones.",
        complexity="O(N) where N is the number of members to be removed.")(Srem)


@command("smove", arity=4, flags="write fast", keys=(1, 2, 1), since="1.0.0", syntax="source destination member",
         complexity="O(1)")
def smove(session: Session, argv: list[bytes]) -> None:
    """Move a member from one set to another."""
    source_key, target_key, member = argv[1:]
    limits: SetLimits = session.db.buffer.set_limits
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
        created: Set = Set()
        created.start(member, len(member), 1, limits)
        target = created
        session.db.set(target_key, target)
    session.modified(source_key)
    if target.add(member, limits):
        session.modified(target_key)
        session.notify(b"s", b"sadd", target_key)
    session.out.integer(1)


@cython.final
@cython.cclass
class Scard(Implementation):
    """SCARD."""

    __slots__ = ()

    @cython.ccall
    def run(self, session: Session, words: ArgumentSpans) -> cython.bint:
        """Reply with the number of members of a set."""
        n: cython.Py_ssize_t = session.db.locate_read(words)
        return session.out.integer(0 if n < 0 else set_at(session.db, n).count())


command("scard", arity=2, flags="readonly fast", since="1.0.0", syntax="key", complexity="O(1)",
        summary="Return the number of members of a set.")(Scard)


@cython.final
@cython.cclass
class Sismember(Implementation):
    """SISMEMBER."""

    __slots__ = ()

    @cython.ccall
    def run(self, session: Session, words: ArgumentSpans) -> cython.bint:
        """Reply whether a set has a member."""
        n: cython.Py_ssize_t = session.db.locate_read(words)
        return session.out.integer(n >= 0 and set_at(session.db, n).has(words.at[2], words.size[2]))


command("sismember", arity=3, flags="readonly fast", since="1.0.0", syntax="key member", complexity="O(1)",
        summary="Return whether a set has a member.")(Sismember)


@command("smismember", arity=-3, flags="readonly fast", since="6.2.0", syntax="key member [member ...]",
         complexity="O(N) where N is the number of elements being checked for membership")
def smismember(session: Session, argv: list[bytes]) -> None:
    """Return whether a set has each of several members."""
    value = read_value(session, argv[1], Set)
    session.out.array(len(argv) - 2)
    for member in argv[2:]:
        session.out.integer(value is not None and member in value)


@cython.final
@cython.cclass
class Smembers(Implementation):
    """SMEMBERS."""

    __slots__ = ()

    @cython.ccall
    def run(self, session: Session, words: ArgumentSpans) -> cython.bint:
        """Reply with all members of a set."""
        out: ReplyWriter = session.out
        n: cython.Py_ssize_t = session.db.locate_read(words)
        i: cython.Py_ssize_t
        if n < 0:
            return out.set(0)
        value: Set = set_at(session.db, n)
        out.set(value.count())
        if value.table is not None:
            return write_table(out, value.table, True, False)
        packed: Listpack | None = value.listpack
        if packed is not None:
            return write_entries(out, packed, _HEADER, packed.length(), 1)
        intset: Intset = value.intset  # type: ignore[assignment]
        for i in range(intset.count):
            out.bulk_int(intset.number_at(i))
        return True


command("smembers", arity=2, flags="readonly", since="1.0.0", syntax="key",
        summary="Return all members of a set.", complexity="O(N) where N is the set cardinality.")(Smembers)


@command("sscan", arity=-3, flags="readonly", since="2.8.0", syntax="key cursor [MATCH pattern] [COUNT count]",
         complexity="O(COUNT) for a call, O(N) for a whole walk over N members.")
def sscan(session: Session, argv: list[bytes]) -> None:
    """Return some members of a set, and the cursor for the next call."""
    _, members, _ = scan_value(session, argv, Set, "SSCAN")
    write_bulks(session.out, members)

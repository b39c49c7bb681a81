"""The fast paths of SADD, SREM, SISMEMBER and SMEMBERS: members of small sets, in their bytes at rest.

A set at rest is an intset, or a listpack in both other encodings, so the conversion of a listpack to a hashtable
changes only its tag. The rules for the encoding are those of types/set.py. An intset that must become another encoding
is left to the handler. SADD also adds to hashtables that are awake.
"""

from __future__ import annotations

try:
    import cython
except ModuleNotFoundError:  # Cython is not installed: use a replacement for its names
    from rillet import _cython as cython

from rillet.commands.small_values import LengthFastPath, SmallValuePath
from rillet.keyspace import rest_buffer
from rillet.keyspace.database import Database
from rillet.keyspace.rest_buffer import RestBuffer
from rillet.runtime.session import Session
from rillet.structs.argument_spans import ArgumentSpans
from rillet.structs.dict import Dict
from rillet.structs.listpack import Listpack
from rillet.types.set import Set

if not cython.compiled:  # the compiled module gets these C names from its .pxd file
    from rillet.commands.small_values import HEADER, MISSING, NOT_INT, UNUSUAL, write_entries
    from rillet.structs.listpack import parse_digits

_SET = cython.declare(cython.int, rest_buffer.SET)
_INTSET = cython.declare(cython.int, rest_buffer.INTSET)
_SET_TABLE = cython.declare(cython.int, rest_buffer.SET_TABLE)
_MANY = cython.declare(cython.Py_ssize_t, 128)  # members that one call adds to a small set


@cython.final
@cython.cclass
class SaddFastPath(SmallValuePath):
    """The fast path of SADD: supports small sets, and keys that do not exist."""

    __slots__ = ()

    def __init__(self) -> None:
        self.name = b"sadd"

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def one(self, session: Session, db: Database, words: ArgumentSpans) -> cython.bint:
        """Execute an SADD, or return False without any effect (saddCommand)."""
        buffer: RestBuffer = db.buffer
        packed: Listpack = buffer.packed
        count: cython.Py_ssize_t = words.count - 2
        i: cython.Py_ssize_t
        added: cython.Py_ssize_t = 0
        if count < 1:
            return False
        n: cython.Py_ssize_t = self.find(db, words)
        tag: cython.int
        if n < 0:
            if n == UNUSUAL or count > _MANY:
                return False
            if words.size[2] == 20 and words.at[2][0] == 45:  # possibly -2^63
                return False
            if (not buffer.compact or count <= buffer.intset_entries) and (
                parse_digits(words.at[2], words.size[2]) != NOT_INT
            ):
                buffer.start_numbers()
                return self._add_numbers(session, db, words, n)
            tag = _SET if buffer.compact and count <= buffer.set_entries else _SET_TABLE
            buffer.start(tag)
        else:
            value: object = db.keys.object_at(n)
            if value is not None:
                return type(value) is Set and self._add_awake(session, db, words, n, value)
            if count > _MANY:
                return False
            tag = buffer.load(db.keys, n)
            if tag == _INTSET:
                return self._add_numbers(session, db, words, n)
            if tag != _SET and tag != _SET_TABLE:
                return False
            if tag == _SET and count > buffer.set_entries:
                return False
        for i in range(2, words.count):
            if packed.find_span(HEADER, words.at[i], words.size[i], 0) == -1:
                if packed.length() >= buffer.set_entries or words.size[i] > buffer.set_value:
                    tag = _SET_TABLE
                added += 1
                if not buffer.append(words.at[i], words.size[i]):
                    break
        if added == 0:
            self.touch(db, n)
        elif not self.keep(db, words, n, tag):
            return False
        session.changed(words, added)
        return session.out.integer(added)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _add_awake(
        self, session: Session, db: Database, words: ArgumentSpans, n: cython.Py_ssize_t, value: object
    ) -> cython.bint:
        """Execute an SADD for a hashtable, or return False without any effect."""
        table: Dict | None = value.table  # type: ignore[attr-defined]
        i: cython.Py_ssize_t
        added: cython.Py_ssize_t = 0
        if table is None:
            return False
        self.touch(db, n)
        db.ledger.note(value)
        for i in range(2, words.count):
            table.add_span(words.at[i], words.size[i], words.at[i], -1)
            if table.added:
                session.changed(words, 1)
                added += 1
        return session.out.integer(added)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _add_numbers(
        self, session: Session, db: Database, words: ArgumentSpans, n: cython.Py_ssize_t
    ) -> cython.bint:
        """Execute an SADD for an intset, which the buffer contains, or return False without any effect."""
        buffer: RestBuffer = db.buffer
        i: cython.Py_ssize_t
        value: cython.longlong
        added: cython.Py_ssize_t = 0
        if buffer.compact and words.count - 2 > buffer.intset_entries:
            return False
        for i in range(2, words.count):
            value = parse_digits(words.at[i], words.size[i])
            if value == NOT_INT:
                return False
            if buffer.add_number(value):
                added += 1
                if buffer.numbers > buffer.intset_entries or not buffer.numbers_fit():
                    return False
        if added:
            self.store(db, words, n, buffer.compose_numbers())
            session.changed(words, added)
        else:
            self.touch(db, n)
        return session.out.integer(added)


@cython.final
@cython.cclass
class SismemberFastPath(SmallValuePath):
    """The fast path of SISMEMBER: supports missing keys and small sets."""

    __slots__ = ()

    def __init__(self) -> None:
        self.name = b"sismember"

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def one(self, session: Session, db: Database, words: ArgumentSpans) -> cython.bint:
        """Execute an SISMEMBER, or return False without any effect."""
        found: cython.bint
        if words.count != 3:
            return False
        tag: cython.int = self.read(db, words)
        if tag == MISSING:
            return session.out.integer(0)
        if tag == _INTSET:
            value: cython.longlong = parse_digits(words.at[2], words.size[2])
            if value == NOT_INT and words.size[2] == 20:  # possibly -2^63
                return False
            found = value != NOT_INT and db.buffer.has_number(value)
        elif tag == _SET or tag == _SET_TABLE:
            found = db.buffer.packed.find_span(HEADER, words.at[2], words.size[2], 0) != -1
        else:
            return False
        self.hit(db)
        return session.out.integer(found)


@cython.final
@cython.cclass
class SmembersFastPath(SmallValuePath):
    """The fast path of SMEMBERS: supports missing keys and small sets."""

    __slots__ = ()

    def __init__(self) -> None:
        self.name = b"smembers"

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def one(self, session: Session, db: Database, words: ArgumentSpans) -> cython.bint:
        """Execute an SMEMBERS, or return False without any effect."""
        buffer: RestBuffer = db.buffer
        i: cython.Py_ssize_t
        if words.count != 2:
            return False
        tag: cython.int = self.read(db, words)
        if tag == MISSING:
            return session.out.set(0)
        if tag == _INTSET:
            self.hit(db)
            session.out.set(buffer.numbers)
            for i in range(buffer.numbers):
                session.out.bulk_int(buffer.number_at(i))
            return True
        if tag != _SET and tag != _SET_TABLE:
            return False
        self.hit(db)
        session.out.set(buffer.packed.length())
        return write_entries(session.out, buffer.packed, HEADER, buffer.packed.length(), 1)


@cython.final
@cython.cclass
class SremFastPath(SmallValuePath):
    """The fast path of SREM: supports missing keys and small sets."""

    __slots__ = ()

    def __init__(self) -> None:
        self.name = b"srem"

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def one(self, session: Session, db: Database, words: ArgumentSpans) -> cython.bint:
        """Execute an SREM, or return False without any effect (sremCommand)."""
        if words.count < 3:
            return False
        tag: cython.int = self.open(db, words)
        if tag == MISSING:
            return session.out.integer(0)
        if tag == _INTSET:
            return self._remove_numbers(session, db, words)
        return (tag == _SET or tag == _SET_TABLE) and self.remove_elements(session, db, words, 1)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _remove_numbers(self, session: Session, db: Database, words: ArgumentSpans) -> cython.bint:
        """Execute an SREM for an intset, which the buffer contains, or return False without any effect."""
        buffer: RestBuffer = db.buffer
        i: cython.Py_ssize_t
        value: cython.longlong
        removed: cython.Py_ssize_t = 0
        for i in range(2, words.count):
            value = parse_digits(words.at[i], words.size[i])
            if value != NOT_INT:
                removed += buffer.remove_number(value)
            elif words.size[i] == 20:  # possibly -2^63
                return False
        if removed == 0:
            self.touch(db, buffer.entry)
        elif buffer.numbers == 0:
            db.delete(words.get(1))
        else:
            self.store(db, words, buffer.entry, buffer.compose_numbers())
        session.changed(words, removed)
        return session.out.integer(removed)


def scard() -> LengthFastPath:
    """Return the fast path of SCARD."""
    return LengthFastPath(b"scard", (rest_buffer.SET, rest_buffer.INTSET, rest_buffer.SET_TABLE), 1)


__all__ = ["SaddFastPath", "SismemberFastPath", "SmembersFastPath", "SremFastPath", "scard"]

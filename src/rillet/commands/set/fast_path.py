"""The fast paths of SADD, SISMEMBER and SMEMBERS: members of small sets, added and read in their bytes at rest.

A set at rest is an intset, or a listpack in both other encodings, so the conversion of a listpack to a hashtable
changes only its tag. The rules for the encoding are those of types/set.py. An intset that must become another encoding
is left to the handler. SADD also adds to hashtables that are awake.
"""

from __future__ import annotations

try:
    import cython
except ModuleNotFoundError:  # Cython is not installed: use a replacement for its names
    from rillet import _cython as cython

from rillet.commands.small_values import MISSING, UNUSUAL, LengthFastPath, SmallValuePath
from rillet.keyspace import rest_buffer
from rillet.keyspace.database import Database
from rillet.keyspace.rest_buffer import RestBuffer
from rillet.runtime.session import Session
from rillet.structs.argument_spans import ArgumentSpans
from rillet.structs.dict import Dict
from rillet.structs.listpack import Listpack
from rillet.types.at_rest import LIMIT
from rillet.types.set import Set

if not cython.compiled:  # the compiled module gets these C functions from its .pxd file
    from rillet.commands.small_values import write_entries
    from rillet.structs.listpack import parse_digits

_HEADER = cython.declare(cython.Py_ssize_t, 6)
_MISSING = cython.declare(cython.Py_ssize_t, MISSING)
_UNUSUAL = cython.declare(cython.Py_ssize_t, UNUSUAL)
_SET = cython.declare(cython.int, rest_buffer.SET)
_INTSET = cython.declare(cython.int, rest_buffer.INTSET)
_SET_TABLE = cython.declare(cython.int, rest_buffer.SET_TABLE)
_LIMIT = cython.declare(cython.Py_ssize_t, LIMIT)
_MANY = cython.declare(cython.Py_ssize_t, 128)  # members that one call adds to a small set
_NOT_INT = cython.declare(cython.longlong, -(2**63))  # `parse_digits` returns it also for the text of -2^63


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
        total: cython.Py_ssize_t = 0
        added: cython.Py_ssize_t = 0
        if count < 1 or not self.may_write(db):
            return False
        for i in range(2, words.count):
            total += words.size[i]
        n: cython.Py_ssize_t = self.find(db, words)
        tag: cython.int
        if n < 0:
            if n == _UNUSUAL or count > _MANY:
                return False
            if words.size[2] == 20 and words.at[2][0] == 45:  # possibly -2^63
                return False
            if (not buffer.compact or count <= buffer.intset_entries) and (
                parse_digits(words.at[2], words.size[2]) != _NOT_INT
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
        if total > _LIMIT:
            return False
        for i in range(2, words.count):
            if packed.find_span(_HEADER, words.at[i], words.size[i], 0) == -1:
                if packed.length() >= buffer.set_entries or words.size[i] > buffer.set_value:
                    tag = _SET_TABLE
                packed.append_span(words.at[i], words.size[i])
                added += 1
        if not (buffer.fits() if tag == _SET else buffer.table_fits(1)):
            return self.outgrow(db, words, n)
        if added:
            buffer.rest[0] = tag
            self.store(db, words, n, buffer.compose())
            session.dirty += added
        else:
            self.touch(db, n)
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
                session.dirty += 1
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
            if value == _NOT_INT:
                return False
            if buffer.add_number(value):
                added += 1
                if buffer.numbers > buffer.intset_entries or not buffer.numbers_fit():
                    return False
        if added:
            self.store(db, words, n, buffer.compose_numbers())
            session.dirty += added
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
        if tag == _MISSING:
            return session.out.integer(0)
        if tag == _INTSET:
            value: cython.longlong = parse_digits(words.at[2], words.size[2])
            if value == _NOT_INT and words.size[2] == 20:  # possibly -2^63
                return False
            found = value != _NOT_INT and db.buffer.has_number(value)
        elif tag == _SET or tag == _SET_TABLE:
            found = db.buffer.packed.find_span(_HEADER, words.at[2], words.size[2], 0) != -1
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
        if tag == _MISSING:
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
        return write_entries(session.out, buffer.packed, _HEADER, buffer.packed.length(), 1)


def scard() -> LengthFastPath:
    """Return the fast path of SCARD."""
    return LengthFastPath(b"scard", (rest_buffer.SET, rest_buffer.INTSET, rest_buffer.SET_TABLE), 1)


__all__ = ["SaddFastPath", "SismemberFastPath", "SmembersFastPath", "scard"]

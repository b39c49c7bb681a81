"""The fast paths of SETBIT, GETBIT, BITCOUNT, BITPOS, BITFIELD and BITOP: plain calls (runtime/fast_path.py).

A change supports a string that is awake, raw and long enough, as it is after the handler has changed it once. A read
supports any string, and positions that count from its start. BITOP supports AND, OR and XOR of two strings into a third
one. The handlers in bits.py and fields.py execute everything else.
"""

from __future__ import annotations

try:
    import cython
except ModuleNotFoundError:  # Cython is not installed: use a replacement for its names
    from rillet import _cython as cython

from rillet.commands.bitmap.field_operations import FieldOperations
from rillet.commands.string.value_path import StringPath
from rillet.keyspace.database import Database
from rillet.runtime.session import Session
from rillet.runtime.session_state import TRUSTED
from rillet.structs.argument_spans import ArgumentSpans
from rillet.structs.bits import AND, OR, XOR
from rillet.structs.dict import Dict
from rillet.types.at_rest import LIMIT
from rillet.types.string import RAW, String

if not cython.compiled:  # the compiled module gets these C functions from its .pxd file
    from rillet.structs.bits import combine_pair, count_bits, find_bit, read_field, write_field

# `proto-max-bulk-len` has at least 1 MB: a smaller offset is valid under any setting.
_VALID = cython.declare(cython.Py_ssize_t, 1 << 23)
_TRUSTED = cython.declare(cython.int, TRUSTED)
_AND = cython.declare(cython.int, AND)
_OR = cython.declare(cython.int, OR)
_XOR = cython.declare(cython.int, XOR)
_RAW = cython.declare(cython.int, RAW)
_LIMIT = cython.declare(cython.Py_ssize_t, LIMIT)


@cython.cfunc
@cython.exceptval(-1, check=False)
def largest_offset(session: Session) -> cython.Py_ssize_t:
    """Return the largest offset of a bit: a string may have up to `proto-max-bulk-len` bytes, in a log even more."""
    if session.state & _TRUSTED:
        return cython.cast(cython.Py_ssize_t, 1) << 62
    size: cython.Py_ssize_t = session.engine.settings.proto_max_bulk_len
    return 8 * size - 1


@cython.cfunc
@cython.inline
@cython.exceptval(-2, check=False)
def _offset(session: Session, words: ArgumentSpans) -> cython.Py_ssize_t:
    """Return the offset in words[2], or -1 if it is unusual."""
    offset: cython.Py_ssize_t = words.number(2)
    if offset >= _VALID and offset > largest_offset(session):
        return -1
    return offset


@cython.final
@cython.cclass
class SetbitFastPath(StringPath):
    """The fast path of SETBIT."""

    __slots__ = ()

    def __init__(self) -> None:
        self.name = b"setbit"

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def one(self, session: Session, db: Database, words: ArgumentSpans) -> cython.bint:
        """Set or clear a bit, or return False without any effect."""
        if words.count != 4:
            return False
        offset: cython.Py_ssize_t = _offset(session, words)
        bit: cython.Py_ssize_t = words.number(3)
        if offset < 0 or bit < 0 or bit > 1:
            return False
        string: String = self.raw(db, words)
        if string is None or offset >> 3 >= string.length():
            return False
        db.ledger.note(string)
        self.touch(db, self.n)
        old: cython.Py_ssize_t = read_field(string.span(), string.length(), offset, 1)
        if old != bit:
            write_field(string.grown, offset, 1, bit)
            session.changed(words, 1)
        return session.out.integer(old)


@cython.final
@cython.cclass
class GetbitFastPath(StringPath):
    """The fast path of GETBIT."""

    __slots__ = ()

    def __init__(self) -> None:
        self.name = b"getbit"

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def one(self, session: Session, db: Database, words: ArgumentSpans) -> cython.bint:
        """Reply with a bit, or return False without any effect."""
        if words.count != 3:
            return False
        offset: cython.Py_ssize_t = _offset(session, words)
        if offset < 0 or self.view(db, words) == -2:
            return False
        return session.out.integer(read_field(self.at, self.size, offset, 1))


@cython.cclass
class _RangePath(StringPath):
    """What BITCOUNT and BITPOS have in common: a range of bytes, `first` to `last`; without an end `last` is -1."""

    __slots__ = ("first", "last")

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def parse_range(self, words: ArgumentSpans, at: cython.Py_ssize_t) -> cython.bint:
        """Parse the positions from words[at] on; return False if they are unusual."""
        self.first = words.number(at) if words.count > at else 0
        self.last = words.number(at + 1) if words.count > at + 1 else -1
        return words.count <= at + 2 and self.first >= 0 and (self.last >= 0 or words.count < at + 2)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def end(self) -> cython.Py_ssize_t:
        """Return the end of the range in bits, exclusive."""
        return 8 * (self.size if self.last < 0 or self.last >= self.size else self.last + 1)


@cython.final
@cython.cclass
class BitcountFastPath(_RangePath):
    """The fast path of BITCOUNT."""

    __slots__ = ()

    def __init__(self) -> None:
        self.name = b"bitcount"

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def one(self, session: Session, db: Database, words: ArgumentSpans) -> cython.bint:
        """Reply with the number of set bits, or return False without any effect."""
        if words.count != 2 and words.count != 4:  # Valkey alone accepts a start without an end
            return False
        if not self.parse_range(words, 2) or self.view(db, words) == -2:
            return False
        return session.out.integer(0 if self.first >= self.size else count_bits(self.at, 8 * self.first, self.end()))


@cython.final
@cython.cclass
class BitposFastPath(_RangePath):
    """The fast path of BITPOS."""

    __slots__ = ()

    def __init__(self) -> None:
        self.name = b"bitpos"

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def one(self, session: Session, db: Database, words: ArgumentSpans) -> cython.bint:
        """Reply with the offset of the first bit of a value, or return False without any effect."""
        bit: cython.Py_ssize_t = words.number(2)
        if bit < 0 or bit > 1 or not self.parse_range(words, 3):
            return False
        found: cython.int = self.view(db, words)
        if found < 0:
            return False if found == -2 else session.out.integer(-bit)
        if self.first >= self.size:
            return session.out.integer(-1)
        offset: cython.Py_ssize_t = find_bit(self.at, 8 * self.first, self.end(), bit == 1)
        if offset < 0 and bit == 0 and words.count < 5:  # without an end, zero bits follow the string
            offset = 8 * self.size
        return session.out.integer(offset)


@cython.final
@cython.cclass
class BitfieldFastPath(StringPath):
    """The fast path of BITFIELD."""

    __slots__ = ("_operations",)
    _operations: FieldOperations

    def __init__(self) -> None:
        self.name = b"bitfield"
        self._operations = FieldOperations()

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def one(self, session: Session, db: Database, words: ArgumentSpans) -> cython.bint:
        """Execute the operations, or return False without any effect."""
        operations: FieldOperations = self._operations
        if words.count < 2 or operations.check(words, largest_offset(session)):
            return False
        if operations.end == 0:
            return self.view(db, words) != -2 and operations.read(self.at, self.size, session.out)
        string: String = self.raw(db, words)
        if string is None or operations.end > 8 * string.length():
            return False
        db.ledger.note(string)
        self.touch(db, self.n)
        session.changed(words, operations.write(string.grown, False, session.out))
        return True


@cython.final
@cython.cclass
class BitopFastPath(StringPath):
    """The fast path of BITOP.

    The target is a large string that is awake, whose buffer gets a large result, or is missing or at rest and gets a
    small one. It has no expiry, which the handler would remove.
    """

    __slots__ = ("_key",)
    _key: ArgumentSpans  # one of the keys as the key of a command

    def __init__(self) -> None:
        self.name = b"bitop"
        self._key = ArgumentSpans()

    @cython.cfunc
    @cython.exceptval(-3, check=False)
    def _find(self, db: Database, words: ArgumentSpans, index: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Do `find` for the key words[index]."""
        key: ArgumentSpans = self._key
        key.count = 2
        key.at[1] = words.at[index]
        key.size[1] = words.size[index]
        return self.find(db, key)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def one(self, session: Session, db: Database, words: ArgumentSpans) -> cython.bint:
        """Execute the BITOP, or return False without any effect."""
        keys: Dict = db.keys
        expires: Dict = db.expires
        if words.count != 5 or db.access.stamp < 0 or db.subexpires.count():
            return False
        operation: cython.int = _AND
        if words.is_option(1, b"or"):
            operation = _OR
        elif words.is_option(1, b"xor"):
            operation = _XOR
        elif not words.is_option(1, b"and"):
            return False
        one: cython.Py_ssize_t = self._find(db, words, 3)
        other: cython.Py_ssize_t = self._find(db, words, 4)
        target: cython.Py_ssize_t = self._find(db, words, 2)
        if one < 0 or other < 0 or target < -1 or target == one or target == other or not self.view_entry(keys, one):
            return False
        at: cython.p_const_uchar = self.at
        size: cython.Py_ssize_t = self.size
        if not self.view_entry(keys, other):
            return False
        longest: cython.Py_ssize_t = max(size, self.size)
        if target >= 0 and (expires.used0 or expires.used1):
            if expires.find_hashed(words.at[2], words.size[2], db.buffer.hash) >= 0:
                return False
        value: object = None if target < 0 else keys.object_at(target)
        if longest == 0 or (value is None) != (longest <= _LIMIT) or not (value is None or isinstance(value, String)):
            return False
        db.hits += 2
        self.touch(db, one)
        self.touch(db, other)
        if value is None:
            self._combine_to(db.buffer.rest, 1, at, size, operation)
            db.buffer.rest[0] = _RAW
            self.store(db, self._key, target, longest + 1)
        else:
            string: String = value
            db.ledger.note(string)
            buf: bytearray = string.reserve(longest)
            if len(buf) > longest:
                del buf[longest:]
            self._combine_to(buf, 0, at, size, operation)
            self.touch(db, target)
        session.changed(words, 1)
        return session.out.integer(longest)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _combine_to(
        self, buf: bytearray, start: cython.Py_ssize_t, at: cython.p_const_uchar, size: cython.Py_ssize_t,
        operation: cython.int,
    ) -> cython.bint:  # fmt: skip
        """Write the operation on the bytes at an address and those of `view_entry` to a buffer, which has the room."""
        if cython.compiled:
            to: cython.p_uchar = buf
            combine_pair(to + start, at, size, self.at, self.size, operation)
        else:
            combine_pair(memoryview(buf)[start:], at, size, self.at, self.size, operation)
        return True


__all__ = [
    "BitcountFastPath", "BitfieldFastPath", "BitopFastPath", "BitposFastPath", "GetbitFastPath", "SetbitFastPath",
]  # fmt: skip

"""SETBIT, GETBIT, BITCOUNT, BITPOS and BITOP (Redis: bitops.c)."""

from __future__ import annotations

from typing import Any

from rillet._cython import cython
from rillet.commands.arguments import syntax_error, text
from rillet.commands.bitmap import command
from rillet.commands.bitmap.field_operations import BAD_OFFSET
from rillet.commands.span_arguments import integer_at
from rillet.commands.string.values import StringCommand, store_string, string_at
from rillet.errors import CommandError
from rillet.keyspace.database import Database
from rillet.runtime.implementation import Implementation
from rillet.runtime.session import Session
from rillet.runtime.session_state import TRUSTED
from rillet.structs.argument_spans import ArgumentSpans
from rillet.structs.bits import (
    AND,
    ANDOR,
    DIFF,
    DIFF1,
    NOT,
    ONE,
    OR,
    XOR,
    combine,
    count_bits,
    find_bit,
    read_field,
    write_field,
)
from rillet.structs.listpack import parse_digits
from rillet.types.compat import Compat
from rillet.types.string import RAW, String, new_string

_RAW = cython.declare(cython.int, RAW)
_TRUSTED = cython.declare(cython.int, TRUSTED)
_HUGE = cython.declare(cython.Py_ssize_t, 1 << 60)  # from there on, the product exceeds 64 bits
_MOST = cython.declare(cython.Py_ssize_t, 0x7FFF_FFFF_FFFF_FFFF)
# `proto-max-bulk-len` has at least 1 MB: a smaller offset is valid under any setting.
_VALID = cython.declare(cython.Py_ssize_t, 1 << 23)
_AND = cython.declare(cython.int, AND)
_OR = cython.declare(cython.int, OR)
_XOR = cython.declare(cython.int, XOR)
_OPERATIONS = {b"not": NOT}
_OPERATIONS_82 = {**_OPERATIONS, b"diff": DIFF, b"diff1": DIFF1, b"andor": ANDOR, b"one": ONE}


@cython.ccall
def largest_offset(session: Session) -> cython.Py_ssize_t:
    """Return the largest offset of a bit: a string may have up to `proto-max-bulk-len` bytes, in a log even more."""
    if session.state & _TRUSTED:
        return cython.cast(cython.Py_ssize_t, 1) << 62
    size: cython.Py_ssize_t = session.engine.settings.proto_max_bulk_len
    return 8 * size - 1 if size < _HUGE else _MOST


@cython.cfunc
def _bit_offset(session: Session, words: ArgumentSpans) -> cython.Py_ssize_t:
    """Return the offset of a bit in words[2]; CommandError if it is invalid or too large (getBitOffsetFromArgument)."""
    offset: cython.longlong = parse_digits(words.at[2], words.size[2])
    if offset < 0 or (offset >= _VALID and offset > largest_offset(session)):
        raise CommandError(BAD_OFFSET)
    return offset


@cython.ccall
def string_with_bits(db: Database, words: ArgumentSpans, string: String, bits: cython.Py_ssize_t) -> String:
    """Return the string that was found at words[1], made or padded with zero bytes so that it has that many bits.

    The encoding becomes raw even if nothing changes (lookupStringForBitCommand).
    """
    if string is None:
        string = new_string(b"")
        db.set(words.get(1), string)
    string.reserve((bits + 7) >> 3)
    return string


@cython.final
@cython.cclass
class Setbit(Implementation):
    """SETBIT (setbitCommand)."""

    __slots__ = ()

    @cython.ccall
    def run(self, session: Session, words: ArgumentSpans) -> cython.bint:
        """Set or clear a bit; reply with the old one."""
        db: Database = session.db
        offset: cython.Py_ssize_t = _bit_offset(session, words)
        bit: cython.longlong = words.number(3)
        if bit < 0 or bit > 1:
            raise CommandError("bit is not an integer or out of range")
        string: String = string_at(db, words, db.locate(words))
        before: cython.Py_ssize_t = -1 if string is None else string.length()
        string = string_with_bits(db, words, string, offset + 1)
        old: cython.longlong = read_field(string.span(), string.length(), offset, 1)
        if string.length() != before or old != bit:
            write_field(string.grown, offset, 1, bit)
            session.changed(words, 1)
            if db.notifies:
                session.notify(b"$", b"setbit", words.get(1))
        return session.out.integer(old)


command("setbit", arity=4, flags="write denyoom", since="2.2.0", syntax="key offset value", complexity="O(1)",
        summary="Set or clear the bit at an offset of a string; reply with the old bit. The string is created or "
        "padded.")(Setbit)


@cython.final
@cython.cclass
class Getbit(StringCommand):
    """GETBIT (getbitCommand)."""

    __slots__ = ()

    @cython.ccall
    def run(self, session: Session, words: ArgumentSpans) -> cython.bint:
        """Reply with a bit."""
        offset: cython.Py_ssize_t = _bit_offset(session, words)
        n: cython.Py_ssize_t = session.db.locate_read(words)
        if n < 0:
            return session.out.integer(0)
        self.view(session.db.keys, n)
        return session.out.integer(read_field(self.at, self.size, offset, 1))


command("getbit", arity=3, flags="readonly fast", since="2.2.0", syntax="key offset", complexity="O(1)",
        summary="Reply with the bit at an offset of a string; 0 behind its end.")(Getbit)


@cython.cfunc
def _by_bit(words: ArgumentSpans, at: cython.Py_ssize_t) -> cython.bint:
    """Return whether a unit is BIT, not BYTE."""
    if words.is_option(at, b"bit"):
        return True
    if not words.is_option(at, b"byte"):
        raise syntax_error()
    return False


@cython.cclass
class _RangeCommand(StringCommand):
    """The range of BITCOUNT and BITPOS: bits `first` to `last` of a string, without `last`."""

    __slots__ = ("first", "last")
    first: cython.longlong
    last: cython.longlong

    @cython.cfunc
    def find(self, session: Session, words: ArgumentSpans) -> cython.bint:
        """Find the string of words[1]; return False if the key is missing."""
        n: cython.Py_ssize_t = session.db.locate_read(words)
        return n >= 0 and self.view(session.db.keys, n)

    @cython.cfunc
    def clip(self, start: cython.longlong, end: cython.longlong, unit: cython.Py_ssize_t) -> cython.bint:
        """Set the range from positions in units of bits, which may count from the end; return False if it is empty."""
        total: cython.longlong = self.size * 8 // unit
        if start < 0:
            start = max(start + total, 0)
        if end < 0:
            end = max(end + total, 0)
        end = min(end, total - 1)
        if start > end:
            return False
        self.first = start * unit
        self.last = (end + 1) * unit
        return True


@cython.final
@cython.cclass
class Bitcount(_RangeCommand):
    """BITCOUNT (bitcountCommand)."""

    __slots__ = ()

    @cython.ccall
    def run(self, session: Session, words: ArgumentSpans) -> cython.bint:
        """Reply with the number of set bits of a string or of a range."""
        count: cython.Py_ssize_t = words.count
        start: cython.longlong = 0
        end: cython.longlong = -1
        by_bit: cython.bint = False
        early: cython.bint = False
        if count > 2:
            compat: Compat = session.engine.settings.compat
            early = compat.level < 74 and not compat.valkey  # a missing key hides errors of the arguments
            if early and not self.find(session, words):
                return session.out.integer(0)
            if count > 5 or (count == 3 and not compat.valkey):
                raise syntax_error()
            start = integer_at(words, 2)
            if compat.valkey and count == 5:
                _by_bit(words, 4)  # the error of the unit precedes that of the end
            if count > 3:
                end = integer_at(words, 3)
            if early and start < 0 and end < 0 and start > end:
                return session.out.integer(0)  # before the unit is looked at
            by_bit = count == 5 and _by_bit(words, 4)
        if not early and not self.find(session, words):
            return session.out.integer(0)
        if (start < 0 and end < 0 and start > end) or not self.clip(start, end, 1 if by_bit else 8):
            return session.out.integer(0)
        return session.out.integer(count_bits(self.at, self.first, self.last))


command("bitcount", arity=-2, flags="readonly", since="2.6.0", syntax="key [start end [BYTE | BIT]]",
        complexity="O(N)",
        summary="Count the set bits of a string, or of a range of its bytes or bits; negative positions count from the "
        "end.")(Bitcount)


@cython.final
@cython.cclass
class Bitpos(_RangeCommand):
    """BITPOS (bitposCommand)."""

    __slots__ = ()

    @cython.ccall
    def run(self, session: Session, words: ArgumentSpans) -> cython.bint:
        """Reply with the offset of the first bit of a value."""
        count: cython.Py_ssize_t = words.count
        bit: cython.longlong = integer_at(words, 2)
        start: cython.longlong = 0
        end: cython.longlong = -1
        by_bit: cython.bint = False
        early: cython.bint = False
        if bit < 0 or bit > 1:
            raise CommandError("The bit argument must be 1 or 0.")
        if count > 3:
            compat: Compat = session.engine.settings.compat
            early = compat.level < 74 and not compat.valkey
            if early and not self.find(session, words):
                return session.out.integer(-bit)
            if count > 6:
                raise syntax_error()
            start = integer_at(words, 3)
            by_bit = count == 6 and _by_bit(words, 5)
            if count > 4:
                end = integer_at(words, 4)
        if not early and not self.find(session, words):
            return session.out.integer(-bit)
        if not self.clip(start, end, 1 if by_bit else 8):
            return session.out.integer(-1)
        found: cython.Py_ssize_t = find_bit(self.at, self.first, self.last, bit == 1)
        if found < 0 and bit == 0 and count < 5:
            found = self.size * 8
        return session.out.integer(found)


command("bitpos", arity=-3, flags="readonly", since="2.8.7", syntax="key bit [start [end [BYTE | BIT]]]",
        complexity="O(N)",
        summary="Reply with the offset of the first bit that is 0 or 1, -1 if there is none.")(Bitpos)


@cython.cfunc
def _operation(session: Session, words: ArgumentSpans) -> cython.int:
    """Parse the operation of a BITOP; raise CommandError if it is unknown or has a wrong number of sources."""
    if words.is_option(1, b"and"):
        return _AND
    if words.is_option(1, b"or"):
        return _OR
    if words.is_option(1, b"xor"):
        return _XOR
    name: bytes = words.get(1)
    operations = _OPERATIONS_82 if session.engine.settings.compat.knows(82) else _OPERATIONS
    operation = operations.get(name.lower())
    if operation is None:
        raise syntax_error()
    if operation == NOT and words.count != 4:
        raise CommandError("BITOP NOT must be called with a single source key.")
    if operation in (DIFF, DIFF1, ANDOR) and words.count < 5:
        raise CommandError(f"BITOP {text(name.upper())} must be called with at least two source keys.")
    return operation


@cython.final
@cython.cclass
class Bitop(StringCommand):
    """BITOP (bitopCommand): shorter and missing strings count as padded with zero bytes."""

    __slots__ = ()

    @cython.ccall
    def run(self, session: Session, words: ArgumentSpans) -> cython.bint:
        """Store the result of an operation on strings; reply with its length."""
        db: Database = session.db
        operation: cython.int = _operation(session, words)
        sources: list[Any] = []
        size: cython.Py_ssize_t = 0
        at: cython.Py_ssize_t
        for at in range(3, words.count):
            n: cython.Py_ssize_t = db.locate_read(words, at)
            value: object = None if n < 0 else db.keys.object_at(n)
            self.size = 0
            if n >= 0:
                self.view(db.keys, n)
            if isinstance(value, String):
                sources.append(value.bytes_like())
            else:
                sources.append(self.at[: self.size] if self.size else b"")
            size = max(size, self.size)
        target: bytes = words.get(2)
        if size:
            store_string(session, target, combine(operation, sources, size), b"set", _RAW)
        elif db.delete_replaced(target):
            session.modified(target)
            session.notify(b"g", b"del", target)
        return session.out.integer(size)


command("bitop", arity=-4, flags="write denyoom", keys=(2, -1, 1), since="2.6.0", complexity="O(N)",
        syntax="AND | OR | XOR | NOT | DIFF | DIFF1 | ANDOR | ONE destkey key [key ...]",
        summary="Store the result of a bitwise operation on strings; shorter and missing ones count as padded with "
        "zero bytes.")(Bitop)

"""The operations of one BITFIELD: parsed and executed where the arguments were received.

    BITFIELD k  SET u8 #2 200   INCRBY i5 100 1   GET u4 0
                operation       operation         operation

`check` parses all operations and keeps nothing but their sums; `read` and `write` parse each operation again and
execute it. So a call with any number of operations needs no memory. The arithmetic is that of 64-bit integers.
"""

from __future__ import annotations

from rillet._cython import cython
from rillet.commands.arguments import NOT_AN_INTEGER
from rillet.protocol.reply_writer import ReplyWriter
from rillet.structs.argument_spans import ArgumentSpans
from rillet.structs.bits import read_field, write_field
from rillet.structs.listpack import parse_digits
from rillet.types.string import string2ll

BAD_OFFSET = "bit offset is not an integer or out of range"
ERRORS = (
    "", "syntax error", "Invalid OVERFLOW type specified",
    "Invalid bitfield type. Use something like i16 u8. Note that u64 is not supported but i64 is.",
    BAD_OFFSET, NOT_AN_INTEGER,
)  # fmt: skip
"""The errors, by the code that `FieldOperations.check` returns."""
_SYNTAX = cython.declare(cython.int, 1)
_BAD_OVERFLOW = cython.declare(cython.int, 2)
_BAD_TYPE = cython.declare(cython.int, 3)
_BAD_OFFSET = cython.declare(cython.int, 4)
_BAD_VALUE = cython.declare(cython.int, 5)
_GET = cython.declare(cython.int, 0)
_SET = cython.declare(cython.int, 1)
_INCRBY = cython.declare(cython.int, 2)
_LARGEST = cython.declare(cython.longlong, 0x7FFF_FFFF_FFFF_FFFF)
_WRAP = cython.declare(cython.int, 0)
_SATURATE = cython.declare(cython.int, 1)
_FAIL = cython.declare(cython.int, 2)
_ALL = cython.declare(cython.ulonglong, 0xFFFFFFFFFFFFFFFF)
_UNUSUAL = cython.declare(cython.longlong, -(2**63))  # what `parse_digits` returns for it


@cython.final
@cython.cclass
class FieldOperations:
    """The operations of the call in `words`, and the one that was parsed last.

    count: the operations of the call; end: the end of the fields that it writes, in bits, 0 if it writes none.
    """

    __slots__ = ("_at", "_limit", "_words", "count", "end", "kind", "offset", "overflow", "signed", "value", "width")
    _words: ArgumentSpans
    _limit: cython.Py_ssize_t
    _at: cython.Py_ssize_t
    count: cython.Py_ssize_t
    end: cython.Py_ssize_t
    kind: cython.int
    signed: cython.bint
    width: cython.int
    offset: cython.Py_ssize_t
    value: cython.longlong
    overflow: cython.int

    @cython.cfunc
    def check(self, words: ArgumentSpans, limit: cython.Py_ssize_t) -> cython.int:
        """Parse the operations; return 0, or the code of an error. limit: the largest offset in bits."""
        self._words = words
        self._limit = limit
        self.count = 0
        self.end = 0
        self._begin()
        error: cython.int = self._next()
        while error == 0 and self.kind >= 0:
            self.count += 1
            if self.kind != _GET:
                self.end = max(self.end, self.offset + self.width)
            error = self._next()
        return error

    @cython.cfunc
    def read(self, at: cython.p_const_uchar, size: cython.Py_ssize_t, out: ReplyWriter) -> cython.bint:
        """Execute operations that `check` accepted and that only read the `size` bytes at an address."""
        out.array(self.count)
        self._begin()
        while self._next() == 0 and self.kind >= 0:
            out.integer(self._signed(read_field(at, size, self.offset, self.width)))
        return True

    @cython.cfunc
    def write(self, buf: bytearray, grown: cython.bint, out: ReplyWriter) -> cython.Py_ssize_t:
        """Execute operations that `check` accepted on a string that is long enough; return the number of changes.

        grown: the string has just got longer, so that an equal value is a change, too.
        """
        changes: cython.Py_ssize_t = 0
        old: cython.longlong
        new: cython.longlong
        p: cython.p_const_uchar = buf
        size: cython.Py_ssize_t = len(buf)
        out.array(self.count)
        self._begin()
        while self._next() == 0 and self.kind >= 0:
            old = self._signed(read_field(p, size, self.offset, self.width))
            if self.kind == _GET:
                out.integer(old)
            elif not self._fits(old if self.kind == _INCRBY else 0):
                out.null()
            else:
                new = self.value
                out.integer(new if self.kind == _INCRBY else old)
                write_field(buf, self.offset, self.width, self._mask() & cython.cast(cython.ulonglong, new))
                changes += grown or new != old
        return changes

    # -- parsing -------------------------------------------------------------------------------------

    @cython.cfunc
    @cython.exceptval(check=False)
    def _begin(self) -> cython.bint:
        self._at = 2
        self.overflow = _WRAP
        return True

    @cython.cfunc
    def _next(self) -> cython.int:
        """Parse the next operation; return 0, or the code of an error. At the end, `kind` is -1."""
        words: ArgumentSpans = self._words
        at: cython.Py_ssize_t = self._at
        while at + 1 < words.count and words.is_option(at, b"overflow"):
            if words.is_option(at + 1, b"wrap"):
                self.overflow = _WRAP
            elif words.is_option(at + 1, b"sat"):
                self.overflow = _SATURATE
            elif words.is_option(at + 1, b"fail"):
                self.overflow = _FAIL
            else:
                return _BAD_OVERFLOW
            at += 2
        if at >= words.count:
            self.kind = -1
            return 0
        if words.is_option(at, b"get"):
            self.kind = _GET
        elif words.is_option(at, b"set"):
            self.kind = _SET
        elif words.is_option(at, b"incrby"):
            self.kind = _INCRBY
        else:
            return _SYNTAX
        self._at = at + (3 if self.kind == _GET else 4)
        if self._at > words.count:
            return _SYNTAX
        if not self._parse_type(at + 1):
            return _BAD_TYPE
        if not self._parse_offset(at + 2):
            return _BAD_OFFSET
        self.value = 0
        if self.kind != _GET:
            self.value = parse_digits(words.at[at + 3], words.size[at + 3])
            if self.value == _UNUSUAL and string2ll(words.get(at + 3)) is None:
                return _BAD_VALUE
        return 0

    @cython.cfunc
    def _parse_type(self, at: cython.Py_ssize_t) -> cython.bint:
        """Parse a type such as i16 or u8 (getBitfieldTypeFromArgument); return False if it is invalid."""
        word: cython.p_const_uchar = self._words.at[at]
        size: cython.Py_ssize_t = self._words.size[at]
        i: cython.Py_ssize_t = 1
        if size < 2 or (word[0] != 105 and word[0] != 117) or word[1] == 48:  # i, u, 0
            return False
        self.signed = word[0] == 105
        self.width = 0
        while i < size and word[i] != 0:  # as in Redis, a NUL byte ends the type
            if word[i] < 48 or word[i] > 57 or self.width > 64:
                return False
            self.width = self.width * 10 + (word[i] - 48)
            i += 1
        return 1 <= self.width <= (64 if self.signed else 63)

    @cython.cfunc
    def _parse_offset(self, at: cython.Py_ssize_t) -> cython.bint:
        """Parse an offset in bits, or `#n` for the nth field; return False if it is invalid or too large."""
        words: ArgumentSpans = self._words
        by_field: cython.bint = words.size[at] > 0 and words.at[at][0] == 35
        offset: cython.longlong
        if not by_field:
            offset = parse_digits(words.at[at], words.size[at])
        elif cython.compiled:
            offset = parse_digits(words.at[at] + 1, words.size[at] - 1)
        else:
            offset = parse_digits(words.at[at][1:], words.size[at] - 1)
        if offset < 0 or offset > (self._limit // self.width if by_field else self._limit):
            return False
        self.offset = offset * self.width if by_field else offset
        return True

    # -- arithmetic ----------------------------------------------------------------------------------

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def _mask(self) -> cython.ulonglong:
        """Return `width` ones."""
        return _ALL >> (64 - self.width)

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def _signed(self, bits: cython.ulonglong) -> cython.longlong:
        """Return the value of a field's bits: two's complement if the field is signed."""
        if self.signed and bits >> (self.width - 1) & 1:
            bits = bits | ~self._mask()
        return cython.cast(cython.longlong, bits)

    @cython.cfunc
    @cython.exceptval(check=False)
    def _fits(self, base: cython.longlong) -> cython.bint:
        """Add `base`, which fits the field, to `value`, so that it fits, too; return False if nothing is stored."""
        mask: cython.ulonglong = self._mask()
        most: cython.longlong = cython.cast(cython.longlong, mask >> 1 if self.signed else mask)
        least: cython.longlong = -most - 1 if self.signed else 0
        value: cython.longlong = self.value
        above: cython.bint = False
        below: cython.bint = False
        # Each comparison has a form whose difference does not overflow.
        if value >= 0:
            above = base > most - value
        elif self.kind == _SET and not self.signed:
            above = True  # a negative value is a large one
        elif self.kind == _SET and self.width < 64 and value < most - _LARGEST:
            above = True  # Redis's difference of the two overflows (bitops.c: checkSignedBitfieldOverflow)
        elif base < 0:
            below = value < least - base
        else:
            below = base + value < least
        if not above and not below:
            self.value = base + value
            return True
        if self.overflow == _WRAP:
            self.value = self._signed(
                (cython.cast(cython.ulonglong, base) + cython.cast(cython.ulonglong, value)) & mask
            )
        elif self.overflow == _SATURATE:
            self.value = most if above else least
        return self.overflow != _FAIL

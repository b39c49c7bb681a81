"""One Arrow column under construction.

The buffers have Arrow's layout, so Arrow can use a finished column without a copy:

    fixed width   data     n values of 1, 2, 4, 8 or 16 bytes (decimals), in native byte order
    boolean       data     n bits, least significant first
    string        data     all texts, concatenated
                  offsets  n + 1 int32: value i is data[offsets[i]:offsets[i + 1]]
    any           valid    n bits, 1 = not null; empty until the first null
    JSON          objects  Python lists and dicts, which json_column.py converts when the batch is taken
    WHOLE, REAL   data     n int64 or n doubles, in a column whose type is inferred from its texts

Each buffer is an over-allocated bytearray. `length` is the number of values, and `used` the number of valid data bytes
of a string column. As Arrow requires, a null also has a value in the data: an empty string, or a zero.

`put` converts the text of a field to the column's type. Malformed text becomes null, and sets `bad` and `parser.bad`.
`put_text` does the same through a pointer, for a caller that has already checked that the text is inside the buffer.
No pointer outlives its call, and no call resizes a buffer to which it holds a pointer.

A WHOLE or REAL column has a number type that schema_discovery.py inferred from the column's first texts. So that no
information is lost, it accepts only canonical numbers. WHOLE accepts integers without leading zeros or plus (7, -12;
not 007, +7, -0). REAL also accepts a decimal point, an exponent, nan and inf. An empty text is null. A WHOLE column
turns into REAL when the first such number is appended. Any other text raises NotPlain, and the reader starts again
with a column of strings.

Consecutive IDs usually differ only in the last four digits of their milliseconds and in the sequence number. The other
digits are copied from the text of the previous ID.

Strings are validated when they are copied. A text is ASCII if no byte has its high bit set, which is tested for eight
bytes at a time. `is_utf8` validates other texts. Bytes that are not UTF-8 are replaced by U+FFFD, because one stray
byte in one event must not fail a job over millions of events. A binary column accepts any bytes.

The texts of a string column have at most 2^31 - 1 bytes per batch (int32 offsets). Batches end long before; a single
entry that exceeds the limit raises OverflowError.

Cost: amortised O(n) for a value of n bytes. Rejected: pyarrow's builders (a Python object and a call for each value),
numpy (a dependency, and no faster for texts).
"""

from __future__ import annotations

import struct
import sys
from typing import Any

from rillet._cython import cython, public
from rillet.columns.value_parsing import ValueParser, check, exactly
from rillet.errors import RilletError
from rillet.protocol.reply_writer import put_digits

if cython.compiled:
    from cython.cimports.cpython.bytearray import (  # type: ignore[import-not-found, unused-ignore]
        PyByteArray_AS_STRING,
        PyByteArray_GET_SIZE,
    )
    from cython.cimports.libc.string import memcpy  # type: ignore[import-not-found, unused-ignore]

COMPILED: bool = cython.compiled
(
    STRING, BINARY, BOOLEAN, BYTE, SHORT, INT, LONG, FLOAT, DOUBLE, TIMESTAMP, DATE, DECIMAL, JSON, WHOLE, REAL,
) = range(15)  # fmt: skip
_STRING = cython.declare(cython.int, 0)
_BINARY = cython.declare(cython.int, 1)
_BOOLEAN = cython.declare(cython.int, 2)
_BYTE = cython.declare(cython.int, 3)
_SHORT = cython.declare(cython.int, 4)
_INT = cython.declare(cython.int, 5)
_LONG = cython.declare(cython.int, 6)
_FLOAT = cython.declare(cython.int, 7)
_DOUBLE = cython.declare(cython.int, 8)
_TIMESTAMP = cython.declare(cython.int, 9)
_DATE = cython.declare(cython.int, 10)
_DECIMAL = cython.declare(cython.int, 11)
_JSON = cython.declare(cython.int, 12)
_WHOLE = cython.declare(cython.int, 13)
_REAL = cython.declare(cython.int, 14)
WIDTHS = (0, 0, 0, 1, 2, 4, 8, 4, 8, 8, 4, 16, 0, 8, 8)
LABELS = (
    "string", "binary", "boolean", "tinyint", "smallint", "int", "bigint", "float", "double", "timestamp", "date",
    "decimal", "JSON", "bigint", "double",
)  # fmt: skip

ABSENT = -1
NUMBER = -2
_ABSENT = cython.declare(cython.Py_ssize_t, -1)
_NUMBER = cython.declare(cython.Py_ssize_t, -2)
_LITTLE = cython.declare(cython.bint, sys.byteorder == "little")
_HIGH = cython.declare(cython.ulonglong, 0x8080808080808080)
_INT32_MAX = cython.declare(cython.Py_ssize_t, 2147483647)
_MAX_MILLISECONDS = cython.declare(cython.longlong, ((1 << 63) - 1) // 1000)
SPECIAL = frozenset((b"nan", b"inf", b"-inf", b"NaN", b"Infinity", b"-Infinity"))


class NotPlain(RilletError):
    """A column whose type was inferred as a number received a text that is not a canonical number."""


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def start_of(buf: bytearray) -> cython.p_uchar:
    """Return a pointer to the bytes of buf. The pointer is valid until buf is resized."""
    if cython.compiled:
        return cython.cast(cython.p_uchar, PyByteArray_AS_STRING(buf))
    return buf


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def size_of(buf: bytearray) -> cython.Py_ssize_t:
    """Return the size of a bytearray in bytes."""
    if cython.compiled:
        return PyByteArray_GET_SIZE(buf)
    return len(buf)


@cython.cfunc
@cython.inline
@cython.exceptval(-1, check=False)
def put_int32(dst: bytearray, i: cython.Py_ssize_t, value: cython.Py_ssize_t) -> cython.bint:
    """Write a value as the int32 at index i of the buffer `dst`."""
    if i < 0 or i > (size_of(dst) >> 2) - 1:
        raise IndexError("column: a write would exceed the buffer")
    if cython.compiled:
        narrow: cython.int = cython.cast(cython.int, value)
        memcpy(start_of(dst) + 4 * i, cython.address(narrow), 4)
        return True
    dst[4 * i : 4 * i + 4] = value.to_bytes(4, sys.byteorder)
    return True


@cython.cfunc
@cython.inline
def int32_at(buf: bytearray, i: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """Return the i-th int32 of buf. The buffer contains no negative number."""
    if i < 0 or i > (len(buf) >> 2) - 1:
        raise IndexError("column: a read would exceed the buffer")
    if cython.compiled:
        narrow: cython.int = 0
        memcpy(cython.address(narrow), start_of(buf) + 4 * i, 4)
        return narrow
    return int.from_bytes(buf[4 * i : 4 * i + 4], sys.byteorder)


@cython.cfunc
@cython.inline
def put_whole(dst: bytearray, at: cython.Py_ssize_t, value: cython.longlong, width: cython.Py_ssize_t) -> cython.bint:
    """Write an integer as `width` bytes in native byte order at dst[at:]. It must fit into them."""
    if at < 0 or at > size_of(dst) - width:
        raise IndexError("column: a write would exceed the buffer")
    if cython.compiled:
        to: cython.p_uchar = start_of(dst) + at
        if width == 8:
            memcpy(to, cython.address(value), 8)
        elif width == 4:
            four: cython.int = cython.cast(cython.int, value)
            memcpy(to, cython.address(four), 4)
        elif width == 2:
            two: cython.short = cython.cast(cython.short, value)
            memcpy(to, cython.address(two), 2)
        else:
            to[0] = value & 0xFF
        return True
    dst[at : at + width] = value.to_bytes(width, sys.byteorder, signed=True)
    return True


@cython.cfunc
@cython.inline
def put_real(dst: bytearray, at: cython.Py_ssize_t, value: cython.double) -> cython.bint:
    """Write a double at dst[at:]."""
    if at < 0 or at > size_of(dst) - 8:
        raise IndexError("column: a write would exceed the buffer")
    if cython.compiled:
        memcpy(start_of(dst) + at, cython.address(value), 8)
        return True
    dst[at : at + 8] = struct.pack("=d", value)
    return True


@cython.cfunc
@cython.inline
def put_single(dst: bytearray, at: cython.Py_ssize_t, value: cython.double) -> cython.bint:
    """Write a double as a 32-bit float at dst[at:]. A value beyond the range of floats becomes infinity."""
    if at < 0 or at > len(dst) - 4:
        raise IndexError("column: a write would exceed the buffer")
    if cython.compiled:
        single: cython.float = value
        memcpy(start_of(dst) + at, cython.address(single), 4)
        return True
    try:
        dst[at : at + 4] = struct.pack("=f", value)
    except OverflowError:
        dst[at : at + 4] = struct.pack("=f", float("inf") if value > 0 else float("-inf"))
    return True


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def union_of(data: cython.p_const_uchar, n: cython.Py_ssize_t) -> cython.ulonglong:
    """Return the OR of a text's 8-byte words. A high bit shows that a byte is not ASCII. Compiled code only."""
    i: cython.Py_ssize_t = 8
    union: cython.ulonglong = 0
    word: cython.ulonglong = 0
    half: cython.uint = 0
    if n >= 8:  # the last word may overlap the previous one
        memcpy(cython.address(union), data, 8)
        while i < n - 8:
            memcpy(cython.address(word), data + i, 8)
            union |= word
            i += 8
        memcpy(cython.address(word), data + n - 8, 8)
        return union | word
    if n >= 4:
        memcpy(cython.address(half), data, 4)
        union = half
        memcpy(cython.address(half), data + n - 4, 4)
        return union | half
    if n > 0:
        union = data[0] | data[n >> 1] | data[n - 1]
    return union


@cython.cfunc
@cython.inline
def put_part(
    dst: bytearray, at: cython.Py_ssize_t, data: cython.p_const_uchar, start: cython.Py_ssize_t, n: cython.Py_ssize_t,
    limit: cython.Py_ssize_t,
) -> cython.int:  # fmt: skip
    """Copy data[start:start + n] to dst[at:] and return whether any byte is not ASCII. `limit` is the end of data.

    Most values are short. If source and target both have room for 16 bytes, all 16 are copied as two words, which is
    faster than calling memcpy for n bytes. The next value overwrites the surplus bytes.
    """
    if cython.compiled:
        room: cython.Py_ssize_t = PyByteArray_GET_SIZE(dst) - at
        if n < 0 or start < 0 or at < 0 or start > limit - n or n > room:
            raise IndexError("column: a copy would exceed the source or target buffer")
        to: cython.p_uchar = start_of(dst) + at
        low: cython.ulonglong = 0
        high: cython.ulonglong = 0
        data += start
        if n > 16 or start > limit - 16 or room < 16:
            memcpy(to, data, n)
            return 1 if union_of(data, n) & _HIGH else 0
        memcpy(cython.address(low), data, 8)
        memcpy(cython.address(high), data + 8, 8)
        memcpy(to, data, 16)
        if not _LITTLE:
            return 1 if union_of(data, n) & _HIGH else 0
        if n > 8:
            return 1 if (low | high << (8 * (16 - n))) & _HIGH else 0
        return 1 if n > 0 and (low << (8 * (8 - n))) & _HIGH else 0
    if n < 0 or start < 0 or at < 0 or start > limit - n or at > len(dst) - n:
        raise IndexError("column: a copy would exceed the source or target buffer")
    piece = data[start : start + n]
    dst[at : at + n] = piece
    return 0 if piece.isascii() else 1


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def negated(value: cython.longlong) -> cython.ulonglong:
    """Return the absolute value of a negative number as an unsigned number; correct also for -2^63."""
    rest: cython.longlong = -(value + 1)
    magnitude: cython.ulonglong = rest
    return magnitude + 1


@cython.cfunc
@cython.exceptval(check=False)
def is_utf8(buf: cython.p_const_uchar, start: cython.Py_ssize_t, n: cython.Py_ssize_t) -> cython.bint:
    """Return whether buf[start:start + n] is well-formed UTF-8 (Unicode standard, table 3-7)."""
    if not cython.compiled:
        try:
            buf[start : start + n].decode()
        except UnicodeDecodeError:
            return False
        return True
    stop: cython.Py_ssize_t = start + n
    byte: cython.int
    low: cython.int
    high: cython.int
    more: cython.int
    while start < stop:
        byte = buf[start]
        start += 1
        if byte < 0x80:
            continue
        low = 0x80
        high = 0xBF
        if 0xC2 <= byte <= 0xDF:
            more = 1
        elif 0xE0 <= byte <= 0xEF:
            more = 2
            if byte == 0xE0:
                low = 0xA0
            elif byte == 0xED:
                high = 0x9F
        elif 0xF0 <= byte <= 0xF4:
            more = 3
            if byte == 0xF0:
                low = 0x90
            elif byte == 0xF4:
                high = 0x8F
        else:
            return False
        if more > stop - start or buf[start] < low or buf[start] > high:
            return False
        start += 1
        while more > 1:
            if buf[start] & 0xC0 != 0x80:
                return False
            start += 1
            more -= 1
    return True


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def is_whole(data: cython.p_const_uchar, start: cython.Py_ssize_t, n: cython.Py_ssize_t) -> cython.bint:
    """Return whether a non-empty text begins and ends like a canonical integer (-?digit ... digit, no leading 0)."""
    first: cython.int = data[start]
    if first == 0x2D:
        if n == 1 or data[start + 1] == 0x30:
            return False
        first = data[start + 1]
    elif first == 0x30:
        return n == 1
    return 0x30 <= first <= 0x39 and data[start + n - 1] >= 0x30


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def begins_plain(data: cython.p_const_uchar, start: cython.Py_ssize_t, n: cython.Py_ssize_t) -> cython.bint:
    """Return whether a text begins and ends like a canonical number: no plus sign, no leading zero."""
    sign: cython.Py_ssize_t = 1 if data[start] == 0x2D else 0
    first: cython.int
    last: cython.int = data[start + n - 1]
    if n == sign or last < 0x30 or last > 0x39:
        return False
    first = data[start + sign]
    if first == 0x30 and n > sign + 1:
        first = data[start + sign + 1]
        return first == 0x2E
    return 0x30 <= first <= 0x39


@cython.cfunc
@cython.exceptval(check=False)
def is_sure(
    real: cython.double, data: cython.p_const_uchar, start: cython.Py_ssize_t, n: cython.Py_ssize_t
) -> cython.bint:
    """Return whether a parsed number is 1e-300 to 1e300 in magnitude, or a zero that is written with zeros only."""
    i: cython.Py_ssize_t
    if real < 0:
        real = -real
    if real != 0:
        return 1e-300 < real < 1e300
    for i in range(start, start + n):
        if data[i] > 0x30:
            return False
    return True


@cython.final
@cython.cclass
class Column:
    """A named column of one kind. `start`, `size` and `number` hold the current entry's value until it is appended."""

    __slots__ = (
        "name", "source", "kind", "width", "length", "nulls", "data", "used", "offsets", "valid", "start", "size",
        "number", "parser", "next", "label", "precision", "scale", "bound", "read", "objects", "strict", "bad",
        "upper", "upper_text", "upper_size",
    )  # fmt: skip
    name: public[bytes]
    source: public[cython.int]
    kind: public[cython.int]
    width: public[cython.Py_ssize_t]
    length: public[cython.Py_ssize_t]
    nulls: public[cython.Py_ssize_t]
    data: public[bytearray]
    used: public[cython.Py_ssize_t]
    offsets: public[bytearray]
    valid: public[bytearray]
    start: public[cython.Py_ssize_t]
    size: public[cython.Py_ssize_t]
    number: public[cython.longlong]
    parser: public[ValueParser]
    next: public[Column]  # the batch's next column
    label: public[str]  # Spark's name of the column type
    precision: public[cython.int]
    scale: public[cython.int]
    bound: public[Any]  # 10^precision: absolute values of a decimal column are smaller
    read: public[Any]  # in a JSON column, the function that parses a text
    objects: public[list[Any]]
    strict: public[cython.bint]  # a string that is not UTF-8 becomes null instead of being repaired
    bad: public[cython.Py_ssize_t]  # size of a malformed value (NUMBER: an integer); ABSENT: not malformed
    upper: cython.ulonglong  # milliseconds of the last ID, divided by 10000; 0 before the first ID
    upper_text: bytearray
    upper_size: cython.Py_ssize_t

    def __init__(self, name: bytes, source: int, kind: int, parser: ValueParser) -> None:
        self.name = name
        self.source = source
        self.kind = kind
        self.width = WIDTHS[kind]
        self.parser = parser
        self.next = None  # type: ignore[assignment]
        self.label = LABELS[kind]
        self.precision = self.scale = self.bound = 0
        self.read = None
        self.objects = []
        self.strict = False
        self.bad = -1
        self.upper = self.upper_size = 0
        self.upper_text = bytearray(32)
        self.start = 0
        self.size = -1
        self.number = 0
        self.data = bytearray(1024)
        self.offsets = bytearray(1024 if kind in (STRING, BINARY) else 0)
        self.valid = bytearray()
        self.length = self.nulls = self.used = 0

    @cython.cfunc
    @cython.inline
    @cython.exceptval(-1, check=False)
    def _room(self, n: cython.Py_ssize_t) -> cython.bint:
        """Reserve room for n more bytes of data, and for the 16 bytes that `put_part` may write."""
        data: bytearray = self.data
        if n + 16 > size_of(data) - self.used:
            self._grow(n)
        return True

    @cython.cfunc
    def _grow(self, n: cython.Py_ssize_t) -> cython.bint:
        self.data.extend(bytes(n + len(self.data)))
        return True

    @cython.cfunc
    @cython.inline
    @cython.exceptval(-1, check=False)
    def _ended(self) -> cython.bint:
        """End the append of a value of fixed width: increment `length`, and set the value's validity bit."""
        self.length += 1
        if self.nulls > 0:
            self._mark(True)
        return True

    @cython.cfunc
    @cython.inline
    @cython.exceptval(-1, check=False)
    def _ended_text(self) -> cython.bint:
        """End the append of a text: increment `length`, and set the text's end offset and validity bit."""
        length: cython.Py_ssize_t = self.length + 1
        offsets: bytearray = self.offsets
        self.length = length
        if 4 * length + 4 > len(offsets):
            self._grow_offsets(0)
        if self.used > _INT32_MAX:
            raise OverflowError("the texts of one column exceed 2 GiB in one batch; read smaller batches")
        put_int32(offsets, length, self.used)
        if self.nulls > 0:
            self._mark(True)
        return True

    @cython.cfunc
    def _grow_offsets(self, n: cython.Py_ssize_t) -> cython.bint:
        self.offsets.extend(bytes(4 * n + len(self.offsets)))
        return True

    @cython.cfunc
    def _mark(self, valid: cython.bint) -> cython.bint:
        """Set the validity bit of the last value. The first null of a column creates the bitmap."""
        i: cython.Py_ssize_t = self.length - 1
        if self.nulls == 0:
            self.valid = bytearray(b"\xff" * ((i >> 3) + 1) + bytes(128))
            self.valid[i >> 3] = 0xFF >> (8 - (i & 7))
        elif (i >> 3) >= len(self.valid):
            self.valid.extend(bytes(len(self.valid)))
        if valid:
            self.valid[i >> 3] |= 1 << (i & 7)
        else:
            self.nulls += 1
        return True

    @cython.ccall
    def put_null(self) -> cython.bint:
        """Append a null."""
        if self.width:
            self._room(16)
            put_whole(self.data, self.used, 0, 8)
            put_whole(self.data, self.used + 8, 0, 8)
            self.used += self.width
        elif self.kind == _BOOLEAN:
            self._put_bit(False)
        elif self.kind == _JSON:
            self.objects.append(None)
        else:
            if 4 * self.length + 8 > len(self.offsets):
                self._grow_offsets(0)
            put_int32(self.offsets, self.length + 1, self.used)
        self.length += 1
        self._mark(False)
        return True

    @cython.cfunc
    def _put_bad(self, size: cython.Py_ssize_t) -> cython.bint:
        """Append a null for a malformed value, and set `bad` to the value's size, or to NUMBER for an integer."""
        self.bad = size
        self.parser.bad = True
        return self.put_null()

    @cython.ccall
    def put_integer(self, value: cython.longlong) -> cython.bint:
        """Append an integer to a column of integers, times or floats. The integer must fit into the column's type."""
        if self.kind == _DOUBLE or self.kind == _FLOAT or self.kind == _REAL:
            return self.put_real_value(value)
        self._room(8)
        put_whole(self.data, self.used, value, self.width)
        self.used += self.width
        return self._ended()

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def _fits(self, value: cython.longlong) -> cython.bint:
        """Return whether an integer fits into the column's integer type."""
        kind: cython.int = self.kind
        if kind == _LONG:
            return True
        if kind == _INT:
            return -2147483648 <= value <= 2147483647
        if kind == _SHORT:
            return -32768 <= value <= 32767
        if kind == _BYTE:
            return -128 <= value <= 127
        return True

    @cython.ccall
    def put_real_value(self, value: cython.double) -> cython.bint:
        """Append a floating-point value. A float column rounds it, and stores infinity if it is beyond its range."""
        data: bytearray = self.data
        used: cython.Py_ssize_t = self.used
        if used > size_of(data) - 24:
            self._grow(8)
        if self.width == 8:
            put_real(data, used, value)
        else:
            put_single(data, used, value)
        self.used = used + self.width
        return self._ended()

    @cython.cfunc
    def _put_bit(self, value: cython.bint) -> cython.bint:
        """Write the bit at index `length` of a boolean column. The unused bits of a byte are zero."""
        i: cython.Py_ssize_t = self.length
        if (i >> 3) >= len(self.data):
            self.data.extend(bytes(len(self.data)))
        if value:
            self.data[i >> 3] |= 1 << (i & 7)
        self.used = (i >> 3) + 1
        return True

    @cython.ccall
    def put(self, buf: bytearray, start: cython.Py_ssize_t, n: cython.Py_ssize_t) -> cython.bint:
        """Convert the text buf[start:start + n] to the column's type and append it. A malformed text becomes null."""
        check(buf, start, n)
        return self.put_text(buf, start, n, len(buf))

    @cython.cfunc
    def put_text(
        self, data: cython.p_const_uchar, start: cython.Py_ssize_t, n: cython.Py_ssize_t, limit: cython.Py_ssize_t
    ) -> cython.bint:
        """Convert and append the text data[start:start + n]; it must lie within data[:limit]. See `put`."""
        kind: cython.int = self.kind
        if kind <= _BINARY:
            return self._put_string(data, start, n, limit)
        if kind == _DOUBLE or kind == _FLOAT:
            if self.parser.read_decimal(data, start, n, limit):
                return self.put_real_value(self.parser.real)
        elif kind == _TIMESTAMP:
            if self.parser.read_timestamp(data, start, n):
                return self.put_integer(self.parser.number)
        elif kind <= _LONG and kind >= _BYTE:
            if self.parser.read_integer(data, start, n) and self._fits(self.parser.number):
                return self.put_integer(self.parser.number)
        elif kind == _BOOLEAN:
            if self.parser.read_boolean(data, start, n):
                self._put_bit(self.parser.number == 1)
                return self._ended()
        elif kind == _DATE:
            if self.parser.read_date(data, start, n):
                return self.put_integer(self.parser.number)
        elif kind >= _WHOLE:
            return self._put_plain(data, start, n, limit)
        else:
            return self._put_rare(data, start, n)
        return self._put_bad(n)

    @cython.cfunc
    @cython.inline
    @cython.exceptval(-1, check=False)
    def _put_string(
        self, data: cython.p_const_uchar, start: cython.Py_ssize_t, n: cython.Py_ssize_t, limit: cython.Py_ssize_t
    ) -> cython.bint:
        """Append data[start:start + n] to a column of strings or bytes. `limit` is the end of data."""
        buf: bytearray = self.data
        offsets: bytearray = self.offsets
        used: cython.Py_ssize_t = self.used
        length: cython.Py_ssize_t = self.length + 1
        if n + 16 > size_of(buf) - used:
            self._grow(n)
        if 4 * length + 4 > size_of(offsets):
            self._grow_offsets(0)
        if put_part(buf, used, data, start, n, limit) and self.kind == _STRING:
            return self._put_wide(data, start, n)
        used += n
        if used > _INT32_MAX:
            raise OverflowError("the texts of one column exceed 2 GiB in one batch; read smaller batches")
        self.used = used
        self.length = length
        put_int32(offsets, length, used)
        if self.nulls > 0:
            self._mark(True)
        return True

    @cython.cfunc
    def _put_rare(self, data: cython.p_const_uchar, start: cython.Py_ssize_t, n: cython.Py_ssize_t) -> cython.bint:
        """Append a text as a decimal or as JSON."""
        if self.kind == _DECIMAL:
            if not self.parser.read_fixed(data, start, n, self.scale):
                return self._put_exact(exactly(bytes(data[start : start + n]), self.precision, self.scale), n)
            if self.parser.zeros > 0:
                return self._put_exact(self._widened(self.parser.number, self.parser.zeros), n)
            if not self._fits_precision(self.parser.number):
                return self._put_bad(n)
            self._room(16)
            self._put_halves(self.parser.number)
            self.used += 16
            return self._ended()
        try:
            self.objects.append(self.read(bytes(data[start : start + n])))
        except ValueError:
            return self._put_bad(n)
        if self.objects[self.length] is None:  # JSON's null
            self.objects.pop()
            return self.put_null()
        return self._ended()

    def _widened(self, number: object, zeros: object) -> object:
        """Return number * 10^zeros as a Python integer, or None if it exceeds the decimal column's precision."""
        exact: object = number * 10**zeros  # type: ignore[operator]
        return exact if -self.bound < exact < self.bound else None

    @cython.cfunc
    def _put_exact(self, exact: object, n: cython.Py_ssize_t) -> cython.bint:
        """Append a decimal of up to 128 bits, or a null if `exact` is None: the text of n bytes was malformed."""
        if exact is None:
            return self._put_bad(n)
        whole: bytes = exact.to_bytes(16, sys.byteorder, signed=True)  # type: ignore[attr-defined]
        self._room(16)
        put_part(self.data, self.used, whole, 0, 16, 16)
        self.used += 16
        return self._ended()

    @cython.cfunc
    def _put_halves(self, value: cython.longlong) -> cython.bint:
        """Write an integer as a 16-byte decimal at the data offset `used`."""
        sign: cython.longlong = -1 if value < 0 else 0
        put_whole(self.data, self.used, value if _LITTLE else sign, 8)
        put_whole(self.data, self.used + 8, sign if _LITTLE else value, 8)
        return True

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def _fits_precision(self, value: cython.longlong) -> cython.bint:
        """Return whether a number of at most 19 digits fits into the decimal column's precision."""
        bound: cython.longlong = 1
        if self.precision >= 19:
            return True
        for _ in range(self.precision):
            bound *= 10
        return -bound < value < bound

    @cython.cfunc
    def _put_wide(self, data: cython.p_const_uchar, start: cython.Py_ssize_t, n: cython.Py_ssize_t) -> cython.bint:
        """Append a text that is not ASCII and is already copied. Replace bytes that are not UTF-8 by U+FFFD."""
        if not is_utf8(data, start, n):
            if self.strict:
                self.bad = n
                self.parser.bad = True
            text: bytes = bytes(data[start : start + n]).decode("utf-8", "replace").encode()
            n = len(text)
            self._room(n)
            put_part(self.data, self.used, text, 0, n, n)
        self.used += n
        return self._ended_text()

    # ---- inferred numbers ----------------------------------------------------------------------------------------

    def be_plain(self, kind: int) -> None:
        """Change an empty column to an inferred number type, WHOLE (integers) or REAL (doubles)."""
        if self.length:
            raise AssertionError("the column contains values; only an empty column can change its kind")
        self.kind = kind
        self.width = WIDTHS[kind]
        self.label = LABELS[kind]
        self.offsets = bytearray()

    @cython.cfunc
    def _put_plain(
        self, data: cython.p_const_uchar, start: cython.Py_ssize_t, n: cython.Py_ssize_t, limit: cython.Py_ssize_t
    ) -> cython.bint:
        """Append a canonical number, or null for an empty text. Raise NotPlain for any other text."""
        if n == 0:
            return self.put_null()
        if self.kind == _WHOLE:
            if is_whole(data, start, n) and self.parser.read_integer(data, start, n):
                return self.put_integer(self.parser.number)
            self._widen()
        if self._is_plain(data, start, n, limit):
            return self.put_real_value(self.parser.real)
        text: bytes = bytes(data[start : start + n])
        if text not in SPECIAL:
            raise NotPlain(f"not a canonical number: {text[:100]!r}")
        return self.put_real_value(float(text))

    @cython.cfunc
    @cython.inline
    @cython.exceptval(-1, check=False)
    def _is_plain(
        self, data: cython.p_const_uchar, start: cython.Py_ssize_t, n: cython.Py_ssize_t, limit: cython.Py_ssize_t
    ) -> cython.bint:
        """Parse a non-empty text as a double. Return whether it is a canonical number within a double's range."""
        square: cython.double
        if not begins_plain(data, start, n) or not self.parser.read_decimal(data, start, n, limit):
            return False
        square = self.parser.real * self.parser.real  # a test of the sign would be a branch that the CPU mispredicts
        if 1e-300 < square < 1e300:
            return True
        return is_sure(self.parser.real, data, start, n)

    @cython.cfunc
    def _widen(self) -> cython.bint:
        """Convert a column from WHOLE (integers) to REAL (doubles); each integer becomes the nearest double."""
        i: cython.Py_ssize_t
        value: cython.longlong = 0
        data: bytearray = self.data
        for i in range(self.length):
            if cython.compiled:
                memcpy(cython.address(value), start_of(data) + 8 * i, 8)
            else:
                value = int.from_bytes(data[8 * i : 8 * i + 8], sys.byteorder, signed=True)
            put_real(data, 8 * i, value)
        self.kind = _REAL
        self.label = LABELS[REAL]
        return True

    @cython.ccall
    def put_bytes(self, value: bytes) -> cython.bint:
        """Convert and append a text that is a bytes object. See `put`."""
        return self.put_text(value, 0, len(value), len(value))

    @cython.ccall
    def put_number(self, value: cython.longlong) -> cython.bint:
        """Append an integer as if `put` were called with its decimal text."""
        kind: cython.int = self.kind
        if kind <= _BINARY:
            if value < 0:
                self._room(1)
                put_whole(self.data, self.used, 0x2D, 1)
                self.used += 1
                self.put_decimal(negated(value), 0)
            else:
                self.put_decimal(value, 0)
            return self._ended_text()
        if kind <= _LONG and kind >= _BYTE:
            if self._fits(value):
                return self.put_integer(value)
        elif kind == _DOUBLE or kind == _FLOAT or kind >= _WHOLE:
            return self.put_integer(value)
        elif kind == _BOOLEAN:
            if value == 0 or value == 1:
                self._put_bit(value == 1)
                return self._ended()
        elif kind == _TIMESTAMP:
            if -_MAX_MILLISECONDS <= value <= _MAX_MILLISECONDS:
                return self.put_integer(value * 1000)
        elif kind == _DECIMAL or kind == _JSON:
            text: bytes = b"%d" % value
            self._put_rare(text, 0, len(text))
            if self.bad >= 0:
                self.bad = _NUMBER
            return True
        return self._put_bad(_NUMBER)

    @cython.cfunc
    def put_registers(self, data: cython.p_const_uchar, limit: cython.Py_ssize_t) -> Column:
        """Append the entry's value to this and each following column of a field; return the first other column."""
        source: cython.int = self.source
        column: Column = self
        while column is not None and column.source == source:
            column.put_register(data, limit)
            column = column.next
        return column

    @cython.cfunc
    @cython.inline
    @cython.exceptval(-1, check=False)
    def put_register(self, data: cython.p_const_uchar, limit: cython.Py_ssize_t) -> cython.bint:
        """Append the entry's value: the text data[start:start + size], the integer `number`, or null if absent."""
        n: cython.Py_ssize_t = self.size
        self.size = _ABSENT
        if n >= 0:
            if self.start < 0 or self.start > limit - n:
                raise IndexError("the value of a field is outside the buffer of its entry")
            if self.kind == _STRING:
                return self._put_string(data, self.start, n, limit)
            if self.kind == _DOUBLE and self.parser.read_decimal(data, self.start, n, limit):
                return self.put_real_value(self.parser.real)
            if self.kind == _REAL and n > 0 and self._is_plain(data, self.start, n, limit):
                return self.put_real_value(self.parser.real)
            return self.put_text(data, self.start, n, limit)
        if n == _NUMBER:
            return self.put_number(self.number)
        return self.put_null()

    @cython.cfunc
    def put_id(self, ms: cython.ulonglong, seq: cython.ulonglong) -> cython.bint:
        """Append the text of an ID.

        Consecutive IDs have most digits of their milliseconds in common, so all but the last four are reused.
        """
        high: cython.ulonglong = ms // 10000
        low: cython.uint
        pair: cython.uint
        at: cython.Py_ssize_t
        if not cython.compiled or high == 0:
            self.put_decimal(ms, 0x2D)
            self.put_decimal(seq, 0)
            return self._ended_text()
        self._room(64)
        data: bytearray = self.data
        text: bytearray = self.upper_text
        if high != self.upper:
            self.upper_size = put_digits(start_of(text), 0, high)
            self.upper = high
        at = self.used
        to: cython.p_uchar = start_of(data)
        memcpy(to + at, start_of(text), 16)  # 2^64 / 10^4 has at most 16 digits
        at += self.upper_size
        low = ms - high * 10000
        pair = low // 100
        low -= pair * 100
        to[at] = 48 + pair // 10
        to[at + 1] = 48 + pair % 10
        to[at + 2] = 48 + low // 10
        to[at + 3] = 48 + low % 10
        to[at + 4] = 0x2D
        if seq < 10:
            to[at + 5] = 48 + seq
            self.used = at + 6
        else:
            self.used = put_digits(to, at + 5, seq)
        return self._ended_text()

    @cython.ccall
    def put_decimal(self, value: cython.ulonglong, mark: cython.int) -> cython.bint:
        """Begin or extend a text: write a number's digits, then the byte `mark` unless it is 0. See `end_text`."""
        self._room(21)
        to: cython.p_uchar = start_of(self.data)
        self.used = put_digits(to, self.used, value)
        if mark:
            to[self.used] = mark
            self.used += 1
        return True

    @cython.ccall
    def end_text(self) -> cython.bint:
        """Append the text that calls of `put_decimal` have written."""
        return self._ended_text()

    @cython.cfunc
    def put_block(self, texts: bytes, ends: bytearray, count: cython.Py_ssize_t) -> cython.bint:
        """Append `count` strings. `texts` is their concatenation, and `ends` their end offsets as int32."""
        n: cython.Py_ssize_t = len(texts)
        i: cython.Py_ssize_t
        at: cython.Py_ssize_t = self.used
        self._room(n)
        put_part(self.data, at, texts, 0, n, n)
        if 4 * (self.length + count) + 4 > len(self.offsets):
            self._grow_offsets(count)
        for i in range(count):
            put_int32(self.offsets, self.length + i + 1, at + int32_at(ends, i))
        self.length += count
        self.used = at + n
        if self.used > _INT32_MAX:
            raise OverflowError("the texts of one column exceed 2 GiB in one batch; read smaller batches")
        return True

    @cython.ccall
    def truncate(self, length: cython.Py_ssize_t, used: cython.Py_ssize_t) -> cython.bint:
        """Shorten a string column without nulls to `length` values (used for the names and values of a map column)."""
        self.length = length
        self.used = used
        return True

    @cython.ccall
    def drop(self) -> cython.bint:
        """Remove the last value of the column."""
        i: cython.Py_ssize_t = self.length - 1
        self.length = i
        if self.kind <= _BINARY:
            self.used = int32_at(self.offsets, i)
        elif self.kind == _BOOLEAN:
            self.data[i >> 3] &= 0xFF ^ (1 << (i & 7))
            self.used = (i + 7) >> 3
        elif self.kind == _JSON:
            self.objects.pop()
        else:
            self.used -= self.width
        if self.nulls > 0:
            if (self.valid[i >> 3] >> (i & 7)) & 1:
                self.valid[i >> 3] &= 0xFF ^ (1 << (i & 7))
            else:
                self.nulls -= 1
        return True

    def be_decimal(self, precision: int, scale: int) -> None:
        """Set the precision and scale of a decimal column."""
        self.precision = precision
        self.scale = scale
        self.bound = 10**precision
        self.label = f"decimal({precision},{scale})"

    def value(self, i: int) -> bytes:
        """Return the string at index i of the column as bytes."""
        if not 0 <= i < self.length:
            raise IndexError(i)
        return bytes(self.data[int32_at(self.offsets, i) : int32_at(self.offsets, i + 1)])

    def take_buffers(self) -> tuple[int, int, bytearray | None, bytearray | None, bytearray]:
        """Return (length, nulls, validity, offsets, data) with buffers of exact size, and empty the column."""
        n = self.length
        valid = self.valid if self.nulls else None
        offsets = self.offsets if self.kind in (STRING, BINARY) else None
        taken = n, self.nulls, _cut(valid, (n + 7) >> 3), _cut(offsets, 4 * n + 4), _cut(self.data, self.used)
        # The next batch usually has the same size, so allocate that size at once: growing a buffer copies it.
        self.data = bytearray(max(1024, self.used + (self.used >> 4) + 64))
        self.offsets = bytearray(0 if offsets is None else max(1024, 4 * n + 4))
        self.valid = bytearray()
        self.length = self.nulls = self.used = 0
        return taken  # type: ignore[return-value]

    def take_objects(self) -> list[Any]:
        """Return the objects of a JSON column, and empty the column."""
        taken = self.objects
        self.objects = []
        self.length = self.nulls = 0
        self.valid = bytearray()
        return taken


def _cut(buf: bytearray | None, n: int) -> bytearray | None:
    """Truncate a buffer to n bytes in place."""
    if buf is not None:
        del buf[n:]
    return buf

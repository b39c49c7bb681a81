"""One Arrow column under construction.

The buffers are Arrow's own, so that finishing a column copies nothing:

    fixed width   data     n values of 1, 2, 4, 8 or 16 bytes (decimals), in the machine's order
    boolean       data     n bits, least significant first
    string        data     all texts one after the other
                  offsets  n + 1 int32: value i is data[offsets[i]:offsets[i + 1]]
    any           valid    n bits, 1 = not null; stays empty until the first null
    JSON          objects  what nested.py read, as Python's lists and dicts, until the batch is taken
    WHOLE, REAL   data     n int64, n doubles: of a column whose type was found, not told

Each is an over-allocated bytearray: `used` and `length` say how much of it is real. A null takes its place in the data
too (zero bytes of a string, a zero otherwise), as Arrow wants it.

`put` takes the text of a field and turns it into the column's type; text that is no value of the type becomes null, and
`bad` and `parser.bad` say so. `put_text` is the same for a caller that has checked that the text lies inside its
buffer: it reads through a pointer. Pointers live for one call and nothing is resized meanwhile.

WHOLE and REAL take nothing but plain numbers, so that what a column's first texts were (`store/schema_inference.py`)
is true of
all of them: digits as a whole number writes itself (7, -12; not 007, +7, -0); digits with a point among them perhaps
and an exponent behind, nan and inf. An empty text is null. WHOLE becomes REAL by itself, for which no text is needed;
anything else is NotPlain, and its reader begins anew with texts.

The text of an ID is made from that of the ID before, of which all digits but four are mostly the same.

Strings are checked for UTF-8 when they are copied: the OR of all bytes, eight at a time, settles ASCII, and the rest is
validated by a small automaton. What is not UTF-8 is replaced (U+FFFD), because one stray byte in one event must
not fail a job over millions of them; a binary column takes any bytes.

A string column holds at most 2^31 - 1 bytes a batch (its offsets are int32); the builder ends a batch long
before, and one entry that exceeds it alone raises OverflowError.

Cost: amortised O(n) for a value of n bytes. Rejected: pyarrow's builders (a Python object and a call for each value),
numpy (a dependency, and no faster for texts).
"""

from __future__ import annotations

try:
    import cython
except ModuleNotFoundError:  # interpreted, Cython not installed
    from rillet import _cython as cython
import struct
import sys
from typing import Any

from rillet.columns.value_parsing import ValueParser, exactly
from rillet.errors import RilletError

if cython.compiled:
    from cython.cimports.cpython.bytearray import (  # type: ignore[import-not-found, unused-ignore]
        PyByteArray_AS_STRING,
        PyByteArray_GET_SIZE,
    )
    from cython.cimports.libc.string import memcpy  # type: ignore[import-not-found, unused-ignore]
else:  # compiled code has them as C functions, through the .pxd
    from rillet.columns.value_parsing import check
    from rillet.protocol.reply_writer import put_digits

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
    """A column of found numbers met a text that is none."""


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def start_of(buf: bytearray) -> cython.p_uchar:
    """Return where the bytes of buf begin: a pointer for the current call, which resizes nothing."""
    if cython.compiled:
        return cython.cast(cython.p_uchar, PyByteArray_AS_STRING(buf))
    return buf


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def size_of(buf: bytearray) -> cython.Py_ssize_t:
    """Return len(buf)."""
    if cython.compiled:
        return PyByteArray_GET_SIZE(buf)
    return len(buf)


@cython.cfunc
@cython.inline
@cython.exceptval(-1, check=False)
def put_int32(dst: bytearray, i: cython.Py_ssize_t, value: cython.Py_ssize_t) -> cython.bint:
    """Write value as the i-th int32 of dst."""
    if i < 0 or i > (size_of(dst) >> 2) - 1:
        raise IndexError("write outside the buffer")
    if cython.compiled:
        narrow: cython.int = cython.cast(cython.int, value)
        memcpy(start_of(dst) + 4 * i, cython.address(narrow), 4)
        return True
    dst[4 * i : 4 * i + 4] = value.to_bytes(4, sys.byteorder)
    return True


@cython.cfunc
@cython.inline
@cython.exceptval(-1, check=False)
def int32_at(buf: bytearray, i: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """Return the i-th int32 of buf, which is not negative."""
    if i < 0 or i > (len(buf) >> 2) - 1:
        raise IndexError("read outside the buffer")
    if cython.compiled:
        narrow: cython.int = 0
        memcpy(cython.address(narrow), start_of(buf) + 4 * i, 4)
        return narrow
    return int.from_bytes(buf[4 * i : 4 * i + 4], sys.byteorder)


@cython.cfunc
@cython.inline
@cython.exceptval(-1, check=False)
def put_whole(dst: bytearray, at: cython.Py_ssize_t, value: cython.longlong, width: cython.Py_ssize_t) -> cython.bint:
    """Write value, which fits, in `width` bytes at dst[at:]."""
    if at < 0 or at > size_of(dst) - width:
        raise IndexError("write outside the buffer")
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
@cython.exceptval(-1, check=False)
def put_real(dst: bytearray, at: cython.Py_ssize_t, value: cython.double) -> cython.bint:
    """Write a double at dst[at:]."""
    if at < 0 or at > size_of(dst) - 8:
        raise IndexError("write outside the buffer")
    if cython.compiled:
        memcpy(start_of(dst) + at, cython.address(value), 8)
        return True
    dst[at : at + 8] = struct.pack("=d", value)
    return True


@cython.cfunc
@cython.inline
@cython.exceptval(-1, check=False)
def put_single(dst: bytearray, at: cython.Py_ssize_t, value: cython.double) -> cython.bint:
    """Write a float at dst[at:]: the nearest one, or infinity beyond its range."""
    if at < 0 or at > len(dst) - 4:
        raise IndexError("write outside the buffer")
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
def seen_in(data: cython.p_const_uchar, n: cython.Py_ssize_t) -> cython.ulonglong:
    """Return the OR of the n bytes at data, in no particular places; compiled only."""
    i: cython.Py_ssize_t = 8
    seen: cython.ulonglong = 0
    word: cython.ulonglong = 0
    half: cython.uint = 0
    if n >= 8:  # the last word may overlap the one before
        memcpy(cython.address(seen), data, 8)
        while i < n - 8:
            memcpy(cython.address(word), data + i, 8)
            seen |= word
            i += 8
        memcpy(cython.address(word), data + n - 8, 8)
        return seen | word
    if n >= 4:
        memcpy(cython.address(half), data, 4)
        seen = half
        memcpy(cython.address(half), data + n - 4, 4)
        return seen | half
    if n > 0:
        seen = data[0] | data[n >> 1] | data[n - 1]
    return seen


@cython.cfunc
@cython.inline
@cython.exceptval(-1, check=False)
def put_part(
    dst: bytearray, at: cython.Py_ssize_t, data: cython.p_const_uchar, start: cython.Py_ssize_t, n: cython.Py_ssize_t,
    limit: cython.Py_ssize_t,
) -> cython.int:  # fmt: skip
    """Copy data[start:start + n], which lies before `limit`, to dst[at:]; tell whether a byte of it is not ASCII.

    Most values are short: where source and target have 16 bytes, 16 are copied, which needs no call, and looked at as
    two words. What is behind the n bytes is overwritten by the next value.
    """
    if cython.compiled:
        room: cython.Py_ssize_t = PyByteArray_GET_SIZE(dst) - at
        if n < 0 or start < 0 or at < 0 or start > limit - n or n > room:
            raise IndexError("copy outside a buffer")
        to: cython.p_uchar = start_of(dst) + at
        low: cython.ulonglong = 0
        high: cython.ulonglong = 0
        data += start
        if n > 16 or start > limit - 16 or room < 16:
            memcpy(to, data, n)
            return 1 if seen_in(data, n) & _HIGH else 0
        memcpy(cython.address(low), data, 8)
        memcpy(cython.address(high), data + 8, 8)
        memcpy(to, data, 16)
        if not _LITTLE:
            return 1 if seen_in(data, n) & _HIGH else 0
        if n > 8:
            return 1 if (low | high << (8 * (16 - n))) & _HIGH else 0
        return 1 if n > 0 and (low << (8 * (8 - n))) & _HIGH else 0
    if n < 0 or start < 0 or at < 0 or start > limit - n or at > len(dst) - n:
        raise IndexError("copy outside a buffer")
    piece = data[start : start + n]
    dst[at : at + n] = piece
    return 0 if piece.isascii() else 1


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def negated(value: cython.longlong) -> cython.ulonglong:
    """Return the magnitude of a negative number."""
    rest: cython.longlong = -(value + 1)
    magnitude: cython.ulonglong = rest
    return magnitude + 1


@cython.cfunc
@cython.exceptval(check=False)
def is_utf8(buf: cython.p_const_uchar, start: cython.Py_ssize_t, n: cython.Py_ssize_t) -> cython.bint:
    """Tell whether buf[start:start + n] is UTF-8 as the Unicode standard has it (table 3-7)."""
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
    """Tell whether a text, not empty, begins and ends as a whole number writes itself."""
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
    """Tell whether a text, not empty, begins and ends with digits, a sign before them perhaps, and no needless zero."""
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
    """Tell whether a number is far from the ends of doubles, or 0 because it has no digit but 0 and no exponent."""
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
    """A named column of one kind; the registers start, size, number hold the value of the entry being read."""

    __slots__ = (
        "name", "source", "kind", "width", "length", "nulls", "data", "used", "offsets", "valid", "start", "size",
        "number", "parser", "next", "label", "precision", "scale", "bound", "read", "objects", "strict", "bad",
        "upper", "upper_text", "upper_size",
    )  # fmt: skip
    name: bytes
    source: cython.int
    kind: cython.int
    width: cython.Py_ssize_t
    length: cython.Py_ssize_t
    nulls: cython.Py_ssize_t
    data: bytearray
    used: cython.Py_ssize_t
    offsets: bytearray
    valid: bytearray
    start: cython.Py_ssize_t
    size: cython.Py_ssize_t
    number: cython.longlong
    parser: ValueParser
    next: Column  # the column on its right in the batch
    label: str  # the type, in Spark's words
    precision: cython.int
    scale: cython.int
    bound: Any  # 10^precision
    read: Any  # what makes an object of a JSON text
    objects: list[Any]
    strict: cython.bint  # bytes that are not UTF-8 are no string
    bad: cython.Py_ssize_t  # size of the entry's text that is no value of the kind, else ABSENT
    upper: cython.ulonglong  # the last ID's milliseconds without four digits; 0 is that of none
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
        """Make room for n more bytes of data, and for put_part's 16."""
        data: bytearray = self.data
        if n + 16 > size_of(data) - self.used:
            self._grow(n)
        return True

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _grow(self, n: cython.Py_ssize_t) -> cython.bint:
        self.data.extend(bytes(n + len(self.data)))
        return True

    @cython.cfunc
    @cython.inline
    @cython.exceptval(-1, check=False)
    def _ended(self) -> cython.bint:
        """Count the value just written: its end offset and its validity."""
        self.length += 1
        if self.nulls > 0:
            self._mark(True)
        return True

    @cython.cfunc
    @cython.inline
    @cython.exceptval(-1, check=False)
    def _ended_text(self) -> cython.bint:
        """Count the text just written: its end offset and its validity."""
        length: cython.Py_ssize_t = self.length + 1
        offsets: bytearray = self.offsets
        self.length = length
        if 4 * length + 4 > len(offsets):
            self._grow_offsets(0)
        if self.used > _INT32_MAX:
            raise OverflowError("a column's texts exceed 2 GiB in one batch")
        put_int32(offsets, length, self.used)
        if self.nulls > 0:
            self._mark(True)
        return True

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _grow_offsets(self, n: cython.Py_ssize_t) -> cython.bint:
        self.offsets.extend(bytes(4 * n + len(self.offsets)))
        return True

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _mark(self, valid: cython.bint) -> cython.bint:
        """Set the validity bit of the last value; the first null makes the bitmap."""
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
    @cython.exceptval(-1, check=False)
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
    @cython.exceptval(-1, check=False)
    def _put_bad(self, size: cython.Py_ssize_t) -> cython.bint:
        """Append a null for a value that is none of the kind; `bad` keeps its size, NUMBER for a number."""
        self.bad = size
        self.parser.bad = True
        return self.put_null()

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def put_integer(self, value: cython.longlong) -> cython.bint:
        """Append value, which the kind can hold, to a column of an integer, time or floating kind."""
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
        """Tell whether an integer kind can hold value."""
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
    @cython.exceptval(-1, check=False)
    def put_real_value(self, value: cython.double) -> cython.bint:
        """Append a floating-point value; a float column rounds it, beyond its range to infinity."""
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
    @cython.exceptval(-1, check=False)
    def _put_bit(self, value: cython.bint) -> cython.bint:
        """Write the bit of the value that comes at `length`; the bytes are zero to begin with."""
        i: cython.Py_ssize_t = self.length
        if (i >> 3) >= len(self.data):
            self.data.extend(bytes(len(self.data)))
        if value:
            self.data[i >> 3] |= 1 << (i & 7)
        self.used = (i >> 3) + 1
        return True

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def put(self, buf: bytearray, start: cython.Py_ssize_t, n: cython.Py_ssize_t) -> cython.bint:
        """Append the text buf[start:start + n] as a value of the column's kind, or null where it is none."""
        check(buf, start, n)
        return self.put_text(buf, start, n, len(buf))

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def put_text(
        self, data: cython.p_const_uchar, start: cython.Py_ssize_t, n: cython.Py_ssize_t, limit: cython.Py_ssize_t
    ) -> cython.bint:
        """Do put for a text that lies within data[:limit]: 0 <= start <= limit - n."""
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
        """Append data[start:start + n], which lies before `limit`, to a column of strings or of bytes."""
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
            raise OverflowError("a column's texts exceed 2 GiB in one batch")
        self.used = used
        self.length = length
        put_int32(offsets, length, used)
        if self.nulls > 0:
            self._mark(True)
        return True

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _put_rare(self, data: cython.p_const_uchar, start: cython.Py_ssize_t, n: cython.Py_ssize_t) -> cython.bint:
        """Append a text as a decimal, or as what its JSON says."""
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
        """Return number * 10^zeros, None beyond the precision; of Python's integers, which have room for it."""
        exact: object = number * 10**zeros  # type: ignore[operator]
        return exact if -self.bound < exact < self.bound else None

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _put_exact(self, exact: object, n: cython.Py_ssize_t) -> cython.bint:
        """Append a decimal of up to 128 bits; None where the text of n bytes is none."""
        if exact is None:
            return self._put_bad(n)
        whole: bytes = exact.to_bytes(16, sys.byteorder, signed=True)  # type: ignore[attr-defined]
        self._room(16)
        put_part(self.data, self.used, whole, 0, 16, 16)
        self.used += 16
        return self._ended()

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _put_halves(self, value: cython.longlong) -> cython.bint:
        """Write value in 16 bytes at `used`."""
        sign: cython.longlong = -1 if value < 0 else 0
        put_whole(self.data, self.used, value if _LITTLE else sign, 8)
        put_whole(self.data, self.used + 8, sign if _LITTLE else value, 8)
        return True

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def _fits_precision(self, value: cython.longlong) -> cython.bint:
        """Tell whether a number of at most 19 digits has no more than the precision."""
        bound: cython.longlong = 1
        if self.precision >= 19:
            return True
        for _ in range(self.precision):
            bound *= 10
        return -bound < value < bound

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _put_wide(self, data: cython.p_const_uchar, start: cython.Py_ssize_t, n: cython.Py_ssize_t) -> cython.bint:
        """Append a text that is not ASCII and already copied: as it is if it is UTF-8, else with replacements."""
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

    # ---- numbers that were found ---------------------------------------------------------------------------------

    def be_plain(self, kind: int) -> None:
        """Become a column of WHOLE or REAL, after the texts were taken."""
        if self.length:
            raise AssertionError("a column that holds values changes its kind")
        self.kind = kind
        self.width = WIDTHS[kind]
        self.label = LABELS[kind]
        self.offsets = bytearray()

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _put_plain(
        self, data: cython.p_const_uchar, start: cython.Py_ssize_t, n: cython.Py_ssize_t, limit: cython.Py_ssize_t
    ) -> cython.bint:
        """Append a plain number; an empty text is null, NotPlain anything else."""
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
            raise NotPlain(f"no plain number: {text[:100]!r}")
        return self.put_real_value(float(text))

    @cython.cfunc
    @cython.inline
    @cython.exceptval(-1, check=False)
    def _is_plain(
        self, data: cython.p_const_uchar, start: cython.Py_ssize_t, n: cython.Py_ssize_t, limit: cython.Py_ssize_t
    ) -> cython.bint:
        """Read a text, not empty, as a double of which nobody would read another one."""
        square: cython.double
        if not begins_plain(data, start, n) or not self.parser.read_decimal(data, start, n, limit):
            return False
        square = self.parser.real * self.parser.real  # signs come at random, and a product needs no branch
        if 1e-300 < square < 1e300:
            return True
        return is_sure(self.parser.real, data, start, n)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _widen(self) -> cython.bint:
        """Become REAL: what is there is rounded to doubles, as its texts would be."""
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
    @cython.exceptval(-1, check=False)
    def put_bytes(self, value: bytes) -> cython.bint:
        """Append a text given as bytes."""
        return self.put_text(value, 0, len(value), len(value))

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def put_number(self, value: cython.longlong) -> cython.bint:
        """Append a field that a listpack stores as an integer: as `put` does with its decimal text."""
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
        """Do put_register for this column and those on its right, up to one that is of no field, which is returned."""
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
        """Append what the registers hold, a text of data[:limit] or a number, and empty them."""
        n: cython.Py_ssize_t = self.size
        self.size = _ABSENT
        if n >= 0:
            if self.start < 0 or self.start > limit - n:
                raise IndexError("value outside the buffer")
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
    @cython.exceptval(-1, check=False)
    def put_id(self, ms: cython.ulonglong, seq: cython.ulonglong) -> cython.bint:
        """Append the text of an ID.

        IDs that follow each other have most digits of their milliseconds in common: all but the last four are kept.
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
        memcpy(to + at, start_of(text), 16)  # 2^64 / 10^4 has as many digits
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
    @cython.exceptval(-1, check=False)
    def put_decimal(self, value: cython.ulonglong, mark: cython.int) -> cython.bint:
        """Write the digits of value and, if not 0, the byte `mark` into a string that `end_text` ends."""
        self._room(21)
        to: cython.p_uchar = start_of(self.data)
        self.used = put_digits(to, self.used, value)
        if mark:
            to[self.used] = mark
            self.used += 1
        return True

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def end_text(self) -> cython.bint:
        """End the string that put_decimal wrote."""
        return self._ended_text()

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def put_block(self, texts: bytes, ends: bytearray, count: cython.Py_ssize_t) -> cython.bint:
        """Append `count` strings at once: one after the other in `texts`, their ends as int32 in `ends`."""
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
            raise OverflowError("a column's texts exceed 2 GiB in one batch")
        return True

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def truncate(self, length: cython.Py_ssize_t, used: cython.Py_ssize_t) -> cython.bint:
        """Forget the values from `length` on; for string columns without nulls (the map's two halves)."""
        self.length = length
        self.used = used
        return True

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def drop(self) -> cython.bint:
        """Forget the last value."""
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
        """Take the precision and scale of a decimal column."""
        self.precision = precision
        self.scale = scale
        self.bound = 10**precision
        self.label = f"decimal({precision},{scale})"

    def value(self, i: int) -> bytes:
        """Return the bytes of string i."""
        if not 0 <= i < self.length:
            raise IndexError(i)
        return bytes(self.data[int32_at(self.offsets, i) : int32_at(self.offsets, i + 1)])

    def take(self) -> tuple[int, int, bytearray | None, bytearray | None, bytearray]:
        """Return (values, nulls, validity, offsets, data), each buffer cut to size, and begin anew; O(1) copies."""
        n = self.length
        valid = self.valid if self.nulls else None
        offsets = self.offsets if self.kind in (STRING, BINARY) else None
        taken = n, self.nulls, _cut(valid, (n + 7) >> 3), _cut(offsets, 4 * n + 4), _cut(self.data, self.used)
        # The next batch is as large, mostly; what grows is copied.
        self.data = bytearray(max(1024, self.used + (self.used >> 4) + 64))
        self.offsets = bytearray(0 if offsets is None else max(1024, 4 * n + 4))
        self.valid = bytearray()
        self.length = self.nulls = self.used = 0
        return taken  # type: ignore[return-value]

    def take_objects(self) -> list[Any]:
        """Return the objects of a JSON column and begin anew."""
        taken = self.objects
        self.objects = []
        self.length = self.nulls = 0
        self.valid = bytearray()
        return taken


def _cut(buf: bytearray | None, n: int) -> bytearray | None:
    """Cut the buffer to n bytes in place."""
    if buf is not None:
        del buf[n:]
    return buf

"""One Arrow column under construction.

The buffers are Arrow's own, so that finishing a column copies nothing:

    fixed width   data     n values of 1, 2, 4 or 8 bytes, little endian
    boolean       data     n bits, least significant first
    string        data     all texts one after the other
                  offsets  n + 1 int32: value i is data[offsets[i]:offsets[i + 1]]
    any           valid    n bits, 1 = not null; stays empty until the first null

Each is an over-allocated bytearray: `used` and `length` say how much of it is real. A null takes its place in the data
too (zero bytes of a string, a zero otherwise), as Arrow wants it.

`put` takes the text of a field and turns it into the column's type; text that is no value of the type becomes null.
Strings are checked for UTF-8 while they are copied: the copy ORs all bytes, so ASCII is settled for free, and the
rest is validated by a small automaton. What is not UTF-8 is replaced (U+FFFD), because one stray byte in one event must
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

from rillet.columns.text import Parser

STRING, BINARY, BOOLEAN, BYTE, SHORT, INT, LONG, FLOAT, DOUBLE, TIMESTAMP, DATE = range(11)
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
WIDTHS = (0, 0, 0, 1, 2, 4, 8, 4, 8, 8, 4)

ABSENT = -1
NUMBER = -2
_ABSENT = cython.declare(cython.Py_ssize_t, -1)
_NUMBER = cython.declare(cython.Py_ssize_t, -2)
_INT32_MAX = cython.declare(cython.Py_ssize_t, 2147483647)
_MAX_MILLISECONDS = cython.declare(cython.longlong, ((1 << 63) - 1) // 1000)


@cython.cfunc
@cython.inline
def copy_or(
    dst: bytearray, at: cython.Py_ssize_t, src: bytearray, start: cython.Py_ssize_t, n: cython.Py_ssize_t
) -> cython.int:
    """Copy src[start:start + n] to dst[at:] and return the OR of the bytes; never leaves either buffer."""
    if n < 0 or start < 0 or at < 0 or start > len(src) - n or at > len(dst) - n:
        raise IndexError("copy outside a buffer")
    seen: cython.uint = 0
    if cython.compiled:
        i: cython.Py_ssize_t
        to: cython.p_uchar = dst
        come: cython.p_uchar = src
        to += at
        come += start
        for i in range(n):
            to[i] = come[i]
            seen |= come[i]
        return seen
    piece = src[start : start + n]
    dst[at : at + n] = piece
    return 0 if piece.isascii() else 0x80


@cython.cfunc
@cython.inline
def put_little(dst: bytearray, at: cython.Py_ssize_t, value: cython.longlong, width: cython.Py_ssize_t) -> cython.bint:
    """Write the low `width` bytes of value at dst[at:], little endian."""
    if at < 0 or at > len(dst) - width:
        raise IndexError("write outside the buffer")
    if cython.compiled:
        to: cython.p_uchar = dst
        to += at
        bits: cython.ulonglong = value
        i: cython.Py_ssize_t
        if width == 8:  # constant widths become one store each
            for i in range(8):
                to[i] = (bits >> (8 * i)) & 0xFF
        elif width == 4:
            for i in range(4):
                to[i] = (bits >> (8 * i)) & 0xFF
        else:
            for i in range(width):
                to[i] = (bits >> (8 * i)) & 0xFF
        return True
    dst[at : at + width] = (value & ((1 << (8 * width)) - 1)).to_bytes(width, "little")
    return True


@cython.cfunc
@cython.inline
def put_real(dst: bytearray, at: cython.Py_ssize_t, value: cython.double) -> cython.bint:
    """Write a double at dst[at:]."""
    if at < 0 or at > len(dst) - 8:
        raise IndexError("write outside the buffer")
    if cython.compiled:
        to: cython.p_uchar = dst
        come: cython.p_uchar = cython.cast(cython.p_uchar, cython.address(value))
        i: cython.Py_ssize_t
        for i in range(8):
            to[at + i] = come[i]
        return True
    dst[at : at + 8] = struct.pack("<d", value)
    return True


@cython.cfunc
def is_utf8(buf: bytearray, start: cython.Py_ssize_t, n: cython.Py_ssize_t) -> cython.bint:
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


@cython.final
@cython.cclass
class Column:
    """A named column of one kind; the registers start, size, number hold the value of the entry being read."""

    __slots__ = (
        "name", "source", "kind", "width", "length", "nulls", "data", "used", "offsets", "valid",
        "start", "size", "number", "parser",
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
    parser: Parser

    def __init__(self, name: bytes, source: int, kind: int, parser: Parser) -> None:
        self.name = name
        self.source = source
        self.kind = kind
        self.width = WIDTHS[kind]
        self.parser = parser
        self.start = 0
        self.size = -1
        self.number = 0
        self.data = bytearray(1024)
        self.offsets = bytearray(1024 if kind in (STRING, BINARY) else 0)
        self.valid = bytearray()
        self.length = self.nulls = self.used = 0

    @cython.cfunc
    @cython.inline
    def _room(self, n: cython.Py_ssize_t) -> cython.bint:
        """Make room for n more bytes of data."""
        if n > len(self.data) - self.used:
            self.data.extend(bytes(n + len(self.data)))
        return True

    @cython.cfunc
    @cython.inline
    def _ended(self, valid: cython.bint) -> cython.bint:
        """Count the value just written: its end offset and its validity."""
        self.length += 1
        if self.kind <= _BINARY:
            if self.used > _INT32_MAX:
                raise OverflowError("a column's texts exceed 2 GiB in one batch")
            if 4 * self.length + 4 > len(self.offsets):
                self.offsets.extend(bytes(len(self.offsets)))
            put_little(self.offsets, 4 * self.length, self.used, 4)
        if self.nulls > 0 or not valid:
            self._mark(valid)
        return True

    @cython.cfunc
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
    def put_null(self) -> cython.bint:
        """Append a null."""
        if self.width:
            self._room(self.width)
            put_little(self.data, self.used, 0, self.width)
            self.used += self.width
        elif self.kind == _BOOLEAN:
            self._put_bit(False)
        return self._ended(False)

    @cython.ccall
    def put_integer(self, value: cython.longlong) -> cython.bint:
        """Append value to a column of an integer, time or floating kind; out of the kind's range it becomes null."""
        kind: cython.int = self.kind
        if kind == _DOUBLE:
            self._room(8)
            put_real(self.data, self.used, value)
        elif kind == _FLOAT:
            self.put_real_value(value)
            return True
        else:
            if (
                ((kind == _INT or kind == _DATE) and (value > 2147483647 or value < -2147483648))
                or (kind == _SHORT and (value > 32767 or value < -32768))
                or (kind == _BYTE and (value > 127 or value < -128))
            ):
                return self.put_null()
            self._room(self.width)
            put_little(self.data, self.used, value, self.width)
        self.used += self.width
        return self._ended(True)

    @cython.ccall
    def put_real_value(self, value: cython.double) -> cython.bint:
        """Append a floating-point value; a float column rounds it, beyond its range to infinity."""
        self._room(8)
        if self.kind == _DOUBLE:
            put_real(self.data, self.used, value)
        else:
            try:
                self.data[self.used : self.used + 4] = struct.pack("<f", value)
            except OverflowError:
                self.data[self.used : self.used + 4] = struct.pack("<f", float("inf") if value > 0 else float("-inf"))
        self.used += self.width
        return self._ended(True)

    @cython.cfunc
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
    def put(self, buf: bytearray, start: cython.Py_ssize_t, n: cython.Py_ssize_t) -> cython.bint:
        """Append the text buf[start:start + n] as a value of the column's kind, or null where it is none."""
        kind: cython.int = self.kind
        if kind <= _BINARY:
            self._room(n)
            if copy_or(self.data, self.used, buf, start, n) >= 0x80 and kind == _STRING:
                return self._put_wide(buf, start, n)
            self.used += n
            return self._ended(True)
        if kind == _DOUBLE or kind == _FLOAT:
            if self.parser.decimal(buf, start, n):
                return self.put_real_value(self.parser.real)
        elif kind == _TIMESTAMP:
            if self.parser.timestamp(buf, start, n):
                return self.put_integer(self.parser.number)
        elif kind == _DATE:
            if self.parser.date(buf, start, n):
                return self.put_integer(self.parser.number)
        elif kind == _BOOLEAN:
            if self.parser.boolean(buf, start, n):
                self._put_bit(self.parser.number == 1)
                return self._ended(True)
        elif self.parser.integer(buf, start, n):
            return self.put_integer(self.parser.number)
        return self.put_null()

    @cython.cfunc
    def _put_wide(self, buf: bytearray, start: cython.Py_ssize_t, n: cython.Py_ssize_t) -> cython.bint:
        """Append a text that is not ASCII and already copied: as it is if it is UTF-8, else with replacements."""
        if not is_utf8(buf, start, n):
            text: bytes = bytes(buf[start : start + n]).decode("utf-8", "replace").encode()
            n = len(text)
            self._room(n)
            self.data[self.used : self.used + n] = text
        self.used += n
        return self._ended(True)

    @cython.ccall
    def put_bytes(self, value: bytes) -> cython.bint:
        """Append a text given as bytes."""
        return self.put(bytearray(value), 0, len(value))

    @cython.ccall
    def put_number(self, value: cython.longlong) -> cython.bint:
        """Append a field that a listpack stores as an integer: as `put` does with its decimal text."""
        kind: cython.int = self.kind
        if kind <= _BINARY:
            return self.put_bytes(b"%d" % value)
        if kind == _BOOLEAN:
            if value != 0 and value != 1:
                return self.put_null()
            self._put_bit(value == 1)
            return self._ended(True)
        if kind == _TIMESTAMP:
            if value > _MAX_MILLISECONDS or value < -_MAX_MILLISECONDS:
                return self.put_null()
            return self.put_integer(value * 1000)
        if kind == _DATE:
            return self.put_null()
        return self.put_integer(value)

    @cython.ccall
    def put_register(self, buf: bytearray) -> cython.bint:
        """Append what the registers hold, and empty them."""
        n: cython.Py_ssize_t = self.size
        self.size = _ABSENT
        if n >= 0:
            return self.put(buf, self.start, n)
        if n == _NUMBER:
            return self.put_number(self.number)
        return self.put_null()

    @cython.ccall
    def put_decimal(self, value: cython.ulonglong, mark: cython.int) -> cython.bint:
        """Write the digits of value and, if not 0, the byte `mark` into a string that `end_text` ends."""
        n: cython.Py_ssize_t = 1
        rest: cython.ulonglong = value
        while rest >= 10:
            rest //= 10
            n += 1
        self._room(n + 1)
        at: cython.Py_ssize_t = self.used + n
        self.used = at
        while n > 0:
            at -= 1
            n -= 1
            self.data[at] = 0x30 + value % 10
            value //= 10
        if mark:
            self.data[self.used] = mark
            self.used += 1
        return True

    @cython.ccall
    def end_text(self) -> cython.bint:
        """End the string that put_decimal wrote."""
        return self._ended(True)

    @cython.ccall
    def truncate(self, length: cython.Py_ssize_t, used: cython.Py_ssize_t) -> cython.bint:
        """Forget the values from `length` on; for string columns without nulls (the map's two halves)."""
        self.length = length
        self.used = used
        return True

    def value(self, i: int) -> bytes:
        """Return the bytes of string i."""
        if not 0 <= i < self.length:
            raise IndexError(i)
        start = int.from_bytes(self.offsets[4 * i : 4 * i + 4], "little")
        stop = int.from_bytes(self.offsets[4 * i + 4 : 4 * i + 8], "little")
        return bytes(self.data[start:stop])

    def take(self) -> tuple[int, int, bytearray | None, bytearray | None, bytearray]:
        """Return (values, nulls, validity, offsets, data), each buffer cut to size, and begin anew; O(1) copies."""
        n = self.length
        valid = self.valid if self.nulls else None
        offsets = self.offsets if self.kind in (STRING, BINARY) else None
        taken = n, self.nulls, _cut(valid, (n + 7) >> 3), _cut(offsets, 4 * n + 4), _cut(self.data, self.used)
        self.data = bytearray(max(1024, self.used))
        self.offsets = bytearray(0 if offsets is None else max(1024, 4 * n + 4))
        self.valid = bytearray()
        self.length = self.nulls = self.used = 0
        return taken  # type: ignore[return-value]


def _cut(buf: bytearray | None, n: int) -> bytearray | None:
    """Cut the buffer to n bytes in place."""
    if buf is not None:
        del buf[n:]
    return buf

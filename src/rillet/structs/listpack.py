"""The listpack: a list of byte strings and integers in one block of bytes (Redis: listpack.c).

    +-----------------+---------------+---------+---------+-- .. --+---------+------+
    | total bytes u32 | elements u16  | entry 0 | entry 1 |        | entry N | 0xFF |
    +-----------------+---------------+---------+---------+-- .. --+---------+------+
    0                 4               6

    entry:  | encoding, length | data | backlen |

Both header numbers are little-endian. The element count 65535 means "unknown, walk and count": it
is reached by adding and left again only when `length` has counted fewer. The encoding byte says how
long the entry is, so the list is walked forward; the backlen after it says the same (encoding and
data, without the backlen itself), written so that it can be read from its last byte, so the list is
walked backward from any position.

    0xxxxxxx                          integer 0 to 127
    10xxxxxx data                     string of 0 to 63 bytes
    110xxxxx xxxxxxxx                 13-bit signed integer, the high bits first
    1110xxxx xxxxxxxx data            string of up to 4095 bytes, the high bits first
    11110000 u32 data                 string of up to 2^32 - 1 bytes, the low byte first
    11110001 .. 11110100              16-, 24-, 32-, 64-bit signed integer, the low byte first
    11111111                          the end

A string that is the canonical decimal text of a 64-bit integer is stored as that integer in its
smallest form, and nothing else is: "007", "+7", "-0" and " 7" stay strings. A 7-bit group of the
backlen that is not the first has its high bit set. `docs/formats/listpack.md` draws all of it.

Positions are offsets into `buf`: of an entry's encoding byte, or of the 0xFF. A change moves what
lies behind it and may replace `buf`, so positions and buffers are taken anew after each change.

Invariants (`check`): `used` is the total in the header and at most `len(buf)`; `buf[used - 1]` is
0xFF and the entries end exactly there; each backlen tells its entry's length; the count is right or
unknown. What lies behind `used` is room to grow and is never read.

Costs: append, decode, next, prev and compare touch one entry; insert, replace and delete move the
bytes behind the position; seek and find walk, from the nearer end where the count is known. Room is
grown by half, so n appends cost O(n) copies.

Every step is checked against `used` before a byte is read, and each byte again by the bytearray, so
bytes that passed no validation raise Corrupt and read nothing from outside. Writing at the end is
checked once: room is made for all of an entry's words, and then each is written through a pointer (5 ns
a word, where checking each byte and closing the list after each took 20). Rejected: reading through
pointers with the checks at the edges (no faster than checked indexing, 2 ns a step), a Python list of
decoded entries beside the bytes (50 bytes a value), and keeping the header unwritten until it is
asked for (saves 2 ns an append, and whoever copies `buf` gets a wrong header); a module of its own
for the encodings (calls between modules are not inlined, so each step would take 2 ns more). A
deletion keeps the room it frees, where Redis gives it back at once; `shrink` gives it back.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

try:
    import cython
except ModuleNotFoundError:  # interpreted, Cython not installed
    from rillet import _cython as cython

from rillet.errors import Corrupt
from rillet.structs.argument_spans import ArgumentSpans

if cython.compiled:
    from cython.cimports.libc.string import memcmp, memcpy  # type: ignore[import-not-found, unused-ignore]
else:  # compiled code has them as C functions, through the .pxd
    from rillet.structs.memory import copy_out, copy_slice, equals, put_u32

HEADER_SIZE = 6
COUNT_UNKNOWN = 65535
MAX_BYTES = 2**32 - 1
SAFETY_LIMIT = 1 << 30  # listpack.c: LISTPACK_MAX_SAFETY_SIZE, what lpSafeToAdd allows

_HEADER = cython.declare(cython.Py_ssize_t, 6)
_UNKNOWN = cython.declare(cython.Py_ssize_t, 65535)
_MAX_BYTES = cython.declare(cython.Py_ssize_t, 4294967295)
_END = cython.declare(cython.int, 0xFF)
_INT_ROOM = cython.declare(cython.Py_ssize_t, 10)  # the longest entry of an integer

# What parse_int64 returns for text that is no integer. One text has this very value:
_MAX_INT = cython.declare(cython.longlong, 9223372036854775807)
_NOT_INT = cython.declare(cython.longlong, -_MAX_INT - 1)
_NOT_INT_TEXT = cython.declare(bytes, b"-9223372036854775808")


@cython.ccall
@cython.exceptval(-77777777777, check=True)
def parse_int64(text: bytes) -> cython.longlong:
    """Return the integer whose canonical decimal text this is, else -2^63 (Redis: lpStringToInt64).

    The one text of -2^63 gives -2^63 too; `is_int64` tells them apart.
    """
    return parse_digits(text, len(text))


@cython.cfunc
@cython.exceptval(check=False)
def parse_digits(text: cython.p_const_uchar, n: cython.Py_ssize_t) -> cython.longlong:
    """Do what parse_int64 does, for the n bytes at a place in memory."""
    i: cython.Py_ssize_t = 0
    v: cython.ulonglong = 0
    whole: cython.longlong
    c: cython.int
    negative: cython.bint = False
    if n == 0 or n > 20:
        return _NOT_INT
    if text[0] == 45:  # "-"
        negative = True
        i = 1
    if n - i > 19 or n == i:  # 19 digits fit 64 bits unsigned; 20 never fit signed
        return _NOT_INT
    if text[i] == 48 and (n > 1 or negative):  # a leading zero, and "-0"
        return _NOT_INT
    while i < n:
        c = text[i]
        if c < 48 or c > 57:
            return _NOT_INT
        v = v * 10 + (c - 48)
        i += 1
    if v >> 63:  # too large, or the one of that value
        return _NOT_INT
    whole = v
    return -whole if negative else whole


@cython.ccall
@cython.exceptval(-1, check=False)
def is_int64(text: bytes) -> cython.bint:
    """Say whether the text is a canonical decimal 64-bit integer (Redis: lpStringToInt64)."""
    return parse_int64(text) != _NOT_INT or text == _NOT_INT_TEXT


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def backlen_size(n: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """Bytes of the backlen of an entry of n bytes (Redis: lpEncodeBacklen).

    From the second step on the comparison is `<` where `<=` would do: 16383 takes three bytes. That
    is Redis's own, and the bytes must be Redis's.
    """
    if n <= 127:
        return 1
    if n < 16383:
        return 2
    if n < 2097151:
        return 3
    if n < 268435455:
        return 4
    return 5


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def int_size(v: cython.longlong) -> cython.Py_ssize_t:
    """Bytes of the encoding and data of an integer (Redis: lpEncodeIntegerGetType)."""
    if 0 <= v <= 127:
        return 1
    if -4096 <= v <= 4095:
        return 2
    if -32768 <= v <= 32767:
        return 3
    if -8388608 <= v <= 8388607:
        return 4
    if -2147483648 <= v <= 2147483647:
        return 5
    return 9


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def string_size(n: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """Bytes of the encoding and data of a string of n bytes (Redis: lpEncodeGetType)."""
    if n < 64:
        return 1 + n
    if n < 4096:
        return 2 + n
    return 5 + n


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def is_lowest(text: cython.p_const_uchar, n: cython.Py_ssize_t) -> cython.bint:
    """Say whether the n bytes are the text of -2^63, which parse_digits cannot tell from what is no integer."""
    if n != 20 or text[0] != 45:
        return False
    if cython.compiled:
        lowest: cython.p_const_uchar = _NOT_INT_TEXT
        return memcmp(text, lowest, 20) == 0
    same: bool = text[:20] == _NOT_INT_TEXT
    return same


# The writers work on a place in memory: `room` was asked for before, once for all that is written.


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def write_u32(p: cython.p_uchar, pos: cython.Py_ssize_t, v: cython.longlong) -> cython.bint:
    """Write the low 32 bits, the lowest byte first."""
    p[pos] = v & 0xFF
    p[pos + 1] = (v >> 8) & 0xFF
    p[pos + 2] = (v >> 16) & 0xFF
    p[pos + 3] = (v >> 24) & 0xFF
    return True


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def write_int(p: cython.p_uchar, pos: cython.Py_ssize_t, v: cython.longlong, size: cython.Py_ssize_t) -> cython.bint:
    """Write encoding and data of an integer whose int_size is size."""
    if size == 1:
        p[pos] = v & 0x7F
    elif size == 2:
        p[pos] = 0xC0 | ((v >> 8) & 0x1F)
        p[pos + 1] = v & 0xFF
    elif size == 3:
        p[pos] = 0xF1
        p[pos + 1] = v & 0xFF
        p[pos + 2] = (v >> 8) & 0xFF
    elif size == 4:
        p[pos] = 0xF2
        p[pos + 1] = v & 0xFF
        p[pos + 2] = (v >> 8) & 0xFF
        p[pos + 3] = (v >> 16) & 0xFF
    else:
        p[pos] = 0xF3 if size == 5 else 0xF4
        write_u32(p, pos + 1, v)
        if size == 9:
            write_u32(p, pos + 5, v >> 32)
    return True


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def write_string(
    p: cython.p_uchar, pos: cython.Py_ssize_t, value: cython.p_const_uchar, n: cython.Py_ssize_t
) -> cython.bint:
    """Write encoding, length and data of a string (Redis: lpEncodeString)."""
    if n < 64:
        p[pos] = 0x80 | n
        pos += 1
    elif n < 4096:
        p[pos] = 0xE0 | (n >> 8)
        p[pos + 1] = n & 0xFF
        pos += 2
    else:
        p[pos] = 0xF0
        write_u32(p, pos + 1, n)
        pos += 5
    if cython.compiled:
        memcpy(p + pos, value, n)
    else:
        p[pos : pos + n] = value[:n]
    return True


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def write_backlen(p: cython.p_uchar, pos: cython.Py_ssize_t, n: cython.Py_ssize_t) -> cython.bint:
    """Write the backlen of an entry of n bytes: 7 bits a byte, the high ones first, flagged after the first."""
    i: cython.Py_ssize_t
    if n <= 127:
        p[pos] = n
        return True
    for i in range(backlen_size(n) - 1, 0, -1):
        p[pos + i] = (n & 127) | 128
        n >>= 7
    p[pos] = n
    return True


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def write_word(
    p: cython.p_uchar, pos: cython.Py_ssize_t, value: cython.p_const_uchar, n: cython.Py_ssize_t
) -> cython.Py_ssize_t:
    """Write a value's whole entry, an integer's where it is one; return the position after it.

    No entry of an integer is longer than that of its text, so room for `word_size` bytes is enough.
    """
    size: cython.Py_ssize_t
    v: cython.longlong
    if 0 < n <= 20 and value[0] <= 57:  # not past "9": it may be a number
        v = parse_digits(value, n)
        if v != _NOT_INT or is_lowest(value, n):
            size = int_size(v)
            write_int(p, pos, v, size)
            p[pos + size] = size
            return pos + size + 1
    size = string_size(n)
    write_string(p, pos, value, n)
    write_backlen(p, pos + size, size)
    return pos + size + backlen_size(size)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def word_size(n: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """Bytes of the entry of a string of n bytes, its backlen included."""
    size: cython.Py_ssize_t = string_size(n)
    return size + backlen_size(size)


@cython.cfunc
@cython.inline
@cython.exceptval(-2, check=False)
def read_backlen(p: bytearray, pos: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """Read the backlen that ends at pos; -1 when it is longer than five bytes (Redis: lpDecodeBacklen).

    Reads down to pos - 4, which is inside the buffer: behind the header's six bytes, pos is 7 or more.
    """
    n: cython.Py_ssize_t = 0
    shift: cython.int = 0
    b: cython.Py_ssize_t
    while shift <= 28:
        b = p[pos]
        n |= (b & 127) << shift
        if b < 128:
            return n
        shift += 7
        pos -= 1
    return -1


@cython.cfunc
@cython.inline
@cython.exceptval(-1, check=False)
def entry_end(p: bytearray, pos: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """Return the position after the entry at pos, end being that of the 0xFF; Corrupt when it does not fit.

    Redis: lpSkip with the checks of lpValidateNext, the backlen's value apart.
    """
    b: cython.int
    n: cython.Py_ssize_t
    if pos < _HEADER or pos >= end:
        raise Corrupt("listpack: no entry at this position")
    b = p[pos]
    if b < 0x80:
        n = 1
    elif b < 0xC0:
        n = 1 + (b & 0x3F)
    elif b < 0xE0:
        n = 2
    elif b < 0xF0:
        n = 2 + (((b & 0x0F) << 8) | p[pos + 1])
    elif b == 0xF0:
        if pos + 5 > end:
            raise Corrupt("listpack: an entry reaches beyond the end")
        n = 5 + read_u32(p, pos + 1)
    elif b < 0xF4:
        n = b - 0xEE
    elif b == 0xF4:
        n = 9
    else:
        raise Corrupt("listpack: unknown encoding")
    pos += n + backlen_size(n)
    if pos > end:
        raise Corrupt("listpack: an entry reaches beyond the end")
    return pos


@cython.cfunc
@cython.inline
@cython.exceptval(-1, check=False)
def read_u32(p: bytearray, pos: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """Read four bytes, the lowest first."""
    n: cython.Py_ssize_t = p[pos + 3]
    n = (n << 8) | p[pos + 2]
    n = (n << 8) | p[pos + 1]
    return (n << 8) | p[pos]


@cython.cfunc
@cython.inline
@cython.exceptval(-77777777777, check=True)
def read_signed(p: bytearray, pos: cython.Py_ssize_t, n: cython.Py_ssize_t) -> cython.longlong:
    """Read n bytes, the lowest first, as a two's complement integer: the sign comes from the top byte."""
    i: cython.Py_ssize_t
    v: cython.longlong = p[pos + n - 1]
    if v >= 128:
        v -= 256
    for i in range(pos + n - 2, pos - 1, -1):
        v = v * 256 + p[i]
    return v


@cython.final
@cython.cclass
class Listpack:
    """One listpack, its bytes in `buf[:used]`; the at_ registers hold what `decode` found last."""

    __slots__ = ("at_int", "at_len", "at_next", "at_start", "buf", "used")

    buf: bytearray
    used: cython.Py_ssize_t
    at_start: cython.Py_ssize_t
    at_len: cython.Py_ssize_t
    at_int: cython.longlong
    at_next: cython.Py_ssize_t

    def __init__(self, capacity: cython.Py_ssize_t = 0) -> None:
        """Make an empty listpack with room for capacity bytes in all (Redis: lpNew)."""
        self.buf = bytearray(capacity if capacity > 7 else 7)
        self.buf[0] = 7
        self.buf[6] = 0xFF
        self.used = 7
        self.at_start = self.at_len = self.at_int = self.at_next = 0

    @staticmethod
    def from_bytes(data: bytes, deep: bool = True) -> Listpack:
        """Take over foreign bytes; Corrupt unless they validate. Shallow checks the frame alone."""
        lp: Listpack = Listpack()
        lp.buf = bytearray(data)
        lp.used = len(lp.buf)
        if not lp.validate(deep):
            raise Corrupt("listpack: not a valid listpack")
        return lp

    @staticmethod
    def merge(first: Listpack, second: Listpack) -> Listpack:
        """Return a new listpack with the entries of first, then those of second (Redis: lpMerge)."""
        total: cython.Py_ssize_t = first.used + second.used - 7
        count: cython.Py_ssize_t = first.length() + second.length()
        if total >= _MAX_BYTES:
            raise OverflowError("listpack would exceed 4294967295 bytes")
        out: Listpack = Listpack(total)
        out.used = total
        copy_slice(out.buf, 0, first.buf, 0, first.used - 1)
        copy_slice(out.buf, first.used - 1, second.buf, _HEADER, second.used - _HEADER)
        put_u32(out.buf, 0, total)
        out.set_count(count if count < _UNKNOWN else _UNKNOWN)
        return out

    # -- the whole

    @cython.ccall
    def to_bytes(self) -> bytes:
        """Return the listpack's bytes, as DUMP and RDB carry them."""
        return copy_out(self.buf, 0, self.used)

    @property
    def nbytes(self) -> int:
        """Bytes in use, the header and the 0xFF included (Redis: lpBytes)."""
        return self.used

    def __len__(self) -> int:
        return self.length()

    def __iter__(self) -> Iterator[bytes | int]:
        return iter(self.values())

    def __repr__(self) -> str:
        return f"<Listpack: {self.length()} entries in {self.used} bytes>"

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def length(self) -> cython.Py_ssize_t:
        """Return the number of entries; O(n) when unknown, and then a count below 65535 is kept (Redis: lpLength)."""
        n: cython.Py_ssize_t = self.count()
        pos: cython.Py_ssize_t = _HEADER
        end: cython.Py_ssize_t = self.used - 1
        if n != _UNKNOWN:
            return n
        n = 0
        while pos != end:
            pos = entry_end(self.buf, pos, end)
            n += 1
        if n < _UNKNOWN:
            self.set_count(n)
        return n

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def shrink(self) -> cython.bint:
        """Give the spare room back: a new buffer of exactly `used` bytes (Redis: lpShrinkToFit)."""
        exact: bytearray
        if self.used < len(self.buf):
            # A bytearray that is cut in place keeps its block until it is less than half full.
            exact = bytearray(self.used)
            copy_slice(exact, 0, self.buf, 0, self.used)
            self.buf = exact
        return True

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def can_append(self, nbytes: cython.Py_ssize_t) -> cython.bint:
        """Say whether nbytes more keep it within 1 GiB (Redis: lpSafeToAdd)."""
        return self.used + nbytes <= 1073741824

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def validate(self, deep: cython.bint = True) -> cython.bint:
        """Say whether the frame, and if deep each entry and the count, hold together (Redis: lpValidateIntegrity)."""
        p: bytearray = self.buf
        pos: cython.Py_ssize_t = _HEADER
        end: cython.Py_ssize_t = self.used - 1
        after: cython.Py_ssize_t
        n: cython.Py_ssize_t = 0
        count: cython.Py_ssize_t
        if end < _HEADER or end >= len(p) or read_u32(p, 0) != self.used or p[end] != _END:
            return False
        if not deep:
            return True
        try:
            while pos != end:
                after = entry_end(p, pos, end)
                count = read_backlen(p, after - 1)
                if count < 0 or pos + count + backlen_size(count) != after:
                    return False
                pos = after
                n += 1
        except Corrupt:
            return False
        count = self.count()
        return count in (n, _UNKNOWN)

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def check(self) -> cython.bint:
        """Raise Corrupt unless the invariants hold. O(n)."""
        if not self.validate(True):
            raise Corrupt("listpack: an invariant does not hold")
        return True

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def count(self) -> cython.Py_ssize_t:
        """Return the header's element count."""
        n: cython.Py_ssize_t = self.buf[5]
        return (n << 8) | self.buf[4]

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def set_count(self, n: cython.Py_ssize_t) -> cython.bint:
        """Write the header's element count."""
        self.buf[4] = n & 0xFF
        self.buf[5] = (n >> 8) & 0xFF
        return True

    # -- walking

    @cython.ccall
    @cython.exceptval(-2, check=True)
    def first(self) -> cython.Py_ssize_t:
        """Return the position of the first entry, or -1 (Redis: lpFirst)."""
        return _HEADER if self.used > 7 else -1

    @cython.ccall
    @cython.exceptval(-2, check=True)
    def last(self) -> cython.Py_ssize_t:
        """Return the position of the last entry, or -1 (Redis: lpLast)."""
        return self.prev(self.used - 1)

    @cython.ccall
    @cython.exceptval(-2, check=True)
    def next(self, pos: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Return the position of the entry after the one at pos, or -1 (Redis: lpNext)."""
        end: cython.Py_ssize_t = self.used - 1
        pos = entry_end(self.buf, pos, end)
        return pos if pos != end else -1

    @cython.ccall
    @cython.exceptval(-2, check=True)
    def prev(self, pos: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Return the position of the entry before pos, or -1; pos may be that of the 0xFF (Redis: lpPrev)."""
        n: cython.Py_ssize_t
        start: cython.Py_ssize_t
        if pos == _HEADER:
            return -1
        if pos < _HEADER or pos >= self.used:
            raise Corrupt("listpack: no entry at this position")
        n = read_backlen(self.buf, pos - 1)
        start = pos - n - backlen_size(n)
        if n < 1 or entry_end(self.buf, start, self.used - 1) != pos:
            raise Corrupt("listpack: a backlen does not match its entry")
        return start

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def skip(self, pos: cython.Py_ssize_t, count: cython.Py_ssize_t = 1) -> cython.Py_ssize_t:
        """Return the position after count entries, at most that of the 0xFF; Corrupt when there are fewer."""
        p: bytearray = self.buf
        end: cython.Py_ssize_t = self.used - 1
        while count > 0:
            pos = entry_end(p, pos, end)
            count -= 1
        return pos

    @cython.ccall
    @cython.exceptval(-2, check=True)
    def seek(self, index: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Return the position of the entry of that index, negative from the end, or -1 (Redis: lpSeek). O(n)."""
        n: cython.Py_ssize_t = self.count()
        pos: cython.Py_ssize_t
        if n != _UNKNOWN:
            if index < 0:
                index += n
            if index < 0 or index >= n:
                return -1
            if index > n // 2:  # past the middle: from the other end
                index -= n
        if index >= 0:
            pos = self.first()
            while index > 0 and pos != -1:
                pos = self.next(pos)
                index -= 1
        else:
            pos = self.last()
            while index < -1 and pos != -1:
                pos = self.prev(pos)
                index += 1
        return pos

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def is_end(self, pos: cython.Py_ssize_t) -> cython.bint:
        """Say whether pos is that of the 0xFF."""
        return pos == self.used - 1

    # -- reading

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def decode(self, pos: cython.Py_ssize_t) -> cython.bint:
        """Decode the entry at pos into the registers; True for a string (Redis: lpGetWithSize).

        A string lies in buf[at_start : at_start + at_len], an integer in at_int; at_next is the
        position after the entry.
        """
        p: bytearray = self.buf
        end: cython.Py_ssize_t = self.used - 1
        after: cython.Py_ssize_t = entry_end(p, pos, end)
        b: cython.int = p[pos]
        self.at_next = after
        if b < 0x80:
            self.at_int = b
            return False
        if b < 0xC0:
            self.at_start = pos + 1
            self.at_len = b & 0x3F
            return True
        if b < 0xE0:
            b = ((b & 0x1F) << 8) | p[pos + 1]
            self.at_int = b if b < 4096 else b - 8192
            return False
        if b < 0xF0:
            self.at_start = pos + 2
            self.at_len = ((b & 0x0F) << 8) | p[pos + 1]
            return True
        if b == 0xF0:
            self.at_start = pos + 5
            self.at_len = read_u32(p, pos + 1)
            return True
        self.at_int = read_signed(p, pos + 1, after - pos - 2)
        return False

    @cython.ccall
    def get(self, pos: cython.Py_ssize_t) -> object:
        """Return the entry at pos as bytes or int, as it is stored (Redis: lpGet)."""
        if self.decode(pos):
            return copy_out(self.buf, self.at_start, self.at_len)
        return self.at_int

    @cython.ccall
    def get_bytes(self, pos: cython.Py_ssize_t) -> bytes:
        """Return the entry at pos as bytes, an integer as its decimal text."""
        if self.decode(pos):
            return copy_out(self.buf, self.at_start, self.at_len)
        return b"%d" % self.at_int

    @cython.ccall
    @cython.exceptval(-77777777777, check=True)
    def get_int(self, pos: cython.Py_ssize_t) -> cython.longlong:
        """Return the integer at pos; Corrupt when a string is stored there."""
        if self.decode(pos):
            raise Corrupt("listpack: a string where an integer belongs")
        return self.at_int

    @cython.ccall
    def values(self) -> list[bytes | int]:
        """Return all entries as bytes and int."""
        out: list[Any] = []
        pos: cython.Py_ssize_t = _HEADER
        end: cython.Py_ssize_t = self.used - 1
        while pos != end:
            out.append(self.get(pos))
            pos = self.at_next
        return out

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def compare(self, pos: cython.Py_ssize_t, value: bytes) -> cython.bint:
        """Say whether the entry at pos is this value; at the 0xFF none is (Redis: lpCompare)."""
        v: cython.longlong
        if pos == self.used - 1:
            return False
        if self.decode(pos):
            return self.at_len == len(value) and equals(self.buf, self.at_start, value)
        v = parse_int64(value)
        return v == self.at_int and (v != _NOT_INT or value == _NOT_INT_TEXT)

    @cython.ccall
    @cython.exceptval(-2, check=True)
    def find(self, pos: cython.Py_ssize_t, value: bytes, skip: cython.Py_ssize_t = 0) -> cython.Py_ssize_t:
        """Return the position of the value from pos on, skip entries passed over after each compared, or -1.

        Redis: lpFind. O(n). In a list of pairs skip=1 finds a field. Fewer entries than skip left: -1.
        """
        end: cython.Py_ssize_t = self.used - 1
        n: cython.Py_ssize_t = len(value)
        v: cython.longlong = parse_int64(value)
        integer: cython.bint = v != _NOT_INT or value == _NOT_INT_TEXT
        left: cython.Py_ssize_t
        while pos != end:
            if self.decode(pos):
                if self.at_len == n and equals(self.buf, self.at_start, value):
                    return pos
            elif integer and self.at_int == v:
                return pos
            pos = self.at_next
            left = skip
            while left > 0 and pos != end:
                pos = entry_end(self.buf, pos, end)
                left -= 1
        return -1

    # -- writing

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def append(self, value: bytes) -> cython.bint:
        """Add a value at the end (Redis: lpAppend)."""
        n: cython.Py_ssize_t = len(value)
        self.room(word_size(n))
        p: cython.p_uchar = self.buf
        self.used = write_word(p, self.used - 1, value, n) + 1
        return self.close(1)

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def append_int(self, v: cython.longlong) -> cython.bint:
        """Add an integer at the end (Redis: lpAppendInteger)."""
        self.room(_INT_ROOM)
        self.push_int(v)
        return self.close(1)

    # Many at once: `open` makes room for all, `push_` writes one behind the other, `close` puts the header right. In
    # between the listpack has no end.

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def open(
        self, ints: cython.Py_ssize_t, words: ArgumentSpans, first: cython.Py_ssize_t, step: cython.Py_ssize_t,
        count: cython.Py_ssize_t,
    ) -> cython.bint:  # fmt: skip
        """Make room to push so many integers and the words first, first + step, ... of `words`, count of them."""
        need: cython.Py_ssize_t = ints * _INT_ROOM
        index: cython.Py_ssize_t
        if first < 0 or count < 0 or step < 1 or count * step > words.count - first + step - 1:
            raise IndexError("words beyond the last")
        for index in range(count):
            need += word_size(words.size[first + index * step])
        self.room(need)
        return True

    @cython.cfunc
    @cython.exceptval(check=False)
    def push_int(self, v: cython.longlong) -> cython.bint:
        """Write an integer behind what was pushed."""
        p: cython.p_uchar = self.buf
        pos: cython.Py_ssize_t = self.used - 1
        size: cython.Py_ssize_t = int_size(v)
        write_int(p, pos, v, size)
        p[pos + size] = size
        self.used = pos + size + 2
        return True

    @cython.cfunc
    @cython.exceptval(check=False)
    def push_words(
        self, words: ArgumentSpans, first: cython.Py_ssize_t, step: cython.Py_ssize_t, count: cython.Py_ssize_t
    ) -> cython.bint:
        """Write the words that `open` was told of."""
        p: cython.p_uchar = self.buf
        pos: cython.Py_ssize_t = self.used - 1
        at: cython.pp_const_uchar = words.at
        size: cython.p_Py_ssize_t = words.size
        index: cython.Py_ssize_t
        for index in range(first, first + count * step, step):
            pos = write_word(p, pos, at[index], size[index])
        self.used = pos + 1
        return True

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def close(self, count: cython.Py_ssize_t) -> cython.bint:
        """End the listpack behind what was pushed, count entries."""
        p: cython.p_uchar = self.buf
        p[self.used - 1] = 0xFF
        write_u32(p, 0, self.used)
        return self.recount(count)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def matches(
        self, pos: cython.Py_ssize_t, words: ArgumentSpans, first: cython.Py_ssize_t, step: cython.Py_ssize_t,
        count: cython.Py_ssize_t,
    ) -> cython.bint:  # fmt: skip
        """Say whether the entries from pos on are the words first, first + step, ..., count of them. O(count)"""
        p: cython.p_uchar
        end: cython.Py_ssize_t = self.used - 1
        index: cython.Py_ssize_t
        n: cython.Py_ssize_t
        if first < 0 or count < 0 or step < 1 or count * step > words.count - first + step - 1:
            raise IndexError("words beyond the last")
        for index in range(first, first + count * step, step):
            p = self.buf
            n = words.size[index]
            # A short string is told by its encoding byte: nearly every name of a field is one.
            if n < 64 and pos <= end - n - 2 and p[pos] == 0x80 | n:
                if cython.compiled:
                    if memcmp(p + pos + 1, words.at[index], n) != 0:
                        return False
                elif p[pos + 1 : pos + 1 + n] != words.at[index]:
                    return False
                pos += n + 2
            elif self.compare(pos, words.get(index)):
                pos = self.at_next
            else:
                return False
        return True

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def prepend(self, value: bytes) -> cython.bint:
        """Add a value at the beginning (Redis: lpPrepend). O(n)."""
        self.insert(_HEADER, value, False)
        return True

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def prepend_int(self, v: cython.longlong) -> cython.bint:
        """Add an integer at the beginning (Redis: lpPrependInteger). O(n)."""
        self.insert_int(_HEADER, v, False)
        return True

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def insert(self, pos: cython.Py_ssize_t, value: bytes, after: cython.bint) -> cython.Py_ssize_t:
        """Add a value before or after the entry at pos and return its position (Redis: lpInsertString). O(n)."""
        pos = self.place(pos, after)
        self.put(pos, 0, value)
        self.recount(1)
        return pos

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def insert_int(self, pos: cython.Py_ssize_t, v: cython.longlong, after: cython.bint) -> cython.Py_ssize_t:
        """Add an integer before or after the entry at pos and return its position (Redis: lpInsertInteger). O(n)."""
        pos = self.place(pos, after)
        self.put_int(pos, 0, v)
        self.recount(1)
        return pos

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def replace(self, pos: cython.Py_ssize_t, value: bytes) -> cython.Py_ssize_t:
        """Put a value in place of the entry at pos and return its position (Redis: lpReplace). O(n)."""
        self.put(pos, entry_end(self.buf, pos, self.used - 1) - pos, value)
        return pos

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def replace_int(self, pos: cython.Py_ssize_t, v: cython.longlong) -> cython.Py_ssize_t:
        """Put an integer in place of the entry at pos and return its position (Redis: lpReplaceInteger). O(n)."""
        if 0 <= v <= 127 and _HEADER <= pos < self.used - 1 and self.buf[pos] < 0x80 and self.buf[pos + 1] == 1:
            self.buf[pos] = v  # one byte for another: every XADD counts its entry so
            return pos  # (an odd backlen, such as 0x81, would read on into the new value)
        self.put_int(pos, entry_end(self.buf, pos, self.used - 1) - pos, v)
        return pos

    @cython.ccall
    @cython.exceptval(-2, check=True)
    def delete(self, pos: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Remove the entry at pos; return the position of the one that followed it, or -1 (Redis: lpDelete). O(n)."""
        self.gap(pos, entry_end(self.buf, pos, self.used - 1) - pos, 0)
        self.recount(-1)
        return pos if pos != self.used - 1 else -1

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def delete_range(self, index: cython.Py_ssize_t, count: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Remove up to count entries from that index on; return how many went (Redis: lpDeleteRange). O(n)."""
        deleted: cython.Py_ssize_t = 0
        end: cython.Py_ssize_t = self.used - 1
        start: cython.Py_ssize_t
        tail: cython.Py_ssize_t
        if count <= 0:
            return 0
        start = self.seek(index)
        if start == -1:
            return 0
        tail = start
        while deleted < count and tail != end:
            tail = entry_end(self.buf, tail, end)
            deleted += 1
        self.gap(start, tail - start, 0)
        self.recount(-deleted)
        return deleted

    @cython.cfunc
    def room(self, need: cython.Py_ssize_t) -> bytearray:
        """Make room for need more bytes and return the buffer; OverflowError beyond 2^32 - 1 bytes in all."""
        have: cython.Py_ssize_t = len(self.buf)
        need += self.used
        if need > _MAX_BYTES:
            raise OverflowError("listpack would exceed 4294967295 bytes")
        if need > have:
            self.buf.extend(bytes(need + (need >> 1) - have))
        return self.buf

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def recount(self, change: cython.Py_ssize_t) -> cython.bint:
        """Add to the element count, which stays unknown once it is."""
        n: cython.Py_ssize_t = self.count()
        if n != _UNKNOWN:
            self.set_count(min(n + change, _UNKNOWN))
        return True

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def place(self, pos: cython.Py_ssize_t, after: cython.bint) -> cython.Py_ssize_t:
        """Return where an entry goes that is to stand before or after the one at pos."""
        if after:
            return entry_end(self.buf, pos, self.used - 1)
        if pos < _HEADER or pos >= self.used:
            raise Corrupt("listpack: no entry at this position")
        return pos

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def gap(self, pos: cython.Py_ssize_t, replaced: cython.Py_ssize_t, size: cython.Py_ssize_t) -> cython.bint:
        """Make the replaced bytes at pos size bytes instead, moving what lies behind; the count stays."""
        behind: cython.Py_ssize_t = self.used - pos - replaced
        if size == replaced:
            return True
        if size > replaced:
            self.room(size - replaced)
        copy_slice(self.buf, pos + size, self.buf, pos + replaced, behind)
        self.used += size - replaced
        return put_u32(self.buf, 0, self.used)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def put(self, pos: cython.Py_ssize_t, replaced: cython.Py_ssize_t, value: bytes) -> cython.bint:
        """Write a value's entry over the replaced bytes at pos."""
        n: cython.Py_ssize_t = len(value)
        p: cython.p_uchar
        v: cython.longlong = parse_int64(value)
        if v != _NOT_INT or value == _NOT_INT_TEXT:
            return self.put_int(pos, replaced, v)
        self.gap(pos, replaced, word_size(n))
        p = self.buf
        write_word(p, pos, value, n)
        return True

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def put_int(self, pos: cython.Py_ssize_t, replaced: cython.Py_ssize_t, v: cython.longlong) -> cython.bint:
        """Write an integer's entry over the replaced bytes at pos."""
        size: cython.Py_ssize_t = int_size(v)
        p: cython.p_uchar
        self.gap(pos, replaced, size + 1)
        p = self.buf
        write_int(p, pos, v, size)
        p[pos + size] = size
        return True

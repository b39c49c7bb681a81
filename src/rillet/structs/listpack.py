"""The listpack: a list of byte strings and integers in one block of bytes (Redis: listpack.c).

    +-----------------+---------------+---------+---------+-- .. --+---------+------+
    | total bytes u32 | elements u16  | entry 0 | entry 1 |        | entry N | 0xFF |
    +-----------------+---------------+---------+---------+-- .. --+---------+------+
    0                 4               6

    entry:  | encoding, length | data | backlen |

Both header numbers are little-endian. The element count 65535 means "unknown: walk the entries to count
them". A listpack that grows to 65535 entries keeps this count until `length` counts fewer entries.
The encoding byte gives the length of the entry, so the list can be walked forward. The backlen
repeats that length (encoding and data, without the backlen itself) in a form that is read from its
last byte, so the list can be walked backward from any position.

    0xxxxxxx                          integer 0 to 127
    10xxxxxx data                     string of 0 to 63 bytes
    110xxxxx xxxxxxxx                 13-bit signed integer, high bits first
    1110xxxx xxxxxxxx data            string of up to 4095 bytes, high bits first
    11110000 u32 data                 string of up to 2^32 - 1 bytes, low byte first
    11110001 .. 11110100              16-, 24-, 32-, 64-bit signed integer, low byte first
    11111111                          end of the listpack

A string that is the canonical decimal text of a 64-bit integer is stored as that integer, in its
smallest form. All other strings stay strings: "007", "+7", "-0" and " 7" too. In a backlen, every
7-bit group except the first has its high bit set. `docs/formats/listpack.md` draws every form.

A position is an offset into `buf`, either of an entry's encoding byte or of the final 0xFF. Every
change moves the bytes after it and may replace `buf`, so read positions and buffers again after it.

Invariants (`check`): `used` equals the header's total and is at most `len(buf)`; `buf[used - 1]` is
0xFF, and the last entry ends just before it; each backlen matches its entry; the element count is
correct or unknown. The bytes after `used` are spare capacity and are never read.

Costs: append, decode, next, prev and compare touch one entry. insert, replace and delete move the
bytes after the position. find walks forward; seek walks from the nearer end if the count is known.
The capacity grows by half, so n appends copy O(n) bytes.

Every step compares its position with `used` before it reads a byte, and the bytearray checks each index
again. Malformed bytes therefore raise Corrupt and never cause a read outside the buffer. An append
reserves room for the whole entry once and then writes through a pointer: 5 ns an element, against
20 ns with a check for each byte. A deletion keeps the freed room until `shrink` releases it; Redis
releases the room at once.

Rejected alternatives:
- reading through pointers with checks at the edges: no faster than checked indexing (2 ns a step);
- a Python list of decoded entries beside the bytes: 50 bytes a value;
- writing the header on demand: saves 2 ns an append, but a copy of `buf` would have a wrong header;
- a separate module for the encodings: calls between modules are not inlined, 2 ns more a step.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from rillet._cython import cython, public, readonly
from rillet.errors import Corrupt
from rillet.structs.argument_spans import ArgumentSpans
from rillet.structs.integer_text import decimal
from rillet.structs.memory import copy_out, copy_slice, equals, put_u32

if cython.compiled:
    from cython.cimports.libc.string import memcmp, memcpy  # type: ignore[import-not-found, unused-ignore]

HEADER_SIZE = 6
COUNT_UNKNOWN = 65535
SAFETY_LIMIT = 1 << 30  # listpack.c: LISTPACK_MAX_SAFETY_SIZE, the greatest size that lpSafeToAdd allows

_HEADER = cython.declare(cython.Py_ssize_t, 6)
_UNKNOWN = cython.declare(cython.Py_ssize_t, 65535)
_MAX_BYTES = cython.declare(cython.Py_ssize_t, 4294967295)
_END = cython.declare(cython.int, 0xFF)
_KEPT = cython.declare(cython.Py_ssize_t, 8192)  # bytes of a buffer that `clear` and `load` keep
_INT_ROOM = cython.declare(cython.Py_ssize_t, 10)  # size of the longest integer entry, backlen included

# parse_int64 returns _NOT_INT for text that is not an integer, and also for _NOT_INT_TEXT, which is one.
_MAX_INT = cython.declare(cython.longlong, 9223372036854775807)
_NOT_INT = cython.declare(cython.longlong, -_MAX_INT - 1)
_NOT_INT_TEXT = cython.declare(bytes, b"-9223372036854775808")


@cython.ccall
@cython.exceptval(-77777777777, check=True)
def parse_int64(text: bytes) -> cython.longlong:
    """Return the integer of a canonical decimal text, or -2^63 for any other text (Redis: lpStringToInt64).

    The text of -2^63 itself also returns -2^63; use `is_int64` to distinguish the two cases.
    """
    return parse_digits(text, len(text))


@cython.cfunc
@cython.exceptval(check=False)
def parse_digits(text: cython.p_const_uchar, n: cython.Py_ssize_t) -> cython.longlong:
    """Parse the n bytes at a memory address as `parse_int64` does."""
    i: cython.Py_ssize_t = 0
    v: cython.ulonglong = 0
    negative: cython.bint = False
    if n == 0 or n > 20:
        return _NOT_INT
    if text[0] == 45:  # "-"
        negative = True
        i = 1
    if n - i > 19 or n == i:  # 19 digits fit into an unsigned 64-bit number; 20 digits never fit into a signed one
        return _NOT_INT
    if text[i] == 48 and (n > 1 or negative):  # leading zero, or "-0"
        return _NOT_INT
    while i < n:
        c: cython.int = text[i]
        if c < 48 or c > 57:
            return _NOT_INT
        v = v * 10 + (c - 48)
        i += 1
    if v >> 63:  # too large, or -2^63 itself
        return _NOT_INT
    whole: cython.longlong = v
    return -whole if negative else whole


@cython.ccall
def is_int64(text: bytes) -> cython.bint:
    """Return whether the text is a canonical decimal 64-bit integer (Redis: lpStringToInt64)."""
    return parse_int64(text) != _NOT_INT or text == _NOT_INT_TEXT


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def backlen_size(n: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """Return the size of the backlen for an entry of n bytes (Redis: lpEncodeBacklen).

    From the second threshold on, Redis compares with `<` where `<=` would be correct, so 16383 takes
    three bytes. The comparison is copied because the bytes must equal Redis's.
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
    """Return the size of an integer's encoding and data (Redis: lpEncodeIntegerGetType)."""
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
    """Return the size of the encoding and data of a string of n bytes (Redis: lpEncodeGetType)."""
    if n < 64:
        return 1 + n
    if n < 4096:
        return 2 + n
    return 5 + n


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def is_lowest(text: cython.p_const_uchar, n: cython.Py_ssize_t) -> cython.bint:
    """Return whether n bytes are the text of -2^63, for which `parse_digits` returns the same as for a non-integer."""
    if n != 20 or text[0] != 45:
        return False
    if cython.compiled:
        lowest: cython.p_const_uchar = _NOT_INT_TEXT
        return memcmp(text, lowest, 20) == 0
    same: bool = text[:20] == _NOT_INT_TEXT
    return same


# The functions named write_... write through a pointer without a check: the caller has reserved the room.


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def write_u32(p: cython.p_uchar, pos: cython.Py_ssize_t, v: cython.longlong) -> cython.bint:
    """Write the low 32 bits of v in little-endian order."""
    p[pos] = v & 0xFF
    p[pos + 1] = (v >> 8) & 0xFF
    p[pos + 2] = (v >> 16) & 0xFF
    p[pos + 3] = (v >> 24) & 0xFF
    return True


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def write_int(p: cython.p_uchar, pos: cython.Py_ssize_t, v: cython.longlong, size: cython.Py_ssize_t) -> cython.bint:
    """Write the encoding and data of an integer; size is its `int_size`."""
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
    """Write the encoding, length and data of a string (Redis: lpEncodeString)."""
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
    """Write the backlen of an entry of n bytes: 7 bits per byte, high bits first, flag 0x80 on all but the first."""
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
    """Write the entry of a value, in integer form if the value is an integer; return the position after the entry.

    An integer's entry is never longer than that of its text, so `word_size` bytes of room are enough.
    """
    if 0 < n <= 20 and value[0] <= 57:  # first byte is at most "9": possibly a number
        v: cython.longlong = parse_digits(value, n)
        if v != _NOT_INT or is_lowest(value, n):
            size: cython.Py_ssize_t = int_size(v)
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
    """Return the size of the entry for a string of n bytes, backlen included."""
    size: cython.Py_ssize_t = string_size(n)
    return size + backlen_size(size)


@cython.cfunc
@cython.inline
@cython.exceptval(-2, check=False)
def read_backlen(p: bytearray, pos: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """Read the backlen that ends at pos; return -1 if it is longer than five bytes (Redis: lpDecodeBacklen).

    The function reads no byte before pos - 4, which is inside the buffer: pos is at least 7, after the header.
    """
    n: cython.Py_ssize_t = 0
    shift: cython.int = 0
    while shift <= 28:
        b: cython.Py_ssize_t = p[pos]
        n |= (b & 127) << shift
        if b < 128:
            return n
        shift += 7
        pos -= 1
    return -1


@cython.cfunc
@cython.inline
def entry_end(p: bytearray, pos: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """Return the position after the entry at pos; raise Corrupt if the entry reaches past end, the 0xFF.

    Redis: lpSkip, with the checks of lpValidateNext except that of the backlen's value.
    """
    if pos < _HEADER or pos >= end:
        raise Corrupt("listpack: a position is outside the entries")
    b: cython.int = p[pos]
    if b < 0xC0:  # nearly all: a small integer, or a string of up to 63 bytes
        pos += 2 if b < 0x80 else 2 + (b & 0x3F)
    else:
        pos = _other_end(p, pos, end)
    if pos > end:
        raise Corrupt("listpack: an entry extends past the end")
    return pos


@cython.cfunc
def _other_end(p: bytearray, pos: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """Do `entry_end` for the other encodings."""
    b: cython.int = p[pos]
    n: cython.Py_ssize_t
    if b < 0xE0:
        n = 2
    elif b < 0xF0:
        n = 2 + (((b & 0x0F) << 8) | p[pos + 1])
    elif b == 0xF0:
        if pos + 5 > end:
            raise Corrupt("listpack: an entry extends past the end")
        n = 5 + read_u32(p, pos + 1)
    elif b < 0xF4:
        n = b - 0xEE
    elif b == 0xF4:
        n = 9
    else:
        raise Corrupt("listpack: an entry has an unknown encoding byte")
    return pos + n + backlen_size(n)


@cython.cfunc
@cython.inline
def read_u32(p: bytearray, pos: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """Read a little-endian 32-bit number."""
    n: cython.Py_ssize_t = p[pos + 3]
    n = (n << 8) | p[pos + 2]
    n = (n << 8) | p[pos + 1]
    return (n << 8) | p[pos]


@cython.cfunc
@cython.exceptval(-2, check=True)
def find_short(
    p: bytearray, pos: cython.Py_ssize_t, end: cython.Py_ssize_t, value: cython.p_const_uchar, n: cython.Py_ssize_t,
    skip: cython.Py_ssize_t,
) -> cython.Py_ssize_t:  # fmt: skip
    """Do `Listpack.find` for a string of up to 63 bytes: most entries differ in their first byte."""
    start: cython.Py_ssize_t
    size: cython.Py_ssize_t
    left: cython.Py_ssize_t = 0  # entries before the next one to compare
    q: cython.p_uchar = p
    while pos < end:
        b: cython.int = q[pos]
        if left > 0:
            left -= 1
        else:
            left = skip
            size = -1
            start = pos + 1
            if b == 0x80 | n:
                size = n
            elif 0xE0 <= b <= 0xF0 and entry_end(p, pos, end):  # a file may have a long header before a short string
                size = read_u32(p, pos + 1) if b == 0xF0 else ((b & 0x0F) << 8) | p[pos + 1]
                start = pos + 5 if b == 0xF0 else pos + 2
            if size == n and start + n < end:
                if cython.compiled:  # names often have one beginning, so the last byte is the first to compare
                    if n == 0 or (q[start + n - 1] == value[n - 1] and memcmp(q + start, value, n) == 0):
                        return pos
                elif p[start : start + n] == value[:n]:
                    return pos
        if b < 0x80:
            pos += 2
        elif b < 0xC0:
            pos += 2 + (b & 0x3F)
        else:
            pos = entry_end(p, pos, end)
    if pos > end:
        raise Corrupt("listpack: an entry extends past the end")
    return -1


@cython.cfunc
@cython.inline
@cython.exceptval(-77777777777, check=True)
def read_signed(p: bytearray, pos: cython.Py_ssize_t, n: cython.Py_ssize_t) -> cython.longlong:
    """Read a little-endian two's complement integer of n bytes; the top byte carries the sign."""
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
    """A listpack with its bytes in `buf[:used]`. `decode` stores its result in at_start, at_len, at_int and at_next."""

    __slots__ = ("at_int", "at_len", "at_next", "at_start", "buf", "used")

    buf: readonly[bytearray]
    used: public[cython.Py_ssize_t]
    at_start: readonly[cython.Py_ssize_t]
    at_len: readonly[cython.Py_ssize_t]
    at_int: readonly[cython.longlong]
    at_next: readonly[cython.Py_ssize_t]

    def __init__(self, capacity: cython.Py_ssize_t = 0) -> None:
        """Create an empty listpack with a capacity in bytes (Redis: lpNew)."""
        self.buf = bytearray(capacity if capacity > 7 else 7)
        self.buf[0] = 7
        self.buf[6] = 0xFF
        self.used = 7
        self.at_start = self.at_len = self.at_int = self.at_next = 0

    @staticmethod
    def from_bytes(data: bytes, deep: bool = True) -> Listpack:
        """Parse untrusted bytes; raise Corrupt if malformed. deep=False checks the header and the final 0xFF only."""
        lp: Listpack = Listpack()
        lp.buf = bytearray(data)
        lp.used = len(lp.buf)
        if not lp.validate(deep):
            raise Corrupt("listpack: not a valid listpack")
        return lp

    @staticmethod
    def from_values(values: Iterable[bytes]) -> Listpack:
        """Return a listpack of the values, without spare capacity."""
        lp: Listpack = Listpack()
        for value in values:
            lp.append(value)
        lp.shrink()
        return lp

    @staticmethod
    def merge(first: Listpack, second: Listpack) -> Listpack:
        """Return a new listpack with the entries of first followed by those of second (Redis: lpMerge)."""
        total: cython.Py_ssize_t = first.used + second.used - 7
        count: cython.Py_ssize_t = first.length() + second.length()
        if total >= _MAX_BYTES:
            raise OverflowError("the listpack would exceed 4294967295 bytes")
        out: Listpack = Listpack(total)
        out.used = total
        copy_slice(out.buf, 0, first.buf, 0, first.used - 1)
        copy_slice(out.buf, first.used - 1, second.buf, _HEADER, second.used - _HEADER)
        put_u32(out.buf, 0, total)
        out.set_count(count if count < _UNKNOWN else _UNKNOWN)
        return out

    # -- the whole listpack

    @cython.cfunc
    def load(self, source: cython.p_const_uchar, size: cython.Py_ssize_t) -> cython.bint:
        """Replace the contents by a listpack in memory with a trusted header; keep a small `buf`. O(bytes)"""
        if size > len(self.buf) or len(self.buf) > _KEPT:
            self.buf = bytearray(size)
        if cython.compiled:
            p: cython.p_uchar = self.buf
            memcpy(p, source, size)
        else:
            self.buf[:size] = source[:size]
        self.used = size
        return True

    @cython.cfunc
    def clear(self) -> cython.bint:
        """Remove all entries; a small buffer is kept. O(1)"""
        if len(self.buf) > _KEPT:
            self.buf = bytearray(7)
        self.used = 7
        self.set_count(0)
        self.buf[6] = 0xFF
        return put_u32(self.buf, 0, 7)

    @cython.ccall
    def to_bytes(self) -> bytes:
        """Return the serialized listpack, as in DUMP and RDB."""
        return copy_out(self.buf, 0, self.used)

    @cython.ccall
    def copy(self) -> Listpack:
        """Return a copy without spare capacity. O(bytes)"""
        twin: Listpack = Listpack(self.used)
        copy_slice(twin.buf, 0, self.buf, 0, self.used)
        twin.used = self.used
        return twin

    @property
    def nbytes(self) -> int:
        """Return the size in bytes, including the header and the 0xFF (Redis: lpBytes)."""
        return self.used

    def __len__(self) -> int:
        return self.length()

    def __iter__(self) -> Iterator[bytes | int]:
        return iter(self.values())

    def __repr__(self) -> str:
        return f"<Listpack: {self.length()} entries in {self.used} bytes>"

    @cython.ccall
    def length(self) -> cython.Py_ssize_t:
        """Return the number of entries (Redis: lpLength). O(1); O(n) if the header's count is 65535 (unknown)."""
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
    def shrink(self) -> cython.bint:
        """Release the spare capacity: replace the buffer by one of exactly `used` bytes (Redis: lpShrinkToFit)."""
        if self.used < len(self.buf):
            # A bytearray truncated in place keeps its allocation until it is less than half full.
            exact: bytearray = bytearray(self.used)
            copy_slice(exact, 0, self.buf, 0, self.used)
            self.buf = exact
        return True

    @cython.ccall
    def can_append(self, nbytes: cython.Py_ssize_t) -> cython.bint:
        """Return whether the listpack stays within 1 GiB if it grows by nbytes (Redis: lpSafeToAdd)."""
        return self.used + nbytes <= 1073741824

    @cython.ccall
    def validate(self, deep: cython.bint = True) -> cython.bint:
        """Return whether header and end are valid; deep=True also checks every entry (Redis: lpValidateIntegrity)."""
        p: bytearray = self.buf
        pos: cython.Py_ssize_t = _HEADER
        end: cython.Py_ssize_t = self.used - 1
        n: cython.Py_ssize_t = 0
        if end < _HEADER or end >= len(p) or read_u32(p, 0) != self.used or p[end] != _END:
            return False
        if not deep:
            return True
        try:
            while pos != end:
                after: cython.Py_ssize_t = entry_end(p, pos, end)
                count: cython.Py_ssize_t = read_backlen(p, after - 1)
                if count < 0 or pos + count + backlen_size(count) != after:
                    return False
                pos = after
                n += 1
        except Corrupt:
            return False
        count = self.count()
        return count in (n, _UNKNOWN)

    @cython.ccall
    def check(self) -> cython.bint:
        """Raise Corrupt if an invariant is broken. O(n)."""
        if not self.validate(True):
            raise Corrupt("listpack: an invariant is broken")
        return True

    @cython.cfunc
    def count(self) -> cython.Py_ssize_t:
        """Return the header's element count."""
        n: cython.Py_ssize_t = self.buf[5]
        return (n << 8) | self.buf[4]

    @cython.cfunc
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
        """Return the position of the entry before pos, or -1; pos may be the 0xFF (Redis: lpPrev)."""
        if pos == _HEADER:
            return -1
        if pos < _HEADER or pos >= self.used:
            raise Corrupt("listpack: a position is outside the entries")
        n: cython.Py_ssize_t = read_backlen(self.buf, pos - 1)
        start: cython.Py_ssize_t = pos - n - backlen_size(n)
        if n < 1 or entry_end(self.buf, start, self.used - 1) != pos:
            raise Corrupt("listpack: a backlen does not match its entry")
        return start

    @cython.ccall
    def skip(self, pos: cython.Py_ssize_t, count: cython.Py_ssize_t = 1) -> cython.Py_ssize_t:
        """Return the position `count` entries after pos. Raise Corrupt if fewer than `count` entries follow."""
        p: bytearray = self.buf
        end: cython.Py_ssize_t = self.used - 1
        while count > 0:
            pos = entry_end(p, pos, end)
            count -= 1
        return pos

    @cython.ccall
    @cython.exceptval(-2, check=True)
    def seek(self, index: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Return the position of the entry at an index (negative: from the end), or -1 (Redis: lpSeek). O(n)."""
        n: cython.Py_ssize_t = self.count()
        if n != _UNKNOWN:
            if index < 0:
                index += n
            if index < 0 or index >= n:
                return -1
            if index > n // 2:  # the entry is in the second half: walk from the end
                index -= n
        if index >= 0:
            pos: cython.Py_ssize_t = self.first()
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
    def is_end(self, pos: cython.Py_ssize_t) -> cython.bint:
        """Return whether pos is the position of the 0xFF."""
        return pos == self.used - 1

    # -- reading

    @cython.ccall
    def decode(self, pos: cython.Py_ssize_t) -> cython.bint:
        """Decode the entry at pos; return True for a string, False for an integer (Redis: lpGetWithSize).

        A string is in buf[at_start : at_start + at_len], an integer in at_int. at_next is the position
        after the entry.
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
        """Return the entry at pos as bytes or int, as stored (Redis: lpGet)."""
        if self.decode(pos):
            return copy_out(self.buf, self.at_start, self.at_len)
        return self.at_int

    @cython.ccall
    def get_bytes(self, pos: cython.Py_ssize_t) -> bytes:
        """Return the entry at pos as bytes, an integer as its decimal text."""
        if self.decode(pos):
            return copy_out(self.buf, self.at_start, self.at_len)
        return decimal(self.at_int)

    @cython.ccall
    @cython.exceptval(-77777777777, check=True)
    def get_int(self, pos: cython.Py_ssize_t) -> cython.longlong:
        """Return the integer at pos; raise Corrupt if the entry is a string."""
        if self.decode(pos):
            raise Corrupt("listpack: found a string where an integer is required")
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
    def texts(self) -> list[bytes]:
        """Return all entries as bytes, an integer as its decimal text."""
        out: list[Any] = []
        pos: cython.Py_ssize_t = _HEADER
        end: cython.Py_ssize_t = self.used - 1
        while pos != end:
            out.append(self.get_bytes(pos))
            pos = self.at_next
        return out

    @cython.ccall
    def compare(self, pos: cython.Py_ssize_t, value: bytes) -> cython.bint:
        """Return whether the entry at pos equals value. The final 0xFF equals no value (Redis: lpCompare)."""
        if pos == self.used - 1:
            return False
        if self.decode(pos):
            return self.at_len == len(value) and equals(self.buf, self.at_start, value)
        v: cython.longlong = parse_int64(value)
        return v == self.at_int and (v != _NOT_INT or value == _NOT_INT_TEXT)

    @cython.ccall
    @cython.exceptval(-2, check=True)
    def find(self, pos: cython.Py_ssize_t, value: bytes, skip: cython.Py_ssize_t = 0) -> cython.Py_ssize_t:
        """Search from pos for an entry equal to value; return its position, or -1 (Redis: lpFind). O(n).

        After each comparison, `skip` entries are skipped: skip=1 searches the fields of field-value pairs.
        If fewer than `skip` entries remain, the search ends with -1.
        """
        return self.find_span(pos, value, len(value), skip)

    @cython.cfunc
    @cython.exceptval(-2, check=True)
    def find_span(
        self, pos: cython.Py_ssize_t, value: cython.p_const_uchar, n: cython.Py_ssize_t, skip: cython.Py_ssize_t
    ) -> cython.Py_ssize_t:
        """Do `find` for the n bytes at a memory address."""
        end: cython.Py_ssize_t = self.used - 1
        v: cython.longlong = parse_digits(value, n)
        integer: cython.bint = v != _NOT_INT or is_lowest(value, n)
        if not integer and n < 64:
            return find_short(self.buf, pos, end, value, n, skip)
        while pos != end:
            if self.decode(pos):
                if self.at_len == n and self._is_at_start(value, n):
                    return pos
            elif integer and self.at_int == v:
                return pos
            pos = self.at_next
            left: cython.Py_ssize_t = skip
            while left > 0 and pos != end:
                pos = entry_end(self.buf, pos, end)
                left -= 1
        return -1

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def _is_at_start(self, value: cython.p_const_uchar, n: cython.Py_ssize_t) -> cython.bint:
        """Return whether the decoded string, whose length is n, equals the n bytes at a memory address."""
        if cython.compiled:
            p: cython.p_uchar = self.buf
            return memcmp(p + self.at_start, value, n) == 0
        return bool(self.buf[self.at_start : self.at_start + n] == value[:n])

    @cython.cfunc
    @cython.exceptval(-3, check=False)
    def order(self, pos: cython.Py_ssize_t, value: cython.p_const_uchar, n: cython.Py_ssize_t) -> cython.int:
        """Return -1, 0 or 1: whether the text of an entry is below, equal to or above n bytes (zzlCompareElements)."""
        text: bytes
        size: cython.Py_ssize_t
        difference: cython.int
        if self.decode(pos):
            size = self.at_len
            if cython.compiled:
                p: cython.p_uchar = self.buf
                difference = memcmp(p + self.at_start, value, min(size, n))
            else:
                text = bytes(self.buf[self.at_start : self.at_start + size])
                difference = (text > value[:n]) - (text < value[:n])
        else:
            text = decimal(self.at_int)
            size = len(text)
            if cython.compiled:
                q: cython.p_const_uchar = text
                difference = memcmp(q, value, min(size, n))
            else:
                difference = (text > value[:n]) - (text < value[:n])
        if difference == 0:
            difference = (size > n) - (size < n)
        return (difference > 0) - (difference < 0)

    # -- writing

    @cython.ccall
    def append(self, value: bytes) -> cython.bint:
        """Append a value (Redis: lpAppend)."""
        return self.append_span(value, len(value))

    @cython.cfunc
    def append_span(self, value: cython.p_const_uchar, n: cython.Py_ssize_t) -> cython.bint:
        """Append the n bytes at a memory address."""
        self.room(word_size(n))
        p: cython.p_uchar = self.buf
        self.used = write_word(p, self.used - 1, value, n) + 1
        return self.close(1)

    @cython.ccall
    def append_int(self, v: cython.longlong) -> cython.bint:
        """Append an integer (Redis: lpAppendInteger)."""
        self.room(_INT_ROOM)
        self.push_int(v)
        return self.close(1)

    @cython.ccall
    def append_range(
        self, source: Listpack, start: cython.Py_ssize_t, end: cython.Py_ssize_t, count: cython.Py_ssize_t
    ) -> cython.bint:
        """Append `count` entries of another listpack, from the position start up to end, as they are. O(bytes)"""
        if start < _HEADER or end < start or end > source.used - 1 or source is self:
            raise IndexError("the range is outside the entries of the other listpack")
        self.room(end - start)
        copy_slice(self.buf, self.used - 1, source.buf, start, end - start)
        self.used += end - start
        return self.close(count)

    # Bulk append: `open` reserves the room, `push_int` and `push_words` write entries, `close` writes the final 0xFF
    # and the header. Between `open` and `close` the listpack has no terminator.

    @cython.cfunc
    def open(
        self, ints: cython.Py_ssize_t, words: ArgumentSpans, first: cython.Py_ssize_t, step: cython.Py_ssize_t,
        count: cython.Py_ssize_t,
    ) -> cython.bint:  # fmt: skip
        """Reserve room for `ints` integers and for `count` arguments, the ones numbered first, first + step, ..."""
        need: cython.Py_ssize_t = ints * _INT_ROOM
        index: cython.Py_ssize_t
        if first < 0 or count < 0 or step < 1 or count * step > words.count - first + step - 1:
            raise IndexError("the command has fewer arguments than the requested range")
        for index in range(count):
            need += word_size(words.size[first + index * step])
        self.room(need)
        return True

    @cython.cfunc
    @cython.exceptval(check=False)
    def push_int(self, v: cython.longlong) -> cython.bint:
        """Write an integer after the entries pushed so far."""
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
        """Write arguments after the entries pushed so far; `open` must have reserved room for them."""
        p: cython.p_uchar = self.buf
        pos: cython.Py_ssize_t = self.used - 1
        at: cython.pp_const_uchar = words.at
        size: cython.p_Py_ssize_t = words.size
        index: cython.Py_ssize_t = first
        # Counted by hand: Cython makes a Python object of a range whose step is a variable.
        for _ in range(count):
            pos = write_word(p, pos, at[index], size[index])
            index += step
        self.used = pos + 1
        return True

    @cython.cfunc
    def close(self, count: cython.Py_ssize_t) -> cython.bint:
        """Terminate the listpack after `count` pushed entries and update its header."""
        p: cython.p_uchar = self.buf
        p[self.used - 1] = 0xFF
        write_u32(p, 0, self.used)
        return self.recount(count)

    @cython.cfunc
    def matches(
        self, pos: cython.Py_ssize_t, words: ArgumentSpans, first: cython.Py_ssize_t, step: cython.Py_ssize_t,
        count: cython.Py_ssize_t,
    ) -> cython.bint:  # fmt: skip
        """Return whether the entries from pos on equal the `count` arguments first, first + step, ... O(count)"""
        end: cython.Py_ssize_t = self.used - 1
        index: cython.Py_ssize_t = first
        if first < 0 or count < 0 or step < 1 or count * step > words.count - first + step - 1:
            raise IndexError("the command has fewer arguments than the requested range")
        for _ in range(count):
            p: cython.p_uchar = self.buf
            n: cython.Py_ssize_t = words.size[index]
            # Fast case: almost every field name has at most 63 bytes, so its encoding byte contains its length.
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
            index += step
        return True

    @cython.ccall
    def prepend(self, value: bytes) -> cython.bint:
        """Insert a value at the beginning (Redis: lpPrepend). O(n)."""
        self.insert(_HEADER, value, False)
        return True

    @cython.ccall
    def prepend_int(self, v: cython.longlong) -> cython.bint:
        """Insert an integer at the beginning (Redis: lpPrependInteger). O(n)."""
        self.insert_int(_HEADER, v, False)
        return True

    @cython.ccall
    def insert(self, pos: cython.Py_ssize_t, value: bytes, after: cython.bint) -> cython.Py_ssize_t:
        """Insert a value before or after the entry at pos; return its position (Redis: lpInsertString). O(n)."""
        pos = self.place(pos, after)
        self.insert_span(pos, value, len(value))
        return pos

    @cython.cfunc
    def insert_span(
        self, pos: cython.Py_ssize_t, value: cython.p_const_uchar, n: cython.Py_ssize_t
    ) -> cython.Py_ssize_t:
        """Insert the n bytes at a memory address before the entry at pos; return the position after the new entry."""
        pos = self.put(pos, 0, value, n)
        self.recount(1)
        return pos

    @cython.ccall
    def insert_int(self, pos: cython.Py_ssize_t, v: cython.longlong, after: cython.bint) -> cython.Py_ssize_t:
        """Insert an integer before or after the entry at pos; return its position (Redis: lpInsertInteger). O(n)."""
        pos = self.place(pos, after)
        self.put_int(pos, 0, v)
        self.recount(1)
        return pos

    @cython.ccall
    def replace(self, pos: cython.Py_ssize_t, value: bytes) -> cython.Py_ssize_t:
        """Replace the entry at pos by a value; return its position (Redis: lpReplace). O(n)."""
        self.replace_span(pos, value, len(value))
        return pos

    @cython.cfunc
    def replace_span(
        self, pos: cython.Py_ssize_t, value: cython.p_const_uchar, n: cython.Py_ssize_t
    ) -> cython.Py_ssize_t:
        """Replace the entry at pos by the n bytes at a memory address; return the position after the new entry."""
        return self.put(pos, entry_end(self.buf, pos, self.used - 1) - pos, value, n)

    @cython.ccall
    def replace_int(self, pos: cython.Py_ssize_t, v: cython.longlong) -> cython.Py_ssize_t:
        """Replace the entry at pos by an integer; return its position (Redis: lpReplaceInteger). O(n)."""
        if 0 <= v <= 127 and _HEADER <= pos < self.used - 1 and self.buf[pos] < 0x80 and self.buf[pos + 1] == 1:
            self.buf[pos] = v  # no other bytes move: every XADD updates its node's entry count this way
            return pos  # (the condition excludes a malformed backlen, such as 0x81)
        self.put_int(pos, entry_end(self.buf, pos, self.used - 1) - pos, v)
        return pos

    @cython.ccall
    @cython.exceptval(-2, check=True)
    def delete(self, pos: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Delete the entry at pos; return the position of the next entry, or -1 (Redis: lpDelete). O(n)."""
        self.gap(pos, entry_end(self.buf, pos, self.used - 1) - pos, 0)
        self.recount(-1)
        return pos if pos != self.used - 1 else -1

    @cython.ccall
    def delete_range(self, index: cython.Py_ssize_t, count: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Delete up to `count` entries from an index on. Return the number deleted (Redis: lpDeleteRange). O(n)."""
        deleted: cython.Py_ssize_t = 0
        end: cython.Py_ssize_t = self.used - 1
        if count <= 0:
            return 0
        start: cython.Py_ssize_t = self.seek(index)
        if start == -1:
            return 0
        tail: cython.Py_ssize_t = start
        while deleted < count and tail != end:
            tail = entry_end(self.buf, tail, end)
            deleted += 1
        self.gap(start, tail - start, 0)
        self.recount(-deleted)
        return deleted

    @cython.ccall
    def move_range(self, start: cython.Py_ssize_t, end: cython.Py_ssize_t, to: cython.Py_ssize_t) -> cython.bint:
        """Move the entries from the position start up to end before the entry at `to`, which is not among them. O(n)"""
        size: cython.Py_ssize_t = end - start
        if start < _HEADER or size < 0 or end > self.used - 1 or to < _HEADER or to > self.used - 1:
            raise IndexError("the range is outside the entries of the listpack")
        if start <= to <= end:
            return True
        self.room(size)  # the bytes wait behind the end
        copy_slice(self.buf, self.used, self.buf, start, size)
        if to < start:
            copy_slice(self.buf, to + size, self.buf, to, start - to)
        else:
            copy_slice(self.buf, start, self.buf, end, to - end)
            to -= size
        return copy_slice(self.buf, to, self.buf, self.used, size)

    @cython.cfunc
    def room(self, need: cython.Py_ssize_t) -> bytearray:
        """Reserve `need` more bytes and return the buffer. Raise OverflowError if the total exceeds 2^32 - 1 bytes."""
        have: cython.Py_ssize_t = len(self.buf)
        need += self.used
        if need > _MAX_BYTES:
            raise OverflowError("the listpack would exceed 4294967295 bytes")
        if need > have:
            self.buf.extend(bytes(need + (need >> 1) - have))
        return self.buf

    @cython.cfunc
    def recount(self, change: cython.Py_ssize_t) -> cython.bint:
        """Add `change` to the header's element count; an unknown count (65535) stays unknown."""
        n: cython.Py_ssize_t = self.count()
        if n != _UNKNOWN:
            self.set_count(min(n + change, _UNKNOWN))
        return True

    @cython.cfunc
    def place(self, pos: cython.Py_ssize_t, after: cython.bint) -> cython.Py_ssize_t:
        """Return the position at which to insert a new entry: pos itself, or the end of the entry at pos if after."""
        if after:
            return entry_end(self.buf, pos, self.used - 1)
        if pos < _HEADER or pos >= self.used:
            raise Corrupt("listpack: a position is outside the entries")
        return pos

    @cython.cfunc
    def gap(self, pos: cython.Py_ssize_t, replaced: cython.Py_ssize_t, size: cython.Py_ssize_t) -> cython.bint:
        """Replace `replaced` bytes at pos by room for `size` bytes and move the bytes after them."""
        behind: cython.Py_ssize_t = self.used - pos - replaced
        if size == replaced:
            return True
        if size > replaced:
            self.room(size - replaced)
        copy_slice(self.buf, pos + size, self.buf, pos + replaced, behind)
        self.used += size - replaced
        return put_u32(self.buf, 0, self.used)

    @cython.cfunc
    def put(
        self, pos: cython.Py_ssize_t, replaced: cython.Py_ssize_t, value: cython.p_const_uchar, n: cython.Py_ssize_t
    ) -> cython.Py_ssize_t:
        """Overwrite `replaced` bytes at pos with the entry of a value; return the position after it."""
        v: cython.longlong = parse_digits(value, n)
        if v != _NOT_INT or is_lowest(value, n):
            return self.put_int(pos, replaced, v)
        self.gap(pos, replaced, word_size(n))
        p: cython.p_uchar = self.buf
        return write_word(p, pos, value, n)

    @cython.cfunc
    def put_int(
        self, pos: cython.Py_ssize_t, replaced: cython.Py_ssize_t, v: cython.longlong
    ) -> cython.Py_ssize_t:
        """Overwrite `replaced` bytes at pos with the entry of an integer; return the position after it."""
        size: cython.Py_ssize_t = int_size(v)
        self.gap(pos, replaced, size + 1)
        p: cython.p_uchar = self.buf
        write_int(p, pos, v, size)
        p[pos + size] = size
        return pos + size + 1

"""Lengths, strings and times in RDB files and DUMP payloads (Redis: rdb.c, rdb.h).

The first two bits of a length determine its size:

    00LLLLLL                        0 .. 63
    01LLLLLL LLLLLLLL               64 .. 16383, big endian
    10000000 + 4 bytes              up to 2**32-1, big endian
    10000001 + 8 bytes              up to 2**64-1, big endian
    11tttttt                        not a length: a string in special form t

A string is stored as its length and its bytes, or in a special form: t=0, 1, 2 are integers of 1, 2 or 4 bytes, little
endian, which stand for their decimal text; t=3 is an LZF block: compressed length, length, block. The writer chooses
the form by Redis's rule (rdbSaveRawString): the text of a 32-bit integer becomes an integer form, and a string above 20
bytes is compressed if that is enabled and saves at least 4 bytes.

**RdbWriter** collects bytes in `out`. If it has a sink, it passes the bytes to the sink in pieces of about a megabyte,
so that a large value is never in memory twice. A piece may end wherever the caller calls `spill`.

**RdbReader** reads from bytes (a DUMP payload), or from a source of any length through a window:

        read before            the window                          not read yet
    ────────────────────┬───────────┬───────────────────────┬────────────────────
         in checksum    │ consumed  │ at ..          limit  │
    ────────────────────┴───────────┴───────────────────────┴────────────────────
                        base        base + at = position

If an item exceeds the window, the reader adds the consumed bytes to the checksum, drops them, and reads more bytes
after the remaining ones. The window doubles as bytes arrive, whatever size an item declares, so memory is bounded by
the size of the file. The source need not be seekable. Reading past the end raises Corrupt. `mark` is the start of the
item that was read last, for error messages. `corrected` describes what the loaders of values corrected.

Costs: a length or short string 5-20 ns compiled, a block O(bytes). Blocks are decompressed from the window into the
value's buffer, and compressed from there into the piece, without copies. Rejected: mapping the file (truncating it
meanwhile would kill the process, and a pipe cannot be mapped), and a first pass for the checksum (it doubles the
reading, and a malformed structure is detected anyway).
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from rillet._cython import cython, public, readonly
from rillet.errors import Corrupt
from rillet.structs.crc64 import crc64, crc64_of
from rillet.structs.lzf import pack, refuse_block, unpack

if cython.compiled:
    from cython.cimports.cpython.bytearray import (  # type: ignore[import-not-found, unused-ignore]
        PyByteArray_FromStringAndSize,
        PyByteArray_Resize,
    )
    from cython.cimports.cpython.bytes import (  # type: ignore[import-not-found, unused-ignore]
        PyBytes_FromStringAndSize,
    )
    from cython.cimports.libc.string import memcpy, memmove  # type: ignore[import-not-found, unused-ignore]

PIECE = 1 << 20
"""The number of bytes that are written or read at a time."""

_INT8 = cython.declare(cython.int, 0)
_INT16 = cython.declare(cython.int, 1)
_INT32 = cython.declare(cython.int, 2)
# The messages that Redis logs about an unreadable length or string.
_END = "Unexpected EOF reading RDB file"
_FORM = "Unknown length encoding"
_STRING = "Unknown RDB string encoding type"
_PIECE = cython.declare(cython.Py_ssize_t, 1 << 20)
_WINDOW = cython.declare(cython.Py_ssize_t, 1 << 20)
_MOST = cython.declare(cython.ulonglong, 1 << 62)  # an upper limit for the length of a string
# The bytes reserved before a compressed block: a form byte and two lengths, written after the compression.
_HEAD = cython.declare(cython.Py_ssize_t, 19)


class EmptyValue(Corrupt):
    """An empty list, set, hash or sorted set from an old server. As in Redis, loading a file skips the key."""


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def put_length(p: cython.p_uchar, at: cython.Py_ssize_t, n: cython.ulonglong) -> cython.Py_ssize_t:
    """Write a length into a buffer with at least 9 bytes of space; return the position after the length."""
    i: cython.Py_ssize_t
    if n < 64:
        p[at] = n
        return at + 1
    if n < 16384:
        p[at] = 0x40 | (n >> 8)
        p[at + 1] = n & 0xFF
        return at + 2
    width: cython.Py_ssize_t = 4 if n <= 0xFFFFFFFF else 8
    p[at] = 0x80 if width == 4 else 0x81
    for i in range(width, 0, -1):
        p[at + i] = n & 0xFF
        n >>= 8
    return at + 1 + width


@cython.cclass
class RdbWriter:
    """Writer of RDB bytes. `compression` is the setting rdbcompression; `sink` receives the bytes in pieces."""

    __slots__ = ("out", "compression", "sink")
    out: readonly[bytearray]
    compression: public[cython.bint]
    sink: public[Callable[[bytes], object] | None]

    def __init__(self, compression: bool = True, sink: Callable[[bytes], object] | None = None) -> None:
        self.out = bytearray()
        self.compression = compression
        self.sink = sink

    @cython.cfunc
    def _room(self, n: cython.Py_ssize_t) -> bytearray:
        """Extend the writer's buffer `out` by n bytes and return it."""
        if cython.compiled:
            PyByteArray_Resize(self.out, len(self.out) + n)
        else:
            self.out += bytes(n)
        return self.out

    @cython.cfunc
    def _cut(self, size: cython.Py_ssize_t) -> cython.bint:
        """Truncate the writer's buffer `out` to `size` bytes."""
        if cython.compiled:
            PyByteArray_Resize(self.out, size)
        else:
            del self.out[size:]
        return True

    @cython.ccall
    def spill(self) -> cython.bint:
        """Pass the collected bytes to the sink if there are at least PIECE bytes. Call this between two items."""
        if self.sink is not None and len(self.out) >= _PIECE:
            self.flush()
        return True

    @cython.ccall
    def flush(self) -> cython.bint:
        """Pass all collected bytes to the sink. The writer must have a sink."""
        data: bytes = bytes(self.out)
        self._cut(0)
        sink: Any = self.sink
        sink(data)
        return True

    @cython.ccall
    def raw(self, data: bytes | bytearray) -> cython.bint:
        """Append bytes unchanged."""
        self.out += data
        return True

    @cython.ccall
    def byte(self, n: cython.int) -> cython.bint:
        """Append one byte: an opcode or a type."""
        self.out.append(n)
        return True

    @cython.ccall
    def length(self, n: cython.ulonglong) -> cython.bint:
        """Append a length or count, 0 to 2**64-1 (rdbSaveLen)."""
        at: cython.Py_ssize_t = len(self.out)
        out: bytearray = self._room(9)
        return self._cut(put_length(out, at, n))

    @cython.ccall
    def string(self, data: bytes) -> cython.bint:
        """Append a string: as an integer, compressed or unchanged, by Redis's rule (rdbSaveRawString)."""
        if len(data) <= 11 and self._integer(data, len(data)):
            return True
        return self._plain(data, len(data))

    @cython.ccall
    def buffer(self, data: bytearray, size: cython.Py_ssize_t) -> cython.bint:
        """Append the first `size` bytes of a listpack's buffer as a string. They are never the text of an integer."""
        if size < 0 or size > len(data):
            raise IndexError("the size exceeds the buffer")
        return self._plain(data, size)

    @cython.cfunc
    def _plain(self, data: cython.p_const_uchar, size: cython.Py_ssize_t) -> cython.bint:
        """Append a string that is not an integer; compress it if `compression` is on and at least 4 bytes are saved."""
        at: cython.Py_ssize_t = len(self.out)
        block: cython.Py_ssize_t = 0
        out: bytearray = self._room(_HEAD + size + 8)
        if self.compression and size > 20:
            block = pack(data, size, out, at + _HEAD, size - 4)
        if block:
            out[at] = 0xC3
            end: cython.Py_ssize_t = put_length(out, at + 1, block)
            end = put_length(out, end, size)
            if cython.compiled:
                to: cython.p_uchar = out
                memmove(to + end, to + at + _HEAD, block)
            else:
                out[end : end + block] = out[at + _HEAD : at + _HEAD + block]
            return self._cut(end + block)
        end = put_length(out, at, size)
        if cython.compiled:
            to = out
            memcpy(to + end, data, size)
        else:
            out[end : end + size] = data[:size]
        return self._cut(end + size)

    @cython.cfunc
    def string_span(self, data: cython.p_const_uchar, size: cython.Py_ssize_t) -> cython.bint:
        """Do `string` for bytes at an address; interpreted, `data` is bytes."""
        if size <= 11 and self._integer(data, size):
            return True
        return self._plain(data, size)

    @cython.cfunc
    def _integer(self, data: cython.p_const_uchar, size: cython.Py_ssize_t) -> cython.bint:
        """Append text of at most 11 bytes as an integer of 1, 2 or 4 bytes; return False if it is not the text of one.

        Source: rdb.c rdbTryIntegerEncoding, rdbEncodeInteger.
        """
        i: cython.Py_ssize_t = 0
        value: cython.longlong = 0
        if size > 0 and data[0] == 45:
            i = 1
        if i == size or (data[i] == 48 and size > 1):  # no digits, a leading zero, or -0
            return False
        while i < size:
            digit: cython.int = data[i]
            if digit < 48 or digit > 57:
                return False
            value = value * 10 + (digit - 48)
            i += 1
        if data[0] == 45:
            value = -value
        form: cython.int = _INT32
        if -128 <= value <= 127:
            form = _INT8
        elif -32768 <= value <= 32767:
            form = _INT16
        elif value < -2147483648 or value > 2147483647:
            return False
        one: cython.Py_ssize_t = 1
        at: cython.Py_ssize_t = len(self.out)
        out: bytearray = self._room(1 + (one << form))
        out[at] = 0xC0 | form
        for i in range(one << form):
            out[at + 1 + i] = (value >> (8 * i)) & 0xFF
        return True

    @cython.ccall
    def number(self, value: cython.double) -> cython.bint:
        """Append a double in 8 bytes, little endian (rdbSaveBinaryDoubleValue)."""
        at: cython.Py_ssize_t = len(self.out)
        out: bytearray = self._room(8)
        if cython.compiled:
            to: cython.p_uchar = out
            memcpy(to + at, cython.address(value), 8)
        else:
            out[at : at + 8] = struct.pack("<d", value)
        return True

    @cython.ccall
    def milliseconds(self, ms: cython.longlong) -> cython.bint:
        """Append a time in milliseconds, signed 64 bits, little endian (rdbSaveMillisecondTime)."""
        i: cython.Py_ssize_t
        at: cython.Py_ssize_t = len(self.out)
        out: bytearray = self._room(8)
        for i in range(8):
            out[at + i] = (ms >> (8 * i)) & 0xFF
        return True

    @cython.ccall
    def raw_id(self, ms: cython.ulonglong, seq: cython.ulonglong) -> cython.bint:
        """Append a stream ID as 16 bytes, big endian (streamEncodeID)."""
        i: cython.Py_ssize_t
        at: cython.Py_ssize_t = len(self.out)
        out: bytearray = self._room(16)
        for i in range(8):
            out[at + i] = (ms >> (56 - 8 * i)) & 0xFF
            out[at + 8 + i] = (seq >> (56 - 8 * i)) & 0xFF
        return True


@cython.final
@cython.cclass
class RdbReader:
    """Reader of RDB bytes from data[position:end], or from a source: a function that fills a buffer."""

    __slots__ = (
        "p", "window", "at", "limit", "base", "mark", "ms", "seq", "special", "source", "checksum",
        "_summed", "_sums", "_keeps", "_kept", "_kept_from",
        "end_of_peek", "helper", "corrected", "sources",
    )  # fmt: skip
    p: cython.p_const_uchar
    window: Any
    at: cython.Py_ssize_t
    limit: cython.Py_ssize_t
    base: cython.longlong
    mark: public[cython.longlong]
    ms: readonly[cython.ulonglong]
    seq: readonly[cython.ulonglong]
    special: readonly[cython.bint]
    source: Any
    checksum: cython.ulonglong
    _summed: cython.Py_ssize_t
    _sums: cython.bint
    _keeps: cython.bint
    _kept: bytearray
    _kept_from: cython.Py_ssize_t
    end_of_peek: cython.Py_ssize_t
    helper: public[Any]
    corrected: public[list[str]]
    sources: public[Any]

    def __init__(self, data: bytes = b"", position: cython.Py_ssize_t = 0, end: int | None = None) -> None:
        if end is None:
            end = len(data)
        if position < 0 or end > len(data):
            raise IndexError("the range exceeds the data")
        self.window = data
        self.p = data
        self.at = position
        self.limit = end
        self.base = 0
        self.mark = position
        self.ms = self.seq = 0
        self.special = False
        self.source = None
        self.checksum = 0
        self._summed = 0
        self._sums = False
        self._keeps = False
        self._kept = bytearray()
        self._kept_from = 0
        self.end_of_peek = 0
        self.helper = None
        self.corrected = []
        self.sources = None

    @staticmethod
    def reading(source: Callable[[memoryview], int | None], checksum: bool = True) -> RdbReader:
        """Return a reader of `source`, a function that fills a buffer and returns the number of bytes, 0 at the end."""
        reader: RdbReader = RdbReader()
        window: bytearray = bytearray(_WINDOW)
        reader.window = window
        reader.p = window
        reader.source = source
        reader._sums = checksum
        return reader

    @property
    def position(self) -> int:
        """The number of bytes consumed."""
        return self.base + self.at

    # -- the window of unread bytes

    @cython.cfunc
    @cython.inline
    @cython.exceptval(-1, check=False)
    def need(self, n: cython.Py_ssize_t) -> cython.bint:
        """Read until the window contains n unread bytes. Raise Corrupt if the data ends earlier."""
        if n > self.limit - self.at:
            return self._refill(n)
        return True

    @cython.cfunc
    def _refill(self, n: cython.Py_ssize_t) -> cython.bint:
        """Move the unread bytes to the front of the window, then read until it contains n unread bytes."""
        if self.source is None:
            raise Corrupt(f"{n} bytes expected, {self.limit - self.at} left", _END)
        self._settle()
        left: cython.Py_ssize_t = self.limit - self.at
        window: bytearray = self.window
        size: cython.Py_ssize_t = len(window)
        if size > 4 * _WINDOW and n <= _WINDOW:  # the window grew for a large item that is now consumed
            window = bytearray(_WINDOW)
        self._move(window, left)
        source: Any = self.source
        while self.limit < n:
            if self.limit == len(window):
                larger: bytearray = bytearray(2 * len(window))
                larger[: self.limit] = window
                window = larger
                self.window = window
                self.p = window
            with memoryview(window) as view:
                got: cython.Py_ssize_t = source(view[self.limit :]) or 0
            if got == 0:
                raise Corrupt(f"{n} bytes expected, {self.limit} left", _END)
            if got < 0 or got > len(window) - self.limit:
                raise IndexError("the source reported more bytes than the buffer has room for")
            self.limit += got
        return True

    @cython.cfunc
    def _move(self, window: bytearray, left: cython.Py_ssize_t) -> cython.bint:
        """Move the unread bytes to the front of `window`, which becomes the reader's window."""
        if cython.compiled:
            to: cython.p_uchar = window
            memmove(to, self.p + self.at, left)
        else:
            window[:left] = self.p[self.at : self.at + left]
        self.base += self.at
        self._summed = self._kept_from = 0
        self.at = 0
        self.limit = left
        self.window = window
        self.p = window
        return True

    @cython.cfunc
    def _settle(self) -> cython.bint:
        """Add the bytes consumed since the last call to the checksum, and to the copy if `keep` was called."""
        if self._sums and self.at > self._summed:
            if cython.compiled:
                self.checksum = crc64_of(self.p + self._summed, self.at - self._summed, self.checksum)
            else:
                with memoryview(self.window) as view:
                    self.checksum = crc64(view[self._summed : self.at], self.checksum)
        self._summed = self.at
        if self._keeps:
            self._kept += self.p[self._kept_from : self.at]
        self._kept_from = self.at
        return True

    @cython.ccall
    @cython.exceptval(0, check=True)
    def checksum_so_far(self) -> cython.ulonglong:
        """Return the CRC-64 of the consumed bytes."""
        self._settle()
        return self.checksum

    def is_over(self) -> bool:
        """Return whether all bytes are consumed."""
        try:
            self.need(1)
        except Corrupt:
            return True
        return False

    def keep(self) -> None:
        """Start to copy all consumed bytes. `kept` returns the copy."""
        self._settle()
        self._keeps = True
        self._kept = bytearray()

    def kept(self) -> bytes:
        """Return the bytes consumed since `keep` was called, and stop copying."""
        self._settle()
        self._keeps = False
        return bytes(self._kept)

    def rest(self) -> bytes:
        """Return the bytes in the window that follow the RDB data."""
        return bytes(self.p[self.at : self.limit])

    @cython.cfunc
    @cython.exceptval(-2, check=False)
    def peek_length(self, pos: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Return the length encoded at a position, -1 if the window does not contain all of it; set `end_of_peek`."""
        i: cython.Py_ssize_t
        n: cython.Py_ssize_t = 0
        if pos >= self.limit:
            return -1
        first: cython.int = self.p[pos]
        if first < 0x40:
            self.end_of_peek = pos + 1
            return first
        if first < 0x80 and pos + 1 < self.limit:
            self.end_of_peek = pos + 2
            n = ((first & 0x3F) << 8) | self.p[pos + 1]
            return n
        if first != 0x80 or pos + 4 >= self.limit:
            return -1
        for i in range(pos + 1, pos + 5):
            n = (n << 8) | self.p[i]
        self.end_of_peek = pos + 5
        return n

    # -- reading values

    @cython.ccall
    def raw(self, n: cython.Py_ssize_t) -> bytes:
        """Return the next n bytes."""
        self.mark = self.base + self.at
        if n < 0:
            raise Corrupt(f"{n} bytes expected", _END)
        return self._take(n)

    @cython.cfunc
    def _take(self, n: cython.Py_ssize_t) -> bytes:
        self.need(n)
        start: cython.Py_ssize_t = self.at
        self.at = start + n
        if cython.compiled:
            return self.p[start : start + n]
        return bytes(self.p[start : start + n])

    @cython.ccall
    def byte(self) -> cython.int:
        """Return the next byte."""
        self.mark = self.base + self.at
        self.need(1)
        found: cython.int = self.p[self.at]
        self.at += 1
        return found

    @cython.ccall
    @cython.exceptval(7777777777777777777, check=True)
    def length(self) -> cython.ulonglong:
        """Read a length or count. Raise Corrupt if the bytes are a special form of a string (rdbLoadLen)."""
        n: cython.ulonglong = self._length_or_special()
        if self.special:
            raise Corrupt(f"a length expected, found the special form {n}", _FORM)
        return n

    @cython.cfunc
    @cython.exceptval(7777777777777777777, check=True)
    def _length_or_special(self) -> cython.ulonglong:
        """Read a length. If the bytes are a special form of a string, set `special` and return the form's number."""
        i: cython.Py_ssize_t
        n: cython.ulonglong = 0
        self.mark = self.base + self.at
        self.need(1)
        first: cython.int = self.p[self.at]
        self.special = False
        kind: cython.int = first >> 6
        if kind == 0:
            self.at += 1
            return first
        if kind == 1:
            self.need(2)
            n = ((first & 0x3F) << 8) | self.p[self.at + 1]
            self.at += 2
            return n
        if kind == 3:
            self.at += 1
            self.special = True
            return first & 0x3F
        if first > 0x81:
            raise Corrupt(f"a length expected, found the byte {first:#04x}", _FORM)
        width: cython.Py_ssize_t = 4 if first == 0x80 else 8
        self.need(1 + width)
        for i in range(self.at + 1, self.at + 1 + width):
            n = (n << 8) | self.p[i]
        self.at += 1 + width
        return n

    @cython.cfunc
    def _size(self) -> cython.Py_ssize_t:
        """Read the length of a string in bytes. Raise Corrupt if no string can be that long."""
        n: cython.ulonglong = self.length()
        if n >= _MOST:
            raise Corrupt(f"a length of {n} bytes is impossible", _END)
        return n

    @cython.cfunc
    def _block(self, mark: cython.longlong) -> cython.Py_ssize_t:
        """Read an LZF-compressed string into the window. Return its size, and set `seq` to its decompressed size."""
        packed: cython.Py_ssize_t = self._size()
        size: cython.Py_ssize_t = self._size()
        self.mark = mark
        self.need(packed)
        if packed < _MOST // 264 and size > packed * 264:
            refuse_block(5)
        self.seq = size
        return packed

    @cython.cfunc
    def _text(self, form: cython.ulonglong) -> bytes:
        """Read a string that is stored as an integer; return its decimal text. Raise Corrupt for other forms."""
        if form > 2:
            raise Corrupt(f"a string expected, found the special form {form}", _STRING)
        data: bytes = self._take(1 << form)
        return b"%d" % int.from_bytes(data, "little", signed=True)

    @cython.ccall
    def string(self) -> bytes:
        """Read a string in any form (rdbGenericLoadStringObject)."""
        mark: cython.longlong = self.base + self.at
        n: cython.ulonglong = self._length_or_special()
        if self.special:
            if n != 3:
                return self._text(n)
            packed: cython.Py_ssize_t = self._block(mark)
            size: cython.Py_ssize_t = self.seq
            if cython.compiled:
                data: bytes = PyBytes_FromStringAndSize(cython.NULL, size)
                to: cython.p_uchar = cython.cast(cython.p_uchar, cython.cast(cython.p_char, data))
                damage: cython.int = unpack(self.p, self.at, self.at + packed, to, size)
            else:
                out = bytearray(size)
                damage = unpack(self.p, self.at, self.at + packed, out, size)
                data = bytes(out)
            if damage:
                refuse_block(damage)
            self.at += packed
            return data
        if n >= _MOST:
            raise Corrupt(f"a length of {n} bytes is impossible", _END)
        return self._take(n)

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def skip_string(self) -> cython.Py_ssize_t:
        """Pass over a string in any form; return the length of its contents."""
        mark: cython.longlong = self.base + self.at
        n: cython.ulonglong = self._length_or_special()
        size: cython.Py_ssize_t = 0
        if not self.special:
            if n >= _MOST:
                raise Corrupt(f"a length of {n} bytes is impossible", _END)
            size = n
            return self.skip(size)
        if n == 3:
            packed: cython.Py_ssize_t = self._block(mark)
            size = self.seq
            self.skip(packed)
            return size
        return len(self._text(n))

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def skip(self, n: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Pass over n bytes; return n."""
        self.need(n)
        self.at += n
        return n

    @cython.ccall
    @cython.exceptval(7777777777777777777, check=True)
    def count(self) -> cython.ulonglong:
        """Read a number of elements; Corrupt if the data, unless it comes from a source, has fewer bytes."""
        n: cython.ulonglong = self.length()
        if self.source is None and n > cython.cast(cython.ulonglong, self.limit - self.at):
            raise Corrupt(f"{n} elements expected in {self.limit - self.at} bytes", _END)
        return n

    @cython.ccall
    def seek(self, position: cython.Py_ssize_t) -> cython.bint:
        """Continue at an offset of the data, which does not come from a source."""
        if position < 0 or position > self.limit:
            raise IndexError("the offset exceeds the data")
        self.at = self.mark = position
        return True

    @cython.ccall
    def buffer(self) -> bytearray:
        """Read a string into a new buffer, which can become a listpack without another copy."""
        mark: cython.longlong = self.base + self.at
        n: cython.ulonglong = self._length_or_special()
        is_block: cython.bint = self.special
        damage: cython.int = 0
        if is_block and n != 3:
            return bytearray(self._text(n))
        if is_block:
            packed: cython.Py_ssize_t = self._block(mark)
            size: cython.Py_ssize_t = self.seq
        else:
            if n >= _MOST:
                raise Corrupt(f"a length of {n} bytes is impossible", _END)
            packed = size = n
            self.need(packed)
        if cython.compiled:
            data: bytearray = PyByteArray_FromStringAndSize(cython.NULL, size)
        else:
            data = bytearray(size)
        if is_block:
            damage = unpack(self.p, self.at, self.at + packed, data, size)
        elif cython.compiled:
            to: cython.p_uchar = data
            memcpy(to, self.p + self.at, size)
        else:
            data[:] = self.p[self.at : self.at + size]
        if damage:
            refuse_block(damage)
        self.at += packed
        return data

    @cython.ccall
    @cython.exceptval(-1, check=True)
    def milliseconds(self) -> cython.longlong:
        """Read a time in milliseconds."""
        i: cython.Py_ssize_t
        self.mark = self.base + self.at
        self.need(8)
        n: cython.longlong = self.p[self.at + 7]
        if n >= 128:
            n -= 256
        for i in range(self.at + 6, self.at - 1, -1):
            n = n * 256 + self.p[i]
        self.at += 8
        return n

    @cython.ccall
    def raw_id(self) -> cython.bint:
        """Read a stream ID of 16 bytes into ms and seq (streamDecodeID)."""
        i: cython.Py_ssize_t
        ms: cython.ulonglong = 0
        seq: cython.ulonglong = 0
        self.mark = self.base + self.at
        self.need(16)
        for i in range(self.at, self.at + 8):
            ms = (ms << 8) | self.p[i]
            seq = (seq << 8) | self.p[i + 8]
        self.ms = ms
        self.seq = seq
        self.at += 16
        return True

"""Lengths, strings and times as RDB files and DUMP payloads write them (Redis: rdb.c, rdb.h).

A length says its own size in the first two bits:

    00LLLLLL                        0 .. 63
    01LLLLLL LLLLLLLL               64 .. 16383, big endian
    10000000 + 4 bytes              up to 2**32-1, big endian
    10000001 + 8 bytes              up to 2**64-1, big endian
    11tttttt                        not a length: a string in special form t

A string is a length and its bytes, or one of the special forms: t=0, 1, 2 an integer of 1, 2 or 4
bytes, little endian, standing for its decimal text; t=3 LZF: compressed length, length, block.
Which form is written is fixed (rdbSaveRawString): up to 11 bytes that are a canonical integer of at most
32 bits become one; above 20 bytes LZF is tried, if it is on and saves at least 4 bytes.
"""

from __future__ import annotations

import struct

from rillet.errors import Corrupt
from rillet.structs.lzf import compress, decompress
from rillet.types.string import string2ll

_INT8, _INT16, _INT32, _LZF = 0, 1, 2, 3


class RdbWriter:
    """Bytes in the making; `compression` is the setting rdbcompression."""

    __slots__ = ("out", "compression")

    def __init__(self, compression: bool = True) -> None:
        self.out = bytearray()
        self.compression = compression

    def raw(self, data: bytes | bytearray) -> None:
        """Append bytes as they are."""
        self.out += data

    def length(self, n: int) -> None:
        """Append a length or count, 0 to 2**64-1 (rdbSaveLen)."""
        if n < 1 << 6:
            self.out.append(n)
        elif n < 1 << 14:
            self.out += struct.pack(">H", 0x4000 | n)
        elif n < 1 << 32:
            self.out += struct.pack(">BI", 0x80, n)
        else:
            self.out += struct.pack(">BQ", 0x81, n)

    def string(self, data: bytes) -> None:
        """Append a string in the form that Redis chooses (rdbSaveRawString)."""
        if len(data) <= 11 and self._integer(data):
            return
        if self.compression and len(data) > 20:
            block = compress(data)
            if block:
                self.out.append(0xC0 | _LZF)
                self.length(len(block))
                self.length(len(data))
                self.out += block
                return
        self.length(len(data))
        self.out += data

    def _integer(self, data: bytes) -> bool:
        value = string2ll(data)
        if value is None:
            return False
        if -(1 << 7) <= value < 1 << 7:
            self.out += struct.pack("<Bb", 0xC0 | _INT8, value)
        elif -(1 << 15) <= value < 1 << 15:
            self.out += struct.pack("<Bh", 0xC0 | _INT16, value)
        elif -(1 << 31) <= value < 1 << 31:
            self.out += struct.pack("<Bi", 0xC0 | _INT32, value)
        else:
            return False
        return True

    def milliseconds(self, ms: int) -> None:
        """Append a time in milliseconds, signed 64 bits, little endian (rdbSaveMillisecondTime)."""
        self.out += struct.pack("<q", ms)


class RdbReader:
    """Bytes to be read, from `position` to `end`; every read past the end is Corrupt."""

    __slots__ = ("data", "position", "end")

    def __init__(self, data: bytes, position: int = 0, end: int | None = None) -> None:
        self.data = data
        self.position = position
        self.end = len(data) if end is None else end

    def raw(self, n: int) -> bytes:
        """Return the next n bytes."""
        start = self.position
        if n < 0 or n > self.end - start:
            raise Corrupt(f"{n} bytes expected at offset {start}, {self.end - start} left")
        self.position = start + n
        return self.data[start : start + n]

    def byte(self) -> int:
        """Return the next byte."""
        return self.raw(1)[0]

    def length(self) -> int:
        """Return a length or count; a special form is Corrupt here (rdbLoadLen)."""
        n, special = self._length_or_special()
        if special:
            raise Corrupt(f"a length expected at offset {self.position}")
        return n

    def _length_or_special(self) -> tuple[int, bool]:
        first = self.byte()
        kind = first >> 6
        if kind == 0:
            return first & 0x3F, False
        if kind == 1:
            return (first & 0x3F) << 8 | self.byte(), False
        if kind == 3:
            return first & 0x3F, True
        if first == 0x80:
            return int.from_bytes(self.raw(4), "big"), False
        if first == 0x81:
            return int.from_bytes(self.raw(8), "big"), False
        raise Corrupt(f"unknown length encoding {first:#x} at offset {self.position - 1}")

    def string(self) -> bytes:
        """Return a string, whatever its form (rdbGenericLoadStringObject)."""
        n, special = self._length_or_special()
        if not special:
            return self.raw(n)
        if n == _INT8:
            return b"%d" % int.from_bytes(self.raw(1), "little", signed=True)
        if n == _INT16:
            return b"%d" % int.from_bytes(self.raw(2), "little", signed=True)
        if n == _INT32:
            return b"%d" % int.from_bytes(self.raw(4), "little", signed=True)
        if n == _LZF:
            packed, size = self.length(), self.length()
            return decompress(self.raw(packed), size)
        raise Corrupt(f"unknown string encoding {n} at offset {self.position - 1}")

    def milliseconds(self) -> int:
        """Return a time in milliseconds."""
        value: int = struct.unpack("<q", self.raw(8))[0]
        return value

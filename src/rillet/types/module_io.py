"""The parts of a module's value in RDB bytes (Redis: RedisModule_Save... and Load..., module.c).

Each part begins with its type, so a program that lacks the module can step over the value:

    02  length                 an unsigned integer           05  string         a string, in any form of an RDB string
    01  length                 a signed integer, never written 04  8 bytes      a double, little endian
    00                         the end of the value          03  4 bytes        a float, little endian

A signed integer is written as the unsigned number with the same 64 bits. A boolean is an unsigned integer. A long
double is a string in C's hexadecimal form (`%La`).

The reader raises Corrupt if the next part has another type than the module reads.
"""

from __future__ import annotations

import struct
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from rillet.errors import Corrupt
from rillet.structs import long_double
from rillet.types.rdb.primitives import RdbReader, RdbWriter

if TYPE_CHECKING:
    from rillet.types.module import KeyPlace

END, SIGNED, UNSIGNED, FLOAT, DOUBLE, STRING = range(6)
"""The types of the parts (RDB_MODULE_OPCODE_*)."""
_NAMES = ("the end of the value", "a signed integer", "an unsigned integer", "a float", "a double", "a string")
_WORD = 1 << 64
_HIGHEST = 1 << 63


class ModuleWriter:
    """Writes the parts of a value. `place` is the database and the key of the value."""

    __slots__ = ("_out", "place")

    def __init__(self, out: RdbWriter, place: KeyPlace) -> None:
        self._out = out
        self.place = place

    def unsigned(self, value: int) -> None:
        """Write an integer from 0 to 2**64-1."""
        if not 0 <= value < _WORD:
            raise ValueError(f"an unsigned integer has 64 bits: {value}")
        self._out.length(UNSIGNED)
        self._out.length(value)

    def signed(self, value: int) -> None:
        """Write an integer from -2**63 to 2**63-1 (RM_SaveSigned writes an unsigned part, for compatibility)."""
        if not -_HIGHEST <= value < _HIGHEST:
            raise ValueError(f"a signed integer has 64 bits: {value}")
        self.unsigned(value % _WORD)

    def string(self, value: bytes | bytearray) -> None:
        """Write bytes."""
        if not isinstance(value, bytes | bytearray):
            raise TypeError(f"a string is bytes, not {type(value).__name__}")
        self._out.length(STRING)
        self._out.string(bytes(value))

    def double(self, value: float) -> None:
        """Write a floating-point number of 64 bits."""
        data = struct.pack("<d", value)
        self._out.length(DOUBLE)
        self._out.raw(data)

    def float(self, value: Any) -> None:
        """Write a floating-point number of 32 bits."""
        data = struct.pack("<f", value)
        self._out.length(FLOAT)
        self._out.raw(data)

    def long_double(self, value: Fraction | int) -> None:
        """Write a number with the precision of x86's long double."""
        self.string(_hexadecimal(Fraction(value)))


class ModuleReader:
    """Reads the parts of a value, in the order in which they were written."""

    __slots__ = ("_reader", "place")

    def __init__(self, reader: RdbReader, place: KeyPlace) -> None:
        self._reader = reader
        self.place = place

    def _expect(self, part: int) -> None:
        found = self._reader.length()
        if found != part:
            name = _NAMES[found] if found < len(_NAMES) else f"a part of type {found}"
            raise Corrupt(f"expected {_NAMES[part]} in a module's value, found {name}")

    def unsigned(self) -> int:
        """Read an integer from 0 to 2**64-1."""
        self._expect(UNSIGNED)
        return self._reader.length()

    def signed(self) -> int:
        """Read an integer from -2**63 to 2**63-1."""
        value = self.unsigned()
        return value - _WORD if value >= _HIGHEST else value

    def string(self) -> bytes:
        """Read bytes."""
        self._expect(STRING)
        return self._reader.string()

    def double(self) -> float:
        """Read a floating-point number of 64 bits."""
        self._expect(DOUBLE)
        value: float = struct.unpack("<d", self._reader.raw(8))[0]
        return value

    def float(self) -> Any:
        """Read a floating-point number of 32 bits."""
        self._expect(FLOAT)
        return struct.unpack("<f", self._reader.raw(4))[0]

    def long_double(self) -> Fraction:
        """Read a number with the precision of x86's long double."""
        text = self.string()
        value = long_double.parse(text)
        if value is None:
            raise Corrupt(f"{text!r} is not the text of a number")
        return value


def _hexadecimal(value: Fraction) -> bytes:
    """Return a number as C's %La shows it: four bits before the point, no trailing zeros (ld2string, LD_STR_HEX)."""
    if not value:
        return b"0x0p+0"
    value = long_double.rounded(value)
    size, exponent = abs(value), 0
    exponent = size.numerator.bit_length() - size.denominator.bit_length() - 63
    while size >= Fraction(2) ** (exponent + 64):
        exponent += 1
    while size < Fraction(2) ** (exponent + 63):
        exponent -= 1
    mantissa = int(size / Fraction(2) ** exponent)  # 64 bits, the highest set
    digits = f"{mantissa:016x}"
    rest = digits[1:].rstrip("0")
    point = "." + rest if rest else ""
    return f"{'-' if value < 0 else ''}0x{digits[0]}{point}p{exponent + 60:+d}".encode()

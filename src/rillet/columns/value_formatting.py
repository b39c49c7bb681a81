"""Formats numbers, timestamps and dates as text, byte for byte as Arrow's casts do, one value at a time.

This is the inverse of value_parsing.py. Each column has one `ValueFormatter`. A method writes a value at the start of
`buf` and returns the text's size; the packer copies the text.

    whole numbers   -7, 18446744073709551615
    doubles         the fewest digits that read back as the same double: 0.1, 100; with an exponent from 10^10 on
                    and below 10^-6: 1.5e+10; also nan, inf, -inf, -0
    floats          the fewest digits that read back as the same 32-bit float
    dates           2013-01-01
    timestamps      2013-01-01T05:15:00.000000Z, with as many decimals as the unit has

**The fewest digits** are found by Schubfach (R. Giulietti, "The Schubfach way to render doubles", 2020). Let
v = c * 2^q be the double, and let vl and vr be the midpoints between v and the next smaller and next larger doubles:

    k           10^k <= vr - vl < 10^(k + 1): a multiple of 10^k lies between vl and vr, perhaps one of 10^(k + 1)
    v / 10^k    computed times 4 as a 64-bit integer, whose last bit is set if the result is inexact; also vl and vr
    digits      a multiple of 10^(k + 1) between vl and vr if one exists, otherwise the multiple of 10^k nearest to v

Most measurements and prices have at most six decimals. If the value equals an integer of at most 15 digits divided by
1,000 or by 1,000,000, that decimal is the shortest form. This test needs two divisions.

Schubfach needs the powers of ten from 10^-292 to 10^324, rounded up to 128 bits. The first use computes these 617
numbers from Python's integers in a millisecond (10 KB).

**Dates.** `buf` keeps the text of the last date, because consecutive timestamps mostly have the same date. Only the
years 1 to 9999 are supported. string_column.py checks the years and formats other arrays with Arrow.

Cost, compiled: 5 ns for a whole number, 10 for a timestamp of the same date, 20 for a short double, 50 for a long one.
Interpreted code takes microseconds, so it uses Arrow's casts instead. Rejected: PyOS_double_to_string (the same digits
at a tenth of the speed), Grisu (one number in two hundred needs another algorithm), Ryu (tables ten times as large).
"""

from __future__ import annotations

import struct
import sys
from functools import lru_cache

from rillet._cython import cython
from rillet.protocol.reply_writer import put_digits

if cython.compiled:
    from cython.cimports.cpython.bytearray import (  # type: ignore[import-not-found, unused-ignore]
        PyByteArray_AS_STRING,
    )
    from cython.cimports.cpython.bytes import PyBytes_AS_STRING  # type: ignore[import-not-found, unused-ignore]
    from cython.cimports.libc.string import memcpy  # type: ignore[import-not-found, unused-ignore]

LEAST_POWER = -292
MOST_POWER = 324
ROOM = 64
FIRST_DAY = -719_162  # 0001-01-01
LAST_DAY = 2_932_896  # 9999-12-31
_FIRST_DAY = cython.declare(cython.longlong, -719162)
_LAST_DAY = cython.declare(cython.longlong, 2932896)
_LEAST_POWER = cython.declare(cython.longlong, -292)
_NO_DAY = cython.declare(cython.longlong, -(1 << 62))
_DAY = cython.declare(cython.longlong, 86_400)
_ALL = cython.declare(cython.ulonglong, (1 << 64) - 1)
_HALF = cython.declare(cython.ulonglong, 0xFFFFFFFF)
_FRACTION = cython.declare(cython.ulonglong, (1 << 52) - 1)
_ONE = cython.declare(cython.ulonglong, 1 << 52)
_SINGLE_FRACTION = cython.declare(cython.ulonglong, (1 << 23) - 1)
_SINGLE_ONE = cython.declare(cython.ulonglong, 1 << 23)
_PLAIN = cython.declare(cython.double, 1e10)  # doubles from 10^10 on are written with an exponent
_MOST_DIGITS = cython.declare(cython.double, 1e15)
_MOST_SINGLE_DIGITS = cython.declare(cython.double, 1e6)


@lru_cache(maxsize=1)
def powers() -> bytes:
    """Return the powers of ten as 128-bit numbers with the highest bit set, rounded up, lower 64 bits first."""
    table = bytearray()
    for power in range(LEAST_POWER, MOST_POWER + 1):
        shift = (power * 1741647 >> 19) - 127  # floor(log2(10^power)) - 127
        over, under = 10 ** max(power, 0) << max(-shift, 0), 10 ** max(-power, 0) << max(shift, 0)
        bits = -(-over // under)
        table += (bits & (1 << 64) - 1).to_bytes(8, sys.byteorder) + (bits >> 64).to_bytes(8, sys.byteorder)
    return bytes(table)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _upper(one: cython.ulonglong, other: cython.ulonglong) -> cython.ulonglong:
    """Return the upper 64 bits of the 128-bit product of two 64-bit numbers."""
    low: cython.ulonglong = (one & _HALF) * (other & _HALF)
    cross: cython.ulonglong = (one >> 32) * (other & _HALF) + (low >> 32)
    crossed: cython.ulonglong = (one & _HALF) * (other >> 32) + (cross & _HALF)
    return (one >> 32) * (other >> 32) + (cross >> 32) + (crossed >> 32)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _scaled(high: cython.ulonglong, low: cython.ulonglong, value: cython.ulonglong) -> cython.ulonglong:
    """Return value * power / 2^128 for a 128-bit `power`. Bit 0 is set if the quotient is inexact."""
    rest: cython.ulonglong = (high * value) & _ALL
    carried: cython.ulonglong = _upper(low, value)
    upper: cython.ulonglong = _upper(high, value)
    rest = (rest + carried) & _ALL
    if rest < carried:
        upper += 1
    return upper | (1 if rest > 1 else 0)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _bits(value: cython.double) -> cython.ulonglong:
    """Return the IEEE 754 bits of a double."""
    bits: cython.ulonglong = 0
    if cython.compiled:
        memcpy(cython.address(bits), cython.address(value), 8)
        return bits
    return int.from_bytes(struct.pack("=d", value), sys.byteorder)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _single_bits(value: cython.double) -> cython.ulonglong:
    """Return the IEEE 754 bits of a 32-bit float, which is passed as a double of equal value."""
    if cython.compiled:
        single: cython.float = value
        bits: cython.uint = 0
        memcpy(cython.address(bits), cython.address(single), 4)
        return bits
    return int.from_bytes(struct.pack("=f", value), sys.byteorder)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _whole(value: cython.double) -> cython.ulonglong:
    """Return the integer part of a positive number."""
    return cython.cast(cython.ulonglong, value) if cython.compiled else int(value)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _real(value: cython.ulonglong) -> cython.double:
    """Return a whole number below 2^53 as a double."""
    signed: cython.longlong = value  # processors convert signed integers, but not unsigned ones, in one instruction
    return signed


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _equal(decimal: cython.double, value: cython.double, single: cython.bint) -> cython.bint:
    """Return whether a number, rounded to a double (single: to a float), equals `value`."""
    if not single:
        return decimal == value
    if cython.compiled:
        nearest: cython.float = decimal
        return nearest == value
    nearest_float: float = struct.unpack("=f", struct.pack("=f", decimal))[0]
    return nearest_float == value


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _put_pair(to: cython.p_uchar, at: cython.Py_ssize_t, value: cython.uint) -> cython.Py_ssize_t:
    """Write an integer below 100 as two digits; return the position after them."""
    to[at] = 48 + value // 10
    to[at + 1] = 48 + value % 10
    return at + 2


@cython.final
@cython.cclass
class ValueFormatter:
    """Writes the text of one value at a time into `buf`; also remembers which date `buf` contains."""

    __slots__ = ("buf", "table", "digits", "power", "day")
    buf: bytearray
    table: bytes  # the powers of ten; empty until the first floating-point number is formatted
    digits: cython.ulonglong
    power: cython.longlong
    day: cython.longlong

    def __init__(self) -> None:
        self.buf = bytearray(ROOM)
        self.table = b""
        self.digits = self.power = 0
        self.day = _NO_DAY

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def _start(self) -> cython.p_uchar:
        """Return a pointer to `buf`. The pointer stays valid because `buf` is never resized."""
        if cython.compiled:
            return cython.cast(cython.p_uchar, PyByteArray_AS_STRING(self.buf))
        return self.buf

    def text(self, size: int) -> bytes:
        """Return the last text; `size` is the result of the call that wrote it."""
        return bytes(self.buf[:size])

    # ---- whole numbers -------------------------------------------------------------------------------------------

    @cython.ccall
    @cython.exceptval(check=False)
    def put_unsigned(self, value: cython.ulonglong) -> cython.Py_ssize_t:
        """Write the text of an unsigned integer and return its size."""
        return put_digits(self._start(), 0, value)

    @cython.ccall
    @cython.exceptval(check=False)
    def put_signed(self, value: cython.longlong) -> cython.Py_ssize_t:
        """Write the text of a signed integer and return its size."""
        to: cython.p_uchar = self._start()
        magnitude: cython.ulonglong
        if value >= 0:
            return put_digits(to, 0, value)
        value = -(value + 1)  # -(-2^63) would overflow, so add 1 before the negation
        magnitude = value
        to[0] = 0x2D
        return put_digits(to, 1, magnitude + 1)

    @cython.ccall
    @cython.exceptval(check=False)
    def put_truth(self, value: cython.bint) -> cython.Py_ssize_t:
        """Write the text `true` or `false` and return its size."""
        to: cython.p_uchar = self._start()
        if value:
            to[0] = 0x74
            to[1] = 0x72
            to[2] = 0x75
            to[3] = 0x65
            return 4
        to[0] = 0x66
        to[1] = 0x61
        to[2] = 0x6C
        to[3] = 0x73
        to[4] = 0x65
        return 5

    # ---- floating-point numbers --------------------------------------------------------------------------------------

    @cython.ccall
    def put_real(self, value: cython.double) -> cython.Py_ssize_t:
        """Write the text of a double and return its size."""
        bits: cython.ulonglong = _bits(value)
        exponent: cython.longlong = bits >> 52 & 0x7FF
        fraction: cython.ulonglong = bits & _FRACTION
        at: cython.Py_ssize_t = self._put_easy(value, bits >> 63 != 0)
        if at > 0:
            return at
        if self._short(-value if at < 0 else value, _MOST_DIGITS, False):
            return self._put_decimal(-at)
        if exponent > 0:
            self._shortest(fraction | _ONE, exponent - 1075, fraction == 0 and exponent > 1)
        else:
            self._shortest(fraction, -1074, False)
        return self._put_digits(-at)

    @cython.ccall
    def put_single(self, value: cython.double) -> cython.Py_ssize_t:
        """Write the text of a 32-bit float, which is passed as a double of equal value, and return its size."""
        bits: cython.ulonglong = _single_bits(value)
        exponent: cython.longlong = bits >> 23 & 0xFF
        fraction: cython.ulonglong = bits & _SINGLE_FRACTION
        at: cython.Py_ssize_t = 0
        # Every integer up to 2^24 is a float. Above, several integers round to one float, so fewer digits may suffice.
        if not -16777216.0 < value < 16777216.0 and value - value == 0.0:
            if bits >> 31:
                self._start()[0] = 0x2D
                at = -1
        else:
            at = self._put_easy(value, bits >> 31 != 0)
        if at > 0:
            return at
        if self._short(-value if at < 0 else value, _MOST_SINGLE_DIGITS, True):
            return self._put_decimal(-at)
        if exponent > 0:
            self._shortest(fraction | _SINGLE_ONE, exponent - 150, fraction == 0 and exponent > 1)
        else:
            self._shortest(fraction, -149, False)
        return self._put_digits(-at)

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def _put_easy(self, value: cython.double, negative: cython.bint) -> cython.Py_ssize_t:
        """Write nan, an infinity, or an integer below 10^10. For other values, write only the sign and return -size."""
        to: cython.p_uchar = self._start()
        at: cython.Py_ssize_t = 0
        whole: cython.ulonglong
        if value != value:
            to[0] = 0x6E
            to[1] = 0x61
            to[2] = 0x6E
            return 3
        if negative:
            to[0] = 0x2D
            at = 1
            value = -value
        if value < _PLAIN:
            whole = _whole(value)
            if _real(whole) == value:
                return put_digits(to, at, whole)
        elif value - value != 0.0:
            to[at] = 0x69
            to[at + 1] = 0x6E
            to[at + 2] = 0x66
            return at + 3
        return -at

    @cython.cfunc
    @cython.inline
    @cython.cdivision(True)  # by constants
    @cython.exceptval(check=False)
    def _short(self, value: cython.double, bound: cython.double, single: cython.bint) -> cython.bint:
        """Set digits and power if the positive value has at most six decimals; otherwise return False.

        `bound` is 10^15 for doubles and 10^6 for floats. Two different decimals of up to 15 digits never round to the
        same double (6 digits: float). So the decimal found here is the shortest one, after removing trailing zeros.
        """
        scaled: cython.double = value * 1000000.0
        rest: cython.double
        digits: cython.ulonglong
        places: cython.longlong = 3
        if scaled < bound:  # a value with six decimals, times 10^6, is nearly an integer; reject most others here
            rest = scaled - _real(_whole(scaled + 0.5))
            scaled *= 1e-7 if single else 4e-16
            if rest * rest > scaled * scaled:
                return False
        scaled = value * 1000.0 + 0.5
        if scaled >= bound:
            return False
        digits = _whole(scaled)
        if not _equal(_real(digits) / 1000.0, value, single):
            scaled = value * 1000000.0 + 0.5
            if scaled >= bound:
                return False
            places = 6
            digits = _whole(scaled)
            if not _equal(_real(digits) / 1000000.0, value, single):
                return False
        if digits == 0:
            return False
        while digits % 10 == 0:
            digits //= 10
            places -= 1
        self.digits = digits
        self.power = -places
        return True

    @cython.cfunc
    def _shortest(self, c: cython.ulonglong, q: cython.longlong, nearer: cython.bint) -> cython.bint:
        """Set digits and power to the shortest form of c * 2^q. `nearer`: the next smaller double is half as far."""
        odd: cython.ulonglong = c & 1  # if c is odd, a decimal at a midpoint rounds to the next double: exclude it
        k: cython.longlong = (q * 1262611 - (524031 if nearer else 0)) >> 22
        h: cython.longlong = q + (-k * 1741647 >> 19) + 1
        high: cython.ulonglong = self._half(-k, 1)
        low: cython.ulonglong = self._half(-k, 0)
        middle: cython.ulonglong = _scaled(high, low, (4 * c) << h)
        least: cython.ulonglong = _scaled(high, low, (4 * c - 2 + (1 if nearer else 0)) << h) + odd
        most: cython.ulonglong = _scaled(high, low, (4 * c + 2) << h) - odd
        s: cython.ulonglong = middle >> 2
        tens: cython.ulonglong = s // 10
        below: cython.bint
        above: cython.bint
        self.power = k
        if tens > 0:
            below = least <= 40 * tens
            above = 40 * tens + 40 <= most
            if below != above:
                self.digits = tens + (1 if above else 0)
                self.power = k + 1
                return True
        below = least <= 4 * s
        above = 4 * s + 4 <= most
        if below == above:  # both multiples or none round to the value: take the nearer, or the even one
            above = middle > 4 * s + 2 or (middle == 4 * s + 2 and s & 1 != 0)
        self.digits = s + (1 if above else 0)
        return True

    @cython.cfunc
    @cython.inline
    @cython.exceptval(-1, check=True)
    def _half(self, power: cython.longlong, which: cython.Py_ssize_t) -> cython.ulonglong:
        """Return the lower (0) or the upper (1) 64 bits of a power of ten."""
        at: cython.Py_ssize_t = 16 * (power - _LEAST_POWER) + 8 * which
        half: cython.ulonglong = 0
        if len(self.table) == 0:
            self.table = powers()
        if at < 0 or at > len(self.table) - 8:
            raise IndexError("the table of powers of ten ends at 10^-292 and 10^324")
        if cython.compiled:
            memcpy(cython.address(half), PyBytes_AS_STRING(self.table) + at, 8)
            return half
        return int.from_bytes(self.table[at : at + 8], sys.byteorder)

    @cython.cfunc
    @cython.exceptval(check=False)
    def _put_digits(self, at: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Write digits * 10^power at `at` without trailing zeros; return the position after the text."""
        digits: cython.ulonglong = self.digits
        power: cython.longlong = self.power
        if digits % 100000000 == 0:
            digits //= 100000000
            power += 8
        if digits % 10000 == 0:
            digits //= 10000
            power += 4
        while digits % 10 == 0:
            digits //= 10
            power += 1
        self.digits = digits
        self.power = power
        return self._put_decimal(at)

    @cython.cfunc
    @cython.exceptval(check=False)
    def _put_decimal(self, at: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Write digits * 10^power at `at`; the last digit is not 0. Return the position after the text."""
        to: cython.p_uchar = self._start()
        digits: cython.ulonglong = self.digits
        power: cython.longlong = self.power
        end: cython.Py_ssize_t
        point: cython.longlong
        end = put_digits(to, at + 1, digits)
        point = end - at - 1 + power  # digits before the point
        if point < -5 or point > 10:
            return self._put_exponent(to, at, end, point - 1)
        if point <= 0:
            return self._put_fraction(to, at, digits, -point)
        if power >= 0:
            while power > 0:
                digits *= 10
                power -= 1
            return put_digits(to, at, digits)
        while point > 0:  # move the digits before the decimal point by one byte to make room for the point
            to[at] = to[at + 1]
            at += 1
            point -= 1
        to[at] = 0x2E
        return end

    @cython.cfunc
    @cython.exceptval(check=False)
    def _put_fraction(
        self, to: cython.p_uchar, at: cython.Py_ssize_t, digits: cython.ulonglong, zeros: cython.longlong
    ) -> cython.Py_ssize_t:
        """Write a number below 1: `0.`, zeros, then the digits."""
        to[at] = 0x30
        to[at + 1] = 0x2E
        at += 2
        while zeros > 0:
            to[at] = 0x30
            at += 1
            zeros -= 1
        return put_digits(to, at, digits)

    @cython.cfunc
    @cython.exceptval(check=False)
    def _put_exponent(
        self, to: cython.p_uchar, at: cython.Py_ssize_t, end: cython.Py_ssize_t, exponent: cython.longlong
    ) -> cython.Py_ssize_t:
        """Turn the digits that start at at + 1 into scientific notation, d.ddde+x."""
        to[at] = to[at + 1]
        if end == at + 2:
            end = at + 1
        else:
            to[at + 1] = 0x2E
        to[end] = 0x65
        to[end + 1] = 0x2D if exponent < 0 else 0x2B
        return put_digits(to, end + 2, -exponent if exponent < 0 else exponent)

    # ---- days and moments ----------------------------------------------------------------------------------------

    @cython.ccall
    def put_day(self, days: cython.longlong) -> cython.Py_ssize_t:
        """Write a date, given in days since 1970-01-01. Raise IndexError outside the years 1 to 9999."""
        to: cython.p_uchar = self._start()
        since: cython.ulonglong
        cycle: cython.ulonglong
        year: cython.ulonglong
        month: cython.ulonglong
        if days == self.day:
            return 10
        if days < _FIRST_DAY or days > _LAST_DAY:
            raise IndexError("the date is outside the years 1 to 9999")
        # Count days from 0000-03-01, so that a leap day is the last day of a year. The calendar repeats in 400 years.
        since = days + 719468
        cycle = since // 146097
        since -= cycle * 146097
        year = (since - since // 1460 + since // 36524 - since // 146096) // 365
        since -= 365 * year + year // 4 - year // 100
        year += 400 * cycle
        month = (5 * since + 2) // 153
        since -= (153 * month + 2) // 5
        if month < 10:
            month += 3
        else:
            month -= 9
            year += 1
        _put_pair(to, 0, year // 100)
        _put_pair(to, 2, year % 100)
        to[4] = 0x2D
        _put_pair(to, 5, month)
        to[7] = 0x2D
        _put_pair(to, 8, since + 1)
        self.day = days
        return 10

    @cython.ccall
    def put_moment(self, value: cython.longlong, places: cython.int, zoned: cython.bint) -> cython.Py_ssize_t:
        """Write a timestamp, given in units of 10^-places seconds since 1970-01-01. zoned: append Z."""
        to: cython.p_uchar = self._start()
        unit: cython.longlong = 1
        seconds: cython.longlong
        days: cython.longlong
        part: cython.ulonglong
        clock: cython.uint
        at: cython.Py_ssize_t
        i: cython.int
        for _ in range(places):
            unit *= 10
        seconds = value // unit
        part = value - seconds * unit
        days = seconds // _DAY
        clock = seconds - days * _DAY
        self.put_day(days)
        to[10] = 0x54
        _put_pair(to, 11, clock // 3600)
        to[13] = 0x3A
        _put_pair(to, 14, clock // 60 % 60)
        to[16] = 0x3A
        at = _put_pair(to, 17, clock % 60)
        if places > 0:
            to[at] = 0x2E
            at += 1 + places
            for i in range(places):
                to[at - 1 - i] = 48 + part % 10
                part //= 10
        if zoned:
            to[at] = 0x5A
            at += 1
        return at

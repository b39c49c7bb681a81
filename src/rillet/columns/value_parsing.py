"""Parses the text of a field as a number, a boolean, a timestamp or a date.

Fields and values of a stream are byte strings; a typed column converts them. One `ValueParser` serves a batch. A method
reads `data[start:start + n]`, returns whether the text is a value of the type, and stores the value in the attribute
`number` (`real` for a double). It never raises for malformed text, which becomes null in the column.

Accepted texts, without blanks (bytes up to 0x20) at both ends, as in Spark's CAST:

    integer     [+-]digits, within 64 bits or the column's smaller type. "12.0" is not an integer
    real        [+-]digits[.digits][e[+-]digits], .5 and 5. too; nan, inf, infinity in any case
    boolean     true t yes y 1 / false f no n 0, in any case (Spark's words)
    timestamp   an integer = milliseconds since 1970, the unit of stream IDs; or
                YYYY-MM-DD[(T| )HH:MM[:SS[.digits]]][Z|UTC|(+|-)HH[[:]MM]|Europe/Berlin], in UTC if there is no zone
    date        YYYY-MM-DD, alone or followed by T or a blank and anything
    decimal     as real, without nan and inf; digits beyond the scale are rounded half up (away from zero), as in
                Spark's CAST; a number with more digits than the precision is malformed

Doubles with a mantissa up to 2^53 and a power of ten up to 22 need one division or multiplication: both operands are
exact, so the result is correctly rounded. `float()` reads other doubles, also correctly rounded, ten times slower.
Most measurements and prices have at most eight characters. Such a text is loaded as one 64-bit word and converted
without a branch that depends on its digits: the digits before the point move one byte to close the gap, and eight
digits become a number in three steps:

    3 5 . 2 7 ? ? ?     the word; the first character is the lowest byte. A shift removes the bytes after the text
    _ _ _ 3 5 . 2 7
    0 0 0 0 3 5 2 7     divided by 10^2

The power of ten is the product of three small factors. Rejected: a table of powers.

Every type has two methods. `integer(buf, start, n)` checks that the text is inside the buffer, then calls
`read_integer(data, start, n)`, which reads n bytes through a pointer. Compiled callers that have already checked the
range call `read_integer` directly.

Cost: O(n) for a text of n bytes.
"""

from __future__ import annotations

import functools
import re
import sys
from datetime import datetime, timedelta
from decimal import ROUND_HALF_UP, Context, Decimal, DecimalException
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from rillet._cython import cython, public

if cython.compiled:
    from cython.cimports.libc.string import memcpy  # type: ignore[import-not-found, unused-ignore]

_LITTLE = cython.declare(cython.bint, sys.byteorder == "little")
_ZEROS = cython.declare(cython.ulonglong, 0x3030303030303030)
_OVER_NINE = cython.declare(cython.ulonglong, 0x4646464646464646)
_HIGH = cython.declare(cython.ulonglong, 0x8080808080808080)
_PAIRS = cython.declare(cython.ulonglong, 0x00FF00FF00FF00FF)
_FOURS = cython.declare(cython.ulonglong, 0x0000FFFF0000FFFF)
_LOW = cython.declare(cython.ulonglong, 0xFFFFFFFF)
_ONES = cython.declare(cython.ulonglong, 0x0101010101010101)
_SEVENS = cython.declare(cython.ulonglong, 0x7F7F7F7F7F7F7F7F)
_POINTS = cython.declare(cython.ulonglong, 0x2E2E2E2E2E2E2E2E)
_FULL = cython.declare(cython.ulonglong, (1 << 64) - 1)
_EXACT = cython.declare(cython.ulonglong, 1 << 53)
_MAX = cython.declare(cython.ulonglong, (1 << 63) - 1)
TRUE_WORDS = frozenset((b"true", b"t", b"yes", b"y", b"1"))
FALSE_WORDS = frozenset((b"false", b"f", b"no", b"n", b"0"))
SPECIAL_REALS = frozenset((b"nan", b"inf", b"infinity"))
_DECIMAL = re.compile(rb"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_BLANKS = bytes(range(0x21))
_MAX_MILLISECONDS = cython.declare(cython.longlong, ((1 << 63) - 1) // 1000)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def days_from_civil(year: cython.longlong, month: cython.longlong, day: cython.longlong) -> cython.longlong:
    """Return the number of days from 1970-01-01 to a date of the Gregorian calendar, year 0 to 9999."""
    # Count years from March to February, so that the leap day is the last day of a year.
    if month > 2:
        month -= 3
    else:
        month += 9
        year -= 1
    year += 400  # keeps the operands of the divisions below positive
    return 365 * year + year // 4 - year // 100 + year // 400 + (153 * month + 2) // 5 + day - 1 - 719468 - 146097


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def days_in_month(year: cython.longlong, month: cython.longlong) -> cython.longlong:
    """Return the number of days in a month, 28 to 31."""
    if month == 2:
        leap: cython.bint = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
        return 29 if leap else 28
    if month == 4 or month == 6 or month == 9 or month == 11:
        return 30
    return 31


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def word_at(data: cython.p_const_uchar, p: cython.Py_ssize_t) -> cython.ulonglong:
    """Return the 8 bytes at p as a little-endian integer, or 0 on a big-endian machine."""
    word: cython.ulonglong = 0
    if not _LITTLE:
        return 0
    if cython.compiled:
        memcpy(cython.address(word), data + p, 8)
        return word
    return int.from_bytes(data[p : p + 8], "little")


@cython.cfunc
@cython.exceptval(check=False)
def eight_digits(data: cython.p_const_uchar, p: cython.Py_ssize_t) -> cython.longlong:
    """Return the number that the 8 digits at p form; -1 if a byte is not a digit, or on a big-endian machine."""
    return number_in(word_at(data, p))


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def number_in(word: cython.ulonglong) -> cython.longlong:
    """Return the number that the 8 digits in a little-endian word form; -1 if a byte is not a digit.

    Three multiplications combine neighbours: 8 digits become 4 numbers below 100, then 2 below 10,000, then the result.
    """
    # A byte is a digit if its upper half is 3, and if adding 0x46 does not set the high bit (it does from ":" on).
    if (word & _ZEROS) != _ZEROS or word & _HIGH or (word + _OVER_NINE) & _HIGH:
        return -1
    word -= _ZEROS
    word = (word & _PAIRS) * 10 + ((word >> 8) & _PAIRS)
    word = (word & _FOURS) * 100 + ((word >> 16) & _FOURS)
    return (word & _LOW) * 10000 + (word >> 32)


def exactly(text: bytes, precision: int, scale: int) -> int | None:
    """Return a decimal text times 10^scale as an integer, rounded half up; None if malformed or too long."""
    if _DECIMAL.fullmatch(text.strip(_BLANKS)) is None:
        return None
    context = Context(precision, ROUND_HALF_UP)
    try:
        value = Decimal(text.strip(_BLANKS).decode()).quantize(Decimal(1).scaleb(-scale), context=context)
        return int(value.scaleb(scale, context))
    except DecimalException:  # more digits than the precision, or an exponent beyond Decimal's
        return None


@functools.lru_cache(1024)
def _zone_named(name: bytes) -> ZoneInfo | None:
    try:
        return ZoneInfo(name.strip(_BLANKS).decode())
    except (ValueError, OSError, ZoneInfoNotFoundError):  # a malformed name, the name of a folder, an unknown name
        return None


def named_offset(name: bytes, local: int) -> int | None:
    """Return the offset from UTC of a zone such as Europe/Berlin at a local time, both in microseconds.

    None if there is no such zone. As in Spark, a time that occurs twice is the earlier one, and one that is left out
    follows the offset before it.
    """
    zone = _zone_named(name)
    if zone is None:
        return None
    try:
        offset = (datetime(1970, 1, 1, tzinfo=zone) + timedelta(microseconds=local)).utcoffset()
    except OverflowError:  # before the year 1
        return None
    return None if offset is None else offset // timedelta(microseconds=1)


@cython.cfunc
@cython.inline
@cython.exceptval(-1, check=False)
def check(buf: bytearray, start: cython.Py_ssize_t, n: cython.Py_ssize_t) -> cython.bint:
    """Raise IndexError unless buf[start:start + n] lies inside buf."""
    if n < 0 or start < 0 or start > len(buf) - n:
        raise IndexError("the text of a value would exceed the buffer")
    return True


@cython.final
@cython.cclass
class ValueParser:
    """Parses one text at a time and stores the result in `number` or `real`."""

    __slots__ = ("number", "real", "stop", "bad", "zeros")
    number: public[cython.longlong]
    real: public[cython.double]
    bad: public[cython.bint]  # the current entry has a malformed value
    zeros: public[cython.Py_ssize_t]  # result of read_fixed: multiply `number` by 10^zeros
    stop: public[cython.Py_ssize_t]  # the end of the text without trailing blanks, or of the part parsed so far

    def __init__(self) -> None:
        self.number = 0
        self.real = 0.0
        self.stop = 0
        self.bad = False
        self.zeros = 0

    @cython.cfunc
    @cython.exceptval(check=False)
    def trim(self, data: cython.p_const_uchar, start: cython.Py_ssize_t, n: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Return the start of the text without leading blanks, and set `stop` to its end without trailing blanks."""
        stop: cython.Py_ssize_t = start + n
        while start < stop and data[start] <= 0x20:
            start += 1
        while stop > start and data[stop - 1] <= 0x20:
            stop -= 1
        self.stop = stop
        return start

    @cython.ccall
    def integer(self, buf: bytearray, start: cython.Py_ssize_t, n: cython.Py_ssize_t) -> cython.bint:
        """Check that the text is inside the buffer, then call `read_integer`."""
        check(buf, start, n)
        return self.read_integer(buf, start, n)

    @cython.cfunc
    @cython.exceptval(check=False)
    def read_integer(self, data: cython.p_const_uchar, start: cython.Py_ssize_t, n: cython.Py_ssize_t) -> cython.bint:
        """Read a signed 64-bit decimal integer into `number`."""
        p: cython.Py_ssize_t = self.trim(data, start, n)
        stop: cython.Py_ssize_t = self.stop
        negative: cython.bint = False
        value: cython.ulonglong = 0
        eight: cython.longlong
        digit: cython.int
        if p < stop and (data[p] == 0x2D or data[p] == 0x2B):
            negative = data[p] == 0x2D
            p += 1
        if p == stop:
            return False
        while stop - p > 19 and data[p] == 0x30:
            p += 1
        if stop - p > 19:  # 19 digits always fit into 64 bits
            return False
        if stop - p >= 8:
            eight = eight_digits(data, p)
            if eight >= 0:
                value = eight
                p += 8
        while p < stop:
            digit = data[p] - 0x30
            if digit < 0 or digit > 9:
                return False
            value = value * 10 + digit
            p += 1
        if value > _MAX:
            if negative and value == _MAX + 1:
                self.number = -9223372036854775807
                self.number -= 1
                return True
            return False
        self.number = value
        if negative:
            self.number = -self.number
        return True

    @cython.ccall
    def decimal(self, buf: bytearray, start: cython.Py_ssize_t, n: cython.Py_ssize_t) -> cython.bint:
        """Check that the text is inside the buffer, then call `read_decimal`."""
        check(buf, start, n)
        return self.read_decimal(buf, start, n, len(buf))

    @cython.cfunc
    def read_decimal(
        self, data: cython.p_const_uchar, start: cython.Py_ssize_t, n: cython.Py_ssize_t, limit: cython.Py_ssize_t
    ) -> cython.bint:
        """Read a double into `real`, correctly rounded. `limit` is the end of the readable data."""
        sign: cython.Py_ssize_t
        if 0 < n <= 9:
            sign = 1 if data[start] == 0x2D else 0
            if 0 < n - sign <= 8 and start + sign <= limit - 8:
                if self._short(word_at(data, start + sign), n - sign, sign):
                    return True
        return self._read_long(data, start, n)

    @cython.cfunc
    @cython.inline
    @cython.cdivision(True)  # the power is never 0
    @cython.exceptval(check=False)
    def _short(self, word: cython.ulonglong, n: cython.Py_ssize_t, sign: cython.Py_ssize_t) -> cython.bint:
        """Read a number of 1 to 8 characters, digits with at most one point, from a word into `real`.

        `sign` is 1 for a negative number. A multiplication applies the sign, because a branch would often be
        mispredicted.
        """
        point: cython.ulonglong
        below: cython.ulonglong
        places: cython.longlong = 0
        mantissa: cython.longlong
        power: cython.double
        word = (word << (8 * (8 - n))) & _FULL
        point = word ^ _POINTS
        point = (((point & _SEVENS) + _SEVENS) | point | _SEVENS) ^ _FULL  # the high bit of every byte that is a point
        if point:
            n -= 1
            if n == 0:
                return False
            point = (point ^ (point & (point - 1))) >> 7  # the lowest bit of the first point's byte
            below = point - 1
            word = (word & (_FULL ^ below ^ (point * 0xFF))) | ((word & below) << 8)
            places = 7 - ((((below & _ONES) * _ONES) & _FULL) >> 56)
        word |= (_ZEROS >> (4 * n)) >> (4 * n)
        mantissa = number_in(word)
        if mantissa < 0:
            return False
        power = (1 + 9 * (places & 1)) * (1 + 99 * (places >> 1 & 1)) * (1 + 9999 * (places >> 2))
        self.real = mantissa / power * (1 - 2 * sign)
        return True

    @cython.cfunc
    def _read_long(self, data: cython.p_const_uchar, start: cython.Py_ssize_t, n: cython.Py_ssize_t) -> cython.bint:
        """Read a double from a text of any length into `real`."""
        first: cython.Py_ssize_t = self.trim(data, start, n)
        p: cython.Py_ssize_t = first
        stop: cython.Py_ssize_t = self.stop
        negative: cython.bint = False
        point: cython.bint = False
        mantissa: cython.ulonglong = 0
        significant: cython.int = 0
        digits: cython.Py_ssize_t = 0
        scale: cython.Py_ssize_t = 0
        byte: cython.int
        if p < stop and (data[p] == 0x2D or data[p] == 0x2B):
            negative = data[p] == 0x2D
            p += 1
        while p < stop:
            byte = data[p]
            if 0x30 <= byte <= 0x39:
                digits += 1
                if mantissa != 0 or byte != 0x30:
                    significant += 1
                if significant <= 19:
                    mantissa = mantissa * 10 + (byte - 0x30)
                if point:
                    scale -= 1
            elif byte == 0x2E and not point:
                point = True
            else:
                break
            p += 1
        if digits == 0:
            return self._special_real(data, first, p, stop)
        if p < stop:
            if (data[p] | 0x20) != 0x65 or not self._exponent(data, p + 1, stop):
                return False
            scale += self.number
        if significant > 19 or mantissa > _EXACT or scale > 22 or scale < -22:
            self.real = float(bytes(data[first:stop]))
            return True
        self.real = self._scaled(mantissa, scale)
        if negative:
            self.real = -self.real
        return True

    @cython.cfunc
    @cython.exceptval(check=False)
    def read_fixed(
        self, data: cython.p_const_uchar, start: cython.Py_ssize_t, n: cython.Py_ssize_t, scale: cython.Py_ssize_t
    ) -> cython.bint:
        """Parse a decimal text times 10^scale, rounded half up, into `number` and `zeros`: number * 10^zeros.

        Return False if the text has an exponent, or more than 18 digits after scaling. `exactly` reads such texts.
        """
        p: cython.Py_ssize_t = self.trim(data, start, n)
        stop: cython.Py_ssize_t = self.stop
        negative: cython.bint = False
        value: cython.longlong = 0
        digits: cython.Py_ssize_t = 0
        first: cython.Py_ssize_t
        if p < stop and (data[p] == 0x2D or data[p] == 0x2B):
            negative = data[p] == 0x2D
            p += 1
        first = p
        while p < stop and digits < 18 and 0x30 <= data[p] <= 0x39:
            value = value * 10 + (data[p] - 0x30)
            digits += 1
            p += 1
        if p < stop and data[p] == 0x2E:
            p += 1
            if stop - first == 1:
                return False
            while p < stop and scale > 0 and digits < 18 and 0x30 <= data[p] <= 0x39:
                value = value * 10 + (data[p] - 0x30)
                digits += 1
                scale -= 1
                p += 1
            if p < stop and scale == 0 and 0x35 <= data[p] <= 0x39:
                value += 1
            while p < stop and scale == 0 and 0x30 <= data[p] <= 0x39:
                p += 1
        if p < stop or p == first:
            return False
        while scale > 0 and digits < 18:
            value *= 10
            digits += 1
            scale -= 1
        self.number = -value if negative else value
        self.zeros = scale
        return True

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def _scaled(self, mantissa: cython.ulonglong, scale: cython.Py_ssize_t) -> cython.double:
        """Return mantissa * 10^scale. The mantissa and the power must be representable exactly as doubles."""
        power: cython.double = 1.0
        value: cython.double = mantissa
        while scale > 0:
            power *= 10.0
            scale -= 1
        if scale == 0:
            return value * power
        while scale < 0:
            power *= 10.0
            scale += 1
        return value / power

    @cython.cfunc
    @cython.exceptval(check=False)
    def _exponent(self, data: cython.p_const_uchar, p: cython.Py_ssize_t, stop: cython.Py_ssize_t) -> cython.bint:
        """Read an exponent, [+-]digits from p to stop, into `number`, at most about 99999 in magnitude."""
        negative: cython.bint = False
        value: cython.longlong = 0
        if p < stop and (data[p] == 0x2D or data[p] == 0x2B):
            negative = data[p] == 0x2D
            p += 1
        if p >= stop:
            return False
        while p < stop:
            if data[p] < 0x30 or data[p] > 0x39:
                return False
            if value < 99999:
                value = value * 10 + (data[p] - 0x30)
            p += 1
        self.number = -value if negative else value
        return True

    @cython.cfunc
    def _special_real(
        self, data: cython.p_const_uchar, first: cython.Py_ssize_t, p: cython.Py_ssize_t, stop: cython.Py_ssize_t
    ) -> cython.bint:
        """Read nan, inf or infinity into `real`. `p` is the position after the sign."""
        if stop - p > 8 or bytes(data[p:stop]).lower() not in SPECIAL_REALS:
            return False
        self.real = float(bytes(data[first:stop]))
        return True

    @cython.ccall
    def boolean(self, buf: bytearray, start: cython.Py_ssize_t, n: cython.Py_ssize_t) -> cython.bint:
        """Check that the text is inside the buffer, then call `read_boolean`."""
        check(buf, start, n)
        return self.read_boolean(buf, start, n)

    @cython.cfunc
    def read_boolean(self, data: cython.p_const_uchar, start: cython.Py_ssize_t, n: cython.Py_ssize_t) -> cython.bint:
        """Read a boolean into `number` (1 or 0)."""
        p: cython.Py_ssize_t = self.trim(data, start, n)
        length: cython.Py_ssize_t = self.stop - p
        if length == 1 and (data[p] == 0x30 or data[p] == 0x31):
            self.number = data[p] - 0x30
            return True
        if length > 5:
            return False
        word: bytes = bytes(data[p : p + length]).lower()
        self.number = 1 if word in TRUE_WORDS else 0
        return self.number == 1 or word in FALSE_WORDS

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def _pair(self, data: cython.p_const_uchar, p: cython.Py_ssize_t, stop: cython.Py_ssize_t) -> cython.longlong:
        """Return the number that two digits at p form, or -1 if they are not digits."""
        if p + 2 > stop or not (0x30 <= data[p] <= 0x39 and 0x30 <= data[p + 1] <= 0x39):
            return -1
        value: cython.longlong = data[p] - 0x30
        value = value * 10 + data[p + 1] - 0x30
        return value

    @cython.cfunc
    @cython.exceptval(check=False)
    def _civil(self, data: cython.p_const_uchar, p: cython.Py_ssize_t, stop: cython.Py_ssize_t) -> cython.bint:
        """Read YYYY-MM-DD at p into `number`, as days since 1970-01-01."""
        if p + 10 > stop or data[p + 4] != 0x2D or data[p + 7] != 0x2D:
            return False
        century: cython.longlong = self._pair(data, p, stop)
        year: cython.longlong = self._pair(data, p + 2, stop)
        month: cython.longlong = self._pair(data, p + 5, stop)
        day: cython.longlong = self._pair(data, p + 8, stop)
        if century < 0 or year < 0 or month < 1 or month > 12 or day < 1:
            return False
        year += century * 100
        if day > days_in_month(year, month):
            return False
        self.number = days_from_civil(year, month, day)
        return True

    @cython.ccall
    def date(self, buf: bytearray, start: cython.Py_ssize_t, n: cython.Py_ssize_t) -> cython.bint:
        """Check that the text is inside the buffer, then call `read_date`."""
        check(buf, start, n)
        return self.read_date(buf, start, n)

    @cython.cfunc
    @cython.exceptval(check=False)
    def read_date(self, data: cython.p_const_uchar, start: cython.Py_ssize_t, n: cython.Py_ssize_t) -> cython.bint:
        """Read a date into `number`, as days since 1970-01-01."""
        p: cython.Py_ssize_t = self.trim(data, start, n)
        if not self._civil(data, p, self.stop):
            return False
        return self.stop - p == 10 or data[p + 10] == 0x54 or data[p + 10] == 0x20

    @cython.ccall
    def timestamp(self, buf: bytearray, start: cython.Py_ssize_t, n: cython.Py_ssize_t) -> cython.bint:
        """Check that the text is inside the buffer, then call `read_timestamp`."""
        check(buf, start, n)
        return self.read_timestamp(buf, start, n)

    @cython.cfunc
    def read_timestamp(self, data: cython.p_const_uchar, start: cython.Py_ssize_t, n: cython.Py_ssize_t) -> cython.bint:
        """Read a timestamp into `number`, as microseconds since 1970-01-01 UTC."""
        p: cython.Py_ssize_t = self.trim(data, start, n)
        stop: cython.Py_ssize_t = self.stop
        if not self._civil(data, p, stop):
            if not self.read_integer(data, start, n):
                return False
            if self.number > _MAX_MILLISECONDS or self.number < -_MAX_MILLISECONDS:
                return False
            self.number *= 1000
            return True
        micros: cython.longlong = self.number * 86400000000
        p += 10
        if p < stop and (data[p] == 0x54 or data[p] == 0x20):
            if not self._clock(data, p + 1, stop):
                return False
            micros += self.number
            p = self.stop
        if not self._zone(data, p, stop):
            offset = named_offset(bytes(data[p:stop]), micros)
            if offset is None:
                return False
            self.number = offset
        self.number = micros - self.number
        return True

    @cython.cfunc
    @cython.exceptval(check=False)
    def _clock(self, data: cython.p_const_uchar, p: cython.Py_ssize_t, stop: cython.Py_ssize_t) -> cython.bint:
        """Read a time of day, HH:MM[:SS[.digits]], at p into `number` in microseconds. Set `stop` to its end."""
        hour: cython.longlong = self._pair(data, p, stop)
        minute: cython.longlong = self._pair(data, p + 3, stop)
        second: cython.longlong = 0
        micros: cython.longlong = 0
        unit: cython.longlong = 100000
        if hour < 0 or hour > 23 or minute < 0 or minute > 59 or data[p + 2] != 0x3A:
            return False
        p += 5
        if p < stop and data[p] == 0x3A:
            second = self._pair(data, p + 1, stop)
            if second < 0 or second > 59:
                return False
            p += 3
            if p < stop and (data[p] == 0x2E or data[p] == 0x2C):
                p += 1
                while p < stop and 0x30 <= data[p] <= 0x39:
                    micros += unit * (data[p] - 0x30)
                    unit //= 10  # ignore digits beyond microseconds
                    p += 1
        self.number = ((hour * 60 + minute) * 60 + second) * 1000000 + micros
        self.stop = p
        return True

    @cython.cfunc
    def _zone(self, data: cython.p_const_uchar, p: cython.Py_ssize_t, stop: cython.Py_ssize_t) -> cython.bint:
        """Read a time zone from p to stop into `number`, as its offset from UTC in microseconds."""
        sign: cython.int
        hours: cython.longlong
        minutes: cython.longlong = 0
        self.number = 0
        while p < stop and data[p] == 0x20:
            p += 1
        if p == stop:
            return True
        if stop - p == 1 and (data[p] | 0x20) == 0x7A:
            return True
        if data[p] != 0x2B and data[p] != 0x2D:
            return bytes(data[p:stop]) == b"UTC"
        sign = -1 if data[p] == 0x2D else 1
        hours = self._pair(data, p + 1, stop)
        p += 3
        if p < stop and data[p] == 0x3A:
            p += 1
        if p < stop:
            minutes = self._pair(data, p, stop)
            p += 2
        if hours < 0 or hours > 18 or minutes < 0 or minutes > 59 or p != stop:
            return False
        self.number = sign * (hours * 60 + minutes) * 60000000
        return True

"""Doubles as Redis parses and formats them: the scores of sorted sets (Redis: util.c, deps/fpconv).

Clients, listpacks and digests contain scores as text, so the exact text matters:

                          7.0                         7.2 and newer, Valkey
    reply                 17 digits                   integer, else shortest
    in a listpack         integer, else 17 digits     integer, else shortest
    in a digest           17 digits                   shortest

    17 digits   C's %.17g: 0.1 is 0.10000000000000001
    integer     no fraction and at most 2^62 in magnitude: 100000000000000000, not 1e+17
    shortest    enough digits to read the same double back, usually the minimum: 0.1

"shortest" is Grisu2 (F. Loitsch, "Printing Floating-Point Numbers Quickly and Accurately with Integers", 2010).
About one result in a thousand has one digit too many, or is not the nearest of the shortest. DUMP exposes these
digits, so this module implements Grisu2 step by step; Python's repr is always shortest. Let v be the double, and m-,
m+ the midpoints between it and its neighbours:

    v * 10^k, m- * 10^k, m+ * 10^k     64 bits each, k chosen so that the integer part has at most 32 bits
    digits of m+ * 10^k                until the remainder is within m+ - m-
    last digit                         decremented while that moves closer to v

10^k is one of 87 powers, eight decades apart, of 64 bits each, computed from Python's integers at the import.

Parsing is C's strtod: decimal, hexadecimal, inf. A score has no surrounding blanks (`parse`). The bound of a range may
have leading blanks, may be empty (0), and may be too large (infinite) (`parse_bound`). Some servers have their own
parsers, which accept less or more:

                              7.0     8.0     newest     Valkey
    hexadecimal score         yes     yes     yes        no
    hexadecimal bound, blanks yes     no      yes        no
    2e308, 1e-324 as scores   no      no      inf, 0     no           (`wide`: at most 19 digits)
"""

from __future__ import annotations

import re
import struct
from math import isinf, isnan

from rillet._cython import cython
from rillet.structs.integer_text import decimal

_DECIMAL = re.compile(rb"[+-]?(?:([0-9]+)\.?([0-9]*)|\.([0-9]+))(?:[eE][+-]?[0-9]+)?")
_HEXADECIMAL = re.compile(rb"[+-]?0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)(?:[pP][+-]?[0-9]+)?")
_INFINITE = re.compile(rb"[+-]?inf(?:inity)?", re.IGNORECASE)
_BLANKS = b" \t\n\v\f\r"
_EXACT = 1 << 62
_NAN = cython.declare(cython.double, float("nan"))
_ALL_BITS = cython.declare(cython.ulonglong, (1 << 64) - 1)

# -- parsing -----------------------------------------------------------------------------------------


def parse(text: bytes, hexadecimal: bool = True, wide: bool = False) -> float | None:
    """Parse a score; return None if the text is no number, or the number is NaN or out of range (util.c: string2d)."""
    plain: cython.double = parse_plain(text, len(text))
    if plain == plain:
        return plain
    value = _strtod(text)
    if value is None or _INFINITE.fullmatch(text):
        return value
    if not hexadecimal and _HEXADECIMAL.fullmatch(text):
        return None
    out_of_range = isinf(value) or (value == 0 and _digits_of(text).strip(b"0"))
    return None if out_of_range and not (wide and _is_short(text)) else value


@cython.cfunc
@cython.exceptval(-1, check=True)
def parse_plain(text: cython.p_const_uchar, n: cython.Py_ssize_t) -> cython.double:
    """Return the value of a decimal text of up to 30 digits without an exponent, NaN for any other text.

    Up to 15 digits are an exact double, and so is the power of ten that divides them: the quotient is rounded once.
    """
    digits: cython.longlong = 0
    scale: cython.double = 1.0
    count: cython.int = 0
    fraction: cython.bint = False
    i: cython.Py_ssize_t = 0
    c: cython.int
    if n > 0 and (text[0] == 45 or text[0] == 43):  # - or +
        i = 1
    if n - i > 31:
        return _NAN
    while i < n:
        c = text[i]
        i += 1
        if c == 46 and not fraction:  # the point
            fraction = True
            continue
        if c < 48 or c > 57:
            return _NAN
        count += 1
        if count <= 15:
            digits = digits * 10 + (c - 48)
            if fraction:
                scale *= 10.0
    if count == 0 or count > 30:
        return _NAN
    if count > 15:
        return float(text[:n])
    value: cython.double = float(digits)
    if fraction:
        value /= scale
    return -value if text[0] == 45 else value


def parse_bound(text: bytes, plain: bool = False) -> float | None:
    """Parse the bound of a score range; return None if it is not a number (t_zset.c: zslParseRange).

    plain: reject hexadecimal numbers and leading blanks.
    """
    text = text.split(b"\0", 1)[0]
    if plain and (text[:1].strip(_BLANKS) != text[:1] or _HEXADECIMAL.fullmatch(text)):
        return None
    return _strtod(text.lstrip(_BLANKS)) if text else 0.0


def parse_all(texts: list[bytes], hexadecimal: bool, wide: bool) -> list[float] | None:
    """Parse scores; return None if one of them is not a number (see `parse`). O(bytes)"""
    values: list[float] = []
    for text in texts:
        value = parse(text, hexadecimal, wide)
        if value is None:
            return None
        values.append(value)
    return values


def _strtod(text: bytes) -> float | None:
    """Return the value of a text that is a number other than NaN, else None. Numbers too large become infinity."""
    if _DECIMAL.fullmatch(text) or _INFINITE.fullmatch(text):
        return float(text)
    if _HEXADECIMAL.fullmatch(text):
        try:
            return float.fromhex(text.decode())
        except OverflowError:
            return float("-inf" if text.startswith(b"-") else "inf")
    return None


def _digits_of(text: bytes) -> bytes:
    """Return the digits of a decimal or hexadecimal text, without its sign, point and exponent."""
    match = _DECIMAL.fullmatch(text)
    if match is not None:
        return (match[1] or b"") + (match[2] or b"") + (match[3] or b"")
    return re.split(rb"[pP]", text)[0].lstrip(b"+-")[2:].replace(b".", b"")


def _is_short(text: bytes) -> bool:
    """Return whether Redis 8.10 parses a decimal text without strtod, and so without strtod's range check."""
    match = _DECIMAL.fullmatch(text)
    if match is None or len(_digits_of(text).lstrip(b"0")) > 19:
        return False
    power = re.split(rb"[eE]", text)[1:] or [b"0"]
    fraction = match[2] if match[3] is None else match[3]
    return -342 <= int(power[0]) - len(fraction) <= 308


# -- formatting --------------------------------------------------------------------------------------


def as_integer(value: float) -> int | None:
    """Return the double as an integer, or None if it has a fraction or exceeds 2^62 (util.c: double2ll)."""
    return int(value) if -_EXACT <= value <= _EXACT and value == int(value) else None


def digits_17(value: float) -> bytes:
    """Format a double with 17 significant digits (C's %.17g)."""
    return b"%.17g" % value


def listpack_score(value: float, classic: bool) -> bytes | int:
    """Return a score as a listpack stores it: an integer or a text (t_zset.c: zzlInsertAt)."""
    number = as_integer(value)
    if number is not None:
        return number
    return digits_17(value) if classic else shortest(value)


def reply_text(value: float, classic: bool) -> bytes:
    """Format a double for a reply (networking.c: addReplyDouble)."""
    if classic:
        return digits_17(value)
    number = as_integer(value)
    # A zero double has a sign, which an integer would lose.
    return shortest(value) if number is None or value == 0 else decimal(number)


def shortest(value: float) -> bytes:
    """Format a double with Grisu2's digits (fpconv_dtoa.c: fpconv_dtoa)."""
    return _exact(value) or by_grisu(value)


@cython.cfunc
def _exact(value: cython.double) -> bytes:
    """Format a fraction with at most six binary digits after the point, such as 2.5; return b"" for any other number.

    Its decimal digits are at most 15, so no other number of so few digits is closer to it than half a step, and the
    digits are in the middle of the interval from which Grisu2 selects: it finds the same.
    """
    size: cython.double = -value if value < 0 else value
    if not 0.015625 <= size < 1e9:
        return b""
    places: cython.int = 0
    number: cython.longlong = 0
    scale: cython.longlong = 1
    while True:
        if cython.compiled:
            number = cython.cast(cython.longlong, size)
        else:
            number = int(size)
        if number == size:
            break
        if places == 6:
            return b""
        places += 1
        scale *= 10
        size *= 2
    if places == 0:
        return b""
    number = number * scale >> places
    return (b"-" if value < 0 else b"") + decimal(number // scale) + b"." + decimal(scale + number % scale)[1:]


def by_grisu(value: float) -> bytes:
    """Format a double with Grisu2."""
    bits = int.from_bytes(struct.pack(">d", value), "big")
    sign = b"-" if bits >> 63 else b""
    if isnan(value):
        return sign + b"nan"
    if isinf(value) or value == 0:
        return sign + (b"inf" if value else b"0")
    digits, power = _grisu(bits)
    return sign + _laid_out(digits, power, 17 if sign else 18)


def _laid_out(digits: bytes, power: int, most: int) -> bytes:
    """Format digits * 10^power as an integer, a decimal fraction, or with an exponent (emit_digits)."""
    count = len(digits)
    exponent = power + count - 1
    if power >= 0 and abs(exponent) < count + 7:
        return digits + b"0" * power
    if power < 0 and (power > -7 or abs(exponent) < 4):
        whole = count + power
        if whole <= 0:
            return b"0." + b"0" * -whole + digits
        return digits[:whole] + b"." + digits[whole:]
    digits = digits[:most]
    fraction = b"." + digits[1:] if len(digits) > 1 else b""
    power += len(digits) - 1
    return b"%b%be%b%b" % (digits[:1], fraction, b"-" if power < 0 else b"+", decimal(abs(power)))


def _powers() -> list[tuple[int, int]]:
    """Return 10^-348, 10^-340, ... 10^340 as (64 bits, exponent of two)."""
    powers: list[tuple[int, int]] = []
    for decade in range(-348, 341, 8):
        # Compute more bits than the 64 that are kept, so that the value is rounded only once.
        scaled = 10**decade << 128 if decade >= 0 else (1 << 1408) // 10**-decade
        exponent = scaled.bit_length() - 64
        powers.append(((scaled + (1 << exponent - 1)) >> exponent, exponent - (128 if decade >= 0 else 1408)))
    return powers


# Computed at the import: Python looks for signals when it multiplies or divides long integers, so a signal handler
# could raise in the middle of the first command that formats a score. All other arithmetic here is compiled.
_POWERS = _powers()


def _power_for(exponent: int) -> tuple[int, int, int]:
    """Return the power of ten that scales 64 bits * 2^exponent into range, as (bits, exponent of two, decade)."""
    powers = _POWERS
    at = (int(-(exponent + 87) * 0.30102999566398114) + 348) // 8
    while exponent + powers[at][1] + 64 < -60:
        at += 1
    while exponent + powers[at][1] + 64 > -32:
        at -= 1
    return (*powers[at], 8 * at - 348)


def _grisu(bits: cython.ulonglong) -> tuple[bytes, int]:
    """Return the digits and the power of ten of a positive finite double (fpconv_dtoa.c: grisu2)."""
    one: cython.ulonglong = 1
    mantissa: cython.ulonglong = bits & ((one << 52) - 1)
    exponent: cython.int = bits >> 52 & 0x7FF
    if exponent:
        mantissa += one << 52
    exponent = (exponent or 1) - 1075
    # Both neighbours of a double are equally far away, except for a power of two: its lower one is half as far.
    nearer: cython.bint = mantissa == one << 52
    shift: cython.int = 10
    while not mantissa >> (62 - shift):
        shift += 1
    upper: cython.ulonglong = (2 * mantissa + 1) << shift
    lower: cython.ulonglong = (4 * mantissa - 1) << (shift - 1) if nearer else (2 * mantissa - 1) << shift
    exponent -= shift + 1
    factor, binary, decade = _power_for(exponent)
    digits, power = _generate(mantissa << shift + 1, lower, upper, factor, -(exponent + binary + 64))
    return digits, power - decade


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _product(one: cython.ulonglong, other: cython.ulonglong) -> cython.ulonglong:
    """Return the upper 64 bits of the product of two 64-bit numbers, rounded; no intermediate value is longer."""
    half: cython.ulonglong = 0xFFFFFFFF
    cross: cython.ulonglong = (one >> 32) * (other & half)
    crossed: cython.ulonglong = (one & half) * (other >> 32)
    rest: cython.ulonglong = (cross & half) + (crossed & half) + ((one & half) * (other & half) >> 32) + (half >> 1) + 1
    return (one >> 32) * (other >> 32) + (cross >> 32) + (crossed >> 32) + (rest >> 32)


@cython.cfunc
def _generate(
    middle: cython.ulonglong, lower: cython.ulonglong, upper: cython.ulonglong, factor: cython.ulonglong,
    fraction: cython.int,
) -> tuple[bytes, int]:  # fmt: skip
    """Return the digits, and their power of ten, of a short decimal number between two bounds (generate_digits).

    `factor`, a power of ten, scales the bounds. fraction: the number of fractional bits after scaling, 32 to 60.
    """
    digits: bytearray = bytearray(24)
    count: cython.Py_ssize_t = 0
    one: cython.ulonglong = cython.cast(cython.ulonglong, 1) << fraction
    top: cython.ulonglong = _product(upper, factor) - 1
    off: cython.ulonglong = top - _product(middle, factor)
    delta: cython.ulonglong = top - _product(lower, factor) - 1
    whole: cython.ulonglong = top >> fraction
    part: cython.ulonglong = top & (one - 1)
    unit: cython.ulonglong = 1_000_000_000
    power: cython.int = 10
    while power > 0:
        digit: cython.ulonglong = whole // unit
        whole -= digit * unit
        power -= 1
        if digit or count:
            digits[count] = 48 + digit
            count += 1
        rest: cython.ulonglong = (whole << fraction) + part
        if rest <= delta:
            _come_nearer(digits, count, delta, rest, unit << fraction, off)
            return bytes(digits[:count]), power
        unit //= 10
    while True:
        part *= 10
        delta *= 10
        off = off * 10 & _ALL_BITS
        power -= 1
        digit = part >> fraction
        part &= one - 1
        if digit or count:
            digits[count] = 48 + digit
            count += 1
        if part < delta:
            _come_nearer(digits, count, delta, part, one, off)
            return bytes(digits[:count]), power


@cython.cfunc
def _come_nearer(
    digits: bytearray, count: cython.Py_ssize_t, delta: cython.ulonglong, rest: cython.ulonglong,
    unit: cython.ulonglong, off: cython.ulonglong,
) -> cython.bint:  # fmt: skip
    """Decrement the last digit while this brings the digits closer to the double (fpconv_dtoa.c: round_digit)."""
    while rest < off and delta - rest >= unit and (rest + unit < off or off - rest > rest + unit - off):
        digits[count - 1] -= 1
        rest += unit
    return True

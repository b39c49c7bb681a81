"""Exact arithmetic of x86's long double, on which INCRBYFLOAT and time-outs in Redis depend.

An x86 long double has a 64-bit mantissa and a 15-bit exponent; Python's float has 53 bits. With floats,
`INCRBYFLOAT k 0.1` would drift from Redis's replies. This module represents values as fractions, and `rounded`
rounds each result to the nearest long double, ties to even, as the processor does:

    |x| = mantissa * 2^e      2^63 <= mantissa < 2^64      -16445 <= e <= 16320

Output has up to 17 decimals, without trailing zeros (util.c, ld2string, LD_STR_HUMAN).

Rejected alternatives: decimal.Decimal alone (rounds in base ten, so the last visible digits differ), and
ctypes.c_longdouble (converts its values to Python floats).
"""

from __future__ import annotations

import re
from decimal import Decimal
from fractions import Fraction
from math import isinf, isnan

LONGEST_TEXT = 5 * 1024 - 1
_DECIMAL = re.compile(rb"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE]([+-]?[0-9]+))?")
_HEXADECIMAL = re.compile(rb"([+-]?)0[xX](?:([0-9a-fA-F]+)\.?([0-9a-fA-F]*)|\.([0-9a-fA-F]+))(?:[pP]([+-]?[0-9]+))?")
_INFINITE = re.compile(rb"[+-]?inf(?:inity)?", re.IGNORECASE)
LARGEST = Fraction((1 << 64) - 1) * (1 << 16320)
_FAR = 40_000


class NotFinite(ArithmeticError):
    """The value of a text, or the result of an operation, is infinite."""


def parse(text: bytes) -> Fraction | None:
    """Parse a text that C's strtold accepts; return None for any other, raise NotFinite for infinity (string2ld)."""
    if not text or len(text) > LONGEST_TEXT:
        return None
    if _INFINITE.fullmatch(text):
        raise NotFinite
    exact = _parse_decimal(text) if _DECIMAL.fullmatch(text) else _parse_hexadecimal(text)
    if exact is None:
        return None
    try:
        value = rounded(exact)
    except NotFinite:
        return None  # C's strtold reports ERANGE for a text out of range
    return None if exact and not value else value


def _parse_decimal(text: bytes) -> Fraction | None:
    match = _DECIMAL.fullmatch(text)
    if match is None or (match[1] and len(match[1].lstrip(b"+-0")) > 6):
        # The exponent is far out of range, so the value is infinite or too small, unless all digits are zero.
        mantissa = re.split(rb"[eE]", text)[0]
        return Fraction(0) if not mantissa.strip(b"+-0.") else None
    value = Decimal(text.decode())
    if value and abs(value.adjusted()) > _FAR:
        return None
    return Fraction(value)


def _parse_hexadecimal(text: bytes) -> Fraction | None:
    match = _HEXADECIMAL.fullmatch(text)
    if match is None:
        return None
    sign, whole, part, only_part, power = match.groups()
    part = only_part or part or b""
    mantissa = int((whole or b"") + part, 16)
    exponent = (int(power) if power and len(power) < 8 else _FAR if power else 0) - 4 * len(part)
    if abs(exponent) >= _FAR:
        return None if mantissa else Fraction(0)
    value = Fraction(mantissa) * Fraction(2) ** exponent
    return -value if sign == b"-" else value


def rounded(value: Fraction) -> Fraction:
    """Return the nearest long double; raise NotFinite if the value exceeds the largest."""
    if not value:
        return value
    exponent = value.numerator.bit_length() - value.denominator.bit_length() - 64
    if abs(value) >= Fraction(2) ** (exponent + 64):
        exponent += 1
    exponent = max(exponent, -16445)
    unit = Fraction(2) ** exponent
    nearest = round(value / unit) * unit
    if abs(nearest) > LARGEST:
        raise NotFinite
    return nearest


def format_decimal(value: Fraction) -> bytes:
    """Format the value with up to 17 decimals (util.c: ld2string, LD_STR_HUMAN)."""
    scaled = round(value * 10**17)
    text = format(Decimal(abs(scaled)), "f").rjust(18, "0")
    whole, part = text[:-17], text[-17:].rstrip("0")
    sign = "-" if scaled < 0 else ""
    return f"{sign}{whole}.{part}".encode() if part else f"{sign}{whole}".encode()


def format_general(value: int | float | Fraction) -> bytes:
    """Format the value with up to 17 significant digits (C's %.17Lg; util.c: ld2string, LD_STR_AUTO)."""
    if isinstance(value, float) and (isinf(value) or isnan(value)):
        return b"nan" if isnan(value) else b"inf" if value > 0 else b"-inf"
    exact = Fraction(value)
    if not exact:
        return b"-0" if str(value).startswith("-") else b"0"
    sign, size = "-" if exact < 0 else "", abs(exact)
    exponent = len(str(size.numerator)) - len(str(size.denominator))
    exponent -= size < Fraction(10) ** exponent
    digits = round(size / Fraction(10) ** (exponent - 16))
    if digits == 10**17:
        digits, exponent = 10**16, exponent + 1
    text = str(digits)
    if -4 <= exponent < 17:
        whole = text[: exponent + 1] if exponent >= 0 else "0"
        part = (text[exponent + 1 :] if exponent >= 0 else "0" * (-exponent - 1) + text).rstrip("0")
        return f"{sign}{whole}.{part}".encode() if part else f"{sign}{whole}".encode()
    part = text[1:].rstrip("0")
    mantissa = f"{text[0]}.{part}" if part else text[0]
    return f"{sign}{mantissa}e{exponent:+03d}".encode()

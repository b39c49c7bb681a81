"""The arithmetic of x86's long double, exactly: INCRBYFLOAT and time-outs in Redis depend on it.

A long double there has a mantissa of 64 bits and an exponent of 15. Python's float has 53 bits, so
`INCRBYFLOAT k 0.1` would drift away from what Redis answers. Values are fractions here, and `rounded`
takes each result to the nearest value that a long double can hold, ties to even, as the processor does:

    |x| = mantissa * 2^e      2^63 <= mantissa < 2^64      -16445 <= e <= 16320

Output has 17 decimals, zeros cut off (util.c, ld2string, LD_STR_HUMAN).

Rejected: decimal.Decimal alone (rounds in base ten, and differs in the last digits that are shown),
ctypes.c_longdouble (its values come out as Python floats).
"""

from __future__ import annotations

import re
from decimal import Decimal
from fractions import Fraction

LONGEST_TEXT = 5 * 1024 - 1
_DECIMAL = re.compile(rb"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE]([+-]?[0-9]+))?")
_HEXADECIMAL = re.compile(rb"([+-]?)0[xX](?:([0-9a-fA-F]+)\.?([0-9a-fA-F]*)|\.([0-9a-fA-F]+))(?:[pP]([+-]?[0-9]+))?")
_INFINITE = re.compile(rb"[+-]?inf(?:inity)?", re.IGNORECASE)
_LARGEST = Fraction((1 << 64) - 1) * (1 << 16320)
_FAR = 40_000


class NotFinite(ArithmeticError):
    """The value is infinite, or a result would be."""


def parse(text: bytes) -> Fraction | None:
    """Return the value of a text that C's strtold takes, None for any other; NotFinite for infinity (string2ld)."""
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
        return None  # strtold reports ERANGE
    return None if exact and not value else value


def _parse_decimal(text: bytes) -> Fraction | None:
    match = _DECIMAL.fullmatch(text)
    if match is None or (match[1] and len(match[1].lstrip(b"+-0")) > 6):
        # Far outside of the range, unless the digits are all zeros.
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
    """Return the long double nearest to the value; NotFinite beyond the largest one."""
    if not value:
        return value
    exponent = value.numerator.bit_length() - value.denominator.bit_length() - 64
    if abs(value) >= Fraction(2) ** (exponent + 64):
        exponent += 1
    exponent = max(exponent, -16445)
    unit = Fraction(2) ** exponent
    nearest = round(value / unit) * unit
    if abs(nearest) > _LARGEST:
        raise NotFinite
    return nearest


def shown(value: Fraction) -> bytes:
    """Return the value with up to 17 decimals (util.c: ld2string in its human-friendly mode)."""
    scaled = round(value * 10**17)
    text = format(Decimal(abs(scaled)), "f").rjust(18, "0")
    whole, part = text[:-17], text[-17:].rstrip("0")
    sign = "-" if scaled < 0 else ""
    return f"{sign}{whole}.{part}".encode() if part else f"{sign}{whole}".encode()

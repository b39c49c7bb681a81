"""Distances and coordinates in replies of the GEO commands (Redis: geo.c, util.c)."""

from __future__ import annotations

from rillet._cython import cython
from rillet.commands.table_replies import write_score
from rillet.protocol.reply_writer import ReplyWriter, put_digits
from rillet.structs.integer_text import decimal

if cython.compiled:
    from cython.cimports.libc.math import llrint

_PLAIN = cython.declare(cython.double, 1e11)  # metres, of which 10,000 parts fit into 64 bits
_SCRATCH = cython.declare(bytearray, bytearray(32))
_FRACTION_BITS = cython.declare(cython.int, 60)
_FRACTION = cython.declare(cython.ulonglong, (1 << 60) - 1)
_UNIT = cython.declare(cython.double, 2.0**60)
_LEAST_EXACT = cython.declare(cython.double, 2.0**-8)
_DECIMALS = cython.declare(cython.ulonglong, 10**17)
_ZERO = cython.declare(cython.int, 48)
_POINT = cython.declare(cython.int, 46)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _whole(x: cython.double) -> cython.ulonglong:
    """Return the integer part of a number from 0 to 2^63."""
    return cython.cast(cython.ulonglong, x) if cython.compiled else int(x)


@cython.ccall
def write_distance(out: ReplyWriter, metres: cython.double) -> cython.bint:
    """Write a distance with four decimals (fixedpoint_d2string); NaN becomes C's smallest integer."""
    end: cython.Py_ssize_t
    if cython.compiled and 0.0 <= metres < _PLAIN:
        number: cython.ulonglong = cython.cast(cython.ulonglong, llrint(metres * 10000.0))
        text: cython.p_uchar = _SCRATCH
        end = put_digits(text, 0, number // 10000)
        # 5 digits from 10000 on: the point replaces the first one.
        put_digits(text, end, 10000 + number % 10000)
        text[end] = 46
        return out.bulk_span(text, end + 5)
    scaled: object = round(metres * 10000.0) if metres == metres else -(2**63)
    digits: bytes = decimal(scaled)
    if scaled >= 10000:  # type: ignore[operator]
        end = len(digits) - 4
        return out.bulk(digits[:end] + b"." + digits[end:])
    sign: bytes = b"-" if digits[0] == 45 else b""
    digits = digits[len(sign) :].rjust(5, b"0")
    return out.bulk(sign + digits[: len(digits) - 4] + b"." + digits[len(digits) - 4 :])


@cython.ccall
def write_coordinate(out: ReplyWriter, degrees: cython.double, as_score: cython.bint) -> cython.bint:
    """Write a longitude or a latitude: as a score since Redis 8.0, else with 17 decimals (addReplyHumanLongDouble).

    The decimals are exact: the fraction of a double from 2^-8 on is a multiple of 2^-60, which yields a digit for each
    multiplication by 10.
    """
    if as_score:
        return write_score(out, degrees, False)
    positive: cython.double = -degrees if degrees < 0 else degrees
    if positive < _LEAST_EXACT:
        return _write_text(out, degrees)
    whole: cython.ulonglong = _whole(positive)
    rest: cython.ulonglong = _whole((positive - whole) * _UNIT)
    decimals: cython.ulonglong = 0
    _digit: cython.int
    for _digit in range(17):
        rest *= 10
        decimals = decimals * 10 + (rest >> _FRACTION_BITS)
        rest &= _FRACTION
    half: cython.ulonglong = (_FRACTION >> 1) + 1
    if rest > half or (rest == half and decimals & 1):  # a half is rounded to the even digit
        decimals += 1
        if decimals == _DECIMALS:
            decimals = 0
            whole += 1
    room: bytearray = bytearray(32)
    pos: cython.Py_ssize_t = 0
    if degrees < 0:
        room[0] = 45
        pos = 1
    pos = put_digits(room, pos, whole)
    if decimals:
        put_digits(room, pos, _DECIMALS + decimals)  # 18 digits, of which the point replaces the first one
        room[pos] = 46
        pos += 18
        while room[pos - 1] == 48:
            pos -= 1
    if out.resp == 2:
        return out.bulk_slice(room, 0, pos)
    return out.raw(b"," + bytes(room[:pos]) + b"\r\n")


@cython.cfunc
def _write_text(out: ReplyWriter, degrees: cython.double) -> cython.bint:
    """Write a number near 0 with 17 decimals."""
    text: bytes = b"%.17f" % degrees
    end: cython.Py_ssize_t = len(text)
    while text[end - 1] == _ZERO:
        end -= 1
    if text[end - 1] == _POINT:
        end -= 1
    text = text[:end]
    if text == b"-0":
        text = b"0"
    if out.resp == 2:
        return out.bulk(text)
    return out.raw(b"," + text + b"\r\n")

"""The decimal text of integers, for commands that nothing may interrupt.

`b"%d" % number` and `str(number)` look for signals while they divide (CPython: long_to_decimal_string_internal), and
run the handlers of those that came. Between the change that a command makes and the entry that it writes to the log, a
handler that raises would tear the command, also in the compiled build. `decimal` runs no other code.
"""

from __future__ import annotations

from typing import Any

from rillet._cython import cython

_SCRATCH = cython.declare(bytearray, bytearray(21))  # the longest text: a sign and 20 digits


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _write(number: cython.ulonglong, negative: cython.bint) -> cython.int:
    """Write a text at the end of `_SCRATCH`; return its position."""
    text: cython.p_uchar = _SCRATCH
    i: cython.int = 21
    while True:
        i -= 1
        text[i] = 48 + number % 10
        number //= 10
        if number == 0:
            break
    if negative:
        i -= 1
        text[i] = 45
    return i


@cython.ccall
def decimal(value: Any) -> bytes:
    """Return the decimal text of an integer from -2**63 to 2**64 - 1; compiled, raise OverflowError for others."""
    if not cython.compiled:
        return b"%d" % value
    negative: cython.bint = value < 0
    number: cython.ulonglong
    if negative:
        # -(value + 1) + 1 also has a C form for the smallest number, -2**63.
        number = cython.cast(cython.ulonglong, -(cython.cast(cython.longlong, value) + 1)) + 1
    else:
        number = cython.cast(cython.ulonglong, value)
    start: cython.int = _write(number, negative)
    text: cython.p_uchar = _SCRATCH
    return cython.cast(bytes, text[start:21])


@cython.cfunc
def put_decimal(to: bytearray, at: cython.Py_ssize_t, value: cython.longlong) -> cython.Py_ssize_t:
    """Write the decimal text of an integer to a buffer from a position on; return the end of the text."""
    if not cython.compiled:
        text = b"%d" % value
        to[at : at + len(text)] = text
        return at + len(text)
    if at < 0 or at + 20 > len(to):
        raise IndexError("the buffer has no room for an integer")
    start: cython.int = _write(-(value + 1) + cython.cast(cython.ulonglong, 1) if value < 0 else value, value < 0)
    scratch: cython.p_uchar = _SCRATCH
    target: cython.p_uchar = to
    while start < 21:
        target[at] = scratch[start]
        start += 1
        at += 1
    return at

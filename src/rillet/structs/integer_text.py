"""The decimal text of integers, for commands that nothing may interrupt.

`b"%d" % number` and `str(number)` look for signals while they divide (CPython: long_to_decimal_string_internal), and
run the handlers of those that came. Between the change that a command makes and the entry that it writes to the log, a
handler that raises would tear the command, also in the compiled build. `decimal` runs no other code.
"""

from __future__ import annotations

from typing import Any

try:
    import cython
except ModuleNotFoundError:  # Cython is not installed: run interpreted
    from rillet import _cython as cython

_SCRATCH = cython.declare(bytearray, bytearray(21))  # the longest text: a sign and 20 digits


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
    return cython.cast(bytes, text[i:21])


__all__ = ["decimal"]

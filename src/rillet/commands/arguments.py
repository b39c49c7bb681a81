"""Arguments: bytes from a client become numbers, or the error that Redis has for them."""

from __future__ import annotations

from fractions import Fraction
from math import ceil

from rillet.errors import CommandError
from rillet.structs import long_double
from rillet.types.string import string2ll

NOT_AN_INTEGER = "value is not an integer or out of range"
NOT_A_FLOAT = "value is not a valid float"
LLONG_MAX = 2**63 - 1
LLONG_MIN = -(2**63)


def syntax_error() -> CommandError:
    """Return the error of an option that is unknown or misplaced (shared.syntaxerr)."""
    return CommandError("syntax error")


def text(raw: bytes) -> str:
    """Return the bytes as text that encodes back to the same bytes, cut at a NUL as C's %s does."""
    return raw.split(b"\0", 1)[0].decode("utf-8", "surrogateescape")


def integer(raw: bytes, message: str = NOT_AN_INTEGER) -> int:
    """Return a canonical signed 64-bit integer (object.c: getLongLongFromObjectOrReply)."""
    value = string2ll(raw)
    if value is None:
        raise CommandError(message)
    return int(value)


def small_integer(raw: bytes, message: str = NOT_AN_INTEGER) -> int:
    """Return an integer of 32 bits (object.c: getIntFromObjectOrReply)."""
    value = integer(raw, message)
    if not -(2**31) <= value < 2**31:
        raise CommandError(message)
    return value


def positive(raw: bytes, message: str = "value is out of range, must be positive") -> int:
    """Return an integer that is at least 0 (object.c: getPositiveLongFromObjectOrReply)."""
    value = integer(raw, message)
    if value < 0:
        raise CommandError(message)
    return value


def timeout_ms(raw: bytes) -> int:
    """Return a time-out given in milliseconds (timeout.c: getTimeoutFromObjectOrReply)."""
    value = integer(raw, "timeout is not an integer or out of range")
    if value < 0:
        raise CommandError("timeout is negative")
    return value


def float_value(raw: bytes, message: str = NOT_A_FLOAT) -> Fraction:
    """Return a long double (object.c: getLongDoubleFromObjectOrReply); long_double.NotFinite for infinity."""
    value = long_double.parse(raw)
    if value is None:
        raise CommandError(message)
    return value


def timeout_seconds(raw: bytes) -> int:
    """Return, in milliseconds, a time-out given in seconds; part of a millisecond counts as one."""
    try:
        value = ceil(long_double.rounded(float_value(raw, "timeout is not a float or out of range") * 1000))
    except long_double.NotFinite:
        value = -1
    # What does not fit a long long becomes its most negative value on x86, so Redis calls it negative.
    if not 0 <= value <= LLONG_MAX:
        raise CommandError("timeout is negative")
    return value

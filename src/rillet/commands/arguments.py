"""Arguments: convert the bytes of a client to numbers, or raise Redis's error."""

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
    """Return the error for an unknown or misplaced option (shared.syntaxerr)."""
    return CommandError("syntax error")


def text(raw: bytes) -> str:
    """Return bytes as text for an error message, up to the first NUL byte, as C's %s does."""
    return raw.split(b"\0", 1)[0].decode("utf-8", "surrogateescape")


def integer(raw: bytes, message: str = NOT_AN_INTEGER) -> int:
    """Parse a canonical signed 64-bit integer (object.c: getLongLongFromObjectOrReply)."""
    value = string2ll(raw)
    if value is None:
        raise CommandError(message)
    return int(value)


def small_integer(raw: bytes, message: str = NOT_AN_INTEGER) -> int:
    """Parse a 32-bit integer (object.c: getIntFromObjectOrReply)."""
    value = integer(raw, message)
    if not -(2**31) <= value < 2**31:
        raise CommandError(message)
    return value


def positive(raw: bytes, message: str = "value is out of range, must be positive") -> int:
    """Parse an integer that is at least 0 (object.c: getPositiveLongFromObjectOrReply)."""
    value = integer(raw, message)
    if value < 0:
        raise CommandError(message)
    return value


def timeout_ms(raw: bytes) -> int:
    """Parse a timeout in milliseconds (timeout.c: getTimeoutFromObjectOrReply)."""
    value = integer(raw, "timeout is not an integer or out of range")
    if value < 0:
        raise CommandError("timeout is negative")
    return value


def float_value(raw: bytes, message: str = NOT_A_FLOAT) -> Fraction:
    """Parse a long double (getLongDoubleFromObjectOrReply); raise NotFinite for infinity."""
    value = long_double.parse(raw)
    if value is None:
        raise CommandError(message)
    return value


def timeout_seconds(raw: bytes) -> int:
    """Parse a timeout in seconds; return milliseconds, rounded up."""
    try:
        value = ceil(long_double.rounded(float_value(raw, "timeout is not a float or out of range") * 1000))
    except long_double.NotFinite:
        value = -1
    # On x86, a value that does not fit a long long becomes the most negative one, so Redis's error says negative.
    if not 0 <= value <= LLONG_MAX:
        raise CommandError("timeout is negative")
    return value


def subcommand_error(container: str, argv: list[bytes]) -> CommandError:
    """Return the error for an invalid call of a subcommand (addReplySubcommandSyntaxError)."""
    name = text(argv[1][:128])
    return CommandError(f"unknown subcommand or wrong number of arguments for '{name}'. Try {container} HELP.")

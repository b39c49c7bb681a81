"""Readers of command arguments: they convert bytes to numbers, or raise an error with Redis's text."""

from __future__ import annotations

from fractions import Fraction

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


def small_integer(raw: bytes, message: str | None = None) -> int:
    """Parse a 32-bit integer (object.c: getIntFromObjectOrReply); message: the error instead of Redis's two."""
    value = integer(raw, message or NOT_AN_INTEGER)
    if not -(2**31) <= value < 2**31:
        raise CommandError(message or f"value is out of range, value must between {-(2**31)} and {2**31 - 1}")
    return value


def positive(raw: bytes, message: str = "value is out of range, must be positive") -> int:
    """Parse an integer that is at least 0 (object.c: getPositiveLongFromObjectOrReply)."""
    value = integer(raw, message)
    if value < 0:
        raise CommandError(message)
    return value


def negatable(raw: bytes) -> int:
    """Parse an integer whose negation fits 64 bits too (object.c: getRangeLongFromObjectOrReply)."""
    value = integer(raw)
    if value == LLONG_MIN:
        raise CommandError(f"value is out of range, value must between {-LLONG_MAX} and {LLONG_MAX}")
    return value


def random_count(argv: list[bytes], flag: bytes = b"") -> tuple[int, bool]:
    """Parse `count [flag]` of HRANDFIELD, SRANDMEMBER and ZRANDMEMBER; return the count, and whether flag is given."""
    count = negatable(argv[2])
    if len(argv) > 4 or (len(argv) == 4 and argv[3].lower() != flag):
        raise syntax_error()
    # With the flag the reply has two elements per field or member, and their number must fit 64 bits.
    if len(argv) == 4 and abs(count) > LLONG_MAX // 2:
        raise CommandError("value is out of range")
    return count, len(argv) == 4


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


def subcommand_error(argv: list[bytes]) -> CommandError:
    """Return the error for an invalid call of a subcommand (networking.c: addReplySubcommandSyntaxError)."""
    name, container = text(argv[1][:128]), text(argv[0]).upper()
    return CommandError(f"unknown subcommand or wrong number of arguments for '{name}'. Try {container} HELP.")


def arity_error(name: str) -> CommandError:
    """Return the error for a wrong number of arguments (networking.c: addReplyErrorArity)."""
    return CommandError(f"wrong number of arguments for '{name}' command")

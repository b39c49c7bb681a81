"""INCR, DECR, INCRBY, DECRBY and INCRBYFLOAT (Redis: t_string.c).

INCRBYFLOAT is propagated as `SET k <result> KEEPTTL`, so that a replay does not depend on floating point.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

try:
    import cython
except ModuleNotFoundError:  # Cython is not installed: use a replacement for its names
    from rillet import _cython as cython

from rillet.commands.arguments import LLONG_MAX, LLONG_MIN, float_value, integer
from rillet.commands.string import command
from rillet.commands.string.counter_path import DecrbyFastPath, DecrFastPath, IncrbyFastPath, IncrFastPath
from rillet.commands.string.values import string_for_write, string_to_change, update_string
from rillet.errors import CommandError
from rillet.runtime.session import Session
from rillet.structs import long_double
from rillet.structs.integer_text import decimal
from rillet.types.string import TEXT, String, string2ll


@cython.cfunc
def _increment(session: Session, key: bytes, by: Any) -> cython.bint:
    """Add to the integer at a key; a missing key counts as 0 (t_string.c: incrDecrCommand)."""
    string: String = string_for_write(session.db, key)  # a counter that is used often stays awake
    value: Any = 0 if string is None else string2ll(string.value())
    if value is None:
        raise CommandError("value is not an integer or out of range")
    value = value + by
    if value > LLONG_MAX or value < LLONG_MIN:
        raise CommandError("increment or decrement would overflow")
    if string is not None and string.form == 0:
        string.data = decimal(value)  # an integer is changed in place, as in Redis
        session.modified(key)
        session.notify(b"$", b"incrby", key)
    else:
        update_string(session, key, decimal(value), 0, b"incrby")
    return session.out.integer(value)


@command("incr", arity=2, flags="write denyoom fast", since="1.0.0", syntax="key", complexity="O(1)",
         shortcut=IncrFastPath)
def incr(session: Session, argv: list[bytes]) -> None:
    """Increment the integer at a key."""
    _increment(session, argv[1], 1)


@command("decr", arity=2, flags="write denyoom fast", since="1.0.0", syntax="key", complexity="O(1)",
         shortcut=DecrFastPath)
def decr(session: Session, argv: list[bytes]) -> None:
    """Decrement the integer at a key."""
    _increment(session, argv[1], -1)


@command("incrby", arity=3, flags="write denyoom fast", since="1.0.0", syntax="key increment", complexity="O(1)",
         shortcut=IncrbyFastPath)
def incrby(session: Session, argv: list[bytes]) -> None:
    """Add to the integer at a key."""
    _increment(session, argv[1], integer(argv[2]))


@command("decrby", arity=3, flags="write denyoom fast", since="1.0.0", syntax="key decrement", complexity="O(1)",
         shortcut=DecrbyFastPath)
def decrby(session: Session, argv: list[bytes]) -> None:
    """Subtract from the integer at a key."""
    by = integer(argv[2])
    if by == LLONG_MIN:
        raise CommandError("decrement would overflow")
    _increment(session, argv[1], -by)


def _sum(augend: bytes, addend: bytes) -> bytes:
    """Return the sum of two long doubles as text; reject an invalid number before an overflow."""
    total = Fraction(0)
    finite = True
    for raw in (augend, addend):
        try:
            total += float_value(raw)
        except long_double.NotFinite:
            finite = False
    try:
        if finite:
            return long_double.format_decimal(long_double.rounded(total))
    except long_double.NotFinite:
        pass
    raise CommandError("increment would produce NaN or Infinity")


@command("incrbyfloat", arity=3, flags="write denyoom fast", since="2.6.0", syntax="key increment", complexity="O(1)")
def incrbyfloat(session: Session, argv: list[bytes]) -> None:
    """Add to the number at a key, with the precision of a long double."""
    key: bytes = argv[1]
    string: String = string_to_change(session.db, key)
    shown: bytes = _sum(b"0" if string is None else string.value(), argv[2])
    update_string(session, key, shown, TEXT, b"incrbyfloat")
    session.out.bulk(shown)
    if session.engine.log is not None:
        session.propagate([b"SET", key, shown, b"KEEPTTL"])

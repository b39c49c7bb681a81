"""INCR, DECR, INCRBY, DECRBY and INCRBYFLOAT (Redis: t_string.c).

INCRBYFLOAT is propagated as `SET k <result> KEEPTTL`, so that a replay does not depend on floating point.
"""

from __future__ import annotations

from fractions import Fraction
from functools import partial

from rillet._cython import cython
from rillet.commands.arguments import LLONG_MAX, LLONG_MIN, NOT_AN_INTEGER, float_value
from rillet.commands.span_arguments import integer_at
from rillet.commands.string import command
from rillet.commands.string.values import StringCommand, string_to_change, update_string
from rillet.errors import CommandError
from rillet.keyspace.database import Database
from rillet.runtime.session import Session
from rillet.structs import long_double
from rillet.structs.argument_spans import ArgumentSpans
from rillet.structs.integer_text import decimal, put_decimal
from rillet.structs.listpack import parse_digits
from rillet.types.string import TEXT, String, string2ll

_SMALLEST = cython.declare(cython.longlong, LLONG_MIN)
_LARGEST = cython.declare(cython.longlong, LLONG_MAX)


@cython.final
@cython.cclass
class Increment(StringCommand):
    """INCR, DECR, INCRBY and DECRBY (incrDecrCommand); `subtracts` for DECR and DECRBY."""

    __slots__ = ("_subtracts",)
    _subtracts: cython.bint

    def __init__(self, subtracts: bool) -> None:
        self._subtracts = subtracts

    @cython.ccall
    def run(self, session: Session, words: ArgumentSpans) -> cython.bint:
        """Add to the integer at a key; a missing key counts as 0."""
        db: Database = session.db
        by: cython.longlong = 1
        if words.count == 3:
            by = integer_at(words, 2)
            if self._subtracts and by == _SMALLEST:
                raise CommandError("decrement would overflow")
        if self._subtracts:
            by = -by
        n: cython.Py_ssize_t = db.locate(words)
        number: cython.longlong = 0
        form: cython.int = 0
        string: String | None = None
        if n >= 0:
            self.view(db.keys, n)
            number = parse_digits(self.at, self.size)
            if number == _SMALLEST and string2ll(self.at[: self.size]) is None:
                raise CommandError(NOT_AN_INTEGER)
            string = db.keys.object_at(n)
            form = self.form
        if (by > 0 and number > _LARGEST - by) or (by < 0 and number < _SMALLEST - by):
            raise CommandError("increment or decrement would overflow")
        number += by
        if form != 0:
            text: bytes = decimal(number)
            db.set_string_span(words.at[1], words.size[1], text, len(text), 0, True)
        elif string is None:
            db.buffer.rest[0] = 0
            db.keep_bytes(words, n, put_decimal(db.buffer.rest, 1, number))
        else:
            db.ledger.note(string)
            string.data = decimal(number)  # an integer is changed in place, as in Redis
        session.changed(words, 1)
        if db.notifies:
            session.notify(b"$", b"incrby", words.get(1))
        return session.out.integer(number)


_INCREMENT = partial(command, flags="write denyoom fast", since="1.0.0", complexity="O(1)")
_INCREMENT("incr", arity=2, syntax="key", summary="Increment the integer at a key.")(partial(Increment, False))
_INCREMENT("decr", arity=2, syntax="key", summary="Decrement the integer at a key.")(partial(Increment, True))
_INCREMENT("incrby", arity=3, syntax="key increment", summary="Add to the integer at a key.")(partial(Increment, False))
_INCREMENT("decrby", arity=3, syntax="key decrement",
           summary="Subtract from the integer at a key.")(partial(Increment, True))  # fmt: skip


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

"""The fast paths of INCR, DECR, INCRBY and DECRBY: a counter that is awake (runtime/fast_path.py).

The handler in counters.py wakes a counter at its first change, and does everything else: missing keys, other strings,
negative increments in the arguments, numbers near the ends of 64 bits.
"""

from __future__ import annotations

try:
    import cython
except ModuleNotFoundError:  # Cython is not installed: use a replacement for its names
    from rillet import _cython as cython

from rillet.commands.string.value_path import StringPath
from rillet.keyspace.database import Database
from rillet.runtime.session import Session
from rillet.structs.argument_spans import ArgumentSpans
from rillet.structs.integer_text import decimal
from rillet.types.string import String

if not cython.compiled:  # the compiled module gets this C function from its .pxd file
    from rillet.structs.listpack import parse_digits

_LARGEST = cython.declare(cython.longlong, 2**61)


@cython.cclass
class CounterPath(StringPath):
    """What they have in common: `sign` is that of the change, `words` the number of words of a call."""

    __slots__ = ("sign", "words")
    sign: cython.int
    words: cython.Py_ssize_t

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def one(self, session: Session, db: Database, words: ArgumentSpans) -> cython.bint:
        """Change the counter, or return False without any effect."""
        if words.count != self.words:
            return False
        by: cython.longlong = 1 if words.count == 2 else words.number(2)
        if by < 0:
            return False
        n: cython.Py_ssize_t = self.find(db, words)
        if n < 0:
            return False
        value: object = db.keys.object_at(n)
        if value is None or not isinstance(value, String):
            return False
        string: String = value
        if string.form != 0 or string.grown is not None:
            return False
        number: cython.longlong = parse_digits(string.span(), string.length())
        if not -_LARGEST < number < _LARGEST:
            return False
        number += self.sign * by
        text: bytes = decimal(number)
        self.touch(db, n)
        string.data = text
        session.changed(words, 1)
        return session.out.integer(number)


@cython.final
@cython.cclass
class IncrFastPath(CounterPath):
    """The fast path of INCR."""

    __slots__ = ()

    def __init__(self) -> None:
        self.name = b"incr"
        self.sign, self.words = 1, 2


@cython.final
@cython.cclass
class DecrFastPath(CounterPath):
    """The fast path of DECR."""

    __slots__ = ()

    def __init__(self) -> None:
        self.name = b"decr"
        self.sign, self.words = -1, 2


@cython.final
@cython.cclass
class IncrbyFastPath(CounterPath):
    """The fast path of INCRBY."""

    __slots__ = ()

    def __init__(self) -> None:
        self.name = b"incrby"
        self.sign, self.words = 1, 3


@cython.final
@cython.cclass
class DecrbyFastPath(CounterPath):
    """The fast path of DECRBY."""

    __slots__ = ()

    def __init__(self) -> None:
        self.name = b"decrby"
        self.sign, self.words = -1, 3


__all__ = ["DecrFastPath", "DecrbyFastPath", "IncrFastPath", "IncrbyFastPath"]

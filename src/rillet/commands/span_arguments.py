"""Readers of arguments that are spans: they convert bytes to numbers, or raise an error with Redis's text."""

from __future__ import annotations

from rillet._cython import cython
from rillet.commands.arguments import NOT_AN_INTEGER
from rillet.errors import CommandError
from rillet.structs.argument_spans import ArgumentSpans
from rillet.structs.listpack import is_int64, parse_digits

_SMALLEST = cython.declare(cython.longlong, -(2**63))


@cython.ccall
@cython.exceptval(-7777777777777777777, check=True)
def integer_at(words: ArgumentSpans, index: cython.Py_ssize_t, message: str = NOT_AN_INTEGER) -> cython.longlong:
    """Return an existing argument as a signed 64-bit integer, or raise CommandError (getLongLongFromObjectOrReply)."""
    number: cython.longlong = parse_digits(words.at[index], words.size[index])
    if number == _SMALLEST and not is_int64(words.get(index)):
        raise CommandError(message)
    return number

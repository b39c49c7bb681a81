"""The keys that the patterns of SORT name, read without an object for each name.

`NamedKeys` joins `prefix element postfix` in a buffer, and reads the string or the field there.
"""

from __future__ import annotations

from rillet._cython import cython
from rillet.commands.hash.read import write_field
from rillet.commands.string.values import StringCommand
from rillet.errors import WrongType
from rillet.keyspace.database import Database
from rillet.protocol.reply_writer import ReplyWriter, put_digits
from rillet.runtime.session import Session
from rillet.structs.argument_spans import ArgumentSpans
from rillet.structs.integer_text import decimal
from rillet.structs.listpack import parse_digits

if cython.compiled:
    from cython.cimports.libc.string import memcpy


_NAME_ROOM = cython.declare(cython.Py_ssize_t, 512)
_NOT_INT = cython.declare(cython.longlong, -(2**63))  # what `parse_digits` returns for a text that is no integer
_NUMBER_ROOM = cython.declare(cython.Py_ssize_t, 21)


@cython.final
@cython.cclass
class NamedKeys(StringCommand):
    """The keys that patterns name for elements: one at a time, in a buffer."""

    __slots__ = ("_room", "_words")
    _room: bytearray
    _words: ArgumentSpans

    def __init__(self) -> None:
        self._room = bytearray(_NAME_ROOM)
        self._words = ArgumentSpans()

    @cython.cfunc
    def _put_name(self, prefix: bytes, element: object, postfix: bytes) -> cython.bint:
        """Make `prefix element postfix` the key of a command; return False if it is too long."""
        words: ArgumentSpans = self._words
        size: cython.Py_ssize_t = len(prefix)
        length: cython.Py_ssize_t
        text: bytes
        if not cython.compiled:
            text = element if isinstance(element, bytes) else decimal(element)
            words.at[1] = prefix + text + postfix
            length = words.size[1] = len(prefix) + len(text) + len(postfix)
            return length <= _NAME_ROOM
        number: cython.longlong
        length = len(element) if isinstance(element, bytes) else _NUMBER_ROOM
        if size + length + len(postfix) > _NAME_ROOM:
            return False
        to: cython.p_uchar = self._room
        fr: cython.p_const_uchar = prefix
        memcpy(to, fr, size)
        if isinstance(element, bytes):
            text = element
            fr = text
            memcpy(to + size, fr, length)
            size += length
        else:
            number = element
            if number < 0:
                to[size] = 45
                size += 1
            size = put_digits(to, size, 0 - number if number < 0 else number)
        fr = postfix
        memcpy(to + size, fr, len(postfix))
        words.at[1] = to
        words.size[1] = size + len(postfix)
        return True

    @cython.cfunc
    @cython.exceptval(-3, check=False)
    def find_text(self, db: Database, prefix: bytes, element: object, postfix: bytes) -> cython.int:
        """Find the string of a named key; return 0, -1 if there is none, or -2 if the name is too long."""
        if not self._put_name(prefix, element, postfix):
            return -2
        self._words.count = 2
        n: cython.Py_ssize_t = db.locate_read(self._words)
        return 0 if n >= 0 and self.has_string(db.keys, n) else -1

    @cython.cfunc
    def text_or_number(self) -> object:
        """Return the string that `find_text` found: an integer for its canonical text, else the bytes."""
        number: cython.longlong = parse_digits(self.at, self.size)
        if number != _NOT_INT:
            return number
        return self.at[: self.size] if cython.compiled else bytes(self.at)

    @cython.cfunc
    def write_text(self, out: ReplyWriter) -> cython.bint:
        """Reply with the string that `find_text` found."""
        if cython.compiled:
            return out.bulk_span(self.at, self.size)
        return out.bulk(bytes(self.at))

    @cython.cfunc
    def write_field(
        self, session: Session, prefix: bytes, element: object, postfix: bytes, field: bytes
    ) -> cython.bint:
        """Reply with a field of a named hash, null if there is none; False without any effect: the name is too long."""
        words: ArgumentSpans = self._words
        if not self._put_name(prefix, element, postfix):
            return False
        words.count = 3
        words.at[2] = field
        words.size[2] = len(field)
        try:
            return write_field(session, words)
        except WrongType:
            return session.out.null()

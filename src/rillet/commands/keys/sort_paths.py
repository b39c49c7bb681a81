"""SORT without an object for each element: the fast path of numbers, and the keys that BY and GET name.

    SORT k [ASC] [LIMIT 0 5] [STORE t]    elements of the listpack -> array of integers -> reply, or the listpack of t

`SortFastPath` supports lists in one listpack whose elements are integers that a double represents exactly, and targets
that rest or do not exist. `NamedKeys` joins the name `prefix element postfix` in a buffer and reads the string or the
field there. sort.py executes everything else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

try:
    import cython
except ModuleNotFoundError:  # Cython is not installed: use a replacement for its names
    from rillet import _cython as cython

from rillet.commands.small_values import SmallValuePath
from rillet.commands.string.values import StringCommand
from rillet.errors import WrongType
from rillet.keyspace import rest_buffer
from rillet.keyspace.database import Database
from rillet.keyspace.rest_buffer import RestBuffer
from rillet.protocol.reply_writer import ReplyWriter
from rillet.runtime.session import Session
from rillet.structs.argument_spans import ArgumentSpans
from rillet.structs.dict import Dict
from rillet.structs.integer_text import decimal
from rillet.structs.listpack import Listpack
from rillet.structs.quicklist import Quicklist, QuicklistNode
from rillet.types.encoding_limits import DEFAULTS
from rillet.types.list import List

if not cython.compiled:  # the compiled module gets these C names from its .pxd file
    from rillet.commands.hash.read import write_field
    from rillet.commands.small_values import HEADER, NOT_INT
    from rillet.protocol.reply_writer import put_digits
    from rillet.structs.listpack import parse_digits
    from rillet.structs.sorting import integers_in, sort_integers

if TYPE_CHECKING:  # a C function, which the .pxd declares for the compiled module
    memcpy: Any

_LIST = cython.declare(cython.int, rest_buffer.LIST)
_MOST = cython.declare(cython.Py_ssize_t, 1024)  # elements of a list that the fast path sorts
_EXACT = cython.declare(cython.longlong, 1 << 53)  # Redis compares doubles: those of larger integers may be equal
_NAME_ROOM = cython.declare(cython.Py_ssize_t, 512)
_NUMBER_ROOM = cython.declare(cython.Py_ssize_t, 21)
_CLASSIC_SIZE = cython.declare(cython.int, DEFAULTS.list_max_listpack_size)


@cython.final
@cython.cclass
class SortFastPath(SmallValuePath):
    """The fast path of SORT: supports lists of integers, ASC, DESC, LIMIT and STORE."""

    __slots__ = ("_numbers", "_spare", "_target")
    _numbers: bytearray
    _spare: bytearray
    _target: ArgumentSpans  # the target as the key of a command

    def __init__(self) -> None:
        self.name = b"sort"
        self._numbers = bytearray(8 * _MOST)
        self._spare = bytearray(8 * _MOST)
        self._target = ArgumentSpans()

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def one(self, session: Session, db: Database, words: ArgumentSpans) -> cython.bint:
        """Execute a SORT, or return False without any effect."""
        descending: cython.bint = False
        target: cython.Py_ssize_t = 0
        first: cython.Py_ssize_t = 0
        most: cython.Py_ssize_t = _MOST
        at: cython.Py_ssize_t = 2
        if words.count < 2:
            return False
        while at < words.count:
            if words.is_option(at, b"store") and at + 1 < words.count:
                at += 1
                target = at
            elif words.is_option(at, b"desc") or words.is_option(at, b"asc"):
                descending = words.size[at] == 4
            elif words.is_option(at, b"limit") and at + 2 < words.count:
                first = words.number(at + 1)
                most = words.number(at + 2)
                at += 2
                if first < 0 or most < 0:
                    return False
            else:
                return False
            at += 1
        n: cython.Py_ssize_t = self.find(db, words)
        count: cython.Py_ssize_t = self._read_numbers(db, n)
        if count < 0:
            return False
        sort_integers(self._numbers, self._spare, count, descending)
        first = min(first, count)
        count = first + min(most, count - first)
        if target:
            return self._store(session, db, words, n, target, first, count)
        db.hits += 1
        self.touch(db, n)
        out: ReplyWriter = session.out
        numbers: cython.p_Py_ssize_t = integers_in(self._numbers)
        i: cython.Py_ssize_t
        out.array(count - first)
        for i in range(first, count):
            out.bulk_int(numbers[i])
        return True

    @cython.cfunc
    @cython.exceptval(-2, check=False)
    def _read_numbers(self, db: Database, n: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Read the elements of entry n; return their number, or -1 if the fast path does not support the value."""
        packed: Listpack = db.buffer.packed
        numbers: cython.p_Py_ssize_t = integers_in(self._numbers)
        i: cython.Py_ssize_t
        pos: cython.Py_ssize_t = HEADER
        if n < 0:
            return -1
        value: object = db.keys.object_at(n)
        if value is None:
            if db.buffer.load(db.keys, n) != _LIST:
                return -1
        else:
            if type(value) is not List:
                return -1
            elements: Quicklist = value.elements
            node: QuicklistNode | None = elements.head
            if elements.nodes != 1 or node is None or node.packed is None:
                return -1
            packed = node.packed
        count: cython.Py_ssize_t = packed.length()
        if count > _MOST:
            return -1
        for i in range(count):
            if packed.decode(pos) or not -_EXACT <= packed.at_int <= _EXACT:
                return -1
            numbers[i] = packed.at_int
            pos = packed.at_next
        return count

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _store(
        self, session: Session, db: Database, words: ArgumentSpans, n: cython.Py_ssize_t, target: cython.Py_ssize_t,
        first: cython.Py_ssize_t, end: cython.Py_ssize_t,
    ) -> cython.bint:  # fmt: skip
        """Store the numbers from `first` to `end` as a list at words[target], as `List.of` builds it.

        Return False without any effect for an unusual target, and for no numbers, which delete it.
        """
        buffer: RestBuffer = db.buffer
        numbers: cython.p_Py_ssize_t = integers_in(self._numbers)
        i: cython.Py_ssize_t
        if first == end or buffer.list_threshold:
            return False
        if db.access.stamp < 0 or db.subexpires.count():
            return False
        buffer.start_list()
        if not buffer.compact:
            buffer.rest[2] = _CLASSIC_SIZE & 0xFF
            buffer.rest[3] = _CLASSIC_SIZE >> 8 & 0xFF
            buffer.rest[4] = buffer.rest[5] = 0
        for i in range(first, end):
            buffer.packed.append_int(numbers[i])
        if buffer.outgrown(_LIST):
            return False
        key: ArgumentSpans = self._target
        key.count = 2
        key.at[1] = words.at[target]
        key.size[1] = words.size[target]
        old: cython.Py_ssize_t = self.find(db, key)
        expires: Dict = db.expires
        if old >= 0:
            if db.keys.object_at(old) is not None:
                return False
            if (expires.used0 or expires.used1) and expires.find_hashed(key.at[1], key.size[1], buffer.hash) >= 0:
                return False
        elif old != -1:
            return False
        db.hits += 1
        self.touch(db, n)
        self.store(db, key, old, buffer.compose())
        session.changed(words, end - first)
        return session.out.integer(end - first)


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
    @cython.exceptval(-1, check=False)
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
        memcpy(to, fr, size)  # noqa: F821
        if isinstance(element, bytes):
            text = element
            fr = text
            memcpy(to + size, fr, length)  # noqa: F821
            size += length
        else:
            number = element
            if number < 0:
                to[size] = 45
                size += 1
            size = put_digits(to, size, 0 - number if number < 0 else number)
        fr = postfix
        memcpy(to + size, fr, len(postfix))  # noqa: F821
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
        if number != NOT_INT:
            return number
        return self.at[: self.size] if cython.compiled else bytes(self.at)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def write_text(self, out: ReplyWriter) -> cython.bint:
        """Reply with the string that `find_text` found."""
        if cython.compiled:
            return out.bulk_span(self.at, self.size)
        return out.bulk(bytes(self.at))

    @cython.cfunc
    @cython.exceptval(-1, check=False)
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


__all__ = ["NamedKeys", "SortFastPath"]

"""The fast paths of LPUSH, RPUSH, LPOP, RPOP and LRANGE: elements of small lists, changed in their bytes at rest.

A list at rest is one listpack with the limits of its quicklist. The rules for the encoding are those of types/list.py:
a push that would convert the list or begin a second node is left to the handler.
"""

from __future__ import annotations

try:
    import cython
except ModuleNotFoundError:  # Cython is not installed: use a replacement for its names
    from rillet import _cython as cython

from rillet.commands.small_values import LengthFastPath, SmallValuePath
from rillet.keyspace import rest_buffer
from rillet.keyspace.database import Database
from rillet.keyspace.rest_buffer import RestBuffer
from rillet.runtime.session import Session
from rillet.structs.argument_spans import ArgumentSpans
from rillet.structs.listpack import Listpack

if not cython.compiled:  # the compiled module gets these C names from its .pxd file
    from rillet.commands.small_values import HEADER, MISSING, UNUSUAL, write_entry

_LIST = cython.declare(cython.int, rest_buffer.LIST)


@cython.cclass
class _PushFastPath(SmallValuePath):
    """A push to the head or the tail of a small list, or to a key that does not exist."""

    __slots__ = ("_head",)
    _head: cython.bint

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def one(self, session: Session, db: Database, words: ArgumentSpans) -> cython.bint:
        """Execute the push, or return False without any effect (pushGenericCommand)."""
        buffer: RestBuffer = db.buffer
        i: cython.Py_ssize_t
        if words.count < 3 or buffer.list_threshold:
            return False
        n: cython.Py_ssize_t = self.find(db, words)
        if n < 0:
            if n == UNUSUAL:
                return False
            buffer.start_list()
        elif db.keys.object_at(n) is not None or buffer.load(db.keys, n) != _LIST:
            return False
        for i in range(2, words.count):
            if not (
                buffer.prepend(words.at[i], words.size[i]) if self._head else buffer.append(words.at[i], words.size[i])
            ):
                break
        if not self.keep(db, words, n, _LIST):
            return False
        session.changed(words, words.count - 2)
        return session.out.integer(buffer.packed.length())


@cython.final
@cython.cclass
class LpushFastPath(_PushFastPath):
    """The fast path of LPUSH."""

    __slots__ = ()

    def __init__(self) -> None:
        self.name = b"lpush"
        self._head = True


@cython.final
@cython.cclass
class RpushFastPath(_PushFastPath):
    """The fast path of RPUSH."""

    __slots__ = ()

    def __init__(self) -> None:
        self.name = b"rpush"
        self._head = False


@cython.cclass
class _PopFastPath(SmallValuePath):
    """A pop of one element from the head or the tail of a small list."""

    __slots__ = ("_head",)
    _head: cython.bint

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def one(self, session: Session, db: Database, words: ArgumentSpans) -> cython.bint:
        """Execute the pop, or return False without any effect (popGenericCommand)."""
        packed: Listpack = db.buffer.packed
        if words.count != 2:
            return False
        tag: cython.int = self.open(db, words)
        if tag == MISSING:
            return session.out.null()
        # A quicklist may become a listpack, which the handler does.
        if tag != _LIST or (db.buffer.compact and db.buffer.rest[1] & 1 == 0):
            return False
        pos: cython.Py_ssize_t = HEADER if self._head else packed.last()
        mark: cython.Py_ssize_t = session.out.mark()
        write_entry(session.out, packed, pos)
        packed.delete(pos)
        try:
            self.put_back(db, words)
        except MemoryError:  # the element stays in the list
            session.out.truncate(mark)
            raise
        session.changed(words, 1)
        return True


@cython.final
@cython.cclass
class LpopFastPath(_PopFastPath):
    """The fast path of LPOP."""

    __slots__ = ()

    def __init__(self) -> None:
        self.name = b"lpop"
        self._head = True


@cython.final
@cython.cclass
class RpopFastPath(_PopFastPath):
    """The fast path of RPOP."""

    __slots__ = ()

    def __init__(self) -> None:
        self.name = b"rpop"
        self._head = False


@cython.final
@cython.cclass
class LrangeFastPath(SmallValuePath):
    """The fast path of LRANGE: supports missing keys and small lists."""

    __slots__ = ()

    def __init__(self) -> None:
        self.name = b"lrange"

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def one(self, session: Session, db: Database, words: ArgumentSpans) -> cython.bint:
        """Execute an LRANGE, or return False without any effect."""
        tag: cython.int = self.read_range(db, words)
        if tag == MISSING:
            return session.out.array(0)
        return tag == _LIST and self.hit(db) and self.write_range(session.out, db, 1)


def llen() -> LengthFastPath:
    """Return the fast path of LLEN."""
    return LengthFastPath(b"llen", (rest_buffer.LIST,), 1)


__all__ = ["LpopFastPath", "LpushFastPath", "LrangeFastPath", "RpopFastPath", "RpushFastPath", "llen"]

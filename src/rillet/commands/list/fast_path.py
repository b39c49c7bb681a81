"""The fast paths of LPUSH and RPUSH: elements of small lists, pushed in their bytes at rest.

A list at rest is one listpack with the limits of its quicklist. The rules for the encoding are those of types/list.py:
a push that would convert the list or begin a second node is left to the handler.
"""

from __future__ import annotations

try:
    import cython
except ModuleNotFoundError:  # Cython is not installed: use a replacement for its names
    from rillet import _cython as cython

from rillet.commands.small_values import UNUSUAL, SmallValuePath
from rillet.keyspace import rest_buffer
from rillet.keyspace.database import Database
from rillet.keyspace.rest_buffer import RestBuffer
from rillet.runtime.session import Session
from rillet.structs.argument_spans import ArgumentSpans
from rillet.structs.listpack import Listpack
from rillet.types.at_rest import LIMIT

_HEADER = cython.declare(cython.Py_ssize_t, 6)
_UNUSUAL = cython.declare(cython.Py_ssize_t, UNUSUAL)
_LIST = cython.declare(cython.int, rest_buffer.LIST)
_LIMIT = cython.declare(cython.Py_ssize_t, LIMIT)


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
        packed: Listpack = buffer.packed
        i: cython.Py_ssize_t
        total: cython.Py_ssize_t = 0
        if words.count < 3 or buffer.list_threshold or not self.may_write(db):
            return False
        for i in range(2, words.count):
            total += words.size[i]
        if total > _LIMIT:
            return False
        n: cython.Py_ssize_t = self.find(db, words)
        if n < 0:
            if n == _UNUSUAL:
                return False
            buffer.start_list()
        elif db.keys.object_at(n) is not None or buffer.load(db.keys, n) != _LIST:
            return False
        for i in range(2, words.count):
            if self._head:
                packed.insert_span(_HEADER, words.at[i], words.size[i])
            else:
                packed.append_span(words.at[i], words.size[i])
        if not buffer.fits() or not buffer.list_keeps_its_form():
            return self.outgrow(db, words, n)
        self.store(db, words, n, buffer.compose())
        session.dirty += words.count - 2
        return session.out.integer(packed.length())


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


__all__ = ["LpushFastPath", "RpushFastPath"]

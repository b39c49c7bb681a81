"""The fast paths of PFADD and PFCOUNT: elements are hashed where they were received (runtime/fast_path.py).

They support keys whose string is awake and raw, as it is after the handler has used it once. The handlers in
elements.py execute everything else: missing keys, strings at rest, keys that have expired, several keys, errors. A
string that proves corrupt on the way goes to the handler, too: it adds the same elements again, which has no effect,
and reports the error.
"""

from __future__ import annotations

try:
    import cython
except ModuleNotFoundError:  # Cython is not installed: use a replacement for its names
    from rillet import _cython as cython

from rillet.commands.small_values import SmallValuePath
from rillet.keyspace.database import Database
from rillet.runtime.session import Session
from rillet.structs.argument_spans import ArgumentSpans
from rillet.structs.hyperloglog import Cursor
from rillet.types.string import String

if not cython.compiled:  # the compiled module gets these C functions from its .pxd file
    from rillet.structs.hyperloglog import add, cache_count, cached_count, count, forget_count, is_valid


@cython.cclass
class LogFastPath(SmallValuePath):
    """What both have in common: they find a HyperLogLog."""

    __slots__ = ("_n",)
    _n: cython.Py_ssize_t  # the entry of the string that `_string` returned

    @cython.cfunc
    def _string(self, db: Database, words: ArgumentSpans) -> String:
        """Return the string of words[1] without any effect, None if the fast path does not support it."""
        n: cython.Py_ssize_t = self.find(db, words)
        if n < 0:
            return None  # type: ignore[return-value]
        value: object = db.keys.object_at(n)
        if value is None or not isinstance(value, String):
            return None  # type: ignore[return-value]
        string: String = value
        if string.grown is None or not is_valid(string.span(), string.length()):
            return None  # type: ignore[return-value]
        self._n = n
        return string


@cython.final
@cython.cclass
class PfaddFastPath(LogFastPath):
    """The fast path of PFADD."""

    __slots__ = ("_cursor",)
    _cursor: Cursor

    def __init__(self) -> None:
        self.name = b"pfadd"
        self._cursor = Cursor()

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def one(self, session: Session, db: Database, words: ArgumentSpans) -> cython.bint:
        """Execute the PFADD, or return False if the fast path does not support it."""
        if words.count < 2 or not self.may_write(db):
            return False
        string: String = self._string(db, words)
        if string is None:
            return False
        buf: bytearray = string.grown
        limit: cython.Py_ssize_t = session.engine.settings.hll_sparse_max_bytes
        changes: cython.Py_ssize_t = 0
        result: cython.int = 0
        db.ledger.note(string)
        i: cython.Py_ssize_t = 2
        while i < words.count:
            result = add(buf, words.at[i], words.size[i], limit, self._cursor)
            if result < 0:
                return False
            changes += result
            i += 1
        self.touch(db, self._n)
        if changes:
            forget_count(buf)
            session.dirty += changes
        return session.out.integer(1 if changes else 0)


@cython.final
@cython.cclass
class PfcountFastPath(LogFastPath):
    """The fast path of PFCOUNT: supports one key."""

    __slots__ = ()

    def __init__(self) -> None:
        self.name = b"pfcount"

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def one(self, session: Session, db: Database, words: ArgumentSpans) -> cython.bint:
        """Execute the PFCOUNT, or return False if the fast path does not support it."""
        if words.count != 2 or not self.may_write(db):
            return False
        string: String = self._string(db, words)
        if string is None:
            return False
        found: cython.longlong = cached_count(string.span())
        if found < 0:
            found = count(string.span(), string.length())
            if found == -1:
                return False
            cache_count(string.grown, found)
            session.dirty += 1
        db.hits += 1
        self.touch(db, self._n)
        return session.out.integer(found)


__all__ = ["LogFastPath", "PfaddFastPath", "PfcountFastPath"]

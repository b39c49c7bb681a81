"""The fast paths of PFADD, PFCOUNT and PFMERGE: elements are hashed where they were received (runtime/fast_path.py).

They support keys whose string is awake and raw, as it is after the handler has used it once; PFMERGE, if the target
and all sources are dense. The handlers in elements.py execute everything else: missing keys, strings at rest, keys that
have expired, PFCOUNT of several keys, errors. A
string that proves corrupt on the way goes to the handler, too: it adds the same elements again, which has no effect,
and reports the error.
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
from rillet.structs.hyperloglog import Cursor
from rillet.structs.hyperloglog_union import Union, count_string
from rillet.types.string import String

if not cython.compiled:  # the compiled module gets these C functions from its .pxd file
    from rillet.structs.hyperloglog import add, cache_count, cached_count, forget_count, is_valid


@cython.cclass
class LogFastPath(StringPath):
    """What they have in common: they find a HyperLogLog."""

    __slots__ = ()

    @cython.cfunc
    def log(self, db: Database, words: ArgumentSpans) -> String:
        """Return the string of words[1] as `raw` does, None if it is no HyperLogLog."""
        string: String = self.raw(db, words)
        if string is None or not is_valid(string.span(), string.length()):
            return None  # type: ignore[return-value]
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
        if words.count < 2:
            return False
        string: String = self.log(db, words)
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
        self.touch(db, self.n)
        if changes:
            forget_count(buf)
            session.changed(words, changes)
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
        if words.count != 2:
            return False
        string: String = self.log(db, words)
        if string is None:
            return False
        found: cython.longlong = cached_count(string.span())
        if found < 0:
            found = count_string(string.grown)
            if found == -1:
                return False
            cache_count(string.grown, found)
            session.changed(words, 1)
        db.hits += 1
        self.touch(db, self.n)
        return session.out.integer(found)


@cython.final
@cython.cclass
class PfmergeFastPath(LogFastPath):
    """The fast path of PFMERGE."""

    __slots__ = ("_key", "_union")
    _key: ArgumentSpans  # a source as the key of a command
    _union: Union

    def __init__(self) -> None:
        self.name = b"pfmerge"
        self._key = ArgumentSpans()
        self._union = Union()

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def one(self, session: Session, db: Database, words: ArgumentSpans) -> cython.bint:
        """Execute the PFMERGE, or return False without any effect."""
        union: Union = self._union
        string: String = self.log(db, words) if words.count > 1 else None  # type: ignore[assignment]
        if string is None or string.span()[4]:
            return False
        target: cython.Py_ssize_t = self.n
        try:
            union.clear()
            union.merge(string.grown)
            if not self._merge_sources(db, words):
                return False
            db.ledger.note(string)
            union.store(string.grown, 0)
        finally:
            union.clear()
        forget_count(string.grown)
        i: cython.Py_ssize_t
        for i in range(2, words.count):
            self.touch(db, self._find(db, words, i))
        self.touch(db, target)
        db.hits += words.count - 1
        session.changed(words, 1)
        return session.out.ok()

    @cython.cfunc
    @cython.exceptval(-3, check=False)
    def _find(self, db: Database, words: ArgumentSpans, index: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Do `find` for the key words[index]."""
        self._key.count = 2
        self._key.at[1] = words.at[index]
        self._key.size[1] = words.size[index]
        return self.find(db, self._key)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _merge_sources(self, db: Database, words: ArgumentSpans) -> cython.bint:
        """Merge the dense strings at the keys from words[2] on; return False if there is anything else."""
        i: cython.Py_ssize_t
        n: cython.Py_ssize_t
        string: String
        for i in range(2, words.count):
            n = self._find(db, words, i)
            value: object = db.keys.object_at(n) if n >= 0 else None
            if value is None or not isinstance(value, String):
                return False
            string = value
            if not is_valid(string.span(), string.length()) or string.span()[4]:
                return False
            self._union.merge(string.bytes_like())
        return True


__all__ = ["LogFastPath", "PfaddFastPath", "PfcountFastPath", "PfmergeFastPath"]

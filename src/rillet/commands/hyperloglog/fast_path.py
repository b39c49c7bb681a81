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

from rillet.keyspace import lru
from rillet.keyspace.database import Database
from rillet.protocol.command_parser import CommandParser
from rillet.protocol.propagation_buffer import PropagationBuffer
from rillet.runtime.fast_path import FastPath
from rillet.runtime.session import Session
from rillet.structs.argument_spans import ArgumentSpans
from rillet.structs.dict import Dict
from rillet.structs.hyperloglog import Cursor
from rillet.types.string import String

if not cython.compiled:  # the compiled module gets these C functions from its .pxd file
    from rillet.structs.dict_table import hash_bytes
    from rillet.structs.hyperloglog import add, cache_count, cached_count, count, forget_count, is_valid

_LRM = cython.declare(cython.int, lru.LRM)


@cython.cclass
class LogFastPath(FastPath):
    """What both have in common: they find a HyperLogLog, and log a change."""

    __slots__ = ("_n",)
    _n: cython.Py_ssize_t  # the entry of the string that `_find` returned

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _works(self, db: Database) -> cython.bint:
        """Return whether a change has no effect beside its string and the log."""
        return db.access.mode != _LRM and not db.watched_keys

    @cython.cfunc
    def _find(self, db: Database, words: ArgumentSpans) -> String:
        """Return the string of words[1] without any effect, None if the fast path does not support it."""
        keys: Dict = db.keys
        expires: Dict = db.expires
        at: cython.p_const_uchar = words.at[1]
        size: cython.Py_ssize_t = words.size[1]
        h: cython.uint = hash_bytes(at, size)
        n: cython.Py_ssize_t = keys.find_hashed(at, size, h)
        if n < 0:
            return None  # type: ignore[return-value]
        if expires.used0 or expires.used1:
            due: cython.Py_ssize_t = expires.find_hashed(at, size, h)
            if due >= 0 and expires.number(due) < db.clock.now_ms():
                return None  # type: ignore[return-value]
        value: object = keys.object_at(n)
        if value is None or not isinstance(value, String):
            return None  # type: ignore[return-value]
        string: String = value
        if string.grown is None or not is_valid(string.span(), string.length()):
            return None  # type: ignore[return-value]
        self._n = n
        return string

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _touch(self, db: Database) -> cython.bint:
        """Record the access of the string that `_find` returned."""
        if db.access.stamp >= 0:
            db.keys.put_lru(self._n, db.access.stamp)
        else:
            db.access.touch(db.keys, self._n)
        return True

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _log(self, session: Session, words: ArgumentSpans, feed: PropagationBuffer | None) -> cython.bint:
        """Log the command as received."""
        if feed is not None:
            feed.begin(session.db.index, session.db.clock.now_ms() if feed.timestamps else 0)
            feed.header(words.count)
            feed.words(words.at, words.size, 0, words.count)
        return True


@cython.final
@cython.cclass
class PfaddFastPath(LogFastPath):
    """The fast path of PFADD."""

    __slots__ = ("_cursor",)
    _cursor: Cursor

    def __init__(self) -> None:
        self._cursor = Cursor()

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def run(
        self,
        session: Session,
        parser: CommandParser,
        words: ArgumentSpans,
        feed: PropagationBuffer | None,
        limit: cython.Py_ssize_t,
    ) -> cython.Py_ssize_t:
        """Run consecutive PFADDs that the fast path supports; return how many."""
        ran: cython.Py_ssize_t = 0
        if not self._works(session.db):
            return 0
        longest: cython.Py_ssize_t = session.engine.settings.hll_sparse_max_bytes
        while words.count >= 2:
            self.ran = ran + 1
            if not self._add(session, words, feed, longest):
                break
            parser.step()
            ran += 1
            if session.out.used > limit:
                break
            words.count = parser.scan(words.at, words.size, words.room)
            if not words.is_option(0, b"pfadd"):
                break
        self.ran = ran
        return ran

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _add(
        self, session: Session, words: ArgumentSpans, feed: PropagationBuffer | None, limit: cython.Py_ssize_t
    ) -> cython.bint:
        """Execute the PFADD, or return False if the fast path does not support it."""
        string: String = self._find(session.db, words)
        if string is None:
            return False
        buf: bytearray = string.grown
        changes: cython.Py_ssize_t = 0
        result: cython.int = 0
        session.db.ledger.note(string)
        i: cython.Py_ssize_t = 2
        while i < words.count:
            result = add(buf, words.at[i], words.size[i], limit, self._cursor)
            if result < 0:
                return False
            changes += result
            i += 1
        self._touch(session.db)
        if changes:
            forget_count(buf)
            session.dirty += changes
            self._log(session, words, feed)
        return session.out.integer(1 if changes else 0)


@cython.final
@cython.cclass
class PfcountFastPath(LogFastPath):
    """The fast path of PFCOUNT: supports one key."""

    __slots__ = ()

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def run(
        self,
        session: Session,
        parser: CommandParser,
        words: ArgumentSpans,
        feed: PropagationBuffer | None,
        limit: cython.Py_ssize_t,
    ) -> cython.Py_ssize_t:
        """Run consecutive PFCOUNTs that the fast path supports; return how many."""
        ran: cython.Py_ssize_t = 0
        if not self._works(session.db):
            return 0
        while words.count == 2:
            self.ran = ran + 1
            if not self._count(session, words, feed):
                break
            parser.step()
            ran += 1
            if session.out.used > limit:
                break
            words.count = parser.scan(words.at, words.size, words.room)
            if not words.is_option(0, b"pfcount"):
                break
        self.ran = ran
        return ran

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _count(self, session: Session, words: ArgumentSpans, feed: PropagationBuffer | None) -> cython.bint:
        """Execute the PFCOUNT, or return False if the fast path does not support it."""
        db: Database = session.db
        string: String = self._find(db, words)
        if string is None:
            return False
        found: cython.longlong = cached_count(string.span())
        if found < 0:
            found = count(string.span(), string.length())
            if found == -1:
                return False
            cache_count(string.grown, found)
            session.dirty += 1
            self._log(session, words, feed)
        db.hits += 1
        self._touch(db)
        return session.out.integer(found)


__all__ = ["LogFastPath", "PfaddFastPath", "PfcountFastPath"]

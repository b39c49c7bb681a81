"""The fast paths of EXPIRE, TTL, their variants, and EXISTS: no object for a key or an argument (runtime/fast_path.py).

    EXPIRE key 60 NX   key of the client's buffer -> entry -> entry of `expires` -> number; logged: PEXPIREAT key ms NX
    TTL key            key of the client's buffer -> entry of `expires` -> number -> reply
    EXISTS a b         keys of the client's buffer -> entries -> reply

The handlers in expire.py and lookup.py do everything else: times that have passed, several conditions, keys that have
expired, and databases in which something is attached to keys.
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
from rillet.structs.dict import Dict
from rillet.structs.integer_text import decimal

if not cython.compiled:  # the compiled module gets these C names from its .pxd file
    from rillet.commands.small_values import MISSING
    from rillet.structs.dict_table import hash_bytes
    from rillet.structs.listpack import parse_digits

_LARGEST = cython.declare(cython.longlong, 10**15)
_NONE = cython.declare(cython.int, 0)
_NX = cython.declare(cython.int, 1)
_XX = cython.declare(cython.int, 2)
_GT = cython.declare(cython.int, 3)
_LT = cython.declare(cython.int, 4)
_OTHER = cython.declare(cython.int, 5)


@cython.cclass
class TimePath(SmallValuePath):
    """The base of the paths on a key's expiry: in units of `unit` ms, from now on if `relative`."""

    __slots__ = ("_relative", "_unit")

    def __init__(self, name: bytes, unit: int, relative: bool) -> None:
        self.name = name
        self._unit = unit
        self._relative = relative


@cython.final
@cython.cclass
class ExpireFastPath(TimePath):
    """The fast path of EXPIRE, PEXPIRE, EXPIREAT and PEXPIREAT."""

    __slots__ = ()

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def one(self, session: Session, db: Database, words: ArgumentSpans) -> cython.bint:
        """Set the expiry, or return False without any effect."""
        condition: cython.int = self._condition(words)
        if condition == _OTHER:
            return False
        when: cython.longlong = parse_digits(words.at[2], words.size[2])
        if not -_LARGEST < when < _LARGEST:  # also a text that is not an integer
            return False
        now: cython.longlong = db.clock.now_ms()
        when *= self._unit
        if self._relative:
            when += now
        if when <= now:
            return False
        n: cython.Py_ssize_t = self.find(db, words)
        if n < 0:
            return n == MISSING and session.out.integer(0)
        expires: Dict = db.expires
        at: cython.p_const_uchar = words.at[1]
        size: cython.Py_ssize_t = words.size[1]
        due: cython.Py_ssize_t
        if condition != _NONE:
            due = expires.find_hashed(at, size, db.buffer.hash)
            if not _allows(condition, -1 if due < 0 else expires.number(due), when):
                self.touch(db, n)
                return session.out.integer(0)
        due = expires.add_hashed(at, size, at, -1, db.buffer.hash)
        expires.set_number(due, when)
        self.touch(db, n)
        session.changed(words, 1)
        if session.logged:  # PEXPIREAT with the absolute time
            if self._unit != 1 or self._relative:
                words.put(0, b"PEXPIREAT")
            words.put(2, decimal(when))
        session.out.integer(1)
        return db._note_expiry(when)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _condition(self, words: ArgumentSpans) -> cython.int:
        """Return the condition of a call."""
        if words.count == 3:
            return _NONE
        if words.count != 4:
            return _OTHER
        if words.is_option(3, b"nx"):
            return _NX
        if words.is_option(3, b"xx"):
            return _XX
        if words.is_option(3, b"gt"):
            return _GT
        return _LT if words.is_option(3, b"lt") else _OTHER


@cython.cfunc
@cython.exceptval(-1, check=False)
def _allows(condition: cython.int, current: cython.longlong, when: cython.longlong) -> cython.bint:
    """Return whether a condition allows `when` to replace the current expiry (-1 = none: later than any time)."""
    if condition == _NX:
        return current == -1
    if condition == _XX:
        return current != -1
    if condition == _GT:
        return current != -1 and when > current
    return current == -1 or when < current


@cython.final
@cython.cclass
class TtlFastPath(TimePath):
    """The fast path of TTL, PTTL, EXPIRETIME and PEXPIRETIME."""

    __slots__ = ()

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def one(self, session: Session, db: Database, words: ArgumentSpans) -> cython.bint:
        """Reply with the expiry, or return False without any effect (ttlGenericCommand)."""
        if words.count != 2:
            return False
        n: cython.Py_ssize_t = self.find(db, words)
        if n < 0:
            if n != MISSING or db.on_missed is not None:
                return False
            db.misses += 1
            return session.out.integer(-2)
        db.hits += 1
        expires: Dict = db.expires
        due: cython.Py_ssize_t = expires.find_hashed(words.at[1], words.size[1], db.buffer.hash)
        if due < 0:
            return session.out.integer(-1)
        when: cython.longlong = expires.number(due)
        if self._relative:
            when -= db.clock.now_ms()
        when = max(when, 0)
        if self._unit != 1:
            when = when // 1000 + (when % 1000 >= 500)
        return session.out.integer(when)


@cython.final
@cython.cclass
class ExistsFastPath(SmallValuePath):
    """The fast path of EXISTS."""

    __slots__ = ()

    def __init__(self) -> None:
        self.name = b"exists"

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def one(self, session: Session, db: Database, words: ArgumentSpans) -> cython.bint:
        """Reply with the number of keys that exist, or return False without any effect."""
        expires: Dict = db.expires
        expiring: cython.bint = expires.used0 + expires.used1 > 0
        i: cython.Py_ssize_t
        due: cython.Py_ssize_t
        found: cython.Py_ssize_t = 0
        if words.count < 2:
            return False
        for i in range(1, words.count):
            h: cython.uint = hash_bytes(words.at[i], words.size[i])
            if expiring:
                due = expires.find_hashed(words.at[i], words.size[i], h)
                if due >= 0 and expires.number(due) < db.clock.now_ms():
                    return False
            if db.keys.find_hashed(words.at[i], words.size[i], h) >= 0:
                found += 1
            elif db.on_missed is not None:
                return False
        db.hits += found
        db.misses += words.count - 1 - found
        return session.out.integer(found)


__all__ = ["ExistsFastPath", "ExpireFastPath", "TimePath", "TtlFastPath"]

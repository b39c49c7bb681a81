"""The fast paths of HGETEX, HSETEX and HGETDEL; see expiry_path.py.

    HGETEX h EX 100 FIELDS 1 f      log: HPEXPIREAT h 1700000100000 FIELDS 1 f
    HSETEX h EX 100 FIELDS 1 f v    log: HSETEX h PXAT 1700000100000 FIELDS 1 f v
    HGETDEL h FIELDS 1 f            log: HDEL h f

HSETEX also creates a hash. A call that may convert a listpack to a hashtable is left to the handler.
"""

from __future__ import annotations

try:
    import cython
except ModuleNotFoundError:  # Cython is not installed: use a replacement for its names
    from rillet import _cython as cython

from rillet.commands.hash.expiry_path import FieldPath
from rillet.keyspace.database import Database
from rillet.keyspace.rest_buffer import RestBuffer
from rillet.protocol.reply_writer import ReplyWriter
from rillet.runtime.session import Session
from rillet.structs.argument_spans import ArgumentSpans
from rillet.structs.integer_text import decimal
from rillet.structs.listpack import Listpack
from rillet.types.hash import FieldExpiry, Hash

if not cython.compiled:  # the compiled module gets these C names from its .pxd file
    from rillet.commands.hash.fast_path import has_expired, write_value
    from rillet.commands.small_values import MISSING

_SECONDS = cython.declare(cython.int, 1000)
_MS = cython.declare(cython.int, 1)
_LARGE = cython.declare(cython.Py_ssize_t, 1 << 20)  # bytes of a listpack, far below the size that it may have
# What a call does with the expiry of its fields: nothing, set a time, end it, or keep it.
_NO_OPTION = cython.declare(cython.int, 0)
_TIME = cython.declare(cython.int, 1)
_PERSIST = cython.declare(cython.int, 2)
_KEEP = cython.declare(cython.int, 3)


@cython.cclass
class _TimedPath(FieldPath):
    """What HGETEX and HSETEX have in common: the options of a time.

    expiry: one of the constants above. time_at: the position of the time in the words. exact: the time is a PXAT.
    """

    __slots__ = ("exact", "expiry", "time_at")

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def take_expiry(self, db: Database, words: ArgumentSpans, at: cython.Py_ssize_t) -> cython.bint:
        """Return whether words[at] is EX, PX, EXAT or PXAT, followed by a time that has not passed."""
        self.exact = False
        self.time_at = at + 1
        if at + 1 >= words.count:
            return False
        if words.is_option(at, b"ex"):
            return self.take_time(db, words, at + 1, _SECONDS, True)
        if words.is_option(at, b"px"):
            return self.take_time(db, words, at + 1, _MS, True)
        if words.is_option(at, b"exat"):
            return self.take_time(db, words, at + 1, _SECONDS, False)
        self.exact = words.is_option(at, b"pxat")
        return self.exact and self.take_time(db, words, at + 1, _MS, False)


@cython.final
@cython.cclass
class HgetexFastPath(_TimedPath):
    """The fast path of HGETEX."""

    __slots__ = ()

    def __init__(self) -> None:
        self.name = b"hgetex"

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def one(self, session: Session, db: Database, words: ArgumentSpans) -> cython.bint:
        """Execute a call, or return False without any effect (hgetexCommand)."""
        out: ReplyWriter = session.out
        i: cython.Py_ssize_t
        place: cython.Py_ssize_t
        at: cython.Py_ssize_t = 2
        self.expiry = _NO_OPTION
        if words.is_option(2, b"persist"):
            self.expiry = _PERSIST
            at = 3
        elif not words.is_option(2, b"fields"):
            if not self.take_expiry(db, words, 2):
                return False
            self.expiry = _TIME
            at = 4
        if not self.take_fields(words, at, 1):
            return False
        value: Hash | None = self.hash_to_change(db, words)
        if value is None:
            if self.n != MISSING:
                return False
        elif has_expired(db, value):
            return False
        else:
            self.begin_change(db, value)
            if self.expiry != _NO_OPTION:
                self.begin_times(session, value)
        out.array(words.count - self.first)
        for i in range(self.first, words.count):
            place = -1 if value is None else value.locate(words.at[i], words.size[i])
            if value is None or place < 0:
                out.null()
                continue
            write_value(out, value, place)
            if self.expiry == _TIME:
                session.changed(words, 1)
                self.set_time(value, place, words, i, 0)
            elif self.expiry == _PERSIST and value.time_at(place, words.at[i], words.size[i]):
                session.changed(words, 1)
                value.set_time_at(place, words.at[i], words.size[i], 0)
        if value is not None and self.expiry != _NO_OPTION:
            self.end_times(db, words, value)
        if session.logged and session.dirty:
            self._log(session, words)
        return self.rest(db)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _log(self, session: Session, words: ArgumentSpans) -> cython.bint:
        """Log an HPEXPIREAT or HPERSIST of all fields."""
        argv: list[bytes] = [b"HPERSIST", words.get(1)]
        if self.expiry == _TIME:
            argv = [b"HPEXPIREAT", words.get(1), decimal(self.when)]
        argv.append(b"FIELDS")
        argv += words.to_list()[self.first - 1 :]
        return session.propagate(argv)


@cython.final
@cython.cclass
class HsetexFastPath(_TimedPath):
    """The fast path of HSETEX."""

    __slots__ = ("_condition",)

    def __init__(self) -> None:
        self.name = b"hsetex"

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def one(self, session: Session, db: Database, words: ArgumentSpans) -> cython.bint:
        """Execute a call, or return False without any effect (hsetexCommand)."""
        if not self._take_options(db, words):
            return False
        value: Hash | None = self.hash_to_change(db, words)
        if value is None:
            if self.n != MISSING or not self._fits(db, words, 0, 0):
                return False
            if self._condition == 1:
                return session.out.integer(0)
            value = Hash()
            db.set(words.get(1), value)
        else:
            if has_expired(db, value) or not self._fits_into(db, words, value):
                return False
            self.begin_change(db, value)
            if self._condition and not self._is_met(words, value):
                session.out.integer(0)
                return self.rest(db)
        self._set(session, db, words, value)
        if session.logged:
            self._log(session, words)
        session.out.integer(1)
        return self.rest(db)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _take_options(self, db: Database, words: ArgumentSpans) -> cython.bint:
        """Parse the options in any order before FIELDS; return False for everything unusual."""
        at: cython.Py_ssize_t = 2
        self.expiry = _NO_OPTION
        self._condition = 0
        while at < words.count and not words.is_option(at, b"fields"):
            if not self._condition and words.is_option(at, b"fxx"):
                self._condition = 1
            elif not self._condition and words.is_option(at, b"fnx"):
                self._condition = 2
            elif self.expiry != _NO_OPTION:
                return False
            elif words.is_option(at, b"keepttl"):
                self.expiry = _KEEP
            elif self.take_expiry(db, words, at):
                self.expiry = _TIME
                at += 1
            else:
                return False
            at += 1
        return self.take_fields(words, at, 2)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _fits_into(self, db: Database, words: ArgumentSpans, value: Hash) -> cython.bint:
        """Return whether the hash certainly keeps its encoding."""
        packed: Listpack | None = value.listpack
        expiry: FieldExpiry | None = value.expiry
        if value.table is not None:
            return True
        if packed is None and expiry is not None:
            packed = expiry.triples
        return packed is not None and self._fits(db, words, len(value), packed.used)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _fits(
        self, db: Database, words: ArgumentSpans, fields: cython.Py_ssize_t, used: cython.Py_ssize_t
    ) -> cython.bint:
        """Return whether a listpack of so many fields and bytes may get those of the call."""
        buffer: RestBuffer = db.buffer
        i: cython.Py_ssize_t
        for i in range(self.first, words.count):
            if words.size[i] > buffer.hash_value:
                return False
            used += words.size[i]
        return used < _LARGE and fields + ((words.count - self.first) >> 1) <= buffer.hash_entries

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _is_met(self, words: ArgumentSpans, value: Hash) -> cython.bint:
        """Return whether all fields exist (FXX), or none (FNX)."""
        i: cython.Py_ssize_t
        for i in range(self.first, words.count, 2):
            if (value.locate(words.at[i], words.size[i]) >= 0) != (self._condition == 1):
                return False
        return True

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _set(self, session: Session, db: Database, words: ArgumentSpans, value: Hash) -> cython.bint:
        """Set the fields and their times."""
        i: cython.Py_ssize_t
        place: cython.Py_ssize_t
        if self.expiry == _TIME:
            self.begin_times(session, value)
        for i in range(self.first, words.count, 2):
            session.changed(words, 1)
            place = value.locate(words.at[i], words.size[i])
            value.put_at(place, words.at[i], words.size[i], words.at[i + 1], words.size[i + 1])
            if self.expiry == _TIME:
                if place < 0:
                    place = value.locate(words.at[i], words.size[i])
                self.set_time(value, place, words, i, 0)
            elif place >= 0 and self.expiry == _NO_OPTION and value.time_at(place, words.at[i], words.size[i]):
                value.set_time_at(place, words.at[i], words.size[i], 0)
        return self.expiry != _TIME or self.end_times(db, words, value)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _log(self, session: Session, words: ArgumentSpans) -> cython.bint:
        """Log the call with the time as PXAT."""
        if self.expiry == _TIME and not self.exact:
            words.put(self.time_at - 1, b"PXAT")
            words.put(self.time_at, decimal(self.when))
        return True


@cython.final
@cython.cclass
class HgetdelFastPath(FieldPath):
    """The fast path of HGETDEL."""

    __slots__ = ()

    def __init__(self) -> None:
        self.name = b"hgetdel"

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def one(self, session: Session, db: Database, words: ArgumentSpans) -> cython.bint:
        """Execute a call, or return False without any effect (hgetdelCommand)."""
        out: ReplyWriter = session.out
        i: cython.Py_ssize_t
        place: cython.Py_ssize_t
        before: cython.longlong = session.dirty
        earliest: cython.longlong = 0
        if not self.take_fields(words, 2, 1):
            return False
        value: Hash | None = self.hash_to_change(db, words)
        if value is None:
            if self.n != MISSING:
                return False
        elif has_expired(db, value):
            return False
        else:
            earliest = value.earliest()
            self.begin_change(db, value)
        out.array(words.count - self.first)
        for i in range(self.first, words.count):
            place = -1 if value is None else value.locate(words.at[i], words.size[i])
            if value is None or place < 0:
                out.null()
                continue
            write_value(out, value, place)
            session.changed(words, 1)
            value.remove_at(place, words.at[i], words.size[i])
        if value is not None and session.dirty != before:
            if len(value) == 0:
                db.delete(words.get(1))
            elif earliest and not value.earliest():
                db.set_due(words.get(1), value, 0)
            if session.logged:
                self._log(session, words)
        return self.rest(db)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _log(self, session: Session, words: ArgumentSpans) -> cython.bint:
        """Log an HDEL of all fields."""
        return session.propagate([b"HDEL", words.get(1)] + words.to_list()[self.first :])


__all__ = ["HgetdelFastPath", "HgetexFastPath", "HsetexFastPath"]

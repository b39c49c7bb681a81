"""HEXPIRE, HTTL, HPERSIST and their variants (Redis: t_hash.c; Valkey's forms: valkey.py).

    HEXPIRE h 100 FIELDS 2 f g     log: HPEXPIREAT h 1700000100000 FIELDS 2 f g

HEXPIRE and its variants are logged as HPEXPIREAT with the absolute time and the fields that got it. A field whose new
time has passed is removed and logged as HDEL. The commands do not ask whether a field has expired: HEXPIRE revives it.
"""

from __future__ import annotations

from functools import partial

from rillet._cython import cython
from rillet.commands.arguments import text
from rillet.commands.hash import command, valkey
from rillet.commands.hash.lookup import find_to_change, find_to_read, has_expired, keep_hash
from rillet.commands.hash.times import ANY_ORDER, DELETED, SET, FieldTimes
from rillet.errors import CommandError
from rillet.keyspace.database import Database
from rillet.protocol.reply_writer import ReplyWriter
from rillet.runtime.field_expiry import field_clock
from rillet.runtime.session import Session
from rillet.structs.argument_spans import ArgumentSpans
from rillet.structs.integer_text import decimal
from rillet.types.hash import Hash

_FIELDS = "FIELDS numfields field [field ...]"
_CONDITIONAL = "[NX | XX | GT | LT] " + _FIELDS
_LINEAR = "O(N) where N is the number of specified fields"
_POSITIVE = "Parameter `numFields` should be greater than 0"
NUMBER_OF_FIELDS = "Number of fields must be a positive integer"
_SET = cython.declare(cython.int, SET)
_DELETED = cython.declare(cython.int, DELETED)
_CONDITIONS = cython.declare(tuple, (b"nx", b"xx", b"gt", b"lt"))  # in the order of their numbers (times.py)


@cython.cfunc
def _condition(words: ArgumentSpans, at: cython.Py_ssize_t) -> cython.int:
    """Return the condition in an argument, 0 if it is another word."""
    i: cython.int
    for i in range(4):
        if words.is_option(at, _CONDITIONS[i]):
            return i + 1
    return 0


@cython.cclass
class _InUnits(FieldTimes):
    """A command whose times are in units of `unit` ms, from now on if `relative`."""

    __slots__ = ("_relative", "_unit")
    _unit: cython.int
    _relative: cython.bint

    def __init__(self, unit: int, relative: bool) -> None:
        self._unit = unit
        self._relative = relative


@cython.final
@cython.cclass
class Hexpire(_InUnits):
    """HEXPIRE, HPEXPIRE, HEXPIREAT and HPEXPIREAT (hexpireGenericCommand)."""

    __slots__ = ("_condition",)
    _condition: cython.int

    @cython.ccall
    def run(self, session: Session, words: ArgumentSpans) -> cython.bint:
        """Set the expiry of fields of a hash."""
        if session.engine.settings.compat.valkey:
            valkey.expire(session, words.to_list(), self._relative, self._unit)
            return True
        db: Database = session.db
        out: ReplyWriter = session.out
        i: cython.Py_ssize_t
        place: cython.Py_ssize_t
        result: cython.int
        value: Hash | None = find_to_change(db, words)
        self.now = db.clock.now_ms()
        self.read_time(session, words, 2, self._unit, self._relative)
        if session.engine.settings.compat.knows(ANY_ORDER):
            self._read_any_order(words)
        else:
            self._condition = _condition(words, 3)
            self.read_fields(words, 4 if self._condition else 3, _POSITIVE)
        out.array(self.end - self.first)
        if value is None:
            for _ in range(self.first, self.end):
                out.integer(-2)
            return True
        value = self.begin_times(session, words, value)
        stored: cython.bint = value.tag == 0
        updated: list[bytes] = []
        deleted: list[bytes] = []
        for i in range(self.first, self.end):
            place = value.locate(words.at[i], words.size[i])
            result = -2 if place < 0 else self.set_time(session, words, value, place, i, self._condition)
            out.integer(result)
            if result == _SET:
                updated.append(words.get(i))
            elif result == _DELETED:
                deleted.append(words.get(i))
            if stored and result > 0:  # a call that fails later is logged, too
                session.changed(words, 1)
        self.end_times(db, words, value)
        empty: cython.bint = len(value) == 0
        keep_hash(db, words, value)
        if not stored:
            session.changed(words, len(updated) + len(deleted))
        if not updated:
            session.propagate_nothing()
        elif session.logged:
            self._log(session, words, updated)
        if db.notifies:
            if deleted:
                session.notify(b"h", b"hdel", words.get(1), deleted)
            if updated and (not deleted or session.engine.settings.compat.knows(88)):
                session.notify(b"h", b"hexpire", words.get(1), updated)
            if empty:
                session.notify(b"g", b"del", words.get(1))
        return True

    @cython.cfunc
    def _read_any_order(self, words: ArgumentSpans) -> cython.bint:
        """Read the condition and the fields (parseHashCommandArgs)."""
        at: cython.Py_ssize_t = 3
        found: cython.int
        several: cython.bint = False
        self._condition = 0
        self.first = 0
        while at < words.count:
            if words.is_option(at, b"fields"):
                if self.first:
                    raise CommandError("FIELDS keyword specified multiple times")
                if at >= words.count - 2:
                    raise CommandError("FIELDS requires at least numfields and one field argument")
                if not self.read_some_fields(words, at + 1, 1, _POSITIVE):
                    raise CommandError("wrong number of arguments")
                at = self.end
                continue
            found = _condition(words, at)
            if found == 0:
                raise CommandError(f"unknown argument: {text(words.get(at))}")
            several = several or (self._condition != 0 and self._condition != found)
            self._condition = found
            at += 1
        if self.first == 0:
            raise CommandError("missing FIELDS argument")
        if several:
            raise CommandError("Multiple condition flags specified")
        return True

    @cython.cfunc
    def _log(self, session: Session, words: ArgumentSpans, updated: list[bytes]) -> cython.bint:
        """Log an HPEXPIREAT of the fields that got the time."""
        if self._relative or self._unit != 1:
            words.put(0, b"HPEXPIREAT")
            words.put(2, decimal(self.when))
        if len(updated) == self.end - self.first:
            return True
        argv: list[bytes] = words.to_list()
        return session.propagate([*argv[: self.first - 1], decimal(len(updated)), *updated, *argv[self.end :]])


command("hexpire", arity=-6, flags="write fast", since="7.4.0", valkey="9.0.0", syntax="key seconds " + _CONDITIONAL,
        complexity=_LINEAR, summary="Set the expiry of fields of a hash, in seconds from now.",
        )(partial(Hexpire, 1000, True))  # fmt: skip
command("hpexpire", arity=-6, flags="write fast", since="7.4.0", valkey="9.0.0",
        syntax="key milliseconds " + _CONDITIONAL, complexity=_LINEAR,
        summary="Set the expiry of fields of a hash, in milliseconds from now.")(partial(Hexpire, 1, True))
command("hexpireat", arity=-6, flags="write fast", since="7.4.0", valkey="9.0.0",
        syntax="key unix-time-seconds " + _CONDITIONAL, complexity=_LINEAR,
        summary="Set the expiry of fields of a hash, in seconds since the epoch.")(partial(Hexpire, 1000, False))
command("hpexpireat", arity=-6, flags="write fast", since="7.4.0", valkey="9.0.0",
        syntax="key unix-time-milliseconds " + _CONDITIONAL, complexity=_LINEAR,
        summary="Set the expiry of fields of a hash, in milliseconds since the epoch.")(partial(Hexpire, 1, False))


@cython.final
@cython.cclass
class Httl(_InUnits):
    """HTTL, HPTTL, HEXPIRETIME and HPEXPIRETIME (httlGenericCommand)."""

    __slots__ = ()

    @cython.ccall
    def run(self, session: Session, words: ArgumentSpans) -> cython.bint:
        """Reply with the expiry of fields: -2 if a field is missing, -1 if it has no expiry."""
        if session.engine.settings.compat.valkey:
            valkey.times(session, words.to_list(), self._relative, self._unit)
            return True
        db: Database = session.db
        out: ReplyWriter = session.out
        i: cython.Py_ssize_t
        when: cython.longlong
        base: cython.longlong = db.clock.now_ms() if self._relative else 0
        expired: cython.longlong = 0
        value: Hash | None = find_to_read(db, words)
        self.read_fields(words, 2, NUMBER_OF_FIELDS)
        if value is not None and value.expiry is not None and has_expired(db, value):
            expired = field_clock(db)
            if expired and value.table is None:
                expired += 1  # httlGenericCommand compares with <= in this encoding, and with < in a hashtable
        out.array(self.end - self.first)
        for i in range(self.first, self.end):
            place: cython.Py_ssize_t = -1 if value is None else value.locate(words.at[i], words.size[i])
            if value is None or place < 0:
                out.integer(-2)
                continue
            when = value.time_at(place, words.at[i], words.size[i])
            if when == 0:
                out.integer(-1)
            elif when < expired:
                out.integer(-2)
            else:
                out.integer(when - base if self._unit == 1 else (when - base + 999) // 1000)
        return True


command("httl", arity=-5, flags="readonly fast", since="7.4.0", valkey="9.0.0", syntax="key " + _FIELDS,
        complexity=_LINEAR, summary="Return the time to live of fields of a hash in seconds.",
        )(partial(Httl, 1000, True))  # fmt: skip
command("hpttl", arity=-5, flags="readonly fast", since="7.4.0", valkey="9.0.0", syntax="key " + _FIELDS,
        complexity=_LINEAR, summary="Return the time to live of fields of a hash in milliseconds.",
        )(partial(Httl, 1, True))  # fmt: skip
command("hexpiretime", arity=-5, flags="readonly fast", since="7.4.0", valkey="9.0.0", syntax="key " + _FIELDS,
        complexity=_LINEAR, summary="Return the expiry of fields of a hash in seconds since the epoch.",
        )(partial(Httl, 1000, False))  # fmt: skip
command("hpexpiretime", arity=-5, flags="readonly fast", since="7.4.0", valkey="9.0.0", syntax="key " + _FIELDS,
        complexity=_LINEAR, summary="Return the expiry of fields of a hash in milliseconds since the epoch.",
        )(partial(Httl, 1, False))  # fmt: skip


@cython.final
@cython.cclass
class Hpersist(FieldTimes):
    """HPERSIST (hpersistCommand)."""

    __slots__ = ()

    @cython.ccall
    def run(self, session: Session, words: ArgumentSpans) -> cython.bint:
        """Remove the expiry of fields of a hash."""
        if session.engine.settings.compat.valkey:
            valkey.persist(session, words.to_list())
            return True
        db: Database = session.db
        out: ReplyWriter = session.out
        i: cython.Py_ssize_t
        when: cython.longlong
        now: cython.longlong = 0
        persisted: list[bytes] = []
        value: Hash | None = find_to_change(db, words)
        self.read_fields(words, 2, NUMBER_OF_FIELDS)
        if value is not None and value.expiry is not None and has_expired(db, value):
            now = field_clock(db)
        out.array(self.end - self.first)
        for i in range(self.first, self.end):
            place: cython.Py_ssize_t = -1 if value is None else value.locate(words.at[i], words.size[i])
            if value is None or place < 0:
                out.integer(-2)
                continue
            when = value.time_at(place, words.at[i], words.size[i])
            if when == 0:
                out.integer(-1)
            elif when < now:
                out.integer(-2)
            else:
                if value.tag == 0 and not persisted:  # a call that fails later is logged, too
                    session.changed(words, 1)
                value.set_time_at(place, words.at[i], words.size[i], 0)
                persisted.append(words.get(i))
                out.integer(1)
        if value is not None and persisted:
            if value.tag != 0:
                keep_hash(db, words, value)
                session.changed(words, 1)
            session.notify(b"h", b"hpersist", words.get(1), persisted)
        return True


command("hpersist", arity=-5, flags="write fast", since="7.4.0", valkey="9.0.0", syntax="key " + _FIELDS,
        complexity=_LINEAR, summary="Remove the expiry of fields of a hash.")(Hpersist)

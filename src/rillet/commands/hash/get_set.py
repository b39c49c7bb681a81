"""HGETEX, HSETEX and HGETDEL: read or set fields and change their expiry (Redis: t_hash.c; Valkey's forms: valkey.py).

    HGETEX h EX 100 FIELDS 1 f      log: HPEXPIREAT h 1700000100000 FIELDS 1 f, or HPERSIST
    HSETEX h EX 100 FIELDS 1 f v    log: HSETEX h PXAT 1700000100000 FIELDS 1 f v
    HGETDEL h FIELDS 1 f            log: HDEL h f

A field whose new time has passed is removed and logged as HDEL, also if HSETEX has just set it.

    since 8.4      the options in any order
    8.0 and 8.2    HGETEX key [one option] FIELDS numfields field [field ...]; HSETEX key, options in any order,
                   FIELDS numfields field value [field value ...]; FIELDS is the last option
"""

from __future__ import annotations

from typing import Any

from rillet._cython import cython
from rillet.commands.arguments import arity_error, text
from rillet.commands.hash import command, valkey
from rillet.commands.hash.expire import NUMBER_OF_FIELDS
from rillet.commands.hash.lookup import find_to_change, has_expired, hash_to_fill, keep_hash
from rillet.commands.hash.read import write_value
from rillet.commands.hash.times import ANY_ORDER, SET, FieldTimes, forget_if_last
from rillet.commands.hash.unexpired import HELD, UnexpiredFields
from rillet.errors import CommandError
from rillet.keyspace.database import Database
from rillet.keyspace.rest_buffer import RestBuffer
from rillet.protocol.reply_writer import ReplyWriter
from rillet.runtime.session import Session
from rillet.structs.argument_spans import ArgumentSpans
from rillet.structs.integer_text import decimal
from rillet.types.hash import Hash

_LINEAR = "O(N) where N is the number of specified fields"
_TIMES = "EX seconds | PX milliseconds | EXAT unix-time-seconds | PXAT unix-time-milliseconds"
_COUNT = "invalid number of fields"
_SET = cython.declare(cython.int, SET)
# An option is 0, or its position here + 1.
_OPTIONS = cython.declare(
    tuple, (b"fields", b"ex", b"px", b"exat", b"pxat", b"persist", b"keepttl", b"fxx", b"fnx")
)
_FIELDS = cython.declare(cython.int, 1)
_EX = cython.declare(cython.int, 2)
_PX = cython.declare(cython.int, 3)
_EXAT = cython.declare(cython.int, 4)
_PXAT = cython.declare(cython.int, 5)
_PERSIST = cython.declare(cython.int, 6)
_KEEPTTL = cython.declare(cython.int, 7)
_FXX = cython.declare(cython.int, 8)


@cython.cfunc
def _option(words: ArgumentSpans, at: cython.Py_ssize_t) -> cython.int:
    """Return the option in an argument, 0 if it is another word."""
    i: cython.int
    for i in range(9):
        if words.is_option(at, _OPTIONS[i]):
            return i + 1
    return 0


@cython.cfunc
def _held_fields(session: Session, words: ArgumentSpans, value: Hash) -> object:
    """Return the UnexpiredFields of a hash that may have expired fields, else None."""
    if value.expiry is None or not has_expired(session.db, value):
        return None
    return UnexpiredFields(session, words.get(1), value, HELD)


@cython.cfunc
@cython.exceptval(-2, check=False)
def _locate_held(words: ArgumentSpans, value: Hash, fields: Any, i: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """Return the place of the field words[i], -1 if it is missing or has expired; then it is removed."""
    if fields is not None and fields.get(words.get(i)) is None:
        return -1
    return value.locate(words.at[i], words.size[i])


@cython.cclass
class _WithOptions(FieldTimes):
    """HGETEX and HSETEX, which `sets`; they have the options of a time in common.

    expiry: the option of the expiry. timed: it is a time, in words[expiry_at]. condition: FXX or FNX.
    """

    __slots__ = ("_mixed", "_sets", "condition", "expiry", "expiry_at", "timed")
    expiry: cython.int
    condition: cython.int
    expiry_at: cython.Py_ssize_t
    timed: cython.bint
    _mixed: cython.bint
    _sets: cython.bint

    @cython.cfunc
    def read_options(self, session: Session, words: ArgumentSpans) -> cython.bint:
        """Read the arguments."""
        compat: Any = session.engine.settings.compat
        self.now = session.db.clock.now_ms()
        self.expiry = self.condition = 0
        self.first = self.end = self.expiry_at = 0
        self.timed = self.past = self._mixed = False
        if compat.knows(ANY_ORDER):
            return self._read_any_order(session, words, compat.knows(88))
        return self._read_before_fields(session, words) if self._sets else self._read_in_order(session, words)

    @cython.cfunc
    def _read_in_order(self, session: Session, words: ArgumentSpans) -> cython.bint:
        """Read the arguments of HGETEX of 8.0 and 8.2: at most one option, then FIELDS (hgetexCommand)."""
        at: cython.Py_ssize_t = 2
        option: cython.int = _option(words, at)
        if _EX <= option <= _PXAT:
            at = self._read_expiry(session, words, at, option)
        elif option == _PERSIST:
            self.expiry = option
            at = 3
        if at + 1 >= words.count:
            raise arity_error(session.command.fullname)
        return self.read_fields(words, at, NUMBER_OF_FIELDS)

    @cython.cfunc
    def _read_before_fields(self, session: Session, words: ArgumentSpans) -> cython.bint:
        """Read the arguments of HSETEX of 8.0 and 8.2: options in any order, then FIELDS (hsetexParseArgs)."""
        at: cython.Py_ssize_t = 2
        option: cython.int = _option(words, at)
        while option >= _EX and option != _PERSIST and at < words.count:
            if option <= _PXAT:
                at = self._read_expiry(session, words, at, option)
            else:
                self._take(option)
                at += 1
            option = _option(words, at)
        if option != _FIELDS:
            raise CommandError(f"unknown argument: {text(words.get(min(at, words.count - 1)))}")
        if at + 3 >= words.count:
            raise arity_error(session.command.fullname)
        if not self.read_some_fields(words, at + 1, 2, _COUNT) or self.end != words.count:
            raise arity_error(session.command.fullname)
        return True

    @cython.cfunc
    def _read_any_order(self, session: Session, words: ArgumentSpans, strict: cython.bint) -> cython.bint:
        """Read the arguments in any order (parseHashFieldExpireArgs).

        strict: the options of the other command are unknown; until 8.6, they are rejected only at the end.
        """
        at: cython.Py_ssize_t = 2
        option: cython.int
        while at < words.count:
            option = _option(words, at)
            if option == _FIELDS:
                if self.first:
                    raise CommandError("FIELDS keyword specified multiple times")
                if at + 1 >= words.count:
                    raise arity_error(session.command.fullname)
                if not self.read_some_fields(words, at + 1, 2 if self._sets else 1, _COUNT):
                    raise CommandError("wrong number of arguments")
                at = self.end
            elif _EX <= option <= _PXAT:
                at = self._read_expiry(session, words, at, option)
            elif option == 0 or (strict and (option == _PERSIST) == self._sets):
                raise CommandError(f"unknown argument: {text(words.get(at))}")
            else:
                self._take(option)
                at += 1
        if self.first == 0:
            raise CommandError("missing FIELDS argument")
        if (self._mixed or self.expiry == (_PERSIST if self._sets else _KEEPTTL)
                or (self.condition != 0 and not self._sets)):  # fmt: skip
            raise CommandError("unknown argument")
        return True

    @cython.cfunc
    def _read_expiry(
        self, session: Session, words: ArgumentSpans, at: cython.Py_ssize_t, option: cython.int
    ) -> cython.Py_ssize_t:
        """Read the option of a time in words[at]; return the position after the time."""
        if self.expiry:
            raise self._one_expiry()
        if at + 1 == words.count:
            raise CommandError("missing expire time")
        self.expiry = option
        self.expiry_at = at + 1
        self.timed = True
        self.read_time(session, words, at + 1, 1000 if option == _EX or option == _EXAT else 1, option <= _PX)
        return at + 2

    @cython.cfunc
    def _take(self, option: cython.int) -> cython.bint:
        """Take an option of one word."""
        if option >= _FXX:
            if self.condition:
                raise CommandError("Only one of FXX or FNX arguments can be specified")
            self.condition = option
        elif self.timed or self.expiry == option or self._mixed:
            raise self._one_expiry()
        else:  # until 8.6, PERSIST and KEEPTTL do not exclude each other, but one of them is unknown
            self._mixed = self.expiry != 0
            self.expiry = option
        return True

    @cython.cfunc
    def _one_expiry(self) -> CommandError:
        last = "KEEPTTL" if self._sets else "PERSIST"
        return CommandError(f"Only one of EX, PX, EXAT, PXAT or {last} arguments can be specified")


@cython.final
@cython.cclass
class Hgetex(_WithOptions):
    """HGETEX (hgetexCommand)."""

    __slots__ = ()

    def __init__(self) -> None:
        self._sets = False

    @cython.ccall
    def run(self, session: Session, words: ArgumentSpans) -> cython.bint:
        """Return the values of fields of a hash and change or remove their expiry."""
        if session.engine.settings.compat.valkey:
            valkey.get_and_expire(session, words.to_list())
            return True
        db: Database = session.db
        out: ReplyWriter = session.out
        i: cython.Py_ssize_t
        place: cython.Py_ssize_t
        result: cython.int
        updated: list[bytes] = []
        deleted: list[bytes] = []
        fields: Any = None
        value: Hash | None = find_to_change(db, words)
        self.read_options(session, words)
        if value is not None:
            if self.expiry:
                value = self.begin_times(session, words, value)
            fields = _held_fields(session, words, value)
        out.array(self.end - self.first)
        for i in range(self.first, self.end):
            place = -1 if value is None else _locate_held(words, value, fields, i)
            if value is None or place < 0:
                out.null()
                continue
            write_value(out, value, place)
            result = 0
            if self.timed:
                result = self.set_time(session, words, value, place, i, 0)
            elif self.expiry and value.time_at(place, words.at[i], words.size[i]):
                value.set_time_at(place, words.at[i], words.size[i], 0)
                result = _SET
            if result == 0:
                continue
            if value.tag == 0:  # a call that fails later is logged, too
                session.changed(words, 1)
            (updated if result == _SET else deleted).append(words.get(i))
        if value is None:
            return True
        if self.expiry:
            self.end_times(db, words, value)
        return self._end(session, words, value, updated, deleted, fields)

    @cython.cfunc
    def _end(
        self, session: Session, words: ArgumentSpans, value: Hash, updated: list[bytes], deleted: list[bytes],
        fields: Any,
    ) -> cython.bint:  # fmt: skip
        """Store the hash, log the change and publish the events."""
        expired: list[bytes] = [] if fields is None else fields.expired
        persists: cython.bint = self.expiry == _PERSIST
        count: cython.Py_ssize_t = len(updated) + len(deleted)
        if count == 0 and not expired:
            return True
        empty: cython.bint = len(value) == 0
        stored: cython.bint = value.tag == 0
        keep_hash(session.db, words, value)
        if not stored or count == 0:
            session.modified(words.get(1))
            session.dirty += count - 1
        if updated:
            if session.logged:
                head = [b"HPERSIST", words.get(1)] if persists else [b"HPEXPIREAT", words.get(1), decimal(self.when)]
                names: list[bytes] = words.to_list()[self.first : self.end]
                session.propagate([*head, b"FIELDS", decimal(len(names)), *names])
        elif deleted:
            session.propagate_nothing()
        if session.db.notifies:
            if expired:
                session.notify(b"h", b"hexpired", words.get(1), expired)
            if updated:
                session.notify(b"h", b"hpersist" if persists else b"hexpire", words.get(1), updated)
            elif deleted:
                session.notify(b"h", b"hdel", words.get(1), deleted)
            if empty:
                session.notify(b"g", b"del", words.get(1))
        return True


command("hgetex", arity=-5, flags="write fast", since="8.0.0", valkey="9.0.0",
        syntax=f"key [{_TIMES} | PERSIST] FIELDS numfields field [field ...]", complexity=_LINEAR,
        summary="Return the values of fields of a hash and change or remove their expiry.")(Hgetex)


@cython.final
@cython.cclass
class Hsetex(_WithOptions):
    """HSETEX (hsetexCommand)."""

    __slots__ = ()

    def __init__(self) -> None:
        self._sets = True

    @cython.ccall
    def run(self, session: Session, words: ArgumentSpans) -> cython.bint:
        """Set fields of a hash with an expiry, if all or none of them exist."""
        if session.engine.settings.compat.valkey:
            valkey.set_and_expire(session, words.to_list())
            return True
        db: Database = session.db
        self.read_options(session, words)
        value: Hash | None = find_to_change(db, words)
        fields: Any = None
        if value is not None and self.condition:
            fields = _held_fields(session, words, value)
        expired: list[bytes] = [] if fields is None else fields.expired
        if self.condition and not self._is_met(words, value, fields):
            session.out.integer(0)
            if value is not None and expired:
                empty: cython.bint = len(value) == 0
                keep_hash(db, words, value)
                db.touch(words.get(1))
                session.notify(b"h", b"hexpired", words.get(1), expired)
                if empty:
                    session.notify(b"g", b"del", words.get(1))
            return True
        self._set(session, words, value, expired)
        return session.out.integer(1)

    @cython.cfunc
    def _is_met(self, words: ArgumentSpans, value: Hash | None, fields: Any) -> cython.bint:
        """Return whether all fields exist (FXX), or none (FNX); stop at the first that forbids it."""
        i: cython.Py_ssize_t
        found: cython.bint
        for i in range(self.first, self.end, 2):
            if fields is not None:
                found = fields.get(words.get(i)) is not None
            else:
                found = value is not None and value.locate(words.at[i], words.size[i]) >= 0
            if found != (self.condition == _FXX):
                return False
        return True

    @cython.cfunc
    def _set(
        self, session: Session, words: ArgumentSpans, found: Hash | None, expired: list[bytes]
    ) -> cython.bint:
        """Set the fields and their times, log the change and publish the events; expired: fields that were removed."""
        db: Database = session.db
        buffer: RestBuffer = db.buffer
        i: cython.Py_ssize_t
        updated: list[bytes] = []
        deleted: list[bytes] = []
        if self.timed:
            found = self.begin_times(session, words, Hash() if found is None else found)
        value: Hash = hash_to_fill(db, words, found, self.first)
        stored: cython.bint = value.tag == 0 and buffer.entry >= 0
        for i in range(self.first, self.end, 2):
            value.set_at(words.at[i], words.size[i], words.at[i + 1], words.size[i + 1], buffer.hash_entries,
                         buffer.hash_value, self.expiry != 0)  # fmt: skip
            if stored:  # a call that fails later is logged, too
                session.changed(words, 1)
            if self.timed:
                place: cython.Py_ssize_t = value.locate(words.at[i], words.size[i])
                if self.set_time(session, words, value, place, i, 0) == _SET:
                    updated.append(words.get(i))
                else:
                    deleted.append(words.get(i))
        if self.timed:
            self.end_times(db, words, value)
        empty: cython.bint = len(value) == 0
        keep_hash(db, words, value)
        if not stored:
            session.changed(words, (self.end - self.first) >> 1)
        if deleted:
            session.propagate_nothing()
        elif self.timed and self.expiry != _PXAT and session.logged:
            words.put(self.expiry_at - 1, b"PXAT")
            words.put(self.expiry_at, decimal(self.when))
        if db.notifies:
            if expired:
                session.notify(b"h", b"hexpired", words.get(1), expired)
            session.notify(b"h", b"hset", words.get(1), words.to_list()[self.first : self.end : 2])
            if deleted:
                session.notify(b"h", b"hdel", words.get(1), deleted)
            elif updated:
                session.notify(b"h", b"hexpire", words.get(1), updated)
            if empty:
                session.notify(b"g", b"del", words.get(1))
        return True


command("hsetex", arity=-6, flags="write denyoom fast", since="8.0.0", valkey="9.0.0",
        syntax=f"key [FNX | FXX] [{_TIMES} | KEEPTTL] FIELDS numfields field value [field value ...]",
        complexity="O(N) where N is the number of fields being set.",
        summary="Set fields of a hash with an expiry, if all or none of them exist.")(Hsetex)


@cython.final
@cython.cclass
class Hgetdel(FieldTimes):
    """HGETDEL (hgetdelCommand)."""

    __slots__ = ()

    @cython.ccall
    def run(self, session: Session, words: ArgumentSpans) -> cython.bint:
        """Return the values of fields of a hash and remove those fields."""
        if session.engine.settings.compat.valkey:
            valkey.get_and_delete(session, words.to_list())
            return True
        db: Database = session.db
        out: ReplyWriter = session.out
        i: cython.Py_ssize_t
        place: cython.Py_ssize_t
        earliest: cython.longlong = 0
        deleted: list[bytes] = []
        fields: Any = None
        value: Hash | None = find_to_change(db, words)
        self.read_fields(words, 2, NUMBER_OF_FIELDS)
        if value is not None:
            earliest = value.earliest()
            fields = _held_fields(session, words, value)
        out.array(self.end - self.first)
        for i in range(self.first, self.end):
            place = -1 if value is None else _locate_held(words, value, fields, i)
            if value is None or place < 0:
                out.null()
                continue
            write_value(out, value, place)
            if value.tag == 0:  # a call that fails later is logged, too
                session.changed(words, 1)
            value.remove_at(place, words.at[i], words.size[i])
            deleted.append(words.get(i))
        if value is None or not (deleted or (fields is not None and fields.expired)):
            return True
        if earliest:
            forget_if_last(session, words.get(1), value, earliest)
        empty: cython.bint = len(value) == 0
        stored: cython.bint = value.tag == 0
        keep_hash(db, words, value)
        if not stored or not deleted:
            session.modified(words.get(1))
            session.dirty += len(deleted) - 1
        if deleted and session.logged:
            session.propagate([b"HDEL", words.get(1), *words.to_list()[self.first :]])
        if db.notifies:
            if fields is not None and fields.expired:
                session.notify(b"h", b"hexpired", words.get(1), fields.expired)
            if deleted:
                session.notify(b"h", b"hdel", words.get(1), deleted)
            if empty:
                session.notify(b"g", b"del", words.get(1))
        return True


command("hgetdel", arity=-5, flags="write fast", since="8.0.0", valkey="9.1.0",
        syntax="key FIELDS numfields field [field ...]", complexity=_LINEAR,
        summary="Return the values of fields of a hash and remove those fields.")(Hgetdel)

"""Changes of the expiry of fields, and their arguments (Redis: t_hash.c, HashTypeSetEx).

A command of Redis changes the times of its fields first, then the time for which the keyspace has registered the hash:

    read_time, read_fields    the arguments
    begin_times               the hash takes an encoding in which fields may expire
    set_time                  one field each
    end_times                 registers the hash again, unless the difference is less than four seconds

A time is at most 2^46 - 1 ms, the year 4199. In Valkey (valkey.py) any time of 64 bits is valid, and the keyspace
always has the exact next expiry.
"""

from __future__ import annotations

from rillet._cython import cython
from rillet.commands.arguments import NOT_AN_INTEGER, integer
from rillet.commands.hash.lookup import unpacked
from rillet.errors import CommandError
from rillet.keyspace.database import Database
from rillet.runtime.field_expiry import fields_expire, remove_field
from rillet.runtime.implementation import Implementation
from rillet.runtime.session import Session
from rillet.structs.argument_spans import ArgumentSpans
from rillet.structs.listpack import parse_digits
from rillet.types.hash import TRIPLES, FieldExpiry, Hash

NO_FIELD, NOT_MET, SET, DELETED = -2, 0, 1, 2
"""The results of `FieldTimes.set_time`, which are the replies of HEXPIRE."""
NX, XX, GT, LT = 1, 2, 3, 4
"""The conditions of HEXPIRE; 0: none."""
ANY_ORDER = 84
"""The level since which HEXPIRE, HGETEX and HSETEX take their options in any order."""
_DELETED = cython.declare(cython.int, DELETED)
_NX = cython.declare(cython.int, NX)
_XX = cython.declare(cython.int, XX)
_GT = cython.declare(cython.int, GT)
_LT = cython.declare(cython.int, LT)
_TRIPLES = cython.declare(cython.int, TRIPLES)
_LAST_TIME = cython.declare(cython.longlong, (1 << 46) - 1)
_NEVER = cython.declare(cython.longlong, (1 << 48) - 1)  # ebuckets.h: EB_EXPIRE_TIME_INVALID
_THRESHOLD = cython.declare(cython.longlong, 4000)  # ms (t_hash.c: HASH_NEW_EXPIRE_DIFF_THRESHOLD)
_MOST = cython.declare(cython.longlong, 2**31 - 1)
_NOT_INT = cython.declare(cython.longlong, -(2**63))  # what `parse_digits` returns for other text, and for -2^63


def invalid_time(session: Session) -> CommandError:
    """Return the error for a time that is out of range (addReplyErrorExpireTime)."""
    return CommandError(f"invalid expire time in '{session.command.fullname}' command")


def is_past(session: Session, when: int, now: int) -> bool:
    """Return whether a field with this time is removed at once; not in a replay (checkAlreadyExpired).

    now: the time at which the command began, so that a relative time above 0 is never in the past.
    """
    return when <= now and fields_expire(session.db) and not session.engine.keeps_past


@cython.cfunc
def _number(words: ArgumentSpans, i: cython.Py_ssize_t, message: str) -> cython.longlong:
    """Return the integer in an argument; message: the error for another text."""
    number: cython.longlong = parse_digits(words.at[i], words.size[i])
    return integer(words.get(i), message) if number == _NOT_INT else number


@cython.cclass
class FieldTimes(Implementation):
    """The base of the commands on fields that expire.

    first, end: the positions of the first field in the words, and after the last one. now: the time at which the
    command began. when: the time that fields get. past: fields with that time are removed at once.
    """

    __slots__ = ("_least", "_registered", "end", "first", "now", "past", "when")
    first: cython.Py_ssize_t
    end: cython.Py_ssize_t
    now: cython.longlong
    when: cython.longlong
    past: cython.bint
    _registered: cython.longlong
    _least: cython.longlong

    # -- arguments -----------------------------------------------------------------------------------

    @cython.cfunc
    def read_time(
        self, session: Session, words: ArgumentSpans, at: cython.Py_ssize_t, unit: cython.int, relative: cython.bint
    ) -> cython.bint:
        """Set `when` to the time in words[at], in units of `unit` ms (parseExpireTime)."""
        base: cython.longlong = self.now if relative else 0
        when: cython.longlong = _number(words, at, NOT_AN_INTEGER)
        if when < 0:
            raise CommandError("invalid expire time, must be >= 0")
        if when > _LAST_TIME // unit or when * unit > _LAST_TIME - base:
            raise invalid_time(session)
        self.when = when * unit + base
        self.past = self.when <= self.now and is_past(session, self.when, self.now)
        return True

    @cython.cfunc
    def read_fields(self, words: ArgumentSpans, at: cython.Py_ssize_t, positive: str) -> cython.bint:
        """Read `FIELDS numfields field [field ...]`, which is the rest of the words; positive: an error's text."""
        if not words.is_option(at, b"fields"):
            raise CommandError("Mandatory argument FIELDS is missing or not at the right position")
        count: cython.longlong = _number(words, at + 1, positive)
        if count < 1:
            raise CommandError(positive)
        if count != words.count - at - 2:
            raise CommandError("The `numfields` parameter must match the number of arguments")
        self.first = at + 2
        self.end = words.count
        return True

    @cython.cfunc
    def read_some_fields(
        self, words: ArgumentSpans, at: cython.Py_ssize_t, width: cython.int, positive: str
    ) -> cython.bint:
        """Read the number of fields in words[at] and the fields of `width` words; return False if some are missing.

        Other options may follow.
        """
        count: cython.longlong = _number(words, at, positive)
        if count < 1 or count > _MOST:
            raise CommandError(positive)
        self.first = at + 1
        self.end = at + 1 + count * width
        return self.end <= words.count

    # -- times ---------------------------------------------------------------------------------------

    @cython.cfunc
    def begin_times(self, session: Session, words: ArgumentSpans, value: Hash) -> Hash:
        """Return the hash in a form in which fields may expire, before the first `set_time` (hashTypeSetExInit)."""
        if value.tag != 0 and value.tag != _TRIPLES:
            value = unpacked(session.db, words, value)
        expiry: FieldExpiry | None = value.expiry
        if expiry is None:
            expiry = value.start_expiry(session.engine.settings)
        self._registered = expiry.due if expiry.due else _NEVER
        self._least = _NEVER  # the earliest of the old and new times of the fields that were changed
        return value

    @cython.cfunc
    @cython.exceptval(-3, check=False)
    def set_time(
        self, session: Session, words: ArgumentSpans, value: Hash, place: cython.Py_ssize_t, i: cython.Py_ssize_t,
        condition: cython.int,
    ) -> cython.int:  # fmt: skip
        """Set the time of the field words[i] at a place; return NOT_MET, SET, or DELETED (hashTypeSetEx)."""
        when: cython.longlong = self.when
        current: cython.longlong = value.time_at(place, words.at[i], words.size[i])
        if current == 0:
            if condition == _XX or condition == _GT:
                return 0
        else:
            if (condition == _NX or (condition == _GT and current >= when)
                    or (condition == _LT and current <= when)):  # fmt: skip
                return 0
            if current == when and value.table is not None:
                return 1
            self._least = min(self._least, current)
        if self.past:
            remove_field(session.engine, session.db, words.get(1), value, words.get(i))
            return _DELETED
        self._least = min(self._least, when)
        value.set_time_at(place, words.at[i], words.size[i], when)
        return 1

    @cython.cfunc
    def end_times(self, db: Database, words: ArgumentSpans, value: Hash) -> cython.bint:
        """Register the hash for its next expiry if that changed much (hashTypeSetExDone)."""
        if self._registered < self._least or len(value) == 0:
            return True
        following: cython.longlong = value.earliest()
        if abs(self._registered - (following if following else _NEVER)) < _THRESHOLD:
            return True
        return db.set_due(words.get(1), value, following)


def forget_if_last(session: Session, key: bytes, value: Hash, earliest: int) -> None:
    """End the registration of a hash whose last field with an expiry was removed (hdelCommand).

    earliest: the earliest expiry before the removal. If it was 0, a registration out of date stays, as in Redis.
    """
    if earliest and len(value) and not value.earliest():
        session.db.set_due(key, value, 0)


def register_exactly(session: Session, key: bytes, value: Hash) -> None:
    """Register a hash for its next expiry (Valkey: dbUpdateObjectWithVolatileItemsTracking)."""
    if value.expiry is not None and len(value) and value.expiry.due != value.earliest():
        session.db.set_due(key, value, value.earliest())

"""Changes of the expiry of fields, and their arguments (Redis: t_hash.c, HashTypeSetEx).

A command changes the times of its fields first, then the time for which the keyspace has registered the hash:

    TimeSetter(...)      the hash takes an encoding in which fields may expire
    .set, .persist       one field each
    .done                registers the hash again, unless the difference is less than four seconds

A time is at most 2^46 - 1 ms, the year 4199. In Valkey any time of 64 bits is valid, and the keyspace always has the
exact next expiry.
"""

from __future__ import annotations

from rillet.commands.arguments import LLONG_MAX, integer
from rillet.errors import CommandError
from rillet.runtime.field_expiry import fields_expire, remove_field
from rillet.runtime.session import Session
from rillet.types.hash import Hash

NO_FIELD, NOT_MET, SET, DELETED = -2, 0, 1, 2
"""The results of `TimeSetter.set`, which are the replies of HEXPIRE."""
LAST_TIME = (1 << 46) - 1
_NEVER = (1 << 48) - 1  # ebuckets.h: EB_EXPIRE_TIME_INVALID
_THRESHOLD = 4000  # ms (t_hash.c: HASH_NEW_EXPIRE_DIFF_THRESHOLD)


def invalid_time(session: Session) -> CommandError:
    """Return the error for a time that is out of range (addReplyErrorExpireTime)."""
    return CommandError(f"invalid expire time in '{session.command.fullname}' command")


def parse_time(session: Session, raw: bytes, unit: int, base: int) -> int:
    """Return an argument in units of `unit` ms after `base` as ms since the epoch (parseExpireTime)."""
    when = integer(raw)
    if session.engine.settings.compat.valkey:
        if when < 0 or (unit == 1000 and when > LLONG_MAX // 1000) or when * unit > LLONG_MAX - base:
            raise invalid_time(session)
        return when * unit + base
    if when < 0:
        raise CommandError("invalid expire time, must be >= 0")
    if (unit == 1000 and when > LAST_TIME // 1000) or when * unit > LAST_TIME - base:
        raise invalid_time(session)
    return when * unit + base


def is_past(session: Session, when: int, now: int) -> bool:
    """Return whether a field with this time is removed at once; not in a replay (checkAlreadyExpired).

    now: the time at which the command began, so that a relative time above 0 is never in the past.
    """
    return when <= now and fields_expire(session.db) and not session.engine.keeps_past


class TimeSetter:
    """Sets the times of fields of one hash for one command of Redis, which began at `now`.

    condition: b"nx", b"xx", b"gt", b"lt" or b"".
    """

    __slots__ = ("_condition", "_key", "_least", "_now", "_registered", "_session", "_value")

    def __init__(self, session: Session, key: bytes, value: Hash, now: int, condition: bytes = b"") -> None:
        self._session = session
        self._now = now
        self._key = key
        self._value = value
        self._condition = condition
        self._registered = value.start_expiry(session.engine.settings).due or _NEVER
        # The earliest of the old and new times of the fields that were changed.
        self._least = _NEVER

    def set(self, field: bytes, when: int) -> int:
        """Set the time of a field; return NO_FIELD, NOT_MET, SET, or DELETED if the time has passed (hashTypeSetEx)."""
        value, condition = self._value, self._condition
        current = value.time_of(field)
        if current < 0:
            return NO_FIELD
        if current == 0 and condition in (b"xx", b"gt"):
            return NOT_MET
        if current:
            late = condition == b"gt" and current >= when
            if condition == b"nx" or late or (condition == b"lt" and current <= when):
                return NOT_MET
            if current == when and value.table is not None:
                return SET
            self._least = min(self._least, current)
        if is_past(self._session, when, self._now):
            remove_field(self._session.engine, self._session.db, self._key, value, field)
            return DELETED
        self._least = min(self._least, when)
        value.set_time(field, when)
        return SET

    def persist(self, field: bytes) -> int:
        """Remove the time of a field; return NO_FIELD, NOT_MET if it has none, or SET."""
        current = self._value.time_of(field)
        if current <= 0:
            return NOT_MET if current == 0 else NO_FIELD
        self._value.set_time(field, 0)
        return SET

    def done(self) -> None:
        """Register the hash for its next expiry if that changed much (hashTypeSetExDone)."""
        if not len(self._value) or self._registered < self._least:
            return
        following = self._value.earliest() or _NEVER
        if abs(self._registered - following) >= _THRESHOLD:
            self._session.db.set_due(self._key, self._value, 0 if following == _NEVER else following)


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


__all__ = [
    "DELETED", "LAST_TIME", "NOT_MET", "NO_FIELD", "SET", "TimeSetter", "forget_if_last", "invalid_time", "is_past",
    "parse_time", "register_exactly",
]  # fmt: skip

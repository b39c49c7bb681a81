"""Access to fields that have not expired, for the commands of hashes.

In Redis a command that reads an expired field removes it, and the hash with its last field. `UnexpiredFields` does that
for one command. What else happens depends on the command:

    one field      HGET, HEXISTS, HINCRBY ...      `hexpired`, or `del` with the last field; watchers are marked
    several        HMGET                           the same, but one event for all fields, from `announce`
    held           HGETEX, HSETEX, HGETDEL         nothing: the command deletes the empty hash and publishes the events

In Valkey expired fields are only passed over. While clients are paused, the same holds for Redis.
"""

from __future__ import annotations

from rillet.runtime.field_expiry import field_clock, may_remove, remove_field
from rillet.runtime.session import Session
from rillet.types.hash import Hash

ONE, SEVERAL, HELD = range(3)


class UnexpiredFields:
    """The fields of a hash as one command sees them.

    expired: fields that were removed, without the one that emptied the hash. deleted: the hash was deleted.
    """

    __slots__ = ("_key", "_mode", "_now", "_session", "deleted", "expired", "value")

    def __init__(self, session: Session, key: bytes, value: Hash | None, mode: int = ONE) -> None:
        self._session = session
        self._key = key
        self._mode = mode
        self._now = 0 if value is None or value.expiry is None else field_clock(session.db)
        self.value = value
        self.expired: list[bytes] = []
        self.deleted = False

    def is_expired(self, field: bytes) -> bool:
        """Return whether a field exists but has expired."""
        return self._now > 0 and self.value is not None and 0 < self.value.time_of(field) < self._now

    def get(self, field: bytes) -> bytes | None:
        """Return the value of a field, None if it does not exist or has expired (hashTypeGetValue)."""
        if self.value is None or self.deleted:
            return None
        if not self.is_expired(field):
            return self.value.get(field)
        if not self._session.engine.settings.compat.valkey and may_remove(self._session.db):
            self._remove(field)
        return None

    def _remove(self, field: bytes) -> None:
        """Remove an expired field."""
        session, key = self._session, self._key
        value = self.value = session.db.wake(key)
        remove_field(session.engine, session.db, key, value, field)
        empty = len(value) == 0
        if self._mode == HELD:
            self.expired.append(field)
            return
        if self._mode == ONE and (not empty or not session.engine.settings.compat.knows(88)):
            session.notify(b"h", b"hexpired", key, [field])
        if empty:
            self.deleted = True
            session.db.delete(key)
            if self._mode == ONE:
                session.notify(b"g", b"del", key)
        else:
            self.expired.append(field)
        session.db.touch(key)

    def announce(self) -> None:
        """Publish the events of fields that a command read together (hmgetCommand)."""
        if self.expired:
            self._session.notify(b"h", b"hexpired", self._key, self.expired)
        if self.deleted and (self.expired or self._session.engine.settings.compat.knows(88)):
            self._session.notify(b"g", b"del", self._key)


def unexpired_value(session: Session, key: bytes, value: Hash | None, field: bytes) -> bytes | None:
    """Return the value of a field, None if it does not exist or has expired; Redis then removes it."""
    if value is None or value.expiry is None:
        return None if value is None else value.get(field)
    return UnexpiredFields(session, key, value).get(field)


def unexpired_rows(session: Session, value: Hash) -> list[tuple[bytes, bytes]]:
    """Return the fields that have not expired, with their values. O(fields)"""
    now = field_clock(session.db)
    return [(field, content) for field, content, when in value.rows() if not 0 < when < now]


def unexpired_names(session: Session, value: Hash | None, fields: list[bytes]) -> list[bytes]:
    """Return those fields of a list that have not expired."""
    if value is None or value.expiry is None:
        return fields
    now = field_clock(session.db)
    return [field for field in fields if not 0 < value.time_of(field) < now]

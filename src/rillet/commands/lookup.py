"""Lookup of a value by a command for one type, and the deletion of a key whose value has lost its last element."""

from __future__ import annotations

from collections.abc import Sized
from typing import Any, TypeVar

from rillet.errors import WrongType
from rillet.runtime.session import Session

T = TypeVar("T")


def read_value(session: Session, key: bytes, kind: type[T]) -> T | None:
    """Return the value at a key, None if the key does not exist; raise WrongType for a value of another type."""
    value = session.db.lookup_read(key)
    if value is not None and not isinstance(value, kind):
        raise WrongType()
    return value


def value_for_write(session: Session, key: bytes, kind: type[T]) -> T | None:
    """Return the value at a key as `read_value` does, without counting a keyspace hit or miss."""
    value = session.db.lookup(key)
    if value is not None and not isinstance(value, kind):
        raise WrongType()
    return value


def value_for_blocked(session: Session, key: bytes) -> Any:
    """Return the value at a key for which a session is blocked, None if the key does not exist.

    Since 7.2, an expired key stays until another command finds it (blocked.c: LOOKUP_NOEFFECTS).
    """
    if session.engine.settings.compat.knows(72) and session.db.is_expired(key):
        return None
    return session.db.lookup(key)


def delete_if_empty(session: Session, key: bytes, value: Sized) -> bool:
    """Delete the key of an empty collection and publish the event; return False if elements remain."""
    if len(value):
        return False
    session.db.delete(key)
    session.notify(b"g", b"del", key)
    return True

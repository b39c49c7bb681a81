"""Lookup, replies and storage for the string commands (Redis: t_string.c)."""

from __future__ import annotations

try:
    import cython
except ModuleNotFoundError:  # Cython is not installed: use a replacement for its names
    from rillet import _cython as cython

from rillet.errors import CommandError, WrongType
from rillet.keyspace import lru
from rillet.keyspace.database import Database
from rillet.protocol.reply_writer import ReplyWriter
from rillet.runtime.session import Session
from rillet.types.string import String, new_string

_LFU = cython.declare(cython.int, lru.LFU)


@cython.ccall
@cython.exceptval(-1, check=False)
def write_string(out: ReplyWriter, value: object) -> cython.bint:
    """Reply with the string that was looked up, null for None; raise WrongType for another type."""
    string: String
    if value is None:
        return out.null()
    if not isinstance(value, String):
        raise WrongType()
    string = value
    if string.grown is None:
        return out.bulk(string.data)
    return out.bulk_slice(string.grown, 0, len(string.grown))


@cython.ccall
def string_for_write(db: Database, key: bytes) -> String:
    """Return the string at a key for a write, None if the key does not exist; raise WrongType for another type."""
    value: object = db.lookup(key)
    if value is not None and not isinstance(value, String):
        raise WrongType()
    return value  # type: ignore[return-value]


@cython.ccall
@cython.exceptval(-1, check=False)
def store_string(session: Session, key: bytes, data: bytes, event: bytes) -> cython.bint:
    """Store a value as SET does: remove the expiry, mark watchers, publish the event."""
    if session.db.access.mode == _LFU:
        session.db.touch_access(key)  # the lookup of setKey
    session.db.replace(key, new_string(data))
    session.modified(key)
    session.notify(b"$", event, key)
    return True


@cython.ccall
@cython.exceptval(-1, check=False)
def update_string(session: Session, key: bytes, string: String, event: bytes) -> cython.bint:
    """Replace the value of a key and keep its expiry."""
    session.db.set(key, string, True)
    session.modified(key)
    session.notify(b"$", event, key)
    return True


def check_length(session: Session, size: int) -> None:
    if size > session.engine.settings.proto_max_bulk_len and not session.trusted:
        raise CommandError("string exceeds maximum allowed size (proto-max-bulk-len)")

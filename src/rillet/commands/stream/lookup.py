"""Lookup of the stream, group and consumer of a command, and the errors if one of them is missing.

Redis has three texts for a missing key or group, which depend on the command (t_stream.c):

    XPENDING, XCLAIM, XAUTOCLAIM, XNACK, XREADGROUP   NOGROUP No such key 'k' or consumer group 'g'
    XGROUP, XINFO CONSUMERS                           NOGROUP No such consumer group 'g' for key name 'k'
    XINFO, XSETID, XCFGSET, XIDMPRECORD               ERR no such key

A lookup for reading counts as a keyspace hit or miss, also in XACK, XACKDEL, XCLAIM and XAUTOCLAIM, which write.
"""

from __future__ import annotations

from typing import Any

from rillet._cython import cython
from rillet.commands.arguments import text
from rillet.errors import CommandError, NoGroup, WrongType
from rillet.keyspace.database import Database
from rillet.runtime.session import Session
from rillet.runtime.session_state import TRUSTED
from rillet.types.stream.group import Consumer, Group
from rillet.types.stream.stream import Stream

_TRUSTED = cython.declare(cython.int, TRUSTED)


@cython.ccall
def lookup_write(session: Session, key: bytes) -> Stream | None:
    """Return the stream at a key, None if the key is missing; raise WrongType for other types (lookupKeyWrite)."""
    return _checked(session.db.lookup(key))


@cython.ccall
def lookup_read(session: Session, key: bytes) -> Stream | None:
    """Return the stream at key as `lookup_write` does, and count a hit or a miss (lookupKeyRead)."""
    return _checked(session.db.lookup_read(key))


@cython.cfunc
@cython.inline
def _checked(value: object) -> Stream | None:
    if value is None:
        return None
    if not isinstance(value, Stream):
        raise WrongType()
    return value


@cython.cfunc
def stream_at(db: Database, n: cython.Py_ssize_t) -> Stream | None:
    """Return the stream of an entry that `Database.locate` found, None if n < 0; raise WrongType for other types."""
    if n < 0:
        return None
    value: object = db.keys.object_at(n)
    if type(value) is not Stream:
        raise WrongType()
    db.ledger.note(value)
    return value


def require_stream(stream: Stream | None, message: str = "no such key") -> Stream:
    """Return `stream`, the result of a lookup; raise CommandError(message) if it is None."""
    if stream is None:
        raise CommandError(message)
    return stream


def require_group(stream: Stream, key: bytes, name: bytes) -> Group:
    """Return the stream's group, or raise NoGroup."""
    group = stream.groups.get(name)
    if group is None:
        raise NoGroup(f"No such consumer group '{text(name)}' for key name '{text(key)}'")
    return group


def require_stream_and_group(stream: Stream | None, key: bytes, name: bytes) -> tuple[Stream, Group]:
    """Return the stream that was looked up and its group, or raise NoGroup with the names of both."""
    group = None if stream is None else stream.groups.get(name)
    if stream is None or group is None:
        raise no_key_or_group(key, name)
    return stream, group


def no_key_or_group(key: bytes, name: bytes, suffix: str = "") -> NoGroup:
    """Return the error for a missing key or group."""
    return NoGroup(f"No such key '{text(key)}' or consumer group '{text(name)}'{suffix}")


LOGGED_MS = "logged_ms"
"""The key in `Session.extra` of the latest time of a delivery that a log has stated during its replay."""


@cython.ccall
def find_or_create_consumer(session: Session, key: bytes, group: Group, name: bytes) -> Consumer:
    """Return the consumer and set its seen_time to the current time; create the consumer if it is missing.

    While a log is replayed, the current time is the latest delivery that the log has stated so far.
    """
    trusted: cython.bint = session.state & _TRUSTED != 0
    now: cython.longlong = logged_now(session) if trusted else session.now_ms()
    consumer: Consumer = group.find_consumer(name)
    if consumer is None:
        consumer = group.create_consumer(name, now)
        session.dirty += 1
        session.notify(b"t", b"xgroup-createconsumer", key)
    consumer.seen_time = max(consumer.seen_time, now) if trusted else now
    return consumer


@cython.ccall
@cython.exceptval(-1, check=False)
def logged_now(session: Session) -> cython.longlong:
    """Return the latest time of delivery in the log that is replayed, or the current time if there is none yet."""
    logged: Any = session.extra.get(LOGGED_MS)
    return session.db.clock.now_ms() if logged is None else logged

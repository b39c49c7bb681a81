"""EXPIRE, TTL, PERSIST and their variants (Redis: expire.c).

Every EXPIRE command is logged as PEXPIREAT with the absolute time in milliseconds, or as DEL if that time has passed. A
replay accepts times in the past, because the log itself contains the DEL of an expired key. With the lazyfree settings
the log contains UNLINK, as in Redis; here both commands cost the same.
"""

from __future__ import annotations

from functools import partial

from rillet._cython import cython
from rillet.commands.arguments import LLONG_MAX, text
from rillet.commands.keys import command
from rillet.commands.span_arguments import integer_at
from rillet.errors import CommandError
from rillet.keyspace.database import Database
from rillet.runtime import session_state
from rillet.runtime.implementation import Implementation
from rillet.runtime.session import Session
from rillet.structs.argument_spans import ArgumentSpans
from rillet.structs.integer_text import decimal

_SYNTAX = "[NX | XX | GT | LT]"
_LARGEST = cython.declare(cython.longlong, LLONG_MAX)
_LARGEST_SECONDS = cython.declare(cython.longlong, LLONG_MAX // 1000)
_TRUSTED = cython.declare(cython.int, session_state.TRUSTED)
_NX = cython.declare(cython.int, 1)
_XX = cython.declare(cython.int, 2)
_GT = cython.declare(cython.int, 4)
_LT = cython.declare(cython.int, 8)


def deletion(key: bytes, lazy: bool) -> list[bytes]:
    """Return the command that propagates an implicit deletion: DEL or UNLINK."""
    return [b"UNLINK" if lazy else b"DEL", key]


@cython.cfunc
def _conditions(words: ArgumentSpans) -> cython.int:
    """Parse NX, XX, GT and LT (parseExtendedExpireArgumentsOrReply)."""
    found: cython.int = 0
    at: cython.Py_ssize_t
    for at in range(3, words.count):
        if words.is_option(at, b"nx"):
            found |= _NX
        elif words.is_option(at, b"xx"):
            found |= _XX
        elif words.is_option(at, b"gt"):
            found |= _GT
        elif words.is_option(at, b"lt"):
            found |= _LT
        else:
            raise CommandError(f"Unsupported option {text(words.get(at))}")
    if found & _NX and found != _NX:
        raise CommandError("NX and XX, GT or LT options at the same time are not compatible")
    if found & _GT and found & _LT:
        raise CommandError("GT and LT options at the same time are not compatible")
    return found


@cython.cfunc
def _allows(conditions: cython.int, current: cython.longlong, when: cython.longlong) -> cython.bint:
    """Return whether the conditions allow `when` to replace the current expiry (-1 = none: later than any time)."""
    if conditions & _NX and current != -1:
        return False
    if conditions & _XX and current == -1:
        return False
    if conditions & _GT and (current == -1 or when <= current):
        return False
    return not (conditions & _LT and current != -1 and when >= current)


@cython.cclass
class _InUnits(Implementation):
    """A command whose time is in units of `unit` ms, from now on if `relative`."""

    __slots__ = ("_relative", "_unit")
    _relative: cython.bint
    _unit: cython.longlong

    def __init__(self, unit: int, relative: bool) -> None:
        self._unit = unit
        self._relative = relative


@cython.final
@cython.cclass
class Expire(_InUnits):
    """EXPIRE and its variants (expireGenericCommand): set the expiry of a key."""

    __slots__ = ()

    @cython.ccall
    def run(self, session: Session, words: ArgumentSpans) -> cython.bint:
        """Set the expiry of a key."""
        db: Database = session.db
        now: cython.longlong = db.clock.now_ms()  # read once: a relative time is never in the past
        base: cython.longlong = now if self._relative else 0
        conditions: cython.int = _conditions(words) if words.count > 3 else 0
        when: cython.longlong = integer_at(words, 2)
        if self._unit == 1000:
            if when > _LARGEST_SECONDS or when < -_LARGEST_SECONDS:
                raise _invalid_time(session)
            when *= 1000
        if when > _LARGEST - base:
            raise _invalid_time(session)
        when += base
        if db.locate(words) < 0 or (conditions and not _allows(conditions, db.located_expiry(words), when)):
            return session.out.integer(0)
        if when <= now and not session.state & _TRUSTED and not session.engine.keeps_past:
            key: bytes = words.get(1)
            db.delete(key)
            session.modified(key)
            session.notify_deleted_by_time(key)
            session.propagate(deletion(key, session.engine.settings.lazyfree_lazy_expire))
            return session.out.integer(1)
        db.set_expire_span(words.at[1], words.size[1], when)
        session.changed(words, 1)
        if db.notifies:
            session.notify(b"g", b"expire", words.get(1))
        if session.logged:
            if self._relative or self._unit != 1:
                words.put(0, b"PEXPIREAT")
            words.put(2, decimal(when))
        return session.out.integer(1)


def _invalid_time(session: Session) -> CommandError:
    return CommandError(f"invalid expire time in '{session.command.fullname}' command")


_EXPIRE = partial(command, arity=-3, flags="write fast", complexity="O(1)")
_EXPIRE("expire", since="1.0.0", syntax="key seconds " + _SYNTAX,
        summary="Set the expiry of a key, in seconds from now.")(partial(Expire, 1000, True))
_EXPIRE("pexpire", since="2.6.0", syntax="key milliseconds " + _SYNTAX,
        summary="Set the expiry of a key, in milliseconds from now.")(partial(Expire, 1, True))
_EXPIRE("expireat", since="1.2.0", syntax="key unix-time-seconds " + _SYNTAX,
        summary="Set the expiry of a key, in seconds since the epoch.")(partial(Expire, 1000, False))
_EXPIRE("pexpireat", since="2.6.0", syntax="key unix-time-milliseconds " + _SYNTAX,
        summary="Set the expiry of a key, in milliseconds since the epoch.")(partial(Expire, 1, False))


@cython.final
@cython.cclass
class Ttl(_InUnits):
    """TTL and its variants (ttlGenericCommand): reply with the expiry of a key."""

    __slots__ = ()

    @cython.ccall
    def run(self, session: Session, words: ArgumentSpans) -> cython.bint:
        """Reply with the expiry of a key: -2 if the key is missing, -1 if it has no expiry."""
        db: Database = session.db
        if db.locate_untouched(words) < 0:
            return session.out.integer(-2)
        when: cython.longlong = db.located_expiry(words)
        if when == -1:
            return session.out.integer(-1)
        if self._relative:
            when -= db.clock.now_ms()
        when = max(when, 0)
        if self._unit != 1:
            when = when // 1000 + (when % 1000 >= 500)
        return session.out.integer(when)


_TTL = partial(command, arity=2, flags="readonly fast", syntax="key", complexity="O(1)")
_TTL("ttl", since="1.0.0",
     summary="Return the time to live of a key in seconds.")(partial(Ttl, 1000, True))  # fmt: skip
_TTL("pttl", since="2.6.0",
     summary="Return the time to live of a key in milliseconds.")(partial(Ttl, 1, True))  # fmt: skip
_TTL("expiretime", since="7.0.0",
     summary="Return the expiry of a key in seconds since the epoch.")(partial(Ttl, 1000, False))  # fmt: skip
_TTL("pexpiretime", since="7.0.0",
     summary="Return the expiry of a key in milliseconds since the epoch.")(partial(Ttl, 1, False))  # fmt: skip


@command("persist", arity=2, flags="write fast", since="2.2.0", syntax="key", complexity="O(1)")
def persist(session: Session, argv: list[bytes]) -> None:
    """Remove the expiry of a key."""
    key = argv[1]
    if session.db.find(key) < 0 or not session.db.persist(key):
        session.out.integer(0)
        return
    session.modified(key)
    session.notify(b"g", b"persist", key)
    session.out.integer(1)

"""EXPIRE, TTL, PERSIST and their variants (Redis: expire.c).

Every EXPIRE command is logged as PEXPIREAT with the absolute time in milliseconds, or as DEL if that time has passed. A
replay accepts times in the past, because the log itself contains the DEL of an expired key. With the lazyfree settings
the log contains UNLINK, as in Redis; here both commands cost the same.
"""

from __future__ import annotations

from functools import partial

from rillet.commands.arguments import LLONG_MAX, LLONG_MIN, integer, text
from rillet.commands.keys import command
from rillet.commands.keys.expiry_path import ExpireFastPath, TtlFastPath
from rillet.errors import CommandError
from rillet.runtime.session import Session
from rillet.structs.integer_text import decimal

_SYNTAX = "[NX | XX | GT | LT]"


def deletion(key: bytes, lazy: bool) -> list[bytes]:
    """Return the command that propagates an implicit deletion: DEL or UNLINK."""
    return [b"UNLINK" if lazy else b"DEL", key]


def _conditions(argv: list[bytes]) -> set[bytes]:
    """Parse NX, XX, GT and LT (parseExtendedExpireArgumentsOrReply)."""
    found = set()
    for word in argv[3:]:
        if word.lower() not in (b"nx", b"xx", b"gt", b"lt"):
            raise CommandError(f"Unsupported option {text(word)}")
        found.add(word.lower())
    if b"nx" in found and len(found) > 1:
        raise CommandError("NX and XX, GT or LT options at the same time are not compatible")
    if {b"gt", b"lt"} <= found:
        raise CommandError("GT and LT options at the same time are not compatible")
    return found


def _allows(conditions: set[bytes], current: int, when: int) -> bool:
    """Return whether the conditions allow `when` to replace the current expiry (-1 = none: later than any time)."""
    if b"nx" in conditions and current != -1:
        return False
    if b"xx" in conditions and current == -1:
        return False
    if b"gt" in conditions and (current == -1 or when <= current):
        return False
    return not (b"lt" in conditions and current != -1 and when >= current)


def _expire(session: Session, argv: list[bytes], relative: bool, unit: int) -> None:
    """Set an expiry of argv[2] units of `unit` ms, `relative` to the present (expire.c: expireGenericCommand)."""
    now = session.engine.clock.now_ms()  # read once: a relative time is never in the past
    base = now if relative else 0
    conditions = _conditions(argv)
    key = argv[1]
    when = integer(argv[2])
    invalid = f"invalid expire time in '{session.command.fullname}' command"
    if unit == 1000 and not -(-LLONG_MIN // 1000) <= when <= LLONG_MAX // 1000:
        raise CommandError(invalid)
    when *= unit
    if when > LLONG_MAX - base:
        raise CommandError(invalid)
    when += base
    database = session.db
    if database.find(key) < 0 or not _allows(conditions, database.get_expire(key), when):
        session.out.integer(0)
        return
    if when <= now and not session.trusted and not session.engine.keeps_past:
        database.delete(key)
        session.modified(key)
        session.notify_deleted_by_time(key)
        session.propagate(deletion(key, session.engine.settings.lazyfree_lazy_expire))
    else:
        database.set_expire(key, when)
        session.modified(key)
        session.notify(b"g", b"expire", key)
        name = argv[0] if session.command.name == "pexpireat" else b"PEXPIREAT"
        session.propagate([name, key, decimal(when), *argv[3:]])
    session.out.integer(1)


@command("expire", arity=-3, flags="write fast", since="1.0.0", syntax="key seconds " + _SYNTAX,
         complexity="O(1)", shortcut=partial(ExpireFastPath, b"expire", 1000, True))
def expire(session: Session, argv: list[bytes]) -> None:
    """Set the expiry of a key, in seconds from now."""
    _expire(session, argv, True, 1000)


@command("pexpire", arity=-3, flags="write fast", since="2.6.0", syntax="key milliseconds " + _SYNTAX,
         complexity="O(1)", shortcut=partial(ExpireFastPath, b"pexpire", 1, True))
def pexpire(session: Session, argv: list[bytes]) -> None:
    """Set the expiry of a key, in milliseconds from now."""
    _expire(session, argv, True, 1)


@command("expireat", arity=-3, flags="write fast", since="1.2.0", syntax="key unix-time-seconds " + _SYNTAX,
         complexity="O(1)", shortcut=partial(ExpireFastPath, b"expireat", 1000, False))
def expireat(session: Session, argv: list[bytes]) -> None:
    """Set the expiry of a key, in seconds since the epoch."""
    _expire(session, argv, False, 1000)


@command("pexpireat", arity=-3, flags="write fast", since="2.6.0", syntax="key unix-time-milliseconds " + _SYNTAX,
         complexity="O(1)", shortcut=partial(ExpireFastPath, b"pexpireat", 1, False))
def pexpireat(session: Session, argv: list[bytes]) -> None:
    """Set the expiry of a key, in milliseconds since the epoch."""
    _expire(session, argv, False, 1)


def _reply_time(session: Session, key: bytes, relative: bool, seconds: bool) -> None:
    """Reply with the expiry of a key: -2 if the key is missing, -1 if it has no expiry (ttlGenericCommand)."""
    if session.db.find_untouched(key) < 0:
        session.out.integer(-2)
        return
    when = session.db.get_expire(key)
    if when == -1:
        session.out.integer(-1)
        return
    if relative:
        when -= session.engine.clock.now_ms()
    when = max(when, 0)
    session.out.integer((when + 500) // 1000 if seconds else when)


@command("ttl", arity=2, flags="readonly fast", since="1.0.0", syntax="key",
         complexity="O(1)", shortcut=partial(TtlFastPath, b"ttl", 1000, True))
def ttl(session: Session, argv: list[bytes]) -> None:
    """Return the time to live of a key in seconds."""
    _reply_time(session, argv[1], relative=True, seconds=True)


@command("pttl", arity=2, flags="readonly fast", since="2.6.0", syntax="key",
         complexity="O(1)", shortcut=partial(TtlFastPath, b"pttl", 1, True))
def pttl(session: Session, argv: list[bytes]) -> None:
    """Return the time to live of a key in milliseconds."""
    _reply_time(session, argv[1], relative=True, seconds=False)


@command("expiretime", arity=2, flags="readonly fast", since="7.0.0", syntax="key",
         complexity="O(1)", shortcut=partial(TtlFastPath, b"expiretime", 1000, False))
def expiretime(session: Session, argv: list[bytes]) -> None:
    """Return the expiry of a key in seconds since the epoch."""
    _reply_time(session, argv[1], relative=False, seconds=True)


@command("pexpiretime", arity=2, flags="readonly fast", since="7.0.0", syntax="key",
         complexity="O(1)", shortcut=partial(TtlFastPath, b"pexpiretime", 1, False))
def pexpiretime(session: Session, argv: list[bytes]) -> None:
    """Return the expiry of a key in milliseconds since the epoch."""
    _reply_time(session, argv[1], relative=False, seconds=False)


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

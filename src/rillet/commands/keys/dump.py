"""DUMP and RESTORE: convert a value to bytes and back (Redis: cluster.c)."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from rillet.commands.arguments import integer, syntax_error
from rillet.commands.keys import command
from rillet.commands.keys.expire import deletion
from rillet.commands.stream.idmp import apply_settings, track
from rillet.errors import BusyKey, CommandError, Corrupt
from rillet.runtime import registry
from rillet.runtime.registry import Handler
from rillet.runtime.session import Session
from rillet.structs.integer_text import decimal
from rillet.types.compat import NEWEST
from rillet.types.module import KeyPlace
from rillet.types.rdb import value as rdb
from rillet.types.stream.stream import Stream


@command("dump", arity=2, flags="readonly", since="2.6.0", syntax="key", complexity="O(bytes of the value)")
def dump(session: Session, argv: list[bytes]) -> None:
    """Returns a serialized representation of the value stored at a key."""
    value = session.db.view_read(argv[1])
    if value is None:
        session.out.null()
    else:
        settings = session.engine.settings
        native = settings.dump_format == "native" or settings.compat is not NEWEST
        now = session.db.clock.now_ms()
        place = KeyPlace(session.db.index, argv[1])
        session.out.bulk(rdb.dump(value, settings.rdbcompression, settings.compat if native else None, now, place))


def _declared(name: str, flags: str, group: str, since: str) -> Callable[[Handler], Handler]:
    return registry.command(name, arity=-4, flags=flags, keys=(1, 1, 1), group=group, since=since,
                            syntax="key ttl serialized-value [REPLACE] [ABSTTL] [IDLETIME seconds] [FREQ frequency]",
                            complexity="O(bytes of the value)")  # fmt: skip


@_declared("restore-asking", "write denyoom asking", "server", "3.0.0")
@command("restore", arity=-4, flags="write denyoom", since="2.6.0",
         syntax="key ttl serialized-value [REPLACE] [ABSTTL] [IDLETIME seconds] [FREQ frequency]",
         complexity="O(bytes of the value)")
def restore(session: Session, argv: list[bytes]) -> None:
    """Creates a key from the serialized representation of a value."""
    options = _options(argv)
    key = argv[1]
    settings = session.engine.settings
    newest = settings.compat.knows(86)
    relaxed = settings.rdb_version_check == "relaxed"
    # Until 8.6, REPLACE deletes an expired key without a lookup, and thus without the event `expired`.
    if (newest or not options.replace) and session.db.find(key) >= 0 and not options.replace:
        raise BusyKey()
    ttl = integer(argv[2])
    if ttl < 0:
        raise CommandError("Invalid TTL value, must be >= 0")
    if not rdb.seal_is_valid(argv[3], settings.skip_checksum_validation, newest, relaxed):
        raise CommandError("DUMP payload version or checksum are wrong")
    try:
        value, payload = _value(session, argv)
    except (Corrupt, IndexError, OverflowError, MemoryError) as error:
        shown = _shown(session, key)
        session.engine.services.log_line(f"RESTORE of {shown} was refused: {rdb.refusal(argv[3], error)}", "verbose")
        raise CommandError("Bad data format") from None
    _put(session, argv, value, payload, ttl, options)


def _value(session: Session, argv: list[bytes]) -> tuple[object, bytes]:
    """Decode a DUMP payload; return the value and the payload to log.

    If the payload is from a client, not from the log, validate it and apply the current settings.
    """
    payload = argv[3]
    settings = session.engine.settings
    place = KeyPlace(session.db.index, argv[1])
    corrected: list[str] = []
    if session.trusted:
        value = rdb.restore(argv[3], settings, place=place, corrected=corrected)
    else:
        now = session.db.clock.now_ms()
        value = rdb.restore(argv[3], settings, now, settings.compat is NEWEST, place, corrected)
        changed = isinstance(value, Stream) and apply_settings(value, settings)
        if (changed or corrected) and session.engine.log is not None:
            payload = rdb.dump(value, settings.rdbcompression)
    if corrected:
        session.engine.services.log_line(f"RESTORE of {_shown(session, argv[1])}: {'; '.join(corrected)}")
    return value, payload


def _shown(session: Session, key: bytes) -> str:
    return "*redacted*" if session.engine.settings.hide_user_data_from_log else repr(key)


class _Options(NamedTuple):
    """The options of RESTORE; -1 means not given."""

    replace: bool
    absolute: bool
    idle: int
    frequency: int


def _options(argv: list[bytes]) -> _Options:
    replace = absolute = False
    idle = frequency = -1
    position = 4
    while position < len(argv):
        word = argv[position].lower()
        more = position + 1 < len(argv)
        if word == b"replace":
            replace = True
        elif word == b"absttl":
            absolute = True
        elif word == b"idletime" and more and frequency == -1:
            position += 1
            idle = integer(argv[position])
            if idle < 0:
                raise CommandError("Invalid IDLETIME value, must be >= 0")
        elif word == b"freq" and more and idle == -1:
            position += 1
            frequency = integer(argv[position])
            if not 0 <= frequency <= 255:
                raise CommandError("Invalid FREQ value, must be >= 0 and <= 255")
        else:
            raise syntax_error()
        position += 1
    return _Options(replace, absolute, idle, frequency)


def _put(session: Session, argv: list[bytes], value: object, payload: bytes, ttl: int, options: _Options) -> None:
    key = argv[1]
    now = session.engine.clock.now_ms()
    old = session.db.peek(key)
    deleted = session.db.delete_replaced(key)
    when = ttl if options.absolute or not ttl else now + ttl
    if when >= 1 << 63:
        when -= 1 << 64  # in Redis the sum of time and TTL overflows, so the key expires at once
    if when and when <= now and not session.trusted and not session.engine.keeps_past:
        if deleted:
            session.modified(key)
            session.notify(b"g", b"del", key)
            settings = session.engine.settings
            session.propagate(deletion(key, settings.lazyfree_lazy_server_del and settings.compat.knows(72)))
        if session.engine.settings.compat.knows(86):
            session.engine.stats.expired_keys += 1
        session.out.ok()
        return
    session.db.put(key, value)
    session.db.restore_access(key, options.idle, options.frequency)
    track(session.db, key, value)
    if when:
        session.db.set_expire(key, when)
    if when and not options.absolute:
        session.propagate([argv[0], key, decimal(when), payload, *argv[4:], b"ABSTTL"])
    elif payload is not argv[3]:
        session.propagate([*argv[:3], payload, *argv[4:]])
    session.modified(key)
    session.notify(b"g", b"restore", key)
    session.db.notify_overwritten(key, old, value)
    session.out.ok()

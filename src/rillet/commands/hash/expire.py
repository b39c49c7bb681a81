"""HEXPIRE, HTTL, HPERSIST and their variants (Redis: t_hash.c; Valkey's forms: valkey.py).

HEXPIRE and its variants are logged as HPEXPIREAT with the absolute time and the fields that got it. A field whose new
time has passed is removed and logged as HDEL. The commands do not ask whether a field has expired: HEXPIRE revives it.
"""

from __future__ import annotations

from functools import partial

from rillet.commands.arguments import integer, text
from rillet.commands.hash import command, valkey
from rillet.commands.hash.expiry_path import HexpireFastPath, HpersistFastPath, HttlFastPath
from rillet.commands.hash.times import DELETED, NO_FIELD, SET, TimeSetter, parse_time
from rillet.commands.lookup import read_value, value_for_write
from rillet.errors import CommandError
from rillet.runtime.field_expiry import field_clock
from rillet.runtime.session import Session
from rillet.structs.integer_text import decimal
from rillet.types.hash import Hash

_FIELDS = "FIELDS numfields field [field ...]"
_CONDITIONS = "[NX | XX | GT | LT] " + _FIELDS
_LINEAR = "O(N) where N is the number of specified fields"
_MOST = 2**31 - 1
ANY_ORDER = 84
"""The level since which HEXPIRE, HGETEX and HSETEX take their options in any order."""
_CONDITION_WORDS = (b"nx", b"xx", b"gt", b"lt")
_POSITIVE = "Parameter `numFields` should be greater than 0"


class _ExpireArguments:
    """The arguments of HEXPIRE: time, condition, and the position of the first field."""

    __slots__ = ("condition", "count", "first", "when")

    def __init__(self, session: Session, argv: list[bytes], unit: int, base: int) -> None:
        self.when = parse_time(session, argv[2], unit, base)
        self.first = self.count = 0
        self.condition = b""
        if session.engine.settings.compat.knows(ANY_ORDER):
            self._parse(argv)
        else:
            self._parse_in_order(argv)

    def _parse_in_order(self, argv: list[bytes]) -> None:
        """Parse the fixed order of 7.4 to 8.2 (hexpireGenericCommand)."""
        at = 3
        if argv[3].lower() in _CONDITION_WORDS:
            self.condition = argv[3].lower()
            at = 4
        self.count = len(exact_fields(argv, at, _POSITIVE))
        self.first = at + 2

    def _parse(self, argv: list[bytes]) -> None:
        """Parse the arguments in any order (parseHashCommandArgs)."""
        conditions: set[bytes] = set()
        at = 3
        while at < len(argv):
            word = argv[at].lower()
            if word == b"fields":
                self._take_fields(argv, at)
                at = self.first + self.count
                continue
            if word not in _CONDITION_WORDS:
                raise CommandError(f"unknown argument: {text(argv[at])}")
            conditions.add(word)
            self.condition = word
            at += 1
        if not self.first:
            raise CommandError("missing FIELDS argument")
        if len(conditions) > 1:
            raise CommandError("Multiple condition flags specified")

    def _take_fields(self, argv: list[bytes], at: int) -> None:
        if self.first:
            raise CommandError("FIELDS keyword specified multiple times")
        if at >= len(argv) - 2:
            raise CommandError("FIELDS requires at least numfields and one field argument")
        count = integer(argv[at + 1], _POSITIVE)
        if not 1 <= count <= _MOST:
            raise CommandError(_POSITIVE)
        if count > len(argv) - at - 2:
            raise CommandError("wrong number of arguments")
        self.first, self.count = at + 2, count


def _expire(session: Session, argv: list[bytes], relative: bool, unit: int) -> None:
    """Set the expiry of fields to argv[2] units of `unit` ms (hexpireGenericCommand)."""
    if session.engine.settings.compat.valkey:
        valkey.expire(session, argv, relative, unit)
        return
    key, now = argv[1], session.db.clock.now_ms()
    value = value_for_write(session, key, Hash)
    given = _ExpireArguments(session, argv, unit, now if relative else 0)
    fields = argv[given.first : given.first + given.count]
    out = session.out
    out.array(len(fields))
    if value is None:
        for _ in fields:
            out.integer(NO_FIELD)
        return
    setter = TimeSetter(session, key, value, now, given.condition)
    results = [setter.set(field, given.when) for field in fields]
    setter.done()
    for result in results:
        out.integer(result)
    updated = [field for field, result in zip(fields, results, strict=True) if result == SET]
    deleted = [field for field, result in zip(fields, results, strict=True) if result == DELETED]
    if updated or deleted:
        session.modified(key)
        session.dirty += len(updated) + len(deleted) - 1
    if deleted:
        session.notify(b"h", b"hdel", key, deleted)
    if updated and (not deleted or session.engine.settings.compat.knows(88)):
        session.notify(b"h", b"hexpire", key, updated)
    if not len(value):
        session.db.delete(key)
        session.notify(b"g", b"del", key)
    if not updated:
        session.propagate_nothing()
        return
    name = argv[0] if session.command.name == "hpexpireat" else b"HPEXPIREAT"
    before, after = argv[3 : given.first - 1], argv[given.first + given.count :]
    count = decimal(len(updated)) if len(updated) < len(fields) else argv[given.first - 1]
    time = argv[2] if session.command.name == "hpexpireat" else decimal(given.when)
    session.propagate([name, key, time, *before, count, *updated, *after])


@command("hexpire", arity=-6, flags="write fast", since="7.4.0", valkey="9.0.0", syntax="key seconds " + _CONDITIONS,
         complexity=_LINEAR, shortcut=partial(HexpireFastPath, b"hexpire", 1000, True))
def hexpire(session: Session, argv: list[bytes]) -> None:
    """Set the expiry of fields of a hash, in seconds from now."""
    _expire(session, argv, True, 1000)


@command("hpexpire", arity=-6, flags="write fast", since="7.4.0", valkey="9.0.0",
         syntax="key milliseconds " + _CONDITIONS,
         complexity=_LINEAR, shortcut=partial(HexpireFastPath, b"hpexpire", 1, True))
def hpexpire(session: Session, argv: list[bytes]) -> None:
    """Set the expiry of fields of a hash, in milliseconds from now."""
    _expire(session, argv, True, 1)


@command("hexpireat", arity=-6, flags="write fast", since="7.4.0", valkey="9.0.0",
         syntax="key unix-time-seconds " + _CONDITIONS,
         complexity=_LINEAR, shortcut=partial(HexpireFastPath, b"hexpireat", 1000, False))
def hexpireat(session: Session, argv: list[bytes]) -> None:
    """Set the expiry of fields of a hash, in seconds since the epoch."""
    _expire(session, argv, False, 1000)


@command("hpexpireat", arity=-6, flags="write fast", since="7.4.0", valkey="9.0.0",
         syntax="key unix-time-milliseconds " + _CONDITIONS,
         complexity=_LINEAR, shortcut=partial(HexpireFastPath, b"hpexpireat", 1, False))
def hpexpireat(session: Session, argv: list[bytes]) -> None:
    """Set the expiry of fields of a hash, in milliseconds since the epoch."""
    _expire(session, argv, False, 1)


def exact_fields(
    argv: list[bytes], at: int = 2, positive: str = "Number of fields must be a positive integer"
) -> list[bytes]:
    """Return the fields of `FIELDS numfields field [field ...]` from a position on; positive: an error's text."""
    if argv[at].lower() != b"fields":
        raise CommandError("Mandatory argument FIELDS is missing or not at the right position")
    count = integer(argv[at + 1], positive)
    if count < 1:
        raise CommandError(positive)
    if count != len(argv) - at - 2:
        raise CommandError("The `numfields` parameter must match the number of arguments")
    return argv[at + 2 :]


def _times(session: Session, argv: list[bytes], relative: bool, unit: int) -> None:
    """Reply with the expiry of fields: -2 if a field is missing, -1 if it has no expiry (httlGenericCommand)."""
    if session.engine.settings.compat.valkey:
        valkey.times(session, argv, relative, unit)
        return
    value = read_value(session, argv[1], Hash)
    fields = exact_fields(argv)
    now = session.db.clock.now_ms()
    base, expired = now if relative else 0, field_clock(session.db)
    if value is not None and value.encoding() == "listpackex":
        # httlGenericCommand compares with <= in this encoding, and with < in a hashtable.
        expired += 1 if expired else 0
    session.out.array(len(fields))
    for field in fields:
        when = -1 if value is None else value.time_of(field)
        if when <= 0:
            session.out.integer(-2 if when < 0 else -1)
        elif when < expired:
            session.out.integer(-2)
        else:
            session.out.integer((when - base + 999) // 1000 if unit == 1000 else when - base)


@command("httl", arity=-5, flags="readonly fast", since="7.4.0", valkey="9.0.0", syntax="key " + _FIELDS,
         complexity=_LINEAR, shortcut=partial(HttlFastPath, b"httl", 1000, True))
def httl(session: Session, argv: list[bytes]) -> None:
    """Return the time to live of fields of a hash in seconds."""
    _times(session, argv, True, 1000)


@command("hpttl", arity=-5, flags="readonly fast", since="7.4.0", valkey="9.0.0", syntax="key " + _FIELDS,
         complexity=_LINEAR, shortcut=partial(HttlFastPath, b"hpttl", 1, True))
def hpttl(session: Session, argv: list[bytes]) -> None:
    """Return the time to live of fields of a hash in milliseconds."""
    _times(session, argv, True, 1)


@command("hexpiretime", arity=-5, flags="readonly fast", since="7.4.0", valkey="9.0.0", syntax="key " + _FIELDS,
         complexity=_LINEAR, shortcut=partial(HttlFastPath, b"hexpiretime", 1000, False))
def hexpiretime(session: Session, argv: list[bytes]) -> None:
    """Return the expiry of fields of a hash in seconds since the epoch."""
    _times(session, argv, False, 1000)


@command("hpexpiretime", arity=-5, flags="readonly fast", since="7.4.0", valkey="9.0.0", syntax="key " + _FIELDS,
         complexity=_LINEAR, shortcut=partial(HttlFastPath, b"hpexpiretime", 1, False))
def hpexpiretime(session: Session, argv: list[bytes]) -> None:
    """Return the expiry of fields of a hash in milliseconds since the epoch."""
    _times(session, argv, False, 1)


@command("hpersist", arity=-5, flags="write fast", since="7.4.0", valkey="9.0.0", syntax="key " + _FIELDS,
         complexity=_LINEAR, shortcut=HpersistFastPath)
def hpersist(session: Session, argv: list[bytes]) -> None:
    """Remove the expiry of fields of a hash."""
    if session.engine.settings.compat.valkey:
        valkey.persist(session, argv)
        return
    key = argv[1]
    value = value_for_write(session, key, Hash)
    fields = exact_fields(argv)
    now = field_clock(session.db)
    persisted = []
    session.out.array(len(fields))
    for field in fields:
        when = -1 if value is None else value.time_of(field)
        if value is None or when < 0 or 0 < when < now:
            session.out.integer(-2)
        elif when == 0:
            session.out.integer(-1)
        else:
            value.set_time(field, 0)
            persisted.append(field)
            session.out.integer(1)
    if persisted:
        session.notify(b"h", b"hpersist", key, persisted)
        session.modified(key)

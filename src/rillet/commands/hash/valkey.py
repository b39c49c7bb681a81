"""The commands of field expiry as Valkey 9 has them (Valkey: t_hash.c).

They differ from Redis's in their arguments, replies, events and log:

    arguments   the conditions and options precede FIELDS; the count must match exactly; HSETEX has NX and XX, too
    times       any time of 64 bits; HTTL rounds to the nearest second, and an expired field is missing
    events      `hexpired` instead of `hdel` for a field whose new time has passed
    log         HEXPIRE is logged with all its fields; a past time as one HDEL
    encoding    the first expiry makes a hashtable

An expired field stays until the expiry cycle removes it. A command passes over it, or overwrites it like a new field;
then it counts as expired and the event `hexpired` precedes the event of the command.
"""

from __future__ import annotations

from rillet.commands.arguments import LLONG_MAX, integer, syntax_error, text
from rillet.commands.hash.times import invalid_time, is_past, register_exactly
from rillet.commands.hash.unexpired import UnexpiredFields
from rillet.commands.lookup import delete_if_empty, read_value, value_for_write
from rillet.commands.replies import bulk_or_null
from rillet.errors import CommandError
from rillet.runtime.field_expiry import log_fields
from rillet.runtime.session import Session
from rillet.structs.integer_text import decimal
from rillet.types.hash import Hash

_COUNT = "numfields should be greater than 0 and match the provided number of fields"
_NO_CONDITIONS: set[bytes] = set()
# Option -> ms of its unit, and whether the time is relative.
_UNITS = {b"ex": (1000, True), b"px": (1, True), b"exat": (1000, False), b"pxat": (1, False)}


# -- arguments ---------------------------------------------------------------------------------------


def _find_fields(argv: list[bytes], start: int) -> int:
    """Return the position of the word FIELDS, which does not come last, or -1."""
    for at in range(start, len(argv) - 1):
        if argv[at].lower() == b"fields":
            return at
    return -1


def _count(argv: list[bytes], at: int, width: int = 1) -> int:
    """Return the position of the first field after `FIELDS numfields` at a position; the count must match."""
    if at < 0 or integer(argv[at + 1]) * width != len(argv) - at - 2 or len(argv) == at + 2:
        raise CommandError(_COUNT)
    return at + 2


def _fixed_fields(argv: list[bytes], mismatch: CommandError) -> list[bytes]:
    """Return the fields of `key FIELDS numfields field [field ...]`."""
    if argv[2].lower() != b"fields":
        raise syntax_error()
    if integer(argv[3]) != len(argv) - 4 or len(argv) == 4:
        raise mismatch
    return argv[4:]


def parse_time(session: Session, raw: bytes, unit: int, base: int) -> int:
    """Return an argument in units of `unit` ms after `base` as ms since the epoch (parseExpireTime)."""
    when = integer(raw)
    if when < 0 or (unit == 1000 and when > LLONG_MAX // 1000) or when * unit > LLONG_MAX - base:
        raise invalid_time(session)
    return when * unit + base


def _conditions(words: list[bytes]) -> set[bytes]:
    """Parse NX, XX, GT and LT (parseExtendedExpireArgumentsOrReply)."""
    found = set()
    for word in words:
        if word.lower() not in (b"nx", b"xx", b"gt", b"lt"):
            raise CommandError(f"Unsupported option {text(word)}")
        found.add(word.lower())
    if b"nx" in found and len(found) > 1:
        raise CommandError("NX and XX, GT or LT options at the same time are not compatible")
    if {b"gt", b"lt"} <= found:
        raise CommandError("GT and LT options at the same time are not compatible")
    return found


class _Options:
    """The options of HGETEX and HSETEX between the key and FIELDS (parseExtendedCommandArgumentsOrReply).

    expiry: one of the four options of a time, b"persist", b"keepttl" or b"". flags: nx, xx, fnx, fxx.
    """

    __slots__ = ("expiry", "first", "flags", "time")

    def __init__(self, argv: list[bytes], sets: bool) -> None:
        self.expiry = self.time = b""
        self.flags: set[bytes] = set()
        # The search starts at the command's name, so a key called "fields" is taken for the word.
        fields = _find_fields(argv, 0)
        at = 2
        while at < fields:
            word = argv[at].lower()
            if word in _UNITS and at + 1 < fields and self.expiry in (b"", word):
                self.expiry, self.time = word, argv[at + 1]
                at += 1
            elif word == (b"keepttl" if sets else b"persist") and self.expiry in (b"", word):
                self.expiry = word
            elif sets and word in (b"nx", b"xx", b"fnx", b"fxx") and _OPPOSITE[word] not in self.flags:
                self.flags.add(word)
            else:
                raise syntax_error()
            at += 1
        self.first = _count(argv, fields, 2 if sets else 1)

    def when(self, session: Session, now: int) -> int:
        """Return the time in ms since the epoch, 0 if none is given."""
        if not self.time:
            return 0
        unit, relative = _UNITS[self.expiry]
        return parse_time(session, self.time, unit, now if relative else 0)


_OPPOSITE = {b"nx": b"xx", b"xx": b"nx", b"fnx": b"fxx", b"fxx": b"fnx"}


# -- HEXPIRE, HTTL, HPERSIST -------------------------------------------------------------------------


def _is_allowed(conditions: set[bytes], current: int, when: int) -> bool:
    """Return whether the conditions allow `when` to replace the current time (0: none, later than any other)."""
    if b"nx" in conditions and current:
        return False
    if b"xx" in conditions and not current:
        return False
    if b"gt" in conditions and (not current or when <= current):
        return False
    return not (b"lt" in conditions and current and when >= current)


def _set_time(
    session: Session, fields: UnexpiredFields, name: bytes, when: int, now: int, conditions: set[bytes] = _NO_CONDITIONS
) -> int:
    """Set the time of a field; return -2 if missing, 0 if not allowed, 2 if removed, else 1 (hashTypeSetExpire)."""
    value = fields.value
    if value is None or fields.get(name) is None:
        return -2
    if not _is_allowed(conditions, value.time_of(name), when):
        return 0
    if is_past(session, when, now):
        value.remove(name)
        return 2
    value.start_expiry(session.engine.settings)
    value.set_time(name, max(when, 1))
    return 1


def expire(session: Session, argv: list[bytes], relative: bool, unit: int) -> None:
    """Run HEXPIRE, HPEXPIRE, HEXPIREAT or HPEXPIREAT (hexpireGenericCommand)."""
    key, at, now = argv[1], _find_fields(argv, 3), session.db.clock.now_ms()
    conditions = _conditions(argv[3:at]) if at > 0 else set()
    names = argv[_count(argv, at) :]
    when = parse_time(session, argv[2], unit, now if relative else 0)
    value = value_for_write(session, key, Hash)
    fields = UnexpiredFields(session, key, value)
    results = [_set_time(session, fields, name, when, now, conditions) for name in names]
    session.out.array(len(names))
    for result in results:
        session.out.integer(result)
    updated, removed = results.count(1), results.count(2)
    session.engine.stats.expired_fields += removed
    if value is None or not updated + removed:
        return
    register_exactly(session, key, value)
    if removed:
        session.propagate([b"HDEL", key, *(name for name, one in zip(names, results, strict=True) if one == 2)])
        session.notify(b"h", b"hexpired", key)
    else:
        name = argv[0] if session.command.name == "hpexpireat" else b"HPEXPIREAT"
        session.propagate([name, key, decimal(when) if relative or unit == 1000 else argv[2], *argv[3:]])
        session.notify(b"h", b"hexpire", key)
    session.modified(key)
    session.dirty += updated + removed - 1
    delete_if_empty(session, key, value)


def times(session: Session, argv: list[bytes], relative: bool, unit: int) -> None:
    """Run HTTL, HPTTL, HEXPIRETIME or HPEXPIRETIME (httlGenericCommand)."""
    names = _fixed_fields(argv, syntax_error())
    value = read_value(session, argv[1], Hash)
    fields = UnexpiredFields(session, argv[1], value)
    base = session.db.clock.now_ms() if relative else 0
    session.out.array(len(names))
    for name in names:
        when = -1 if value is None or fields.is_expired(name) else value.time_of(name)
        if when <= 0:
            session.out.integer(-2 if when < 0 else -1)
        else:
            left = max(when - base, 0)
            session.out.integer(left if unit == 1 else (left + 500) // 1000)


def persist(session: Session, argv: list[bytes]) -> None:
    """Run HPERSIST (hpersistCommand)."""
    names = _fixed_fields(argv, CommandError(_COUNT))
    key = argv[1]
    value = value_for_write(session, key, Hash)
    fields = UnexpiredFields(session, key, value)
    changes = 0
    session.out.array(len(names))
    for name in names:
        result = _persist(fields, name)
        changes += result == 1
        session.out.integer(result)
    if changes and value is not None:
        register_exactly(session, key, value)
        session.notify(b"h", b"hpersist", key)
        session.modified(key)
        session.dirty += changes - 1


def _persist(fields: UnexpiredFields, name: bytes) -> int:
    """Remove the time of a field; return -2 if it is missing, -1 if it has none, else 1 (hashTypePersist)."""
    value = fields.value
    if value is None or fields.get(name) is None:
        return -2
    if not value.time_of(name):
        return -1
    value.set_time(name, 0)
    return 1


# -- HGETEX, HSETEX, HGETDEL -------------------------------------------------------------------------


def get_and_expire(session: Session, argv: list[bytes]) -> None:
    """Run HGETEX (hgetexCommand)."""
    options = _Options(argv, False)
    key, names, out, now = argv[1], argv[options.first :], session.out, session.db.clock.now_ms()
    value = read_value(session, key, Hash)
    when = options.when(session, now)
    past = bool(options.time) and is_past(session, when, now)
    if value is not None and options.expiry:
        value = session.db.wake(key)
    fields = UnexpiredFields(session, key, value)
    changed: list[bytes] = []
    out.array(len(names))
    for name in names:
        content = fields.get(name)
        bulk_or_null(out, content)
        if content is None or not options.expiry:
            continue
        if options.expiry == b"persist":
            done = _persist(fields, name) == 1
        else:
            done = _set_time(session, fields, name, when, now) > 0
        if done:
            changed.append(name)
    if not changed or value is None:
        return
    if past:
        session.engine.stats.expired_fields += len(changed)
        session.propagate([b"HDEL", key, *changed])
        session.notify(b"h", b"hexpired", key)
    else:
        head = [b"HPERSIST", key] if options.expiry == b"persist" else [b"HPEXPIREAT", key, decimal(when)]
        session.propagate([*head, b"FIELDS", decimal(len(changed)), *changed])
        session.notify(b"h", b"hpersist" if options.expiry == b"persist" else b"hexpire", key)
    register_exactly(session, key, value)
    session.modified(key)
    session.dirty += len(changed) - 1
    delete_if_empty(session, key, value)


def _is_met(options: _Options, fields: UnexpiredFields, names: list[bytes]) -> bool:
    """Return whether NX, XX, FNX and FXX allow to set the fields."""
    missing = fields.value is None
    if (b"nx" in options.flags and not missing) or (b"xx" in options.flags and missing):
        return False
    if b"fnx" in options.flags:
        return all(fields.get(name) is None for name in names)
    return b"fxx" not in options.flags or all(fields.get(name) is not None for name in names)


def set_and_expire(session: Session, argv: list[bytes]) -> None:
    """Run HSETEX (hsetexCommand)."""
    options = _Options(argv, True)
    key, now = argv[1], session.db.clock.now_ms()
    value = value_for_write(session, key, Hash)
    fields = UnexpiredFields(session, key, value)
    names, contents = argv[options.first :: 2], argv[options.first + 1 :: 2]
    key_only = options.flags & {b"nx", b"xx"}
    if key_only and (b"nx" in key_only) == (value is not None):
        session.out.integer(0)
        return
    when = options.when(session, now)
    if not _is_met(options, fields, names):
        session.out.integer(0)
        return
    if value is None:
        value = Hash()
        session.db.set(key, value)
    past = bool(options.time) and is_past(session, when, now)
    if past:
        _set_past(session, key, value, names)
    else:
        _set_all(session, argv, value, options, when, list(zip(names, contents, strict=True)))
    session.notify(b"h", b"hset", key)
    if options.time:
        session.notify(b"h", b"hexpire", key)
    if past:
        session.notify(b"h", b"hexpired", key)
    delete_if_empty(session, key, value)
    session.out.integer(1)


def _set_past(session: Session, key: bytes, value: Hash, names: list[bytes]) -> None:
    """Remove the fields that HSETEX would set with a time in the past, expired ones included."""
    removed = [name for name in names if value.remove(name)]
    session.engine.stats.expired_fields += len(names)
    if removed:
        register_exactly(session, key, value)
        session.propagate([b"HDEL", key, *removed])
        session.modified(key)
        session.dirty += len(removed) - 1


def _set_all(
    session: Session, argv: list[bytes], value: Hash, options: _Options, when: int, pairs: list[tuple[bytes, bytes]]
) -> None:
    """Set the fields of HSETEX with their time."""
    key, keeps = argv[1], options.expiry == b"keepttl"
    fields = UnexpiredFields(session, key, value)
    expired: list[bytes] = []
    kept = max(when, 1) if options.time else 0  # in import-mode, the time 0 is stored
    for name, content in pairs:
        if set_field(session, fields, name, content, kept, keeps)[1]:
            expired.append(name)
    register_exactly(session, key, value)
    if expired:
        announce_overwritten(session, key, len(expired))
        if keeps:  # a replica cannot know that the fields had expired
            log_fields(session.engine, session.db, key, expired)
    if options.flags or (options.time and options.expiry != b"pxat"):
        line = [word for at, word in enumerate(argv[: options.first]) if at < 2 or word.lower() not in _OPPOSITE]
        if options.time:
            at = line.index(options.time, 2)
            line[at - 1 : at + 1] = [b"PXAT", decimal(when)]
        session.propagate([*line, *argv[options.first :]])
    session.modified(key)
    session.dirty += len(pairs) - 1


def set_field(
    session: Session, fields: UnexpiredFields, name: bytes, content: bytes, when: int = 0, keeps: bool = False
) -> tuple[bool, bool]:
    """Set a field with a time, 0 for none; return whether it is new, and whether it had expired (hashTypeSet).

    keeps: a field that has not expired keeps its time.
    """
    value = fields.value
    assert value is not None
    expired = fields.is_expired(name)
    new = value.set(name, content, session.engine.settings, keeps and not expired)
    if when:
        value.start_expiry(session.engine.settings)
        value.set_time(name, when)
    return new or expired, expired


def announce_overwritten(session: Session, key: bytes, count: int) -> None:
    """Count expired fields that a command overwrote, and publish one event for them."""
    session.engine.stats.expired_fields += count
    session.notify(b"h", b"hexpired", key)


def get_and_delete(session: Session, argv: list[bytes]) -> None:
    """Run HGETDEL (hgetdelCommand)."""
    names = _fixed_fields(argv, CommandError(_COUNT))
    key = argv[1]
    value = value_for_write(session, key, Hash)
    fields = UnexpiredFields(session, key, value)
    deleted = 0
    session.out.array(len(names))
    for name in names:
        content = fields.get(name)
        bulk_or_null(session.out, content)
        if content is not None and value is not None:
            value.remove(name)
            deleted += 1
    if not deleted or value is None:
        return
    register_exactly(session, key, value)
    session.modified(key)
    session.dirty += deleted - 1
    if not len(value):
        session.db.delete(key)
    session.notify(b"h", b"hdel", key)
    if not len(value):
        session.notify(b"g", b"del", key)

"""The fields of one hash: HSET, HGET, HINCRBY, HDEL, HGETALL and others (Redis: t_hash.c).

A hash that loses its last field is deleted. Propagated commands do not depend on arithmetic: HINCRBYFLOAT becomes the
HSET of its result, or HSETEX with KEEPTTL if the field has an expiry. (Redis 8 logs HSETEX in both cases, which servers
before 8.0 cannot read.)

A field that is set loses its expiry; a number that is incremented keeps it. In Redis the commands for single fields
remove the expired fields that they read (live.py), HSET and HDEL treat them like others, and HLEN counts them. In
Valkey all commands but HLEN pass over expired fields, and a command that overwrites one publishes `hexpired` first.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from rillet.commands.arguments import LLONG_MAX, LLONG_MIN, arity_error, float_value, integer
from rillet.commands.hash import command
from rillet.commands.hash.fast_path import (
    HdelFastPath,
    HgetallFastPath,
    HgetFastPath,
    HincrbyFastPath,
    HmgetFastPath,
    HsetFastPath,
    HsetnxFastPath,
)
from rillet.commands.hash.fast_path import hlen as hlen_path
from rillet.commands.hash.live import SEVERAL, LiveFields, live_names, live_rows, live_value
from rillet.commands.hash.times import forget_if_last, register_exactly
from rillet.commands.hash.valkey import announce_overwritten, set_field
from rillet.commands.keys.scan import scan_value
from rillet.commands.lookup import delete_if_empty, read_value, value_for_write
from rillet.commands.replies import bulk_or_null, write_bulks
from rillet.commands.table_replies import write_table
from rillet.errors import CommandError
from rillet.runtime.session import Session
from rillet.structs import long_double
from rillet.structs.integer_text import decimal
from rillet.types.hash import Hash
from rillet.types.string import string2ll

_HGET, _HSET, _HMGET, _HGETALL = HgetFastPath(), HsetFastPath(), HmgetFastPath(), HgetallFastPath()
_HSETNX, _HINCRBY, _HDEL, _HLEN = HsetnxFastPath(), HincrbyFastPath(), HdelFastPath(), hlen_path()
_NOT_FINITE = "value is NaN or Infinity"
_RESULT_NOT_FINITE = "increment would produce NaN or Infinity"


# -- setting -----------------------------------------------------------------------------------------


def _set_many(session: Session, argv: list[bytes]) -> int:
    """Set the fields and return the number of new ones (hsetCommand)."""
    created = _HSET.fields(session, argv)
    if created >= 0:
        session.notify(b"h", b"hset", argv[1], argv[2::2])
        return created
    if len(argv) % 2:
        raise arity_error(session.command.fullname)
    key, words = argv[1], argv[2:]
    limits = session.engine.settings
    value = value_for_write(session, key, Hash)
    if value is None:
        value = Hash()
        session.db.set(key, value)
    value.prepare(words, limits)
    if value.expiry is not None and limits.compat.valkey:
        created = _set_many_valkey(session, key, value, words)
    else:
        created = 0
        for at in range(0, len(words), 2):
            if value.set(words[at], words[at + 1], limits):
                created += 1
        session.modified(key)
    session.notify(b"h", b"hset", key, words[::2])
    session.dirty += len(words) // 2 - 1
    return created


def _set_many_valkey(session: Session, key: bytes, value: Hash, words: list[bytes]) -> int:
    """Set fields of a hash with field expiry in Valkey; return the number of new and of expired ones."""
    fields = LiveFields(session, key, value)
    results = [set_field(session, fields, words[at], words[at + 1]) for at in range(0, len(words), 2)]
    register_exactly(session, key, value)
    session.modified(key)
    overwritten = sum(1 for _, expired in results if expired)
    if overwritten:
        announce_overwritten(session, key, overwritten)
    return sum(1 for new, _ in results if new)


@command("hset", arity=-4, flags="write denyoom fast", since="2.0.0", syntax="key field value [field value ...]",
         complexity="O(1) for each field/value pair added, so O(N) to add N field/value pairs when the command is "
         "called with multiple field/value pairs.", shortcut=HsetFastPath)
def hset(session: Session, argv: list[bytes]) -> None:
    """Set fields of a hash, creating it if needed, and return the number of new fields."""
    session.out.integer(_set_many(session, argv))


@command("hmset", arity=-4, flags="write denyoom fast", since="2.0.0", syntax="key field value [field value ...]",
         complexity="O(N) where N is the number of fields being set.")
def hmset(session: Session, argv: list[bytes]) -> None:
    """Set fields of a hash, creating it if needed."""
    _set_many(session, argv)
    session.out.ok()


@command("hsetnx", arity=4, flags="write denyoom fast", since="2.0.0", syntax="key field value", complexity="O(1)",
         shortcut=HsetnxFastPath)
def hsetnx(session: Session, argv: list[bytes]) -> None:
    """Set a field of a hash, unless it exists."""
    if _HSETNX.execute(session, argv):
        if session.dirty:
            session.notify(b"h", b"hset", argv[1], [argv[2]])
        return
    key, field, content = argv[1:]
    value = value_for_write(session, key, Hash)
    fields = LiveFields(session, key, value)
    if fields.get(field) is not None:
        session.out.integer(0)
        return
    if _put(session, fields, key, field, content, b"hset", False):
        session.propagate([b"HSET", *argv[1:]])
    session.out.integer(1)


def _put(
    session: Session, fields: LiveFields, key: bytes, field: bytes, content: bytes, event: bytes, keep: bool
) -> bool:
    """Set one field, creating the hash if needed, and publish the event; `keep` keeps the expiry of the field.

    Return whether the log must contain the effect instead of the command: in Valkey, if a field has an expiry.
    """
    value = fields.value
    if value is None or fields.deleted:
        value = Hash()
        session.db.set(key, value)
    limits = session.engine.settings
    has_expiry = limits.compat.valkey and value.earliest() > 0
    overwritten = has_expiry and fields.is_expired(field)
    value.set(field, content, limits, keep and not overwritten)
    session.modified(key)
    if has_expiry:
        register_exactly(session, key, value)
    if overwritten:
        announce_overwritten(session, key, 1)
    session.notify(b"h", event, key, [field])
    return has_expiry


def _log_number(session: Session, fields: LiveFields, argv: list[bytes], content: bytes) -> None:
    """Log the result of HINCRBY or HINCRBYFLOAT with the expiry of the field."""
    when = 0 if fields.value is None or fields.deleted else fields.value.time_of(argv[2])
    if when <= 0:
        session.propagate([b"HSET", argv[1], argv[2], content])
    elif session.engine.settings.compat.valkey:
        session.propagate([b"HSETEX", argv[1], b"PXAT", decimal(when), b"FIELDS", b"1", argv[2], content])
    else:
        session.propagate([b"HSETEX", argv[1], b"KEEPTTL", b"FIELDS", b"1", argv[2], content])


@command("hincrby", arity=4, flags="write denyoom fast", since="2.0.0", syntax="key field increment", complexity="O(1)",
         shortcut=HincrbyFastPath)
def hincrby(session: Session, argv: list[bytes]) -> None:
    """Add to the integer in a field of a hash; a missing field counts as 0."""
    if _HINCRBY.execute(session, argv):
        session.notify(b"h", b"hincrby", argv[1], [argv[2]])
        return
    key, field = argv[1], argv[2]
    by = integer(argv[3])
    fields = LiveFields(session, key, value_for_write(session, key, Hash))
    content = fields.get(field)
    before = 0 if content is None else string2ll(content)
    if before is None:
        raise CommandError("hash value is not an integer")
    total = before + by
    if not LLONG_MIN <= total <= LLONG_MAX:
        raise CommandError("increment or decrement would overflow")
    if _put(session, fields, key, field, decimal(total), b"hincrby", True):
        _log_number(session, fields, argv, decimal(total))
    session.out.integer(total)


@command("hincrbyfloat", arity=4, flags="write denyoom fast", since="2.6.0", syntax="key field increment",
         complexity="O(1)")
def hincrbyfloat(session: Session, argv: list[bytes]) -> None:
    """Add to the number in a field of a hash, with the precision of a long double."""
    key, field = argv[1], argv[2]
    try:
        by = float_value(argv[3])
    except long_double.NotFinite:
        raise CommandError(_NOT_FINITE) from None
    fields = LiveFields(session, key, value_for_write(session, key, Hash))
    content = fields.get(field)
    shown = _sum(b"0" if content is None else content, by)
    _put(session, fields, key, field, shown, b"hincrbyfloat", True)
    _log_number(session, fields, argv, shown)
    session.out.bulk(shown)


def _sum(content: bytes, by: Fraction) -> bytes:
    try:
        return long_double.format_decimal(long_double.rounded(float_value(content, "hash value is not a float") + by))
    except long_double.NotFinite:
        raise CommandError(_RESULT_NOT_FINITE) from None


@command("hdel", arity=-3, flags="write fast", since="2.0.0", syntax="key field [field ...]",
         complexity="O(N) where N is the number of fields to be removed.", shortcut=HdelFastPath)
def hdel(session: Session, argv: list[bytes]) -> None:
    """Remove fields of a hash and return the number of removed ones."""
    if not session.engine.notify_events and _HDEL.execute(session, argv):
        return
    value = value_for_write(session, argv[1], Hash)
    earliest = 0 if value is None else value.earliest()
    removed = [] if value is None else _remove(session, argv[1], value, argv[2:])
    if removed and value is not None:
        forget_if_last(session, argv[1], value, earliest)
        session.modified(argv[1])
        session.notify(b"h", b"hdel", argv[1], removed)
        session.dirty += len(removed) - 1
        delete_if_empty(session, argv[1], value)
    session.out.integer(len(removed))


def _remove(session: Session, key: bytes, value: Hash, names: list[bytes]) -> list[bytes]:
    """Remove fields until the hash is empty; return those that were removed. In Valkey expired fields stay."""
    if value.expiry is None or not session.engine.settings.compat.valkey:
        return [name for name in names if value.remove(name)]
    fields = LiveFields(session, key, value)
    removed = [name for name in names if not fields.is_expired(name) and value.remove(name)]
    register_exactly(session, key, value)
    return removed


# -- reading -----------------------------------------------------------------------------------------


@command("hget", arity=3, flags="readonly fast", since="2.0.0", syntax="key field", complexity="O(1)",
         shortcut=HgetFastPath)
def hget(session: Session, argv: list[bytes]) -> None:
    """Return the value of a field of a hash."""
    if _HGET.execute(session, argv):
        return
    value = read_value(session, argv[1], Hash)
    bulk_or_null(session.out, live_value(session, argv[1], value, argv[2]))


@command("hmget", arity=-3, flags="readonly fast", since="2.0.0", syntax="key field [field ...]",
         complexity="O(N) where N is the number of fields being requested.", shortcut=HmgetFastPath)
def hmget(session: Session, argv: list[bytes]) -> None:
    """Return the values of several fields of a hash, null for missing ones."""
    if _HMGET.execute(session, argv):
        return
    value = read_value(session, argv[1], Hash)
    session.out.array(len(argv) - 2)
    fields = LiveFields(session, argv[1], value, SEVERAL)
    for field in argv[2:]:
        bulk_or_null(session.out, fields.get(field))
    fields.announce()


@command("hlen", arity=2, flags="readonly fast", since="2.0.0", syntax="key", complexity="O(1)",
         shortcut=hlen_path)
def hlen(session: Session, argv: list[bytes]) -> None:
    """Return the number of fields of a hash."""
    if _HLEN.execute(session, argv):
        return
    value = read_value(session, argv[1], Hash)
    session.out.integer(0 if value is None else len(value))


@command("hstrlen", arity=3, flags="readonly fast", since="3.2.0", syntax="key field", complexity="O(1)")
def hstrlen(session: Session, argv: list[bytes]) -> None:
    """Return the length in bytes of the value of a field of a hash."""
    value = read_value(session, argv[1], Hash)
    content = live_value(session, argv[1], value, argv[2])
    session.out.integer(0 if content is None else len(content))


@command("hexists", arity=3, flags="readonly fast", since="2.0.0", syntax="key field", complexity="O(1)")
def hexists(session: Session, argv: list[bytes]) -> None:
    """Return whether a hash has a field."""
    value = read_value(session, argv[1], Hash)
    session.out.integer(live_value(session, argv[1], value, argv[2]) is not None)


@command("hkeys", arity=2, flags="readonly", since="2.0.0", syntax="key",
         complexity="O(N) where N is the size of the hash.")
def hkeys(session: Session, argv: list[bytes]) -> None:
    """Return all fields of a hash."""
    value = read_value(session, argv[1], Hash)
    if value is not None and value.expiry is not None:
        write_bulks(session.out, [field for field, _ in live_rows(session, value)])
    elif value is not None and value.table is not None:
        session.out.array(len(value))
        write_table(session.out, value.table, True, False)
    else:
        write_bulks(session.out, [] if value is None else list(value))


@command("hvals", arity=2, flags="readonly", since="2.0.0", syntax="key",
         complexity="O(N) where N is the size of the hash.")
def hvals(session: Session, argv: list[bytes]) -> None:
    """Return all values of a hash."""
    value = read_value(session, argv[1], Hash)
    if value is not None and value.expiry is not None:
        write_bulks(session.out, [content for _, content in live_rows(session, value)])
    elif value is not None and value.table is not None:
        session.out.array(len(value))
        write_table(session.out, value.table, False, True)
    else:
        write_bulks(session.out, [] if value is None else value.values())


@command("hgetall", arity=2, flags="readonly", since="2.0.0", syntax="key",
         complexity="O(N) where N is the size of the hash.", shortcut=HgetallFastPath)
def hgetall(session: Session, argv: list[bytes]) -> None:
    """Return all fields of a hash with their values."""
    if _HGETALL.execute(session, argv):
        return
    value = read_value(session, argv[1], Hash)
    if value is not None and value.expiry is None and value.table is not None:
        session.out.map(len(value))
        write_table(session.out, value.table, True, True)
        return
    if value is not None and value.expiry is not None:
        words = [word for pair in live_rows(session, value) for word in pair]
    else:
        words = [] if value is None else value.words()
    session.out.map(len(words) // 2)
    for word in words:
        session.out.bulk(word)


@command("hscan", arity=-3, flags="readonly", since="2.8.0",
         syntax="key cursor [MATCH pattern] [COUNT count] [NOVALUES]",
         complexity="O(COUNT) for a call, O(N) for a whole walk over N fields.")
def hscan(session: Session, argv: list[bytes]) -> None:
    """Return some fields of a hash with their values, and the cursor for the next call."""
    value, fields, bare = scan_value(session, argv, Hash, "HSCAN")
    fields = live_names(session, value, fields)
    session.out.array(len(fields) if bare else 2 * len(fields))
    write_hash_fields(session, value, fields, not bare)


def write_hash_fields(
    session: Session, value: Hash | None, fields: list[bytes], with_values: bool, nested: bool = False
) -> None:
    """Write fields of the hash, with their values flat or nested as pairs."""
    out = session.out
    if value is None or not with_values:
        for field in fields:
            out.bulk(field)
        return
    get: Any = value.table.get if value.table is not None else dict(value.items()).get
    for field in fields:
        if nested:
            out.array(2)
        out.bulk(field)
        out.bulk(get(field))

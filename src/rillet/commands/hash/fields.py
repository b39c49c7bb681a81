"""The fields of one hash: HSET, HGET, HINCRBY, HDEL, HGETALL and others (Redis: t_hash.c).

A hash that loses its last field is deleted. Propagated commands do not depend on arithmetic: HINCRBYFLOAT becomes the
HSET of its result (Redis 8 writes HSETEX with KEEPTTL, for the expiry of fields, which do not expire here), and
HGETDEL becomes HDEL.
"""

from __future__ import annotations

from fractions import Fraction

from rillet.commands.arguments import LLONG_MAX, LLONG_MIN, float_value, integer
from rillet.errors import CommandError, WrongType
from rillet.runtime.registry import command
from rillet.runtime.session import Session
from rillet.structs import long_double
from rillet.types.hash import Hash
from rillet.types.string import string2ll

_NOT_FINITE = "value is NaN or Infinity"
_NO_NUMBER = "Number of fields must be a positive integer"
_RESULT_NOT_FINITE = "increment would produce NaN or Infinity"


def read_hash(session: Session, key: bytes) -> Hash | None:
    """Return the hash at a key, None if the key does not exist; WrongType for another type."""
    value = session.db.lookup_read(key)
    if value is not None and not isinstance(value, Hash):
        raise WrongType()
    return value


def _hash_for_write(session: Session, key: bytes) -> Hash | None:
    """Return the hash at a key for a write, None if the key does not exist; WrongType for another type."""
    value = session.db.lookup(key)
    if value is not None and not isinstance(value, Hash):
        raise WrongType()
    return value


def _changed(session: Session, key: bytes, event: bytes) -> None:
    session.modified(key)
    session.notify(b"h", event, key)


# -- setting -----------------------------------------------------------------------------------------


def _set_many(session: Session, argv: list[bytes]) -> int:
    """Set the fields and return the number of new ones (hsetCommand)."""
    if len(argv) % 2:
        raise CommandError(f"wrong number of arguments for '{session.command.fullname}' command")
    key, words = argv[1], argv[2:]
    limits = session.engine.settings
    value = _hash_for_write(session, key)
    if value is None:
        value = Hash()
        session.db.set(key, value)
    value.prepare(words, limits)
    created = 0
    for at in range(0, len(words), 2):
        if value.set(words[at], words[at + 1], limits):
            created += 1
    _changed(session, key, b"hset")
    session.dirty += len(words) // 2 - 1
    return created


@command("hset", arity=-4, flags="write denyoom fast", keys=(1, 1, 1), group="hash", since="2.0.0",
         complexity="O(1) for each field/value pair added, so O(N) to add N field/value pairs when the command is "
         "called with multiple field/value pairs.", syntax="key field value [field value ...]")
def hset(session: Session, argv: list[bytes]) -> None:
    """Set fields of a hash, creating it if needed, and return the number of new fields."""
    session.out.integer(_set_many(session, argv))


@command("hmset", arity=-4, flags="write denyoom fast", keys=(1, 1, 1), group="hash", since="2.0.0",
         complexity="O(N) where N is the number of fields being set.", syntax="key field value [field value ...]")
def hmset(session: Session, argv: list[bytes]) -> None:
    """Set fields of a hash, creating it if needed."""
    _set_many(session, argv)
    session.out.ok()


@command("hsetnx", arity=4, flags="write denyoom fast", keys=(1, 1, 1), group="hash", since="2.0.0",
         complexity="O(1)", syntax="key field value")
def hsetnx(session: Session, argv: list[bytes]) -> None:
    """Set a field of a hash, unless it exists."""
    key, field, content = argv[1:]
    value = _hash_for_write(session, key)
    if value is not None and field in value:
        session.out.integer(0)
        return
    _put(session, key, value, field, content)
    _changed(session, key, b"hset")
    session.out.integer(1)


def _put(session: Session, key: bytes, value: Hash | None, field: bytes, content: bytes) -> None:
    """Set one field, creating the hash if needed."""
    if value is None:
        value = Hash()
        session.db.set(key, value)
    value.set(field, content, session.engine.settings)


@command("hincrby", arity=4, flags="write denyoom fast", keys=(1, 1, 1), group="hash", since="2.0.0",
         complexity="O(1)", syntax="key field increment")
def hincrby(session: Session, argv: list[bytes]) -> None:
    """Add to the integer in a field of a hash; a missing field counts as 0."""
    key, field = argv[1], argv[2]
    by = integer(argv[3])
    value = _hash_for_write(session, key)
    content = None if value is None else value.get(field)
    before = 0 if content is None else string2ll(content)
    if before is None:
        raise CommandError("hash value is not an integer")
    total = before + by
    if not LLONG_MIN <= total <= LLONG_MAX:
        raise CommandError("increment or decrement would overflow")
    _put(session, key, value, field, b"%d" % total)
    _changed(session, key, b"hincrby")
    session.out.integer(total)


@command("hincrbyfloat", arity=4, flags="write denyoom fast", keys=(1, 1, 1), group="hash", since="2.6.0",
         complexity="O(1)", syntax="key field increment")
def hincrbyfloat(session: Session, argv: list[bytes]) -> None:
    """Add to the number in a field of a hash, with the precision of a long double."""
    key, field = argv[1], argv[2]
    try:
        by = float_value(argv[3])
    except long_double.NotFinite:
        raise CommandError(_NOT_FINITE) from None
    value = _hash_for_write(session, key)
    content = None if value is None else value.get(field)
    shown = _sum(b"0" if content is None else content, by)
    _put(session, key, value, field, shown)
    _changed(session, key, b"hincrbyfloat")
    session.propagate([b"HSET", key, field, shown])
    session.out.bulk(shown)


def _sum(content: bytes, by: Fraction) -> bytes:
    try:
        return long_double.format_decimal(long_double.rounded(float_value(content, "hash value is not a float") + by))
    except long_double.NotFinite:
        raise CommandError(_RESULT_NOT_FINITE) from None


@command("hdel", arity=-3, flags="write fast", keys=(1, 1, 1), group="hash", since="2.0.0",
         complexity="O(N) where N is the number of fields to be removed.", syntax="key field [field ...]")
def hdel(session: Session, argv: list[bytes]) -> None:
    """Remove fields of a hash and return the number of removed ones."""
    value = _hash_for_write(session, argv[1])
    removed = 0
    if value is not None:
        removed = sum(1 for field in argv[2:] if value.remove(field))
        _note_removed(session, argv[1], value, removed)
    session.out.integer(removed)


def _note_removed(session: Session, key: bytes, value: Hash, count: int) -> None:
    """Publish the removal of `count` fields, and delete the key of an empty hash."""
    if count:
        _changed(session, key, b"hdel")
        session.dirty += count - 1
        if len(value) == 0:
            session.db.delete(key)
            session.notify(b"g", b"del", key)


@command("hgetdel", arity=-5, flags="write fast", keys=(1, 1, 1), group="hash", since="8.0.0",
         complexity="O(N) where N is the number of specified fields", syntax="key FIELDS numfields field [field ...]")
def hgetdel(session: Session, argv: list[bytes]) -> None:
    """Return the values of fields of a hash and remove those fields."""
    key, fields = argv[1], argv[4:]
    value = _hash_for_write(session, key)
    if argv[2].lower() != b"fields":
        raise CommandError("Mandatory argument FIELDS is missing or not at the right position")
    number = integer(argv[3], _NO_NUMBER)
    if number < 1:
        raise CommandError(_NO_NUMBER)
    if number != len(fields):
        raise CommandError("The `numfields` parameter must match the number of arguments")
    removed = 0
    session.out.array(number)
    for field in fields:
        content = None if value is None else value.get(field)
        _write_content(session, content)
        if value is not None and value.remove(field):
            removed += 1
    if value is not None and removed:
        _note_removed(session, key, value, removed)
        session.propagate([b"HDEL", key, *fields])


# -- reading -----------------------------------------------------------------------------------------


def _write_content(session: Session, content: bytes | None) -> None:
    if content is None:
        session.out.null()
    else:
        session.out.bulk(content)


@command("hget", arity=3, flags="readonly fast", keys=(1, 1, 1), group="hash", since="2.0.0", complexity="O(1)",
         syntax="key field")
def hget(session: Session, argv: list[bytes]) -> None:
    """Return the value of a field of a hash."""
    value = read_hash(session, argv[1])
    _write_content(session, None if value is None else value.get(argv[2]))


@command("hmget", arity=-3, flags="readonly fast", keys=(1, 1, 1), group="hash", since="2.0.0",
         complexity="O(N) where N is the number of fields being requested.", syntax="key field [field ...]")
def hmget(session: Session, argv: list[bytes]) -> None:
    """Return the values of several fields of a hash, null for missing ones."""
    value = read_hash(session, argv[1])
    session.out.array(len(argv) - 2)
    for field in argv[2:]:
        _write_content(session, None if value is None else value.get(field))


@command("hlen", arity=2, flags="readonly fast", keys=(1, 1, 1), group="hash", since="2.0.0", complexity="O(1)",
         syntax="key")
def hlen(session: Session, argv: list[bytes]) -> None:
    """Return the number of fields of a hash."""
    value = read_hash(session, argv[1])
    session.out.integer(0 if value is None else len(value))


@command("hstrlen", arity=3, flags="readonly fast", keys=(1, 1, 1), group="hash", since="3.2.0", complexity="O(1)",
         syntax="key field")
def hstrlen(session: Session, argv: list[bytes]) -> None:
    """Return the length in bytes of the value of a field of a hash."""
    value = read_hash(session, argv[1])
    content = None if value is None else value.get(argv[2])
    session.out.integer(0 if content is None else len(content))


@command("hexists", arity=3, flags="readonly fast", keys=(1, 1, 1), group="hash", since="2.0.0", complexity="O(1)",
         syntax="key field")
def hexists(session: Session, argv: list[bytes]) -> None:
    """Return whether a hash has a field."""
    value = read_hash(session, argv[1])
    session.out.integer(value is not None and argv[2] in value)


def _write_array(session: Session, words: list[bytes]) -> None:
    session.out.array(len(words))
    for word in words:
        session.out.bulk(word)


@command("hkeys", arity=2, flags="readonly", keys=(1, 1, 1), group="hash", since="2.0.0",
         complexity="O(N) where N is the size of the hash.", syntax="key")
def hkeys(session: Session, argv: list[bytes]) -> None:
    """Return all fields of a hash."""
    value = read_hash(session, argv[1])
    _write_array(session, [] if value is None else list(value))


@command("hvals", arity=2, flags="readonly", keys=(1, 1, 1), group="hash", since="2.0.0",
         complexity="O(N) where N is the size of the hash.", syntax="key")
def hvals(session: Session, argv: list[bytes]) -> None:
    """Return all values of a hash."""
    value = read_hash(session, argv[1])
    _write_array(session, [] if value is None else value.values())


@command("hgetall", arity=2, flags="readonly", keys=(1, 1, 1), group="hash", since="2.0.0",
         complexity="O(N) where N is the size of the hash.", syntax="key")
def hgetall(session: Session, argv: list[bytes]) -> None:
    """Return all fields of a hash with their values."""
    value = read_hash(session, argv[1])
    words = [] if value is None else value.words()
    session.out.map(len(words) // 2)
    for word in words:
        session.out.bulk(word)

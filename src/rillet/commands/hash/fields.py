"""Commands that change the fields of one hash: HSET, HSETNX, HINCRBY, HDEL and others (Redis: t_hash.c).

A hash that loses its last field is deleted. Propagated commands do not depend on arithmetic: HINCRBYFLOAT becomes the
HSET of its result, or HSETEX with KEEPTTL if the field has an expiry. (Redis 8 logs HSETEX in both cases, which servers
before 8.0 cannot read.)

A field that is set loses its expiry; a number that is incremented keeps it. In Redis the commands for single fields
remove the expired fields that they read (unexpired.py); HSET and HDEL treat them like others. In Valkey all commands
pass over expired fields, and a command that overwrites one publishes `hexpired` first.
"""

from __future__ import annotations

from fractions import Fraction
from functools import partial
from typing import Any

from rillet._cython import cython
from rillet.commands.arguments import arity_error, float_value, integer
from rillet.commands.hash import command
from rillet.commands.hash.lookup import fillable, find_to_change, has_expired, hash_to_fill, keep_hash, locate_unexpired
from rillet.commands.hash.times import forget_if_last, register_exactly
from rillet.commands.hash.unexpired import UnexpiredFields
from rillet.commands.hash.valkey import announce_overwritten
from rillet.errors import CommandError
from rillet.keyspace.database import Database
from rillet.keyspace.rest_buffer import RestBuffer
from rillet.runtime.implementation import Implementation
from rillet.runtime.session import Session
from rillet.structs import long_double
from rillet.structs.argument_spans import ArgumentSpans
from rillet.structs.integer_text import decimal
from rillet.structs.listpack import Listpack, parse_digits
from rillet.types.hash import Hash
from rillet.types.string import string2ll

_NOT_FINITE = "value is NaN or Infinity"
_RESULT_NOT_FINITE = "increment would produce NaN or Infinity"
_NOT_INT = cython.declare(cython.longlong, -(2**63))  # what `parse_digits` returns for other text, and for -2^63
_MAX = cython.declare(cython.longlong, 2**63 - 1)
_MIN = cython.declare(cython.longlong, -(2**63))


@cython.cfunc
def _valkey_fields(session: Session, words: ArgumentSpans, value: Hash) -> object:
    """Return the UnexpiredFields of a hash with expired fields in Valkey, where they are not like others; else None."""
    if value.expiry is None or not has_expired(session.db, value) or not session.engine.settings.compat.valkey:
        return None
    return UnexpiredFields(session, words.get(1), value)


@cython.cfunc
def _register_in_valkey(session: Session, words: ArgumentSpans, value: Hash) -> cython.bint:
    """Register a hash whose fields expire for its next expiry, in Valkey; return whether fields expire there."""
    if value.expiry is None or not session.engine.settings.compat.valkey:
        return False
    register_exactly(session, words.get(1), value)
    return True


@cython.final
@cython.cclass
class Hset(Implementation):
    """HSET, and HMSET, which replies OK (hsetCommand)."""

    __slots__ = ("_counts",)
    _counts: cython.bint

    def __init__(self, counts: bool) -> None:
        self._counts = counts

    @cython.ccall
    def run(self, session: Session, words: ArgumentSpans) -> cython.bint:
        """Set fields of a hash, creating it if needed."""
        db: Database = session.db
        buffer: RestBuffer = db.buffer
        i: cython.Py_ssize_t
        created: cython.longlong = 0
        overwritten: cython.longlong = 0
        if words.count & 1:
            raise arity_error(session.command.fullname)
        value: Hash = hash_to_fill(db, words, find_to_change(db, words), 2)
        stored: cython.bint = value.tag == 0 and buffer.entry >= 0
        fields: Any = None if value.expiry is None else _valkey_fields(session, words, value)
        for i in range(2, words.count, 2):
            if fields is not None and fields.is_expired(words.get(i)):
                overwritten += 1
                created += 1
            if value.set_at(words.at[i], words.size[i], words.at[i + 1], words.size[i + 1], buffer.hash_entries,
                            buffer.hash_value, False):  # fmt: skip
                created += 1
            if stored:  # a call that fails later is logged, too
                session.changed(words, 1)
        if value.expiry is not None:
            _register_in_valkey(session, words, value)
        if not stored:
            keep_hash(db, words, value)
            session.changed(words, (words.count - 2) >> 1)
        if overwritten:
            announce_overwritten(session, words.get(1), overwritten)
        if db.notifies:
            session.notify(b"h", b"hset", words.get(1), words.to_list()[2::2])
        return session.out.integer(created) if self._counts else session.out.ok()


command("hset", arity=-4, flags="write denyoom fast", since="2.0.0", syntax="key field value [field value ...]",
        complexity="O(1) for each field/value pair added, so O(N) to add N field/value pairs when the command is "
        "called with multiple field/value pairs.",
        summary="Set fields of a hash, creating it if needed, and return the number of new fields.",
        )(partial(Hset, True))  # fmt: skip
command("hmset", arity=-4, flags="write denyoom fast", since="2.0.0", syntax="key field value [field value ...]",
        complexity="O(N) where N is the number of fields being set.",
        summary="Set fields of a hash, creating it if needed.")(partial(Hset, False))


@cython.cfunc
def _put(
    session: Session, words: ArgumentSpans, value: Hash | None, place: cython.Py_ssize_t, content: cython.p_const_uchar,
    size: cython.Py_ssize_t, event: bytes, keep: cython.bint,
) -> cython.longlong:  # fmt: skip
    """Set the field words[2], creating the hash if needed, and publish the event; `keep` keeps its expiry.

    place: from `locate_unexpired`; -2 if the hash must be found again. Return the expiry of the field or 0;
    in Valkey, return -2 if only another field has an expiry.
    """
    db: Database = session.db
    buffer: RestBuffer = db.buffer
    field: cython.p_const_uchar = words.at[2]
    field_size: cython.Py_ssize_t = words.size[2]
    expires: cython.bint = False
    overwritten: cython.bint = False
    when: cython.longlong = 0
    if place == -2:
        value = find_to_change(db, words)
    value = fillable(db, words, value, 1, max(field_size, size), field_size + size)
    stored: cython.bint = value.tag == 0 and buffer.entry >= 0
    if value.expiry is not None:
        expires = session.engine.settings.compat.valkey and value.earliest() > 0
        overwritten = expires and UnexpiredFields(session, words.get(1), value).is_expired(words.get(2))
    value.set_at(field, field_size, content, size, buffer.hash_entries, buffer.hash_value, keep and not overwritten)
    if expires:
        register_exactly(session, words.get(1), value)
    if value.expiry is not None:
        when = value.time_at(value.locate(field, field_size), field, field_size)
    if not stored:
        keep_hash(db, words, value)
    session.changed(words, 1)
    if overwritten:
        announce_overwritten(session, words.get(1), 1)
    if db.notifies:
        session.notify(b"h", event, words.get(1), [words.get(2)])
    return when if when or not expires else -2


@cython.final
@cython.cclass
class Hsetnx(Implementation):
    """HSETNX (hsetnxCommand)."""

    __slots__ = ()

    @cython.ccall
    def run(self, session: Session, words: ArgumentSpans) -> cython.bint:
        """Set a field of a hash, unless it exists."""
        value: Hash | None = find_to_change(session.db, words)
        place: cython.Py_ssize_t = -1 if value is None else locate_unexpired(session, words, value, 2)
        if place >= 0:
            return session.out.integer(0)
        if _put(session, words, value, place, words.at[3], words.size[3], b"hset", False) and session.logged:
            session.propagate([b"HSET", *words.to_list()[1:]])
        return session.out.integer(1)


command("hsetnx", arity=4, flags="write denyoom fast", since="2.0.0", syntax="key field value", complexity="O(1)",
        summary="Set a field of a hash, unless it exists.")(Hsetnx)


@cython.cfunc
def _log_number(session: Session, words: ArgumentSpans, content: bytes, when: cython.longlong) -> cython.bint:
    """Log the result of HINCRBY or HINCRBYFLOAT with the expiry of the field."""
    key: bytes = words.get(1)
    field: bytes = words.get(2)
    if when <= 0:
        return session.propagate([b"HSET", key, field, content])
    if session.engine.settings.compat.valkey:
        return session.propagate([b"HSETEX", key, b"PXAT", decimal(when), b"FIELDS", b"1", field, content])
    return session.propagate([b"HSETEX", key, b"KEEPTTL", b"FIELDS", b"1", field, content])


@cython.cfunc
def _number_at(value: Hash, place: cython.Py_ssize_t) -> cython.longlong:
    """Return the integer in the field at a place."""
    packed: Listpack
    if value.table is None:
        packed = value.packed()
        if not packed.decode(packed.skip(place)):
            return packed.at_int
    number: Any = string2ll(value.content_at(place))
    if number is None:
        raise CommandError("hash value is not an integer")
    return number  # type: ignore[no-any-return]


@cython.final
@cython.cclass
class Hincrby(Implementation):
    """HINCRBY (hincrbyCommand)."""

    __slots__ = ()

    @cython.ccall
    def run(self, session: Session, words: ArgumentSpans) -> cython.bint:
        """Add to the integer in a field of a hash; a missing field counts as 0."""
        by: cython.longlong = parse_digits(words.at[3], words.size[3])
        total: cython.longlong = 0
        if by == _NOT_INT:
            by = integer(words.get(3))
        value: Hash | None = find_to_change(session.db, words)
        place: cython.Py_ssize_t = -1 if value is None else locate_unexpired(session, words, value, 2)
        if value is not None and place >= 0:
            total = _number_at(value, place)
        if (total < 0 and by < _MIN - total) or (total > 0 and by > _MAX - total):
            raise CommandError("increment or decrement would overflow")
        total += by
        content: bytes = decimal(total)
        when: cython.longlong = _put(session, words, value, place, content, len(content), b"hincrby", True)
        if when and session.logged and session.engine.settings.compat.valkey:
            _log_number(session, words, content, when)
        return session.out.integer(total)


command("hincrby", arity=4, flags="write denyoom fast", since="2.0.0", syntax="key field increment", complexity="O(1)",
        summary="Add to the integer in a field of a hash; a missing field counts as 0.")(Hincrby)


@cython.final
@cython.cclass
class Hincrbyfloat(Implementation):
    """HINCRBYFLOAT (hincrbyfloatCommand)."""

    __slots__ = ()

    @cython.ccall
    def run(self, session: Session, words: ArgumentSpans) -> cython.bint:
        """Add to the number in a field of a hash, with the precision of a long double."""
        try:
            by = float_value(words.get(3))
        except long_double.NotFinite:
            raise CommandError(_NOT_FINITE) from None
        value: Hash | None = find_to_change(session.db, words)
        place: cython.Py_ssize_t = -1 if value is None else locate_unexpired(session, words, value, 2)
        content: bytes = b"0" if value is None or place < 0 else value.content_at(place)
        content = _sum(content, by)
        when: cython.longlong = _put(session, words, value, place, content, len(content), b"hincrbyfloat", True)
        if session.logged:
            _log_number(session, words, content, when)
        return session.out.bulk(content)


command("hincrbyfloat", arity=4, flags="write denyoom fast", since="2.6.0", syntax="key field increment",
        complexity="O(1)",
        summary="Add to the number in a field of a hash, with the precision of a long double.")(Hincrbyfloat)


def _sum(content: bytes, by: Fraction) -> bytes:
    try:
        return long_double.format_decimal(long_double.rounded(float_value(content, "hash value is not a float") + by))
    except long_double.NotFinite:
        raise CommandError(_RESULT_NOT_FINITE) from None


@cython.final
@cython.cclass
class Hdel(Implementation):
    """HDEL (hdelCommand)."""

    __slots__ = ()

    @cython.ccall
    def run(self, session: Session, words: ArgumentSpans) -> cython.bint:
        """Remove fields of a hash and return the number of removed ones."""
        db: Database = session.db
        i: cython.Py_ssize_t
        removed: cython.longlong = 0
        names: list[bytes] = []
        value: Hash | None = find_to_change(db, words)
        if value is None:
            return session.out.integer(0)
        stored: cython.bint = value.tag == 0
        earliest: cython.longlong = value.earliest()
        fields: Any = None if earliest == 0 else _valkey_fields(session, words, value)
        for i in range(2, words.count):
            place: cython.Py_ssize_t = value.locate(words.at[i], words.size[i])
            if place < 0 or (fields is not None and fields.is_expired(words.get(i))):
                continue
            value.remove_at(place, words.at[i], words.size[i])
            removed += 1
            if stored:  # a call that fails later is logged, too
                session.changed(words, 1)
            if db.notifies:
                names.append(words.get(i))
        if removed == 0:
            return session.out.integer(0)
        if earliest and not _register_in_valkey(session, words, value):
            forget_if_last(session, words.get(1), value, earliest)
        empty: cython.bint = len(value) == 0
        keep_hash(db, words, value)
        if not stored:
            session.changed(words, removed)
        if db.notifies:
            session.notify(b"h", b"hdel", words.get(1), names)
            if empty:
                session.notify(b"g", b"del", words.get(1))
        return session.out.integer(removed)


command("hdel", arity=-3, flags="write fast", since="2.0.0", syntax="key field [field ...]",
        complexity="O(N) where N is the number of fields to be removed.",
        summary="Remove fields of a hash and return the number of removed ones.")(Hdel)

"""Commands that read the fields of one hash: HGET, HMGET, HGETALL and others (Redis: t_hash.c).

In Redis the commands for single fields remove the expired fields that they read (unexpired.py), and HLEN counts them.
In Valkey all commands but HLEN pass over them.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from rillet._cython import cython
from rillet.commands.hash import command
from rillet.commands.hash.lookup import find_to_read, has_expired, locate_unexpired
from rillet.commands.hash.unexpired import SEVERAL, UnexpiredFields, unexpired_names, unexpired_rows
from rillet.commands.keys.scan import scan_value
from rillet.commands.replies import bulk_or_null
from rillet.commands.table_replies import write_entries, write_entry, write_table
from rillet.protocol.reply_writer import ReplyWriter
from rillet.runtime.implementation import Implementation
from rillet.runtime.session import Session
from rillet.structs.argument_spans import ArgumentSpans
from rillet.structs.dict import Dict
from rillet.structs.listpack import HEADER_SIZE, Listpack
from rillet.types.hash import Hash

_HEADER = cython.declare(cython.Py_ssize_t, HEADER_SIZE)


@cython.cfunc
def write_value(out: ReplyWriter, value: Hash, place: cython.Py_ssize_t) -> cython.bint:
    """Reply with the value of the field at a place of a hash."""
    table: Dict | None = value.table
    if table is not None:
        at: cython.p_const_uchar = table.value_span(place)
        if cython.compiled:
            return out.bulk_span(at, table.span_size)
        return out.bulk(bytes(at[: table.span_size]))
    packed: Listpack = value.packed()
    return write_entry(out, packed, packed.skip(place))


@cython.cfunc
def write_field(session: Session, words: ArgumentSpans) -> cython.bint:
    """Reply with the field words[2] of the hash words[1], null if there is none; raise WrongType for other types."""
    value: Hash | None = find_to_read(session.db, words)
    if value is None:
        return session.out.null()
    place: cython.Py_ssize_t = locate_unexpired(session, words, value, 2)
    return session.out.null() if place < 0 else write_value(session.out, value, place)


@cython.final
@cython.cclass
class Hget(Implementation):
    """HGET (hgetCommand)."""

    __slots__ = ()

    @cython.ccall
    def run(self, session: Session, words: ArgumentSpans) -> cython.bint:
        """Return the value of a field of a hash."""
        return write_field(session, words)


command("hget", arity=3, flags="readonly fast", since="2.0.0", syntax="key field", complexity="O(1)",
        summary="Return the value of a field of a hash.")(Hget)


@cython.final
@cython.cclass
class Hmget(Implementation):
    """HMGET (hmgetCommand)."""

    __slots__ = ()

    @cython.ccall
    def run(self, session: Session, words: ArgumentSpans) -> cython.bint:
        """Return the values of several fields of a hash, null for missing ones."""
        out: ReplyWriter = session.out
        i: cython.Py_ssize_t
        place: cython.Py_ssize_t
        value: Hash | None = find_to_read(session.db, words)
        fields: Any = None
        if value is not None and value.expiry is not None and has_expired(session.db, value):
            fields = UnexpiredFields(session, words.get(1), value, SEVERAL)
        out.array(words.count - 2)
        for i in range(2, words.count):
            if fields is not None:
                bulk_or_null(out, fields.get(words.get(i)))
                continue
            place = -1 if value is None else value.locate(words.at[i], words.size[i])
            if value is None or place < 0:
                out.null()
            else:
                write_value(out, value, place)
        if fields is not None:
            fields.announce()
        return True


command("hmget", arity=-3, flags="readonly fast", since="2.0.0", syntax="key field [field ...]",
        complexity="O(N) where N is the number of fields being requested.",
        summary="Return the values of several fields of a hash, null for missing ones.")(Hmget)


@cython.final
@cython.cclass
class Hlen(Implementation):
    """HLEN (hlenCommand)."""

    __slots__ = ()

    @cython.ccall
    def run(self, session: Session, words: ArgumentSpans) -> cython.bint:
        """Return the number of fields of a hash."""
        value: Hash | None = find_to_read(session.db, words)
        return session.out.integer(0 if value is None else len(value))


command("hlen", arity=2, flags="readonly fast", since="2.0.0", syntax="key", complexity="O(1)",
        summary="Return the number of fields of a hash.")(Hlen)


@cython.final
@cython.cclass
class Hstrlen(Implementation):
    """HSTRLEN and HEXISTS (hstrlenCommand, hexistsCommand)."""

    __slots__ = ("_length",)
    _length: cython.bint

    def __init__(self, length: bool) -> None:
        self._length = length

    @cython.ccall
    def run(self, session: Session, words: ArgumentSpans) -> cython.bint:
        """Return the length of the value of a field, or whether the field exists."""
        value: Hash | None = find_to_read(session.db, words)
        place: cython.Py_ssize_t = -1 if value is None else locate_unexpired(session, words, value, 2)
        if value is None or place < 0:
            return session.out.integer(0)
        return session.out.integer(len(value.content_at(place)) if self._length else 1)


command("hstrlen", arity=3, flags="readonly fast", since="3.2.0", syntax="key field", complexity="O(1)",
        summary="Return the length in bytes of the value of a field of a hash.")(partial(Hstrlen, True))
command("hexists", arity=3, flags="readonly fast", since="2.0.0", syntax="key field", complexity="O(1)",
        summary="Return whether a hash has a field.")(partial(Hstrlen, False))


@cython.final
@cython.cclass
class Hgetall(Implementation):
    """HKEYS, HVALS, and HGETALL, which returns both (genericHgetallCommand)."""

    __slots__ = ("_fields", "_values")
    _fields: cython.bint
    _values: cython.bint

    def __init__(self, fields: bool, values: bool) -> None:
        self._fields = fields
        self._values = values

    @cython.ccall
    def run(self, session: Session, words: ArgumentSpans) -> cython.bint:
        """Return all fields of a hash, all values, or both."""
        out: ReplyWriter = session.out
        value: Hash | None = find_to_read(session.db, words)
        if value is None:
            return self._begin(out, 0)
        if value.expiry is not None:
            rows: list[tuple[bytes, bytes]] = unexpired_rows(session, value)
            self._begin(out, len(rows))
            for field, content in rows:
                if self._fields:
                    out.bulk(field)
                if self._values:
                    out.bulk(content)
            return True
        count: cython.Py_ssize_t = len(value)
        self._begin(out, count)
        if value.table is not None:
            return write_table(out, value.table, self._fields, self._values)
        packed: Listpack = value.packed()
        if self._fields and self._values:
            return write_entries(out, packed, _HEADER, 2 * count, 1)
        return write_entries(out, packed, _HEADER if self._fields else packed.skip(_HEADER), count, 2)

    @cython.cfunc
    def _begin(self, out: ReplyWriter, count: cython.Py_ssize_t) -> cython.bint:
        return out.map(count) if self._fields and self._values else out.array(count)


command("hkeys", arity=2, flags="readonly", since="2.0.0", syntax="key",
        complexity="O(N) where N is the size of the hash.",
        summary="Return all fields of a hash.")(partial(Hgetall, True, False))
command("hvals", arity=2, flags="readonly", since="2.0.0", syntax="key",
        complexity="O(N) where N is the size of the hash.",
        summary="Return all values of a hash.")(partial(Hgetall, False, True))
command("hgetall", arity=2, flags="readonly", since="2.0.0", syntax="key",
        complexity="O(N) where N is the size of the hash.",
        summary="Return all fields of a hash with their values.")(partial(Hgetall, True, True))


@command("hscan", arity=-3, flags="readonly", since="2.8.0",
         syntax="key cursor [MATCH pattern] [COUNT count] [NOVALUES]",
         complexity="O(COUNT) for a call, O(N) for a whole walk over N fields.")
def hscan(session: Session, argv: list[bytes]) -> None:
    """Return some fields of a hash with their values, and the cursor for the next call."""
    value, fields, bare = scan_value(session, argv, Hash, "HSCAN")
    fields = unexpired_names(session, value, fields)
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

"""Hash: fields and values under one key, with the interface of a dict.

    prices = store.hash("prices", codec=text_bytes(Decimal))
    prices["apple"] = Decimal("1.20")           HSET
    prices.update(pear="2.00", plum="0.80")     one HSET
    prices.setdefault("apple", Decimal(1))      HSETNX and HGET: atomic
    for name, price in prices.items(): ...      HSCAN, a thousand fields at a time

Iteration reads pages and needs little memory. A field that exists during the whole iteration is yielded at least once;
as with HSCAN, a field may be yielded twice if the hash changes meanwhile. `get_all` reads everything at one moment.

A field can expire (Redis 7.4, Valkey 9):

    sessions.set_values({"ann": token}, expire=3600)          HSETEX
    sessions.expire_field("ann", 60), sessions.field_ttl("ann")

Setting a field without an expiry removes the expiry that it had; `incr` keeps it. The methods on the expiry of fields
raise CommandError if a connected server lacks the commands.

Fields are text; bytes that are not UTF-8 become surrogates, which are converted back on write.
"""

from __future__ import annotations

from collections.abc import ItemsView, Iterable, Iterator, Mapping, MutableMapping, ValuesView
from datetime import datetime, timedelta
from typing import Any, TypeVar, overload

from rillet.store.arguments.argument_checks import integer_of, items_of, number_of
from rillet.store.arguments.durations import milliseconds_in
from rillet.store.arguments.encoding import decode, encode_name, pairs_of
from rillet.store.entry import pairs_in
from rillet.store.types.stored_key import (
    MISSING,
    StoredKey,
    V,
    expiry_of,
    replies_of,
    same_data,
    set_options,
    transaction,
    ttl_of,
    unix_milliseconds_of,
)

T = TypeVar("T")
Name = str | bytes


class Hash(StoredKey[V], MutableMapping[str, V]):
    """A hash of the store as a MutableMapping from field to value. See the module for iteration and cost."""

    __slots__ = ()
    __hash__ = None  # type: ignore[assignment]

    # -- one field -----------------------------------------------------------------------------------

    def get_value(self, field: Name) -> V:
        """Return the value of a field; KeyError if there is none (HGET). O(1)"""
        raw = self.store.run([b"HGET", self.key, encode_name(field, "field")])
        if raw is None:
            raise KeyError(field)
        return self._decode(raw)

    def set_value(self, field: Name, value: V) -> bool:
        """Set a field; return whether it is new (HSET). O(1)"""
        return bool(self.store.run([b"HSET", self.key, encode_name(field, "field"), self._encoded(field, value)]))

    @overload
    def get(self, field: Name, default: None = None, /) -> V | None: ...
    @overload
    def get(self, field: Name, default: V, /) -> V: ...
    @overload
    def get(self, field: Name, default: T, /) -> V | T: ...
    def get(self, field: Name, default: Any = None, /) -> Any:
        """Return the value of a field, or the default (HGET). O(1)"""
        raw = self.store.run([b"HGET", self.key, encode_name(field, "field")])
        return default if raw is None else self._decode(raw)

    def setdefault(self, field: Name, default: V) -> V:
        """Set a field if it is missing; return its value (HSETNX, HGET). Atomic. O(1)"""
        name, value = encode_name(field, "field"), self._encoded(field, default)
        raw = None
        while raw is None:  # another client may delete the field between the two commands
            _, raw = self.store.run_many([[b"HSETNX", self.key, name, value], [b"HGET", self.key, name]])
        return self._decode(raw)

    def add(self, field: Name, value: V) -> bool:
        """Set a field only if it is missing; return whether it was (HSETNX). O(1)"""
        argv = [b"HSETNX", self.key, encode_name(field, "field"), self._encoded(field, value)]
        return bool(self.store.run(argv))

    def _encoded(self, field: Name, value: V) -> bytes:
        try:
            return self._encode(value)
        except (TypeError, ValueError) as error:
            raise type(error)(f"the value of the field {field!r} of the {error}") from None

    def contains(self, field: object) -> bool:
        """Return whether a field exists (HEXISTS). O(1)"""
        if not isinstance(field, (str, bytes)):
            return False
        return bool(self.store.run([b"HEXISTS", self.key, encode_name(field, "field")]))

    @overload
    def pop(self, field: Name, /) -> V: ...
    @overload
    def pop(self, field: Name, default: V, /) -> V: ...
    @overload
    def pop(self, field: Name, default: T, /) -> V | T: ...
    def pop(self, field: Name, default: Any = MISSING, /) -> Any:
        """Remove a field and return its value, or the default; KeyError without one (HGET, HDEL in MULTI). O(1)"""
        name = encode_name(field, "field")
        commands = transaction([b"HGET", self.key, name], [b"HDEL", self.key, name])
        raw, _ = replies_of(self.store.run_many(commands))
        if raw is None and default is MISSING:
            raise KeyError(field)
        return default if raw is None else self._decode(raw)

    def popitem(self) -> tuple[str, V]:
        """Remove a random field and return it with its value; KeyError if the hash is empty (HRANDFIELD, pop)."""
        while True:
            field = self.random()
            if field is None:
                raise KeyError(f"the hash {self.name!r} is empty")
            value = self.pop(field, MISSING)
            if value is not MISSING:  # another client may have removed the field meanwhile
                return field, value

    def random(self) -> str | None:
        """Return a random field; None if the hash is empty (HRANDFIELD). O(1)"""
        raw = self.store.run([b"HRANDFIELD", self.key])
        return None if raw is None else decode(raw)

    def incr(self, field: Name, by: int = 1) -> int:
        """Add to the integer in a field, 0 if missing; return the result (HINCRBY). O(1)"""
        return int(self.store.run([b"HINCRBY", self.key, encode_name(field, "field"), integer_of(by, "by")]))

    def incr_float(self, field: Name, by: float) -> float:
        """Add to the number in a field, 0 if missing; return the result (HINCRBYFLOAT). O(1)"""
        argv = [b"HINCRBYFLOAT", self.key, encode_name(field, "field"), number_of(by, "by")]
        return float(self.store.run(argv))

    # -- several fields ------------------------------------------------------------------------------

    def mget(self, fields: Iterable[Name]) -> list[V | None]:
        """Return the values of several fields in order, None for a missing one (HMGET). O(fields)"""
        names = [encode_name(field, "field") for field in items_of(fields, "fields", "names")]
        if not names:
            return []
        raws = self.store.run([b"HMGET", self.key, *names])
        return [None if raw is None else self._decode(raw) for raw in raws]

    def update(self, fields: Any = (), /, **more: V) -> None:
        """Set fields from a mapping, from pairs, or from keyword arguments, in one command (HSET). O(fields)"""
        argv = [b"HSET", self.key]
        for field, value in (*pairs_of(fields), *more.items()):
            argv += (encode_name(field, "a field"), self._encoded(field, value))
        if len(argv) > 2:
            self.store.run(argv)

    def remove(self, *fields: Name) -> int:
        """Remove fields; return how many existed (HDEL). O(fields)"""
        names = [encode_name(field, "one of fields") for field in fields]
        return int(self.store.run([b"HDEL", self.key, *names])) if names else 0

    def clear(self) -> None:
        """Delete the key (DEL). O(fields)"""
        self.delete()

    def size(self) -> int:
        """Return the number of fields (HLEN). O(1)"""
        return int(self.store.run([b"HLEN", self.key]))

    # -- fields that expire --------------------------------------------------------------------------

    def set_values(self, values: Any, *, expire: float | timedelta | None = None, expire_at: datetime | None = None,
                   keep_expiry: bool = False, nx: bool = False, xx: bool = False) -> bool:  # fmt: skip
        """Set fields from a mapping or pairs, all at one moment; return False if nx or xx prevented it (HSETEX).

        expire: seconds until the fields expire; expire_at: a time with a zone; keep_expiry: keep the present expiry.
        nx: only if no field exists; xx: only if all of them exist. O(fields)
        """
        argv = [b"HSETEX", self.key, *set_options(expire, expire_at, keep_expiry, nx, xx, (b"FNX", b"FXX"))]
        given = pairs_of(values, "values")
        pairs = [(encode_name(field, "a field"), self._encoded(field, value)) for field, value in given]
        argv += (b"FIELDS", b"%d" % len(pairs))
        for pair in pairs:
            argv += pair
        return bool(self.store.run(argv)) if pairs else True

    def get_and_expire(self, fields: Iterable[Name], seconds: float | timedelta | None) -> list[V | None]:
        """Return the values of fields in order, and let the fields expire after that time, never if None (HGETEX)."""
        expiry = [b"PERSIST"] if seconds is None else [b"PX", expiry_of(seconds, "seconds")]
        return self._values_of([b"HGETEX", self.key, *expiry], fields)

    def get_and_delete(self, fields: Iterable[Name]) -> list[V | None]:
        """Return the values of fields in order, None for a missing one, and remove the fields (HGETDEL). Atomic."""
        return self._values_of([b"HGETDEL", self.key], fields)

    def _values_of(self, head: list[bytes], fields: Iterable[Name]) -> list[V | None]:
        names = [encode_name(field, "field") for field in items_of(fields, "fields", "names")]
        if not names:
            return []
        raws = self.store.run([*head, b"FIELDS", b"%d" % len(names), *names])
        return [None if raw is None else self._decode(raw) for raw in raws]

    def expire_field(self, field: Name, seconds: float | timedelta) -> bool:
        """Let a field expire after that time; return whether it exists (HPEXPIRE). O(1)

        A time of 0 removes the field.
        """
        return self._field_result(b"HPEXPIRE", field, milliseconds_in(seconds, "seconds")) > 0

    def expire_field_at(self, field: Name, moment: datetime) -> bool:
        """Let a field expire at a time with a zone; return whether it exists (HPEXPIREAT). O(1)"""
        return self._field_result(b"HPEXPIREAT", field, unix_milliseconds_of(moment, "moment")) > 0

    def persist_field(self, field: Name) -> bool:
        """Remove the expiry of a field; return whether it had one (HPERSIST). O(1)"""
        return self._field_result(b"HPERSIST", field) > 0

    def field_ttl(self, field: Name) -> float | None:
        """Return the seconds until a field expires, None without an expiry; KeyError if there is no field (HPTTL)."""
        return ttl_of(self._field_result(b"HPTTL", field), encode_name(field, "field"))

    def _field_result(self, command: bytes, field: Name, *time: bytes) -> int:
        """Return the number with which a command replies for one field."""
        return int(self.store.run([command, self.key, *time, b"FIELDS", b"1", encode_name(field, "field")])[0])

    # -- all fields ----------------------------------------------------------------------------------

    def get_all(self) -> dict[str, V]:
        """Return all fields and values, as they are at one moment (HGETALL). O(fields)"""
        pairs = pairs_in(self.store.run([b"HGETALL", self.key]))
        return {decode(field): self._decode(raw) for field, raw in pairs}

    def scan(self, match: str | bytes | None = None) -> Iterator[tuple[str, V]]:
        """Yield the fields that match a glob, with their values, a page at a time (HSCAN)."""
        for page in self._scan(b"HSCAN", match):
            for field, raw in pairs_in(page):
                yield decode(field), self._decode(raw)

    def scan_fields(self, match: str | bytes | None = None) -> Iterator[str]:
        """Yield the fields that match a glob, a page at a time (HSCAN)."""
        for page in self._scan(b"HSCAN", match):
            for field in page[::2]:
                yield decode(field)

    def values(self) -> ValuesView[V]:
        """Return a view of the values; iteration uses HSCAN."""
        return _Values(self)

    def items(self) -> ItemsView[str, V]:
        """Return a view of the fields with their values; iteration uses HSCAN."""
        return _Items(self)

    # -- operators -----------------------------------------------------------------------------------

    def __getitem__(self, field: Name) -> V:
        return self.get_value(field)

    def __setitem__(self, field: Name, value: V) -> None:
        self.set_value(field, value)

    def __delitem__(self, field: Name) -> None:
        if not self.remove(field):
            raise KeyError(field)

    def __contains__(self, field: object) -> bool:
        return self.contains(field)

    def __len__(self) -> int:
        return self.size()

    def __iter__(self) -> Iterator[str]:
        return self.scan_fields()

    def __eq__(self, other: object) -> bool:
        """Compare with a mapping: all fields and values are read."""
        if not isinstance(other, Mapping):
            return NotImplemented
        return same_data(self, other) or self.get_all() == dict(other.items())


class _Items(ItemsView[str, V]):
    """The items of a hash, read with HSCAN."""

    _mapping: Hash[V]

    def __iter__(self) -> Iterator[tuple[str, V]]:
        return self._mapping.scan()


class _Values(ValuesView[V]):
    """The values of a hash, read with HSCAN."""

    _mapping: Hash[V]

    def __iter__(self) -> Iterator[V]:
        return (value for _, value in self._mapping.scan())

    def __contains__(self, value: object) -> bool:
        return any(value == other for other in self)

"""The asyncio form of rillet.store.types.hash: AsyncHash.

Made from store/types/hash.py by `python -m tools.make_aio`; edit that file, then run the command.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from datetime import datetime, timedelta
from typing import Any, overload

from rillet.store.aio.stored_key import AsyncStoredKey
from rillet.store.arguments.argument_checks import integer_of, items_of, number_of
from rillet.store.arguments.durations import milliseconds_in
from rillet.store.arguments.encoding import decode, encode_name, pairs_of
from rillet.store.entry import pairs_in
from rillet.store.types.hash import Name, T
from rillet.store.types.stored_key import (
    MISSING,
    V,
    expiry_of,
    replies_of,
    set_options,
    transaction,
    ttl_of,
    unix_milliseconds_of,
)


class AsyncHash(AsyncStoredKey[V]):
    """A hash of the store; see rillet.store.types.hash. `async for` reads the fields, a thousand at a time."""

    __slots__ = ()

    # -- one field -----------------------------------------------------------------------------------

    async def get_value(self, field: Name) -> V:
        """Return the value of a field; KeyError if there is none (HGET). O(1)"""
        raw = await self.store.run([b"HGET", self.key, encode_name(field, "field")])
        if raw is None:
            raise KeyError(field)
        return self._decode(raw)

    async def set_value(self, field: Name, value: V) -> bool:
        """Set a field; return whether it is new (HSET). O(1)"""
        return bool(await self.store.run([b"HSET", self.key, encode_name(field, "field"), self._encoded(field, value)]))

    @overload
    async def get(self, field: Name, default: None = None, /) -> V | None: ...
    @overload
    async def get(self, field: Name, default: V, /) -> V: ...
    @overload
    async def get(self, field: Name, default: T, /) -> V | T: ...
    async def get(self, field: Name, default: Any = None, /) -> Any:
        """Return the value of a field, or the default (HGET). O(1)"""
        raw = await self.store.run([b"HGET", self.key, encode_name(field, "field")])
        return default if raw is None else self._decode(raw)

    async def setdefault(self, field: Name, default: V) -> V:
        """Set a field if it is missing; return its value (HSETNX, HGET). Atomic. O(1)"""
        name, value = encode_name(field, "field"), self._encoded(field, default)
        raw = None
        while raw is None:  # another client may delete the field between the two commands
            _, raw = await self.store.run_many([[b"HSETNX", self.key, name, value], [b"HGET", self.key, name]])
        return self._decode(raw)

    async def add(self, field: Name, value: V) -> bool:
        """Set a field only if it is missing; return whether it was (HSETNX). O(1)"""
        argv = [b"HSETNX", self.key, encode_name(field, "field"), self._encoded(field, value)]
        return bool(await self.store.run(argv))

    def _encoded(self, field: Name, value: V) -> bytes:
        try:
            return self._encode(value)
        except (TypeError, ValueError) as error:
            raise type(error)(f"the value of the field {field!r} of the {error}") from None

    async def contains(self, field: object) -> bool:
        """Return whether a field exists (HEXISTS). O(1)"""
        if not isinstance(field, (str, bytes)):
            return False
        return bool(await self.store.run([b"HEXISTS", self.key, encode_name(field, "field")]))

    @overload
    async def pop(self, field: Name, /) -> V: ...
    @overload
    async def pop(self, field: Name, default: V, /) -> V: ...
    @overload
    async def pop(self, field: Name, default: T, /) -> V | T: ...
    async def pop(self, field: Name, default: Any = MISSING, /) -> Any:
        """Remove a field and return its value, or the default; KeyError without one (HGET, HDEL in MULTI). O(1)"""
        name = encode_name(field, "field")
        commands = transaction([b"HGET", self.key, name], [b"HDEL", self.key, name])
        raw, _ = replies_of(await self.store.run_many(commands))
        if raw is None and default is MISSING:
            raise KeyError(field)
        return default if raw is None else self._decode(raw)

    async def popitem(self) -> tuple[str, V]:
        """Remove a random field and return it with its value; KeyError if the hash is empty (HRANDFIELD, pop)."""
        while True:
            field = await self.random()
            if field is None:
                raise KeyError(f"the hash {self.name!r} is empty")
            value = await self.pop(field, MISSING)
            if value is not MISSING:  # another client may have removed the field meanwhile
                return field, value

    async def random(self) -> str | None:
        """Return a random field; None if the hash is empty (HRANDFIELD). O(1)"""
        raw = await self.store.run([b"HRANDFIELD", self.key])
        return None if raw is None else decode(raw)

    async def incr(self, field: Name, by: int = 1) -> int:
        """Add to the integer in a field, 0 if missing; return the result (HINCRBY). O(1)"""
        return int(await self.store.run([b"HINCRBY", self.key, encode_name(field, "field"), integer_of(by, "by")]))

    async def incr_float(self, field: Name, by: float) -> float:
        """Add to the number in a field, 0 if missing; return the result (HINCRBYFLOAT). O(1)"""
        argv = [b"HINCRBYFLOAT", self.key, encode_name(field, "field"), number_of(by, "by")]
        return float(await self.store.run(argv))

    # -- several fields ------------------------------------------------------------------------------

    async def mget(self, fields: Iterable[Name]) -> list[V | None]:
        """Return the values of several fields in order, None for a missing one (HMGET). O(fields)"""
        names = [encode_name(field, "field") for field in items_of(fields, "fields", "names")]
        if not names:
            return []
        raws = await self.store.run([b"HMGET", self.key, *names])
        return [None if raw is None else self._decode(raw) for raw in raws]

    async def update(self, fields: Any = (), /, **more: V) -> None:
        """Set fields from a mapping, from pairs, or from keyword arguments, in one command (HSET). O(fields)"""
        argv = [b"HSET", self.key]
        for field, value in (*pairs_of(fields), *more.items()):
            argv += (encode_name(field, "a field"), self._encoded(field, value))
        if len(argv) > 2:
            await self.store.run(argv)

    async def remove(self, *fields: Name) -> int:
        """Remove fields; return how many existed (HDEL). O(fields)"""
        names = [encode_name(field, "one of fields") for field in fields]
        return int(await self.store.run([b"HDEL", self.key, *names])) if names else 0

    async def clear(self) -> None:
        """Delete the key (DEL). O(fields)"""
        await self.delete()

    async def size(self) -> int:
        """Return the number of fields (HLEN). O(1)"""
        return int(await self.store.run([b"HLEN", self.key]))

    # -- fields that expire --------------------------------------------------------------------------

    async def set_values(self, values: Any, *, expire: float | timedelta | None = None,
                         expire_at: datetime | None = None, keep_expiry: bool = False, nx: bool = False,
                         xx: bool = False) -> bool:  # fmt: skip
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
        return bool(await self.store.run(argv)) if pairs else True

    async def get_and_expire(self, fields: Iterable[Name], seconds: float | timedelta | None) -> list[V | None]:
        """Return the values of fields in order, and let the fields expire after that time, never if None (HGETEX)."""
        expiry = [b"PERSIST"] if seconds is None else [b"PX", expiry_of(seconds, "seconds")]
        return await self._values_of([b"HGETEX", self.key, *expiry], fields)

    async def get_and_delete(self, fields: Iterable[Name]) -> list[V | None]:
        """Return the values of fields in order, None for a missing one, and remove the fields (HGETDEL). Atomic."""
        return await self._values_of([b"HGETDEL", self.key], fields)

    async def _values_of(self, head: list[bytes], fields: Iterable[Name]) -> list[V | None]:
        names = [encode_name(field, "field") for field in items_of(fields, "fields", "names")]
        if not names:
            return []
        raws = await self.store.run([*head, b"FIELDS", b"%d" % len(names), *names])
        return [None if raw is None else self._decode(raw) for raw in raws]

    async def expire_field(self, field: Name, seconds: float | timedelta) -> bool:
        """Let a field expire after that time; return whether it exists (HPEXPIRE). O(1)

        A time of 0 removes the field.
        """
        return await self._field_result(b"HPEXPIRE", field, milliseconds_in(seconds, "seconds")) > 0

    async def expire_field_at(self, field: Name, moment: datetime) -> bool:
        """Let a field expire at a time with a zone; return whether it exists (HPEXPIREAT). O(1)"""
        return await self._field_result(b"HPEXPIREAT", field, unix_milliseconds_of(moment, "moment")) > 0

    async def persist_field(self, field: Name) -> bool:
        """Remove the expiry of a field; return whether it had one (HPERSIST). O(1)"""
        return await self._field_result(b"HPERSIST", field) > 0

    async def field_ttl(self, field: Name) -> float | None:
        """Return the seconds until a field expires, None without an expiry; KeyError if there is no field (HPTTL)."""
        return ttl_of(await self._field_result(b"HPTTL", field), encode_name(field, "field"))

    async def _field_result(self, command: bytes, field: Name, *time: bytes) -> int:
        """Return the number with which a command replies for one field."""
        return int((await self.store.run([command, self.key, *time, b"FIELDS", b"1", encode_name(field, "field")]))[0])

    # -- all fields ----------------------------------------------------------------------------------

    async def get_all(self) -> dict[str, V]:
        """Return all fields and values, as they are at one moment (HGETALL). O(fields)"""
        pairs = pairs_in(await self.store.run([b"HGETALL", self.key]))
        return {decode(field): self._decode(raw) for field, raw in pairs}

    async def scan(self, match: str | bytes | None = None) -> AsyncIterator[tuple[str, V]]:
        """Yield the fields that match a glob, with their values, a page at a time (HSCAN)."""
        async for page in self._scan(b"HSCAN", match):
            for field, raw in pairs_in(page):
                yield decode(field), self._decode(raw)

    async def scan_fields(self, match: str | bytes | None = None) -> AsyncIterator[str]:
        """Yield the fields that match a glob, a page at a time (HSCAN)."""
        async for page in self._scan(b"HSCAN", match):
            for field in page[::2]:
                yield decode(field)

    # -- operators -----------------------------------------------------------------------------------

    def __aiter__(self) -> AsyncIterator[str]:
        return self.scan_fields()

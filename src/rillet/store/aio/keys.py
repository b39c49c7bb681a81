"""The asyncio form of rillet.store.keys: AsyncCommandRunner, AsyncKeyCommands.

Made from store/keys.py by `python -m tools.make_aio`; edit that file, then run the command.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, cast, overload

from rillet.errors import StoreError
from rillet.store import PublicNames
from rillet.store.aio.array import AsyncArray
from rillet.store.aio.bitmap import AsyncBitmap
from rillet.store.aio.geo import AsyncGeo
from rillet.store.aio.hash import AsyncHash
from rillet.store.aio.hyperloglog import AsyncHyperLogLog
from rillet.store.aio.list import AsyncList
from rillet.store.aio.set import AsyncSet
from rillet.store.aio.sorted_set import AsyncSortedSet
from rillet.store.aio.stream import AsyncStream
from rillet.store.aio.string import AsyncCounter, AsyncString
from rillet.store.arguments.argument_checks import flag
from rillet.store.arguments.durations import milliseconds_in
from rillet.store.arguments.encoding import decode, encode_name
from rillet.store.codecs import Codec, raw, text
from rillet.store.keys import _INTEGERS, Name, V
from rillet.store.types.stored_key import ttl_of, unix_milliseconds_of

AnyKey = (
    AsyncStream | AsyncHash[str] | AsyncSet[str] | AsyncSortedSet[str]
    | AsyncList[str] | AsyncString[str] | AsyncArray[str]
)  # fmt: skip
_CLASSES: dict[bytes, Any] = {
    b"hash": AsyncHash, b"list": AsyncList, b"set": AsyncSet, b"string": AsyncString, b"zset": AsyncSortedSet,
    b"array": AsyncArray,
}  # fmt: skip


class AsyncCommandRunner(ABC):
    """Runs commands, as AsyncStore does."""

    @abstractmethod
    async def run(self, argv: list[bytes]) -> Any:
        """Run one command whose arguments are bytes, and return its reply."""

    @abstractmethod
    async def run_many(self, commands: Sequence[list[bytes]]) -> list[Any]:
        """Run several commands whose arguments are bytes, in order, and return their replies."""

    @abstractmethod
    def keys(self, pattern: str = "*", kind: str | None = None) -> AsyncIterator[str]:
        """Yield the keys that match a glob."""


class AsyncKeyCommands(PublicNames, AsyncCommandRunner):
    """The commands for keys of any type, and the objects for each type. An object is made without a command."""

    is_foreign = False  # whether a reply has shown that the server is no rillet

    # -- objects -------------------------------------------------------------------------------------

    @overload
    def hash(self, name: Name) -> AsyncHash[str]: ...
    @overload
    def hash(self, name: Name, *, codec: Codec[V]) -> AsyncHash[V]: ...
    def hash(self, name: Name, *, codec: Codec[Any] = text) -> AsyncHash[Any]:
        """Return the hash of that name; the codec is that of its values."""
        return AsyncHash(cast(Any, self), name, codec)

    @overload
    def set(self, name: Name) -> AsyncSet[str]: ...
    @overload
    def set(self, name: Name, *, codec: Codec[V]) -> AsyncSet[V]: ...
    def set(self, name: Name, *of_redis: Any, codec: Codec[Any] = text, **options: Any) -> AsyncSet[Any]:
        """Return the set of that name; the codec is that of its members. TypeError for redis-py's set(name, value)."""
        if of_redis or options:
            from rillet.store.redispy.redis_names import not_a_value

            raise not_a_value(self, name)
        return AsyncSet(cast(Any, self), name, codec)

    @overload
    def zset(self, name: Name) -> AsyncSortedSet[str]: ...
    @overload
    def zset(self, name: Name, *, codec: Codec[V]) -> AsyncSortedSet[V]: ...
    def zset(self, name: Name, *, codec: Codec[Any] = text) -> AsyncSortedSet[Any]:
        """Return the sorted set of that name; the codec is that of its members."""
        return AsyncSortedSet(cast(Any, self), name, codec)

    @overload
    def list(self, name: Name) -> AsyncList[str]: ...
    @overload
    def list(self, name: Name, *, codec: Codec[V]) -> AsyncList[V]: ...
    def list(self, name: Name, *, codec: Codec[Any] = text) -> AsyncList[Any]:
        """Return the list of that name; the codec is that of its values."""
        return AsyncList(cast(Any, self), name, codec)

    @overload
    def string(self, name: Name) -> AsyncString[str]: ...
    @overload
    def string(self, name: Name, *, codec: Codec[V]) -> AsyncString[V]: ...
    def string(self, name: Name, *, codec: Codec[Any] = text) -> AsyncString[Any]:
        """Return the string of that name; the codec is that of its value."""
        return AsyncString(cast(Any, self), name, codec)

    @overload
    def array(self, name: Name) -> AsyncArray[str]: ...
    @overload
    def array(self, name: Name, *, codec: Codec[V]) -> AsyncArray[V]: ...
    def array(self, name: Name, *, codec: Codec[Any] = text) -> AsyncArray[Any]:
        """Return the array of that name; the codec is that of its values."""
        return AsyncArray(cast(Any, self), name, codec)

    def bitmap(self, name: Name) -> AsyncBitmap:
        """Return the bitmap of that name: a string as a list of bits."""
        return AsyncBitmap(cast(Any, self), name, raw)

    @overload
    def hyperloglog(self, name: Name) -> AsyncHyperLogLog[str]: ...
    @overload
    def hyperloglog(self, name: Name, *, codec: Codec[V]) -> AsyncHyperLogLog[V]: ...
    def hyperloglog(self, name: Name, *, codec: Codec[Any] = text) -> AsyncHyperLogLog[Any]:
        """Return the HyperLogLog of that name; the codec is that of its elements."""
        return AsyncHyperLogLog(cast(Any, self), name, codec)

    @overload
    def geo(self, name: Name) -> AsyncGeo[str]: ...
    @overload
    def geo(self, name: Name, *, codec: Codec[V]) -> AsyncGeo[V]: ...
    def geo(self, name: Name, *, codec: Codec[Any] = text) -> AsyncGeo[Any]:
        """Return the places of that name; the codec is that of its members."""
        return AsyncGeo(cast(Any, self), name, codec)

    def counter(self, name: Name) -> AsyncCounter:
        """Return the counter of that name."""
        return AsyncCounter(cast(Any, self), name, _INTEGERS)

    async def get_object(self, key: Name) -> AnyKey:
        """Return the object for the type of a key; KeyError if there is no key (TYPE). O(1)"""
        kind = await self.run([b"TYPE", encode_name(key, "key")])
        if kind == b"none":
            raise KeyError(key)
        if kind == b"stream":
            return AsyncStream(cast(Any, self), key)
        if kind not in _CLASSES:
            raise StoreError(f"the key {key!r} has the type {decode(kind)!r}, which has no class: use execute()")
        return cast("AnyKey", _CLASSES[kind](self, key, text))

    # -- keys ----------------------------------------------------------------------------------------

    async def exists(self, key: Name) -> bool:
        """Return whether a key exists (EXISTS). O(1)"""
        return bool(await self.run([b"EXISTS", encode_name(key, "key")]))

    async def type(self, key: Name) -> str | None:
        """Return the type of a key: "stream", "hash", "zset" ...; None if there is no key (TYPE). O(1)"""
        kind = await self.run([b"TYPE", encode_name(key, "key")])
        return None if kind == b"none" else decode(kind)

    async def expire(self, key: Name, seconds: float | timedelta) -> bool:
        """Let a key expire after that time; return whether it exists (PEXPIRE). O(1)

        The unit of Redis is a millisecond. A time of 0 or less deletes the key.
        """
        argv = [b"PEXPIRE", encode_name(key, "key"), milliseconds_in(seconds, "seconds", -math.inf)]
        return bool(await self.run(argv))

    async def expire_at(self, key: Name, moment: datetime) -> bool:
        """Let a key expire at a time with a zone; return whether it exists (PEXPIREAT). O(1)"""
        return bool(await self.run([b"PEXPIREAT", encode_name(key, "key"), unix_milliseconds_of(moment, "moment")]))

    async def persist(self, key: Name) -> bool:
        """Remove the expiry of a key; return whether it had one (PERSIST). O(1)"""
        return bool(await self.run([b"PERSIST", encode_name(key, "key")]))

    async def ttl(self, key: Name) -> float | None:
        """Return the seconds until a key expires, None without an expiry; KeyError if there is no key (PTTL). O(1)"""
        name = encode_name(key, "key")
        return ttl_of(await self.run([b"PTTL", name]), name)

    async def rename(self, key: Name, to: Name, *, replace: bool = True) -> bool:
        """Rename a key; with replace=False return False if `to` exists (RENAME, RENAMENX). O(1)

        CommandError "ERR no such key" if there is no key. In a cluster both names must be in one slot.
        """
        command = b"RENAME" if flag(replace, "replace") else b"RENAMENX"
        return bool(await self.run([command, encode_name(key, "key"), encode_name(to, "to")]))

    async def copy(self, key: Name, to: Name, *, replace: bool = False) -> bool:
        """Copy a key with its expiry; return False if there is no key, or `to` exists (COPY). O(size)

        replace: delete `to` first. In a cluster both names must be in one slot.
        """
        argv = [b"COPY", encode_name(key, "key"), encode_name(to, "to")]
        return bool(await self.run([*argv, b"REPLACE"] if flag(replace, "replace") else argv))

    # -- operators -----------------------------------------------------------------------------------

    if not TYPE_CHECKING:  # else type checkers would accept every name

        def __getattr__(self, name: str) -> Any:
            from rillet.store.redispy.redis_names import missing_method

            raise missing_method(self, name)

    def __aiter__(self) -> AsyncIterator[str]:
        """Yield all keys (SCAN); see `keys`."""
        return self.keys()

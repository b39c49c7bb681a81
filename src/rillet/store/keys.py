"""KeyCommands: what a store can do with any key, and the objects for the types of keys. The base class of Store.

    "k" in store                    store.expire("k", 60)          store.hash("k")     store.list("k")
    store["k"]                      store.ttl("k")                 store.set("k")      store.string("k")
    del store["k"]                  store.persist("k")             store.zset("k")     store.counter("k")
    for key in store: ...           store.rename("a", "b")         store.geo("k")      store.hyperloglog("k")
                                    store.copy("a", "b")           store.stream("k")   store.array("k")
                                                                                       store.bitmap("k")

`store["k"]` reads the type of the key and returns the object for it.

The class is separate from Store because its methods are named as types are: in its body `set` and `list` are methods.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar, cast, overload

from rillet.errors import StoreError
from rillet.store import PublicNames
from rillet.store.arguments.argument_checks import flag
from rillet.store.arguments.durations import milliseconds_in
from rillet.store.arguments.encoding import decode, encode_name
from rillet.store.codecs import Codec, raw, text, text_of
from rillet.store.stream import Stream
from rillet.store.types.array import Array
from rillet.store.types.bitmap import Bitmap
from rillet.store.types.geo import Geo
from rillet.store.types.hash import Hash
from rillet.store.types.hyperloglog import HyperLogLog
from rillet.store.types.list import List
from rillet.store.types.set import Set
from rillet.store.types.sorted_set import SortedSet
from rillet.store.types.stored_key import ttl_of, unix_milliseconds_of
from rillet.store.types.string import Counter, String

V = TypeVar("V")
Name = str | bytes
AnyKey = (
    Stream | Hash[str] | Set[str] | SortedSet[str]
    | List[str] | String[str] | Array[str]
)  # fmt: skip

_INTEGERS = text_of(int)
_CLASSES: dict[bytes, Any] = {
    b"hash": Hash, b"list": List, b"set": Set, b"string": String, b"zset": SortedSet,
    b"array": Array,
}  # fmt: skip


class CommandRunner(ABC):
    """Runs commands, as Store does."""

    @abstractmethod
    def run(self, argv: list[bytes]) -> Any:
        """Run one command whose arguments are bytes, and return its reply."""

    @abstractmethod
    def run_many(self, commands: Sequence[list[bytes]]) -> list[Any]:
        """Run several commands whose arguments are bytes, in order, and return their replies."""

    @abstractmethod
    def keys(self, pattern: str = "*", kind: str | None = None) -> Iterator[str]:
        """Yield the keys that match a glob."""


class KeyCommands(PublicNames, CommandRunner):
    """The commands for keys of any type, and the objects for each type. An object is made without a command."""

    is_foreign = False  # whether a reply has shown that the server is no rillet

    # -- objects -------------------------------------------------------------------------------------

    @overload
    def hash(self, name: Name) -> Hash[str]: ...
    @overload
    def hash(self, name: Name, *, codec: Codec[V]) -> Hash[V]: ...
    def hash(self, name: Name, *, codec: Codec[Any] = text) -> Hash[Any]:
        """Return the hash of that name; the codec is that of its values."""
        return Hash(cast(Any, self), name, codec)

    @overload
    def set(self, name: Name) -> Set[str]: ...
    @overload
    def set(self, name: Name, *, codec: Codec[V]) -> Set[V]: ...
    def set(self, name: Name, *of_redis: Any, codec: Codec[Any] = text, **options: Any) -> Set[Any]:
        """Return the set of that name; the codec is that of its members. TypeError for redis-py's set(name, value)."""
        if of_redis or options:
            from rillet.store.redispy.redis_names import not_a_value

            raise not_a_value(self, name)
        return Set(cast(Any, self), name, codec)

    @overload
    def zset(self, name: Name) -> SortedSet[str]: ...
    @overload
    def zset(self, name: Name, *, codec: Codec[V]) -> SortedSet[V]: ...
    def zset(self, name: Name, *, codec: Codec[Any] = text) -> SortedSet[Any]:
        """Return the sorted set of that name; the codec is that of its members."""
        return SortedSet(cast(Any, self), name, codec)

    @overload
    def list(self, name: Name) -> List[str]: ...
    @overload
    def list(self, name: Name, *, codec: Codec[V]) -> List[V]: ...
    def list(self, name: Name, *, codec: Codec[Any] = text) -> List[Any]:
        """Return the list of that name; the codec is that of its values."""
        return List(cast(Any, self), name, codec)

    @overload
    def string(self, name: Name) -> String[str]: ...
    @overload
    def string(self, name: Name, *, codec: Codec[V]) -> String[V]: ...
    def string(self, name: Name, *, codec: Codec[Any] = text) -> String[Any]:
        """Return the string of that name; the codec is that of its value."""
        return String(cast(Any, self), name, codec)

    @overload
    def array(self, name: Name) -> Array[str]: ...
    @overload
    def array(self, name: Name, *, codec: Codec[V]) -> Array[V]: ...
    def array(self, name: Name, *, codec: Codec[Any] = text) -> Array[Any]:
        """Return the array of that name; the codec is that of its values."""
        return Array(cast(Any, self), name, codec)

    def bitmap(self, name: Name) -> Bitmap:
        """Return the bitmap of that name: a string as a list of bits."""
        return Bitmap(cast(Any, self), name, raw)

    @overload
    def hyperloglog(self, name: Name) -> HyperLogLog[str]: ...
    @overload
    def hyperloglog(self, name: Name, *, codec: Codec[V]) -> HyperLogLog[V]: ...
    def hyperloglog(self, name: Name, *, codec: Codec[Any] = text) -> HyperLogLog[Any]:
        """Return the HyperLogLog of that name; the codec is that of its elements."""
        return HyperLogLog(cast(Any, self), name, codec)

    @overload
    def geo(self, name: Name) -> Geo[str]: ...
    @overload
    def geo(self, name: Name, *, codec: Codec[V]) -> Geo[V]: ...
    def geo(self, name: Name, *, codec: Codec[Any] = text) -> Geo[Any]:
        """Return the places of that name; the codec is that of its members."""
        return Geo(cast(Any, self), name, codec)

    def counter(self, name: Name) -> Counter:
        """Return the counter of that name."""
        return Counter(cast(Any, self), name, _INTEGERS)

    def get_object(self, key: Name) -> AnyKey:
        """Return the object for the type of a key; KeyError if there is no key (TYPE). O(1)"""
        kind = self.run([b"TYPE", encode_name(key, "key")])
        if kind == b"none":
            raise KeyError(key)
        if kind == b"stream":
            return Stream(cast(Any, self), key)
        if kind not in _CLASSES:
            raise StoreError(f"the key {key!r} has the type {decode(kind)!r}, which has no class: use execute()")
        return cast("AnyKey", _CLASSES[kind](self, key, text))

    # -- keys ----------------------------------------------------------------------------------------

    def exists(self, key: Name) -> bool:
        """Return whether a key exists (EXISTS). O(1)"""
        return bool(self.run([b"EXISTS", encode_name(key, "key")]))

    def type(self, key: Name) -> str | None:
        """Return the type of a key: "stream", "hash", "zset" ...; None if there is no key (TYPE). O(1)"""
        kind = self.run([b"TYPE", encode_name(key, "key")])
        return None if kind == b"none" else decode(kind)

    def expire(self, key: Name, seconds: float | timedelta) -> bool:
        """Let a key expire after that time; return whether it exists (PEXPIRE). O(1)

        The unit of Redis is a millisecond. A time of 0 or less deletes the key.
        """
        argv = [b"PEXPIRE", encode_name(key, "key"), milliseconds_in(seconds, "seconds", -math.inf)]
        return bool(self.run(argv))

    def expire_at(self, key: Name, moment: datetime) -> bool:
        """Let a key expire at a time with a zone; return whether it exists (PEXPIREAT). O(1)"""
        return bool(self.run([b"PEXPIREAT", encode_name(key, "key"), unix_milliseconds_of(moment, "moment")]))

    def persist(self, key: Name) -> bool:
        """Remove the expiry of a key; return whether it had one (PERSIST). O(1)"""
        return bool(self.run([b"PERSIST", encode_name(key, "key")]))

    def ttl(self, key: Name) -> float | None:
        """Return the seconds until a key expires, None without an expiry; KeyError if there is no key (PTTL). O(1)"""
        name = encode_name(key, "key")
        return ttl_of(self.run([b"PTTL", name]), name)

    def rename(self, key: Name, to: Name, *, replace: bool = True) -> bool:
        """Rename a key; with replace=False return False if `to` exists (RENAME, RENAMENX). O(1)

        CommandError "ERR no such key" if there is no key. In a cluster both names must be in one slot.
        """
        command = b"RENAME" if flag(replace, "replace") else b"RENAMENX"
        return bool(self.run([command, encode_name(key, "key"), encode_name(to, "to")]))

    def copy(self, key: Name, to: Name, *, replace: bool = False) -> bool:
        """Copy a key with its expiry; return False if there is no key, or `to` exists (COPY). O(size)

        replace: delete `to` first. In a cluster both names must be in one slot.
        """
        argv = [b"COPY", encode_name(key, "key"), encode_name(to, "to")]
        return bool(self.run([*argv, b"REPLACE"] if flag(replace, "replace") else argv))

    # -- operators -----------------------------------------------------------------------------------

    if not TYPE_CHECKING:  # else type checkers would accept every name

        def __getattr__(self, name: str) -> Any:
            from rillet.store.redispy.redis_names import missing_method

            raise missing_method(self, name)

    def __contains__(self, key: object) -> bool:
        return isinstance(key, (str, bytes)) and self.exists(key)

    def __getitem__(self, key: Name) -> AnyKey:
        return self.get_object(key)

    def __delitem__(self, key: Name) -> None:
        if not self.run([b"DEL", encode_name(key, "key")]):
            raise KeyError(key)

    def __iter__(self) -> Iterator[str]:
        """Yield all keys (SCAN); see `keys`."""
        return self.keys()

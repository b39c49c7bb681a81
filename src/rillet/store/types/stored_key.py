"""StoredKey: the base class of the objects that stand for a key, such as Hash and SortedSet.

An object holds the store, the key and a codec; it holds no data. Each method sends its command when it is called, so
two objects of the same key, also in two processes, show the same data. A key exists while it has at least one element:
the first write creates it, and the removal of its last element deletes it.

The methods follow three rules, so that an asyncio class can be derived from each class:

- A method builds a command, runs it with `store.run` or `store.run_many`, and converts the reply.
- An operator calls a method that has a name: `h["f"]` calls `h.get_value("f")`, `len(h)` calls `h.size()`.
- A generator reads pages with `store.run`, and yields each value in a loop: an asynchronous generator has no
  `yield from`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from operator import index
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from rillet.errors import InvalidValue
from rillet.store.codecs import Codec, text
from rillet.store.durations import Seconds, milliseconds_in, seconds_in
from rillet.store.encoding import decode, encode, encode_name
from rillet.store.transports.transport import raised

if TYPE_CHECKING:
    from rillet.store.store import Store

V = TypeVar("V")
PAGE = 1000  # elements per reply while iterating
MISSING: Any = object()  # the default of arguments for which None is a value


class StoredKey(Generic[V]):
    """A key of a store, with a codec for its values. Two objects are of the same data if store and key are equal."""

    __slots__ = ("_decode", "_encode", "codec", "key", "store")

    def __init__(self, store: Store, name: str | bytes, codec: Codec[V]) -> None:
        self.store = store
        self.key = encode_name(name)
        self.codec = codec
        self._encode = codec.encode
        self._decode: Callable[[bytes], V] = codec.decode
        if codec is not text:
            self._decode = _located(codec.decode, self.key)

    @property
    def name(self) -> str:
        """The name of the key as text."""
        return decode(self.key)

    # -- the key -------------------------------------------------------------------------------------

    def exists(self) -> bool:
        """Return whether the key exists, that is, has an element (EXISTS). O(1)"""
        return bool(self.store.run([b"EXISTS", self.key]))

    def delete(self) -> bool:
        """Delete the key with all elements; return whether it existed (DEL). O(elements)"""
        return bool(self.store.run([b"DEL", self.key]))

    def expire(self, seconds: float | timedelta) -> bool:
        """Let the key expire after that time; return whether the key exists (PEXPIRE). O(1)"""
        return bool(self.store.run([b"PEXPIRE", self.key, milliseconds_of(seconds)]))

    def expire_at(self, moment: datetime) -> bool:
        """Let the key expire at a time with a zone; return whether the key exists (PEXPIREAT). O(1)"""
        return bool(self.store.run([b"PEXPIREAT", self.key, unix_milliseconds_of(moment)]))

    def persist(self) -> bool:
        """Remove the expiry; return whether the key had one (PERSIST). O(1)"""
        return bool(self.store.run([b"PERSIST", self.key]))

    def ttl(self) -> float | None:
        """Return the seconds until the key expires, None without an expiry; KeyError if there is no key. O(1)"""
        return ttl_of(self.store.run([b"PTTL", self.key]), self.key)

    # -- for subclasses --------------------------------------------------------------------------------

    def _scan(self, command: bytes, match: str | bytes | None = None) -> Iterator[list[Any]]:
        """Yield the replies of HSCAN, SSCAN or ZSCAN, of about PAGE elements each."""
        cursor, more = b"0", True
        glob = [] if match is None else [b"MATCH", encode(match)]
        while more:
            cursor, page = self.store.run([command, self.key, cursor, *glob, b"COUNT", b"%d" % PAGE])
            yield page
            more = cursor != b"0"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.store, self.key, self.codec)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"


def _located(read: Callable[[bytes], V], key: bytes) -> Callable[[bytes], V]:
    """Return a decoder whose errors contain the key."""

    def located(raw: bytes) -> V:
        try:
            return read(raw)
        except InvalidValue as error:
            raise InvalidValue(f"key {decode(key)!r}: {error}") from None

    return located


def same_data(one: StoredKey[Any], other: object) -> bool:
    """Return whether an object is of the same class, store and key, with an equal codec."""
    return (
        isinstance(other, type(one)) and one.store is other.store and one.key == other.key and one.codec == other.codec
    )


def integer_of(number: int) -> bytes:
    """Return an integer as an argument; raise TypeError for a float, which would lose its fraction."""
    return b"%d" % index(number)


def milliseconds_of(seconds: float | timedelta) -> bytes:
    """Return a duration in milliseconds as an argument; a positive duration is at least 1."""
    return milliseconds_in(seconds)


def unix_milliseconds_of(moment: datetime) -> bytes:
    """Return a time as milliseconds since 1970; raise ValueError if it has no time zone."""
    if moment.tzinfo is None:
        raise ValueError(f"expected a time with a zone, got {moment!r}: use datetime.now(UTC) or .astimezone()")
    return b"%d" % round(moment.timestamp() * 1000)


def ttl_of(reply: Any, key: bytes) -> float | None:
    """Return the seconds in a reply of PTTL; raise KeyError if there is no key."""
    if reply == -2:
        raise KeyError(decode(key))
    return None if reply < 0 else reply / 1000


def transaction(*commands: list[bytes]) -> list[list[bytes]]:
    """Return commands between MULTI and EXEC: all run at one moment."""
    return [[b"MULTI"], *commands, [b"EXEC"]]


def replies_of(replies: list[Any]) -> list[Any]:
    """Return the replies of the commands of a transaction; raise the first error among them."""
    return [raised(reply) for reply in replies[-1]]


def seconds_of(block: Seconds) -> bytes:
    """Return the timeout of a blocking pop: seconds, 0 without limit; at least 1 ms, which is Redis's unit."""
    seconds = seconds_in(block)
    return float.__repr__(float(seconds if seconds <= 0 else max(seconds, 0.001))).encode()

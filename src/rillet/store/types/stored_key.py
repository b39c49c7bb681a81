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

import math
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from rillet.errors import InvalidValue
from rillet.store.arguments.argument_checks import flag
from rillet.store.arguments.durations import Seconds, milliseconds_in, seconds_in
from rillet.store.arguments.encoding import decode, encode_name, located_encoder
from rillet.store.codecs import Codec, text
from rillet.store.transports.transport import raised

if TYPE_CHECKING:
    from rillet.store.arguments.slots import HasTransport
    from rillet.store.store import Store

V = TypeVar("V")
PAGE = 1000  # elements per reply while iterating
MISSING: Any = object()  # the default of arguments for which None is a value


class CodedKey(Generic[V]):
    """A key and the codec of its values: the part of a StoredKey that runs no commands."""

    __slots__ = ("_decode", "_encode", "codec", "key", "store")

    def __init__(self, store: HasTransport, name: str | bytes, codec: Codec[V]) -> None:
        self.store = store
        self.key = encode_name(name, "name")
        self.codec = codec
        if not callable(getattr(codec, "encode", None)) or not callable(getattr(codec, "decode", None)):
            raise TypeError(f"codec must have encode and decode, as those of rillet.codecs have, not {codec!r:.200}")
        self._encode: Callable[[V], bytes] = located_encoder(codec.encode, self.key)
        self._decode: Callable[[bytes], V] = codec.decode
        if codec is not text:
            self._decode = _located(codec.decode, self.key)

    @property
    def name(self) -> str:
        """The name of the key as text."""
        return decode(self.key)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.store, self.key, self.codec)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"


class StoredKey(CodedKey[V]):
    """A key of a store, with a codec for its values. Two objects are of the same data if store and key are equal."""

    __slots__ = ()
    store: Store

    # -- the key -------------------------------------------------------------------------------------

    def exists(self) -> bool:
        """Return whether the key exists, that is, has an element (EXISTS). O(1)"""
        return bool(self.store.run([b"EXISTS", self.key]))

    def delete(self) -> bool:
        """Delete the key with all elements; return whether it existed (DEL). O(elements)"""
        return bool(self.store.run([b"DEL", self.key]))

    def expire(self, seconds: float | timedelta) -> bool:
        """Let the key expire after that time; return whether the key exists (PEXPIRE). O(1)"""
        return bool(self.store.run([b"PEXPIRE", self.key, milliseconds_in(seconds, "seconds", -math.inf)]))

    def expire_at(self, moment: datetime) -> bool:
        """Let the key expire at a time with a zone; return whether the key exists (PEXPIREAT). O(1)"""
        return bool(self.store.run([b"PEXPIREAT", self.key, unix_milliseconds_of(moment, "moment")]))

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
        glob = [] if match is None else [b"MATCH", encode_name(match, "match")]
        while more:
            cursor, page = self.store.run([command, self.key, cursor, *glob, b"COUNT", b"%d" % PAGE])
            yield page
            more = cursor != b"0"


def _located(read: Callable[[bytes], V], key: bytes) -> Callable[[bytes], V]:
    """Return a decoder whose errors contain the key."""

    def located(raw: bytes) -> V:
        try:
            return read(raw)
        except InvalidValue as error:
            raise InvalidValue(f"key {decode(key)!r}: {error}") from None

    return located


def same_data(one: CodedKey[Any], other: object) -> bool:
    """Return whether an object is of the same class, store and key, with an equal codec."""
    return (
        isinstance(other, type(one)) and one.store is other.store and one.key == other.key and one.codec == other.codec
    )


def expiry_of(seconds: float | timedelta, name: str) -> bytes:
    """Return the duration of an expiry in milliseconds, as the argument of a command that sets a value."""
    milliseconds = milliseconds_in(seconds, name)
    if milliseconds == b"0":
        raise ValueError(f"{name} must be more than 0 seconds, not {seconds!r:.200}")
    return milliseconds


def unix_milliseconds_of(moment: datetime, name: str) -> bytes:
    """Return a time as milliseconds since 1970; raise ValueError if it has no time zone."""
    if not isinstance(moment, datetime):
        raise TypeError(f"{name} must be a datetime with a time zone, not {moment!r:.200}")
    if moment.tzinfo is None:
        raise ValueError(f"{name} must have a time zone: use datetime.now(UTC) or .astimezone(), not {moment!r}")
    return b"%d" % round(moment.timestamp() * 1000)


def set_options(expire: float | timedelta | None, expire_at: datetime | None, keep_expiry: bool, nx: bool, xx: bool,
                conditions: tuple[bytes, bytes] = (b"NX", b"XX")) -> list[bytes]:  # fmt: skip
    """Return the options of SET or HSETEX; raise ValueError for more than one expiry, or nx with xx."""
    if (expire is not None) + (expire_at is not None) + flag(keep_expiry, "keep_expiry") > 1:
        raise ValueError("pass one of expire, expire_at and keep_expiry")
    if flag(nx, "nx") & flag(xx, "xx"):
        raise ValueError("pass nx or xx, not both: what must exist and not exist is never set")
    options = [conditions[0 if nx else 1]] if nx or xx else []
    if expire is not None:
        options += (b"PX", expiry_of(expire, "expire"))
    if expire_at is not None:
        options += (b"PXAT", unix_milliseconds_of(expire_at, "expire_at"))
    if keep_expiry:
        options.append(b"KEEPTTL")
    return options


def key_in(other: Any, name: str, kind: type[CodedKey[Any]]) -> bytes:
    """Return the key of another object of the same class; TypeError for anything else, such as its name."""
    if not isinstance(other, kind):
        raise TypeError(f"{name} must be a {kind.__name__} of the store, not {other!r:.200}")
    return other.key


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


def seconds_of(block: Seconds, name: str) -> bytes:
    """Return the timeout of a blocking pop: seconds, 0 without limit; at least 1 ms, which is Redis's unit."""
    milliseconds_in(block, name)
    seconds = seconds_in(block, name)
    return float.__repr__(float(seconds if seconds <= 0 else max(seconds, 0.001))).encode()

"""String: one value under one key. Counter: a number under one key.

    session = store.string("session:42", codec=json_of(Session))
    session.set_value(Session(...), expire=3600)       SET EX
    session.get_value()                                GET: the value, or None
    lock = store.string("lock")
    lock.set_value("me", nx=True, expire=30)           True if the key did not exist
    lock.set_value("you", ifeq="me")                   True if the value was "me"
    lock.delete_if(ifeq="you")                         DELEX: True if the value was "you"

    visits = store.counter("visits")
    visits.incr()                                      INCRBY: 1
    visits.incr(10)                                    INCRBY: 11
    visits.incr_within(10, high=15)                    INCREX: (11, 0), because 21 is too high

`append`, `get_range` and `set_range` work on the bytes of the value, whatever the codec is.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

from rillet.store.arguments.argument_checks import flag, integer_of, number_of, text_bytes
from rillet.store.types.stored_key import MISSING, StoredKey, V, expiry_of, set_options


class String(StoredKey[V]):
    """A string of the store: one value, which the codec encodes."""

    __slots__ = ()

    def get_value(self) -> V | None:
        """Return the value, None if there is no key (GET). O(length)"""
        raw = self.store.run([b"GET", self.key])
        return None if raw is None else self._decode(raw)

    def set_value(self, value: V, *, expire: float | timedelta | None = None, expire_at: datetime | None = None,
                  keep_expiry: bool = False, nx: bool = False, xx: bool = False, ifeq: V = MISSING, ifne: V = MISSING,
                  ifdeq: str = "", ifdne: str = "") -> bool:  # fmt: skip
        """Set the value; return False if a condition prevented it (SET). O(length)

        expire: seconds until the key expires; expire_at: a time with a zone; keep_expiry: keep the present expiry.
        nx: only if the key does not exist; xx: only if it exists; ifeq, ifne: only if the present value is, or is not,
        that value; ifdeq, ifdne: the same with its digest. Without a key, ifeq and ifdeq prevent it, ifne and ifdne do
        not. The last four need Redis 8.4; Valkey 8.1 has ifeq.
        """
        condition = _condition(self._encode, ifeq, ifne, ifdeq, ifdne)
        if condition and (nx or xx):
            raise ValueError("pass one of nx, xx, ifeq, ifne, ifdeq and ifdne")
        options = set_options(expire, expire_at, keep_expiry, nx, xx)
        return self.store.run([b"SET", self.key, self._encode(value), *options, *condition]) is not None

    def get_and_set(self, value: V, *, expire: float | timedelta | None = None, expire_at: datetime | None = None,
                    keep_expiry: bool = False, nx: bool = False, xx: bool = False) -> V | None:  # fmt: skip
        """Set the value as set_value does; return the previous value, None if there was none (SET GET). Atomic."""
        argv = [b"SET", self.key, self._encode(value), *set_options(expire, expire_at, keep_expiry, nx, xx), b"GET"]
        raw = self.store.run(argv)
        return None if raw is None else self._decode(raw)

    def get_and_delete(self) -> V | None:
        """Delete the key; return its value, None if there was none (GETDEL). Atomic."""
        raw = self.store.run([b"GETDEL", self.key])
        return None if raw is None else self._decode(raw)

    def delete_if(self, *, ifeq: V = MISSING, ifne: V = MISSING, ifdeq: str = "", ifdne: str = "") -> bool:
        """Delete the key if its value, or the digest of its value, is or is not the given one (DELEX). Atomic.

        Return whether it was deleted. It needs Redis 8.4.
        """
        condition = _condition(self._encode, ifeq, ifne, ifdeq, ifdne)
        if not condition:
            raise ValueError("pass one of ifeq, ifne, ifdeq and ifdne, or call delete()")
        return bool(self.store.run([b"DELEX", self.key, *condition]))

    def digest(self) -> str | None:
        """Return the digest of the value, 16 hexadecimal digits (XXH3), None without a key (DIGEST). O(length)

        Pass it as `ifdeq` to replace or delete the value only if it is still the same. It needs Redis 8.4.
        """
        raw = self.store.run([b"DIGEST", self.key])
        return None if raw is None else raw.decode()

    def get_and_expire(self, seconds: float | timedelta | None) -> V | None:
        """Return the value and let the key expire after that time, never if None (GETEX). Atomic."""
        expiry = [b"PERSIST"] if seconds is None else [b"PX", expiry_of(seconds, "seconds")]
        raw = self.store.run([b"GETEX", self.key, *expiry])
        return None if raw is None else self._decode(raw)

    # -- the bytes of the value ----------------------------------------------------------------------

    def append(self, data: str | bytes) -> int:
        """Add bytes, or text as UTF-8, at the end; return the length in bytes (APPEND). O(data)"""
        return int(self.store.run([b"APPEND", self.key, text_bytes(data, "data")]))

    def get_range(self, start: int = 0, end: int = -1) -> bytes:
        """Return the bytes from offset start to offset end, both included; -1 is the last (GETRANGE). O(returned)"""
        raw: bytes = self.store.run([b"GETRANGE", self.key, integer_of(start, "start"), integer_of(end, "end")])
        return raw

    def set_range(self, offset: int, data: str | bytes) -> int:
        """Overwrite bytes from an offset on; return the length in bytes (SETRANGE). O(data)

        A gap between the end of the value and the offset becomes zero bytes.
        """
        argv = [b"SETRANGE", self.key, integer_of(offset, "offset", 0), text_bytes(data, "data")]
        return int(self.store.run(argv))

    def size(self) -> int:
        """Return the length of the value in bytes, 0 if there is no key (STRLEN). O(1)"""
        return int(self.store.run([b"STRLEN", self.key]))


class Counter(StoredKey[int]):
    """A number of the store, 0 if the key does not exist. Every change is atomic."""

    __slots__ = ()

    def get_value(self) -> int:
        """Return the number (GET). O(1)"""
        raw = self.store.run([b"GET", self.key])
        return 0 if raw is None else self._decode(raw)

    def set_value(self, number: int, *, expire: float | timedelta | None = None) -> None:
        """Set the number; expire: seconds until the key expires (SET). O(1)"""
        self.store.run([b"SET", self.key, self._encode(number), *set_options(expire, None, False, False, False)])

    def incr(self, by: int = 1) -> int:
        """Add to the number; return the result (INCRBY). O(1)"""
        return int(self.store.run([b"INCRBY", self.key, integer_of(by, "by")]))

    def decr(self, by: int = 1) -> int:
        """Subtract from the number; return the result (DECRBY). O(1)"""
        return int(self.store.run([b"DECRBY", self.key, integer_of(by, "by")]))

    def incr_within(self, by: int = 1, *, low: int | None = None, high: int | None = None, saturate: bool = False,
                    expire: float | timedelta | None = None, only_new_expiry: bool = False,
                    ) -> tuple[int, int]:  # fmt: skip
        """Add to the number unless the result is beyond a bound; return the number and what was added (INCREX). O(1)

        saturate: set the number to the bound instead of adding 0; expire: seconds until the key expires;
        only_new_expiry: only if the key has no expiry. It needs Redis 8.8.
        """
        argv = [b"INCREX", self.key, b"BYINT", integer_of(by, "by")]
        argv += [b"LBOUND", integer_of(low, "low")] if low is not None else []
        argv += [b"UBOUND", integer_of(high, "high")] if high is not None else []
        argv += [b"SATURATE"] if flag(saturate, "saturate") else []
        argv += [b"PX", expiry_of(expire, "expire")] if expire is not None else []
        argv += [b"ENX"] if flag(only_new_expiry, "only_new_expiry") else []
        number, added = self.store.run(argv)
        return int(number), int(added)

    def incr_float(self, by: float) -> float:
        """Add to the number; return the result (INCRBYFLOAT). O(1)

        The number may then have a fraction: read it with get_float.
        """
        return float(self.store.run([b"INCRBYFLOAT", self.key, number_of(by, "by")]))

    def get_float(self) -> float:
        """Return the number, which may have a fraction (GET). O(1)"""
        raw = self.store.run([b"GET", self.key])
        return 0.0 if raw is None else float(raw)

    def reset(self) -> int:
        """Delete the key; return the number that it had (GETDEL). Atomic. O(1)"""
        raw = self.store.run([b"GETDEL", self.key])
        return 0 if raw is None else self._decode(raw)

    def __int__(self) -> int:
        return self.get_value()

    def __float__(self) -> float:
        return self.get_float()


_COMPARISONS = (b"IFEQ", b"IFNE", b"IFDEQ", b"IFDNE")


def _condition(encoded: Callable[[V], bytes], ifeq: V, ifne: V, ifdeq: str, ifdne: str) -> list[bytes]:
    """Return the comparison of SET or DELEX; raise ValueError for more than one."""
    given = [encoded(one) if one is not MISSING else None for one in (ifeq, ifne)]
    given += [text_bytes(one, name) if one != "" else None for name, one in (("ifdeq", ifdeq), ("ifdne", ifdne))]
    found = [word for pair in zip(_COMPARISONS, given, strict=True) if pair[1] is not None for word in pair]
    if len(found) > 2:
        raise ValueError("pass one of ifeq, ifne, ifdeq and ifdne")
    return found  # type: ignore[return-value]

"""A numbered database: keys, values, and the state attached to keys (Redis: struct redisDb, db.c).

    index          values[key] -> String | Stream | ...      one object per key, never None
    expires        expires[key] -> ms since the epoch        only keys of `values`
    blocking_keys  blocking_keys[key] -> KeyWaiters           queues of clients blocked on the key
    ready_keys     {key: None}                               changed keys with blocked clients, in order of change
    watched_keys   watched_keys[key] -> {Watcher}            WATCH: marked when the key changes
    idmp_keys      {key: None}                               streams with idempotent producers whose messages may expire

Every access goes through `lookup`, which deletes an expired key and reports it to `on_expired`, so that
the engine can log a DEL. The clock is injected.

The engine decides whether expired keys may be deleted (`may_expire`). During log replay they may not,
because the log contains the deletions.

SCAN needs an order that insertions and deletions do not disturb. Iteration of a dict cannot start in the middle.
The first SCAN therefore gives every key a serial number, and each later key gets the next higher number. A scan
proceeds from the highest number down; its cursor is the last number returned:

    serials   [ 1,  2,  4,  7,  8 ]     ascending, for bisection
    slots     [ a,  b,  -,  d,  e ]     the key of each number; None once it is deleted

A key keeps its number for life, so a key that exists during the whole scan is returned exactly once. Keys
created during the scan are above the cursor, so a scan terminates however fast keys are added. A call costs
O(log keys + count). The lists are compacted when half of the keys in them are deleted. Redis's own order
depends on a random hash seed, so clients cannot rely on it.
"""

from __future__ import annotations

import random
from bisect import bisect_left
from collections.abc import Callable, Iterator
from typing import Any

try:
    import cython
except ModuleNotFoundError:  # Cython is not installed: run interpreted
    from rillet import _cython as cython

from rillet.keyspace.clock import Clock
from rillet.types.stream.value import Stream

# A value of Database.notify_before: no key is given an expiry before this time.
NEVER_DUE = -(2**63)


@cython.final
@cython.cclass
class Watcher:
    """The WATCH state of a client: `dirty` becomes True when one of its watched keys changes.

    `stale` contains watched keys that had expired before WATCH but still existed: their deletion is not a change
    (multi.c: watchedKey.expired).
    """

    __slots__ = ("dirty", "keys", "stale")
    dirty: cython.bint
    keys: list[tuple[Any, bytes]]
    stale: set[tuple[Any, bytes]]

    def __init__(self) -> None:
        self.dirty = False
        self.keys = []
        self.stale = set()


@cython.final
@cython.cclass
class Database:
    """A database: lookup, changes, expiry, and the clients that watch or are blocked on keys."""

    __slots__ = (
        "index", "clock", "values", "expires", "blocking_keys", "ready_keys", "watched_keys", "idmp_keys",
        "on_expired", "on_expiry", "notify_before", "on_ready", "on_missed", "on_new", "on_overwritten", "may_expire",
        "hits", "misses", "_slots", "_serials", "_serial_of", "_next_serial", "_expire_walk",
    )  # fmt: skip
    values: dict[bytes, Any]
    expires: dict[bytes, int]
    blocking_keys: dict[bytes, Any]
    ready_keys: dict[bytes, None]
    watched_keys: dict[bytes, Any]
    idmp_keys: dict[bytes, None]
    _slots: Any  # list[bytes | None], or None before the first SCAN
    _serials: list[int]
    _serial_of: dict[bytes, int]
    _expire_walk: list[bytes]

    def __init__(self, index: int, clock: Clock) -> None:
        self.index = index
        self.clock = clock
        self.values = {}
        self.expires = {}
        self.blocking_keys = {}
        self.ready_keys = {}
        self.watched_keys = {}
        self.idmp_keys = {}
        self.on_expired: Callable[[Any, bytes], None] | None = None
        # Called once, without an argument, when a key gets an expiry before `notify_before` (ms since the epoch). The
        # call is inside a command, so it must be a function in C, during which no signal handler runs.
        self.on_expiry: Callable[[], object] | None = None
        self.notify_before = NEVER_DUE
        self.on_ready: Callable[[Any], None] | None = None
        # Callbacks for notify-keyspace-events, None if disabled; the last one receives the old and the new value.
        self.on_missed: Callable[[Any, bytes], None] | None = None
        self.on_new: Callable[[Any, bytes], None] | None = None
        self.on_overwritten: Callable[[Any, bytes, object, object], None] | None = None
        self.may_expire: Callable[[], bool] | None = None
        self.hits = 0
        self.misses = 0
        self._slots = None
        self._serials = []
        self._serial_of = {}
        self._next_serial = 1
        self._expire_walk = []

    def __len__(self) -> int:
        """Return the number of keys, including expired keys that are not deleted yet. O(1)"""
        return len(self.values)

    # -- lookup ------------------------------------------------------------------------------------

    @cython.ccall
    def lookup(self, key: bytes) -> object:
        """Return the key's value, or None; an expired key is deleted first. O(1)"""
        if self.expires and self.expire_if_needed(key):
            return None
        return self.values.get(key)

    @cython.ccall
    def lookup_read(self, key: bytes) -> object:
        """Look up a key and count a keyspace hit or miss for INFO (db.c: lookupKeyRead). O(1)"""
        value: object
        if self.expires and self.expire_if_needed(key):
            value = None
        else:
            value = self.values.get(key)
        self.count_read(key, value is not None)
        return value

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def count_read(self, key: bytes, found: cython.bint) -> cython.bint:
        """Count the keyspace hit or miss of a second lookup that Redis makes but rillet's command does not. O(1)"""
        if found:
            self.hits += 1
        else:
            self.misses += 1
            if self.on_missed is not None:
                self.on_missed(self, key)
        return True

    @cython.ccall
    def lookup_no_notify(self, key: bytes) -> object:
        """Do `lookup_read` without a keyspace event for a miss (db.c: LOOKUP_NONOTIFY). O(1)"""
        value: object = self.lookup(key)
        if value is None:
            self.misses += 1
        else:
            self.hits += 1
        return value

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def is_expired(self, key: bytes) -> cython.bint:
        """Return whether the key has expired and may be deleted (db.c: keyIsExpired)."""
        when = self.expires.get(key)
        if when is None or when >= self.clock.now_ms():
            return False
        return self.may_expire is None or self.may_expire()

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def expire_if_needed(self, key: bytes) -> cython.bint:
        """Delete the key and notify `on_expired` if it has expired; return whether it did (db.c: expireIfNeeded)."""
        if not self.is_expired(key):
            return False
        self.delete(key)
        if self.on_expired is not None:
            self.on_expired(self, key)
        return True

    # -- changes -----------------------------------------------------------------------------------

    @cython.ccall
    def set(self, key: bytes, value: object, keep_ttl: cython.bint = False) -> object:
        """Set the value of a key; return the previous value, or None. O(1)"""
        if self.expires:
            self.expire_if_needed(key)
        old: object = self.values.get(key)
        if old is None:
            if self._slots is not None:
                self._give_number(key)
        elif not keep_ttl and self.expires:
            self.expires.pop(key, None)
        self.values[key] = value
        if old is None and self.on_new is not None:
            self.on_new(self, key)
        # Clients may be blocked on a key that is created or replaced by another type: wake them.
        if self.blocking_keys:
            self.signal_ready(key)
        return old

    @cython.ccall
    def replace(self, key: bytes, value: object, keep_ttl: cython.bint = False) -> object:
        """Replace the value of a key, and notify that the old value was overwritten (db.c: setKey). O(1)"""
        old: object = self.set(key, value, keep_ttl)
        if old is not None and self.on_overwritten is not None:
            self.on_overwritten(self, key, old, value)
        return old

    def notify_overwritten(self, key: bytes, old: object, value: object) -> None:
        """Notify that a command replaced the value `old` of a key. Call this after the command's own event."""
        if old is not None and self.on_overwritten is not None:
            self.on_overwritten(self, key, old, value)

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def delete(self, key: bytes) -> cython.bint:
        """Delete the key and its expiry; return False if it does not exist. O(1)"""
        if self.values.pop(key, None) is None:
            return False
        if self.expires:
            self.expires.pop(key, None)
        if self.idmp_keys:
            self.idmp_keys.pop(key, None)
        if self._slots is not None:
            self._take_number(key)
        if self.blocking_keys:
            self.signal_ready(key)
        return True

    def flush(self) -> int:
        """Delete all keys; return their number and mark the watchers of existing keys. O(watched)"""
        removed = len(self.values)
        self._touch_all(None)
        waited = [key for key in self.blocking_keys if key in self.values]
        self.values = {}
        self.expires = {}
        self.idmp_keys = {}
        self._forget_numbers()
        for key in waited:
            self.signal_ready(key)
        return removed

    def swap(self, other: Any) -> None:
        """Exchange keys and expiries with another database, but not watchers and blocked clients (dbSwapDatabases)."""
        self._touch_all(other)
        other._touch_all(self)
        self.values, other.values = other.values, self.values
        self.expires, other.expires = other.expires, self.expires
        self.idmp_keys, other.idmp_keys = other.idmp_keys, self.idmp_keys
        self._forget_numbers()
        other._forget_numbers()
        for database in (self, other):
            for key in list(database.blocking_keys):
                database.signal_ready(key)

    # -- expiry ------------------------------------------------------------------------------------

    @cython.ccall
    def get_expire(self, key: bytes) -> cython.longlong:
        """Return the expiry time of the key (ms since the epoch), or -1. O(1)"""
        when = self.expires.get(key)
        return -1 if when is None else when

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def set_expire(self, key: bytes, when: cython.longlong) -> cython.bint:
        """Set the expiry time of an existing key (ms since the epoch). O(1)"""
        assert key in self.values
        self.expires[key] = when
        if when < self.notify_before and self.on_expiry is not None:
            self.notify_before = NEVER_DUE
            try:
                self.on_expiry()
            except RuntimeError:  # no thread can be started: the key is deleted when a command accesses it
                pass
        return True

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def persist(self, key: bytes) -> cython.bint:
        """Remove the key's expiry; return False if it has none. O(1)"""
        return self.expires.pop(key, None) is not None

    def expire_some(self, limit: int = 20) -> int:
        """Examine the next `limit` keys with an expiry; delete expired ones and return their number.

        This is active expiry (expire.c: activeExpireCycle), which deletes keys that no command accesses. Each
        round iterates over a list of the keys taken at its start and costs O(keys with an expiry).
        """
        if not self._expire_walk:
            self._expire_walk = list(self.expires)
        batch = self._expire_walk[-limit:]
        del self._expire_walk[-limit:]
        return sum(1 for key in batch if self.expire_if_needed(key))

    # -- watched and blocking keys -------------------------------------------------------------------

    def expire_idmp(self, now: int) -> None:
        """Remove expired messages of idempotent producers (t_stream.c: handleExpiredIdmpEntries)."""
        for key in list(self.idmp_keys):
            stream = self.values.get(key)
            idmp = stream.idmp if isinstance(stream, Stream) else None
            if idmp is None:
                del self.idmp_keys[key]
                continue
            if idmp.expire(now):
                self.touch(key)
            if not idmp.producers:
                del self.idmp_keys[key]

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def touch(self, key: bytes) -> cython.bint:
        """Mark all watchers of the key (db.c: signalModifiedKey). O(watchers)"""
        if self.watched_keys:
            watchers = self.watched_keys.get(key)
            if watchers is not None:
                for watcher in watchers:
                    if watcher.stale and (self, key) in watcher.stale:
                        if key not in self.values:
                            watcher.stale.discard((self, key))
                    else:
                        watcher.dirty = True
        return True

    def _touch_all(self, replacement: Any) -> None:
        """Mark the watchers of the keys that `replacement` removes or adds (multi.c: touchAllWatchedKeysInDb)."""
        for key, watchers in self.watched_keys.items():
            comes = replacement is not None and key in replacement.values
            if not comes and key not in self.values:
                continue
            comes_expired = comes and replacement.is_expired(key)
            for watcher in watchers:
                stale = (self, key) in watcher.stale
                if stale and not comes:
                    watcher.stale.discard((self, key))
                elif comes_expired and (stale or key not in self.values):
                    watcher.stale.add((self, key))
                else:
                    watcher.dirty = True

    def watch(self, key: bytes, watcher: Watcher) -> None:
        """Register a watcher, which is marked when the key changes. O(1)"""
        if (self, key) not in watcher.keys:
            watcher.keys.append((self, key))
            if self.is_expired(key):
                watcher.stale.add((self, key))
            self.watched_keys.setdefault(key, set()).add(watcher)

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def signal_ready(self, key: bytes) -> cython.bint:
        """Record that a key with blocked clients changed; the engine serves them later (signalKeyAsReady)."""
        if self.blocking_keys and key in self.blocking_keys and key not in self.ready_keys:
            self.ready_keys[key] = None
            if self.on_ready is not None:
                self.on_ready(self)
        return True

    # -- iteration -----------------------------------------------------------------------------------

    def live_keys(self) -> Iterator[bytes]:
        """Yield the keys that have not expired, without deleting any. O(keys)"""
        now = self.clock.now_ms()
        for key in list(self.values):
            when = self.expires.get(key)
            if when is None or when >= now:
                yield key

    def scan(self, cursor: int, count: int) -> tuple[int, list[bytes]]:
        """Return the next cursor (0 at the end) and up to `count` keys. O(log keys + count)"""
        if self._slots is None:
            self._number_keys()
        slots = self._slots
        assert slots is not None
        stop = bisect_left(self._serials, cursor) if cursor else len(slots)
        start = max(stop - count, 0)
        found = [key for key in slots[start:stop] if key is not None]
        found.reverse()
        return (self._serials[start] if start else 0), found

    def random_key(self) -> bytes | None:
        """Return a random key, or None; expired keys that are drawn are deleted. O(1) expected"""
        while self.values:
            if self._slots is None:
                self._number_keys()
            key: bytes | None = random.choice(self._slots)
            if key is not None and not self.expire_if_needed(key):
                return key
        return None

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _number_keys(self) -> cython.bint:
        self._slots = list(self.values)
        self._serials = list(range(self._next_serial, self._next_serial + len(self._slots)))
        self._serial_of = dict(zip(self._slots, self._serials, strict=True))
        self._next_serial += len(self._slots)
        return True

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def _forget_numbers(self) -> cython.bint:
        self._slots = None
        self._serials = []
        self._serial_of = {}
        return True

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _give_number(self, key: bytes) -> cython.bint:
        self._slots.append(key)
        self._serials.append(self._next_serial)
        self._serial_of[key] = self._next_serial
        self._next_serial += 1
        return True

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _take_number(self, key: bytes) -> cython.bint:
        self._slots[bisect_left(self._serials, self._serial_of.pop(key))] = None
        # Random probing and scanning stay cheap only while fewer than half of the slots are empty.
        if len(self._slots) > 64 and len(self._slots) > 2 * len(self._serial_of):
            self._slots = list(self._serial_of)
            self._serials = list(self._serial_of.values())
        return True

    def check(self) -> None:
        """Raise AssertionError if an expiry or slot has no key, or if a value's own check fails."""
        assert all(key in self.values for key in self.expires)
        assert all(value is not None for value in self.values.values())
        for waiting in self.blocking_keys.values():
            assert waiting
        if self._slots is not None:
            assert {key for key in self._slots if key is not None} == set(self.values) == set(self._serial_of)
            assert self._serials == sorted(self._serials) and len(self._serials) == len(self._slots)
            slot_of = {key: bisect_left(self._serials, number) for key, number in self._serial_of.items()}
            assert all(self._slots[slot] == key for key, slot in slot_of.items())
        for value in self.values.values():
            value.check()

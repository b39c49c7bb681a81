"""One numbered database: keys to values, with what hangs on the keys (Redis: struct redisDb, db.c).

    index          values[key] -> String | Stream | ...      one object per key, never None
    expires        expires[key] -> ms since the epoch        only keys of `values`
    blocking_keys  blocking_keys[key] -> {Blocked: None}     clients waiting for the key, oldest first
    ready_keys     {key: None}                               waited-for keys that changed, in that order
    watched_keys   watched_keys[key] -> {Watcher}            WATCH: marked when the key changes

Every look-up goes through `lookup`, which removes a key whose time has come and reports it to
`on_expired`, so that the engine can log a DEL. The clock is injected.

SCAN needs an order that insertions and deletions leave alone. Python's dict has none that can be
entered in the middle, so the first SCAN gives every key a slot number (`_slots`), and from then on
a key keeps its slot for as long as it lives: a cursor is a slot number, each call costs O(count),
and a key that is there during the whole scan is returned. Redis's own order depends on a random
hash seed, so no client can rely on it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

try:
    import cython
except ModuleNotFoundError:  # interpreted, Cython not installed
    from rillet import _cython as cython

from rillet.keyspace.clock import Clock


@cython.final
@cython.cclass
class Watcher:
    """What WATCH leaves at a key: `dirty` becomes True when any of the keys changes."""

    __slots__ = ("dirty", "keys")
    dirty: cython.bint
    keys: list

    def __init__(self) -> None:
        self.dirty = False
        self.keys: list[tuple[Any, bytes]] = []


@cython.final
@cython.cclass
class Database:
    """A database: look-up, change, expiry, and who waits for or watches which key."""

    __slots__ = (
        "index", "clock", "values", "expires", "blocking_keys", "ready_keys", "watched_keys", "avg_ttl",
        "on_expired", "on_ready", "on_deleted", "_slots", "_slot_of", "_free_slots", "_expire_walk",
    )  # fmt: skip

    def __init__(self, index: int, clock: Clock) -> None:
        self.index = index
        self.clock = clock
        self.values = {}
        self.expires = {}
        self.blocking_keys = {}
        self.ready_keys = {}
        self.watched_keys = {}
        self.avg_ttl = 0
        self.on_expired: Callable[[Any, bytes], None] | None = None
        self.on_ready: Callable[[Any], None] | None = None
        self._slots = None
        self._slot_of = {}
        self._free_slots = []
        self._expire_walk = []

    def __len__(self) -> int:
        """Return the number of keys, those included whose time has come but were not met yet. O(1)"""
        return len(self.values)

    # -- look-up -----------------------------------------------------------------------------------

    @cython.ccall
    def lookup(self, key: bytes) -> object:
        """Return the key's value, or None; a key whose time has come is removed first. O(1)"""
        if self.expires and self.expire_if_needed(key):
            return None
        return self.values.get(key)

    @cython.ccall
    def expire_if_needed(self, key: bytes) -> cython.bint:
        """Remove the key if its time has come, tell on_expired, and return whether it was (db.c: expireIfNeeded)."""
        when = self.expires.get(key)
        if when is None or when >= self.clock.now_ms():
            return False
        self.delete(key)
        if self.on_expired is not None:
            self.on_expired(self, key)
        return True

    # -- change ------------------------------------------------------------------------------------

    @cython.ccall
    def set(self, key: bytes, value: object, keep_ttl: cython.bint = False) -> object:
        """Put value at key, replacing what is there; the old value (or None) is returned. O(1)"""
        old: object = self.values.get(key)
        if old is None:
            if self._slots is not None:
                self._take_slot(key)
        elif not keep_ttl and self.expires:
            self.expires.pop(key, None)
        self.values[key] = value
        # Clients may wait for a key that is created or replaced by another type: let them look.
        if self.blocking_keys:
            self.signal_ready(key)
        return old

    @cython.ccall
    def delete(self, key: bytes) -> cython.bint:
        """Remove the key and its expiry; False where there is none. O(1)"""
        if self.values.pop(key, None) is None:
            return False
        if self.expires:
            self.expires.pop(key, None)
        if self._slots is not None:
            self._free_slot(key)
        if self.blocking_keys:
            self.signal_ready(key)
        return True

    def flush(self) -> int:
        """Remove every key and return how many there were; watchers of existing keys are marked. O(watched)"""
        removed = len(self.values)
        for key in list(self.watched_keys):
            if key in self.values:
                self.touch(key)
        waited = [key for key in self.blocking_keys if key in self.values]
        self.values = {}
        self.expires = {}
        self._slots = None
        self._slot_of = {}
        self._free_slots = []
        for key in waited:
            self.signal_ready(key)
        return removed

    def swap(self, other: Any) -> None:
        """Exchange keys and expiries with another database; waiting and watching clients stay (db.c: dbSwapDatabases)."""
        for one, two in ((self, other), (other, self)):
            for key in list(one.watched_keys):
                if key in one.values or key in two.values:
                    one.touch(key)
        self.values, other.values = other.values, self.values
        self.expires, other.expires = other.expires, self.expires
        self._slots, other._slots = None, None
        self._slot_of, other._slot_of = {}, {}
        self._free_slots, other._free_slots = [], []
        for database in (self, other):
            for key in list(database.blocking_keys):
                database.signal_ready(key)

    # -- expiry ------------------------------------------------------------------------------------

    @cython.ccall
    def get_expire(self, key: bytes) -> cython.longlong:
        """Return when the key expires (ms since the epoch), or -1. O(1)"""
        when = self.expires.get(key)
        return -1 if when is None else when

    @cython.ccall
    def set_expire(self, key: bytes, when: cython.longlong) -> cython.bint:
        """Let an existing key expire at `when` (ms since the epoch). O(1)"""
        assert key in self.values
        self.expires[key] = when
        return True

    @cython.ccall
    def persist(self, key: bytes) -> cython.bint:
        """Take the expiry off the key; False where it had none. O(1)"""
        return self.expires.pop(key, None) is not None

    def expire_some(self, limit: int = 20) -> int:
        """Look at the next `limit` keys with an expiry, remove those whose time has come, return how many went.

        The active half of expiry (expire.c: activeExpireCycle): keys that nobody looks up go too. The walk
        goes over a list of the keys taken at its start, so a whole round costs O(keys with an expiry).
        """
        if not self._expire_walk:
            self._expire_walk = list(self.expires)
        batch = self._expire_walk[-limit:]
        del self._expire_walk[-limit:]
        return sum(1 for key in batch if self.expire_if_needed(key))

    # -- watching and waiting ------------------------------------------------------------------------

    @cython.ccall
    def touch(self, key: bytes) -> cython.bint:
        """Mark every watcher of the key (db.c: signalModifiedKey). O(watchers)"""
        if self.watched_keys:
            watchers = self.watched_keys.get(key)
            if watchers is not None:
                for watcher in watchers:
                    watcher.dirty = True
        return True

    def watch(self, key: bytes, watcher: Watcher) -> None:
        """Let the watcher be marked when the key changes. O(1)"""
        if (self, key) not in watcher.keys:
            watcher.keys.append((self, key))
            self.watched_keys.setdefault(key, set()).add(watcher)

    @cython.ccall
    def signal_ready(self, key: bytes) -> cython.bint:
        """Note that a waited-for key changed; the engine serves its clients after the command (signalKeyAsReady)."""
        if self.blocking_keys and key in self.blocking_keys and key not in self.ready_keys:
            self.ready_keys[key] = None
            if self.on_ready is not None:
                self.on_ready(self)
        return True

    # -- walking -------------------------------------------------------------------------------------

    def live_keys(self) -> Iterator[bytes]:
        """Yield the keys whose time has not come, without removing any. O(keys)"""
        now = self.clock.now_ms()
        for key in list(self.values):
            when = self.expires.get(key)
            if when is None or when >= now:
                yield key

    def scan(self, cursor: int, count: int) -> tuple[int, list[bytes]]:
        """Return the next cursor (0 = the end) and the keys of the next `count` slots. O(count)"""
        if self._slots is None:
            self._number_keys()
        slots = self._slots
        assert slots is not None
        stop = min(cursor + count, len(slots))
        found = [key for key in slots[cursor:stop] if key is not None]
        return (0 if stop >= len(slots) else stop), found

    def random_key(self) -> bytes | None:
        """Return a key picked at random, or None; expired keys met on the way are removed. O(1) expected"""
        if self._slots is None:
            self._number_keys()
        slots = self._slots
        assert slots is not None
        while self.values:
            key = random.choice(slots)
            if key is not None and not self.expire_if_needed(key):
                return key
        return None

    @cython.cfunc
    def _number_keys(self) -> cython.bint:
        self._slots = list(self.values)
        self._slot_of = {key: slot for slot, key in enumerate(self._slots)}
        self._free_slots = []
        return True

    @cython.cfunc
    def _take_slot(self, key: bytes) -> cython.bint:
        if self._free_slots:
            slot = self._free_slots.pop()
            self._slots[slot] = key
        else:
            slot = len(self._slots)
            self._slots.append(key)
        self._slot_of[key] = slot
        return True

    @cython.cfunc
    def _free_slot(self, key: bytes) -> cython.bint:
        slot = self._slot_of.pop(key)
        self._slots[slot] = None
        self._free_slots.append(slot)
        # Random probing and scanning stay cheap only while the slots are not mostly holes.
        if len(self._free_slots) > 64 and len(self._free_slots) > 8 * len(self.values):
            self._slots = None
        return True

    def check(self) -> None:
        """Assert the invariants: expiries and slots belong to keys, every value holds its own."""
        assert all(key in self.values for key in self.expires)
        assert all(value is not None for value in self.values.values())
        for waiting in self.blocking_keys.values():
            assert waiting
        if self._slots is not None:
            assert {key for key in self._slots if key is not None} == set(self.values)
            assert all(self._slots[slot] == key for key, slot in self._slot_of.items())
        for value in self.values.values():
            value.check()

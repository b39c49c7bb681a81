"""Upkeep: what an engine does between commands, and the effects of deletions that no command made.

    timers, commands -> make_room, expire_cycle, rehash, defrag_step -> databases -> _evicted, _expired ... -> the log

The base of the engine (runtime/engine.py), which creates the attributes. It has the engine's conditions, too: they
change what may be deleted, and which commands are admitted (runtime/admission.py).
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

try:
    import cython
except ModuleNotFoundError:  # Cython is not installed: run interpreted
    from rillet import _cython as cython

from rillet.keyspace.clock import Clock
from rillet.keyspace.database import Database
from rillet.keyspace.defrag import IDLE, ActiveDefrag
from rillet.keyspace.eviction import FAIL, OK, Eviction
from rillet.keyspace.expire_cycle import SLICE, ExpireCycle
from rillet.keyspace.lazyfree import LazyFree
from rillet.keyspace.lru import AccessClock
from rillet.keyspace.rest_buffer import RestBuffer
from rillet.runtime import session_state
from rillet.runtime.blocking import Blocking
from rillet.runtime.channels import Channels
from rillet.runtime.field_expiry import FIELDS_AT_ONCE, expire_fields
from rillet.runtime.keyspace_events import CLASS, channels_of
from rillet.runtime.latency import LatencyMonitor
from rillet.runtime.pause import PAUSE_OFF
from rillet.runtime.propagation import Propagation
from rillet.runtime.replication import ReplicationState
from rillet.runtime.settings import Settings
from rillet.runtime.statistics import Statistics
from rillet.structs.integer_text import decimal
from rillet.types.stream.value import Stream

_PAUSED = cython.declare(cython.int, session_state.PAUSED)
_REFUSING = cython.declare(cython.int, session_state.REFUSING)
_BUSY = cython.declare(cython.int, session_state.BUSY)
_LOADING = cython.declare(cython.int, session_state.LOADING)
_FOLLOWS = cython.declare(cython.int, session_state.FOLLOWS)
_FULL = cython.declare(cython.int, session_state.FULL)
# Entries of each database in which a call of `rehash` looks for values that can rest.
_SWEPT = cython.declare(cython.Py_ssize_t, 1024)
# Milliseconds between two searches for expired producers of idempotent messages.
_IDMP_PERIOD = 1000
# Limits of the command log: nothing is logged; and the one below which each call is timed (ns).
_NEVER = cython.declare(cython.longlong, 2**62)
# While more than one part in so many of `maxmemory` waits to be freed, each run of the eviction frees some of it.
_PENDING_SHARE = cython.declare(cython.Py_ssize_t, 8)


@cython.cclass
class Upkeep:
    """Conditions, eviction, expiry, rehashing, defragmentation and keyspace events of one engine."""

    __slots__ = (
        "databases", "settings", "clock", "propagation", "blocking", "statistics", "_notify_events",
        "on_keyspace_event", "active_expire", "allow_access_expired", "replication", "channels", "conditions",
        "_buffer", "_idmp_expired", "_paused", "_refusal", "defrag", "expiry", "access", "lazyfree", "eviction",
        "modules", "keeps_expired", "importing", "_sees_expired", "_writes", "latency", "monitored_ns",
        "applying", "writing",
    )  # fmt: skip

    def __init__(self, settings: Settings, clock: Clock) -> None:
        self.conditions = 0
        self.settings = settings
        self.clock = clock
        self.statistics = Statistics()
        self.latency = LatencyMonitor(self.settings, self.clock)
        # Nanoseconds from which the latency monitor records an event; 2**62 while it is off.
        self.monitored_ns = 2**62
        self.propagation = Propagation(self.settings, self.clock)
        self.blocking = Blocking(self.clock, self.statistics, self.propagation)
        self.databases = [Database(index, self.clock) for index in range(self.settings.databases)]
        self.access = AccessClock(self.clock)
        self.lazyfree = LazyFree(self.clock)
        self._buffer = RestBuffer()
        for database in self.databases:
            database.access = self.access
            database.buffer = self._buffer
            database.lazy = self.lazyfree
            database.on_expired = self._expired
            database.on_ready = self.blocking.database_ready
            database.may_expire = self._may_expire
            database.may_delete = self._may_delete
        self.eviction = Eviction(self.databases, self.clock, self.access, self._evicted, self._trimmed)
        for database in self.databases:
            database.limit_growth(self.eviction)
        # While a command runs that must not delete expired keys, though they are missing for it.
        self.keeps_expired = False
        # Valkey's import-mode; and while a command runs in it, whether its client sees expired keys, and whether it
        # writes.
        self.importing = False
        self._sees_expired = False
        self._writes = False
        self.defrag = ActiveDefrag(self.databases, self.settings, self.clock, self._changes)
        self.channels = Channels()
        self._refusal: str | None = None
        # The loaded modules (rillet.modules.manager.Modules), or None before the first one is loaded.
        self.modules: Any = None
        self._notify_events = False
        self.on_keyspace_event: Callable[[Database, bytes, bytes, bytes], None] | None = None
        # While the engine follows a master. `applying`: a command of the master runs, for which no key has expired.
        # `writing`: a client's command writes to a writable replica.
        self.applying = False
        self.writing = False
        self._paused = PAUSE_OFF
        self.active_expire = True
        # Commands see expired keys and fields, which stay (DEBUG SET-ALLOW-ACCESS-EXPIRED).
        self.allow_access_expired = False
        self.replication = ReplicationState()
        self._idmp_expired = 0
        self.expiry = ExpireCycle(self._expired_batch)
        self.expiry.fields = self._expire_fields

    # -- conditions (runtime/session_state.py) -------------------------------------------------------

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _when(self, condition: cython.int, holds: cython.bint) -> cython.bint:
        self.conditions = (self.conditions | condition) if holds else (self.conditions & ~condition)
        return True

    @property
    def loading(self) -> bool:
        """True while a file is loaded."""
        return self.conditions & _LOADING != 0

    @loading.setter
    def loading(self, holds: bool) -> None:
        self._when(_LOADING, holds)

    @property
    def follows(self) -> bool:
        """True while the engine follows a master: expired keys wait for its deletions (runtime/replica.py)."""
        return self.conditions & _FOLLOWS != 0

    @follows.setter
    def follows(self, holds: bool) -> None:
        self._when(_FOLLOWS, holds)

    @property
    def busy(self) -> bool:
        """True while a script runs for longer than busy-reply-threshold: commands of other clients are refused."""
        return self.conditions & _BUSY != 0

    @busy.setter
    def busy(self, holds: bool) -> None:
        self._when(_BUSY, holds)

    @property
    def out_of_memory(self) -> bool:
        """True if the last run of the eviction could not make room."""
        return self.conditions & _FULL != 0

    @property
    def paused(self) -> int:
        """The commands that CLIENT PAUSE holds back: none, writes or all (the constants in runtime/pause.py)."""
        return self._paused

    @paused.setter
    def paused(self, kind: int) -> None:
        self._paused = kind
        self._when(_PAUSED, kind != PAUSE_OFF)

    @property
    def notify_events(self) -> bool:
        """True while keyspace events are published."""
        return self._notify_events

    @notify_events.setter
    def notify_events(self, wanted: bool) -> None:
        self._notify_events = wanted
        for database in self.databases:
            database.notifies = wanted

    @property
    def refusal(self) -> str | None:
        """The error reply for writes while they are refused, else None (persistence.write_gate)."""
        return self._refusal

    @refusal.setter
    def refusal(self, reason: str | None) -> None:
        self._refusal = reason
        self._when(_REFUSING, reason is not None)

    # -- eviction ------------------------------------------------------------------------------------

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def make_room(self) -> cython.bint:
        """Evict keys if the data is larger than `maxmemory`; return False if there is no room. Timers call this too.

        While clients are paused the data does not change (evict.c: isSafeToPerformEvictions).
        """
        if self.loading or self.paused or (self.follows and self.settings.replica_ignore_maxmemory):
            self._when(_FULL, False)
            self.eviction.running = False
            return True
        began: cython.longlong = self.clock.ticks() if self.monitored_ns < _NEVER else 0
        result: cython.int = self.eviction.run()
        if self.monitored_ns < _NEVER:
            self.latency.add(b"eviction-cycle", self.clock.ticks() - began)
        self._when(_FULL, result == FAIL)
        if result == OK and not self.lazyfree.pending_bytes and not self.blocking.ready:
            return True
        if _PENDING_SHARE * self.lazyfree.pending_bytes > self.eviction.limit:
            self.lazyfree.step()
        if self.blocking.ready:
            self.blocking.serve_ready()
        return not self.out_of_memory

    def _evicted(self, database: Database, key: bytes) -> None:
        """Publish and log an eviction (evict.c: performEvictions)."""
        if self.monitored_ns < _NEVER:
            compat = self.settings.compat
            event = b"evict-del" if compat.knows(80) and not compat.valkey else b"eviction-del"
            self.latency.add(event, self.eviction.deletion_ns)
        database.touch(key, True)
        if self.notify_events:
            self.keyspace_event(database, b"e", b"evicted", key)
        if self.propagation.log is not None:
            self.propagation.add(database.index, [b"UNLINK" if self.eviction.lazy else b"DEL", key])

    def _trimmed(self, database: Database, key: bytes, stream: Stream) -> None:
        """Publish and log that eviction has trimmed a stream, as the exact XTRIM with the same result."""
        database.touch(key, True)
        self.propagation.dirty += 1
        if self.notify_events:
            self.keyspace_event(database, b"t", b"xtrim", key)
        if self.propagation.log is not None:
            self.propagation.add(database.index, [b"XTRIM", key, b"MAXLEN", b"=", decimal(stream.length)])

    def used_memory(self) -> int:
        """Return the bytes in use: data, values that wait to be freed, buffers. O(databases)"""
        return int(self.eviction.counted() + self.lazyfree.pending_bytes)

    # -- expiry --------------------------------------------------------------------------------------

    def _expired(self, database: Database, key: bytes) -> None:
        """Count an expired key, mark its watchers, log the DEL (expire.c: deleteExpiredKeyAndPropagate)."""
        self.statistics.expired_keys += 1
        if self.monitored_ns < _NEVER:
            self.latency.add(b"expire-del", self.clock.ticks() - self.latency.began)
        database.touch(key, True)
        if self.notify_events:
            self.keyspace_event(database, b"x", b"expired", key)
        # The DEL is logged even while writes are refused: the log buffers it until its file can be written again.
        if self.propagation.log is not None and not self.loading:
            name = b"UNLINK" if self.settings.lazyfree_lazy_expire else b"DEL"
            self.propagation.add(database.index, [name, key])

    def _expired_batch(self, database: Database, count: int, keys: list[bytes]) -> None:
        """Do `_expired` for keys that the expiry cycle deleted; `keys` may be empty if there is no log."""
        self.statistics.expired_keys += count
        if self.propagation.log is not None:
            name = b"UNLINK" if self.settings.lazyfree_lazy_expire else b"DEL"
            self.propagation.add_deletions(database.index, name, keys)

    def _expire_fields(self, database: Database, key: bytes, now: int) -> None:
        """Remove some expired fields of a hash, for the expiry cycle."""
        expire_fields(self, database, key, now, FIELDS_AT_ONCE, True)  # type: ignore[arg-type]

    def _may_expire(self) -> bool:
        return (not self.loading and not self.applying and not self.allow_access_expired
                and not self._sees_expired)  # fmt: skip

    def _may_delete(self) -> bool:
        # On a replica, the master deletes expired keys; in import-mode, the source does. Another client's write
        # replaces them (expire.c: getExpirationPolicyWithFlags).
        if self.monitored_ns < _NEVER:
            self.latency.began = self.clock.ticks()  # the deletion follows, then `_expired`
        return (not self.paused and not self.keeps_expired and (not self.follows or self.writing)
                and (not self.importing or self._writes))  # fmt: skip

    @property
    def keeps_past(self) -> bool:
        """True if a key with a time in the past is stored, instead of deleted (checkAlreadyExpired)."""
        return self.loading or self.importing

    def expire_cycle(self, slice_ns: int = SLICE) -> int:
        """Begin the slow expiry cycle, or continue it for a slice; return the number of deleted keys.

        While `expiry.unfinished` is true, the caller should continue after other work.
        """
        if self.follows:
            return self._expire_own()
        if self.loading or self.paused or not self.active_expire or self.importing:
            return 0
        effort, hz = self.settings.active_expire_effort, self.settings.hz
        self.expiry.start(len(self.databases), effort, hz, self.clock.ticks())
        removed = self._expire(slice_ns)
        now = self.clock.now_ms()
        if now - self._idmp_expired >= _IDMP_PERIOD:
            self._idmp_expired = now
            for database in self.databases:
                database.expire_idmp(now)
        if self.blocking.ready:
            self.blocking.serve_ready()
        return removed

    def expire_fast(self) -> None:
        """Run the fast expiry cycle if many keys are expired; for the end of a round of commands (beforeSleep)."""
        if self.loading or self.paused or self.follows or not self.active_expire or self.importing:
            return
        effort = self.settings.active_expire_effort
        if self.expiry.start_fast(len(self.databases), effort, self.clock.ticks()):
            self._expire(2**62)
            if self.blocking.ready:
                self.blocking.serve_ready()

    def _expire(self, slice_ns: int) -> int:
        before = self.statistics.expired_keys
        # One by one, each with `_expired`, if somebody receives the events or deletions are measured.
        self.expiry.events = self.notify_events or self.monitored_ns < _NEVER
        self.expiry.names = self.propagation.log is not None
        self.expiry.rehashes = self.settings.activerehashing
        began = self.clock.ticks()
        self.expiry.step(self.databases, self.clock, self.settings.active_expire_effort, slice_ns)
        self.latency.add(b"expire-cycle", self.clock.ticks() - began)
        removed = self.statistics.expired_keys - before
        self.statistics.expired_keys_active += removed
        return removed

    def _expire_own(self) -> int:
        """Delete expired keys that clients of a writable replica have created; its master deletes the others."""
        if self.loading or self.paused or not self.active_expire or not self.replication.own_keys:
            return 0
        removed = 0
        self.writing = True
        try:
            for name in list(self.replication.own_keys):
                database = self.databases[name[0]]
                removed += database.expire_if_needed(name[1])
                if database.get_expire(name[1]) < 0:
                    del self.replication.own_keys[name]
        finally:
            self.writing = False
        if self.blocking.ready:
            self.blocking.serve_ready()
        return removed

    def expire_all(self) -> None:
        """Delete every expired key at once, for clocks that a test moves. O(keys with an expiry)"""
        for database in self.databases:
            now = self.clock.now_ms()
            for key in [key for key, when in database.expiries() if when < now]:
                database.expire_if_needed(key)
            while due := database.subexpires.due(now, 1):
                expire_fields(self, database, due[0], now, sys.maxsize, True)  # type: ignore[arg-type]
        if self.blocking.ready:
            self.blocking.serve_ready()

    def rehash(self, microseconds: int) -> None:
        """Shrink and rehash the tables of the keyspace, until the time has passed (server.c: databasesCron)."""
        for database in self.databases:
            database.rest_oldest()
            database.rest_some(_SWEPT)
            database.keys.shrink_if_needed()
            database.expires.shrink_if_needed()
        if not self.settings.activerehashing:
            return
        stop = self._now_us() + microseconds
        for database in self.databases:
            for table in (database.keys, database.expires):
                if table.rehashing and table.rehash_for(stop - self._now_us(), self._now_us):
                    return

    def _now_us(self) -> int:
        return int(self.clock.ticks()) // 1000

    # -- defragmentation -----------------------------------------------------------------------------

    def _changes(self) -> int:
        return int(self.propagation.dirty)

    def defrag_step(self) -> float:
        """Compact values for half a millisecond; return the seconds until the next call. Timers call this."""
        if self.loading or self.paused:
            return IDLE
        began = self.clock.ticks()
        pause = float(self.defrag.run())
        self.latency.add(b"active-defrag-cycle", self.clock.ticks() - began)
        return pause

    # -- keyspace events -----------------------------------------------------------------------------

    def keyspace_event(
        self, database: Database, kind: bytes, event: bytes, key: bytes, subkeys: list[bytes] | None = None
    ) -> None:
        """Publish a keyspace event if the settings name its class (notify.c: notifyKeyspaceEventWithSubkeys)."""
        if self.modules is not None:
            self.modules.keyspace_event(database, kind, event, key)
        if self.on_keyspace_event is not None:
            self.on_keyspace_event(database, kind, event, key)
        flags = self.settings.notify_keyspace_events.flags
        if flags & CLASS[kind] and (self.channels.channels or self.channels.patterns):
            for channel, message in channels_of(flags, database.index, event, key, subkeys):
                self.channels.publish(channel, message)

    def _missed(self, database: Database, key: bytes) -> None:
        self.keyspace_event(database, b"m", b"keymiss", key)

    def _new(self, database: Database, key: bytes) -> None:
        if not self.loading:
            self.keyspace_event(database, b"n", b"new", key)

    def _overwritten(self, database: Database, key: bytes, old: object, new: object) -> None:
        self.keyspace_event(database, b"o", b"overwritten", key)
        if type(old) is not type(new):
            self.keyspace_event(database, b"c", b"type_changed", key)


__all__ = ["Upkeep"]

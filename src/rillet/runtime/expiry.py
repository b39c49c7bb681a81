"""The expiry of keys, and of fields, by time: the cycle that deletes them, and what follows from a deletion.

    timers -> expire_cycle -> ExpireCycle (keyspace/expire_cycle.py) ─┐
    a command that finds an expired key -> _may_expire, _may_delete ──┴─> _expired -> watchers, events, the log

A part of the engine. On a replica the keys wait for the deletions of the master, in import-mode for the source.
"""

from __future__ import annotations

import sys

from rillet._cython import cython, public, readonly
from rillet.keyspace.clock import Clock
from rillet.keyspace.database import Database
from rillet.keyspace.expire_cycle import SLICE, ExpireCycle
from rillet.runtime.field_expiry import FIELDS_AT_ONCE, expire_fields
from rillet.runtime.settings.settings import Settings
from rillet.runtime.upkeep import Upkeep

# Milliseconds between two searches for expired producers of idempotent messages.
_IDMP_PERIOD = 1000
_NEVER = cython.declare(cython.longlong, 2**62)


@cython.cclass
class Expiry(Upkeep):
    """The expiry of one engine."""

    __slots__ = (
        "active_expire", "allow_access_expired", "applying", "expiry", "importing", "keeps_expired", "writing",
        "_idmp_expired", "_sees_expired", "_writes",
    )  # fmt: skip
    active_expire: public[cython.bint]
    allow_access_expired: public[cython.bint]
    applying: public[cython.bint]
    expiry: readonly[ExpireCycle]
    importing: readonly[cython.bint]
    keeps_expired: public[cython.bint]
    writing: public[cython.bint]
    _idmp_expired: cython.longlong
    _sees_expired: cython.bint
    _writes: cython.bint

    def __init__(self, settings: Settings, clock: Clock) -> None:
        Upkeep.__init__(self, settings, clock)
        self.active_expire = True
        # Commands see expired keys and fields, which stay (DEBUG SET-ALLOW-ACCESS-EXPIRED).
        self.allow_access_expired = False
        # While a command runs that must not delete expired keys, though they are missing for it.
        self.keeps_expired = False
        # While the engine follows a master. `applying`: a command of the master runs, for which no key has expired.
        # `writing`: a client's command writes to a writable replica.
        self.applying = False
        self.writing = False
        # Valkey's import-mode; and while a command runs in it, whether its client sees expired keys, and whether it
        # writes.
        self.importing = False
        self._sees_expired = False
        self._writes = False
        self._idmp_expired = 0
        self.expiry = ExpireCycle(self._expired_batch)
        self.expiry.fields = self._expire_fields
        for database in self.databases:
            database.on_expired = self._expired
            database.may_expire = self._may_expire
            database.may_delete = self._may_delete

    def _expired(self, database: Database, key: bytes) -> None:
        """Count an expired key, mark its watchers, log the DEL (expire.c: deleteExpiredKeyAndPropagate)."""
        self.stats.expired_keys += 1
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
        self.stats.expired_keys += count
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
        before = self.stats.expired_keys
        # One by one, each with `_expired`, if somebody receives the events or deletions are measured.
        self.expiry.events = self.notify_events or self.monitored_ns < _NEVER
        self.expiry.names = self.propagation.log is not None
        self.expiry.rehashes = self.settings.activerehashing
        began = self.clock.ticks()
        self.expiry.step(self.databases, self.clock, self.settings.active_expire_effort, slice_ns)
        self.latency.add(b"expire-cycle", self.clock.ticks() - began)
        removed = self.stats.expired_keys - before
        self.stats.expired_keys_active += removed
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

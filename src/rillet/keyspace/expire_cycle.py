"""The active expiry cycle: deletes expired keys that no command accesses (Redis: expire.c, activeExpireCycle).

A cycle examines 16 databases at most. In each it samples 20 keys that have an expiry, from adjacent buckets, and
deletes the expired ones. It repeats this while more than 10 % of the sample were expired:

    expires   [ . | k | . | k k | . | k | ... ]         expires_cursor goes round the table, in the order of SCAN
                    `----- 20 keys -----'               4 expired: 20 %, so the cycle takes the next 20

    slow      `hz` times a second, up to 25 % of the time
    fast      between two rounds of commands, up to 1 ms in every 2, and only while many keys are known to be expired

`active-expire-effort` (1 to 10) raises the keys of a sample, the times, and lowers the 10 %.

Redis runs a slow cycle in one piece, 25 ms at `hz` 10, while every client waits. Here it runs in slices of 1 ms. Its
owner calls `step` again after the clients' turn. Between two slices, `unfinished` is true, and `pause` says how long
the owner waits, so that the cycle takes the same share of the time. A slice that began late shortens the next pause:

    start     step      pause     step      pause  step
      |       [ 1 ms ]    3 ms    [ 1 ms, 1 ms late ]  2 ms  [ 1 ms ]  ...          25 ms used when 100 ms have passed

Each database's hashes with expired fields come first. They are ordered by their next expiry, so nothing is sampled.

A table of which less than 1 % is in use is not sampled until it has shrunk: the cycle would search empty buckets. With
`activerehashing`, the cycle spends its time on that; otherwise it continues with the next database.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rillet._cython import cython, public, readonly
from rillet.keyspace.clock import Clock
from rillet.keyspace.database import Database
from rillet.structs.dict import Dict

SLICE = 1_000_000  # nanoseconds of one step

_DATABASES = 16  # of one cycle (CRON_DBS_PER_CALL)
_INITIAL_BUCKETS = 4
_BUCKETS_PER_KEY = 20
_TIDIED = 50  # entries between two looks at the clock
_REHASHED = 100  # buckets between two looks at the clock


@cython.final
@cython.cclass
class ExpireCycle:
    """The state of the cycle between two steps, and its figures for INFO.

    stale_percent: the running average of expired keys among the sampled ones (expired_stale_perc). capped: how often a
    cycle reached its limit of time (expired_time_cap_reached_count). used: nanoseconds of all cycles.

    rehashes: the cycle may rehash a sparse table (activerehashing).

    on_time: keys are deleted in the millisecond of their expiry, as in Redis 8; otherwise a millisecond later.

    fields: removes expired fields of a registered hash (Database.subexpires) and registers it for a later time.

    The keys of a sample are deleted together, and `batches` receives their number, and their names if `names`. With
    `events`, or without `batches`, they are deleted one by one, each with the database's `on_expired`.
    """

    __slots__ = (
        "capped", "stale_percent", "unfinished", "used", "_acceptable", "_began", "_budget", "_expired", "_last_fast",
        "_left", "_next", "_sampled", "_share", "_spent", "_was_capped", "batches", "events", "fields", "names",
        "on_time", "rehashes",
    )  # fmt: skip
    capped: readonly[cython.longlong]
    batches: public[Callable[[Database, int, list[bytes]], None] | None]
    fields: public[Callable[[Database, bytes, int], None] | None]
    events: public[cython.bint]
    names: public[cython.bint]
    on_time: public[cython.bint]
    rehashes: public[cython.bint]
    stale_percent: readonly[cython.double]
    unfinished: readonly[cython.bint]
    used: readonly[cython.longlong]
    _began: cython.longlong
    _budget: cython.longlong
    _expired: cython.longlong
    _last_fast: cython.longlong
    _left: cython.Py_ssize_t
    _acceptable: cython.int
    _next: cython.Py_ssize_t
    _sampled: cython.longlong
    _share: cython.longlong
    _spent: cython.longlong
    _was_capped: cython.bint

    def __init__(self, batches: Callable[[Database, int, list[bytes]], None] | None = None) -> None:
        self.batches = batches
        self.fields = None
        self.events = self.names = self.on_time = self.rehashes = False
        self.stale_percent = 0.0
        self.capped = 0
        self.used = 0
        self.unfinished = False
        self._next = 0
        self._left = 0
        self._budget = 0
        self._sampled = 0
        self._expired = 0
        self._was_capped = False
        self._last_fast = 0
        self._acceptable = 10
        self._began = 0
        self._spent = 0
        self._share = share(1)

    @property
    def pressing(self) -> bool:
        """Whether many keys are known to be expired, so that a fast cycle is worth its time."""
        return not self.unfinished and (self._was_capped or self.stale_percent >= self._acceptable)

    def start(self, count: int, effort: int, hz: int, now: int) -> None:
        """Begin a slow cycle over some of `count` databases, unless one is unfinished.

        now: nanoseconds (Clock.ticks).
        """
        if self.unfinished:
            return
        self._share = share(effort)
        self._began = now
        self._begin(count, self._share * 10_000_000 // hz)
        self._acceptable = 11 - effort

    def pause(self, now: int) -> int:
        """Return the nanoseconds until the next slice of a slow cycle, 0 if it is due. now: as for `start`"""
        return max(self._began + self._spent * 100 // self._share - now, 0)

    def start_fast(self, count: int, effort: int, now: int) -> bool:
        """Begin a fast cycle if many keys are expired and the last one is long enough ago; return whether it began.

        now: nanoseconds (Clock.ticks).
        """
        duration = 1_000_000 + 250_000 * (effort - 1)
        if not self.pressing or now < self._last_fast + 2 * duration:
            return False
        self._last_fast = now
        self._begin(count, duration)
        return True

    def _begin(self, count: int, budget: int) -> None:
        self._left = count if self._was_capped else min(count, _DATABASES)
        self._budget = max(budget, 1)
        self._spent = 0
        self._sampled = self._expired = 0
        self._was_capped = False
        self.unfinished = True

    @cython.ccall
    def step(
        self, databases: list[Any], clock: Clock, effort: cython.int, limit: cython.longlong = SLICE
    ) -> cython.bint:
        """Continue the cycle for `limit` nanoseconds at most; return `unfinished`."""
        if not self.unfinished:
            return False
        began: cython.longlong = clock.ticks()
        stop: cython.longlong = began + min(limit, self._budget)
        while self._left > 0:
            database: Database = databases[self._next % len(databases)]
            if not self._expire(database, clock, effort, stop):
                break
            self._next += 1
            self._left -= 1
        spent: cython.longlong = clock.ticks() - began
        self._budget -= spent
        self._spent += spent
        self.used += spent
        if self._left > 0 and self._budget > 0:
            return True
        if self._left > 0:
            self._was_capped = True
            self.capped += 1
            self._next += 1  # the next cycle begins at the next database
        found: cython.double = 100.0 * self._expired / self._sampled if self._sampled else 0.0
        self.stale_percent = found * 0.05 + self.stale_percent * 0.95
        self.unfinished = False
        return False

    @cython.cfunc
    def _expire(
        self, database: Database, clock: Clock, effort: cython.int, stop: cython.longlong
    ) -> cython.bint:
        """Sample a database until few of its keys are expired; return False if the time ended first."""
        acceptable: cython.Py_ssize_t = 11 - effort
        most: cython.Py_ssize_t = 20 + 5 * (effort - 1)
        if database.subexpires.count() and not self._expire_fields(database, clock, stop):
            return False
        while True:
            expires: Dict = database.expires
            count: cython.Py_ssize_t = expires.used0 + expires.used1
            if count == 0:
                database.average_ttl = 0
                return self._tidy(database, clock, stop)
            buckets: cython.Py_ssize_t = expires.buckets
            if buckets > _INITIAL_BUCKETS and count * 100 // buckets < 1:
                if self.rehashes and not expires.pauses:
                    expires.shrink_if_needed()
                    while expires.rehash(_REHASHED):
                        if clock.ticks() >= stop:
                            return False
                if expires.buckets >= buckets:  # it cannot shrink now: a child saves, or a command walks through it
                    return self._tidy(database, clock, stop)
                continue
            now: cython.longlong = clock.now_ms()
            wanted: cython.Py_ssize_t = min(count, most)
            buckets = _BUCKETS_PER_KEY * wanted
            cursor: cython.ulonglong = database.expires_cursor
            sampled: cython.Py_ssize_t = 0
            lives: cython.Py_ssize_t = 0
            total: cython.longlong = 0
            due: list[Any] = []
            while sampled < wanted and buckets > 0:
                buckets -= 1
                found: list[Any] = []
                cursor = expires.scan_step(cursor, found)
                n: cython.Py_ssize_t
                for n in found:
                    sampled += 1
                    life: cython.longlong = expires.number(n) - now
                    if life < 0 or (life == 0 and self.on_time):
                        due.append(n)
                    elif life > 0:
                        lives += 1
                        total += life
            database.expires_cursor = cursor
            if lives:
                mean: cython.longlong = total // lives
                if database.average_ttl == 0:
                    database.average_ttl = mean
                database.average_ttl = database.average_ttl // 50 * 49 + mean // 50
            removed: cython.Py_ssize_t = self._delete(database, due) if due else 0
            self._sampled += sampled
            self._expired += removed
            if sampled and removed * 100 // sampled <= acceptable:
                return self._tidy(database, clock, stop)
            if clock.ticks() >= stop:
                return False

    @cython.cfunc
    def _expire_fields(self, database: Database, clock: Clock, stop: cython.longlong) -> cython.bint:
        """Remove the expired fields of hashes; return False if the time ended first (activeSubexpiresCycle)."""
        now: cython.longlong = clock.now_ms()
        if self.fields is None or not self._may_delete(database):
            return True
        while True:
            due: list[bytes] = database.subexpires.due(now, 1)
            if not due:
                return True
            self.fields(database, due[0], now)
            if clock.ticks() >= stop:
                return False

    @cython.cfunc
    def _may_delete(self, database: Database) -> cython.bint:
        """Return whether expired keys and fields may be deleted now."""
        if database.may_expire is not None and not database.may_expire():
            return False
        return database.may_delete is None or database.may_delete()

    @cython.cfunc
    def _tidy(self, database: Database, clock: Clock, stop: cython.longlong) -> cython.bint:
        """Fill the gaps that deletions left, while this slice has time; the next cycle continues. Return True."""
        while database.tidy(_TIDIED) and clock.ticks() < stop:
            pass
        return True

    @cython.cfunc
    def _delete(self, database: Database, due: list[Any]) -> cython.Py_ssize_t:
        """Delete the keys of due entries; return their number."""
        if not self._may_delete(database):
            return 0
        if self.batches is not None and not self.events:
            keys: list[bytes] = database.expire_entries(due, self.names)
            self.batches(database, len(due), keys)
            return len(due)
        removed: cython.Py_ssize_t = 0
        for key in [database.expires.entry_key(n) for n in due]:
            if database.expire_if_needed(key):
                removed += 1
            elif self.on_time and database.delete(key, True):
                removed += 1
                if database.on_expired is not None:
                    database.on_expired(database, key)
        return removed


def share(effort: int) -> int:
    """Return the share of the time that slow cycles may take, in percent."""
    return 25 + 2 * (effort - 1)

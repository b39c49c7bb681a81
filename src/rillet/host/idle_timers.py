"""IdleTimers: the timers of an engine in memory, whose thread runs only while work waits.

A server runs its timers always. A store in memory has no loop, and an application may keep many stores, so nothing runs
until the engine has work: it calls a function that starts the thread.

    a key gets an expiry       no key is due    the thread sleeps until the first one; a key that is due sooner wakes it
                               a key is due     a round every 1/hz second, until no key is due
    large values are dropped   a step of the lazy freeing every millisecond, until none waits
    the data exceeds           a step of the eviction every millisecond, until it fits
    `maxmemory`
    `activedefrag` is yes      steps of the defragmentation, with its own pauses
    a stream has a retention   a step every 1/hz second, until no stream has one
    a module posts a call      the call (rillet.host.memory_services)

The engine calls in the middle of a command, during which no signal handler may run, so the function must not be Python
code: `TimerThread.starter` is the start of a thread, in C. The lock is free between two steps.

A forked child has no thread, and makes timers anew (`MemoryBackend.after_fork`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from rillet.host.timers import EngineTimers
from rillet.keyspace.database import NEVER_DUE
from rillet.keyspace.lazyfree import PAUSE
from rillet.runtime.engine import Engine
from rillet.timer_thread import TimerThread

_FAILURE = "the work of a store between its commands failed; it continues with the next command"
_ALWAYS = 2**63 - 1  # every key is due before this time
_REHASH_US = 1000  # microseconds of rehashing before a round: the cycle passes over sparse tables
_MOST_COUNTED = 10_000  # keys with an expiry, among which the first one to expire is searched
_LONGEST = 60.0  # seconds that the thread sleeps at most, because the system's clock may be set


class IdleTimers(EngineTimers):
    """The work of one engine in memory, in a thread that ends with the work.

    expires: delete expired keys that no command accesses. sleeps_until: the time in ms at which the first key is due,
    while no key is due sooner.
    """

    def __init__(self, engine: Engine, lock: Any, *, expires: bool = True) -> None:
        super().__init__(engine, lock, lambda: None, lambda: engine.settings.hz)
        self.thread = TimerThread(_FAILURE, self._failed)
        self._later = self.thread.later
        self.sleeps_until: int | None = None
        lazyfree, eviction = engine.lazyfree, engine.eviction
        # True only in a forked child, which has no thread yet.
        frees, evicts, due = lazyfree.pending > 0, eviction.running, expires and bool(self._expiring())
        retains = expires and self._retains
        self._failed()
        lazyfree.on_pending = self.thread.starter(self._free)
        eviction.on_unfinished = self.thread.starter(self._evict)
        engine.defrag.on_enabled = self._defragment_soon
        if expires:
            self._notify(_ALWAYS)
            engine.on_retain = self.thread.starter(self._retain)
        with contextlib.suppress(RuntimeError):  # no thread can be started
            if due:
                self._after(0, self._round)
            if retains:
                self._after(0, self._retain)
            if frees:
                self.free_soon()
                lazyfree.running = True
            if evicts:
                self.evict_soon()
                eviction.running = True
            self._defragment_soon()

    def _failed(self) -> None:
        """Let the next command that makes work start it again."""
        self._engine.lazyfree.running = self._engine.eviction.running = False

    # -- expired keys --------------------------------------------------------------------------------

    def _notify(self, before: int) -> None:
        """Let the databases start a round once a key gets an expiry before that time. The caller holds the lock."""
        start: Callable[[], object] | None = None if before == NEVER_DUE else self.thread.starter(self._round)
        for database in self._engine.databases:
            database.on_expiry = start
            database.notify_before = before

    def _expiring(self) -> list[Any]:
        return [database for database in self._engine.databases if database.expires or database.subexpires]

    def _round(self) -> None:
        """Delete expired keys; the next round follows when a key may be due."""
        scheduled = self._timers.pop(self._round, None)
        if scheduled is not None:
            scheduled.cancel()
        pause: float | None = 1 / self._hz()
        try:
            with self._guard:
                self._engine.rehash(_REHASH_US)
                self._expire_cycle()
                pause = self._pause(1 / self._hz())
        finally:
            if pause is not None:
                self._after(pause, self._round)

    def _pause(self, period: float) -> float | None:
        """Return the seconds until the next round, None if no key has an expiry. The caller holds the lock."""
        self.sleeps_until = None
        expiring = self._expiring()
        if not expiring:
            self._notify(_ALWAYS)
            return None
        now = self._engine.clock.now_ms()
        if sum(len(database.expires) for database in expiring) > _MOST_COUNTED:
            first = now
        else:
            times = [when for database in expiring for _, when in database.expiries()]
            times += [database.subexpires.earliest() for database in expiring if database.subexpires]
            first = min(times)
        seconds = (first + 1 - now) / 1000  # a key is deleted in the millisecond after its expiry
        if seconds <= period:
            self._notify(NEVER_DUE)
            return period
        self._notify(first)
        self.sleeps_until = first
        return min(seconds, _LONGEST)

    # -- the other work ------------------------------------------------------------------------------

    def _retain(self) -> None:
        """Do one step of the retention; the next one follows as long as a stream has a policy."""
        scheduled = self._timers.pop(self._retain, None)
        if scheduled is not None:
            scheduled.cancel()
        pause: float | None = 1 / self._hz()
        try:
            with self._guard:
                if not self._retains:
                    pause = None
                elif self._retain_step():
                    pause = PAUSE
        finally:
            if pause is not None:
                self._after(pause, self._retain)

    def evict_soon(self) -> None:
        """Continue the eviction after a pause, in which other threads get the lock."""
        if self._evict not in self._timers:
            self._after(PAUSE, self._evict)

    def _defragment_soon(self) -> None:
        if self._engine.settings.activedefrag and self._defragment not in self._timers:
            self._after(0, self._defragment)

    def _defragment(self) -> None:
        super()._defragment()
        with self._guard:
            if not self._engine.settings.activedefrag and (timer := self._timers.pop(self._defragment, None)):
                timer.cancel()

    def close(self) -> None:
        """End the thread. The caller holds the lock."""
        self._engine.lazyfree.on_pending = self._engine.eviction.on_unfinished = self._engine.defrag.on_enabled = None
        self._engine.on_retain = None
        self._notify(NEVER_DUE)
        self.stop()
        self.thread.end()

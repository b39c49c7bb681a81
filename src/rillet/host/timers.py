"""EngineTimers: the work of an engine that no command asks for, on the timers of any loop (server.c: serverCron).

    hz times a second    rehash, expire, evict, free, apply the retention of streams, write the log; then the jobs of
                         files and of sockets
    between two runs     the rest of an expiry cycle, an eviction, a freeing or a retention, each after a pause in which
                         commands run
    with its own pauses  the defragmentation

A server gives the timers of its event loop (rillet.server.server), the owner of a directory those of its thread, as
long as no socket is in use (rillet.store.sharing.owner_thread). An engine in memory has a thread only while work waits
(rillet.host.idle_timers).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

from rillet.keyspace.defrag import IDLE
from rillet.keyspace.helper_keys import RETENTION
from rillet.keyspace.lazyfree import PAUSE
from rillet.runtime.engine import Engine

if TYPE_CHECKING:
    from rillet.host.retention import RetentionSteps

_REHASH_US = 1000  # microseconds of rehashing per run of the periodic jobs
Job = Callable[[], object]


class Cancellable(Protocol):
    """A call that was scheduled."""

    def cancel(self) -> None:
        """Do not make the call."""


class EngineTimers:
    """The periodic and the postponed work of one engine. One thread runs all of it.

    guard: held while the engine is used. flush: writes the log, with the guard held. hz: returns the runs per second.
    early, jobs: called in each run, with the guard held: before and after the work of the engine. paused: skip the runs
    and the defragmentation (DEBUG PAUSE-CRON).
    """

    def __init__(self, engine: Engine, guard: AbstractContextManager[Any], flush: Job, hz: Callable[[], int]) -> None:
        self._engine = engine
        self._guard = guard
        self._flush = flush
        self._hz = hz
        self._later: Callable[[float, Job], Cancellable]
        self._timers: dict[Job, Cancellable] = {}
        self._retention: RetentionSteps | None = None
        self._expiry_due = False  # the next cycle is due, and the last one is unfinished
        self.early: list[Job] = []
        self.jobs: list[Job] = []
        self.paused = False

    def start(self, later: Callable[[float, Job], Cancellable]) -> None:
        """Begin; later(seconds, function) makes the calls in the thread that runs all of them."""
        self._later = later
        self._after(0, self._tick)
        self._after(0, self._defragment)

    def stop(self) -> None:
        """Make no more calls."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def _after(self, seconds: float, function: Job) -> None:
        self._timers[function] = self._later(seconds, function)

    def _tick(self) -> None:
        # The loop logs an exception of a job; the timer is set first, so that the runs continue.
        self._after(1 / self._hz(), self._tick)
        if self.paused:
            return
        engine = self._engine
        began = engine.clock.ticks()
        engine.mstime = engine.clock.now_ms()
        with self._guard:
            for job in self.early:
                job()
            engine.rehash(_REHASH_US)
            engine.memory.take_peak()
            engine.tracking.make_room()
            if engine.eviction.running:
                self.evict_soon()
            self._expire_cycle()
            self.free_soon()
            self._retain_once()
            if engine.log is not None:
                self._flush()
            for job in self.jobs:
                job()
        engine.stats.cron_ns += engine.clock.ticks() - began

    def _defragment(self) -> None:
        """Do one step of the defragmentation, and schedule the next one."""
        pause = IDLE
        try:
            if not self.paused:
                with self._guard:
                    pause = self._engine.defrag_step()
        finally:
            self._after(pause, self._defragment)

    def free_soon(self) -> None:
        """Begin the lazy freeing in the next iteration of the loop, if values wait."""
        if self._engine.lazyfree.pending and self._free not in self._timers:
            self._after(0, self._free)

    def _free(self) -> None:
        """Do one step of the lazy freeing, and schedule the next one while values wait."""
        self._timers.pop(self._free, None)
        with self._guard:
            if self._engine.lazyfree.step():
                self._after(PAUSE, self._free)

    def _retain_once(self) -> None:
        """Do one step of the retention; the rest of it follows after a pause. The caller holds the guard."""
        if self._retain not in self._timers and self._retains and self._retain_step():
            self._after(PAUSE, self._retain)

    @property
    def _retains(self) -> bool:
        """Whether a stream has a policy. O(databases)"""
        return any(database.keys.find(RETENTION) >= 0 for database in self._engine.databases)

    def _retain_step(self) -> bool:
        """Do one step of the retention; return whether there is more to do."""
        if self._retention is None:
            from rillet.host.retention import RetentionSteps  # most stores do not need it

            self._retention = RetentionSteps(self._engine)
        return self._retention.step()

    def _retain(self) -> None:
        self._timers.pop(self._retain, None)
        if self.paused:
            return
        with self._guard:
            self._retain_once()
            if self._engine.log is not None:
                self._flush()

    def evict_soon(self) -> None:
        """Continue the eviction in the next iteration of the loop (evict.c: startEvictionTimeProc)."""
        if self._evict not in self._timers:
            self._after(0, self._evict)

    def _evict(self) -> None:
        self._timers.pop(self._evict, None)
        with self._guard:
            self._engine.make_room()
            if self._engine.eviction.running:
                self.evict_soon()
            if self._engine.log is not None:
                self._flush()

    def _expire_cycle(self) -> None:
        """Begin an expiry cycle, once the last one has ended."""
        if self._continue_expiry in self._timers:
            self._expiry_due = True
        else:
            self._expire()

    def _expire(self) -> None:
        """Begin or continue the expiry cycle; the rest follows after a pause, in which clients are served."""
        engine = self._engine
        engine.expire_cycle()
        if engine.paused or not engine.active_expire:
            return
        if engine.expiry.unfinished:
            self._after(engine.expiry.pause(engine.clock.ticks()) / 1e9, self._continue_expiry)
        elif self._expiry_due:
            self._expiry_due = False
            self._after(0, self._continue_expiry)

    def _continue_expiry(self) -> None:
        self._timers.pop(self._continue_expiry, None)
        with self._guard:
            self._expire()
            if self._engine.log is not None:
                self._flush()

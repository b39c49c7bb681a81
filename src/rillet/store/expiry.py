"""ActiveExpiry: deletes expired keys of a store in memory that no command accesses (Redis: server.c, databasesCron).

A store in a directory has an event loop, which runs the engine's expiry cycle `hz` times a second. A store in memory
has none, and an application may never access its expired keys again. So a thread runs the cycle, but only while keys
have an expiry, and only when a key may be due:

    no key has an expiry      no thread; the database starts one when a command gives a key or a field an expiry
    a key is due              a round every 1/hz second, until no key is due
    keys are due later        the thread sleeps until the first one; a key that is due sooner wakes it

The database calls `on_expiry` for that (Database.set_expire). This call is inside a command, during which no signal
handler may run, so it must not be Python code: it is the start of a thread, or the release of a lock, both in C.

A round is one slow cycle (keyspace/expire_cycle.py), which takes a quarter of its period at most, and as much again for
tables that are rehashed meanwhile. The lock is free between its slices of a millisecond. A fork waits for the end of
the current slice (Backend.before_fork), and the child gets its own thread.
"""

from __future__ import annotations

import contextlib
from _thread import allocate_lock, start_new_thread
from collections.abc import Callable
from functools import partial
from typing import Any

from rillet.keyspace.database import NEVER_DUE
from rillet.loggers import logger
from rillet.real_time import monotonic
from rillet.runtime.engine import Engine

LOGGER = logger("store")

_ALWAYS = 2**63 - 1  # every key is due before this time
_REHASH_US = 1000  # microseconds of rehashing before a slice: the cycle passes over sparse tables
_SHARE = 0.5  # of a period, that a round may take; the cycle ends itself after a quarter
_MOST_COUNTED = 10_000  # keys with an expiry, among which the first one to expire is searched
_LONGEST = 60.0  # seconds that the thread sleeps at most, because the system's clock may be set


class ActiveExpiry:
    """The thread that runs the expiry cycle of an engine without an event loop.

    rounds: the number of rounds so far. sleeps_until: the time in ms for which the thread sleeps, if a key is due then.
    """

    def __init__(self, engine: Engine, lock: Any) -> None:
        self._engine = engine
        self._lock = lock
        self._closed = False
        self.running = False
        self.rounds = 0
        self.sleeps_until: int | None = None
        self._wake = allocate_lock()
        self._wake.acquire()
        self._notify(_ALWAYS, self._start)

    def _notify(self, before: int, call: Callable[[], object] | None) -> None:
        """Let the databases call a function once a key gets an expiry before that time. The caller holds the lock."""
        for database in self._engine.databases:
            database.on_expiry = call
            database.notify_before = before

    @property
    def _start(self) -> Callable[[], object]:
        return partial(start_new_thread, self._run, ())

    def _run(self) -> None:
        try:
            while (seconds := self._round()) is not None:
                self._wake.acquire(timeout=seconds)
        except Exception:
            LOGGER.exception("the expiry of keys failed; it continues when a key gets an expiry")
            with self._lock:
                self._stopped()

    def _round(self) -> float | None:
        """Delete expired keys; return the seconds until the next round, None if no key has an expiry."""
        began = monotonic()
        period = 1 / self._engine.settings.hz
        while True:
            with self._lock:
                self.running = not self._closed
                if self._closed:
                    return None
                self._engine.rehash(_REHASH_US)
                self._engine.expire_cycle()
                if not self._engine.expiry.unfinished or monotonic() - began >= _SHARE * period:
                    self.rounds += 1
                    pause = self._pause(period)
                    break
        # The next round begins a period after this one began, as with a timer.
        return pause if pause is None or pause > period else max(pause - (monotonic() - began), period / 4)

    def _pause(self, period: float) -> float | None:
        """Return the seconds until the next round, and let the databases end this pause. The caller holds the lock."""
        expiring = [database for database in self._engine.databases if database.expires or database.subexpires]
        if not expiring:
            self._stopped()
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
            self._notify(NEVER_DUE, None)
            self.sleeps_until = None
            return period
        self._notify(first, self._wake.release)
        self.sleeps_until = first
        return min(seconds, _LONGEST)

    def _stopped(self) -> None:
        self.running = False
        self.sleeps_until = None
        self._notify(_ALWAYS, self._start)

    def after_fork(self, lock: Any) -> ActiveExpiry:
        """Return the expiry of a forked child, which has no thread yet, with the child's lock."""
        child = ActiveExpiry(self._engine, lock)
        if any(database.expires or database.subexpires for database in self._engine.databases):
            with contextlib.suppress(RuntimeError):  # no thread can be started
                child._start()
        return child

    def close(self) -> None:
        """End the thread. The caller holds the lock."""
        self._closed = True
        self._notify(NEVER_DUE, None)
        with contextlib.suppress(RuntimeError):  # it is released already
            self._wake.release()


__all__ = ["ActiveExpiry"]

"""StoreClock: the time of in-memory stores, which stands still until a test moves it.

The engine reads the time from an injected clock only (rillet.keyspace.clock). So with this clock, everything that Redis
derives from the time is under control: expiry, stream IDs, idle times, LASTSAVE, and the timeouts of blocking commands.
A waiting thread or task sleeps in real time, and the clock wakes it: `advance` moves the time, then lets the engine
act on every deadline that is now due, which notifies the waiting callers as any other reply does.

    advance(30) -> lock -> time += 30 s -> expired keys are deleted (`expired` events are published)
                                        -> streams are trimmed as their retention says
                                        -> clients whose timeout has passed get its reply, and wake up

Redis deletes a key in the millisecond after its expiry (db.c: keyIsExpired, `now > when`). Real time never stands still
in that millisecond, but this clock would. So a move also deletes the keys whose expiry is the new time itself: after
`SET k v EX 30`, `advance(30)` is enough.

Costs: O(expired keys + blocked clients) for each move.
"""

from __future__ import annotations

import time
import weakref
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from rillet.host.retention import RetentionSteps
from rillet.keyspace.clock import ManualClock
from rillet.store.arguments.store_settings import MEMORY, settings_of
from rillet.store.backends.backend import MemoryBackend
from rillet.store.store import Store
from rillet.store.transports.in_process import InProcessTransport

if TYPE_CHECKING:
    from rillet.runtime.engine import Engine

_US = timedelta(microseconds=1)


class StoreClock:
    """A clock that a test moves, for any number of stores in memory. It starts at `start`, by default the present.

    start: an aware or naive (local) datetime, or seconds since the epoch. Times are kept in whole milliseconds.
    """

    def __init__(self, start: datetime | float | None = None) -> None:
        self._clock = ManualClock(_milliseconds(time.time() if start is None else start))
        self._stores: weakref.WeakSet[Store] = weakref.WeakSet()

    def open(self, **settings: Any) -> Store:
        """Open a store in memory that follows this clock; settings as for `rillet.open`."""
        store = Store(MemoryBackend(settings_of(MEMORY, settings), self._clock, active_expiry=False))
        self._stores.add(store)
        return store

    def time(self) -> float:
        """Return the clock's time in seconds since the epoch."""
        return self._clock.now_ms() / 1000

    def advance(self, seconds: float | timedelta) -> None:
        """Move the time forward, expire keys, and end the blocking commands whose timeout has passed.

        The commands have their replies when this method returns; the waiting threads and tasks continue soon after.
        """
        amount = seconds if isinstance(seconds, timedelta) else timedelta(seconds=seconds)
        if amount < timedelta():
            raise ValueError(f"seconds must be positive, not {seconds!r}: the clock of a store moves forward")
        self._move(amount // _US // 1000)

    def move_to(self, when: datetime | float) -> None:
        """Move the time forward to a datetime or to seconds since the epoch; see `advance`."""
        amount = _milliseconds(when) - self._clock.now_ms()
        if amount < 0:
            raise ValueError(f"when is {-amount / 1000} s in the past: the clock of a store moves forward")
        self._move(amount)

    def _move(self, ms: int) -> None:
        self._clock.advance(ms)
        for store in list(self._stores):
            transport = store.transport
            if isinstance(transport, InProcessTransport) and not transport.closed:
                with transport.lock:
                    self._clock.advance(1)
                    expire_keys(transport.engine)
                    self._clock.advance(-1)
                    RetentionSteps(transport.engine).run()
                    end_timeouts(transport.engine)

    def __repr__(self) -> str:
        return f"StoreClock({self.time()})"


def expire_keys(engine: Engine) -> None:
    """Delete the expired keys of every database. The caller must hold the engine's lock."""
    engine.expire_all()


def end_timeouts(engine: Engine) -> None:
    """Reply to blocked clients whose timeout has passed, earliest deadline first. The caller must hold the lock."""
    engine.mstime = engine.clock.now_ms()
    waiting = [session for session in engine.sessions.values() if session.blocked is not None]
    for session in sorted(waiting, key=lambda session: session.blocked.wakes_at):
        if session.blocked is not None:  # the reply to an earlier client may have unblocked this one
            engine.blocking.time_has_come(session)


def _milliseconds(when: datetime | float) -> int:
    return round((when.timestamp() if isinstance(when, datetime) else when) * 1000)


__all__ = ["StoreClock"]

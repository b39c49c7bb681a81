"""The clock of an engine that has scripts: a script sees one time from its start to its end.

The first script of an engine puts a ScriptClock in place of the engine's clock, which continues as `inner`. Commands
read the time from `Engine.clock` and `Database.clock`. Durations (ticks) continue while the time stands still.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rillet.runtime.engine import Engine

from rillet._cython import cython, public
from rillet.keyspace.clock import Clock

_UNREAD = cython.declare(cython.longlong, -1)


@cython.final
@cython.cclass
class ScriptClock(Clock):
    """A clock that can stand still, from the first time that it is read."""

    inner: public[Clock]
    _frozen_us: cython.longlong

    def __init__(self, inner: Clock) -> None:
        self.inner = inner
        self._frozen_us = 0

    @cython.ccall
    @cython.exceptval(-1, check=True)
    def now_ms(self) -> cython.longlong:
        """Return the time in milliseconds since the epoch."""
        return self.now_us() // 1_000 if self._frozen_us else self.inner.now_ms()

    @cython.ccall
    @cython.exceptval(-1, check=True)
    def now_us(self) -> cython.longlong:
        """Return the time in microseconds since the epoch."""
        if self._frozen_us == _UNREAD:
            self._frozen_us = self.inner.now_us()
        return self._frozen_us or self.inner.now_us()

    @cython.ccall
    @cython.exceptval(-1, check=True)
    def ticks(self) -> cython.longlong:
        """Return monotonic nanoseconds from an arbitrary origin."""
        return self.inner.ticks()

    @cython.ccall
    def freeze(self) -> cython.bint:
        """Stop the time: most scripts do not read it, so the first that reads it stops it."""
        self._frozen_us = _UNREAD
        return True

    @cython.ccall
    def unfreeze(self) -> cython.bint:
        """Let the time continue."""
        self._frozen_us = 0
        return True

    def uptime_ms(self) -> int:
        """Return monotonic milliseconds from an arbitrary origin."""
        return self.inner.uptime_ms()

    def sleep(self, seconds: float) -> None:
        """Block the whole process for a number of seconds (DEBUG SLEEP)."""
        self.inner.sleep(seconds)


def install(engine: Engine) -> ScriptClock:
    """Let an engine and its databases read the time from a ScriptClock; return it."""
    clock = ScriptClock(engine.clock)
    engine.clock = clock
    for database in engine.databases:
        database.clock = clock
    return clock

"""The clock that the engine hands down: nothing below persistence reads the time by itself.

Tests, replay and replicas put another one in its place; a value is milliseconds since the Unix epoch.
"""

from __future__ import annotations

import time

try:
    import cython
except ModuleNotFoundError:  # interpreted, Cython not installed
    from rillet import _cython as cython

if cython.compiled:
    from cython.cimports.posix.time import (  # type: ignore[import-not-found, unused-ignore]
        CLOCK_MONOTONIC,
        CLOCK_REALTIME,
        clock_gettime,
        timespec,
    )


@cython.cclass
class Clock:
    """Wall-clock time, as Redis's mstime() and ustime(). Every XADD asks it, so it is compiled."""

    @cython.ccall
    @cython.exceptval(-1, check=True)
    def now_ms(self) -> cython.longlong:
        """Return the time in milliseconds since the epoch."""
        if cython.compiled:
            now = cython.declare(timespec)
            clock_gettime(CLOCK_REALTIME, cython.address(now))
            return now.tv_sec * 1_000 + now.tv_nsec // 1_000_000
        return time.time_ns() // 1_000_000

    @cython.ccall
    @cython.exceptval(-1, check=True)
    def now_us(self) -> cython.longlong:
        """Return the time in microseconds since the epoch."""
        if cython.compiled:
            now = cython.declare(timespec)
            clock_gettime(CLOCK_REALTIME, cython.address(now))
            return now.tv_sec * 1_000_000 + now.tv_nsec // 1_000
        return time.time_ns() // 1_000

    @cython.ccall
    @cython.exceptval(-1, check=True)
    def ticks(self) -> cython.longlong:
        """Return nanoseconds that never go back, from any beginning: for how long something took."""
        if cython.compiled:
            now = cython.declare(timespec)
            clock_gettime(CLOCK_MONOTONIC, cython.address(now))
            return now.tv_sec * 1_000_000_000 + now.tv_nsec
        return time.perf_counter_ns()

    def sleep(self, seconds: float) -> None:
        """Let the time pass, and everything wait (DEBUG SLEEP)."""
        time.sleep(seconds)


@cython.cclass
class ManualClock(Clock):
    """A clock that stands still until it is moved; for tests and replay."""

    us: cython.longlong

    def __init__(self, ms: int = 0) -> None:
        self.us = ms * 1000

    @cython.ccall
    @cython.exceptval(-1, check=True)
    def now_ms(self) -> cython.longlong:
        """Return the time it was set to, in milliseconds."""
        return self.us // 1000

    @cython.ccall
    @cython.exceptval(-1, check=True)
    def now_us(self) -> cython.longlong:
        """Return the time it was set to, in microseconds."""
        return self.us

    @cython.ccall
    @cython.exceptval(-1, check=True)
    def ticks(self) -> cython.longlong:
        """Return the time it was set to, in nanoseconds."""
        return self.us * 1000

    def advance(self, ms: int) -> None:
        """Move the clock by ms milliseconds (negative: backward)."""
        self.us += ms * 1000

    def sleep(self, seconds: float) -> None:
        """Move the clock by so many seconds, at once."""
        self.us += round(seconds * 1_000_000)

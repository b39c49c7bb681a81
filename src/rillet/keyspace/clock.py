"""The injected clock: no layer below persistence reads the time directly.

Tests, log replay and replicas inject a different clock. Values are milliseconds since the Unix epoch.

The time of day is that of Python's `time.time_ns`, also if a test has replaced this function: freezegun and
time-machine move the expiry of keys and the IDs of entries in this process, compiled or not. The compiled form reads
the system's clock while the function is the genuine one: it compares the address of the C function. Deadlines and
durations (`ticks`) are real time, which such a test does not stop (rillet.real_time).
"""

from __future__ import annotations

import time

from rillet._cython import cython, public
from rillet.real_time import monotonic_ns

if cython.compiled:
    from cython.cimports.posix.time import (  # type: ignore[import-not-found, unused-ignore]
        CLOCK_MONOTONIC,
        CLOCK_REALTIME,
        clock_gettime,
        timespec,
    )
    from cython.cimports.rillet._extern import PyCFunction_Check, PyCFunction_GetFunction

    # The names of the module `time`, and the C function behind time.time_ns when this module was imported.
    _names = cython.declare(dict, time.__dict__)
    _genuine = cython.declare(cython.p_void, cython.NULL)
    if PyCFunction_Check(time.time_ns):
        _genuine = PyCFunction_GetFunction(time.time_ns)


@cython.cfunc
@cython.inline
def _is_genuine() -> cython.bint:
    """Return whether no test has replaced Python's clock; compiled only."""
    if cython.compiled:
        function: object = _names["time_ns"]
        if PyCFunction_Check(function):
            return PyCFunction_GetFunction(function) == _genuine
    return False


@cython.cclass
class Clock:
    """Wall-clock time (Redis: mstime(), ustime()); compiled, because every XADD reads it."""

    @cython.ccall
    @cython.exceptval(-1, check=True)
    def now_ms(self) -> cython.longlong:
        """Return the time in milliseconds since the epoch."""
        if cython.compiled and _is_genuine():
            now = cython.declare(timespec)
            clock_gettime(CLOCK_REALTIME, cython.address(now))
            return now.tv_sec * 1_000 + now.tv_nsec // 1_000_000
        return time.time_ns() // 1_000_000

    @cython.ccall
    @cython.exceptval(-1, check=True)
    def now_us(self) -> cython.longlong:
        """Return the time in microseconds since the epoch."""
        if cython.compiled and _is_genuine():
            now = cython.declare(timespec)
            clock_gettime(CLOCK_REALTIME, cython.address(now))
            return now.tv_sec * 1_000_000 + now.tv_nsec // 1_000
        return time.time_ns() // 1_000

    @cython.ccall
    @cython.exceptval(-1, check=True)
    def ticks(self) -> cython.longlong:
        """Return monotonic nanoseconds from an arbitrary origin, for measuring durations."""
        if cython.compiled:
            now = cython.declare(timespec)
            clock_gettime(CLOCK_MONOTONIC, cython.address(now))
            return now.tv_sec * 1_000_000_000 + now.tv_nsec
        return monotonic_ns()

    def uptime_ms(self) -> int:
        """Return monotonic milliseconds from an arbitrary origin, for deadlines: setting the time changes nothing."""
        return self.ticks() // 1_000_000

    def sleep(self, seconds: float) -> None:
        """Block the whole process for a number of seconds (DEBUG SLEEP)."""
        time.sleep(seconds)


@cython.cclass
class ManualClock(Clock):
    """A clock that moves only when it is advanced; for tests and replay."""

    us: public[cython.longlong]

    def __init__(self, ms: int = 0) -> None:
        self.us = ms * 1000

    @cython.ccall
    @cython.exceptval(-1, check=True)
    def now_ms(self) -> cython.longlong:
        """Return the time that was set, in milliseconds."""
        return self.us // 1000

    @cython.ccall
    @cython.exceptval(-1, check=True)
    def now_us(self) -> cython.longlong:
        """Return the time that was set, in microseconds."""
        return self.us

    @cython.ccall
    @cython.exceptval(-1, check=True)
    def ticks(self) -> cython.longlong:
        """Return the time that was set, in nanoseconds."""
        return self.us * 1000

    def advance(self, ms: int) -> None:
        """Move the clock forward by a number of milliseconds; back if the number is negative."""
        self.us += ms * 1000

    def sleep(self, seconds: float) -> None:
        """Move the clock forward by a number of seconds, without blocking (DEBUG SLEEP)."""
        self.us += round(seconds * 1_000_000)

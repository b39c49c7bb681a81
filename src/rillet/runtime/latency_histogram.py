"""The durations of the calls of one command: a histogram with two significant digits (Redis: HdrHistogram).

    nanoseconds      0 ... 255  256 ... 511  512 ... 1023  ...  the longest: one second
    counters         256        128          128                each range has 128 counters of equal width

A counter is at most one percent wide, so percentiles are exact to two digits. A histogram takes 24 KB, and exists only
for commands that ran. `record` is O(1) without an allocation; the reports read all counters.

Redis measures in microseconds and counts them here as thousands of nanoseconds; rillet counts nanoseconds.
"""

from __future__ import annotations

from typing import Annotated, Any

from rillet._cython import cython, readonly

LONGEST = 1_000_000_000
"""A longer call counts as one of a second (server.h: LATENCY_HISTOGRAM_MAX_VALUE)."""
COUNTERS = 3072
_FIRST_REPORTED = 1024  # nanoseconds up to which the first line of LATENCY HISTOGRAM reaches

_LONGEST = cython.declare(cython.longlong, LONGEST)
_COUNTERS = cython.declare(cython.int, COUNTERS)


@cython.final
@cython.cclass
class LatencyHistogram:
    """The durations of one command's calls."""

    __slots__ = ("_counts", "total")
    total: readonly[cython.longlong]
    _counts: Annotated[Any, cython.longlong[3072]]

    def __init__(self) -> None:
        self.total = 0
        if not cython.compiled:  # compiled, it is an array of 64-bit integers, all 0
            self._counts = [0] * COUNTERS

    @cython.ccall
    def record(self, nanoseconds: cython.longlong, times: cython.longlong) -> cython.bint:
        """Count calls that took so long each. O(1)"""
        value: cython.longlong = 1 if nanoseconds < 1 else _LONGEST if nanoseconds > _LONGEST else nanoseconds
        bucket: cython.int = 0
        while value >= 256:
            value >>= 1
            bucket += 1
        self._counts[bucket * 128 + value] += times
        self.total += times
        return True

    def rows(self) -> list[tuple[int, int]]:
        """Return (longest duration of the counter, number of calls) of each counter that is not 0. O(counters)"""
        found: list[tuple[int, int]] = []
        index: cython.int
        for index in range(_COUNTERS):
            if self._counts[index]:
                found.append((_highest(index), self._counts[index]))
        return found

    def percentile(self, percent: float) -> int:
        """Return the duration that so many percent of the calls did not exceed. O(counters)"""
        wanted = int(min(percent, 100.0) / 100 * self.total + 0.5)
        seen = 0
        for highest, count in self.rows():
            seen += count
            if seen >= wanted:
                return highest if percent else highest - (_width(highest) - 1)
        return 0

    def doubling(self) -> list[tuple[int, int]]:
        """Return (microseconds, calls up to that duration), for durations that double (latency.c: fillCommandCDF).

        HdrHistogram's iterator stops at the first counter that reaches the next limit, and includes that counter.
        """
        lines: list[tuple[int, int]] = []
        limit = _FIRST_REPORTED
        seen = reported = index = 0
        last: cython.int = 0
        while seen < self.total:
            seen += self._counts[index]
            last = index
            highest = _highest(last)
            while highest - (_width(highest) - 1) >= limit:
                if seen > reported:
                    lines.append((highest // 1000, seen))
                    reported = seen
                limit *= 2
            index += 1
        while seen > reported:  # the iteration continues up to the next limit
            highest = _highest(last)
            if highest - (_width(highest) - 1) >= limit or last == COUNTERS - 1:
                lines.append((highest // 1000, seen))
                reported = seen
            last += 1
        return lines


def _highest(index: int) -> int:
    """Return the longest duration that the counter at an index counts."""
    bucket = max(index // 128 - 1, 0)
    return (index - bucket * 128 + 1 << bucket) - 1


def _width(highest: int) -> int:
    """Return the number of durations that share a counter, given the longest of them."""
    return 1 << max(highest.bit_length() - 8, 0)

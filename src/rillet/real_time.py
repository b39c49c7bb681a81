"""The time that passes for the process, for every wait and every duration.

Tests replace Python's clocks: freezegun replaces `time.monotonic` in all loaded modules, and a mock replaces it in the
module `time`. The replacement may stand still or jump, so a loop that reads it to end a wait may never end. These two
functions read the system's clock in a form that such libraries leave alone: an object that is not a function of `time`,
made from a function that they do not replace. No other module of rillet reads a monotonic clock; a test checks this.

The time of day is another clock (rillet.keyspace.clock, `time.time`), which follows what a test sets.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

_posix = hasattr(time, "clock_gettime")

# Seconds, and nanoseconds, from an arbitrary origin. Where the system has no such clock, what Python started with.
monotonic: Callable[[], float] = (
    partial(time.clock_gettime, time.CLOCK_MONOTONIC) if _posix else partial(time.perf_counter)
)
monotonic_ns: Callable[[], int] = (
    partial(time.clock_gettime_ns, time.CLOCK_MONOTONIC) if _posix else partial(time.perf_counter_ns)
)

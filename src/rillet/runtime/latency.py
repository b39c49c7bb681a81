"""The latency monitor: events that took long, with their history (Redis: latency.c).

    LatencyMonitor ── "command" ──► Event: the last 160 samples (time in seconds, milliseconds), the longest of all
                   ── "expire-cycle", "fork", "aof-write" ...

The events are those of Redis that make clients wait here, too. Not recorded: `aof-fstat` (the size is counted),
`aof-rename` (a thread renames), `eviction-lazyfree` (the eviction does not wait for values that are freed in steps),
`while-blocked-cron` (no timer runs meanwhile).

An event counts if it took at least `latency-monitor-threshold` milliseconds; 0 turns the monitor off. Two events of the
same kind in the same second leave one sample, the longer one.
"""

from __future__ import annotations

from collections import deque
from typing import Any

SAMPLES = 160
"""Samples that an event keeps (latency.h: LATENCY_TS_LEN)."""


class Event:
    """The samples of one kind of event, oldest first."""

    __slots__ = ("count", "longest", "samples", "total")

    def __init__(self) -> None:
        self.samples: deque[tuple[int, int]] = deque(maxlen=SAMPLES)
        self.longest = self.total = self.count = 0

    def add(self, now: int, milliseconds: int) -> None:
        """Add a sample, or replace a shorter one of the same second."""
        self.longest = max(self.longest, milliseconds)
        self.total += milliseconds
        self.count += 1
        if self.samples and self.samples[-1][0] == now:
            if milliseconds > self.samples[-1][1]:
                self.samples[-1] = (now, milliseconds)
        else:
            self.samples.append((now, milliseconds))


class LatencyMonitor:
    """The events of one engine by name, in the order of their first occurrence."""

    __slots__ = ("_clock", "_settings", "began", "events")

    def __init__(self, settings: Any, clock: Any) -> None:
        self._settings = settings
        self._clock = clock
        self.events: dict[bytes, Event] = {}
        self.began = 0  # the start of a deletion, in ticks

    def add(self, event: bytes, nanoseconds: int) -> None:
        """Record an event if it took long enough (latencyAddSampleIfNeeded)."""
        threshold: int = self._settings.latency_monitor_threshold
        milliseconds = nanoseconds // 1_000_000
        if threshold and milliseconds >= threshold:
            samples = self.events.get(event)
            if samples is None:
                samples = self.events[event] = Event()
            samples.add(self._clock.now_us() // 1_000_000, milliseconds)

    def reset(self, names: list[bytes]) -> int:
        """Forget the named events, in any case, or all of them; return how many were known."""
        wanted = {name.lower() for name in names}
        gone = [name for name in self.events if not names or name.lower() in wanted]
        for name in gone:
            del self.events[name]
        return len(gone)

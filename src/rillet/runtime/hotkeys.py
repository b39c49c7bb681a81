"""The keys that take most time or traffic, for HOTKEYS (Redis: hotkeys.c).

    engine.hotkeys ──► HotKeys ── TIME     key -> microseconds
                                ── TRAFFIC  key -> bytes

While a session of HOTKEYS is active, the engine measures every command alone. The numbers are exact
for up to a hundred keys per reported key; beyond that, the keys with the smallest numbers are forgotten, and their
numbers are lost. (Redis keeps a probabilistic sketch of constant size.)
"""

from __future__ import annotations

from heapq import nlargest
from operator import itemgetter
from os import times
from random import random
from typing import Any

from rillet.runtime.registry import Command

_KEPT = 100  # keys per reported key


class TopKeys:
    """The sums of one metric by key."""

    __slots__ = ("_most", "sums", "total")

    def __init__(self, count: int) -> None:
        self._most = count * _KEPT
        self.sums: dict[bytes, int] = {}
        self.total = 0

    def add(self, key: bytes, amount: int) -> None:
        """Add to the sum of a key. Amortized O(1)"""
        self.total += amount
        self.sums[key] = self.sums.get(key, 0) + amount
        if len(self.sums) > 2 * self._most:
            self.sums = dict(self.largest(self._most))

    def largest(self, count: int) -> list[tuple[bytes, int]]:
        """Return the keys with the largest sums that are not 0. O(keys)"""
        return [item for item in nlargest(count, self.sums.items(), key=itemgetter(1)) if item[1]]


class HotKeys:
    """One session of HOTKEYS; duration: milliseconds after which it ends, 0 = at STOP."""

    __slots__ = ("active", "bytes", "cpu", "duration", "keys", "microseconds", "ratio", "start", "time", "traffic")

    def __init__(self, keys: int, duration: int, ratio: int, *, time: bool, traffic: bool, now: int) -> None:
        self.keys = keys
        self.duration = duration
        self.ratio = ratio
        self.time = TopKeys(keys) if time else None
        self.traffic = TopKeys(keys) if traffic else None
        self.active = True
        self.start = now
        self.microseconds = self.bytes = 0
        self.cpu = times()

    def stop(self, now: int) -> None:
        """End the session and keep its results."""
        self.active = False
        self.duration = now - self.start

    def record(self, entry: Command, argv: list[bytes], microseconds: int, size: int) -> None:
        """Add the time and the bytes of a call to its keys, in equal parts."""
        positions = entry.key_positions(argv)
        if not positions:
            return
        self.microseconds += microseconds
        self.bytes += size
        if self.ratio > 1 and random() >= 1 / self.ratio:
            return
        for position in positions:
            if self.time is not None:
                self.time.add(argv[position], microseconds // len(positions))
            if self.traffic is not None:
                self.traffic.add(argv[position], size // len(positions))

    def used_memory(self) -> int:
        """Return about how many bytes the counters take."""
        return sum(150 * len(top.sums) + sum(map(len, top.sums)) for top in (self.time, self.traffic) if top)

    def cpu_milliseconds(self) -> tuple[int, int]:
        """Return the process's time in user and system mode since the start."""
        now = times()
        return int((now.user - self.cpu.user) * 1000), int((now.system - self.cpu.system) * 1000)


def record(hotkeys: Any, now: int, entry: Command, argv: list[bytes], microseconds: int, size: int) -> None:
    """Record a call in an active session, or end the session if its time has passed."""
    if hotkeys.duration and now - hotkeys.start >= hotkeys.duration:
        hotkeys.stop(now)
    else:
        hotkeys.record(entry, argv, microseconds, size)

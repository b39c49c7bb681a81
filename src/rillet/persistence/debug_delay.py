"""Pauses after each key, which make saving and loading slow for Redis's test suite (debug.c)."""

from __future__ import annotations

import random
import time


def debug_delay(usec: int) -> None:
    """Sleep `usec` microseconds; if negative, sleep 1 us in one of -usec calls (debugDelay). For tests only."""
    if usec < 0:
        usec = int(random.randrange(-usec) == 0)
    if usec:
        time.sleep(usec / 1_000_000)

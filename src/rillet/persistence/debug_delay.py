"""The pauses that the public test suite asks for between keys, so that what takes long can be seen (debug.c)."""

from __future__ import annotations

import random
import time


def debug_delay(usec: int) -> None:
    """Wait so many microseconds; of a negative number one, now and then (debugDelay). For tests only."""
    if usec < 0:
        usec = int(random.randrange(-usec) == 0)
    if usec:
        time.sleep(usec / 1_000_000)


__all__ = ["debug_delay"]

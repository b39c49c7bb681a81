"""Waiting for a condition, for all tests."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
PATIENCE = 60.0
PAUSE = 0.01


def until(condition: Callable[[], T], what: object = "the condition", seconds: float = PATIENCE) -> T:
    """Return the first true result of the condition; AssertionError after this time, with `what` or its result."""
    deadline = time.monotonic() + seconds
    while not (result := condition()):
        assert time.monotonic() < deadline, f"{what() if callable(what) else what}: not within {seconds:g} seconds"
        time.sleep(PAUSE)
    return result

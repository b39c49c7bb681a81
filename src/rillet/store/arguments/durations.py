"""Durations: where a method accepts a time, it accepts seconds or a timedelta."""

from __future__ import annotations

import math
from datetime import timedelta
from numbers import Real
from typing import TypeAlias

Seconds: TypeAlias = float | timedelta

_MOST_MS = 2**63 - 1  # Redis reads 64 bits


def seconds_in(duration: Seconds, name: str = "a duration", least: float = 0.0) -> float:
    """Return a duration in seconds; the errors name the parameter. Infinity is accepted, NaN is not."""
    if isinstance(duration, timedelta):
        seconds = duration.total_seconds()
    elif isinstance(duration, bool) or not isinstance(duration, Real):
        raise TypeError(f"{name} must be seconds or a timedelta, not {duration!r:.200}")
    else:
        try:
            seconds = float(duration)
        except OverflowError:
            seconds = math.inf if duration > 0 else -math.inf
    if math.isnan(seconds) or seconds < least:
        bound = "a number of seconds" if least == -math.inf else f"at least {least:g} seconds"
        raise ValueError(f"{name} must be {bound}, not {duration!r:.200}")
    return seconds


def milliseconds_in(duration: Seconds, name: str = "a duration", least: float = 0.0) -> bytes:
    """Return a duration as an argument in milliseconds; a positive duration is at least 1, and 0 stays 0."""
    seconds = seconds_in(duration, name, least)
    if abs(seconds) * 1000 > _MOST_MS:
        raise ValueError(f"{name} must be a finite number of seconds, not {duration!r:.200}")
    return b"%d" % (max(1, round(seconds * 1000)) if seconds > 0 else round(seconds * 1000))

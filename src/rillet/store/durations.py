"""Durations: where a method accepts a time, it accepts seconds or a timedelta."""

from __future__ import annotations

from datetime import timedelta
from typing import TypeAlias

Seconds: TypeAlias = float | timedelta


def seconds_in(duration: Seconds) -> float:
    """Return a duration in seconds; raise TypeError for another object."""
    if isinstance(duration, timedelta):
        return duration.total_seconds()
    if not isinstance(duration, (int, float)):
        raise TypeError(f"expected seconds or a timedelta, got {duration!r}")
    return duration


def milliseconds_in(duration: Seconds) -> bytes:
    """Return a duration as an argument in milliseconds; a positive duration is at least 1, and 0 stays 0."""
    seconds = seconds_in(duration)
    return b"%d" % (max(1, round(seconds * 1000)) if seconds > 0 else round(seconds * 1000))


__all__ = ["Seconds", "milliseconds_in", "seconds_in"]

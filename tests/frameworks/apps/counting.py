"""Counters in the server, with which a task knows how often it ran."""

from __future__ import annotations

import os

import redis

from tests.frameworks.workers import URL


def url() -> str:
    """Return the URL of the server under test."""
    return os.environ.get(URL, "redis://127.0.0.1:1/0")


def times(name: str) -> int:
    """Count a run of a task; return how often it ran."""
    with redis.Redis.from_url(url()) as client:
        return int(client.incr(f"runs:{name}"))


def fails_once(name: str) -> int:
    """Raise RuntimeError at the first run; return the number of the run afterwards."""
    runs = times(name)
    if runs == 1:
        raise RuntimeError(f"{name} fails at its first run")
    return runs

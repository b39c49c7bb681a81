"""Actors of Dramatiq."""

from __future__ import annotations

import dramatiq
from dramatiq.brokers.redis import RedisBroker
from dramatiq.results import Results
from dramatiq.results.backends import RedisBackend

from tests.frameworks.apps.counting import fails_once, url

broker = RedisBroker(url=url())
broker.add_middleware(Results(backend=RedisBackend(url=url())))
dramatiq.set_broker(broker)


@dramatiq.actor(store_results=True)
def add(one: int, other: int) -> int:
    """Return the sum."""
    return one + other


@dramatiq.actor(store_results=True, max_retries=3, min_backoff=100, max_backoff=200)
def flaky() -> int:
    """Fail at the first run."""
    return fails_once("dramatiq")


@dramatiq.actor(max_retries=0)
def broken() -> None:
    """Always fail."""
    raise ValueError("broken")

"""Tasks of Huey, with each of its storages on Redis."""

from __future__ import annotations

import os

from huey import PriorityRedisExpireHuey, RedisHuey

from tests.frameworks.apps.counting import fails_once, times, url

_KINDS = {"plain": RedisHuey, "priority": PriorityRedisExpireHuey}
huey = _KINDS[os.environ.get("RILLET_HUEY", "plain")]("demo", url=url())


@huey.task()
def add(one: int, other: int) -> int:
    """Return the sum."""
    return one + other


@huey.task(retries=2, retry_delay=0)
def flaky() -> int:
    """Fail at the first run."""
    return fails_once("huey")


@huey.task()
@huey.lock_task("alone")
def locked() -> int:
    """Hold a lock."""
    return times("locked")

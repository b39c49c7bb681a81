"""Jobs of arq."""

from __future__ import annotations

from typing import ClassVar

from arq import Retry
from arq.connections import RedisSettings
from arq.cron import cron

from tests.frameworks.apps.counting import times, url


async def add(ctx, one: int, other: int) -> int:
    """Return the sum."""
    return one + other


async def flaky(ctx) -> int:
    """Ask for a retry at the first run."""
    if ctx["job_try"] == 1:
        raise Retry(defer=0.1)
    return int(ctx["job_try"])


async def broken(ctx) -> None:
    """Always fail."""
    raise ValueError("broken")


async def every_second(ctx) -> int:
    """Count the runs of the cron job."""
    return times("arq cron")


class WorkerSettings:
    """What `arq` reads."""

    functions: ClassVar = [add, flaky, broken]
    cron_jobs: ClassVar = [cron(every_second, second=set(range(60)))]
    redis_settings = RedisSettings.from_dsn(url())
    poll_delay = 0.1

"""Tasks of streaQ."""

from __future__ import annotations

from streaq import StreaqRetry, Worker

from tests.frameworks.apps.counting import url

worker = Worker(redis_url=url())


@worker.task
async def add(one: int, other: int) -> int:
    """Return the sum."""
    return one + other


@worker.task
async def flaky() -> int:
    """Ask for a retry at the first run."""
    tries = flaky.context.tries
    if tries == 1:
        raise StreaqRetry("the first run fails", delay=0.1)
    return int(tries)


@worker.task
async def broken() -> None:
    """Always fail."""
    raise ValueError("broken")

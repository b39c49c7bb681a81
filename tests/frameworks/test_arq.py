"""arq: jobs in a sorted set, retries, deferred and cron jobs, results."""

from __future__ import annotations

import asyncio

import pytest

from tests.frameworks.apps import counting
from tests.frameworks.workers import PATIENCE
from tests.waiting import until

pytestmark = pytest.mark.environment("RILLET_FRAMEWORKS")


def test_a_worker_process(served):
    with (
        served.worker("arq", "tests.frameworks.apps.arq_app.WorkerSettings"),
        served.client() as client,
    ):
        asyncio.run(_jobs(served))
        until(lambda: int(client.get("runs:arq cron") or 0) >= 1, "a run of the cron job")


async def _jobs(served):
    from arq import create_pool
    from arq.connections import RedisSettings

    pool = await create_pool(RedisSettings.from_dsn(served.url))
    await _results(pool)
    await pool.aclose()


async def _results(pool):
    added = await pool.enqueue_job("add", 2, 3)
    flaky = await pool.enqueue_job("flaky")
    later = await pool.enqueue_job("add", 20, 3, _defer_by=0.5)
    broken = await pool.enqueue_job("broken")
    once = await pool.enqueue_job("add", 1, 1, _job_id="once")
    assert await pool.enqueue_job("add", 1, 1, _job_id="once") is None
    assert [await job.result(timeout=PATIENCE, poll_delay=0.05) for job in (added, flaky, later, once)] == [5, 2, 23, 2]
    with pytest.raises(ValueError, match="broken"):
        await broken.result(timeout=PATIENCE, poll_delay=0.05)
    assert (await flaky.info()).job_try == 2


def test_a_worker_in_this_process(store):
    assert counting.url()
    asyncio.run(_in_process(store))


async def _in_process(store):
    from arq.connections import ArqRedis
    from arq.worker import Worker

    from tests.frameworks.apps import arq_app

    pool = ArqRedis(store.redis_async().connection_pool)
    worker = Worker(functions=arq_app.WorkerSettings.functions, redis_pool=pool, poll_delay=0.05, handle_signals=False)
    running = asyncio.create_task(worker.async_run())
    try:
        await _results(pool)
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await worker.close()

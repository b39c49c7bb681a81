"""Delayed jobs of arq and taskiq, as their users write them: `PYTHON -m benchmarks.delay_queues NAME PORT MANY FEW`.

PYTHON is that of an environment with arq, taskiq and taskiq-redis: they need an older redis-py than rillet's tests. The
program prints the figures of benchmarks/delays.py as JSON. Both run with their default intervals.

    arq        enqueue_job(_defer_by=...), a Worker with 100 jobs at a time
    taskiq     kiq() by a ListRedisScheduleSource, its scheduler, RedisStreamBroker, and a receiver; all in this process
"""

from __future__ import annotations

import asyncio
import importlib
import json
import statistics
import sys
import time
from datetime import datetime, timedelta, timezone
from typing import Any


def _late(late: list[float]) -> dict[str, float]:
    found = statistics.quantiles(late, n=100)
    return {"late, p50": found[49] * 1000, "late, p99": found[98] * 1000}


async def _arq(port: int, many: int, few: int) -> dict[str, float]:
    connections: Any = importlib.import_module("arq.connections")
    workers: Any = importlib.import_module("arq.worker")
    settings = connections.RedisSettings(port=port)
    pool = await connections.create_pool(settings)
    late: list[float] = []

    async def job(_: Any, due: float) -> None:
        late.append(time.time() - due)

    def worker(burst: bool) -> Any:
        return workers.Worker([workers.func(job, name="job")], redis_pool=pool, burst=burst, max_jobs=100,
                              handle_signals=False, keep_result=0)  # fmt: skip

    await pool.flushall()
    began = time.perf_counter()
    for _ in range(many):
        await pool.enqueue_job("job", 0.0, _defer_by=3600)
    added = many / (time.perf_counter() - began)
    await pool.flushall()
    for _ in range(many):
        await pool.enqueue_job("job", 0.0)
    began = time.perf_counter()
    await worker(True).main()
    moved = many / (time.perf_counter() - began)
    late.clear()
    running = asyncio.create_task(worker(False).main())
    for _ in range(few):
        await pool.enqueue_job("job", time.time() + 0.25, _defer_by=0.25)
        await asyncio.sleep(0.005)
    while len(late) < few:
        await asyncio.sleep(0.01)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    return {"added": added, "moved": moved, **_late(late)}


async def _taskiq(port: int, many: int, few: int) -> dict[str, float]:
    taskiq: Any = importlib.import_module("taskiq")
    redis: Any = importlib.import_module("redis.asyncio")
    sources: Any = importlib.import_module("taskiq_redis")
    receivers: Any = importlib.import_module("taskiq.api")
    url = f"redis://127.0.0.1:{port}"
    late: list[float] = []
    async with redis.Redis.from_url(url) as client:
        await client.flushall()
    broker = sources.RedisStreamBroker(url)
    source = sources.ListRedisScheduleSource(url)

    @broker.task  # type: ignore[untyped-decorator]
    async def job(due: float) -> None:
        late.append(time.time() - due)

    await broker.startup()
    await source.startup()
    began = time.perf_counter()
    for _ in range(many):
        await job.schedule_by_time(source, datetime.now(timezone.utc) + timedelta(hours=1), 0.0)
    added = many / (time.perf_counter() - began)
    async with redis.Redis.from_url(url) as client:
        await client.flushall()
    await broker.startup()
    receiving = asyncio.create_task(receivers.run_receiver_task(broker))
    scheduling = asyncio.create_task(receivers.run_scheduler_task(taskiq.TaskiqScheduler(broker, [source])))
    await asyncio.sleep(1)
    began = time.perf_counter()
    for _ in range(few):
        due = datetime.now(timezone.utc) + timedelta(seconds=0.25)
        await job.schedule_by_time(source, due, due.timestamp())
        await asyncio.sleep(0.005)
    while len(late) < few and time.perf_counter() - began < 150:
        await asyncio.sleep(0.01)
    for task in (receiving, scheduling):
        task.cancel()
    await asyncio.gather(receiving, scheduling, return_exceptions=True)
    return {"added": added, **(_late(late) if len(late) == few else {})}


def main() -> None:
    """Measure, and print the figures."""
    run = {"arq": _arq, "taskiq": _taskiq}[sys.argv[1]]
    print(json.dumps(asyncio.run(run(*map(int, sys.argv[2:5])))))


if __name__ == "__main__":
    main()

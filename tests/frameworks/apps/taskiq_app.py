"""Tasks of Taskiq, for each of its brokers on Redis, and a scheduler."""

from __future__ import annotations

from taskiq import SimpleRetryMiddleware, TaskiqScheduler
from taskiq_redis import (
    ListQueueBroker,
    ListRedisScheduleSource,
    PubSubBroker,
    RedisAsyncResultBackend,
    RedisStreamBroker,
)

from tests.frameworks.apps.counting import fails_once, url


def _prepared(broker):
    """Return the broker with results, retries and its tasks."""
    broker = broker.with_result_backend(RedisAsyncResultBackend(url(), result_ex_time=600))
    broker = broker.with_middlewares(SimpleRetryMiddleware(default_retry_count=3))

    @broker.task(task_name="add")
    async def add(one: int, other: int) -> int:
        return one + other

    @broker.task(task_name="flaky", retry_on_error=True)
    async def flaky(name: str) -> int:
        return fails_once(name)

    return broker


streams = _prepared(RedisStreamBroker(url(), consumer_id="0"))
lists = _prepared(ListQueueBroker(url(), queue_name="lists"))
channels = _prepared(PubSubBroker(url(), queue_name="channels"))
source = ListRedisScheduleSource(url())
scheduler = TaskiqScheduler(streams, [source])

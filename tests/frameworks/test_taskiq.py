"""Taskiq: brokers on streams, lists and channels; retries, results, schedules."""

from __future__ import annotations

import asyncio
import importlib
import sys
from datetime import UTC, datetime, timedelta

import pytest

from tests.frameworks.workers import PATIENCE, URL
from tests.waiting import until

pytestmark = pytest.mark.environment("RILLET_FRAMEWORKS")
APP = "tests.frameworks.apps.taskiq_app"


@pytest.mark.parametrize("broker", ["streams", "lists", "channels"])
def test_a_worker_process(served, monkeypatch, broker):
    monkeypatch.setenv(URL, served.url)
    sys.modules.pop(APP, None)
    app = importlib.import_module(APP)
    with served.worker("taskiq", "worker", "--workers", "1", f"{APP}:{broker}") as output:
        until(lambda: "Listening started" in output.read_text(), "the worker")
        if broker == "channels":  # it subscribes after it says so, and a channel keeps nothing
            with served.client() as client:
                until(lambda: client.pubsub_numsub("channels")[0][1] == 1, "the subscription")
        asyncio.run(_tasks(getattr(app, broker), broker))


def test_a_schedule(served, monkeypatch):
    monkeypatch.setenv(URL, served.url)
    sys.modules.pop(APP, None)
    app = importlib.import_module(APP)
    with (
        served.worker("taskiq", "worker", "--workers", "1", f"{APP}:streams") as output,
        served.worker("taskiq", "scheduler", f"{APP}:scheduler", "--update-interval", "1"),
    ):
        until(lambda: "Listening started" in output.read_text(), "the worker")
        assert asyncio.run(_scheduled(app)) == 5


async def _tasks(broker, name):
    await broker.startup()
    add, flaky = broker.find_task("add"), broker.find_task("flaky")
    added, failing = await add.kiq(2, 3), await flaky.kiq(f"taskiq {name}")
    assert (await added.wait_result(timeout=PATIENCE)).return_value == 5
    result = await failing.wait_result(timeout=PATIENCE)
    assert not result.is_err
    assert result.return_value == 2
    await broker.shutdown()


async def _scheduled(app):
    await app.streams.startup()
    await app.source.startup()
    add = app.streams.find_task("add")
    schedule = await add.schedule_by_time(app.source, datetime.now(UTC) + timedelta(seconds=1), 2, 3)
    assert [one.schedule_id for one in await app.source.get_schedules()] in ([], [schedule.schedule_id])
    backend = app.streams.result_backend
    for _ in range(int(PATIENCE / 0.1)):
        keys = [key async for key in _keys(backend)]
        if keys:
            break
        await asyncio.sleep(0.1)
    result = await backend.get_result(keys[0])
    await app.source.shutdown()
    await app.streams.shutdown()
    return result.return_value


async def _keys(backend):
    """Yield the IDs of the tasks that have a result: 32 hexadecimal digits."""
    from redis.asyncio import Redis

    async with Redis(connection_pool=backend.redis_pool) as client:
        async for key in client.scan_iter(_type="STRING"):
            name = key.decode() if isinstance(key, bytes) else key
            if len(name) == 32:
                yield name

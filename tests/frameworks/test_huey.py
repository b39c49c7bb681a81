"""Huey: a queue, a schedule (popped by a Lua script), retries, locks, results; plain and with priorities."""

from __future__ import annotations

import importlib
import sys

import pytest

from tests.frameworks.workers import PATIENCE, URL

pytestmark = pytest.mark.environment("RILLET_FRAMEWORKS")
APP = "tests.frameworks.apps.huey_app"


@pytest.mark.parametrize("kind", ["plain", "priority"])
def test_a_consumer_process(served, monkeypatch, kind):
    monkeypatch.setenv(URL, served.url)
    monkeypatch.setenv("RILLET_HUEY", kind)
    sys.modules.pop(APP, None)
    app = importlib.import_module(APP)
    with served.worker("huey.bin.huey_consumer", f"{APP}.huey", "-w", "2", "-s", "1"):
        added, flaky, locked = app.add(2, 3), app.flaky(), app.locked()
        later = app.add.schedule((20, 3), delay=1)
        results = [one.get(blocking=True, timeout=PATIENCE) for one in (added, locked, later)]
        assert results == [5, 1, 23]
        assert _after_retries(flaky) == 2
        revoked = app.add.schedule((1, 1), delay=3600)
        revoked.revoke()
        assert revoked.is_revoked()
    assert app.huey.pending_count() == 0


def _after_retries(result):
    """Return the result of a task that failed before: Huey reports each failure."""
    from huey.exceptions import TaskException

    try:
        return result.get(blocking=True, timeout=PATIENCE)
    except TaskException:
        result.reset()
        return result.get(blocking=True, timeout=PATIENCE)


def test_a_consumer_in_this_process(store):
    from huey import RedisHuey

    pool = store.redis().connection_pool
    huey = RedisHuey("demo", connection_pool=pool)
    runs: list[int] = []

    def flaky(base: int) -> int:
        runs.append(base)
        if len(runs) == 1:
            raise RuntimeError("the first run fails")
        return base + len(runs)

    task = huey.task(retries=2)(flaky)
    consumer = huey.create_consumer(workers=1, periodic=False, scheduler_interval=1)
    consumer.start()
    try:
        assert _after_retries(task(10)) == 12
        assert task.schedule((20,), delay=1).get(blocking=True, timeout=PATIENCE) == 23
    finally:
        consumer.stop(graceful=True)

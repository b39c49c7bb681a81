"""streaQ: streams, a library of functions (FUNCTION LOAD, FCALL), retries, delays, dependencies, results."""

from __future__ import annotations

import asyncio
import importlib
import sys

import pytest

from tests.frameworks.workers import PATIENCE, URL

pytestmark = pytest.mark.environment("RILLET_FRAMEWORKS")
APP = "tests.frameworks.apps.streaq_app"


def test_a_worker_process(served, monkeypatch):
    monkeypatch.setenv(URL, served.url)
    sys.modules.pop(APP, None)
    app = importlib.import_module(APP)
    with served.worker("streaq", "run", f"{APP}:worker"):
        asyncio.run(_tasks(app))


async def _tasks(app):
    async with app.worker:
        added = await app.add.enqueue(2, 3)
        flaky = await app.flaky.enqueue()
        later = await app.add.enqueue(20, 3).start(delay=1)
        broken = await app.broken.enqueue()
        after = await app.add.enqueue(4, 4).start(after=added.id)
        results = [await task.result(PATIENCE) for task in (added, flaky, later, after)]
        assert [one.result for one in results] == [5, 2, 23, 8]
        assert results[1].tries == 2
        failed = await broken.result(PATIENCE)
        assert not failed.success
        assert isinstance(failed.exception, ValueError)

"""Dramatiq: its broker is one Lua script, with acknowledgements, delays, a dead-letter queue and rate limits."""

from __future__ import annotations

import importlib
import sys

import pytest

from tests.frameworks.workers import PATIENCE, URL
from tests.waiting import until

pytestmark = pytest.mark.environment("RILLET_FRAMEWORKS")
MILLISECONDS = int(PATIENCE * 1000)


def test_a_worker_process_runs_retries_and_delays(served, monkeypatch):
    monkeypatch.setenv(URL, served.url)
    sys.modules.pop("tests.frameworks.apps.dramatiq_app", None)
    app = importlib.import_module("tests.frameworks.apps.dramatiq_app")
    with served.worker("dramatiq", "tests.frameworks.apps.dramatiq_app", "--processes", "1", "--threads", "2"):
        added = app.add.send(2, 3)
        flaky = app.flaky.send()
        later = app.add.send_with_options(args=(20, 3), delay=500)
        app.broken.send()
        results = [message.get_result(block=True, timeout=MILLISECONDS) for message in (added, flaky, later)]
        assert results == [5, 2, 23]
        with served.client() as client:
            until(lambda: client.zcard("dramatiq:default.XQ") == 1, "a dead letter")
        app.broker.join("default", timeout=MILLISECONDS)
    app.broker.close()


def test_a_worker_in_this_process(store):
    import dramatiq
    from dramatiq.brokers.redis import RedisBroker
    from dramatiq.rate_limits import ConcurrentRateLimiter
    from dramatiq.rate_limits.backends import RedisBackend as Limits
    from dramatiq.results import Results
    from dramatiq.results.backends import RedisBackend

    client = store.redis()
    broker = RedisBroker(client=client)
    broker.add_middleware(Results(backend=RedisBackend(client=client)))
    dramatiq.set_broker(broker)
    runs: list[int] = []

    def flaky(base: int) -> int:
        runs.append(base)
        if len(runs) == 1:
            raise RuntimeError("the first run fails")
        return base + len(runs)

    actor = dramatiq.actor(flaky, broker=broker, store_results=True, min_backoff=50, max_backoff=100)
    worker = dramatiq.Worker(broker, worker_timeout=50, worker_threads=2)
    worker.start()
    try:
        assert actor.send(10).get_result(block=True, timeout=MILLISECONDS) == 12
        later = actor.send_with_options(args=(20,), delay=200)
        assert later.get_result(block=True, timeout=MILLISECONDS) == 23
    finally:
        worker.stop()
    limiter = ConcurrentRateLimiter(Limits(client=client), "one", limit=1)
    with limiter.acquire(raise_on_failure=False) as first, limiter.acquire(raise_on_failure=False) as second:
        assert (first, second) == (True, False)

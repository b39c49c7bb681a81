"""Celery with its default settings: two workers that gossip, retries, countdowns, groups, chains, chords, control."""

from __future__ import annotations

import pytest

from tests.frameworks.workers import PATIENCE, URL
from tests.waiting import until

pytestmark = pytest.mark.environment("RILLET_FRAMEWORKS")


def test_two_workers(served, monkeypatch):
    from celery import chain, chord, group
    from celery.result import AsyncResult

    monkeypatch.setenv(URL, served.url)
    from tests.frameworks.apps import celery_app

    app = celery_app.app
    app.conf.update(broker_url=served.url, result_backend=served.url)

    def start(name: str):
        return served.worker("celery", "-A", "tests.frameworks.apps.celery_app", "worker", "-c", "1", "-n", name,
                             "--loglevel", "INFO")  # fmt: skip

    with start("one@here") as first:
        until(lambda: "one@here ready" in first.read_text(), "the first worker")
        with start("two@here") as second:
            until(lambda: "two@here ready" in second.read_text(), "the second worker")
            assert "mingle: sync with 1 nodes" in second.read_text()  # the first worker answered
            assert {next(iter(answer)) for answer in app.control.ping(timeout=5, limit=2)} == {"one@here", "two@here"}
            _tasks(celery_app, chain, chord, group)
            stats = app.control.inspect(timeout=5).stats()
            assert set(stats) == {"one@here", "two@here"}
            assert sum(sum(one["total"].values()) for one in stats.values()) >= 10
            late = celery_app.add.apply_async((1, 1), countdown=3600)
            until(lambda: any((app.control.inspect(timeout=2).scheduled() or {}).values()), "a scheduled task")
            app.control.revoke(late.id)
            revoked = app.control.inspect(timeout=5).revoked()
            assert any(late.id in ids for ids in revoked.values())
    assert isinstance(late, AsyncResult)


def _tasks(celery_app, chain, chord, group):
    """Run each kind of work, and compare the results."""
    add = celery_app.add
    assert add.delay(2, 3).get(timeout=PATIENCE) == 5
    assert add.apply_async((20, 3), countdown=1).get(timeout=PATIENCE) == 23
    assert celery_app.flaky.delay().get(timeout=PATIENCE) == 2
    with pytest.raises(ValueError, match="broken"):
        celery_app.broken.delay().get(timeout=PATIENCE)
    assert group(add.s(n, n) for n in range(4))().get(timeout=PATIENCE) == [0, 2, 4, 6]
    assert chain(add.s(1, 2), add.s(10))().get(timeout=PATIENCE) == 13
    assert chord([add.s(n, 1) for n in range(5)], celery_app.total.s())().get(timeout=PATIENCE) == 15

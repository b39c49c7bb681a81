"""A Celery application with its default settings: gossip, mingle, heartbeats, remote control."""

from __future__ import annotations

from celery import Celery

from tests.frameworks.apps.counting import fails_once, url

app = Celery("demo", broker=url(), backend=url())


@app.task
def add(one: int, other: int) -> int:
    """Return the sum."""
    return one + other


@app.task
def total(numbers: list[int]) -> int:
    """Return the sum of the results of a chord."""
    return sum(numbers)


@app.task(autoretry_for=(RuntimeError,), retry_kwargs={"countdown": 0.2, "max_retries": 3})
def flaky() -> int:
    """Fail at the first run."""
    return fails_once("celery")


@app.task
def broken() -> None:
    """Always fail."""
    raise ValueError("broken")

"""Tests of the application with the pytest plugin of rillet: each test has an empty store and a clock that it moves.

    pytest examples/webhooks

No test starts a server, mocks the store, or waits for a retry or the end of a rate limit. `rillet_clock` moves the time
on which these depend; `rillet_redis` shows the same data to code that uses redis-py.
"""

from __future__ import annotations

import hmac
import json
from collections.abc import Iterator
from hashlib import sha256
from queue import Empty, Queue

import pytest
import redis
from starlette.testclient import TestClient

import rillet
from examples.webhooks import app
from rillet.aio import AsyncMessage
from rillet.testing import StoreClock

SECRET = "a secret"


class Handler:
    """A handler that records the hooks, and fails as often as a test says."""

    def __init__(self) -> None:
        self.calls: Queue[tuple[str, int]] = Queue()
        self.failures = 0

    async def __call__(self, hook: AsyncMessage) -> None:
        self.calls.put((hook["body"], hook.deliveries))
        if self.failures:
            self.failures -= 1
            raise RuntimeError("the handler fails")


@pytest.fixture
def handler() -> Handler:
    return Handler()


@pytest.fixture
def client(rillet_store: rillet.Store, rillet_clock: StoreClock, handler: Handler) -> Iterator[TestClient]:
    with TestClient(app.create(rillet_store, SECRET, handler)) as client:
        yield client


def send(
    client: TestClient, body: str, delivery: str = "", source: str = "shop", secret: str = SECRET
) -> tuple[int, str]:
    """Send a hook as its sender does; return the status and the ID."""
    headers = {"x-signature": hmac.new(secret.encode(), body.encode(), sha256).hexdigest()}
    if delivery:
        headers["x-delivery"] = delivery
    response = client.post(f"/hooks/{source}", content=body, headers=headers)
    found = response.json()
    return response.status_code, found.get("id", "")


def events(client: TestClient, count: int, **parameters: str) -> list[tuple[str, str]]:
    """Return the ID and the body of events that /events sends."""
    lines = client.get("/events", params={"count": str(count), **parameters}).text.splitlines()
    ids = [line.removeprefix("id: ") for line in lines if line.startswith("id: ")]
    bodies = [json.loads(line.removeprefix("data: "))["body"] for line in lines if line.startswith("data: ")]
    return list(zip(ids, bodies, strict=True))


def test_a_hook_is_stored_and_handled(client: TestClient, handler: Handler, rillet_redis: redis.Redis) -> None:
    status, id = send(client, "paid")
    assert status == 202
    assert handler.calls.get(timeout=60) == ("paid", 1)
    assert rillet_redis.xrange("hooks") == [(id.encode(), {b"source": b"shop", b"body": b"paid"})]


def test_a_hook_with_a_wrong_signature_is_rejected(client: TestClient, rillet_store: rillet.Store) -> None:
    assert send(client, "paid", secret="another secret")[0] == 401
    assert client.post("/hooks/shop", content="paid").status_code == 401
    assert len(rillet_store.stream("hooks")) == 0


def test_a_repeated_delivery_is_stored_once(client: TestClient, rillet_store: rillet.Store) -> None:
    first = send(client, "paid", delivery="d-1")
    assert send(client, "paid", delivery="d-1") == first
    assert send(client, "paid", delivery="d-2") != first
    assert len(rillet_store.stream("hooks")) == 2


def test_a_source_is_limited_until_its_window_ends(client: TestClient, rillet_clock: StoreClock) -> None:
    assert [send(client, "x")[0] for _ in range(app.LIMIT + 1)] == [202] * app.LIMIT + [429]
    assert send(client, "x", source="other")[0] == 202
    rillet_clock.advance(app.WINDOW)
    assert send(client, "x")[0] == 202


def test_events_are_sent_after_an_id(client: TestClient) -> None:
    sent = [(send(client, body)[1], body) for body in ("one", "two", "three")]
    assert events(client, 3, after="0-0") == sent
    assert events(client, 1, after=sent[1][0]) == sent[2:]
    response = client.get("/events?count=1", headers={"last-event-id": sent[0][0]})
    assert response.text.startswith(f": connected\n\nid: {sent[1][0]}\ndata: ")
    assert response.headers["content-type"].startswith("text/event-stream")
    assert client.get("/events?after=yesterday").status_code == 400


def test_a_hook_that_fails_is_handled_again(client: TestClient, handler: Handler, rillet_clock: StoreClock) -> None:
    handler.failures = 2
    send(client, "paid")
    assert [next_call(handler, rillet_clock) for _ in range(3)] == [("paid", 1), ("paid", 2), ("paid", 3)]
    while (status := client.get("/status").json())["pending"]:
        pass  # the handler has returned, and the worker acknowledges the hook
    assert status == {"hooks": 1, "pending": 0, "dead": 0}


def test_a_hook_that_always_fails_becomes_a_dead_letter(
    client: TestClient, handler: Handler, rillet_clock: StoreClock, rillet_store: rillet.Store
) -> None:
    handler.failures = app.ATTEMPTS + 1
    send(client, "poison")
    calls = [next_call(handler, rillet_clock) for _ in range(app.ATTEMPTS)]
    assert calls == [("poison", delivery) for delivery in range(1, app.ATTEMPTS + 1)]
    dead = rillet_store.stream("hooks.dead")
    while not len(dead):
        rillet_clock.advance(app.RETRY)
    (letter,) = dead
    assert (letter["body"], letter["_deliveries"]) == ("poison", str(app.ATTEMPTS))
    assert handler.calls.empty()


def next_call(handler: Handler, clock: StoreClock) -> tuple[str, int]:
    """Return the next call of the handler; let the time pass until it comes."""
    while True:
        try:
            return handler.calls.get(timeout=0.01)
        except Empty:
            clock.advance(app.RETRY)

"""Waits end by real time while a test holds Python's clocks: freezegun, or a mock of time.monotonic."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from freezegun import freeze_time

import rillet
from rillet.store.transports.transport import wait_for
from rillet.testing import StoreClock
from tests.store.conftest import FEW, Frontend, only

pytestmark = pytest.mark.timeout(60)

LONG_AGO = "2012-01-14 03:21:34"
HELD: dict[str, Callable[[], Any]] = {
    "freezegun": lambda: freeze_time(LONG_AGO),
    "freezegun-asyncio": lambda: freeze_time(LONG_AGO, real_asyncio=True),
    "mock": lambda: mock.patch("time.monotonic", return_value=1000.0),
}


@pytest.fixture(params=HELD)
def held(request: pytest.FixtureRequest) -> Callable[[], Any]:
    """Return a context manager in which Python's clock stands still."""
    return HELD[request.param]




def waits(store: rillet.Store) -> None:
    """Wait in each way of the synchronous API, for a reply that does not come."""
    stream = store.stream("s")
    group = stream.group("g")
    assert list(stream.follow(timeout=0.05)) == []
    assert list(group.consumer("c").messages(timeout=0.05)) == []
    assert store.execute("BLPOP", "l", "0.05") is None
    with store.subscribe("channel") as subscription:
        assert subscription.get(timeout=0.05) is None
    assert store.redis().blpop(["l"], timeout=0.05) is None
    with store.redis().pubsub() as pubsub:
        pubsub.subscribe("channel")
        assert pubsub.get_message(timeout=5)["type"] == "subscribe"


async def async_waits(store: rillet.Store) -> None:
    """Wait in each way of the asyncio API, for a reply that does not come."""
    there = store.aio()
    stream = there.stream("s")
    group = await stream.group("g")
    assert [entry async for entry in stream.follow(timeout=0.05)] == []
    assert [message async for message in group.consumer("c").messages(timeout=0.05)] == []
    assert await there.execute("BLPOP", "l", "0.05") is None
    async with await there.subscribe("channel") as subscription:
        assert await subscription.get(timeout=0.05) is None
    client = store.redis_async()
    assert await client.blpop(["l"], timeout=0.05) is None
    await client.aclose()


@FEW
def test_waits_end(frontend: Frontend, held: Callable[[], Any]) -> None:
    with held():
        waits(frontend.store)


@FEW
def test_waits_of_tasks_end(frontend: Frontend, held: Callable[[], Any]) -> None:
    with held():
        asyncio.run(async_waits(frontend.store))


def test_a_store_opens_and_closes(tmp_path: Path, held: Callable[[], Any]) -> None:
    with held(), rillet.open(tmp_path / "s") as owner, rillet.open(tmp_path / "s") as attached:
        attached.stream("kept").add({"n": "1"})
        assert len(owner.stream("kept")) == 1
        waits(attached)
        asyncio.run(async_waits(attached))
    with held(), rillet.open(tmp_path / "s") as store:
        assert len(store.stream("kept")) == 1


def test_waits_on_a_cluster_end(cluster_url: str) -> None:
    with freeze_time(LONG_AGO), rillet.connect(cluster_url) as store:
        waits(store)
        asyncio.run(async_waits(store))


@only("owner")
def test_waits_for_a_replica_end(frontend: Frontend, held: Callable[[], Any]) -> None:
    with held(), frontend.store.serve() as served, rillet.follow(served.url) as replica:
        replica.wait_synced(timeout=30)
        position = replica.position
        with pytest.raises(TimeoutError):
            replica.wait(position.offset + 10**9, timeout=0.05)

        async def main() -> None:
            await replica.aio().wait_synced(timeout=30)
            with pytest.raises(TimeoutError):
                await replica.aio().wait(position.offset + 10**9, timeout=0.05)

        asyncio.run(main())


def test_a_pause_of_clients_ends(held: Callable[[], Any]) -> None:
    with rillet.open() as store, held(), store.serve() as served, rillet.connect(served.url) as connected:
        connected.execute("CLIENT", "PAUSE", 50, "ALL")
        assert connected.execute("SET", "k", "v") == b"OK"


def test_a_clock_that_stops_or_continues_while_tasks_wait() -> None:
    """A timer of the event loop would move with its clock, by years."""

    async def main(store: rillet.Store) -> None:
        client: Any = store.redis_async()
        with freeze_time(LONG_AGO):
            begun_inside = asyncio.create_task(client.blpop(["l"], timeout=0.1))
            await asyncio.sleep(0)
        begun_outside = asyncio.create_task(client.blpop(["l"], timeout=0.1))
        await asyncio.sleep(0)
        with freeze_time("2200-01-01"):
            assert await begun_inside is None
            assert await begun_outside is None
        await client.aclose()

    with rillet.open() as store:
        asyncio.run(main(store))


def test_wait_for_nothing_tries_once() -> None:
    calls: list[int] = []
    assert not wait_for(lambda: calls.append(1) is not None, 0)  # type: ignore[func-returns-value]
    assert len(calls) == 1
    assert wait_for(lambda: True, 0)


@only("memory", "owner")
def test_keys_expire_and_ids_follow_the_time_of_day(frontend: Frontend) -> None:
    """As in fakeredis: the engine in this process reads the time of day that freezegun sets."""
    client: Any = frontend.store.redis(decode_responses=True)
    with freeze_time("2030-01-01") as frozen:
        client.set("session", "x", ex=30)
        made = int(client.xadd("s", {"n": "1"}).partition("-")[0])
        assert made == time.time() * 1000
        frozen.tick(29)
        assert client.ttl("session") == 1
        frozen.tick(2)
        assert client.get("session") is None
        assert int(client.xadd("s", {"n": "2"}).partition("-")[0]) == made + 31_000
        frozen.move_to("2029-01-01")  # the IDs still grow
        assert client.xadd("s", {"n": "3"}) == f"{made + 31_000}-1"


def test_a_store_clock_moves_apart_from_freezegun() -> None:
    with freeze_time("2030-01-01") as frozen:
        clock = StoreClock()
        with clock.open() as store:
            client = store.redis()
            client.set("session", "x", ex=30)
            frozen.tick(60)
            assert client.get("session") == b"x"
            clock.advance(30)
            assert client.get("session") is None

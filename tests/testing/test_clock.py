"""The clock that a test moves: everything that the engine derives from the time follows it, and waiting code wakes."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import redis

from rillet import Store
from rillet.testing import StoreClock

SECONDS = 60
START = datetime(2030, 1, 1, tzinfo=UTC)


@pytest.fixture
def clock() -> StoreClock:
    return StoreClock(START)


@pytest.fixture
def store(clock: StoreClock) -> Iterator[Store]:
    with clock.open() as opened:
        yield opened


def until_blocked(store: Store, number: int) -> None:
    while store.info()["blocked_clients"] != str(number):
        threading.Event().wait(0.002)


def in_thread(function: Any, *args: Any, **options: Any) -> tuple[threading.Thread, list[Any]]:
    """Call a function in a thread; the list gets its result."""
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(function(*args, **options)))
    thread.start()
    return thread, results


def test_keys_expire_and_publish_their_event(clock: StoreClock, store: Store) -> None:
    store.execute("CONFIG", "SET", "notify-keyspace-events", "Ex")
    with store.subscribe("__keyevent@0__:expired") as events:
        store.execute("SET", "k", "v", "EX", 30)
        for n in range(100):
            store.execute("SET", f"k{n}", "v", "PX", 29_000 + n)
        clock.advance(29.5)
        assert store.execute("DBSIZE") == 1
        assert store.execute("PTTL", "k") == 500
        clock.advance(timedelta(milliseconds=499))
        assert store.execute("PTTL", "k") == 1
        clock.advance(0.001)
        assert store.execute("DBSIZE") == 0
        published = [events.get(SECONDS) for _ in range(101)]
        assert published[-1] is not None
        assert published[-1].data == "k"


def test_ids_and_idle_times(clock: StoreClock, store: Store) -> None:
    stream = store.stream("s")
    first = stream.add({"n": 1})
    second = stream.add({"n": 2})
    clock.advance(1.5)
    third = stream.add({"n": 3})
    start = int(START.timestamp() * 1000)
    assert [str(one) for one in (first, second, third)] == [f"{start}-0", f"{start}-1", f"{start + 1500}-0"]
    consumer = stream.group("g").consumer("c")
    assert len(consumer.read()) == 3
    clock.advance(60)
    assert [pending.idle_ms for pending in stream.group("g").pending()] == [60_000] * 3
    assert clock.time() == START.timestamp() + 61.5


def test_threads_wake_at_their_timeout(clock: StoreClock, store: Store) -> None:
    with store.redis() as client:
        waiting = [in_thread(client.blpop, "l", timeout=100), in_thread(store.execute, "BLPOP", "l", "200"),
                   in_thread(client.blpop, "l", timeout=0)]  # fmt: skip
        until_blocked(store, 3)
        clock.advance(99)
        assert store.info()["blocked_clients"] == "3"
        clock.advance(1)
        waiting[0][0].join(SECONDS)
        assert waiting[0][1] == [None]
        clock.advance(1000)
        waiting[1][0].join(SECONDS)
        assert waiting[1][1] == [None]
        until_blocked(store, 1)
        store.execute("RPUSH", "l", "x")
        waiting[2][0].join(SECONDS)
        assert waiting[2][1][0][1] == b"x"
        client.connection_pool.disconnect()


def test_tasks_wake_at_their_timeout(clock: StoreClock, store: Store) -> None:
    client: Any = store.redis_async()

    async def main() -> None:
        calls = client.blpop(["l"], 100), store.aio().execute("BLPOP", "l", 50)
        waiting = [asyncio.create_task(call) for call in calls]
        while store.info()["blocked_clients"] != "2":
            await asyncio.sleep(0)
        clock.advance(100)
        assert await asyncio.wait_for(asyncio.gather(*waiting), SECONDS) == [None, None]
        await client.aclose()

    asyncio.run(main())


def test_clients_of_a_socket_wake_at_their_timeout(clock: StoreClock, store: Store) -> None:
    with store.serve() as served, redis.Redis.from_url(served.url, socket_timeout=SECONDS) as client:
        thread, results = in_thread(client.blpop, "l", timeout=1000)
        until_blocked(store, 1)
        clock.advance(1000)
        thread.join(SECONDS)
        assert results == [None]


def test_a_claim_by_idle_time_wakes_a_reader(clock: StoreClock) -> None:
    with clock.open(compat="newest") as store:
        stream = store.stream("s")
        stream.add({"n": 1})
        group = stream.group("g")
        assert len(group.consumer("dead").read()) == 1
        thread, results = in_thread(
            store.execute, "XREADGROUP", "GROUP", "g", "c", "BLOCK", 0, "CLAIM", 30_000, "STREAMS", "s", ">"
        )
        until_blocked(store, 1)
        clock.advance(31)
        thread.join(SECONDS)
        assert results[0][0][1][0][1] == [b"n", b"1"]


def test_several_stores_share_a_clock(clock: StoreClock) -> None:
    with clock.open() as one, clock.open() as two:
        for store in (one, two):
            store.execute("SET", "k", "v", "EX", 1)
        clock.move_to(START + timedelta(seconds=2))
        assert [store.execute("DBSIZE") for store in (one, two)] == [0, 0]
    clock.advance(1)  # closed stores are left alone


def test_the_clock_moves_forward_only(clock: StoreClock) -> None:
    with pytest.raises(ValueError, match="moves forward"):
        clock.advance(-1)
    with pytest.raises(ValueError, match="moves forward"):
        clock.move_to(START - timedelta(seconds=1))
    assert repr(clock) == f"StoreClock({START.timestamp()})"


def test_by_default_the_clock_starts_at_the_present() -> None:
    assert abs(StoreClock().time() - datetime.now(UTC).timestamp()) < SECONDS

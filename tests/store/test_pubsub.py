"""Channels on every kind of store, between two stores on the same data, and through redis-py and asyncio."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

import rillet
from rillet import Store, Subscription
from rillet.errors import CommandError, StoreClosed, StoreError
from rillet.records import ChannelMessage
from tests.store.conftest import FEW, Frontend
from tests.store.process import Other

SECONDS = 60.0


def heard(subscription: Subscription) -> tuple[str, str, str | None]:
    """Return the next message, which must come."""
    message = subscription.get(SECONDS)
    assert message is not None
    return message.channel, message.data, message.pattern


def test_channels_patterns_and_shard_channels(frontend: Frontend) -> None:
    store, other = frontend.store, frontend.another()
    with store.subscribe("news", b"raw", patterns=["user.*"], shards=["orders"]) as subscription:
        assert (subscription.channels, subscription.patterns) == (["news", "raw"], ["user.*"])
        assert subscription.shards == ["orders"]
        assert "'news'" in repr(subscription)
        assert other.publish("news", "hello") == 1
        assert other.publish("user.ann", 7) == 1
        assert other.publish("orders", "not heard") == 0
        assert other.publish("orders", b"\xff", shard=True) == 1
        assert heard(subscription) == ("news", "hello", None)
        assert heard(subscription) == ("user.ann", "7", "user.*")
        last = subscription.get(SECONDS)
        assert last is not None
        assert (last.raw, last.shard, last.channel) == (b"\xff", True, "orders")
        assert repr(ChannelMessage(b"c", b"d")) == "ChannelMessage('c', 'd')"
        assert subscription.get(0) is None
        assert subscription.get(0.01) is None
        subscription.remove("news", "never", shards=["orders"])
        subscription.add("more", patterns=["*"])
        assert other.publish("news", "by the pattern only") == 1
        assert other.publish("more", "twice") == 2
        assert heard(subscription) == ("news", "by the pattern only", "*")
        assert {heard(subscription), heard(subscription)} == {("more", "twice", None), ("more", "twice", "*")}
        # Streams go on meanwhile.
        assert len(store.stream("s")) == 0
        assert store.execute("PING") == b"PONG"
    assert "closed" in repr(subscription)


def test_messages_come_in_the_order_in_which_they_were_published(frontend: Frontend) -> None:
    other = frontend.another()
    with frontend.store.subscribe("a", "b") as subscription:
        for n in range(300):
            assert other.publish("ab"[n % 2], n) == 1
        assert [heard(subscription)[1] for _ in range(300)] == [str(n) for n in range(300)]


def test_iterating_ends_with_the_subscription_and_with_the_store(frontend: Frontend) -> None:
    for end in ("subscription", "store"):
        subscription = frontend.store.subscribe("a")
        first = threading.Event()
        got: list[str] = []

        def read(subscription: Subscription = subscription, first: threading.Event = first) -> None:
            for message in subscription:
                got.append(message.data)  # noqa: B023
                first.set()

        reader = threading.Thread(target=read)
        reader.start()
        frontend.another().publish("a", "x")
        assert first.wait(SECONDS)
        (subscription if end == "subscription" else frontend.store).close()
        reader.join(SECONDS)
        assert not reader.is_alive()
        assert got == ["x"]
        with pytest.raises(StoreError):
            subscription.get(0)
    with pytest.raises(StoreClosed):
        frontend.store.subscribe("a")


def test_a_closed_subscription_is_listened_to_no_more(frontend: Frontend) -> None:
    frontend.store.subscribe("gone").close()
    other = frontend.another()
    # Behind a socket, the end of a connection is seen a moment later than the call returns.
    deadline = time.monotonic() + SECONDS
    while other.publish("gone", "x"):
        assert time.monotonic() < deadline, "the closed subscription still receives messages"


def test_other_objects_are_not_names_or_data(store: Store) -> None:
    with pytest.raises(TypeError):
        store.subscribe(7)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        store.publish("a", None)  # type: ignore[arg-type]


def test_changes_of_a_stream_send_events(frontend: Frontend) -> None:
    frontend.store.execute("CONFIG", "SET", "notify-keyspace-events", "Kt")
    try:
        with frontend.store.subscribe("__keyspace@0__:orders") as subscription:
            frontend.another().stream("orders").add({"total": "9.90"})
            assert heard(subscription)[1] == "xadd"
    finally:
        frontend.store.execute("CONFIG", "SET", "notify-keyspace-events", "")


# -- who reads nothing is cut off -----------------------------------------------------------------------


def test_what_nobody_reads_does_not_grow() -> None:
    with rillet.open(client_output_buffer_limit="pubsub 64kb 0 0") as store:
        subscription = store.subscribe("a")
        published = 0
        while store.publish("a", "x" * 1000):
            link: Any = store.transport
            if next(iter(link._extra_sessions)).closing:
                break
            published += 1
            assert published < 100
        assert published > 50
        with pytest.raises(StoreError, match="was closed: its unread messages"):
            subscription.get(0)
        subscription.close()
        assert store.publish("a", "x") == 0


# -- another owner --------------------------------------------------------------------------------------


def test_a_subscription_outlives_the_owner(tmp_path: Path) -> None:
    path = tmp_path / "store.rillet"
    owner = Other(path)
    with rillet.open(path) as store:
        assert not store.owner
        with store.subscribe("a") as subscription:
            owner.ask("store.publish('a', 'one')")
            assert heard(subscription)[1] == "one"
            owner.kill()
            assert subscription.get(0.5) is None
            assert store.owner
            with Other(path) as late:
                assert late.ask("store.publish('a', 'two')") == 1
                assert heard(subscription)[1] == "two"


# -- redis-py -------------------------------------------------------------------------------------------


@pytest.fixture(params=[2, 3], ids=["resp2", "resp3"])
def client(request: pytest.FixtureRequest, frontend: Frontend) -> Iterator[Any]:
    made = frontend.store.redis(protocol=request.param)
    yield made
    made.close()
    made.connection_pool.disconnect()


def next_of(pubsub: Any) -> Any:
    """Return the type, channel and data of redis-py's next message."""
    message = pubsub.get_message(timeout=SECONDS)
    return message["type"], message["channel"], message["data"]


def test_redis_py_s_own_pubsub_works(client: Any) -> None:
    with client.pubsub() as pubsub:
        pubsub.subscribe("a", "b")
        assert [next_of(pubsub), next_of(pubsub)] == [("subscribe", b"a", 1), ("subscribe", b"b", 2)]
        pubsub.psubscribe("c*")
        pubsub.ssubscribe("s")
        assert [next_of(pubsub)[0], next_of(pubsub)[0]] == ["psubscribe", "ssubscribe"]
        assert client.publish("a", "1") == 1
        assert client.publish("cc", "2") == 1
        assert client.spublish("s", "3") == 1
        assert next_of(pubsub) == ("message", b"a", b"1")
        assert next_of(pubsub) == ("pmessage", b"cc", b"2")
        assert next_of(pubsub) == ("smessage", b"s", b"3")
        assert pubsub.get_message(timeout=0) is None
        pubsub.ping()
        assert pubsub.get_message(timeout=SECONDS)["type"] == "pong"
        pubsub.unsubscribe("a")
        assert next_of(pubsub) == ("unsubscribe", b"a", 2)
        assert client.pubsub_channels() == [b"b"]
        assert client.pubsub_numpat() == 1
        assert client.pubsub_numsub("a", "b") == [(b"a", 0), (b"b", 1)]


def test_redis_py_listens_in_a_thread(client: Any) -> None:
    got: list[bytes] = []
    came = threading.Event()

    def hear(message: dict[str, Any]) -> None:
        got.append(message["data"])
        came.set()

    pubsub = client.pubsub(ignore_subscribe_messages=True)
    pubsub.subscribe(a=hear)
    thread = pubsub.run_in_thread(sleep_time=0.05)
    try:
        while client.publish("a", "x") == 0:
            pass
        assert came.wait(SECONDS)
    finally:
        thread.stop()
        thread.join(SECONDS)
        pubsub.close()
    assert set(got) == {b"x"}


def test_redis_py_waiting_for_ever_sees_the_end(frontend: Frontend) -> None:
    client = frontend.store.redis()
    pubsub = client.pubsub()
    pubsub.subscribe("a")
    assert next_of(pubsub)[0] == "subscribe"
    if frontend.kind == "memory":
        waiting = threading.Thread(target=lambda: pytest.raises(redis.ConnectionError, pubsub.parse_response))
        waiting.start()
        frontend.store.close()
        waiting.join(SECONDS)
        assert not waiting.is_alive()
    pubsub.close()
    client.connection_pool.disconnect()


# -- asyncio --------------------------------------------------------------------------------------------


def test_a_task_receives_messages(frontend: Frontend) -> None:
    other = frontend.another()

    async def talk() -> None:
        store = frontend.store.aio()
        async with await store.subscribe("a", patterns=["b*"]) as subscription:
            assert await subscription.get(0.01) is None
            waiting = asyncio.create_task(subscription.get())
            await asyncio.sleep(0)
            assert await asyncio.to_thread(other.publish, "a", "one") == 1
            first = await waiting
            assert first is not None
            assert first.data == "one"
            given_up = asyncio.create_task(subscription.get())
            await asyncio.sleep(0)
            given_up.cancel()
            assert await store.publish("a", "two") == 1
            assert await store.publish("bb", "three") == 1
            found = []
            async for message in subscription:
                found.append(message.data)
                if len(found) == 2:
                    break
            assert found == ["two", "three"]
            await subscription.add("c", shards=["s"])
            await subscription.remove("a")
            assert await store.publish("s", "four", shard=True) == 1
            assert await store.publish("a", "x") == 0
            last = await subscription.get(SECONDS)
            assert last is not None
            assert last.data == "four"
            with pytest.raises(CommandError, match=r"use Store.subscribe\(\)"):
                await store.execute("SUBSCRIBE", "a")
            await subscription.close()
            assert [message async for message in subscription] == []

    asyncio.run(talk())


@FEW
def test_a_thousand_tasks_listen_without_a_thread(frontend: Frontend) -> None:
    count = 1000 if frontend.kind in ("memory", "owner") else 200  # each has a connection

    async def talk() -> None:
        before = threading.active_count()
        subscriptions = [await frontend.store.aio().subscribe("a") for _ in range(count)]
        tasks = [asyncio.create_task(one.get()) for one in subscriptions]
        await asyncio.sleep(0.1)
        assert frontend.store.publish("a", "x") == count
        assert [message.data for message in await asyncio.gather(*tasks) if message] == ["x"] * count
        assert threading.active_count() < before + 50  # on a socket, some threads read what has arrived
        for one in subscriptions:
            await one.close()

    asyncio.run(talk())


def test_several_tasks_wait_on_one_subscription(frontend: Frontend) -> None:
    async def talk() -> None:
        async with await frontend.store.aio().subscribe("a") as subscription:
            tasks = [asyncio.create_task(subscription.get()) for _ in range(5)]
            await asyncio.sleep(0.01)
            assert await subscription.get(0.01) is None
            tasks.pop(0).cancel()
            for number in range(4):
                await frontend.store.aio().publish("a", str(number))
            messages = await asyncio.wait_for(asyncio.gather(*tasks), SECONDS)
            assert sorted(one.data for one in messages if one is not None) == ["0", "1", "2", "3"]

    asyncio.run(talk())


def test_the_end_wakes_the_tasks_that_listen(frontend: Frontend) -> None:
    async def talk(end: str) -> None:
        subscription = await frontend.store.aio().subscribe("a")
        task = asyncio.create_task(subscription.get())
        await asyncio.sleep(0.01)
        if end == "thread":
            await asyncio.to_thread(subscription.synchronous.close)
        elif end == "task":
            await subscription.close()
        else:
            await frontend.store.aio().close()
        with pytest.raises(StoreClosed):
            await asyncio.wait_for(task, SECONDS)

    for end in ("thread", "task", "store"):
        asyncio.run(talk(end))

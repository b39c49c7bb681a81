"""store.redis_async(): a genuine redis.asyncio client on every kind of store, with either protocol and parser."""

from __future__ import annotations

import _thread
import asyncio
import gc
import threading
from collections.abc import Coroutine
from typing import Any

import pytest
import redis
import redis.asyncio

import rillet
from rillet.store.redispy.redis_asyncio import AsyncStoreConnection
from tests.store.conftest import IN_PROCESS, Frontend, only
from tests.variants import long

SECONDS = 60


@pytest.fixture(params=[2, 3], ids=["resp2", "resp3"])
def client(request: pytest.FixtureRequest, frontend: Frontend) -> Any:
    return frontend.store.redis_async(protocol=request.param)


def run(client: Any, main: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine with a limit, then close the client."""

    async def all_of_it() -> Any:
        try:
            return await asyncio.wait_for(main, SECONDS)
        finally:
            await client.aclose()

    return asyncio.run(all_of_it())


async def until_blocked(client: Any, number: int) -> None:
    """Return when `number` clients of the engine wait in blocking commands."""
    while (await client.info("clients"))["blocked_clients"] != number:
        await asyncio.sleep(0.002)


def test_streams_values_and_errors(client: Any) -> None:
    async def main() -> None:
        assert await client.ping() is True
        made = await client.xadd("s", {"a": "1"})
        assert await client.xrange("s") == [(made, {b"a": b"1"})]
        assert await client.set("k", "v") is True
        assert await client.get("k") == b"v"
        assert await client.get("none") is None
        with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
            await client.xadd("k", {"a": "1"})
        large = b"x" * 300_000
        await client.set("large", large)
        assert await client.get("large") == large

    run(client, main())


def test_pipelines_and_transactions(client: Any) -> None:
    async def main() -> None:
        async with client.pipeline(transaction=False) as pipeline:
            for n in range(500):
                pipeline.xadd("s", {"n": n}, id=f"{n + 1}-0")
            assert len(await pipeline.execute()) == 500
        async with client.pipeline() as transaction:
            assert await transaction.set("a", 1).incr("a").get("a").execute() == [True, 2, b"2"]
        async with client.pipeline() as transaction:
            await transaction.watch("a")
            await client.set("a", "changed by another connection")
            transaction.multi()
            transaction.set("a", "never")
            with pytest.raises(redis.WatchError):
                await transaction.execute()

    run(client, main())


def test_blocking_commands_wait_for_another_task_or_their_timeout(client: Any) -> None:
    async def main() -> None:
        waiting = [asyncio.create_task(client.blpop(["l"], 0)) for _ in range(3)]
        await until_blocked(client, 3)
        await client.rpush("l", "a", "b", "c")
        got = await asyncio.gather(*waiting)
        assert sorted(value for _, value in got) == [b"a", b"b", b"c"]
        assert await client.blpop(["l"], 0.03) is None
        assert not await client.xread({"s": "$"}, block=20)

    run(client, main())


def test_a_thread_wakes_a_waiting_task(frontend: Frontend, client: Any) -> None:
    other = frontend.another()

    async def main() -> None:
        await client.xgroup_create("s", "g", id="0", mkstream=True)
        waiting = asyncio.create_task(client.xreadgroup("g", "c", {"s": ">"}, block=0))
        await until_blocked(client, 1)
        thread = threading.Thread(target=lambda: other.stream("s").add({"n": 1}, "1-0"))
        thread.start()
        assert await waiting
        thread.join(SECONDS)
        assert await client.xack("s", "g", "1-0") == 1

    run(client, main())


def test_channels(client: Any) -> None:
    async def main() -> None:
        async with client.pubsub() as pubsub:
            await pubsub.subscribe("a")
            await pubsub.psubscribe("b*")
            kinds = [(await pubsub.get_message(timeout=SECONDS))["type"] for _ in range(2)]
            assert kinds == ["subscribe", "psubscribe"]
            assert await pubsub.get_message(timeout=0.01) is None
            waiting = asyncio.create_task(pubsub.get_message(timeout=SECONDS))
            await asyncio.sleep(0)
            assert await client.publish("a", "one") == 1
            assert (await waiting)["data"] == b"one"
            assert await client.publish("bb", "two") == 1
            assert (await pubsub.get_message(timeout=SECONDS))["data"] == b"two"
            given_up = asyncio.create_task(pubsub.get_message(timeout=SECONDS))
            await asyncio.sleep(0.01)
            given_up.cancel()
            with pytest.raises(asyncio.CancelledError):
                await given_up

    run(client, main())


def test_a_cancelled_call_takes_nothing(client: Any) -> None:
    async def main() -> None:
        waiting = [asyncio.create_task(client.blpop(["l"], 0)) for _ in range(3)]
        await until_blocked(client, 3)
        for task in waiting:
            task.cancel()
        ended = await asyncio.gather(*waiting, return_exceptions=True)
        assert all(isinstance(one, asyncio.CancelledError) for one in ended)
        await until_blocked(client, 0)
        await client.rpush("l", "a", "b", "c")
        assert await client.lrange("l", 0, -1) == [b"a", b"b", b"c"]
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(client.blpop(["none"], 0), 0.02)
        assert await client.ping()

    run(client, main())


@IN_PROCESS
def test_a_call_cancelled_before_the_push_takes_nothing_in_the_same_iteration(frontend: Frontend, client: Any) -> None:
    """The cancelled task has not run yet when the element arrives."""

    async def main() -> None:
        waiting = asyncio.create_task(client.blpop(["l"], 0))
        await until_blocked(client, 1)
        waiting.cancel()
        frontend.store.execute("RPUSH", "l", "a")
        assert frontend.store.execute("LRANGE", "l", 0, -1) == [b"a"]
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert await client.blpop(["l"], 0) in (["l", b"a"], (b"l", b"a"), [b"l", b"a"])

    run(client, main())


@IN_PROCESS
def test_a_cancelled_subscriber_keeps_its_subscription(client: Any) -> None:
    async def main() -> None:
        async with client.pubsub(ignore_subscribe_messages=True) as pubsub:
            await pubsub.subscribe("a")
            assert await pubsub.get_message(timeout=0.01) is None
            for n in range(3):
                assert await pubsub.get_message(timeout=0.01) is None  # the wait inside is cancelled each time
                assert await client.publish("a", n) == 1
                assert (await pubsub.get_message(timeout=SECONDS))["data"] == b"%d" % n

    run(client, main())


@only("memory", *long("owner"))
def test_a_thousand_tasks_wait_without_threads(frontend: Frontend) -> None:
    client: Any = frontend.store.redis_async(driver_info=None)

    async def main() -> None:
        await client.ping()
        threads = _thread._count()
        waiting = [asyncio.create_task(client.blpop(["l"], 0)) for _ in range(1000)]
        await until_blocked(client, 1000)
        assert _thread._count() <= threads + 1  # the timer's
        await client.rpush("l", *range(1000))
        assert sorted(int(value) for _, value in await asyncio.gather(*waiting)) == list(range(1000))

    run(client, main())


def test_decoded_replies_a_database_and_a_name(frontend: Frontend) -> None:
    client: Any = frontend.store.redis_async(decode_responses=True, db=5, client_name="me")

    async def main() -> None:
        assert await client.xadd("s", {"é": "\N{SNOWMAN}"}, id="1-1") == "1-1"
        assert await client.xrange("s") == [("1-1", {"é": "\N{SNOWMAN}"})]
        assert await client.client_getname() == "me"
        assert frontend.store.execute("EXISTS", "s") == 0

    run(client, main())


def test_redis_py_s_pure_python_parsers(frontend: Frontend) -> None:
    from redis._parsers import _AsyncRESP2Parser, _AsyncRESP3Parser

    for protocol, parser in ((2, _AsyncRESP2Parser), (3, _AsyncRESP3Parser)):
        client: Any = frontend.store.redis_async(parser_class=parser, protocol=protocol)

        async def main(client: Any = client) -> None:
            assert await client.ping()
            await client.rpush("l", *("x" * 1000 for _ in range(200)))
            assert len(await client.lrange("l", 0, -1)) >= 200
            assert await client.xadd("s", {"a": "b"})
            assert await client.blpop(["none"], 0.01) is None

        run(client, main())


@IN_PROCESS
def test_one_client_in_two_event_loops(frontend: Frontend) -> None:
    client: Any = frontend.store.redis_async()

    async def main(name: str) -> None:
        waiting = asyncio.create_task(client.blpop([name], 0))
        await until_blocked(client, 1)
        await client.rpush(name, "x")
        assert (await waiting)[1] == b"x"

    asyncio.run(main("one"))
    asyncio.run(main("two"))
    frontend.store.execute("PING")
    client.connection_pool.end_sessions()
    assert frontend.store.info()["connected_clients"] == "1"


@IN_PROCESS
def test_a_client_that_is_dropped_ends_its_sessions(frontend: Frontend) -> None:
    async def main() -> None:
        assert await frontend.store.redis_async().ping()

    asyncio.run(main())
    gc.collect()
    assert frontend.store.info()["connected_clients"] == "1"


@IN_PROCESS
def test_the_stores_end_ends_a_waiting_call(frontend: Frontend) -> None:
    client: Any = frontend.store.redis_async(retry=None)

    async def main() -> None:
        waiting = asyncio.create_task(client.blpop(["l"], 0))
        await until_blocked(client, 1)
        await asyncio.to_thread(frontend.store.close)
        with pytest.raises(redis.ConnectionError):
            await waiting
        with pytest.raises(redis.ConnectionError, match="the store is closed"):
            await client.ping()

    run(client, main())


def test_every_acknowledged_write_is_synced(tmp_path: Any) -> None:
    with rillet.open(tmp_path / "s", appendfsync="always") as store:
        client: Any = store.redis_async()

        async def main() -> None:
            await asyncio.gather(*(client.rpush("l", n) for n in range(50)))
            waiting = asyncio.create_task(client.blpop(["other"], 0))
            await until_blocked(client, 1)
            await client.rpush("other", "x")
            assert (await waiting)[1] == b"x"
            async with client.pipeline() as pipeline:
                assert await pipeline.incr("n").incr("n").execute() == [1, 2]

        run(client, main())
        assert store.execute("LLEN", "l") == 50


def test_a_client_with_a_single_connection(frontend: Frontend) -> None:
    client: Any = frontend.store.redis_async(single_connection_client=True)

    async def main() -> None:
        assert await client.client_id() == await client.client_id()
        await client.execute_command("SELECT", 3)
        await client.set("k", "three")
        assert frontend.store.execute("EXISTS", "k") == 0

    run(client, main())


def test_on_uvloop() -> None:
    uvloop = pytest.importorskip("uvloop")
    with rillet.open() as store, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        client: Any = store.redis_async()

        async def main() -> None:
            waiting = asyncio.create_task(client.blpop(["l"], 0))
            cancelled = asyncio.create_task(client.blpop(["l"], 0))
            await until_blocked(client, 2)
            cancelled.cancel()
            assert await client.rpush("l", "a", "b") == 2
            assert (await waiting)[1] == b"a"
            assert await client.lrange("l", 0, -1) == [b"b"]
            assert await client.blpop(["none"], 0.01) is None
            await client.aclose()

        runner.run(main())


def test_a_cluster(cluster_url: str) -> None:
    with rillet.connect(cluster_url) as store:
        client: Any = store.redis_async(decode_responses=True)

        async def main() -> None:
            for n in range(20):
                assert await client.set(f"k{n}", n)
            assert [await client.get(f"k{n}") for n in range(20)] == [str(n) for n in range(20)]

        run(client, main())


def test_the_connection_names_its_store() -> None:
    with rillet.open() as store:
        client = store.redis_async()
        made = client.connection_pool.make_connection()
        assert isinstance(made, AsyncStoreConnection)
        assert "store=Store(in memory)" in repr(made)

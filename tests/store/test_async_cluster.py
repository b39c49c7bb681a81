"""The asyncio API over a real cluster: routing, redirections, waiting, cancellation, transactions, lost nodes."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from typing import Any

import pytest

import rillet
from rillet import Store
from rillet.errors import CommandError, StoreClosed, StoreError, TransactionConflict
from rillet.store.aio import AsyncStore
from rillet.store.backends import server_backend
from rillet.store.transports import async_cluster
from tests.cluster import MASTERS, Cluster, running_cluster
from tests.judge import redis_binary
from tests.store.test_patience import wait

SECONDS = 60
pytestmark = pytest.mark.skipif(redis_binary() is None, reason="redis-server is not installed")


@pytest.fixture(scope="module")
def nodes() -> Iterator[Cluster]:
    with running_cluster() as cluster:
        yield cluster


@pytest.fixture(params=["", "?protocol=3"])
def store(request: pytest.FixtureRequest, nodes: Cluster) -> Iterator[Store]:
    nodes.flush()
    with rillet.connect(nodes.url + request.param) as store:
        yield store


def run(body: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine in a new event loop, which must use no thread for it."""
    before = threading.active_count()

    async def limited() -> None:
        async with asyncio.timeout(SECONDS):
            await body
        assert threading.active_count() <= before + 1  # asyncio resolves host names in a thread

    asyncio.run(limited())


async def eventually(condition: Callable[[], Awaitable[bool]]) -> None:
    """Wait until a condition holds."""
    while not await condition():
        await asyncio.sleep(0.01)


async def blocked(nodes: Cluster, count: int) -> None:
    """Wait until the masters together report this number of blocked clients."""

    async def reached() -> bool:
        return sum(int(node.info("clients", "blocked_clients")) for node in nodes.masters()) == count

    await eventually(reached)


def test_commands_reach_the_nodes_of_their_keys(store: Store, nodes: Cluster) -> None:
    names = [nodes.key_of(share, f"s{number}") for number in range(4) for share in range(MASTERS)]

    async def body(here: AsyncStore) -> None:
        ids = await asyncio.gather(*[here.stream(name).add({"n": 1}) for name in names])
        assert [await here.stream(name).get(id) for name, id in zip(names, ids, strict=True)] != [None] * len(names)
        assert await here.execute_many([("XLEN", name) for name in names]) == [1] * len(names)
        assert await here.execute("DBSIZE") == len(names)
        assert sorted([name async for name in here.keys("s*")]) == sorted(names)
        assert await here.execute("PING") == b"PONG"
        assert await here.execute_many([("PING",), ("XLEN", names[0]), ("DBSIZE",)]) == [b"PONG", 1, len(names)]
        for refused in ("MULTI", "SCAN"):
            with pytest.raises(CommandError, match=refused):
                await here.execute(refused, *(["0"] if refused == "SCAN" else []))
        with pytest.raises(CommandError, match="CROSSSLOT"):
            await here.execute("DEL", *names)
        await here.execute("FLUSHALL")
        assert await here.execute("DBSIZE") == 0

    run(body(store.aio()))


def test_more_tasks_wait_than_a_pool_has_threads(store: Store, nodes: Cluster) -> None:
    names = [f"s{number}" for number in range(600)]

    async def body(here: AsyncStore) -> None:
        readers = [asyncio.create_task(here.stream(name).read("$", block=0)) for name in names]
        await blocked(nodes, len(names))
        ids = await asyncio.gather(*[here.stream(name).add({"n": 1}) for name in names])
        assert [[entry.id for entry in entries] for entries in await asyncio.gather(*readers)] == [[id] for id in ids]

    run(body(store.aio()))


def test_a_cancelled_call_consumes_nothing(store: Store, nodes: Cluster) -> None:
    async def body(here: AsyncStore) -> None:
        for _ in range(20):
            waiting = [asyncio.create_task(here.execute("BLPOP", f"l{n}", "0")) for n in range(6)]
            await blocked(nodes, 6)
            pushing = [asyncio.create_task(here.execute("RPUSH", f"l{n}", "x")) for n in range(6)]
            await asyncio.sleep(0)
            for task in waiting:
                task.cancel()
            popped = await asyncio.gather(*waiting, return_exceptions=True)
            await asyncio.gather(*pushing)
            left = await here.execute_many([("LLEN", f"l{n}") for n in range(6)])
            for reply, length in zip(popped, left, strict=True):
                assert isinstance(reply, list) != bool(length), (popped, left)
            await here.execute("FLUSHALL")

    run(body(store.aio()))


def test_slots_that_move_are_followed(store: Store, nodes: Cluster) -> None:
    async def body(here: AsyncStore) -> None:
        stream, ids = here.stream("events"), [f"{n}-1" for n in range(1, 9)]
        await stream.add({"n": 1}, ids[0])
        with nodes.moving("events") as move:
            move.migrate()  # ASK
            await stream.add({"n": 2}, ids[1])
            assert await stream.add_many([(ids[2], {"n": 3}), (ids[3], {"n": 4})]) == [(3, 1), (4, 1)]
            assert len(await stream.read(ids[2], block=1)) == 1
            move.finish()  # MOVED
            await stream.add({"n": 5}, ids[4])
            assert await stream.add_many([(ids[5], {"n": 6}), (ids[6], {"n": 7})]) == [(6, 1), (7, 1)]
            lengths = [("XLEN", "events"), ("XLEN", nodes.key_of(0, "x"))]
            assert await here.execute_many(lengths) == [7, 0]
        assert [str(entry.id) async for entry in stream] == ids[:7]
        before = nodes.owner("events").refusals("MOVED")
        assert await stream.length() == 7
        assert nodes.owner("events").refusals("MOVED") == before  # the new place is known

    run(body(store.aio()))


def test_a_waiting_call_follows_its_slot(store: Store, nodes: Cluster) -> None:
    """The old node ends the wait with MOVED, and the call waits at the new one."""
    name = nodes.key_of(1, "waited")

    async def body(here: AsyncStore) -> None:
        reader = asyncio.create_task(here.stream(name).read("0", block=0))
        await blocked(nodes, 1)
        with nodes.moving(name) as move:
            await asyncio.to_thread(move.finish)
        await blocked(nodes, 1)
        added = await here.stream(name).add({"n": 1})
        assert [entry.id for entry in await reader] == [added]

    asyncio.run(asyncio.wait_for(body(store.aio()), SECONDS))


def test_transactions(store: Store, nodes: Cluster) -> None:
    name = nodes.key_of(0, "orders")
    count = f"{{{name}}}n"

    async def body(here: AsyncStore) -> None:
        async def counted() -> int:
            async with here.transaction([count]) as transaction:
                queued = transaction.execute("INCR", count)
                transaction.add(name, {"n": 1})
            return int(queued.result)

        assert await counted() == 1
        with nodes.moving(name) as move:
            move.migrate()
            assert await counted() == 2  # ASK
            move.finish()
            assert [await counted(), await counted()] == [3, 4]  # MOVED, and known
        with pytest.raises(TransactionConflict):
            await _overtaken(here, count)
        assert await here.execute_many([("MULTI",), ("INCR", count), ("EXEC",)]) == [b"OK", b"QUEUED", [6]]
        assert await here.stream(name).length() == 4

    run(body(store.aio()))


async def _overtaken(here: AsyncStore, key: str) -> None:
    async with here.transaction([key]) as transaction:
        await here.execute("INCR", key)
        transaction.execute("INCR", key)


def _moved(store: Store, nodes: Cluster, key: str) -> None:
    with store.transaction(watch=[key]) as transaction:
        with nodes.moving(key):
            pass
        store.execute("SET", key, "changed by another client")
        transaction.execute("SET", key, "lost update")


async def _moved_async(here: AsyncStore, nodes: Cluster, key: str) -> None:
    async with here.transaction([key]) as transaction:
        with nodes.moving(key):
            pass
        await here.execute("SET", key, "changed by another client")
        transaction.execute("SET", key, "lost update")


def test_a_slot_that_moves_under_a_watched_key(store: Store, nodes: Cluster) -> None:
    """The new node does not watch the key: the transaction must not be executed there."""
    first, second = nodes.key_of(0, "a"), nodes.key_of(1, "b")
    with pytest.raises(TransactionConflict):
        _moved(store, nodes, first)
    assert store.execute("GET", first) == b"changed by another client"

    async def body(here: AsyncStore) -> None:
        with pytest.raises(TransactionConflict):
            await _moved_async(here, nodes, second)
        assert await here.execute("GET", second) == b"changed by another client"

    run(body(store.aio()))


def test_subscriptions(store: Store, nodes: Cluster) -> None:
    names = [nodes.key_of(share, "channel") for share in range(MASTERS)]

    async def body() -> None:
        here = store.aio()
        async with await here.subscribe("news") as plain, await here.subscribe(shards=names) as sharded:
            waiting = [asyncio.create_task(plain.get()), *(asyncio.create_task(sharded.get()) for _ in names)]
            await asyncio.sleep(0.01)
            await here.publish("news", "x")
            assert [await here.publish(name, name, shard=True) for name in names] == [1] * MASTERS
            found = [message.data for message in await asyncio.gather(*waiting) if message is not None]
            assert (found[0], sorted(found[1:])) == ("x", sorted(names))

    asyncio.run(asyncio.wait_for(body(), SECONDS))


def test_closing_wakes_every_task(store: Store, nodes: Cluster) -> None:
    async def body(here: AsyncStore) -> None:
        tasks = [asyncio.create_task(here.stream(f"s{n}").read("$", block=0)) for n in range(30)]
        await blocked(nodes, 30)
        await here.close()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(one, StoreClosed) for one in results)

    asyncio.run(asyncio.wait_for(body(store.aio()), SECONDS))


def test_no_node_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    with running_cluster() as cluster, rillet.connect(cluster.url) as store:
        async def body() -> None:
            here = store.aio()
            await here.stream("s").add({"n": 1})
            wait(monkeypatch, 0.1)
            patience = async_cluster._TaskPatience
            monkeypatch.setattr(async_cluster, "_TaskPatience", lambda seconds: patience(seconds / 10))
            for node in list(cluster.nodes):
                await asyncio.to_thread(cluster.kill, node)
            for _ in range(2):
                with pytest.raises(StoreError, match="did not answer"):
                    await here.stream("s").add({"n": 1})

        asyncio.run(asyncio.wait_for(body(), SECONDS))


def test_a_node_that_dies(monkeypatch: pytest.MonkeyPatch) -> None:
    """A write that was not sent waits for the replica that takes over."""
    monkeypatch.setattr(server_backend, "CLUSTER_PATIENCE", 60.0)
    with running_cluster(replicas=True) as cluster, rillet.connect(cluster.url) as store:
        key, other = cluster.key_of(2, "a"), cluster.key_of(0, "a")

        async def body() -> None:
            here = store.aio()
            await here.stream(key).add({"n": 1}, "1-1")
            await asyncio.to_thread(cluster.run, key, "WAIT", 1, 60_000)
            dead = cluster.owner(key)
            await asyncio.to_thread(cluster.kill, dead)
            await here.stream(key).add({"n": 2})
            assert await here.stream(other).length() == 0
            assert await here.stream(key).length() == 2
            assert [name async for name in here.keys("*")] == [key]

        asyncio.run(asyncio.wait_for(body(), 120))

"""The asyncio face: the same results, and a loop that goes on while something waits."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from rillet.errors import BusyGroup, CommandError, StoreClosed
from tests.store.conftest import IN_PROCESS, Frontend


def _run(body: Coroutine[Any, Any, None]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(30):
            await body

    asyncio.run(limited())


def test_a_stream_has_the_results_of_the_blocking_interface(frontend: Frontend) -> None:
    async def body() -> None:
        store = frontend.store.aio()
        stream = store.stream("s")
        made = await stream.add({"n": 0}, id=1)
        assert made is not None
        assert len(await stream.add_many((n, {"n": n}) for n in range(2, 1500))) == 1498
        assert await stream.length() == 1499
        assert (await stream.info())["length"] == 1499
        assert [entry["n"] for entry in await stream.range(count=2)] == ["0", "2"]
        assert [entry["n"] for entry in await stream.reverse(count=1)] == ["1499"]
        assert len([entry async for entry in stream]) == 1499
        found = await stream.get(made)
        assert found is not None
        assert found["n"] == "0"
        assert len(await stream.read(made, count=3)) == 3
        assert await stream.delete(made) == 1
        assert await stream.trim(maxlen=10) == 1488
        assert await store.execute("SET", "k", "v") == b"OK"
        assert await store.delete("k", "s") == 2
        with pytest.raises(CommandError, match="^ERR unknown command"):
            await store.execute("NOSUCH")

    _run(body())


def test_the_loop_goes_on_while_tasks_wait(frontend: Frontend) -> None:
    async def body() -> None:
        stream = frontend.store.aio().stream("s")
        readers = [asyncio.create_task(stream.read("$", block=0)) for _ in range(40)]
        while int((await asyncio.to_thread(frontend.store.info))["blocked_clients"]) < 40:
            await asyncio.sleep(0.005)
        made = await stream.add({"n": 1})
        for entries in await asyncio.gather(*readers):
            assert [entry.id for entry in entries] == [made]

    _run(body())


def test_a_task_is_woken_by_another_store_and_by_time(frontend: Frontend) -> None:
    async def body() -> None:
        stream = frontend.store.aio().stream("s")
        assert await stream.read("$", block=0.02) == []
        reader = asyncio.create_task(stream.read("$", block=20))
        while not int((await asyncio.to_thread(frontend.store.info))["blocked_clients"]):
            await asyncio.sleep(0.005)
        await asyncio.to_thread(lambda: frontend.another().stream("s").add({"n": 1}))
        assert [entry["n"] for entry in await reader] == ["1"]

    _run(body())


def test_tasks_consume_groups_and_follow_streams(frontend: Frontend) -> None:
    async def body() -> None:
        store = frontend.store.aio()
        stream = store.stream("s")
        group = await stream.group("g")
        assert await group.create()
        with pytest.raises(BusyGroup):
            await store.execute("XGROUP", "CREATE", "s", "g", "0")
        consumer = group.consumer("c")
        waiting = asyncio.create_task(consumer.read(block=10))

        async def first() -> str:
            async for entry in stream.follow("0-0", block=10):
                return entry["n"]
            raise AssertionError("follow ended")

        follower = asyncio.create_task(first())
        await stream.add({"n": 1}, 1)
        (message,) = await waiting
        assert await follower == "1"
        assert [found.consumer for found in await group.pending()] == ["c"]
        assert await consumer.ack(message) == 1
        assert await group.ack(message.id) == 0
        await stream.add_many((n, {"n": n}) for n in range(2, 6))
        await group.consumer("dead").read(2)
        seen = []
        async for one in consumer.messages(claim_idle=0, stop_when_empty=True):
            seen.append(one["n"])
            await consumer.ack(one)
        assert seen == ["2", "3", "4", "5"]
        assert (await group.info()).pending == 0
        assert (await consumer.claim(0))[1] == []

    _run(body())


@IN_PROCESS
def test_a_cancelled_task_waits_no_longer(frontend: Frontend) -> None:
    async def body() -> None:
        group = await frontend.store.aio().stream("s").group("g")
        task = asyncio.create_task(group.consumer("c").read(block=0))
        while frontend.store.info()["blocked_clients"] != "1":
            await asyncio.sleep(0.001)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert frontend.store.info()["blocked_clients"] == "0"
        frontend.store.stream("s").add({"n": 1})
        assert [message["n"] for message in await group.consumer("c").read()] == ["1"]

    _run(body())


def test_close_ends_what_waits(frontend: Frontend) -> None:
    async def body() -> None:
        async with frontend.store.aio() as store:
            task = asyncio.create_task(store.stream("s").read("$", block=0))
            while not int((await asyncio.to_thread(frontend.store.info))["blocked_clients"]):
                await asyncio.sleep(0.005)
        with pytest.raises(StoreClosed):
            await task
        with pytest.raises(StoreClosed):
            await store.stream("s").add({"a": 1})

    _run(body())

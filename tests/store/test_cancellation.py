"""A cancelled call of the asyncio API takes nothing: the data is still there, or the consumer's next call gets it."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

import rillet
from rillet import Store
from rillet.runtime.session import Session
from rillet.store.aio import AsyncStore
from rillet.store.transports.async_connected import blocks
from rillet.store.transports.in_process import InProcessTransport
from tests.store.conftest import IN_PROCESS, Frontend


def _run(body: Coroutine[Any, Any, None]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(60):
            await body

    asyncio.run(limited())


async def _blocked(store: Store, count: int) -> None:
    """Wait until the server reports this number of blocked clients."""
    while int((await asyncio.to_thread(store.info))["blocked_clients"]) != count:
        await asyncio.sleep(0.002)


async def _cancelled(*tasks: asyncio.Task[Any]) -> None:
    for task in tasks:
        task.cancel()
    for result in await asyncio.gather(*tasks, return_exceptions=True):
        assert isinstance(result, asyncio.CancelledError)


def test_a_read_that_timed_out_consumes_nothing(frontend: Frontend) -> None:
    async def body() -> None:
        store = frontend.store.aio()
        stream = store.stream("s")
        group = await stream.group("g")
        consumer = group.consumer("c")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(consumer.read(block=20), 0.2)
        made = await stream.add({"n": 1})
        assert [message.id for message in await consumer.read()] == [made]
        assert len(await group.pending()) == 1

    _run(body())


def test_cancelled_pops_take_nothing(frontend: Frontend) -> None:
    async def body() -> None:
        store = frontend.store.aio()
        pops = [asyncio.create_task(store.execute("BLPOP", "l", 0)) for _ in range(3)]
        await _blocked(frontend.store, 3)
        await _cancelled(*pops)
        assert await store.execute("RPUSH", "l", "a", "b", "c") == 3
        assert await store.execute("LRANGE", "l", 0, -1) == [b"a", b"b", b"c"]

    _run(body())


# Each blocking command, the command that serves it, and a question with its answer after the cancellation.
SERVED: list[tuple[list[object], list[object], list[object], object]] = [
    (["BLPOP", "l", 0], ["RPUSH", "l", "x"], ["LRANGE", "l", 0, -1], [b"x"]),
    (["BRPOP", "l", 0], ["RPUSH", "l", "x", "y"], ["LRANGE", "l", 0, -1], [b"x", b"y"]),
    (["BLMPOP", 0, 1, "l", "RIGHT", "COUNT", 2], ["RPUSH", "l", "x", "y", "z"], ["LRANGE", "l", 0, -1],
     [b"x", b"y", b"z"]),
    (["BLMOVE", "l", "to", "LEFT", "RIGHT", 0], ["RPUSH", "l", "x", "y"], ["LRANGE", "l", 0, -1], [b"x", b"y"]),
    (["BZPOPMIN", "z", 0], ["ZADD", "z", 1.5, "m"], ["ZRANGE", "z", 0, -1, "WITHSCORES"], [b"m", b"1.5"]),
    (["BZMPOP", 0, 1, "z", "MAX", "COUNT", 2], ["ZADD", "z", 1, "m", 2, "n"], ["ZRANGE", "z", 0, -1], [b"m", b"n"]),
]  # fmt: skip


@pytest.mark.parametrize(("pop", "push", "question", "answer"), SERVED, ids=lambda value: str(value[0]))
def test_a_pop_that_is_cancelled_when_it_was_just_served_puts_back(
    frontend: Frontend, pop: list[Any], push: list[Any], question: list[Any], answer: object
) -> None:
    async def body() -> None:
        store = frontend.store.aio()
        for _ in range(3):
            task = asyncio.create_task(store.execute(*pop))
            await _blocked(frontend.store, 1)
            frontend.store.execute(*push)  # synchronous: the loop has not seen the reply yet
            await _cancelled(task)
            await _blocked(frontend.store, 0)
            assert await store.execute(*question) == answer
            await store.delete("l", "to", "z")

    _run(body())


# What fills a key, a call that takes from it, and a question whose answer is as before if the call was cancelled.
Call = Callable[[AsyncStore], Awaitable[Any]]
TAKING: dict[str, tuple[Call, Call, Call]] = {
    "Hash.pop": (
        lambda store: store.hash("k").update(f="v", g="w"),
        lambda store: store.hash("k").pop("f"),
        lambda store: store.hash("k").get_all(),
    ),
    "SortedSet.pop": (
        lambda store: store.zset("k").add({"m": 1.5, "n": 2}),
        lambda store: store.zset("k").pop("m"),
        lambda store: store.zset("k").get_all(),
    ),
    "SortedSet.pop_min_many": (
        lambda store: store.zset("k").add({"m": 1.5, "n": 2}),
        lambda store: store.zset("k").pop_min_many(2),
        lambda store: store.zset("k").get_all(),
    ),
    "Set.pop": (
        lambda store: store.set("k").update("abc"),
        lambda store: store.set("k").pop(),
        lambda store: store.set("k").members(),
    ),
    "List.popleft_many": (
        lambda store: store.list("k").extend("abc"),
        lambda store: store.list("k").popleft_many(2),
        lambda store: store.list("k").get_all(),
    ),
    "String.get_and_delete": (
        lambda store: store.string("k").set_value("v"),
        lambda store: store.string("k").get_and_delete(),
        lambda store: store.string("k").get_value(),
    ),
    "execute_many": (
        lambda store: store.list("k").extend("abc"),
        lambda store: store.execute_many([("LPOP", "k"), ("LLEN", "k"), ("RPOP", "k")]),
        lambda store: store.list("k").get_all(),
    ),
}


@pytest.mark.parametrize("name", TAKING)
def test_a_call_that_takes_data_is_cancelled_at_any_turn_of_the_loop(frontend: Frontend, name: str) -> None:
    fill, take, ask = TAKING[name]

    async def body() -> None:
        store = frontend.store.aio()
        cancelled = 0
        for turns in range(6):
            await store.delete("k")
            await fill(store)
            before = await ask(store)
            task = asyncio.ensure_future(take(store))
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            result: Any = (await asyncio.gather(task, return_exceptions=True))[0]
            if isinstance(result, asyncio.CancelledError):
                cancelled += 1
                assert await ask(store) == before
            else:
                assert result
                assert await ask(store) != before
        assert cancelled  # at least before the call began

    _run(body())


def test_a_batch_that_waits_for_the_disk_is_cancelled(tmp_path: Path) -> None:
    async def body() -> None:
        async with rillet.open(tmp_path / "store", appendfsync="always").aio() as store:
            prices = store.hash("prices")
            await prices.update(apple="1")
            task = asyncio.ensure_future(prices.pop("apple"))
            await asyncio.sleep(0)  # it was executed, and waits for the disk
            await _cancelled(task)
            assert await prices.get_all() == {"apple": "1"}

    _run(body())


def test_a_read_that_is_cancelled_when_it_was_just_served_is_delivered_to_the_next_call(frontend: Frontend) -> None:
    async def body() -> None:
        store = frontend.store.aio()
        stream = store.stream("s")
        consumer = (await stream.group("g")).consumer("c")
        for number in range(3):
            task = asyncio.create_task(consumer.read(block=20))
            await _blocked(frontend.store, 1)
            made = frontend.store.stream("s").add({"n": number})
            await _cancelled(task)
            assert [message.id for message in await consumer.read(block=5)] == [made]

    _run(body())


def test_cancelled_messages_leave_no_read_behind(frontend: Frontend) -> None:
    async def body() -> None:
        store = frontend.store.aio()
        stream = store.stream("s")
        consumer = (await stream.group("g")).consumer("c")

        async def work() -> None:
            async for _ in consumer.messages(block=0):
                raise AssertionError("there is no message")

        task = asyncio.create_task(work())
        await _blocked(frontend.store, 1)
        await _cancelled(task)
        await _blocked(frontend.store, 0)
        made = await stream.add({"n": 1})
        assert [message.id for message in await consumer.read()] == [made]

    _run(body())


def test_commands_cancelled_at_random_lose_and_double_nothing(frontend: Frontend) -> None:
    """Producers push numbers; consumers pop under timeouts of almost no time. Each number is received once."""

    async def body() -> None:
        store = frontend.store.aio()
        received: list[int] = []
        total = 200

        async def consume() -> None:
            patience = 0.0005  # grows until a reply arrives in time, so that a slow machine gets through too
            while len(received) < total:
                patience *= 1.5
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(min(patience, 1)):
                        reply = await store.execute("BLPOP", "l", 0)
                        received.append(int(reply[1]))
                        patience = 0.0005

        consumers = [asyncio.create_task(consume()) for _ in range(4)]
        for number in range(total):
            await store.execute("RPUSH", "l", number)
            if number % 10 == 0:
                await asyncio.sleep(0.001)
        await asyncio.gather(*consumers)
        assert sorted(received) == list(range(total))
        assert await store.execute("LLEN", "l") == 0

    _run(body())


def test_a_store_that_syncs_every_write_delivers_after_a_cancellation(tmp_path: Path) -> None:
    async def body() -> None:
        async with rillet.open(tmp_path / "store", appendfsync="always").aio() as store:
            stream = store.stream("s")
            consumer = (await stream.group("g")).consumer("c")
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(consumer.read(block=20), 0.1)
            made = await stream.add({"n": 1})
            assert [message.id for message in await consumer.read()] == [made]
            await asyncio.gather(*(stream.add({"n": n}) for n in range(200)))
            assert await stream.length() == 201

    _run(body())


def test_a_transaction_is_refused_on_the_shared_interface(frontend: Frontend) -> None:
    for name in ("MULTI", "EXEC", "DISCARD", "WATCH", "UNWATCH"):
        with pytest.raises(rillet.errors.CommandError, match=r"store\.transaction"):
            frontend.store.execute(name, *(["k"] if name == "WATCH" else []))


READS = [
    (["XREAD", "COUNT", 5, "BLOCK", 0, "STREAMS", "s", "$"], True),
    (["XREAD", "STREAMS", "BLOCK", "$"], False),
    (["XREADGROUP", "GROUP", "g", "c", "COUNT", 5, "NOACK", "CLAIM", 5, "block", 0, "STREAMS", "s", ">"], True),
    (["XREADGROUP", "GROUP", "BLOCK", "BLOCK", "COUNT", 5, "STREAMS", "s", ">"], False),
]


@pytest.mark.parametrize(("command", "expected"), READS)
def test_the_commands_that_block_are_known(command: list[object], expected: bool) -> None:
    assert blocks([str(word).encode() for word in command]) is expected


def test_a_blocking_read_with_many_options_delays_no_other_call(frontend: Frontend) -> None:
    async def body() -> None:
        store = frontend.store.aio()
        stream = store.stream("s")
        await (await stream.group("g")).create()
        options = "COUNT 5 NOACK COUNT 5 NOACK BLOCK 0".split()
        waiting = asyncio.create_task(store.execute("XREADGROUP", "GROUP", "g", "c", *options, "STREAMS", "s", ">"))
        await _blocked(frontend.store, 1)
        made = await stream.add({"n": 1})
        ((_, entries),) = await waiting
        assert entries == [[str(made).encode(), [b"n", b"1"]]]

    _run(body())


def test_a_move_that_is_cancelled_after_another_client_took_its_element_adds_nothing(frontend: Frontend) -> None:
    async def body() -> None:
        store = frontend.store.aio()
        task = asyncio.create_task(store.execute("BLMOVE", "l", "to", "LEFT", "RIGHT", 0))
        await _blocked(frontend.store, 1)
        frontend.store.execute("RPUSH", "l", "x")  # synchronous: the loop has not seen the reply yet
        assert frontend.store.execute("LPOP", "to") == b"x"
        await _cancelled(task)
        await _blocked(frontend.store, 0)
        assert await store.execute("LRANGE", "l", 0, -1) == []
        assert await store.execute("LRANGE", "to", 0, -1) == []

    _run(body())


def test_two_event_loops_wait_for_the_disk_at_the_same_time(tmp_path: Path) -> None:
    added: list[object] = []

    async def body(store: Store) -> None:
        stream = store.aio().stream("s")
        for _ in range(10):
            added.extend(await asyncio.gather(*(stream.add({"n": n}) for n in range(20))))

    with rillet.open(tmp_path / "store", appendfsync="always") as store:
        threads = [threading.Thread(target=_run, args=(body(store),)) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert len(added) == len(store.stream("s")) == 600


@IN_PROCESS
def test_nothing_serves_a_blocked_call_after_its_cancellation(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    transport = store.transport
    assert isinstance(transport, InProcessTransport)
    undo, pushing = transport._undo, threading.Thread(target=lambda: store.execute("RPUSH", "l", "x"))

    def undo_then_push(session: Session, argv: list[bytes], raw: bytes | None) -> None:
        undo(session, argv, raw)
        pushing.start()
        pushing.join(0.2)

    async def body() -> None:
        monkeypatch.setattr(transport, "_undo", undo_then_push)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(store.aio().execute("BLPOP", "l", 0), 0.05)

    asyncio.run(body())
    pushing.join()
    assert store.execute("LRANGE", "l", 0, -1) == [b"x"]

"""A cancelled call of store.redis_async() in process loses nothing, also if its command was already executed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import rillet
from rillet import Store
from tests.variants import long

SECONDS = 60
Call = Callable[[Any], Awaitable[Any]]


@pytest.fixture(params=["memory", "everysec", "always"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """A store whose engine runs in this process."""
    kind = request.param
    with rillet.open() if kind == "memory" else rillet.open(tmp_path / "store", appendfsync=kind) as opened:
        yield opened


@pytest.fixture(params=[2, 3], ids=["resp2", "resp3"])
def client(request: pytest.FixtureRequest, store: Store) -> Any:
    return store.redis_async(protocol=request.param)


def run(client: Any, body: Callable[[], Awaitable[None]]) -> None:
    async def limited() -> None:
        try:
            async with asyncio.timeout(SECONDS):
                await body()
        finally:
            await client.aclose()

    asyncio.run(limited())


# Each call that takes data, the command that serves it, and the keys and their values after the cancellation.
BLOCKING: dict[str, tuple[Call, list[Any], dict[str, Any]]] = {
    "BLPOP": (lambda c: c.blpop(["l"], 0), ["RPUSH", "l", "x", "y"], {"l": [b"x", b"y"]}),
    "BRPOP": (lambda c: c.brpop(["l"], 0), ["RPUSH", "l", "x", "y"], {"l": [b"x", b"y"]}),
    "BLMOVE": (lambda c: c.blmove("l", "to", 0, "LEFT", "RIGHT"), ["RPUSH", "l", "x", "y"],
               {"l": [b"x", b"y"], "to": []}),
    "BLMPOP": (lambda c: c.blmpop(0, 1, "l", direction="RIGHT", count=2), ["RPUSH", "l", "x", "y", "z"],
               {"l": [b"x", b"y", b"z"]}),
    "BZPOPMIN": (lambda c: c.bzpopmin(["z"], 0), ["ZADD", "z", 1.5, "m", 2, "n"],
                 {"z": [b"m", b"1.5", b"n", b"2"]}),
    "BZMPOP": (lambda c: c.bzmpop(0, 1, ["z"], max=True), ["ZADD", "z", 1.5, "m", 2, "n"],
               {"z": [b"m", b"1.5", b"n", b"2"]}),
}  # fmt: skip


def values(store: Store, keys: dict[str, Any]) -> dict[str, Any]:
    """Return the contents of lists and sorted sets."""
    return {key: store.execute("ZRANGE", key, 0, -1, "WITHSCORES") if key == "z" else
            store.execute("LRANGE", key, 0, -1) for key in keys}  # fmt: skip


@pytest.mark.parametrize("name", BLOCKING)
@pytest.mark.parametrize(
    ("client", "turns"), [(2, 0), (3, 1), (2, 2), (3, 3), *long((3, 0), (2, 1), (3, 2), (2, 3))], indirect=["client"]
)
def test_a_blocked_call_that_was_served_puts_back(store: Store, client: Any, name: str, turns: int) -> None:
    """The data arrives, the event loop turns a few times, and the task is cancelled before it has its reply."""
    call, push, after = BLOCKING[name]

    async def body() -> None:
        for _ in range(3):
            task: asyncio.Task[Any] = asyncio.ensure_future(call(client))
            while int(store.info()["blocked_clients"]) != 1:
                await asyncio.sleep(0)
            store.execute(*push)
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            if isinstance((await asyncio.gather(task, return_exceptions=True))[0], asyncio.CancelledError):
                assert values(store, after) == after
            else:
                assert values(store, after) != after
            store.execute("DEL", "l", "to", "z")
        assert await client.ping()

    run(client, body)


TAKING: dict[str, tuple[Call, list[Any], dict[str, Any]]] = {
    "LPOP": (lambda c: c.lpop("l"), ["RPUSH", "l", "x", "y"], {"l": [b"x", b"y"]}),
    "RPOP count": (lambda c: c.rpop("l", 2), ["RPUSH", "l", "x", "y", "z"], {"l": [b"x", b"y", b"z"]}),
    "ZPOPMAX": (lambda c: c.zpopmax("z"), ["ZADD", "z", 1, "m"], {"z": [b"m", b"1"]}),
    "LMOVE": (lambda c: c.lmove("l", "to"), ["RPUSH", "l", "x", "y"], {"l": [b"x", b"y"], "to": []}),
    "pipeline": (lambda c: c.pipeline(False).lpop("l").set("k", 1).rpop("l").execute(), ["RPUSH", "l", "x", "y", "z"],
                 {"l": [b"x", b"y", b"z"]}),
    "transaction": (lambda c: c.pipeline(True).lpop("l").lpop("l").execute(), ["RPUSH", "l", "x", "y", "z"],
                    {"l": [b"x", b"y", b"z"]}),
    "a pipeline that blocks": (lambda c: c.pipeline(False).lpop("l").blpop(["none"], 0).execute(),
                               ["RPUSH", "l", "x", "y"], {"l": [b"x", b"y"]}),
}  # fmt: skip
PIPELINES = ("pipeline", "transaction")


@pytest.mark.parametrize("name", TAKING)
def test_a_call_that_is_cancelled_while_it_waits_for_the_disk_puts_back(store: Store, client: Any, name: str) -> None:
    call, push, after = TAKING[name]

    async def body() -> None:
        await client.ping()
        for turns in range(6):
            store.execute(*push)
            task: asyncio.Task[Any] = asyncio.ensure_future(call(client))
            for _ in range(turns):
                await asyncio.sleep(0)
            before = values(store, after)
            task.cancel()
            if isinstance((await asyncio.gather(task, return_exceptions=True))[0], asyncio.CancelledError):
                # redis-py releases a pipeline's connection in a task, after it has read all replies.
                assert values(store, after) in ((after, before) if name in PIPELINES else (after,))
            else:
                assert values(store, after) != after
            store.execute("DEL", "l", "to", "z")

    run(client, body)


def test_messages_of_a_cancelled_read_stay_pending(store: Store, client: Any) -> None:
    async def body() -> None:
        await client.xgroup_create("s", "g", id="0", mkstream=True)
        task = asyncio.create_task(client.xreadgroup("g", "c", {"s": ">"}, block=0))
        while int(store.info()["blocked_clients"]) != 1:
            await asyncio.sleep(0)
        made = store.stream("s").add({"n": 1})
        task.cancel()
        assert isinstance((await asyncio.gather(task, return_exceptions=True))[0], asyncio.CancelledError)
        assert [str(one.id) for one in store.stream("s").group("g").pending()] == [str(made)]
        own = await client.xreadgroup("g", "c", {"s": "0"})
        assert b"n" in str(own).encode()
        assert not await client.xreadgroup("g", "c", {"s": ">"})

    run(client, body)


def test_what_was_put_back_goes_to_the_next_waiting_call(store: Store, client: Any) -> None:
    async def body() -> None:
        first, second = (asyncio.create_task(client.blpop(["l"], 0)) for _ in range(2))
        while int(store.info()["blocked_clients"]) != 2:
            await asyncio.sleep(0)
        store.execute("RPUSH", "l", "x")
        first.cancel()
        assert await second == ([b"l", b"x"] if isinstance(await second, list) else (b"l", b"x"))
        assert store.execute("LLEN", "l") == 0

    run(client, body)


def test_a_reply_that_was_read_is_not_put_back(store: Store, client: Any) -> None:
    async def body() -> None:
        await client.rpush("l", "x", "y", "z")
        assert await client.lpop("l") == b"x"
        task = asyncio.create_task(client.blpop(["none"], 0))
        while int(store.info()["blocked_clients"]) != 1:
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert await client.lpop("l") == b"y"
        await client.connection_pool.disconnect()
        assert store.execute("LRANGE", "l", 0, -1) == [b"z"]

    run(client, body)


def test_a_closed_client_puts_back_what_nobody_read(store: Store, client: Any) -> None:
    async def body() -> None:
        connection = await client.connection_pool.get_connection()
        store.execute("RPUSH", "l", "x", "y")
        await connection.send_command("LPOP", "l")
        await connection.disconnect()
        await client.connection_pool.release(connection)
        assert store.execute("LRANGE", "l", 0, -1) == [b"x", b"y"]

    run(client, body)

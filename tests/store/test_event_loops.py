"""One client and one store in several event loops: one after the other, and in several threads at a time."""

from __future__ import annotations

import asyncio
import gc
import logging
import socket
import sys
import threading
import weakref
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

import rillet
from rillet.store.aio.store import AsyncStore
from tests.store.conftest import FEW, Frontend, only
from tests.variants import by_speed, covering

SECONDS = 60
LOOPS = by_speed(3, 3, 4)  # one after the other
THREADS = by_speed(3, 3, 4)
TURNS = by_speed(2, 2, 3)  # loops of each thread
Main = Callable[[str], Coroutine[Any, Any, None]]

pytestmark = pytest.mark.timeout(120)


def one_after_the_other(main: Main, count: int = LOOPS) -> None:
    for number in range(count):
        asyncio.run(main(f"loop{number}"))


def at_the_same_time(main: Main, threads: int = THREADS, count: int = TURNS) -> None:
    """Run loops in threads; raise the first error."""
    errors: list[BaseException] = []
    begin = threading.Barrier(threads)

    def run(thread: int) -> None:
        try:
            for number in range(count):
                begin.wait(SECONDS)
                asyncio.run(main(f"thread{thread}-{number}"))
        except BaseException as error:
            begin.abort()
            errors.append(error)

    running = [threading.Thread(target=run, args=(thread,), daemon=True) for thread in range(threads)]
    for one in running:
        one.start()
    for one in running:
        one.join(SECONDS)
        assert not one.is_alive()
    if errors:
        raise errors[0]


def in_plain_loops(main: Main, count: int = LOOPS) -> list[weakref.ref[asyncio.AbstractEventLoop]]:
    """Close each loop without ending its generators, as a program may do that does not use asyncio.run."""
    loops = []
    for number in range(count):
        loop = asyncio.new_event_loop()
        loops.append(weakref.ref(loop))
        loop.run_until_complete(main(f"plain{number}"))
        loop.close()
    return loops


def of_client(client: Any) -> Main:
    """Return what to do with a redis.asyncio client in each loop."""

    async def main(name: str) -> None:
        key = f"{{{name}}}"
        waiting = asyncio.create_task(client.blpop([key], 0))
        await asyncio.gather(*(client.set(f"{key}:{n}", n) for n in range(20)))
        assert await client.rpush(key, "x") == 1
        assert (await waiting)[1] == b"x"
        assert await client.blpop([key], 0.01) is None
        async with client.pipeline() as pipeline:
            pipeline.incr(f"{key}:n")
            pipeline.get(f"{key}:n")
            assert (await pipeline.execute())[-1] in (1, b"1")
        async with client.pubsub() as pubsub:
            await pubsub.subscribe(name)
            assert (await pubsub.get_message(timeout=SECONDS))["type"] == "subscribe"
            assert await client.publish(name, "hello") == 1
            assert (await pubsub.get_message(timeout=SECONDS))["data"] == b"hello"

    return main


def of_store(store: rillet.Store) -> Main:
    """Return what to do with the asyncio API of a store in each loop."""
    there = store.aio()

    async def main(name: str) -> None:
        key = f"{{{name}}}"
        waiting = asyncio.create_task(there.execute("BLPOP", key, 0))
        await asyncio.gather(*(there.execute("SET", f"{key}:{n}", n) for n in range(20)))
        await there.execute("RPUSH", key, "x")
        assert (await waiting)[1] == b"x"
        assert await there.execute("BLPOP", key, "0.01") is None
        async with await there.subscribe(name) as subscription:
            await there.execute("PUBLISH", name, "hello")
            message = await subscription.get(timeout=SECONDS)
            assert message is not None
            assert message.data == "hello"

    return main


def connections(store: rillet.Store) -> int:
    """Return the number of clients of the store's server, without this one."""
    return len(store.execute("CLIENT", "LIST").splitlines())


@pytest.fixture(params=["redis_async", "aio"])
def main(request: pytest.FixtureRequest, frontend: Frontend) -> Main:
    return of_store(frontend.store) if request.param == "aio" else of_client(frontend.store.redis_async())


@FEW
def test_loops_one_after_the_other(frontend: Frontend, main: Main) -> None:
    before = connections(frontend.store)
    one_after_the_other(main)
    until_fewer(frontend.store, before)


@FEW
def test_loops_at_the_same_time(frontend: Frontend, main: Main) -> None:
    before = connections(frontend.store)
    at_the_same_time(main)
    until_fewer(frontend.store, before)


@FEW
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_loops_that_are_closed_without_their_generators(frontend: Frontend, main: Main) -> None:
    before = connections(frontend.store)
    loops = in_plain_loops(main)
    asyncio.run(main("last"))  # leaves what the loops before it left open
    until_fewer(frontend.store, before)
    gc.collect()
    assert [loop() for loop in loops] == [None] * len(loops)  # and nothing keeps them


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_a_loop_is_closed_while_it_connects(monkeypatch: pytest.MonkeyPatch) -> None:
    """The coroutine ends when it is collected, in whichever thread, and then its loop runs nothing any more."""
    unraisable: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda found: unraisable.append(found.exc_value))
    with socket.create_server(("127.0.0.1", 0)) as server:  # accepts and never answers
        store = rillet.connect(f"redis://127.0.0.1:{server.getsockname()[1]}", timeout=None)
        loop = asyncio.new_event_loop()

        async def begin(there: AsyncStore) -> asyncio.Task[Any]:
            task = asyncio.create_task(there.execute("PING"))
            connection, _ = await asyncio.to_thread(server.accept)
            connection.settimeout(SECONDS)
            assert await asyncio.to_thread(connection.recv, 1 << 16)  # so the coroutine waits for the reply
            return task

        task = loop.run_until_complete(begin(store.aio()))
        logged = logging.getLogger("asyncio")
        monkeypatch.setattr(logged, "disabled", True)  # "Task was destroyed but it is pending", as it should be
        loop.close()
        del task, loop
        gc.collect()
        store.close()
        del store
        gc.collect()
    assert unraisable == []


def until_fewer(store: rillet.Store, before: int) -> None:
    """Wait until the server has noticed that the connections of the loops were closed.

    One connection is left: of the thread that read subscriptions. In process, a thread's session ends after the thread.
    """
    for _ in range(SECONDS * 100):
        if connections(store) <= before + (THREADS if store.owner else 1):
            return
        threading.Event().wait(0.01)
    raise AssertionError(store.execute("CLIENT", "LIST"))


def test_a_client_with_a_single_connection(frontend: Frontend) -> None:
    client: Any = frontend.store.redis_async(single_connection_client=True)
    names: set[int] = set()

    async def main(name: str) -> None:
        one, other = await asyncio.gather(client.client_id(), client.client_id())
        assert one == other
        names.add(one)

    one_after_the_other(main)
    at_the_same_time(main)
    assert len(names) == LOOPS + THREADS * TURNS


def test_what_was_made_in_another_loop(frontend: Frontend) -> None:
    """Scripts, pipelines, locks and clients of one connection, which a program makes once."""
    client: Any = frontend.store.redis_async()
    client.set_response_callback("GET", lambda reply, **_: ("got", reply))
    script = client.register_script("return redis.call('INCR', KEYS[1])")
    pipeline = client.pipeline()
    single = client.client()

    async def main(name: str) -> None:
        assert await script(keys=[name]) == 1
        assert await client.get(name) == ("got", b"1")
        assert await single.get(name) == ("got", b"1") or await single.get(name) == b"1"
        async with client, client.lock(f"{name}-lock", timeout=SECONDS):
            assert await client.exists(f"{name}-lock")
        await single.aclose()

    async def with_pipeline(name: str) -> None:
        assert await pipeline.set(name, "1").execute() == [True]

    one_after_the_other(main)
    at_the_same_time(main)
    one_after_the_other(with_pipeline)


def test_the_client_is_closed_in_one_loop_and_used_in_another(frontend: Frontend) -> None:
    client: Any = frontend.store.redis_async()

    async def main(name: str) -> None:
        async with client:
            await client.set(name, "1")
        await client.aclose()

    one_after_the_other(main)
    at_the_same_time(main)


@only("memory", "attached")
def test_retries_are_those_of_every_loop(frontend: Frontend) -> None:
    from redis.asyncio.retry import Retry
    from redis.backoff import NoBackoff

    client: Any = frontend.store.redis_async()
    retry = Retry(NoBackoff(), 7)
    client.set_retry(retry)

    async def main(_: str) -> None:
        assert await client.ping()
        assert client.get_retry() is retry
        connection = await client.connection_pool.get_connection()
        assert connection.retry.get_retries() == 7
        await client.connection_pool.release(connection)

    one_after_the_other(main)


@pytest.mark.parametrize(
    ("run", "api"), covering([one_after_the_other, at_the_same_time, in_plain_loops], ["redis_async", "aio"])
)
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_cluster(cluster_url: str, run: Callable[[Main], None], api: str) -> None:
    with rillet.connect(cluster_url) as store:
        store.execute("FLUSHALL")
        main = of_store(store) if api == "aio" else of_client(store.redis_async())
        run(main)
        asyncio.run(main("last"))
        gc.collect()

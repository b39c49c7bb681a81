"""Thousands of tasks wait in one event loop, in each kind of store; beyond a limit, a call raises a clear error."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import resource
import signal
import threading
from collections import Counter
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

import rillet
from rillet import Store
from rillet.errors import CommandError, StoreError
from tests.store.conftest import FEW, IN_PROCESS, Frontend, only
from tests.store.process import Other

MANY = 10_000
FILES = resource.RLIMIT_NOFILE


def _run(body: Coroutine[Any, Any, None], seconds: float = 60) -> None:
    async def limited() -> None:
        async with asyncio.timeout(seconds):
            await body

    asyncio.run(limited())


@contextlib.contextmanager
def _open_files(soft: int) -> Iterator[None]:
    """Set the limit of open files of this process; skip the test if the system does not permit it."""
    before, hard = resource.getrlimit(FILES)
    if hard != resource.RLIM_INFINITY and soft > hard:
        pytest.skip(f"needs {soft} open files, and this system permits {hard}: ulimit -Hn")
    resource.setrlimit(FILES, (soft, hard))
    try:
        yield
    finally:
        resource.setrlimit(FILES, (before, hard))


async def _blocked(store: Store, count: int, tasks: list[asyncio.Task[Any]]) -> None:
    """Wait until the server reports this number of blocked clients; raise the error of a task that ended before."""
    while int((await asyncio.to_thread(store.info))["blocked_clients"]) != count:
        for task in tasks:
            if task.done():
                task.result()
        await asyncio.sleep(0.01)


async def _wait_and_wake(store: Store, count: int) -> None:
    """Let tasks wait for one stream each and all for another; wake some alone, and then all of them."""
    tasks_store = store.aio()
    own = [tasks_store.stream(f"s{number}") for number in range(count // 2)]
    common = tasks_store.stream("common")
    alone = [asyncio.create_task(stream.read("$", block=0)) for stream in own]
    together = [asyncio.create_task(common.read("$", block=0)) for _ in range(count - len(alone))]
    await _blocked(store, count, [*alone, *together])
    for number in range(0, len(alone), 50):
        made = await own[number].add({"n": number})
        assert [entry.id for entry in await alone[number]] == [made]
    made = await common.add({"n": 1})
    for entries in await asyncio.gather(*together):
        assert [entry.id for entry in entries] == [made]
    for task in alone:
        task.cancel()
    await asyncio.gather(*alone, return_exceptions=True)
    await _blocked(store, 0, [])


@FEW
def test_more_tasks_wait_than_a_pool_has_threads(frontend: Frontend) -> None:
    before = threading.active_count()

    async def body() -> None:
        await _wait_and_wake(frontend.store, 600)
        assert threading.active_count() < before + 50

    _run(body())


@pytest.mark.long
@only("memory", "owner", "redis")
def test_ten_thousand_tasks_wait(frontend: Frontend) -> None:
    if frontend.kind != "redis":
        _run(_wait_and_wake(frontend.store, MANY), 600)
        return
    frontend.store.execute("CONFIG", "SET", "maxclients", MANY + 100)
    try:
        with _open_files(MANY + 256):
            _run(_wait_and_wake(frontend.store, MANY), 600)
    finally:
        frontend.store.execute("CONFIG", "SET", "maxclients", 10_000)


@pytest.mark.long
def test_ten_thousand_tasks_wait_attached(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with _open_files(MANY + 256), Other(path), rillet.open(path) as store:
        assert not store.owner
        _run(_wait_and_wake(store, MANY), 600)


# -- limits ----------------------------------------------------------------------------------------------


async def _beyond(store: Store, count: int) -> Counter[str]:
    """Let more tasks wait than the limit permits; return how many waited, and the errors of the others."""
    stream = store.aio().stream("s")
    tasks = [asyncio.create_task(stream.read("$", block=60)) for _ in range(count)]
    done: set[Any] = set()
    while not done:  # the calls that cannot wait fail; those that can go on waiting
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    while True:
        waiting = int((await store.aio().info())["blocked_clients"])
        if waiting + sum(task.done() for task in tasks) == count:
            break
        await asyncio.sleep(0.01)
    assert await stream.add({"n": 1})  # the connection that all tasks share works
    results = await asyncio.gather(*tasks, return_exceptions=True)
    return Counter(str(one) if isinstance(one, BaseException) else "woken" for one in results)


def _refusal(found: Counter[str]) -> str:
    """Return the error of the calls beyond the limit; check that it names the limit and the remedy."""
    error = max(found, key=len)
    assert re.match(r"ERR max number of clients reached: raise .*maxclients.*let fewer threads and ", error)
    return error


@only("redis")
def test_more_tasks_than_the_servers_maxclients(frontend: Frontend) -> None:
    async def body() -> None:
        frontend.store.execute("CONFIG", "SET", "maxclients", 40)
        try:
            found = await _beyond(frontend.store, 80)
        finally:
            frontend.store.execute("CONFIG", "SET", "maxclients", 10_000)
        assert set(found) == {"woken", _refusal(found)}
        assert 20 <= found["woken"] < 40

    _run(body())


@only("redis")
def test_more_threads_than_the_servers_maxclients(frontend: Frontend) -> None:
    frontend.store.execute("CONFIG", "SET", "maxclients", 1)
    try:
        with pytest.raises(CommandError, match="^ERR max number of clients reached: raise maxclients of the server at"):
            frontend.another().execute("PING")
    finally:
        frontend.store.execute("CONFIG", "SET", "maxclients", 10_000)


def test_more_tasks_than_the_owners_maxclients(tmp_path: Path) -> None:
    with Other(tmp_path / "store", maxclients=40), rillet.open(tmp_path / "store") as store:
        async def body() -> None:
            found = await _beyond(store, 80)
            assert set(found) == {"woken", _refusal(found)}
            assert 20 <= found["woken"] < 40

        _run(body())


def test_more_tasks_than_the_owner_may_open_files(tmp_path: Path) -> None:
    with Other(tmp_path / "store") as owner, rillet.open(tmp_path / "store") as store:
        owner.ask("__import__('resource').setrlimit(7, (120, __import__('resource').getrlimit(7)[1]))")

        async def body() -> None:
            found = await _beyond(store, 150)
            assert set(found) == {"woken", _refusal(found)}

        _run(body())


def test_more_tasks_than_this_process_may_open_files(tmp_path: Path) -> None:
    with Other(tmp_path / "store"), rillet.open(tmp_path / "store") as store:
        async def body() -> None:
            assert await store.aio().stream("first").add({"n": 1})
            used = set(map(int, os.listdir("/dev/fd")))
            free = [number for number in range(1000) if number not in used]
            with _open_files(free[40]):
                found = await _beyond(store, 80)
            assert found.pop("woken") >= 20
            (error,) = found
            assert error.endswith("raise the limit of open files (ulimit -n)")

        _run(body())


# -- wake-ups --------------------------------------------------------------------------------------------


@IN_PROCESS
def test_a_signal_handler_wakes_a_task_of_a_loop_that_sleeps(frontend: Frontend) -> None:
    stream = frontend.store.stream("s")

    async def body() -> None:
        reader = asyncio.create_task(frontend.store.aio().stream("s").read("$", block=50))
        await asyncio.sleep(0)
        threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGUSR1)).start()
        assert [entry["n"] for entry in await reader] == ["1"]

    before = signal.signal(signal.SIGUSR1, lambda *_: stream.add({"n": 1}))
    try:
        _run(body(), 40)
    finally:
        signal.signal(signal.SIGUSR1, before)


@IN_PROCESS
def test_a_callback_and_a_thread_wake_tasks(frontend: Frontend) -> None:
    async def body() -> None:
        stream = frontend.store.aio().stream("s")
        for add in (asyncio.get_running_loop().call_soon, lambda call: threading.Thread(target=call).start()):
            reader = asyncio.create_task(stream.read("$", block=50))
            await asyncio.sleep(0)
            add(lambda: frontend.store.stream("s").add({"n": 1}))
            assert [entry["n"] for entry in await reader] == ["1"]

    _run(body(), 40)


@IN_PROCESS
def test_close_wakes_every_task(frontend: Frontend) -> None:
    async def body() -> None:
        store = frontend.store.aio()
        tasks = [asyncio.create_task(store.stream("s").read("$", block=0)) for _ in range(50)]
        await asyncio.sleep(0)
        await store.close()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(one, StoreError) for one in results)

    _run(body())

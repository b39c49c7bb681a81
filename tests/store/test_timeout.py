"""`timeout`: a stopped owner or server makes a call fail, and does not make it hang. Processes are really stopped."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import rillet
from rillet.client.block_time import block_seconds
from rillet.errors import OutcomeUnknown, StoreTimeout, UnknownTimeout
from tests.judge import running_redis
from tests.store.owner_processes import announced_pid, await_end
from tests.store.process import Other
from tests.variants import long

pytestmark = pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="finds processes in /proc")
TIMEOUT = 0.5  # short, but enough for an answer beside other tests
LONGER = 1.4 * TIMEOUT


@contextlib.contextmanager
def stopped(pid: int) -> Iterator[None]:
    """Stop a process, and continue it at the end."""
    os.kill(pid, signal.SIGSTOP)
    while "T" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]:
        time.sleep(0.001)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


@pytest.fixture(params=["attached", "redis", *long("process")])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def place(kind: str, tmp_path: Path) -> Iterator[tuple[rillet.Store, int]]:
    """A store with a timeout, and the process that serves it."""
    path = tmp_path / "store"
    with contextlib.ExitStack() as stack:
        if kind == "attached":
            owner = stack.enter_context(Other(path))
            yield stack.enter_context(rillet.open(path, timeout=TIMEOUT)), owner.process.pid
        elif kind == "process":
            store = stack.enter_context(rillet.open(path, owner="process", owner_grace=0, timeout=TIMEOUT))
            yield store, announced_pid(path)
        else:
            judge = stack.enter_context(running_redis())
            url = f"redis://127.0.0.1:{judge.port}/0"
            store = stack.enter_context(rillet.connect(url, timeout=TIMEOUT))
            yield store, int(store.info()["process_id"])
    await_end(tmp_path)


@pytest.mark.parametrize("kind", ["attached", "process", "redis"], indirect=True)
def test_a_write_a_read_and_the_next_call(place: tuple[rillet.Store, int]) -> None:
    store, pid = place
    stream = store.stream("s")
    stream.add({"n": 0})
    with stopped(pid):
        with pytest.raises(UnknownTimeout, match=rf"not answer within {TIMEOUT} s; the command may or may not have"):
            stream.add({"n": 1})
        with pytest.raises(StoreTimeout, match=rf"not answer within {TIMEOUT} s; the command only reads and may be"):
            stream.range()
        with pytest.raises(StoreTimeout, match="only reads"):
            store.execute_many([["GET", "a"], ["GET", "b"]])
        with pytest.raises(UnknownTimeout) as caught:
            store.execute_many([["GET", "a"], ["SET", "b", 1]])
        assert isinstance(caught.value, TimeoutError)
        assert isinstance(caught.value, OutcomeUnknown)
        with pytest.raises(StoreTimeout):
            store.subscribe("news")
        with pytest.raises(UnknownTimeout), store.transaction() as transaction:
            transaction.execute("SET", "c", 1)
    # The server has received what it did not answer, and may execute it: the replies went to closed connections.
    first = len(stream)
    assert store.execute("PING") == b"PONG"
    assert first in (1, 2)
    assert [entry["n"] for entry in stream.range()][0] == "0"


def test_every_thread_gets_its_timeout(place: tuple[rillet.Store, int]) -> None:
    store, pid = place
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: store.execute("SET", n, n), range(8)))
        with stopped(pid):
            futures = [pool.submit(store.execute, "GET", n) for n in range(8)]
            for future in futures:
                assert isinstance(future.exception(timeout=60), StoreTimeout)
        assert list(pool.map(lambda n: store.execute("GET", n), range(8))) == [b"%d" % n for n in range(8)]


def test_a_blocking_call_waits_its_own_time(place: tuple[rillet.Store, int]) -> None:
    store, pid = place
    group = store.stream("s").group("g", start="0")
    stream, consumer = store.stream("s"), group.consumer("c")

    def waited(call: Callable[[], object]) -> tuple[object, float]:
        started = time.monotonic()
        return call(), time.monotonic() - started

    with ThreadPoolExecutor(4) as pool:
        waiting = pool.submit(store.execute, "BLPOP", "l", 0)
        while b"cmd=blpop" not in store.execute("CLIENT", "LIST"):
            time.sleep(0.01)
        calls = (
            lambda: store.execute("BLPOP", "other", LONGER),
            lambda: stream.read("$", block=LONGER),
            lambda: consumer.read(block=LONGER),
        )
        found = list(pool.map(waited, calls))
        assert [reply for reply, _ in found] == [None, [], []]
        assert all(seconds >= LONGER for _, seconds in found)
        store.execute("RPUSH", "l", "x")
        assert waiting.result(timeout=60) == [b"l", b"x"]

    def late() -> None:
        started = time.monotonic()
        with pytest.raises(UnknownTimeout):
            store.execute("BLPOP", "l", LONGER)
        assert time.monotonic() - started >= LONGER + TIMEOUT

    def forever() -> None:
        with pytest.raises(UnknownTimeout):
            store.execute("BLPOP", "l", 0)

    def loop() -> None:
        with pytest.raises(StoreTimeout):
            list(consumer.messages(block=0.1))

    with stopped(pid), ThreadPoolExecutor(3) as pool:
        for ended in [pool.submit(call) for call in (late, forever, loop)]:
            ended.result(timeout=60)


def test_large_data(place: tuple[rillet.Store, int]) -> None:
    """More than the socket's buffers: the call waits for space in them."""
    store, pid = place
    value = b"x" * 2_000_000
    with stopped(pid), pytest.raises(UnknownTimeout, match="may or may not have been executed"):
        store.execute("SET", "large", value)
    with stopped(pid), pytest.raises(UnknownTimeout):
        store.execute_many([["SET", "k", b"y" * 100_000]] * 20)
    store.execute("SET", "large", value)
    assert store.execute("GET", "large") == value


def test_bulk_reads(place: tuple[rillet.Store, int]) -> None:
    store, pid = place
    pytest.importorskip("pyarrow")
    store.stream("s").add_many({"n": n} for n in range(10))
    assert store.stream("s").to_arrow().num_rows == 10
    with stopped(pid), pytest.raises(StoreTimeout):
        store.stream("s").to_arrow()
    assert store.stream("s").to_arrow().num_rows == 10


def test_asyncio(place: tuple[rillet.Store, int]) -> None:
    store, pid = place

    async def run() -> None:
        aio = store.aio()
        stream = aio.stream("s")
        await stream.add({"n": 0})
        waiting = asyncio.ensure_future(aio.execute("BLPOP", "l", 0))
        assert await stream.read("$", block=LONGER) == []
        await asyncio.sleep(LONGER)
        assert not waiting.done()
        await aio.execute("RPUSH", "l", "x")
        assert await waiting == [b"l", b"x"]
        with stopped(pid):
            with pytest.raises(UnknownTimeout, match="may or may not have been executed"):
                await stream.add({"n": 1})
            for _ in range(2):  # on a connection that is there, then on a new one
                with pytest.raises(StoreTimeout):
                    await stream.add({"n": 2})
            many = await asyncio.gather(*[stream.length() for _ in range(100)], return_exceptions=True)
            assert {type(error) for error in many} <= {StoreTimeout}
        assert await stream.length() >= 1
        calls = [asyncio.ensure_future(stream.range()) for _ in range(3)]
        await asyncio.gather(*calls)
        with stopped(pid):
            reads = [stream.range(), *[stream.read("$", block=block) for block in (TIMEOUT, 0, 0)]]
            found = await asyncio.gather(*reads, return_exceptions=True)
            assert [type(error) for error in found] == [StoreTimeout] * 4

    asyncio.run(run())


def test_many_calls_in_turn_need_not_end_within_the_timeout(place: tuple[rillet.Store, int]) -> None:
    """The timeout is the time without an answer, not the time of a batch of calls."""
    store, _ = place

    async def run() -> None:
        aio = store.aio()
        until = time.monotonic() + LONGER
        while time.monotonic() < until:
            await asyncio.gather(*[aio.execute("SET", "k", n) for n in range(20)])

    asyncio.run(run())


def test_a_stopped_owner_process_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with rillet.open(path, owner="process", owner_grace=0, timeout=TIMEOUT) as store:
        owner = announced_pid(path)
        with stopped(owner):
            who = f"is open in process {owner}, which did not answer within {TIMEOUT} s"
            with pytest.raises(StoreTimeout, match=who):
                rillet.open(path, owner="process", timeout=TIMEOUT)
            with pytest.raises(UnknownTimeout):
                store.execute("SET", "k", "v")
        store.execute("SET", "k", "v")
        assert announced_pid(path) == owner
        with stopped(owner):
            started = time.monotonic()
            store.close()  # the changes are in the log; the owner syncs it when it continues
            assert time.monotonic() - started < 30
    await_end(tmp_path)


def test_a_server_that_accepts_no_connection(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket"))
        listener.listen(0)
        others = [socket.socket(socket.AF_UNIX) for _ in range(3)]
        for one in others:
            one.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                one.connect(str(tmp_path / "socket"))
        try:
            url = f"unix://{tmp_path / 'socket'}"
            with rillet.connect(url, timeout=TIMEOUT) as store, pytest.raises(StoreTimeout, match="was not sent"):
                store.execute("SET", "k", "v")
        finally:
            for one in others:
                one.close()


WAITS: dict[str, float] = {
    "GET k": 0,
    "XREAD STREAMS s 0": 0,
    "XREAD BLOCK 1500 STREAMS s $": 1.5,
    "xread count 1 block 0 streams s $": float("inf"),
    "XREADGROUP GROUP BLOCK BLOCK COUNT 1 STREAMS block >": 0,
    "XREADGROUP GROUP g c BLOCK 20 STREAMS s >": 0.02,
    "BLPOP a b 2.5": 2.5,
    "BRPOPLPUSH a b 0": float("inf"),
    "BLMPOP 3 1 l LEFT": 3,
    "WAIT 1 100": 0.1,
    "BLPOP a x": 0,
    "XREAD BLOCK": 0,
    "BLMPOP": 0,
}


@pytest.mark.parametrize(("command", "seconds"), WAITS.items())
def test_the_time_that_a_command_waits(command: str, seconds: float) -> None:
    assert block_seconds(command.encode().split()) == seconds


def test_a_pickled_store_keeps_its_timeout(tmp_path: Path) -> None:
    with rillet.open(tmp_path / "store") as owner, rillet.open(tmp_path / "store", timeout=7) as store:
        assert store.__reduce__()[1][1]["timeout"] == 7
        with rillet.connect(str(owner.url), timeout=8) as connected:
            assert connected.__reduce__()[1][1] == {"timeout": 8}

"""Transactions, batches, subscriptions and follow() wait for a server or owner that is away, as plain commands do.

The server is killed before the call and started again a moment later, so nothing of the call was sent. A node of a
cluster takes part in it two seconds after its start, so a few tests only restart one in `make test`.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import pytest

import rillet
from rillet import Store
from rillet.errors import NotSent, TransactionConflict
from rillet.store.aio import AsyncStore
from rillet.store.backends import server_backend
from rillet.store.retries import PATIENCE, Retries
from tests import waiting
from tests.cluster import Cluster, running_cluster
from tests.judge import free_port, redis_binary
from tests.server.restarted import RestartedServer
from tests.variants import by_speed, long

SECONDS = 100
AWAY = 0.1  # seconds for which a server is away, beside the time that it takes to start


class Place(Protocol):
    """A store whose server the test restarts."""

    store: Store
    key: str

    def restart(self, seconds: float = AWAY) -> None:
        """Kill the server now, and start it again in a thread."""


class _Waits:
    def __init__(self) -> None:
        self.threads: list[threading.Thread] = []

    def join(self) -> None:
        """Wait until the server runs again."""
        for thread in self.threads:
            thread.join(60)
        self.threads.clear()


class OneServer(_Waits):
    """A store of `connect` over one server with a log."""

    key = "k"

    def __init__(self, server: RestartedServer, store: Store) -> None:
        super().__init__()
        self.server, self.store = server, store

    def restart(self, seconds: float = AWAY) -> None:
        self.join()
        self.server.end()
        self.threads.append(self.server.start_after(seconds))


class OneNode(_Waits):
    """A store over a cluster, one node of which is restarted; its data is lost, because it has no log."""

    def __init__(self, cluster: Cluster, store: Store) -> None:
        super().__init__()
        self.cluster, self.store = cluster, store
        self.key = cluster.key_of(1, "k")
        self.node = cluster.owner(self.key)

    def is_complete(self) -> bool:
        """Return whether every node serves its slots."""
        return all(node.info("cluster", "cluster_state") == "ok" for node in self.cluster.nodes)

    def restart(self, seconds: float = AWAY) -> None:
        self.join()
        self.cluster.kill(self.node)

        def later() -> None:
            time.sleep(seconds)
            self.cluster.start(self.node)
            self.cluster.wait(self.is_complete, "all nodes serve their slots")

        self.threads.append(threading.Thread(target=later))
        self.threads[-1].start()


@pytest.fixture(scope="module")
def nodes() -> Iterator[Cluster]:
    with running_cluster() as started:
        yield started


MAKE = Retries.__init__


def wait(monkeypatch: pytest.MonkeyPatch, times: float = 10) -> None:
    """Let calls wait ten times as long, because a busy machine starts servers slowly."""
    monkeypatch.setattr(Retries, "__init__", lambda self, patience=PATIENCE: MAKE(self, times * patience))
    monkeypatch.setattr(server_backend, "CLUSTER_PATIENCE", times * PATIENCE)


@pytest.fixture
def place(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[OneServer | OneNode]:
    wait(monkeypatch)
    if request.param != "rillet" and redis_binary() is None:
        pytest.skip("redis-server is not installed")
    if request.param == "cluster":
        cluster: Cluster = request.getfixturevalue("nodes")
        cluster.flush()
        with rillet.connect(cluster.url) as store:
            node = OneNode(cluster, store)
            store.execute("SET", node.key, 0)
            yield node
            node.join()
        return
    server = RestartedServer(request.param, data(tmp_path))
    with rillet.connect(server.url) as store:
        store.execute("SET", "k", 0)
        one = OneServer(server, store)
        yield one
        one.join()
    server.end()


def kinds(*short: str) -> pytest.MarkDecorator:
    """Return a mark that runs a test on these kinds of servers, and with `make test-long` on all."""
    others = [kind for kind in ("rillet", "redis", "cluster") if kind not in short]
    return pytest.mark.parametrize("place", [*short, *long(*others)], indirect=True)


def data(folder: Path) -> Path:
    """Return a new folder for a server's files."""
    made = folder / "data"
    made.mkdir()
    return made


def beside(key: str) -> str:
    """Return the name of a stream in the slot of a key."""
    return f"{{{key}}}s"


def run(body: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(body, SECONDS))


@kinds("rillet", "cluster")
def test_writes_that_were_not_sent_are_sent_to_the_restarted_server(place: OneServer | OneNode) -> None:
    store, key = place.store, place.key
    calls: list[Callable[[], Any]] = [
        lambda: store.execute("INCR", key),
        lambda: store.execute_many([["INCR", key]]),
        lambda: store.execute_many([["MULTI"], ["INCR", key], ["EXEC"]]),
    ]
    for call in calls:
        store.execute("PING")
        place.restart()
        call()
        place.join()
        assert store.execute("GET", key) == (b"1" if isinstance(place, OneNode) else b"%d" % (calls.index(call) + 1))


@pytest.mark.parametrize("place", ["cluster"], indirect=True)
def test_a_batch_for_several_nodes_is_not_executed_twice(place: OneNode) -> None:
    other = place.cluster.key_of(0, "other")
    times = by_speed(1, 1, 2)
    for _ in range(times):
        place.restart()
        place.store.execute_many([["INCR", other], ["INCR", place.key], ["PING"]])
        place.join()
    assert place.store.execute_many([["GET", other], ["GET", place.key]]) == [b"%d" % times, b"1"]

    async def body(store: AsyncStore) -> None:
        for _ in range(times):
            await store.execute_many([["PING"], ["GET", place.key]])
            await asyncio.to_thread(place.restart)
            await store.execute_many([["INCR", other], ["INCR", place.key], ["PING"]])
            await asyncio.to_thread(place.join)
        assert await store.execute_many([["GET", other], ["GET", place.key]]) == [b"%d" % (2 * times), b"1"]

    run(body(place.store.aio()))


@kinds("redis")
def test_add_many_and_add_arrow(place: OneServer | OneNode) -> None:
    stream = place.store.stream(beside(place.key))
    place.restart()
    assert len(stream.add_many([{"n": n} for n in range(1500)])) == 1500
    place.join()
    assert len(stream) == 1500
    pa = pytest.importorskip("pyarrow")
    kept = 1500 if isinstance(place, OneServer) else 0
    place.restart()
    assert stream.add_arrow(pa.table({"n": [1, 2, 3]})) == 3
    place.join()
    assert len(stream) == kept + 3
    place.restart()
    table = stream.to_arrow()
    place.join()
    assert table.num_rows == (1503 if isinstance(place, OneServer) else 0)


@kinds("redis")
def test_transactions(place: OneServer | OneNode) -> None:
    store, key = place.store, place.key
    with store.transaction() as transaction:
        first = transaction.execute("INCR", key)
        place.restart()
    assert first.result == 1
    place.join()
    place.restart()
    with store.transaction(watch=[key]) as transaction:  # WATCH waits
        second = transaction.execute("INCR", key)
    place.join()
    assert second.result == (1 if isinstance(place, OneNode) else 2)


@kinds("rillet")
def test_a_lost_watch_is_a_conflict(place: OneServer | OneNode) -> None:
    store, key = place.store, place.key

    def overtaken() -> None:
        with store.transaction(watch=[key]) as transaction:
            place.restart()
            transaction.execute("SET", key, "lost update")

    with pytest.raises(TransactionConflict, match="the connection that watched the keys was lost"):
        overtaken()
    place.join()
    assert store.execute("GET", key) in (b"0", None)
    with store.transaction(watch=[key]):  # nothing to execute
        place.restart()
    place.join()
    tries = []

    def increment(transaction: Any) -> Any:
        tries.append(1)
        if len(tries) == 1:
            place.restart()
        return transaction.execute("SET", key, len(tries))

    assert store.transact(increment, [key]).result == b"OK"
    place.join()
    assert store.execute("GET", key) == b"2"


@kinds("redis", "cluster")
def test_asyncio(place: OneServer | OneNode) -> None:
    key = place.key

    async def body(store: AsyncStore) -> None:
        async def restarted() -> None:
            await asyncio.to_thread(place.restart)

        await store.execute("PING")
        await restarted()
        await store.execute("INCR", key)
        await asyncio.to_thread(place.join)
        await restarted()
        await store.execute_many([["INCR", key], ["PING"]])
        await asyncio.to_thread(place.join)
        before = int(await store.execute("GET", key))
        async with store.transaction() as transaction:
            transaction.execute("INCR", key)
            await restarted()
        await asyncio.to_thread(place.join)
        after = before + 1 if isinstance(place, OneServer) else 1
        assert int(await store.execute("GET", key)) == after
        await restarted()
        async with store.transaction(watch=[key]) as transaction:
            transaction.execute("INCR", key)
        await asyncio.to_thread(place.join)

        async def overtaken() -> None:
            async with store.transaction(watch=[key]) as transaction:
                await restarted()
                transaction.execute("SET", key, "lost update")

        with pytest.raises(TransactionConflict, match="the connection that watched the keys was lost"):
            await overtaken()
        await asyncio.to_thread(place.join)
        assert await store.execute("GET", key) != b"lost update"
        stream = store.stream(beside(key))
        await restarted()
        assert len(await stream.add_many([{"n": n} for n in range(10)])) == 10
        await asyncio.to_thread(place.join)
        async with await store.subscribe("news") as subscription:
            if isinstance(place, OneServer):
                assert await subscription.get(0.01) is None
                waiting = asyncio.create_task(subscription.get(60))
                await restarted()
                await asyncio.to_thread(place.join)
                while not await store.publish("news", "back"):
                    await asyncio.sleep(0.01)
                message = await waiting
                assert message is not None
                assert message.data == "back"

    run(body(place.store.aio()))


@kinds("redis")
def test_follow_continues(place: OneServer | OneNode) -> None:
    stream = place.store.stream(beside(place.key))
    stream.add({"n": 1}, "1-1")
    followed = stream.follow("0", block=0.2, timeout=30)
    assert next(followed).id == (1, 1)
    place.restart()
    later = threading.Timer(2 * AWAY, lambda: (place.join(), stream.add({"n": 2}, "2-1")))
    later.start()
    assert next(followed).id == (2, 1)
    later.join()  # the entry can be here before the reply of XADD is there


@kinds("rillet", "cluster")
def test_messages_wait_for_the_restart(place: OneServer | OneNode, monkeypatch: pytest.MonkeyPatch) -> None:
    """Longer than other calls wait, here a tenth of their time."""
    key = beside(place.key)
    stream = place.store.stream(key)
    stream.add({"n": 1}, "1-1")
    group, other = stream.group("g"), stream.group("h")
    assert group.create()
    assert other.create()
    assert other.create() is False
    received: list[int] = []
    stop = threading.Event()
    ended: list[BaseException] = []

    def work() -> None:
        try:
            for message in group.consumer("c").messages(block=0.1, stop=stop):
                received.append(int(message["n"]))
                message.ack()
        except rillet.NoGroup:  # the node has lost its data
            ended.append(rillet.NoGroup())
        except BaseException as error:
            ended.append(error)

    async def work_async() -> None:
        try:
            group = await place.store.aio().stream(key).group("h", create=False)
            async for message in group.consumer("c").messages(block=0.1, stop=stop):
                received_async.append(int(message["n"]))
                await message.ack()
        except rillet.NoGroup:
            pass

    received_async: list[int] = []
    failed: list[BaseException] = []

    def run_async() -> None:
        try:
            run(work_async())
        except BaseException as error:
            failed.append(error)

    workers = [threading.Thread(target=work), threading.Thread(target=run_async)]
    for worker in workers:
        worker.start()
    while not received or not received_async:
        time.sleep(0.01)
    waiting.until(lambda: group.pending_count() == other.pending_count() == 0, "both messages to be acknowledged")
    with monkeypatch.context() as shorter:
        wait(shorter, 0.1)
        place.restart(4 * PATIENCE / 10)
        time.sleep(3 * PATIENCE / 10)
        assert not ended
        assert not failed
        assert all(worker.is_alive() for worker in workers)
        place.threads[-1].join(60)
    place.join()
    if isinstance(place, OneServer):
        stream.add({"n": 2}, "2-1")
        while len(set(received)) < 2 or len(set(received_async)) < 2:
            time.sleep(0.01)
    stop.set()
    for worker in workers:
        worker.join(60)
        assert not worker.is_alive()
    assert not failed
    assert [type(one) for one in ended] in ([], [rillet.NoGroup])


def test_a_subscription_waits_and_tries_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = RestartedServer("rillet", data(tmp_path))
    with contextlib.ExitStack() as stack:
        stack.callback(server.end)
        store = stack.enter_context(rillet.connect(server.url))
        subscription = stack.enter_context(store.subscribe("a"))

        def next_message() -> str:
            message = subscription.get(60)
            assert message is not None
            return message.data

        def restart() -> None:
            server.end()
            threads.append(server.start_after(AWAY))

        def join() -> None:
            for thread in threads:
                thread.join(60)

        threads: list[threading.Thread] = []
        stack.callback(join)
        with monkeypatch.context() as longer:
            wait(longer)
            restart()
            assert subscription.get(0.2) is None  # it waited for the server
            assert store.publish("a", "one") == 1
            assert next_message() == "one"
            threads[-1].join(60)
        server.end()
        with monkeypatch.context() as shorter:
            wait(shorter, 0.1)
            with pytest.raises(NotSent, match="no server answers"):
                subscription.get(0.2)
        server.start()
        assert subscription.get(0.2) is None
        assert store.publish("a", "two") == 1
        assert next_message() == "two"
        wait(monkeypatch)
        restart()
        subscription.add("b")
        assert subscription.channels == ["a", "b"]
        threads[-1].join(60)
        restart()
        stack.enter_context(store.subscribe("c"))


def test_a_wrong_address_fails_at_once() -> None:
    with rillet.connect(f"redis://127.0.0.1:{free_port()}") as store:
        begun = time.monotonic()
        for _ in range(10):
            with pytest.raises(NotSent, match="no server answers"):
                store.subscribe("a")
            with pytest.raises(NotSent, match="no server answers"), store.transaction() as transaction:
                transaction.execute("PING")
        assert time.monotonic() - begun < 20


# -- a store in a directory -------------------------------------------------------------------------------------


@contextmanager
def attached(path: Path) -> Iterator[tuple[Store, Callable[[], None]]]:
    """Yield a store that is attached to the owner in another process, and a function that kills the owner."""
    from tests.store.process import Other

    owner = Other(path)
    with rillet.open(path) as store:
        assert not store.owner
        assert store.execute("SET", "k", 0) == b"OK"
        yield store, owner.kill


def test_a_transaction_continues_at_the_next_owner(tmp_path: Path) -> None:
    with attached(tmp_path / "a") as (store, kill):
        with store.transaction() as transaction:
            made = transaction.execute("INCR", "k")
            kill()
        assert made.result == 1
        assert store.owner
    with attached(tmp_path / "b") as (store, kill):
        kill()
        with store.transaction(watch=["k"]) as transaction:
            made = transaction.execute("INCR", "k")
        assert made.result == 1
    with attached(tmp_path / "c") as (store, kill):
        transaction = store.transaction(watch=["k"])
        transaction.__enter__()
        transaction.execute("INCR", "k")
        kill()
        with pytest.raises(TransactionConflict, match="lost"):
            transaction.__exit__(None, None, None)
        assert store.execute("GET", "k") == b"0"


def test_a_transaction_of_a_task_continues_at_the_next_owner(tmp_path: Path) -> None:
    async def body(store: AsyncStore, kill: Callable[[], None], watch: list[str], during: bool) -> Any:
        await store.execute("PING")
        if not during:
            kill()
        async with store.transaction(watch) as transaction:
            made = transaction.execute("INCR", "k")
            if during:
                kill()
        return made.result

    for name, watch, during in (("a", [], True), ("b", ["k"], False)):
        with attached(tmp_path / name) as (store, kill):
            assert asyncio.run(body(store.aio(), kill, watch, during)) == 1
            assert store.owner
    with attached(tmp_path / "c") as (store, kill), pytest.raises(TransactionConflict, match="lost"):
        asyncio.run(body(store.aio(), kill, ["k"], True))


def test_batches_continue_at_the_next_owner(tmp_path: Path) -> None:
    with attached(tmp_path / "a") as (store, kill):
        kill()
        assert len(store.stream("s").add_many([{"n": n} for n in range(1500)])) == 1500
        assert len(store.stream("s")) == 1500
    with attached(tmp_path / "b") as (store, kill):
        pa = pytest.importorskip("pyarrow")
        kill()
        assert store.stream("s").add_arrow(pa.table({"n": [1, 2, 3]})) == 3
    with attached(tmp_path / "c") as (store, kill):
        store.stream("s").add({"n": 1})
        kill()
        assert store.stream("s").to_arrow().num_rows == 1

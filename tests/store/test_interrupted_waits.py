"""An exception from outside at each place of each call that waits: later calls do not hang, and no connection is left.

An exception may come where Python runs signal handlers: at the beginning of a function and after a call of C code. Each
call is interrupted in each of its places, or in one of a few next to each other if it has thousands. Then the clients
of the servers are counted, and another thread makes the same call.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import pytest
import redis

import rillet
from rillet import Store
from rillet.errors import StoreClosed
from tests.cluster import Cluster
from tests.model.interrupts import AtPlace, Interrupt, in_time, quiet
from tests.variants import by_speed

pytestmark = [
    pytest.mark.skipif(sys.platform == "win32", reason="Unix sockets"),
    # Python closes the socket of an interrupted connect, and cannot raise an exception in a finalizer.
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"),
]
LIMIT = 20.0  # seconds after which a call hangs
_REDIS_PY = str(Path(redis.__file__).parent)
MOST = by_speed(12, 12, 400)  # places of a call that are tried


class Place(NamedTuple):
    """A store, and a connection to each of its servers, whose clients are counted."""

    store: Store
    servers: list[Store]

    def clients(self) -> int:
        """Return the number of clients of all servers."""
        return sum(server.execute("CLIENT", "LIST").count(b"\n") for server in self.servers)


@pytest.fixture(params=["memory", "owner", "attached", "connected", "redis", "cluster"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    kind, path = request.param, tmp_path / "store"
    with contextlib.ExitStack() as stack:

        def opened(function: Callable[..., Store], *where: Any) -> Store:
            return stack.enter_context(function(*where))

        if kind == "memory":
            store = opened(rillet.open)
            yield Place(store, [store])
            return
        if kind in ("attached", "connected"):
            stack.enter_context(request.getfixturevalue("host").opened(path))
        if kind == "cluster":
            cluster: Cluster = request.getfixturevalue("cluster")
            urls = [f"redis://127.0.0.1:{node.port}/0" for node in cluster.nodes]
            store = opened(rillet.connect, cluster.url)
        elif kind == "redis":
            urls = [f"redis://127.0.0.1:{request.getfixturevalue('judge').port}/0"]
            store = opened(rillet.connect, urls[0])
            store.execute("FLUSHALL")
        else:
            store = opened(rillet.open, path)
            urls = [str(store.url)]
            if kind == "connected":
                store = opened(rillet.connect, urls[0])
        yield Place(store, [opened(rillet.connect, url) for url in urls])


def subscription(store: Store) -> Callable[[], object]:
    def call() -> None:
        with store.subscribe("channel") as messages:
            store.publish("channel", "x")
            assert messages.get(timeout=LIMIT)

    return call


def transaction(store: Store) -> Callable[[], object]:
    def call() -> None:
        with store.transaction(watch=["{k}watched"]) as queued:
            store.execute("GET", "{k}watched")
            queued.execute("INCR", "{k}n")

    return call


def blocked(store: Store) -> Callable[[], object]:
    return lambda: store.execute("BLPOP", "empty", "0.001")


def reading(store: Store) -> Callable[[], object]:
    return lambda: store.stream("s").read("$", block=0.001)


def messages(store: Store) -> Callable[[], object]:
    def call() -> None:
        store.stream("jobs").add({"n": 1})
        for message in group.consumer("c").read(block=0.001):
            message.ack()

    group = store.stream("jobs").group("g")
    return call


def pages(store: Store) -> Callable[[], object]:
    return lambda: list(store.stream("s"))


def redis_py(store: Store) -> Callable[[], object]:
    def call() -> None:
        client.set("{k}a", 1)
        with client.pipeline() as pipeline:
            pipeline.incr("{k}a")
            assert pipeline.execute() == [2]
        assert client.blpop(["empty"], timeout=0.001) is None

    client = store.redis()
    return call


def redis_py_messages(store: Store) -> Callable[[], object]:
    def call() -> None:
        with client.pubsub() as messages:
            messages.subscribe("channel")
            client.publish("channel", "x")
            for _ in range(2):
                messages.get_message(timeout=0.01)

    client = store.redis()
    return call


class _Places(AtPlace):
    """Places without those of locks that are not the store's: of `logging`, and of the events of redis-py's PubSub."""

    def _look(self, frame: FrameType, event: str, argument: Any) -> None:
        caller: FrameType | None = frame
        while caller is not None and caller.f_code.co_filename == threading.__file__:
            caller = caller.f_back
        foreign = caller is not frame and caller is not None and caller.f_code.co_filename.startswith(_REDIS_PY)
        if frame.f_code.co_filename != logging.__file__ and not foreign:
            super()._look(frame, event, argument)


def interrupted(at: int, call: Callable[[], object]) -> bool:
    """Make a call that is interrupted in its `at`-th place; return whether it has as many."""
    interrupts = _Places(lambda: at)
    with contextlib.suppress(Interrupt):
        interrupts.call(call)
    return interrupts.sent


def places_of(call: Callable[[], object]) -> int:
    """Return how many places a call has, about."""
    many = 1 << 60
    interrupts = _Places(lambda: many)
    interrupts.call(call)
    return many - interrupts._left


def check(place: Place, call: Callable[[], object], most: int = MOST) -> None:
    """Interrupt a call in its places; then it must not hang, and no client may be left."""
    call()
    in_time(call, LIMIT)
    gc.collect()
    before = place.clients()
    with quiet():
        step, at = max(places_of(call) // most, 1), 1
        while interrupted(at, call):
            at += step
    in_time(call, LIMIT)
    call()
    assert at > 1 or rillet.compiled()
    gc.collect()  # redis-py has cycles of references
    limit = time.monotonic() + LIMIT
    while place.clients() > before:
        assert time.monotonic() < limit, f"{place.clients() - before} clients are left"
        time.sleep(0.01)


@pytest.mark.parametrize(
    "kind", [subscription, transaction, blocked, reading, messages, pages, redis_py, redis_py_messages]
)
def test_a_call_that_is_interrupted_in_each_place(place: Place, kind: Callable[[Store], Callable[[], object]]) -> None:
    if kind in (redis_py, redis_py_messages) and place.store.path is None and not place.store.owner:
        pytest.skip("redis-py's own pool and sockets, as without rillet")
    place.store.stream("s").add({"n": 1})
    check(place, kind(place.store))


def test_a_signal_handler_closes_the_subscription_in_which_its_thread_waits(place: Place) -> None:
    subscribed = place.store.subscribe("channel")
    before = signal.signal(signal.SIGALRM, lambda *_: subscribed.close())
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        with pytest.raises(StoreClosed):
            subscribed.get(LIMIT)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert place.store.publish("channel", "x") == 0


@pytest.mark.parametrize("where", ["memory", "owner", "attached"])
def test_a_close_that_was_interrupted_is_repeated(tmp_path: Path, where: str) -> None:
    def opened() -> Store:
        return rillet.open() if where == "memory" else rillet.open(tmp_path / "store")

    first = opened() if where == "attached" else None
    at, more = 1, True
    while more:
        store = opened()
        assert store.execute("ECHO", "x") == b"x"
        assert store.owner == (first is None)
        with quiet():
            more = interrupted(at, store.close)
        store.close()
        with pytest.raises(StoreClosed):
            store.execute("ECHO", "x")
        at += by_speed(3, 7, 1)
    if first is not None:
        first.close()

"""A forked child waits for nothing that another thread of its parent held at the fork, and leaves its sockets alone."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

import rillet
from rillet import Store

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="this operating system has no fork"),
    pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning"),
]
LIMIT = 30.0  # seconds after which a child waits forever


@pytest.fixture(params=["memory", "owner", "attached", "connected"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """A store of each kind that a fork treats differently."""
    with ExitStack() as stack:
        if request.param == "connected":
            served = stack.enter_context(stack.enter_context(rillet.open()).serve())
            yield stack.enter_context(rillet.connect(served.url))
            return
        made = stack.enter_context(rillet.open(None if request.param == "memory" else tmp_path / "store"))
        yield stack.enter_context(rillet.open(tmp_path / "store")) if request.param == "attached" else made


@contextmanager
def held(lock: Any) -> Iterator[None]:
    """Let another thread hold a lock."""
    taken, release = threading.Event(), threading.Event()

    def hold() -> None:
        with lock:
            taken.set()
            release.wait(2 * LIMIT)

    thread = threading.Thread(target=hold)
    thread.start()
    taken.wait()
    try:
        yield
    finally:
        release.set()
        thread.join()


def status_of(child: int) -> int | None:
    """Return the exit status of a child; None if it waits forever, then it is killed."""
    limit = time.monotonic() + LIMIT
    while time.monotonic() < limit:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


def forked(work: Callable[[], object]) -> int:
    """Fork; the child calls a function and ends with status 0, or 1 if the function raises."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            work()
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    return child


def test_replies_of_cancelled_calls(store: Store) -> None:
    stream = store.stream("s")
    stream.group("g").create()
    stream.add({"n": "1"})
    transport: Any = store.transport
    kept = [b"XREADGROUP", b"GROUP", b"g", b"other", b"STREAMS", b"s", b">"]
    transport.undelivered.keep(kept, [[b"s", [[b"1-1", [b"n", b"1"]]]]])

    def work() -> None:
        reader = stream.group("g", create=False).consumer("child")
        found = []
        for message in reader.messages(stop_when_empty=True, claim_idle=0.0):
            message.ack()
            found.append(message["n"])
        assert found == ["1"], found

    with held(transport.undelivered._guard):
        child = forked(work)
    assert status_of(child) == 0
    assert transport.undelivered.take_reply(kept) is not None  # the parent still has it


def test_worker_threads_of_asyncio(store: Store) -> None:
    def work() -> None:
        assert asyncio.run(store.aio().in_thread(str, 5)) == "5"

    work()  # an idle thread, which the child lacks
    assert status_of(forked(work)) == 0


def test_a_subscription_that_another_thread_reads(store: Store) -> None:
    with store.subscribe("news") as subscription:
        def work() -> None:
            subscription.poll()  # subscribes again, unless the child has a copy of the data
            store.publish("news", "from the child")
            message = subscription.get(LIMIT)
            assert message is not None
            assert message.data == "from the child", message
            subscription.close()

        with held(subscription._reading):
            child = forked(work)
        assert status_of(child) == 0
        store.publish("news", "from the parent")
        texts: list[str] = []
        while not texts or texts[-1] != "from the parent":
            message = subscription.get(LIMIT)
            assert message is not None
            texts.append(message.data)
        assert texts == ([] if store.owner and store.path is None else ["from the child"]) + ["from the parent"]


def test_prefetched_messages_stay_with_the_parent(store: Store) -> None:
    group = store.stream("jobs").group("workers")
    store.stream("jobs").add_many({"n": number} for number in range(3))
    messages = group.consumer("one").messages(stop_when_empty=True)
    assert next(messages)["n"] == "0"

    def work() -> None:
        assert list(messages) == []

    assert status_of(forked(work)) == 0
    assert [(pending.consumer, pending.deliveries) for pending in group.pending()] == [("one", 1)] * 3
    assert [message["n"] for message in messages] == ["1", "2"]

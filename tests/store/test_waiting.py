"""Calls that wait are served from any store, and end by a timeout or by a close, but not by other events."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from rillet import Store
from rillet.errors import OutcomeUnknown, StoreClosed
from tests.store.conftest import IN_PROCESS, Frontend, only


def _waiting(store: Store, call: Callable[[], Any]) -> Future[Any]:
    """Run the call in a thread and return once a client of the store waits in it."""
    before = _blocked(store)
    pool = ThreadPoolExecutor(1)
    future = pool.submit(call)
    pool.shutdown(wait=False)
    deadline = time.monotonic() + 60
    while _blocked(store) == before and not future.done():
        assert time.monotonic() < deadline, "no client waits"
        threading.Event().wait(0.005)
    return future


def _blocked(store: Store) -> int:
    return int(store.info()["blocked_clients"])


def test_a_reader_is_woken_by_an_add_from_another_store(frontend: Frontend) -> None:
    stream = frontend.store.stream("s")
    future = _waiting(frontend.store, lambda: stream.read("$", block=20))
    made = frontend.another().stream("s").add({"n": 1})
    assert [entry.id for entry in future.result(60)] == [made]


def test_a_consumer_waits_for_ever_until_there_is_something(frontend: Frontend) -> None:
    consumer = frontend.store.stream("s").group("g").consumer("c")
    future = _waiting(frontend.store, lambda: consumer.read(block=0))
    frontend.another().stream("s").add({"n": 1})
    assert [message["n"] for message in future.result(60)] == ["1"]
    assert consumer.group.pending_count() == 1


def test_waiting_ends_with_its_time(store: Store) -> None:
    started = time.monotonic()
    assert store.stream("s").read("$", block=0.05) == []
    assert store.stream("s").group("g").consumer("c").read(block=0.0001) == []
    assert time.monotonic() - started > 0.04


def test_readers_are_served_in_the_order_in_which_they_came(store: Store) -> None:
    group = store.stream("s").group("g")
    futures = [_waiting(store, lambda n=n: group.consumer(f"c{n}").read(1, block=20)) for n in range(3)]  # type: ignore[misc]
    for n in range(3):
        store.stream("s").add({"n": n})
        assert [message["n"] for message in futures[n].result(60)] == [str(n)]


def test_close_ends_what_another_thread_waits_for(frontend: Frontend) -> None:
    store = frontend.store
    stream = store.stream("s")
    future = _waiting(store, lambda: stream.read("$", block=0))
    store.close()
    with pytest.raises(StoreClosed):
        future.result(60)


def test_follow_sees_what_is_added_while_it_waits(frontend: Frontend) -> None:
    stream = frontend.store.stream("s")
    stream.add({"n": "before"})
    seen: list[str] = []

    def follow() -> None:
        for entry in stream.follow(block=20):
            seen.append(entry["n"])
            if len(seen) == 3:
                return

    future = _waiting(frontend.store, follow)
    other = frontend.another().stream("s")
    for n in range(3):
        other.add({"n": n})
    future.result(60)
    assert seen == ["0", "1", "2"]


def test_many_threads_add_and_consume_at_once(frontend: Frontend) -> None:
    store, threads, each = frontend.store, 4, 60
    group = store.stream("s").group("g")
    handled: list[str] = []

    def add(thread: int) -> None:
        for n in range(each):
            store.stream("s").add({"n": f"{thread}-{n}"})

    def work(name: str) -> None:
        while len(handled) < threads * each:
            for message in group.consumer(name).read(10, block=0.05):
                if message.ack():
                    handled.append(message["n"])

    with ThreadPoolExecutor(2 * threads) as pool:
        calls = [pool.submit(add, n) for n in range(threads)] + [pool.submit(work, f"w{n}") for n in range(threads)]
        for call in calls:
            call.result(60)
    assert sorted(handled) == sorted(f"{thread}-{n}" for thread in range(threads) for n in range(each))
    assert len(store.stream("s")) == threads * each
    assert group.pending_count() == 0


def test_threads_that_ended_leave_no_sessions_behind(frontend: Frontend) -> None:
    store = frontend.store
    for _ in range(30):
        thread = threading.Thread(target=store.execute, args=("PING",))
        thread.start()
        thread.join()
    deadline = time.monotonic() + 60
    while int(store.info()["connected_clients"]) > 12 and time.monotonic() < deadline:
        threading.Event().wait(0.01)
    assert int(store.info()["connected_clients"]) <= 12
    if store.owner:
        assert len(store.transport.engine.sessions) <= 4  # type: ignore[attr-defined]


def test_a_thread_has_its_own_database(store: Store) -> None:
    store.execute("SELECT", 3)
    store.execute("SET", "here", "3")
    seen: list[Any] = []
    thread = threading.Thread(target=lambda: seen.extend((store.execute("GET", "here"), store.execute("DBSIZE"))))
    thread.start()
    thread.join()
    assert seen == [None, 0]
    assert store.execute("GET", "here") == b"3"


@IN_PROCESS
def test_a_blocking_command_in_a_batch_does_not_wait_in_process(store: Store) -> None:
    replies = store.execute_many([["XREAD", "BLOCK", 0, "STREAMS", "s", "$"], ["PING"]])
    assert replies == [None, b"PONG"]


@only("owner")
def test_the_owners_end_ends_a_call_whose_outcome_is_unknown(frontend: Frontend) -> None:
    other = frontend.another()
    assert not other.owner
    future = _waiting(frontend.store, lambda: other.execute("BLPOP", "l", 0))
    frontend.store.close()
    with pytest.raises(OutcomeUnknown, match="may or may not have been executed"):
        future.result(60)
    assert other.stream("s").add({"a": 1}) is not None
    assert other.owner


@only("owner")
def test_a_read_that_waits_continues_at_the_next_owner(frontend: Frontend) -> None:
    other = frontend.another()
    future = _waiting(frontend.store, lambda: other.stream("s").read("$", block=0))
    frontend.store.close()
    while not other.owner or int(other.info()["blocked_clients"]) < 1:
        assert not future.done()
    made = other.stream("s").add({"a": 1})
    assert [entry.id for entry in future.result(60)] == [made]


def test_a_time_out_beyond_every_clock_waits(store: Store) -> None:
    future = _waiting(store, lambda: store.execute("XREAD", "BLOCK", 10**16, "STREAMS", "s", "$"))
    store.stream("s").add({"n": 1}, "1-0")
    assert future.result(60) == [[b"s", [[b"1-0", [b"n", b"1"]]]]]

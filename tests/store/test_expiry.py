"""Expired keys vanish without being accessed, in a store without an event loop too, and an idle store does not wake."""

from __future__ import annotations

import gc
import os
import threading
from pathlib import Path
from typing import Any

import pytest

import rillet
from rillet import Store
from rillet.host.idle_timers import IdleTimers
from rillet.store.backends.backend import MemoryBackend
from tests.store.conftest import IN_PROCESS, Frontend
from tests.variants import by_speed
from tests.waiting import until

FAR = 3_600_000
LIMIT = 60.0


def timers_of(store: Store) -> IdleTimers:
    backend = store._backend
    assert isinstance(backend, MemoryBackend)
    return backend.timers


def fill(store: Store, count: int, milliseconds: int, name: str = "k") -> None:
    store.execute_many([("SET", f"{name}{number}", "v", "PX", milliseconds) for number in range(count)])


@IN_PROCESS
def test_expired_keys_vanish_without_being_accessed(frontend: Frontend) -> None:
    store = frontend.store
    store.execute("CONFIG", "SET", "hz", "500")
    store.execute("SET", "stays", "1")
    fill(store, 2000, 1)
    until(lambda: store.execute("DBSIZE") == 1)
    info = store.info()
    assert int(info["expired_keys"]) > 1000  # a key whose time is over when it is set is not counted
    assert info["db0"].startswith("keys=1,expires=0")


def test_each_database_and_each_way_to_an_expiry() -> None:
    with rillet.open() as store:
        client = store.redis(db=3)
        client.set("a", 1)
        dump = client.dump("a")
        assert dump is not None
        client.pexpire("a", 5)
        client.set("b", 1, px=500)  # long enough for the next two commands
        client.rename("b", "c")
        client.move("c", 4)
        client.set("d", 1, px=5)
        client.restore("e", 5, dump)
        client.swapdb(3, 5)
        until(lambda: not store.info().keys() & {"db3", "db4", "db5"})
        expired = int(store.info()["expired_keys"])
        assert 1 <= expired <= 4  # a key whose time is over when its lifetime is set is not counted


def test_there_is_a_thread_only_while_keys_have_an_expiry() -> None:
    with rillet.open(hz=500) as store:
        timers = timers_of(store)
        store.execute("SET", "a", "1")
        assert not timers.thread.runs
        for _ in range(3):
            store.execute("SET", "a", "1", "PX", "1")
            until(lambda: store.execute("DBSIZE") == 0 and not timers.thread.runs)
        store.execute("SET", "a", "1", "PX", FAR)
        until(lambda: timers.sleeps_until is not None)
        store.execute("PERSIST", "a")
        assert timers.thread.runs  # it sleeps, and ends when it wakes up
        store.execute("SET", "b", "1", "PX", 1)
        until(lambda: not timers.thread.runs)
        assert store.execute("KEYS", "*") == [b"a"]


def test_the_thread_sleeps_until_a_key_is_due_and_an_earlier_key_wakes_it() -> None:
    with rillet.open() as store:
        timers = timers_of(store)
        store.execute("SET", "far", "1", "PX", FAR)
        when = store.execute("PEXPIRETIME", "far")
        until(lambda: timers.sleeps_until == when)
        scheduled = dict(timers._timers)
        store.execute("SET", "farther", "1", "PX", 2 * FAR)
        assert timers.sleeps_until == when
        assert timers._timers == scheduled
        store.execute("SET", "near", "1", "PX", 20)
        until(lambda: store.execute("DBSIZE") == 2)
        until(lambda: timers.sleeps_until == when)


def test_subscribers_of_expired_events_need_no_access() -> None:
    with rillet.open(notify_keyspace_events="Ex") as store, store.subscribe("__keyevent@0__:expired") as channel:
        store.execute("SET", "session", "1", "PX", "10")
        message = channel.get(timeout=LIMIT)
        assert message is not None
        assert message.data == "session"


def test_a_failed_round_is_logged_and_the_next_expiry_continues(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    with rillet.open() as store:
        timers = timers_of(store)
        failures = []

        def fail(period: float) -> float:
            failures.append(period)
            raise ZeroDivisionError("a defect")

        with monkeypatch.context() as patch:
            patch.setattr(timers, "_pause", fail)
            store.execute("SET", "a", "1", "PX", FAR)
            until(lambda: failures)
        until(lambda: timers.sleeps_until is not None)
        assert "the work of a store between its commands failed" in caplog.text
        store.execute("SET", "b", "1", "PX", 1)
        until(lambda: store.execute("DBSIZE") == 1)


def test_a_store_without_a_free_thread_still_expires_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr("rillet.timer_thread.start_new_thread", refuse)
    with rillet.open() as store:
        store.execute("SET", "a", "1", "PX", 1)
        until(lambda: store.execute("GET", "a") is None)


def test_a_closed_or_forgotten_store_has_no_thread() -> None:
    store = rillet.open()
    timers = timers_of(store)
    store.execute("SET", "a", "1", "PX", FAR)
    until(lambda: timers.sleeps_until is not None)
    store.close()
    until(lambda: not timers.thread.runs)
    store = rillet.open()
    store.execute("SET", "a", "1", "PX", FAR)
    timers = timers_of(store)
    until(lambda: timers.sleeps_until is not None)
    del store
    gc.collect()
    until(lambda: not timers.thread.runs)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_forked_children_expire_their_keys() -> None:
    with rillet.open(hz=500) as store:

        def fill_again() -> None:
            for turn in range(by_speed(100, 20)):
                fill(store, 50, 1, f"t{turn}-")

        other = threading.Thread(target=fill_again)
        other.start()
        for turn in range(by_speed(20, 5)):
            fill(store, 200, 1, f"f{turn}-")
            child = os.fork()
            if child == 0:
                code = 1
                try:
                    transport: Any = store.transport
                    with transport.lock:
                        transport.engine.check()
                    until(lambda: store.execute("DBSIZE") == 0)
                    store.execute("SET", "x", "1", "PX", 1)
                    until(lambda: store.execute("DBSIZE") == 0)
                    code = 0
                finally:
                    os._exit(code)
            assert os.waitpid(child, 0)[1] == 0
        other.join()
        until(lambda: store.execute("DBSIZE") == 0)


def test_a_read_only_store_shows_its_keys_until_they_are_accessed(tmp_path: Path) -> None:
    with rillet.open(tmp_path) as store:
        store.execute("SET", "a", "1", "PX", FAR)
        with rillet.open(tmp_path, readonly=True) as snapshot:
            assert snapshot.execute("PTTL", "a") > 0


@IN_PROCESS
def test_expired_fields_vanish_without_being_accessed(frontend: Frontend) -> None:
    store = frontend.store
    store.execute("CONFIG", "SET", "hz", "500")
    store.execute("HSET", "h", "stays", "1")
    words = [word for number in range(500) for word in (f"f{number}", "v")]
    store.execute("HSETEX", "h", "PX", 20, "FIELDS", 500, *words)
    store.execute("HSETEX", "gone", "PX", 20, "FIELDS", 1, "f", "v")
    until(lambda: store.execute("HLEN", "h") == 1 and store.execute("DBSIZE") == 1)
    assert int(store.info()["expired_subkeys_active"]) == 501
    assert store.info()["db0"].endswith("subexpiry=0")

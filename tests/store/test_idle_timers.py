"""A store in memory frees values and evicts keys in a thread that ends with the work, and starts again after errors."""

from __future__ import annotations

import contextlib
from _thread import start_new_thread
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import rillet
from rillet import Store, timer_thread
from rillet.host import idle_timers
from rillet.runtime.engine import Engine
from rillet.store.backends.backend import MemoryBackend
from rillet.store.transports.in_process import InProcessTransport
from tests.waiting import until

LIMIT = 250 * 1024
KEYS = 4000


def transport_of(store: Store) -> InProcessTransport:
    backend = store._backend
    assert isinstance(backend, MemoryBackend)
    return backend.transport()


def engine_of(store: Store) -> Engine:
    return transport_of(store).engine


def is_done(store: Store) -> bool:
    """Return whether no value waits to be freed, and the data fits."""
    engine = engine_of(store)
    with transport_of(store).lock:
        engine.check()
        return not engine.lazyfree.pending and (not engine.limited or engine.used_memory() <= LIMIT)


def exceed_limit(store: Store) -> None:
    """Store more than the limit, and let the first run of the eviction reach its limit of time."""
    store.execute_many([("SET", f"key:{number}", b"x" * 100) for number in range(KEYS)])
    store.execute("CONFIG", "SET", "maxmemory", str(LIMIT))
    store.execute("PING")


def drop_value(store: Store) -> None:
    """Delete a value that is freed in many steps."""
    store.execute("SADD", "large", *(f"member:{number}" for number in range(20_000)))
    store.execute("UNLINK", "large")


WORK: list[tuple[Callable[[Store], None], Callable[[Engine], Any]]] = [
    (exceed_limit, lambda engine: engine.eviction),
    (drop_value, lambda engine: engine.lazyfree),
]


@pytest.fixture
def store() -> Iterator[Store]:
    with rillet.open(maxmemory_policy="allkeys-random", maxmemory_eviction_tenacity=2) as opened:
        yield opened


@pytest.mark.parametrize(("make_work", "part"), WORK)
def test_work_is_done_without_further_commands(
    store: Store, make_work: Callable[[Store], None], part: Callable[[Engine], Any]
) -> None:
    make_work(store)
    until(lambda: not part(engine_of(store)).running)
    assert is_done(store)


@pytest.mark.parametrize(("make_work", "part"), WORK)
def test_after_a_failed_step_later_work_starts_the_thread_again(
    store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, make_work: Callable[[Store], None],
    part: Callable[[Engine], Any],
) -> None:  # fmt: skip
    engine, backend = engine_of(store), store._backend
    assert isinstance(backend, MemoryBackend)

    @contextlib.contextmanager
    def fail() -> Iterator[None]:
        raise MemoryError
        yield

    with monkeypatch.context() as patch:
        patch.setattr(backend.timers, "_guard", fail())
        make_work(store)
        until(lambda: caplog.records and not part(engine).running)
    assert caplog.records[0].getMessage() == idle_timers._FAILURE
    assert not is_done(store)
    make_work(store)
    until(lambda: not part(engine).running)
    assert is_done(store)


def test_without_a_thread_the_next_command_starts_one(monkeypatch: pytest.MonkeyPatch) -> None:
    exhausted = True

    def start(function: Callable[..., object], arguments: tuple[object, ...]) -> int:
        if exhausted:
            raise RuntimeError("can't start new thread")
        return start_new_thread(function, arguments)

    monkeypatch.setattr(timer_thread, "start_new_thread", start)
    with rillet.open(maxmemory_policy="allkeys-random", maxmemory_eviction_tenacity=0) as store:
        engine = engine_of(store)
        exceed_limit(store)
        assert not engine.eviction.running
        assert not is_done(store)
        drop_value(store)
        assert not engine.lazyfree.running
        assert engine.lazyfree.pending == 0  # the command freed the value
        exhausted = False
        store.execute("PING")
        until(lambda: not engine.eviction.running)
        assert is_done(store)

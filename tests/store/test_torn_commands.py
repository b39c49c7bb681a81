"""An exception that comes from outside tears no command: each one is executed whole, or not at all."""

from __future__ import annotations

import ctypes
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import rillet
from rillet import Store
from rillet.store.transports.in_process import InProcessTransport
from tests.store.test_stream_memory import fill, settled
from tests.variants import by_speed

pytestmark = pytest.mark.both
SIZE = 200  # elements of one command
ROUNDS = by_speed(20, 5)


class Interrupt(BaseException):
    """Raised in a thread at a moment that nothing chose."""


@pytest.fixture(autouse=True)
def quiet_finalizers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not report an interrupt of a finalizer, which cannot raise it: the next one may come during the report."""
    report = sys.unraisablehook

    def but_interrupts(found: sys.UnraisableHookArgs) -> None:
        if found.exc_type is not Interrupt:
            report(found)

    monkeypatch.setattr(sys, "unraisablehook", but_interrupts)


def _raise_in(thread: threading.Thread) -> None:
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident or 0), ctypes.py_object(Interrupt))


def _commands(store: Store, number: int) -> Iterator[Callable[[], object]]:
    """Yield calls, each of which is one command that changes SIZE elements."""
    words = [f"{number}-{place}" for place in range(SIZE)]
    scored = [word for place, member in enumerate(words) for word in (place, member)]
    fields = [word for member in words for word in (member, number)]
    yield lambda: store.execute("RPUSH", "list", *words)
    yield lambda: store.execute("ZADD", "zset", *scored)
    yield lambda: store.execute("SADD", "set", *words)
    yield lambda: store.execute("HSET", "hash", *fields)
    yield lambda: store.execute("SUNIONSTORE", f"copy:{number}", "set")
    yield lambda: store.redis_client.rpush("redis", *words)  # type: ignore[attr-defined]


def _assert_whole(store: Store, sound: bool = True) -> None:
    """Assert that each command took effect with all elements or none and, if `sound`, that the structures are sound."""
    transport = store.transport
    assert isinstance(transport, InProcessTransport)
    if sound:  # O(data) with a large constant
        with transport.lock:
            transport.engine.check()
    assert store.execute("LLEN", "list") % SIZE == 0
    assert store.execute("LLEN", "redis") % SIZE == 0
    assert store.execute("ZCARD", "zset") % SIZE == 0
    assert store.execute("SCARD", "set") % SIZE == 0
    assert store.execute("HLEN", "hash") % SIZE == 0


def _work(store: Store, numbers: Iterator[int], go: threading.Event) -> None:
    while not go.is_set():
        try:
            for call in _commands(store, next(numbers)):
                call()
        except (Interrupt, rillet.StoreError, OSError, AttributeError):
            continue  # OSError: the connection of the Redis client was closed by the interrupt


@contextmanager
def _opened(path: Path) -> Iterator[Store]:
    with rillet.open(path, enable_debug_command="yes") as store:
        store.redis_client = store.redis()  # type: ignore[attr-defined]
        store.redis_client.ping()  # type: ignore[attr-defined]  # the first command imports modules
        yield store


@pytest.mark.slow
def test_exceptions_sent_to_a_thread(tmp_path: Path) -> None:
    stop = threading.Event()
    with _opened(tmp_path / "s") as store:
        numbers = iter(range(1_000_000))

        def work() -> None:
            while not stop.is_set():
                try:
                    _work(store, numbers, stop)
                except BaseException:
                    continue

        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        for number in range(ROUNDS):
            before = store.execute("LLEN", "list")
            _raise_in(thread)
            while store.execute("LLEN", "list") == before:
                assert thread.is_alive()
            _assert_whole(store, number % 10 == 0)
        stop.set()
        thread.join(60)
        assert not thread.is_alive()
        digest = store.execute("DEBUG", "DIGEST")
    with rillet.open(tmp_path / "s", enable_debug_command="yes") as store:
        assert store.execute("DEBUG", "DIGEST") == digest
        _assert_whole(store)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="sets an interval timer")
def test_signal_handlers_that_raise(tmp_path: Path) -> None:
    raised = 0

    def handler(*_: object) -> None:
        nonlocal raised
        raised += 1
        raise Interrupt

    with _opened(tmp_path / "s") as store:
        numbers = iter(range(1_000_000))
        before = signal.signal(signal.SIGALRM, handler)
        try:
            while raised < ROUNDS:
                try:
                    try:
                        signal.setitimer(signal.ITIMER_REAL, 0.003)
                        for call in _commands(store, next(numbers)):
                            call()
                    finally:
                        signal.setitimer(signal.ITIMER_REAL, 0)
                except (Interrupt, rillet.StoreError, OSError):
                    pass
                _assert_whole(store, raised % 10 == 0)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
        digest = store.execute("DEBUG", "DIGEST")
    with rillet.open(tmp_path / "s", enable_debug_command="yes") as store:
        assert store.execute("DEBUG", "DIGEST") == digest


FIRST_SCORE = """
import os, signal, rillet

def handler(*_):
    raise RuntimeError

signal.signal(signal.SIGALRM, handler)
rillet.open().close()  # imports the engine, for all
for delay in (0.00002, 0.00004, 0.00008, 0.00015):
    if os.fork():
        assert os.wait()[1] == 0
        continue
    store = rillet.open()
    try:
        signal.setitimer(signal.ITIMER_REAL, delay)
        store.execute("ZADD", "z", "0.2834170271", "m")
    except RuntimeError:
        pass
    signal.setitimer(signal.ITIMER_REAL, 0)
    assert store.execute("ZCARD", "z") == store.execute("EXISTS", "z")
    break
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="sets an interval timer")
def test_a_signal_handler_raises_in_the_first_command_that_formats_a_score() -> None:
    """Each process forks before a command has run."""
    environment = {**os.environ, "PYTHONPATH": str(Path(rillet.__file__).parent.parent)}
    subprocess.run([sys.executable, "-c", FIRST_SCORE], env=environment, check=True)


@pytest.mark.slow
def test_commands_that_read_segments(tmp_path: Path) -> None:
    """The disk gives other threads time to raise something, in the middle of a command that deletes or delivers."""
    entries, together, read = 6000, 40, 20
    places = entries // together
    chance = random.Random(1)
    numbers = iter(range(places // 2))

    def chosen(place: int) -> range:
        return range(place + 1, entries + 1, places)

    def work(store: Store) -> None:
        for place in numbers:
            store.execute("XREADGROUP", "GROUP", "g", "c", "COUNT", read, "STREAMS", "s", ">")
            store.execute("XDEL", "s", *chosen(place))

    done, last = threading.Event(), threading.Event()

    def worked(store: Store) -> None:
        while not last.is_set():
            try:
                while not last.is_set():
                    try:
                        work(store)
                        done.set()
                        last.wait()
                    except Interrupt:
                        continue
            except Interrupt:  # between two rounds
                continue

    with rillet.open(tmp_path / "store", stream_memory="64kb", appendfsync="no") as store:
        fill(store, entries)
        store.execute("XGROUP", "CREATE", "s", "g", 0)
        settled(store)
        worker = threading.Thread(target=worked, args=(store,))
        worker.start()
        while not done.is_set():
            time.sleep(chance.random() / 500)
            assert worker.is_alive()
            _raise_in(worker)
        last.set()  # no interrupt comes any more
        worker.join(60)
        assert not worker.is_alive()
        assert store.execute("XPENDING", "s", "g")[0] % read == 0
        left = {entry.id.ms for entry in store.stream("s").range()}
        assert len(left) % together == 0
        assert all(len(left.intersection(chosen(place))) in (0, together) for place in range(places))
        payload = store.execute("DUMP", "s")
    with rillet.open(tmp_path / "store") as store:
        assert store.execute("DUMP", "s") == payload

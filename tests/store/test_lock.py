"""The lock of an engine: reentrant, granted in order, and not confused by a release without an acquisition."""

from __future__ import annotations

import contextlib
import signal
import threading
import time

import pytest

from rillet.host.engine_lock import COMPILED_STEPS, FairLock, engine_lock

SECONDS = 60


def test_it_reports_whether_the_thread_held_it_before() -> None:
    lock = FairLock()
    for _ in range(2):
        with lock as alone:
            with lock as again:
                assert (alone, again) == (True, False)
            assert lock._is_owned()
        assert not lock._is_owned()


def test_waiting_threads_enter_in_order_and_before_the_thread_that_left() -> None:
    lock, order = FairLock(), []

    def work(name: str) -> None:
        with lock:
            order.append(name)

    threads = [threading.Thread(target=work, args=(name,)) for name in "abc"]
    with lock:
        for thread in threads:
            thread.start()
            time.sleep(0.05)  # the thread is in the queue
        with lock as alone:
            assert not alone
    with lock as alone:
        assert alone
        order.append("main")
    for thread in threads:
        thread.join(SECONDS)
    assert order == ["a", "b", "c", "main"]


def test_a_release_without_an_acquisition_changes_nothing() -> None:
    lock = FairLock()
    for _ in range(2):
        with pytest.raises(RuntimeError):
            lock.__exit__(None, None, None)
        with lock as alone:
            assert alone


class Interrupt(Exception):
    """What a signal handler raises."""


@pytest.mark.skipif(not COMPILED_STEPS, reason="interpreted, a signal handler runs between two steps of the lock")
def test_signal_handlers_that_use_the_lock_or_raise_leave_it_whole() -> None:
    lock, inside, stopped = FairLock(), list[int](), threading.Event()
    handled = raised = waited = 0
    armed = False  # whether a handler may raise: the main thread is in `use`
    main = threading.get_ident()

    def use() -> None:
        with lock:
            assert not inside

    def handle(*_: object) -> None:
        nonlocal armed, handled, raised, waited
        handled += 1
        waited += lock._is_waiting()
        use()
        if armed and handled % 3 == 0:
            armed = False
            raised += 1
            raise Interrupt

    def contend() -> None:
        while not stopped.is_set():
            with lock:
                assert not inside
                inside.append(threading.get_ident())
                time.sleep(0.0005)  # others queue, and another thread runs
                inside.pop()

    def disturb() -> None:
        while not stopped.is_set():
            signal.pthread_kill(main, signal.SIGUSR1)
            time.sleep(0.001)

    before = signal.signal(signal.SIGUSR1, handle)
    threads = [threading.Thread(target=target) for target in (contend, contend, disturb)]
    try:
        for thread in threads:
            thread.start()
        for _ in range(300):
            with contextlib.suppress(Interrupt):
                armed = True
                use()
                armed = False
    finally:
        armed = False
        stopped.set()
        for thread in threads:
            thread.join(SECONDS)
        signal.signal(signal.SIGUSR1, before)
    assert not any(thread.is_alive() for thread in threads)
    assert min(handled, raised, waited) > 0
    with lock as alone:
        assert alone
        assert not inside


def test_the_compiled_build_uses_it() -> None:
    assert (type(engine_lock()) is FairLock) == COMPILED_STEPS

"""The lock of an engine: reentrant, granted in order, and not confused by a release without an acquisition."""

from __future__ import annotations

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


def test_the_compiled_build_uses_it() -> None:
    assert (type(engine_lock()) is FairLock) == COMPILED_STEPS

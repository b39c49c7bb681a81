"""^C at any moment of a call: the store is free for others, and the next call gets its own reply."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Any, Literal

import pytest

import rillet
from rillet import Store
from rillet.host.engine_lock import COMPILED_STEPS
from rillet.store.transports import in_process as local_module
from rillet.store.transports.in_process import InProcessTransport

pytestmark = pytest.mark.both


class _Interrupts:
    """Raises KeyboardInterrupt where Python looks for signals, in the n-th such place of
    rillet.store.transports.in_process.

    These are the beginning of a function and the return from a call of C.
    """

    def __init__(self, at: int) -> None:
        self.left = at

    def __call__(self, frame: FrameType, event: str, _argument: Any) -> None:
        if event in ("call", "c_return") and frame.f_code.co_filename == local_module.__file__:
            self.left -= 1
            if self.left == 0:
                raise KeyboardInterrupt


def _interrupted(store: Store, at: int, *calls: Any) -> bool:
    """Make a call that is interrupted in its `at`-th place; whether it has as many."""
    watch = _Interrupts(at)
    sys.setprofile(watch)
    try:
        for call in calls:
            call()
    except KeyboardInterrupt:
        return True
    finally:
        sys.setprofile(None)
    assert watch.left > 0
    return False


def _free(lock: Any) -> bool:
    """Whether another thread gets the lock."""
    got: list[bool] = []

    def enter() -> None:
        with lock:
            got.append(True)

    thread = threading.Thread(target=enter, daemon=True)
    thread.start()
    thread.join(60)
    return bool(got)


@pytest.mark.parametrize("fsync", ["always", "everysec"])
@pytest.mark.parametrize("many", [False, True])
def test_a_call_that_is_interrupted_anywhere(tmp_path: Path, fsync: Literal["always", "everysec"], many: bool) -> None:
    with rillet.open(tmp_path / "store", appendfsync=fsync) as store:
        assert isinstance(store.transport, InProcessTransport)
        at = 1
        while True:
            word = f"{fsync} {at}"
            if many:
                interrupted = _interrupted(store, at, lambda: store.execute_many([["ECHO", "a"], ["SET", "k", "b"]]))
            else:
                interrupted = _interrupted(store, at, lambda: store.execute("SET", "k", "b"))
            assert _free(store.transport.lock), at
            assert store.execute("ECHO", word) == word.encode(), at
            if not interrupted:
                break
            at += 1
        assert at > 3 or COMPILED_STEPS  # compiled, the transport has no place for an interrupt
        assert store.execute("GET", "k") == b"b"


def test_who_waits_and_is_interrupted_waits_for_nothing_more(tmp_path: Path) -> None:
    with rillet.open(tmp_path / "store") as store:
        link = store.transport
        assert isinstance(link, InProcessTransport)
        at = 1
        while _interrupted(store, at, lambda: store.execute("BLPOP", "l", "0.001")):
            assert _free(link.lock), at
            assert store.execute("RPUSH", "l", "v") == 1, at
            assert store.execute("LPOP", "l") == b"v", at
            assert not link.engine.databases[0].blocking_keys
            at += 1
        assert at > 5 or COMPILED_STEPS

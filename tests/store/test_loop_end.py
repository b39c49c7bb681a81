"""The end of a loop over messages() that the garbage collector closes, anywhere in a process that serves its store."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import rillet
from rillet import Store
from tests.waiting import until


@pytest.fixture
def owner(tmp_path: Path) -> Iterator[Store]:
    with rillet.open(tmp_path / "s") as store:
        store.stream("s").add_many({"n": n} for n in range(3))
        yield store


def _in_the_thread_that_serves(owner: Store) -> None:
    loop = owner._backend._owner._server._thread.loop  # type: ignore[union-attr]
    loop.call_soon_threadsafe(gc.collect)


def _with_the_lock(owner: Store) -> None:
    with owner.transport.lock:  # type: ignore[attr-defined]
        gc.collect()


@pytest.mark.parametrize("collect", [_in_the_thread_that_serves, _with_the_lock])
def test_a_collected_loop_gives_its_messages_back(owner: Store, collect: Callable[[Store], None]) -> None:
    """Its commands wait for no thread that the collector stops."""
    with rillet.connect(f"unix://{owner.socket}", timeout=2) as client:
        group = client.stream("s").group("g")
        loop = group.consumer("one").messages(count=3, stop_when_empty=True)
        gc.disable()
        try:
            message = next(loop)
            cycle: list[object] = [loop]
            cycle.append(cycle)
            del loop, cycle
            assert [one.deliveries for one in group.pending()] == [1, 1, 1]
            collect(owner)
            until(lambda: [one.deliveries for one in group.pending()] == [1, 0, 0], "messages that are given back", 20)
        finally:
            gc.enable()
        assert message.ack()

"""Active defragmentation runs in every kind of store and in a server, beside other commands."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

import rillet
from rillet import Store
from rillet.store.backends.backend import MemoryBackend
from rillet.timer_thread import TimerThread
from tests.server.harness import running
from tests.waiting import until

COUNT = 3000


def _fill(store: Store) -> None:
    store.execute_many([["XADD", "s", f"{number}-0", "name", "value"] for number in range(1, COUNT + 1)])
    store.execute("XDEL", "s", *(f"{number}-0" for number in range(1, COUNT + 1) if number % 10))


def _wait_until_done(store: Store) -> dict[str, Any]:
    while (info := store.info())["active_defrag_hits"] == "0" or info["active_defrag_running"] != "0":
        threading.Event().wait(0.01)
    return info


def _listpacks(store: Store) -> int:
    """Return what `rillet stats` shows of the nodes of the stream."""
    (stream,) = store.stats(memory=True).streams
    assert stream.memory is not None
    assert stream.memory.listpacks is not None
    return stream.memory.listpacks


def _thread(store: Store) -> TimerThread:
    backend = store._backend
    assert isinstance(backend, MemoryBackend)
    return backend.timers.thread


@pytest.mark.parametrize("kind", ["memory", "directory"])
def test_a_store_compacts_a_stream(tmp_path: Path, kind: str) -> None:
    path = None if kind == "memory" else tmp_path / "s"
    with rillet.open(path, activedefrag=True, active_defrag_ignore_bytes="1kb") as store:
        _fill(store)
        entries = store.execute("XRANGE", "s", "-", "+")
        _wait_until_done(store)
        assert store.execute("XINFO", "STREAM", "s")[3] <= COUNT // 10 // 100 + 2
        assert store.execute("XRANGE", "s", "-", "+") == entries
        if kind == "memory":
            assert (thread := _thread(store)).runs
    if kind == "memory":
        until(lambda: not thread.runs)


def test_a_store_in_memory_starts_it_with_config_set() -> None:
    with rillet.open() as store:
        _fill(store)
        assert not _thread(store).runs
        before, listpacks = store.execute("MEMORY", "USAGE", "s"), _listpacks(store)
        store.execute("CONFIG", "SET", "activedefrag", "yes", "active-defrag-ignore-bytes", "1kb")
        _wait_until_done(store)
        assert _listpacks(store) < listpacks / 5
        assert store.execute("MEMORY", "USAGE", "s") < before / 5
        store.execute("CONFIG", "SET", "activedefrag", "no")
        until(lambda: not _thread(store).runs)


def test_a_server_compacts_a_stream(tmp_path: Path) -> None:
    options = ("--active-defrag-ignore-bytes", "1kb", "--save", "")
    with running(tmp_path, *options) as server, rillet.connect(f"redis://127.0.0.1:{server.port}") as store:
        _fill(store)
        entries = store.execute("XRANGE", "s", "-", "+")
        store.execute("CONFIG", "SET", "activedefrag", "yes")
        _wait_until_done(store)
        assert store.execute("XINFO", "STREAM", "s")[3] <= COUNT // 10 // 100 + 2
        assert store.execute("XRANGE", "s", "-", "+") == entries

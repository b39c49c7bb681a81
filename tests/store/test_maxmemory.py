"""`rillet.open(maxmemory=...)` evicts keys in every kind of embedded store, and the log contains the evictions."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rillet
from rillet.errors import CommandError
from rillet.store.backends.backend import MemoryBackend
from tests.waiting import until

LIMIT = 2_000_000
VALUE = b"x" * 1000
KINDS: dict[str, Callable[..., rillet.Store]] = {
    "memory": lambda path, **settings: rillet.open(**settings),
    "directory": lambda path, **settings: rillet.open(path, **settings),
    "process": lambda path, **settings: rillet.open(path, owner="process", owner_grace=0.2, **settings),
}


@pytest.fixture(params=list(KINDS))
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., rillet.Store]:
    return lambda **settings: KINDS[request.param](tmp_path / "store", **settings)


def fields(info: bytes) -> dict[str, str]:
    """Return the fields of a reply of INFO."""
    return dict(line.split(":", 1) for line in info.decode().splitlines() if ":" in line)


def fill(store: rillet.Store, count: int = 4000) -> None:
    store.execute_many([("SET", f"key:{number}", VALUE) for number in range(count)])


def test_keys_are_evicted(opened: Callable[..., rillet.Store]) -> None:
    with opened(maxmemory="2mb", maxmemory_policy="allkeys-lru") as store:
        fill(store)
        with store.transaction() as both:  # nothing is evicted between its commands
            kept, stats = both.execute("DBSIZE"), both.execute("INFO", "stats")
        assert 1000 < kept.result < 2100
        assert int(fields(stats.result)["evicted_keys"]) == 4000 - kept.result
        assert int(fields(store.execute("INFO", "memory"))["used_memory"]) <= 2 * 1024 * 1024
        assert store.execute("EXISTS", "key:3999") == 1


def test_without_a_policy_writes_fail(opened: Callable[..., rillet.Store]) -> None:
    with opened(maxmemory=LIMIT) as store:
        with pytest.raises(CommandError, match="OOM command not allowed when used memory > 'maxmemory'"):
            fill(store)
        assert store.execute("GET", "key:0") == VALUE
        assert store.execute("DEL", "key:0") == 1


def test_a_stream_is_trimmed_and_its_groups_stay(opened: Callable[..., rillet.Store]) -> None:
    settings: dict[str, Any] = {"maxmemory_policy": "allkeys-lru", "maxmemory_streams": "trim"}
    with opened(maxmemory="2mb", **settings) as store:
        store.execute("XGROUP", "CREATE", "events", "g", "0", "MKSTREAM")
        store.execute_many([("XADD", "events", f"{number}-0", "f", VALUE) for number in range(1, 4001)])
        length = store.execute("XLEN", "events")
        assert 1000 < length < 2100
        assert store.execute("XREVRANGE", "events", "+", "-", "COUNT", "1")[0][0] == b"4000-0"
        assert store.execute("XINFO", "GROUPS", "events")
        assert int(fields(store.execute("INFO", "stats"))["evicted_keys"]) == 0


def test_a_restart_keeps_what_was_kept(tmp_path: Path) -> None:
    with rillet.open(tmp_path / "store", maxmemory="2mb", maxmemory_policy="allkeys-random") as store:
        fill(store)
        kept = sorted(store.execute("KEYS", "*"))
    with rillet.open(tmp_path / "store") as store:
        assert sorted(store.execute("KEYS", "*")) == kept
        assert store.execute("CONFIG", "GET", "maxmemory") == [b"maxmemory", b"0"]


def test_a_store_in_memory_continues_an_eviction_without_commands() -> None:
    with rillet.open(maxmemory_policy="allkeys-random", maxmemory_eviction_tenacity=2) as store:
        store.execute_many([("SET", f"key:{number}", VALUE[:100]) for number in range(20_000)])
        backend = store._backend
        assert isinstance(backend, MemoryBackend)
        engine = backend.transport().engine
        store.execute("CONFIG", "SET", "maxmemory", "500kb")
        store.execute("PING")  # the first run of the eviction
        until(lambda: not engine.eviction.running)
        with backend.transport().lock:
            assert engine.used_memory() <= 500 * 1024
            assert 1000 < len(engine.databases[0]) < 5000
            engine.check()

"""A real redis-server loads the DUMP, the RDB file and the log of streams and lists that were compacted."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rillet
from rillet import Store
from rillet.keyspace.defrag import IDLE
from tests.judge import Judge, redis_binary, running_redis
from tests.variants import long_interpreted

pytestmark = pytest.mark.skipif(redis_binary() is None, reason="redis-server is not installed")


def _fill(store: Store, seed: int) -> None:
    """Make streams with groups, and a list, most of whose elements are deleted."""
    rnd = random.Random(seed)
    for key in ("s", "t"):
        store.execute("XGROUP", "CREATE", key, "g", "0", "MKSTREAM")
        for number in range(1, 1500):
            names = rnd.sample(["a", "b", "long name " * 3], rnd.randint(1, 3)) if key == "t" else ["a", "b"]
            words = [word for name in names for word in (name, rnd.choice([str(number), "text", "", "x" * 70]))]
            store.execute("XADD", key, f"{number}-{rnd.randint(0, 9)}", *words)
        store.execute("XREADGROUP", "GROUP", "g", "c", "COUNT", "700", "STREAMS", key, ">")
        ids = [row[0] for row in store.execute("XRANGE", key, "-", "+")]
        store.execute("XDEL", key, *(one for one in ids if rnd.random() < 0.9))
    for number in range(5000):
        store.execute("RPUSH", "list", "gone" if number % 10 else f"element {number}")
    store.execute("LREM", "list", 0, "gone")


def _compact(store: Store) -> None:
    engine: Any = store.transport.engine  # type: ignore[attr-defined]
    with store.transport.lock:  # type: ignore[attr-defined]
        store_settings = engine.settings
        store_settings.activedefrag, store_settings.active_defrag_ignore_bytes = True, 1
        engine.defrag.take_settings()
        while engine.defrag_step() != IDLE or engine.defrag.running:
            pass
        assert engine.defrag.hits > 20
        engine.check()


def _content(run: Callable[..., Any]) -> list[Any]:
    """Return the data and the groups; of a pending entry all but its idle time."""
    found = [run("LRANGE", "list", 0, -1), run("DEBUG", "DIGEST-VALUE", "s", "t", "list")]
    for key in ("s", "t"):
        found += [run("XRANGE", key, "-", "+"), run("XREVRANGE", key, "+", "-"), run("XINFO", "GROUPS", key)]
        found.append([(row[0], row[1], row[3]) for row in run("XPENDING", key, "g", "-", "+", 1000)])
    return found


def _opened(path: Path | None, compat: str, seed: int) -> Store:
    store = rillet.open(path, compat=compat, enable_debug_command="yes")
    _fill(store, seed)
    return store


@pytest.mark.slow
@pytest.mark.parametrize("compat", ["7.0", "newest"])
def test_restore(peer_of: Callable[[str], Judge], compat: str) -> None:
    with _opened(None, compat, 1) as store:
        before = _content(store.execute)
        dumps = {key: store.execute("DUMP", key) for key in ("s", "t", "list")}
        _compact(store)
        assert _content(store.execute) == before
        client = peer_of(compat).client()
        client.execute_command("FLUSHALL")
        client.execute_command("CONFIG", "SET", "sanitize-dump-payload", "yes")
        for key, earlier in dumps.items():
            dump = store.execute("DUMP", key)
            assert len(dump) < len(earlier)
            client.execute_command("RESTORE", key, 0, dump)
        assert _content(client.execute_command) == before
        client.execute_command("XADD", "s", "*", "a", "1", "b", "2")
        client.execute_command("XTRIM", "s", "MAXLEN", "=", 3)
        assert len(client.execute_command("XRANGE", "s", "-", "+")) == 3
        client.close()


@long_interpreted
def test_the_log(tmp_path: Path) -> None:
    """Approximate trims remove whole nodes, so they remove other entries after a compaction; the log has the result."""
    with _opened(tmp_path / "s", "7.0", 2) as store:
        _compact(store)
        store.execute("XADD", "s", "MAXLEN", "~", 100, "9000-0", "a", "1", "b", "2")
        store.execute("XTRIM", "t", "MINID", "~", 700)
        before = _content(store.execute)
    folder = tmp_path / "redis"
    shutil.copytree(tmp_path / "s/appendonlydir", folder / "appendonlydir")
    with running_redis("--dir", str(folder), "--appendonly", "yes") as server, server.client() as client:
        assert _content(client.execute_command) == before


@long_interpreted
def test_the_rdb_file(tmp_path: Path) -> None:
    with _opened(None, "7.0", 3) as store:
        _compact(store)
        before = _content(store.execute)
        store.save(tmp_path / "dump.rdb")
    with running_redis("--dir", str(tmp_path)) as server, server.client() as client:
        assert _content(client.execute_command) == before

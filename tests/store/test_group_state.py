"""A group's counters survive a restart from the log, with every `compat`; a base also has the consumers' times."""

from __future__ import annotations

import random
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest

import rillet
from rillet import Store
from rillet.keyspace.clock import ManualClock
from rillet.persistence.aof.base import write_base
from rillet.persistence.aof.loader import replay
from rillet.runtime.engine import Engine
from rillet.runtime.settings.settings import Settings
from rillet.types.compat import COMPATS
from tests.commands.test_lag import some_command
from tests.differential.wire import Local
from tests.judge import redis_binary, running_redis
from tests.persistence.state import Opened
from tests.variants import by_speed

START = ("XADD s 1-0 f v", "XGROUP CREATE s g 0", "XGROUP CREATE s h 0")
LATE = 1_800_000_000_000


def _groups(store: Store) -> Any:
    return store.execute("XINFO", "GROUPS", "s")


def _rewrite(store: Store) -> None:
    store.execute("BGREWRITEAOF")
    while store.info()["aof_rewrite_in_progress"] != "0":
        threading.Event().wait(0.005)
    assert store.info()["aof_last_bgrewrite_status"] == "ok"


def _work(store: Store, seed: int) -> None:
    """Run random commands on the groups; some reads have NOACK, some entries are acknowledged or claimed."""
    rnd, last = random.Random(seed), [1]
    for command in START:
        store.execute(*command.split())
    for _ in range(250):
        # A counter that overflows is logged as unknown, so its greatest value stays out of this test.
        command = some_command(rnd, last).replace(str(2**63 - 1), "98")
        if command.startswith("XSETID"):
            continue
        if "XREADGROUP" in command and rnd.random() < 0.3:
            command = command.replace(" COUNT", " NOACK COUNT")
        try:
            store.execute(*command.split())
        except rillet.RilletError:
            pass
        if rnd.random() < 0.2:
            store.execute("XACK", "s", "g", f"{rnd.randint(1, last[0])}-0")
        if rnd.random() < 0.2:
            store.execute("XAUTOCLAIM", "s", rnd.choice("gh"), "other", 0, 0, "COUNT", 2)


@pytest.mark.parametrize("compat", COMPATS)
def test_a_restart_keeps_the_counters_of_groups(tmp_path: Path, compat: str) -> None:
    for seed in range(by_speed(1, 1, 4)):
        path = tmp_path / f"{seed}"
        with rillet.open(path, compat=compat) as store:
            _work(store, seed)
            before = _groups(store)
        with rillet.open(path, compat=compat) as store:
            assert _groups(store) == before, seed


@pytest.mark.parametrize("preamble", [True, False])
def test_a_rewritten_log_keeps_the_counters_of_groups(tmp_path: Path, preamble: bool) -> None:
    with rillet.open(tmp_path / "s", compat="7.0", aof_use_rdb_preamble=preamble) as store:
        _work(store, 5)
        before = _groups(store)
        _rewrite(store)
    with rillet.open(tmp_path / "s", compat="7.0") as store:
        assert _groups(store) == before


@pytest.mark.skipif(redis_binary() is None, reason="redis-server is not installed")
@pytest.mark.parametrize("rewritten", [False, True])
def test_redis_loads_the_counters_of_groups(tmp_path: Path, rewritten: bool) -> None:
    with rillet.open(tmp_path / "s", compat="7.0") as store:
        _work(store, 7)
        if rewritten:
            _rewrite(store)
            store.execute("XADD", "s", "*", "f", "v")
            store.execute("XREADGROUP", "GROUP", "g", "c", "STREAMS", "s", ">")
        before = _groups(store)
    shutil.copytree(tmp_path / "s/appendonlydir", tmp_path / "redis/appendonlydir")
    with running_redis("--dir", str(tmp_path / "redis"), "--appendonly", "yes") as server, server.client() as client:
        assert client.execute_command("XINFO", "GROUPS", "s") == before


def test_the_log_has_one_counter_for_each_read(tmp_path: Path) -> None:
    with rillet.open(tmp_path / "s", compat="7.2") as store:
        for number in range(1, 101):
            store.execute("XADD", "s", f"{number}-0", "f", "v")
        store.execute("XGROUP", "CREATE", "s", "g", "0")
        for _ in range(2):
            store.execute("XREADGROUP", "GROUP", "g", "c", "COUNT", "50", "STREAMS", "s", ">")
        store.execute("XREADGROUP", "GROUP", "g", "c", "STREAMS", "s", ">")
    log = (tmp_path / "s/appendonlydir/appendonly.aof.1.incr.aof").read_bytes()
    assert (log.count(b"XCLAIM"), log.count(b"SETID"), log.count(b"ENTRIESREAD")) == (100, 2, 2)


def _logged(compat: str, **settings: Any) -> bool:
    """Return whether an XREADGROUP that delivers an entry logs the read counter."""
    engine = Engine(Settings(compat=compat, **settings))
    engine.log = log = _Lines()
    local = Local(engine)
    for command in (*START, "XREADGROUP GROUP g c STREAMS s >"):
        local(*command.split())
    return any(line[:2] == [b"XGROUP", b"SETID"] for line in log.lines)


class _Lines:
    """A log that collects commands."""

    def __init__(self) -> None:
        self.lines: list[list[bytes]] = []

    def append(self, _database: int, argv: list[bytes]) -> None:
        self.lines.append(list(argv))

    def flush(self) -> None:
        pass


@pytest.mark.parametrize("compat", COMPATS)
def test_a_server_logs_the_counter_as_the_server_of_compat_does(compat: str) -> None:
    assert _logged(compat) is (compat not in ("7.0", "7.2"))
    assert _logged(compat, log_entries_read=True)


def test_config_shows_and_sets_it() -> None:
    local = Local(Engine())
    assert local("CONFIG", "GET", "log-entries-read") == [b"log-entries-read", b"no"]
    assert local("CONFIG", "SET", "log-entries-read", "yes") == b"OK"
    assert local("CONFIG", "GET", "log-*") == [b"log-entries-read", b"yes"]


def _times(run: Any) -> list[tuple[object, ...]]:
    """Return (name, seen-time, active-time) of the consumers of both groups, as XINFO STREAM FULL shows them."""
    flat = run("XINFO", "STREAM", "s", "FULL")
    found: list[tuple[object, ...]] = []
    for group in dict(zip(flat[::2], flat[1::2], strict=True))[b"groups"]:
        for flat_consumer in dict(zip(group[::2], group[1::2], strict=True))[b"consumers"]:
            one = dict(zip(flat_consumer[::2], flat_consumer[1::2], strict=True))
            found.append((one[b"name"], one[b"seen-time"], one.get(b"active-time")))
    return found


def _use(opened: Opened) -> None:
    for command in (*START, "XREADGROUP GROUP g active STREAMS s >"):
        opened(*command.split())
    opened.clock.advance(5000)
    opened(*"XGROUP CREATECONSUMER s h new".split())
    opened.clock.advance(5000)
    opened(*"XREADGROUP GROUP g active STREAMS s >".split())
    opened.clock.advance(5000)
    opened(*"XREADGROUP GROUP g seen STREAMS s >".split())


@pytest.mark.parametrize("preamble", [True, False])
@pytest.mark.parametrize("compat", COMPATS)
def test_a_base_keeps_the_times_of_consumers(tmp_path: Path, compat: str, preamble: bool) -> None:
    """A stream of Redis 7.0 (RDB type 19) has no active-time; there, both times are the seen-time."""
    with Opened(tmp_path / "log") as opened:
        opened.engine.settings.set_text("compat", compat)
        opened.engine.settings.set_text("aof-use-rdb-preamble", "yes" if preamble else "no")
        _use(opened)
        before = _times(opened)
        kind = write_base(tmp_path / f"base.{'rdb' if preamble else 'aof'}", opened.engine)
        assert kind == ("rdb" if preamble else "aof")
    assert len(before) == (2 if compat == "7.0" else 3)
    assert len({seen for _, seen, _ in before}) == len(before)
    engine = Engine(Settings(compat=compat), ManualClock(LATE))
    replay(engine, [tmp_path / f"base.{kind}"])
    after = _times(Local(engine))
    if compat == "7.0":
        assert [row[:2] for row in after] == [row[:2] for row in before]
    else:
        assert after == before

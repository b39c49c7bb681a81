"""Seen times and active times of consumers survive a restart: from an RDB file, a log, and the base of a log."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest

import rillet
from rillet.keyspace.clock import ManualClock
from rillet.persistence.rdb.reader import load_rdb
from rillet.persistence.rdb.writer import write_rdb
from rillet.runtime.engine import Engine
from rillet.runtime.settings.settings import Settings
from tests.commands.ends import Bench
from tests.differential.wire import Local, read
from tests.server.harness import Client, running


def times(run: Any, compat: str) -> dict[bytes, tuple[Any, ...]]:
    """Return the seen time (and since 7.2 the active time) of each consumer, in ms since the epoch."""
    found = {}
    for group in _fields(run("XINFO", "STREAM", "s", "FULL"))[b"groups"]:
        for consumer in map(_fields, _fields(group)[b"consumers"]):
            names = (b"seen-time",) if compat == "7.0" else (b"seen-time", b"active-time")
            found[consumer[b"name"]] = tuple(consumer[name] for name in names)
    return found


def _fields(flat: list[Any]) -> dict[bytes, Any]:
    return dict(zip(flat[::2], flat[1::2], strict=True))


def deliver(run: Any, pause: Any) -> None:
    """Make consumers that were seen and active at different times."""
    for number in range(1, 6):
        run("XADD", "s", f"{number}-0", "f", "v")
    run("XGROUP", "CREATE", "s", "g", "0")
    run("XREADGROUP", "GROUP", "g", "alice", "COUNT", "1", "STREAMS", "s", ">")
    pause()
    run("XREADGROUP", "GROUP", "g", "bob", "COUNT", "1", "STREAMS", "s", ">")
    pause()
    run("XCLAIM", "s", "g", "carol", "0", "1-0")


@pytest.mark.parametrize("compat", ["7.0", "7.2", "newest", "valkey"])
def test_a_replay_takes_the_times_from_the_logged_deliveries(compat: str) -> None:
    end = Bench(compat=compat)
    deliver(end, lambda: end.clock.advance(60_000))
    before = times(end, compat)
    assert len({seen for seen, *_ in before.values()}) == 3
    logged = end.log.take()
    clock = ManualClock(end.clock.now_ms() + 3_600_000)
    again = Local(Engine(Settings(compat=compat), clock))
    again.session.trusted = True
    for argv in logged:
        assert not again.run(argv).startswith(b"-")
    again.session.trusted = False
    assert times(again, compat) == before


def test_a_created_consumer_is_seen_at_the_delivery_before_it() -> None:
    end = Bench(compat="newest")
    deliver(end, lambda: end.clock.advance(60_000))
    end("XGROUP", "CREATECONSUMER", "s", "g", "dave")
    again = Local(Engine(Settings(compat="newest"), ManualClock(end.clock.now_ms() + 3_600_000)))
    again.session.trusted = True
    for argv in end.log.take():
        again.run(argv)
    assert times(again, "newest")[b"dave"] == (end.clock.now_ms(), -1)


def test_a_client_s_claim_counts_as_seen_now() -> None:
    """Only a replay reads the TIME of XCLAIM as the time of the consumer."""
    end = Bench(compat="newest")
    deliver(end, lambda: None)
    end("XCLAIM", "s", "g", "eve", "0", "2-0", "TIME", end.clock.now_ms() - 5000)
    assert times(end, "newest")[b"eve"] == (end.clock.now_ms(), end.clock.now_ms())


@pytest.mark.parametrize("compat", ["7.0", "newest"])
def test_an_rdb_file_keeps_the_times(tmp_path: Path, compat: str) -> None:
    end = Bench(compat=compat)
    deliver(end, lambda: end.clock.advance(60_000))
    end("XREADGROUP", "GROUP", "g", "alice", "STREAMS", "s", "0")  # seen, not active
    before = times(end, compat)
    write_rdb(tmp_path / "dump.rdb", end.engine)
    again = Local(Engine(Settings(compat=compat), ManualClock(end.clock.now_ms() + 1000)))
    load_rdb(tmp_path / "dump.rdb", again.engine)
    assert times(again, compat) == before


def test_a_reopened_store_knows_the_times(tmp_path: Path) -> None:
    def pause() -> None:
        until = time.time_ns() // 1_000_000 + 2
        while time.time_ns() // 1_000_000 < until:
            pass

    with rillet.open(tmp_path / "store") as store:
        deliver(store.execute, pause)
        before = times(store.execute, "newest")
        assert len({seen for seen, *_ in before.values()}) == 3
    for _ in range(2):
        with rillet.open(tmp_path / "store") as store:
            after = times(store.execute, "newest")
            store.execute("BGREWRITEAOF")  # the new base is written from a replay of the log
            while b"aof_rewrite_in_progress:1" in store.execute("INFO", "persistence"):
                threading.Event().wait(0.01)
        for name, (seen, active) in before.items():
            # The delivery is logged with its own time; the consumer was seen in the same command.
            assert 0 <= seen - after[name][0] <= 1
            assert 0 <= active - after[name][1] <= 1


def _runner(client: Client) -> Any:
    return lambda *words: read(client.call(" ".join(map(str, words))))


@pytest.mark.parametrize("save", [False, True])
def test_a_restarted_server_knows_the_times(tmp_path: Path, save: bool) -> None:
    options = ("--compat", "newest", "--appendonly", "no" if save else "yes")
    with running(tmp_path, *options) as server, server.client() as client:
        run = _runner(client)
        deliver(run, lambda: None)
        before = times(run, "newest")
        if save:
            run("SAVE")
        server.stop()
    with running(tmp_path, *options) as server, server.client() as client:
        after = times(_runner(client), "newest")
    assert after.keys() == before.keys()
    for name, (seen, active) in before.items():
        assert 0 <= seen - after[name][0] <= 1
        assert 0 <= active - after[name][1] <= 1

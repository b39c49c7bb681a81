"""Retention: streams lose by themselves what exceeds their limits, wherever their store is."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import math
import os
import random
import shutil
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import rillet
from rillet import CommandError, Store, StoreError
from rillet.cli.stats import report
from rillet.store.backends.backend import MemoryBackend
from rillet.testing.clock import StoreClock
from tests.judge import running_redis
from tests.server.harness import running
from tests.store.process import Other
from tests.variants import long
from tests.waiting import until

LIMIT = 64 * 1024


def fill(store: Store, count: int, first: int = 1, key: str = "s") -> None:
    store.stream(key).add_many((f"{n}-0", {"n": n, "text": "x" * 60}) for n in range(first, first + count))


def length(store: Store, expected: int, key: str = "s") -> None:
    """Wait until a stream has the length."""
    until(lambda: len(store.stream(key)) == expected, lambda: f"{len(store.stream(key))} entries, not {expected}")


@pytest.fixture(params=["memory", "directory", "segments"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    options: dict[str, Any] = {"segments": {"stream_memory": LIMIT, "appendfsync": "no"}}.get(request.param, {})
    where = () if request.param == "memory" else (tmp_path / "s",)
    with rillet.open(*where, **options) as opened:
        yield opened


def test_a_stream_loses_what_exceeds_its_limits(store: Store) -> None:
    fill(store, 3000)
    stream = store.stream("s")
    assert stream.retention() is None
    stream.retain(entries=100, groups="ignore")
    length(store, 100)
    fill(store, 50, 3001)
    length(store, 100)
    stream.retain(age=60, groups="ignore")  # the IDs are of 1970
    length(store, 0)
    stream.retain()
    assert stream.retention() is None
    fill(store, 5, 4000)
    stream.retain(bytes="1kb", groups="ignore")
    found = stream.retention()
    assert found is not None
    assert (found.age, found.entries, found.bytes, found.groups) == (None, None, 1024, "ignore")
    assert len(stream) == 5  # the last node stays


def test_groups_keep_what_they_need(store: Store) -> None:
    fill(store, 1000)
    stream = store.stream("s")
    stream.retain(entries=100)
    found = stream.retention()
    assert found is not None
    assert (found.drops_entries, found.held) == (0, [])
    assert "no group" in found.note
    consumer = stream.group("g").consumer("c")
    messages = consumer.read(count=600)
    consumer.ack(*messages[:500])
    length(store, 500)
    found = stream.retention()
    assert found is not None
    assert found.note == ""
    (held,) = found.held
    assert (held.group, held.entries, str(held.first_id)) == ("g", 400, "501-0")
    assert held.bytes > 400 * 60
    consumer.ack(*messages[500:])
    length(store, 400)
    consumer.ack(*consumer.read(count=1000))
    length(store, 100)


def test_limits_that_cannot_be_are_refused() -> None:
    with rillet.open() as store:
        stream = store.stream("s")
        for wrong in (0, -1, math.nan, math.inf, timedelta(0), timedelta(seconds=-1)):
            with pytest.raises(ValueError, match="age must be"):
                stream.retain(age=wrong)
        for name in ("entries", "bytes"):
            for wrong in (0, -1, math.nan):
                with pytest.raises(ValueError, match=f"{name} must be"):
                    stream.retain(**{name: wrong})  # type: ignore[arg-type]
            with pytest.raises(TypeError, match=f"{name} must be"):
                stream.retain(**{name: 1.5})  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="256 apples"):
            stream.retain(bytes="256 apples")
        for groups in ("", "all", None):
            with pytest.raises(ValueError, match="groups must be 'acknowledged' or 'ignore'"):
                stream.retain(entries=1, groups=groups)  # type: ignore[arg-type]
            with pytest.raises(ValueError, match="groups must be"):
                stream.retain(groups=groups)  # type: ignore[arg-type]
        assert stream.retention() is None
        stream.retain(age=timedelta(days=7), bytes=10**15)
        found = stream.retention()
        assert found is not None
        assert (found.age, found.bytes) == (7 * 86400, 10**15)


def test_the_policy_belongs_to_the_name(store: Store) -> None:
    fill(store, 200)
    store.stream("s").retain(entries=10, groups="ignore")
    length(store, 10)
    store.execute("RENAME", "s", "t")  # t has no policy, and a new s has it
    assert store.stream("t").retention() is None
    fill(store, 200, 201, "t")
    fill(store, 200)
    length(store, 10)
    assert len(store.stream("t")) == 210
    store.execute("COPY", "s", "u")
    assert store.stream("u").retention() is None
    payload = store.execute("DUMP", "t")
    store.execute("DEL", "s")
    assert store.stream("s").retention() is not None
    store.execute("RESTORE", "s", 0, payload)
    length(store, 10)
    store.execute("RESTORE", "v", 0, payload)
    assert store.stream("v").retention() is None
    store.execute("FLUSHALL")
    fill(store, 200)
    assert store.stream("s").retention() is None


def test_in_asyncio() -> None:
    async def main() -> None:
        async with rillet.open().aio() as store:
            stream = store.stream("s")
            await stream.add_many({"n": n} for n in range(100))
            await stream.retain(entries=10, groups="ignore")
            while await stream.length() > 10:
                await asyncio.sleep(0.01)
            found = await stream.retention()
            assert found is not None
            assert found.entries == 10
            await stream.retain()
            assert await stream.retention() is None

    asyncio.run(main())


def test_the_clock_of_a_test_moves_it() -> None:
    clock = StoreClock(1_700_000_000)
    with clock.open() as store:
        stream = store.stream("s")
        stream.retain(age=60, groups="ignore")
        stream.add({"n": 1})
        clock.advance(30)
        stream.add({"n": 2})
        clock.advance(30)
        assert len(stream) == 2
        clock.advance(1)
        assert [entry["n"] for entry in stream] == ["2"]
        clock.advance(3600)
        assert len(stream) == 0


def test_a_policy_survives_a_kill_and_is_applied_after_it(tmp_path: Path) -> None:
    other = Other(tmp_path / "s", stream_memory=LIMIT)
    other.ask("store.stream('s').retain(entries=100, groups='ignore')")
    other.ask("len(store.stream('s').add_many({'n': n} for n in range(3000)))")
    other.kill()
    with rillet.open(tmp_path / "s") as store:
        length(store, 100)
        assert int(store.stream("s").range()[0]["n"]) == 2900
        found = store.stream("s").retention()
        assert found is not None
        assert (found.entries, found.groups) == (100, "ignore")


def test_an_attached_process_sets_it(tmp_path: Path) -> None:
    with rillet.open(tmp_path / "s") as store, Other(tmp_path / "s") as other:
        assert other.ask("store.stream('s').retain(entries=100, groups='ignore')") is None
        fill(store, 500)
        length(store, 100)
        assert other.ask("store.stream('s').retention().entries") == 100


def test_a_rillet_server_applies_it_and_redis_refuses_it(tmp_path: Path) -> None:
    with rillet.open() as local, local.serve() as served, rillet.connect(served.url) as store:
        fill(store, 500)
        store.stream("s").retain(entries=100, groups="ignore")
        length(store, 100)
        store.execute("SET", "rillet:retention", "x")
        with pytest.raises(CommandError, match="WRONGTYPE"):
            store.stream("s").retain(entries=100)
    with running_redis() as judge, rillet.connect(f"redis://127.0.0.1:{judge.port}") as store:
        fill(store, 500)
        with pytest.raises(StoreError, match="this server has no retention"):
            store.stream("s").retain(entries=100)
        assert store.stream("s").retention() is None
        for _ in range(3):
            assert "places" not in store.stream("s").info()
        lines = store.execute("INFO", "errorstats", text=True).splitlines()
        refused = [line for line in lines if line.startswith("errorstat_ERR:")]
        assert refused == ["errorstat_ERR:count=2"]  # retain, and the first look at the places


def test_rillet_serve_applies_it_after_a_restart_too(tmp_path: Path) -> None:
    options = ("--appendonly", "yes", "--stream-memory", "64kb")
    with running(tmp_path, *options) as server, rillet.connect(f"redis://127.0.0.1:{server.port}") as store:
        # Few enough for memory: of sealed nodes, only whole ones go.
        store.stream("s").retain(entries=400, groups="ignore")
        fill(store, 5000)
        length(store, 400)
    with running(tmp_path, *options) as server, rillet.connect(f"redis://127.0.0.1:{server.port}") as store:
        assert len(store.stream("s")) == 400
        fill(store, 500, 5001)
        length(store, 400)


def test_a_redis_server_loads_the_log_and_the_snapshot(tmp_path: Path) -> None:
    with rillet.open(tmp_path / "s", aof_checksums=False, enable_debug_command="yes") as store:
        fill(store, 500)
        store.stream("s").retain(entries=100, groups="ignore")
        length(store, 100)
        fill(store, 500, 501)
        length(store, 100)
        store.stream("gone").retain(age=60)
        store.stream("gone").retain()
        digest = store.execute("DEBUG", "DIGEST-VALUE", "s", "rillet:retention")
        store.save()
    policy = {b"s": b"age=0 entries=100 bytes=0 groups=ignore"}
    for number, files in enumerate(("appendonlydir", "dump.rdb")):
        folder = tmp_path / f"redis{number}"
        os.mkdir(folder)
        (shutil.copytree if number == 0 else shutil.copy)(tmp_path / "s" / files, folder / files)
        options = ("--appendonly", "yes" if number == 0 else "no")
        with running_redis(*options, folder=folder) as judge, judge.client() as client:
            until(lambda: not client.execute_command("INFO", "persistence").count(b"loading:1"))
            assert client.execute_command("XLEN", "s") == 100
            reply = client.execute_command("HGETALL", "rillet:retention")
            assert dict(zip(reply[::2], reply[1::2], strict=True)) == policy
            assert client.execute_command("DEBUG", "DIGEST-VALUE", "s", "rillet:retention") == digest


def test_a_replica_gets_it_from_its_master(tmp_path: Path) -> None:
    with rillet.open() as store, store.serve() as served:
        port = served.url.rpartition(":")[2].split("/")[0]
        with running_redis("--replicaof", f"127.0.0.1 {port}") as judge, judge.client() as client:
            until(lambda: b"master_link_status:up" in client.execute_command("INFO", "replication"))
            fill(store, 500)
            store.stream("s").retain(entries=100, groups="ignore")
            length(store, 100)
            until(lambda: client.execute_command("XLEN", "s") == 100)
            assert client.execute_command("XRANGE", "s", "-", "+", "COUNT", 1)[0][0] == b"401-0"


def test_a_store_in_memory_rests_again(tmp_path: Path) -> None:
    with rillet.open() as store:
        store.stream("s").retain(entries=1)
        backend = store._backend
        assert isinstance(backend, MemoryBackend)
        timers = backend.timers
        until(lambda: timers.thread.runs)
        store.stream("s").retain()
        until(lambda: not timers.thread.runs)
        store.stream("s").retain(entries=1, groups="ignore")
        fill(store, 2)
        length(store, 1)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_applies_it_to_its_copy() -> None:
    with rillet.open() as store:
        store.stream("s").retain(entries=10, groups="ignore")
        child = os.fork()
        if child == 0:  # pragma: no cover
            status = 1
            try:
                fill(store, 100)
                length(store, 10)
                status = 0
            finally:
                os._exit(status)
        assert os.waitpid(child, 0)[1] == 0
        assert len(store.stream("s")) == 0


def rests(store: Store) -> bool:
    """Return whether no node goes to the disk, or comes from it."""
    before = store.stats().streams[0].places
    time.sleep(0.3)
    return store.stats().streams[0].places == before


def test_the_figures_are_shown_everywhere(tmp_path: Path) -> None:
    options: dict[str, Any] = {"stream_memory": LIMIT, "appendfsync": "no"}
    with rillet.open(tmp_path / "s", **options) as store:
        fill(store, 3000)
        until(lambda: int(store.info()["stream_memory_used"]) <= LIMIT)
        stream = store.stream("s")
        stream.group("g", "1000-0").create()
        stream.retain(entries=500, age=60)
        until(lambda: len(stream) < 2100)  # the first node is in a segment, so it goes as a whole
        until(lambda: rests(store))
        total = len(stream)
        places = stream.info()["places"]
        assert places == store.stats("s").streams[0].places
        assert places.entries_in_memory + places.entries_in_segments == total
        assert 0 < places.bytes_in_memory <= LIMIT
        assert places.bytes_in_segments > 1000 * 60
        assert (places.retention.age, places.retention.entries) == (60, 500)
        (held,) = places.retention.held
        assert (held.group, held.entries, str(held.first_id)) == ("g", total, "1000-1")
        info = store.info()
        figures = {name: int(value) for name, value in info.items() if name.startswith("retention_")}
        assert figures == {
            "retention_streams": 1, "retention_removed_entries": 3000 - total, "retention_drops_entries": 0,
            "retention_drops_bytes": 0, "retention_held_entries": total, "retention_held_bytes": held.bytes,
        }  # fmt: skip
        assert int(info["stream_entries_in_segments"]) == places.entries_in_segments
        assert {"stream_index_hits", "stream_index_misses", "stream_segment_bytes"} <= set(info)
        assert "stream_memory_used" not in store.execute("INFO", "persistence").decode()
        shown = "\n".join(report("s", store.stats()))
        assert f"in segments {places.entries_in_segments:,}" in shown
        assert "retention age 1.0 min, entries 500, groups acknowledged; the first entry is too old from 1970" in shown
        assert f"the group g holds back {total:,} entries" in shown
        json.dumps(store.stats().as_dict())
    with rillet.open(tmp_path / "s", readonly=True) as store:  # nothing goes from what only reads
        assert len(store.stream("s")) == total
        found = store.stats().streams[0].places
        assert found is not None
        room = found.bytes_in_memory  # a rewrite writes nodes without the room that their buffers have
        assert dataclasses.replace(places, bytes_in_memory=room) == found
    with rillet.open() as store:
        store.stream("s").add({"n": 1})
        assert "# Rillet" not in store.execute("INFO").decode()
        assert store.execute("INFO", "rillet") == b""
        assert store.stream("s").info()["places"].retention is None


@pytest.mark.slow
@pytest.mark.parametrize("rounds", [4, *long(60)])
def test_kills_while_entries_are_added_sealed_and_removed(rounds: int, tmp_path: Path) -> None:
    """What remains is the end of what was added, at least as much as the policy keeps, and what the group needs."""
    chance = random.Random(rounds)
    add = "len(store.stream('s').add_many(({{'n': n, 'text': 'x' * 60}} for n in range({}, {}))))"
    done = acknowledged = 0
    for number in range(rounds):
        other = Other(tmp_path / "s", stream_memory=LIMIT)
        if number == 0:
            other.ask("store.stream('s').retain(entries=1500)")
            other.ask("store.stream('s').group('g').create()")
        for _ in range(chance.randint(1, 3)):
            more = chance.randint(200, 1500)
            assert other.ask(add.format(done, done + more)) == more
            done += more
            if chance.random() < 0.6:
                count = chance.randint(1, done - acknowledged)
                consumer = "store.stream('s').group('g').consumer('c')"
                acknowledged += other.ask(f"(lambda c: c.ack(*c.read(count={count})))({consumer})")
        if chance.random() < 0.3:
            other.tell("str(store.execute('BGREWRITEAOF'))")
        time.sleep(chance.choice([0, 0.05, 0.2]))
        other.kill()
    with rillet.open(tmp_path / "s") as store:
        kept = [int(entry["n"]) for entry in store.stream("s")]
        assert kept == list(range(kept[0], done))
        assert kept[0] <= max(0, min(acknowledged, done - 1500))
        until(lambda: len(store.stream("s")) < max(1500, done - acknowledged) + 200)
        with store.transport.lock:  # type: ignore[attr-defined]
            store.transport.engine.check()  # type: ignore[attr-defined]

"""Streams larger than memory: a store with `stream_memory` behaves as one without, and keeps everything on disk."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import rillet
from rillet import Store
from rillet.cli import main
from rillet.errors import CommandError
from rillet.persistence.disk import REAL
from rillet.persistence.segments.segment import IndexCache, Segment, read_segment
from rillet.transfer.backup import back_up
from tests.judge import free_port, redis_binary
from tests.store.process import Other
from tests.variants import covering, long
from tests.waiting import until

LIMIT = 64 * 1024


def memory(store: Store) -> dict[str, int]:
    return {name: int(value) for name, value in store.info().items() if name.startswith("stream_")}


def settled(store: Store, seconds: float = 60) -> dict[str, int]:
    """Wait until the streams are within their limit, and return the figures."""
    end = time.monotonic() + seconds
    while (found := memory(store))["stream_memory_used"] > LIMIT:
        assert time.monotonic() < end, f"the streams stay above their limit: {found}"
        time.sleep(0.02)
    return found


def fill(store: Store, count: int, first: int = 1, key: bytes = b"s") -> None:
    commands: list[list[Any]] = [[b"XADD", key, b"%d-0" % n, b"n", b"%d" % n, b"text", b"x" * 60]
                                 for n in range(first, first + count)]  # fmt: skip
    for at in range(0, count, 1000):
        store.execute_many(commands[at : at + 1000])


def numbers(store: Store, key: str = "s") -> list[int]:
    return [int(entry["n"]) for entry in store.stream(key).range()]


def files(path: Path) -> list[str]:
    return sorted(name for name in os.listdir(path / "appendonlydir" / "segments") if name.endswith(".segment"))


def rewritten(store: Store) -> None:
    """Rewrite the log, and wait until the new base is the log's."""
    while int((info := store.info())["aof_rewrite_in_progress"]):
        time.sleep(0.02)
    before = int(info["aof_rewrites"])
    with contextlib.suppress(CommandError):  # an automatic one has begun
        store.execute("BGREWRITEAOF")
    while int((info := store.info())["aof_rewrite_in_progress"]) or int(info["aof_rewrites"]) == before:
        time.sleep(0.02)
    assert info["aof_last_bgrewrite_status"] == "ok"


def test_memory_stays_within_the_limit_and_everything_can_be_read(tmp_path: Path) -> None:
    with rillet.open(tmp_path / "s", stream_memory="64kb", appendfsync="no") as store:
        fill(store, 5000)
        found = settled(store)
        assert found["stream_nodes_in_segments"] > 50
        assert found["stream_segments"] == len(files(tmp_path / "s"))
        assert numbers(store) == list(range(1, 5001))
        assert len(store.stream("s")) == 5000
        assert memory(store)["stream_memory_used"] <= LIMIT  # reading takes nothing into memory
        rewritten(store)
        base = next((tmp_path / "s" / "appendonlydir").glob("*.base.rdb"))
        assert base.stat().st_size < 2 * LIMIT
    with rillet.open(tmp_path / "s") as store:  # with the stored limit
        assert store.execute("CONFIG", "GET", "stream-memory") == [b"stream-memory", b"65536"]
        assert memory(store)["stream_nodes_in_segments"] == found["stream_nodes_in_segments"]
        assert numbers(store) == list(range(1, 5001))
        fill(store, 3000, 5001)
        settled(store)
        assert numbers(store) == list(range(1, 8001))
        with pytest.raises(CommandError):
            store.execute("CONFIG", "SET", "stream-memory", "1gb")
    with rillet.open(tmp_path / "s", readonly=True) as store:
        assert numbers(store) == list(range(1, 8001))


def test_segments_are_compressed_if_the_setting_says_so(tmp_path: Path) -> None:
    def size() -> int:
        return sum(path.stat().st_size for path in (tmp_path / "s" / "appendonlydir" / "segments").glob("*.segment"))

    with rillet.open(tmp_path / "s", stream_memory="64kb", stream_compression="zstd", appendfsync="no") as store:
        fill(store, 5000)
        found = settled(store)
        assert size() < found["stream_nodes_in_segments"] * 4096 // 3
        assert numbers(store) == list(range(1, 5001))
    with rillet.open(tmp_path / "s") as store:  # as at the last opening
        assert store.execute("CONFIG", "GET", "stream-compression") == [b"stream-compression", b"zstd"]
        before, nodes = size(), memory(store)["stream_nodes_in_segments"]
        fill(store, 5000, 5001)
        nodes = settled(store)["stream_nodes_in_segments"] - nodes
        assert size() - before < nodes * 4096 // 3
    with rillet.open(tmp_path / "s", stream_compression="none") as store:
        before, nodes = size(), memory(store)["stream_nodes_in_segments"]
        fill(store, 5000, 10_001)
        nodes = settled(store)["stream_nodes_in_segments"] - nodes
        assert size() - before > nodes * 3500
        store.execute("XDEL", "s", "17-0")  # its node returns to memory
        assert numbers(store) == [n for n in range(1, 15_001) if n != 17]
    with rillet.open(tmp_path / "s", readonly=True) as store:
        assert numbers(store) == [n for n in range(1, 15_001) if n != 17]


def test_compression_needs_a_limit_and_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(rillet.StoreError, match="stream-compression needs stream-memory"):
        rillet.open(tmp_path / "s", stream_compression="zstd")
    with rillet.open(tmp_path / "s") as store:
        assert "stream_memory_used" not in store.info()
    with pytest.raises(ValueError, match="stream.compression"):
        rillet.open(tmp_path / "s", stream_memory="64kb", stream_compression="lz4")
    with pytest.raises(ValueError, match="stream.compression"):
        rillet.open(stream_compression="zstd")
    with monkeypatch.context() as context:
        context.setitem(sys.modules, "zstandard", None)
        with pytest.raises(ValueError, match=r"zstd is missing: pip install 'rillet\[zstd\]'"):
            rillet.open(tmp_path / "s", stream_memory="64kb", stream_compression="zstd")


def test_the_limit_includes_what_belongs_to_a_node(tmp_path: Path) -> None:
    with rillet.open(tmp_path / "s", stream_memory="64kb", appendfsync="no") as store:
        store.execute("CONFIG", "SET", "stream-node-max-entries", "1")
        store.stream("s").add_many({"n": n} for n in range(1000))
        until(lambda: memory(store)["stream_nodes_in_segments"] > 500)
        assert memory(store)["stream_memory_used"] < LIMIT // 2
        assert len(numbers(store)) == 1000


def test_the_log_does_not_grow_over_many_openings(tmp_path: Path) -> None:
    for _ in range(14):  # each opening adds less than the limit
        with rillet.open(tmp_path / "s", stream_memory="64kb", appendfsync="no") as store:
            store.stream("s").add_many({"n": n, "text": "x" * 60} for n in range(300))
            until(lambda: memory(store)["stream_memory_used"] < LIMIT * 7 // 8)
            until(lambda: not any(int(store.info()[f"aof_rewrite_{name}"]) for name in ("scheduled", "in_progress")))
            size = int(store.info()["aof_current_size"])
    assert size < 5 * LIMIT  # the commands have 580 kB


def test_a_store_that_is_closed_leaves_a_log_that_opens_soon(tmp_path: Path) -> None:
    count = 20_000
    with rillet.open(tmp_path / "s", stream_memory="64kb", appendfsync="no", auto_aof_rewrite_percentage=0) as store:
        store.stream("s").add_many({"n": n, "text": "x" * 60} for n in range(1, count + 1))
        store.execute("SET", "k", "v")
        group = store.stream("s").group("g", start="0")
        assert len(group.consumer("c").read(count=5)) == 5
        payload = store.execute("DUMP", "s")
    log = [path for path in (tmp_path / "s" / "appendonlydir").iterdir() if path.is_file()]
    assert sum(path.stat().st_size for path in log) < 1 << 20  # the commands have 2 MB
    with rillet.open(tmp_path / "s") as store:
        assert store.execute("GET", "k") == b"v"
        assert numbers(store) == list(range(1, count + 1))
        assert store.execute("DUMP", "s") == payload
        assert len(store.stream("s").group("g").consumer("c").read(count=5)) == 5


def test_a_store_that_is_closed_leaves_few_nodes_to_load(tmp_path: Path) -> None:
    """The next opening takes a moment, however much the limit permits in memory."""
    count = 8000
    with rillet.open(tmp_path / "s", stream_memory="64mb", appendfsync="no", rdbcompression="no") as store:
        store.stream("s").add_many({"n": n, "text": "x" * 1000} for n in range(1, count + 1))
        store.stream("other").add({"n": 1})
        assert memory(store)["stream_segments"] == 0
        assert memory(store)["stream_memory_used"] > 6 << 20
    assert next((tmp_path / "s" / "appendonlydir").glob("*.base.rdb")).stat().st_size < 5 << 20
    for _ in range(2):
        with rillet.open(tmp_path / "s") as store:
            assert memory(store)["stream_segments"] == 1
            assert memory(store)["stream_memory_used"] < 5 << 20
            assert numbers(store) == list(range(1, count + 1))
            assert len(store.stream("other")) == 1


def test_random_commands_have_the_replies_of_a_store_in_memory(tmp_path: Path) -> None:
    chance = random.Random(3)
    with rillet.open(tmp_path / "s", stream_memory="64kb", appendfsync="no") as cold, rillet.open() as plain:
        both = (cold, plain)
        for store in both:
            fill(store, 4000)
            store.execute("XGROUP", "CREATE", "s", "g", "0")
        settled(cold)
        last = 4000

        def some() -> bytes:
            return b"%d-0" % chance.randint(1, last)

        def command() -> list[bytes]:
            nonlocal last
            start, end = sorted((chance.randint(1, last), chance.randint(1, last)))
            count = b"%d" % chance.randint(1, 300)
            ways: list[list[bytes]] = [
                [b"XRANGE", b"s", b"%d" % start, b"%d" % end, b"COUNT", count],
                [b"XREVRANGE", b"s", b"%d" % end, b"%d" % start, b"COUNT", count],
                [b"XREAD", b"COUNT", count, b"STREAMS", b"s", some()],
                [b"XREADGROUP", b"GROUP", b"g", b"c", b"COUNT", count, b"STREAMS", b"s", b">"],
                [b"XREADGROUP", b"GROUP", b"g", b"c", b"COUNT", count, b"STREAMS", b"s", some()],
                [b"XDEL", b"s", some(), some()],
                [b"XACK", b"s", b"g", some(), some()],
                [b"XDELEX", b"s", b"DELREF", b"IDS", b"1", some()],
                [b"XCLAIM", b"s", b"g", b"d", b"0", some(), b"JUSTID"],
                [b"XTRIM", b"s", b"MAXLEN", b"~", b"%d" % max(last - start // 8, 500)],
                [b"XTRIM", b"s", b"MINID", b"%d" % (start // 8)],
                [b"XLEN", b"s"],
                [b"XPENDING", b"s", b"g"],
                [b"RILLET.XNODES", b"s", b"%d-0" % start, b"%d-0" % end, b"COUNT", count],
                [b"RILLET.XCOUNT", b"s", b"%d" % start, b"%d" % end],
                [b"DEBUG", b"DIGEST-VALUE", b"s"],
            ]
            if chance.random() < 0.4:
                last += 1
                return [b"XADD", b"s", b"%d-0" % last, b"n", b"%d" % last, b"text", b"y" * 60]
            return chance.choice(ways)

        for number in range(600):
            argv = command()
            try:
                replies = [store.execute(*argv) for store in both]
            except CommandError:
                with pytest.raises(CommandError):
                    plain.execute(*argv)
                continue
            assert replies[0] == replies[1], (number, argv)
        for store in both:
            store.execute("XGROUP", "DESTROY", "s", "g")  # it has the times of deliveries
        assert cold.execute("DUMP", "s") == plain.execute("DUMP", "s")
        assert memory(cold)["stream_nodes_in_segments"] > 0
    with rillet.open(tmp_path / "s") as cold:
        assert [entry.id for entry in cold.stream("s").range()]


def test_whole_keys(tmp_path: Path) -> None:
    with rillet.open(tmp_path / "s", stream_memory="64kb", appendfsync="no") as store:
        fill(store, 3000)
        settled(store)
        store.execute("RENAME", "s", "t")
        assert numbers(store, "t") == list(range(1, 3001))
        before = settled(store)
        store.execute("COPY", "t", "u")
        copied = memory(store)
        assert copied["stream_memory_used"] < 2 * LIMIT  # the copy has the segments of the original
        assert copied["stream_nodes_in_segments"] == 2 * before["stream_nodes_in_segments"]
        assert copied["stream_segments"] == before["stream_segments"]
        assert numbers(store, "u") == list(range(1, 3001))
        store.execute("XTRIM", "t", "MAXLEN", 5)
        store.execute("DEL", "t")
        for _ in range(2):  # the second rewrite removes segments that nothing has
            rewritten(store)
            settled(store)
        assert numbers(store, "u") == list(range(1, 3001))
        payload = store.execute("DUMP", "u")
        store.execute("RESTORE", "v", 0, payload)
        store.execute("SWAPDB", 0, 1)
        assert store.execute("EXISTS", "u") == 0
        store.execute("SWAPDB", 1, 0)
        assert numbers(store, "v") == list(range(1, 3001))
        assert store.execute("COPY", "u", "w") == 1
    with rillet.open(tmp_path / "s", appendfsync="no") as store:
        assert numbers(store, "w") == list(range(1, 3001))
        assert store.execute("DUMP", "w") == payload
        store.execute("FLUSHALL")
        fill(store, 2000)
        settled(store)
        assert numbers(store) == list(range(1, 2001))
    with rillet.open(tmp_path / "s") as store:
        assert numbers(store) == list(range(1, 2001))


def test_reads_leave_the_last_node_in_its_segment(tmp_path: Path) -> None:
    """The log does not have reads, so a rewrite, which replays it, would refer to a file that is removed as unused."""
    with rillet.open(tmp_path / "s", stream_memory="64kb", appendfsync="no") as store:
        fill(store, 3000)
        settled(store)
        behind = int(store.execute("RILLET.XSEGMENTS", "s", "0-0", "9999-0")[-1][4].partition(b"-")[0])
        store.execute("XDEL", "s", *[f"{n}-0" for n in range(behind, 3001)])  # the last node lies in a segment now
        with store.transport.lock:  # type: ignore[attr-defined]
            _, nodes = store.transport.engine.databases[0].peek(b"s").sealed_ranges()[-1]  # type: ignore[attr-defined]
            key = nodes.source.key(nodes.first + nodes.count - 1)
        store.execute("XTRIM", "s", "MINID", int.from_bytes(key[:8], "big"))
        assert memory(store)["stream_nodes_in_segments"] == 1
        assert len(store.execute("XREVRANGE", "s", "+", "-", "COUNT", 1)) == 1
        for _ in range(3):
            rewritten(store)
            until(lambda: not int(store.info()["aof_rewrite_scheduled"]))
        shutil.copytree(tmp_path / "s" / "appendonlydir", tmp_path / "copy" / "appendonlydir")
        left = numbers(store)
    with rillet.open(tmp_path / "copy", readonly=True) as store:
        assert numbers(store) == left


def living(store: Any) -> Counter[Any]:
    """How many nodes of each segment the stream holds, without its first segment, which trims empty."""
    nodes: Counter[Any] = Counter()
    with store.transport.lock:
        ranges = store.transport.engine.databases[0].peek(b"s").sealed_ranges()
    for _, sealed in ranges:
        nodes[sealed.source] += sealed.count
    del nodes[ranges[0][1].source]
    return nodes


def test_segments_that_are_mostly_empty_are_written_again(tmp_path: Path) -> None:
    """XDEL takes the node of an entry out of its segment; what few nodes remain must not keep the whole file."""
    count = 60_000
    with rillet.open(tmp_path / "s", stream_memory="1mb", appendfsync="no") as store:
        fill(store, count)
        until(lambda: int(store.info()["stream_memory_used"]) < 900_000)
        before = living(store)
        gone = {n for n in range(2, count - 20_000, 25) if n // 1000 % 8}  # an entry of each node, but of every eighth
        store.execute("XDEL", "s", *[f"{n}-0" for n in gone])
        until(lambda: int(store.info()["stream_memory_used"]) < 900_000)

        def mostly_empty() -> bool:
            return any(2 * nodes <= segment.sealed.nodes for segment, nodes in living(store).items())

        until(lambda: not mostly_empty(), seconds=60)
        assert len(before.keys() - living(store).keys()) > 2, "XDEL left nodes in each of them"
        assert numbers(store) == [n for n in range(1, count + 1) if n not in gone]
        with store.transport.lock:  # type: ignore[attr-defined]
            store.transport.engine.check()  # type: ignore[attr-defined]
    with rillet.open(tmp_path / "s") as store:
        assert numbers(store) == [n for n in range(1, count + 1) if n not in gone]


def test_large_segments_without_a_stream_start_a_rewrite_and_are_removed(tmp_path: Path) -> None:
    with rillet.open(tmp_path / "s", stream_memory="64kb", appendfsync="no") as store:
        fill(store, 5000)
        settled(store)
        assert files(tmp_path / "s")
        store.stream("s").trim(maxlen=10, approximate=False)
        until(lambda: not files(tmp_path / "s"))
        assert numbers(store) == list(range(4991, 5001))


def test_segments_without_a_stream_are_removed_after_a_rewrite(tmp_path: Path) -> None:
    with rillet.open(tmp_path / "s", stream_memory="64kb", appendfsync="no") as store:
        fill(store, 5000)
        settled(store)
        before = files(tmp_path / "s")
        store.stream("s").trim(maxlen=10, approximate=False)
        for _ in range(20):
            rewritten(store)
            if not files(tmp_path / "s"):
                break
            time.sleep(0.2)
        assert before
        assert files(tmp_path / "s") == []
        assert numbers(store) == list(range(4991, 5001))


def test_what_lies_in_segments_can_be_listed_and_held(tmp_path: Path) -> None:
    with rillet.open(tmp_path / "s", stream_memory="64kb", appendfsync="no") as store:
        assert store.execute("RILLET.XSEGMENTS", "s", "0-0", "9-0") is None
        fill(store, 5000)
        settled(store)
        store.execute("XDEL", "s", "1000-0")
        folder, *ranges = store.execute("RILLET.XSEGMENTS", "s", "0-0", "9999-0", "HOLD", 100_000)
        assert Path(folder.decode()) == tmp_path / "s" / "appendonlydir" / "segments"
        entries = [n for first, _, _, _, following in ranges
                   for n in range(int(first.partition(b"-")[0]), int(following.partition(b"-")[0]))]  # fmt: skip
        assert len(entries) == len(set(entries))
        assert 1000 not in entries  # its node is in memory, to be changed
        assert 1 in entries
        assert sum(nodes for *_, nodes, _ in ranges) > 50
        at = entries[len(entries) // 2]
        _, *some = store.execute("RILLET.XSEGMENTS", "s", f"{at}-0", f"{at + 1}-0")
        assert some
        assert all(one in ranges for one in some)
        assert store.execute("RILLET.XSEGMENTS", "s", "4999-0", "9999-0") is None
        held = set(files(tmp_path / "s"))
        store.execute("DEL", "s")
        for _ in range(3):
            rewritten(store)
        assert held <= set(files(tmp_path / "s"))
        for wrong in (["x", "1-0"], ["0-0", "1-0", "HOLD"], ["0-0", "1-0", "KEEP", "1"], ["0-0", "1-0", "HOLD", "-1"],
                      ["0-0", "1-0", "HOLD", str(25 * 3600 * 1000)]):  # fmt: skip
            with pytest.raises(CommandError):
                store.execute("RILLET.XSEGMENTS", "s", *wrong)
        store.execute("SET", "text", "x")
        with pytest.raises(CommandError, match="WRONGTYPE"):
            store.execute("RILLET.XSEGMENTS", "text", "0-0", "1-0")


@pytest.mark.parametrize("damage", ["missing", "changed"])
def test_a_damaged_segment_hides_only_its_entries(damage: str, tmp_path: Path) -> None:
    with rillet.open(tmp_path / "s", stream_memory="64kb", appendfsync="no") as store:
        fill(store, 5000)
        settled(store)
        rewritten(store)
    first = tmp_path / "s" / "appendonlydir" / "segments" / files(tmp_path / "s")[0]
    if damage == "missing":
        first.unlink()
    else:
        data = bytearray(first.read_bytes())
        data[1000] ^= 1
        first.write_bytes(data)
    with rillet.open(tmp_path / "s") as store:
        with pytest.raises(CommandError, match=f"{first.name}: .*({damage}|damaged)"):
            store.execute("XRANGE", "s", "-", "+")
        assert [int(entry["n"]) for entry in store.stream("s").range("4990")] == list(range(4990, 5001))
        fill(store, 10, 5001)
        assert len(store.stream("s")) == 5010


def test_retention_removes_damaged_segments_too(tmp_path: Path) -> None:
    """Whole ranges go without a read, also those of a file that is missing."""
    with rillet.open(tmp_path / "s", stream_memory="64kb", appendfsync="no") as store:
        for first in range(1, 5001, 1000):  # so that several segments have them
            fill(store, 1000, first)
            settled(store)
        rewritten(store)
    damaged = files(tmp_path / "s")[:2]
    for name in damaged:
        (tmp_path / "s" / "appendonlydir" / "segments" / name).unlink()
    with rillet.open(tmp_path / "s") as store:
        stream = store.stream("s")
        stream.retain(entries=500, groups="ignore")
        until(lambda: len(stream) < 600)
        assert int(next(iter(stream))["n"]) == 5001 - len(stream)
        stream.retain()
        fill(store, 5000, 5001)
        settled(store)
        for name in files(tmp_path / "s"):
            (tmp_path / "s" / "appendonlydir" / "segments" / name).unlink()
        stream.retain(age=1, groups="ignore")
        until(lambda: len(stream) == 0)


def test_limits_that_cannot_be_are_refused(tmp_path: Path) -> None:
    for wrong in ("1kb", "256 apples", -1):
        with pytest.raises(ValueError, match="argument must be"):
            rillet.open(tmp_path / "s", stream_memory=wrong)
    with pytest.raises(ValueError, match="no effect on a store in memory"):
        rillet.open(stream_memory="64kb")
    assert not (tmp_path / "s").exists() or not os.listdir(tmp_path / "s" / "appendonlydir")


def test_a_redis_server_refuses_the_directory(tmp_path: Path) -> None:
    with rillet.open(tmp_path / "s", stream_memory="64kb", appendfsync="no", aof_checksums=False) as store:
        fill(store, 5000)
        settled(store)
        for rewrites in (False, True):  # the log has RILLET.SEAL; then its base refers to the segments
            if rewrites:
                rewritten(store)
            copy = tmp_path / f"copy{rewrites}"
            shutil.copytree(tmp_path / "s" / "appendonlydir", copy / "appendonlydir")
            command = [str(redis_binary()), "--port", str(free_port()), "--dir", str(copy), "--appendonly", "yes"]
            done = subprocess.run(command, capture_output=True, text=True, timeout=60)
            assert done.returncode != 0
            assert "Unknown command" in done.stdout or "RDB" in done.stdout


def test_a_backup_has_the_segments(tmp_path: Path) -> None:
    with rillet.open(tmp_path / "s", stream_memory="64kb", appendfsync="no") as store:
        fill(store, 3000)
        found = settled(store)
        rewritten(store)
        made = back_up(tmp_path / "s", tmp_path / "t")
        assert made.bytes > found["stream_segment_bytes"]
        fill(store, 10, 3001)
    with rillet.open(tmp_path / "t") as store:
        assert numbers(store) == list(range(1, 3001))


def test_a_snapshot_has_everything(tmp_path: Path) -> None:
    with rillet.open(tmp_path / "s", stream_memory="64kb", appendfsync="no") as store:
        fill(store, 3000)
        settled(store)
        rewritten(store)
        store.save()
    os.mkdir(tmp_path / "t")
    shutil.copy(tmp_path / "s" / "dump.rdb", tmp_path / "t" / "dump.rdb")
    with rillet.open(tmp_path / "t") as store:
        assert numbers(store) == list(range(1, 3001))


@pytest.mark.slow
@pytest.mark.parametrize("rounds", [6, *long(1000)])
def test_a_killed_process_loses_nothing_and_doubles_nothing(rounds: int, tmp_path: Path) -> None:
    """It is killed while it adds, trims, deletes, seals and rewrites; a ledger says what must be there."""
    chance = random.Random(rounds)
    first = done = 0
    gone: set[int] = set()
    add = "[store.stream('s').add({{'n': n, 'text': 'x' * 60}}, id=f'{{n + 1}}-0') and n for n in range({}, {})][-1]"
    for _ in range(rounds):
        other = Other(tmp_path / "s", stream_memory="64kb", stream_compression=chance.choice(["none", "zstd"]))
        for _ in range(chance.randint(1, 3)):
            more = chance.randint(200, 1500)
            assert other.ask(add.format(done, done + more)) == done + more - 1
            done += more
            if chance.random() < 0.3 and done - first > 4000:
                first = max(first, done - chance.randint(1000, 4000))
                other.ask(f"store.execute('XTRIM', 's', 'MINID', '{first + 1}')")
            if chance.random() < 0.3:
                gone |= (some := {chance.randint(first, done - 1) for _ in range(5)})
                other.ask(f"store.execute('XDEL', 's', *[f'{{n + 1}}-0' for n in {some}])")
        if chance.random() < 0.3:
            other.tell("str(store.execute('BGREWRITEAOF'))")
        time.sleep(chance.choice([0, 0, 0.05, 0.2]))
        other.kill()
    with rillet.open(tmp_path / "s") as store:
        assert numbers(store) == [n for n in range(first, done) if n not in gone]
        assert memory(store)["stream_segments"] > 0
        with store.transport.lock:  # type: ignore[attr-defined]
            store.transport.engine.check()  # type: ignore[attr-defined]


def test_an_opening_shortens_a_log_that_earlier_lives_left_behind(tmp_path: Path) -> None:
    """Their lives were too short for a rewrite, so only the opening can do it: what replayed must not replay again."""
    with rillet.open(tmp_path / "s", appendfsync="no") as store:
        fill(store, 30_000)
        store.stream("s").trim(minid="29991-0")
    for _ in range(2):
        with rillet.open(tmp_path / "s", stream_memory="64kb") as store:
            info = store.info()
            assert int(info["aof_current_size"]) - int(info["aof_base_size"]) < 1000
            assert not int(info["aof_rewrite_in_progress"])
            assert numbers(store) == list(range(29_991, 30_001))


@pytest.mark.slow
@pytest.mark.parametrize(("damage", "out"), covering(["missing", "node", "index", "base"], ["t", "t.rdb"]))
def test_salvage_keeps_what_can_be_read(damage: str, out: str, tmp_path: Path, capsys: Any) -> None:
    with rillet.open(tmp_path / "s", stream_memory="64kb", appendfsync="no") as store:
        store.execute("CONFIG", "SET", "rdbcompression", "no")
        fill(store, 5000)
        store.execute("XGROUP", "CREATE", "s", "g", "0")
        store.execute("XREADGROUP", "GROUP", "g", "c", "COUNT", 2000, "STREAMS", "s", ">")
        settled(store)
        rewritten(store)
        fill(store, 1000, 5001)  # some of them go into a segment that only the log names
        settled(store)
        store.stream("other").add({"n": 1})
    log = tmp_path / "s" / "appendonlydir"
    names = files(tmp_path / "s")
    first = log / "segments" / names[0]
    data = bytearray(first.read_bytes())
    sealed = read_segment(REAL, first)
    segment = Segment(REAL, first, sealed, IndexCache(1 << 20))
    nodes = [segment.living(number) for number in range(sealed.nodes)]
    segment.close()
    if damage == "missing":
        first.unlink()
        lost = set(range(1, sum(nodes) + 1))
    elif damage == "node":
        data[1000] ^= 1
        lost = set(range(1, nodes[0] + 1))
    elif damage == "index":
        data[-64 - 30] ^= 1
        lost = set(range(1, sum(nodes) + 1))
    else:
        lost = set()
        base = next(log.glob("*.base.rdb"))
        content = bytearray(base.read_bytes())
        at = content.rindex(b"x" * 60)  # in a node that was in memory
        content[at - 30] ^= 0xFF
        base.write_bytes(content)
    if damage in ("node", "index"):
        first.write_bytes(data)
    assert main(["check", str(tmp_path / "s")]) == 1
    assert main(["check", str(tmp_path / "s"), "--salvage", str(tmp_path / out)]) == 1
    shown = capsys.readouterr().out
    if damage != "base":
        assert f"LOST {first}: bytes " in shown
        bounds = f"1-0 to {max(lost)}-0" if damage == "node" else f"from 1-0 to before {max(lost) + 1}-0"
        assert f"the entries {bounds} of a stream: 's' (database 0)" in shown
    if out.endswith(".rdb"):
        os.mkdir(tmp_path / "t")
        shutil.move(tmp_path / "t.rdb", tmp_path / "t" / "dump.rdb")
    with rillet.open(tmp_path / "t") as store:
        kept = numbers(store)
        if damage == "base":
            assert set(range(1, 6001)) - set(kept) <= set(range(4000, 5001))
            assert len(kept) > 5900
        else:
            assert kept == [n for n in range(1, 6001) if n not in lost]
            assert store.stream("s").group("g").pending_summary().total == 2000
        assert len(store.stream("other")) == 1
        with store.transport.lock:  # type: ignore[attr-defined]
            store.transport.engine.check()  # type: ignore[attr-defined]


def test_salvage_of_a_sound_store_loses_nothing(tmp_path: Path, capsys: Any) -> None:
    with rillet.open(tmp_path / "s", stream_memory="64kb", appendfsync="no") as store:
        fill(store, 5000)
        settled(store)
        rewritten(store)
        store.execute("XDEL", "s", "17-0", "4000-0")
        store.execute("XTRIM", "s", "MINID", "5")
    assert main(["check", str(tmp_path / "s")]) == 0
    assert main(["check", str(tmp_path / "s"), "--salvage", str(tmp_path / "t")]) == 0
    assert "nothing was lost" in capsys.readouterr().out
    assert not (tmp_path / "t" / "appendonlydir" / "segments").exists()
    with rillet.open(tmp_path / "t") as store:
        assert numbers(store) == [n for n in range(5, 5001) if n not in (17, 4000)]

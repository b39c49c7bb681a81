"""Cost of durability against redis-server: logged writes, loading, snapshots and rewrites.

Both servers load the same files. The time of a load is the time from a server's start until it answers, less the time
that the same server needs without data, so the import of Python modules does not count. The CPU time of a load is shown
beside it, because disks and other processes vary.

The folders are in Python's temporary directory (TMPDIR). In a file system in memory, syncing would cost nothing. About
two gigabytes of disk and of memory are needed.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import redis

from benchmarks.harness import BUILDS, ROOT, Figure, cpu_us, redis_benchmark, redis_server, rillet_server
from benchmarks.pinging import Pinging
from benchmarks.server import FIVE_FIELDS
from benchmarks.streams import Case, compare
from rillet.protocol.command_parser import pack_command

ADDS = 2_000_000
ENTRIES = 5_000_000
BASE = 100_000_000
KEEP = ("--auto-aof-rewrite-percentage", "0")
MANIFEST = "appendonlydir/appendonly.aof.manifest"
# Five fields, two of which differ each time.
ENTRY = ["device", "sensor-__rand_int__", "temperature", "21.53", "humidity", "45", "status", "ok", "session",
         "__rand_int__"]  # fmt: skip

Servers = tuple[Callable[..., AbstractContextManager[tuple[int, int]]], ...]


def _sides(mode: str) -> Servers:
    """Return the functions that start each server: redis-server, and rillet of that build."""

    def ours(*arguments: str, folder: Path | None = None) -> AbstractContextManager[tuple[int, int]]:
        return rillet_server(mode, *arguments, folder=folder)

    return redis_server, ours


def _figures(
    what: str, unit: str, sides: tuple[list[float], list[float]], goal: float | None, mode: str
) -> list[Figure]:
    """Return the row of two measured times; less is better."""
    peer, own = (statistics.median(side) for side in sides)
    return [Figure(what, "redis-server", peer, own, unit, goal if mode == "compiled" else None, mode, True)]


# -- logged writes ---------------------------------------------------------------------------------------


def logged(rounds: int, mode: str, scale: float) -> list[Figure]:
    """Measure XADD with a log: pipelined with everysec, and from many clients one by one with always."""
    figures = []
    words = ["XADD", "bench", "*", *FIVE_FIELDS]
    for policy, pipeline, requests in (("everysec", 64, 600_000), ("always", 1, 50_000)):
        settings = ("--appendonly", "yes", "--appendfsync", policy, *KEEP)
        case = Case(f"XADD 5 fields, appendfsync {policy}, -c 50 -P {pipeline}", words, requests, pipeline, 1.0)
        with redis_server(*settings) as peer, rillet_server(mode, *settings) as own:
            figures += compare(case, peer, own, rounds, mode, scale)
    return figures


# -- loading ---------------------------------------------------------------------------------------------


def write_log(folder: Path, count: int) -> None:
    """Write a log of XADDs without a base, which both servers can read."""
    (folder / "appendonlydir").mkdir(parents=True)
    (folder / MANIFEST).write_text("file appendonly.aof.1.incr.aof seq 1 type i\n")
    with open(folder / "appendonlydir" / "appendonly.aof.1.incr.aof", "wb") as out:
        out.write(pack_command([b"SELECT", b"0"]))
        for start in range(0, count, 10_000):
            numbers = range(start, min(start + 10_000, count))
            out.write(b"".join(pack_command(add(number)) for number in numbers))


def add(number: int) -> list[bytes]:
    """Return an XADD of five fields with varying values, as a log stores it."""
    mixed = number * 0x9E3779B97F4A7C15 % 2**64
    return [b"XADD", b"stream", b"%d-0" % (1_700_000_000_000 + number), b"device", b"sensor-%05d" % (mixed % 50_000),
            b"temperature", b"%d.%03d" % (mixed % 65 - 20, mixed % 997), b"humidity", b"%d" % (mixed % 101),
            b"status", (b"ok", b"degraded", b"offline")[mixed % 3], b"session", b"%016x" % mixed]  # fmt: skip


def write_snapshot(folder: Path, count: int) -> Path:
    """Write an RDB file with a stream of so many entries, using redis-server."""
    folder.mkdir(parents=True)
    with redis_server(folder=folder) as (port, _):
        redis_benchmark(port, count, 50, 64, ["-r", "100000000", "XADD", "stream", "*", *ENTRY])
        with redis.Redis(port=port, socket_timeout=600) as client:
            client.save()
    return folder / "dump.rdb"


def _started(start: Callable[..., AbstractContextManager[tuple[int, int]]], *arguments: str,
             folder: Path | None = None) -> tuple[float, float]:  # fmt: skip
    """Return the seconds until a server answers, and its CPU seconds."""
    begin = time.perf_counter()
    with start(*arguments, folder=folder) as (_, pid):
        return time.perf_counter() - begin, cpu_us(pid) / 1e6


def loading(what: str, folder: Path, arguments: tuple[str, ...], rounds: int, mode: str) -> list[Figure]:
    """Start each server on the same folder, and on an empty one."""
    spent: tuple[list[float], list[float]] = ([], [])
    cpu: tuple[list[float], list[float]] = ([], [])
    for _ in range(rounds):
        for side, start in enumerate(_sides(mode)):
            without = _started(start, *arguments)
            there = _started(start, *arguments, folder=folder)
            spent[side].append(there[0] - without[0])
            cpu[side].append(there[1] - without[1])
    return [
        *_figures(what, "s", spent, 1.0, mode),
        *_figures(f"{what}: server's CPU", "s", cpu, None, mode),
    ]


# -- snapshots and rewrites --------------------------------------------------------------------------------


def _busy(client: redis.Redis) -> bool:
    facts = client.info("persistence")
    return bool(facts["rdb_bgsave_in_progress"] or facts["aof_rewrite_in_progress"] or facts["aof_rewrite_scheduled"])


def _until_idle(client: redis.Redis) -> None:
    while _busy(client):
        time.sleep(0.01)
    facts = client.info("persistence")
    assert facts["rdb_last_bgsave_status"] == facts["aof_last_bgrewrite_status"] == "ok", facts


def _in_background(port: int, command: str) -> tuple[float, float]:
    """Return the seconds until the command's work is done, and the longest PING meanwhile in milliseconds."""
    with redis.Redis(port=port, socket_timeout=600) as client:
        with Pinging(port) as pinging:
            begin = time.perf_counter()
            client.execute_command(command)
            _until_idle(client)
            spent = time.perf_counter() - begin
        return spent, pinging.longest


def background(snapshot: Path, entries: int, rounds: int, mode: str) -> list[Figure]:
    """Measure BGSAVE and BGREWRITEAOF of the entries, and the longest pause of a client meanwhile."""
    spent: dict[str, tuple[list[float], list[float]]] = {}
    pauses: dict[str, tuple[list[float], list[float]]] = {}
    commands = ("BGSAVE", "BGREWRITEAOF")
    with _loaded(snapshot, mode) as ports:
        for _ in range(rounds):
            for command in commands:
                for side, port in enumerate(ports):
                    seconds, pause = _in_background(port, command)
                    spent.setdefault(command, ([], []))[side].append(seconds)
                    pauses.setdefault(command, ([], []))[side].append(pause)
    figures = []
    for command in commands:
        figures += _figures(f"{command} of {entries:,} entries", "s", spent[command], 0.7, mode)
    for command in commands:
        what = f"longest pause of a client during {command} of {entries:,} entries"
        figures += _figures(what, "ms", pauses[command], 1.0, mode)
    return figures


@contextmanager
def _loaded(snapshot: Path, mode: str) -> Iterator[list[int]]:
    """Run both servers with the RDB file loaded and a log enabled; yield their ports."""
    peers, ours = _sides(mode)
    with tempfile.TemporaryDirectory(prefix="rillet-bench-") as folder:
        folders = [Path(folder) / side for side in ("peer", "ours")]
        for one in folders:
            one.mkdir()
            os.link(snapshot, one / "dump.rdb")
        with peers(*KEEP, folder=folders[0]) as peer, ours(*KEEP, folder=folders[1]) as own:
            ports = [peer[0], own[0]]
            for port in ports:
                with redis.Redis(port=port, socket_timeout=600) as client:
                    client.config_set("appendonly", "yes")
                    _until_idle(client)
            yield ports


# -- the library -------------------------------------------------------------------------------------------

# Fills a directory with entries and rewrites its log, so that the base holds the entries.
_FILLING = """
import sys, time
import rillet
from benchmarks.durability import add

folder, count = sys.argv[1], int(sys.argv[2])
with rillet.open(folder) as store:
    store.execute("CONFIG", "SET", "auto-aof-rewrite-percentage", "0")
    for start in range(0, count, 10_000):
        store.execute_many([add(number) for number in range(start, min(start + 10_000, count))])
    store.execute("BGREWRITEAOF")
    while store.info()["aof_rewrite_in_progress"] != "0":
        time.sleep(0.05)
    assert store.info()["aof_last_bgrewrite_status"] == "ok"
"""

# Times rillet.open of a directory and a plain read of its base, in turn; all imports happen before.
_OPENING = """
import os, sys, time
import rillet

folder, base, rounds, cold = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4] == "cold"
buffer = bytearray(1 << 20)

def prepare():
    with open(base, "rb", buffering=0) as file:
        if cold:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        else:
            while file.readinto(buffer):
                pass

def read():
    with open(base, "rb", buffering=0) as file:
        while file.readinto(buffer):
            pass

rillet.open().close()
for _ in range(rounds):
    prepare()
    begin = time.perf_counter()
    read()
    middle = time.perf_counter()
    prepare()
    start = time.perf_counter()
    store = rillet.open(folder)
    end = time.perf_counter()
    assert store.execute("XLEN", "stream") > 0
    store.close()
    print(middle - begin, end - start)
"""


def _run(script: str, mode: str, *arguments: str | int | Path) -> str:
    """Run a script in the build `mode` and return its output."""
    command = [sys.executable, "-c", script, *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": f"{BUILDS[mode]}{os.pathsep}{ROOT}"}
    return subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True, timeout=3000).stdout


def _base(folder: Path, entries: int, mode: str) -> Path:
    """Fill a store and rewrite its log; return the path of the base."""
    _run(_FILLING, mode, folder, entries)
    (base,) = (folder / "appendonlydir").glob("*.base.rdb")
    return base


def opening(size: int, rounds: int, mode: str) -> list[Figure]:
    """Measure rillet.open of a base against reading the file, from disk (page cache dropped) and from memory."""
    figures = []
    with tempfile.TemporaryDirectory(prefix="rillet-bench-") as found:
        sample = 50_000
        one = _base(Path(found) / "sample", sample, mode).stat().st_size / sample
        folder = Path(found) / "store"
        base = _base(folder, int(size / one), mode)
        for state, target in (("cold", 0.5), ("warm", None)):
            lines = _run(_OPENING, mode, folder, base, rounds, state).splitlines()
            pairs = [[float(word) for word in line.split()] for line in lines]
            peer, own = (statistics.median(column) for column in zip(*pairs, strict=True))
            what = f"rillet.open, base of {base.stat().st_size / 1e6:,.0f} MB, {state}"
            goal = target if mode == "compiled" else None
            figures.append(Figure(what, "reading the file", peer, own, "s", goal, mode, True))
    return figures


def run(rounds: int, mode: str, scale: float) -> list[Figure]:
    """Measure every row, on files that are written first."""
    figures = logged(rounds, mode, scale)
    with tempfile.TemporaryDirectory(prefix="rillet-bench-") as found:
        folder = Path(found)
        adds, entries = max(10_000, int(ADDS * scale)), max(20_000, int(ENTRIES * scale))
        write_log(folder / "log", adds)
        what = f"loading a log of {adds:,} XADDs"
        figures += loading(what, folder / "log", ("--appendonly", "yes", *KEEP), rounds, mode)
        shutil.rmtree(folder / "log")
        snapshot = write_snapshot(folder / "snapshot", entries)
        what = f"loading an RDB file with a stream of {entries:,} entries"
        figures += loading(what, folder / "snapshot", (), rounds, mode)
        figures += background(snapshot, entries, rounds, mode)
    return figures + opening(max(1_000_000, int(BASE * scale)), rounds, mode)

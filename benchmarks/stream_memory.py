"""A stream that is larger than its memory, beside the same stream in memory, and beside SQLite.

    python -m benchmarks.stream_memory                  a million entries of five fields, a limit of 32 MB
    python -m benchmarks.stream_memory --entries 20000000 --limit 256mb --rounds 1
    python -m benchmarks.stream_memory --pauses         how long other clients of a server wait meanwhile

Each round opens new stores in a temporary folder, one after the other in processes of their own: with a limit, without,
and a table of SQLite (WAL, the same batches in transactions, synchronous=NORMAL). A row is the median of the rounds and
its ratio to the store without a limit; above 1 is better, except for the memory. The page cache is warm.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import select
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import rillet
from benchmarks.groups import Wire, pack
from benchmarks.harness import rillet_server
from rillet import Store

SECONDS = 5.0  # that each kind of work is measured
BATCH = 1000
LOOKUPS = 2000
FIELDS = ("n", "carrier", "delay", "origin", "text")


def rows(first: int) -> list[dict[str, Any]]:
    """Return a batch of entries."""
    return [dict(zip(FIELDS, (first + at, "UA", at % 100, "SFO", "x" * 30), strict=True)) for at in range(BATCH)]


def resident() -> int:
    """Return the memory of this process in bytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


def rillet_round(entries: int, limit: str, folder: str) -> dict[str, float]:
    """Fill and read a store; limit "0": everything stays in memory."""
    found: dict[str, float] = {}
    with rillet.open(folder, stream_memory=limit) as store:
        stream = store.stream("s")
        before = resident()
        began = time.perf_counter()
        for first in range(0, entries, BATCH):
            stream.add_many(rows(first))
        found["appended, entries/s"] = entries / (time.perf_counter() - began)
        while limit != "0" and int((info := store.info())["stream_memory_used"]) > int(info["stream_memory_limit"]):
            time.sleep(0.05)
        began = time.perf_counter()
        assert sum(1 for _ in stream.scan()) == entries
        found["read as dicts, entries/s"] = entries / (time.perf_counter() - began)
        found["random 10, p99, us"] = lookups(store)
        found["growth, MB"] = (resident() - before) / 1e6
    began = time.perf_counter()
    with rillet.open(folder) as store:
        found["opening, s"] = time.perf_counter() - began
    return found


def lookups(store: Store) -> float:
    """Return the 99th percentile of reading ten entries at a random ID, in microseconds."""
    info = store.stream("s").info()
    first, last = (int(str(info[name]).partition("-")[0])
                   for name in ("recorded-first-entry-id", "last-generated-id"))  # fmt: skip
    chance, spent = random.Random(1), []
    for _ in range(LOOKUPS):
        at = chance.randint(first, last)
        began = time.perf_counter()
        store.execute("XRANGE", "s", f"{at}-0", "+", "COUNT", 10)
        spent.append(time.perf_counter() - began)
    return sorted(spent)[LOOKUPS * 99 // 100] * 1e6


def sqlite_round(entries: int, folder: str) -> dict[str, float]:
    """The same with a table of SQLite."""
    database = sqlite3.connect(f"{folder}/events.db", isolation_level=None)
    database.execute("PRAGMA journal_mode=WAL")
    database.execute("PRAGMA synchronous=NORMAL")
    database.execute("CREATE TABLE s (id INTEGER PRIMARY KEY, n, carrier, delay, origin, text)")
    began = time.perf_counter()
    for first in range(0, entries, BATCH):
        database.execute("BEGIN")
        database.executemany("INSERT INTO s (n, carrier, delay, origin, text) VALUES (?,?,?,?,?)",
                             [tuple(row.values()) for row in rows(first)])  # fmt: skip
        database.execute("COMMIT")
    found = {"appended, entries/s": entries / (time.perf_counter() - began)}
    began = time.perf_counter()
    read = database.execute("SELECT n, carrier, delay, origin, text FROM s ORDER BY id")
    assert sum(1 for row in read if dict(zip(FIELDS, row, strict=True))) == entries
    found["read as dicts, entries/s"] = entries / (time.perf_counter() - began)
    chance, spent = random.Random(1), []
    for _ in range(LOOKUPS):
        at = chance.randint(1, entries)
        began = time.perf_counter()
        database.execute("SELECT * FROM s WHERE id >= ? ORDER BY id LIMIT 10", (at,)).fetchall()
        spent.append(time.perf_counter() - began)
    found["random 10, p99, us"] = sorted(spent)[LOOKUPS * 99 // 100] * 1e6
    database.close()
    return found


def pings(port: int) -> dict[str, float]:
    """Return how long a client's PINGs took until the standard input ends, one each millisecond, in milliseconds."""
    spent = []
    with Wire(port) as wire:
        packed = pack("PING")
        while not select.select([sys.stdin], [], [], 0.001)[0]:
            began = time.perf_counter()
            wire.socket.sendall(packed)
            wire.socket.recv(64)
            spent.append((time.perf_counter() - began) * 1e3)
    spent.sort()
    return {"p50": spent[len(spent) // 2], "p99": spent[len(spent) * 99 // 100], "longest": spent[-1]}


def pauses(entries: int, limit: str, folder: Path) -> None:
    """Print how long the PINGs of a client take while another one does nothing, adds, reads."""
    settings = ("--appendonly", "yes", "--stream-memory", limit)
    with (
        rillet_server("compiled", *settings, folder=folder) as (port, _),
        rillet.connect(f"redis://127.0.0.1:{port}") as store,
    ):
        stream = store.stream("s")

        def add() -> None:
            for first in range(0, entries, BATCH):
                stream.add_many(rows(first))

        def read(is_cold: bool) -> None:
            info = stream.info()
            first, last = (int(str(info[name]).partition("-")[0])
                           for name in ("recorded-first-entry-id", "last-generated-id"))  # fmt: skip
            chance, end = random.Random(1), time.monotonic() + SECONDS
            while time.monotonic() < end:
                if is_cold:
                    forget(folder)
                store.execute("XRANGE", "s", f"{chance.randint(first, last)}-0", "+", "COUNT", 100)

        print("| another client | p50, ms | p99 | longest |\n|---|---|---|---|")
        for name, work in {
            "does nothing": lambda: time.sleep(SECONDS),
            "adds, and nodes are sealed": add,
            "reads 100 entries, which the system has in its memory": lambda: read(False),
            "reads 100 entries, which only the disk has": lambda: read(True),
        }.items():
            command = [sys.executable, "-m", "benchmarks.stream_memory", "--one", f"pings {port}"]
            with subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True) as other:
                work()
                output, _ = other.communicate()
            found = json.loads(output)
            print(f"| {name} | {found['p50']:.2f} | {found['p99']:.2f} | {found['longest']:.2f} |")
        print(f"\ncommands that waited for the disk: {store.info()['stream_cold_reads']}")


def forget(folder: Path) -> None:
    """Let the system forget the segments, so that only the disk has them."""
    for path in folder.rglob("*.segment"):
        descriptor = os.open(path, os.O_RDONLY)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def main() -> None:
    """Run the rounds and print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.stream_memory", description=__doc__.split("\n")[0])
    parser.add_argument("--entries", type=int, default=1_000_000)
    parser.add_argument("--limit", default="32mb")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--pauses", action="store_true")
    given = parser.parse_args()
    if given.pauses:
        with tempfile.TemporaryDirectory() as folder:
            pauses(given.entries, given.limit, Path(folder))
        return
    if given.one and given.one.startswith("pings"):
        print(json.dumps(pings(int(given.one.split()[1]))))
        return
    if given.one:
        with tempfile.TemporaryDirectory() as folder:
            one = sqlite_round(given.entries, folder) if given.one == "sqlite" else rillet_round(
                given.entries, given.limit if given.one == "limit" else "0", folder)  # fmt: skip
        print(json.dumps(one))
        return
    found: dict[str, list[dict[str, float]]] = {"limit": [], "memory": [], "sqlite": []}
    for number in range(given.rounds):
        for kind, figures in found.items():
            print(f"round {number + 1} of {given.rounds}: {kind}", file=sys.stderr)
            command = [sys.executable, "-m", "benchmarks.stream_memory", "--entries", str(given.entries), "--limit",
                       given.limit, "--one", kind]  # fmt: skip
            figures.append(json.loads(subprocess.check_output(command)))
    print(f"{given.entries:,} entries, stream_memory={given.limit}, {'' if rillet.compiled() else 'not '}compiled\n")
    print("| | with the limit | in memory | ratio | SQLite | ratio |\n|---|---|---|---|---|---|")
    for name in found["memory"][0]:
        cells = [statistics.median(one[name] for one in found[kind]) if name in found[kind][0] else None
                 for kind in ("limit", "memory", "sqlite")]  # fmt: skip
        ours, plain, other = cells
        assert ours is not None
        assert plain is not None
        row = [name, f"{ours:,.6g}", f"{plain:,.6g}", f"{ours / plain:.2f}"]
        row += ["", ""] if other is None else [f"{other:,.6g}", f"{ours / other:.2f}"]
        print("| " + " | ".join(row) + " |")


if __name__ == "__main__":
    main()

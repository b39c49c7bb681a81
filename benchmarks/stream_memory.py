"""A stream that is larger than its memory, beside the same stream in memory, and beside SQLite.

    python -m benchmarks.stream_memory                  a million entries of five fields, a limit of 32 MB
    python -m benchmarks.stream_memory --entries 20000000 --limit 256mb --rounds 1

Each round opens new stores in a temporary folder, one after the other in processes of their own: with a limit, without,
and a table of SQLite (WAL, the same batches in transactions, synchronous=NORMAL). A row is the median of the rounds and
its ratio to the store without a limit; above 1 is better, except for the memory. The page cache is warm.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import rillet
from rillet import Store

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


def main() -> None:
    """Run the rounds and print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.stream_memory", description=__doc__.split("\n")[0])
    parser.add_argument("--entries", type=int, default=1_000_000)
    parser.add_argument("--limit", default="32mb")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    given = parser.parse_args()
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

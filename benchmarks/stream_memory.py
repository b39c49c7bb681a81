"""A stream that is larger than its memory, beside the same stream in memory, and beside SQLite, LMDB and RocksDB.

    python -m benchmarks.stream_memory                  a million entries of five fields, a limit of 32 MB
    python -m benchmarks.stream_memory --entries 200000000 --text 72 --limit 256mb --rounds 1 --peers limit
    python -m benchmarks.stream_memory --pauses         how long other clients of a server wait meanwhile

Each round opens new stores in a temporary folder, one after the other in processes of their own: with a limit, without
one, and the others. Each adds the same batches of a thousand dicts, with the same durability: a batch survives the end
of the process when the call returns, and a power loss about a second later. So SQLite has WAL and synchronous=NORMAL,
which does not sync at a commit; LMDB and RocksDB are synced once a second. Their values are the five fields, encoded by
msgspec as MessagePack, and their keys numbers of eight bytes. The time of making the dicts is not counted; that of
reading includes a dict of the five fields for each entry.

A row is the median of the rounds; above 1 is better for the store with the limit, except for the memory. The page cache
is warm.
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
from collections.abc import Callable, Iterable
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec

import rillet
from benchmarks.groups import Wire, pack
from benchmarks.harness import rillet_server

SECONDS = 5.0  # that each kind of work is measured
BATCH = 1000
LOOKUPS = 2000
SAMPLE = 50_000  # entries after which the memory is measured
APPENDED, READ, RANDOM = "appended, entries/s", "read as dicts, entries/s", "random 10, p99, us"
KINDS = {"limit": "with the limit", "memory": "in memory", "sqlite": "SQLite", "lmdb": "LMDB", "rocksdb": "RocksDB"}
FIELDS = ("n", "carrier", "delay", "origin", "text")


def rows(first: int, text: int = 30) -> list[dict[str, Any]]:
    """Return a batch of entries, whose last field has `text` characters."""
    return [dict(zip(FIELDS, (first + at, "UA", at % 100, "SFO", "x" * text), strict=True)) for at in range(BATCH)]


def resident() -> int:
    """Return the memory of this process in bytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


def appended(entries: int, text: int, add: Callable[[list[dict[str, Any]]], object],
             watch: Callable[[int], object] = lambda done: None) -> float:  # fmt: skip
    """Add batches of entries; return how many a second, without the time that making them took."""
    spent = 0.0
    for first in range(0, entries, BATCH):
        made = rows(first, text)
        began = time.perf_counter()
        add(made)
        spent += time.perf_counter() - began
        watch(first + BATCH)
    return entries / spent


def read(entries: int, found: Iterable[dict[str, Any]], watch: Callable[[int], object] = lambda done: None) -> float:
    """Read all entries as dicts; return how many a second."""
    began = time.perf_counter()
    count = 0
    for one in found:
        assert len(one) == len(FIELDS)
        count += 1
        if count % SAMPLE == 0:
            watch(count)
    assert count == entries
    return entries / (time.perf_counter() - began)


def looked_up(find: Callable[[int], object], first: int, last: int) -> float:
    """Return the 99th percentile of reading ten entries at a random place, in microseconds."""
    chance, spent = random.Random(1), []
    for _ in range(LOOKUPS):
        at = chance.randint(first, last)
        began = time.perf_counter()
        find(at)
        spent.append(time.perf_counter() - began)
    return sorted(spent)[LOOKUPS * 99 // 100] * 1e6


class Seconds:
    """Calls a function when a second has passed since the last call."""

    def __init__(self, function: Callable[[], object]) -> None:
        self._function = function
        self._next = time.monotonic() + 1

    def __call__(self) -> None:
        """Call the function if it is due."""
        if time.monotonic() >= self._next:
            self._function()
            self._next = time.monotonic() + 1


def rillet_round(entries: int, limit: str, folder: str, text: int, every: int = 0) -> dict[str, float]:
    """Fill and read a store; limit "0": everything stays in memory. every: entries after which progress is printed."""
    most = 0
    with rillet.open(folder, stream_memory=limit) as store:
        stream = store.stream("s")
        before, began = resident(), time.perf_counter()

        def watch(what: str, done: int) -> None:
            nonlocal most
            most = max(most, resident() - before)
            if every and done % every == 0:
                spent = time.perf_counter() - began
                print(f"{what} {done:,}: {spent:.0f} s, grown by {most / 1e6:.0f} MB", file=sys.stderr, flush=True)

        found = {APPENDED: appended(entries, text, stream.add_many, partial(watch, "appended"))}
        while limit != "0" and int((info := store.info())["stream_memory_used"]) > int(info["stream_memory_limit"]):
            time.sleep(0.05)
        found[READ] = read(entries, (entry.fields for entry in stream.scan()), partial(watch, "read"))
        info = stream.info()
        first, last = (int(str(info[name]).partition("-")[0])
                       for name in ("recorded-first-entry-id", "last-generated-id"))  # fmt: skip
        found[RANDOM] = looked_up(lambda at: store.execute("XRANGE", "s", f"{at}-0", "+", "COUNT", 10), first, last)
        watch("looked up", 0)
        found["growth, MB"] = most / 1e6
    found["disk, bytes/entry"] = on_disk(folder) / entries
    # In a process of its own: one that has opened a store before has the modules in memory.
    command = [sys.executable, "-m", "benchmarks.stream_memory", "--one", f"opening {folder}"]
    found["opening, s"] = float(subprocess.check_output(command))
    return found


def opening(folder: str) -> float:
    """Return the seconds that opening a store takes."""
    began = time.perf_counter()
    with rillet.open(folder):
        return time.perf_counter() - began


def on_disk(folder: str) -> int:
    """Return the bytes of all files in a folder."""
    return sum(path.stat().st_size for path in Path(folder).rglob("*") if path.is_file())


def sqlite_round(entries: int, folder: str, text: int) -> dict[str, float]:
    """The same with a table of SQLite."""
    database = sqlite3.connect(f"{folder}/events.db", isolation_level=None)
    database.execute("PRAGMA journal_mode=WAL")
    database.execute("PRAGMA synchronous=NORMAL")
    database.execute("CREATE TABLE s (id INTEGER PRIMARY KEY, n, carrier, delay, origin, text)")

    def add(made: list[dict[str, Any]]) -> None:
        database.execute("BEGIN")
        database.executemany("INSERT INTO s (n, carrier, delay, origin, text) VALUES (?,?,?,?,?)",
                             [tuple(row.values()) for row in made])  # fmt: skip
        database.execute("COMMIT")

    found = {APPENDED: appended(entries, text, add)}
    cursor = database.execute("SELECT n, carrier, delay, origin, text FROM s ORDER BY id")
    found[READ] = read(entries, (dict(zip(FIELDS, row, strict=True)) for row in cursor))
    query = "SELECT * FROM s WHERE id >= ? ORDER BY id LIMIT 10"
    found[RANDOM] = looked_up(lambda at: database.execute(query, (at,)).fetchall(), 1, entries)
    database.close()
    found["disk, bytes/entry"] = on_disk(folder) / entries
    return found


def key_of(number: int) -> bytes:
    """Return the key of an entry in LMDB and RocksDB."""
    return number.to_bytes(8, "big")


def lmdb_round(entries: int, folder: str, text: int) -> dict[str, float]:
    """The same with LMDB."""
    import lmdb

    environment = lmdb.open(folder, map_size=1 << 40, sync=False)
    synced, last = Seconds(lambda: environment.sync(True)), 0
    encode, decode = msgspec.msgpack.Encoder().encode, msgspec.msgpack.Decoder().decode

    def add(made: list[dict[str, Any]]) -> None:
        nonlocal last
        with environment.begin(write=True) as transaction:
            pairs = [(key_of(last + at), encode(row)) for at, row in enumerate(made, 1)]
            transaction.cursor().putmulti(pairs, append=True)
        last += len(made)
        synced()

    def find(at: int) -> list[Any]:
        with environment.begin() as transaction:
            cursor = transaction.cursor()
            cursor.set_range(key_of(at))
            return [decode(value) for value in islice(cursor.iternext(keys=False), 10)]

    found = {APPENDED: appended(entries, text, add)}
    with environment.begin(buffers=True) as transaction:
        found[READ] = read(entries, map(decode, transaction.cursor().iternext(keys=False)))
    found[RANDOM] = looked_up(find, 1, entries)
    environment.close()
    found["disk, bytes/entry"] = on_disk(folder) / entries
    return found


def rocksdb_round(entries: int, folder: str, text: int) -> dict[str, float]:
    """The same with RocksDB."""
    import rocksdict

    database = rocksdict.Rdict(folder, rocksdict.Options(raw_mode=True))
    synced, last = Seconds(lambda: database.flush_wal(True)), 0
    encode, decode = msgspec.msgpack.Encoder().encode, msgspec.msgpack.Decoder().decode

    def add(made: list[dict[str, Any]]) -> None:
        nonlocal last
        batch = rocksdict.WriteBatch(raw_mode=True)
        for at, row in enumerate(made, 1):
            batch.put(key_of(last + at), encode(row))
        database.write(batch)
        last += len(made)
        synced()

    def find(at: int) -> list[Any]:
        return [decode(value) for _, value in islice(database.items(from_key=key_of(at)), 10)]

    found = {APPENDED: appended(entries, text, add)}
    found[READ] = read(entries, map(decode, database.values()))
    found[RANDOM] = looked_up(find, 1, entries)
    database.close()
    found["disk, bytes/entry"] = on_disk(folder) / entries
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


def one_round(kind: str, entries: int, limit: str, text: int, every: int) -> dict[str, float]:
    """Return the figures of one store."""
    others = {"sqlite": sqlite_round, "lmdb": lmdb_round, "rocksdb": rocksdb_round}
    with tempfile.TemporaryDirectory() as folder:
        if kind in others:
            return others[kind](entries, folder, text)
        return rillet_round(entries, limit if kind == "limit" else "0", folder, text, every)


def main() -> None:
    """Run the rounds and print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.stream_memory", description=__doc__.split("\n")[0])
    parser.add_argument("--entries", type=int, default=1_000_000)
    parser.add_argument("--text", type=int, default=30, help="characters of the longest field")
    parser.add_argument("--limit", default="32mb")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--peers", default=" ".join(KINDS), help="the stores to measure, by default all")
    parser.add_argument("--every", type=int, default=0, help="print the progress after so many entries")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--pauses", action="store_true")
    given = parser.parse_args()
    if given.pauses:
        with tempfile.TemporaryDirectory() as folder:
            pauses(given.entries, given.limit, Path(folder))
        return
    if given.one:
        what, _, argument = given.one.partition(" ")
        if what == "pings":
            print(json.dumps(pings(int(argument))))
        elif what == "opening":
            print(opening(argument))
        else:
            print(json.dumps(one_round(what, given.entries, given.limit, given.text, given.every)))
        return
    found: dict[str, list[dict[str, float]]] = {kind: [] for kind in KINDS if kind in given.peers.split()}
    for number in range(given.rounds):
        for kind, figures in found.items():
            print(f"round {number + 1} of {given.rounds}: {kind}", file=sys.stderr)
            command = [sys.executable, "-m", "benchmarks.stream_memory", "--entries", str(given.entries), "--limit",
                       given.limit, "--text", str(given.text), "--every", str(given.every), "--one", kind]  # fmt: skip
            figures.append(json.loads(subprocess.check_output(command)))
    print(f"{given.entries:,} entries, stream_memory={given.limit}, {'' if rillet.compiled() else 'not '}compiled\n")
    print("| | " + " | ".join(KINDS[kind] if kind == "limit" else f"{KINDS[kind]} | ratio" for kind in found) + " |")
    print("|---" * (2 * len(found)) + "|")
    medians = {kind: {name: statistics.median(one[name] for one in figures) for name in figures[0]}
               for kind, figures in found.items()}  # fmt: skip
    for name in next(iter(medians.values())):
        cells = [name]
        for kind, values in medians.items():
            cells.append(f"{values[name]:,.4g}" if name in values else "")
            if kind != "limit":
                ours = medians.get("limit", {}).get(name)
                cells.append(f"{ours / values[name]:.2f}" if ours and values.get(name) else "")
        print("| " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()

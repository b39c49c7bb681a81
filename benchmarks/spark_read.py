"""Reading a stream into Spark local[2], a count and one sum: from redis-server, rillet, and by redis-py.

    python -m benchmarks spark_read              the rows of the table
    python -m benchmarks.spark_read --growth     from 1 to 2 cores, from 1 to 10 million entries
    python -m benchmarks.spark_read --cpu        processor time for an entry, by process

Every reader reads the same five-field entries with the same number of tasks, and reads once to warm up. The readers
alternate, and the medians are compared. Two of them measure the upper limits:

    the server alone     two processes request the same pages and discard the bytes: the limit of the server
    Spark's own limit    prepared record batches (spark_limit.py): the limit of PySpark's Python sources
"""

from __future__ import annotations

import argparse
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.harness import BUILDS, ROOT, Figure, redis_server, rillet_server
from benchmarks.memory import entries
from benchmarks.processor_time import Meter
from benchmarks.spark_peers import COLUMNS, TASKS
from rillet.protocol.command_parser import pack_command

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MILLION = 1_000_000
KEY = "stream"
NARROW = "id string, temperature double"
THREE = "id string, device string, temperature double"
STEP_MS = 13


@dataclass(frozen=True)
class Reader:
    """A way to read the stream: format, options, columns (None: the default), and the column to sum."""

    format: str
    options: dict[str, str]
    columns: str | None = COLUMNS
    total: str = "sum(temperature)"


def fill_stream(port: int, count: int) -> None:
    """Append entries through one pipelined connection; after a million, the fields repeat."""
    step = 5_000
    rows = entries(min(count, MILLION))
    with socket.create_connection(("127.0.0.1", port)) as connection:
        for start in range(0, count, step):
            commands = [
                pack_command([b"XADD", KEY.encode(), b"%d-0" % (1_700_000_000_000 + number * STEP_MS),
                              *rows[number % MILLION][1:]])
                for number in range(start, min(start + step, count))
            ]  # fmt: skip
            connection.sendall(b"".join(commands))
            lines = 0
            while lines < 2 * len(commands):  # a bulk string is two lines
                received = connection.recv(1 << 20)
                assert received, "the server closed the connection"
                lines += received.count(b"\n")


@contextmanager
def spark_session(cores: int = 2) -> Iterator[SparkSession]:
    """Start Spark with the benchmarks on the workers' path."""
    before = os.environ.get("PYTHONPATH", "")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (before, str(ROOT))))
    from rillet.spark import session

    spark = session(f"local[{cores}]", "rillet benchmark", spark_driver_memory="2g")
    try:
        spark.sparkContext.setLogLevel("ERROR")
        from benchmarks.spark_limit import LimitSource
        from benchmarks.spark_peers import ArrowSource, RowSource

        for source in (RowSource, ArrowSource, LimitSource):
            spark.dataSource.register(source)
        yield spark
    finally:
        spark.stop()
        os.environ["PYTHONPATH"] = before


def rate(spark: SparkSession, reader: Reader, count: int) -> float:
    """Read all entries once; return the entries per second."""
    source = spark.read.format(reader.format).options(**reader.options)
    frame = (source.schema(reader.columns) if reader.columns and reader.format == "rillet" else source).load()
    began = time.perf_counter()
    found, _ = frame.selectExpr("count(*)", reader.total).collect()[0]
    took = time.perf_counter() - began
    assert found == count, f"{reader} read {found} of {count} entries"
    return count / took


_DRAIN = """
import socket, sys
port, first, last, page = map(int, sys.argv[1:])
connection = socket.create_connection(("127.0.0.1", port))
buffer = bytearray(1 << 20)
position = first
step = 13 * page
while position <= last:
    end = min(position + step - 1, last)
    words = [b"XRANGE", b"stream", b"%d" % position, b"%d" % end]
    connection.sendall(b"*4\\r\\n" + b"".join(b"$%d\\r\\n%s\\r\\n" % (len(word), word) for word in words))
    connection.sendall(b"*1\\r\\n$4\\r\\nPING\\r\\n")
    tail = b""
    while not tail.endswith(b"+PONG\\r\\n"):
        received = connection.recv_into(buffer)
        tail = (tail + bytes(buffer[max(0, received - 7):received]))[-7:]
    position = end + 1
"""


def drained(port: int, count: int, page: int = 2500) -> float:
    """Return the entries per second that a server sends to processes that discard the bytes."""
    cuts = [1_700_000_000_000 + STEP_MS * count * i // TASKS for i in range(TASKS + 1)]
    began = time.perf_counter()
    running = [
        subprocess.Popen([sys.executable, "-c", _DRAIN, str(port), str(cuts[i]), str(cuts[i + 1] - 1), str(page)])
        for i in range(TASKS)
    ]
    for process in running:
        assert process.wait() == 0
    return count / (time.perf_counter() - began)


_OWN = """
import sys, rillet
with rillet.open(sys.argv[1]):
    print("open", flush=True)
    sys.stdin.read()
"""


@contextmanager
def places(count: int) -> Iterator[tuple[int, int, Path]]:
    """Yield the ports of a redis-server and a rillet server and the folder of a store, each with the stream."""
    with ExitStack() as stack:
        theirs, _ = stack.enter_context(redis_server())
        fill_stream(theirs, count)
        ours, _ = stack.enter_context(rillet_server())
        fill_stream(ours, count)
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rillet-bench-")))
        # A server with its log in the folder fills the store, because both use the same files.
        with rillet_server("compiled", "--appendonly", "yes", "--aof-checksums", "yes", folder=folder) as (port, _):
            fill_stream(port, count)
        # A separate process keeps the store open, because Spark ends idle workers after a minute.
        command = [sys.executable, "-c", _OWN, str(folder)]
        owner = stack.enter_context(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE))
        assert owner.stdout is not None
        assert owner.stdout.readline() == b"open\n"
        yield theirs, ours, folder


def readers(theirs: int, ours: int, folder: Path, count: int) -> dict[str, Reader]:
    """Return the readers by name."""
    tasks = {"minPartitions": str(TASKS)}
    redis_url = {"url": f"redis://127.0.0.1:{theirs}", "stream": KEY, **tasks}
    rillet_url = {"url": f"redis://127.0.0.1:{ours}", "stream": KEY, **tasks}
    embedded = {"path": str(folder), "stream": KEY, **tasks}
    peer = {"port": str(theirs), "stream": KEY}
    nothing = {"entries": str(count), "tasks": str(TASKS)}
    mapped = "sum(cast(fields['temperature'] as double))"
    return {
        "rillet": Reader("rillet", redis_url),
        "three": Reader("rillet", redis_url, THREE),
        "narrow": Reader("rillet", redis_url, NARROW),
        "map": Reader("rillet", redis_url, None, mapped),
        "from rillet server": Reader("rillet", rillet_url),
        "from embedded": Reader("rillet", embedded),
        "from rillet server, narrow": Reader("rillet", rillet_url, NARROW),
        "from embedded, narrow": Reader("rillet", embedded, NARROW),
        "limit": Reader("rillet_limit", nothing),
        "limit, map": Reader("rillet_limit", {**nothing, "columns": "map"}, None, mapped),
        "redis_arrow": Reader("redis_arrow", {**peer, "hiredis": "yes"}),
        "redis_rows, hiredis": Reader("redis_rows", {**peer, "hiredis": "yes"}),
        "redis_rows": Reader("redis_rows", {**peer, "hiredis": "no"}),
    }


def measure(rounds: int = 3, count: int = 5 * MILLION) -> dict[str, float]:
    """Return the entries per second by reader, and those of the servers alone."""
    with places(count) as (theirs, ours, folder), spark_session() as spark:
        found: dict[str, list[float]] = {}
        for turn in range(rounds + 1):
            for name, reader in readers(theirs, ours, folder, count).items():
                speed = rate(spark, reader, count)
                if turn:  # the first turn is a warm-up
                    found.setdefault(name, []).append(speed)
            if turn:
                found.setdefault("redis-server alone", []).append(drained(theirs, count))
                found.setdefault("rillet server alone", []).append(drained(ours, count))
    return {name: statistics.median(speeds) for name, speeds in found.items()}


def figures(rounds: int = 3, scale: float = 1.0) -> list[Figure]:
    """Return the rows of the benchmark table."""
    count = max(int(5 * MILLION * scale), 20_000)
    found = measure(rounds, count)
    what = f"Spark batch read of {count:,}, typed, local[2]"
    own, limit, server = found["rillet"], "Arrow batches out of nothing", "redis-server alone, bytes thrown away"

    def row(what: str, peer_name: str, peer: str, ours: float, target: float | None) -> Figure:
        return Figure(what, peer_name, found[peer], ours, "entries/s", target)

    return [
        row(what, "redis-py rows", "redis_rows", own, 8.0),
        row(what, "redis-py + hiredis, rows", "redis_rows, hiredis", own, None),
        row(what, "redis-py + hiredis, Arrow", "redis_arrow", own, 2.0),
        row(what, server, "redis-server alone", own, None),
        row(what + ", from rillet's server", limit, "limit", found["from rillet server"], 0.6),
        row(what + ", from an embedded store", limit, "limit", found["from embedded"], 0.6),
        row(what + ", three columns", server, "redis-server alone", found["three"], None),
        row(what + ", ID and one field", "all five fields", "rillet", found["narrow"], 1.5),
        *(
            row(f"{what}, {title}, ID and one field", "all five fields", place, found[f"{place}, narrow"], 1.5)
            for place, title in (
                ("from rillet server", "from rillet's server"),
                ("from embedded", "from an embedded store"),
            )
        ),
        row(what + ", default schema (map)", limit + ", as a map", "limit, map", found["map"], None),
    ]


def growth(rounds: int) -> None:
    """Print the rate by the number of cores and of entries."""
    for count in (MILLION, 10 * MILLION):
        with places(count) as (theirs, ours, folder):
            for cores in (1, 2):
                with spark_session(cores) as spark:
                    chosen = readers(theirs, ours, folder, count)
                    for name in ("rillet", "from rillet server", "from embedded", "limit"):
                        speeds = [rate(spark, chosen[name], count) for _ in range(rounds + 1)]
                        speed = statistics.median(speeds[1:])
                        print(f"{name:20} {count:>12,} entries, {cores} cores: {speed:>12,.0f}/s", flush=True)


def processor_time(rounds: int, count: int) -> None:
    """Print the processor time for an entry by process, for each reader of redis-server."""
    with redis_server() as (port, server), spark_session() as spark:
        fill_stream(port, count)
        chosen = readers(port, port, Path(), count)
        for turn in range(rounds + 1):
            for name in ("rillet", "three", "narrow", "map", "limit"):
                with Meter(server=server) as meter:
                    rate(spark, chosen[name], count)
                if turn:  # the first turn is a warm-up
                    print(f"{name:10} {meter.per_row(count)}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--growth", action="store_true")
    parser.add_argument("--cpu", action="store_true")
    parser.add_argument("--entries", type=int, default=5 * MILLION)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    assert BUILDS["compiled"].exists(), "build the compiled modules first: make setup"
    if given.growth:
        growth(given.rounds)
    elif given.cpu:
        processor_time(given.rounds, given.entries)
    else:
        for title, speed in measure(given.rounds, given.entries).items():
            print(f"{title:24} {speed:>12,.0f}/s")

"""SET, GET, XADD and XREADGROUP against the servers that are named: Redis 8.6 (also with I/O threads), newest, Valkey.

RILLET_REDIS_8_6, RILLET_NEWER_REDIS and RILLET_VALKEY name the binaries, as for the differential tests. A server that
is not named is left out, with a line that says so.
"""

from __future__ import annotations

import statistics

from benchmarks.groups import read_and_acknowledge
from benchmarks.harness import Figure, named_server, redis_benchmark, rillet_server
from benchmarks.memory import fill
from benchmarks.server import FIVE_FIELDS
from tests.judge import PEERS, peer_binary

# Peer, value of `compat`, options. I/O threads share the two cores of a small machine with the benchmark itself.
SERVERS = (
    ("Redis 8.6", "8.6", ()),
    ("Redis 8.6, 2 I/O threads", "8.6", ("--io-threads", "2")),
    ("newest Redis", "newest", ()),
    ("Valkey", "valkey", ()),
    ("Valkey, 2 I/O threads", "valkey", ("--io-threads", "2")),
)
_READ = 200_000

# Name, command, requests, pipeline.
CASES = (
    ("SET, -c 50 -P 64", ["SET", "key:1", "value-of-16-byte"], 1_000_000, 64),
    ("GET, -c 50 -P 64", ["GET", "key:1"], 1_000_000, 64),
    ("XADD 5 fields, -c 50 -P 64", ["XADD", "bench", "*", *FIVE_FIELDS], 500_000, 64),
    ("SET, -c 50 -P 1", ["SET", "key:1", "value-of-16-byte"], 100_000, 1),
    ("GET, -c 50 -P 1", ["GET", "key:1"], 100_000, 1),
    ("XADD 5 fields, -c 50 -P 1", ["XADD", "bench", "*", *FIVE_FIELDS], 100_000, 1),
)


def run(rounds: int, mode: str, scale: float) -> list[Figure]:
    """Measure every named server beside rillet, in rounds that alternate."""
    figures = []
    for name, compat, options in SERVERS:
        binary = peer_binary(compat)
        if binary is None:
            print(f"# {name}: left out, because {PEERS[compat]} names no binary")
            continue
        with named_server(binary, *options) as (peer, _), rillet_server(mode) as (own, _):
            figures += _compare(name, (peer, own), rounds, mode, scale)
    return figures


def _compare(name: str, ports: tuple[int, int], rounds: int, mode: str, scale: float) -> list[Figure]:
    entries = max(2_000, int(_READ * scale))
    for port in ports:
        redis_benchmark(port, 10_000, 50, 16, CASES[0][1])
        fill(port, "stream", entries)
    figures = []
    for what, command, requests, pipeline in CASES:
        count = max(2_000, int(requests * scale))
        rates: tuple[list[float], list[float]] = ([], [])
        for _ in range(rounds):
            for port, into in zip(ports, rates, strict=True):
                into.append(redis_benchmark(port, count, 50, pipeline, command))
                redis_benchmark(port, 1, 1, 1, ["DEL", "bench"])
        theirs, ours = map(statistics.median, rates)
        figures.append(Figure(what, name, theirs, ours, "requests/s", None, mode))
    reads: tuple[list[float], list[float]] = ([], [])
    for _ in range(rounds):
        for port, into in zip(ports, reads, strict=True):
            into.append(read_and_acknowledge(port, entries))
    theirs, ours = map(statistics.median, reads)
    figures.append(Figure("XREADGROUP COUNT 100 and XACK, 8 consumers", name, theirs, ours, "entries/s", None, mode))
    return figures

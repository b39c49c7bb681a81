"""The data commands beside the servers that have them: bits, HyperLogLog, places, arrays and others; -c 50 -P 64.

A case names its family, the first server that has the command, what both servers run beforehand, the command, and the
number of requests. `__rand_int__` in a command is a random number below RANDOM, with leading zeros. Servers newer
than Debian's are named as for the differential tests (RILLET_NEWER_REDIS ...); a case whose server is not named is
left out, with a line that says so. The processor time of each server is measured beside its rate: redis-benchmark
shares the cores with them.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from contextlib import ExitStack
from typing import NamedTuple

from benchmarks.groups import Wire
from benchmarks.harness import Figure, cpu_us, named_server, redis_benchmark, redis_server, rillet_server
from tests.judge import PEERS, peer_binary

RANDOM = 100_000
_PIPELINE = 64
_GOAL = 0.8
_LONG = "x" * 12_500  # 100,000 bits

Words = tuple[str | int, ...]


class Case(NamedTuple):
    """A command to measure: `compat` is the first server that has it, `before` runs once on both servers."""

    name: str
    compat: str
    before: tuple[Words, ...]
    command: Words
    requests: int


_BITMAP = (("SET", "bits", _LONG), ("SET", "other", _LONG))
_CELLS: tuple[Words, ...] = tuple(("ARSET", "numbers", at, *range(at, at + 1000)) for at in range(0, RANDOM, 1000))
_LINES: tuple[Words, ...] = (("ARSET", "lines", 0, *(f"line {at} of the log" for at in range(1000))),)
_SPARSE: tuple[Words, ...] = (("PFADD", "sparse", *range(500)),)
_DENSE: tuple[Words, ...] = tuple(
    ("PFADD", f"dense{name}", *range(start, start + 500))
    for name in range(3) for start in range(10_000 * name, 10_000 * name + 20_000, 500)
)  # fmt: skip
_PLACES: tuple[Words, ...] = tuple(
    ("GEOADD", "places", *(word for n in range(start, start + 200)
                           for word in (f"{10 + n % 173 / 100}", f"{44 + n % 191 / 100}", f"m{n}")))
    for start in range(0, 20_000, 200)
)  # fmt: skip
_NUMBERS = [7919 * number % 1000 for number in range(100)]
_SORTED: tuple[Words, ...] = (
    ("DEL", "numbers", "texts"), ("RPUSH", "numbers", *_NUMBERS),
    ("RPUSH", "texts", *(f"text:{number}" for number in _NUMBERS)),
    ("MSET", *(word for number in _NUMBERS for word in (f"w:{number}", 1000 - number))),
    *(("HSET", f"h:{number}", "name", f"name {number}", "age", number) for number in _NUMBERS),
)  # fmt: skip
_HASH: tuple[Words, ...] = (
    ("HSET", "small", *(word for number in range(10) for word in (f"f{number}", "value"))),
    *(("HSET", "large", *(word for number in range(at, at + 1000) for word in (f"f:{number:012d}", "value")))
      for at in range(0, RANDOM, 1000)),
)  # fmt: skip
_TIMED: tuple[Words, ...] = (*_HASH, ("HEXPIRE", "small", 1000, "FIELDS", 3, "f1", "f2", "f3"))
_TEN = [word for number in range(10) for word in (f"k:{number}", "value")]
CASES = (
    Case("SETBIT in a string of 12.5 kB", "7.0", _BITMAP, ("SETBIT", "bits", 54_321, 1), 1_000_000),
    Case("GETBIT in a string of 12.5 kB", "7.0", _BITMAP, ("GETBIT", "bits", 54_321), 1_000_000),
    Case("BITCOUNT of 12.5 kB", "7.0", _BITMAP, ("BITCOUNT", "bits"), 200_000),
    Case("BITPOS of a 0 behind 12.5 kB of 1", "7.0", (("SETBIT", "ones", 99_999, 1), ("BITOP", "NOT", "ones", "ones"),
         ("BITOP", "OR", "ones", "ones", "ones")), ("BITPOS", "ones", 0, 1), 200_000),
    Case("BITFIELD, two INCRBY", "7.0", _BITMAP,
         ("BITFIELD", "bits", "INCRBY", "u8", "#17", 1, "INCRBY", "i32", 4000, 10), 500_000),
    Case("BITFIELD, a GET", "7.0", _BITMAP, ("BITFIELD", "bits", "GET", "u16", "#9"), 500_000),
    Case("BITOP AND of two strings of 12.5 kB", "7.0", _BITMAP, ("BITOP", "AND", "target", "bits", "other"), 100_000),
    Case("PFADD to a dense one", "7.0", _DENSE, ("PFADD", "dense0", "element:__rand_int__"), 1_000_000),
    Case("PFADD to a sparse one of 500 elements", "7.0", _SPARSE, ("PFADD", "sparse", "7"), 500_000),
    Case("PFADD of 500 elements to a dense one", "7.0", _DENSE, _DENSE[0], 20_000),
    Case("PFCOUNT, stored estimate", "7.0", _DENSE, ("PFCOUNT", "dense0"), 1_000_000),
    Case("PFCOUNT of a sparse and two dense ones", "7.0", (*_DENSE, *_SPARSE),
         ("PFCOUNT", "sparse", "dense0", "dense1"), 50_000),
    Case("PFMERGE of two dense ones", "7.0", _DENSE, ("PFMERGE", "target", "dense0", "dense1"), 50_000),
    Case("PFMERGE of a sparse one", "7.0", _SPARSE, ("PFMERGE", "target", "sparse"), 20_000),
    Case("PFCOUNT of a sparse and two dense ones, newest", "newest", (*_DENSE, *_SPARSE),
         ("PFCOUNT", "sparse", "dense0", "dense1"), 50_000),
    Case("PFMERGE of two dense ones, newest", "newest", _DENSE, ("PFMERGE", "target", "dense0", "dense1"), 50_000),
    Case("GEOADD, 20,000 members", "7.0", _PLACES, ("GEOADD", "places", "11", "45.__rand_int__", "m7"), 200_000),
    Case("GEODIST", "7.0", _PLACES, ("GEODIST", "places", "m1", "m19999", "km"), 500_000),
    Case("GEOPOS", "7.0", _PLACES, ("GEOPOS", "places", "m7"), 500_000),
    Case("GEOSEARCH, 5 km of 20,000 members", "7.0", _PLACES,
         ("GEOSEARCH", "places", "FROMLONLAT", "11", "45", "BYRADIUS", 5, "km", "ASC"), 20_000),
    Case("SORT of 100 numbers", "7.0", _SORTED, ("SORT", "numbers"), 100_000),
    Case("SORT of 100 numbers, LIMIT 0 10", "7.0", _SORTED, ("SORT", "numbers", "LIMIT", 0, 10), 100_000),
    Case("SORT of 100 texts, ALPHA DESC", "7.0", _SORTED, ("SORT", "texts", "ALPHA", "DESC"), 100_000),
    Case("SORT of 100 numbers BY a key, GET a field", "7.0", _SORTED,
         ("SORT", "numbers", "BY", "w:*", "GET", "h:*->name"), 20_000),
    Case("SORT of 100 numbers, STORE", "7.0", _SORTED, ("SORT", "numbers", "STORE", "target"), 50_000),
    Case("SET IFEQ", "newest", (("SET", "k", "v"),), ("SET", "k", "v", "IFEQ", "v"), 500_000),
    Case("DIGEST of 12.5 kB", "newest", (("SET", "k", _LONG),), ("DIGEST", "k"), 200_000),
    Case("MSETEX of 10 keys", "newest", (), ("MSETEX", 10, *_TEN, "EX", 1000), 200_000),
    Case("INCREX within a bound", "newest", (), ("INCREX", "n", "UBOUND", 10**12, "EX", 1000), 500_000),
    Case("HEXPIRE of 2 of 10 fields", "newest", _HASH, ("HEXPIRE", "small", 1000, "FIELDS", 2, "f3", "f7"), 300_000),
    Case("HEXPIRE, a random one of 100,000 fields", "newest", _HASH,
         ("HEXPIRE", "large", 1000, "FIELDS", 1, "f:__rand_int__"), 300_000),
    Case("HPERSIST of 2 of 10 fields", "newest", _TIMED, ("HPERSIST", "small", "FIELDS", 2, "f3", "f7"), 300_000),
    Case("HTTL of 2 of 10 fields", "newest", _TIMED, ("HTTL", "small", "FIELDS", 2, "f3", "f7"), 500_000),
    Case("HGETEX of 2 of 10 fields", "newest", _TIMED, ("HGETEX", "small", "EX", 1000, "FIELDS", 2, "f3", "f7"),
         300_000),
    Case("HSETEX of 2 of 10 fields", "newest", _TIMED,
         ("HSETEX", "small", "EX", 1000, "FIELDS", 2, "f3", "x", "f7", "y"), 300_000),
    Case("HGETDEL, a random one of 100,000 fields", "newest", _HASH,
         ("HGETDEL", "large", "FIELDS", 1, "f:__rand_int__"), 300_000),
    Case("ARSET, random index, an integer", "newest", (), ("ARSET", "new", "__rand_int__", 12345), 1_000_000),
    Case("ARSET, random index, 20 bytes", "newest", (), ("ARSET", "new", "__rand_int__", "x" * 20), 1_000_000),
    Case("ARGET, random index", "newest", _CELLS, ("ARGET", "numbers", "__rand_int__"), 1_000_000),
    Case("ARMSET, 5 indexes", "newest", (), ("ARMSET", "new", 1, "a", 7, "b", 30, 3, 99, 4, 700, "e"), 500_000),
    Case("ARMGET, 5 indexes", "newest", _CELLS, ("ARMGET", "numbers", 1, 7, 30, 99, 700), 500_000),
    Case("ARINSERT, 20 bytes", "newest", (), ("ARINSERT", "new", "x" * 20), 1_000_000),
    Case("ARRING of 1,000, 20 bytes", "newest", (), ("ARRING", "new", 1000, "x" * 20), 1_000_000),
    Case("ARLASTITEMS, 10 of a ring", "newest", (("ARRING", "ring", 100, *range(150)),), ("ARLASTITEMS", "ring", 10),
         500_000),
    Case("ARGETRANGE, 100 integers", "newest", _CELLS, ("ARGETRANGE", "numbers", 500, 599), 200_000),
    Case("ARSCAN, 100 integers", "newest", _CELLS, ("ARSCAN", "numbers", 500, 599), 100_000),
    Case("ARDEL, an empty index", "newest", _CELLS, ("ARDEL", "numbers", RANDOM), 1_000_000),
    Case("ARCOUNT", "newest", _CELLS, ("ARCOUNT", "numbers"), 1_000_000),
    Case("AROP SUM, 1,000 integers", "newest", _CELLS, ("AROP", "numbers", 500, 1499, "SUM"), 200_000),
    Case("ARGREP MATCH, 1,000 lines", "newest", _LINES, ("ARGREP", "lines", "-", "+", "MATCH", "77"), 20_000),
    Case("ARGREP RE, 1,000 lines", "newest", _LINES, ("ARGREP", "lines", "-", "+", "RE", "e [0-9]*77 o"), 3_000),
)  # fmt: skip


def run(rounds: int, mode: str, scale: float) -> list[Figure]:
    """Measure every case, the servers of one `compat` after the other."""
    figures: list[Figure] = []
    for compat in dict.fromkeys(case.compat for case in CASES):
        cases = [case for case in CASES if case.compat == compat]
        figures += _beside(compat, cases, rounds, mode, scale)
    return figures


def _beside(compat: str, cases: list[Case], rounds: int, mode: str, scale: float) -> Iterator[Figure]:
    binary = peer_binary(compat) if compat != "7.0" else None
    if compat != "7.0" and binary is None:
        print(f"# {', '.join(case.name for case in cases)}: left out, because {PEERS[compat]} names no binary")
        return
    name = "redis-server" if compat == "7.0" else {"newest": "newest Redis", "valkey": "Valkey"}.get(compat, compat)
    with ExitStack() as stack:
        peer = stack.enter_context(named_server(binary) if binary else redis_server())
        own = stack.enter_context(rillet_server(mode, "--compat", compat))
        for case in cases:
            yield from _compare(case, name, (peer, own), rounds, mode, scale)


def _compare(
    case: Case, name: str, servers: tuple[tuple[int, int], tuple[int, int]], rounds: int, mode: str, scale: float
) -> Iterator[Figure]:
    """Yield the rates of a case, and the processor times of a request."""
    count = max(2_000, int(case.requests * scale))
    rates: tuple[list[float], list[float]] = ([], [])
    times: tuple[list[float], list[float]] = ([], [])
    for port, _pid in servers:
        with Wire(port) as wire:
            wire.run(("FLUSHALL",), *case.before)
    command = ["-r", str(RANDOM), *map(str, case.command)]
    for number in range(rounds + 1):
        for (port, pid), rate, time in zip(servers, rates, times, strict=True):
            began = cpu_us(pid)
            reached = redis_benchmark(port, count if number else count // 10 + 1, 50, _PIPELINE, command)
            if number:  # the first round warms up
                rate.append(reached)
                time.append((cpu_us(pid) - began) / count)
    goal = _GOAL if mode == "compiled" else None
    what = f"{case.name}, -c 50 -P {_PIPELINE}"
    theirs, ours = map(statistics.median, rates)
    yield Figure(what, name, theirs, ours, "requests/s", goal, mode)
    theirs, ours = map(statistics.median, times)
    yield Figure(f"{what}: server's CPU", name, theirs, ours, "us", None, mode, True)

"""XADD, trimming XADD, XRANGE and XREVRANGE against redis-server: requests per second, and CPU per request.

redis-benchmark has one thread. With -P 1, most of a request's time is spent in the kernel, by a read and a write on
each side, so two servers that are faster than redis-benchmark show the same rate. The server's CPU time per request
shows the difference, and other load on the machine affects it little. So each case has both figures.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.harness import Figure, cpu_us, redis_benchmark, redis_server, rillet_server
from benchmarks.memory import fill
from benchmarks.server import FIVE_FIELDS

FULL = 10_000
"""The length of the stream that is trimmed."""


def _fields(count: int) -> list[str]:
    """Return names and values of so many fields."""
    if count == 5:
        return FIVE_FIELDS
    words = []
    for number in range(count):
        words += [f"field-{number:02d}", FIVE_FIELDS[(2 * number + 1) % 10]]
    return words


@dataclass(frozen=True)
class Case:
    """A row: the command, the number of requests, the pipeline depth, and the target ratio."""

    what: str
    command: list[str]
    requests: int
    pipeline: int
    target: float


def cases() -> list[Case]:
    """Return the rows in the order of the table."""
    found = []
    for pipeline, requests in ((64, 600_000), (1, 100_000)):
        for count in (1, 5, 20):
            words = ["XADD", "bench", "*", *_fields(count)]
            found.append(Case(f"XADD {count} fields, -c 50 -P {pipeline}", words, requests, pipeline, 1.3))
        for sign in ("~", "="):
            words = ["XADD", "full", "MAXLEN", sign, str(FULL), "*", *FIVE_FIELDS]
            found.append(Case(f"XADD MAXLEN {sign}, full, -c 50 -P {pipeline}", words, requests // 2, pipeline, 1.3))
    for pipeline in (1, 16):
        for count, requests in ((10, 100_000), (100, 30_000), (1000, 4_000)):
            for name, first, last in (("XRANGE", "-", "+"), ("XREVRANGE", "+", "-")):
                words = [name, "hundred", first, last, "COUNT", str(count)]
                found.append(Case(f"{name} of {count}, -c 50 -P {pipeline}", words, requests, pipeline, 1.2))
    return found


def _measure(port: int, pid: int, case: Case, count: int) -> tuple[float, float]:
    """Return requests per second, and microseconds of CPU per request."""
    before = cpu_us(pid)
    speed = redis_benchmark(port, count, 50, case.pipeline, case.command)
    spent = (cpu_us(pid) - before) / count
    redis_benchmark(port, 1, 1, 1, ["DEL", "bench"])
    return speed, spent


def run(rounds: int, mode: str, scale: float, wanted: Callable[[Case], bool] = lambda case: True) -> list[Figure]:
    """Measure every case in rounds that alternate between the servers."""
    figures = []
    with redis_server() as peer, rillet_server(mode) as own:
        for port, _ in (peer, own):
            fill(port, "hundred", 2_000)
            redis_benchmark(port, FULL + FULL // 10, 50, 64, ["XADD", "full", "*", *FIVE_FIELDS])
        for case in filter(wanted, cases()):
            figures += compare(case, peer, own, rounds, mode, scale)
    return figures


def compare(
    case: Case, peer: tuple[int, int], own: tuple[int, int], rounds: int, mode: str, scale: float
) -> list[Figure]:
    """Measure the rates and CPU times of one case, in rounds that alternate between the servers (port, pid)."""
    count = max(1_000, int(case.requests * scale))
    measured: tuple[list[tuple[float, float]], list[tuple[float, float]]] = ([], [])
    for _ in range(rounds):
        for (port, pid), results in zip((peer, own), measured, strict=True):
            results.append(_measure(port, pid, case, count))
    rates = [statistics.median(rate for rate, _ in results) for results in measured]
    costs = [statistics.median(cost for _, cost in results) for results in measured]
    goal = case.target if mode == "compiled" else None
    return [
        Figure(case.what, "redis-server", rates[0], rates[1], "requests/s", goal, mode),
        Figure(f"{case.what}: server's CPU", "redis-server", costs[0], costs[1], "µs", None, mode, True),
    ]

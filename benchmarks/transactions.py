"""Commands in MULTI and EXEC against redis-server: transactions of 100 commands, as redis-py's pipeline sends them.

One connection sends bursts of transactions that were packed before the clock started. Each case has two rows: the
commands per second, and the server's CPU time for a command, which other load on the machine affects little.
"""

from __future__ import annotations

import statistics
import time

from benchmarks.groups import Wire, pack
from benchmarks.harness import Figure, cpu_us, redis_server, rillet_server
from benchmarks.server import FIVE_FIELDS

_LENGTH = 100  # commands in a transaction
_BURST = 20  # transactions that are sent together
_GOAL = 1.0

CASES: tuple[tuple[str, tuple[str, ...], int], ...] = (
    ("XADD 5 fields", ("XADD", "stream", "*", *FIVE_FIELDS), 200_000),
    ("HSET", ("HSET", "hash", "field", "value"), 200_000),
    ("SET", ("SET", "key", "value-of-16-byte"), 200_000),
    ("ZADD", ("ZADD", "zset", "1", "member"), 200_000),
)
"""The name of a row, the command, and how often it runs."""


def run(rounds: int, mode: str, scale: float) -> list[Figure]:
    """Measure every case in rounds that alternate between the servers."""
    figures = []
    with redis_server() as peer, rillet_server(mode) as own:
        for name, command, count in CASES:
            bursts = max(1, int(count * scale) // (_LENGTH * _BURST))
            measured: tuple[list[tuple[float, float]], list[tuple[float, float]]] = ([], [])
            for _ in range(rounds):
                for (port, pid), results in zip((peer, own), measured, strict=True):
                    results.append(_measure(port, pid, command, bursts))
            figures += _figures(f"MULTI, {_LENGTH} {name}, EXEC", measured, mode)
    return figures


def _figures(
    what: str, measured: tuple[list[tuple[float, float]], list[tuple[float, float]]], mode: str
) -> list[Figure]:
    """Return the rate and the CPU time of a case from the rounds of both servers."""
    rates = [statistics.median(rate for rate, _ in results) for results in measured]
    costs = [statistics.median(cost for _, cost in results) for results in measured]
    goal = _GOAL if mode == "compiled" else None
    return [
        Figure(what, "redis-server", rates[0], rates[1], "commands/s", goal, mode),
        Figure(f"{what}: server's CPU", "redis-server", costs[0], costs[1], "µs", None, mode, True),
    ]


def _measure(port: int, pid: int, command: tuple[str, ...], bursts: int) -> tuple[float, float]:
    """Return commands per second, and microseconds of the server's CPU per command; an empty keyspace at the start."""
    burst = b"".join((pack("MULTI"), pack(*command) * _LENGTH, pack("EXEC"))) * _BURST
    with Wire(port) as wire:
        wire.run(("FLUSHALL",))
        wire.wait(wire.send(burst))
        commands, before, began = bursts * _BURST * _LENGTH, cpu_us(pid), time.perf_counter()
        for _ in range(bursts):
            wire.wait(wire.send(burst))
        return commands / (time.perf_counter() - began), (cpu_us(pid) - before) / commands


__all__ = ["CASES", "run"]

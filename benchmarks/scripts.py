"""Lua scripts against redis-server: EVALSHA of scripts that call one command, and a hundred; -c 50 -P 64.

Each script is measured on both servers, as requests per second and as the server's CPU time of a request. Then the cost
of one command that Lua calls is compared with that of the same command in a pipeline of rillet: a hundred calls, less
an empty script.
"""

from __future__ import annotations

import hashlib
import statistics
from typing import NamedTuple

from benchmarks.groups import Wire, pack
from benchmarks.harness import Figure, cpu_us, redis_benchmark, redis_server, rillet_server

_CLIENTS = 50
_PIPELINE = 64
_GOAL = 0.5
_CALLS = 100
_EMPTY = "return 1"

Words = tuple[str | int, ...]


class Case(NamedTuple):
    """A script to measure with KEYS[1] = "key:1" and the arguments, and its number of requests."""

    name: str
    source: str
    arguments: Words
    requests: int


class Command(NamedTuple):
    """A command that Lua calls a hundred times, and the same command in a pipeline."""

    name: str
    call: str
    command: Words
    requests: int


_BEFORE: tuple[Words, ...] = (
    ("SET", "key:1", "value-of-16-byte"), ("HSET", "hash:1", "field", "value"), ("RPUSH", "list:1", "a"),
    ("ZADD", "zset:1", 1, "member"), ("SADD", "set:1", "member"), ("SET", "number:1", 0),
)  # fmt: skip
_LOCK = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('EXPIRE', KEYS[1], 100) else return 0 end"
CASES = (
    Case("EVALSHA, an empty script", _EMPTY, (), 500_000),
    Case("EVALSHA, one GET", "return redis.call('GET', KEYS[1])", (), 500_000),
    Case("EVALSHA, one SET", "return redis.call('SET', KEYS[1], ARGV[1])", ("value-of-16-byte",), 500_000),
    Case("EVALSHA, one INCR", "return redis.call('INCR', 'number:1')", (), 500_000),
    Case("EVALSHA, GET and EXPIRE of a lock", _LOCK, ("value-of-16-byte",), 300_000),
    Case("EVALSHA, one HGETALL", "return redis.call('HGETALL', 'hash:1')", (), 300_000),
)
COMMANDS = (
    Command("GET", "redis.call('GET', KEYS[1])", ("GET", "key:1"), 1_000_000),
    Command("SET", "redis.call('SET', KEYS[1], ARGV[1])", ("SET", "key:1", "value-of-16-byte"), 1_000_000),
    Command("INCR", "redis.call('INCR', 'number:1')", ("INCR", "number:1"), 1_000_000),
    Command("HGET", "redis.call('HGET', 'hash:1', 'field')", ("HGET", "hash:1", "field"), 1_000_000),
    Command("HSET", "redis.call('HSET', 'hash:1', 'field', i)", ("HSET", "hash:1", "field", 17), 1_000_000),
    Command("ZADD", "redis.call('ZADD', 'zset:1', i, 'member')", ("ZADD", "zset:1", 17, "member"), 1_000_000),
    Command("LRANGE", "redis.call('LRANGE', 'list:1', 0, -1)", ("LRANGE", "list:1", 0, -1), 1_000_000),
)


def run(rounds: int, mode: str, scale: float) -> list[Figure]:
    """Measure every case against redis-server, then each command in Lua against the same in a pipeline."""
    with redis_server() as peer, rillet_server(mode) as own:
        servers = (peer, own)
        for port, _pid in servers:
            with Wire(port) as wire:
                wire.run(*_BEFORE)
        figures = []
        for case in CASES:
            figures += _compare(case, servers, rounds, mode, scale)
        empty = _empty_us(own, scale)
        for command in COMMANDS:
            source = f"for i = 1, {_CALLS} do {command.call} end"
            case = Case(f"EVALSHA, {_CALLS} {command.name}", source, ("value-of-16-byte",), command.requests // 50)
            figures += _compare(case, servers, rounds, mode, scale)
            figures.append(_against_pipeline(command, figures[-1].ours - empty, own, rounds, mode, scale))
    return figures


def _compare(
    case: Case, servers: tuple[tuple[int, int], tuple[int, int]], rounds: int, mode: str, scale: float
) -> list[Figure]:
    """Return the rates of a script on both servers, and the CPU times of a request."""
    count = max(500, int(case.requests * scale))
    words = _evalsha(case, servers)
    rates: tuple[list[float], list[float]] = ([], [])
    times: tuple[list[float], list[float]] = ([], [])
    for number in range(rounds + 1):
        for (port, pid), rate, time in zip(servers, rates, times, strict=True):
            reached, spent = _measure(port, pid, words, count if number else count // 10 + 1)
            if number:  # the first round warms up
                rate.append(reached)
                time.append(spent)
    what = f"{case.name}, -c {_CLIENTS} -P {_PIPELINE}"
    goal = _GOAL if mode == "compiled" else None
    theirs, ours = map(statistics.median, rates)
    cpu_theirs, cpu_ours = map(statistics.median, times)
    return [
        Figure(what, "redis-server", theirs, ours, "requests/s", goal, mode),
        Figure(f"{what}: server's CPU", "redis-server", cpu_theirs, cpu_ours, "us", None, mode, True),
    ]


def _evalsha(case: Case, servers: tuple[tuple[int, int], ...]) -> list[str]:
    """Load a script on the servers; return the EVALSHA that runs it."""
    for port, _pid in servers:
        with Wire(port) as wire:
            wire.wait(wire.send(pack("SCRIPT", "LOAD", case.source)))
    sha = hashlib.sha1(case.source.encode(), usedforsecurity=False).hexdigest()
    return ["EVALSHA", sha, "1", "key:1", *map(str, case.arguments)]


def _measure(port: int, pid: int, words: list[str], count: int) -> tuple[float, float]:
    """Return the requests per second, and the server's CPU time of a request in microseconds."""
    began = cpu_us(pid)
    reached = redis_benchmark(port, count, _CLIENTS, _PIPELINE, words)
    return reached, (cpu_us(pid) - began) / count


def _empty_us(server: tuple[int, int], scale: float) -> float:
    """Return the CPU time of an empty script."""
    words = _evalsha(CASES[0], (server,))
    return _measure(*server, words, max(500, int(100_000 * scale)))[1]


def _against_pipeline(
    command: Command, script_us: float, server: tuple[int, int], rounds: int, mode: str, scale: float
) -> Figure:
    """Return the CPU time of a command that Lua calls beside that of the same command in a pipeline."""
    words = [str(word) for word in command.command]
    count = max(2_000, int(command.requests * scale))
    times = [_measure(*server, words, count)[1] for _ in range(rounds)]
    goal = _GOAL if mode == "compiled" else None
    what = f"{command.name} called from Lua: CPU of a call"
    return Figure(what, "rillet's pipeline", statistics.median(times), script_us / _CALLS, "us", goal, mode, True)


__all__ = ["CASES", "COMMANDS", "run"]

"""Memory of a million small keys of each type, and the processor time of their commands, against redis-server."""

from __future__ import annotations

import statistics
from collections.abc import Callable

from benchmarks.groups import Wire, pack
from benchmarks.harness import Figure, cpu_us, redis_server, resident_bytes, rillet_server

KEYS = 1_000_000
_PIPELINE = 64
_GOAL = 1 / 1.3

COMMANDS: dict[str, Callable[[int], bytes]] = {
    "SET": lambda n: pack("SET", f"key:{n:012d}", f"value:{n % 100:02d}"),
    "HSET of 3 fields": lambda n: pack("HSET", f"key:{n:012d}", "name", f"user{n}", "age", n % 100, "city", "Paris"),
    "ZADD of 3 members": lambda n: pack("ZADD", f"key:{n:012d}", 1, "one", "2.5", f"m{n}", 3, "three"),
    "SADD of 3 words": lambda n: pack("SADD", f"key:{n:012d}", "red", "green", f"c{n}"),
    "SADD of 3 integers": lambda n: pack("SADD", f"key:{n:012d}", n, n + 1, n + 7),
    "RPUSH of 3 elements": lambda n: pack("RPUSH", f"key:{n:012d}", "first", f"e{n}", n),
}


def send(wire: Wire, command: Callable[[int], bytes], count: int) -> None:
    """Run a command for each number, 64 at a time."""
    for start in range(0, count, _PIPELINE):
        wire.wait(wire.send(b"".join(command(n) for n in range(start, min(start + _PIPELINE, count)))))


def fill(port: int, pid: int, command: Callable[[int], bytes], count: int) -> tuple[float, float]:
    """Create the keys; return the growth of the process (bytes) and its processor time (us) for each key."""
    with Wire(port) as wire:
        send(wire, command, 1000)
        wire.run(("FLUSHALL",))
        bytes_before, cpu_before = resident_bytes(pid), cpu_us(pid)
        send(wire, command, count)
        return (resident_bytes(pid) - bytes_before) / count, (cpu_us(pid) - cpu_before) / count


def get_and_set(port: int, pid: int, count: int) -> tuple[float, float]:
    """Return the processor time (us) of a GET and of a SET of an existing key, in pipelines of 64."""
    times = []
    with Wire(port) as wire:
        send(wire, COMMANDS["SET"], count)
        for command in (lambda n: pack("GET", f"key:{n:012d}"), COMMANDS["SET"]):
            before = cpu_us(pid)
            send(wire, command, count)
            times.append((cpu_us(pid) - before) / count)
    return times[0], times[1]


def run(rounds: int, mode: str, scale: float) -> list[Figure]:
    """Measure fresh servers in turn: bytes per key of each type, then GET and SET."""
    count = max(20_000, int(KEYS * scale))
    found = []
    for name, command in COMMANDS.items():
        grown = []
        for server in (redis_server(), rillet_server(mode)):
            with server as (port, pid):
                grown.append(fill(port, pid, command, count))
        (theirs, their_time), (ours, our_time) = grown
        goal = _GOAL if mode == "compiled" else None
        found.append(Figure(f"bytes per key, {name}", "redis-server", theirs, ours, "bytes", goal, mode, True))
        found.append(Figure(f"processor time, {name}", "redis-server", their_time, our_time, "us", None, mode, True))
    times: list[list[tuple[float, float]]] = [[], []]
    for _ in range(rounds):
        for side, server in enumerate((redis_server(), rillet_server(mode))):
            with server as (port, pid):
                times[side].append(get_and_set(port, pid, max(20_000, count // 5)))
    for part, name in enumerate(("GET, -P 64", "SET, -P 64")):
        theirs, ours = (statistics.median(row[part] for row in rows) for rows in times)
        found.append(Figure(f"processor time, {name}", "redis-server", theirs, ours, "us", None, mode, True))
    return found

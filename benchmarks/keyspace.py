"""The keyspace against redis-server: the stall of another client while keys are set, and commands that read all keys.

A stall is the slowest of 1,000 PINGs a second, sent by a process of its own. The same PINGs without any other command
are the control: they show what the machine alone causes.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import TypeVar

from benchmarks.groups import Wire, pack
from benchmarks.harness import Figure, redis_server, rillet_server
from benchmarks.pinging import Pinging

KEYS = 10_000_000
READ = 1_000_000
"""The keys, and the members of a sorted set, that one command reads."""
_PIPELINE = 64
_IDLE_S = 5.0
T = TypeVar("T")


def set_keys(wire: Wire, first: int, last: int) -> None:
    """SET the keys of these numbers, 64 at a time, so that no batch is a stall of its own."""
    for start in range(first, last, _PIPELINE):
        part = range(start, min(start + _PIPELINE, last))
        wire.wait(wire.send(b"".join(pack("SET", f"key:{n:012d}", f"{n}") for n in part)))


def stall_while_set(port: int, count: int) -> tuple[float, float]:
    """Return the slowest PING (ms) of an idle server, and of the same server while `count` keys are set."""
    with Pinging(port) as idle:
        time.sleep(_IDLE_S)
    with Wire(port) as wire, Pinging(port) as busy:
        set_keys(wire, 0, count)
    return idle.longest, busy.longest


def milliseconds(wire: Wire, *words: bytes | str | int) -> float:
    """Return how long one command takes, up to the last byte of its reply."""
    began = time.perf_counter()
    wire.run(words)
    return (time.perf_counter() - began) * 1000


def stall_of_a_scan(port: int, count: int) -> float:
    """Return the slowest PING (ms) of another client while SCAN COUNT 100 reads every key."""
    with Wire(port) as wire, Pinging(port) as pinging:
        cursor, calls = b"0", 0
        while calls == 0 or cursor != b"0":
            cursor = _scan(wire, cursor)
            calls += 1
    assert calls * 100 <= count + 100 * 64
    return pinging.longest


def _scan(wire: Wire, cursor: bytes) -> bytes:
    """Run SCAN with this cursor; return the next one."""
    wire.socket.sendall(pack("SCAN", cursor, "COUNT", 100))
    head = b""
    while head.count(b"\r\n") < 4:
        head += wire.socket.recv(1 << 20)
    _size, _length, following, keys = head.split(b"\r\n", 3)
    wanted = 2 * int(keys[1 : keys.index(b"\r\n")])
    lines = keys.count(b"\r\n") - 1
    while lines < wanted:
        lines += wire.socket.recv_into(wire.buffer) and bytes(wire.buffer).count(b"\r\n")
    return following


def reads(port: int, count: int) -> dict[str, float]:
    """Return the milliseconds of commands that read all of a million keys or members."""
    with Wire(port) as wire:
        set_keys(wire, 0, count)
        found = {f"first SCAN of {count:,} keys": milliseconds(wire, "SCAN", 0)}
        found[f"slowest PING while SCAN reads {count:,} keys"] = stall_of_a_scan(port, count)
        for start in range(0, count, 1000):
            pairs = [word for n in range(start, min(start + 1000, count)) for word in (n, f"member:{n:012d}")]
            wire.run(("ZADD", "zset", *pairs))
        found[f"KEYS * of {count:,} keys"] = milliseconds(wire, "KEYS", "*")
        found[f"ZRANGE 0 -1 of {count:,} members"] = milliseconds(wire, "ZRANGE", "zset", 0, -1)
        for start in range(0, count, 1000):
            names = [f"member:{n:012d}" for n in range(start, min(start + 1000, count))]
            wire.run(("SADD", "set", *names))
            wire.run(("HSET", "hash", *[word for name in names for word in (name, "value")]))
            wire.run(("RPUSH", "list", *names))
        found[f"SMEMBERS of {count:,} members"] = milliseconds(wire, "SMEMBERS", "set")
        found[f"HGETALL of {count:,} fields"] = milliseconds(wire, "HGETALL", "hash")
        found[f"LRANGE 0 -1 of {count:,} elements"] = milliseconds(wire, "LRANGE", "list", 0, -1)
        wire.run(("DEL", "set", "hash", "list"))
        found[f"SAVE of {count:,} keys and members"] = milliseconds(wire, "SAVE")
    return found


def run(rounds: int, mode: str, scale: float) -> list[Figure]:
    """Measure stalls and reads, in rounds that alternate between fresh servers."""
    stalls = _stalls(rounds, mode, max(100_000, int(KEYS * scale)))
    return [*stalls, *_reads(rounds, mode, max(10_000, int(READ * scale)))]


def _stalls(rounds: int, mode: str, count: int) -> list[Figure]:
    measured = _alternately(rounds, mode, lambda port: stall_while_set(port, count))
    idle, busy = ([statistics.median(row[part] for row in rows) for rows in measured] for part in (0, 1))
    print(f"# slowest PING, idle: redis-server {idle[0]:.2f} ms, rillet {idle[1]:.2f} ms")
    return [
        Figure(f"slowest PING while {count:,} keys are set", "redis-server", busy[0], busy[1], "ms", None, mode, True),
        Figure(f"slowest PING while {count:,} keys are set", "redis-server or 2 ms", max(busy[0], 2.0), busy[1], "ms",
               1.0 if mode == "compiled" else None, mode, True),
    ]  # fmt: skip


def _reads(rounds: int, mode: str, count: int) -> list[Figure]:
    peers, own = _alternately(rounds, mode, lambda port: reads(port, count))
    return [
        Figure(what, "redis-server", statistics.median(row[what] for row in peers),
               statistics.median(row[what] for row in own), "ms", None, mode, True)
        for what in peers[0]
    ]  # fmt: skip


def _alternately(rounds: int, mode: str, measure: Callable[[int], T]) -> tuple[list[T], list[T]]:
    """Measure a fresh redis-server and a fresh rillet server in turn."""
    results: tuple[list[T], list[T]] = ([], [])
    for _ in range(rounds):
        for server, into in ((redis_server(), results[0]), (rillet_server(mode), results[1])):
            with server as (port, _pid):
                into.append(measure(port))
    return results

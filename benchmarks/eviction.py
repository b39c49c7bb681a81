"""Hit rates of the eviction policies beside redis-server, for a Zipf load with the same share of keys kept.

    batch    GET of 50 keys drawn from a Zipf distribution, then SET of those that were missing
    both     get the same batches in the same order, 100 a second: the LRU clock counts seconds
    kept     `maxmemory` of each server is adjusted during the warm-up until it keeps KEPT of the keys; the two
             servers store a key in different numbers of bytes, and only equal numbers of keys give comparable rates

A cache that keeps the KEPT most popular keys would have the rate of the row "ideal". `python -m benchmarks.eviction`
prints the rates of all policies; `run` compares the two that the Redis documentation recommends.
"""

from __future__ import annotations

import random
import socket
import time
from bisect import bisect
from itertools import accumulate

from benchmarks.harness import Figure, redis_server, rillet_server
from rillet.protocol.command_parser import pack_command

KEYS = 20_000
KEPT = 0.2
POLICIES = ("allkeys-lru", "allkeys-lfu", "allkeys-random", "volatile-lru", "volatile-lfu", "volatile-ttl")
_BATCH = 50
_RATE = 100  # batches a second
_PHASES = 8  # adjustments of the limit
_PHASE = 3.0  # seconds
_MEASURED = 20.0  # seconds
_VALUE = b"x" * 300


class _Cache:
    """A server as a cache: reads, writes what was missing, and counts both."""

    def __init__(self, port: int, policy: str) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._file = self._socket.makefile("rb")
        self._expiry = [b"EX", b"100000"] if policy.startswith("volatile") else []
        self.hits = self.reads = 0
        self._run([[b"CONFIG", b"SET", b"maxmemory-policy", policy.encode()]])
        self._base = self._used()
        self._run([self._set(number) for number in range(KEYS)])
        self._limit = int((self._used() - self._base) * KEPT)
        self._apply()

    def _set(self, number: int) -> list[bytes]:
        return [b"SET", b"key:%d" % number, _VALUE, *self._expiry]

    def _run(self, commands: list[list[bytes]]) -> list[bytes | None]:
        """Run commands in one batch; return their replies, None for null."""
        self._socket.sendall(b"".join(map(pack_command, commands)))
        return [self._reply() for _ in commands]

    def _reply(self) -> bytes | None:
        line = self._file.readline()
        assert line[:1] in b"+:$", line
        if line[:1] != b"$":
            return line[1:-2]
        size = int(line[1:-2])
        return None if size < 0 else self._file.read(size + 2)[:-2]

    def _used(self) -> int:
        reply = self._run([[b"INFO", b"memory"]])[0]
        assert reply is not None
        return int(reply.split(b"used_memory:")[1].split(b"\r\n")[0])

    def _apply(self) -> None:
        self._run([[b"CONFIG", b"SET", b"maxmemory", b"%d" % (self._base + self._limit)]])

    def kept(self) -> float:
        """Return the share of the keys that the server keeps."""
        size = self._run([[b"DBSIZE"]])[0]
        assert size is not None
        return int(size) / KEYS

    def adjust(self) -> None:
        """Change the limit so that the share comes closer to KEPT."""
        self._limit = int(self._limit * KEPT / self.kept())
        self._apply()

    def use(self, numbers: list[int]) -> None:
        """Read keys, and write those that were missing."""
        found = self._run([[b"GET", b"key:%d" % number] for number in numbers])
        missing = [number for number, value in zip(numbers, found, strict=True) if value is None]
        self.reads += len(numbers)
        self.hits += len(numbers) - len(missing)
        if missing:
            self._run([self._set(number) for number in missing])


def _load(caches: list[_Cache], seconds: float, dice: random.Random, weights: list[float], names: list[int]) -> float:
    """Send the same batches to all caches at a steady rate; return the mean difference of their shares."""
    began = time.monotonic()
    for batch in range(int(seconds * _RATE)):
        numbers = [names[bisect(weights, dice.random() * weights[-1])] for _ in range(_BATCH)]
        for cache in caches:
            cache.use(numbers)
        wait = began + (batch + 1) / _RATE - time.monotonic()
        if wait > 0:
            time.sleep(wait)
    return abs(caches[0].kept() - caches[-1].kept())


def rates(policy: str, mode: str, seconds: float = _MEASURED, seed: int = 1) -> tuple[list[float], list[float]]:
    """Return the hit rates of redis-server and rillet in percent, and the shares of keys that both kept."""
    dice = random.Random(seed)
    weights = list(accumulate(1 / (rank + 1) for rank in range(KEYS)))
    names = list(range(KEYS))
    dice.shuffle(names)
    with redis_server() as (peer, _), rillet_server(mode) as (own, _):
        caches = [_Cache(peer, policy), _Cache(own, policy)]
        for _ in range(_PHASES):
            _load(caches, _PHASE, dice, weights, names)
            for cache in caches:
                cache.adjust()
        _load(caches, _PHASE, dice, weights, names)
        for cache in caches:
            cache.hits = cache.reads = 0
        _load(caches, seconds, dice, weights, names)
        return [100 * cache.hits / cache.reads for cache in caches], [cache.kept() for cache in caches]


def ideal() -> float:
    """Return the hit rate, in percent, of a cache that keeps the most popular keys."""
    weights = [1 / (rank + 1) for rank in range(KEYS)]
    return 100 * sum(weights[: int(KEPT * KEYS)]) / sum(weights)


def run(mode: str, scale: float) -> list[Figure]:
    """Compare the hit rates of allkeys-lru and allkeys-lfu: they may differ by one percent (absolute)."""
    figures = []
    for policy in ("allkeys-lru", "allkeys-lfu"):
        (peer, own), _ = rates(policy, mode, max(5.0, _MEASURED * min(scale, 1.0)))
        goal = round((peer - 1) / peer, 4)
        figures.append(Figure(f"hits with {policy}, Zipf", "redis-server", peer, own, "%", goal, mode))
    return figures


def main() -> None:
    """Print the rates of all policies."""
    print(f"ideal {ideal():.2f} %")
    for policy in POLICIES:
        (peer, own), kept = rates(policy, "compiled")
        print(f"{policy:15} redis-server {peer:6.2f} %  rillet {own:6.2f} %  difference {own - peer:+.2f}  "
              f"kept {100 * kept[0]:.2f} % and {100 * kept[1]:.2f} %", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()

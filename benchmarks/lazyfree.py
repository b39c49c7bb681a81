"""Stalls while large values are freed: the slowest PING of another client during UNLINK of a million elements.

Each value is created, then UNLINKed while another process sends 1,000 PINGs a second, until the server reports that
nothing waits to be freed. The idle control pings the same server for as long, with the same polling and no UNLINK. Both
are repeated, and the smallest stall of each is compared: on a machine with other load, single PINGs are late.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from benchmarks.defrag import _Client
from benchmarks.harness import Figure, redis_server, rillet_server
from benchmarks.pinging import Pinging

ELEMENTS = 1_000_000
_PART = 500  # elements of a command
_SECONDS = 1.0  # of pinging
_ROUNDS = 3
KINDS = ("set", "hash", "sorted set", "list", "stream")


def _commands(kind: str, count: int) -> Iterator[list[bytes]]:
    """Yield the commands that create the value."""
    if kind == "stream":
        for number in range(count):
            yield [b"XADD", b"k", b"*", b"field", b"value:%d" % number]
        return
    for start in range(0, count, _PART):
        names = [b"element:%09d" % number for number in range(start, start + _PART)]
        if kind == "set":
            yield [b"SADD", b"k", *names]
        elif kind == "list":
            yield [b"RPUSH", b"k", *names]
        elif kind == "hash":
            yield [b"HSET", b"k", *(word for name in names for word in (name, b"value"))]
        else:
            scored = enumerate(names, start)
            yield [b"ZADD", b"k", *(word for number, name in scored for word in (b"%d" % number, name))]


def _pinged(port: int, client: _Client, unlink: bool) -> float:
    """Return the slowest PING in ms."""
    with Pinging(port) as pinging:
        time.sleep(0.1)
        until = time.monotonic() + _SECONDS
        if unlink:
            client.call("UNLINK", "k")
        while time.monotonic() < until or client.info("lazyfree_pending_objects"):
            client.info("lazyfree_pending_objects")
            time.sleep(0.05)
    return pinging.longest


def stalls(port: int, kind: str, count: int) -> tuple[float, float]:
    """Return the slowest PING (ms) of an idle server, and during the UNLINK; each the least of some rounds."""
    client = _Client(port)
    idle, during = [], []
    lines = 2 if kind == "stream" else 1
    for _ in range(_ROUNDS):
        client.send_all(list(_commands(kind, count)), lines)
        time.sleep(0.5)
        idle.append(_pinged(port, client, False))
        during.append(_pinged(port, client, True))
    return min(idle), min(during)


def run(mode: str, scale: float) -> list[Figure]:
    """Measure each type; the goal is at most 1 ms above the idle control."""
    count = max(10_000, int(ELEMENTS * scale) // _PART * _PART)
    figures = []
    for kind in KINDS:
        with redis_server() as (port, _):
            peer_idle, peer = stalls(port, kind, count)
        with rillet_server(mode) as (port, _):
            idle, ours = stalls(port, kind, count)
        print(f"# UNLINK of a {kind}: redis-server {peer:.2f} ms (idle {peer_idle:.2f}), "
              f"rillet {ours:.2f} ms (idle {idle:.2f})")  # fmt: skip
        what = f"slowest PING, UNLINK of a {kind}"
        figures.append(Figure(what, "idle + 1 ms", idle + 1, ours, "ms", 1.0, mode, True))
        figures.append(Figure(what, "redis-server", peer, ours, "ms", None, mode, True))
    return figures

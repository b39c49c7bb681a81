"""The library in process, against redis-py with hiredis and a real server: XADD of five fields, one at a time."""

from __future__ import annotations

import time
from typing import Any

import redis

import rillet
from benchmarks.harness import Figure, alternate, redis_server

FIELDS: dict[Any, Any] = {"carrier": "UA", "flight": "1545", "origin": "EWR", "dest": "IAH", "delay": "-17"}


def _redis_py(port: int, count: int) -> float:
    client = redis.Redis(host="127.0.0.1", port=port)
    started = time.perf_counter()
    for _ in range(count):
        client.xadd("bench", FIELDS)
    speed = count / (time.perf_counter() - started)
    client.delete("bench")
    client.close()
    return speed


def _stream_add(count: int) -> float:
    with rillet.open() as store:
        stream = store.stream("bench")
        started = time.perf_counter()
        for _ in range(count):
            stream.add(FIELDS)
        return count / (time.perf_counter() - started)


def run(rounds: int, scale: float) -> list[Figure]:
    """Measure in this process, in its build."""
    mode = "compiled" if rillet.compiled() else "interpreted"
    with redis_server() as (port, _):
        peer, own = alternate(
            rounds,
            lambda: _redis_py(port, max(1_000, int(20_000 * scale))),
            lambda: _stream_add(max(5_000, int(300_000 * scale))),
        )
    goal = 20.0 if mode == "compiled" else None
    return [
        Figure(
            "Stream.add, 5 fields, in process, one at a time", "redis-py + hiredis", peer, own, "entries/s", goal, mode
        )
    ]

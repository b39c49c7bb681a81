"""The library in process, against redis-py with hiredis and a real server: one call at a time.

XADD of five fields, and the classes for the other types: each row runs the same command on both sides. Workers with
handlers that only acknowledge: messages() against a loop of redis-py that reads a hundred at a time, and the loop that
shares its messages (claim_idle, max_deliveries) against the one that does not.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import redis

import rillet
from benchmarks.harness import Figure, alternate, redis_server
from rillet.store.codecs import json_of

FIELDS: dict[Any, Any] = {"carrier": "UA", "flight": "1545", "origin": "EWR", "dest": "IAH", "delay": "-17"}
Call = Callable[[], object]


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


def _calls_per_second(call: Call, count: int) -> float:
    call()
    started = time.perf_counter()
    for _ in range(count):
        call()
    return count / (time.perf_counter() - started)


def _type_calls(client: Any, store: rillet.Store) -> list[tuple[str, Call, Call]]:
    """Return for each row its name, the call of redis-py, and the call of the store."""
    client.hset("hash", "f", "v")
    store.hash("hash")["f"] = "v"
    typed = store.hash("typed", codec=json_of(list[int]))
    return [
        ('store.hash("k")["f"] = "v"', lambda: client.hset("hash", "f", "v"),
         lambda: store.hash("hash").__setitem__("f", "v")),
        ('store.hash("k")["f"]', lambda: client.hget("hash", "f"), lambda: store.hash("hash")["f"]),
        ("a list of numbers as JSON into a hash", lambda: client.hset("typed", "f", "[1,2,3]"),
         lambda: typed.__setitem__("f", [1, 2, 3])),
        ("Set.add", lambda: client.sadd("set", "member"), lambda: store.set("set").add("member")),
        ("SortedSet.incr", lambda: client.zincrby("zset", 1, "member"), lambda: store.zset("zset").incr("member")),
        ("List.append and popleft", lambda: (client.rpush("list", "v"), client.lpop("list")),
         lambda: (store.list("list").append("v"), store.list("list").popleft())),
        ("Counter.incr", lambda: client.incr("counter"), lambda: store.counter("counter").incr()),
    ]  # fmt: skip


def _type_figures(port: int, rounds: int, scale: float, mode: str) -> list[Figure]:
    figures = []
    goals = {'store.hash("k")["f"] = "v"': 5.0, 'store.hash("k")["f"]': 10.0}
    with redis.Redis(host="127.0.0.1", port=port, decode_responses=True) as client, rillet.open() as store:
        for what, theirs, ours in _type_calls(client, store):
            peer, own = alternate(
                rounds,
                lambda call=theirs: _calls_per_second(call, max(500, int(10_000 * scale))),  # type: ignore[misc]
                lambda call=ours: _calls_per_second(call, max(2_000, int(100_000 * scale))),  # type: ignore[misc]
            )
            goal = goals.get(what) if mode == "compiled" else None
            figures.append(Figure(f"{what}, in process", "redis-py + hiredis", peer, own, "calls/s", goal, mode))
    return figures


def _filled(store: Any, count: int) -> Any:
    store.delete("work")
    stream = store.stream("work")
    stream.group("g").create("0")
    stream.add_many(FIELDS for _ in range(count))
    return stream.group("g").consumer("w")


def _messages(store: Any, count: int, **options: Any) -> float:
    consumer = _filled(store, count)
    started = time.perf_counter()
    for message in consumer.messages(stop_when_empty=True, **options):
        message.ack()
    return count / (time.perf_counter() - started)


def _redis_py_worker(port: int, count: int) -> float:
    with rillet.connect(f"redis://127.0.0.1:{port}") as store, redis.Redis(host="127.0.0.1", port=port) as client:
        _filled(store, count)
        started = time.perf_counter()
        while reply := client.xreadgroup("g", "w", {"work": ">"}, count=100):
            for message, _ in reply[0][1]:
                client.xack("work", "g", message)
        return count / (time.perf_counter() - started)


def _worker_figures(port: int, rounds: int, scale: float, mode: str) -> list[Figure]:
    shared: dict[str, Any] = {"claim_idle": 30, "max_deliveries": 5, "dead_letters": "dead"}
    few, many = max(500, int(5_000 * scale)), max(2_000, int(50_000 * scale))
    what = "messages(claim_idle, max_deliveries) and ack"
    with rillet.open() as memory, rillet.connect(f"redis://127.0.0.1:{port}") as connected:
        server = alternate(
            rounds, lambda: _redis_py_worker(port, few), lambda: _messages(connected, few, **shared)
        )
        process = alternate(rounds, lambda: _redis_py_worker(port, few), lambda: _messages(memory, many, **shared))
        plain = alternate(rounds, lambda: _messages(memory, many), lambda: _messages(memory, many, **shared))
    return [
        Figure(f"{what}, over redis-server", "redis-py + hiredis", *server, "messages/s", None, mode),
        Figure(f"{what}, in process", "redis-py + hiredis", *process, "messages/s", None, mode),
        Figure(f"{what}, in process", "messages() and ack", *plain, "messages/s", None, mode),
    ]


def run(rounds: int, scale: float) -> list[Figure]:
    """Measure in this process, in its build."""
    mode = "compiled" if rillet.compiled() else "interpreted"
    with redis_server() as (port, _):
        peer, own = alternate(
            rounds,
            lambda: _redis_py(port, max(1_000, int(20_000 * scale))),
            lambda: _stream_add(max(5_000, int(300_000 * scale))),
        )
        types = _type_figures(port, rounds, scale, mode)
        workers = _worker_figures(port, rounds, scale, mode)
    goal = 45.0 if mode == "compiled" else None
    return [
        Figure(
            "Stream.add, 5 fields, in process, one at a time", "redis-py + hiredis", peer, own, "entries/s", goal, mode
        ),
        *types,
        *workers,
    ]

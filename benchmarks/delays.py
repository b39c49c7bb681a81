"""Delayed entries: the library, in process and over a server, against the recipe that users write with redis-py.

The recipe, on the same server: ZADD with the due time of the client's clock; a poller that reads the due members every
POLL seconds, and moves each with ZREM and XADD in a transaction if ZREM removed it; a worker that reads a hundred at a
time. It is simpler than the library: it has no retries, trusts the clock of each client, and a killed poller loses what
it removed, unless the two commands are in a transaction that may then add an entry twice.

RILLET_DELAY_QUEUES may name the Python of an environment with arq, taskiq and taskiq-redis; then their delays are
measured, too (benchmarks/delay_queues.py).

    added          delayed entries that one producer adds per second
    moved          due entries that arrive in a handler and are acknowledged per second
    late           the median and the 99th percentile of the time from the due time to the handler, one entry every 5 ms
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import threading
import time
from functools import partial
from typing import Any

import redis

import rillet
from benchmarks.harness import ROOT, Figure, alternate, alternate_several, late_figures, redis_server
from rillet import Store

LATE = ("late, p50", "late, p99")
POLL = 0.05  # seconds between two polls of the recipe
FIELDS: dict[Any, Any] = {"carrier": "UA", "flight": "1545", "origin": "EWR", "dest": "IAH", "delay": "-17"}


class Recipe:
    """The recipe with redis-py."""

    def __init__(self, port: int) -> None:
        self.client: Any = redis.Redis(host="127.0.0.1", port=port)
        self.client.flushall()
        self.client.xgroup_create("jobs", "workers", "0", mkstream=True)
        self.number = 0

    def add(self, delay: float, **fields: Any) -> None:
        self.number += 1
        self.client.zadd("waiting", {json.dumps([self.number, FIELDS | fields]): time.time() + delay})

    def move(self) -> None:
        """Move what is due."""
        for member in self.client.zrangebyscore("waiting", "-inf", time.time(), 0, 100):
            with self.client.pipeline() as pipeline:
                if self.client.zrem("waiting", member):
                    pipeline.xadd("jobs", json.loads(member)[1])
                    pipeline.execute()

    def handle(self, count: int) -> list[dict[bytes, bytes]]:
        """Move, receive and acknowledge so many entries."""
        seen: list[dict[bytes, bytes]] = []
        wakes = 0.0
        while len(seen) < count:
            if time.monotonic() >= wakes or not seen:
                self.move()
                wakes = time.monotonic() + POLL
            for _, messages in self.client.xreadgroup("workers", "one", {"jobs": ">"}, 100, int(POLL * 1000)) or ():
                for id, fields in messages:
                    seen.append({**fields, b"at": b"%f" % time.time()})
                    self.client.xack("jobs", "workers", id)
                wakes = 0.0
        return seen


def _added(add: Any, count: int) -> float:
    started = time.perf_counter()
    for _ in range(count):
        add()
    return count / (time.perf_counter() - started)


def _ours_added(store: Store, count: int) -> float:
    jobs = store.stream("jobs")
    speed = _added(lambda: jobs.add(FIELDS, delay=3600), count)
    store.execute("FLUSHALL")
    return speed


def _ours_moved(store: Store, count: int) -> float:
    jobs = store.stream("jobs")
    for _ in range(count):
        jobs.add(FIELDS, delay=0)
    started = time.perf_counter()
    for message in jobs.group("workers").consumer("one").messages(stop_when_empty=True):
        message.ack()
    speed = count / (time.perf_counter() - started)
    store.execute("FLUSHALL")
    return speed


def _ours_late(store: Store, count: int) -> tuple[float, float]:
    jobs = store.stream("jobs")
    jobs.add({"due": 0.0}, delay=0)
    late: list[float] = []

    def produce() -> None:
        for _ in range(count):
            jobs.add({"due": time.time() + 0.25}, delay=0.25)
            time.sleep(0.005)

    thread = threading.Thread(target=produce)
    thread.start()
    for message in jobs.group("workers").consumer("one").messages():
        late.append(time.time() - float(message["due"]))
        message.ack()
        if len(late) > count:
            break
    thread.join()
    store.execute("FLUSHALL")
    return late_figures(late[1:])


def _recipe_added(port: int, count: int) -> float:
    recipe = Recipe(port)
    return _added(lambda: recipe.add(3600), count)


def _recipe_moved(port: int, count: int) -> float:
    recipe = Recipe(port)
    for _ in range(count):
        recipe.add(0)
    started = time.perf_counter()
    recipe.handle(count)
    return count / (time.perf_counter() - started)


def _recipe_late(port: int, count: int) -> tuple[float, float]:
    recipe, producer = Recipe(port), Recipe(port)

    def produce() -> None:
        for _ in range(count):
            producer.add(0.25, due=time.time() + 0.25)
            time.sleep(0.005)

    thread = threading.Thread(target=produce)
    thread.start()
    found = recipe.handle(count)
    thread.join()
    return late_figures([float(one[b"at"]) - float(one[b"due"]) for one in found])


def run(rounds: int, scale: float) -> list[Figure]:
    """Measure the rows, each in process and over the same server as the recipe."""
    many, few = max(300, int(5000 * scale)), max(100, int(600 * scale))
    figures = []
    name = "redis-py, a sorted set by hand"
    with redis_server() as (port, _):
        for where, place in (("in process", None), ("over the server", f"redis://127.0.0.1:{port}")):
            with rillet.open() if place is None else rillet.connect(place) as store:
                rows = (
                    ("added", lambda: _recipe_added(port, many), lambda store=store: _ours_added(store, many)),
                    ("moved to a handler", lambda: _recipe_moved(port, many),
                     lambda store=store: _ours_moved(store, many)),
                )  # fmt: skip
                for what, peer, ours in rows:
                    theirs, own = alternate(rounds, peer, ours)
                    figures.append(Figure(f"delayed entries {what}, {where}", name, theirs, own, "entries/s", None))
                late = alternate_several(rounds, partial(_recipe_late, port, few), partial(_ours_late, store, few))
                for what, (theirs, own) in zip(LATE, late, strict=True):
                    figures.append(Figure(f"delayed entries {what}, {where}", name, theirs, own, "ms", None,
                                          less_is_better=True))  # fmt: skip
            python = os.environ.get("RILLET_DELAY_QUEUES")
            for queue in ("arq", "taskiq") if python and place is not None else ():
                figures += _beside_queue(str(python), queue, port, rounds, many, few)
    return figures


def _beside_queue(python: str, queue: str, port: int, rounds: int, many: int, few: int) -> list[Figure]:
    """Measure the delays of a queue of tasks and those of the library over the same server, in turns."""
    theirs: list[dict[str, float]] = []
    own: list[dict[str, float]] = []
    command = [python, "-m", "benchmarks.delay_queues", queue, str(port), str(many), str(few)]
    for _ in range(rounds):
        done = subprocess.run(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=True,
                              capture_output=True, text=True, timeout=600)  # fmt: skip
        theirs.append(json.loads(done.stdout.splitlines()[-1]))
        with rillet.connect(f"redis://127.0.0.1:{port}") as store:
            store.execute("FLUSHALL")
            own.append({"added": _ours_added(store, many), "moved": _ours_moved(store, many),
                        **dict(zip(LATE, _ours_late(store, few), strict=True))})  # fmt: skip
    rows = (("added", "added", "entries/s"), ("moved", "moved to a handler", "entries/s"),
            *((what, what, "ms") for what in LATE))  # fmt: skip
    return [
        Figure(f"delayed entries {what}, over the server", queue, statistics.median(one[key] for one in theirs),
               statistics.median(one[key] for one in own), unit, None, less_is_better=unit == "ms")
        for key, what, unit in rows if all(key in one for one in theirs)
    ]  # fmt: skip

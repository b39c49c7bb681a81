"""Order by key and partitioned streams, in process and over a server, against what users write with redis-py.

    order by key     the recipe: one stream; a worker locks the key of each message (SET NX PX), handles it,
                     acknowledges it, and deletes the lock, each in a command of its own. A message whose key is locked
                     waits in the worker, and a killed worker's lock and message wait for their times
    partitions       the recipe: PARTITIONS streams, chosen by crc32; each worker is started with its list of streams.
                     Nobody takes the streams of a worker that was killed, and no other number of streams is possible

Both recipes keep less than the library does. One worker and one producer each; the entries have KEYS different keys.

    added            entries that a producer adds per second, a hundred at a time
    handled          entries that arrive in a handler and are acknowledged per second
    late             the median and 99th percentile of the time from the call of add to the handler; an entry every 5 ms
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice
from typing import Any
from zlib import crc32

import redis

import rillet
from benchmarks.harness import Figure, alternate, alternate_several, late_figures, redis_server
from rillet import Store

PARTITIONS = 16
KEYS = 100


def entries(count: int) -> Iterator[dict[Any, Any]]:
    """Yield entries of KEYS customers."""
    return ({"customer": f"c{n % KEYS}", "n": n, "at": time.time()} for n in range(count))


class Recipe:
    """What users write with redis-py; `partitions`: over several streams, else with a lock for each key."""

    def __init__(self, port: int, partitions: bool) -> None:
        self.client: Any = redis.Redis(host="127.0.0.1", port=port)
        self.keys = [f"jobs:{n}" for n in range(PARTITIONS if partitions else 1)]
        self.locks = not partitions

    def create(self) -> None:
        self.client.flushall()
        for key in self.keys:
            self.client.xgroup_create(key, "workers", "0", mkstream=True)

    def add(self, some: Iterable[dict[Any, Any]]) -> None:
        rows = iter(some)
        while part := list(islice(rows, 100)):
            with self.client.pipeline(transaction=False) as pipeline:
                for one in part:
                    pipeline.xadd(self.keys[crc32(one["customer"].encode()) % len(self.keys)], one)
                pipeline.execute()

    def handled(self) -> Iterator[dict[bytes, bytes]]:
        while True:
            for key, rows in self.client.xreadgroup("workers", "one", dict.fromkeys(self.keys, ">"), 50, 1000) or ():
                for id, fields in rows:
                    lock = b"lock:" + fields[b"customer"]
                    while self.locks and not self.client.set(lock, "one", nx=True, px=30_000):
                        time.sleep(0.01)
                    yield fields
                    self.client.xack(key, "workers", id)
                    if self.locks:
                        self.client.delete(lock)


class Ours:
    """The library; `partitions`: a partitioned stream, else order_by."""

    def __init__(self, store: Store, partitions: bool) -> None:
        self.store = store
        self.stream: Any = None
        self.options: dict[str, Any] = {} if partitions else {"order_by": "customer"}

    def create(self) -> None:
        self.store.execute("FLUSHALL")
        store = self.store
        self.stream = store.stream("jobs") if self.options else store.partitioned("jobs", PARTITIONS, "customer")
        self.stream.group("workers").create()

    def add(self, some: Iterable[dict[Any, Any]]) -> None:
        self.stream.add_many(some, batch=100)

    def handled(self) -> Iterator[dict[bytes, bytes]]:
        for message in self.stream.group("workers").consumer("one").messages(claim_idle=30, **self.options):
            yield dict(zip(message.flat[::2], message.flat[1::2], strict=True))
            message.ack()


def _added(side: Any, count: int) -> float:
    side.create()
    began = time.perf_counter()
    side.add(entries(count))
    return count / (time.perf_counter() - began)


def _handled(side: Any, count: int) -> float:
    side.create()
    side.add(entries(count))
    began = time.perf_counter()
    for number, _ in enumerate(side.handled(), 1):
        if number == count:
            break
    return count / (time.perf_counter() - began)


def _late(side: Any, count: int) -> tuple[float, float]:
    side.create()
    late: list[float] = []

    def produce() -> None:
        for one in entries(count):
            side.add([one])
            time.sleep(0.005)

    thread = threading.Thread(target=produce)
    thread.start()
    for fields in side.handled():
        late.append(time.time() - float(fields[b"at"]))
        if len(late) == count:
            break
    thread.join()
    return late_figures(late)


def run(rounds: int, scale: float) -> list[Figure]:
    """Measure the rows, each in process and over the same server as the recipe."""
    many, few = max(300, int(5000 * scale)), max(100, int(600 * scale))
    figures = []
    with redis_server() as (port, _):
        for where, place in (("in process", None), ("over the server", f"redis://127.0.0.1:{port}")):
            for partitions, what, peer in (
                (False, "order by key", "redis-py, a lock for each key"),
                (True, f"{PARTITIONS} partitions", "redis-py, streams by crc32"),
            ):
                with rillet.open() if place is None else rillet.connect(place) as store:
                    theirs, ours = Recipe(port, partitions), Ours(store, partitions)
                    rows: tuple[tuple[str, Callable[[Any], float]], ...] = (
                        ("entries added", lambda side: _added(side, many)),
                        ("entries handled", lambda side: _handled(side, many)),
                    )
                    for name, measure in rows:
                        them, own = alternate(rounds, partial(measure, theirs), partial(measure, ours))
                        figures.append(Figure(f"{what}: {name}, {where}", peer, them, own, "entries/s", None))
                    late = alternate_several(rounds, partial(_late, theirs, few), partial(_late, ours, few))
                    for name, (them, own) in zip(("late, p50", "late, p99"), late, strict=True):
                        figures.append(Figure(f"{what}: {name}, {where}", peer, them, own, "ms", None,
                                              less_is_better=True))  # fmt: skip
    return figures

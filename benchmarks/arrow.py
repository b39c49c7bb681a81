"""Streams as Arrow tables: a million entries of five fields, read and written, against redis-py's dicts.

python -m benchmarks arrow
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import redis

import rillet
from benchmarks.harness import Figure, alternate, redis_server, rillet_server
from benchmarks.memory import entries

TYPED = "id string, device string, temperature double, humidity double, status string, session string"
PAGE = 2500
MILLION = 1_000_000


def dicts(client: Any, count: int) -> float:
    """Read all entries with redis-py into one dict per entry; return the entries per second."""
    began = time.perf_counter()
    rows: list[dict[bytes, bytes]] = []
    start = "-"
    while len(page := client.xrange("stream", start, "+", PAGE)) == PAGE:
        rows += [fields for _, fields in page]
        start = "(" + page[len(page) - 1][0].decode()
    rows += [fields for _, fields in page]
    assert len(rows) == count
    return count / (time.perf_counter() - began)


def table(stream: Any, count: int, **how: Any) -> float:
    """Read all entries into a table; return the entries per second."""
    began = time.perf_counter()
    assert stream.to_arrow(**how).num_rows == count
    return count / (time.perf_counter() - began)


def pipelined(client: Any, rows: list[dict[Any, Any]]) -> float:
    """Append rows with redis-py pipelines; return the entries per second."""
    client.delete("copy")
    began = time.perf_counter()
    for start in range(0, len(rows), 1000):
        pipeline = client.pipeline(transaction=False)
        for row in rows[start : start + 1000]:
            pipeline.xadd("copy", row)
        pipeline.execute()
    return len(rows) / (time.perf_counter() - began)


def added(stream: Any, frame: Any) -> float:
    """Append the rows of a table; return the entries per second."""
    stream.store.delete(stream.name)
    began = time.perf_counter()
    stream.add_arrow(frame)
    speed: float = frame.num_rows / (time.perf_counter() - began)
    stream.store.delete(stream.name)
    return speed


@contextmanager
def places(count: int) -> Iterator[dict[str, Any]]:
    """Yield the stream in a store of this process, in a redis-server, in a rillet server."""
    with redis_server() as (theirs, _), rillet_server() as (ours, _), rillet.open() as here:
        urls = {"redis-server": f"redis://127.0.0.1:{theirs}", "rillet's server": f"redis://127.0.0.1:{ours}"}
        found = {"in process": here.stream("stream")}
        found.update({name: rillet.connect(url).stream("stream") for name, url in urls.items()})
        rows = entries(count)
        for stream in found.values():
            stream.add_many((row[0].decode(), dict(zip(row[1::2], row[2::2], strict=True))) for row in rows)
        try:
            yield found
        finally:
            for stream in found.values():
                stream.store.close()


def figures(rounds: int = 3, scale: float = 1.0) -> list[Figure]:
    """Return the rows of the benchmark table."""
    count = max(int(MILLION * scale), 10_000)
    found: list[Figure] = []
    with places(count) as streams, redis.Redis.from_url(streams["redis-server"].store.url) as client:

        def row(what: str, peer: Callable[[], float], ours: Callable[[], float], goal: float | None, name: str) -> None:
            found.append(Figure(what, name, *alternate(rounds, peer, ours), "entries/s", goal))

        def out(what: str, place: str, goal: float | None, **how: Any) -> None:
            row(
                what, lambda: dicts(client, count), lambda: table(streams[place], count, **how), goal, "redis-py, dicts"
            )

        out(f"Stream.to_arrow of {count:,}, in process, typed", "in process", 15.0, schema=TYPED)
        out(f"Stream.to_arrow of {count:,}, in process, types found", "in process", 15.0)
        out(f"Stream.to_arrow of {count:,}, in process, fields as a map", "in process", None, fields="map")
        out(f"Stream.to_arrow of {count:,}, from rillet's server, typed", "rillet's server", None, schema=TYPED)
        out(f"Stream.to_arrow of {count:,}, from redis-server, typed", "redis-server", None, schema=TYPED)
        part = streams["in process"].to_arrow(count=count // 5)
        fields = part.drop_columns(["id", "timestamp"]).to_pylist()
        for place in ("in process", "redis-server"):
            what, target = f"Stream.add_arrow of {part.num_rows:,}, {place}", streams[place].store.stream("copy")
            peer = functools.partial(pipelined, client, fields)
            row(what, peer, functools.partial(added, target, part), None, "redis-py pipelines, dicts")
    return found

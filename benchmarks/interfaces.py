"""The Python API: typed entries, stores attached to another process, asyncio. The peer runs the same program on Redis.

Some goals are absolute. Their rows have the goal as the peer, such as "15 µs", and a ratio of at least 1.
"""

from __future__ import annotations

import asyncio
import contextlib
import resource
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import msgspec
import redis
import redis.asyncio

import rillet
from benchmarks.embedded import FIELDS
from benchmarks.harness import Figure, alternate, redis_server

TASKS = 100
THREADS = 4
WAITING = 10_000
BATCH = 100
OWNER = "import sys, rillet; store = rillet.open(sys.argv[1]); print('open', flush=True); sys.stdin.read()"
# Sends back each byte that arrives: the least time that a call to another process can take on a machine.
ECHO = """
import socket, sys
with socket.socket(fileno=int(sys.argv[1])) as end:
    while data := end.recv(64):
        end.sendall(data)
"""
CLIENT = "redis-py + hiredis, Unix socket"
EXCHANGE = "a byte to another Python process and back"
ASYNC_CLIENT = "redis.asyncio + hiredis"


@dataclass
class Flight:
    """The fields of an entry as a dataclass."""

    carrier: str
    flight: int
    origin: str
    dest: str
    delay: int


class FlightStruct(msgspec.Struct):
    """The fields of an entry as a msgspec Struct."""

    carrier: str
    flight: int
    origin: str
    dest: str
    delay: int


FLIGHT: dict[str, Any] = {"carrier": "UA", "flight": 1545, "origin": "EWR", "dest": "IAH", "delay": -17}


# -- typed entries ---------------------------------------------------------------------------------------


def _adds_per_second(stream: Any, value: Any, count: int) -> float:
    started = time.perf_counter()
    for _ in range(count):
        stream.add(value)
    return count / (time.perf_counter() - started)


def _read_per_second(stream: Any, delay: Callable[[Any], int], count: int) -> float:
    started = time.perf_counter()
    assert sum(delay(entry) for entry in stream) == -17 * count
    return count / (time.perf_counter() - started)


def _typed(rounds: int, scale: float) -> list[Figure]:
    figures = []
    count = max(2_000, int(100_000 * scale))
    for kind, value in ((Flight, Flight(**FLIGHT)), (FlightStruct, FlightStruct(**FLIGHT))):
        name = "a dataclass" if kind is Flight else "a msgspec Struct"

        def adds(typed: bool, kind: Any = kind, value: Any = value) -> float:
            with rillet.open() as store:
                stream: Any = store.stream("s", type=kind) if typed else store.stream("s")
                return _adds_per_second(stream, value if typed else asdict(Flight(**FLIGHT)), count)

        def reads(typed: bool, kind: Any = kind) -> float:
            with rillet.open() as store:
                store.stream("s").add_many([FLIGHT] * count)
                if typed:
                    return _read_per_second(store.stream("s", type=kind), lambda entry: entry.value.delay, count)
                return _read_per_second(store.stream("s"), lambda entry: int(entry["delay"]), count)

        for what, measure in ((f"Stream.add of {name}, in process", adds), (f"iterating over {name} each", reads)):
            raw, typed = alternate(rounds, lambda m=measure: m(False), lambda m=measure: m(True))  # type: ignore[misc]
            figures.append(Figure(what, "the same fields as a dict", raw, typed, "entries/s", 0.5))
    return figures


# -- attached --------------------------------------------------------------------------------------------


@contextmanager
def owner_process() -> Iterator[Path]:
    """Let another process own a store; yield its directory."""
    with tempfile.TemporaryDirectory(prefix="rillet-bench-") as folder:
        path = Path(folder, "store")
        command = [sys.executable, "-c", OWNER, str(path)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as owner:
            assert owner.stdout is not None
            assert owner.stdin is not None
            owner.stdout.readline()
            try:
                yield path
            finally:
                owner.stdin.close()


def _latencies(call: Callable[[], object], count: int) -> tuple[float, float]:
    """Return the median and the 99th percentile of a call, in microseconds."""
    clock, taken = time.perf_counter_ns, []
    for _ in range(count):
        began = clock()
        call()
        taken.append(clock() - began)
    taken.sort()
    return taken[count // 2] / 1000, taken[count * 99 // 100] / 1000


@contextmanager
def echo_process() -> Iterator[Callable[[], object]]:
    """Yield a call that sends a byte to another process through a Unix socket, and waits until it comes back."""
    own, other = socket.socketpair()
    with own, other, subprocess.Popen([sys.executable, "-c", ECHO, str(other.fileno())], pass_fds=[other.fileno()]):
        other.close()

        def exchange() -> None:
            own.sendall(b"x")
            own.recv(64)

        yield exchange
        own.close()


def _in_threads(work: Callable[[], object]) -> None:
    threads = [threading.Thread(target=work) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _per_entry(add_batch: Callable[[], object], batches: int) -> float:
    """Return the microseconds per entry while several threads add batches."""
    started = time.perf_counter()
    _in_threads(lambda: [add_batch() for _ in range(batches)])
    return (time.perf_counter() - started) * 1e6 / (THREADS * batches * BATCH)


def _attached(rounds: int, scale: float) -> list[Figure]:
    count, batches = max(1_000, int(20_000 * scale)), max(10, int(100 * scale))
    with owner_process() as path, rillet.open(path) as store, tempfile.TemporaryDirectory() as folder:
        assert not store.owner
        stream = store.stream("bench")
        unix = str(Path(folder, "redis.sock"))
        with redis_server("--unixsocket", unix), redis.Redis(unix_socket_path=unix) as client, echo_process() as echo:

            def peer_batch() -> None:
                with client.pipeline(transaction=False) as pipeline:
                    for _ in range(BATCH):
                        pipeline.xadd("bench", FIELDS)
                    pipeline.execute()

            rows = []
            for _ in range(rounds):
                theirs = _latencies(lambda: client.xadd("bench", FIELDS), count)
                ours = _latencies(lambda: stream.add(FIELDS), count)
                exchanged, _ = _latencies(echo, count)
                peer_many = _per_entry(peer_batch, batches)
                own_many = _per_entry(lambda: stream.add_many([FIELDS] * BATCH), batches)
                rows.append((*theirs, *ours, exchanged, peer_many, own_many))
                client.delete("bench")
                store.delete("bench")
    peer50, peer99, own50, own99, exchanged, peer_many, own_many = map(statistics.median, zip(*rows, strict=True))
    what, many = "Stream.add, attached", f"Stream.add_many of {BATCH}, attached, {THREADS} threads, per entry"
    return [
        Figure(f"{what}, p50", CLIENT, peer50, own50, "µs", None, less_is_better=True),
        Figure(f"{what}, p50", "15 µs", 15.0, own50, "µs", 1.0, less_is_better=True),
        Figure(f"{what}, p50", EXCHANGE, exchanged, own50, "µs", None, less_is_better=True),
        Figure(f"{what}, p99", CLIENT, peer99, own99, "µs", None, less_is_better=True),
        Figure(many, CLIENT, peer_many, own_many, "µs", None, less_is_better=True),
        Figure(many, "10 µs", 10.0, own_many, "µs", 1.0, less_is_better=True),
    ]


# -- asyncio ---------------------------------------------------------------------------------------------


async def _adds_of_tasks(add: Callable[[], Awaitable[object]], each: int) -> float:
    async def work() -> None:
        for _ in range(each):
            await add()

    started = time.perf_counter()
    await asyncio.gather(*[work() for _ in range(TASKS)])
    return TASKS * each / (time.perf_counter() - started)


async def _wake_up(
    read: Callable[[str], Awaitable[Any]], add: Callable[[str], Awaitable[Any]], blocked: Callable[[], Awaitable[int]],
    waiting: int, count: int,
) -> float:  # fmt: skip
    """Return the 99th percentile of the time from an add to the end of the read that waited for it, in microseconds."""
    clock, woken = time.perf_counter_ns, {}

    async def reader(name: str) -> None:
        await read(name)
        woken[name] = clock()

    tasks = {f"s{number}": asyncio.create_task(reader(f"s{number}")) for number in range(waiting)}
    while await blocked() < waiting:
        await asyncio.sleep(0.05)
        for task in tasks.values():
            if task.done():
                task.result()  # raises what ended it
    taken = []
    for name in list(tasks)[:count]:
        began = clock()
        await add(name)
        await tasks.pop(name)
        taken.append((woken[name] - began) / 1000)
    for task in tasks.values():
        task.cancel()
    await asyncio.gather(*tasks.values(), return_exceptions=True)
    taken.sort()
    return taken[len(taken) * 99 // 100]


@contextlib.asynccontextmanager
async def _redis(port: int, connections: int) -> AsyncIterator[Any]:
    client = redis.asyncio.Redis(port=port, max_connections=connections, socket_timeout=None)
    try:
        yield client
    finally:
        await client.aclose()


def _asyncio_peer(port: int, each: int, waiting: int, wakes: int) -> tuple[float, float]:
    async def body() -> tuple[float, float]:
        async with _redis(port, TASKS) as client:
            speed = await _adds_of_tasks(lambda: client.xadd("bench", FIELDS), each)
            await client.delete("bench")
        async with _redis(port, waiting + 10) as client:
            await client.config_set("maxclients", waiting + 100)
            while (await client.info("clients"))["connected_clients"] > 10:  # those of the last round
                await asyncio.sleep(0.05)

            async def blocked() -> int:
                return int((await client.info("clients"))["blocked_clients"])

            woken = await _wake_up(lambda name: client.xread({name: "$"}, block=0),
                                   lambda name: client.xadd(name, FIELDS), blocked, waiting, wakes)  # fmt: skip
        return speed, woken

    return asyncio.run(body())


def _asyncio_own(store: rillet.Store, each: int, waiting: int, wakes: int) -> tuple[float, float]:
    async def body() -> tuple[float, float]:
        here = store.aio()
        stream = here.stream("bench")
        speed = await _adds_of_tasks(lambda: stream.add(FIELDS), each)
        await here.delete("bench")

        async def blocked() -> int:
            return int((await here.info())["blocked_clients"])

        woken = await _wake_up(lambda name: here.stream(name).read("$", block=0),
                               lambda name: here.stream(name).add(FIELDS), blocked, waiting, wakes)  # fmt: skip
        return speed, woken

    return asyncio.run(body())


def _with_asyncio(rounds: int, scale: float) -> list[Figure]:
    each, wakes = max(20, int(500 * scale)), max(100, int(1_000 * scale))
    waiting = max(1_000, int(WAITING * min(scale, 1.0)))
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    rows: dict[str, list[tuple[float, float]]] = {"peer": [], "in process": [], "attached": []}
    with redis_server() as (port, _), rillet.open() as inner, owner_process() as path, rillet.open(path) as attached:
        for _ in range(rounds):
            rows["peer"].append(_asyncio_peer(port, each, waiting, wakes))
            rows["in process"].append(_asyncio_own(inner, each, waiting, wakes))
            rows["attached"].append(_asyncio_own(attached, each, waiting, wakes))
    median = {name: [statistics.median(column) for column in zip(*found, strict=True)] for name, found in rows.items()}
    figures = []
    for place, goal in (("in process", 100_000.0), ("attached", 40_000.0)):
        speed, woken = median[place]
        what = f"AsyncStream.add, {TASKS} tasks, {place}"
        wake = f"{waiting:,} tasks wait, add wakes one, {place}, p99"
        figures += [
            Figure(what, ASYNC_CLIENT, median["peer"][0], speed, "entries/s", None),
            Figure(what, f"{goal:,.0f} entries/s", goal, speed, "entries/s", 1.0),
            Figure(wake, ASYNC_CLIENT, median["peer"][1], woken, "µs", None, less_is_better=True),
            Figure(wake, "200 µs", 200.0, woken, "µs", 1.0, less_is_better=True),
        ]
    return figures


def run(rounds: int, scale: float) -> list[Figure]:
    """Measure in this process, compiled."""
    return [*_typed(rounds, scale), *_attached(rounds, scale), *_with_asyncio(rounds, scale)]

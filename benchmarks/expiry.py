"""Expiry curves beside redis-server: keys that are left after their time, and the memory under a steady load.

    at once     KEYS keys expire within a tenth of a second; DBSIZE every 50 ms until none is left. No command accesses
                the keys, so only the active cycle deletes them.
    steady      RATE times a second SET PX 2000; DBSIZE and the process's memory every 250 ms. After two seconds as
                many keys expire as arrive, so both must stay level.

The servers run in the same run, one after the other, and then a store in memory and a store in a directory, embedded
in this process. A store in a directory writes each deletion into its log, so its peer is a redis-server that does.
`python -m benchmarks.curves` draws the curves.
"""

from __future__ import annotations

import os
import socket
import tempfile
import time
from typing import Protocol

import rillet
from benchmarks.harness import Figure, redis_server, resident_bytes, rillet_server
from rillet.protocol.command_parser import pack_command

KEYS = 300_000
RATE = 5_000
_BATCH = 1_000
_LEAD = 4.0  # seconds from the first SET to the time at which the keys expire
_STEADY = 12.0
_LOGGED = "redis-server with a log"

Curve = list[tuple[float, float]]
"""Points: seconds, and keys or bytes."""


class _Client(Protocol):
    """A connection or a store."""

    def run(self, commands: list[list[bytes]]) -> object:
        """Run commands in one batch."""

    def size(self) -> int:
        """Return the number of keys, expired ones included."""


class _StoreClient:
    """An embedded store."""

    def __init__(self, store: rillet.Store) -> None:
        self._store = store

    def run(self, commands: list[list[bytes]]) -> object:
        """Run commands in one batch."""
        return self._store.execute_many(commands)

    def size(self) -> int:
        """Return the number of keys, expired ones included."""
        return int(self._store.execute("DBSIZE"))


class _Connection:
    """A connection whose replies are one line each."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._file = self._socket.makefile("rb")

    def run(self, commands: list[list[bytes]]) -> bytes:
        """Run commands in one batch; return the last reply without its type."""
        self._socket.sendall(b"".join(map(pack_command, commands)))
        for _ in commands:
            line = self._file.readline()
        return line[1:-2]

    def size(self) -> int:
        """Return the number of keys, expired ones included."""
        return int(self.run([[b"DBSIZE"]]))


def at_once(client: _Client, count: int) -> Curve:
    """Let keys expire at the same time; return how many are left, from that time on."""
    lead = _LEAD * max(1.0, count / KEYS)
    due = time.time() + lead
    word = b"%d" % int(due * 1000)
    for start in range(0, count, _BATCH):
        client.run([[b"SET", b"key:%d" % number, b"value", b"PXAT", word] for number in range(start, start + _BATCH)])
    assert time.time() < due, "the keys expired while they were set"
    time.sleep(due - time.time())
    curve: Curve = []
    while not curve or curve[-1][1]:
        curve.append((time.time() - due, client.size()))
        assert time.time() < due + 120, "the keys do not expire"
        time.sleep(0.05)
    return curve


def steady(client: _Client, pid: int, seconds: float) -> tuple[Curve, Curve]:
    """Set keys that live for 2 s at a steady rate; return the curves of the keys and of the memory in bytes."""
    began = time.monotonic()
    keys: Curve = []
    memory: Curve = []
    done = 0
    while (now := time.monotonic() - began) < seconds:
        wanted = int(now * RATE)
        if wanted > done:
            client.run([[b"SET", b"key:%d" % number, b"x" * 100, b"PX", b"2000"] for number in range(done, wanted)])
            done = wanted
        if not keys or now - keys[-1][0] >= 0.25:
            keys.append((now, client.size()))
            memory.append((now, resident_bytes(pid)))
        time.sleep(0.005)
    return keys, memory


def measure(mode: str, scale: float) -> dict[str, dict[str, Curve]]:
    """Return the curves of both servers and of both kinds of embedded stores, by name."""
    count = max(10 * _BATCH, int(KEYS * scale) // _BATCH * _BATCH)
    curves: dict[str, dict[str, Curve]] = {"keys left": {}, "keys": {}, "bytes": {}}
    log = redis_server("--appendonly", "yes")
    for name, server in (("redis-server", redis_server()), (_LOGGED, log), ("rillet", rillet_server(mode))):
        with server as (port, pid):
            _measure(curves, name, _Connection(port), pid, count)
    with tempfile.TemporaryDirectory(prefix="rillet-bench-") as folder:
        for name, place in (("store in memory", None), ("store in a directory", folder)):
            with rillet.open() if place is None else rillet.open(place) as store:
                _measure(curves, name, _StoreClient(store), os.getpid(), count)
    return curves


def _measure(curves: dict[str, dict[str, Curve]], name: str, client: _Client, pid: int, count: int) -> None:
    curves["keys left"][name] = at_once(client, count)
    curves["keys"][name], curves["bytes"][name] = steady(client, pid, _STEADY)


def _reached(curve: Curve, share: float) -> float:
    """Return the seconds after which that share of the keys was deleted."""
    first = curve[0][1]
    return next(seconds for seconds, left in curve if left <= (1 - share) * first)


def _highest(curve: Curve, start: float) -> float:
    return max(value for seconds, value in curve if seconds >= start)


def run(mode: str, scale: float) -> list[Figure]:
    """Compare the curves: the time to delete half and all keys, and the highest points of the steady load."""
    return figures(measure(mode, scale), mode)


def figures(curves: dict[str, dict[str, Curve]], mode: str) -> list[Figure]:
    """Return the rows of the table for curves of `measure`."""
    left, keys, goal = curves["keys left"], curves["keys"], round(1 / 1.5, 3)
    found: list[Figure] = []
    for name in left:
        if name in ("redis-server", _LOGGED):
            continue
        peer = _LOGGED if "directory" in name else "redis-server"
        rows = [
            (f"{name}: seconds until {words} of the keys have expired", _reached(left[peer], part),
             _reached(left[name], part), "s")
            for words, part in (("half", 0.5), ("nine in ten", 0.9), ("all", 1.0))
        ]  # fmt: skip
        rows.append((f"{name}: most keys, 5,000 SET PX 2000 a second", _highest(keys[peer], _STEADY / 2),
                     _highest(keys[name], _STEADY / 2), "keys"))  # fmt: skip
        found += [Figure(what, peer, theirs, ours, unit, goal, mode, True) for what, theirs, ours, unit in rows]
    return found

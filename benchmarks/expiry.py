"""Expiry curves beside redis-server: keys that are left after their time, and the memory under a steady load.

    at once     KEYS keys expire within a tenth of a second; DBSIZE every 50 ms until none is left. No command accesses
                the keys, so only the active cycle deletes them.
    steady      RATE times a second SET PX 2000; DBSIZE and the process's memory every 250 ms. After two seconds as
                many keys expire as arrive, so both must stay level.

Both servers run in the same run, one after the other. `python -m benchmarks.expiry CURVES.svg` draws the curves.
"""

from __future__ import annotations

import socket
import sys
import time
from pathlib import Path

from benchmarks.harness import Figure, redis_server, resident_bytes, rillet_server
from rillet.protocol.command_parser import pack_command

KEYS = 300_000
RATE = 5_000
_BATCH = 1_000
_LEAD = 4.0  # seconds from the first SET to the time at which the keys expire
_STEADY = 12.0

Curve = list[tuple[float, float]]
"""Points: seconds, and keys or bytes."""


class _Client:
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


def at_once(port: int, count: int) -> Curve:
    """Let keys expire at the same time; return how many are left, from that time on."""
    client = _Client(port)
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


def steady(port: int, pid: int, seconds: float) -> tuple[Curve, Curve]:
    """Set keys that live for 2 s at a steady rate; return the curves of the keys and of the memory in bytes."""
    client = _Client(port)
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
    """Return the curves of both servers by name."""
    count = max(10 * _BATCH, int(KEYS * scale) // _BATCH * _BATCH)
    curves: dict[str, dict[str, Curve]] = {"keys left": {}, "keys": {}, "bytes": {}}
    for name, server in (("redis-server", redis_server()), ("rillet", rillet_server(mode))):
        with server as (port, pid):
            curves["keys left"][name] = at_once(port, count)
            curves["keys"][name], curves["bytes"][name] = steady(port, pid, _STEADY)
    return curves


def _reached(curve: Curve, share: float) -> float:
    """Return the seconds after which that share of the keys was deleted."""
    first = curve[0][1]
    return next(seconds for seconds, left in curve if left <= (1 - share) * first)


def _highest(curve: Curve, start: float) -> float:
    return max(value for seconds, value in curve if seconds >= start)


def run(mode: str, scale: float) -> list[Figure]:
    """Compare the curves: the time to delete half and all keys, and the highest points of the steady load."""
    curves = measure(mode, scale)
    left, keys = curves["keys left"], curves["keys"]
    goal = round(1 / 1.5, 3)
    rows = [
        (f"seconds until {name} of the keys have expired", _reached(left["redis-server"], part),
         _reached(left["rillet"], part), "s", goal)
        for name, part in (("half", 0.5), ("nine in ten", 0.9), ("all", 1.0))
    ]  # fmt: skip
    half = _STEADY / 2
    rows.append(("most keys, 5,000 SET PX 2000 a second", _highest(keys["redis-server"], half),
                 _highest(keys["rillet"], half), "keys", goal))  # fmt: skip
    return [
        Figure(what, "redis-server", peer, ours, unit, target, mode, True) for what, peer, ours, unit, target in rows
    ]


def draw(curves: dict[str, dict[str, Curve]], path: Path) -> None:
    """Draw the curves side by side."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    titles = {"keys left": "keys left that expire at once", "keys": "keys, 5,000 SET PX 2000 a second",
              "bytes": "memory (MiB), the same load"}  # fmt: skip
    figure, axes = pyplot.subplots(1, len(curves), figsize=(12, 3.2))
    for (kind, lines), axis in zip(curves.items(), axes, strict=True):
        for name, curve in lines.items():
            divisor = 1 << 20 if kind == "bytes" else 1
            axis.plot([x for x, _ in curve], [y / divisor for _, y in curve], label=name)
        axis.set_title(titles[kind], fontsize=9)
        axis.set_xlabel("seconds", fontsize=8)
        axis.set_ylim(bottom=0)
        axis.tick_params(labelsize=8)
        axis.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


if __name__ == "__main__":
    draw(measure("compiled", 1.0), Path(sys.argv[1]))

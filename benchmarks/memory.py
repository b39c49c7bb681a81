"""Memory of a stream: process growth per entry for a million five-field entries, against redis-server."""

from __future__ import annotations

import random
import socket

from benchmarks.harness import Figure, redis_server, resident_bytes, rillet_server
from rillet.protocol.command_parser import pack_command

ENTRIES = 1_000_000


def entries(count: int, start_ms: int = 1_700_000_000_000) -> list[list[bytes]]:
    """Return (id, field, value, ...) lists of five fields, about 99 bytes of names and values each; seeded."""
    source = random.Random(7)
    rows = []
    for number in range(count):
        rows.append(
            [
                b"%d-0" % (start_ms + number * 13),
                b"device",
                b"sensor-%05d" % source.randrange(50_000),
                b"temperature",
                b"%.3f" % source.uniform(-20, 45),
                b"humidity",
                b"%.2f" % source.uniform(0, 100),
                b"status",
                source.choice((b"ok", b"degraded", b"offline")),
                b"session",
                b"%016x" % source.getrandbits(64),
            ]
        )
    return rows


def fill(port: int, key: str, count: int) -> None:
    """XADD the entries through one pipelined connection and wait for the last reply."""
    with socket.create_connection(("127.0.0.1", port)) as connection:
        batch = 5_000
        rows = entries(count)
        for start in range(0, count, batch):
            part = rows[start : start + batch]
            connection.sendall(b"".join(pack_command([b"XADD", key.encode(), *row]) for row in part))
            lines = 0
            while lines < 2 * len(part):  # a bulk string is two lines
                received = connection.recv(1 << 20)
                assert received, "the server closed the connection"
                lines += received.count(b"\n")


def run(mode: str, scale: float) -> list[Figure]:
    """Measure the growth of both processes while entries are added."""
    count = max(20_000, int(ENTRIES * scale))
    grown = []
    for server in (redis_server(), rillet_server(mode)):
        with server as (port, pid):
            fill(port, "warm", 1_000)
            before = resident_bytes(pid)
            fill(port, "stream", count)
            grown.append((resident_bytes(pid) - before) / count)
    goal = round(1 / 1.1, 3) if mode == "compiled" else None
    return [Figure("bytes per entry, process growth", "redis-server", grown[0], grown[1], "bytes", goal, mode, True)]

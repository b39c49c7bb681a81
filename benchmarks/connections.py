"""Connections: how many a second a server opens and closes, and the memory of clients that only wait.

churn        redis-benchmark with a new connection for each PING (-k 0), 50 at a time
CPU          the processor time of the server for each of these connections; other programs hardly change it
connected    resident bytes that a client adds that has only connected
idle         the same for a client that has sent commands, some seconds later (Redis then shrinks its buffers)

The server and the client share the machine, so both servers are measured alternately in the same run.
"""

from __future__ import annotations

import contextlib
import resource
import socket
import time

from benchmarks.harness import Figure, alternate, cpu_us, redis_benchmark, redis_server, resident_bytes, rillet_server

_CHURN = 50_000
_IDLE = 5_000
_SETTLE = 8.0  # seconds after which Redis has shrunk the buffers of idle clients


def _churn(port: int, pid: int, count: int, cpu: list[float]) -> float:
    before = cpu_us(pid)
    rate = redis_benchmark(port, count, 50, 1, ["-k", "0", "PING"])
    cpu.append((cpu_us(pid) - before) / count)
    return rate


def _bytes_per_client(port: int, pid: int, commands: bytes) -> float:
    """Return the growth of the server for each of many clients."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < _IDLE + 100:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, _IDLE + 100), hard))
    with contextlib.ExitStack() as stack:
        before = resident_bytes(pid)
        for _ in range(_IDLE):
            one = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
            if commands:
                one.sendall(commands)
                one.recv(4096)
        time.sleep(_SETTLE)
        return (resident_bytes(pid) - before) / _IDLE


def run(rounds: int, mode: str, scale: float) -> list[Figure]:
    """Return the figures beside redis-server."""
    count = max(int(_CHURN * scale), 1000)
    with redis_server() as (port, pid), rillet_server(mode) as (own_port, own_pid):
        theirs_cpu: list[float] = []
        ours_cpu: list[float] = []
        theirs, ours = alternate(rounds, lambda: _churn(port, pid, count, theirs_cpu),
                                 lambda: _churn(own_port, own_pid, count, ours_cpu))  # fmt: skip
    middle = len(theirs_cpu) // 2
    figures = [
        Figure("connections opened and closed", "redis-server", theirs, ours, "/s", 0.8, mode),
        Figure("  CPU of the server", "redis-server", sorted(theirs_cpu)[middle], sorted(ours_cpu)[middle],
               "µs", None, mode, less_is_better=True),
    ]  # fmt: skip
    for what, commands in (("connected", b""), ("idle after commands", b"PING\r\nSET k v\r\nGET k\r\n")):
        with redis_server() as (port, pid), rillet_server(mode) as (own_port, own_pid):
            figures.append(Figure(f"memory of a client, {what}", "redis-server", _bytes_per_client(port, pid, commands),
                                  _bytes_per_client(own_port, own_pid, commands), "bytes", 1 / 1.5, mode,
                                  less_is_better=True))  # fmt: skip
    return figures


__all__ = ["run"]

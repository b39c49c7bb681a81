"""The server against redis-server with plain keys, by redis-benchmark; streams.py measures the stream commands."""

from __future__ import annotations

from benchmarks.harness import Figure, alternate, redis_benchmark, redis_server, rillet_server

FIVE_FIELDS = [
    "carrier",
    "UA",
    "flight",
    "1545",
    "origin",
    "EWR",
    "dest",
    "IAH",
    "delay",
    "-17",
]

# name, command, requests, pipeline, target ratio
CASES = (
    ("SET, -c 50 -P 1", ["SET", "key:1", "value-of-16-byte"], 150_000, 1, 1.0),
    ("SET, -c 50 -P 64", ["SET", "key:1", "value-of-16-byte"], 1_000_000, 64, 0.7),
    ("GET, -c 50 -P 1", ["GET", "key:1"], 150_000, 1, 1.0),
    ("GET, -c 50 -P 64", ["GET", "key:1"], 1_000_000, 64, 0.7),
)


def run(rounds: int, mode: str, scale: float) -> list[Figure]:
    """Measure every case against redis-server in one run of both servers."""
    figures = []
    with redis_server() as (peer, _), rillet_server(mode) as (own, _):
        for port in (peer, own):
            redis_benchmark(port, 10_000, 50, 16, ["SET", "key:1", "value-of-16-byte"])
        for what, command, requests, pipeline, target in CASES:
            count = max(2_000, int(requests * scale))

            def measure(port: int, command: list[str] = command, pipeline: int = pipeline, count: int = count) -> float:
                return redis_benchmark(port, count, 50, pipeline, command)

            peer_speed, own_speed = alternate(rounds, lambda: measure(peer), lambda: measure(own))
            goal = target if mode == "compiled" else None
            figures.append(Figure(what, "redis-server", peer_speed, own_speed, "requests/s", goal, mode))
    return figures

"""An attached store while the application that opened the directory first works: its own process is the owner, or not.

    owner="this"      application process: the engine and the application's own work ←─ socket ── measured client
    owner="process"   application process: its own work; owner process: the engine   ←─ socket ── measured client

The application does nothing, runs a loop in pure Python, sorts a large list again and again, or is stopped (SIGSTOP).
With nothing to do, the row compares the client of an owner process with a client that is attached to another process.
A call that fails counts as ended after its timeout of a second. On a machine that others use, run it with real-time
priority (chrt -r 5): each call waits for the scheduler twice.
"""

from __future__ import annotations

import contextlib
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import rillet
from benchmarks.embedded import FIELDS
from benchmarks.harness import Figure

PEER, TIMEOUT = "owner in the application", 1.0
APPLICATION = """
import random, sys, rillet
store = rillet.open(sys.argv[1], owner=sys.argv[2])
store.execute("PING")
print("open", flush=True)
if sys.argv[3] == "loop":
    while True:
        sum(number * number for number in range(1000))
if sys.argv[3] == "sort":
    numbers = [random.random() for _ in range(1_000_000)]
    while True:
        sorted(numbers)
sys.stdin.read()
"""
STATES = {
    "idle": "does nothing",
    "loop": "runs a loop in pure Python",
    "sort": "sorts a list of a million numbers",
    "stopped": "is stopped",
}


@contextmanager
def application(owner: str, state: str) -> Iterator[Path]:
    """Let an application open a store first, and work; yield the directory."""
    with tempfile.TemporaryDirectory(prefix="rillet-bench-", ignore_cleanup_errors=True) as folder:
        path = Path(folder, "store")
        command = [sys.executable, "-c", APPLICATION, str(path), owner, state]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            process.stdout.readline()
            if state == "stopped":
                os.kill(process.pid, signal.SIGSTOP)
            try:
                yield path
            finally:
                process.kill()


def adds(owner: str, state: str, seconds: float) -> tuple[float, float, float]:
    """Return the adds per second of an attached client, and the median and 99th percentile of a call in µs."""
    clock, taken = time.perf_counter, []
    with application(owner, state) as path, rillet.open(path, timeout=TIMEOUT, owner=owner) as store:  # type: ignore[arg-type]
        assert not store.owner
        stream, until = store.stream("bench"), clock() + seconds
        while (began := clock()) < until:
            with contextlib.suppress(rillet.StoreTimeout):
                stream.add(FIELDS)
            taken.append(clock() - began)
    taken.sort()
    return len(taken) / sum(taken), taken[len(taken) // 2] * 1e6, taken[len(taken) * 99 // 100] * 1e6


def run(rounds: int, scale: float) -> list[Figure]:
    """Measure in the compiled build."""
    figures = []
    for state, text in STATES.items():
        measured: dict[str, list[tuple[float, float, float]]] = {"this": [], "process": []}
        for _ in range(rounds):
            for owner, results in measured.items():
                results.append(adds(owner, state, max(0.3, 3 * scale)))
        peer, own = ([statistics.median(column) for column in zip(*rows, strict=True)] for rows in measured.values())
        what = f"attached Stream.add, the application {text}"
        goal = 0.95 if state == "idle" else None  # as fast as a client of another process, but for noise
        figures += [
            Figure(what, PEER, peer[0], own[0], "entries/s", goal),
            Figure(f"{what}, p50", PEER, peer[1], own[1], "µs", goal, less_is_better=True),
            Figure(f"{what}, p99", PEER, peer[2], own[2], "µs", None, less_is_better=True),
        ]
    return figures

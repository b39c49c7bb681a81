"""Reading the sealed segments of a store's directory into Spark local[2], a count and one sum.

    python -m benchmarks.spark_segments                      five million entries, a limit of 32 MB
    python -m benchmarks.spark_segments --entries 20000000
    python -m benchmarks.spark_segments --cpu                processor time for an entry, by process

One process fills a store with `stream_memory` and keeps it open. The readers alternate, after one turn to warm up:

    files            the option `path`: tasks read the segments
    owner            the owner's socket as `url`: all entries come from the owner, which reads the segments
    owner, memory    the same of a store without a limit, whose entries are in memory
    limit            Arrow batches out of nothing (spark_limit.py)

Each with all five fields, and with the ID and one field. A row has the median, and its ratio to the owner's.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from benchmarks.harness import BUILDS, ROOT, Figure
from benchmarks.processor_time import Meter
from benchmarks.spark_peers import TASKS
from benchmarks.spark_read import KEY, MILLION, NARROW, STEP_MS, Reader, rate, spark_session

LIMIT = "32mb"

_OWN = """
import sys, time, rillet
FIRST = 1_700_000_000_000
from benchmarks.memory import entries
path, count, limit = sys.argv[1], int(sys.argv[2]), sys.argv[3]
rows = entries(min(count, 1_000_000))
with rillet.open(path, stream_memory=limit, appendfsync="no") as store:
    for start in range(0, count, 5_000):
        store.execute_many([[b"XADD", b"{key}", b"%d-0" % (FIRST + number * {step}), *rows[number % len(rows)][1:]]
                            for number in range(start, min(start + 5_000, count))])
    del rows
    while limit != "0" and int((info := store.info())["stream_memory_used"]) > int(info["stream_memory_limit"]):
        time.sleep(0.05)
    print(store.socket, flush=True)
    sys.stdin.read()
""".replace("{key}", KEY).replace("{step}", str(STEP_MS))


@contextmanager
def opened(count: int, limit: str) -> Iterator[tuple[Path, str, int]]:
    """Yield the directory of a store with the stream, and the socket and PID of the process that has it open."""
    with tempfile.TemporaryDirectory(prefix="rillet-bench-") as folder:
        command = [sys.executable, "-c", _OWN, folder, str(count), limit]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT, text=True) as owner:
            assert owner.stdout is not None
            socket = owner.stdout.readline().strip()
            assert socket, "the owner ended"
            yield Path(folder), socket, owner.pid


def measure(rounds: int = 3, count: int = 5 * MILLION, limit: str = LIMIT, cpu: bool = False) -> dict[str, float]:
    """Return the entries per second by reader; cpu: also print the processor time of each read."""
    tasks = {"stream": KEY, "minPartitions": str(TASKS)}
    with ExitStack() as stack:
        folder, socket, owner = stack.enter_context(opened(count, limit))
        _, plain, other = stack.enter_context(opened(count, "0"))
        spark = stack.enter_context(spark_session())
        wide = {
            "files": Reader("rillet", {"path": str(folder), **tasks}),
            "owner": Reader("rillet", {"url": f"unix://{socket}", **tasks}),
            "owner, memory": Reader("rillet", {"url": f"unix://{plain}", **tasks}),
        }
        narrow = {f"{name}, narrow": Reader("rillet", reader.options, NARROW) for name, reader in wide.items()}
        limits = {"limit": Reader("rillet_limit", {"entries": str(count), "tasks": str(TASKS)})}
        found: dict[str, list[float]] = {}
        for turn in range(rounds + 1):
            for name, reader in {**wide, **narrow, **limits}.items():
                with Meter(owner=other if "memory" in name else owner) as meter:
                    speed = rate(spark, reader, count)
                if turn and cpu:
                    print(f"{name:22} {meter.per_row(count)}", flush=True)
                if turn:
                    found.setdefault(name, []).append(speed)
    return {name: statistics.median(speeds) for name, speeds in found.items()}


def figures(rounds: int = 3, scale: float = 1.0) -> list[Figure]:
    """Return the rows of the benchmark table."""
    count = max(int(5 * MILLION * scale), 20_000)
    found = measure(rounds, count)
    what = f"Spark batch read of {count:,} in segments, typed, local[2]"
    through = "the same through the owner"
    return [
        Figure(what, through, found["owner"], found["files"], "entries/s", 1.5),
        Figure(what, f"{through}, in memory", found["owner, memory"], found["files"], "entries/s", None),
        Figure(what + ", ID and one field", through, found["owner, narrow"], found["files, narrow"], "entries/s", None),
    ]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--entries", type=int, default=5 * MILLION)
    parser.add_argument("--limit", default=LIMIT)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cpu", action="store_true")
    given = parser.parse_args()
    assert BUILDS["compiled"].exists(), "build the compiled modules first: make setup"
    speeds = measure(given.rounds, given.entries, given.limit, given.cpu)
    for name, speed in speeds.items():
        peer = speeds["owner, narrow" if "narrow" in name else "owner"]
        print(f"{name:22} {speed:>12,.0f}/s {speed / peer:6.2f}")

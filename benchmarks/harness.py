"""Starts the servers, alternates rounds between the peers, computes medians, prints the table.

Every figure is measured in rounds: peer, rillet, peer, rillet ... so that a machine that speeds up or slows down
affects both. The medians are compared. A ratio above 1 means that rillet is ahead.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tests.judge import free_port, redis_binary

ROOT = Path(__file__).resolve().parent.parent
BUILDS = {
    "compiled": Path(os.environ.get("RILLET_COMPILED", ROOT / "build" / "compiled")),
    "interpreted": ROOT / "src",
}
_START = 600.0  # seconds that a server may take to load its data


@dataclass(frozen=True)
class Figure:
    """One row of the table. The ratio is ours / peer if more is better, else peer / ours."""

    what: str
    peer_name: str
    peer: float
    ours: float
    unit: str
    target: float | None
    mode: str = "compiled"
    less_is_better: bool = False

    @property
    def ratio(self) -> float:
        """The ratio of rillet to its peer; below 1 rillet is behind."""
        return self.peer / self.ours if self.less_is_better else self.ours / self.peer

    def row(self) -> tuple[str, ...]:
        """Return the cells of the printed table."""
        target = "" if self.target is None else f"{self.target:g}"
        verdict = "" if self.target is None else ("yes" if self.ratio >= self.target else "NO")
        return (
            self.what,
            self.mode,
            self.peer_name,
            f"{self.peer:,.4g}" if self.peer < 100 else f"{self.peer:,.0f}",
            f"{self.ours:,.4g}" if self.ours < 100 else f"{self.ours:,.0f}",
            self.unit,
            f"{self.ratio:.2f}",
            target,
            verdict,
        )


def alternate(rounds: int, peer: Callable[[], float], ours: Callable[[], float]) -> tuple[float, float]:
    """Run both functions alternately and return their medians."""
    return alternate_several(rounds, lambda: [peer()], lambda: [ours()])[0]


def alternate_several(
    rounds: int, peer: Callable[[], Sequence[float]], ours: Callable[[], Sequence[float]]
) -> list[tuple[float, float]]:
    """Run both functions, which return several figures, alternately; return their medians, a pair for each figure."""
    peers, own = [], []
    for _ in range(rounds):
        peers.append(peer())
        own.append(ours())
    return [(statistics.median(theirs), statistics.median(found))
            for theirs, found in zip(zip(*peers, strict=True), zip(*own, strict=True), strict=True)]  # fmt: skip


def late_figures(seconds: Sequence[float]) -> tuple[float, float]:
    """Return the median and the 99th percentile of delays, in milliseconds."""
    found = statistics.quantiles(seconds, n=100)
    return found[49] * 1000, found[98] * 1000


@contextmanager
def redis_server(*arguments: str, folder: Path | None = None) -> Iterator[tuple[int, int]]:
    """Start redis-server, without persistence unless the arguments enable it; yield (port, pid)."""
    program = redis_binary()
    assert program is not None, "redis-server is not installed (Debian: apt-get install redis-server)"
    with _running(
        [program, "--save", "", "--appendonly", "no", "--bind", "127.0.0.1", *arguments], None, folder
    ) as found:
        yield found


@contextmanager
def named_server(binary: str, *arguments: str) -> Iterator[tuple[int, int]]:
    """Start a server of Redis or Valkey by its path, without persistence; yield (port, pid)."""
    with _running([binary, "--save", "", "--appendonly", "no", "--bind", "127.0.0.1", *arguments], None, None) as found:
        yield found


@contextmanager
def rillet_server(mode: str = "compiled", *arguments: str, folder: Path | None = None) -> Iterator[tuple[int, int]]:
    """Start `rillet serve` of one build, without persistence unless the arguments enable it; yield (port, pid)."""
    environment = {**os.environ, "PYTHONPATH": str(BUILDS[mode])}
    with _running([sys.executable, "-m", "rillet", "serve", "--save", "", *arguments], environment, folder) as found:
        yield found


@contextmanager
def _running(
    command: Sequence[str], environment: dict[str, str] | None, folder: Path | None
) -> Iterator[tuple[int, int]]:
    with tempfile.TemporaryDirectory(prefix="rillet-bench-") as own:
        port = free_port()
        process = subprocess.Popen(
            [*command, "--port", str(port), "--dir", str(folder or own)],
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            _until_ready(port, process)
            yield port, process.pid
        finally:
            process.terminate()
            process.wait(timeout=60)


def _until_ready(port: int, process: subprocess.Popen[bytes]) -> None:
    """Wait until the server answers PING. While loading, Redis answers LOADING, and rillet does not listen."""
    deadline = time.monotonic() + _START
    while time.monotonic() < deadline:
        assert process.poll() is None, f"{process.args!r} ended at once"
        try:
            with socket.create_connection(("127.0.0.1", port)) as connection:
                connection.sendall(b"PING\r\n")
                if connection.recv(16).startswith(b"+PONG"):
                    return
        except OSError:
            pass
        time.sleep(0.005)
    raise AssertionError(f"{process.args!r} did not answer in time")


def redis_benchmark(port: int, requests: int, clients: int, pipeline: int, command: Sequence[str]) -> float:
    """Return the requests per second that redis-benchmark reports for one command."""
    program = shutil.which("redis-benchmark")
    assert program is not None, "redis-benchmark is not installed (Debian: apt-get install redis-tools)"
    done = subprocess.run(
        [program, "-p", str(port), "-n", str(requests), "-c", str(clients), "-P", str(pipeline), "--csv", *command],
        check=True,
        capture_output=True,
        text=True,
        timeout=600,
    )
    last = done.stdout.strip().splitlines()[-1]
    return float(last.split('","')[1].strip('"'))


def cpu_us(pid: int) -> float:
    """Return the CPU time of the process in microseconds, including ended threads."""
    clock = (~pid << 3) | 2  # clock_getcpuclockid(3)
    return time.clock_gettime_ns(clock) / 1000


def resident_bytes(pid: int) -> int:
    """Return the resident memory of a process."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def loaded(rows: Sequence[dict[str, Any]]) -> list[Figure]:
    """Return the figures that `report` wrote as JSON."""
    return [Figure(**{key: value for key, value in row.items() if key != "ratio"}) for row in rows]


def report(figures: Sequence[Figure], target: Path) -> None:
    """Print the table and write the figures as JSON."""
    head = ("what", "build", "against", "peer", "rillet", "unit", "ratio", "at least", "reached")
    rows = [head, *(figure.row() for figure in figures)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
    for number, row in enumerate(rows):
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
        if number == 0:
            print("  ".join("-" * width for width in widths))
    machine = {"python": platform.python_version(), "machine": platform.machine(), "cores": os.cpu_count()}
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(
        json.dumps({"machine": machine, "figures": [{**asdict(f), "ratio": f.ratio} for f in figures]}, indent=1)
    )
    print(f"\nwritten: {target}")


__all__ = [
    "Figure",
    "alternate",
    "cpu_us",
    "loaded",
    "named_server",
    "redis_benchmark",
    "redis_server",
    "report",
    "resident_bytes",
    "rillet_server",
]

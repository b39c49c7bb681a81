"""Processor time of a Spark job by process: the server, Spark's JVM, its Python workers, and this program.

    with Meter(server=pid) as meter: ...
    print(meter.per_row(rows))

    python -m benchmarks.processor_time     how much longer the same work takes while all cores are busy

The processes below this one are found in /proc: the JVM by its name, its descendants are the Python workers. A worker
that ends meanwhile is not counted. `busy` is the share of all cores that these processes used.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType

from benchmarks.harness import cpu_us


def _parents() -> dict[int, tuple[int, str]]:
    """Return the parent and the name of every process."""
    found = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                name, _, rest = (folder / "stat").read_text().partition(" (")[2].rpartition(") ")
            except OSError:  # the process has ended
                continue
            found[int(folder.name)] = int(rest.split()[1]), name
    return found


def _by_process(servers: dict[str, int]) -> dict[int, str]:
    """Return the name of each process that is measured: of the servers, `JVM`, `workers` or `driver`."""
    parents = _parents()
    kinds = {os.getpid(): "driver", **{pid: name for name, pid in servers.items()}}
    for pid in parents:
        chain, at = [pid], pid
        while at in parents and at != os.getpid():
            at = parents[at][0]
            chain.append(at)
        if at == os.getpid() and pid not in kinds:
            if any(parents[one][1] == "java" for one in chain[1:] if one in parents):
                kinds[pid] = "workers"
            elif parents[pid][1] == "java":
                kinds[pid] = "JVM"
    return kinds


class Meter:
    """Measures processor time by process between `__enter__` and `__exit__`; servers: their process IDs by name."""

    def __init__(self, **servers: int) -> None:
        self.servers = servers
        self.used: dict[str, float] = {}  # microseconds by process
        self.seconds = 0.0

    def _times(self) -> dict[int, float]:
        times = {}
        for pid in _by_process(self.servers):
            try:
                times[pid] = cpu_us(pid)
            except OSError:
                continue
        return times

    def __enter__(self) -> Meter:
        self._before = self._times()
        self._began = time.perf_counter()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.seconds = time.perf_counter() - self._began
        names = _by_process(self.servers)
        self.used = {}
        for pid, spent in self._times().items():
            name = names.get(pid, "workers")
            self.used[name] = self.used.get(name, 0.0) + spent - self._before.get(pid, 0.0)

    def per_row(self, rows: int) -> str:
        """Return the microseconds per row of each process, of the clock, and the share of all cores in use."""
        parts = [f"{name} {spent / rows:.2f}" for name, spent in sorted(self.used.items())]
        busy = sum(self.used.values()) / 1e6 / self.seconds / (os.cpu_count() or 1)
        return f"{', '.join(parts)}; clock {1e6 * self.seconds / rows:.2f} us/row; busy {busy:.0%}"


_WORK = """
import sys, time
from benchmarks.spark_limit import made
texts = made("typed").column("session").to_pylist()
sys.stdin.readline()
for turn in range(30):
    began = time.process_time()
    for _ in range(20):
        sorted(set(texts))
    print(time.process_time() - began)
"""


def slowdown(processes: int) -> float:
    """Return the median processor time of a fixed piece of work, done by so many processes at the same time."""
    running = [
        subprocess.Popen([sys.executable, "-c", _WORK], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        for _ in range(processes)
    ]
    for process in running:
        assert process.stdin is not None
        process.stdin.write(b"\n")
        process.stdin.flush()
    found = [float(line) for process in running for line in process.communicate()[0].split()]
    return statistics.median(found)


if __name__ == "__main__":
    one = slowdown(1)
    for count in range(2, 1 + (os.cpu_count() or 1)):
        print(f"{count} processes at the same time: {slowdown(count) / one:.2f} times the processor time of one")

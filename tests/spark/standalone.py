"""A real Spark standalone cluster on loopback: a master and workers, each a process, started, killed, stopped here.

    master
    worker 0 ── executor of an application ── Python's daemon ── Python workers       ── from a process to its child
    worker 1 ── executor of an application ── ...

The pip package has no start-master script; its bin/spark-class starts the same classes. The workers' environment has
no PYTHONPATH, so their executors know of a package only what was shipped to them. Ready is when the master's page says
that every worker has registered.

Loopback has two names, and the workers take them in turn: Spark starts no speculative attempt on the host of the first.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from tests.judge import free_port

MASTER = "org.apache.spark.deploy.master.Master"
SMALL_JAVA = (  # it lives for seconds, and loads thousands of classes of Spark, which need not be verified
    "-XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote -XX:+UseSerialGC -XX:TieredStopAtLevel=1"
)
WORKER = "org.apache.spark.deploy.worker.Worker"
EXECUTOR = b"CoarseGrainedExecutorBackend"
HOSTS = ("127.0.0.1", "localhost")


class Process(NamedTuple):
    """A running process, as /proc tells it."""

    pid: int
    parent: int
    session: int
    line: bytes


def processes() -> list[Process]:
    """Return all processes that run, those with the smallest numbers first."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, IndexError, ValueError):
            told = (folder / "stat").read_text().rpartition(")")[2].split()
            if told[0] != "Z":
                found.append(Process(int(folder.name), int(told[1]), int(told[3]), (folder / "cmdline").read_bytes()))
    return sorted(found)


def below(parents: set[int], among: list[Process]) -> list[Process]:
    """Return children, their children and so on, in that order."""
    children = [process for process in among if process.parent in parents]
    return [*children, *below({child.pid for child in children}, among)] if children else []


def kill(*pids: int) -> None:
    """End processes at once, those that are still there."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


@dataclass
class Standalone:
    """A running cluster: the url that `--master` takes, and its processes, of which the first is the master."""

    url: str
    page: str
    folder: Path
    environment: dict[str, str]
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def state(self) -> dict[str, list[dict[str, object]]]:
        """Return what the master's page says, as JSON."""
        with urllib.request.urlopen(self.page, timeout=10) as answer:
            told: dict[str, list[dict[str, object]]] = json.load(answer)
            return told

    def start(self, name: str, *words: str) -> subprocess.Popen[bytes]:
        """Start one process of the cluster; what it prints is in <name>.log."""
        with open(self.folder / f"{name}.log", "ab") as log:
            command = [str(spark_home() / "bin" / "spark-class"), *words]
            return subprocess.Popen(command, env=self.environment, stdout=log, stderr=log, cwd=self.folder)

    def start_worker(self, number: int) -> subprocess.Popen[bytes]:
        """Start a worker of one core; it asks until the master answers."""
        return self.start(f"worker{number}", WORKER, "--host", HOSTS[number % len(HOSTS)], "--webui-port", "0",
                          "--cores", "1", "--memory", "1g", "--work-dir", str(self.folder / f"work{number}"),
                          self.url)  # fmt: skip

    def executors(self) -> list[Process]:
        """Return the executors of the application that was started last."""
        workers = {process.pid for process in self.processes[1:]}
        found = [process for process in processes() if process.parent in workers and EXECUTOR in process.line]
        newest = max(map(application, found), default=b"")
        return [process for process in found if application(process) == newest]

    def strike_worker(self, number: int) -> None:
        """Kill a worker, its executors and their Python processes, as if their machine had lost its power; start it."""
        process = self.processes[1 + number]
        kill(process.pid, *(child.pid for child in below({process.pid}, processes())))
        process.wait()
        self.processes[1 + number] = self.start_worker(number)

    def logs(self) -> str:
        """Return the ends of all logs, for a failure's message."""
        logs = [*self.folder.glob("*.log"), *self.folder.glob("work*/*/*/std*")]
        return "\n".join(f"== {path}\n{path.read_text(errors='replace')[-3000:]}" for path in logs)


def application(executor: Process) -> bytes:
    """Return which application an executor is of; a later one has a greater name."""
    found = re.search(rb"app-\d+-\d+", executor.line)
    return found[0] if found else b""


def spark_home() -> Path:
    """Return the folder of Spark's scripts and jars."""
    import pyspark

    return Path(pyspark.__file__).parent


def plain_environment() -> dict[str, str]:
    """Return an environment in which a Python knows nothing but what is installed, and Spark only this machine."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "SPARK", "PYSPARK"))}
    return {**kept, "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_HOME": str(spark_home()),
            "SPARK_DAEMON_MEMORY": "256m", "SPARK_DAEMON_JAVA_OPTS": SMALL_JAVA}  # fmt: skip


@contextmanager
def running_standalone(folder: Path, workers: int = 2) -> Iterator[Standalone]:
    """Start a master and workers of one core each; wait until all have registered."""
    port, page = free_port(), free_port()
    folder.mkdir(parents=True, exist_ok=True)
    cluster = Standalone(f"spark://127.0.0.1:{port}", f"http://127.0.0.1:{page}/json/", folder, plain_environment())
    try:
        words = ("--host", "127.0.0.1", "--port", str(port), "--webui-port", str(page))
        cluster.processes.append(cluster.start("master", MASTER, *words))
        cluster.processes += [cluster.start_worker(number) for number in range(workers)]
        _wait(cluster, workers)
        yield cluster
    finally:
        for process in cluster.processes:
            process.terminate()
        for process in cluster.processes:
            process.wait(timeout=120)


def _wait(cluster: Standalone, workers: int) -> None:
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline:
        assert all(process.poll() is None for process in cluster.processes), cluster.logs()
        try:
            if len(cluster.state()["workers"]) == workers:
                return
        except (OSError, ValueError):
            pass  # the page is not there yet
        time.sleep(0.05)
    raise AssertionError(f"the workers did not register within five minutes\n{cluster.logs()}")

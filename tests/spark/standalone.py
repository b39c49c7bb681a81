"""A real Spark standalone cluster on loopback: a master and workers, each a process, started and stopped here.

The pip package has no start-master script; its bin/spark-class starts the same classes. The workers' environment has
no PYTHONPATH, so their executors know of a package only what was shipped to them. Ready is when the master's page says
that every worker has registered.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.judge import free_port

MASTER = "org.apache.spark.deploy.master.Master"
SMALL_JAVA = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"  # it lives for seconds
WORKER = "org.apache.spark.deploy.worker.Worker"


@dataclass
class Standalone:
    """A running cluster: the url that `--master` takes, and its processes."""

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

    def start(self, name: str, *words: str) -> None:
        """Start one process of the cluster; what it prints is in <name>.log."""
        with open(self.folder / f"{name}.log", "wb") as log:
            command = [str(spark_home() / "bin" / "spark-class"), *words]
            self.processes.append(
                subprocess.Popen(command, env=self.environment, stdout=log, stderr=log, cwd=self.folder)
            )

    def logs(self) -> str:
        """Return the ends of all logs, for a failure's message."""
        logs = [*self.folder.glob("*.log"), *self.folder.glob("work*/*/*/std*")]
        return "\n".join(f"== {path}\n{path.read_text(errors='replace')[-3000:]}" for path in logs)


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
        cluster.start("master", MASTER, "--host", "127.0.0.1", "--port", str(port), "--webui-port", str(page))
        for number in range(workers):  # they ask until the master answers
            cluster.start(f"worker{number}", WORKER, "--host", "127.0.0.1", "--webui-port", "0", "--cores", "1",
                          "--memory", "1g", "--work-dir", str(folder / f"work{number}"), cluster.url)  # fmt: skip
        _wait(cluster, workers)
        yield cluster
    finally:
        for process in cluster.processes:
            process.terminate()
        for process in cluster.processes:
            process.wait(timeout=20)


def _wait(cluster: Standalone, workers: int) -> None:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        assert all(process.poll() is None for process in cluster.processes), cluster.logs()
        try:
            if len(cluster.state()["workers"]) == workers:
                return
        except (OSError, ValueError):
            pass  # the page is not there yet
        time.sleep(0.05)
    raise AssertionError(f"the workers did not register within two minutes\n{cluster.logs()}")

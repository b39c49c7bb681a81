"""A Spark of several processes over a Redis cluster of several nodes, with the package shipped to executors without.

Then its executors are lost: at the moments that are the worst for the sink, each of them once (struck_executors.py),
and at any moment, and a node of the cluster with them (ledger.py has the long form).
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import rillet
from rillet.client.servers import Servers
from rillet.spark.java import JavaMissing, require_java
from rillet.spark.options import parse
from rillet.spark.packaging import archive, package
from tests.cluster import MASTERS, Cluster
from tests.judge import Judge
from tests.spark.ledger import ROOT, environment, run
from tests.spark.standalone import SMALL_JAVA, Standalone, running_standalone, spark_home

pytest.importorskip("pyspark")
pytestmark = [pytest.mark.spark, pytest.mark.slow]

ENTRIES = 2000
DRIVER = Path(__file__).with_name("standalone_driver.py")
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.log.level": "ERROR",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.memory": "512m",
    "spark.executor.memory": "512m",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.extraJavaOptions": SMALL_JAVA,
    "spark.executor.extraJavaOptions": SMALL_JAVA,
}


@pytest.fixture(scope="module")
def standalone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    """A master and two workers, for all tests here."""
    try:
        require_java()
    except JavaMissing as missing:
        pytest.skip(str(missing))
    with running_standalone(tmp_path_factory.mktemp("standalone")) as started:
        yield started


def submit(standalone: Standalone, plan: dict[str, Any], *words: str) -> dict[str, Any]:
    """Run the driver on the cluster; return what it told."""
    settings = [word for name, value in SETTINGS.items() for word in ("--conf", f"{name}={value}")]
    python = {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
    command = [str(spark_home() / "bin" / "spark-submit"), "--master", standalone.url, *settings, *words]
    ended = subprocess.run(
        [*command, str(DRIVER), json.dumps(plan)], env={**standalone.environment, **python},
        cwd=standalone.folder, capture_output=True, text=True, timeout=500,
    )  # fmt: skip
    assert ended.returncode == 0, f"{ended.stdout}\n{ended.stderr}\n{standalone.logs()}"
    told: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    return told


@pytest.mark.long
def test_source_sink_and_archive_on_several_executors_and_nodes(
    standalone: Standalone, cluster: Cluster, tmp_path: Path
) -> None:
    streams = [cluster.key_of(share, "events:") for share in range(MASTERS)]
    everything = [MASTERS * ENTRIES, *(MASTERS * sum(n**power for n in range(ENTRIES)) for power in (1, 2))]
    plan = {"url": cluster.url, "streams": streams, "folder": str(tmp_path)}
    with Servers(parse({"url": cluster.url, "stream": "events"})) as servers:
        for key in (stream.encode() for stream in streams):
            servers.calls(key, [(b"XADD", key, b"%d-1" % (n + 1), b"n", b"%d" % n) for n in range(ENTRIES)])
        shipped = ("--py-files", str(package(tmp_path)), "--archives", f"{archive(tmp_path / 'new')}#shipped")
        told = submit(standalone, plan, *shipped)
        assert told["imported"] == [["./rillet-" + rillet.__version__ + ".zip/rillet/__init__.py", False]] * 2
        assert [speed for _, speed in told["unpacked"]] == [rillet.compiled()] * 2
        assert all(place.endswith("/shipped/rillet/__init__.py") for place, _ in told["unpacked"])
        assert told["batch"] == told["parquet"] == everything
        assert told["tasks"] >= 2
        assert told["formats"] == {"rillet": everything[0], "parquet": everything[0]}
        assert told["archived"] == everything[0]
        for key in (stream.encode() for stream in streams):
            assert servers.call(b"copy:" + key, b"XLEN", b"copy:" + key) == ENTRIES
        assert servers.call(b"followed", b"XLEN", b"followed") == everything[0]


@pytest.mark.long
def test_executors_lost_at_the_worst_moments(standalone: Standalone, judge: Judge, url: str, tmp_path: Path) -> None:
    per_batch, batches = 1000, 4
    events = list(range(per_batch * batches))
    with judge.client() as client:
        pipe = client.pipeline(transaction=False)
        for n in events:
            pipe.execute_command("XADD", "events", f"{n + 1}-0", "n", n, "name", f"event {n:06} of them all")
        pipe.execute()
    plan = json.dumps({"master": standalone.url, "url": url, "folder": str(tmp_path)})
    ended = subprocess.run(
        [sys.executable, "-m", "tests.spark.struck_executors", plan],
        cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=500, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, f"{ended.stderr[-5000:]}\n{standalone.logs()}"
    with judge.client() as client:
        copied = [int(flat[1]) for _, flat in client.execute_command("XRANGE", "once", "-", "+")]
    assert copied == events, "each once, and in the order of the stream"
    attempts = {moment: len(list(tmp_path.glob(f"{moment}.*"))) for moment in ("0.0", "1.0", "2.1", "3.1")}
    assert attempts.pop("0.0") == 1, "what was finished is not run again"
    assert all(count >= 2 for count in attempts.values()), attempts
    assert (tmp_path / "orphan").read_text() == "written", "it found its rows in the stream, and added none"
    assert (tmp_path / "overtaken").exists()


@pytest.mark.long
def test_each_event_comes_out_once_whatever_is_killed(standalone: Standalone, tmp_path: Path) -> None:
    victims = ("executor", "server")
    figures = run("cluster", "parquet", len(victims), 2, tmp_path, standalone, victims)
    assert figures.events >= 2000
    assert figures.struck == dict.fromkeys(victims, 1)

"""A Spark of several processes over a Redis cluster of several nodes, with the package shipped to executors without."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import rillet
from rillet.spark.java import JavaMissing, require_java
from rillet.spark.options import parse
from rillet.spark.servers import Servers
from rillet.spark.shipping import archive, package
from tests.cluster import MASTERS, Cluster
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


def test_source_sink_and_archive_where_everything_is_more_than_one(cluster: Cluster, tmp_path: Path) -> None:
    try:
        require_java()
    except JavaMissing as missing:
        pytest.skip(str(missing))
    streams = [cluster.key_of(share, "events:") for share in range(MASTERS)]
    everything = [MASTERS * ENTRIES, *(MASTERS * sum(n**power for n in range(ENTRIES)) for power in (1, 2))]
    plan = {"url": cluster.url, "streams": streams, "folder": str(tmp_path)}
    with (
        Servers(parse({"url": cluster.url, "stream": "events"})) as servers,
        running_standalone(tmp_path / "standalone") as standalone,
    ):
        for key in (stream.encode() for stream in streams):
            servers.calls(key, [(b"XADD", key, b"%d-1" % (n + 1), b"n", b"%d" % n) for n in range(ENTRIES)])
        shipped = ("--py-files", str(package(tmp_path)), "--archives", f"{archive(tmp_path)}#shipped")
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

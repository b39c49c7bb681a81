"""The connector over Spark Connect, with a real Connect server."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from rillet.spark.java import JavaMissing, require_java
from tests.judge import Judge, free_port
from tests.spark.standalone import SMALL_JAVA
from tests.variants import long

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]

ENTRIES = 10_000
DRIVER = Path(__file__).with_name("connect_driver.py")


@contextmanager
def serving(spark: SparkSession) -> Iterator[str]:
    """Run a Connect server in the JVM of a session; yield its address."""
    context = spark.sparkContext
    assert context._jvm is not None
    service = context._jvm.org.apache.spark.sql.connect.service.SparkConnectService
    port = free_port()
    context._jsc.sc().conf().set("spark.connect.grpc.binding.port", str(port))
    service.start(context._jsc.sc())
    try:
        yield f"sc://127.0.0.1:{port}"
    finally:
        none = context._jvm.scala.Option.empty()
        service.stop(none, none)


@pytest.mark.parametrize("server", ["shared", *long("own")])
def test_read_follow_write_and_archive_over_connect(
    judge: Judge, url: str, tmp_path: Path, server: str, request: pytest.FixtureRequest
) -> None:
    """The client is a process; its server runs in the JVM of the other tests, or is started by the client."""
    pytest.importorskip("grpc")
    try:
        require_java()
    except JavaMissing as missing:
        pytest.skip(str(missing))
    with judge.client() as client:
        pipe = client.pipeline(transaction=False)
        for n in range(ENTRIES):
            pipe.execute_command("XADD", "events", f"{n + 1}-0", "n", n)
        pipe.execute()
    plan = {"url": url, "folder": str(tmp_path), "id": "5000-0", "remote": "local[2]"}
    if server == "own":
        settings = {"spark.ui.enabled": "false", "spark.driver.extraJavaOptions": SMALL_JAVA,
                    "spark.driver.memory": "1g", "spark.sql.shuffle.partitions": "2",
                    "spark.log.level": "ERROR"}  # fmt: skip
        told = told_by({**plan, "settings": settings})
    else:
        with serving(request.getfixturevalue("spark")) as remote:
            told = told_by({**plan, "remote": remote, "settings": {}})
    total = ENTRIES * (ENTRIES - 1) // 2
    assert told["session"] == "pyspark.sql.connect.session"
    assert told["batch"] == told["history"] == [ENTRIES, total]
    assert told["tasks"] == 2  # the server's parallelism
    assert (told["filtered"], told["followed"]) == (1, ENTRIES)
    assert told["progress"] == [ENTRIES, {"events": 0}, {}]
    with judge.client() as client:
        assert client.xlen("copy") == ENTRIES
    assert told["archived"] == [ENTRIES, ENTRIES - 1, 3]
    assert told["merged"] >= 3
    assert told["error"].startswith("rillet: there is no stream 'absent' at 127.0.0.1:")


def told_by(plan: dict[str, Any]) -> dict[str, Any]:
    """Run the client; return what it saw."""
    ended = subprocess.run(
        [sys.executable, str(DRIVER), json.dumps(plan)], capture_output=True, text=True, timeout=300,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"},
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    told: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    return told

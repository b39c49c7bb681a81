"""The connector over Spark Connect, with a real Connect server."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from rillet.spark.java import JavaMissing, require_java
from tests.judge import Judge
from tests.spark.standalone import SMALL_JAVA

pytestmark = [pytest.mark.spark, pytest.mark.slow]

ENTRIES = 10_000
DRIVER = Path(__file__).with_name("connect_driver.py")


def test_read_follow_write_and_archive_over_connect(judge: Judge, url: str, tmp_path: Path) -> None:
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
        settings = {"spark.ui.enabled": "false", "spark.driver.extraJavaOptions": SMALL_JAVA,
                    "spark.sql.shuffle.partitions": "2", "spark.log.level": "ERROR"}  # fmt: skip
        plan = {"url": url, "folder": str(tmp_path), "id": "5000-0", "settings": settings}
        ended = subprocess.run(
            [sys.executable, str(DRIVER), json.dumps(plan)], capture_output=True, text=True, timeout=300,
            env={**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"},
        )  # fmt: skip
        assert ended.returncode == 0, ended.stderr
        told = json.loads(ended.stdout.splitlines()[-1])
        total = ENTRIES * (ENTRIES - 1) // 2
        assert told["session"] == "pyspark.sql.connect.session"
        assert told["batch"] == told["history"] == [ENTRIES, total]
        assert told["tasks"] == 2  # the server's parallelism
        assert (told["filtered"], told["followed"]) == (1, ENTRIES)
        assert told["progress"] == [ENTRIES, {"events": 0}, {}]
        assert client.xlen("copy") == ENTRIES
        assert told["archived"] == [ENTRIES, ENTRIES - 1, 3]
        assert told["merged"] >= 3
        assert told["error"].startswith("rillet: there is no stream 'absent' at 127.0.0.1:")

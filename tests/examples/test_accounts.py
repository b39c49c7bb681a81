"""The accounts: workers are killed and partitions are added; each movement is applied once, in its order."""

from __future__ import annotations

import sys

import pytest

from tests.examples.processes import LIMIT, start

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform == "win32", reason="needs Unix sockets and SIGKILL"),
]
PROGRAM = "accounts/accounts.py"
APPLIED = ["50 accounts, 8 movements each, 8 partitions, 0 pending", "every movement was applied once, in its order"]


def test_the_demonstration() -> None:
    said, _ = start(PROGRAM, "--movements", 8).communicate(timeout=LIMIT)
    lines = said.splitlines()
    assert lines[-2:] == APPLIED, said
    assert sum("kill -9" in line for line in lines) > 0


@pytest.mark.long  # tests/spark/test_accounts.py has the sums without a Spark of its own
@pytest.mark.spark
def test_spark_has_the_same_sums() -> None:
    pytest.importorskip("pyspark")
    said, _ = start(PROGRAM, "--movements", 8, "--spark").communicate(timeout=2 * LIMIT)
    lines = said.splitlines()  # with Spark's log between
    assert lines[-1] == "Spark: the same sums of 50 accounts", said
    assert {*APPLIED} <= {*lines}, said
    assert sum("kill -9" in line for line in lines) > 0

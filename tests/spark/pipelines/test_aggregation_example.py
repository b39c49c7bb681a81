"""The program for aggregations in docs/pipelines.md runs: hashes in update mode, and a stream of complete windows."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.judge import Judge

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = Path(__file__).parents[3] / "docs" / "pipelines.md"
NOON = 1_714_564_800_000  # 2024-05-01T12:00:00Z


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.long
def test_the_program_aggregates_streams_into_hashes_and_a_stream(
    spark: SparkSession, judge: Judge, url: str, tmp_path: Path
) -> None:
    (program,) = re.findall(r"^## Aggregation.*?^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    for written, run in (
        ('rillet.spark.session("local[*]", "delays")', "spark"),
        ("redis://localhost", url),
        ("delays.checkpoint", str(tmp_path)),
        ('processingTime="30 seconds"', "availableNow=True"),
        ("spark.streams.awaitAnyTermination()", ""),
    ):
        assert written in program
        program = program.replace(written, run)
    names: dict[str, Any] = {"spark": spark}
    with judge.client() as client:

        def add(stream: str, ms: int, carrier: str, delay: int) -> None:
            client.execute_command("XADD", stream, f"{ms}-*", "carrier", carrier, "dep_delay", delay)

        for n in range(10):
            add("flights:jfk", NOON + n * 60_000, "AA", n * 4)
            add("flights:lga", NOON + n * 60_000, "UA", 10)
        add("flights:lga", NOON + 10 * 3_600_000, "UA", 0)
        exec(compile(program, PAGE.name, "exec"), names)
        for query in spark.streams.active:
            query.awaitTermination()
        spark.catalog.dropTempView("flights")
        flat = client.execute_command("HGETALL", "delays:2024-05-01T12:AA")
        found = dict(zip(flat[::2], flat[1::2], strict=True))
        assert found[b"flights"] == b"10"
        assert found[b"late"] == b"6"
        assert float(found[b"mean_delay"]) == 18.0
        assert len(client.keys("delays:*")) == 3
        windows = [dict(zip(flat[::2], flat[1::2], strict=True)) for _, flat in
                   client.execute_command("XRANGE", "delays", "-", "+")]  # fmt: skip
        assert {(one[b"hour"], one[b"carrier"], one[b"flights"]) for one in windows} == {
            (b"2024-05-01T12", b"AA", b"10"), (b"2024-05-01T12", b"UA", b"10")
        }  # fmt: skip

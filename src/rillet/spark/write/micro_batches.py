"""The function for `writeStream.foreachBatch` that rillet.spark.foreach_batch and write_batch return.

Two things are common to both:

- A repeated batch must have the same tasks, or its rows cannot be compared with those that were written. But adaptive
  execution merges the partitions of a shuffle by the number of cores, and this changes when an executor is lost. So
  while rows are added, partitions are merged by their size alone.
- The query has a record on the server, which shows committed batches that the server has lost (query_record.py). Over
  Spark Connect, where the function does not know its query, there is no record.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from rillet.client.servers import Servers
from rillet.spark.options import Options
from rillet.spark.table_options import TableOptions
from rillet.spark.write.commits import name_in_keys
from rillet.spark.write.query_record import query_of, write_recorded

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Save = Callable[["DataFrame", int], None]
_MERGES_BY_CORES = "spark.sql.adaptive.coalescePartitions.parallelismFirst"


def saving(options: Options | TableOptions, place: str, recorded: bool, adds: bool, save: Save) -> Save:
    """Return a function that saves a micro-batch and records it.

    place: what distinguishes this target from other targets of the query. recorded: whether there is a record. adds:
    whether a repeated batch would change the result if `save` did not recognize its rows.
    """

    def save_steadily(batch: DataFrame, number: int) -> None:
        if not adds:
            save(batch, number)
            return
        settings = batch.sparkSession.conf  # of the query: each streaming query has its own session
        earlier = settings.get(_MERGES_BY_CORES, "true")
        settings.set(_MERGES_BY_CORES, "false")
        try:
            save(batch, number)
        finally:
            settings.set(_MERGES_BY_CORES, earlier or "true")

    def write(batch: DataFrame, number: int) -> None:
        query = query_of(batch) if recorded else None
        if query is None:
            save_steadily(batch, number)
            return
        with Servers(options) as servers:
            record = name_in_keys(f"{query} {place}")
            write_recorded(servers, options, record, number, partial(save_steadily, batch, number))

    return write

"""`merge_batch`: merges the micro-batches of a streaming query into a Delta table by key, each exactly once.

    upsert = rillet.spark.merge_batch("s3://bucket/delays", keys=["hour", "carrier"])
    delays.writeStream.outputMode("update").foreachBatch(upsert).option("checkpointLocation", ...).start()

The entry of Delta's log that has the rows of a micro-batch also has a transaction: the ID of the query, and the number
of the micro-batch. Spark repeats a micro-batch after a failure; one whose number the table has is skipped. The driver
merges, with the package `deltalake`, so the rows of a micro-batch must fit into its memory.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rillet.extras import require
from rillet.spark.archive.files import ArchiveError
from rillet.spark.archive.targets import delta_storage
from rillet.spark.options import OptionError
from rillet.spark.write.query_record import query_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_ATTEMPTS = 20


def merge_batch(
    table: str | Path, *, keys: Sequence[str], storage_options: Mapping[str, str] | None = None
) -> Callable[[DataFrame, int], None]:
    """Return a function for `writeStream.foreachBatch` that merges each micro-batch into a Delta table by key.

    table: a folder or a URL; a table that does not exist is created with the columns of the first micro-batch, and with
    Delta's change data feed, which has the rows before and after. keys: the columns that identify a row; null equals
    null. A micro-batch with two rows of a key is an ArchiveError. storage_options: as for deltalake.
    """
    require("delta", "merge_batch")
    if not keys or isinstance(keys, str):
        raise OptionError(f"rillet: keys is {keys!r}: expected a list of columns")
    place = delta_storage(table, storage_options)

    def merge(batch: DataFrame, number: int) -> None:
        query = query_of(batch)
        if query is None:
            raise OptionError("rillet: merge_batch does not know its query over Spark Connect: use a classic session")
        rows = batch.toArrow()
        if missing := [name for name in keys if name not in rows.column_names]:
            raise OptionError(f"rillet: the micro-batch has no column {missing[0]}: keys names it")
        if rows.num_rows and max(rows.group_by(list(keys)).aggregate([([], "count_all")])["count_all"].to_pylist()) > 1:
            raise ArchiveError(f"rillet: micro-batch {number} has several rows of a key ({', '.join(keys)})")
        _merge(place.uri, place.storage_options, rows, keys, query, number)

    return merge


def _merge(uri: str, options: dict[str, str], rows: Any, keys: Sequence[str], query: str, number: int) -> None:
    """Merge rows, unless the table has the number of the query; repeat it if another writer was faster."""
    from deltalake import CommitProperties, DeltaTable, Schema, Transaction
    from deltalake.exceptions import CommitFailedError

    DeltaTable.create(
        uri, Schema.from_arrow(rows.schema), mode="ignore", storage_options=options,
        configuration={"delta.enableChangeDataFeed": "true"},
    )  # fmt: skip
    transaction = Transaction(query, number, int(time.time() * 1000))
    once = CommitProperties(max_commit_retries=0, app_transactions=[transaction])
    condition = " AND ".join(f"t.`{name}` IS NOT DISTINCT FROM s.`{name}`" for name in keys)
    columns = {f"`{name}`": f"s.`{name}`" for name in rows.column_names}
    for attempt in range(_ATTEMPTS):
        table = DeltaTable(uri, storage_options=options)
        merged = table.transaction_version(query)
        if merged is not None and merged >= number:
            return
        try:
            merge = table.merge(rows, condition, "s", "t", commit_properties=once)
            merge.when_matched_update(columns).when_not_matched_insert(columns).execute()
            return
        except CommitFailedError:
            if attempt + 1 == _ATTEMPTS:
                raise
            time.sleep(min(0.05 * attempt, 1.0))

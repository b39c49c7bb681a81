"""Redis Streams as a PySpark data source named `rillet`: batch and streaming, read and write.

    from rillet.spark import register
    register(spark)                        # or: spark.dataSource.register(RilletDataSource)
    spark.read.format("rillet").option("url", "redis://localhost:6379/0").option("stream", "events").load()

The modules, from Spark's side to the server's side:

    source.py       RilletDataSource, its batch reader and its streaming reader
    sink.py         the batch writer and the streaming writer
    functions.py    `read_batch` and `write_batch`: the same without a data source, for Spark 3.5
    spark_versions.py  what differs between versions of PySpark
    options.py      the options of streams, and what all types have in common; all mistakes are reported in one error
    delta_merge.py  `merge_batch`: micro-batches into a Delta table by key
    sessions.py     `session`: a local Spark with the connector; `history`: an archive and its streams as one table
    java.py         `require_java`: checks that Spark can start
    errors.py       `reason`: extracts rillet's error message from a Spark exception
    metrics.py      `progress`: the number of entries that a streaming query has not read yet; `lost_batches` of a sink
    lag_listener.py `LagListener`: these numbers as metrics of Prometheus
    packaging.py    packs rillet into one file, for executors on hosts where it is not installed
    column_types.py checks that Arrow columns and stream fields can be converted
    read/           offsets, planning, pages, schema inference, filters, data loss, history
    write/          encoding, pipelining and committing rows; exactly once
    changes/        format("rillet.changes"): every change of a server as a row
    tables/         hashes, strings, lists, sets, sorted sets, JSON and keys as tables; their options: table_options.py
    groups/         consumer groups that follow the checkpoint (groupMode=follow) or deliver entries (deliver)
    archive/        the Parquet archive of streams: a folder with its manifest, or a Delta table; its file reader
    connect.py      what differs over Spark Connect
    pipelines/      archive, replay, migrate, lag and other jobs, as functions and as `rillet pipeline` commands.
                    The connector does not import them.

pyspark and pyarrow are part of the `spark` extra; importing this package needs neither.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from rillet.spark.java import JavaMissing, require_java
from rillet.spark.sessions import history, session

if TYPE_CHECKING:
    from rillet.spark.delta_merge import merge_batch
    from rillet.spark.errors import reason
    from rillet.spark.functions import read_batch, write_batch
    from rillet.spark.lag_listener import LagListener
    from rillet.spark.metrics import Progress, lost_batches, progress
    from rillet.spark.source import RilletDataSource, register
    from rillet.spark.tables.lookup import enrich, read_keys
    from rillet.spark.tables.writer import foreach_batch

__all__ = [
    "JavaMissing", "LagListener", "Progress", "RilletDataSource", "enrich", "foreach_batch", "history", "lost_batches",
    "merge_batch", "progress", "read_batch", "read_keys", "reason", "register", "require_java", "session",
    "write_batch",
]  # fmt: skip

_LAZY = {
    "RilletDataSource": "source", "register": "source",
    "enrich": "tables.lookup", "read_keys": "tables.lookup", "foreach_batch": "tables.writer",
    "read_batch": "functions", "write_batch": "functions",
    "Progress": "metrics", "progress": "metrics", "lost_batches": "metrics", "reason": "errors",
    "LagListener": "lag_listener", "merge_batch": "delta_merge",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    """Import a public name of the package at its first use."""
    if name in _LAZY:
        return getattr(import_module(f"rillet.spark.{_LAZY[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

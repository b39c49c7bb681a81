"""The table in Spark: Redis Streams as a PySpark data source named `rillet`.

    from rillet.spark import register
    register(spark)                        # or: spark.dataSource.register(RilletDataSource)
    spark.read.format("rillet").option("url", "redis://localhost:6379/0").option("stream", "events").load()

Files, from the wire inwards:

    java.py         is there a Java that Spark runs on? `require_java`, `session`
    options.py      what a user may say, checked all at once
    address.py      where a server is and as whom to speak to it: urls, TLS
    connection.py   a blocking socket, hand-packed commands
    servers.py      the server or the nodes of a cluster, by key (cluster.py: which node has which)
    offsets.py      how far streams were read: the JSON of a checkpoint
    asking.py       what a planner asks of servers: streams, how far they go, looks at entries
    shares.py       a cap shared among streams, ranges shared among tasks: arithmetic
    planning.py     a batch: what there is, where it ends, who reads what
    following.py    from offset to offset, on the driver of a streaming query
    reading.py      ranges of streams -> record batches; what an executor does (nodes_reading.py: whole nodes)
    guard.py        entries that are gone before they were read: noticed, told or counted
    groups.py       a consumer group that follows the checkpoint, or hands out what is read (delivering.py)
    filters.py      conditions on IDs, times and names as ranges that are read
    infer.py        a schema from a sample
    reporting.py    what a query's progress shows; `progress`
    reasons.py      errors as one sentence in Spark's first line; `reason`
    source.py       RilletDataSource, its batch reader and its streaming reader
    sink.py         the writers that Spark sees: record batches -> entries
    ended.py        have all rows of a task come?
    targets.py      rows into texts, and which stream each goes to
    sending.py      packed rows on their way: pipelined and bounded
    commits.py      records of what was written, and why rows are there exactly once
    transactions.py rows and their record in one transaction (producers.py: names that the server remembers)
    shipping.py     the package as a file, for executors where it is not installed
    pipelines/      what is done with streams again and again

pyspark and pyarrow belong to the `spark` extra; importing this package needs neither.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rillet.spark.java import JavaMissing, require_java, session

if TYPE_CHECKING:
    from rillet.spark.errors import reason
    from rillet.spark.metrics import Progress, progress
    from rillet.spark.pipelines.history import history
    from rillet.spark.source import RilletDataSource, register

__all__ = [
    "JavaMissing", "Progress", "RilletDataSource", "history", "progress", "reason", "register", "require_java",
    "session",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """Import what needs pyspark when it is asked for."""
    if name in ("RilletDataSource", "register"):
        from rillet.spark import source

        return getattr(source, name)
    if name in ("Progress", "progress"):
        from rillet.spark import metrics as reporting

        return getattr(reporting, name)
    if name == "reason":
        from rillet.spark.errors import reason

        return reason
    if name == "history":
        from rillet.spark.pipelines.history import history

        return history
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

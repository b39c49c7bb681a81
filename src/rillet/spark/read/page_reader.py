"""Reads a task's ranges of streams as Arrow record batches.

client/pages.py reads pages of entries and recovers from lost connections. This module turns their rows into record
batches and, if the query must notice data loss, checks each page for trimmed entries (trim_detection.py). The driver
has just connected to the same servers. So if a server does not accept the first connection, the task retries.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from typing import Any

from rillet.client.pages import PageRange, RangeReader
from rillet.client.servers import Servers
from rillet.columns.arrow_batch import record_batch, rows_for
from rillet.spark.options import Options
from rillet.spark.read.data_loss import Place
from rillet.spark.read.offsets import Part
from rillet.spark.read.trim_detection import TrimWatch

MAX_BATCH_BYTES = 32 << 20


def read_task(
    options: Options, ranges: Sequence[Part], schema: Any, since: Mapping[str, Place] | None = None,
    unread: Set[str] = frozenset(),
) -> Iterator[Any]:  # fmt: skip
    """Yield the entries of ranges as record batches of an Arrow schema, each stream's entries in order.

    since: raise DataLoss if entries were removed before they were read. `since` maps each stream whose counters are
    known to the position at which the batch starts. unread: streams of which no entry was planned or read yet.
    """
    if not ranges:
        return
    with Servers(options) as servers, Servers(options) as checking:
        servers.waits = checking.waits = True
        rows = rows_for(schema, b"", options.mode, options.corrupt_column)
        reader = RangeReader(
            servers, rows, [PageRange(stream.encode(), after, last) for stream, after, last in ranges],
            page_entries=options.page_entries, batch_entries=options.batch_entries, batch_bytes=MAX_BATCH_BYTES,
            check=None if since is None else TrimWatch(checking, since, unread).check, fixed=True,
        )  # fmt: skip
        for _ in reader.read():
            batch = record_batch(rows, schema)
            if batch.num_rows:  # mode=DROPMALFORMED may drop all rows of a batch
                yield batch

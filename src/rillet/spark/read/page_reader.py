"""Reads a task's ranges of streams as Arrow record batches.

client/pages.py reads the pages and recovers from lost connections; this module turns its rows into record batches and,
if data loss must be noticed, checks each page for trimmed entries (trim_detection.py). The driver has just planned the
task with the same servers, so a task also waits for a server that does not answer its first connection.
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

    since: raise DataLoss if entries were removed before they were read. It maps a stream to the offset at which its
    batch starts, where the counters at that offset are known. unread: streams of which no entry was promised yet.
    """
    if not ranges:
        return
    with Servers(options) as servers, Servers(options) as checking:
        servers.waits = checking.waits = True
        rows = rows_for(schema, b"", options.mode, options.corrupt_column)
        reader = RangeReader(
            servers, rows, [PageRange(stream.encode(), after, last) for stream, after, last in ranges],
            page_entries=options.page_entries, batch_entries=options.batch_entries, batch_bytes=MAX_BATCH_BYTES,
            check=None if since is None else TrimWatch(checking, since, unread).check,
        )  # fmt: skip
        for _ in reader.read():
            batch = record_batch(rows, schema)
            if batch.num_rows:  # mode=DROPMALFORMED may drop all rows
                yield batch

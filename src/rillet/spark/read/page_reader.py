"""Reads a task's ranges of streams as Arrow record batches.

client/pages.py reads pages of entries and recovers from lost connections; segments.py reads those that lie in files.
This module turns their rows into record batches and, if the query must notice data loss, checks each page for trimmed
entries (trim_detection.py). The driver has just connected to the same servers. So if a server does not accept the first
connection, the task retries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rillet.client.pages import PageRange, RangeReader
from rillet.client.servers import Servers
from rillet.columns.arrow_batch import record_batch, rows_for
from rillet.columns.node_decoder import NodeReader
from rillet.columns.row_builder import RowBuilder
from rillet.errors import SegmentUnreadable
from rillet.spark.options import Options
from rillet.spark.read.data_loss import Place
from rillet.spark.read.offsets import Part
from rillet.spark.read.trim_detection import TrimWatch
from rillet.types.stream.id import StreamID

if TYPE_CHECKING:
    from rillet.spark.read.bad_records import TaskName
    from rillet.spark.read.planned_store import PlannedStore

MAX_BATCH_BYTES = 32 << 20


def read_task(
    options: Options, ranges: Sequence[Part], schema: Any, since: Mapping[str, Place] | None = None,
    unread: Set[str] = frozenset(), store: PlannedStore | None = None, bad: TaskName | None = None,
) -> Iterator[Any]:  # fmt: skip
    """Yield the entries of ranges as record batches of an Arrow schema, each stream's entries in order.

    since: raise DataLoss if entries were removed before they were read. `since` maps each stream whose counters are
    known to the position at which the batch starts. unread: streams of which no entry was planned or read yet. store:
    the owner of an embedded store, and the segments that contain a part of the entries. bad: the name of the task under
    which rows that do not convert are appended to a stream (bad_records.py).
    """
    if not ranges:
        return
    if store is not None:
        options = replace(options, owner=store.owner)
    with Servers(options) as servers, Servers(options) as checking:
        servers.waits = checking.waits = True
        records = None
        if bad is not None:
            from rillet.spark.read.bad_records import CORRUPT, BadRecords

            records = BadRecords(options, checking, ranges, schema, bad)
            schema, options = records.schema, replace(options, corrupt_column=CORRUPT)
        rows = rows_for(schema, b"", options.mode, options.corrupt_column, options.readers)
        check = None if since is None else TrimWatch(checking, since, unread).check

        def pages(given: Sequence[PageRange]) -> Iterator[None]:
            return RangeReader(
                servers, rows, given, page_entries=options.page_entries, batch_entries=options.batch_entries,
                batch_bytes=MAX_BATCH_BYTES, check=check, fixed=True,
            ).read()  # fmt: skip

        if store is None or not store.sealed:
            filled = pages([PageRange(stream.encode(), after, last) for stream, after, last in ranges])
        else:
            filled = _with_segments(options, rows, ranges, store, pages)
        for _ in filled:
            batch = record_batch(rows, schema)
            if records is not None:
                batch = records.sound(batch, rows)
            if batch.num_rows:  # mode=DROPMALFORMED may drop all rows of a batch
                yield batch


def _with_segments(
    options: Options, rows: RowBuilder, ranges: Sequence[Part], store: PlannedStore,
    pages: Callable[[Sequence[PageRange]], Iterator[None]],
) -> Iterator[None]:  # fmt: skip
    """Read ranges from the segments and, by `pages`, from the owner; yield whenever `rows` must be taken.

    Pages that follow each other are read together. Each page has the number of entries of its range that were read
    before it, because a trim of no more than these loses nothing (TrimWatch).
    """
    from rillet.spark.read.segments import SegmentReader

    waiting: list[PageRange] = []
    with closing(SegmentReader(store.folder)) as segments:
        for part in ranges:
            key, read = part[0].encode(), 0
            page: PageRange | None = None
            for piece in store.pieces(part):
                after = piece.after
                if piece.sealed is not None:
                    if waiting:
                        yield from pages(waiting)
                        waiting = []
                    read = read if page is None else page.read
                    rows.key, page = key, None
                    reader = NodeReader(rows, after, piece.last, options.batch_entries, MAX_BATCH_BYTES)
                    try:
                        yield from segments.read(piece, reader)
                        after = piece.last
                    except SegmentUnreadable:  # the owner has the rest, or knows that it was trimmed, or reports this
                        after = StreamID(reader.last_ms, reader.last_seq)
                    read += reader.entries
                if after == piece.last:
                    continue
                if page is None:
                    page = PageRange(key, after, piece.last, read=read)
                    waiting.append(page)
                page.last = piece.last
        yield from pages(waiting)
    if rows.length:
        yield

"""Detects entries that are trimmed after a task was planned and before the task reads them.

If entries are removed between planning and reading, or between reading two pages, the next page begins at a later ID
and the reader would miss the loss. So every page must prove that it continues the previous page. For a page without
proof, client/pages.py calls `TrimWatch.check`:

    XRANGE          the request begins at the last entry that was read and includes this entry. If the entry is in the
                    reply, no later entry was trimmed before, because a trim removes from the front:

                        read       │ next page
                        1 2 3 4 (5)│(5) 6 7 8 9        proven: one command read 5 and 6
                        1 2 3 4 (5)│ 8 9 10 11 12      5 is missing: 6 and 7 may have existed

    RILLET.XNODES   the reply contains the stream's first ID: proven if this ID is at or before the start of the page

The first page of a range is checked in the same way: a stream's first range begins at an entry or just before one, and
every later range begins inside the stream. The cost is one more entry per page of 2,500, but no round trip.

`check` sends XINFO STREAM on a separate connection:

    the stream's first ID is at most the ID after the last one read      no loss: XDEL removed an entry already read
    entries removed since the start of the batch = entries read          no loss: the trim removed only entries read
    any other state                                                      DataLoss

The number of removed entries is entries-added minus length now, less the same difference at the start (`since`).

A false alarm is possible in three cases: the trim reaches exactly the start of a task other than the first of its
batch, or continues before XINFO is executed; XDEL removed entries as well; the counters are unknown (before Redis 7.0,
or after an estimated end of a batch). Two cases are not noticed: XDEL in the middle of a batch between planning and
reading, and a stream of which no entry was planned or read yet (offsets.py: `unread`). Replicas need no special case: a
replica holds a prefix of its master's data, and `check` sends XINFO to the master.

Rejected: reading the stream's first entry with each page (XRANGE - + COUNT 1). Two commands are only atomic if they
arrive together, and a check after a page is too late, because the rows have been returned by then.
"""

from __future__ import annotations

from collections.abc import Mapping, Set

from rillet.client.pages import PageRange, successor
from rillet.client.servers import Servers
from rillet.spark.read.data_loss import DataLoss, Place
from rillet.spark.read.stream_info import StreamInfo, stream_infos
from rillet.types.stream.id import StreamID


class TrimWatch:
    """Checks the pages that a task reads for trimmed entries; `since`: each stream's position at the batch's start."""

    def __init__(self, servers: Servers, since: Mapping[str, Place], unread: Set[str] = frozenset()) -> None:
        """servers: connections that the page reader does not use; unread: streams that are not checked."""
        self.servers = servers
        self.since = since
        self.unread = unread

    def check(self, pages: PageRange, at: StreamID) -> None:
        """Raise DataLoss if entries after the ID `at`, up to the end of the task's range, may be missing.

        If the connection is lost, raise ConnectionLost; the caller then reads the page again.
        """
        stream = pages.key.decode()
        if stream in self.unread:
            return
        now = stream_infos(self.servers, [stream])[stream]
        if now is None:
            problem = "is gone"
        else:
            problem = self._problem(now, self.since.get(stream), at, pages.read)
        if problem:
            where = self.servers.connection(pages.key).address
            progress = f" and read up to {at}" if at > pages.start else ""
            raise DataLoss(
                f"rillet: entries may have been lost before being read: the stream {stream!r} at {where} was trimmed "
                f"after its entries from {pages.start} to {pages.last} were planned{progress}, and now it {problem}. "
                "Set failOnDataLoss=false to continue with the remaining entries"
            )

    def _problem(self, now: StreamInfo, then: Place | None, at: StreamID, read: int) -> str:
        """Return text on the stream for an error message if entries after `at` may be missing; else an empty text."""
        if now.last < at:
            return f"is a different stream: it ends at {now.last}"
        if not now.all_after(at) or now.first == successor(at):
            return ""
        if now.removed is not None and then is not None and then.added is not None and then.after <= at:
            if now.removed - then.added == read:
                return ""
        return "is empty" if now.first is None else f"begins at {now.first}"

"""A trim that overtakes a task: noticed with each page that the task reads, and settled by counters where they can.

A planned range is cut to the entries that there were. What is removed between planning and reading, or between two
pages, is a loss that nobody would see: the page just begins further on. So every page proves that it follows the one
before:

    by XRANGE    the page is asked for from the last entry that was read, that entry included. Is it there, then nothing
                 behind it was trimmed before the page was read, for a trim removes from the front only:

                     read       │ next page
                     1 2 3 4 (5)│(5) 6 7 8 9        sound: one command, so nothing comes in between
                     1 2 3 4 (5)│ 8 9 10 11 12      5 is gone: in doubt, 6 and 7 may have been there

    by nodes     RILLET.XNODES tells the stream's first ID with each page; not beyond the page's beginning it is sound

A range's first page is proved likewise: a stream's first range begins at an entry that was there or right before it,
any other one inside of the stream. One entry more a page is all that it costs (of 2,500), no round trip.

A page in doubt is settled by XINFO STREAM, on a connection of its own:

    the first entry is not beyond the place, or right behind it     sound: only what was read is gone (XDEL)
    removed since the batch's beginning = read by this task         sound: the trim has come up to the task
    anything else                                                   DataLoss

where `removed` is entries-added less the length, now, less the same at the beginning (`since`). A doubt that is left
and may be a false alarm: the trim came exactly up to a task whose range does not begin the batch, or went on before
XINFO was answered; entries were deleted one by one (XDEL) as well; no counter is known (before Redis 7.0, after a cap
that was estimated). What XDEL takes out of the middle of a batch, between planning and reading, is not noticed.

A stream of which nothing was read yet, and nothing promised (offsets.py: `unread`), is in no doubt.

With a replica it is the same: what it holds is a beginning of what its master holds or held, and the doubt is
settled with the master. Rejected: a question for the stream's first entry beside each page (XRANGE - + COUNT 1). Two
commands are carried out together only as long as they arrive together, a slot on its way wants ASKING before each, and
whoever asks after the page has handed on rows before he knows.
"""

from __future__ import annotations

from collections.abc import Mapping, Set

from rillet.client.servers import Servers
from rillet.spark.read.data_loss import DataLoss, Place
from rillet.spark.read.offsets import Part, successor
from rillet.spark.read.stream_info import StreamInfo, stream_infos
from rillet.types.stream.id import StreamID


class TrimWatch:
    """Settles doubts of a task; `since` is where its batch's streams were read up to, as far as counters are known."""

    def __init__(self, servers: Servers, since: Mapping[str, Place], free: Set[str] = frozenset()) -> None:
        """servers: with connections on which nobody reads pages; free: streams of which nothing was promised yet."""
        self.servers = servers
        self.since = since
        self.free = free

    def settle(self, part: Part, at: StreamID, read: int) -> None:
        """Raise DataLoss unless nothing of a range is gone beyond `at`, up to where so many of its entries were read.

        A lost connection is ConnectionLost; then the page has to be read again.
        """
        stream, after, last = part
        if stream in self.free:
            return
        now = stream_infos(self.servers, [stream])[stream]
        if now is None:
            found = "is gone"
        else:
            found = self._missing(now, self.since.get(stream), at, read)
        if found:
            where = self.servers.connection(stream.encode()).address
            upto = f" and read up to {at}" if at > after else ""
            raise DataLoss(
                f"rillet: entries may have been lost before being read: the stream {stream!r} at {where} was trimmed "
                f"after its entries from {after} to {last} were planned{upto}, and now it {found}; "
                "failOnDataLoss=false goes on with what is left"
            )

    def _missing(self, now: StreamInfo, then: Place | None, at: StreamID, read: int) -> str:
        """Return how a stream looks now if entries beyond `at` may be gone; nothing where none is."""
        if now.last < at:
            return f"is another one: it ends at {now.last}"
        if not now.all_after(at) or now.first == successor(at):
            return ""
        if now.added is not None and then is not None and then.added is not None and then.after <= at:
            if now.added - then.added - now.length == read:
                return ""
        return "is empty" if now.first is None else f"begins at {now.first}"

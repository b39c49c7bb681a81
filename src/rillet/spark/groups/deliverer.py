"""Reads entries as a consumer of a group, which the query may share with other consumers: groupMode=deliver.

    trigger     acknowledge the consumer's pending entries up to the committed offset    XPENDING, XACK
                read the consumer's other pending entries, left by a crash               XPENDING, XREADGROUP 0
                if none are pending, read new entries, up to maxEntriesPerTrigger        XREADGROUP >
    task        read one range of the consumer's pending entries                         XPENDING, XREADGROUP <after>

Delivered entries stay pending for the consumer until they are acknowledged. So a repeated batch consists of the same
entries, and the range (after, last] of the consumer's pending entries is the batch, even if entries of other consumers
lie between them. An entry that is deleted before it is read stays pending without fields and counts as lost. Another
consumer can take an entry from the batch with XCLAIM, so XCLAIM's minimum idle time must be longer than the duration of
a batch. Every query needs a different `consumer`.

A query starts just before the consumer's oldest pending entry or, without one, at the group's last-delivered-id.
`startingOffsets` is only used when the query creates the group.

Costs: XREADGROUP returns entries with their fields, so both the planner (which decodes the IDs only) and the tasks
receive each entry. The server stores about 100 bytes for each pending entry. maxEntriesPerTrigger limits both costs; by
default, a batch has at most DELIVERED entries. Rejected: a consumer for each task. After a restart with another number
of cores, the pending entries of one consumer would no longer belong to one task.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from rillet.client.errors import ConnectorError
from rillet.client.servers import Servers
from rillet.columns.row_builder import RowBuilder
from rillet.spark.groups.delivered_reader import DeliveredRange, last_id, read_group
from rillet.spark.groups.group_position import GroupMove, GroupPosition
from rillet.spark.option_types import before
from rillet.spark.options import Options
from rillet.spark.read.metadata import id_text
from rillet.spark.read.offsets import Part, Task
from rillet.spark.read.splits import MIN_TASK_ENTRIES
from rillet.types.stream.id import StreamID

ACKNOWLEDGED = 1000  # Maximum number of IDs in one XACK.
DELIVERED = 100_000  # Maximum entries of a batch without maxEntriesPerTrigger.


@dataclass(frozen=True)
class DeliveredPage:
    """A page of entries that were delivered to the consumer: its pending entries with after < ID <= last."""

    stream: str
    after: StreamID
    last: StreamID
    entries: int
    missing: int = 0  # how many of these entries were deleted before they were read


class Deliverer(GroupPosition):
    """Reads entries as a consumer of the group, and acknowledges the entries that Spark has committed."""

    def __init__(self, options: Options, servers: Servers) -> None:
        super().__init__(options, servers)
        self.lost: dict[str, int] = {}  # By stream: pending entries that were deleted before they were read.
        self.clean: set[str] = set()  # Streams whose pending entries all belong to committed batches.
        self.latest: dict[str, StreamID] = {}  # The group's last-delivered-id in each stream, as last read.

    def positions(self, streams: Iterable[str]) -> dict[str, StreamID | None]:
        """Return the group's last-delivered-id in each stream; also store these IDs in `latest`."""
        positions = super().positions(streams)
        self.latest.update({stream: position for stream, position in positions.items() if position is not None})
        return positions

    def may_have(self, stream: str, last: StreamID) -> bool:
        """Return whether a stream whose last ID is `last` may have pending or new entries for the consumer."""
        return stream not in self.clean or stream not in self.latest or self.latest[stream] < last

    def begin(self, stream: str, start: StreamID) -> StreamID:
        """Return the ID after which a new query starts; create the group at `start` if it is missing."""
        position = self.positions([stream]).get(stream)
        if position is None:
            self.move(GroupMove(stream, start, create=True))
            return start
        oldest = self.pending_ids(stream, b"-", b"+", 1)
        return before(oldest[0]) if oldest else position

    def committed(self, streams: Mapping[str, StreamID], added: Mapping[str, int]) -> None:
        """Acknowledge the consumer's pending entries up to each stream's offset. O(entries acknowledged)"""
        for stream, offset in streams.items():
            if self.done.get(stream) == offset:
                continue
            key = stream.encode()
            try:
                while ids := self.pending_ids(stream, b"-", id_text(offset), ACKNOWLEDGED):
                    self.servers.call(key, b"XACK", key, self.name, *map(id_text, ids))
            except ConnectorError as error:
                if "NOGROUP" not in str(error):
                    raise
            self.done[stream] = offset

    def deliver(self, streams: Mapping[str, StreamID], cap: int | None) -> list[DeliveredPage]:
        """Return the next batch as pages of entries: first entries that a crash left pending, then new entries.

        `streams`: the offset in each stream. The streams contribute a page each in turn, until `cap` is reached.
        """
        left = DELIVERED if cap is None else cap
        pages: list[DeliveredPage] = []
        active = dict(streams)
        while active and left > 0:
            for stream, after in list(active.items()):
                count = min(left, self.options.page_entries)
                page = None if stream in self.clean else self._left_pending(stream, after, count)
                page = page or self._new_entries(stream, after, count)
                if page is not None:
                    pages.append(page)
                    active[stream] = page.last
                    left -= page.entries
                if page is None or (stream in self.clean and page.entries < count):  # no more entries in this stream
                    del active[stream]
                if left <= 0:
                    break
        for page in pages:  # count lost entries last, because a failed trigger is repeated as a whole
            if page.missing:
                self.lost[page.stream] = self.lost.get(page.stream, 0) + page.missing
        return pages

    def _left_pending(self, stream: str, after: StreamID, count: int) -> DeliveredPage | None:
        """Return pending entries that belong to no committed batch; if there are none, add the stream to `clean`."""
        ids = self.pending_after(stream, after, b"+", count)
        if not ids:
            self.clean.add(stream)
            return None
        delivered = DeliveredRange(self.options, self.servers, (stream, after, ids[-1]))
        delivered.page(RowBuilder(stream.encode()), len(ids))
        if delivered.missing and self.options.fail_on_data_loss:
            raise self.deleted_entries(stream, delivered.missing)
        return DeliveredPage(stream, after, ids[-1], len(ids), delivered.missing)

    def _new_entries(self, stream: str, after: StreamID, count: int) -> DeliveredPage | None:
        """Read new entries of the group, which become pending for the consumer; return None if the group has none."""
        decoder = read_group(self, stream, RowBuilder(stream.encode()), b">", count)
        if decoder.entries == 0:
            return None
        last = last_id(decoder)
        if last <= after:  # another client has just moved the group back
            raise self.moved_back(stream, last, after)
        return DeliveredPage(stream, after, last, decoder.entries)


def tasks(pages: Sequence[DeliveredPage], parallelism: int) -> tuple[Task, ...]:
    """Divide pages of delivered entries among Spark tasks of about equal size; adjacent pages become one range."""
    total = sum(page.entries for page in pages)
    parts = max(1, min(parallelism, total // MIN_TASK_ENTRIES))
    divided: list[list[Part]] = [[] for _ in range(parts)]
    passed = 0
    for page in sorted(pages, key=lambda page: (page.stream, page.after)):
        task = divided[min(passed * parts // max(total, 1), parts - 1)]
        if task and task[-1][0] == page.stream and task[-1][2] == page.after:
            task[-1] = (page.stream, task[-1][1], page.last)
        else:
            task.append((page.stream, page.after, page.last))
        passed += page.entries
    return tuple(tuple(task) for task in divided if task)


def ends(pages: Sequence[DeliveredPage]) -> dict[str, StreamID]:
    """Return, for each stream, the last ID in the stream's pages of delivered entries."""
    return {page.stream: page.last for page in sorted(pages, key=lambda page: page.last)}

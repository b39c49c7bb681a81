"""Notices entries that were removed from a stream after the checkpoint's offset and before they were read.

XTRIM and MAXLEN remove entries from the front of a stream, XDEL from anywhere, DEL and FLUSHALL remove the stream, and
a server may restart without its data. A query that simply continued after its last ID would not notice. One XINFO
STREAM per trigger returns enough information: the length, the first ID, and three counters that never decrease
(stream_info.py).

An offset contains `added`, the value of entries-added at its ID, if that value is known exactly. `left` is the number
of entries that the stream now holds after the offset. All other entries that were added after the offset were lost:

    added   then                                now
    ────────┬────────────────────────────────────┐
            │ offset      removed       left     │      lost = now - then - left
            ▼             xxxxxxxxx  ----------- │

Usually the counters suffice. If the first entry is after the offset, `left` is the stream's length. If the first entry
is at or before the offset and XDEL removed no entry after the offset, nothing is lost, because a trim removes from the
front. If XDEL removed entries after the offset, the guard counts the entries, up to COUNTED; with more entries, the
loss is "at least 1".

Without `added` the check is less certain. If the entry at the offset and all earlier entries are gone, entries between
the offset and the stream's first entry may have been trimmed, or may never have existed. The alarm may then be false,
as in Kafka's source. Entries after the offset that were deleted before the batch was planned do not count as a loss;
the offset's `deleted` is the largest ID of such an entry. A program that trims the stream can keep the entry at the
offset (XTRIM MINID <offset>); the check is then certain on any server.

The guard recognizes a stream that was deleted and created again if its last ID is before the offset, if entries-added
is smaller than at the offset, or if the stream holds more entries than were added since. It does not recognize a
trimmed new stream with larger IDs and larger entries-added, which counts as the old stream after a trim.

`failOnDataLoss` selects the reaction. True: the check raises DataLoss. False: `DataLossGuard.lost` counts the entries,
`DataLossGuard.unsure` contains the streams that may have lost more entries than `lost` counts, and the query continues
after the offset. If a new stream has replaced the old one, the query continues at the new stream's first entry. Entries
that a failover removed and a producer wrote again are then read twice, but no entry is skipped. A key of another type
always raises an error.

The check happens three times: before a trigger is planned (`DataLossGuard.check`), before the tasks of a batch run
after a restart (`check` again), and with every page of entries that a task reads (trim_detection.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from rillet.client.errors import ConnectorError
from rillet.client.servers import Servers
from rillet.spark.option_types import EARLIEST
from rillet.spark.options import Options
from rillet.spark.read.metadata import count_between
from rillet.spark.read.offsets import Offset
from rillet.spark.read.stream_info import StreamInfo
from rillet.types.stream.id import StreamID

COUNTED = 1_000_000
"""After an XDEL, the exact loss is computed by counting up to this many entries, which costs 0.7 us per entry."""


class DataLoss(ConnectorError):
    """The error for entries that were removed, or may have been removed, before the query read them."""


@dataclass(frozen=True)
class Place:
    """The ID in a stream after which reading continues, and the stream's entries-added at that ID (None: unknown)."""

    after: StreamID
    added: int | None


@dataclass(frozen=True)
class Loss:
    """A data loss: how many entries are missing, whether more may be missing, and a description of the stream."""

    entries: int
    unsure: bool
    what: str


@dataclass
class DataLossGuard:
    """Checks the streams of one query and counts its losses over all triggers."""

    options: Options
    servers: Servers
    restart: str = (
        "use a new checkpointLocation to start over"  # the remedy that error messages name besides failOnDataLoss=false
    )
    settled: dict[str, int] = field(default_factory=dict)  # By stream: lost entries before the last offset.
    # By stream: the last offset's ID, and how many entries after it are lost.
    current: dict[str, tuple[StreamID, int]] = field(default_factory=dict)
    unsure: set[str] = field(default_factory=set)
    last_added: dict[str, int] = field(default_factory=dict)  # entries-added at the last check without a loss
    counts: dict[str, tuple[StreamID, StreamInfo, int]] = field(default_factory=dict)

    @property
    def lost(self) -> dict[str, int]:
        """How many entries of each stream are known to be lost since the query started."""
        total = dict(self.settled)
        for stream, (_, entries) in self.current.items():
            total[stream] = total.get(stream, 0) + entries
        return {stream: entries for stream, entries in total.items() if entries}

    def check(self, offset: Offset, infos: Mapping[str, StreamInfo | None]) -> dict[str, Place]:
        """Return the ID in each stream after which reading continues; count lost entries or raise DataLoss.

        Entries of a stream that disappear before the query has read any entry of that stream do not count as a loss.
        The position in a missing stream stays the same.
        """
        places = {}
        for stream, after in offset.streams.items():
            then = Place(after, offset.added.get(stream))
            places[stream], loss = self._compare(stream, then, infos.get(stream), offset)
            if loss is not None and self.options.fail_on_data_loss:
                raise DataLoss(self._message(stream, then, loss))
            self._count(stream, then, loss)
        return places

    def _count(self, stream: str, then: Place, loss: Loss | None) -> None:
        """Record the number of lost entries after an offset; replace the number from an earlier check."""
        before = self.current.pop(stream, None)
        if before is not None and before[0] != then.after:
            self.settled[stream] = self.settled.get(stream, 0) + before[1]
        if loss is not None:
            self.current[stream] = (then.after, loss.entries)
            if loss.unsure:
                self.unsure.add(stream)

    def _compare(self, stream: str, then: Place, now: StreamInfo | None, offset: Offset) -> tuple[Place, Loss | None]:
        """Return the ID in one stream after which reading continues, and the stream's data loss, if any."""
        if now is None:
            return then, Loss(self._unread(stream, then), True, "is gone")
        if then.added is None and (offset.initial or stream in offset.unread):
            return then, None
        fewer = then.added is not None and now.added is not None and now.added < then.added
        if now.last < then.after or fewer:
            what = f"ends at {now.last}" if now.last < then.after else f"has had {now.added} entries, not {then.added}"
            lost = self._unread(stream, then) + max(now.removed or 0, 0)
            return Place(EARLIEST, now.removed), Loss(lost, True, f"is a different one: it {what}")
        if now.added is None or then.added is None:
            return then, _possible_loss(then, now, offset.deleted.get(stream, then.after))
        missing = self._lost(stream, then, now)
        if missing is not None and missing < 0:
            if not now.all_after(then.after):
                missing = 0  # a failover removed only entries that the query had read
            else:
                what = f"is a different one: it has {now.length} entries, but only {now.added - then.added} were added"
                return Place(then.after, now.removed), Loss(self._unread(stream, then), True, what)
        self.last_added[stream] = now.added
        if missing is None:
            return then, Loss(1, True, f"has had entries deleted up to the ID {now.deleted}")
        return then, Loss(missing, False, _start_text(now)) if missing else None

    def _lost(self, stream: str, then: Place, now: StreamInfo) -> int | None:
        """Return how many entries after an offset were removed; None if there are too many to count. Usually O(1)."""
        assert now.added is not None and then.added is not None
        since = now.added - then.added
        if now.all_after(then.after):
            return since - now.length
        if now.deleted is None or now.deleted <= then.after:
            return 0
        return since - self._entries_after(stream, then.after, now) if since <= COUNTED else None

    def _entries_after(self, stream: str, after: StreamID, now: StreamInfo) -> int:
        """Return how many entries a stream has after an offset; cache the number until stream or offset change."""
        counted = self.counts.get(stream)
        if counted is None or counted[:2] != (after, now):
            counted = after, now, count_between(self.servers, stream, after, now.last)
            self.counts[stream] = counted
        return counted[2]

    def _unread(self, stream: str, then: Place) -> int:
        """Return how many unread entries a stream had at the last check without a loss."""
        added = self.last_added.get(stream)
        return 0 if added is None or then.added is None else max(added - then.added, 0)

    def _message(self, stream: str, then: Place, loss: Loss) -> str:
        """Return the error message for a data loss."""
        where = self.servers.connection(stream.encode()).address
        if not loss.unsure:
            many = f"{loss.entries} {'entry was' if loss.entries == 1 else 'entries were'}"
        elif loss.entries:
            many = f"at least {loss.entries} {'entry was' if loss.entries == 1 else 'entries were'}"
        else:
            many = "entries may have been"
        return (
            f"rillet: {many} lost before being read: the stream {stream!r} at {where} was read up to {then.after}, and "
            f"now it {loss.what}. Set failOnDataLoss=false to count lost entries and continue, or {self.restart}"
        )


def _start_text(now: StreamInfo) -> str:
    """Return a description of a stream's first entry and length, for an error message."""
    return "is empty" if now.first is None else f"begins at {now.first} and has {now.length} entries"


def _possible_loss(then: Place, now: StreamInfo, deleted: StreamID) -> Loss | None:
    """Return the possible data loss if entries-added is unknown; deletions up to the ID `deleted` do not count."""
    if now.deleted is not None and now.deleted > max(then.after, deleted):
        return Loss(1, True, f"has had entries deleted up to the ID {now.deleted}")
    if then.after == EARLIEST or now.last == then.after or not now.all_after(then.after):
        return None
    return Loss(0, True, _start_text(now))

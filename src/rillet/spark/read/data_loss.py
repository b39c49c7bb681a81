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

Usually the counters suffice; entry_counts.py states what they prove. If XDEL removed entries after the offset, the
guard counts the entries, up to COUNTED. If there are more, or if an estimated cap has left two bounds of `added`
instead of a number, the loss lies between two bounds, too. The lower bound is `lost`, the upper bound is in
`lost_at_most`, and the stream is `unsure`. If nothing bounds the loss, the stream is `unsure` without an upper bound.

**Entries removed while a batch runs.** A task can raise an error, but it cannot return a number to the planner. So with
failOnDataLoss=false the next check adds an upper bound: the entries of the batch that were removed since its planning,
which the tasks may or may not have read before. It is 0 if no trim has come past the batch's start and XDEL removed
nothing after it.

Without `added` the check is less certain. If the entry at the offset and all earlier entries are gone, entries between
the offset and the stream's first entry may have been trimmed, or may never have existed. The alarm may then be false,
as in Kafka's source. Entries after the offset that were deleted before the batch was planned do not count as a loss;
the offset's `deleted` is the largest ID of such an entry. A program that trims the stream can keep the entry at the
offset (XTRIM MINID <offset>); the check is then certain on any server.

The guard recognizes a stream that was deleted and created again if its last ID is before the offset, if entries-added
is smaller than at the offset, or if the stream holds more entries than were added since. It does not recognize a
trimmed new stream with larger IDs and larger entries-added, which counts as the old stream after a trim.

`failOnDataLoss` selects the reaction. True: the check raises DataLoss, unless possibly nothing was lost and only old
deletions make that uncertain. False: `DataLossGuard.lost` counts the entries, `DataLossGuard.unsure` contains the
streams that may have lost more entries than `lost` counts, and the query continues after the offset. If a new stream
has replaced the old one, the query continues at the new stream's first entry. Entries that a failover removed and a
producer wrote again are then read twice, but no entry is skipped. A key of another type always raises an error.

**A stream may end** (`onStreamEnd`=forget, the default for a pattern): a key that expired or was deleted after all its
known entries were read. Known is what the offset states (`Offset.more`), or what a later check has seen (`last_seen`);
entries that were added after the last check and removed before the next one are not. Such a stream leaves `check`'s
result, so the next batch's offset lacks it. If the key exists again, and all its entries follow the offset, it is read
from its start. A stream that is older than the offset is not a new one: after a failover it may have lost its end.

With failOnDataLoss=false, a lost stream leaves the offset, too, once its loss is counted.

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
from rillet.spark.read.entry_counts import Counted, CountInterval
from rillet.spark.read.metadata import count_between, may_rank, ranks
from rillet.spark.read.offsets import Offset
from rillet.spark.read.stream_info import StreamInfo
from rillet.types.stream.id import StreamID

COUNTED = 1_000_000
"""After an XDEL, the exact loss is computed by counting up to this many entries, which costs 0.7 us per entry."""

COUNTED_AGAIN = 4_000
"""The same limit if all deletions may be older than the offset: then every trigger counts."""


class DataLoss(ConnectorError):
    """The error for entries that were removed, or may have been removed, before the query read them."""


@dataclass(frozen=True)
class Place:
    """The ID in a stream after which reading continues, and the counters of an offset (offsets.py; None: unknown)."""

    after: StreamID
    added: int | None
    between: CountInterval | None = None
    removed: int | None = None
    deleted: StreamID | None = None

    @property
    def counted(self) -> Counted:
        """Return the ID and its counters, as entry_counts.py uses them."""
        added = self.between if self.added is None else CountInterval.exactly(self.added)
        return Counted(self.after, added, self.removed, self.deleted)

    @classmethod
    def at(cls, offset: Offset, stream: str) -> Place:
        """Return the place of an offset in one stream."""
        return cls(
            offset.streams[stream], offset.added.get(stream), offset.between.get(stream), offset.removed.get(stream),
            offset.deleted.get(stream),
        )  # fmt: skip


@dataclass(frozen=True)
class Loss:
    """A data loss: bounds of the number of missing entries, and a description of the stream."""

    entries: int
    most: int | None  # None: the number has no upper bound
    what: str
    alarm: bool = True  # whether failOnDataLoss=true raises it

    @property
    def unsure(self) -> bool:
        """Return whether more than `entries` entries may be missing."""
        return self.most != self.entries


@dataclass(frozen=True)
class RunningBatch:
    """A stream's part of the batch that Spark runs: its start and end, its size, and the stream when it was planned."""

    start: StreamID
    end: StreamID
    most: int | None  # the largest possible number of entries
    then: StreamInfo | None

    def removed(self, now: StreamInfo | None) -> int | None:
        """Return how many of its entries may have been removed since it was planned; None if nothing bounds this."""
        then = self.then
        if now is None or then is None or then.removed is None or now.removed is None:
            return self.most
        gone = now.removed - then.removed
        reached = now.all_after(self.start) and now.first != then.first
        if gone == 0 or (not reached and now.deleted is not None and now.deleted <= self.start):
            return 0
        return self.most if gone < 0 else gone if self.most is None else min(gone, self.most)


@dataclass
class DataLossGuard:
    """Checks the streams of one query and counts its losses over all triggers."""

    options: Options
    servers: Servers
    restart: str = (
        "use a new checkpointLocation to start over"  # the remedy that error messages name besides failOnDataLoss=false
    )
    settled: dict[str, int] = field(default_factory=dict)  # By stream: lost entries before the last offset.
    settled_more: dict[str, int] = field(default_factory=dict)  # By stream: how many more there may be.
    # By stream: the last offset's ID, and how many entries after it are lost, at least and at most.
    current: dict[str, tuple[StreamID, int, int]] = field(default_factory=dict)
    unbounded: set[str] = field(default_factory=set)  # streams whose loss has no upper bound
    running: dict[str, RunningBatch] = field(default_factory=dict)
    last_added: dict[str, int] = field(default_factory=dict)  # entries-added at the last check without a loss
    last_seen: dict[str, StreamID] = field(default_factory=dict)  # the last ID of each stream at the last check
    counts: dict[str, tuple[StreamID, StreamInfo, int]] = field(default_factory=dict)
    sound: dict[str, tuple[StreamInfo, Place]] = field(default_factory=dict)  # streams without a loss at the last check

    @property
    def lost(self) -> dict[str, int]:
        """The number of entries of each stream that were certainly lost since the query started."""
        total = dict(self.settled)
        for stream, (_, entries, _) in self.current.items():
            total[stream] = total.get(stream, 0) + entries
        return {stream: entries for stream, entries in total.items() if entries}

    @property
    def more(self) -> dict[str, int]:
        """The number of entries of each stream that may be lost, beyond `lost`, where a bound is known."""
        total = dict(self.settled_more)
        for stream, (_, entries, most) in self.current.items():
            total[stream] = total.get(stream, 0) + most - entries
        return {stream: entries for stream, entries in total.items() if entries and stream not in self.unbounded}

    @property
    def lost_at_most(self) -> dict[str, int]:
        """The upper bound of each stream's lost entries, where it is known and above `lost`."""
        lost = self.lost
        return {stream: lost.get(stream, 0) + entries for stream, entries in self.more.items()}

    @property
    def unsure(self) -> set[str]:
        """The streams that may have lost more entries than `lost` counts."""
        return self.unbounded | self.more.keys()

    def check(self, offset: Offset, infos: Mapping[str, StreamInfo | None]) -> dict[str, Place]:
        """Return the ID in each stream after which reading continues; count lost entries or raise DataLoss.

        Entries of a stream that disappear before the query has read any entry of that stream do not count as a loss.
        The position in a missing stream stays the same, unless streams may end: then the result lacks that stream.
        """
        places = {}
        exact = offset.added.keys() - offset.removed.keys() - offset.deleted.keys() - self.running.keys()
        before, self.sound = self.sound, {}
        for stream, after in offset.streams.items():
            now = infos.get(stream)
            checked = before.get(stream)
            if checked is not None and checked[0] is now and stream in exact:
                place = checked[1]
                if place.after == after and place.added == offset.added[stream]:  # nothing has changed
                    places[stream], self.sound[stream] = place, checked
                    continue
            then = Place.at(offset, stream)
            was_read = self.was_read(stream, offset)
            if was_read and now is None and self.options.fail_on_data_loss:
                self.running.pop(stream, None)  # its tasks have read all of it, or they would have failed
            self._count_removed(stream, then.after, now)
            if was_read and now is None:
                self._forget(stream)
                continue
            place, loss = self._compare(stream, then, now, offset)
            if was_read and loss is not None and now is not None and _is_new(then, now):
                place, loss = Place(then.after, now.removed), None
            if now is not None:
                self.last_seen[stream] = now.last
            if loss is not None and loss.alarm and self.options.fail_on_data_loss:
                raise DataLoss(self._message(stream, then, loss))
            self._count(stream, then, loss)
            if now is None and self.options.forgets_streams:
                self._forget(stream)
            else:
                places[stream] = place
                if loss is None and now is not None and place is then and now.last == place.after:
                    self.sound[stream] = now, place
        return places

    def was_read(self, stream: str, offset: Offset) -> bool:
        """Return whether a stream may end: what it had when it was last seen is at or before the offset."""
        seen = self.last_seen.get(stream)
        if not self.options.forgets_streams:
            return False
        if seen is not None:
            return seen <= offset.streams[stream]
        early = stream in offset.removed or stream in offset.unread  # an offset of a version without `more`
        return not offset.initial and stream not in offset.more and not early

    def _forget(self, stream: str) -> None:
        """Forget a stream that does not exist any more; its losses stay counted."""
        before = self.current.pop(stream, None)
        if before is not None:
            self.settled[stream] = self.settled.get(stream, 0) + before[1]
            self.settled_more[stream] = self.settled_more.get(stream, 0) + before[2] - before[1]
        self.last_seen.pop(stream, None)
        self.last_added.pop(stream, None)
        self.counts.pop(stream, None)

    def batch_runs(self, start: Offset, end: Offset, infos: Mapping[str, StreamInfo | None]) -> None:
        """Remember the batch that Spark runs now; infos: the streams when it was planned, or later."""
        self.running = {}
        planned = {stream for task in end.plan or () for stream, _, _ in task}
        for stream in planned:
            last = end.streams.get(stream, EARLIEST)
            place = Place.at(start, stream) if stream in start.streams else Place(EARLIEST, None)
            if end.start is not None and end.start.get(stream, place.after) != place.after:
                place = Place(end.start[stream], None)
            info = infos.get(stream)
            if last > place.after:
                most = None if info is None else place.counted.behind(info).most
                self.running[stream] = RunningBatch(place.after, last, most, info)

    def batch_was_read(self, infos: Mapping[str, StreamInfo | None]) -> None:
        """Count what may have been removed while the last batch ran. Call this before you trim its entries yourself."""
        for stream, batch in list(self.running.items()):
            self._count_removed(stream, batch.end, infos.get(stream))

    def _count_removed(self, stream: str, after: StreamID, now: StreamInfo | None) -> None:
        """Count the entries of the batch up to `after` that may have been removed before its tasks read them."""
        batch = self.running.get(stream)
        if batch is None or after != batch.end:
            return
        del self.running[stream]
        if (removed := batch.removed(now)) is None:
            self.unbounded.add(stream)
        elif removed:
            self.settled_more[stream] = self.settled_more.get(stream, 0) + removed

    def _count(self, stream: str, then: Place, loss: Loss | None) -> None:
        """Record the number of lost entries after an offset; replace the number from an earlier check."""
        before = self.current.pop(stream, None)
        if before is not None and before[0] != then.after:
            self.settled[stream] = self.settled.get(stream, 0) + before[1]
            self.settled_more[stream] = self.settled_more.get(stream, 0) + before[2] - before[1]
        if loss is not None:
            self.current[stream] = (then.after, loss.entries, loss.entries if loss.most is None else loss.most)
            if loss.most is None:
                self.unbounded.add(stream)

    def _compare(self, stream: str, then: Place, now: StreamInfo | None, offset: Offset) -> tuple[Place, Loss | None]:
        """Return the ID in one stream after which reading continues, and the stream's data loss, if any."""
        if now is None:
            return then, Loss(self._unread(stream, then), None, "is gone")
        known = then.counted.added
        if known is None and (offset.initial or stream in offset.unread):
            return then, None
        fewer = known is not None and now.added is not None and now.added < known.least
        if now.last < then.after or fewer:
            what = f"has had {now.added} entries, not {known.least}" if known and fewer else ""
            what = f"ends at {now.last}" if now.last < then.after else what
            lost = self._unread(stream, then) + max(now.removed or 0, 0)
            return Place(EARLIEST, now.removed), Loss(lost, None, f"is a different one: it {what}")
        bounds = then.counted.lost(now)
        if now.added is None or known is None or bounds is None:
            return then, _possible_loss(then, now, bounds)
        if bounds.most < 0:
            added = now.added - known.least
            what = f"is a different one: it has {now.length} entries, but only {added} were added"
            return Place(then.after, now.removed), Loss(self._unread(stream, then), None, what)
        bounds = self._counted_loss(stream, then, now, bounds.within(0, bounds.most))
        self.last_added[stream] = now.added
        if bounds.exact:
            return then, Loss(bounds.most, bounds.most, _start_text(now)) if bounds.most else None
        in_the_middle = not now.all_after(then.after)
        what = f"has had entries deleted up to the ID {now.deleted}" if in_the_middle else _start_text(now)
        return then, Loss(bounds.least, bounds.most, what, bounds.least > 0 or not in_the_middle)

    def _counted_loss(self, stream: str, then: Place, now: StreamInfo, bounds: CountInterval) -> CountInterval:
        """Return how many entries after an offset were removed: the bounds, narrowed by counting if that is cheap."""
        known = then.counted.added
        if bounds.exact or now.all_after(then.after) or known is None or now.added is None:
            return bounds
        since = now.added - known.least
        new = now.deleted is not None and now.deleted > (then.deleted or then.after)
        if since <= (COUNTED if new else COUNTED_AGAIN):
            left = self._entries_after(stream, then.after, now)
        elif may_rank(self.servers, stream) and (exact := ranks(self.servers, {stream: (then.after, now.last)})):
            left = exact[stream][1] - exact[stream][0]
        else:
            return bounds
        # Entries removed after `now` was read count as lost here; the next offset's counters allow for that.
        return CountInterval(now.added - known.most - left, since - left).within(0, max(since, 0))

    def _entries_after(self, stream: str, after: StreamID, now: StreamInfo) -> int:
        """Return how many entries a stream has after an offset; cache the number until stream or offset change."""
        counted = self.counts.get(stream)
        if counted is None or counted[:2] != (after, now):
            counted = after, now, count_between(self.servers, stream, after, now.last)
            self.counts[stream] = counted
        return counted[2]

    def _unread(self, stream: str, then: Place) -> int:
        """Return how many unread entries a stream certainly had at the last check without a loss."""
        added, known = self.last_added.get(stream), then.counted.added
        return 0 if added is None or known is None else max(added - known.most, 0)

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


def _is_new(then: Place, now: StreamInfo) -> bool:
    """Return whether a stream may be another one than that of the offset, which has only newer entries."""
    known = then.counted.added
    fewer = known is not None and now.added is not None and now.added - now.length < known.least
    return now.last > then.after and now.all_after(then.after) and fewer


def _start_text(now: StreamInfo) -> str:
    """Return a description of a stream's first entry and length, for an error message."""
    return "is empty" if now.first is None else f"begins at {now.first} and has {now.length} entries"


def _possible_loss(then: Place, now: StreamInfo, bounds: CountInterval | None) -> Loss | None:
    """Return the possible data loss if entries-added is unknown; deletions up to the ID `then.deleted` do not count."""
    most = None if bounds is None else bounds.most
    what = f"has had entries deleted up to the ID {now.deleted}"
    if now.deleted is not None and now.deleted > max(then.after, then.deleted or then.after):
        return Loss(1, most, what)
    if then.after == EARLIEST or now.last == then.after:
        return None
    if now.all_after(then.after):
        return Loss(0, None, _start_text(now))
    return Loss(0, most, what, alarm=False) if most else None

"""Data loss: what lies behind a checkpoint and is gone before it was read, noticed and named.

A stream forgets: XTRIM and MAXLEN cut it in front, XDEL makes holes, DEL and FLUSHALL take all of it, a server may
restart without its data. A query that just went on after its last ID would not see any of it. XINFO STREAM tells
enough to see it, one small reply a trigger (facts.py): how many entries there are and the first one's ID, and three
counters that grow, whatever is removed: the last ID ever given, how many entries were ever added, the largest ID ever
deleted by XDEL (the latter two from Redis 7.0).

An offset carries `added` as it was at its ID, where that is known exactly. What was added since and does not lie
after the offset now was removed unread:

    added   then                                now
    ────────┬────────────────────────────────────┐
            │ offset      removed       still    │      lost = now - then - still
            ▼             xxxxxxxxx  ----------- │

`still`, the entries after the offset, costs nothing where it matters most: if the first entry lies after the offset it
is the length, and if the first one does not and nothing after the offset was deleted then nothing is lost (a trim
removes from the front only). Between the two (XDEL after the offset) entries are counted, unless there are more
than COUNTED; then "at least one" is said.

Without `added` there is less to go by: if the entry at the offset is gone and so is everything before it, entries
between it and the first one may have been trimmed, or not. That is an alarm that may be false, as that of Kafka's
source. What had been deleted beyond the offset before it was planned is no loss; the offset says up to where. Who
trims a stream that Spark reads keeps the entry at the offset (XTRIM MINID <offset>), and nothing is in doubt on any
server.

A stream that is another one now shows it: its last ID lies before the offset; fewer entries were added than the
offset had seen; or more are there than were added since. Not to be seen is a new stream with larger IDs and a larger
counter, trimmed to fewer entries than it had grown by: it counts as the old one, trimmed.

`failOnDataLoss` decides what follows. True: DataLoss, one sentence. False: `Guard.lost` counts, `Guard.unsure` names
the streams of which more may be lost than is counted, and reading goes on: after the offset, or, in a stream that
is another one, from its first entry. What a failover took back and wrote again is then read twice rather than not
at all. A key of another type is an error in either case.

Three moments are guarded. A trigger, before it is planned (`Guard.check`). A batch, before its tasks run, again
after a restart (the same call; the formula does not depend on what was noticed before). A task, with every page that it
reads: overtaking.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from rillet.client.errors import ConnectionLost, ConnectorError
from rillet.client.servers import Servers
from rillet.spark.option_types import EARLIEST
from rillet.spark.options import Options
from rillet.spark.read.offsets import Offset
from rillet.spark.read.stream_info import StreamInfo
from rillet.types.stream.id import StreamID

COUNTED = 1_000_000
"""Entries that are counted one by one to say exactly how many of them XDEL removed; 0.7 us each."""

COUNT_PAGE = 10_000


class DataLoss(ConnectorError):
    """Entries were removed before they were read, or may have been."""


@dataclass(frozen=True)
class Place:
    """Where reading of a stream goes on: after this ID, at which so many entries had been added (None: not known)."""

    after: StreamID
    added: int | None


@dataclass(frozen=True)
class Loss:
    """What is missing of a stream: how many entries are known to, whether it may be more, and what happened."""

    entries: int
    unsure: bool
    what: str


@dataclass
class DataLossGuard:
    """Watches over a query's streams; made once for a query, so that it counts over its triggers."""

    options: Options
    servers: Servers
    anew: str = "a new checkpointLocation starts anew"  # what a failing query is told to do
    settled: dict[str, int] = field(default_factory=dict)
    current: dict[str, tuple[StreamID, int]] = field(default_factory=dict)  # of the offset that was last looked at
    unsure: set[str] = field(default_factory=set)
    sights: dict[str, int] = field(default_factory=dict)  # `added` when a stream was last seen sound
    counts: dict[str, tuple[StreamID, StreamInfo, int]] = field(default_factory=dict)

    @property
    def lost(self) -> dict[str, int]:
        """Return how many entries each stream lost before they were read, as far as known, since the query started."""
        total = dict(self.settled)
        for stream, (_, entries) in self.current.items():
            total[stream] = total.get(stream, 0) + entries
        return {stream: entries for stream, entries in total.items() if entries}

    def check(
        self,
        offset: Offset,
        found: Mapping[str, StreamInfo | None],
    ) -> dict[str, Place]:
        """Return where reading goes on after an offset; raise DataLoss unless losses are only counted.

        Nothing is promised of what lies after a bound that the user named, as long as nothing was read from there.
        A stream that is gone keeps its place.
        """
        places = {}
        for stream, after in offset.streams.items():
            then = Place(after, offset.added.get(stream))
            places[stream], loss = self._judge(stream, then, found.get(stream), offset)
            if loss is not None and self.options.fail_on_data_loss:
                raise DataLoss(self._sentence(stream, then, loss))
            self._count(stream, then, loss)
        return places

    def _count(self, stream: str, then: Place, loss: Loss | None) -> None:
        """Count a loss after an offset; what was counted for the same offset before is counted anew, not twice."""
        before = self.current.pop(stream, None)
        if before is not None and before[0] != then.after:
            self.settled[stream] = self.settled.get(stream, 0) + before[1]
        if loss is not None:
            self.current[stream] = (then.after, loss.entries)
            if loss.unsure:
                self.unsure.add(stream)

    def _judge(self, stream: str, then: Place, now: StreamInfo | None, offset: Offset) -> tuple[Place, Loss | None]:
        """Return where reading of one stream goes on, and what of it is missing."""
        if now is None:
            return then, Loss(self._unread(stream, then), True, "is gone")
        if then.added is None and (offset.initial or stream in offset.unread):
            return then, None
        fewer = then.added is not None and now.added is not None and now.added < then.added
        if now.last < then.after or fewer:
            what = f"ends at {now.last}" if now.last < then.after else f"has had {now.added} entries, not {then.added}"
            return _another(now), Loss(
                self._unread(stream, then) + _removed(now), True, f"is another one now: it {what}"
            )
        if now.added is None or then.added is None:
            return then, _doubt(then, now, offset.deleted.get(stream, then.after))
        lost = self._lost(stream, Place(then.after, then.added), now)
        if lost is not None and lost < 0:
            if not now.all_after(then.after):
                lost = 0  # a failover took back entries that had been read; all that came since is there
            else:
                what = f"is another one now: {now.length} entries are there, and {now.added - then.added} were added"
                return Place(then.after, now.added - now.length), Loss(self._unread(stream, then), True, what)
        self.sights[stream] = now.added
        if lost is None:
            return then, Loss(1, True, f"had entries deleted up to {now.deleted}")
        return then, Loss(lost, False, _front(now)) if lost else None

    def _lost(self, stream: str, then: Place, now: StreamInfo) -> int | None:
        """Return how many entries after an offset were removed; None: at least one, too many to count. O(1) mostly."""
        assert now.added is not None and then.added is not None
        since = now.added - then.added
        if now.all_after(then.after):
            return since - now.length
        if now.deleted is None or now.deleted <= then.after:
            return 0
        return since - self._still(stream, then.after, now) if since <= COUNTED else None

    def _still(self, stream: str, after: StreamID, now: StreamInfo) -> int:
        """Return how many entries lie after an offset; the same question is not asked twice."""
        known = self.counts.get(stream)
        if known is None or known[:2] != (after, now):
            known = after, now, count_between(self.servers, stream, after, now.last)
            self.counts[stream] = known
        return known[2]

    def _unread(self, stream: str, then: Place) -> int:
        """Return how many entries after an offset had been seen when the stream was last there."""
        seen = self.sights.get(stream)
        return 0 if seen is None or then.added is None else max(seen - then.added, 0)

    def _sentence(self, stream: str, then: Place, loss: Loss) -> str:
        """Return the one sentence that a failing query ends with."""
        where = self.servers.connection(stream.encode()).address
        if not loss.unsure:
            many = f"{loss.entries} {'entry was' if loss.entries == 1 else 'entries were'}"
        elif loss.entries:
            many = f"at least {loss.entries} {'entry was' if loss.entries == 1 else 'entries were'}"
        else:
            many = "entries may have been"
        return (
            f"rillet: {many} lost before being read: the stream {stream!r} at {where} was read up to {then.after}, and "
            f"now it {loss.what}; failOnDataLoss=false counts what is lost and goes on, {self.anew}"
        )


def _another(now: StreamInfo) -> Place:
    """Return the place before the first entry of a stream that took another's place."""
    return Place(EARLIEST, None if now.added is None else now.added - now.length)


def _removed(now: StreamInfo) -> int:
    """Return how many entries of a stream were removed since it was made."""
    return 0 if now.added is None else max(now.added - now.length, 0)


def _front(now: StreamInfo) -> str:
    """Return where a stream begins now."""
    return "is empty" if now.first is None else f"begins at {now.first} and has {now.length} entries"


def _doubt(then: Place, now: StreamInfo, deleted: StreamID) -> Loss | None:
    """Return what may be lost where no counter tells; up to `deleted` there were holes before."""
    if now.deleted is not None and now.deleted > max(then.after, deleted):
        return Loss(1, True, f"had entries deleted up to {now.deleted}")
    if then.after == EARLIEST or now.last == then.after or not now.all_after(then.after):
        return None
    return Loss(0, True, _front(now))


def count_between(servers: Servers, stream: str, after: StreamID, last: StreamID) -> int:
    """Return how many entries lie in (after, last]: by rank at a rillet server, else O(n), 0.7 us each."""
    from rillet.spark.read.metadata import ProbeRequest, probe

    key = stream.encode()
    try:
        low, high = servers.call(key, b"RILLET.XRANK", key, b"%d-%d" % after, b"%d-%d" % last)
        return int(high) - int(low)
    except ConnectionLost:
        raise
    except ConnectorError:
        pass  # not a rillet server
    total = 0
    while after < last:
        (seen,) = probe(servers, [ProbeRequest(stream, after, last, COUNT_PAGE)])
        total += seen.entries
        if seen.entries < COUNT_PAGE:
            break
        after = seen.last
    return total

"""Plans the micro-batches of a streaming query on the driver. Each micro-batch reads from one offset to the next.

    next(start)   find the streams: those that the options list, or those that match the pattern now
                  read their counters: XINFO STREAM, for all streams at once
                  check for data loss since `start` (data_loss.py)
                  choose the end of the batch and its tasks (range_planner.py); return both in one offset

**An unavailable server** may be restarting, loading its data, or failing over. If it has answered this query before, or
if the query continues from a checkpoint, the query waits for it, up to `timeout`, with growing pauses. Then the whole
trigger is planned again, because the state of the streams may have changed. The side effects of planning can be
repeated: setting a group's last delivered ID, and reading entries for a group, which stay pending
(groups/deliverer.py). If the first connection of a new query fails, the error is raised immediately, because a wrong
address is more likely than an outage. Rejected: returning "nothing new" to Spark during an outage, which would end an
available-now query.

**A trigger reads the counters once.** Spark calls `report` directly after `next`, so `report` uses the counters
that `next` has read. Only a `report` without a preceding `next` reads the counters itself.

A stream that appears while a query runs is read from its start. If a listed stream is missing when the query starts,
`next` raises an error. A stream that disappears later is a data loss. A part of a partitioned stream may be missing
until a producer writes to it.

Without a trigger interval, Spark calls `next` again and again without pausing, even if there are no new entries. So if
no entry is unread, `next` waits up to a tenth of a second for an entry and then checks again.

`minEntriesPerTrigger` delays a batch until that many entries are unread, but no entry waits longer than
`maxTriggerDelay`. An available-now query has no such delay. It reads up to the last ID that each stream had when the
query started.

**An idle query** over more than MANY_STREAMS streams does not read their state in each trigger. XREAD BLOCK shows a new
entry in any of them. What it does not show (streams that appear, end or were trimmed) waits for the next look, so that
looks take at most LOOKS of the time: one in 4 s if a look takes 0.2 s. In a cluster, XREAD watches the streams of one
slot, so each trigger looks.

**A stream without a change costs little**: an equal reply of XINFO gives the same StreamInfo object (StreamInfoCache),
by which the guard and the end of the batch recognize it.

**A rillet server lists the streams that changed** (changed_streams.py). Then a trigger over more than MANY_STREAMS
streams of a pattern reads the state of these only, and an idle query asks every 50 ms whether there are any.

Finding the streams that match a pattern takes a SCAN of all keys. If a server has more than FEW_KEYS keys, the planner
scans less often than once per batch, so that the scans take at most a twentieth of the query's time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from rillet.client.errors import ConnectionLost, ConnectorError, StaysAway
from rillet.client.redirection import Patience
from rillet.client.servers import Servers
from rillet.real_time import monotonic
from rillet.spark.groups.group_position import GroupFollower
from rillet.spark.metrics import report
from rillet.spark.option_types import EARLIEST
from rillet.spark.options import Options
from rillet.spark.read.changed_streams import ChangedStreams
from rillet.spark.read.data_loss import DataLossGuard, Place
from rillet.spark.read.entry_counts import CountInterval
from rillet.spark.read.metadata import (
    IDLE_MS,
    key_count,
    mean_entry_size,
    missing_stream,
    require_streams,
    selected_streams,
    wait_for_entries,
)
from rillet.spark.read.offsets import Offset, Task
from rillet.spark.read.planned_store import PlannedStore, planned_store
from rillet.spark.read.range_planner import Batch, Left, Planner, SizedRange, StreamRange, ranges_between
from rillet.spark.read.stream_info import StreamInfo, StreamInfoCache, stream_infos
from rillet.types.stream.id import StreamID

FEW_KEYS = 20_000
MANY_STREAMS = 1000
LOOKS = 0.05  # the largest share of an idle query's time in which it reads the state of all streams
T = TypeVar("T")


@dataclass
class StreamStates:
    """The counters of a query's streams, and the ID in each stream after which reading continues."""

    infos: dict[str, StreamInfo | None]
    places: dict[str, Place] = field(default_factory=dict)


@dataclass(frozen=True)
class IdleLook:
    """The state of all streams when nothing was unread; while it is new, only a new entry makes the query look."""

    start: Offset
    states: StreamStates
    at: float  # when it ended, and how long it took, in seconds
    took: float

    def holds(self, start: Offset, now: float) -> bool:
        """Return whether a look at all streams is not due: looks take at most LOOKS of an idle query's time."""
        return now - self.at < self.took / LOOKS and start is self.start


class MicroBatchReader:
    """Plans the micro-batches of one streaming query."""

    def __init__(self, options: Options, parallelism: int) -> None:
        self.options = options
        self.servers = Servers(options)
        self.guard = DataLossGuard(options, self.servers)
        self.group = GroupFollower(options, self.servers) if options.group is not None else None
        self.reached: Offset | None = None  # the end of the last planned batch
        self.planner = Planner(options, self.servers, parallelism, hurried=True)
        self.targets: dict[str, StreamID] | None = None  # the last IDs that an available-now query reads; else None
        self._initial: Offset | None = None
        self._delayed_since: float | None = None
        self._matched: list[str] = []
        self._resolved_at = self._resolve_seconds = 0.0
        self._infos_for_report: dict[str, StreamInfo | None] | None = (
            None  # the counters that `next` has read in this trigger
        )
        self._cache = StreamInfoCache()
        followed = options.stream_pattern if options.group is None else None
        self._changes = ChangedStreams(self.servers, followed)
        self._seen: dict[str, StreamInfo | None] | None = None  # the counters at the last look at many streams
        self._reported: tuple[object, Offset, dict[str, Any]] | None = None  # the last report, if nothing was unread
        self._look: IdleLook | None = None  # of the last trigger, if it found nothing to read
        self._infos: dict[str, StreamInfo | None] = {}  # the counters when the last batch was planned
        self._left: dict[str, Left] = {}  # the entries that the last planned batch leaves unread

    def close(self) -> None:
        """Close the connections to the servers."""
        self.servers.close()

    def _retry(self, ask: Callable[[], T]) -> T:
        """Call a function; repeat the call after a lost connection, for as long as the query may wait for its server.

        The first repetition follows without a pause, because the server may merely have closed an idle connection.
        """
        patience: Patience | None = None
        while True:
            try:
                answer = ask()
            except StaysAway:
                raise
            except ConnectionLost:
                self._forget_state()
                if patience is not None and not (self.servers.waits and patience.again()):
                    raise
                patience = patience or Patience(self.options.timeout)
            else:
                self.servers.waits = True
                return answer

    def _forget_state(self) -> None:
        """Forget the group positions that this query has set: a crashed server may have lost its last writes."""
        self._changes.forget()
        if self.group is not None:
            self.group.done.clear()

    # ---- called by Spark ----

    def initial(self) -> Offset:
        """Return the offset at which a new query starts; compute it in the first call only."""
        if self._initial is None:
            self._initial = self._retry(self._start)
        return self._initial

    def _start(self) -> Offset:
        infos = stream_infos(self.servers, self._streams())
        require_streams(self.options, self.servers, infos)
        streams, added = {}, {}
        readable = self._readable(infos, {})
        for stream, info in infos.items():
            start = self.options.start_of(stream)
            if info is None or (start is not None and stream not in readable):
                continue
            streams[stream] = info.last if start is None else start
            if start is None and info.added is not None:
                added[stream] = info.added
        return Offset(streams, added, initial=True)

    def fix_targets(self) -> None:
        """Limit an available-now query to the last ID that each stream has now."""
        infos = self._retry(lambda: stream_infos(self.servers, self._streams()))
        self.targets = {stream: info.last for stream, info in infos.items() if info is not None}

    def report(self) -> dict[str, Any]:
        """Return the source's metrics: each stream's newest ID, and the entries after the last planned batch."""
        reached = self.reached or self.initial()

        def metrics() -> dict[str, Any]:
            infos, self._infos_for_report = self._infos_for_report, None
            if infos is None:
                infos = stream_infos(self.servers, [*self._streams(), *reached.streams])
            known = self._reported
            if known is not None and known[0] is infos and known[1] is reached:  # an idle query
                return known[2]
            found = report(self.servers, infos, reached, self._estimates(infos), self.guard)
            self._reported = None if any(found["behind"].values()) else (infos, reached, found)
            return found

        return self._retry(metrics)

    def _estimates(self, infos: Mapping[str, StreamInfo | None]) -> dict[str, float]:
        """Return the estimated entries behind the last planned batch: those that it left, and those added since."""
        estimates = {}
        for stream, left in self._left.items():
            now, then = infos.get(stream), self._infos.get(stream)
            grown = 0 if not now or not then or now.added is None or then.added is None else now.added - then.added
            estimates[stream] = left.estimate + max(grown, 0)
        return estimates

    def next(self, start: Offset, least: int | None, cap: int | None, sure: bool = True) -> Offset | None:
        """Return the end offset of the next batch with its plan; None if there is nothing to read yet.

        sure: whether all entries before `start` are in the sink.
        """
        self._wait_for_known_server(start)
        end = self._retry(lambda: self._plan(start, least, cap, sure))
        self.reached = start if end is None else end
        return end

    def _plan(self, start: Offset, least: int | None, cap: int | None, sure: bool) -> Offset | None:
        begun = monotonic()
        look, self._look = self._look, None
        if look is not None and self._holds(look, start, begun) and not self._wait(look.states):
            self._look, self._infos_for_report = look, look.states.infos
            return None
        states = self._read_states(start)
        if sure:
            self._move_group(start, states)
        sized = self._unread(states)
        took = monotonic() - begun
        if not sized and self.targets is None:
            if self._wait(states):
                states = self._read_states(start)
                sized = self._unread(states)
            elif len(states.infos) > MANY_STREAMS or self._changes.known:
                self._look = IdleLook(start, states, monotonic(), took)
        if not sized:
            self._delayed_since = None
        if not sized or self._must_wait(states, sized, least):
            return None
        batch = self.planner.cut(sized, self._cap(sized, cap))
        self._delayed_since = None
        self._infos, self._left = states.infos, batch.left
        return self._end(start, states, batch)

    def _holds(self, look: IdleLook, start: Offset, now: float) -> bool:
        """Return whether an earlier look is still right if nothing has changed since."""
        return look.start is start if self._changes.known else look.holds(start, now)

    def tasks(self, start: Offset, end: Offset) -> Sequence[Task]:
        """Return the planned tasks of a batch; plan them now if the checkpoint, of an early version, has no plan."""
        self._wait_for_known_server(start)
        if end.plan is not None:
            infos = self._infos
            if end != self.reached:  # entries may have been removed since the batch was planned
                infos = self._retry(lambda: self._checked(start))
            self.guard.batch_runs(start, end, infos)
            return end.plan
        begin = end.start if end.start is not None else start.streams

        def plan() -> Sequence[Task]:
            infos = stream_infos(self.servers, end.streams)
            spans = ranges_between(
                infos, {stream: (begin.get(stream, EARLIEST), last) for stream, last in end.streams.items()}
            )
            return self.planner.cut(self.planner.measure(spans), None).tasks

        return self._retry(plan)

    def store(self, tasks: Sequence[Task]) -> PlannedStore | None:
        """Return what the tasks of a batch need of an embedded store, None for a server."""
        return self._retry(lambda: planned_store(self.options, self.servers, tasks))

    def _checked(self, start: Offset) -> dict[str, StreamInfo | None]:
        infos = stream_infos(self.servers, start.streams)
        self.guard.check(start, infos)
        return infos

    def _wait_for_known_server(self, start: Offset) -> None:
        """Make later calls wait for an unavailable server if the query has read from this server before."""
        self.servers.waits = self.servers.waits or not start.initial

    # ---- the state of the streams ----

    def _streams(self, now: bool = False) -> list[str]:
        """Return the selected streams; `now`: find the streams that match a pattern even if the last SCAN is recent."""
        if self.options.keys() is not None or self.options.partitioned_stream is not None:
            return selected_streams(self.options, self.servers)
        begun = monotonic()
        if now or begun - self._resolved_at > 20 * self._resolve_seconds or key_count(self.servers) <= FEW_KEYS:
            self._matched = selected_streams(self.options, self.servers)
            self._resolved_at = monotonic()
            self._resolve_seconds = self._resolved_at - begun
        return self._matched

    def _readable(self, infos: Mapping[str, StreamInfo | None], start: Mapping[str, StreamID]) -> list[str]:
        """Return the streams that the next batch may read: all, or of a partitioned stream those of some epochs."""
        if self.options.partitioned_stream is None:
            return list(infos)
        from rillet.spark.read.partitioned import description, open_keys

        return open_keys(description(self.options, self.servers), infos, start)

    def _read_states(self, start: Offset) -> StreamStates:
        """Read the counters of the selected streams and of the streams in an offset, and check for data loss."""
        streams, infos = self._look_at_changes(start) or ([], {})
        if not infos:
            streams = self._streams()
            if self.options.partitioned_stream is not None:
                from rillet.spark.read.partitioned import description, without_read

                start = without_read(start, description(self.options, self.servers))
            infos = self._cache.infos(self.servers, [*streams, *start.streams])
            self._seen = infos if len(infos) > MANY_STREAMS else None
            if self._seen is None:
                self._changes.forget()
        if self.options.partitioned_stream is not None:
            streams = self._readable(infos, start.streams)
        self._check_checkpoint(start, streams, infos)
        self._infos_for_report = infos
        places = self.guard.check(start, infos)
        for stream in streams:
            if stream in places:
                continue  # the data-loss guard has checked this stream already
            info = infos[stream]
            if info is not None:  # entries removed before the first read do not count as lost
                places[stream] = Place(EARLIEST, info.removed)
            elif self.options.keys() is not None and self.options.partitioned is None:
                raise missing_stream(self.servers, stream)
        return StreamStates(infos, places)

    def _look_at_changes(self, start: Offset) -> tuple[list[str], dict[str, StreamInfo | None]] | None:
        """Return the selected streams and the counters of all streams by reading those that changed, if that is known.

        The answer to the first question begins a look at all streams.
        """
        if self._seen is None:
            return None
        changed = self._changes.all_or_changed()
        if changed is None:
            return None
        known = self._seen
        if any(info is None and name not in start.streams for name, info in known.items()):
            known = {name: info for name, info in known.items() if info is not None or name in start.streams}
        if changed:
            known = self._cache.changed(self.servers, known, changed, start.streams)
        self._seen = known
        return [name for name, info in known.items() if info is not None], known

    def _move_group(self, start: Offset, states: StreamStates) -> None:
        """Set the group's last delivered ID to `start`, because the sink has stored all entries up to it."""
        if self.group is not None:
            there = {
                stream: at
                for stream, at in start.streams.items()
                if states.infos.get(stream) is not None and states.places[stream].after == at
            }
            self.group.committed(there, start.added)

    def _check_checkpoint(self, start: Offset, streams: Sequence[str], infos: Mapping[str, StreamInfo | None]) -> None:
        """Raise ConnectorError if the checkpoint has streams that exist but that the query does not select."""
        named = self.options.keys()
        there = start.streams if named else [stream for stream in start.streams if infos.get(stream) is not None]
        if (unselected := sorted({*there}.difference(streams))) and not named:
            unselected = sorted({*unselected}.difference(self._streams(now=True)))  # the last SCAN may be too old
        if unselected:
            reads = _listed(streams) if named else f"streams that match {self.options.stream_pattern!r}"
            if self.options.partitioned_stream is not None:
                reads = f"the partitioned stream {self.options.partitioned_stream!r}"
            stored = _listed(unselected)
            raise ConnectorError(f"rillet: the checkpoint belongs to {stored}, but the query reads {reads}")

    def _unread(self, states: StreamStates) -> list[SizedRange]:
        """Return each stream's unread range of IDs with its number of entries."""
        spans = []
        for stream, place in states.places.items():
            info = states.infos[stream]
            if info is None or (self.targets is not None and stream not in self.targets):
                continue
            last = info.last if self.targets is None else min(info.last, self.targets[stream])
            if last <= place.after:
                continue
            spans.append(StreamRange(stream, place.after, last, info, place.counted))
        return self.planner.measure(spans)

    def _wait(self, states: StreamStates) -> bool:
        """Wait up to a tenth of a second for a new entry in any stream; return False if certainly none has arrived."""
        if self._changes.known:
            return self._changes.wait(IDLE_MS / 1000)
        bounds = {stream: EARLIEST if info is None else info.last for stream, info in states.infos.items()}
        return wait_for_entries(self.servers, bounds)

    def _must_wait(self, states: StreamStates, sized: Sequence[SizedRange], least: int | None) -> bool:
        """Return whether the next batch must wait because fewer than `least` entries are unread; if so, pause first."""
        if least is None or self.targets is not None or sum(one.count for one in sized) >= least:
            return False
        now = monotonic()
        if self._delayed_since is None:
            self._delayed_since = now
        if now - self._delayed_since >= self.options.max_trigger_delay:
            return False
        self._wait(states)
        return True

    def _cap(self, sized: Sequence[SizedRange], cap: int | None) -> int | None:
        """Return the largest number of entries of a batch: the cap, or less by the size of the unread entries."""
        most = self.options.max_bytes_per_trigger
        if most is None:
            return cap
        size = mean_entry_size(self.servers, {one.span.stream: (one.span.info, one.count) for one in sized})
        by_size = max(1, int(most / size))
        return by_size if cap is None else min(cap, by_size)

    def _end(self, start: Offset, states: StreamStates, batch: Batch) -> Offset:
        """Return the offset at the end of a planned batch."""
        begin = {stream: place.after for stream, place in states.places.items()} if start.initial else None
        end = Offset({}, plan=batch.tasks, start=begin)
        unread, more = set(), set()
        kept = {} if start.initial else {name: place for name, (_, place) in self.guard.sound.items()}
        for stream, place in states.places.items():
            info = states.infos[stream]
            if place is kept.get(stream):  # it has not changed: so does what the offset states
                end.streams[stream], end.added[stream] = place.after, start.added[stream]
                continue
            at = _place_at(batch.ends.get(stream, place.after), place, info, batch.left.get(stream))
            end.streams[stream] = at.after
            if info is None or at.after < info.last:
                more.add(stream)
            if at.added is not None:
                end.added[stream] = at.added
            elif at.after == place.after and (start.initial or stream in start.unread):
                unread.add(stream)
                continue
            elif at.between is not None:
                end.between[stream] = at.between
            if at.deleted is not None and at.deleted > at.after:
                end.deleted[stream] = at.deleted
            if at.removed is not None and info is not None and at.after < info.last:
                end.removed[stream] = at.removed
        return replace(end, unread=frozenset(unread), more=frozenset(more))


def _place_at(end: StreamID, place: Place, info: StreamInfo | None, left: Left | None) -> Place:
    """Return the place at the end of a batch; place: its start, left: the entries after the end, if any was read."""
    if info is None:
        return replace(place, after=end)
    counted = place.added is not None or place.between is not None
    if info.all_after(end) and end <= info.last and (end != place.after or not counted):
        return Place(end, info.removed, None, info.removed, info.deleted)
    if end == place.after or left is None:
        return place
    if info.added is None:
        return Place(end, None, deleted=info.deleted)
    entries = left.entries
    between = CountInterval(info.added - entries.most, info.added - entries.least)
    return Place(end, between.most if between.exact else None, between, info.removed, info.deleted)


def _listed(streams: Sequence[str]) -> str:
    """Return the names of streams for an error message, at most five."""
    shown = ", ".join(repr(stream) for stream in streams[:5])
    more = f" and {len(streams) - 5} more" if len(streams) > 5 else ""
    return f"the stream{'s' if len(streams) > 1 else ''} {shown}{more}"

"""Following streams: from one offset to the next, batch after batch. What the driver of a streaming query does.

    next(start):  look for the streams       named ones, or what the pattern matches now
                  ask how far each goes      XINFO STREAM, all at once
                  let the guard compare      what is gone since `start`, and where to go on
                  weigh, cut, store          planning.py; the offset that is returned holds the plan

**A server that is away** is waited for, up to `timeout`, with pauses that grow, once it has answered this query, or
the query goes on from a checkpoint in which something was read: it restarts, loads, or a failover puts another into its
place. Then the whole trigger is planned again, for what was seen of the streams before may not be so any more; all that
it does besides asking may be repeated: a group is moved to where it is to be, and what was handed out to a consumer
is pending for it (delivering.py). A first contact that fails is told at once: it is a wrong address more often than an
outage. Rejected: to answer Spark "nothing new" meanwhile. An available-now query would take that for its end.

**A trigger asks once.** Spark calls `report` right after `next`; so what `next` saw of the streams is what `report`
tells, and only a report that comes alone asks again.

A stream that appears while a query runs is read from its beginning. One that the options named and that is missing when
a query starts is an error; missing later, it is the guard's affair. Of a partitioned stream any part may be missing: it
appears when something is written to it.

Spark asks an idle query for its next offset without a pause, if it has no trigger interval. So where there is nothing
to read, `next` waits up to a tenth of a second for an entry, and looks once more.

`minEntriesPerTrigger` holds a batch back until as many entries wait, but none waits longer than `maxTriggerDelay`.
An available-now query holds nothing back, and reads up to the IDs that were the last ones when it began.

Looking a pattern up is a SCAN of all keys. Where there are more than FEW_KEYS it is not done for each batch, but so
rarely that it costs a twentieth of the time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from rillet.client.errors import ConnectionLost, ConnectorError, StaysAway
from rillet.client.redirection import Patience
from rillet.client.servers import Servers
from rillet.spark.groups.group_position import GroupFollower
from rillet.spark.metrics import report
from rillet.spark.option_types import EARLIEST
from rillet.spark.options import Options
from rillet.spark.read.data_loss import DataLossGuard, Place
from rillet.spark.read.metadata import key_count, missing_stream, require_streams, selected_streams, wait_for_entries
from rillet.spark.read.offsets import Offset, Task
from rillet.spark.read.planner import Planner, SizedRange, StreamRange
from rillet.spark.read.stream_info import StreamInfo, stream_infos
from rillet.types.stream.id import StreamID

FEW_KEYS = 20_000
T = TypeVar("T")


@dataclass
class Look:
    """The streams of a query as they are now."""

    known: dict[str, StreamInfo | None]
    places: dict[str, Place] = field(default_factory=dict)  # where reading goes on


@dataclass
class Seen:
    """What a trigger has learned so far, for the report that follows it."""

    streams: list[str] | None = None  # those to read
    known: dict[str, StreamInfo | None] | None = None


class MicroBatchReader:
    """Plans the batches of one streaming query."""

    def __init__(self, options: Options, parallelism: int) -> None:
        self.options = options
        self.servers = Servers(options)
        self.guard = DataLossGuard(options, self.servers)
        self.group = GroupFollower(options, self.servers) if options.group is not None else None
        self.reached: Offset | None = None  # the end of the batch that was planned last
        self.planner = Planner(options, self.servers, parallelism, hurried=True)
        self.targets: dict[str, StreamID] | None = None  # of an available-now query
        self._initial: Offset | None = None
        self._waiting_since: float | None = None
        self._matched: list[str] = []
        self._looked = self._look_took = 0.0
        self._seen = Seen()

    def close(self) -> None:
        """Close the connections."""
        self.servers.close()

    def _again(self, ask: Callable[[], T]) -> T:
        """Ask; again where a connection was lost, as long as a server that has answered before is waited for.

        The connection may just have been idle for too long: the first time costs no pause.
        """
        patience: Patience | None = None
        while True:
            try:
                answer = ask()
            except StaysAway:
                raise
            except ConnectionLost:
                self._look_twice()
                if patience is not None and not (self.servers.waits and patience.again()):
                    raise
                patience = patience or Patience(self.options.timeout)
            else:
                self.servers.waits = True
                return answer

    def _look_twice(self) -> None:
        """Take nothing for done that a server may have forgotten: one that crashed may lose its last second."""
        if self.group is not None:
            self.group.done.clear()

    # ---- what Spark asks for ----

    def initial(self) -> Offset:
        """Return where a new query starts; settled once."""
        if self._initial is None:
            self._initial = self._again(self._start)
        return self._initial

    def _start(self) -> Offset:
        known = stream_infos(self.servers, self._streams())
        require_streams(self.options, self.servers, known)
        streams, added = {}, {}
        for stream, facts in known.items():
            start = self.options.start_of(stream)
            if facts is None:
                continue
            streams[stream] = facts.last if start is None else start
            if start is None and facts.added is not None:
                added[stream] = facts.added
        return Offset(streams, added, initial=True)

    def fix_targets(self) -> None:
        """Fix the last IDs that this query reads to those that are the last now."""
        known = self._again(lambda: stream_infos(self.servers, self._streams()))
        self.targets = {stream: facts.last for stream, facts in known.items() if facts is not None}

    def report(self) -> dict[str, Any]:
        """Return what the query's progress shows: the newest IDs, and how far the batch planned last is behind."""
        reached = self.reached or self.initial()

        def told() -> dict[str, Any]:
            seen, self._seen = self._seen, Seen()
            known = seen.known
            if known is None:
                streams = self._streams() if seen.streams is None else seen.streams
                known = stream_infos(self.servers, [*streams, *reached.streams])
            guard = self.guard
            return report(self.servers, known, reached.streams, reached.added, guard.lost, sorted(guard.unsure))

        return self._again(told)

    def next(self, start: Offset, least: int | None, cap: int | None) -> Offset | None:
        """Return the end of the next batch with its plan; None when there is nothing to do (yet)."""
        self._goes_on_from(start)
        end = self._again(lambda: self._plan(start, least, cap))
        self.reached = start if end is None else end
        return end

    def _plan(self, start: Offset, least: int | None, cap: int | None) -> Offset | None:
        look = self._look(start)
        self._move_group(start, look)
        found = self._waiting(look)
        if not found and self.targets is None and self._wait(look):
            look = self._look(start)
            found = self._waiting(look)
        if not found:
            self._waiting_since = None
        if not found or self._held_back(look, found, least):
            return None
        batch = self.planner.cut(found, cap)
        self._waiting_since = None
        return self._end(start, look, batch.ends, batch.tasks)

    def tasks(self, start: Offset, end: Offset) -> Sequence[Task]:
        """Return the tasks of a batch: those that were planned. Only an old offset has none, which are planned now."""
        self._goes_on_from(start)
        if end.plan is not None:
            if end != self.reached:  # planned before a restart, and what it reads may be gone by now
                self._again(lambda: self.guard.check(start, stream_infos(self.servers, start.streams)))
            return end.plan
        begin = end.start if end.start is not None else start.streams

        def plan() -> Sequence[Task]:
            known = stream_infos(self.servers, end.streams)
            spans = [
                StreamRange(stream, begin.get(stream, EARLIEST), min(last, facts.last), facts)
                for stream, last in end.streams.items()
                if (facts := known[stream]) is not None
            ]
            return self.planner.cut(self.planner.measure(spans), None).tasks

        return self._again(plan)

    def _goes_on_from(self, start: Offset) -> None:
        """Wait for a server that is away from now on, if something was read from it before."""
        self.servers.waits = self.servers.waits or not start.initial

    # ---- a look at the streams ----

    def _streams(self, now: bool = False) -> list[str]:
        """Return the streams to read; a pattern that takes long to look up is not looked up each time, unless `now`."""
        if self.options.keys() is not None:
            return selected_streams(self.options, self.servers)
        begun = time.monotonic()
        if now or begun - self._looked > 20 * self._look_took or key_count(self.servers) <= FEW_KEYS:
            self._matched = selected_streams(self.options, self.servers)
            self._looked = time.monotonic()
            self._look_took = self._looked - begun
        return self._matched

    def _look(self, start: Offset) -> Look:
        """Look at the streams, those that are there and those of the offset, and let the guard compare."""
        streams = self._streams()
        known = stream_infos(self.servers, [*streams, *start.streams])
        self._refuse_strangers(start, streams, known)
        self._seen = Seen(streams, known)
        places = self.guard.check(start, known)
        for stream in streams:
            if stream in places:
                continue  # the guard has said what is to be said
            facts = known[stream]
            if facts is not None:  # what was removed before we saw it is no loss
                places[stream] = Place(EARLIEST, None if facts.added is None else facts.added - facts.length)
            elif self.options.keys() is not None and self.options.partitioned is None:
                raise missing_stream(self.servers, stream)
        return Look(known, places)

    def _move_group(self, start: Offset, look: Look) -> None:
        """Let the group follow: everything up to `start` is in the sink."""
        if self.group is not None:
            there = {
                stream: at
                for stream, at in start.streams.items()
                if look.known.get(stream) is not None and look.places[stream].after == at
            }
            self.group.committed(there, start.added)

    def _refuse_strangers(self, start: Offset, streams: Sequence[str], known: Mapping[str, StreamInfo | None]) -> None:
        """Raise ConnectorError about a checkpoint of streams that are not to be read, but for a pattern's that went."""
        named = self.options.keys()
        there = start.streams if named else [stream for stream in start.streams if known[stream] is not None]
        if (strangers := sorted({*there}.difference(streams))) and not named:
            strangers = sorted({*strangers}.difference(self._streams(now=True)))  # it was made anew meanwhile
        if strangers:
            reads = _listed(streams) if named else f"streams that match {self.options.stream_pattern!r}"
            raise ConnectorError(f"rillet: the checkpoint belongs to {_listed(strangers)}, the query reads {reads}")

    def _waiting(self, look: Look) -> list[SizedRange]:
        """Return what there is to read."""
        spans = []
        for stream, place in look.places.items():
            facts = look.known[stream]
            if facts is None or (self.targets is not None and stream not in self.targets):
                continue
            last = facts.last if self.targets is None else min(facts.last, self.targets[stream])
            spans.append(StreamRange(stream, place.after, last, facts, place.added))
        return self.planner.measure(spans)

    def _wait(self, look: Look) -> bool:
        """Wait for an entry that is not there yet; return False if certainly none came."""
        bounds = {stream: EARLIEST if facts is None else facts.last for stream, facts in look.known.items()}
        return wait_for_entries(self.servers, bounds)

    def _held_back(self, look: Look, found: Sequence[SizedRange], least: int | None) -> bool:
        """Tell whether a batch has to wait for more entries; wait a little then."""
        if least is None or self.targets is not None or sum(one.count for one in found) >= least:
            return False
        now = time.monotonic()
        if self._waiting_since is None:
            self._waiting_since = now
        if now - self._waiting_since >= self.options.max_trigger_delay:
            return False
        self._wait(look)
        return True

    def _end(self, start: Offset, look: Look, ends: Mapping[str, StreamID], tasks: tuple[Task, ...]) -> Offset:
        """Return the offset behind a batch."""
        streams, added, unread, deleted = {}, {}, set(), {}
        for stream, place in look.places.items():
            facts = look.known[stream]
            at = streams[stream] = ends.get(stream, place.after)
            count, hole = place.added, start.deleted.get(stream)
            if facts is not None and at != place.after:
                count, hole = facts.added if at == facts.last else None, facts.deleted
            if count is None and facts is not None and facts.added is not None:
                if facts.all_after(at) and at <= facts.last:  # all that is there comes after it
                    count = facts.added - facts.length
            if count is not None:
                added[stream] = count
            elif at == place.after and (start.initial or stream in start.unread):
                unread.add(stream)
            elif hole is not None and hole > at:
                deleted[stream] = hole
        begin = {stream: place.after for stream, place in look.places.items()} if start.initial else None
        return Offset(streams, added, tasks, False, begin, frozenset(unread), deleted)


def _listed(streams: Sequence[str]) -> str:
    """Return the names of streams for a message, a few of them."""
    shown = ", ".join(repr(stream) for stream in streams[:5])
    more = f" and {len(streams) - 5} more" if len(streams) > 5 else ""
    return f"the stream{'s' if len(streams) > 1 else ''} {shown}{more}"

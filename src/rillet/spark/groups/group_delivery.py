"""Following streams as a consumer of their group: groupMode=deliver. What the driver of such a query does.

    next(start):  acknowledge what is pending for us up to `start`
                  see that the groups are still there, and make them for streams that have appeared
                  take what a crash left in our hands, or be given new entries, up to the cap
                  store ends and tasks; groups.py says why they are the same entries when a batch is repeated

The rest is as in following.py, which this extends. A trigger that met a server that went away is planned again as a
whole: what is acknowledged already is not pending any more, and what was handed out without our hearing of it is
pending for us like what a crash leaves. A stream whose last ID is where its group is has nothing to hand out, and is
not asked: of a thousand idle streams a trigger asks no more than where they and their groups are, all at once.
`minEntriesPerTrigger` has no meaning here: Redis does not tell how many entries it would hand out without handing them
out.

Loss shows otherwise than where a range is read. That entries before the group's position are trimmed means nothing.
Entries that were delivered and then deleted are pending without fields. A group that is gone, with its stream or
alone, took what was pending with it; where losses are counted it is made anew, at the beginning of what is there. A
group that stands before the offset was moved back, or its server crashed and lost its last second; then what it hands
out again is read again, rather than not at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rillet.client.errors import ConnectorError
from rillet.spark.groups.group import DeliveredPage, Deliverer, ends, set_back, tasks
from rillet.spark.option_types import EARLIEST
from rillet.spark.options import Options
from rillet.spark.read.data_loss import DataLoss, Place
from rillet.spark.read.micro_batch import Look, MicroBatchReader, Seen
from rillet.spark.read.offsets import Offset, Task
from rillet.spark.read.stream_info import stream_infos
from rillet.types.stream.id import StreamID


class Delivering(MicroBatchReader):
    """Plans the batches of one streaming query out of what its consumer is given."""

    def __init__(self, options: Options, parallelism: int) -> None:
        super().__init__(options, parallelism)
        self.consumer = Deliverer(options, self.servers)
        self.consumer.lost = self.guard.settled  # counted together

    def _start(self) -> Offset:
        start = super()._start()
        return replace(
            start, streams={name: self.consumer.begin(name, at) for name, at in start.streams.items()}, added={}
        )

    def next(self, start: Offset, least: int | None, cap: int | None) -> Offset | None:
        """Return the end of the next batch with its plan; None when nothing is pending for us and nothing is new."""
        return super().next(start, None, cap)

    def _plan(self, start: Offset, least: int | None, cap: int | None) -> Offset | None:
        self.consumer.committed(start.streams, {})
        look = self._look(start)
        pages = self._deliver(look, cap)
        if not pages and self.targets is None and self._wait(look):
            look.known.update(stream_infos(self.servers, look.known))
            pages = self._deliver(look, cap)
        if not pages:
            return None
        places = {name: place.after for name, place in look.places.items()}
        again = any(places.get(name, at) != at for name, at in start.streams.items())
        # What is read again may be the very batch that `start` ends: Spark must not take its end for the same offset.
        told = start.initial or (again and start.start is None)
        return Offset(
            {**places, **ends(pages)},
            plan=tasks(pages, self.options.min_partitions or self.planner.parallelism),
            start=places if told else None,
        )

    def _look_twice(self) -> None:
        self.consumer.done.clear()
        self.consumer.clean.clear()

    def tasks(self, start: Offset, end: Offset) -> Sequence[Task]:
        """Return the tasks that were planned: what they read is pending for our consumer."""
        self._goes_on_from(start)
        return end.plan or ()

    def _deliver(self, look: Look, cap: int | None) -> list[DeliveredPage]:
        """Take entries; an available-now query takes none of a stream that has reached its target."""
        wanted = {}
        for name, place in look.places.items():
            facts, targets = look.known[name], self.targets
            reached = targets is not None and place.after >= targets.get(name, EARLIEST)
            if facts is not None and not reached and self.consumer.may_have(name, facts.last):
                wanted[name] = place.after
        try:
            return self.consumer.deliver(wanted, cap)
        except ConnectorError:  # what was given to us meanwhile is pending for us
            self.consumer.clean.clear()
            raise

    def _look(self, start: Offset) -> Look:
        """Look at the streams and their groups; groups that are missing are made, or their loss is told."""
        streams = self._streams()
        known = stream_infos(self.servers, [*start.streams, *streams])
        self._refuse_strangers(start, streams, known)
        self._seen = Seen(streams, known)
        there = self.consumer.positions([name for name, facts in known.items() if facts is not None])
        places = {}
        for name in known:
            at, stands = start.streams.get(name), there.get(name)
            if at is not None and stands is not None:
                places[name] = Place(at if stands >= at else self._moved_back(name, at, stands), None)
                continue
            if at is not None:
                self._gone(name, at, whole=name not in there)
            if name in there:
                places[name] = Place(self.consumer.begin(name, EARLIEST), None)
        return Look(known, places)

    def _moved_back(self, name: str, at: StreamID, stands: StreamID) -> StreamID:
        """Tell or count that a group stands before what it handed out; return where reading goes on."""
        if self.options.fail_on_data_loss:
            raise set_back(self.options, self.servers, name, stands, at)
        self.guard.unsure.add(name)
        self.consumer.done.pop(name, None)
        self.consumer.clean.discard(name)
        return self.consumer.begin(name, EARLIEST)

    def _gone(self, name: str, at: StreamID, whole: bool) -> None:
        """Tell or count that a group was taken from us, with its stream or alone."""
        where = self.servers.connection(name.encode()).address
        what = "stream" if whole else f"group {self.options.group!r} of the stream"
        if self.options.fail_on_data_loss:
            raise DataLoss(
                f"rillet: entries may have been lost before being read: the {what} {name!r} at {where} is gone, which "
                f"was read up to {at}; failOnDataLoss=false makes the group anew and goes on, a new checkpointLocation "
                "starts anew"
            )
        self.guard.unsure.add(name)
        self.consumer.done.pop(name, None)
        self.consumer.clean.discard(name)

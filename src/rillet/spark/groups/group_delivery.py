"""Plans the micro-batches of a query that reads as a consumer of a group: groupMode=deliver, on the driver.

    next(start)   acknowledge the consumer's pending entries up to `start`
                  check that the groups still exist; create them for streams that have appeared
                  read entries that a crash left pending, then new entries, up to maxEntriesPerTrigger
                  return the end of the batch with its tasks (deliverer.py: why a repeated batch has the same entries)

The base class is in read/micro_batch.py. After a lost connection the whole trigger is planned again. By then,
acknowledged entries are no longer pending. Entries that the server delivered in a lost reply are pending, and are read
like the entries that a crash left pending. A stream whose last ID is the group's last-delivered-id is skipped, so a
trigger with a thousand idle streams sends only XINFO, in one round trip per node.
`minEntriesPerTrigger` has no effect: Redis cannot count the entries that a group would deliver.

Data loss in this mode:

- Trimmed entries before the group's position do not count as lost, because they were delivered before.
- Entries that were delivered and then deleted are pending without fields; they count as lost.
- A group that was deleted, alone or with its stream, has lost its pending entries. With failOnDataLoss=false it is
  created again at the start of the stream.
- A group whose last-delivered-id is before the offset was moved back, or its server crashed and lost the last second of
  writes. With failOnDataLoss=false, entries that the group delivers again are read again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rillet.client.errors import ConnectorError
from rillet.spark.groups.deliverer import DeliveredPage, Deliverer, ends, tasks
from rillet.spark.option_types import EARLIEST
from rillet.spark.options import Options
from rillet.spark.read.data_loss import DataLoss, Place
from rillet.spark.read.micro_batch import MicroBatchReader, StreamStates
from rillet.spark.read.offsets import Offset, Task
from rillet.spark.read.stream_info import stream_infos
from rillet.types.stream.id import StreamID


class GroupDelivery(MicroBatchReader):
    """Plans the micro-batches of a streaming query from the entries that its consumer receives."""

    def __init__(self, options: Options, parallelism: int) -> None:
        super().__init__(options, parallelism)
        self.consumer = Deliverer(options, self.servers)
        self.consumer.lost = self.guard.settled  # the consumer and the guard share one count of lost entries

    def _start(self) -> Offset:
        start = super()._start()
        return replace(
            start, streams={name: self.consumer.begin(name, at) for name, at in start.streams.items()}, added={}
        )

    def next(self, start: Offset, least: int | None, cap: int | None, sure: bool = True) -> Offset | None:
        """Return the end of the next batch with its plan; None if no entry is pending or new."""
        return super().next(start, None, cap, sure)

    def _plan(self, start: Offset, least: int | None, cap: int | None, sure: bool) -> Offset | None:
        self.consumer.committed(start.streams, {})
        states = self._read_states(start)
        pages = self._deliver(states, cap)
        if not pages and self.targets is None and self._wait(states):
            states.infos.update(stream_infos(self.servers, states.infos))
            pages = self._deliver(states, cap)
        if not pages:
            return None
        places = {name: place.after for name, place in states.places.items()}
        again = any(places.get(name, at) != at for name, at in start.streams.items())
        # A batch that is read again may end at the IDs of `start`, but Spark skips a batch whose offsets are equal.
        told = start.initial or (again and start.start is None)
        reached = {**places, **ends(pages)}
        infos = states.infos
        return Offset(
            reached,
            more=frozenset(name for name, at in reached.items() if (info := infos[name]) is None or info.last > at),
            plan=tasks(pages, self.options.min_partitions or self.planner.parallelism),
            start=places if told else None,
        )

    def _forget_state(self) -> None:
        self.consumer.done.clear()
        self.consumer.clean.clear()

    def tasks(self, start: Offset, end: Offset) -> Sequence[Task]:
        """Return the planned tasks of a batch, which read entries that are pending for the consumer."""
        self._wait_for_known_server(start)
        return end.plan or ()

    def _deliver(self, states: StreamStates, cap: int | None) -> list[DeliveredPage]:
        """Read entries for the consumer; an available-now query skips streams that have reached their last ID."""
        wanted = {}
        for name, place in states.places.items():
            info, targets = states.infos[name], self.targets
            reached = targets is not None and place.after >= targets.get(name, EARLIEST)
            if info is not None and not reached and self.consumer.may_have(name, info.last):
                wanted[name] = place.after
        try:
            return self.consumer.deliver(wanted, cap)
        except ConnectorError:  # the failed trigger may have left delivered entries pending
            self.consumer.clean.clear()
            raise

    def _read_states(self, start: Offset) -> StreamStates:
        """Read the state of streams and groups; create groups in new streams; raise DataLoss if a group was deleted."""
        streams = self._streams()
        infos = stream_infos(self.servers, [*start.streams, *streams])
        self._check_checkpoint(start, streams, infos)
        self._infos_for_report = infos
        there = self.consumer.positions([name for name, info in infos.items() if info is not None])
        places = {}
        for name, info in infos.items():
            at, stands = start.streams.get(name), there.get(name)
            if at is not None and info is None and self.guard.was_read(name, start):
                self.guard.last_seen.pop(name, None)
                continue
            if info is not None:
                self.guard.last_seen[name] = info.last
            if at is not None and stands is not None:
                places[name] = Place(at if stands >= at else self._moved_back(name, at, stands), None)
                continue
            if at is not None:
                self._gone(name, at, whole=name not in there)
            if name in there:
                places[name] = Place(self.consumer.begin(name, EARLIEST), None)
        return StreamStates(infos, places)

    def _moved_back(self, name: str, at: StreamID, stands: StreamID) -> StreamID:
        """Raise or count the data loss after a group was moved back; return the ID after which reading continues."""
        if self.options.fail_on_data_loss:
            raise self.consumer.moved_back(name, stands, at)
        self.guard.unbounded.add(name)
        self.consumer.done.pop(name, None)
        self.consumer.clean.discard(name)
        return self.consumer.begin(name, EARLIEST)

    def _gone(self, name: str, at: StreamID, whole: bool) -> None:
        """Raise or count the data loss after a group was deleted, alone or (`whole`) with its stream."""
        where = self.servers.connection(name.encode()).address
        what = "stream" if whole else f"group {self.options.group!r} of the stream"
        if self.options.fail_on_data_loss:
            raise DataLoss(
                f"rillet: entries may have been lost before being read: the {what} {name!r} at {where} is gone. It was "
                f"read up to {at}. Set failOnDataLoss=false to create the group again and continue, or use a new "
                "checkpointLocation to start over"
            )
        self.guard.unbounded.add(name)
        self.consumer.done.pop(name, None)
        self.consumer.clean.discard(name)

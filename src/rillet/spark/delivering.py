"""Following streams as a consumer of their group: groupMode=deliver. What the driver of such a query does.

    next(start):  acknowledge what is pending for us up to `start`
                  see that the groups are still there, and make them for streams that have appeared
                  take what a crash left in our hands, or be given new entries, up to the cap
                  store ends and tasks; groups.py says why they are the same entries when a batch is repeated

The rest is as in following.py, which this extends. `minEntriesPerTrigger` has no meaning here: Redis does not tell how
many entries it would hand out without handing them out.

Loss shows otherwise than where a range is read. That entries before the group's position are trimmed means nothing.
Entries that were delivered and then deleted are pending without fields. A group that is gone, with its stream or
alone, took what was pending with it; where losses are counted it is made anew, at the beginning of what is there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rillet.spark.connection import ConnectionLost, ConnectorError
from rillet.spark.following import Follower
from rillet.spark.groups import Deliverer, Page, ends, tasks
from rillet.spark.guard import DataLoss
from rillet.spark.offsets import Offset, Task
from rillet.spark.options import EARLIEST, Options
from rillet.types.stream_id import StreamID


class Delivering(Follower):
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
        self._again(lambda: self.consumer.committed(start.streams, {}))
        places = self._again(lambda: self._places(start))
        pages = self._deliver(places, cap)
        if not pages and self.targets is None:
            self._again(lambda: self.consumer.wait(list(places)))
            pages = self._deliver(places, cap)
        if not pages:
            self.reached = start
            return None
        self.reached = Offset(
            {**places, **ends(pages)},
            plan=tasks(pages, self.options.min_partitions or self.planner.parallelism),
            start=places if start.initial else None,
        )
        return self.reached

    def tasks(self, start: Offset, end: Offset) -> Sequence[Task]:
        """Return the tasks that were planned: what they read is pending for our consumer."""
        return end.plan or ()

    def _deliver(self, places: dict[str, StreamID], cap: int | None) -> list[Page]:
        """Take entries; an available-now query takes none of a stream that has reached its target."""
        targets = self.targets
        wanted = {name: at for name, at in places.items() if targets is None or at < targets.get(name, EARLIEST)}
        try:
            return self.consumer.deliver(wanted, cap)
        except ConnectionLost:  # what was given to us meanwhile is pending for us
            self.consumer.clean.clear()
            return self.consumer.deliver(wanted, cap)

    def _places(self, start: Offset) -> dict[str, StreamID]:
        """Return up to where each stream has been read; groups that are missing are made, or their loss is told."""
        streams = self._streams()
        strangers = [name for name in start.streams if name not in streams and self.options.keys() is not None]
        if strangers:
            raise ConnectorError(self._foreign(strangers, streams))
        places = {}
        for name in dict.fromkeys([*start.streams, *streams]):
            at = start.streams.get(name)
            there = self._position(name)
            if there is not None and at is not None:
                places[name] = at
            elif there is not None or at is None:
                if not self._missing(name):
                    places[name] = self.consumer.begin(name, EARLIEST)
            else:
                self._gone(name, at)
                if not self._missing(name):
                    places[name] = self.consumer.begin(name, EARLIEST)
        return places

    def _position(self, name: str) -> StreamID | None:
        """Return where the group is, None where it or the stream is missing."""
        return None if self._missing(name) else self.consumer.position(name)

    def _missing(self, name: str) -> bool:
        key = name.encode()
        return bool(self.servers.call(key, b"EXISTS", key) == 0)

    def _gone(self, name: str, at: StreamID) -> None:
        """Tell or count that a group was taken from us."""
        where = self.servers.connection(name.encode()).address
        what = "stream" if self._missing(name) else f"group {self.options.group!r} of the stream"
        if self.options.fail_on_data_loss:
            raise DataLoss(
                f"rillet: entries may have been lost before being read: the {what} {name!r} at {where} is gone, which "
                f"was read up to {at}; failOnDataLoss=false makes the group anew and goes on, a new checkpointLocation "
                "starts anew"
            )
        self.guard.unsure.add(name)
        self.consumer.done.pop(name, None)
        self.consumer.clean.discard(name)

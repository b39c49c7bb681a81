"""PartitionedGroup and PartitionedConsumer: consumers that share out the partitions of a stream among themselves.

    group = store.partitioned("orders", partitions=16, by="customer").group("billing")
    for message in group.consumer("w1").messages(claim_idle=10):
        handle(message)
        message.ack()

One consumer at a time reads a partition, so messages with the same value of the `by` field are handled one after the
other, in their order. rillet.store.partitions.share describes leases, and rillet.store.partitions.scripts how the
partitions move.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeAlias

from rillet.errors import NoGroup
from rillet.keyspace.helper_keys import consumers_key
from rillet.store import PublicNames
from rillet.store.arguments.durations import seconds_in
from rillet.store.arguments.encoding import decode, encode_name
from rillet.store.arguments.policies import RefPolicy
from rillet.store.arguments.positions import Position, encode_after, encode_before
from rillet.store.command_steps import Commands, drive
from rillet.store.consuming.delivery import Steps
from rillet.store.consuming.delivery_options import DeliveryOptions, End
from rillet.store.consuming.leases import Leases
from rillet.store.consuming.prefetch import Prefetched
from rillet.store.entry import T, pairs_in
from rillet.store.group import Consumer, Group, MessageReader, _by_group
from rillet.store.info_records import GroupInfo, groups_of
from rillet.store.message import Message
from rillet.store.partitions.delivery import partition_delivery
from rillet.store.partitions.layout import keys_of
from rillet.store.partitions.share import LEASE, PartitionLeases, PartitionPrefetched, Share
from rillet.store.partitions.upkeep import grouped, reset_to, ungrouped
from rillet.store.stream import Stream

if TYPE_CHECKING:
    from rillet.store.aio.partitions.stream import AsyncPartitionedStream
    from rillet.store.partitions.stream import PartitionedStream
    from rillet.store.store import Store

    AnyPartitionedStream: TypeAlias = PartitionedStream[Any] | AsyncPartitionedStream[Any]


class PartitionedGroupInfo(NamedTuple):
    """The state of a group of a partitioned stream.

    epoch: the epoch that the group reads; partitions: the number of its partitions. pending: messages that are not
    acknowledged. lag: entries that were not delivered, of all epochs from that one on; None if unknown (GroupInfo).
    consumers: the partitions of each consumer.
    """

    epoch: int
    partitions: int
    pending: int
    lag: int | None
    consumers: dict[str, list[int]]


class PartitionedGroupCommands(PublicNames, Generic[T]):
    """A group's name and position: the part of a PartitionedGroup that runs no commands."""

    __slots__ = ("stream", "name", "key", "store", "start", "creates")

    def __init__(self, stream: AnyPartitionedStream, name: str | bytes, start: Position = "0",
                 create: bool = True) -> None:  # fmt: skip
        self.stream = stream
        self.store = stream.store
        self.key = encode_name(name, "name")
        self.name = decode(self.key)
        self.start = encode_after(start, "start")
        self.creates = create  # whether the first read creates a missing group

    def created(self) -> Commands[bool]:
        """Return the commands of `create`."""
        layout = yield from self.stream._refreshed()
        return (yield from grouped(layout, self.key, self.start))

    def _reset(self, raw: bytes) -> Commands[None]:
        layout = yield from self.stream._refreshed()
        if self.creates and (yield from grouped(layout, self.key, raw)):
            return
        if not (yield from reset_to(self.stream.key, self.key, raw)):
            raise NoGroup(f"No such key '{self.stream.name}' or consumer group '{self.name}'")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.stream.name!r}, {self.name!r})"


class PartitionedGroup(PartitionedGroupCommands[T]):
    """A consumer group of a partitioned stream: one group of its name in each partition, and the consumers' leases."""

    __slots__ = ()
    store: Store
    stream: PartitionedStream[T]

    def consumer(self, name: str | bytes) -> PartitionedConsumer[T]:
        """Return the consumer of that name; its first read creates it."""
        return PartitionedConsumer(self, name)

    def create(self) -> bool:
        """Create the group in every partition; return False if it exists. The first read does it, too."""
        return drive(self.store, self.created())

    def reset_to(self, position: Position) -> None:
        """Deliver the entry of an ID, or of a time, and all later ones, to this group again, in every partition.

        "-" is the first entry, and "$" skips all entries that exist. The consumers share out the partitions anew, and
        begin at the oldest epoch whose keys exist; what was in their handlers raises LeaseLost. A missing group is
        created there, unless `create` was False: then NoGroup. Pending messages stay pending: they are delivered again
        in any case. A call that is killed is continued by the consumers. O(partitions)
        """
        raw = encode_before(position, "position")
        drive(self.store, self._reset(raw))

    def delete(self) -> bool:
        """Delete the group and its pending entries in every partition; return whether it existed. O(pending)"""
        self.creates = False
        return drive(self.store, ungrouped(self.stream.layout(), self.key))

    def info(self) -> PartitionedGroupInfo:
        """Return the state of the group; NoGroup if it does not exist. O(partitions)"""
        reply: Any = self.store.run([b"HGETALL", consumers_key(self.stream.key, self.key)])
        record = dict(pairs_in(reply))
        if not record:
            raise NoGroup(f"No such key '{self.stream.name}' or consumer group '{self.name}'")
        layout, epoch = self.stream.layout(), int(record[b"epoch"])
        keys = [key for number in layout.epochs if number >= epoch for key in layout.streams(number)]
        found: list[GroupInfo] = []
        lags: list[int | None] = []
        for key in keys:
            own = [one for one in groups_of(self.store.run([b"XINFO", b"GROUPS", key])) if one.name == self.name]
            found += own
            lags += [one.lag for one in own] if own else [self._ahead(key, record.get(b"start", b"0"))]
        lag = None if None in lags else sum(number or 0 for number in lags)
        return PartitionedGroupInfo(epoch, int(record[b"partitions"]), sum(one.pending for one in found), lag,
                                    _consumers_of(record))  # fmt: skip

    def _ahead(self, key: bytes, start: bytes) -> int | None:
        """Return how many entries wait in a partition of an epoch that the group has not begun; None if unknown.

        start: the ID after which the group will begin there.
        """
        after = self.store.run([b"XRANGE", key, b"(" + start, b"+", b"COUNT", b"1"])
        if not after:
            return 0
        if after != self.store.run([b"XRANGE", key, b"-", b"+", b"COUNT", b"1"]):
            return None
        length: int = self.store.run([b"XLEN", key])
        return length

    def ack(self, *messages: Message[Any], delete: RefPolicy | None = None) -> int:
        """Acknowledge messages and return how many; LeaseLost for those that no longer belong to their consumer."""
        acknowledged = 0
        for group, some in _by_group(messages).items():
            acknowledged += group._ack_messages(some, delete)
        return acknowledged

    def part(self, epoch: int, partitions: int, number: int, token: int) -> Group[T]:
        """Return the group in one partition, an ordinary group of an ordinary stream, for the owner with a token."""
        key = keys_of(self.stream.key, epoch, partitions)[number]
        stream: Stream[T] = Stream(self.store, key, self.stream.form, self.stream.on_invalid)
        group: Group[T] = Group(stream, self.key)
        group.has_retries = True  # so that messages are renewed by scripts
        group.token = b"%d" % token
        return group


def _consumers_of(record: dict[bytes, bytes]) -> dict[str, list[int]]:
    """Return the partitions of each consumer in the record of a group."""
    found: dict[str, list[int]] = {decode(key[7:]): [] for key in sorted(record) if key.startswith(b"member:")}
    for key, value in record.items():
        if key.startswith(b"owner:"):
            found.setdefault(decode(value.split(b" ", 2)[2]), []).append(int(key[6:]))
    return {name: sorted(numbers) for name, numbers in found.items()}


class PartitionedConsumer(MessageReader[T]):
    """A reader of a group of a partitioned stream. Iterating yields messages without end and waits for new ones.

    messages() has the options of Consumer.messages. claim_idle is the lease of the consumer, by default 30 seconds: if
    the loop asks for no message for so long, its partitions go to other consumers. heartbeat=True renews it from a
    thread. A message that failed (`retry`, `nack`, backoff) holds the later ones of its partition back. One that does
    not match `where` holds nothing back with skipped="leave", except the end of its epoch: it stays pending until a
    loop that begins to read the partition wants it. order_by may name only the `by` field, which orders the messages
    anyway.
    """

    __slots__ = ("group",)

    def __init__(self, group: PartitionedGroup[T], name: str | bytes) -> None:
        super().__init__(name)
        self.group = group
        self.store = group.store

    def parts(self) -> Sequence[Consumer[T]]:
        """Return a consumer that stands for those of the partitions, which may change."""
        stream = self.group.stream
        logical: Stream[T] = Stream(self.store, stream.key, stream.form, stream.on_invalid)
        return (Consumer(Group(logical, self.group.key), self.key),)

    def ack(self, *messages: Message[Any], delete: RefPolicy | None = None) -> int:
        """Acknowledge messages; see PartitionedGroup.ack."""
        return self.group.ack(*messages, delete=delete)

    def _loop(self, options: DeliveryOptions) -> tuple[Prefetched, Leases]:
        lease = LEASE if options.claim_idle is None else max(0.01, seconds_in(options.claim_idle))
        share = Share(self.group.stream.key, self.group.key, self.key, lease, self._part)
        prefetched = PartitionPrefetched(share, options)
        return prefetched, PartitionLeases(prefetched, options)

    def _steps(self, options: DeliveryOptions, end: End, prefetched: Prefetched, leases: Leases) -> Steps[None]:
        assert isinstance(prefetched, PartitionPrefetched)
        counting = replace(options, claim_idle=prefetched.share.lease, order_by=None)
        return partition_delivery(self, counting, end, prefetched, leases, options.order_field)

    def _part(self, epoch: int, partitions: int, number: int, token: int) -> Consumer[T]:
        return Consumer(self.group.part(epoch, partitions, number, token), self.key)

    def __repr__(self) -> str:
        return f"PartitionedConsumer({self.group.stream.name!r}, {self.group.name!r}, {self.name!r})"

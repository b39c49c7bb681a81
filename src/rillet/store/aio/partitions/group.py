"""The asyncio form of rillet.store.partitions.group: AsyncPartitionedGroup, AsyncPartitionedConsumer.

Made from store/partitions/group.py by `python -m tools.make_aio`; edit that file, then run the command.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rillet.errors import NoGroup
from rillet.keyspace.helper_keys import consumers_key
from rillet.store.aio.command_steps import drive
from rillet.store.aio.group import AsyncConsumer, AsyncGroup, AsyncMessageReader, _by_group
from rillet.store.aio.message import AsyncMessage
from rillet.store.aio.stream import AsyncStream
from rillet.store.arguments.durations import seconds_in
from rillet.store.arguments.policies import RefPolicy
from rillet.store.arguments.positions import Position, encode_before
from rillet.store.consuming.delivery import Steps
from rillet.store.consuming.delivery_options import DeliveryOptions, End
from rillet.store.consuming.leases import Leases
from rillet.store.consuming.prefetch import Prefetched
from rillet.store.entry import T, pairs_in
from rillet.store.info_records import GroupInfo, groups_of
from rillet.store.partitions.delivery import partition_delivery
from rillet.store.partitions.group import PartitionedGroupCommands, PartitionedGroupInfo, _consumers_of
from rillet.store.partitions.layout import keys_of
from rillet.store.partitions.share import LEASE, PartitionLeases, PartitionPrefetched, Share
from rillet.store.partitions.upkeep import ungrouped

if TYPE_CHECKING:
    from rillet.store.aio.partitions.stream import AsyncPartitionedStream
    from rillet.store.aio.store import AsyncStore


class AsyncPartitionedGroup(PartitionedGroupCommands[T]):
    """A consumer group of a partitioned stream: one group of its name in each partition, and the consumers' leases."""

    __slots__ = ()
    store: AsyncStore
    stream: AsyncPartitionedStream[T]

    def consumer(self, name: str | bytes) -> AsyncPartitionedConsumer[T]:
        """Return the consumer of that name; its first read creates it."""
        return AsyncPartitionedConsumer(self, name)

    async def create(self) -> bool:
        """Create the group in every partition; return False if it exists. The first read does it, too."""
        return await drive(self.store, self.created())

    async def reset_to(self, position: Position) -> None:
        """Deliver the entry of an ID, or of a time, and all later ones, to this group again, in every partition.

        "-" is the first entry, and "$" skips all entries that exist. The consumers share out the partitions anew, and
        begin at the oldest epoch whose keys exist; what was in their handlers raises LeaseLost. A missing group is
        created there, unless `create` was False: then NoGroup. Pending messages stay pending: they are delivered again
        in any case. A call that is killed is continued by the consumers. O(partitions)
        """
        raw = encode_before(position, "position")
        await drive(self.store, self._reset(raw))

    async def delete(self) -> bool:
        """Delete the group and its pending entries in every partition; return whether it existed. O(pending)"""
        self.creates = False
        return await drive(self.store, ungrouped(await self.stream.layout(), self.key))

    async def info(self) -> PartitionedGroupInfo:
        """Return the state of the group; NoGroup if it does not exist. O(partitions)"""
        reply: Any = await self.store.run([b"HGETALL", consumers_key(self.stream.key, self.key)])
        record = dict(pairs_in(reply))
        if not record:
            raise NoGroup(f"No such key '{self.stream.name}' or consumer group '{self.name}'")
        layout, epoch = await self.stream.layout(), int(record[b"epoch"])
        keys = [key for number in layout.epochs if number >= epoch for key in layout.streams(number)]
        found: list[GroupInfo] = []
        lags: list[int | None] = []
        for key in keys:
            own = [one for one in groups_of(await self.store.run([b"XINFO", b"GROUPS", key])) if one.name == self.name]
            found += own
            lags += [one.lag for one in own] if own else [await self._ahead(key, record.get(b"start", b"0"))]
        lag = None if None in lags else sum(number or 0 for number in lags)
        return PartitionedGroupInfo(epoch, int(record[b"partitions"]), sum(one.pending for one in found), lag,
                                    _consumers_of(record))  # fmt: skip

    async def _ahead(self, key: bytes, start: bytes) -> int | None:
        """Return how many entries wait in a partition of an epoch that the group has not begun; None if unknown.

        start: the ID after which the group will begin there.
        """
        after = await self.store.run([b"XRANGE", key, b"(" + start, b"+", b"COUNT", b"1"])
        if not after:
            return 0
        if after != await self.store.run([b"XRANGE", key, b"-", b"+", b"COUNT", b"1"]):
            return None
        length: int = await self.store.run([b"XLEN", key])
        return length

    async def ack(self, *messages: AsyncMessage[Any], delete: RefPolicy | None = None) -> int:
        """Acknowledge messages and return how many; LeaseLost for those that no longer belong to their consumer."""
        acknowledged = 0
        for group, some in _by_group(messages).items():
            acknowledged += await group._ack_messages(some, delete)
        return acknowledged

    def part(self, epoch: int, partitions: int, number: int, token: int) -> AsyncGroup[T]:
        """Return the group in one partition, an ordinary group of an ordinary stream, for the owner with a token."""
        key = keys_of(self.stream.key, epoch, partitions)[number]
        stream: AsyncStream[T] = AsyncStream(self.store, key, self.stream.form, self.stream.on_invalid)
        group: AsyncGroup[T] = AsyncGroup(stream, self.key)
        group.has_retries = True  # so that messages are renewed by scripts
        group.token = b"%d" % token
        return group


class AsyncPartitionedConsumer(AsyncMessageReader[T]):
    """A reader of a group of a partitioned stream. Iterating yields messages without end and waits for new ones.

    messages() has the options of Consumer.messages. claim_idle is the lease of the consumer, by default 30 seconds: if
    the loop asks for no message for so long, its partitions go to other consumers. heartbeat=True renews it from a
    thread. A message that failed (`retry`, `nack`, backoff) holds the later ones of its partition back. One that does
    not match `where` holds nothing back with skipped="leave", except the end of its epoch: it stays pending until a
    loop that begins to read the partition wants it. order_by may name only the `by` field, which orders the messages
    anyway.
    """

    __slots__ = ("group",)

    def __init__(self, group: AsyncPartitionedGroup[T], name: str | bytes) -> None:
        super().__init__(name)
        self.group = group
        self.store = group.store

    def parts(self) -> Sequence[AsyncConsumer[T]]:
        """Return a consumer that stands for those of the partitions, which may change."""
        stream = self.group.stream
        logical: AsyncStream[T] = AsyncStream(self.store, stream.key, stream.form, stream.on_invalid)
        return (AsyncConsumer(AsyncGroup(logical, self.group.key), self.key),)

    async def ack(self, *messages: AsyncMessage[Any], delete: RefPolicy | None = None) -> int:
        """Acknowledge messages; see AsyncPartitionedGroup.ack."""
        return await self.group.ack(*messages, delete=delete)

    def _loop(self, options: DeliveryOptions) -> tuple[Prefetched, Leases]:
        lease = LEASE if options.claim_idle is None else max(0.01, seconds_in(options.claim_idle))
        share = Share(self.group.stream.key, self.group.key, self.key, lease, self._part)
        prefetched = PartitionPrefetched(share, options)
        return prefetched, PartitionLeases(prefetched, options)

    def _steps(self, options: DeliveryOptions, end: End, prefetched: Prefetched, leases: Leases) -> Steps[None]:
        assert isinstance(prefetched, PartitionPrefetched)
        counting = replace(options, claim_idle=prefetched.share.lease, order_by=None)
        return partition_delivery(self, counting, end, prefetched, leases, options.order_field)

    def _part(self, epoch: int, partitions: int, number: int, token: int) -> AsyncConsumer[T]:
        return AsyncConsumer(self.group.part(epoch, partitions, number, token), self.key)

    def __repr__(self) -> str:
        return f"AsyncPartitionedConsumer({self.group.stream.name!r}, {self.group.name!r}, {self.name!r})"

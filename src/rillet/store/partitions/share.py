"""The share of a consumer: the partitions that it owns, and the time until which it owns them.

A consumer is a member of its group while it renews its lease, of `claim_idle` seconds. It does so at each balance,
about once a second, between two messages; and from a thread with heartbeat=True. It knows by its own clock, which may
not be set (monotonic), when its lease ends: the lease begins before the command is sent. After that time it hands out
nothing before it has renewed it.

A partition is read in two states:

    behind    there may be pending messages, of an earlier owner or of its own: they are handed out first, one unit
              after the other, the lowest ID first. One that waits for its retry, or was extended, holds the partition
    new       new messages, read ahead by rillet.store.consuming.prefetch

A message that failed (`retry`, `nack`, or a back-off) sets its partition back to its ID: later messages, although they
were read, wait for it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from rillet.errors import LeaseLost
from rillet.keyspace.helper_keys import owner_key
from rillet.loggers import logger
from rillet.real_time import monotonic
from rillet.store.arguments.encoding import decode, parse_id
from rillet.store.arguments.slots import HasTransport, by_slot
from rillet.store.command_steps import Commands
from rillet.store.consuming.leases import Leases
from rillet.store.consuming.prefetch import Prefetched
from rillet.store.partitions import scripts
from rillet.store.partitions.layout import SEALED

if TYPE_CHECKING:
    from rillet.store.consuming.delivery_options import DeliveryOptions
    from rillet.store.message import AnyConsumer, Delivered

LOGGER = logger("store")
LEASE = 30.0  # seconds; claim_idle, if it is not given
EVERY = 1.0  # seconds between two balances; a third of the lease if that is less
SOON = 0.1  # the same, for a consumer that waits for partitions of others
LOOK = 0.05  # seconds that a read waits if the partitions are in several slots of a cluster
CHECKS = 10  # by how much later a message is checked than in other loops: a partition moves less often than a message
HOLD = 1.0  # seconds after which a consumer looks again at a message that is on hold


class Partition:
    """A partition that the consumer owns.

    consumer: the Consumer of its stream. behind: the ID from which pending messages are handed out, None if there are
    none. after: the ID after which entries are new. until: the time before which the first pending one is on hold. due:
    when to look again for delayed entries.
    """

    __slots__ = ("after", "behind", "consumer", "due", "number", "ready", "token", "until")

    def __init__(self, number: int, token: int, consumer: AnyConsumer) -> None:
        self.number, self.token, self.consumer = number, token, consumer
        self.behind: bytes | None = b"-"
        self.ready = True
        self.after = b"0-0"
        self.until = self.due = 0.0

    @property
    def key(self) -> bytes:
        """The key of its stream."""
        return self.consumer.group.stream.key

    def fall_back(self, id: bytes) -> None:
        """Hand out the pending messages from that ID on before new ones."""
        if self.behind is None or (self.behind != b"-" and parse_id(id) <= parse_id(self.behind.removeprefix(b"("))):
            self.behind = id
        self.until = 0.0


class Share:
    """The partitions of one loop over messages().

    consumer_of(epoch, partitions, number, token): the Consumer of a partition.
    """

    __slots__ = ("_actions", "_every", "_soon", "_turn", "consumer", "consumer_of", "current", "epoch", "finished",
                 "group", "instance", "lease", "members", "name", "next", "parts", "until")  # fmt: skip

    def __init__(self, name: bytes, group: bytes, consumer: bytes, lease: float,
                 consumer_of: Callable[[int, int, int, int], AnyConsumer]) -> None:  # fmt: skip
        self.name, self.group, self.consumer, self.lease = name, group, consumer, lease
        self.consumer_of = consumer_of
        self.instance = os.urandom(8).hex().encode()
        self._every = min(EVERY, lease / 3)
        self._soon = min(SOON, lease / 3)
        self._turn = 0
        self._actions: list[tuple[bytes, int, int]] = []
        self.parts: dict[int, Partition] = {}
        self.epoch = self.current = self.members = 0
        self.finished = False  # whether every partition of the epoch is done
        self.next = self.until = 0.0

    # -- membership ----------------------------------------------------------------------------------------

    def began(self) -> None:
        """Forget the partitions: a loop begins, or begins again."""
        self.parts.clear()
        self._actions.clear()
        self.next = self.until = 0.0

    def due(self) -> bool:
        """Return whether to balance now."""
        return monotonic() >= self.next

    def valid(self) -> bool:
        """Return whether the lease has not ended."""
        return monotonic() < self.until

    def balance(self, joins: bool) -> list[bytes]:
        """Return the command that balances the partitions of the group."""
        actions, self._actions = self._actions, []
        return scripts.balance(self.name, self.group, self.consumer, self.instance, self._lease_ms(), joins,
                               self.epoch, actions)  # fmt: skip

    def balanced(self, reply: Any, began: float) -> bool:
        """Note a reply of `balance`, which began at that time; return whether to balance again at once."""
        if reply[0] == -1:
            raise LeaseLost(
                f"another loop has begun as the consumer {decode(self.consumer)!r} of the group {decode(self.group)!r} "
                f"of {decode(self.name)!r}, and has its partitions: give each loop its own name", [],
            )  # fmt: skip
        epoch, partitions, self.current, self.members, wake, done, short, *owned = reply
        self.until = began + self.lease
        self.finished = done == partitions
        if epoch != self.epoch:
            self.parts.clear()
            self.epoch = epoch
        before, self.parts = self.parts, {}
        for number, token, releases in zip(owned[::3], owned[1::3], owned[2::3], strict=True):
            part = before.get(number)
            if releases:
                self._actions.append((b"release", number, token))
            elif part is not None and part.token == token:
                self.parts[number] = part
            else:
                self.parts[number] = Partition(number, token, self.consumer_of(epoch, partitions, number, token))
        wait = self._soon if short else self._every
        self.next = monotonic() + (wait if wake < 0 else min(wait, wake / 1000 + 0.001))
        return bool(self._actions)

    def done(self, part: Partition) -> None:
        """Note that the group has handled everything in a partition whose epoch has ended."""
        self._actions.append((b"done", part.number, part.token))
        self.lost(part)

    def lost(self, part: Partition) -> None:
        """Forget a partition, and balance soon."""
        self.parts.pop(part.number, None)
        self.next = 0.0

    def renewed(self) -> Commands[bool]:
        """Renew the lease; return whether the consumer still has it."""
        began = monotonic()
        kept = yield scripts.renew(self.name, self.group, self.consumer, self.instance, self._lease_ms())
        self.until = began + self.lease if kept else 0.0
        if not kept:
            self.next = 0.0
        return bool(kept)

    def leave(self) -> list[bytes]:
        """Return the command that gives all partitions back."""
        self.until = self.next = 0.0
        return scripts.leave(self.name, self.group, self.consumer, self.instance)

    def _lease_ms(self) -> int:
        return max(1, round(self.lease * 1000))

    # -- partitions ------------------------------------------------------------------------------------------

    def in_turn(self) -> list[Partition]:
        """Return the partitions, each time beginning with another one."""
        parts = [self.parts[number] for number in sorted(self.parts)]
        self._turn += 1
        start = self._turn % len(parts) if parts else 0
        return parts[start:] + parts[:start]

    def part_of(self, message: Delivered[Any]) -> Partition | None:
        """Return the partition of a message, unless it is lost."""
        key = message.group.stream.key
        return next((part for part in self.parts.values() if part.key == key), None)

    def wait(self, store: HasTransport, block: float | None) -> list[bytes]:
        """Return the command that waits for new entries in the partitions, for at most `block` seconds (0: no limit).

        None does not wait. It reads no entry into the group. It also waits no longer than until something else is due.
        """
        parts = [part for part in self.in_turn() if part.behind is None and part.after != SEALED]
        slots = by_slot(store, [part.key for part in parts], False) if parts else []
        argv = [b"XREAD", b"COUNT", b"1"]
        if block is not None:
            limits = [self.next, *(part.due if part.behind is None else part.until for part in self.parts.values())]
            most = max(0.001, min(limits) - monotonic())
            if len(slots) > 1:
                most = min(most, LOOK)
            argv += [b"BLOCK", b"%d" % max(1, round(1000 * (min(block, most) if block else most)))]
        if not parts:
            return [*argv, b"STREAMS", self._bell(), b"$"]
        here = set(slots[0])
        some = [part for part in parts if part.key in here]
        return [*argv, b"STREAMS", *(part.key for part in some), *(part.after for part in some)]

    def woke(self, reply: Any, several: bool) -> None:
        """Note the reply of a read; several: it read only some of the partitions. It does not notice a seal."""
        found = set(reply if isinstance(reply, dict) else (key for key, _ in reply or ()))
        for part in self.parts.values():
            part.ready = part.ready or several or self.current > self.epoch or part.key in found

    def _bell(self) -> bytes:
        """Return a key that never exists: a consumer without partitions waits for it."""
        return b"rillet:nothing:{" + self.instance + b"}"


class PartitionPrefetched(Prefetched):
    """The messages of one partition that a loop has read and not handed out; none is handed out without a lease."""

    __slots__ = ("share",)

    def __init__(self, share: Share, options: DeliveryOptions) -> None:
        super().__init__(share.consumer, options.counts, share.lease)
        self._check_after = min(CHECKS * self._check_after, self._renew_after)
        self.share = share

    def next(self, size: int) -> list[Any] | None:
        return super().next(size) if self.share.valid() else None

    def checked(self, size: int) -> Commands[list[Any]]:
        """Take out the next messages; none if the partition has another owner, or another loop of the same name."""
        part = self.share.part_of(self.messages[0])
        while part is not None and (self.share.valid() or (yield from self.share.renewed())):
            some = yield from super().checked(size)
            if not some and (yield [b"GET", owner_key(part.key, self.share.group)]) != b"%d" % part.token:
                self.share.lost(part)
                break
            if self.share.valid():
                return some
            self.put_back(some)
        self.clear()
        return []

    def give_back(self) -> Commands[None]:
        """Give the messages back, and leave the group: the worker may end."""
        yield from self.put_down()
        yield self.share.leave()

    def put_down(self) -> Commands[None]:
        """Give the messages back to be handed out later, after one that failed."""
        yield from super().give_back()


class PartitionLeases(Leases):
    """The messages in the handler of a loop, each of which belongs to the consumer as long as its partition does."""

    __slots__ = ("_prefetched",)

    def __init__(self, prefetched: PartitionPrefetched, options: DeliveryOptions) -> None:
        super().__init__(prefetched.share.consumer, options.backoff, options.max_deliveries, True)
        self._prefetched = prefetched

    def ended(self) -> Commands[None]:
        messages, open_ones = self.handed, [message for message in self.handed if not message.settled]
        yield from super().ended()
        failed = [message for message in messages if message.released]
        failed += open_ones if self._backoff is not None else []
        if not failed:
            return
        for message in failed:
            part = self._prefetched.share.part_of(message)
            if part is not None:
                part.fall_back(message.raw_id)
        yield from self._prefetched.put_down()
        self._prefetched.clear()

    def renew(self) -> Commands[None]:
        if self.handed and not (yield from self._prefetched.share.renewed()):
            LOGGER.warning("the consumer %r has lost its partitions: others may handle its messages too",
                           decode(self._prefetched.share.consumer))  # fmt: skip

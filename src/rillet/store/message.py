"""Message: an entry that a consumer group delivered, and the readers of replies that contain messages.

Delivered is the part of a Message that an AsyncMessage shares: what decides about messages (consuming/delivery.py)
needs no more.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from rillet.errors import InvalidValue, LeaseLost
from rillet.store.arguments.argument_checks import integer_of, one_of
from rillet.store.arguments.durations import Seconds, seconds_in
from rillet.store.arguments.encoding import decode
from rillet.store.arguments.policies import RefPolicy, policy_arguments
from rillet.store.consuming.atomic_steps import acknowledge_one, lease
from rillet.store.consuming.delays import due_time
from rillet.store.entry import Entry, T

if TYPE_CHECKING:
    from rillet.store.aio.group import AsyncConsumer, AsyncGroup
    from rillet.store.aio.stream import AsyncStream
    from rillet.store.group import Consumer, Group
    from rillet.store.stream import Stream

    AnyStream: TypeAlias = Stream[Any] | AsyncStream[Any]
    AnyGroup: TypeAlias = Group[Any] | AsyncGroup[Any]
    AnyConsumer: TypeAlias = Consumer[Any] | AsyncConsumer[Any]


class Delivered(Entry[T]):
    """An entry that a group delivered to a consumer, with its delivery; see Message."""

    __slots__ = ("consumer", "deliveries", "fenced", "group", "held", "idle_ms", "leased", "released", "settled",
                 "turn")  # fmt: skip

    def __init__(self, raw_id: bytes, flat: list[bytes], group: AnyGroup, idle_ms: int | None = None,
                 deliveries: int = 1, consumer: bytes = b"") -> None:  # fmt: skip
        super().__init__(raw_id, flat)
        self.group = group
        self.idle_ms = idle_ms
        self.deliveries = deliveries
        self.consumer = consumer  # the name of the consumer that received it
        self.settled = False  # whether an acknowledgement, a release or a retry was sent
        self.held = False  # whether it was retried or extended
        self.fenced = False  # whether an acknowledgement checks that the message still belongs to the consumer
        self.leased = False  # whether the loop that handed it out has a lease (claim_idle)
        self.turn: bytes | None = None  # with order_by, the lease (rillet.store.consuming.order_steps)
        self.released = False  # whether it was given back: later messages of a partition wait for it

    def _untyped(self) -> Any:
        stream = self.group.stream
        if stream.form is None:
            return self.fields
        cause = "its fields are invalid" if self.flat else "the entry was deleted"
        raise InvalidValue(f"message {self.id} of {stream.name!r} has no value: {cause}; acknowledge it")


M = TypeVar("M", bound=Delivered[Any])


class Message(Delivered[T]):
    """An entry delivered to a consumer: call `ack()` when it is handled, `nack()` to let another consumer try.

    deliveries: how often the message was delivered, including this time; 1 for a new message. idle_ms: the milliseconds
    between the delivery before and this one; 0 for a new message; None unless `read(claim_idle=...)` returned it.
    """

    __slots__ = ()
    group: Group[T]

    @property
    def stream(self) -> Stream[T]:
        """The stream of the message."""
        return self.group.stream

    def ack(self, *, delete: RefPolicy | None = None) -> bool:
        """Acknowledge the message (see Group.ack); return False if it was acknowledged before.

        With messages(heartbeat=True) or order_by, and after `extend`: LeaseLost if it no longer belongs to the
        consumer.
        """
        untouched, self.settled = not self.settled, True
        group = self.group
        if self.fenced:
            if untouched and group.token is not None and not self.held and delete is None and \
                    group.store.run(acknowledge_one(group, self.raw_id)):  # fmt: skip
                return True
            self._lease(b"ack", b"".join(policy_arguments(delete, "delete")))
            return True
        if delete is not None:  # otherwise one XACK: Group.ack, for any IDs, would cost a loop a tenth of its rate
            return group.ack(self.raw_id, delete=delete) == 1
        acknowledged: int = group.store.run([b"XACK", group.stream.key, group.key, self.raw_id])
        return acknowledged == 1

    def nack(self, mode: str = "fail", *, deliveries: int | None = None) -> bool:
        """Release the message (see Group.nack); return False if it is no longer pending. LeaseLost as for `ack`."""
        if self.turn is not None:
            self._lease(b"nack", nack_words(mode, deliveries))
            self.settled = True
            return True
        if self.fenced:
            self._lease(b"renew", b"")
        self.settled = self.released = True
        return self.group.nack(self.raw_id, mode=mode, deliveries=deliveries) == 1

    def retry(self, delay: Seconds | None = None, *, at: datetime | None = None) -> None:
        """Give the message back, to be delivered again after `delay` seconds or at a time (consuming/delays.py).

        It stays pending. Any consumer of the group receives it then, and it counts as delivered once more. The clock is
        the store's. LeaseLost if the message no longer belongs to the consumer.
        """
        kind, ms = due_time(delay, at)
        self._lease(kind, ms)
        self.settled = self.released = True

    def extend(self, seconds: Seconds) -> None:
        """Keep the message for that many seconds from now: no consumer of rillet claims it before.

        It makes no lease shorter: in a loop with claim_idle, the message is also kept until it was idle for so long.
        LeaseLost if it no longer belongs to the consumer; then another one may have it. A later `ack` raises it, too.
        """
        kind, ms = due_time(seconds_in(seconds, "seconds"), None)
        self.fenced = True
        self._lease(b"longer" if self.leased else kind, ms)

    def _lease(self, action: bytes, detail: int | bytes) -> None:
        """Acknowledge or hold the message if it still belongs to the consumer; else raise LeaseLost."""
        group = self.group
        if isinstance(detail, int):
            self.held = group.has_retries = True
        if group.store.run(lease(group, self.consumer, action, [self], detail)):
            self.released = True
            raise lost_leases([self])


def nack_words(mode: str, deliveries: int | None) -> bytes:
    """Return the mode and the number of an XNACK."""
    one_of(mode, "mode", ("fail", "silent", "fatal"))
    words = [mode.encode()] if deliveries is None else [mode.encode(), integer_of(deliveries, "deliveries", 0)]
    return b" ".join(words)


def lost_leases(messages: Sequence[Delivered[Any]]) -> LeaseLost:
    """Return the error for messages that no longer belong to their consumer."""
    first, *others = messages
    group = first.group
    also = f" and {len(others)} more" if others else ""
    return LeaseLost(
        f"message {first.id}{also} of {group.stream.name!r} no longer belongs to the consumer "
        f"{decode(first.consumer)!r} of the group {group.name!r}: another consumer claimed it, or it was acknowledged. "
        "Give handlers more time with claim_idle, messages(heartbeat=True) or message.extend()",
        [message.id for message in messages],
    )


def new_messages(reply: Any, consumer: AnyConsumer, kind: type[M]) -> list[M]:
    """Return the messages, of the class `kind`, of the part of an XREADGROUP reply (`>`) that belongs to one stream.

    With CLAIM, an entry has two more elements: its idle time, and the number of its deliveries before this one.
    """
    found = []
    group, key = consumer.group, consumer.key
    for raw_id, flat, *claimed in reply or ():
        idle_ms, before = claimed or (0, 0)
        found.append(kind(raw_id, flat or [], group, int(idle_ms), int(before) + 1, key))
    return found


def old_messages(reply: Any, consumer: AnyConsumer, kind: type[M]) -> list[M]:
    """Return the messages of a reply with pending entries, without their number of deliveries.

    A message whose entry was deleted has no fields. Servers before Redis 7 have null in its place in claims.
    """
    group, key = consumer.group, consumer.key
    return [kind(one[0], one[1] or [], group, consumer=key) for one in reply or () if one is not None]

"""Message: an entry that a consumer group delivered, and the readers of replies that contain messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rillet.errors import InvalidValue
from rillet.store.arguments.policies import RefPolicy
from rillet.store.entry import Entry, T

if TYPE_CHECKING:
    from rillet.store.group import Group
    from rillet.store.stream import Stream


class Message(Entry[T]):
    """An entry delivered to a consumer: call `ack()` when it is handled, `nack()` to let another consumer try.

    deliveries: how often the message was delivered, including this time; 1 for a new message. idle_ms: the milliseconds
    between the delivery before and this one; 0 for a new message; None unless `read(claim_idle=...)` returned it.
    """

    __slots__ = ("deliveries", "group", "idle_ms", "settled")

    def __init__(self, raw_id: bytes, flat: list[bytes], group: Group[T], idle_ms: int | None = None,
                 deliveries: int = 1) -> None:  # fmt: skip
        self.raw_id = raw_id
        self.flat = flat
        self._id = self._text = None
        self.group = group
        self.idle_ms = idle_ms
        self.deliveries = deliveries
        self.settled = False  # whether an acknowledgement or a release was sent

    def _untyped(self) -> Any:
        if self.group.stream.form is None:
            return self.fields
        cause = "its fields are invalid" if self.flat else "the entry was deleted"
        raise InvalidValue(f"message {self.id} of {self.stream.name!r} has no value: {cause}; acknowledge it")

    @property
    def stream(self) -> Stream[T]:
        """The stream of the message."""
        return self.group.stream

    def ack(self, *, delete: RefPolicy | None = None) -> bool:
        """Acknowledge the message (see Group.ack); return False if it was acknowledged before."""
        self.settled = True
        group = self.group
        if delete is not None:  # otherwise one XACK: Group.ack, for any IDs, would cost a loop a tenth of its rate
            return group.ack(self.raw_id, delete=delete) == 1
        acknowledged: int = group.store.run([b"XACK", group.stream.key, group.key, self.raw_id])
        return acknowledged == 1

    def nack(self, mode: str = "fail", *, deliveries: int | None = None) -> bool:
        """Release the message (see Group.nack); return False if it is no longer pending."""
        self.settled = True
        return self.group.nack(self.raw_id, mode=mode, deliveries=deliveries) == 1


def new_messages(reply: Any, group: Group[T]) -> list[Message[T]]:
    """Return the messages of the part of an XREADGROUP reply (`>`) that belongs to one stream.

    With CLAIM, an entry has two more elements: its idle time, and the number of its deliveries before this one.
    """
    found = []
    for raw_id, flat, *claimed in reply or ():
        idle_ms, before = claimed or (0, 0)
        found.append(Message(raw_id, flat or [], group, int(idle_ms), int(before) + 1))
    return found


def old_messages(reply: Any, group: Group[T]) -> list[Message[T]]:
    """Return the messages of a reply with pending entries, without their number of deliveries.

    A message whose entry was deleted has no fields. Servers before Redis 7 have null in its place in claims.
    """
    return [Message(one[0], one[1] or [], group) for one in reply or () if one is not None]

"""Group and Consumer: work shared out among readers, each message handled once and acknowledged.

    group = stream.group("billing")
    for message in group.consumer("worker-1").messages(claim_idle=30, max_deliveries=5, dead_letters="billing.dead"):
        handle(message)
        message.ack()

A message that is delivered and not acknowledged is pending. Pending messages of a consumer that
died are claimed by the others once they were idle for `claim_idle` seconds; one that was delivered
more than `max_deliveries` times goes to the dead-letter stream instead, with where it came from.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from rillet.store.encoding import IDLike, decode, encode_id
from rillet.store.stream import Entry, Stream, named, stream_part
from rillet.types.stream_id import StreamID

if TYPE_CHECKING:
    from rillet.store.store import Store


class Pending(NamedTuple):
    """One pending message: whose, for how many milliseconds, and how often it was delivered."""

    id: StreamID
    consumer: str
    idle_ms: int
    deliveries: int


class Message(Entry):
    """An entry delivered to a consumer; `ack()` when it is done with."""

    __slots__ = ("group",)

    def __init__(self, entry_id: StreamID, flat: list[bytes], group: Group) -> None:
        super().__init__(entry_id, flat)
        self.group = group

    def ack(self) -> bool:
        """Acknowledge the message; False where somebody did already."""
        return self.group.ack(self.id) == 1


class Group:
    """A consumer group of a stream: `last-delivered-id`, consumers, and what is pending."""

    __slots__ = ("stream", "name", "key", "store")

    def __init__(self, stream: Stream, name: str | bytes) -> None:
        self.stream = stream
        self.store: Store = stream.store
        self.key = name if isinstance(name, bytes) else name.encode("utf-8", "surrogateescape")
        self.name = decode(self.key)

    def consumer(self, name: str | bytes) -> Consumer:
        """Return the consumer of that name; it comes into being with its first read."""
        return Consumer(self, name)

    def ack(self, *ids: IDLike) -> int:
        """Acknowledge messages and return how many were pending (XACK). O(1) each"""
        return int(self.store.execute(b"XACK", self.stream.key, self.key, *map(encode_id, ids)))

    def set_id(self, id: IDLike) -> None:
        """Let the group deliver what comes after an ID next (XGROUP SETID)."""
        self.store.execute(b"XGROUP", b"SETID", self.stream.key, self.key, encode_id(id))

    def delete(self) -> bool:
        """Delete the group with everything pending (XGROUP DESTROY)."""
        return bool(self.store.execute(b"XGROUP", b"DESTROY", self.stream.key, self.key))

    def delete_consumer(self, name: str | bytes) -> int:
        """Delete a consumer and return how many messages were pending with it: they are lost to the group."""
        return int(self.store.execute(b"XGROUP", b"DELCONSUMER", self.stream.key, self.key, self.consumer(name).key))

    def consumers(self) -> list[dict[str, Any]]:
        """Return what XINFO CONSUMERS tells, a dict for each consumer."""
        return [named(one) for one in self.store.execute(b"XINFO", b"CONSUMERS", self.stream.key, self.key)]

    def info(self) -> dict[str, Any]:
        """Return what XINFO GROUPS tells of this group; KeyError where it does not exist."""
        for one in self.stream.groups():
            if one["name"] == self.name:
                return one
        raise KeyError(self.name)

    def pending_count(self) -> int:
        """Return how many messages are pending with all consumers (XPENDING). O(1)"""
        return int(self.store.execute(b"XPENDING", self.stream.key, self.key)[0])

    def pending(self, count: int = 100, *, consumer: str | None = None, idle: float = 0.0, start: IDLike = "-",
                end: IDLike = "+") -> list[Pending]:  # fmt: skip
        """Return up to `count` pending messages, lowest ID first; idle: for at least so many seconds."""
        argv = [b"XPENDING", self.stream.key, self.key, b"IDLE", b"%d" % round(idle * 1000), encode_id(start),
                encode_id(end), b"%d" % count]  # fmt: skip
        if consumer is not None:
            argv.append(consumer.encode("utf-8", "surrogateescape"))
        return [
            Pending(StreamID.parse(id_), decode(who), int(age), int(times))
            for id_, who, age, times in self.store.execute(*argv)
        ]

    def __repr__(self) -> str:
        return f"Group({self.stream.name!r}, {self.name!r})"


class Consumer:
    """One reader of a group. Iterating yields messages for ever, waiting for new ones."""

    __slots__ = ("group", "name", "key", "store")

    def __init__(self, group: Group, name: str | bytes) -> None:
        self.group = group
        self.store: Store = group.store
        self.key = name if isinstance(name, bytes) else name.encode("utf-8", "surrogateescape")
        self.name = decode(self.key)

    def read(self, count: int = 100, *, block: float | None = None, after: IDLike = ">", noack: bool = False) -> list[Message]:
        """Return messages (XREADGROUP): new ones, or with an ID this consumer's pending ones after it.

        block: seconds to wait for a new one, 0 for ever; noack: they count as acknowledged at once.
        """
        argv = [b"XREADGROUP", b"GROUP", self.group.key, self.key, b"COUNT", b"%d" % count]
        if block is not None:
            argv += [b"BLOCK", b"%d" % round(block * 1000)]
        if noack:
            argv.append(b"NOACK")
        reply = self.store.execute(*argv, b"STREAMS", self.group.stream.key, encode_id(after))
        return self._messages(stream_part(reply))

    def claim(self, idle: float, count: int = 100, start: IDLike = "0-0") -> tuple[StreamID, list[Message]]:
        """Take over messages that were pending for `idle` seconds (XAUTOCLAIM): (where to go on, messages).

        Messages whose entries were deleted meanwhile leave the pending list. (0, 0) means that the list was seen whole.
        """
        reply = self.store.execute(b"XAUTOCLAIM", self.group.stream.key, self.group.key, self.key,
                                   b"%d" % round(idle * 1000), encode_id(start), b"COUNT", b"%d" % count)  # fmt: skip
        return StreamID.parse(reply[0]), self._messages(reply[1])

    def pending(self, count: int = 100, idle: float = 0.0) -> list[Pending]:
        """Return what is pending with this consumer, lowest ID first."""
        return self.group.pending(count, consumer=self.name, idle=idle)

    def messages(self, count: int = 100, *, block: float | None = 1.0, claim_idle: float | None = None,
                 max_deliveries: int | None = None, dead_letters: str | None = None, stop_when_empty: bool = False
                 ) -> Iterator[Message]:  # fmt: skip
        """Yield this consumer's own pending messages first (after a restart), then stale ones of others, then new ones.

        claim_idle: seconds after which others' pending messages are stale; None claims nothing.
        max_deliveries, dead_letters: a stale message delivered more often goes to that stream and is acknowledged.
        stop_when_empty: end when nothing is left instead of waiting for more.
        """
        yield from self._own_pending(count)
        while True:
            stale: list[Message] = []
            if claim_idle is not None:
                stale = self._claim_stale(claim_idle, count, max_deliveries, dead_letters)
                yield from stale
            fresh = self.read(count, block=None if stop_when_empty or stale else block)
            yield from fresh
            if stop_when_empty and not fresh and not stale:
                return

    def _own_pending(self, count: int) -> Iterator[Message]:
        after: IDLike = "0-0"
        while batch := self.read(count, after=after):
            after = batch[-1].id
            # An entry deleted while pending comes back without fields: nothing to handle.
            yield from (message for message in batch if message.pairs)
            self._forget([message for message in batch if not message.pairs])

    def _forget(self, deleted: list[Message]) -> None:
        if deleted:
            self.group.ack(*(message.id for message in deleted))

    def _claim_stale(self, idle: float, count: int, limit: int | None, dead: str | None) -> list[Message]:
        _, messages = self.claim(idle, count)
        if limit is None or not messages:
            return messages
        found = self.group.pending(len(messages), consumer=self.name, start=messages[0].id, end=messages[-1].id)
        worn = {one.id: one.deliveries for one in found if one.deliveries > limit}
        for message in messages:
            if message.id in worn:
                self._bury(message, worn[message.id], dead)
        return [message for message in messages if message.id not in worn]

    def _bury(self, message: Message, deliveries: int, dead: str | None) -> None:
        """Move a message to the dead letters and acknowledge it, both or neither."""
        commands: list[list[bytes]] = [[b"MULTI"]]
        if dead is not None:
            origin = [b"_stream", self.group.stream.key, b"_group", self.group.key, b"_id", str(message.id).encode(),
                      b"_deliveries", b"%d" % deliveries]  # fmt: skip
            flat = [part for pair in message.pairs for part in pair]
            commands.append([b"XADD", dead.encode("utf-8", "surrogateescape"), b"*", *flat, *origin])
        commands.append([b"XACK", self.group.stream.key, self.group.key, str(message.id).encode()])
        self.store.execute_many([*commands, [b"EXEC"]])

    def _messages(self, reply: Any) -> list[Message]:
        return [Message(StreamID.parse(one[0]), one[1] or [], self.group) for one in reply or () if one is not None]

    def __iter__(self) -> Iterator[Message]:
        """Yield messages for ever; see `messages`."""
        return self.messages()

    def __repr__(self) -> str:
        return f"Consumer({self.group.stream.name!r}, {self.group.name!r}, {self.name!r})"

"""Group and Consumer: work distributed among readers; each message is handled and acknowledged.

    group = stream.group("billing")
    for message in group.consumer("worker-1").messages(claim_idle=30, max_deliveries=5, dead_letters="billing.dead"):
        handle(message)
        message.ack()

A delivered message is pending until it is acknowledged. If its consumer dies, another consumer claims the message once
it has been idle for `claim_idle` seconds. A message that was delivered more than `max_deliveries` times goes to the
dead-letter stream instead: its fields, followed by its origin in the fields _stream, _group, _id and _deliveries.

Two methods require the commands of Redis 8.4 and 8.8, which rillet has: `read(claim_idle=...)` claims and reads in one
call, and `nack` releases a message so that another consumer can claim it at once.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from rillet.store.encoding import IDLike, decode, encode_id, encode_name, parse_id
from rillet.store.entry import Entry, milliseconds, named, stream_part
from rillet.types.stream.id import StreamID

if TYPE_CHECKING:
    from rillet.store.store import Store
    from rillet.store.stream import Stream


class PendingEntry(NamedTuple):
    """A pending message: its consumer, the milliseconds since its delivery, and the number of deliveries."""

    id: StreamID
    consumer: str
    idle_ms: int
    deliveries: int


class Message(Entry):
    """An entry delivered to a consumer: call `ack()` when it is handled, `nack()` to let another consumer try.

    deliveries: the number of earlier deliveries; idle_ms: the milliseconds since the last delivery. Only
    `read(claim_idle=...)` sets these two.
    """

    __slots__ = ("deliveries", "group", "idle_ms")

    def __init__(self, raw_id: bytes, flat: list[bytes], group: Group, idle_ms: int | None = None,
                 deliveries: int | None = None) -> None:  # fmt: skip
        self.raw_id = raw_id
        self.flat = flat
        self.group = group
        self.idle_ms = idle_ms
        self.deliveries = deliveries

    def ack(self) -> bool:
        """Acknowledge the message; return False if it was acknowledged before."""
        return self.group.ack(self.raw_id) == 1

    def nack(self, mode: str = "fail", *, deliveries: int | None = None) -> bool:
        """Release the message (see Group.nack); return False if it is no longer pending."""
        return self.group.nack(self.raw_id, mode=mode, deliveries=deliveries) == 1


def pending_of(reply: Any) -> list[PendingEntry]:
    """Return the messages of an XPENDING reply with a range."""
    return [PendingEntry(parse_id(raw_id), decode(who), int(age), int(times)) for raw_id, who, age, times in reply]


class Group:
    """A consumer group of a stream: `last-delivered-id`, consumers, and pending entries."""

    __slots__ = ("stream", "name", "key", "store")

    def __init__(self, stream: Stream, name: str | bytes) -> None:
        self.stream = stream
        self.store: Store = stream.store
        self.key = encode_name(name)
        self.name = decode(self.key)

    def consumer(self, name: str | bytes) -> Consumer:
        """Return the consumer of that name; its first read creates it."""
        return Consumer(self, name)

    def ack(self, *ids: IDLike) -> int:
        """Acknowledge messages and return how many were pending (XACK). O(1) each"""
        return int(self.store.execute(b"XACK", self.stream.key, self.key, *map(encode_id, ids)))

    def nack(self, *ids: IDLike, mode: str = "fail", deliveries: int | None = None, force: bool = False) -> int:
        """Release messages, so that the next claim gets them first; return how many were pending (XNACK). O(1) each

        mode: "fail" keeps the delivery count; "silent" decrements it; "fatal" sets the highest possible count.
        deliveries: sets the delivery count to this number. force: also release entries that are not pending.
        """
        argv = [b"XNACK", self.stream.key, self.key, encode_name(mode), b"IDS", b"%d" % len(ids), *map(encode_id, ids)]
        if deliveries is not None:
            argv += [b"RETRYCOUNT", b"%d" % deliveries]
        if force:
            argv.append(b"FORCE")
        return int(self.store.run(argv))

    def set_id(self, id: IDLike) -> None:
        """Set the ID after which the group delivers next (XGROUP SETID)."""
        self.store.execute(b"XGROUP", b"SETID", self.stream.key, self.key, encode_id(id))

    def delete(self) -> bool:
        """Delete the group and its pending entries (XGROUP DESTROY)."""
        return bool(self.store.execute(b"XGROUP", b"DESTROY", self.stream.key, self.key))

    def delete_consumer(self, name: str | bytes) -> int:
        """Delete a consumer and its pending messages; return the number of these messages."""
        return int(self.store.execute(b"XGROUP", b"DELCONSUMER", self.stream.key, self.key, self.consumer(name).key))

    def consumers(self) -> list[dict[str, Any]]:
        """Return the fields of XINFO CONSUMERS, a dict for each consumer."""
        return [named(one) for one in self.store.execute(b"XINFO", b"CONSUMERS", self.stream.key, self.key)]

    def info(self) -> dict[str, Any]:
        """Return the fields of XINFO GROUPS for this group; KeyError if the group does not exist."""
        for one in self.stream.groups():
            if one["name"] == self.name:
                return one
        raise KeyError(self.name)

    def pending_count(self) -> int:
        """Return the number of pending messages of all consumers (XPENDING). O(1)"""
        return int(self.store.execute(b"XPENDING", self.stream.key, self.key)[0])

    def pending(self, count: int = 100, *, consumer: str | bytes | None = None, idle: float = 0.0, start: IDLike = "-",
                end: IDLike = "+") -> list[PendingEntry]:  # fmt: skip
        """Return up to `count` pending messages, lowest ID first; idle: the minimum seconds since delivery."""
        return pending_of(self.store.run(self.pending_command(count, consumer, idle, start, end)))

    def pending_command(self, count: int, consumer: str | bytes | None, idle: float, start: IDLike,
                        end: IDLike) -> list[bytes]:  # fmt: skip
        """Return the XPENDING command that `pending` sends."""
        argv = [b"XPENDING", self.stream.key, self.key, b"IDLE", b"%d" % round(idle * 1000), encode_id(start),
                encode_id(end), b"%d" % count]  # fmt: skip
        return argv if consumer is None else [*argv, encode_name(consumer)]

    def __repr__(self) -> str:
        return f"Group({self.stream.name!r}, {self.name!r})"


class Consumer:
    """A reader of a group. Iterating yields messages without end and waits for new ones."""

    __slots__ = ("group", "name", "key", "store")

    def __init__(self, group: Group, name: str | bytes) -> None:
        self.group = group
        self.store: Store = group.store
        self.key = encode_name(name)
        self.name = decode(self.key)

    def ack(self, *messages: Message) -> int:
        """Acknowledge messages and return how many were pending (XACK). O(1) each"""
        return self.group.ack(*(message.raw_id for message in messages))

    def read(self, count: int = 100, *, block: float | None = None, after: IDLike = ">", noack: bool = False,
             claim_idle: float | None = None) -> list[Message]:  # fmt: skip
        """Return new messages or, if `after` is an ID, this consumer's pending messages after that ID (XREADGROUP).

        block: seconds to wait for a new message, 0 without limit; noack: the messages are acknowledged at once.
        claim_idle: first claim messages that were pending for that many seconds; `block` also waits for such messages.
        """
        argv = self.read_command(count, block, after, noack, claim_idle)
        return self.messages_of(stream_part(self.store.run(argv)))

    def read_command(self, count: int, block: float | None, after: IDLike, noack: bool,
                     claim_idle: float | None = None) -> list[bytes]:  # fmt: skip
        """Return the XREADGROUP command that `read` sends."""
        argv = [b"XREADGROUP", b"GROUP", self.group.key, self.key, b"COUNT", b"%d" % count]
        if block is not None:
            argv += [b"BLOCK", milliseconds(block)]
        if claim_idle is not None:
            argv += [b"CLAIM", b"%d" % round(claim_idle * 1000)]
        if noack:
            argv.append(b"NOACK")
        return [*argv, b"STREAMS", self.group.stream.key, encode_id(after)]

    def claim(self, idle: float, count: int = 100, start: IDLike = "0-0") -> tuple[StreamID, list[Message]]:
        """Claim messages that were pending for `idle` seconds (XAUTOCLAIM); return (start of the next call, messages).

        Messages whose entries were deleted leave the pending list. The start (0, 0) means that the whole list was read.
        """
        reply = self.store.run(self.claim_command(idle, count, start))
        return parse_id(reply[0]), self.messages_of(reply[1])

    def claim_command(self, idle: float, count: int, start: IDLike) -> list[bytes]:
        """Return the XAUTOCLAIM command that `claim` sends."""
        return [b"XAUTOCLAIM", self.group.stream.key, self.group.key, self.key, b"%d" % round(idle * 1000),
                encode_id(start), b"COUNT", b"%d" % count]  # fmt: skip

    def pending(self, count: int = 100, idle: float = 0.0) -> list[PendingEntry]:
        """Return the pending messages of this consumer, lowest ID first."""
        return self.group.pending(count, consumer=self.key, idle=idle)

    def messages(self, count: int = 100, *, block: float | None = 1.0, claim_idle: float | None = None,
                 max_deliveries: int | None = None, dead_letters: str | bytes | None = None,
                 stop_when_empty: bool = False) -> Iterator[Message]:  # fmt: skip
        """Yield this consumer's own pending messages (after a restart), then stale messages, then new messages.

        claim_idle: seconds after which pending messages of other consumers are stale; None claims nothing.
        max_deliveries, dead_letters: a pending message delivered more often goes to that stream and is acknowledged.
        stop_when_empty: end when no message is left instead of waiting for more.
        """
        steps = delivery(self, count, block, claim_idle, max_deliveries, dead_letters, stop_when_empty)
        reply: Any = None
        with contextlib.suppress(StopIteration):
            while True:
                step = steps.send(reply)
                reply = None
                if isinstance(step, Message):
                    yield step
                else:
                    reply = self.store.run(step)

    def messages_of(self, reply: Any) -> list[Message]:
        """Return the messages of a reply; a message whose entry was deleted while pending has no fields."""
        return [Message(one[0], one[1] or [], self.group, *one[2:]) for one in reply or () if one is not None]

    def __iter__(self) -> Iterator[Message]:
        """Yield messages without end; see `messages`."""
        return self.messages()

    def __repr__(self) -> str:
        return f"Consumer({self.group.stream.name!r}, {self.group.name!r}, {self.name!r})"


Steps: TypeAlias = "Generator[list[bytes] | Message, Any, None]"


def delivery(consumer: Consumer, count: int, block: float | None, claim_idle: float | None, max_deliveries: int | None,
             dead_letters: str | bytes | None, stop_when_empty: bool) -> Steps:  # fmt: skip
    """Yield the commands of a consumer in order, receive their replies with send(), and yield the messages.

    `Consumer.messages` and its asyncio counterpart drive this generator, so it contains no waiting.
    """
    after: IDLike = "0-0"
    while own := consumer.messages_of(stream_part((yield consumer.read_command(count, None, after, False)))):
        after = own[-1].raw_id
        yield from _fit(consumer, own, max_deliveries, dead_letters)
    cursor: IDLike = "0-0"
    while True:
        stale: list[Message] = []
        if claim_idle is not None:
            reply = yield consumer.claim_command(claim_idle, count, cursor)
            # The pending list may be longer than one reply: the next call continues at the returned ID.
            cursor, stale = parse_id(reply[0]), consumer.messages_of(reply[1])
            yield from _fit(consumer, stale, max_deliveries, dead_letters)
        busy = stop_when_empty or bool(stale)
        reply = yield consumer.read_command(count, None if busy else block, ">", False)
        fresh = consumer.messages_of(stream_part(reply))
        yield from fresh
        if stop_when_empty and not fresh and not stale and cursor in ("0-0", StreamID(0, 0)):
            return


def _fit(consumer: Consumer, messages: list[Message], limit: int | None,
         dead_letters: str | bytes | None) -> Steps:  # fmt: skip
    """Yield the messages to handle; acknowledge those with a deleted entry; move failed ones to the dead letters.

    First the dead letter is written, then the message is acknowledged. Rejected: a transaction. EXEC continues after a
    command that fails, so a dead-letter key of another type would lose the message. A crash between the two commands
    can write the dead letter twice, but never loses the message.
    """
    group = consumer.group
    worn: dict[bytes, int] = {}
    if limit is not None and messages:
        found = yield group.pending_command(len(messages), consumer.key, 0.0, messages[0].raw_id, messages[-1].raw_id)
        worn = {raw_id: times for raw_id, _, _, times in found if times > limit}
    for message in messages:
        times = worn.get(message.raw_id)
        if times is not None and message.flat and dead_letters is not None:
            origin = [b"_stream", group.stream.key, b"_group", group.key, b"_id", message.raw_id, b"_deliveries",
                      b"%d" % times]  # fmt: skip
            yield [b"XADD", encode_name(dead_letters), b"*", *message.flat, *origin]
        if times is not None or not message.flat:
            yield [b"XACK", group.stream.key, group.key, message.raw_id]
        else:
            yield message

"""The asyncio form of rillet.store.delivery.

Made from store/delivery.py by `python -m tools.make_aio`; edit that file, then run the command.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from rillet.store.aio.message import AsyncMessage, new_messages, old_messages
from rillet.store.delivery import Commands, DeliveryOptions, End, T
from rillet.store.encoding import encode_name
from rillet.store.entry import milliseconds, stream_part, stream_parts
from rillet.store.slots import by_slot

if TYPE_CHECKING:
    from rillet.store.aio.group import AsyncConsumer
    from rillet.store.aio.store import AsyncStore

Steps: TypeAlias = "Generator[list[bytes] | tuple[AsyncMessage, ...], Any, None]"


async def drive(store: AsyncStore, commands: Commands[T]) -> T:
    """Run the commands of a generator, and return its result."""
    reply: Any = None
    while True:
        try:
            argv = commands.send(reply)
        except StopIteration as end:
            result: T = end.value
            return result
        reply = await store.run(argv)


def delivery(consumers: Sequence[AsyncConsumer], options: DeliveryOptions) -> Steps:
    """Yield the commands of a consumer in order, receive their replies with send(), and yield tuples of messages.

    consumers: the consumer in the group of each stream; several are read by one command.
    """
    end = End(options)
    count = options.batch or options.count
    for consumer in consumers:
        after = b"0-0"
        while not end.requested() and (own := stream_part((yield consumer.read_command(count, None, after, False)))):
            after = own[-1][0]
            messages = yield from _to_handle(consumer, old_messages(own, consumer.group), options)
            yield from _hand_out([consumer], messages, options, end)
    cursors = [b"0-0"] * len(consumers)
    while not end.requested():
        stale = False
        for place, consumer in enumerate(consumers if options.claim_idle is not None else ()):
            reply = yield consumer.claim_command(options.claim_idle or 0.0, count, cursors[place])
            # The pending list may be longer than one reply: the next call continues at the returned ID.
            cursors[place] = reply[0]
            messages = yield from _to_handle(consumer, old_messages(reply[1], consumer.group), options)
            stale = stale or bool(reply[1])
            yield from _hand_out([consumer], messages, options, end)
            if end.stopped:
                return
        fresh: list[AsyncMessage] = []
        for argv in read_commands(consumers, count, None if stale else end.block()):
            fresh += new_messages_of((yield argv), consumers)
        yield from _hand_out(consumers, fresh, options, end)
        if not fresh and not stale:
            if end.expired() or (options.stop_when_empty and all(cursor == b"0-0" for cursor in cursors)):
                return


def read_commands(
    consumers: Sequence[AsyncConsumer], count: int, block: float | None, noack: bool = False,
    claim_idle: float | None = None,
) -> list[list[bytes]]:  # fmt: skip
    """Return the XREADGROUP of new messages of several streams: one command, or one for each slot of a cluster."""
    argv = read_options(consumers[0], count, block, noack, claim_idle)
    keys = by_slot(consumers[0].store, [consumer.group.stream.key for consumer in consumers], block is not None)
    return [[*argv, b"STREAMS", *some, *[b">"] * len(some)] for some in keys]


def read_options(
    consumer: AsyncConsumer, count: int, block: float | None, noack: bool, claim_idle: float | None
) -> list[bytes]:
    """Return the XREADGROUP of a consumer up to its STREAMS."""
    argv = [b"XREADGROUP", b"GROUP", consumer.group.key, consumer.key, b"COUNT", b"%d" % count]
    if block is not None:
        argv += [b"BLOCK", milliseconds(block)]
    if claim_idle is not None:
        argv += [b"CLAIM", b"%d" % round(claim_idle * 1000)]
    if noack:
        argv.append(b"NOACK")
    return argv


def new_messages_of(reply: Any, consumers: Iterable[AsyncConsumer]) -> list[AsyncMessage]:
    """Return the messages of an XREADGROUP reply with several streams."""
    groups = {consumer.group.stream.key: consumer.group for consumer in consumers}
    return [message for key, part in stream_parts(reply) for message in new_messages(part, groups[key])]


def counted(consumer: AsyncConsumer, messages: list[AsyncMessage]) -> Commands[list[AsyncMessage]]:
    """Set the delivery counts of old messages (XPENDING); return the messages that still belong to the consumer."""
    if not messages:
        return messages
    first, last = min(messages, key=_id_of), max(messages, key=_id_of)
    counts: dict[bytes, int] = {}
    missing = {message.raw_id for message in messages}
    start, size = first.raw_id, len(messages) + 1
    while missing:
        # The consumer may have other pending messages between these, so the list may need several replies.
        page = yield consumer.group.pending_command(size, consumer.key, 0.0, start, last.raw_id)
        counts.update((raw_id, int(times)) for raw_id, _, _, times in page)
        if len(page) < size:
            break
        missing.difference_update(counts)
        start = b"(" + page[-1][0]
    kept = [message for message in messages if message.raw_id in counts]
    for message in kept:
        message.deliveries = counts[message.raw_id]
    return kept


def _id_of(message: AsyncMessage) -> Any:
    return message.id


def _to_handle(consumer: AsyncConsumer, messages: list[AsyncMessage],
               options: DeliveryOptions) -> Commands[list[AsyncMessage]]:  # fmt: skip
    """Return the messages to handle; acknowledge those with a deleted entry; move failed ones to the dead letters.

    First the dead letter is written, then the message is acknowledged. Rejected: a transaction. EXEC continues after a
    command that fails, so a dead-letter key of another type would lose the message. A crash between the two commands
    can write the dead letter twice, but never loses the message.
    """
    group = consumer.group
    limit = options.max_deliveries
    kept = []
    for message in (yield from counted(consumer, messages)):
        exhausted = limit is not None and message.deliveries > limit
        if message.flat and not exhausted:
            kept.append(message)
            continue
        if message.flat and options.dead_letters is not None:
            origin = [b"_stream", group.stream.key, b"_group", group.key, b"_id", message.raw_id, b"_deliveries",
                      b"%d" % message.deliveries]  # fmt: skip
            yield [b"XADD", encode_name(options.dead_letters), b"*", *message.flat, *origin]
        yield [b"XACK", group.stream.key, group.key, message.raw_id]
    return kept


def _hand_out(consumers: Sequence[AsyncConsumer], messages: list[AsyncMessage], options: DeliveryOptions,
              end: End) -> Steps:  # fmt: skip
    """Yield messages one at a time or in batches; after `stop`, give the remaining messages back."""
    size = options.batch or 1
    for start in range(0, len(messages), size):
        if end.requested():
            for consumer in consumers:
                own = [message for message in messages[start:] if message.group is consumer.group]
                yield from _give_back(consumer, own, options.claim_idle or 0.0)
            return
        yield tuple(messages[start : start + size])
        end.handed_out()


def _give_back(consumer: AsyncConsumer, messages: list[AsyncMessage], idle: float) -> Commands[None]:
    """Restore the delivery counts of messages that were not handed out, unless another consumer has claimed them."""
    by_count: dict[int, list[bytes]] = {}
    for message in (yield from counted(consumer, messages)):
        by_count.setdefault(message.deliveries - 1, []).append(message.raw_id)
    for count, ids in by_count.items():
        yield [b"XCLAIM", consumer.group.stream.key, consumer.group.key, consumer.key, b"0", *ids,
               b"IDLE", b"%d" % round(idle * 1000), b"RETRYCOUNT", b"%d" % count, b"JUSTID"]  # fmt: skip


__all__ = ["counted", "delivery", "drive", "new_messages_of", "read_commands", "read_options"]

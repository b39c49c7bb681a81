"""The commands of a consumer of a partitioned stream, in order, without input or output; see consuming/delivery.py.

    balance     EVAL    about once a second: the lease of the consumer, and its partitions (rillet.store.partitions)
    behind      EVAL    a partition that is new here, or has a failed message: pending messages, the lowest ID first
    new         EVAL    new messages of one partition, if the consumer still owns it (XREADGROUP); before, the delayed
                        entries that are due are added
    wait        XREAD   waits for new entries in any of the partitions, and delivers none

A read that waits cannot check in the same step whether the consumer still owns the partition. So the loop waits with
XREAD, and reads with a script that checks it. A cluster can wait only for the keys of one slot: there the loop waits
for one partition after the other, for LOOK seconds each.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from rillet.errors import NoGroup
from rillet.real_time import monotonic
from rillet.store.arguments.encoding import decode
from rillet.store.command_steps import Commands
from rillet.store.consuming.delays import LOOK, LOOK_IN_PROCESS, LOOK_UNUSED, in_process
from rillet.store.consuming.delivery import Collection, Loop, Steps, _collect, _discard, _hand_out
from rillet.store.consuming.delivery_options import DeliveryOptions, End
from rillet.store.consuming.leases import Leases
from rillet.store.consuming.prefetch import Pace
from rillet.store.message import Delivered, new_messages, old_messages
from rillet.store.partitions import scripts
from rillet.store.partitions.layout import SEALED
from rillet.store.partitions.share import HOLD, Partition, PartitionPrefetched, Share
from rillet.store.partitions.upkeep import advanced, moved, reset

if TYPE_CHECKING:
    from rillet.store.aio.partitions.group import AsyncPartitionedConsumer
    from rillet.store.partitions.group import PartitionedConsumer

    AnyPartitionedConsumer: TypeAlias = PartitionedConsumer[Any] | AsyncPartitionedConsumer[Any]


def partition_delivery(reader: AnyPartitionedConsumer, options: DeliveryOptions, end: End,
                       prefetched: PartitionPrefetched, leases: Leases,
                       order_by: bytes | None = None) -> Steps[None]:  # fmt: skip
    """Yield commands, receive their replies with send(), and yield tuples of messages, and InvalidEntry, to raise.

    order_by: the field of that option; it must be that of the partitions.
    """
    share = prefetched.share
    share.began()
    loop = Loop(options, end, prefetched, leases, options.conditions())
    silent = Collection(options)
    pace = options.pace()
    joins = True
    layout = yield from reader.group.stream._opened()  # checks the number of partitions
    if order_by not in (None, layout.by):
        assert order_by is not None
        raise ValueError(
            f"{reader.group.stream.name!r} is partitioned by {decode(layout.by)!r}, and its messages are in the order "
            f"of that field: order_by={decode(order_by)!r} is not possible"
        )
    look = LOOK_IN_PROCESS if in_process(reader.store) else LOOK
    while not end.requested():
        if share.due():
            yield from _balanced(reader, share, joins)
            joins = False
        if silent.due():
            for part in share.in_turn():  # their messages are this consumer's already
                yield from _collect(part.consumer, options)
        found = False
        for part in share.in_turn():
            found = (yield from _served(part, share, loop, pace, look)) or found
            if end.requested() or (found and share.due()):
                break
        if found or share.next == 0.0:  # a partition is done, or lost
            continue
        if end.expired() or options.stop_when_empty:
            return
        several = reader.store.transport.clustered
        share.woke((yield share.wait(reader.store, end.block())), several)


def _balanced(reader: AnyPartitionedConsumer, share: Share, joins: bool) -> Commands[None]:
    """Renew the lease; give partitions back, and take others; begin the next epoch if this one is done."""
    again = True
    while again:
        began = monotonic()
        reply = yield share.balance(joins)
        if reply is None:
            if not reader.group.creates:
                raise NoGroup(f"No such key '{decode(share.name)}' or consumer group '{decode(share.group)}'")
            yield from reader.group.created()
            continue
        if reply[0] == -2:
            yield from reset(share.name, share.group)
            continue
        joins = False
        again = share.balanced(reply, began)
        if share.finished and share.current > share.epoch:
            yield from advanced(share.name, share.group, share.epoch)
            again = True


def _served(part: Partition, share: Share, loop: Loop, pace: Pace, look: float) -> Steps[bool]:
    """Hand out messages of a partition; return whether there were any, or may be more at once."""
    if part.behind is not None:
        found = (yield from _resumed(part, share, loop)) if monotonic() >= part.until else False
        if found or part.behind is not None:
            return found
    if not part.ready and monotonic() < part.due:
        return False
    yield from loop.prefetched.count_handed()
    group = part.consumer.group
    first = loop.options.batch or 1 if loop.options.counts else pace.size
    reply = yield scripts.read(part.key, group.key, share.consumer, part.token, pace.size, first,
                               loop.options.skipped == "leave", _words(loop))  # fmt: skip
    if reply[0] == 0:
        share.lost(part)
        return False
    _, rows, again, *state = reply
    pending, wait = 0, -1
    if state:
        part.after, pending, wait = state
        part.ready = False
        part.due = monotonic() + (LOOK_UNUSED if wait == -2 else look if wait < 0 else min(look, wait / 1000 + 0.001))
    sealed = part.after == SEALED
    if rows:
        part.after = part.after if state else rows[-1][0]
        part.ready = part.ready or sealed  # to read again when these are acknowledged
        messages = new_messages(rows, part.consumer, part.consumer._message_class)
        for message in messages[first:]:
            message.deliveries = 0
        pace.began()
        loop.prefetched.fill_in_turn(messages, first)
        yield from _hand_out(share.consumer, loop)
        pace.handled(len(rows))
        return True
    if again:
        return True
    if sealed and (wait < 0 or (yield from moved(share.name, share.epoch, part.key))) and pending == 0:
        share.done(part)
    return False


def _words(loop: Loop) -> list[bytes]:
    return [] if loop.conditions is None else loop.conditions.words


def _resumed(part: Partition, share: Share, loop: Loop) -> Steps[bool]:
    """Hand out the next pending messages of a partition; return whether there were any."""
    options = loop.options
    assert part.behind is not None
    yield from loop.prefetched.count_handed()
    reply = yield scripts.resume(part.key, part.consumer.group.key, share.consumer, part.token, part.behind,
                                 options.batch or 1, options.max_deliveries, options.skipped == "leave",
                                 _words(loop))  # fmt: skip
    if reply[0] == 0:
        share.lost(part)
        return False
    _, wait, last, rows = reply
    if last:
        part.behind = b"(" + last
    elif wait < 0:
        part.behind, part.ready = None, True
    if wait >= 0:
        part.until = monotonic() + min(HOLD, wait / 1000 + 0.001)
    messages = _messages(part, rows)
    for message, row in zip(list(messages), rows, strict=True):
        if row[2]:
            messages.remove(message)
            yield from _discard(message, options)
    yield from loop.prefetched.fill(messages, len(messages))
    yield from _hand_out(share.consumer, loop)
    return bool(last)


def _messages(part: Partition, rows: Sequence[Any]) -> list[Delivered[Any]]:
    messages = old_messages([row[0] for row in rows], part.consumer, part.consumer._message_class)
    for message, row in zip(messages, rows, strict=True):
        message.deliveries = row[1]
    return messages

"""Creation, repartition, the groups of new partitions, and deletion: commands in order, without I/O.

**A change of the number of partitions** has four steps, each of which may be repeated:

    begin     the description has the number of the next epoch (`next`)
    create    the keys of the next epoch
    seal      the keys of the epoch that ends: they accept no entry any more
    commit    the next epoch is the one that receives entries; `next` is gone

If the program is killed in between, the next call of `repartition` continues, and so does the first writer whose entry
a sealed key refuses. The first keys of a stream are created in the same way, by the first call that needs them.

**Order.** An entry of one key is added to one partition of the ending epoch until this is sealed, and afterwards to one
of the next epoch. A group reads the next epoch when it has acknowledged everything in the ending one. So it handles the
entries of one key in their order, and nothing is copied. The price: a message that nobody acknowledges holds the group
in its epoch; `max_deliveries` bounds this.

**Delayed entries** of an epoch that has ended move to the next one: `moved`, by the consumers of any group.

**Deletion.** The keys of an ended epoch stay, as the acknowledged entries of any stream stay, until `delete_drained`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from rillet.errors import PartitionMismatch
from rillet.keyspace.helper_keys import consumers_key, delayed_key, moved_key, owner_key, partitions_key, retries_key
from rillet.store.arguments.encoding import decode, find_field
from rillet.store.command_steps import Commands
from rillet.store.consuming.atomic_steps import STEP_SIZE
from rillet.store.consuming.delays import fields_of, scored, waiting_command
from rillet.store.partitions import scripts
from rillet.store.partitions.layout import Layout, keys_of, layout_of, partition_of


def described(name: bytes) -> Commands[Layout | None]:
    """Return the description of a partitioned stream; None if there is none."""
    return layout_of(name, (yield [b"HGETALL", partitions_key(name)]))


def opened(name: bytes, partitions: int | None, by: bytes | None) -> Commands[Layout]:
    """Return the description; create the stream if it is missing. PartitionMismatch if it is another one."""
    layout = yield from described(name)
    if layout is None or layout.epoch == 0:
        if layout is None and (partitions is None or by is None):
            raise PartitionMismatch(
                f"{decode(name)!r} is not a partitioned stream of this store: pass partitions and by to create it"
            )
        if layout is None:
            assert partitions is not None and by is not None
            layout = layout_of(name, (yield scripts.begin(name, by, partitions, 0)))
            assert layout is not None
        layout = yield from finished(layout)
    check(layout, partitions, by)
    return layout


def check(layout: Layout, partitions: int | None, by: bytes | None) -> None:
    """Raise PartitionMismatch if a stream has another number of partitions, or another field."""
    name = decode(layout.name)
    if by is not None and by != layout.by:
        raise PartitionMismatch(f"{name!r} is partitioned by {decode(layout.by)!r}, not by {decode(by)!r}")
    if partitions is not None and partitions != layout.partitions:
        raise PartitionMismatch(
            f"{name!r} has {layout.partitions} partitions, not {partitions}: leave out partitions, or change their "
            f"number with repartition({partitions})"
        )


def finished(layout: Layout) -> Commands[Layout]:
    """Finish the change that is under way, if any; return the description."""
    name, ends, partitions = layout.name, layout.epoch, layout.next
    if not partitions:
        return layout
    made = keys_of(name, ends + 1, partitions)
    yield [scripts.create(key) for key in made]
    if layout.retain:
        yield [[b"RILLET.XRETAIN", key, *layout.retain] for key in made]
    if ends:
        yield [scripts.seal(key) for key in layout.streams()]
    after = layout_of(name, (yield scripts.commit(name, ends, partitions)))
    if after is not None and after.retain != layout.retain:  # changed meanwhile
        after = yield from _retained_in(after, made)
    if after is None:
        raise PartitionMismatch(f"{decode(name)!r} was deleted while its number of partitions changed")
    if ends + 1 not in after.epochs and after.epoch > ends + 1:  # others changed it several times meanwhile
        yield from _without(name, [(ends + 1, partitions)], (), layout.retain)
    return after


def repartitioned(name: bytes, partitions: int) -> Commands[Layout]:
    """Change the number of partitions, or continue this; return the description."""
    layout = yield from described(name)
    if layout is None:
        raise PartitionMismatch(f"{decode(name)!r} is not a partitioned stream of this store: nothing to repartition")
    if layout.next == 0 and layout.partitions != partitions:
        layout = layout_of(name, (yield scripts.begin(name, layout.by, partitions, layout.epoch)))
        assert layout is not None
    if layout.next not in (0, partitions):
        raise PartitionMismatch(
            f"a change of {decode(name)!r} to {layout.next} partitions is under way: call repartition({layout.next}) "
            "to finish it first"
        )
    return (yield from finished(layout))


# -- retention ----------------------------------------------------------------------------------------------


def retained(name: bytes, words: list[bytes]) -> Commands[Layout | None]:
    """Let each partition keep no more than the words of RILLET.XRETAIN say; return the description.

    The first command is refused by a server without retention: then nothing changes. The description is changed before
    the keys are listed for the last time, so a change that is under way sees the limits, or its keys are among these.
    """
    layout = yield from described(name)
    if layout is None:
        return None
    yield [b"RILLET.XRETAIN", layout.streams()[0], *words]
    key = partitions_key(name)
    yield [b"HSET", key, b"retain", b" ".join(words)] if words else [b"HDEL", key, b"retain"]
    layout = yield from described(name)
    if layout is None:
        return None
    keys = layout.all_keys()
    keys += keys_of(name, layout.epoch + 1, layout.next) if layout.next else ()
    return (yield from _retained_in(layout, keys))


def _retained_in(layout: Layout | None, keys: Sequence[bytes]) -> Commands[Layout | None]:
    """Set the limits of some keys, until the description says the same after this."""
    words = None
    while layout is not None and layout.retain != words:
        words = layout.retain
        yield [[b"RILLET.XRETAIN", key, *words] for key in keys]
        layout = yield from described(layout.name)
    return layout


# -- groups ------------------------------------------------------------------------------------------------


def grouped(layout: Layout, group: bytes, start: bytes) -> Commands[bool]:
    """Create a group in all partitions and register it; return whether it was new."""
    name = layout.name
    while True:
        exist = yield [scripts.ensure_group(key, group, start) for key in layout.all_keys()]
        if all(exist):
            return bool((yield scripts.join(name, group, b"0" if start == b"$" else start)))
        layout = yield from _again(layout)


def advanced(name: bytes, group: bytes, epoch: int) -> Commands[None]:
    """Let a group that has handled an epoch read the next one."""
    layout = yield from described(name)
    if layout is None or epoch + 1 not in layout.epochs:
        return
    start = (yield [b"HGET", consumers_key(name, group), b"start"]) or b"0"
    yield [scripts.ensure_group(key, group, start) for key in layout.streams(epoch + 1)]
    yield scripts.advance(name, group, epoch)


def reset_to(name: bytes, group: bytes, position: bytes) -> Commands[bool]:
    """Let a group continue at a position in every partition; return False if there is no such group."""
    if not (yield scripts.begin_reset(name, group, position)):
        return False
    yield from reset(name, group)
    return True


def reset(name: bytes, group: bytes) -> Commands[None]:
    """Finish the reset of a group that has begun, if any."""
    begun = yield [b"HGET", consumers_key(name, group), b"reset"]
    layout = yield from described(name)
    if begun is None or layout is None:
        return
    token, _, position = begun.partition(b" ")
    yield [scripts.reset(key, group, position, int(token)) for key in layout.all_keys()]
    after = yield from described(name)
    if after is not None and after.epochs.keys() - layout.epochs.keys():  # their groups may exist
        yield from reset(name, group)
        return
    yield scripts.end_reset(name, group, int(token), b"0" if position == b"$" else position)


def moved(name: bytes, epoch: int, key: bytes) -> Commands[bool]:
    """Move the delayed entries of a sealed partition to the next epoch; return whether that exists."""
    layout = yield from described(name)
    if layout is None or epoch + 1 not in layout.epochs:
        return False
    targets = keys_of(name, epoch + 1, layout.epochs[epoch + 1])
    while True:
        members = scored((yield waiting_command(delayed_key(key), STEP_SIZE)))
        if not members:
            return True
        parts: dict[bytes, list[tuple[bytes, float]]] = {}
        for member, due in members:
            value: Any = find_field(fields_of(member), layout.by)
            parts.setdefault(targets[partition_of(value, len(targets))], []).append((member, due))
        if not all((yield [scripts.move(key, target, some) for target, some in parts.items()])):
            return False
        yield [b"ZREM", delayed_key(key), *[member for member, _ in members]]


def ungrouped(layout: Layout, group: bytes) -> Commands[bool]:
    """Delete a group; return whether it existed."""
    record = consumers_key(layout.name, group)
    replies = yield [[b"MULTI"], [b"DEL", record], [b"HDEL", partitions_key(layout.name), b"group:" + group], [b"EXEC"]]
    for key in layout.all_keys():
        if (yield [b"EXISTS", key]):
            yield [b"XGROUP", b"DESTROY", key, group]
        yield [b"DEL", owner_key(key, group)]
        yield [b"DEL", retries_key(key, group)]
    return bool(replies[-1][0])


def _again(layout: Layout) -> Commands[Layout]:
    """Return the description again after a key was missing; PartitionMismatch if it is unchanged."""
    found = yield from described(layout.name)
    if found is None or found.epochs == layout.epochs:
        raise missing_key(layout)
    return found


def missing_key(layout: Layout) -> PartitionMismatch:
    """Return the error for a key of a partition that someone has deleted."""
    return PartitionMismatch(
        f"a key of the partitioned stream {decode(layout.name)!r} is missing, such as {decode(layout.streams()[0])!r}: "
        "it was deleted. PartitionedStream.delete() deletes what is left"
    )


# -- deletion ------------------------------------------------------------------------------------------------


def drained(name: bytes) -> Commands[int]:
    """Delete the keys of ended epochs that every group has handled; return how many keys."""
    layout = yield from described(name)
    if layout is None:
        return 0
    for epoch in list(layout.epochs)[:-1]:
        if not (yield scripts.drop(name, epoch)):
            break
    layout = yield from described(name)
    if layout is None:
        return 0
    return (yield from _without(name, layout.deleted.items(), layout.groups, layout.retain))


def _without(name: bytes, epochs: Iterable[tuple[int, int]], groups: Iterable[bytes],
             retain: Sequence[bytes] = ()) -> Commands[int]:  # fmt: skip
    """Delete the keys of epochs, and what is beside them; return how many keys. retain: their limits."""
    deleted = 0
    for epoch, partitions in epochs:
        for key in keys_of(name, epoch, partitions):
            deleted += int((yield [b"UNLINK", key]))
            for group in groups:
                yield [b"UNLINK", owner_key(key, group), retries_key(key, group)]
            yield [b"UNLINK", delayed_key(key), moved_key(key)]
            if retain:
                yield [b"RILLET.XRETAIN", key]
        yield [b"HDEL", partitions_key(name), b"deleted:%d" % epoch]
    return deleted


def deleted(name: bytes) -> Commands[int]:
    """Delete a partitioned stream with its groups; return how many keys of partitions it had."""
    layout = yield from described(name)
    if layout is None:
        return 0
    epochs = layout.deleted | layout.epochs | ({layout.epoch + 1: layout.next} if layout.next else {})
    yield [[b"MULTI"], *([b"DEL", consumers_key(name, group)] for group in layout.groups),
           [b"DEL", partitions_key(name)], [b"EXEC"]]  # fmt: skip
    return (yield from _without(name, epochs.items(), layout.groups, layout.retain))

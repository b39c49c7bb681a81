"""What must hold of a consumer group, verified entry by entry.

The checks read the public face only, so one text serves both speeds and the types stay free of it. They
are for tests, `rillet check` and the curious; nothing in the way of a command calls them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rillet.structs.rax import NOT_FOUND

if TYPE_CHECKING:
    from rillet.types.group import Group


def must(holds: bool, invariant: str) -> None:
    """Raise AssertionError with the invariant's words unless it holds (an assert that -O keeps)."""
    if not holds:
        raise AssertionError(invariant)


def check_group(group: Group) -> None:
    """Verify a group: its trees, and that each pending entry has one owner, and the same object at both. O(entries)."""
    group.pel.check()
    owned = 0
    for name, consumer in group.consumers.items():
        must(consumer.name == name, f"consumer {name!r} bears its name")
        consumer.pel.check()
        for key, entry in consumer.pel.items():
            must(group.pel.find(key) is entry, f"{key.hex()} of {name!r} is the group's pending entry")
            must(entry.consumer is consumer, f"{key.hex()} of {name!r} names its owner")
            owned += 1
    must(owned == group.pel.numele, "each pending entry has one owner")
    for key, entry in group.pel.items():
        must(len(key) == 16, "a pending entry's key has 16 bytes")
        must(entry.consumer is not None, f"{key.hex()} has an owner")
        must(entry.consumer.pel.find(key) is not NOT_FOUND, f"{key.hex()} is with its owner")

"""What must hold of a consumer group, verified entry by entry.

The checks read the public face only, so one text serves both speeds and the types stay free of it. They
are for tests, `rillet check` and the curious; nothing in the way of a command calls them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rillet.types.stream.group import Group


def must(holds: bool, invariant: str) -> None:
    """Raise AssertionError with the invariant's words unless it holds (an assert that -O keeps)."""
    if not holds:
        raise AssertionError(invariant)


def check_group(group: Group) -> None:
    """Verify a group: its indexes, that each pending entry has one owner or none, and the order by time. O(entries)"""
    table = group.table
    group.index.check(table)
    pending = group.index.slots()
    owned: set[int] = set()
    for name, consumer in group.consumers.items():
        must(consumer.name == name and consumer.group_name == group.name, f"consumer {name!r} bears its name")
        must(table.owners[consumer.number] is consumer, f"consumer {name!r} is found by its number")
        consumer.index.check(table)
        for slot in consumer.index.slots():
            must(table.owner(slot) is consumer, f"{table.ms(slot)}-{table.seq(slot)} of {name!r} names its owner")
            must(slot not in owned, f"{table.ms(slot)}-{table.seq(slot)} has one owner")
            owned.add(slot)
    must(owned <= set(pending), "what a consumer has is pending in the group")
    nobodys = [slot for slot in pending if slot not in owned]
    must(all(table.owner(slot) is group.nobody for slot in nobodys), "what no consumer has is nobody's")
    ordered = group.order.slots(table)
    must(sorted(ordered) == sorted(pending), "the order by time has the slots of the index")
    must(set(ordered[: group.order.released]) == set(nobodys), "the first in the order are nobody's")

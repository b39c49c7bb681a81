"""Verification of a consumer group's invariants, entry by entry.

Tests and `rillet check` call these functions; commands do not. They use public attributes only, so they work on
compiled and interpreted groups.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rillet.types.stream.group import Group


def must(holds: bool, invariant: str) -> None:
    """Raise AssertionError with the invariant's text unless `holds` is true; unlike `assert`, also under python -O."""
    if not holds:
        raise AssertionError(invariant)


def check_group(group: Group) -> None:
    """Verify a group: its indexes, the owner of each pending entry, and the order by time. O(pending entries)"""
    table = group.table
    group.index.check(table)
    pending = group.index.slots()
    owned: set[int] = set()
    for name, consumer in group.consumers.items():
        must(consumer.name == name and consumer.group_name == group.name, f"consumer {name!r} has the right name")
        must(table.owners[consumer.number] is consumer, f"owner number {consumer.number} is consumer {name!r}")
        consumer.index.check(table)
        for slot in consumer.index.slots():
            must(table.owner(slot) is consumer, f"{table.ms(slot)}-{table.seq(slot)} of {name!r} has this owner")
            must(slot not in owned, f"{table.ms(slot)}-{table.seq(slot)} has one owner")
            owned.add(slot)
    must(owned <= set(pending), "the pending entries of a consumer are pending in the group")
    nobodys = [slot for slot in pending if slot not in owned]
    must(all(table.owner(slot) is group.nobody for slot in nobodys), "released entries belong to the consumer `nobody`")
    ordered = group.order.slots(table)
    must(sorted(ordered) == sorted(pending), "the order by time has the same slots as the group's index")
    must(set(ordered[: group.order.released]) == set(nobodys), "the order by time begins with the released entries")

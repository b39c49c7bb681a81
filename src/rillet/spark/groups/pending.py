"""Reads the IDs that are pending for the query's consumer (XPENDING)."""

from __future__ import annotations

from rillet.spark.groups.group_position import GroupPosition
from rillet.spark.read.metadata import id_text
from rillet.types.stream.id import MAX, StreamID


def pending_ids(group: GroupPosition, stream: str, low: bytes, high: bytes, count: int) -> list[StreamID]:
    """Return up to `count` pending IDs of the consumer from `low` to `high`, in order."""
    key = stream.encode()
    entries = group.servers.call(key, b"XPENDING", key, group.name, low, high, b"%d" % count, group.consumer)
    return [StreamID.parse(entry[0]) for entry in entries]


def pending_after(group: GroupPosition, stream: str, after: StreamID, high: bytes, count: int) -> list[StreamID]:
    """Return up to `count` pending IDs larger than `after`; none if `after` is the largest possible ID."""
    return [] if after.ms == after.seq == MAX else pending_ids(group, stream, b"(" + id_text(after), high, count)

"""Records of XINFO, XPENDING and RILLET.XINFO: the state of streams, groups and pending entries, with types and units.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, NamedTuple

from rillet.store.arguments.encoding import decode, parse_id
from rillet.store.entry import named
from rillet.types.stream.id import StreamID


class PendingEntry(NamedTuple):
    """A pending message: its consumer, the milliseconds since its delivery, and the number of deliveries.

    A released message (XNACK) has no consumer, and -1 milliseconds.
    """

    id: StreamID
    consumer: str
    idle_ms: int
    deliveries: int


class PendingSummary(NamedTuple):
    """The pending messages of a group: their number, the lowest and highest ID, and the number for each consumer.

    The IDs are None if nothing is pending. `consumers` has only the consumers with pending messages.
    """

    total: int
    first_id: StreamID | None
    last_id: StreamID | None
    consumers: dict[str, int]


class ConsumerInfo(NamedTuple):
    """A consumer of a group, and the number of its pending messages (XINFO CONSUMERS).

    idle_ms: milliseconds since the consumer last sent a command. inactive_ms: milliseconds since it last received or
    claimed a message; None if it never did, or if the server is older than Redis 7.2.
    """

    name: str
    pending: int
    idle_ms: int
    inactive_ms: int | None


class GroupInfo(NamedTuple):
    """The state of a group (XINFO GROUPS): the numbers of its consumers and of its pending messages, and its position.

    entries_read: the number of entries that were delivered; lag: the number that remain. Both are None if unknown:
    after entries between the position and the end were deleted, or on servers older than Redis 7.0.
    """

    name: str
    consumers: int
    pending: int
    last_delivered_id: StreamID
    entries_read: int | None
    lag: int | None


class OrderedKey(NamedTuple):
    """A key of an order with pending messages (rillet.store.consuming.order_steps).

    key: the value of the field, None for a message without it. consumer: it holds the key, until the time `until`, or
    without end if that is None; None if the first message may be taken now. first, deliveries: of this message.
    messages: the number of pending messages of the key, with the first one.
    """

    key: str | None
    consumer: str | None
    first: StreamID
    deliveries: int
    messages: int
    until: datetime | None


@dataclass(frozen=True, slots=True)
class HeldBack:
    """What a group holds back of the entries that the retention of a stream would remove.

    first_id: the first entry that the group needs: its oldest pending one, or the one after its position. bytes: those
    of whole nodes.
    """

    group: str
    entries: int
    bytes: int
    first_id: StreamID


@dataclass(frozen=True, slots=True)
class Retention:
    """How much of a stream is kept (`Stream.retain`), and what is removed next.

    age: seconds; entries, bytes: the most that are kept; None for no limit. groups: "acknowledged" or "ignore".
    drops_entries, drops_bytes: what exceeds the limits and goes within the next steps; None if a segment cannot be
    read. keeps_from: the first entry that then remains, None if nothing goes. due: when the first entry becomes too
    old, in seconds since 1970; None without a limit of age, or without entries. held: what groups hold back. note: why
    nothing goes, "" if there is no reason.
    """

    age: float | None
    entries: int | None
    bytes: int | None
    groups: str
    drops_entries: int | None
    drops_bytes: int | None
    keeps_from: StreamID | None
    due: float | None
    held: list[HeldBack]
    note: str


@dataclass(frozen=True, slots=True)
class StreamPlaces:
    """Where the entries of a stream are: in memory and in segments (docs/larger-than-memory.md), and its retention.

    bytes: those of the nodes. ranges: the parts of segments that the stream has.
    """

    entries_in_memory: int
    bytes_in_memory: int
    nodes_in_segments: int
    entries_in_segments: int
    bytes_in_segments: int
    ranges: int
    retention: Retention | None


def places_of(reply: Any) -> StreamPlaces:
    """Return the record of a RILLET.XINFO reply."""
    fields = named(reply)
    retention = fields.pop("retention")
    figures = {name.replace("-", "_"): value for name, value in fields.items()}
    return StreamPlaces(**figures, retention=None if retention is None else _retention_of(named(retention)))


def _retention_of(fields: dict[str, Any]) -> Retention:
    age, due, first = fields["age"], fields["due-at"], fields["keeps-from"]
    return Retention(
        None if age is None else age / 1000, fields["entries"], fields["bytes"], fields["groups"] or "",
        fields["drops-entries"], fields["drops-bytes"], None if first is None else StreamID.parse(first),
        None if due is None else due / 1000,
        [HeldBack(decode(name), entries, size, parse_id(at)) for name, entries, size, at in fields["held"]],
        fields["note"],
    )  # fmt: skip


def merged(found: Sequence[Retention]) -> Retention | None:
    """Return the retention of several streams with the same policy, such as the partitions of one; None without any."""
    if not found:
        return None
    held: dict[str, HeldBack] = {}
    for one in (back for retention in found for back in retention.held):
        had = held.get(one.group, HeldBack(one.group, 0, 0, one.first_id))
        held[one.group] = HeldBack(one.group, had.entries + one.entries, had.bytes + one.bytes,
                                   min(had.first_id, one.first_id))  # fmt: skip
    return replace(
        found[-1],
        drops_entries=_sum(one.drops_entries for one in found), drops_bytes=_sum(one.drops_bytes for one in found),
        keeps_from=min((one.keeps_from for one in found if one.keeps_from is not None), default=None),
        due=min((one.due for one in found if one.due is not None), default=None),
        held=list(held.values()), note=", ".join(dict.fromkeys(one.note for one in found if one.note)),
    )  # fmt: skip


def _sum(numbers: Iterable[int | None]) -> int | None:
    known = list(numbers)
    return None if None in known else sum(number or 0 for number in known)


def ordered_keys_of(rows: Any) -> list[OrderedKey]:
    """Return the keys of a reply of `held` (rillet.store.consuming.order_steps)."""
    return [
        OrderedKey(None if lane.startswith(b"?") else decode(lane.partition(b":")[2]), decode(consumer) or None,
                   parse_id(first), int(deliveries), int(messages),
                   datetime.fromtimestamp(float(turn) / 1e6, UTC) if consumer and turn != b"inf" else None)
        for lane, turn, first, consumer, deliveries, messages in rows
    ]  # fmt: skip


def pending_of(reply: Any) -> list[PendingEntry]:
    """Return the messages of an XPENDING reply with a range."""
    return [PendingEntry(parse_id(raw_id), decode(who), int(age), int(times)) for raw_id, who, age, times in reply]


def summary_of(reply: Any) -> PendingSummary:
    """Return the summary of an XPENDING reply without a range."""
    total, first, last, consumers = reply
    return PendingSummary(
        int(total),
        None if first is None else parse_id(first),
        None if last is None else parse_id(last),
        {decode(name): int(number) for name, number in consumers or ()},
    )


def consumers_of(reply: Any) -> list[ConsumerInfo]:
    """Return the consumers of an XINFO CONSUMERS reply."""
    found = []
    for fields in map(named, reply):
        inactive = fields.get("inactive", -1)
        found.append(
            ConsumerInfo(fields["name"], fields["pending"], fields["idle"], None if inactive == -1 else inactive)
        )
    return found


def groups_of(reply: Any) -> list[GroupInfo]:
    """Return the groups of an XINFO GROUPS reply."""
    return [
        GroupInfo(
            fields["name"], fields["consumers"], fields["pending"], StreamID.parse(fields["last-delivered-id"]),
            fields.get("entries-read"), fields.get("lag"),
        )
        for fields in map(named, reply)
    ]  # fmt: skip

"""The stats of `Store.stats`: streams, groups, consumers, pending messages by age, memory by structure.

    stats = store.stats()                       later = store.stats(previous=stats)
    for stream in stats.streams:
        stream.length, stream.first_id, stream.rate          rate: entries per second between two samples
        stream.memory.listpacks, stream.memory.note
        stream.places.bytes_in_segments            of rillet; with the retention, what it removes and what groups keep
        for group in stream.groups:
            group.lag, group.lag_note, group.pending, group.ages, group.oldest_ms
            group.retries, stream.delayed              what waits until it is due
            group.partition                            of a partitioned stream: who reads it

The stats are the same in process, attached, and over rillet, Redis and Valkey. `survey` yields commands and receives
their replies, without input or output; XINFO STREAM and XINFO GROUPS are one transaction, so that both describe one
moment. All commands only read. `rillet stats` and `rillet groups` print the records.

**Lag.** A server computes it from counters. The edges of the stream are exact with every server: a group at or after
the last entry has lag 0, and one before the first entry has all of them ahead. Between the edges a rillet store counts
(RILLET.XRANK), and Redis 8 and Valkey return an exact number or none. None has a reason: an entry ahead was deleted, or
the server has no count of the entries before; `lag_note` has it. Redis 7 also counts entries that were removed before
the group reached them. So its number is exact only if nothing was ever removed from the stream; else `lag_exact` is
False.

**Memory.** rillet measures each structure (RILLET.XMEMORY). Redis and Valkey return a total only, which MEMORY USAGE
estimates from five nodes; `memory.note` says so, and the parts are None.

**Cost.** Two exchanges per stream and group, and one or more per group with pending messages, of which at most
`pending` are read.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterable
from dataclasses import dataclass, fields, is_dataclass, replace
from datetime import datetime
from typing import Any, TypeAlias

from rillet.errors import CommandError
from rillet.keyspace.helper_keys import consumers_key, delayed_key, order_keys, partition_of_key, retries_key
from rillet.store.arguments.encoding import decode
from rillet.store.consuming.delays import WAITING, delayed_of, retries_of, waiting_command
from rillet.store.entry import Entry, named
from rillet.store.info_records import (
    ConsumerInfo,
    GroupInfo,
    StreamPlaces,
    consumers_of,
    groups_of,
    pending_of,
    places_of,
)
from rillet.store.transports.transport import raised
from rillet.types.stream.id import StreamID

Steps: TypeAlias = "Generator[Any, Any, StoreStats]"

PENDING = 10_000
"""How many pending messages of a group are read to sort them by age, unless the caller passes another number."""
AGES: tuple[tuple[str, int], ...] = (
    ("<10s", 10_000), ("<1m", 60_000), ("<10m", 600_000), ("<1h", 3_600_000), ("<1d", 86_400_000),
)  # fmt: skip
OLDER, RELEASED = ">=1d", "released"
_COUNTS_REMOVED = ("redis 7.", "rillet")  # rillet with compat 7.0 computes it as Redis 7.0 does
_PAGE = 1000  # pending messages per reply
_GONE = ("no such key", "WRONGTYPE")  # a key that was deleted or replaced since its name was read


@dataclass(frozen=True, slots=True)
class StreamMemory:
    """The bytes of a stream by structure; None for what the server does not report, and then `note` has the reason.

    total: all structures. listpacks: the nodes with the entries; rax: the tree over them; groups: groups and consumers;
    pending: pending entries and their indexes; idmp: message IDs of idempotent producers; stream: the object itself.
    measured: how many listpacks were measured; if the stream has more, the others count with the average size.
    """

    total: int | None
    listpacks: int | None = None
    rax: int | None = None
    groups: int | None = None
    pending: int | None = None
    idmp: int | None = None
    stream: int | None = None
    measured: int | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class Waiting:
    """The delayed entries of a stream, or the retries of a group, which wait until they are due (consuming/delays.py).

    number: how many, None if the user has no permission for their key. next_due: the time when the next one is due;
    next_since: when it was added, None for a retry. Both are seconds since 1970, None if nothing waits.
    """

    number: int | None
    next_due: float | None = None
    next_since: float | None = None


@dataclass(frozen=True, slots=True)
class OrderStats:
    """The order by key of a group (consuming/order_steps.py): the field, the keys and the messages that are pending.

    by: None without pending messages of an order, or if the user has no permission for its keys. waiting: the messages
    that wait behind the first one of their key. Group.ordered_keys lists the keys.
    """

    by: str | None = None
    keys: int = 0
    waiting: int = 0


@dataclass(frozen=True, slots=True)
class PartitionStats:
    """One partition of a partitioned stream, as a group sees it (store/partitions).

    stream: the partitioned stream; epoch, number: those of the partition. state: "current" if the group reads the
    partition, "done" if it has handled it, "later" if it still reads an earlier epoch. consumer: the owner, or None;
    lease_until: when its lease ends, in seconds since 1970.
    """

    stream: str
    epoch: int
    number: int
    state: str
    consumer: str | None = None
    lease_until: float | None = None


@dataclass(frozen=True, slots=True)
class GroupStats:
    """A group: its position, lag, pending messages by age, and consumers.

    lag: how many entries of the stream follow the last delivered one; if it is None, `lag_note` is the reason. If
    lag_exact is False although it is a number, the true number may be smaller, and `lag_note` is the reason.
    ages: the number of pending messages by the time since their delivery: "<10s", "<1m", "<10m", "<1h", "<1d", ">=1d",
    and "released" for those of XNACK. examined: how many of the `pending` messages were counted, lowest ID first.
    oldest_ms: the longest time since a delivery, in milliseconds; deliveries: the highest count of deliveries; both are
    None if no message was examined. retries: pending messages that wait for their next delivery. order: the order by
    key. partition: None for a stream that is no partition, or if the user has no permission for the group's record.
    """

    name: str
    last_delivered_id: StreamID
    lag: int | None
    lag_exact: bool
    lag_note: str
    entries_read: int | None
    pending: int
    examined: int
    ages: dict[str, int]
    oldest_ms: int | None
    deliveries: int | None
    consumers: list[ConsumerInfo]
    retries: Waiting
    order: OrderStats
    partition: PartitionStats | None


@dataclass(frozen=True, slots=True)
class StreamStats:
    """A stream: length, nodes, edges, counters, memory, groups, places.

    entries_added, max_deleted_id: None before Redis 7.0. rate: entries added per second since the previous sample, None
    without one. nodes: listpacks; rax_nodes: nodes of the tree. delayed: entries that are added later. places: what is
    in memory and in segments, and the retention; None if the server is not rillet.
    """

    name: str
    length: int
    entries_added: int | None
    first_id: StreamID | None
    last_id: StreamID | None
    last_generated_id: StreamID
    max_deleted_id: StreamID | None
    nodes: int
    rax_nodes: int
    rate: float | None
    memory: StreamMemory
    groups: list[GroupStats]
    delayed: Waiting
    places: StreamPlaces | None = None


@dataclass(frozen=True, slots=True)
class StoreStats:
    """The streams of a store at a time. server: such as "rillet 0.1.0" or "redis 7.0.15"; time: seconds since 1970."""

    server: str
    time: float
    streams: list[StreamStats]

    def since(self, previous: StoreStats) -> StoreStats:
        """Return these stats with the rate of each stream since an earlier sample of the same store."""
        before = {stream.name: stream for stream in previous.streams}
        seconds = self.time - previous.time
        return replace(self, streams=[
            replace(one, rate=_rate(one, before.get(one.name), seconds)) for one in self.streams
        ])  # fmt: skip

    def as_dict(self) -> dict[str, Any]:
        """Return the stats as dicts and lists for JSON; an ID is text."""
        found: dict[str, Any] = plain(self)
        return found


def _rate(now: StreamStats, before: StreamStats | None, seconds: float) -> float | None:
    if before is None or seconds <= 0 or now.entries_added is None or before.entries_added is None:
        return None
    added = now.entries_added - before.entries_added
    return added / seconds if added >= 0 else None  # the stream was deleted and created again


def plain(value: Any) -> Any:
    """Return records as dicts and lists for JSON; an ID is text, a time is in seconds since 1970."""
    if isinstance(value, StreamID):
        return str(value)
    if isinstance(value, datetime):
        return value.timestamp()
    if is_dataclass(value):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return {name: plain(one) for name, one in zip(value._fields, value, strict=True)}
    if isinstance(value, list):
        return [plain(one) for one in value]
    return value


def survey(keys: Iterable[bytes], pending: int, memory: bool, must_exist: bool) -> Steps:
    """Yield the commands for the stats of streams; the result is a StoreStats. An error reply arrives as a value.

    must_exist: raise the error of a stream that does not exist; otherwise it is left out.
    """
    info = yield [b"INFO", b"server"]
    server = _server_of("" if isinstance(info, CommandError) else decode(info))
    clock = yield [b"TIME"]  # ours, if the user has no permission for it
    now = time.time() if isinstance(clock, CommandError) else int(clock[0]) + int(clock[1]) / 1e6
    streams = []
    for key in keys:
        replies = yield [[b"MULTI"], [b"XINFO", b"STREAM", key], [b"XINFO", b"GROUPS", key], [b"EXEC"]]
        error = _error_among(replies)
        if error is None:
            about, groups = replies[-1]
            streams.append((yield from _stream(key, about, groups, server, pending, memory)))
        elif must_exist or not any(word in str(error) for word in _GONE):
            if "no such key" in str(error):
                raise CommandError(f"no such key: there is no stream {decode(key)!r}") from error
            raised(error)
    return StoreStats(server, now, streams)


def _error_among(replies: Any) -> CommandError | None:
    """Return the error of a transaction, or of the first of its commands that failed."""
    if isinstance(replies, CommandError):
        return replies
    return next((one for one in replies[-1] if isinstance(one, CommandError)), None)


def _server_of(info: str) -> str:
    found = dict(line.split(":", 1) for line in info.splitlines() if ":" in line)
    for name in ("rillet", "valkey", "redis"):
        if f"{name}_version" in found:
            return f"{name} {found[f'{name}_version']}"
    return "server"


def _stream(key: bytes, about: Any, groups: Any, server: str, pending: int,
            memory: bool) -> Generator[Any, Any, StreamStats]:  # fmt: skip
    facts = named(about)
    deleted = facts.get("max-deleted-entry-id")
    first, last = (_id_of(facts[name]) for name in ("first-entry", "last-entry"))
    stream = StreamStats(
        decode(key), facts["length"], facts.get("entries-added"), first, last,
        StreamID.parse(facts["last-generated-id"]), StreamID.parse(deleted) if deleted else None,
        facts["radix-tree-keys"], facts["radix-tree-nodes"], None, StreamMemory(None, note="not asked for"), [],
        (yield from _waiting(delayed_key(key), True)),
    )  # fmt: skip
    for group in groups_of(groups):
        stream.groups.append((yield from _group(key, stream, group, server, pending)))
    places = (yield [b"RILLET.XINFO", key]) if _is_rillet(server) else None
    stream = replace(stream, places=places_of(places) if isinstance(places, (list, dict)) else None)
    return replace(stream, memory=(yield from _memory(key, server))) if memory else stream


def _id_of(entry: Entry[Any] | None) -> StreamID | None:
    return None if entry is None else entry.id


def _group(key: bytes, stream: StreamStats, group: GroupInfo, server: str,
           most: int) -> Generator[Any, Any, GroupStats]:  # fmt: skip
    name = group.name.encode("utf-8", "surrogateescape")
    lag, exact, note = lag_of(stream, group, server)
    if not exact and _is_rillet(server):
        position = str(group.last_delivered_id).encode()
        replies = yield [[b"MULTI"], [b"XLEN", key], [b"RILLET.XRANK", key, position], [b"EXEC"]]
        if _error_among(replies) is None:
            lag, exact, note = replies[-1][0] - replies[-1][1][0], True, ""
    rows: list[Any] = []
    start = b"-"
    while len(rows) < min(most, group.pending):
        size = min(_PAGE, most - len(rows))
        page = yield [b"XPENDING", key, name, start, b"+", b"%d" % size]
        if isinstance(page, CommandError):
            break  # the group was deleted
        rows += page
        if len(page) < size:
            break
        start = b"(" + page[-1][0]
    consumers = yield [b"XINFO", b"CONSUMERS", key, name]
    entries = pending_of(rows)
    return GroupStats(
        group.name, group.last_delivered_id, lag, exact, note, group.entries_read, group.pending, len(entries),
        ages_of(entry.idle_ms for entry in entries), max((entry.idle_ms for entry in entries), default=None),
        max((entry.deliveries for entry in entries), default=None),
        [] if isinstance(consumers, CommandError) else consumers_of(consumers),
        (yield from _waiting(retries_key(key, name), False)), (yield from _order(key, name)),
        (yield from _partition(key, name)),
    )  # fmt: skip


def _order(key: bytes, group: bytes) -> Generator[Any, Any, OrderStats]:
    ordered, lanes, turns = order_keys(key, group)
    replies = yield [[b"MULTI"], [b"HGET", ordered, b""], [b"ZCARD", turns], [b"ZCARD", lanes], [b"EXEC"]]
    if _error_among(replies) is not None or replies[-1][0] is None:
        return OrderStats()
    by, keys, messages = replies[-1]
    return OrderStats(decode(by), keys, messages - keys)


def _partition(key: bytes, group: bytes) -> Generator[Any, Any, PartitionStats | None]:
    place = partition_of_key(key)
    if place is None:
        return None
    name, epoch, number = place
    record = consumers_key(name, group)
    reply = yield [b"HMGET", record, b"epoch", b"done:%d" % number, b"owner:%d" % number]
    if isinstance(reply, CommandError) or reply[0] is None:
        return None
    current, done, owner = reply
    state = "later" if int(current) < epoch else "done" if int(current) > epoch or done is not None else "current"
    if state != "current" or owner is None:
        return PartitionStats(decode(name), epoch, number, state)
    consumer = owner.split(b" ", 2)[2]
    member = yield [b"HGET", record, b"member:" + consumer]
    ends = None if member is None or isinstance(member, CommandError) else int(member.split(b" ", 1)[0]) / 1000
    return PartitionStats(decode(name), epoch, number, state, decode(consumer), ends)


def _waiting(key: bytes, entries: bool) -> Generator[Any, Any, Waiting]:
    """Yield the commands for what waits in a sorted set; entries: delayed entries, which have the time of `add`."""
    replies = yield [[b"MULTI"], [b"ZCOUNT", key, *WAITING], waiting_command(key, 1), [b"EXEC"]]
    if _error_among(replies) is not None:
        return Waiting(None)
    number, reply = replies[-1]
    if not number:
        return Waiting(0)
    if entries:
        (one,) = delayed_of(reply)
        return Waiting(number, one.due.timestamp(), one.since.timestamp())
    return Waiting(number, retries_of(reply)[0].due.timestamp())


def _is_rillet(server: str) -> bool:
    return server.startswith("rillet")


def lag_of(stream: StreamStats, group: GroupInfo, server: str) -> tuple[int | None, bool, str]:
    """Return the lag of a group, whether it is exact, and the reason if it is not, or not known."""
    position = group.last_delivered_id
    if stream.length == 0 or (stream.last_id is not None and position >= stream.last_id):
        return 0, True, ""
    if stream.first_id is not None and position < stream.first_id:
        return stream.length, True, ""
    if group.lag is not None:
        if stream.entries_added == stream.length or not server.startswith(_COUNTS_REMOVED):
            return group.lag, True, ""
        return group.lag, False, f"{server} may count entries that were removed before the group reached them"
    if stream.entries_added is None:
        return None, False, f"{server} does not report it: Redis 7.0 and newer do"
    if stream.max_deleted_id is not None and stream.max_deleted_id >= position:
        return None, False, (f"an entry at or after {position} was deleted: the greatest deleted ID is "
                             f"{stream.max_deleted_id}")  # fmt: skip
    if group.entries_read is None:
        return None, False, f"the server has no count of the entries up to {position} (entries-read is null)"
    return None, False, "the server returns null"


def ages_of(idle: Iterable[int]) -> dict[str, int]:
    """Return the number of pending messages by age; a released message has the age -1."""
    ages = {**dict.fromkeys((name for name, _ in AGES), 0), OLDER: 0, RELEASED: 0}
    for age in idle:
        ages[RELEASED if age < 0 else next((name for name, limit in AGES if age < limit), OLDER)] += 1
    return ages


def _memory(key: bytes, server: str) -> Generator[Any, Any, StreamMemory]:
    if _is_rillet(server):
        reply = yield [b"RILLET.XMEMORY", key]
        if not isinstance(reply, CommandError):
            parts = named(reply)
            measured = parts.pop("measured")
            return StreamMemory(sum(parts.values()), **parts, measured=measured)
    reply = yield [b"MEMORY", b"USAGE", key]
    if isinstance(reply, CommandError):
        return StreamMemory(None, note=f"{server} refused MEMORY USAGE: {reply}")
    return StreamMemory(reply, note=f"{server} reports the total only, estimated from a sample of nodes (MEMORY USAGE)")

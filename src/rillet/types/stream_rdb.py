"""A stream as RDB bytes: five forms, each the one before with something more (Redis: rdb.c).

As lengths and strings of `rdb_bytes`; an ID is two lengths, ms and seq, where it is not said to be raw:

    nodes:   count, then for each: its master ID (raw, 16 bytes as a string), its listpack as a string
    length, last ID
    first ID, max deleted ID, entries added                                                       19 and later
    groups:  count, then for each: name, last-delivered ID
             entries read (2**64-1: not known)                                                    19 and later
             pending: count, then for each: raw ID, delivery time, delivery count
             consumers: count, then for each: name, seen time
                        active time (-1: never)                                                   21 and later
                        pending: count, then the raw IDs, each one of the group's
             released: count, then the raw IDs, in the order in which they are claimed            27
    producers: duration, most entries, count, then for each: name (pid)                           26 and later
               messages: count, then for each: name (iid), ID of its entry
               iids added, iids that were duplicates

    type   since          RDB version   `oldest_type` of a stream
    15     Redis 5.0            9       never: it loses counters that every stream has
    19     Redis 7.0           10       each consumer was seen when it was last active
    21     Redis 7.2           11       some was not, or never was active (Valkey's, too)
    26     Redis 8.6           13       anything was set or recorded for idempotent producers
    27     Redis 8.8           14       entries were released (XNACK)

Reading trusts nothing: each node is validated to its last byte and its IDs are walked (`stream_order`), the counts
must add up, each pending entry belongs to exactly one consumer or is released. Redis checks less. What it accepts
and no genuine server writes (IDs that do not rise, a pending entry of nobody) is refused here: it would be
answered with nonsense. A wrong first ID, which can be told, is put right. Memory follows the payload's own size,
because every count is read item by item, and an item that is not there ends it.

What is newer checks more: `strict` refuses, as Redis 8.8, counters that contradict each other. Earlier
servers can write such (XGROUP SETID with an ENTRIESREAD beyond what was added), so that only RESTORE asks for it.
"""

from __future__ import annotations

from rillet.errors import Corrupt
from rillet.structs.listpack import Listpack
from rillet.types.group import Consumer, Group
from rillet.types.idmp import DURATION_RANGE, MAX_ENTRIES_RANGE, Producer, Producers
from rillet.types.pending import PendingIndex
from rillet.types.rdb_bytes import RdbReader, RdbWriter
from rillet.types.stream import Stream
from rillet.types.stream_id import StreamID
from rillet.types.stream_node import validate_node
from rillet.types.stream_order import LivingEntries

TYPE_STREAM_5 = 15
TYPE_STREAM_7 = 19
TYPE_STREAM_72 = 21
TYPE_STREAM_86 = 26
TYPE_STREAM_88 = 27
STREAM_TYPES = {TYPE_STREAM_5: 9, TYPE_STREAM_7: 10, TYPE_STREAM_72: 11, TYPE_STREAM_86: 13, TYPE_STREAM_88: 14}
"""The types, with the RDB version that had them first."""

_UNKNOWN = 2**64 - 1  # entries-read of -1, as an unsigned length
_MAX_I64 = 2**63 - 1
_END_OF_TIME = 2**62


def oldest_type(stream: Stream) -> int:
    """Return the oldest type that can carry all that the stream holds. O(consumers)"""
    groups = stream.groups.values()
    if any(group.nacked_count for group in groups):
        return TYPE_STREAM_88
    if stream.idmp is not None and not stream.idmp.is_default:
        return TYPE_STREAM_86
    if any(one.active_time != one.seen_time for group in groups for one in group.consumers.values()):
        return TYPE_STREAM_72
    return TYPE_STREAM_7


# -- writing -----------------------------------------------------------------------------------------------


def save_stream(out: RdbWriter, stream: Stream, kind: int, now: int = 0) -> None:
    """Append a stream in the form of that type; what it has no place for is left out. O(bytes)

    now: iids that expired until then (ms) are left out, as Redis 8.8 does; 0 writes them all.
    """
    out.length(stream.rax.numele)
    for key, node in stream.rax.items():
        out.string(key)
        out.string(node.to_bytes())
    for number in (stream.length, stream.last_ms, stream.last_seq):
        out.length(number)
    if kind >= TYPE_STREAM_7:
        for number in (stream.first_ms, stream.first_seq, stream.max_deleted_ms, stream.max_deleted_seq,
                       stream.entries_added):  # fmt: skip
            out.length(number)
    groups = stream.sorted_groups()
    out.length(len(groups))
    for group in groups:
        _save_group(out, group, kind)
    if kind >= TYPE_STREAM_86:
        _save_producers(out, stream.idmp or Producers(), now)


def _save_group(out: RdbWriter, group: Group, kind: int) -> None:
    out.string(group.name)
    out.length(group.last_ms)
    out.length(group.last_seq)
    if kind >= TYPE_STREAM_7:
        out.length(group.entries_read & _UNKNOWN)
    table = group.table
    out.length(group.pending_count)
    for slot in group.index.slots():
        out.raw(_raw_id(group, slot))
        out.milliseconds(table.delivery_time(slot))
        out.length(table.delivery_count(slot))
    consumers = group.sorted_consumers()
    out.length(len(consumers))
    for consumer in consumers:
        out.string(consumer.name)
        out.milliseconds(consumer.seen_time)
        if kind >= TYPE_STREAM_72:
            out.milliseconds(consumer.active_time)
        _save_index(out, group, consumer.index)
    if kind >= TYPE_STREAM_88:
        released = group.nacked_count
        out.length(released)
        slot = group.oldest()
        for _ in range(released):
            out.raw(_raw_id(group, slot))
            slot = table.next_by_time(slot)


def _raw_id(group: Group, slot: int) -> bytes:
    return (group.table.ms(slot) << 64 | group.table.seq(slot)).to_bytes(16, "big")


def _save_index(out: RdbWriter, group: Group, index: PendingIndex) -> None:
    out.length(len(index))
    for slot in index.slots():
        out.raw(_raw_id(group, slot))


def _save_producers(out: RdbWriter, producers: Producers, now: int) -> None:
    """Append the producers by the byte order of their names; one without messages is written too (Redis does)."""
    out.length(producers.duration)
    out.length(producers.max_entries)
    out.length(len(producers.producers))
    for pid in sorted(producers.producers):
        messages = producers.unexpired(pid, now)
        out.string(pid)
        out.length(len(messages))
        for iid, entry in messages:
            out.string(iid)
            out.length(entry >> 64)
            out.length(entry & _UNKNOWN)
    out.length(producers.added)
    out.length(producers.duplicates)


# -- reading -----------------------------------------------------------------------------------------------


def load_stream(reader: RdbReader, kind: int, now: int = 0, strict: bool = False) -> Stream:
    """Return the next stream; Corrupt where it is malformed. O(bytes)

    now: iids that expired until then (ms) are left out; 0 takes them all. strict: see the module.
    """
    stream = Stream()
    for _ in range(reader.length()):
        _load_node(reader, stream)
    living = LivingEntries()
    for key, node in stream.rax.items():
        if not living.add_node(key, node):
            raise Corrupt("a node that contradicts itself")
    if not living.rises and not living.set_back:
        raise Corrupt("IDs that do not rise")
    _load_counters(reader, stream, kind, living)
    if strict and stream.entries_added > _MAX_I64:
        raise Corrupt("more entries added than can be counted")
    for _ in range(reader.length()):
        group = _load_group(reader, stream, kind)
        if strict and not -1 <= group.entries_read <= stream.entries_added:
            raise Corrupt("a group that read more entries than were added")
    if kind >= TYPE_STREAM_86:
        stream.idmp = _load_producers(reader, now)
    return stream


def _load_node(reader: RdbReader, stream: Stream) -> None:
    key = reader.string()
    if len(key) != 16:
        raise Corrupt(f"a node's ID of {len(key)} bytes")
    node = Listpack.from_bytes(reader.string())
    if not validate_node(node):
        raise Corrupt("a node that is not sound")
    if not stream.add_node(key, node):
        raise Corrupt("two nodes of the same ID")


def _load_counters(reader: RdbReader, stream: Stream, kind: int, living: LivingEntries) -> None:
    length = reader.length()
    if length != living.count:
        raise Corrupt(f"a stream of {length} entries whose nodes hold {living.count}")
    stream.length = length
    stream.last_ms, stream.last_seq = reader.length(), reader.length()
    if not living.set_back and (stream.last_ms, stream.last_seq) < (living.last_ms, living.last_seq):
        raise Corrupt("an entry beyond the stream's last ID")
    if kind == TYPE_STREAM_5:
        stream.entries_added = length
    else:
        stream.first_ms, stream.first_seq = reader.length(), reader.length()
        stream.max_deleted_ms, stream.max_deleted_seq = reader.length(), reader.length()
        stream.entries_added = reader.length()
        if stream.entries_added < length:
            raise Corrupt("fewer entries added than there are")
    if not living.set_back:  # else nobody can tell what a server thought of it
        stream.first_ms, stream.first_seq = living.first_ms, living.first_seq


def _load_group(reader: RdbReader, stream: Stream, kind: int) -> Group:
    name = reader.string()
    ms, seq = reader.length(), reader.length()
    if kind == TYPE_STREAM_5:
        read = stream.distance_from_first(ms, seq)
    else:
        number = reader.length()
        read = number - (1 << 64) if number > _MAX_I64 else number
    group = stream.create_group(name, ms, seq, read)
    if group is None:
        raise Corrupt("two groups of the same name")
    for _ in range(reader.length()):
        ms, seq = StreamID.unpack(reader.raw(16))
        if not group.load(ms, seq, _time(reader), reader.length()):
            raise Corrupt("a pending entry twice in a group")
    for _ in range(reader.length()):
        _load_consumer(reader, group, kind)
    if kind >= TYPE_STREAM_88:
        for _ in range(reader.length()):
            if not group.load_nacked(*StreamID.unpack(reader.raw(16))):
                raise Corrupt("a released entry that is not pending, has a consumer, or is there twice")
    if group.orphans():
        raise Corrupt("a pending entry without a consumer")
    group.settle()
    return group


def _time(reader: RdbReader) -> int:
    """Return a time, which may be taken from now without overflow."""
    time = reader.milliseconds()
    if not -1 <= time < _END_OF_TIME:
        raise Corrupt(f"a time that no clock shows: {time}")
    return time


def _load_consumer(reader: RdbReader, group: Group, kind: int) -> None:
    name = reader.string()
    consumer: Consumer | None = group.create_consumer(name, _time(reader))
    if consumer is None:
        raise Corrupt("two consumers of the same name")
    # Before Redis 7.2 nobody noted when a consumer got something; that it was seen is the best that is known.
    consumer.active_time = _time(reader) if kind >= TYPE_STREAM_72 else consumer.seen_time
    for _ in range(reader.length()):
        if not group.assign(*StreamID.unpack(reader.raw(16)), consumer):
            raise Corrupt("a consumer's pending entry that its group does not have, or that another one has")


def _load_producers(reader: RdbReader, now: int) -> Producers:
    limits = reader.length(), reader.length()
    for limit, (low, high) in zip(limits, (DURATION_RANGE, MAX_ENTRIES_RANGE), strict=True):
        if not low <= limit <= high:
            raise Corrupt("a limit of producers that is out of range")
    producers = Producers(*limits)
    for _ in range(reader.length()):
        pid = reader.string()
        messages = reader.length()
        if messages and pid in producers.producers:
            raise Corrupt("two producers of the same name")
        producer = Producer()
        for _ in range(messages):
            # Twice the same iid is no error in Redis: the first one counts.
            iid, ms, seq = reader.string(), reader.length(), reader.length()
            if not producers.is_expired(ms, now):
                producer.load(iid, ms, seq)
        if producer.order:
            producers.producers[pid] = producer
    producers.added, producers.duplicates = reader.length(), reader.length()
    return producers

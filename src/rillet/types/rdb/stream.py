"""Streams as RDB bytes: five types, each of which extends the preceding one (Redis: rdb.c).

The parts are lengths and strings (`primitives`). An ID is two lengths, ms and seq, or 16 raw bytes:

    nodes:   count, then for each: its master ID (raw, 16 bytes as a string), its listpack as a string
    length, last ID
    first ID, max deleted ID, entries added                                                       19 and later
    groups:  count, then for each: name, last-delivered ID
             entries read (2**64-1: unknown)                                                    19 and later
             pending: count, then for each: raw ID, delivery time, delivery count
             consumers: count, then for each: name, seen time
                        active time (-1: never)                                                   21 and later
                        pending: count, then the raw IDs, which the group has too
             released: count, then the raw IDs, in the order of claims            27
    producers: duration, max entries, count, then for each: name (pid)                           26 and later
               messages: count, then for each: name (iid), ID of its entry
               iids added, iids that were duplicates

    type   since          RDB version   `oldest_type` of a stream
    15     Redis 5.0            9       never: it has no counters
    19     Redis 7.0           10       all consumers: seen time = active time
    21     Redis 7.2           11       a consumer has another active time (also Valkey)
    26     Redis 8.6           13       idempotent producers have data or settings
    27     Redis 8.8           14       there are released entries (XNACK)
    200    rillet only          -       never: nodes lie in segments (`save_sealed`); the base of a log may have it

Type 200 refers to the nodes that lie in segments, and contains the rest of the stream in the form of another type:

    type, number of ranges, then for each: master ID of its first node, reference to the segment (NodeSource),
                                           number of its first node, nodes, entries
    then the stream in the form of that type, with the nodes that are in memory

Loading validates everything: the bytes and the IDs of each node (`stream.validation`), the counts, and that each
pending entry belongs to exactly one consumer or is released. Redis checks less. Payloads that Redis accepts but no
server writes (IDs that do not rise, a pending entry without a consumer) are rejected, because replies about them would
be inconsistent. Memory is proportional to the size of the payload.

The nodes decide about the stream's own counters: a length, last ID or number of entries added that contradicts the
nodes is corrected, and `reader.corrected` describes the correction. The trims of early 5.0 versions left such lengths
in files, which Redis loads unchanged. A wrong first ID is corrected silently.

`strict` rejects counters that contradict each other, as Redis 8.8 does. Earlier servers can write such counters (also
XGROUP SETID with an ENTRIESREAD greater than the number of entries added), so only RESTORE is strict.
"""

from __future__ import annotations

from typing import Any

from rillet._cython import cython
from rillet.errors import Corrupt
from rillet.structs.listpack import Listpack
from rillet.types.rdb.primitives import RdbReader, RdbWriter
from rillet.types.rdb.stream_node_batch import NodeBatch
from rillet.types.stream.group import Consumer, Group
from rillet.types.stream.id import less
from rillet.types.stream.idmp import DURATION_RANGE, MAX_ENTRIES_RANGE, Producer, Producers
from rillet.types.stream.nodes import NodeIterator, SealedNodes
from rillet.types.stream.pending import PendingTable
from rillet.types.stream.stream import Stream
from rillet.types.stream.validation import LivingEntries

TYPE_STREAM_5 = 15
TYPE_STREAM_7 = 19
TYPE_STREAM_72 = 21
TYPE_STREAM_86 = 26
TYPE_STREAM_88 = 27
STREAM_TYPES = {TYPE_STREAM_5: 9, TYPE_STREAM_7: 10, TYPE_STREAM_72: 11, TYPE_STREAM_86: 13, TYPE_STREAM_88: 14}
"""The RDB types of streams, each with the first RDB version that has the type."""
TYPE_SEALED = 200
"""A stream whose older nodes lie in segments: only a store's own log has it, and every Redis refuses it."""

_MOST = (1 << 62) - 1
_MIN_BATCH = cython.declare(cython.Py_ssize_t, 16)  # below this number of nodes, one thread is faster
_UNKNOWN = cython.declare(cython.ulonglong, 0xFFFF_FFFF_FFFF_FFFF)  # entries-read -1 (unknown) as an unsigned number
_MAX_I64 = cython.declare(cython.ulonglong, 0x7FFF_FFFF_FFFF_FFFF)
_END_OF_TIME = cython.declare(cython.longlong, 1 << 62)
_TYPE_5 = cython.declare(cython.int, 15)
_TYPE_7 = cython.declare(cython.int, 19)
_TYPE_72 = cython.declare(cython.int, 21)
_TYPE_86 = cython.declare(cython.int, 26)
_TYPE_88 = cython.declare(cython.int, 27)
# The messages of Redis's log (rdbReportCorruptRDB).
_NODE = "Stream listpack integrity check failed"
_NODE_KEY = "Stream node key entry is not the size of a stream ID"
_LENGTH = "Stream length inconsistent with rax entries"
_STRICT_LENGTH = "Stream length inconsistent with live entries"
_ADDED = "Stream entries_added inconsistent with length"
_OWNER = "Consumer entry not found in group global PEL"


def oldest_type(stream: Stream) -> int:
    """Return the oldest RDB type that can represent the whole stream. O(consumers)"""
    groups = stream.groups.values()
    if any(group.nacked_count for group in groups):
        return TYPE_STREAM_88
    if stream.idmp is not None and not stream.idmp.is_default:
        return TYPE_STREAM_86
    if any(one.active_time != one.seen_time for group in groups for one in group.consumers.values()):
        return TYPE_STREAM_72
    return TYPE_STREAM_7


def newest_type(version: int) -> int:
    """Return the newest RDB type of streams in an RDB version."""
    return max(kind for kind, since in STREAM_TYPES.items() if since <= version)


def lost_of_stream(stream: Stream, kind: int) -> list[str]:
    """Describe the parts of a stream that an RDB type cannot represent, except counters that its readers recompute."""
    lost: list[str] = []
    groups = list(stream.groups.values())
    if kind < TYPE_STREAM_7:
        if stream.entries_added != stream.length or stream.max_deleted_ms or stream.max_deleted_seq:
            lost.append("the number of entries ever added, and the greatest deleted ID")
        for group in groups:
            if group.entries_read != stream.distance_from_first(group.last_ms, group.last_seq):
                lost.append(f"the number of entries that the group {_shown(group.name)} has read")
    if kind < TYPE_STREAM_72:
        for group in groups:
            timed = sum(one.active_time != one.seen_time for one in group.consumers.values())
            if timed:
                lost.append(f"the active time of {timed} consumer(s) of the group {_shown(group.name)}")
    if kind < TYPE_STREAM_86 and stream.idmp is not None and not stream.idmp.is_default:
        lost.append("the messages of its idempotent producers (IDMP)")
    if kind < TYPE_STREAM_88:
        lost += [
            f"{one.nacked_count} released entries of the group {_shown(one.name)}, which no consumer will receive again"
            for one in groups if one.nacked_count
        ]  # fmt: skip
    return lost


def _shown(name: bytes) -> str:
    return name.decode("utf-8", "backslashreplace")


# -- writing -----------------------------------------------------------------------------------------------


@cython.ccall
def save_stream(out: RdbWriter, stream: Stream, kind: cython.int, now: cython.longlong = 0) -> cython.bint:
    """Append a stream as the RDB type `kind`, without the parts that the type cannot represent. O(bytes)

    now: the time in ms. Idempotency IDs (iids) that expired before are omitted, as in Redis 8.8; 0 writes all.
    """
    _save_nodes(out, stream, True)
    return _save_rest(out, stream, kind, now)


def save_sealed(out: RdbWriter, stream: Stream) -> None:
    """Append a stream as TYPE_SEALED: sealed nodes by reference, everything else by its bytes. O(bytes in memory)"""
    kind = oldest_type(stream)
    ranges = stream.sealed_ranges()
    out.byte(kind)
    out.length(len(ranges))
    for key, nodes in ranges:
        out.string(key)
        out.string(nodes.source.reference())
        out.length(nodes.first)
        out.length(nodes.count)
        out.length(nodes.entries)
        out.spill()
    _save_nodes(out, stream, False)
    _save_rest(out, stream, kind, 0)


def copy_stream(stream: Stream) -> Stream:
    """Return a copy of a stream, without the data that RDB lacks. It shares the sealed nodes. O(bytes in memory)"""
    kind = oldest_type(stream)
    out = RdbWriter(False)
    _save_nodes(out, stream, False)
    _save_rest(out, stream, kind, 0)
    return load_stream(RdbReader(bytes(out.out)), kind, 0, False, stream.sealed_ranges())


@cython.cfunc
def _save_rest(out: RdbWriter, stream: Stream, kind: cython.int, now: cython.longlong) -> cython.bint:
    group: Group
    out.length(stream.length)
    out.length(stream.last_ms)
    out.length(stream.last_seq)
    if kind >= _TYPE_7:
        out.length(stream.first_ms)
        out.length(stream.first_seq)
        out.length(stream.max_deleted_ms)
        out.length(stream.max_deleted_seq)
        out.length(stream.entries_added)
    groups = stream.sorted_groups()
    out.length(len(groups))
    for group in groups:
        _save_group(out, group, kind)
    if kind >= _TYPE_86:
        _save_producers(out, stream.idmp or Producers(), now)
    return True


@cython.cfunc
def _save_nodes(out: RdbWriter, stream: Stream, sealed: cython.bint) -> cython.bint:
    """Append the nodes, each with its ID, those in segments only if `sealed`.

    Between nodes the writer may pass collected bytes to its sink.
    """
    nodes: NodeIterator = NodeIterator(stream)
    out.length(stream.node_count if sealed else stream.node_count - stream.sealed)
    nodes.seek("^")
    while nodes.next():
        if not sealed and nodes.skip_range():
            continue
        node: Listpack = nodes.node()
        out.string(nodes.key)
        out.buffer(node.buf, node.used)
        out.spill()
    return True


@cython.cfunc
def _save_group(out: RdbWriter, group: Group, kind: cython.int) -> cython.bint:
    table: PendingTable = group.table
    consumer: Consumer
    slot: cython.Py_ssize_t
    out.string(group.name)
    out.length(group.last_ms)
    out.length(group.last_seq)
    if kind >= _TYPE_7:
        out.length(group.entries_read & _UNKNOWN)
    # Servers without XNACK require a consumer for each pending entry, and a released entry has none.
    out.length(group.pending_count if kind >= _TYPE_88 else group.pending_count - group.nacked_count)
    for slot in group.index.slots():
        if kind < _TYPE_88 and table.owner(slot) is group.nobody:
            continue
        out.raw_id(table.ms(slot), table.seq(slot))
        out.milliseconds(table.delivery_time(slot))
        out.length(table.delivery_count(slot))
        out.spill()
    consumers = group.sorted_consumers()
    out.length(len(consumers))
    for consumer in consumers:
        out.string(consumer.name)
        out.milliseconds(consumer.seen_time)
        if kind >= _TYPE_72:
            out.milliseconds(consumer.active_time)
        out.length(len(consumer.index))
        for slot in consumer.index.slots():
            out.raw_id(table.ms(slot), table.seq(slot))
        out.spill()
    if kind >= _TYPE_88:
        left: cython.Py_ssize_t = group.nacked_count
        out.length(left)
        slot = group.oldest()
        while left > 0:
            out.raw_id(table.ms(slot), table.seq(slot))
            slot = table.next_by_time(slot)
            left -= 1
    return True


def _save_producers(out: RdbWriter, producers: Producers, now: int) -> None:
    """Append the producers in the byte order of their names, also those without messages, as in Redis."""
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


@cython.ccall
def load_stream(
    reader: RdbReader,
    kind: cython.int,
    now: cython.longlong = 0,
    strict: cython.bint = False,
    ranges: list | None = None,  # type: ignore[type-arg]
) -> Stream:
    """Read the next stream. Raise Corrupt if it is malformed. O(bytes)

    ranges: (key, SealedNodes) pairs of nodes that belong to the stream and are not in the payload (`load_sealed`).
    now: the time in ms; idempotency IDs (iids) that expired before are omitted, 0 keeps all. strict: reject
    contradictory counters, which are corrected otherwise (`reader.corrected`).
    """
    stream: Stream = Stream()
    living: LivingEntries = _load_nodes(reader, stream)
    sealed: cython.longlong = _add_ranges(stream, ranges) if ranges is not None else 0
    if not living.rises and not living.set_back:
        raise Corrupt("the IDs of the stream's entries do not rise")
    _load_counters(reader, stream, kind, living, sealed, strict)
    if strict and stream.entries_added > _MAX_I64:
        raise Corrupt("the stream's number of entries ever added exceeds 2**63-1")
    left: cython.ulonglong = reader.length()
    while left > 0:
        group: Group = _load_group(reader, stream, kind)
        if (
            strict
            and group.entries_read != -1
            and (group.entries_read < 0 or cython.cast(cython.ulonglong, group.entries_read) > stream.entries_added)
        ):
            raise Corrupt("a consumer group has read more entries than were ever added to the stream")
        left -= 1
    if kind >= _TYPE_86:
        stream.idmp = load_producers(reader, now)
    return stream


def load_sealed(reader: RdbReader) -> Stream:
    """Read the next stream of TYPE_SEALED, with `reader.sources`: a function that opens a segment by its reference.

    Raise Corrupt if the stream is malformed, or a segment is not what it should be. O(bytes in memory)
    """
    if reader.sources is None:
        raise Corrupt("a stream has nodes in segments, which only the directory of its store contains")
    kind = reader.byte()
    if kind not in STREAM_TYPES:
        raise Corrupt(f"RDB type {kind} is not a stream")
    ranges = []
    for _ in range(reader.length()):
        key, source = reader.string(), reader.sources(reader.string())
        first, count, entries = reader.length(), reader.length(), reader.length()
        if len(key) != 16 or not 1 <= count <= _MOST or first > _MOST or entries > _MOST:
            raise Corrupt("a range of nodes in a segment is malformed")
        ranges.append((key, SealedNodes(source, first, count, entries)))
    return load_stream(reader, kind, 0, False, ranges)


@cython.cfunc
@cython.exceptval(-1, check=False)
def _add_ranges(stream: Stream, ranges: list) -> cython.longlong:  # type: ignore[type-arg]
    """Add the ranges of sealed nodes, and return the number of their entries."""
    entries: cython.longlong = 0
    for key, nodes in ranges:
        if not stream.add_sealed(key, nodes):
            raise Corrupt("two nodes of a stream have the same ID")
        entries += nodes.entries
    return entries


@cython.cfunc
def _load_nodes(reader: RdbReader, stream: Stream) -> LivingEntries:
    """Read and validate a stream's nodes. If their IDs are not in order, validate all again at the end."""
    living: LivingEntries = LivingEntries()
    in_order: cython.bint = True
    before: bytes = b""
    helper: Any = reader.helper
    batch: NodeBatch | None = NodeBatch() if cython.compiled and helper is not None else None
    left: cython.ulonglong = reader.length()
    while left > 0:
        if batch is not None and in_order and batch.gather(reader, left) >= _MIN_BATCH:
            helper.start(batch.help)
            batch.work(batch.half, batch.count, batch.second)
            helper.wait()
            in_order = batch.settle(reader, stream, living, before)
            before = batch.keys[batch.count - 1]
            left -= batch.count
            continue
        key: bytes = reader.string()
        if len(key) != 16:
            raise Corrupt(f"the ID of a stream node has {len(key)} bytes instead of 16", _NODE_KEY)
        if cython.compiled:
            node: Listpack = Listpack.__new__(Listpack)  # skips __init__, which would allocate an empty buffer
        else:
            node = Listpack()
        node.buf = reader.buffer()
        node.used = len(node.buf)
        in_order = in_order and before < key
        if in_order and not living.take_node(key, node):
            raise Corrupt("an invalid node, or a node with wrong counts, in a stream", _NODE)
        if not stream.add_node(key, node):
            raise Corrupt("two nodes of a stream have the same ID", "Listpack re-added with existing key")
        before = key
        left -= 1
    return living if in_order else _walk_all(stream)


@cython.cfunc
def _walk_all(stream: Stream) -> LivingEntries:
    """Validate all nodes in the order of their IDs, after a payload that contains them in another order."""
    living: LivingEntries = LivingEntries()
    nodes: NodeIterator = NodeIterator(stream)
    nodes.seek("^")
    while nodes.next():
        node: Listpack = nodes.node()
        if not living.take_node(nodes.key, node):
            raise Corrupt("an invalid node, or a node with wrong counts, in a stream", _NODE)
    return living


@cython.cfunc
def _load_counters(
    reader: RdbReader,
    stream: Stream,
    kind: cython.int,
    living: LivingEntries,
    sealed: cython.longlong,
    strict: cython.bint,
) -> cython.bint:
    """Read the stream's counters, and correct those that contradict its nodes; if `strict`, raise Corrupt.

    sealed: the number of entries in segments, whose IDs nobody reads here.
    """
    count: cython.ulonglong = living.count + sealed
    length: cython.ulonglong = reader.length()
    stream.last_ms = reader.length()
    stream.last_seq = reader.length()
    if kind == _TYPE_5:
        stream.entries_added = count
    else:
        stream.first_ms = reader.length()
        stream.first_seq = reader.length()
        stream.max_deleted_ms = reader.length()
        stream.max_deleted_seq = reader.length()
        stream.entries_added = reader.length()
    stream.length = count
    if length != count:
        if strict or stream.rax.numele == 0:
            check = _STRICT_LENGTH if strict else _LENGTH
            raise Corrupt(f"a stream's length is {length}, but its nodes contain {count} entries", check)
        reader.corrected.append(f"the length {length} of the stream is now {count}, the number of its entries")
    if not living.set_back and less(stream.last_ms, stream.last_seq, living.last_ms, living.last_seq):
        if strict:
            raise Corrupt("an entry has a greater ID than the stream's last ID")
        reader.corrected.append(
            f"the last ID {stream.last_ms}-{stream.last_seq} of the stream is now that of its last entry, "
            f"{living.last_ms}-{living.last_seq}"
        )
        stream.last_ms = living.last_ms
        stream.last_seq = living.last_seq
    if stream.entries_added < count:
        if strict:
            raise Corrupt("a stream's number of entries ever added is smaller than its length", _ADDED)
        reader.corrected.append(
            f"the number {stream.entries_added} of entries ever added to the stream is now {count}, its length"
        )
        stream.entries_added = count
    if sealed == 0 and not living.set_back:  # else keep the stored first ID: it is in a segment, or there is no order
        stream.first_ms = living.first_ms
        stream.first_seq = living.first_seq
    return True


@cython.cfunc
def _load_group(reader: RdbReader, stream: Stream, kind: cython.int) -> Group:
    name: bytes = reader.string()
    ms: cython.ulonglong = reader.length()
    seq: cython.ulonglong = reader.length()
    if kind == _TYPE_5:
        read: cython.longlong = stream.distance_from_first(ms, seq)
    else:
        number: cython.ulonglong = reader.length()
        read = -1 - cython.cast(cython.longlong, _UNKNOWN - number) if number > _MAX_I64 else number
    group: Group | None = stream.create_group(name, ms, seq, read)
    if group is None:
        raise Corrupt("two consumer groups have the same name", "Duplicated consumer group name")
    left: cython.ulonglong = reader.length()
    while left > 0:
        reader.raw_id()
        ms = reader.ms
        seq = reader.seq
        if not group.load(ms, seq, _time(reader), reader.length()):
            raise Corrupt("a consumer group has the same pending entry twice", "Duplicated global PEL entry")
        left -= 1
    left = reader.length()
    while left > 0:
        _load_consumer(reader, group, kind)
        left -= 1
    if kind >= _TYPE_88:
        left = reader.length()
        while left > 0:
            reader.raw_id()
            if not group.load_nacked(reader.ms, reader.seq):
                raise Corrupt("a released entry is not pending, has a consumer, or is a duplicate")
            left -= 1
    if group.orphans():
        raise Corrupt("a pending entry has no consumer", "Stream CG PEL entry without consumer")
    group.settle()
    return group


@cython.cfunc
@cython.exceptval(-2, check=True)
def _time(reader: RdbReader) -> cython.longlong:
    """Read a time in ms. Raise Corrupt if an idle time computed from it could overflow."""
    time: cython.longlong = reader.milliseconds()
    if time < -1 or time >= _END_OF_TIME:
        raise Corrupt(f"a delivery, seen or active time is out of range: {time}")
    return time


@cython.cfunc
def _load_consumer(reader: RdbReader, group: Group, kind: cython.int) -> cython.bint:
    name: bytes = reader.string()
    consumer: Consumer | None = group.create_consumer(name, _time(reader))
    if consumer is None:
        raise Corrupt("two consumers with the same name", "Duplicate stream consumer detected")
    # Redis before 7.2 stores no active time. The seen time is the best estimate.
    consumer.active_time = _time(reader) if kind >= _TYPE_72 else consumer.seen_time
    left: cython.ulonglong = reader.length()
    while left > 0:
        reader.raw_id()
        if not group.assign(reader.ms, reader.seq, consumer):
            raise Corrupt("a consumer's pending entry is not pending in the group, or has another consumer", _OWNER)
        left -= 1
    return True


def load_producers(reader: RdbReader, now: int) -> Producers:
    """Read the idempotent producers of a stream; see load_stream. Raise Corrupt if they are malformed."""
    limits = reader.length(), reader.length()
    for limit, (low, high) in zip(limits, (DURATION_RANGE, MAX_ENTRIES_RANGE), strict=True):
        if not low <= limit <= high:
            raise Corrupt("a limit of idempotent producers is out of range")
    producers = Producers(*limits)
    for _ in range(reader.length()):
        pid = reader.string()
        messages = reader.length()
        if messages and pid in producers.producers:
            raise Corrupt("two idempotent producers have the same name")
        producer = Producer()
        for _ in range(messages):
            # Redis accepts duplicate message IDs (iids) and keeps the first one.
            iid, ms, seq = reader.string(), reader.length(), reader.length()
            if not producers.is_expired(ms, now):
                producer.load(iid, ms, seq)
        if producer.order:
            producers.producers[pid] = producer
    producers.added, producers.duplicates = reader.length(), reader.length()
    return producers

"""Values as RDB bytes: what DUMP shows, RESTORE takes, and an RDB file holds (Redis: rdb.c).

A DUMP payload is a type, the value in that type's form, and ten bytes that seal it:

    type (1)  value ...  RDB version (2, little endian)  CRC-64 of all before (8, little endian)

A string (type 0) is one string. A stream (type 19; 15 is its form before Redis 7.0, 21 that of
Redis 7.2, with a consumer's active time) is, as lengths and strings of `rdb_bytes`:

    nodes:   count, then for each: its master ID (16 bytes as a string), its listpack as a string
    length, last ID, first ID*, max deleted ID*, entries added*          (*: not in type 15; an ID is ms, seq)
    groups:  count, then for each: name, last-delivered ID, entries read*,
             pending: count, then for each: raw 16-byte ID, delivery time, delivery count
             consumers: count, then for each: name, seen time, active time (type 21),
                        pending: count, then the raw IDs, each one of the group's

Values are written in the oldest form that carries them, so that every server from Redis 7.0 on reads them.
Reading trusts nothing: each node is validated to its last byte, the counts must add up, and each
pending entry must belong to exactly one consumer.
"""

from __future__ import annotations

from collections.abc import Callable

from rillet.errors import Corrupt
from rillet.structs.crc64 import crc64
from rillet.structs.listpack import Listpack
from rillet.types.group import Group
from rillet.types.rdb_bytes import RdbReader, RdbWriter
from rillet.types.stream import Stream
from rillet.types.stream_node import validate_node
from rillet.types.string import String, new_string

RDB_VERSION = 10
TYPE_STRING = 0
TYPE_STREAM_5 = 15
TYPE_STREAM_7 = 19
TYPE_STREAM_72 = 21
_FOOTER = 10
_UNKNOWN = 2**64 - 1  # entries-read of -1, as an unsigned length
_NO_VALUE = "a value of a type that is not known"


def dump(value: object, compression: bool = True) -> bytes:
    """Return the DUMP payload of a value (cluster.c: createDumpPayload)."""
    out = RdbWriter(compression)
    out.raw(bytes((type_of(value),)))
    save(out, value)
    out.raw(RDB_VERSION.to_bytes(2, "little"))
    out.raw(crc64(bytes(out.out)).to_bytes(8, "little"))
    return bytes(out.out)


def seal_is_valid(payload: bytes) -> bool:
    """Whether version and checksum of a DUMP payload are right (cluster.c: verifyDumpPayload)."""
    if len(payload) < _FOOTER:
        return False
    version = int.from_bytes(payload[-10:-8], "little")
    checksum = int.from_bytes(payload[-8:], "little")
    return version <= RDB_VERSION and crc64(payload[:-8]) == checksum


def restore(payload: bytes) -> object:
    """Return the value of a DUMP payload whose seal is valid; Corrupt where it is malformed."""
    reader = RdbReader(payload, 0, len(payload) - _FOOTER)
    return load(reader, reader.byte())


def type_of(value: object) -> int:
    """Return the RDB type in which a value is written."""
    if isinstance(value, String):
        return TYPE_STRING
    if isinstance(value, Stream):
        return TYPE_STREAM_7
    raise TypeError(_NO_VALUE)


def save(out: RdbWriter, value: object) -> None:
    """Append a value without its type (rdbSaveObject). O(bytes)"""
    if isinstance(value, String):
        out.string(value.value())
    elif isinstance(value, Stream):
        _save_stream(out, value)
    else:
        raise TypeError(_NO_VALUE)


def load(reader: RdbReader, kind: int) -> object:
    """Return the next value, of RDB type `kind` (rdbLoadObject); Corrupt where it is malformed or unknown."""
    loader = _LOADERS.get(kind)
    if loader is None:
        raise Corrupt(f"RDB type {kind} is not known")
    return loader(reader, kind)


# -- streams -----------------------------------------------------------------------------------------------


def _save_stream(out: RdbWriter, stream: Stream) -> None:
    out.length(stream.rax.numele)
    for key, node in stream.rax.items():
        out.string(key)
        out.string(node.to_bytes())
    for number in (stream.length, stream.last_ms, stream.last_seq, stream.first_ms, stream.first_seq,
                   stream.max_deleted_ms, stream.max_deleted_seq, stream.entries_added):  # fmt: skip
        out.length(number)
    groups = stream.sorted_groups()
    out.length(len(groups))
    for group in groups:
        _save_group(out, group)


def _save_group(out: RdbWriter, group: Group) -> None:
    out.string(group.name)
    out.length(group.last_ms)
    out.length(group.last_seq)
    out.length(_UNKNOWN if group.entries_read < 0 else group.entries_read)
    out.length(group.pel.numele)
    for key, entry in group.pel.items():
        out.raw(key)
        out.milliseconds(entry.delivery_time)
        out.length(entry.delivery_count)
    out.length(len(group.consumers))
    for name in sorted(group.consumers):
        consumer = group.consumers[name]
        out.string(name)
        out.milliseconds(consumer.seen_time)
        out.length(consumer.pel.numele)
        for key, _ in consumer.pel.items():
            out.raw(key)


def _load_stream(reader: RdbReader, kind: int) -> Stream:
    stream = Stream()
    entries = 0
    for _ in range(reader.length()):
        entries += _load_node(reader, stream)
    length = reader.length()
    if length != entries:
        raise Corrupt(f"a stream of {length} entries whose nodes hold {entries}")
    stream.length = length
    stream.last_ms, stream.last_seq = reader.length(), reader.length()
    if kind == TYPE_STREAM_5:
        stream.entries_added = length
        if length:
            stream.edge(True, True)
            stream.first_ms, stream.first_seq = stream.edge_ms, stream.edge_seq
    else:
        stream.first_ms, stream.first_seq = reader.length(), reader.length()
        stream.max_deleted_ms, stream.max_deleted_seq = reader.length(), reader.length()
        stream.entries_added = reader.length()
    for _ in range(reader.length()):
        _load_group(reader, stream, kind)
    return stream


def _load_node(reader: RdbReader, stream: Stream) -> int:
    """Add the next node to the stream and return how many entries it counts."""
    key = reader.string()
    if len(key) != 16:
        raise Corrupt(f"a node's ID of {len(key)} bytes")
    node = Listpack.from_bytes(reader.string(), False)
    if not validate_node(node) or node.first() < 0:
        raise Corrupt("a node that is not sound")
    if key in stream.rax:
        raise Corrupt("two nodes of the same ID")
    stream.add_node(key, node)
    return node.get_int(node.first())


def _load_group(reader: RdbReader, stream: Stream, kind: int) -> None:
    name = reader.string()
    ms, seq = reader.length(), reader.length()
    if kind == TYPE_STREAM_5:
        read = stream.distance_from_first(ms, seq)
    else:
        number = reader.length()
        read = number - (1 << 64) if number >= 1 << 63 else number
    group = stream.create_group(name, ms, seq, read)
    if group is None:
        raise Corrupt("two groups of the same name")
    for _ in range(reader.length()):
        key = reader.raw(16)
        if not group.load_pending(key, reader.milliseconds(), reader.length()):
            raise Corrupt("a pending entry twice in a group")
    assigned = 0
    for _ in range(reader.length()):
        assigned += _load_consumer(reader, group, kind)
    if assigned != group.pel.numele:
        raise Corrupt("a pending entry without a consumer")


def _load_consumer(reader: RdbReader, group: Group, kind: int) -> int:
    """Add the next consumer to the group and return how many entries are pending with it."""
    name = reader.string()
    if name in group.consumers:
        raise Corrupt("two consumers of the same name")
    consumer = group.create_consumer(name, reader.milliseconds())
    if kind == TYPE_STREAM_72:
        reader.milliseconds()  # the active time of 7.2, which 7.0 does not have
    count = reader.length()
    for _ in range(count):
        if not group.assign_pending(reader.raw(16), consumer):
            raise Corrupt("a consumer's pending entry that its group does not have, or that another one has")
    return count


def _load_string(reader: RdbReader, _kind: int) -> String:
    return new_string(reader.string())


_LOADERS: dict[int, Callable[[RdbReader, int], object]] = {
    TYPE_STRING: _load_string,
    TYPE_STREAM_5: _load_stream,
    TYPE_STREAM_7: _load_stream,
    TYPE_STREAM_72: _load_stream,
}

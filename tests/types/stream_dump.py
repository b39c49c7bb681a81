"""A parser of a stream's DUMP payload (RDB type 19, uncompressed), and the same structure made from a Stream."""

from __future__ import annotations

from dataclasses import dataclass, field

from rillet.types.stream.group import Group
from rillet.types.stream.id import encode_key
from rillet.types.stream.pending import PendingIndex
from rillet.types.stream.stream import Stream

STREAM_LISTPACKS_2 = 19


@dataclass
class DumpedGroup:
    """A consumer group: its pending IDs in order, and those of each consumer."""

    last: tuple[int, int]
    entries_read: int
    pending: list[bytes]
    consumers: dict[bytes, list[bytes]] = field(default_factory=dict)


@dataclass
class DumpedStream:
    """The contents of a payload."""

    nodes: list[tuple[bytes, bytes]]
    length: int
    last: tuple[int, int]
    first: tuple[int, int]
    max_deleted: tuple[int, int]
    entries_added: int
    groups: dict[bytes, DumpedGroup] = field(default_factory=dict)


class PayloadReader:
    """A position in a payload."""

    def __init__(self, payload: bytes) -> None:
        self.payload = payload
        self.pos = 0

    def take(self, n: int) -> bytes:
        """Return the next n bytes."""
        part = self.payload[self.pos : self.pos + n]
        assert len(part) == n
        self.pos += n
        return part

    def length(self) -> int:
        """Read RDB's length encoding."""
        first = self.take(1)[0]
        if first < 0x40:
            return first
        if first < 0x80:
            return (first & 0x3F) << 8 | self.take(1)[0]
        return int.from_bytes(self.take({0x80: 4, 0x81: 8}[first]), "big")

    def string(self) -> bytes:
        """Read RDB's string encoding, small integers included."""
        first = self.payload[self.pos]
        if first >= 0xC0:
            self.pos += 1
            return b"%d" % int.from_bytes(self.take(1 << (first & 0x3F)), "little", signed=True)
        return self.take(self.length())

    def id(self) -> tuple[int, int]:
        """Read an ID kept as two lengths."""
        return self.length(), self.length()

    def group(self) -> DumpedGroup:
        """Read a group behind its name."""
        group = DumpedGroup(self.id(), self.length(), [])
        for _ in range(self.length()):
            group.pending.append(self.take(16))
            self.take(8)
            self.length()
        for _ in range(self.length()):
            name = self.string()
            self.take(8)
            group.consumers[name] = [self.take(16) for _ in range(self.length())]
        return group


def parse_payload(payload: bytes) -> DumpedStream:
    """Return the contents of a payload."""
    reader = PayloadReader(payload)
    assert reader.take(1)[0] == STREAM_LISTPACKS_2
    nodes = [(reader.string(), reader.string()) for _ in range(reader.length())]
    stream = DumpedStream(nodes, reader.length(), reader.id(), reader.id(), reader.id(), reader.length())
    for _ in range(reader.length()):
        name = reader.string()
        stream.groups[name] = reader.group()
    assert len(payload) - reader.pos == 10, "version and checksum are left"
    return stream


def dump_of(stream: Stream) -> DumpedStream:
    """Return the same structure for a Stream."""
    dumped = DumpedStream(
        [(key, lp.to_bytes()) for key, lp in stream.rax.items()],
        stream.length,
        (stream.last_ms, stream.last_seq),
        (stream.first_ms, stream.first_seq),
        (stream.max_deleted_ms, stream.max_deleted_seq),
        stream.entries_added,
    )
    for group in stream.sorted_groups():
        dumped.groups[group.name] = DumpedGroup(
            (group.last_ms, group.last_seq),
            group.entries_read % (1 << 64),
            _keys(group, group.index),
            {consumer.name: _keys(group, consumer.index) for consumer in group.sorted_consumers()},
        )
    return dumped


def _keys(group: Group, index: PendingIndex) -> list[bytes]:
    return [encode_key(group.table.ms(slot), group.table.seq(slot)) for slot in index.slots()]

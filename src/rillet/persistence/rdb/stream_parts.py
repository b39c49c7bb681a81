"""Reads a stream of an RDB file part by part, without loading it: its nodes, then counters, groups and producers.

`rillet.types.rdb.stream` draws the bytes and loads a stream as an object. Here, the caller reads or skips the listpack
of one node after another, so a stream of any length needs the memory of one node. Pending entries are collected for one
group at a time, and only if the caller requests them: the file stores the IDs of pending entries with each consumer,
but their delivery times with the group.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from rillet.errors import Corrupt
from rillet.types.rdb.primitives import RdbReader
from rillet.types.rdb.stream import TYPE_STREAM_7, TYPE_STREAM_72, TYPE_STREAM_86, TYPE_STREAM_88
from rillet.types.stream.id import MAX

_ID = 16  # bytes of a raw ID
_MAX_I64 = (1 << 63) - 1


class GroupRow(NamedTuple):
    """A consumer group with the counters that the RDB file stores for it."""

    name: bytes
    last: str
    entries_read: int | None
    pending: int
    consumers: int
    released: int


class PendingRow(NamedTuple):
    """A pending entry of a group; `consumer` is None if a consumer released the entry (XNACK)."""

    group: bytes
    consumer: bytes | None
    id: str
    delivered: int | None
    deliveries: int


class StreamParts:
    """Reads one stream; after `finish`, its attributes contain its counters and groups.

    named: whether the names of groups and consumers are read; skipped, they may be damaged.
    """

    def __init__(self, reader: RdbReader, kind: int, named: bool = True) -> None:
        self.reader = reader
        self.kind = kind
        self.named = named
        self.length = self.entries_added = 0
        self.last_id = ""
        self.groups: list[GroupRow] = []

    def nodes(self) -> Iterator[bytes]:
        """Yield the ID of each node. The caller reads or skips the listpack, a string, before the next one."""
        reader = self.reader
        for _ in range(reader.count()):
            if reader.length() != _ID:
                raise Corrupt("the ID of a stream node expected")
            yield reader.raw(_ID)

    def finish(self, pending: Callable[[PendingRow], object] | None = None) -> None:
        """Read what follows the nodes."""
        reader = self.reader
        self.length = reader.length()
        self.last_id = self._id()
        self.entries_added = self.length
        if self.kind >= TYPE_STREAM_7:
            self._id()
            self._id()
            self.entries_added = reader.length()
        for _ in range(reader.count()):
            self._group(pending)
        if self.kind >= TYPE_STREAM_86:
            self._skip_producers()

    def _id(self) -> str:
        return f"{self.reader.length()}-{self.reader.length()}"

    def _name(self) -> bytes:
        if self.named:
            return self.reader.string()
        self.reader.skip_string()
        return b""

    def _group(self, pending: Callable[[PendingRow], object] | None) -> None:
        reader = self.reader
        name, last = self._name(), self._id()
        read = reader.length() if self.kind >= TYPE_STREAM_7 else MAX
        known: dict[bytes, tuple[int, int]] = {}
        listed = reader.count()
        for _ in range(listed):
            identifier = reader.raw(_ID)
            delivery = reader.milliseconds(), reader.length()
            if pending is not None:
                known[identifier] = delivery
        consumers = reader.count()
        for _ in range(consumers):
            consumer = self._name()
            reader.skip(8 if self.kind < TYPE_STREAM_72 else 16)  # when it was seen, and active
            self._owned(name, consumer, known, pending)
        released = self._owned(name, None, known, pending) if self.kind >= TYPE_STREAM_88 else 0
        entries_read = None if read > _MAX_I64 else read
        self.groups.append(GroupRow(name, last, entries_read, listed, consumers, released))

    def _owned(self, group: bytes, consumer: bytes | None, known: dict[bytes, tuple[int, int]],
               pending: Callable[[PendingRow], object] | None) -> int:  # fmt: skip
        """Read the IDs of the entries that a consumer holds, or of the released ones; return their number."""
        count = self.reader.count()
        for _ in range(count):
            identifier = self.reader.raw(_ID)
            if pending is None:
                continue
            delivered, deliveries = known.get(identifier, (-1, 0))
            moment = delivered * 1000 if 0 <= delivered <= _MAX_I64 // 1000 else None
            text = f"{int.from_bytes(identifier[:8], 'big')}-{int.from_bytes(identifier[8:], 'big')}"
            pending(PendingRow(group, consumer, text, moment, deliveries))
        return count

    def _skip_producers(self) -> None:
        """Pass over the data of idempotent producers."""
        reader = self.reader
        self._id()  # duration and number of messages
        for _ in range(reader.count()):
            reader.skip_string()
            for _ in range(reader.count()):
                reader.skip_string()
                self._id()
        self._id()  # added and duplicate messages

"""Reads the streams of an RDB file: their nodes one at a time, then counters, groups and pending entries.

`rillet.types.rdb.stream` draws the bytes and loads a stream as an object. This module instead decodes one node at a
time into columns, or only adds up node sizes, so a stream of any length needs the memory of one node. Pending entries
are collected for one group at a time, and only if the caller requests them: the file stores the IDs of pending entries
with each consumer, but their delivery times with the group.

**Memory** is estimated like MEMORY USAGE of Redis 7.0, with 244 bytes for each node of a radix tree. The number of
nodes follows from the tree's keys: `TreeSize` receives the keys in order and counts leaves, branching nodes and the
compressed nodes between them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from rillet.columns.arrow_batch import record_batch, rows_for
from rillet.columns.node_decoder import NodeDecoder, nodes_of
from rillet.columns.resp_decoder import DONE
from rillet.transfer.rdb_value_sizes import OBJECT, Key, allocated
from rillet.types.rdb.primitives import RdbReader
from rillet.types.stream.id import MAX

_SINCE_7, _SINCE_72, _SINCE_86, _SINCE_88 = 19, 21, 26, 27  # type numbers of streams in RDB files
_MAX_I64 = (1 << 63) - 1
_STREAM, _GROUP, _CONSUMER, _PENDING, _TREE_NODE, _TREE_KEY = 80, 40, 24, 24, 244, 16
_BATCH_BYTES = 16 << 20

Moment = int | None


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
    delivered: Moment
    deliveries: int


class TreeSize:
    """Computes the node count and the bytes of a radix tree (rax.c) from its 16-byte keys, added in order."""

    __slots__ = ("keys", "nodes", "allocated", "_path", "_children", "_last")

    def __init__(self) -> None:
        self.keys = self.nodes = self.allocated = self._last = 0
        self._path = [-1]  # depths of the branching nodes and of the leaf on the path to the last key
        self._children = [1]  # number of children of each node in `_path`

    def add(self, key: int) -> None:
        """Add the next key, a 128-bit number that is higher than the previous key."""
        path, children = self._path, self._children
        if self.keys:
            common = (128 - (self._last ^ key).bit_length()) >> 3
            below = path.pop()
            children.pop()
            while path[-1] > common:
                below = path.pop()
                self._node(children.pop())
            if path[-1] < common:  # a new branching node splits the edge to the node `below`
                self._chain(below - path[-1] - 1, -1)
                self._chain(common - path[-1] - 1, 1)
                self._chain(below - common - 1, 1)
                path.append(common)
                children.append(1)
            children[-1] += 1
        self._chain(15 - path[-1], 1)
        self.nodes += 1
        self.allocated += 16
        path.append(16)
        children.append(0)
        self._last = key
        self.keys += 1

    def _node(self, children: int) -> None:
        """Add the size of a branching node: a header, and one byte and one pointer for each child."""
        self.nodes += 1
        self.allocated += allocated((4 + children + 7) // 8 * 8 + 8 * children)

    def _chain(self, length: int, by: int) -> None:
        """Add (by=1) or subtract (by=-1) the compressed node that contains `length` bytes between two nodes."""
        if length > 0:
            self.nodes += by
            self.allocated += by * allocated((4 + length + 7) // 8 * 8 + 8)

    def settle(self) -> TreeSize:
        """Add the branching nodes on the path to the last key, after all keys were added; return this object."""
        while len(self._path) > 1:
            self._path.pop()
            if children := self._children.pop():
                self._node(children)
        if not self.keys:
            self.nodes, self.allocated = 1, 8
        return self

    def memory(self, guessed: bool) -> int:
        """Return the tree's size in bytes; guessed: Redis 7.0's estimate of the size (streamRadixTreeMemoryUsage)."""
        return self.keys * _TREE_KEY + self.nodes * _TREE_NODE if guessed else 24 + self.allocated


class StreamValue:
    """Reads one stream of an RDB file; after `read`, its attributes contain its counters and groups."""

    def __init__(self, reader: RdbReader, key: Key, kind: int, guessed: bool = True) -> None:
        """guessed: the server that wrote the file estimates the size of radix trees (every Redis before 8)."""
        self.guessed = guessed
        self.reader = reader
        self.key = key
        self.kind = kind
        self.length = self.entries_added = 0
        self.last_id = ""
        self.groups: list[GroupRow] = []

    def read(self, entries: Any, most: int, pending: Callable[[PendingRow], Any] | None) -> Iterator[Any]:
        """Read the stream; yield its entries as record batches of the schema `entries`, unless that is None."""
        memory = OBJECT + _STREAM
        for found in self._nodes(entries, most):
            if isinstance(found, int):
                memory += found
            else:
                yield found
        reader, key = self.reader, self.key
        self.length = key.elements = reader.length()
        self.last_id = self._id()
        self.entries_added = self.length
        if self.kind >= _SINCE_7:
            self._id()
            self._id()
            self.entries_added = reader.length()
        for _ in range(reader.length()):
            memory += self._group(pending)
        if self.kind >= _SINCE_86:
            self._producers()
        key.memory = memory

    def _id(self) -> str:
        return f"{self.reader.length()}-{self.reader.length()}"

    def _nodes(self, schema: Any, most: int) -> Iterator[Any]:
        """Yield the record batches of the entries, and finally the bytes that the nodes take in memory."""
        reader, tree, listpacks = self.reader, TreeSize(), 0
        rows = None if schema is None else rows_for(schema, self.key.name)
        for _ in range(reader.length()):
            identifier = reader.string()
            tree.add(int.from_bytes(identifier, "big"))
            if rows is None:
                listpacks += allocated(len(reader.buffer()))
                continue
            node = reader.string()
            listpacks += allocated(len(node))
            decoder = NodeDecoder(rows, nodes_of([(identifier, node)]), (0, 0), (MAX, MAX), most, _BATCH_BYTES)
            while decoder.decode() != DONE:
                yield record_batch(rows, schema)
        if rows is not None and rows.length:
            yield record_batch(rows, schema)
        yield tree.settle().memory(self.guessed) + listpacks

    def _group(self, pending: Callable[[PendingRow], Any] | None) -> int:
        """Read a consumer group and return the bytes that it takes in memory."""
        reader, name = self.reader, self.reader.string()
        last = self._id()
        read = reader.length() if self.kind >= _SINCE_7 else MAX
        tree = TreeSize()
        known: dict[tuple[int, int], tuple[int, int]] = {}
        for _ in range(reader.length()):
            reader.raw_id()
            identifier = reader.ms, reader.seq
            tree.add(identifier[0] << 64 | identifier[1])
            delivery = reader.milliseconds(), reader.length()
            if pending is not None:
                known[identifier] = delivery
        memory = _GROUP + tree.settle().memory(self.guessed) + _PENDING * tree.keys
        consumers = reader.length()
        for _ in range(consumers):
            memory += self._consumer(name, known, pending)
        released = reader.length() if self.kind >= _SINCE_88 else 0
        for _ in range(released):
            reader.raw_id()
            if pending is not None:
                pending(_pending_row(name, None, (reader.ms, reader.seq), known))
        entries_read = None if read > _MAX_I64 else read
        self.groups.append(GroupRow(name, last, entries_read, tree.keys, consumers, released))
        return memory

    def _consumer(
        self, group: bytes, known: dict[tuple[int, int], tuple[int, int]], pending: Callable[[PendingRow], Any] | None
    ) -> int:
        reader, name = self.reader, self.reader.string()
        reader.milliseconds()
        if self.kind >= _SINCE_72:
            reader.milliseconds()
        tree = TreeSize()
        for _ in range(reader.length()):
            reader.raw_id()
            identifier = reader.ms, reader.seq
            tree.add(identifier[0] << 64 | identifier[1])
            if pending is not None:
                pending(_pending_row(group, name, identifier, known))
        return _CONSUMER + len(name) + tree.settle().memory(self.guessed)

    def _producers(self) -> None:
        """Skip the data of idempotent producers."""
        reader = self.reader
        for _ in range(2):
            reader.length()
        for _ in range(reader.length()):
            reader.string()
            for _ in range(reader.length()):
                reader.string()
                self._id()
        for _ in range(2):
            reader.length()


def _pending_row(
    group: bytes, consumer: bytes | None, identifier: tuple[int, int], known: dict[tuple[int, int], tuple[int, int]]
) -> PendingRow:
    delivered, deliveries = known.get(identifier, (-1, 0))
    moment = delivered * 1000 if 0 <= delivered <= _MAX_I64 // 1000 else None
    return PendingRow(group, consumer, f"{identifier[0]}-{identifier[1]}", moment, deliveries)

"""The streams of an RDB file: their nodes one at a time, then counters, groups and what is pending.

The bytes are drawn in `rillet.types.rdb.stream`, which makes a stream of them. Here a node is decoded into columns and
let go, or only its size is noted, so a stream of any length takes the memory of a node; what is pending is gathered for
one group at a time, and only where the rows of that are asked for, since a consumer's part of it is IDs alone.

**Memory** counts, as MEMORY USAGE of Redis 7.0 does, 244 bytes for each node of a radix tree. How many nodes a tree has
follows from its keys: `TreeSize` sees them in order and counts leaves, branchings, and the chains between them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from rillet.columns.arrow_batch import record_batch, rows_for
from rillet.columns.node_decoder import NodeDecoder, nodes_of
from rillet.columns.resp_decoder import DONE
from rillet.store.rdb_value_sizes import OBJECT, Key, allocated
from rillet.types.rdb.primitives import RdbReader
from rillet.types.stream.id import MAX

_SINCE_7, _SINCE_72, _SINCE_86, _SINCE_88 = 19, 21, 26, 27  # RDB types
_MAX_I64 = (1 << 63) - 1
_STREAM, _GROUP, _CONSUMER, _PENDING, _TREE_NODE, _TREE_KEY = 80, 40, 24, 24, 244, 16
_BATCH_BYTES = 16 << 20

Moment = int | None


class GroupRow(NamedTuple):
    """A group, as the file has it."""

    name: bytes
    last: str
    entries_read: int | None
    pending: int
    consumers: int
    released: int


class PendingRow(NamedTuple):
    """A pending entry; `consumer` is None where it was released (XNACK)."""

    group: bytes
    consumer: bytes | None
    id: str
    delivered: Moment
    deliveries: int


class TreeSize:
    """Counts the nodes of a radix tree whose keys, of 16 bytes, are added in order, and what they take (rax.c)."""

    __slots__ = ("keys", "nodes", "allocated", "_path", "_children", "_last")

    def __init__(self) -> None:
        self.keys = self.nodes = self.allocated = self._last = 0
        self._path = [-1]  # depths of the branchings and the leaf above the last key
        self._children = [1]  # how many children each of those has

    def add(self, key: int) -> None:
        """Add the next key, as a number."""
        path, children = self._path, self._children
        if self.keys:
            common = (128 - (self._last ^ key).bit_length()) >> 3
            below = path.pop()
            children.pop()
            while path[-1] > common:
                below = path.pop()
                self._node(children.pop())
            if path[-1] < common:  # the edge to `below` gets a branching in its middle
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
        """Count a branching: a head, a byte and a pointer for each child."""
        self.nodes += 1
        self.allocated += allocated((4 + children + 7) // 8 * 8 + 8 * children)

    def _chain(self, length: int, by: int) -> None:
        """Count the node of the bytes between two others, or take it back."""
        if length > 0:
            self.nodes += by
            self.allocated += by * allocated((4 + length + 7) // 8 * 8 + 8)

    def settle(self) -> TreeSize:
        """Count the branchings that are still open."""
        while len(self._path) > 1:
            self._path.pop()
            if children := self._children.pop():
                self._node(children)
        if not self.keys:
            self.nodes, self.allocated = 1, 8
        return self

    def memory(self, guessed: bool) -> int:
        """Return what the settled tree takes; guessed: by 7.0's rule (object.c: streamRadixTreeMemoryUsage)."""
        return self.keys * _TREE_KEY + self.nodes * _TREE_NODE if guessed else 24 + self.allocated


class StreamValue:
    """Reads one stream; afterwards its facts are known."""

    def __init__(self, reader: RdbReader, key: Key, kind: int, guessed: bool = True) -> None:
        """guessed: the server that wrote the file guesses what its radix trees take (before Redis 8)."""
        self.guessed = guessed
        self.reader = reader
        self.key = key
        self.kind = kind
        self.length = self.entries_added = 0
        self.last_id = ""
        self.groups: list[GroupRow] = []

    def read(self, entries: Any, most: int, pending: Callable[[PendingRow], Any] | None) -> Iterator[Any]:
        """Step over the stream; yield its entries as batches of the schema `entries`, if there is one."""
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
        """Yield batches, and at the end what the nodes take."""
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
        """Read a group and return what it takes."""
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
        """Step over what idempotent producers have sent."""
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

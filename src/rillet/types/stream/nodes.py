"""The nodes of a stream in the order of their IDs: in memory, or sealed in a file.

    rax   16-byte master ID ──► SealedNodes   a range of nodes of one segment: nodes first to first + count - 1
          16-byte master ID ──► SealedNodes   ...
          16-byte master ID ──► Listpack      a node in memory
          16-byte master ID ──► Listpack      ... the tail is always in memory

A *segment* is a file with consecutive nodes of a stream, which nobody changes (docs/formats/segment.md). The tree has
one key for a range of its nodes, that of the first one, so a stream needs O(1) memory for a segment. `NodeIterator`
shows all nodes alike: it steps through the tree, and inside a range through the index of its segment. A sealed node is
read when its bytes are wanted, and not when only its ID or its number of entries is.

Code that changes a node first takes it into memory (`thaw`): the range splits around it, and the node is one of the
tree again. `seal` is the opposite: it replaces nodes in memory by a range, and joins the range before it if that ends
where the new one begins.

    thaw(node 5)      0 ···· 9       ──►   0 ··· 4    5    6 ··· 9
                      range                range    node   range

`NodeSource` is what a segment offers. A type opens no file: whoever seals nodes brings the source.

`StreamNodes` is the part of a stream that iteration needs: the tree, the number of entries, and the *tail*, the last
node with values cached from its master entry. It is a separate class because `Stream` uses iterators, and two compiled
modules cannot import each other's classes.

Costs: a step is amortized O(1), and reads nothing; the bytes of a sealed node cost one read. Splitting and joining are
O(length of a key). Rejected: a stub in the tree for each sealed node (200 bytes; 200 million entries are two million
nodes), and a second tree of ranges beside that of the nodes (each search would ask both).
"""

from __future__ import annotations

from typing import Any, Protocol

from rillet._cython import cython, public, readonly
from rillet.structs.listpack import Listpack
from rillet.structs.rax import Rax
from rillet.structs.rax_iterator import RaxIterator
from rillet.types.sized import SizedValue
from rillet.types.stream.id import encode_key, key_ms, key_seq
from rillet.types.stream.node import first_entry, int_at, master_fields

_COUNT = cython.declare(cython.Py_ssize_t, 6)  # position of a node's entry count, after the listpack header


class Absent(Protocol):
    """A part of a source that only the disk has."""

    def load(self) -> None:
        """Let the system read it into its memory, so that a later read does not wait; any thread may call this."""


class NodeSource(Protocol):
    """Consecutive nodes of one stream that are kept outside of memory, by their numbers from 0 on.

    A method raises SegmentUnreadable if its part of the source is missing or damaged. Nodes never change.
    """

    def reference(self) -> bytes:
        """Return what a file stores instead of the nodes, for whoever opens sources (RdbReader.sources)."""

    def key(self, number: int) -> bytes:
        """Return the master ID of a node, 16 bytes."""

    def living(self, number: int) -> int:
        """Return the number of entries of a node that are not tombstones."""

    def node(self, number: int) -> Listpack:
        """Return a node; the caller may change the object, which nobody else has."""

    def find(self, key: bytes) -> int:
        """Return the number of the last node whose master ID is at most `key`, -1 if there is none. O(log nodes)"""

    def living_of(self, first: int, count: int) -> int:
        """Return the number of entries of `count` nodes. O(count)"""

    def bytes_of(self, first: int, count: int) -> int:
        """Return the bytes of `count` nodes, at the average size of the source's nodes; reads nothing. O(1)

        The parts of a range add up to the range.
        """

    def size(self, number: int) -> int:
        """Return the bytes of a node."""

    def absent(self, first: int, count: int) -> Absent | None:
        """Return what must be read from the disk before `count` nodes, or, if first is -1, before any other question.

        None if everything is in memory, or if the system does not say.
        """


@cython.final
@cython.cclass
class SealedNodes:
    """The nodes first to first + count - 1 of a source; the tree has it under the master ID of the first."""

    __slots__ = ("count", "entries", "first", "size", "source")
    source: readonly[Any]
    first: readonly[cython.Py_ssize_t]
    count: readonly[cython.Py_ssize_t]
    entries: readonly[cython.longlong]
    size: readonly[cython.longlong]  # bytes

    def __init__(
        self, source: NodeSource, first: cython.Py_ssize_t, count: cython.Py_ssize_t, entries: cython.longlong
    ) -> None:
        """Describe `count` nodes, at least one, with `entries` entries that are not tombstones."""
        if first < 0 or count < 1 or entries < 0:
            raise ValueError("a range of sealed nodes has at least one node")
        self.source = source
        self.first = first
        self.count = count
        self.entries = entries
        self.size = source.bytes_of(first, count)

    @cython.cfunc
    def key_at(self, at: cython.Py_ssize_t) -> bytes:
        """Return the master ID of the node `at` of this range."""
        key: bytes = self.source.key(self.first + at)
        return key

    @cython.ccall
    @cython.exceptval(-2, check=True)
    def find(self, key: bytes) -> cython.Py_ssize_t:
        """Return which node of this range is the last one whose master ID is at most `key`, -1 if none is."""
        number: cython.Py_ssize_t = self.source.find(key)
        return min(number - self.first, self.count - 1) if number >= self.first else -1

    @cython.cfunc
    def part(self, at: cython.Py_ssize_t, count: cython.Py_ssize_t) -> SealedNodes:
        """Return a part of this range, which has at least one node."""
        return SealedNodes(self.source, self.first + at, count, self.source.living_of(self.first + at, count))

    @cython.cfunc
    def count_within(self, most: cython.longlong) -> cython.Py_ssize_t:
        """Return how many nodes, from the first one on, have at most so many entries together. O(log nodes)"""
        low: cython.Py_ssize_t = 0
        high: cython.Py_ssize_t = self.count
        if self.entries <= most:
            return high
        while low < high:
            middle: cython.Py_ssize_t = (low + high + 1) // 2
            if self.source.living_of(self.first, middle) <= most:
                low = middle
            else:
                high = middle - 1
        return low

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def is_before(self, other: SealedNodes) -> cython.bint:
        """Return whether another range begins where this one ends."""
        return self.source is other.source and self.first + self.count == other.first


@cython.cclass
class StreamNodes(SizedValue):
    """The nodes of a stream: the tree, the number of entries, and the tail with values of its master entry.

    `tail` is a cache: None means unknown, and code that changes a node or the tree, except by appending, sets it to
    None. The same applies to `head`, the first node, which trims use, and to `sums`, the cached counts of nodes
    (`counts.StreamCounts`). It also calls `moved`: `changes` shows whether a `NodePlace` is still valid, and `node` is
    the node of the last place. `sealed` is the number of nodes in ranges, `sealed_entries` and `sealed_bytes` are what
    they contain, and `ranges` is the number of the ranges.
    """

    __slots__ = (
        "changes", "head", "head_key", "head_pos", "length", "node", "node_bytes", "node_ms", "node_seq",
        "ranges", "rax", "sealed", "sealed_bytes", "sealed_entries", "sums", "tail", "tail_entries", "tail_fields",
        "tail_live", "tail_ms", "tail_pos", "tail_seq",
    )  # fmt: skip
    rax: readonly[Rax]
    ranges: readonly[cython.Py_ssize_t]
    sealed: readonly[cython.Py_ssize_t]
    sealed_entries: readonly[cython.longlong]
    sealed_bytes: readonly[cython.longlong]
    length: public[cython.ulonglong]
    node_bytes: public[cython.Py_ssize_t]
    tail: public[Listpack | None]
    tail_ms: readonly[cython.ulonglong]
    tail_seq: readonly[cython.ulonglong]
    tail_live: readonly[cython.longlong]
    tail_entries: readonly[cython.longlong]
    tail_fields: readonly[cython.Py_ssize_t]
    tail_pos: readonly[cython.Py_ssize_t]
    head: public[Listpack | None]
    head_key: readonly[bytes]
    head_pos: readonly[cython.Py_ssize_t]
    sums: public[Any]
    changes: readonly[cython.longlong]
    node: Listpack | None
    node_ms: cython.ulonglong
    node_seq: cython.ulonglong

    def __init__(self) -> None:
        self.charge = 0
        self.rax = Rax(fixed_len=16)
        self.ranges = self.sealed = 0
        self.sealed_entries = self.sealed_bytes = 0
        self.length = 0
        self.node_bytes = 0  # the sum of the sizes of the nodes' buffers
        self.tail = None
        self.tail_ms = self.tail_seq = 0
        self.tail_live = self.tail_entries = 0
        self.tail_fields = self.tail_pos = 0
        self.head = None
        self.head_key = b""
        self.head_pos = 0
        self.sums = None
        self.changes = 0
        self.node = None
        self.node_ms = self.node_seq = 0

    @cython.cfunc
    def moved(self) -> cython.bint:
        """Make all places invalid: entries of a node have moved or become tombstones, or a node was removed."""
        self.changes += 1
        self.node = None
        return True

    @cython.cfunc
    def find_node(self, ms: cython.ulonglong, seq: cython.ulonglong) -> Listpack:
        """Return the node with a master ID, which exists."""
        if self.tail is not None and self.tail_ms == ms and self.tail_seq == seq:
            return self.tail
        if self.node is None or self.node_ms != ms or self.node_seq != seq:
            it: NodeIterator = NodeIterator(self)
            it.seek("<=", encode_key(ms, seq))
            it.next()
            self.node = it.node()
            self.node_ms = ms
            self.node_seq = seq
        return self.node

    @cython.cfunc
    def find_tail(self) -> Listpack:
        """Return the last node and set the attributes tail_... Return None if the stream is empty."""
        if self.tail is not None:
            return self.tail
        it: NodeIterator = NodeIterator(self)
        if not it.seek("$"):
            return None  # type: ignore[return-value]
        it.next()
        lp: Listpack = it.node()
        if it.range is not None:  # appending changes it
            self.thaw(it.key, lp)
        self.tail_ms = key_ms(it.key)
        self.tail_seq = key_seq(it.key)
        self.tail_live = int_at(lp, _COUNT)
        self.tail_entries = self.tail_live + int_at(lp, lp.at_next)
        self.tail_fields = master_fields(lp)
        self.tail_pos = lp.at_next
        self.tail = lp
        return lp

    @cython.cfunc
    def find_head(self) -> Listpack:
        """Return the first node, and set head_key and head_pos. Return None if the stream is empty.

        All entries before head_pos are tombstones, so the next trim starts at head_pos.
        """
        if self.head is not None:
            return self.head
        it: NodeIterator = NodeIterator(self)
        if not it.seek("^"):
            return None  # type: ignore[return-value]
        it.next()
        lp: Listpack = it.node()
        self.head_key = it.key
        self.head_pos = first_entry(lp)
        self.head = lp
        return lp

    @property
    def node_count(self) -> int:
        """The number of nodes (radix-tree-keys of XINFO STREAM)."""
        return self.rax.numele - self.ranges + self.sealed

    # -- sealed nodes ----------------------------------------------------------------------------------

    @cython.cfunc
    def remove_node(self, key: bytes, size: cython.Py_ssize_t) -> cython.bint:
        """Remove a node; `size` is that of its buffer, which does not count if the node is sealed."""
        if self.sealed != 0 and self._cut(key):
            return True
        self.node_bytes -= size
        return self.rax.remove(key)

    @cython.cfunc
    def thaw(self, key: bytes, lp: Listpack) -> cython.bint:
        """Take a sealed node, whose copy `lp` is, into memory, so that it can be changed; nothing for another node."""
        if self.sealed == 0 or not self._cut(key):
            return False
        self.rax.insert(key, lp)
        self.node_bytes += len(lp.buf)
        if lp is not self.head:
            self.head = None
        self.moved()
        return True

    def unseal(self, source: NodeSource, first: int, count: int) -> None:
        """Take nodes of a source into memory, each that lies in a range of it. O(bytes)"""
        nodes: NodeIterator = NodeIterator(self)
        for number in range(first, first + count):
            key: bytes = source.key(number)
            if not nodes.seek("<=", key) or not nodes.next() or nodes.key != key:
                continue
            if nodes.range is not None and nodes.range.source is source:
                self.thaw(key, nodes.node())

    @cython.cfunc
    def _cut(self, key: bytes) -> cython.bint:
        """Take a node out of the range that contains it; return False if no range does."""
        tree: RaxIterator = RaxIterator(self.rax)
        if not tree.seek("<=", key):
            return False
        tree.next()
        if not isinstance(tree.data, SealedNodes):
            return False
        nodes: SealedNodes = tree.data
        at: cython.Py_ssize_t = nodes.find(key)
        if at < 0 or nodes.key_at(at) != key:
            return False
        before: SealedNodes | None = nodes.part(0, at) if at > 0 else None
        after: SealedNodes | None = nodes.part(at + 1, nodes.count - at - 1) if at + 1 < nodes.count else None
        self.drop_range(tree.key, nodes)
        if before is not None:
            self.put_range(tree.key, before)
        if after is not None:
            self.put_range(after.key_at(0), after)
        return True

    @cython.cfunc
    def drop_range(self, key: bytes, nodes: SealedNodes) -> cython.bint:
        """Remove a whole range from the tree. O(length of the key)"""
        self.rax.remove(key)
        self.sealed -= nodes.count
        self.sealed_entries -= nodes.entries
        self.sealed_bytes -= nodes.size
        self.ranges -= 1
        return True

    @cython.cfunc
    def put_range(self, key: bytes, nodes: SealedNodes) -> cython.bint:
        """Add a range to the tree, under the master ID of its first node. O(length of the key)"""
        self.rax.insert(key, nodes)
        self.sealed += nodes.count
        self.sealed_entries += nodes.entries
        self.sealed_bytes += nodes.size
        self.ranges += 1
        return True

    @cython.ccall
    def add_sealed(self, key: bytes, nodes: SealedNodes) -> cython.bint:
        """Add a range whose first node has this key, as a loader does; return False if the tree has the key."""
        if key in self.rax:
            return False
        self.put_range(key, nodes)
        self.tail = None
        self.head = None
        self.sums = None
        self.moved()
        return True

    def sealed_ranges(self) -> list[tuple[bytes, SealedNodes]]:
        """Return the ranges of sealed nodes, each with the master ID of its first node.

        O(ranges), and the nodes in memory before the last of them; those behind it, which are many, are not looked at.
        """
        found: list[tuple[bytes, SealedNodes]] = []
        if self.ranges != 0:
            for key, value in self.rax.items():
                if isinstance(value, SealedNodes):
                    found.append((key, value))
                    if len(found) == self.ranges:
                        break
        return found

    @cython.ccall
    def seal(self, nodes: SealedNodes) -> cython.bint:
        """Replace nodes in memory by the range that has their bytes. O(nodes)

        The caller guarantees that each node is in memory with the same bytes, and that none is the last node.
        """
        tree: RaxIterator = RaxIterator(self.rax)
        keys: list[bytes] = [nodes.key_at(at) for at in range(nodes.count)]  # before a change: the source may fail
        first: bytes = keys[0]
        lp: Listpack
        key: bytes
        for key in keys:
            lp = self.rax.find(key)
            self.node_bytes -= len(lp.buf)
            self.rax.remove(key)
        if tree.seek("<", first):
            tree.next()
            if isinstance(tree.data, SealedNodes):
                before: SealedNodes = tree.data
                if before.is_before(nodes):
                    first = tree.key
                    self.drop_range(first, before)
                    nodes = SealedNodes(
                        before.source, before.first, before.count + nodes.count, before.entries + nodes.entries
                    )
        self.put_range(first, nodes)
        self.head = None
        self.moved()
        return True


@cython.final
@cython.cclass
class NodeIterator:
    """A position among the nodes of a stream, in memory or sealed: `seek`, then `next` or `prev`, as a RaxIterator.

        nodes.seek(">=", key)
        while nodes.next():
            ... nodes.key, nodes.living(), nodes.node() ...

    The first step after a seek, which shows its key already, stays on the node that it found. After a change of the
    tree, a step raises RuntimeError, or seeks the key again if `safe` is set. `range` is that of a sealed node.
    """

    __slots__ = ("_at", "_stay", "_version", "key", "range", "safe", "stream", "tree")
    stream: readonly[StreamNodes]
    tree: readonly[RaxIterator]
    key: readonly[bytes]
    range: readonly[SealedNodes | None]
    safe: public[cython.bint]
    _at: cython.Py_ssize_t
    _stay: cython.bint
    _version: cython.Py_ssize_t

    def __init__(self, stream: StreamNodes) -> None:
        self.stream = stream
        self.tree = RaxIterator(stream.rax)
        self.key = b""
        self.range = None
        self.safe = False
        self._at = 0
        self._stay = False
        self._version = 0

    @cython.ccall
    def seek(self, op: str, key: bytes = b"") -> cython.bint:
        """Seek the first node `^`, the last `$`, or the nearest `>` `>=` `<` `<=` a key; return whether one exists."""
        tree: RaxIterator = self.tree
        self.range = None
        self._stay = True
        self._version = tree.rax.version
        if self.stream.sealed != 0 and (op == ">" or op == ">="):  # the node may be inside the range before the key
            if tree.seek("<=", key) and tree.next() and isinstance(tree.data, SealedNodes):
                nodes: SealedNodes = tree.data
                at: cython.Py_ssize_t = nodes.find(key)
                if op == ">" or at < 0 or nodes.key_at(at) != key:
                    at += 1
                if at < nodes.count:
                    return self._enter(nodes, at)
        if not tree.seek(op, key):
            self._stay = False
            return False
        tree.next()
        if self.stream.sealed == 0 or not isinstance(tree.data, SealedNodes):
            self.key = tree.key
            return True
        nodes = tree.data
        at = 0
        if op == "$":
            at = nodes.count - 1
        elif op == "<" or op == "<=":
            at = nodes.find(key)
            if op == "<" and nodes.key_at(at) == key:
                at -= 1  # the range's own key is below it
        return self._enter(nodes, at)

    @cython.cfunc
    def _enter(self, nodes: SealedNodes, at: cython.Py_ssize_t) -> cython.bint:
        self.range = nodes
        self._at = at
        self.key = nodes.key_at(at)
        return True

    @cython.ccall
    def next(self) -> cython.bint:
        """Step to the next node; return False after the last one."""
        return self._step(True)

    @cython.ccall
    def prev(self) -> cython.bint:
        """Step to the node before; return False before the first one."""
        return self._step(False)

    @cython.cfunc
    def _step(self, forward: cython.bint) -> cython.bint:
        tree: RaxIterator = self.tree
        nodes: SealedNodes | None = self.range
        if self._version != tree.rax.version:
            return self._again(forward)
        if self._stay:
            self._stay = False
            return True
        if nodes is not None:
            at: cython.Py_ssize_t = self._at + 1 if forward else self._at - 1
            if 0 <= at < nodes.count:
                return self._enter(nodes, at)
        if not (tree.next() if forward else tree.prev()):
            return False
        self.range = None
        if self.stream.sealed != 0 and isinstance(tree.data, SealedNodes):
            nodes = tree.data
            return self._enter(nodes, 0 if forward else nodes.count - 1)
        self.key = tree.key
        return True

    @cython.cfunc
    def _again(self, forward: cython.bint) -> cython.bint:
        """Seek the current key again after the tree has changed, then step from there."""
        if not self.safe:
            raise RuntimeError("the nodes of the stream changed during the iteration: seek again, or set `safe`")
        op: str = ">" if forward else "<"
        if self._stay:
            op += "="
        moved: cython.bint = self.seek(op, self.key)
        self._stay = False
        return moved

    @cython.ccall
    def skip_range(self) -> cython.bint:
        """Move to the last node of the current range; return False if the node is in memory."""
        nodes: SealedNodes | None = self.range
        return nodes is not None and self._enter(nodes, nodes.count - 1)

    @cython.ccall
    def node(self) -> Listpack:
        """Return the bytes of the current node; for a sealed node, a copy that costs a read."""
        if self.range is None:
            lp: Listpack = self.tree.data
        else:
            lp = self.range.source.node(self.range.first + self._at)
        return lp

    @cython.ccall
    @cython.exceptval(-77777777777, check=True)
    def living(self) -> cython.longlong:
        """Return the number of entries of the current node that are not tombstones; a sealed node is not read."""
        if self.range is None:
            lp: Listpack = self.tree.data
            return int_at(lp, _COUNT)
        living: cython.longlong = self.range.source.living(self.range.first + self._at)
        return living

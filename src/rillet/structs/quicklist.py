"""The quicklist: a list of byte strings as a chain of listpacks (Redis: quicklist.c).

    head                                                              tail
    +----------+     +----------+     +----------------+     +----------+
    | listpack | <-> | listpack | <-> | one large      | <-> | listpack |
    | 3 elems  |     | (LZF)    |     | element, PLAIN |     | 2 elems  |
    +----------+     +----------+     +----------------+     +----------+

A listpack moves what lies behind a change, so it has to stay small; a chain has to carry two references
for each node, so a node should hold many elements. `fill` (the setting list-max-listpack-size) draws the line:

    -1 -2 -3 -4 -5    at most 4, 8, 16, 32, 64 KiB in a node (8 is the default)
    n > 0             at most n elements in a node, and 8 KiB unless it is one element

An element that is larger than a node may be is a PLAIN node, kept as it is. With `depth` (list-compress-depth)
above 0 the nodes that lie further than that from both ends are kept compressed by LZF, if 48 bytes or more
and if that saves more than 8; who reads them opens them for that long.

Which nodes there are is seen in DUMP, so it is Redis's, to the element: when a node is full, where it
is split, which neighbours are joined after. Two ages of those rules differ (`classic` is Redis 7.0's):

                     7.0                                   7.2 and newer
    PLAIN from       1 GiB                                 what a node may hold, and one byte
    joined if        sizes less 11 bytes fit               sizes less 7 bytes fit
    LSET to PLAIN    leaves the halves of the node apart   joins the halves with their neighbours

A `single` quicklist is one listpack without any limit: what Redis 7.2 calls the listpack encoding of a list.
Keeping it in the same object makes the conversion, both ways, a change of that flag.

Invariants (`check`): every node holds an element; `count` and `nodes` are right; the chain reads the same both
ways; a single one has at most one node, not PLAIN; the `depth` nodes at each end are open.

Costs: push and pop O(1) (and one node's bytes); an index walks nodes from the nearer end, then one node; insert
and replace, once there, touch one node and its neighbours; delete_range O(nodes met).

Rejected: a Python list or deque of nodes (a deletion in the middle moves every reference behind it), and weak
references backwards (each costs more than a node's own header): the chain is a cycle, so it is taken apart
by hand when its quicklist goes, and memory is given back then and not at some collection.
"""

from __future__ import annotations

from collections.abc import Iterator

from rillet.errors import Corrupt
from rillet.structs.listpack import Listpack
from rillet.structs.lzf import compress, decompress

SIZES = (4096, 8192, 16384, 32768, 65536)
SAFETY_LIMIT = 8192  # SIZE_SAFETY_LIMIT: of a node that is limited by its elements
ENTRY_OVERHEAD = 8  # SIZE_ESTIMATE_OVERHEAD: what an element is taken to need beside its bytes
CLASSIC_LARGE = 1 << 30
FILL_MIN, FILL_MAX, DEPTH_MAX = -5, 32767, 65535
MIN_COMPRESS_BYTES, MIN_COMPRESS_IMPROVE = 48, 8


def size_limit(fill: int) -> int:
    """Return the bytes that a negative fill allows a node (quicklistNodeNegFillLimit)."""
    return SIZES[min(-fill, len(SIZES)) - 1]


def exceeds(fill: int, nbytes: int, count: int) -> bool:
    """Whether a node of that many bytes and elements is too large (quicklistNodeExceedsLimit)."""
    if fill < 0:
        return nbytes > size_limit(fill)
    return nbytes > SAFETY_LIMIT or count > max(fill, 1)


class Node:
    """A node: `packed` (a listpack), `plain` (one large element), or either of them as an LZF `block`."""

    __slots__ = ("block", "count", "next", "packed", "plain", "previous", "_size")

    def __init__(self, packed: Listpack | None = None, plain: bytes | None = None, count: int = 1) -> None:
        self.packed = packed
        self.plain = plain
        self.block: bytes | None = None
        self.count = count
        self.previous: Node | None = None
        self.next: Node | None = None
        self._size = -1  # of the bytes in block, negative for a PLAIN node

    @property
    def is_plain(self) -> bool:
        """Whether it is one large element."""
        return self.plain is not None or (self.block is not None and self._size < 0)

    @property
    def nbytes(self) -> int:
        """Return the size of the listpack or element, also while it is compressed."""
        if self.packed is not None:
            return self.packed.used
        return len(self.plain) if self.plain is not None else abs(self._size)

    def open(self) -> None:
        """Take the bytes out of the block, if they are in one (quicklistDecompressNode)."""
        if self.block is None:
            return
        data = decompress(self.block, abs(self._size))
        self.block = None
        if self._size < 0:
            self.plain = data
        else:
            self.packed = Listpack.from_bytes(data, False)

    def close(self) -> None:
        """Compress the bytes where that pays (quicklistCompressNode)."""
        if self.block is not None or self.nbytes < MIN_COMPRESS_BYTES:
            return
        data = self.plain if self.packed is None else self.packed.to_bytes()
        assert data is not None
        block = compress(data)
        if block and len(block) + MIN_COMPRESS_IMPROVE < len(data):
            self._size = -len(data) if self.packed is None else len(data)
            self.block = block
            self.packed = self.plain = None

    def listpack(self) -> Listpack:
        """Return the listpack of an open node that is not PLAIN."""
        assert self.packed is not None
        return self.packed


def _packed_node(value: bytes) -> Node:
    packed = Listpack()
    packed.append(value)
    return Node(packed)


class Quicklist:
    """A chain of nodes; where an element is, is told by its node and its rank in it."""

    __slots__ = ("classic", "count", "depth", "fill", "head", "nodes", "single", "tail", "threshold", "_opened")

    def __init__(self, fill: int = -2, depth: int = 0, classic: bool = False, single: bool = False) -> None:
        self.head: Node | None = None
        self.tail: Node | None = None
        self.nodes = 0
        self.count = 0
        self.classic = classic
        self.single = single
        self.threshold = 0  # size from which an element is PLAIN, whatever the fill; 0 = the fill decides
        self._opened: list[Node] = []
        self.fill = self.depth = 0
        self.set_limits(fill, depth)

    def set_limits(self, fill: int, depth: int) -> None:
        """Take other limits for the changes to come (quicklistSetOptions)."""
        self.fill = max(FILL_MIN, min(fill, FILL_MAX))
        self.depth = max(0, min(depth, DEPTH_MAX))

    def __del__(self) -> None:
        node = self.head
        self.head = self.tail = None
        while node is not None:
            following = node.next
            node.previous = node.next = None
            node = following

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[bytes]:
        """Yield the elements, head first."""
        for node, pos in self.walk():
            yield element(node, pos)

    def __repr__(self) -> str:
        return f"<Quicklist: {self.count} elements in {self.nodes} nodes>"

    # -- the rules -----------------------------------------------------------------------------------

    def is_large(self, value: bytes) -> bool:
        """Whether the element gets a node to itself (quicklist.c: isLargeElement)."""
        size = len(value)
        if self.single:
            return False
        if self.threshold:
            return size >= self.threshold
        if self.classic:
            return size >= CLASSIC_LARGE
        return size > (size_limit(self.fill) if self.fill < 0 else SAFETY_LIMIT)

    def _takes(self, node: Node | None, value: bytes) -> bool:
        """Whether the element fits the node (_quicklistNodeAllowInsert)."""
        if node is None:
            return False
        if self.single:
            return True
        if node.is_plain or self.is_large(value):
            return False
        return not exceeds(self.fill, node.nbytes + len(value) + ENTRY_OVERHEAD, node.count + 1)

    def _may_join(self, one: Node | None, other: Node | None) -> bool:
        """Whether the nodes fit into one (_quicklistNodeAllowMerge)."""
        if one is None or other is None or one.is_plain or other.is_plain:
            return False
        less = 11 if self.classic else 7
        return not exceeds(self.fill, one.nbytes + other.nbytes - less, one.count + other.count)

    # -- the chain -----------------------------------------------------------------------------------

    def _link(self, new: Node, beside: Node | None, after: bool) -> Node:
        """Put a node beside another, None in an empty list; its elements are not counted (__quicklistInsertNode)."""
        if beside is None:
            self.head = self.tail = new
        else:
            new.previous, new.next = (beside, beside.next) if after else (beside.previous, beside)
            if new.previous is None:
                self.head = new
            else:
                new.previous.next = new
            if new.next is None:
                self.tail = new
            else:
                new.next.previous = new
        self.nodes += 1
        self._opened.append(new)
        return new

    def _unlink(self, node: Node) -> None:
        """Take a node out, and its elements off the count (__quicklistDelNode)."""
        if node.previous is None:
            self.head = node.next
        else:
            node.previous.next = node.next
        if node.next is None:
            self.tail = node.previous
        else:
            node.next.previous = node.previous
        node.previous = node.next = None
        self.nodes -= 1
        self.count -= node.count
        node.count = 0

    def _use(self, node: Node) -> Listpack:
        """Return the node's listpack, to be changed."""
        if self.depth:
            self._opened.append(node)
            node.open()
        return node.listpack()

    def _settle(self) -> None:
        """Open the nodes at the ends and compress those that were used further in (__quicklistCompress)."""
        opened, self._opened = self._opened, []
        if not self.depth:
            return
        ends: set[Node] = set()
        first, last = self.head, self.tail
        for _ in range(self.depth):
            for node in (first, last):
                if node is not None:
                    node.open()
                    ends.add(node)
            first, last = (None if first is None else first.next), (None if last is None else last.previous)
        for node in (*opened, first, last):
            if node is not None and node.count and node not in ends:
                node.close()

    # -- both ends -----------------------------------------------------------------------------------

    def push(self, value: bytes, head: bool) -> None:
        """Add an element at the head or the tail (quicklistPush)."""
        node = self.head if head else self.tail
        if node is None or not self._takes(node, value):
            new = Node(plain=value) if self.is_large(value) else _packed_node(value)
            self._link(new, node, not head)
            self._settle()
        else:
            if head:
                node.listpack().prepend(value)
            else:
                node.listpack().append(value)
            node.count += 1
        self.count += 1

    def append_node(self, packed: Listpack | None, plain: bytes | None = None) -> None:
        """Add a whole node at the tail, as loading does (quicklistAppendListpack, quicklistAppendPlainNode)."""
        count = 1 if packed is None else packed.length()
        self._link(Node(packed, plain, count), self.tail, True)
        self.count += count
        self._settle()

    def pop(self, head: bool) -> bytes:
        """Remove and return the element at the head or the tail; there must be one (quicklistPop)."""
        node = self.head if head else self.tail
        assert node is not None
        pos = -1 if node.packed is None else node.packed.first() if head else node.packed.last()
        value = element(node, pos)
        self._delete(node, pos)
        self._settle()
        return value

    # -- anywhere ------------------------------------------------------------------------------------

    def chain(self) -> Iterator[Node]:
        """Yield the nodes, the head first."""
        node = self.head
        while node is not None:
            yield node
            node = node.next

    def locate(self, index: int) -> tuple[Node, int] | None:
        """Return node and rank of an element, the index negative from the end; None outside. O(nodes)"""
        if index < 0:
            index += self.count
        if not 0 <= index < self.count:
            return None
        node: Node | None
        if index < self.count // 2:
            node, before = self.head, 0
            while node is not None and index >= before + node.count:
                before += node.count
                node = node.next
        else:
            node, before = self.tail, self.count
            while node is not None and index < before - node.count:
                before -= node.count
                node = node.previous
            before -= 0 if node is None else node.count
        assert node is not None
        return node, index - before

    def walk(self, index: int = 0, backwards: bool = False) -> Iterator[tuple[Node, int]]:
        """Yield (open node, position in its listpack; -1 in a PLAIN one) from the element of that index on."""
        found = self.locate(index)
        node, rank = found if found is not None else (None, 0)
        while node is not None:
            closed = node.block is not None
            node.open()
            try:
                packed = node.packed
                pos = -1 if packed is None else packed.seek(rank)
                while packed is not None and pos != -1:
                    yield node, pos
                    pos = packed.prev(pos) if backwards else packed.next(pos)
                if packed is None:
                    yield node, -1
            finally:
                if closed:
                    node.close()
            node = node.previous if backwards else node.next
            rank = -1 if backwards else 0

    def get(self, index: int) -> bytes | None:
        """Return the element of that index, negative from the end, or None. O(nodes + one node)"""
        for node, pos in self.walk(index):
            return element(node, pos)
        return None

    def insert(self, node: Node, rank: int, value: bytes, after: bool) -> None:
        """Add an element before or after the one of that rank in the node (_quicklistInsert)."""
        at_edge = rank == node.count - 1 if after else rank == 0
        beside = node.next if after else node.previous
        if self.is_large(value):
            self._insert_plain(node, rank, value, after, at_edge)
        elif self._takes(node, value):
            packed = self._use(node)
            packed.insert(packed.seek(rank), value, after)
            node.count += 1
        elif at_edge and beside is not None and self._takes(beside, value):
            self._add(beside, value, after)
        elif at_edge:
            self._link(_packed_node(value), node, after)
        else:
            half = self._link(self._split(node, rank, after), node, after)
            self._add(half, value, after)
            self._join_around(node)
        self.count += 1
        self._settle()

    def _add(self, node: Node, value: bytes, first: bool) -> None:
        """Put an element at the beginning or the end of a node, which holds more by one."""
        packed = self._use(node)
        if first:
            packed.prepend(value)
        else:
            packed.append(value)
        node.count += 1

    def _insert_plain(self, node: Node, rank: int, value: bytes, after: bool, at_edge: bool) -> Node:
        """Put a PLAIN node beside the element, taking its node apart if it is inside; the count is left alone."""
        half = None if at_edge else self._split(node, rank, after)
        new = self._link(Node(plain=value), node, after)
        if half is not None:
            self._link(half, new, after)
        return new

    def _split(self, node: Node, rank: int, after: bool) -> Node:
        """Take the elements after the rank, or before it, out of the node, into a new one (_quicklistSplitNode)."""
        packed = self._use(node)
        other = Listpack.from_bytes(packed.to_bytes(), False)
        cut = rank + 1 if after else rank
        tail, front = (other, packed) if after else (packed, other)
        tail.delete_range(0, cut)
        front.delete_range(cut, node.count)
        packed.shrink()
        other.shrink()
        half = Node(other, None, node.count - cut if after else cut)
        node.count -= half.count
        return half

    def _join(self, one: Node, other: Node) -> Node:
        """Move the elements of a node to the end of the one before it (_quicklistListpackMerge)."""
        one.packed = Listpack.merge(self._use(one), self._use(other))
        one.count += other.count
        self.count += other.count
        self._unlink(other)
        return one

    def _join_around(self, center: Node) -> None:
        """Join what fits together among the node and two to each side, in Redis's order (_quicklistMergeNodes)."""
        before, behind = center.previous, center.next
        if before is not None and before.previous is not None and self._may_join(before.previous, before):
            self._join(before.previous, before)
        if behind is not None and behind.next is not None and self._may_join(behind, behind.next):
            self._join(behind, behind.next)
        if center.previous is not None and self._may_join(center.previous, center):
            center = self._join(center.previous, center)
        if center.next is not None and self._may_join(center, center.next):
            self._join(center, center.next)

    def replace(self, index: int, value: bytes) -> bool:
        """Put an element in the place of the one of that index; False where there is none (quicklistReplaceAtIndex)."""
        found = self.locate(index)
        if found is None:
            return False
        node, rank = found
        if self.depth:
            self._opened.append(node)
            node.open()
        large = self.is_large(value)
        if node.packed is not None and not large:
            node.packed.replace(node.packed.seek(rank), value)
        elif node.packed is None and large:
            node.plain = value
        elif node.packed is None:
            self.insert(node, 0, value, True)
            self._unlink(node)
        else:
            self._replace_by_plain(node, rank, value)
        self._settle()
        return True

    def _replace_by_plain(self, node: Node, rank: int, value: bytes) -> None:
        """Put a PLAIN node in the place of an element of a listpack (quicklistReplaceEntry)."""
        new = self._insert_plain(node, rank, value, True, rank == node.count - 1)
        self.count += 1
        if node.count == 1:
            self._unlink(node)
            return
        self._delete(node, node.listpack().last())
        if not self.classic:
            self._join_around(new)

    def _delete(self, node: Node, pos: int) -> None:
        """Remove one element of an open node, and the node when it was the last one (quicklistDelIndex)."""
        if node.count == 1:
            self._unlink(node)
            return
        node.listpack().delete(pos)
        node.count -= 1
        self.count -= 1

    def delete_range(self, start: int, count: int) -> int:
        """Remove up to count elements from that index on; return how many went (quicklistDelRange)."""
        found = self.locate(start)
        if found is None or count <= 0:
            return 0
        node: Node | None
        node, rank = found
        left = count
        while node is not None and left > 0:
            following = node.next
            gone = min(left, node.count - rank)
            if gone == node.count:
                self._unlink(node)
            else:
                self._use(node).delete_range(rank, gone)
                node.count -= gone
                self.count -= gone
            left -= gone
            node, rank = following, 0
        self._settle()
        return count - left

    # -- searching -----------------------------------------------------------------------------------

    def positions(self, value: bytes, backwards: bool = False, most: int = 0) -> Iterator[int]:
        """Yield how far from the end where the search begins elements equal the value; most = how many to look at.

        The list must not change meanwhile.
        """
        for index, (node, pos) in enumerate(self.walk(-1 if backwards else 0, backwards)):
            if most and index == most:
                return
            if node.plain == value if node.packed is None else node.packed.compare(pos, value):
                yield index

    def remove(self, value: bytes, most: int = 0, backwards: bool = False) -> int:
        """Remove elements that equal the value, at most so many (0 = all); return how many went. O(bytes)"""
        removed = 0
        node = self.tail if backwards else self.head
        while node is not None and (not most or removed < most):
            following = node.previous if backwards else node.next
            if self.depth:
                self._opened.append(node)
                node.open()
            if node.packed is None:
                if node.plain == value:
                    self._unlink(node)
                    removed += 1
            else:
                removed += self._remove_packed(node, node.packed, value, most - removed if most else 0, backwards)
            node = following
        self._settle()
        return removed

    def _remove_packed(self, node: Node, packed: Listpack, value: bytes, most: int, backwards: bool) -> int:
        removed = 0
        pos = packed.last() if backwards else packed.find(packed.first(), value)
        while pos != -1 and (not most or removed < most):
            before = packed.prev(pos) if backwards else -1
            if backwards and not packed.compare(pos, value):
                pos = before
                continue
            removed += 1
            if node.count == 1:
                self._unlink(node)
                break
            behind = packed.delete(pos)
            node.count -= 1
            self.count -= 1
            pos = before if backwards else packed.find(behind, value) if behind != -1 else -1
        return removed

    def check(self) -> None:
        """Raise AssertionError or Corrupt unless the invariants hold. O(bytes)"""
        count = nodes = 0
        previous, node = None, self.head
        while node is not None:
            assert node.previous is previous and node.count > 0
            depth = min(nodes, self.nodes - 1 - nodes)
            assert node.block is None or depth >= self.depth > 0
            closed = node.block is not None
            node.open()
            if node.packed is None:
                assert node.plain is not None and node.count == 1
            else:
                node.packed.check()
                assert node.plain is None and node.packed.length() == node.count
            if closed:
                node.close()
            count, nodes = count + node.count, nodes + 1
            previous, node = node, node.next
        assert self.tail is previous and (count, nodes) == (self.count, self.nodes)
        assert not self.single or (nodes <= 1 and (self.head is None or not self.head.is_plain))


def element(node: Node, pos: int) -> bytes:
    """Return the element at a position that `walk` gave."""
    if node.packed is not None:
        return node.packed.get_bytes(pos)
    if node.plain is None:
        raise Corrupt("quicklist: an element of a node that is compressed")
    return node.plain


__all__ = ["Node", "Quicklist", "element", "exceeds", "size_limit"]

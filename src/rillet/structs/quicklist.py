"""The quicklist: a list of byte strings as a chain of listpacks (Redis: quicklist.c).

    head                                                              tail
    +----------+     +----------+     +----------------+     +----------+
    | listpack | <-> | listpack | <-> | one large      | <-> | listpack |
    | 3 elems  |     | (LZF)    |     | element, PLAIN |     | 2 elems  |
    +----------+     +----------+     +----------------+     +----------+

A change of a listpack moves the bytes after it, so a listpack must stay small. Each node of the chain needs two
references, so a node should hold many elements. `fill` (list-max-listpack-size) sets the limit:

    -1 -2 -3 -4 -5    at most 4, 8, 16, 32, 64 KiB per node (default: -2, 8 KiB)
    n > 0             at most n elements per node, and at most 8 KiB unless the node has one element

An element larger than the limit of a node gets a PLAIN node, which stores it uncopied. If `depth`
(list-compress-depth) is above 0, all nodes except the outer `depth` at each end are kept compressed with LZF,
provided they have at least 48 bytes and compression saves more than 8. A reader decompresses a node while it reads.

DUMP exposes the node boundaries, so they equal Redis's exactly: when a node is full, where it is split, which
neighbours are merged afterwards. Redis has had two versions of these rules (`classic` selects those of 7.0; 7.2
mixes them: a `threshold` of 1 GiB is the limit of its PLAIN nodes):

                         7.0                                      7.4 and newer
    PLAIN from           1 GiB                                    one byte more than a node may hold
    merged if            the sizes minus 11 bytes fit             the sizes minus 7 bytes fit
    LSET to PLAIN        leaves the two halves of the node apart  merges the halves with their neighbours

A `single` quicklist is one listpack without a limit: Redis 7.2 calls it the listpack encoding of a list.
With this flag in the same class, a conversion in either direction only sets or clears the flag.

Invariants (`check`): no node is empty; `count` and `nodes` are correct; the chain is consistent in both
directions; a single quicklist has at most one node, which is not PLAIN; the outer `depth` nodes are uncompressed.

Costs: push and pop O(1) plus the bytes of one node. Lookup by index walks the nodes from the nearer end, then one
node. insert and replace at a located element touch one node and its neighbours. delete_range is O(nodes visited).

Rejected alternatives: a Python list or deque of nodes (a deletion in the middle moves every later reference), and
weak references backward (each is larger than a node's header). The chain is a reference cycle, so the destructor
unlinks it explicitly; memory is then released at once instead of at a later garbage collection.
"""

from __future__ import annotations

from collections.abc import Iterator

from rillet._cython import cython, public, readonly
from rillet.errors import Corrupt
from rillet.structs.listpack import HEADER_SIZE, Listpack
from rillet.structs.lzf import compress, decompress

SAFETY_LIMIT = 8192  # SIZE_SAFETY_LIMIT: byte limit of a node that is limited by its number of elements
ENTRY_OVERHEAD = 8  # SIZE_ESTIMATE_OVERHEAD: assumed overhead of an element in bytes
FILL_MIN, FILL_MAX, DEPTH_MAX = -5, 32767, 65535
MIN_COMPRESS_BYTES, MIN_COMPRESS_IMPROVE = 48, 8

_HEADER = cython.declare(cython.Py_ssize_t, HEADER_SIZE)
_SAFETY = cython.declare(cython.Py_ssize_t, 8192)
_OVERHEAD = cython.declare(cython.Py_ssize_t, 8)
_CLASSIC = cython.declare(cython.Py_ssize_t, 1 << 30)  # Redis 7.0 stores elements from this size on in a PLAIN node


@cython.ccall
def size_limit(fill: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """Return the byte limit of a node for a fill of -1 to -5: 4, 8, 16, 32 or 64 KiB (quicklistNodeNegFillLimit)."""
    return 4096 << (4 if fill < -5 else -fill - 1)


@cython.ccall
def exceeds(fill: cython.Py_ssize_t, nbytes: cython.Py_ssize_t, count: cython.Py_ssize_t) -> cython.bint:
    """Return whether a node of that size and element count exceeds the limit (quicklistNodeExceedsLimit)."""
    if fill < 0:
        return nbytes > size_limit(fill)
    return nbytes > _SAFETY or count > (1 if fill == 0 else fill)


@cython.final
@cython.cclass
class QuicklistNode:
    """A node: a listpack (`packed`), one large element (`plain`), or one of these compressed with LZF (`block`)."""

    __slots__ = ("block", "count", "next", "packed", "plain", "previous", "_in_use", "_size")
    block: readonly[bytes | None]
    count: readonly[cython.Py_ssize_t]
    next: readonly[QuicklistNode | None]
    packed: readonly[Listpack | None]
    plain: readonly[bytes | None]
    previous: readonly[QuicklistNode | None]
    _size: cython.Py_ssize_t
    _in_use: cython.bint

    def __init__(
        self, packed: Listpack | None = None, plain: bytes | None = None, count: cython.Py_ssize_t = 1
    ) -> None:
        self.packed = packed
        self.plain = plain
        self.block = None
        self.count = count
        self.previous = None
        self.next = None
        self._size = -1  # uncompressed size of block, negative for a PLAIN node
        self._in_use = False  # a change of the node is not in Quicklist.node_bytes yet

    @cython.ccall
    def is_plain(self) -> cython.bint:
        """Return whether the node is one large element."""
        return self.plain is not None or (self.block is not None and self._size < 0)

    @cython.ccall
    def nbytes(self) -> cython.Py_ssize_t:
        """Return the uncompressed size of the node's listpack or element."""
        if self.packed is not None:
            return self.packed.used
        if self.plain is not None:
            return len(self.plain)
        return -self._size if self._size < 0 else self._size

    @cython.ccall
    def stored_bytes(self) -> cython.Py_ssize_t:
        """Return the size of the buffer that holds the elements. O(1)"""
        if self.packed is not None:
            return len(self.packed.buf)
        if self.plain is not None:
            return len(self.plain)
        return 0 if self.block is None else len(self.block)

    @cython.ccall
    def open(self) -> cython.bint:
        """Decompress the node; return False if it was not compressed (quicklistDecompressNode)."""
        if self.block is None:
            return False
        data: bytes = decompress(self.block, self.nbytes())
        self.block = None
        if self._size < 0:
            self.plain = data
        else:
            self.packed = Listpack.from_bytes(data, False)
        return True

    @cython.ccall
    def close(self) -> cython.bint:
        """Compress the node if that saves enough bytes. Return whether it was compressed (quicklistCompressNode)."""
        if self.block is not None or self.nbytes() < MIN_COMPRESS_BYTES:
            return False
        data: bytes | None = self.plain if self.packed is None else self.packed.to_bytes()
        assert data is not None
        block: bytes = compress(data)
        if not block or len(block) + MIN_COMPRESS_IMPROVE >= len(data):
            return False
        self._size = -len(data) if self.packed is None else len(data)
        self.block = block
        self.packed = self.plain = None
        return True

    @cython.ccall
    def listpack(self) -> Listpack:
        """Return the listpack of an uncompressed node that is not PLAIN."""
        assert self.packed is not None
        return self.packed


@cython.final
@cython.cclass
class Quicklist:
    """A chain of nodes; an element is addressed by its node and its rank within the node."""

    __slots__ = (
        "bookmark", "classic", "count", "depth", "fill", "head", "node_bytes", "nodes", "single", "spare",
        "tail", "threshold", "_opened", "_used",
    )  # fmt: skip
    head: readonly[QuicklistNode | None]
    tail: readonly[QuicklistNode | None]
    bookmark: public[QuicklistNode | None]
    spare: readonly[QuicklistNode | None]
    nodes: readonly[cython.Py_ssize_t]
    count: readonly[cython.Py_ssize_t]
    classic: public[cython.bint]
    single: public[cython.bint]
    threshold: public[cython.Py_ssize_t]
    fill: readonly[cython.Py_ssize_t]
    depth: readonly[cython.Py_ssize_t]
    node_bytes: readonly[cython.Py_ssize_t]
    _opened: list[QuicklistNode]
    _used: list[QuicklistNode]

    def __init__(
        self, fill: int = -2, depth: int = 0, classic: cython.bint = False, single: cython.bint = False
    ) -> None:
        self.head = None
        self.tail = None
        self.spare = None  # the node for the first element of an empty list, see `hold`
        self.bookmark = None  # the next node of a compaction; a removed node passes it on
        self.nodes = 0
        self.count = 0
        self.classic = classic
        self.single = single
        self.threshold = 0  # elements from this size on get a PLAIN node; 0 if `fill` sets the limit
        self._opened = []
        # The sum of `stored_bytes`, without the nodes in `_used`: `_settle` adds these after their change.
        self.node_bytes = 0
        self._used = []
        self.fill = self.depth = 0
        self.set_limits(fill, depth)

    def set_limits(self, fill: int, depth: int) -> None:
        """Set fill and depth for later changes. Existing nodes stay unchanged (quicklistSetOptions)."""
        self.fill = max(FILL_MIN, min(fill, FILL_MAX))
        self.depth = max(0, min(depth, DEPTH_MAX))

    def __del__(self) -> None:
        if not cython.compiled and not hasattr(self, "head"):
            return  # an interrupt came before or in __init__
        node: QuicklistNode | None = self.head
        self.head = self.tail = self.bookmark = None
        while node is not None:
            following: QuicklistNode | None = node.next
            node.previous = node.next = None
            node = following

    def free_some(self, limit: int) -> bool:
        """Free up to `limit` nodes of a list that is not used any more; return whether more remain. O(limit)"""
        node: QuicklistNode | None = self.head
        self.bookmark = None
        self._opened.clear()
        while node is not None and limit > 0:
            following: QuicklistNode | None = node.next
            node.previous = node.next = None
            node = following
            limit -= 1
        self.head = node
        if node is None:
            self.tail = None
        return node is not None

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[bytes]:
        """Yield the elements from head to tail."""
        for node, pos in self.walk():
            yield element(node, pos)

    def __repr__(self) -> str:
        return f"<Quicklist: {self.count} elements in {self.nodes} nodes>"

    # -- limits of a node ----------------------------------------------------------------------------

    @cython.ccall
    def is_large(self, size: cython.Py_ssize_t) -> cython.bint:
        """Return whether an element is so large that it gets a PLAIN node (quicklist.c: isLargeElement)."""
        if self.single:
            return False
        if self.threshold:
            return size >= self.threshold
        if self.classic:
            return size >= _CLASSIC
        return size > (size_limit(self.fill) if self.fill < 0 else _SAFETY)

    @cython.cfunc
    def _takes(self, node: QuicklistNode | None, size: cython.Py_ssize_t) -> cython.bint:
        """Return whether an element of this size fits into the node (_quicklistNodeAllowInsert)."""
        if node is None:
            return False
        if self.single:
            return True
        if node.is_plain() or self.is_large(size):
            return False
        return not exceeds(self.fill, node.nbytes() + size + _OVERHEAD, node.count + 1)

    @cython.cfunc
    def _may_join(self, one: QuicklistNode | None, other: QuicklistNode | None) -> cython.bint:
        """Return whether two nodes fit into one (_quicklistNodeAllowMerge)."""
        if one is None or other is None or one.is_plain() or other.is_plain():
            return False
        less: cython.Py_ssize_t = 11 if self.classic else 7
        return not exceeds(self.fill, one.nbytes() + other.nbytes() - less, one.count + other.count)

    # -- linking nodes -------------------------------------------------------------------------------

    @cython.cfunc
    def _link(self, new: QuicklistNode, beside: QuicklistNode | None, after: cython.bint) -> QuicklistNode:
        """Link a node beside another (None: into an empty list) without adding to `count` (__quicklistInsertNode)."""
        if beside is None:
            self.head = self.tail = new
        else:
            if after:
                new.previous = beside
                new.next = beside.next
            else:
                new.previous = beside.previous
                new.next = beside
            if new.previous is None:
                self.head = new
            else:
                new.previous.next = new
            if new.next is None:
                self.tail = new
            else:
                new.next.previous = new
        self.nodes += 1
        self.node_bytes += new.stored_bytes()
        if self.depth:
            self._opened.append(new)
        return new

    @cython.cfunc
    def _unlink(self, node: QuicklistNode) -> cython.bint:
        """Unlink a node and subtract its elements from `count` (__quicklistDelNode)."""
        if node.previous is None:
            self.head = node.next
        else:
            node.previous.next = node.next
        if node.next is None:
            self.tail = node.previous
        else:
            node.next.previous = node.previous
        if self.bookmark is node:
            self.bookmark = node.next
        node.previous = node.next = None
        self.nodes -= 1
        if not node._in_use:
            self.node_bytes -= node.stored_bytes()
        self.count -= node.count
        node.count = 0
        return True

    @cython.cfunc
    def _use(self, node: QuicklistNode) -> Listpack:
        """Decompress a node and return its listpack, which the caller will change."""
        self._measure_later(node)
        if self.depth:
            self._opened.append(node)
            node.open()
        return node.listpack()

    @cython.cfunc
    def _measure_later(self, node: QuicklistNode) -> cython.bint:
        """Take a node that will change out of `node_bytes` until `_settle`."""
        if not node._in_use:
            node._in_use = True
            self.node_bytes -= node.stored_bytes()
            self._used.append(node)
        return True

    @cython.cfunc
    def _settle(self) -> cython.bint:
        """Decompress the outer `depth` nodes; compress inner nodes that a change decompressed (__quicklistCompress)."""
        node: QuicklistNode
        if self.depth:
            self._compress()
        while self._used:
            node = self._used.pop()
            node._in_use = False
            if node.count:
                self.node_bytes += node.stored_bytes()
        return True

    def _compress(self) -> None:
        opened, self._opened = self._opened, []
        ends: set[QuicklistNode] = set()
        first, last = self.head, self.tail
        for _ in range(self.depth):
            for node in (first, last):
                if node is not None:
                    self._measure_later(node)
                    node.open()
                    ends.add(node)
            first, last = (None if first is None else first.next), (None if last is None else last.previous)
        for node in (*opened, first, last):
            if node is not None and node.count and node not in ends:
                self._measure_later(node)
                node.close()

    # -- push and pop at the ends --------------------------------------------------------------------

    @cython.ccall
    def push(self, value: bytes, head: cython.bint) -> cython.bint:
        """Add an element at the head or the tail (quicklistPush)."""
        return self.push_span(value, len(value), head)

    @cython.cfunc
    def push_span(self, at: cython.p_const_uchar, size: cython.Py_ssize_t, head: cython.bint) -> cython.bint:
        """Do `push` for the bytes at an address."""
        node: QuicklistNode | None = self.head if head else self.tail
        if node is None or not self._takes(node, size):
            self._link(self._new_node(at, size), node, not head)
            self._settle()
        else:
            packed: Listpack = node.listpack()
            before: cython.Py_ssize_t = len(packed.buf)
            if head:
                packed.insert_span(_HEADER, at, size)
            else:
                packed.append_span(at, size)
            node.count += 1
            self.node_bytes += len(packed.buf) - before
        self.count += 1
        return True

    @cython.cfunc
    def _new_node(self, at: cython.p_const_uchar, size: cython.Py_ssize_t) -> QuicklistNode:
        """Return a node of one element, which is not linked."""
        if self.is_large(size):
            return QuicklistNode(None, at[:size])
        node: QuicklistNode | None = self.spare
        if node is None:
            node = QuicklistNode(Listpack(), None)
        self.spare = None
        node.listpack().append_span(at, size)
        return node

    def append_node(self, packed: Listpack | None, plain: bytes | None = None) -> None:
        """Append a whole node at the tail, for loading (quicklistAppendListpack, quicklistAppendPlainNode)."""
        count = 1 if packed is None else packed.length()
        self._link(QuicklistNode(packed, plain, count), self.tail, True)
        self.count += count
        self._settle()

    @cython.ccall
    def pop(self, head: cython.bint) -> bytes:
        """Remove and return the element at the head or the tail; the list must not be empty (quicklistPop)."""
        node: QuicklistNode | None = self.head if head else self.tail
        assert node is not None
        packed: Listpack | None = node.packed
        value: bytes = element(node, -1 if packed is None else packed.first() if head else packed.last())
        self.drop(head)
        return value

    @cython.cfunc
    def drop(self, head: cython.bint) -> cython.bint:
        """Remove the element at the head or the tail; the list must not be empty."""
        node: QuicklistNode | None = self.head if head else self.tail
        assert node is not None
        packed: Listpack | None = node.packed
        self._delete(node, -1 if packed is None else packed.first() if head else packed.last())
        return self._settle()

    # -- a list that is unpacked for one command (keyspace/rest_buffer.py) -----------------------------

    @cython.cfunc
    def hold(
        self, node: QuicklistNode, packed: Listpack, fill: cython.Py_ssize_t, depth: cython.Py_ssize_t,
        classic: cython.bint, single: cython.bint,
    ) -> cython.bint:  # fmt: skip
        """Make a listpack in this node the whole list; an empty one is used for the first element. O(1)"""
        if self.nodes > 1:  # of a command that failed
            self.free_some(self.nodes)
        node.packed = packed
        node.plain = None
        node.block = None
        node.previous = None
        node.next = None
        node._in_use = False
        if self._opened:
            self._opened = []
        if self._used:
            self._used = []
        self.fill = fill
        self.depth = depth
        self.classic = classic
        self.single = single
        self.threshold = 0
        self.count = packed.length()
        if self.count == 0:
            node.count = 1
            self.spare = node
            self.head = None
            self.tail = None
            self.nodes = 0
            self.node_bytes = 0
            return True
        node.count = self.count
        self.spare = None
        self.head = node
        self.tail = node
        self.nodes = 1
        self.node_bytes = len(packed.buf)
        return True

    @cython.cfunc
    def release(self, packed: Listpack) -> cython.bint:
        """Replace the listpack of `hold`, which its owner uses again, by a copy: the list lasts. O(nodes)"""
        node: QuicklistNode | None = self.head
        self.spare = None
        while node is not None:
            if node.packed is packed:
                node.packed = packed.copy()
                self.node_bytes += len(node.packed.buf) - len(packed.buf)
            node = node.next
        return True

    # -- access by index -----------------------------------------------------------------------------

    def chain(self) -> Iterator[QuicklistNode]:
        """Yield the nodes from head to tail."""
        node: QuicklistNode | None = self.head
        while node is not None:
            yield node
            node = node.next

    def locate(self, index: int) -> tuple[QuicklistNode, int] | None:
        """Return the node and rank of an element (negative index: from the end), or None if out of range. O(nodes)"""
        if index < 0:
            index += self.count
        if not 0 <= index < self.count:
            return None
        at: cython.Py_ssize_t = index
        before: cython.Py_ssize_t = 0
        node: QuicklistNode | None = self.head
        if at < self.count // 2:
            while node is not None and at >= before + node.count:
                before += node.count
                node = node.next
        else:
            node = self.tail
            before = self.count
            while node is not None and at < before - node.count:
                before -= node.count
                node = node.previous
            before -= 0 if node is None else node.count
        assert node is not None
        return node, at - before

    def walk(self, index: int = 0, backwards: bool = False) -> Iterator[tuple[QuicklistNode, int]]:
        """Yield each element from an index on, as (uncompressed node, position in its listpack or -1 if PLAIN)."""
        place = self.locate(index)
        node: QuicklistNode | None = None
        rank: cython.Py_ssize_t = 0
        if place is not None:
            node, rank = place
        while node is not None:
            closed = node.open()
            try:
                packed: Listpack | None = node.packed
                pos: cython.Py_ssize_t = -1 if packed is None else packed.seek(rank)
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
        """Return the element at an index (negative: from the end), or None. O(nodes + one node)"""
        for node, pos in self.walk(index):
            return element(node, pos)
        return None

    @cython.ccall
    def insert(self, node: QuicklistNode, rank: cython.Py_ssize_t, value: bytes, after: cython.bint) -> cython.bint:
        """Insert an element before or after the element with the given rank in the node (_quicklistInsert)."""
        at_edge: cython.bint = rank == node.count - 1 if after else rank == 0
        beside: QuicklistNode | None = node.next if after else node.previous
        size: cython.Py_ssize_t = len(value)
        if self.is_large(size):
            self._insert_plain(node, rank, value, after, at_edge)
        elif self._takes(node, size):
            packed: Listpack = self._use(node)
            packed.insert(packed.seek(rank), value, after)
            node.count += 1
        elif at_edge and beside is not None and self._takes(beside, size):
            self._add(beside, value, after)
        elif at_edge:
            self._link(self._new_node(value, size), node, after)
        else:
            half: QuicklistNode = self._link(self._split(node, rank, after), node, after)
            self._add(half, value, after)
            self._join_around(node)
        self.count += 1
        return self._settle()

    @cython.cfunc
    def _add(self, node: QuicklistNode, value: bytes, first: cython.bint) -> cython.bint:
        """Add an element at the beginning or the end of a node, and increment the node's count."""
        packed: Listpack = self._use(node)
        if first:
            packed.prepend(value)
        else:
            packed.append(value)
        node.count += 1
        return True

    @cython.cfunc
    def _insert_plain(
        self, node: QuicklistNode, rank: cython.Py_ssize_t, value: bytes, after: cython.bint, at_edge: cython.bint
    ) -> QuicklistNode:
        """Insert a PLAIN node beside an element, splitting the element's node if needed; `count` is unchanged."""
        half: QuicklistNode | None = None if at_edge else self._split(node, rank, after)
        new: QuicklistNode = self._link(QuicklistNode(None, value), node, after)
        if half is not None:
            self._link(half, new, after)
        return new

    @cython.cfunc
    def _split(self, node: QuicklistNode, rank: cython.Py_ssize_t, after: cython.bint) -> QuicklistNode:
        """Move the elements after or before a rank from the node into a new node (_quicklistSplitNode)."""
        packed: Listpack = self._use(node)
        other: Listpack = Listpack.from_bytes(packed.to_bytes(), False)
        cut: cython.Py_ssize_t = rank + 1 if after else rank
        if after:
            packed.delete_range(cut, node.count)
            other.delete_range(0, cut)
        else:
            packed.delete_range(0, cut)
            other.delete_range(cut, node.count)
        packed.shrink()
        other.shrink()
        half: QuicklistNode = QuicklistNode(other, None, node.count - cut if after else cut)
        node.count -= half.count
        return half

    @cython.cfunc
    def _join(self, one: QuicklistNode, other: QuicklistNode) -> QuicklistNode:
        """Append the elements of a node to the preceding node (_quicklistListpackMerge)."""
        one.packed = Listpack.merge(self._use(one), self._use(other))
        one.count += other.count
        self.count += other.count
        self._unlink(other)
        return one

    @cython.cfunc
    def _join_around(self, center: QuicklistNode) -> cython.bint:
        """Merge a node with up to two neighbours on each side if they fit, in Redis's order (_quicklistMergeNodes)."""
        before: QuicklistNode | None = center.previous
        behind: QuicklistNode | None = center.next
        if before is not None and before.previous is not None and self._may_join(before.previous, before):
            self._join(before.previous, before)
        if behind is not None and behind.next is not None and self._may_join(behind, behind.next):
            self._join(behind, behind.next)
        if center.previous is not None and self._may_join(center.previous, center):
            center = self._join(center.previous, center)
        if center.next is not None and self._may_join(center, center.next):
            self._join(center, center.next)
        return True

    def open_head(self) -> None:
        """Decompress the first node and keep it so."""
        if self.head is not None:
            self._measure_later(self.head)
            self.head.open()
            self._used.clear()
            self.head._in_use = False
            self.node_bytes += self.head.stored_bytes()

    # -- compaction ----------------------------------------------------------------------------------

    @cython.ccall
    def can_join_next(self, node: QuicklistNode) -> cython.bint:
        """Return whether `compact` would merge the next node into this one."""
        after: QuicklistNode | None = node.next
        if node.packed is None or after is None or after.packed is None:
            return False
        return self._may_join(node, after)

    @cython.ccall
    def compact(self) -> cython.Py_ssize_t:
        """Shrink the bookmarked node or merge the next one into it; return the bytes freed. O(two nodes)

        Afterwards the bookmark is at the node to compact next; None = the end. A merged node stays bookmarked, because
        it may take more nodes. Compressed and PLAIN nodes stay as they are. Redis moves nodes to other addresses, but
        merges none (defrag.c: scanLaterList, defragQuickListNode).
        """
        node: QuicklistNode | None = self.bookmark
        if node is None:
            return 0
        after: QuicklistNode | None = node.next
        if node.packed is None:
            self.bookmark = after
            return 0
        before: cython.Py_ssize_t = len(node.packed.buf)
        if after is not None and self.can_join_next(node):
            assert after.packed is not None
            before += len(after.packed.buf)
            self._join(node, after)
            self._settle()
            # `_settle` may have compressed the node, if it is no longer one of the outer nodes.
            return before - (node.nbytes() if node.packed is None else len(node.packed.buf))
        self.bookmark = after
        if len(node.packed.buf) - node.packed.used <= before >> 3:
            return 0
        node.packed.shrink()
        self.node_bytes -= before - len(node.packed.buf)
        return before - node.packed.used

    def replace(self, index: int, value: bytes) -> bool:
        """Replace the element at an index; return False if the index is out of range (quicklistReplaceAtIndex)."""
        place = self.locate(index)
        if place is None:
            return False
        node: QuicklistNode = place[0]
        rank: cython.Py_ssize_t = place[1]
        self._measure_later(node)
        if self.depth:
            self._opened.append(node)
            node.open()
        large: cython.bint = self.is_large(len(value))
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

    @cython.cfunc
    def _replace_by_plain(self, node: QuicklistNode, rank: cython.Py_ssize_t, value: bytes) -> cython.bint:
        """Replace an element of a listpack by a PLAIN node (quicklistReplaceEntry)."""
        new: QuicklistNode = self._insert_plain(node, rank, value, True, rank == node.count - 1)
        self.count += 1
        if node.count == 1:
            return self._unlink(node)
        self._delete(node, node.listpack().last())
        if not self.classic:
            self._join_around(new)
        return True

    @cython.cfunc
    def _delete(self, node: QuicklistNode, pos: cython.Py_ssize_t) -> cython.bint:
        """Delete one element of an uncompressed node, and the node if it becomes empty (quicklistDelIndex)."""
        if node.count == 1:
            return self._unlink(node)
        self._measure_later(node)
        node.listpack().delete(pos)
        node.count -= 1
        self.count -= 1
        return True

    def delete_range(self, start: int, count: int) -> int:
        """Delete up to count elements from an index on; return the number deleted (quicklistDelRange)."""
        place = self.locate(start)
        if place is None or count <= 0:
            return 0
        node: QuicklistNode | None = place[0]
        rank: cython.Py_ssize_t = place[1]
        left: cython.Py_ssize_t = min(count, self.count)
        requested: cython.Py_ssize_t = left
        while node is not None and left > 0:
            following: QuicklistNode | None = node.next
            removed_here: cython.Py_ssize_t = min(left, node.count - rank)
            if removed_here == node.count:
                self._unlink(node)
            else:
                self._use(node).delete_range(rank, removed_here)
                node.count -= removed_here
                self.count -= removed_here
            left -= removed_here
            node = following
            rank = 0
        self._settle()
        return requested - left

    # -- searching -----------------------------------------------------------------------------------

    def positions(self, value: bytes, backwards: bool = False, most: int = 0) -> Iterator[int]:
        """Yield the indexes of elements equal to value, counted from the end at which the search starts.

        most: maximum number of elements to examine. The list must not change during the search.
        """
        for index, (node, pos) in enumerate(self.walk(-1 if backwards else 0, backwards)):
            if most and index == most:
                return
            if node.plain == value if node.packed is None else node.packed.compare(pos, value):
                yield index

    def remove(self, value: bytes, most: int = 0, backwards: bool = False) -> int:
        """Remove up to `most` elements equal to value (0 = all); return the number removed. O(bytes)"""
        removed: cython.Py_ssize_t = 0
        limit: cython.Py_ssize_t = min(most, self.count) or self.count
        node: QuicklistNode | None = self.tail if backwards else self.head
        while node is not None and removed < limit:
            following: QuicklistNode | None = node.previous if backwards else node.next
            self._measure_later(node)
            if self.depth:
                self._opened.append(node)
                node.open()
            if node.packed is None:
                if node.plain == value:
                    self._unlink(node)
                    removed += 1
            else:
                removed += self._remove_packed(node, node.packed, value, limit - removed, backwards)
            node = following
        self._settle()
        return removed

    @cython.cfunc
    def _remove_packed(
        self, node: QuicklistNode, packed: Listpack, value: bytes, most: cython.Py_ssize_t, backwards: cython.bint
    ) -> cython.Py_ssize_t:
        removed: cython.Py_ssize_t = 0
        pos: cython.Py_ssize_t = packed.last() if backwards else packed.find(packed.first(), value)
        while pos != -1 and removed < most:
            before: cython.Py_ssize_t = packed.prev(pos) if backwards else -1
            if backwards and not packed.compare(pos, value):
                pos = before
                continue
            removed += 1
            if node.count == 1:
                self._unlink(node)
                break
            behind: cython.Py_ssize_t = packed.delete(pos)
            node.count -= 1
            self.count -= 1
            pos = before if backwards else packed.find(behind, value) if behind != -1 else -1
        return removed

    def check(self) -> None:
        """Raise AssertionError or Corrupt if an invariant is broken. O(bytes)"""
        count = nodes = stored = 0
        previous: QuicklistNode | None = None
        node: QuicklistNode | None = self.head
        while node is not None:
            assert node.previous is previous and node.count > 0
            depth = min(nodes, self.nodes - 1 - nodes)
            stored += node.stored_bytes()
            assert node.block is None or depth >= self.depth > 0
            closed = node.open()
            if node.packed is None:
                assert node.plain is not None and node.count == 1
            else:
                node.packed.check()
                assert node.plain is None and node.packed.length() == node.count
            if closed:
                node.close()
            count, nodes = count + node.count, nodes + 1
            previous = node
            node = node.next
        assert self.tail is previous and (count, nodes) == (self.count, self.nodes)
        assert not self._used and self.spare is None and stored == self.node_bytes
        assert not self.single or (nodes <= 1 and (self.head is None or not self.head.is_plain()))


@cython.ccall
def element(node: QuicklistNode, pos: cython.Py_ssize_t) -> bytes:
    """Return the element at a node and position that `Quicklist.walk` yielded."""
    if node.packed is not None:
        return node.packed.get_bytes(pos)
    if node.plain is None:
        raise Corrupt("quicklist: a node is still compressed, so its elements cannot be read")
    return node.plain

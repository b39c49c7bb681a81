"""Rax: a radix tree that maps byte strings to objects, with the same nodes as Redis's (rax.c).

The keys "foo", "foobar" and "footer" make this tree. Each node is drawn with the bytes of its edges;
`=` marks a node that represents a key:

    "foo" -> [bt] = 1                  "foo"  compressed: a chain of three single-child nodes in one
             |- b -> "ar" -> [] = 2    [bt]   plain: one child for each byte, in byte order
             `- t -> "er" -> [] = 3    []     a leaf

The bytes on the path from the head to a node are its key; nodes do not store their keys. A lookup
walks one path, so it costs O(length of the key) for any number of keys. Keys with a common prefix,
such as the 16-byte IDs of a stream, share the nodes of that prefix.

A node is a small object with five attributes:

    chars    the edge bytes: empty in a leaf, the chain's bytes if compressed, otherwise one byte per child
    link     None in a leaf, the child itself if there is only one, otherwise the list of children
    data     the value, if iskey
    iskey, iscompr

`iscompr` means exactly "two or more bytes, one child". As in Redis, a chain of one byte is a plain
node with one child. Every node with one child has this child directly in `link`.

Invariants (`check`):
- The edge bytes of a plain node rise strictly.
- Every leaf is a key, except the head of an empty tree.
- `numele` and `numnodes` equal the numbers of keys and nodes.
- A compressed node has at most `node_max_size` bytes.
- Adjacent single-child nodes that are not keys are merged into one compressed node.

The last invariant holds for keys of equal length, such as stream IDs. If one key is a prefix of
another, Redis leaves chains unmerged in three cases, and so does this tree:
- `raxRemove` merges only if the removed key's node has *one edge byte*: removing "foo" from
  {"foo", "foobar"} leaves "foo" -> "bar".
- It never merges into a node that is a key: removing "abb" from {"a", "abb", "abbb"} leaves
  "bb" -> [b] as two nodes, and a later split or removal may clear the first node's key.
- A chain longer than `node_max_size` stays in parts after a split shortens it.
The shape therefore depends on the history of operations, and the node counts equal those of a server that
executed the same operations. `unmerged` records that one of the three cases happened.

**Keys of equal length** (`fixed_len`). If all keys have one length, Redis 8.10 creates no leaf nodes:
the parent holds the values in place of its children. Servers report a stream's number of rax nodes, so
this tree derives that number (`inlined_nodes`). It is not simply `numnodes - numele`: when a removal
leaves a chain, Redis 8.10 merges the chain's nodes except the last, because that node holds a value.
With keys of three bytes:

    Redis 8.10                           here
    "ab" -> [cd]     less "abd"   "ab" -> [c]     "abc" -> []
    "a" -> [bx]      less "axy"   "ab" -> [c]     "abc" -> []
           |- b -> [c]
           `- x -> [y]

A node boundary of Redis 8.10 inside one compressed node of this tree is a *cut*. `cuts` holds all cuts of the
tree, each as the bytes that lead to it. Removals add and drop cuts, and a split at a cut drops the cut. A chain
has at most two cuts: one that a split moved upward, and one before its last byte. Appends never change the cuts.

Rejected alternatives:
- A dict has no order, a sorted list has O(n) inserts, and neither shares prefixes.
- Nodes in one byte buffer with offsets, as in C, need a custom memory allocator and read no faster from Python.
- Replacing a node when it splits, as C must because the node's size changes: here nodes change in place,
  so only removal needs a node's parent.

Memory. The cycle collector tracks neither the tree nor its nodes (`no_gc`): a node takes 48 bytes
instead of 64, and collections skip the millions of nodes of a large tree. The tree contains no reference
cycles, so reference counting frees it. If a *value* refers back to its tree, the collector cannot detect that
cycle: the owner must break it with `clear()`, or the tree leaks. Freeing is iterative, because a tree can be
as deep as its longest key is long, deeper than the C stack allows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from rillet._cython import cython, readonly
from rillet.structs.rax_inspect import check_rax, show_rax

NODE_MAX_SIZE = (1 << 29) - 1
"""Maximum number of edge bytes in a node (RAX_NODE_MAX_SIZE); tests use a smaller limit."""

_ALL_NODES = cython.declare(cython.Py_ssize_t, 1 << 60)


class _NotFound:
    """The type of `NOT_FOUND`, the result for an absent key."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "NOT_FOUND"


NOT_FOUND: Final = _NotFound()
"""The result of `find` for an absent key, since None is a valid value (raxNotFound)."""
_NOT_FOUND = cython.declare(object, NOT_FOUND)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def common_length(chars: bytes, key: bytes, i: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """Return the length of the common prefix of chars and key[i:]. O(that length)"""
    n: cython.Py_ssize_t = min(len(chars), len(key) - i)
    j: cython.Py_ssize_t = 0
    if cython.compiled:
        a: cython.p_uchar = chars
        b: cython.p_uchar = key
        while j < n and a[j] == b[i + j]:
            j += 1
        return j
    if chars[:n] == key[i : i + n]:
        return n
    while chars[j] == key[i + j]:
        j += 1
    return j


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def first_not_below(chars: bytes, c: cython.int) -> cython.Py_ssize_t:
    """Return the index of the first byte in sorted `chars` that is at least c; len(chars) if all are less. O(log n)"""
    n: cython.Py_ssize_t = len(chars)
    # In rising distinct bytes, index j holds at least j and at most 256 - n + j. These bounds narrow the
    # search; in a node with all 256 bytes they leave nothing to search.
    low: cython.Py_ssize_t = max(0, c + n - 256)
    high: cython.Py_ssize_t = min(c, n)
    if cython.compiled:
        p: cython.p_uchar = chars
        while low < high:
            middle: cython.Py_ssize_t = (low + high) >> 1
            if p[middle] < c:
                low = middle + 1
            else:
                high = middle
        return low
    while low < high:
        middle = (low + high) >> 1
        if chars[middle] < c:
            low = middle + 1
        else:
            high = middle
    return low


@cython.final
@cython.no_gc
@cython.cclass
class RaxNode:
    """A node of the tree; read-only for callers, and invalid after any change of the tree."""

    __slots__ = ("chars", "link", "data", "iskey", "iscompr")
    chars: readonly[bytes]
    link: readonly[Any]
    data: readonly[Any]
    iskey: readonly[cython.bint]
    iscompr: readonly[cython.bint]

    def children(self) -> list[RaxNode]:
        """Return the children in byte order: none in a leaf, one in a compressed node."""
        if isinstance(self.link, list):
            return list(self.link)
        return [] if self.link is None else [self.link]

    def copy(self) -> RaxNode:
        """Return a copy of the node, for a node callback that relocates nodes."""
        node: RaxNode = new_node(self.chars, self.link, self.iscompr)
        if isinstance(self.link, list):
            node.link = list(self.link)
        node.data = self.data
        node.iskey = self.iskey
        return node


@cython.cfunc
@cython.inline
def new_node(chars: bytes, link: Any, iscompr: cython.bint) -> RaxNode:
    """Return a node that is not a key."""
    node: RaxNode = RaxNode.__new__(RaxNode)
    node.chars = chars
    node.link = link
    node.data = None
    node.iskey = False
    node.iscompr = iscompr
    return node


@cython.cfunc
@cython.inline
def child_at(h: RaxNode, j: cython.Py_ssize_t) -> RaxNode:
    """Return the child of edge j."""
    if h.iscompr or len(h.chars) == 1:
        only: RaxNode = h.link
        return only
    children: list[Any] = h.link
    child: RaxNode = children[j]
    return child


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def has_one_child(h: RaxNode) -> cython.bint:
    """Return whether the node has exactly one child."""
    return h.iscompr or len(h.chars) == 1


@cython.cfunc
def add_child(h: RaxNode, edge: bytes, child: RaxNode) -> cython.bint:
    """Add a child to a plain node for a new byte, in byte order (raxAddChild)."""
    n: cython.Py_ssize_t = len(h.chars)
    if n == 0:
        h.chars = edge
        h.link = child
        return True
    pos: cython.Py_ssize_t = first_not_below(h.chars, edge[0])
    if n == 1:
        children: list[RaxNode] = [h.link]
        h.link = children
    else:
        children = h.link
    if pos == n:
        children.append(child)
        h.chars = h.chars + edge
    else:
        children.insert(pos, child)
        h.chars = h.chars[:pos] + edge + h.chars[pos:]
    return True


@cython.cfunc
def remove_child(h: RaxNode, child: RaxNode) -> cython.bint:
    """Remove a child from its parent (raxRemoveChild)."""
    if has_one_child(h):
        h.chars = b""
        h.link = None
        h.iscompr = False
        return True
    children: list[Any] = h.link
    pos: cython.Py_ssize_t = 0
    while children[pos] is not child:
        pos += 1
    del children[pos]
    h.chars = h.chars[:pos] + h.chars[pos + 1 :]
    if len(children) == 1:
        h.link = children[0]
    return True


@cython.cfunc
def release(head: RaxNode) -> cython.bint:
    """Dismantle a whole tree without recursion, so that a deep tree cannot overflow the C stack."""
    pending: list[Any] = [head]
    while release_some(pending, _ALL_NODES):
        pass
    return True


@cython.ccall
def release_some(pending: list[Any], limit: cython.Py_ssize_t) -> cython.bint:
    """Dismantle up to `limit` nodes of the subtrees in `pending`; return whether more remain. O(limit)

    To free a tree in steps, begin with [tree.head]. The tree must not be used any more, but must stay alive.
    """
    while pending and limit > 0:
        limit -= 1
        h: RaxNode = pending.pop()
        link: object = h.link
        h.link = None
        h.data = None
        h.iskey = False
        h.iscompr = False
        h.chars = b""
        if isinstance(link, list):
            pending.extend(link)
        elif link is not None:
            pending.append(link)
    return len(pending) > 0


@cython.final
@cython.no_gc
@cython.cclass
class Rax:
    """A radix tree: an ordered map from bytes (including the empty key) to any object (including None)."""

    __slots__ = (
        "head",
        "numele",
        "numnodes",
        "fixed_len",
        "cuts",
        "node_max_size",
        "version",
        "unmerged",
        "walked",
        "split",
        "depth",
        "tail",
    )
    head: readonly[RaxNode]
    numele: readonly[cython.Py_ssize_t]
    numnodes: readonly[cython.Py_ssize_t]
    fixed_len: readonly[cython.Py_ssize_t]
    cuts: readonly[set[bytes]]
    node_max_size: readonly[cython.Py_ssize_t]
    version: readonly[cython.Py_ssize_t]
    unmerged: readonly[cython.bint]
    walked: cython.Py_ssize_t
    split: cython.Py_ssize_t
    depth: cython.Py_ssize_t
    tail: bytes

    def __init__(self, node_max_size: int = NODE_MAX_SIZE, fixed_len: int = 0) -> None:
        if not 2 <= node_max_size <= NODE_MAX_SIZE:
            raise ValueError(f"node_max_size must be between 2 and {NODE_MAX_SIZE}, not {node_max_size}")
        self.head = new_node(b"", None, False)
        self.numele = 0
        self.numnodes = 1
        self.fixed_len = fixed_len
        self.cuts = set()
        self.node_max_size = node_max_size
        self.version = 0
        self.unmerged = False
        self.walked = 0
        self.split = 0
        self.depth = 0
        self.tail = b""

    def __dealloc__(self) -> None:
        """Free the nodes one by one in compiled code; interpreted code uses `__del__` instead."""
        if self.head is not None:
            release(self.head)

    def __len__(self) -> int:
        return self.numele

    def __contains__(self, key: bytes) -> bool:
        return self.find(key) is not _NOT_FOUND

    def __iter__(self) -> Iterator[bytes]:
        for key, _ in self.items():
            yield key

    @property
    def inlined_nodes(self) -> int:
        """Return the number of nodes this tree has in Redis 8.10, which inlines leaves; requires fixed_len."""
        assert self.fixed_len > 0
        return self.numnodes - self.numele + len(self.cuts)

    def items(self) -> Iterator[tuple[bytes, Any]]:
        """Yield keys and values in byte order; the tree may change during the iteration. O(nodes)"""
        path = bytearray()
        stack: list[Any] = [(0, b"", self.head)]  # (length of the parent's path, edge bytes, node), in reverse order
        last: bytes | None = None  # after a change of the tree, the iteration restarts and skips up to this key
        version: cython.Py_ssize_t = self.version
        h: RaxNode
        while stack:
            start, edge, h = stack.pop()
            del path[start:]
            path += edge
            if last is not None and path <= last and not last.startswith(path):
                continue
            start = len(path)
            children = h.children()
            for j in range(len(children) - 1, -1, -1):
                stack.append((start, h.chars if h.iscompr else h.chars[j : j + 1], children[j]))
            if h.iskey and (last is None or path > last):
                last = None
                key = bytes(path)
                yield key, h.data
                if version != self.version:
                    version = self.version
                    last = key
                    stack = [(0, b"", self.head)]

    def show(self) -> str:
        """Draw the tree as text, one line for each branch (raxShow)."""
        return show_rax(self)

    def check(self) -> None:
        """Verify every invariant, O(nodes); raise an AssertionError that names the broken one."""
        check_rax(self)

    @cython.cfunc
    def walk(self, key: bytes, stack: list | None) -> RaxNode:  # type: ignore[type-arg]
        """Follow the key down the tree as far as it matches and return the last node (raxLowWalk).

        Sets `walked`, the number of key bytes that matched, and `split`, how many of them are inside the
        returned node (nonzero only if it is compressed). If a stack is passed, its first `depth` elements
        are the nodes above the returned one.
        """
        if not cython.compiled and not isinstance(key, bytes):
            raise TypeError(f"a rax key must be bytes, not {type(key).__name__}")
        h: RaxNode = self.head
        i: cython.Py_ssize_t = 0
        j: cython.Py_ssize_t = 0
        n: cython.Py_ssize_t = len(key)
        depth: cython.Py_ssize_t = 0
        while i < n:
            size: cython.Py_ssize_t = len(h.chars)
            if size == 0:
                break
            if h.iscompr:
                j = common_length(h.chars, key, i)
                i += j
                if j != size:
                    break
                j = 0
            else:
                j = first_not_below(h.chars, key[i])
                if j == size or h.chars[j] != key[i]:
                    j = 0
                    break
                i += 1
            if stack is not None:
                if depth < len(stack):
                    stack[depth] = h
                else:
                    stack.append(h)
                depth += 1
            h = child_at(h, j)
            j = 0
        self.walked = i
        self.split = j
        self.depth = depth
        return h

    @cython.ccall
    def find(self, key: bytes) -> Any:
        """Return the value of the key, or NOT_FOUND, O(len(key)) (raxFind)."""
        h: RaxNode = self.walk(key, None)
        if self.walked != len(key) or self.split != 0 or not h.iskey:
            return _NOT_FOUND
        return h.data

    @cython.ccall
    def insert(self, key: bytes, value: object) -> cython.bint:
        """Set the value of a key; return whether the key is new. O(len(key)) (raxInsert)"""
        return self._insert(key, value, True)

    @cython.ccall
    def try_insert(self, key: bytes, value: object) -> cython.bint:
        """Insert a key unless it exists; return False and keep the old value if it does (raxTryInsert)."""
        return self._insert(key, value, False)

    @cython.cfunc
    def _insert(self, key: bytes, value: object, overwrite: cython.bint) -> cython.bint:
        h: RaxNode = self.walk(key, None)
        i: cython.Py_ssize_t = self.walked
        at_key: cython.bint = i == len(key)
        if at_key and self.split == 0 and h.iskey:
            if overwrite:
                h.data = value
            return False
        self.version += 1
        self.numele += 1
        if at_key and self.split != 0:
            return self._split_at_key(h, self.split, value)
        if not at_key:
            if h.iscompr:
                if self.cuts:
                    j: cython.Py_ssize_t = self.split
                    self.cuts.discard(key[:i])
                    self.cuts.discard(key[:i] + h.chars[j : j + 1])
                h = self._split_at_edge(h, self.split)
            h = self._extend(h, key, i)
        h.data = value
        h.iskey = True
        return True

    @cython.cfunc
    def _split_at_edge(self, h: RaxNode, j: cython.Py_ssize_t) -> RaxNode:
        """Split a compressed node at byte j, where the new key diverges; return the new plain node.

        "telegram" at 4  ->  "tele" -> [g] -> "ram"
        """
        chars: bytes = h.chars
        after: RaxNode = h.link
        opened: RaxNode = h
        rest: cython.Py_ssize_t = len(chars) - j - 1
        if rest > 0:
            after = new_node(self._shared(chars[j + 1 :]), after, rest > 1)
            self.numnodes += 1
        if j > 0:
            opened = new_node(chars[j : j + 1], after, False)
            self.numnodes += 1
            h.chars = chars[:j]
            h.link = opened
            h.iscompr = j > 1
        else:
            h.chars = chars[:1]
            h.link = after
            h.iscompr = False
        return opened

    @cython.cfunc
    def _split_at_key(self, h: RaxNode, j: cython.Py_ssize_t, value: object) -> cython.bint:
        """Split a compressed node before byte j, where the new key ends; the second part represents the key.

        "telegram" at 4  ->  "tele" -> "gram" = value
        """
        chars: bytes = h.chars
        rest: RaxNode = new_node(chars[j:], h.link, len(chars) - j > 1)
        rest.data = value
        rest.iskey = True
        h.chars = chars[:j]
        h.link = rest
        h.iscompr = j > 1
        self.numnodes += 1
        return True

    @cython.cfunc
    def _extend(self, h: RaxNode, key: bytes, i: cython.Py_ssize_t) -> RaxNode:
        """Add nodes for key[i:] below node h and return the last new node, a leaf."""
        n: cython.Py_ssize_t = len(key)
        while i < n:
            child: RaxNode = new_node(b"", None, False)
            # A leaf that gets a single child over several bytes becomes a compressed node.
            if len(h.chars) == 0 and n - i > 1:
                stop: cython.Py_ssize_t = min(n, i + self.node_max_size)
                if stop < n:
                    self.unmerged = True
                h.chars = self._shared(key[i:stop])
                h.link = child
                h.iscompr = True
                i = stop
            else:
                add_child(h, key[i : i + 1], child)
                i += 1
            self.numnodes += 1
            h = child
        return h

    @cython.cfunc
    def _shared(self, chars: bytes) -> bytes:
        """Return the previous call's bytes object if both are equal, to save memory: stream keys often end alike."""
        if chars == self.tail:
            return self.tail
        if len(chars) <= 16:
            self.tail = chars
        return chars

    @cython.ccall
    def remove(self, key: bytes) -> cython.bint:
        """Remove a key; return whether it existed. O(len(key)) (raxRemove)"""
        stack: list[Any] = []
        h: RaxNode = self.walk(key, stack)
        if self.walked != len(key) or self.split != 0 or not h.iskey:
            return False
        # Keep the value until the tree is consistent: freeing it may run code that uses this tree.
        old: object = h.data  # noqa: F841
        h.data = None
        h.iskey = False
        self.numele -= 1
        self.version += 1
        if len(h.chars) == 0:
            if h is not self.head:
                h = self._prune(h, stack)
                if self.fixed_len != 0:
                    self._cut(h, stack, key)
                if len(h.chars) == 1 and not h.iskey:
                    self._merge(h, stack)
        elif len(h.chars) == 1:
            self._merge(h, stack)
        elif h.iscompr:
            # Redis's raxRemove tests the number of edge bytes, not of children, so the chain stays split here.
            self.unmerged = True
        return True

    @cython.cfunc
    def _prune(self, h: RaxNode, stack: list) -> RaxNode:  # type: ignore[type-arg]
        """Remove a leaf and all ancestors that led only to this leaf. Return the lowest remaining node."""
        child: RaxNode = h
        while h is not self.head:
            child = h
            # Dismantle node by node: freeing a chain from its top would recurse.
            child.chars = b""
            child.link = None
            self.numnodes -= 1
            h = stack.pop()
            if h.iskey or not has_one_child(h):
                break
        remove_child(h, child)
        return h

    @cython.cfunc
    def _cut(self, h: RaxNode, stack: list, key: bytes) -> cython.bint:  # type: ignore[type-arg]
        """Record in `cuts` where Redis 8.10 splits chains after a removal of key; h is the last node on its path."""
        n: cython.Py_ssize_t = self.fixed_len
        depth: cython.Py_ssize_t = 0
        i: cython.Py_ssize_t = 0
        above: RaxNode
        for above in stack:
            depth += len(above.chars) if above.iscompr else 1
        top: cython.Py_ssize_t = depth
        for i in range(len(stack) - 1, -1, -1):
            above = stack[i]
            if not has_one_child(above):
                break
            top -= len(above.chars)
        if self.cuts:
            for i in range(depth + 1, n):
                self.cuts.discard(key[:i])
        if len(h.chars) != 1 or h.iscompr:
            return True
        if depth == n - 1:  # in Redis 8.10 this node holds values and is never merged with its parents
            if top < depth:
                self.cuts.add(key[:depth])
            return True
        if self.cuts:
            for i in range(top + 1, depth + 1):
                self.cuts.discard(key[:i])
        return self._cut_below(key[:depth] + h.chars, h.link)

    @cython.cfunc
    def _cut_below(self, path: bytes, below: RaxNode) -> cython.bint:
        """Drop the `cuts` in the chain at `path`, but add the start of the chain's last node if that holds a value."""
        i: cython.Py_ssize_t
        last: bytes = path
        if not has_one_child(below):
            return True
        for i in range(1, len(below.chars)):
            cut: bytes = path + below.chars[:i]
            if cut in self.cuts:
                self.cuts.discard(cut)
                last = cut
        if len(path) + len(below.chars) == self.fixed_len:
            self.cuts.add(last)
        return True

    @cython.cfunc
    def _merge(self, h: RaxNode, stack: list) -> cython.bint:  # type: ignore[type-arg]
        """Merge the chain of single-child, non-key nodes around node h into the chain's topmost node."""
        while stack:
            above: RaxNode = stack.pop()
            if above.iskey or not has_one_child(above):
                if has_one_child(above):
                    self.unmerged = True
                break
            h = above
        parts: list[Any] = [h.chars]
        total: cython.Py_ssize_t = len(h.chars)
        below: RaxNode = h.link
        while has_one_child(below) and not below.iskey:
            if total + len(below.chars) > self.node_max_size:
                self.unmerged = True
                break
            parts.append(below.chars)
            total += len(below.chars)
            after: RaxNode = below.link
            below.link = None
            below.chars = b""
            below = after
        if len(parts) > 1:
            h.chars = b"".join(parts)
            h.iscompr = True
            h.link = below
            self.numnodes -= len(parts) - 1
        return True

    @cython.ccall
    def clear(self) -> cython.bint:
        """Remove all keys. This also breaks reference cycles between the tree and its values. O(nodes)"""
        old: RaxNode = self.head
        self.head = new_node(b"", None, False)
        self.numele = 0
        self.numnodes = 1
        self.cuts.clear()
        self.unmerged = False
        self.version += 1
        return release(old)


if not cython.compiled:

    def _free(rax: Rax) -> None:
        # Free the nodes one by one: Python 3.12 and newer would recurse, without regard to the thread's stack size.
        head = getattr(rax, "head", None)
        if head is not None:
            release(head)

    setattr(Rax, "__del__", _free)  # noqa: B010  (an extension type would define it)

"""Rax: a radix tree from byte strings to objects, in the shape that Redis gives it (rax.c).

The keys "foo", "foobar" and "footer" make this tree. A node is drawn with the bytes of its edges;
`=` marks a node that is itself a key:

    "foo" -> [bt] = 1                  "foo"  compressed: a chain of three single-child nodes in one
             |- b -> "ar" -> [] = 2    [bt]   plain: one child for each byte, in byte order
             `- t -> "er" -> [] = 3    []     a leaf

The bytes that lead to a node from the head spell its key; no node stores its own key. One key is
one walk, so a lookup costs O(length of the key), whatever the number of keys, and keys that share
their beginnings (the 16-byte IDs of a stream do) share the nodes for them.

A node here is a small object of four facts:

    chars    the edge bytes: b"" in a leaf, the chain's bytes when compressed, else one byte a child
    link     None in a leaf; the child itself where there is only one; else the list of children
    data     the value, where iskey
    iskey, iscompr

`iscompr` means exactly "two or more bytes, one child". A chain of one byte is a plain node with one
child, as in Redis, and that is why both keep the child in `link` directly.

Invariants, all verified by `check()`: edge bytes of a plain node rise strictly; a leaf is a key
(but the head of an empty tree); `numele` and `numnodes` count the keys and the nodes; a compressed
node is no longer than `node_max_size`; and no two adjacent nodes with one child each, neither a key,
are left unmerged. The last holds for keys of one length, such as stream IDs. Where a key begins another,
Redis leaves chains unmerged in two cases, and so does this tree: `raxRemove` merges only where the removed
key's node has *one edge byte* (removing "foo" from {"foo", "foobar"} leaves "foo" -> "bar"), and never into a
node that is a key (removing "abb" from {"a", "abb", "abbb"} leaves "bb" -> [b] as two nodes, and a later
split or removal takes the key away from the first). Nor are the parts of a chain longer than `node_max_size`
joined when a split shortens them. So the shape depends on the history, and the counts equal those of a server
that was given the same operations; `unmerged` records that such a case happened.

**Keys of one length** (`fixed_len`). Redis 8.10 makes no node for a leaf where all keys have one length: the node
above it holds the values where its children would be. How many nodes a stream's tree has is shown, so it has to be
known (`inlined_nodes`), and it is not just `numnodes - numele`: when a removal leaves a chain, that server joins
its nodes, but for the last one, which holds a value. With keys of three bytes:

    there                                here
    "ab" -> [cd]     less "abd"   "ab" -> [c]     "abc" -> []
    "a" -> [bx]      less "axy"   "ab" -> [c]     "abc" -> []
           |- b -> [c]
           `- x -> [y]

Such a border inside of what is one compressed node here is a cut. `cuts` has those of the whole tree, each as the
bytes that lead to it; a removal makes or drops them, a split at one drops it. A chain has two at most: one that
a split carried upward, and one before its last byte. Appending never touches them.

What was rejected. A Python dict or a sorted list beside it has no order, or an O(n) insert, and shares
no prefixes. Nodes in one byte buffer with offsets, as C has them, needs a memory allocator of our own
and reads no faster from Python. Replacing nodes when they split, as C must because a node's size changes,
is not needed: our nodes change in place, so no operation has to know a node's parent but removal.

Memory. Neither the tree nor its nodes are known to the cycle collector (`no_gc`): a node has 48 bytes
instead of 64, and a tree of millions of nodes costs a collection nothing. The tree itself has no
cycles, so counting references frees all of it. The price: where a *value* refers back to the tree that
holds it, the collector cannot see that ring, and the owner must break it with `clear()`. That can leak;
it can never free something in use, because the unseen references count as uses. Freeing is
iterative, node by node: a tree can be as deep as its longest key is long, deeper than the C stack.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

try:
    import cython
except ModuleNotFoundError:  # interpreted, Cython not installed
    from rillet import _cython as cython
from rillet.structs.rax_inspect import check_rax, show_rax

NODE_MAX_SIZE = (1 << 29) - 1
"""Most edge bytes of one node (RAX_NODE_MAX_SIZE); tests make trees with a smaller limit."""


class _NotFound:
    """The type of NOT_FOUND."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "NOT_FOUND"


NOT_FOUND: Final = _NotFound()
"""What `find` gives for an absent key, since None is a value (raxNotFound)."""
_NOT_FOUND = cython.declare(object, NOT_FOUND)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def common_length(chars: bytes, key: bytes, i: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """Return how many first bytes of chars equal key[i:], O(that number)."""
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
    """Return the first index whose byte is >= c (their number if none is), for rising bytes, O(log n)."""
    n: cython.Py_ssize_t = len(chars)
    # Rising distinct bytes: index j holds at least j and at most 256 - n + j, which narrows the search,
    # to nothing at all in a full node.
    low: cython.Py_ssize_t = max(0, c + n - 256)
    high: cython.Py_ssize_t = min(c, n)
    middle: cython.Py_ssize_t
    if cython.compiled:
        p: cython.p_uchar = chars
        while low < high:
            middle = (low + high) >> 1
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
    """One node; read-only from outside, and never to be kept over a change of the tree."""

    __slots__ = ("chars", "link", "data", "iskey", "iscompr")
    chars: bytes
    link: Any
    data: Any
    iskey: cython.bint
    iscompr: cython.bint

    def children(self) -> list[RaxNode]:
        """Return the children in the order of their bytes: none for a leaf, one when compressed."""
        if isinstance(self.link, list):
            return list(self.link)
        return [] if self.link is None else [self.link]

    def copy(self) -> RaxNode:
        """Return a node equal to this one, for a node callback that moves nodes."""
        node: RaxNode = new_node(self.chars, self.link, self.iscompr)
        if isinstance(self.link, list):
            node.link = list(self.link)
        node.data = self.data
        node.iskey = self.iskey
        return node


@cython.cfunc
@cython.inline
def new_node(chars: bytes, link: Any, iscompr: cython.bint) -> RaxNode:
    """Return a node that is no key."""
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
    """Tell whether the node is a link of a chain."""
    return h.iscompr or len(h.chars) == 1


@cython.cfunc
def add_child(h: RaxNode, edge: bytes, child: RaxNode) -> cython.bint:
    """Give a plain node a child for a new byte, in its ordered place (raxAddChild)."""
    n: cython.Py_ssize_t = len(h.chars)
    if n == 0:
        h.chars = edge
        h.link = child
        return True
    pos: cython.Py_ssize_t = first_not_below(h.chars, edge[0])
    children: list[RaxNode]
    if n == 1:
        children = [h.link]
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
    """Take the child away from its parent (raxRemoveChild)."""
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
    """Take a whole tree apart without recursion, so that its depth cannot overflow the C stack."""
    pending: list[Any] = [head]
    h: RaxNode
    link: object
    while pending:
        h = pending.pop()
        link = h.link
        h.link = None
        h.data = None
        h.iskey = False
        h.iscompr = False
        h.chars = b""
        if isinstance(link, list):
            pending.extend(link)
        elif link is not None:
            pending.append(link)
    return True


@cython.final
@cython.no_gc
@cython.cclass
class Rax:
    """A radix tree: an ordered map from bytes (the empty key too) to any object, None included."""

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
    head: RaxNode
    numele: cython.Py_ssize_t
    numnodes: cython.Py_ssize_t
    fixed_len: cython.Py_ssize_t
    cuts: set[bytes]
    node_max_size: cython.Py_ssize_t
    version: cython.Py_ssize_t
    unmerged: cython.bint
    walked: cython.Py_ssize_t
    split: cython.Py_ssize_t
    depth: cython.Py_ssize_t
    tail: bytes

    def __init__(self, node_max_size: int = NODE_MAX_SIZE, fixed_len: int = 0) -> None:
        if not 2 <= node_max_size <= NODE_MAX_SIZE:
            raise ValueError(f"node_max_size is 2 to {NODE_MAX_SIZE}, not {node_max_size}")
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
        """Free the nodes one by one; interpreted, `__del__` below does."""
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
        """How many nodes the newest server's tree has that makes none for a leaf; for keys of one length only."""
        assert self.fixed_len > 0
        return self.numnodes - self.numele + len(self.cuts)

    def items(self) -> Iterator[tuple[bytes, Any]]:
        """Yield keys and values in byte order; the tree may change meanwhile."""
        from rillet.structs.rax_iterator import SAFE, RaxIterator

        it = RaxIterator(self)
        it.flags |= SAFE
        it.seek("^")
        while it.next():
            yield it.key, it.data

    def show(self) -> str:
        """Draw the tree for people, a line for each branch (raxShow)."""
        return show_rax(self)

    def check(self) -> None:
        """Verify every invariant of the module's essay, O(nodes); AssertionError names the broken one."""
        check_rax(self)

    @cython.cfunc
    def walk(self, key: bytes, stack: list | None) -> RaxNode:  # type: ignore[type-arg]
        """Follow the key as far as the tree goes and return the node reached (raxLowWalk).

        Registers: `walked`, the bytes of the key that matched; `split`, how many of them lie inside the
        returned node, which is compressed then; with a stack, `depth` nodes passed on the way are in it.
        """
        if not cython.compiled and not isinstance(key, bytes):
            raise TypeError(f"a key is bytes, not {type(key).__name__}")
        h: RaxNode = self.head
        i: cython.Py_ssize_t = 0
        j: cython.Py_ssize_t = 0
        n: cython.Py_ssize_t = len(key)
        size: cython.Py_ssize_t
        depth: cython.Py_ssize_t = 0
        while i < n:
            size = len(h.chars)
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
    @cython.exceptval(-1, check=False)
    def insert(self, key: bytes, value: object) -> cython.bint:
        """Set the key's value and return whether the key is new, O(len(key)) (raxInsert)."""
        return self._insert(key, value, True)

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def try_insert(self, key: bytes, value: object) -> cython.bint:
        """Insert, unless the key is there already: then keep its value and return False (raxTryInsert)."""
        return self._insert(key, value, False)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
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
        """Open a compressed node at byte j, where the key differs, and return the plain node made for it.

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
    @cython.exceptval(-1, check=False)
    def _split_at_key(self, h: RaxNode, j: cython.Py_ssize_t, value: object) -> cython.bint:
        """Cut a compressed node before byte j, where the key ends; the second part becomes the key.

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
        """Add the nodes for key[i:] below h and return the last one, a leaf."""
        n: cython.Py_ssize_t = len(key)
        stop: cython.Py_ssize_t
        child: RaxNode
        while i < n:
            child = new_node(b"", None, False)
            # A leaf that gets one child and still has bytes to go starts a chain: keep it compressed.
            if len(h.chars) == 0 and n - i > 1:
                stop = min(n, i + self.node_max_size)
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
        """Return the bytes, as the same object as last time where equal: stream IDs end in the same zeros."""
        if chars == self.tail:
            return self.tail
        if len(chars) <= 16:
            self.tail = chars
        return chars

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def remove(self, key: bytes) -> cython.bint:
        """Remove the key and return whether it was there, O(len(key)) (raxRemove)."""
        stack: list[Any] = []
        h: RaxNode = self.walk(key, stack)
        if self.walked != len(key) or self.split != 0 or not h.iskey:
            return False
        # Freed when the tree is whole again: freeing a value may run code that uses this tree.
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
            # raxRemove tests the number of edge bytes, not of children, so a chain stays cut here.
            self.unmerged = True
        return True

    @cython.cfunc
    def _prune(self, h: RaxNode, stack: list) -> RaxNode:  # type: ignore[type-arg]
        """Drop a leaf that is no key, and upward all that led only to it; return the node that remains."""
        child: RaxNode = h
        while h is not self.head:
            child = h
            # Taken apart one by one: a chain let go by its top would be freed recursively.
            child.chars = b""
            child.link = None
            self.numnodes -= 1
            h = stack.pop()
            if h.iskey or not has_one_child(h):
                break
        remove_child(h, child)
        return h

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _cut(self, h: RaxNode, stack: list, key: bytes) -> cython.bint:  # type: ignore[type-arg]
        """Note where the newest server's chains stay cut once the key is gone and h is what remained of its way."""
        n: cython.Py_ssize_t = self.fixed_len
        depth: cython.Py_ssize_t = 0
        top: cython.Py_ssize_t
        i: cython.Py_ssize_t = 0
        above: RaxNode
        for above in stack:
            depth += len(above.chars) if above.iscompr else 1
        top = depth
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
        if depth == n - 1:  # the node holds values: it is never joined with those above it
            if top < depth:
                self.cuts.add(key[:depth])
            return True
        if self.cuts:
            for i in range(top + 1, depth + 1):
                self.cuts.discard(key[:i])
        return self._cut_below(key[:depth] + h.chars, h.link)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _cut_below(self, path: bytes, below: RaxNode) -> cython.bint:
        """Drop the cuts of the chain below, but for the start of the node that holds the value, if it ends in one."""
        i: cython.Py_ssize_t
        last: bytes = path
        cut: bytes
        if not has_one_child(below):
            return True
        for i in range(1, len(below.chars)):
            cut = path + below.chars[:i]
            if cut in self.cuts:
                self.cuts.discard(cut)
                last = cut
        if len(path) + len(below.chars) == self.fixed_len:
            self.cuts.add(last)
        return True

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _merge(self, h: RaxNode, stack: list) -> cython.bint:  # type: ignore[type-arg]
        """Join the chain of single-child nodes around h, none of them a key, into its topmost node."""
        above: RaxNode
        while stack:
            above = stack.pop()
            if above.iskey or not has_one_child(above):
                if has_one_child(above):
                    self.unmerged = True
                break
            h = above
        parts: list[Any] = [h.chars]
        total: cython.Py_ssize_t = len(h.chars)
        below: RaxNode = h.link
        after: RaxNode
        while has_one_child(below) and not below.iskey:
            if total + len(below.chars) > self.node_max_size:
                self.unmerged = True
                break
            parts.append(below.chars)
            total += len(below.chars)
            after = below.link
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
    @cython.exceptval(-1, check=False)
    def clear(self) -> cython.bint:
        """Remove all keys, O(nodes); needed only to break a ring of values that refer back to the tree."""
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
        # Python's own trash can bounds the recursion by a count that, from 3.12 on, knows nothing of a thread's stack.
        head = getattr(rax, "head", None)
        if head is not None:
            release(head)

    setattr(Rax, "__del__", _free)  # noqa: B010  (an extension type would take it for its own)

"""Walking a rax in order: the iterator of rax.c.

An iterator holds the node where it stands, the stack of nodes above it (nodes know no parents) and the
bytes on the way, which are the current key:

    stack  [head, "foo"] [bt]        node "ar" --> the leaf of "foobar"
    buf    f o o b a r . . .         key_len 6

A step forward goes down by first children until a node is a key, or climbs to the first node with a
child beyond the one it came from. A step backward climbs, then goes down by last children. A seek
walks along the wanted key as far as the tree goes and makes one such step from there.

The stack is a list that never shrinks, with `depth` as its height, so that a step that runs into the end
leaves the place it started from readable. Costs: a step amounts to O(1) nodes and a copy of the key, a seek to
O(length of the key + depth).

A tree counts its insertions and removals in `version`. Redis's iterator reads freed memory when the tree
changes under it and no new seek follows; ours compares versions and raises RuntimeError, or, flagged
SAFE, seeks its key again. Redis declares RAX_ITER_SAFE and never looks at it. Replaced values are no change.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

try:
    import cython
except ModuleNotFoundError:  # interpreted, Cython not installed
    from rillet import _cython as cython
from rillet.structs.rax import Rax, RaxNode

if not cython.compiled:
    from rillet.structs.memory import copy_out, copy_part
    from rillet.structs.rax import first_not_below

JUST_SEEKED = 1
"""Iterator flag: the element of the last seek was not handed out yet, so the first step stays on it."""
EOF = 2
"""Iterator flag: there is no further element."""
SAFE = 4
"""Iterator flag: set by the caller; the tree may change between steps, and the iterator seeks again."""

_JUST_SEEKED = cython.declare(cython.int, JUST_SEEKED)
_EOF = cython.declare(cython.int, EOF)
_SAFE = cython.declare(cython.int, SAFE)


@cython.final
@cython.cclass
class RaxIterator:
    """A position in a tree: `seek` it, then `next` or `prev`, each True while `key` and `data` hold an element.

    The first step after a seek stays on the element that the seek found (JUST_SEEKED), so one loop serves all:

        it.seek(">=", key)
        while it.next():
            ... it.key, it.data ...

    After the end (EOF) only another seek moves it. When keys were inserted or removed since the last seek or
    step, a step raises RuntimeError; with the flag SAFE it looks its place up again by key instead.
    `node_cb(node)` is called for each node but the head that a forward step enters; where it gives back
    a node, that one takes the other's place in the tree (Redis defragments so).
    """

    __slots__ = ("rax", "key", "data", "flags", "node_cb", "node", "stack", "depth", "buf", "key_len", "version")
    rax: Rax
    key: bytes
    data: Any
    flags: cython.int
    node_cb: Callable[[RaxNode], RaxNode | None] | None
    node: RaxNode | None
    stack: list[RaxNode]
    depth: cython.Py_ssize_t
    buf: bytearray
    key_len: cython.Py_ssize_t
    version: cython.Py_ssize_t

    def __init__(self, rax: Rax) -> None:
        self.rax = rax
        self.key = b""
        self.data = None
        self.flags = _EOF
        self.node_cb = None
        self.node = None
        self.stack = []
        self.depth = 0
        self.buf = bytearray(32)
        self.key_len = 0
        self.version = rax.version

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def seek(self, op: str | bytes, key: bytes = b"") -> cython.bint:
        """Go to the first `^`, the last `$`, or the nearest key `>` `>=` `<` `<=` `=` key; True if there is one.

        O(len(key) + depth) (raxSeek); ValueError for another operator.
        """
        how: str = op.decode("latin-1") if isinstance(op, bytes) else op
        rax: Rax = self.rax
        h: RaxNode
        self.flags = (self.flags & _SAFE) | _JUST_SEEKED
        self.depth = 0
        self.key_len = 0
        self.version = rax.version
        if how == "$":
            if rax.numele == 0:
                return self._end(0, 0)
            return self._arrive(self._greatest(rax.head))
        if how == "^":
            how = ">="
            key = b""
        elif how not in (">", ">=", "<", "<=", "="):
            self.flags |= _EOF
            raise ValueError(f"unknown seek operator {op!r}")
        if rax.numele == 0:
            return self._end(0, 0)
        h = rax.walk(key, self.stack)
        self.depth = rax.depth
        if how != ">" and how != "<" and rax.walked == len(key) and rax.split == 0 and h.iskey:
            self._add(key, 0, len(key))
            return self._arrive(h)
        if how == "=":
            return self._end(0, 0)
        return self._seek_near(h, key, how[0] == ">")

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _seek_near(self, h: RaxNode, key: bytes, forward: cython.bint) -> cython.bint:
        """Step from h, where the walk along key ended, to the nearest key after or before it."""
        i: cython.Py_ssize_t = self.rax.walked
        j: cython.Py_ssize_t = self.rax.split
        self._add(key, 0, i - j)
        if i == len(key):
            # All bytes matched. In the middle of a chain, the key of the chain's own node is smaller.
            if forward:
                return self._forward(h, False)
            if j > 0 and h.iskey:
                return self._arrive(h)
            return self._backward(h, False)
        if not h.iscompr:
            # The byte that has no child here tells where among the children to go on.
            self._add(key, i, 1)
            return self._forward(h, True) if forward else self._backward(h, True)
        if h.chars[j] > key[i]:
            if forward:
                return self._forward(h, False)
        elif not forward:
            return self._arrive(self._greatest(h))
        # The whole sub-tree of the chain lies on the wrong side: leave it as if it had just been visited.
        self._add(h.chars, 0, len(h.chars))
        return self._forward(h, True) if forward else self._backward(h, True)

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def next(self) -> cython.bint:
        """Step to the next key in byte order, amortized O(1) nodes (raxNext)."""
        if self.flags & _EOF:
            return False
        if self.version != self.rax.version:
            return self._again(True)
        if self.flags & _JUST_SEEKED:
            self.flags &= ~_JUST_SEEKED
            return True
        return self._forward(self.node, False)  # type: ignore[arg-type]

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def prev(self) -> cython.bint:
        """Step to the previous key in byte order, amortized O(1) nodes (raxPrev)."""
        if self.flags & _EOF:
            return False
        if self.version != self.rax.version:
            return self._again(False)
        if self.flags & _JUST_SEEKED:
            self.flags &= ~_JUST_SEEKED
            return True
        return self._backward(self.node, False)  # type: ignore[arg-type]

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _again(self, forward: cython.bint) -> cython.bint:
        """Find the place by key in a tree that has changed, and make the step from there."""
        if not self.flags & _SAFE:
            raise RuntimeError("the rax changed under its iterator: seek again, or set the flag SAFE")
        found: cython.bint
        if self.flags & _JUST_SEEKED:
            found = self.seek(">=" if forward else "<=", self.key)
        else:
            found = self.seek(">" if forward else "<", self.key)
        self.flags &= ~_JUST_SEEKED
        return found

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _forward(self, h: RaxNode, noup: cython.bint) -> cython.bint:
        """Go to the next key from h. With noup, from h past the child of the key's last byte (raxIteratorNextStep)."""
        depth: cython.Py_ssize_t = self.depth
        key_len: cython.Py_ssize_t = self.key_len
        j: cython.Py_ssize_t
        c: cython.int
        while True:
            j = 0
            if noup or len(h.chars) == 0:
                # This sub-tree is done: climb until a node has a child beyond the one we come from.
                while True:
                    if not noup and h is self.rax.head:
                        return self._end(depth, key_len)
                    c = self.buf[self.key_len - 1]
                    if not noup:
                        h = self._up()
                    noup = False
                    if h.iscompr:
                        self.key_len -= len(h.chars)
                        continue
                    self.key_len -= 1
                    j = first_not_below(h.chars, c + 1)
                    if j < len(h.chars):
                        break
            h = self._enter(h, j)
            if self.node_cb is not None:
                h = self._visited(h, j)
            if h.iskey:
                return self._arrive(h)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _backward(self, h: RaxNode, noup: cython.bint) -> cython.bint:
        """Go to the previous key from h. With noup, from h before the child of the key's last byte."""
        depth: cython.Py_ssize_t = self.depth
        key_len: cython.Py_ssize_t = self.key_len
        j: cython.Py_ssize_t
        c: cython.int
        while True:
            if not noup and h is self.rax.head:
                return self._end(depth, key_len)
            c = self.buf[self.key_len - 1]
            if not noup:
                h = self._up()
            noup = False
            if h.iscompr:
                self.key_len -= len(h.chars)
            else:
                self.key_len -= 1
                j = first_not_below(h.chars, c) - 1
                if j >= 0:
                    return self._arrive(self._greatest(self._enter(h, j)))
            # A node's own key comes before those of its children.
            if h.iskey:
                return self._arrive(h)

    @cython.cfunc
    def _greatest(self, h: RaxNode) -> RaxNode:
        """Go down by the last child as far as there is one (raxSeekGreatest)."""
        while len(h.chars) > 0:
            h = self._enter(h, len(h.chars) - 1)
        return h

    @cython.cfunc
    def _enter(self, h: RaxNode, j: cython.Py_ssize_t) -> RaxNode:
        """Go from h down by edge j: h onto the stack, its bytes onto the key."""
        if self.depth < len(self.stack):
            self.stack[self.depth] = h
        else:
            self.stack.append(h)
        self.depth += 1
        child: RaxNode
        if h.iscompr:
            self._add(h.chars, 0, len(h.chars))
            child = h.link
            return child
        self._add(h.chars, j, 1)
        if len(h.chars) == 1:
            child = h.link
            return child
        children: list[RaxNode] = h.link
        child = children[j]
        return child

    @cython.cfunc
    def _up(self) -> RaxNode:
        """Take the parent off the stack. It stays in the list, so that `_end` can restore the place."""
        self.depth -= 1
        parent: RaxNode = self.stack[self.depth]
        return parent

    @cython.cfunc
    def _visited(self, child: RaxNode, j: cython.Py_ssize_t) -> RaxNode:
        """Show the node just entered to the callback, and put the node that it returns in its place."""
        other: object = self.node_cb(child)  # type: ignore[misc]
        if other is None or other is child:
            return child
        if not isinstance(other, RaxNode):
            raise TypeError("a node callback returns a RaxNode or None")
        node: RaxNode = other
        parent: RaxNode = self.stack[self.depth - 1]
        children: list[RaxNode]
        if isinstance(parent.link, list):
            children = parent.link
            children[j] = node
        else:
            parent.link = node
        return node

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _arrive(self, h: RaxNode) -> cython.bint:
        """Make h's key the current element."""
        self.node = h
        self.data = h.data
        self.key = copy_out(self.buf, 0, self.key_len)
        return True

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _end(self, depth: cython.Py_ssize_t, key_len: cython.Py_ssize_t) -> cython.bint:
        """Note the end of the iteration; the last element stays current."""
        self.flags |= _EOF
        self.depth = depth
        self.key_len = key_len
        return False

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _add(self, chars: bytes, start: cython.Py_ssize_t, n: cython.Py_ssize_t) -> cython.bint:
        """Put chars[start:start+n] at the end of the current key."""
        stop: cython.Py_ssize_t = self.key_len + n
        if stop > len(self.buf):
            self.buf.extend(bytes(2 * stop - len(self.buf)))
        copy_part(self.buf, self.key_len, chars, start, n)
        self.key_len = stop
        return True

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def set_data(self, value: object) -> cython.bint:
        """Give the current element another value, without a walk; allowed while iterating."""
        if self.node is None or self.version != self.rax.version:
            raise RuntimeError("the iterator has no current element")
        self.node.data = value
        self.data = value
        return True

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def random_walk(self, steps: cython.Py_ssize_t = 0) -> cython.bint:
        """Wander over `steps` keys from here (0: a random number of them); False in an empty tree (raxRandomWalk).

        Keys high up in the tree are found more often than others, each of them at some time.
        """
        rax: Rax = self.rax
        if rax.numele == 0:
            return self._end(self.depth, self.key_len)
        if self.node is None or self.version != rax.version:
            self.seek("^")
        if steps == 0:
            steps = random.randint(1, 2 * (1 + int(math.log(rax.numele))))
        h: RaxNode = self.node  # type: ignore[assignment]
        n: cython.Py_ssize_t
        j: cython.Py_ssize_t
        while steps > 0 or not h.iskey:
            n = 1 if h.iscompr else len(h.chars)
            if h is rax.head:
                if n == 0:
                    break  # The empty key is the only one: there is nowhere to go.
                j = random.randrange(n)
            else:
                j = random.randrange(n + 1)
            if j < n:
                h = self._enter(h, j)
            else:
                h = self._up()
                self.key_len -= len(h.chars) if h.iscompr else 1
            if h.iskey:
                steps -= 1
        return self._arrive(h)

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def compare(self, op: str | bytes, key: bytes) -> cython.bint:
        """Tell whether `current key <op> key` holds, for `>` `>=` `<` `<=` `=` `==` (raxCompare)."""
        how: str = op.decode("latin-1") if isinstance(op, bytes) else op
        if how == "=" or how == "==":
            return self.key == key
        if how == ">":
            return self.key > key
        if how == ">=":
            return self.key >= key
        if how == "<":
            return self.key < key
        if how == "<=":
            return self.key <= key
        raise ValueError(f"unknown comparison operator {op!r}")

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def eof(self) -> cython.bint:
        """Tell whether a seek or step found nothing more (raxEOF)."""
        return (self.flags & _EOF) != 0

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def stop(self) -> cython.bint:
        """Let go of all nodes and values (raxStop); a seek starts the iterator again."""
        self.flags |= _EOF
        self.node = None
        self.data = None
        self.key = b""
        self.stack = []
        self.depth = 0
        self.key_len = 0
        return True

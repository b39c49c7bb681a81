"""Ordered iteration over a rax (Redis: the iterator of rax.c).

An iterator holds the current node, the stack of nodes above it (nodes have no parent references) and
the bytes on the path, which are the current key:

    stack  [head, "foo"] [bt]        node "ar" --> the leaf of "foobar"
    buf    f o o b a r . . .         key_len 6

A forward step descends by first children until it reaches a key, or climbs to the first node with a
child after the one just left. A backward step climbs, then descends by last children. A seek follows
the given key as far as the tree matches and then makes one such step.

The stack is a list that never shrinks; `depth` is its height. A step that reaches the end of the tree
therefore leaves the previous position intact. Costs: a step visits O(1) nodes, amortized, and copies the
key; a seek costs O(length of the key + depth).

A tree counts its insertions and removals in `version`. If a tree changes during an iteration, Redis's
iterator reads freed memory unless the caller seeks again (Redis declares RAX_ITER_SAFE but never uses
it). This iterator compares versions and raises RuntimeError, or seeks its key again if the flag SAFE is
set. Replacing a value is not a change of the tree.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rillet._cython import cython, public, readonly
from rillet.structs.memory import copy_out, copy_part
from rillet.structs.rax import Rax, RaxNode, first_not_below

JUST_SEEKED = 1
"""Iterator flag: the last seek found an element that no step has returned yet; the next step stays on it."""
EOF = 2
"""Iterator flag: there are no more elements."""
SAFE = 4
"""Iterator flag, set by the caller: the tree may change between steps, and the iterator then seeks again."""

_JUST_SEEKED = cython.declare(cython.int, JUST_SEEKED)
_EOF = cython.declare(cython.int, EOF)
_SAFE = cython.declare(cython.int, SAFE)


@cython.final
@cython.cclass
class RaxIterator:
    """A position in a tree: call `seek`, then `next` or `prev`; while they return True, `key` and `data` are set.

    The first step after a seek stays on the element that the seek found (JUST_SEEKED), so one loop
    handles every case:

        it.seek(">=", key)
        while it.next():
            ... it.key, it.data ...

    After the end (EOF), only another seek moves the iterator. If keys were inserted or removed since the
    last seek or step, a step raises RuntimeError; with the flag SAFE, it first seeks its key again.
    `node_cb(node)` is called for every node that a forward step enters, except the head. If it returns
    a node, that node replaces the original in the tree (Redis uses this to defragment).
    """

    __slots__ = ("rax", "key", "data", "flags", "node_cb", "node", "stack", "depth", "buf", "key_len", "version")
    rax: readonly[Rax]
    key: readonly[bytes]
    data: readonly[Any]
    flags: public[cython.int]
    node_cb: public[Callable[[RaxNode], RaxNode | None] | None]
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
    def seek(self, op: str | bytes, key: bytes = b"") -> cython.bint:
        """Seek the first key `^`, the last `$`, or the nearest `>` `>=` `<` `<=` `=` key; return whether one exists.

        O(len(key) + depth). Other operators raise ValueError. (raxSeek)
        """
        how: str = op.decode("latin-1") if isinstance(op, bytes) else op
        rax: Rax = self.rax
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
        h: RaxNode = rax.walk(key, self.stack)
        self.depth = rax.depth
        if how != ">" and how != "<" and rax.walked == len(key) and rax.split == 0 and h.iskey:
            self._add(key, 0, len(key))
            return self._arrive(h)
        if how == "=":
            return self._end(0, 0)
        return self._seek_near(h, key, how[0] == ">")

    @cython.cfunc
    def _seek_near(self, h: RaxNode, key: bytes, forward: cython.bint) -> cython.bint:
        """Step from h, the last node on the path of `key`, to the nearest key after (forward) or before `key`."""
        i: cython.Py_ssize_t = self.rax.walked
        j: cython.Py_ssize_t = self.rax.split
        self._add(key, 0, i - j)
        if i == len(key):
            # All bytes of `key` matched. If `key` ends inside a compressed node, the key of that node is smaller.
            if forward:
                return self._forward(h, False)
            if j > 0 and h.iskey:
                return self._arrive(h)
            return self._backward(h, False)
        if not h.iscompr:
            # No child has the next byte of `key`. Continue with the children after or before this byte.
            self._add(key, i, 1)
            return self._forward(h, True) if forward else self._backward(h, True)
        if h.chars[j] > key[i]:
            if forward:
                return self._forward(h, False)
        elif not forward:
            return self._arrive(self._greatest(h))
        # The whole subtree of the chain is on the wrong side of `key`: step past the subtree.
        self._add(h.chars, 0, len(h.chars))
        return self._forward(h, True) if forward else self._backward(h, True)

    @cython.ccall
    def next(self) -> cython.bint:
        """Step to the next key in byte order, amortized O(1) nodes (raxNext)."""
        return self._step(True)

    @cython.ccall
    def prev(self) -> cython.bint:
        """Step to the previous key in byte order, amortized O(1) nodes (raxPrev)."""
        return self._step(False)

    @cython.cfunc
    @cython.inline
    @cython.exceptval(-1, check=False)
    def _step(self, forward: cython.bint) -> cython.bint:
        if self.flags & _EOF:
            return False
        if self.version != self.rax.version:
            return self._again(forward)
        if self.flags & _JUST_SEEKED:
            self.flags &= ~_JUST_SEEKED
            return True
        if forward:
            return self._forward(self.node, False)  # type: ignore[arg-type]
        return self._backward(self.node, False)  # type: ignore[arg-type]

    @cython.cfunc
    def _again(self, forward: cython.bint) -> cython.bint:
        """Seek the current key again in a tree that has changed, then step from there."""
        if not self.flags & _SAFE:
            raise RuntimeError("the rax changed during the iteration: seek again, or set the flag SAFE")
        if self.flags & _JUST_SEEKED:
            moved: cython.bint = self.seek(">=" if forward else "<=", self.key)
        else:
            moved = self.seek(">" if forward else "<", self.key)
        self.flags &= ~_JUST_SEEKED
        return moved

    @cython.cfunc
    def _forward(self, h: RaxNode, noup: cython.bint) -> cython.bint:
        """Move to the key after that of node h; noup: after h's child for the key's last byte (raxIteratorNextStep)."""
        depth: cython.Py_ssize_t = self.depth
        key_len: cython.Py_ssize_t = self.key_len
        while True:
            j: cython.Py_ssize_t = 0
            if noup or len(h.chars) == 0:
                # The subtree of h is finished: climb to a node that has a child after the child just left.
                while True:
                    if not noup and h is self.rax.head:
                        return self._end(depth, key_len)
                    c: cython.int = self.buf[self.key_len - 1]
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
    def _backward(self, h: RaxNode, noup: cython.bint) -> cython.bint:
        """Move to the key before that of node h; noup: before h's child for the key's last byte."""
        depth: cython.Py_ssize_t = self.depth
        key_len: cython.Py_ssize_t = self.key_len
        while True:
            if not noup and h is self.rax.head:
                return self._end(depth, key_len)
            c: cython.int = self.buf[self.key_len - 1]
            if not noup:
                h = self._up()
            noup = False
            if h.iscompr:
                self.key_len -= len(h.chars)
            else:
                self.key_len -= 1
                j: cython.Py_ssize_t = first_not_below(h.chars, c) - 1
                if j >= 0:
                    return self._arrive(self._greatest(self._enter(h, j)))
            # A node's own key sorts before those of its children.
            if h.iskey:
                return self._arrive(h)

    @cython.cfunc
    def _greatest(self, h: RaxNode) -> RaxNode:
        """Descend by last children to a leaf (raxSeekGreatest)."""
        while len(h.chars) > 0:
            h = self._enter(h, len(h.chars) - 1)
        return h

    @cython.cfunc
    def _enter(self, h: RaxNode, j: cython.Py_ssize_t) -> RaxNode:
        """Descend from h by edge j: push h on the stack, and append the edge's bytes to the key."""
        if self.depth < len(self.stack):
            self.stack[self.depth] = h
        else:
            self.stack.append(h)
        self.depth += 1
        if h.iscompr:
            self._add(h.chars, 0, len(h.chars))
            child: RaxNode = h.link
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
        """Pop the parent from the stack and return it; the list keeps the parent, so `_end` can restore the stack."""
        self.depth -= 1
        parent: RaxNode = self.stack[self.depth]
        return parent

    @cython.cfunc
    def _visited(self, child: RaxNode, j: cython.Py_ssize_t) -> RaxNode:
        """Pass the node just entered to `node_cb`; if the callback returns another node, put that one into the tree."""
        other: object = self.node_cb(child)  # type: ignore[misc]
        if other is None or other is child:
            return child
        if not isinstance(other, RaxNode):
            raise TypeError("a node callback must return a RaxNode or None")
        node: RaxNode = other
        parent: RaxNode = self.stack[self.depth - 1]
        if isinstance(parent.link, list):
            children: list[RaxNode] = parent.link
            children[j] = node
        else:
            parent.link = node
        return node

    @cython.cfunc
    def _arrive(self, h: RaxNode) -> cython.bint:
        """Make the key of node h the current element."""
        self.node = h
        self.data = h.data
        self.key = copy_out(self.buf, 0, self.key_len)
        return True

    @cython.cfunc
    def _end(self, depth: cython.Py_ssize_t, key_len: cython.Py_ssize_t) -> cython.bint:
        """Set the flag EOF and restore the last position. The last element stays current."""
        self.flags |= _EOF
        self.depth = depth
        self.key_len = key_len
        return False

    @cython.cfunc
    def _add(self, chars: bytes, start: cython.Py_ssize_t, n: cython.Py_ssize_t) -> cython.bint:
        """Append chars[start:start+n] to the current key."""
        stop: cython.Py_ssize_t = self.key_len + n
        if stop > len(self.buf):
            self.buf.extend(bytes(2 * stop - len(self.buf)))
        copy_part(self.buf, self.key_len, chars, start, n)
        self.key_len = stop
        return True

    @cython.ccall
    def compare(self, op: str | bytes, key: bytes) -> cython.bint:
        """Return whether `current key <op> key` holds, for `>` `>=` `<` `<=` `=` `==` (raxCompare)."""
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
    def eof(self) -> cython.bint:
        """Return whether the last seek or step found no element (raxEOF)."""
        return (self.flags & _EOF) != 0

    @cython.ccall
    def stop(self) -> cython.bint:
        """Release all nodes and values (raxStop); a seek restarts the iterator."""
        self.flags |= _EOF
        self.node = None
        self.data = None
        self.key = b""
        self.stack = []
        self.depth = 0
        self.key_len = 0
        return True

"""Compaction of a stream, node by node: the part of active defragmentation that knows a stream's nodes.

XDEL turns an entry into a tombstone, which keeps its bytes until its node has no other entries. A pass of a
StreamCompactor writes the living entries of sparse nodes again, as XADD would pack them:

    before   │ a . . . │ . . b . │ . c . . │ d e f . │       . = tombstone
    after    │ a b c │                     │ d e f . │

    a node                                         step
    only tombstones                                removed
    sparse: a quarter of its entries are deleted   its entries move to the end of the preceding node until that is full
                                                   (stream-node-max-bytes, stream-node-max-entries), then to a new node
    small: fills neither limit by half             merged into the preceding node if it fits there completely
    unused capacity of an eighth                   the buffer is shrunk
    a rax node whose list of children has some     it is replaced by a copy (`tighten`, the iterator's node_cb)
    the last node                                  as above, but never shrunk, and merged only if it is sparse

An entry is not decoded: its values are copied as listpack elements, and only the ID deltas change. Where the names of
the two master entries differ, the names are copied, too, and the entry loses the flag SAMEFIELDS. The key of a new node
is the ID of its first entry.

A step builds the new nodes beside the old ones and then replaces them in the tree, so an exception leaves the stream
unchanged. IDs, order, fields, counters, groups and pending entries stay the same: no command can see a step, except for
MEMORY USAGE, the node counts of XINFO STREAM, approximate trims (they remove whole nodes) and the bytes of DUMP.

A pass stores only the key of the last node it has finished, so any command may change the stream between two steps.
An iterator that exists during a step would miss entries; iterators live within one command.

Nodes whose IDs are out of order (after XSETID to a lower ID) and nodes above MAX_BYTES stay unchanged: the latter
bounds the duration of a step, which is O(two nodes), about 30 microseconds for nodes of a hundred entries.

Redis's defragmentation (defrag.c: defragStream) moves whole nodes to other addresses and keeps the tombstones.
Rejected: rewriting in place within XDEL (a deletion would cost O(node) and DUMP would differ from Redis's by default).
"""

from __future__ import annotations

import sys
from typing import Any

from rillet._cython import cython, readonly
from rillet.structs.listpack import Listpack
from rillet.types.stream.id import delta, encode_key, key_ms, key_seq, less, undelta
from rillet.types.stream.node import entry_before, int_at, master_fields, size_at
from rillet.types.stream.nodes import NodeIterator
from rillet.types.stream.stream import Stream

MAX_BYTES = 256 * 1024
"""Nodes with more bytes are not rewritten, because a rewrite is not interrupted."""

_MAX_BYTES = cython.declare(cython.longlong, MAX_BYTES)
_COUNT = cython.declare(cython.Py_ssize_t, 6)  # position of a node's entry count, after the listpack header
_EMPTY_LIST = cython.declare(cython.Py_ssize_t, sys.getsizeof([]))
_DELETED = cython.declare(cython.longlong, 1)
_SAMEFIELDS = cython.declare(cython.longlong, 2)


@cython.final
@cython.cclass
class StreamCompactor:
    """One pass over a stream: `step` compacts the next node, `measure` only counts wasted bytes.

    nodes    nodes passed so far                     moved    nodes that were rewritten, merged or shrunk
    total    bytes of the measured nodes' buffers    wasted   estimated bytes of tombstones and unused capacity in them
    freed    bytes freed, less the bytes of new buffers
    rax_wasted, rax_freed    unused and freed bytes of the rax nodes' lists of children
    """

    __slots__ = (
        "freed", "moved", "nodes", "position", "rax_freed", "rax_wasted", "stream", "total", "wasted", "_grown",
        "_last_ms", "_last_seq", "_limit", "_living", "_max_bytes", "_max_entries", "_new", "_new_keys", "_out",
        "_out_entries", "_out_key", "_out_ms", "_out_seq",
    )  # fmt: skip
    stream: readonly[Stream]
    position: readonly[bytes]
    nodes: readonly[cython.Py_ssize_t]
    moved: readonly[cython.Py_ssize_t]
    freed: readonly[cython.Py_ssize_t]
    total: readonly[cython.Py_ssize_t]
    wasted: readonly[cython.Py_ssize_t]
    rax_freed: readonly[cython.Py_ssize_t]
    rax_wasted: readonly[cython.Py_ssize_t]
    _limit: bytes
    _max_bytes: cython.longlong
    _max_entries: cython.longlong
    _out: Listpack | None
    _out_key: bytes
    _out_ms: cython.ulonglong
    _out_seq: cython.ulonglong
    _out_entries: cython.longlong
    _living: cython.longlong
    _grown: cython.bint
    _last_ms: cython.ulonglong
    _last_seq: cython.ulonglong
    _new: list[Listpack]
    _new_keys: list[bytes]

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.position = b""
        self.nodes = self.moved = self.freed = 0
        self.total = self.wasted = 0
        self.rax_freed = self.rax_wasted = 0
        self._limit = b""
        self._max_bytes = self._max_entries = 0
        self._close_all()

    @cython.cfunc
    def _close_all(self) -> cython.bint:
        self._out = None
        self._out_key = b""
        self._out_ms = self._out_seq = 0
        self._out_entries = self._living = 0
        self._grown = False
        self._last_ms = self._last_seq = 0
        self._new = []
        self._new_keys = []
        return True

    @cython.ccall
    def measure(self, count: cython.Py_ssize_t) -> cython.bint:
        """Add the next `count` nodes to `total` and `wasted`; return False at the end of the stream. O(count)"""
        nodes: NodeIterator = NodeIterator(self.stream)
        nodes.tree.node_cb = self.count_slack
        lp: Listpack | None = None
        if not nodes.seek(">", self.position):
            return False
        while count > 0 and nodes.next():
            self.nodes += 1
            count -= 1
            if nodes.skip_range():  # nobody changes sealed nodes
                self.position = nodes.key
                lp = None
                continue
            lp = nodes.node()
            self.position = nodes.key
            self.total += len(lp.buf)
            self.wasted += wasted_bytes(lp)
        if count > 0 and lp is not None:  # the last node keeps its spare capacity for the next entries
            self.wasted -= len(lp.buf) - lp.used
        return count == 0

    @cython.ccall
    def step(self, node_max_bytes: cython.longlong, node_max_entries: cython.longlong) -> cython.bint:
        """Compact the next node; return False at the end of the stream. O(two nodes)

        The limits are stream-node-max-bytes and stream-node-max-entries; 0 = no limit.
        """
        nodes: NodeIterator = NodeIterator(self.stream)
        nodes.tree.node_cb = self.tighten
        if not nodes.seek(">", self.position):
            return False
        nodes.next()
        if nodes.skip_range():
            self.position = nodes.key
            self.nodes += 1
            return True
        key: bytes = nodes.key
        lp: Listpack = nodes.node()
        last: cython.bint = not nodes.next()
        self._limit = b"" if last else nodes.key
        self._max_bytes = node_max_bytes if 0 < node_max_bytes < _MAX_BYTES else _MAX_BYTES
        self._max_entries = node_max_entries
        self.position = key
        self.nodes += 1
        living: cython.longlong = int_at(lp, _COUNT)
        deleted: cython.longlong = int_at(lp, lp.at_next)
        if living <= 0:
            self._remove(key, lp)
        elif lp.used <= _MAX_BYTES and self._is_worth_moving(key, lp, living, deleted, last):
            self._rewrite(key, lp)
            self._close_all()
        elif not last and len(lp.buf) - lp.used > len(lp.buf) >> 3:
            before: cython.Py_ssize_t = len(lp.buf)
            self.freed += before - lp.used
            self.moved += 1
            lp.shrink()
            self.stream.node_bytes -= before - len(lp.buf)
        return True

    # -- nodes of the rax

    def count_slack(self, node: Any) -> None:
        """Add the unused capacity of a rax node's list of children to `rax_wasted` (RaxIterator.node_cb). O(1)"""
        self.rax_wasted += list_slack(node.link)

    def tighten(self, node: Any) -> Any:
        """Return a copy of a rax node if its list of children has unused capacity, else None. O(children)"""
        slack: cython.Py_ssize_t = list_slack(node.link)
        if not slack:
            return None
        self.rax_freed += slack
        return node.copy()

    # -- one node

    @cython.cfunc
    def _remove(self, key: bytes, lp: Listpack) -> cython.bint:
        """Remove a node that has only tombstones (an exact XTRIM MINID can leave one)."""
        self.freed += len(lp.buf)
        self.stream.node_bytes -= len(lp.buf)
        self.moved += 1
        self._forget(key)
        return self.stream.rax.remove(key)

    @cython.cfunc
    def _forget(self, key: bytes) -> cython.bint:
        """Drop what the stream caches about its first and last node and about this node."""
        stream: Stream = self.stream
        stream.tail = None
        stream.head = None
        stream.moved()
        if stream.sums is not None:
            stream.sums.forget(key)
        return True

    @cython.cfunc
    def _is_worth_moving(
        self, key: bytes, lp: Listpack, living: cython.longlong, deleted: cython.longlong, last: cython.bint
    ) -> cython.bint:
        """Return whether to move the node's entries; `_out` becomes a copy of the preceding node if it takes some."""
        sparse: cython.bint = 4 * deleted >= living + deleted
        small: cython.bint = 2 * lp.used <= self._max_bytes
        if self._max_entries > 0 and 2 * living > self._max_entries:
            small = False
        if not sparse and (last or not small):
            return False
        nodes: NodeIterator = NodeIterator(self.stream)
        if nodes.seek("<", key) and nodes.prev() and nodes.range is None:
            if sparse:
                self._open_preceding(nodes.key, nodes.node(), 0, 1)
            else:
                self._open_preceding(nodes.key, nodes.node(), lp.used, living)
        return sparse or self._out is not None

    @cython.cfunc
    def _open_preceding(self, key: bytes, lp: Listpack, size: cython.Py_ssize_t, count: cython.longlong) -> cython.bint:
        """Copy the preceding node into `_out` if it has room for `count` entries of `size` bytes in total."""
        living: cython.longlong = int_at(lp, _COUNT)
        entries: cython.longlong = living + int_at(lp, lp.at_next)
        if lp.used + size >= self._max_bytes or 0 < self._max_entries < entries + count:
            return False
        pos: cython.Py_ssize_t = entry_before(lp, lp.used - 1)
        if pos < 0:
            return False
        self._out_key = key
        self._out_ms = key_ms(key)
        self._out_seq = key_seq(key)
        int_at(lp, pos)
        self._last_ms = undelta(self._out_ms, int_at(lp, lp.at_next))
        self._last_seq = undelta(self._out_seq, int_at(lp, lp.at_next))
        self._living = living
        self._out_entries = entries
        self._out = lp.copy()
        return True

    @cython.cfunc
    def _rewrite(self, key: bytes, lp: Listpack) -> cython.bint:
        """Move the living entries of a node into `_out` and new nodes; then replace the old nodes by these."""
        stream: Stream = self.stream
        index: cython.Py_ssize_t
        node: Listpack
        if not self._move_entries(key, lp):
            return False
        self._finish_node()
        if not self._new:  # the counts of an untrusted node may be wrong
            return False
        freed: cython.Py_ssize_t = len(lp.buf)
        for index in range(len(self._new)):
            node = self._new[index]
            freed -= len(node.buf)
            new_key: bytes = self._new_keys[index]
            if new_key < key:
                old: Listpack = stream.rax.find(new_key)
                freed += len(old.buf)
                self._forget(new_key)
        self._forget(key)
        if key not in self._new_keys:
            stream.rax.remove(key)
        for index in range(len(self._new)):
            stream.rax.insert(self._new_keys[index], self._new[index])
        self.position = max(key, self._new_keys[len(self._new) - 1])
        self.moved += 1
        self.freed += freed
        stream.node_bytes -= freed
        return True

    @cython.cfunc
    def _move_entries(self, key: bytes, lp: Listpack) -> cython.bint:
        """Append copies of the living entries; return False if the IDs are out of order. O(elements)"""
        master_ms: cython.ulonglong = key_ms(key)
        master_seq: cython.ulonglong = key_seq(key)
        nfields: cython.Py_ssize_t = master_fields(lp)
        names: cython.Py_ssize_t = lp.at_next
        names_end: cython.Py_ssize_t = lp.skip(names, nfields)
        pos: cython.Py_ssize_t = lp.skip(names_end, 1)
        same: cython.bint = False
        if self._out is not None:
            if not less(self._last_ms, self._last_seq, master_ms, master_seq):
                return False
            same = self._has_names(self._out, lp, names, names_end, nfields)
        while not lp.is_end(pos):
            flags: cython.longlong = int_at(lp, pos)
            ms: cython.ulonglong = undelta(master_ms, int_at(lp, lp.at_next))
            seq: cython.ulonglong = undelta(master_seq, int_at(lp, lp.at_next))
            body: cython.Py_ssize_t = lp.at_next
            count: cython.Py_ssize_t = nfields
            if flags & _SAMEFIELDS != 0:
                pos = lp.skip(body, nfields)
            else:
                count = size_at(lp, body)
                pos = lp.skip(lp.at_next, 2 * count)
            if flags & _DELETED == 0:
                if less(ms, seq, master_ms, master_seq) or not less(self._last_ms, self._last_seq, ms, seq):
                    return False
                if self._is_full(pos - body):
                    self._finish_node()
                    self._start_node(lp, names, names_end, nfields, ms, seq)
                    same = True
                self._append_id(flags if same else 0, ms, seq)
                self._append_body(lp, flags, same, names, body, pos, count)
            pos = lp.skip(pos, 1)  # the lp-count
        return self._limit == b"" or encode_key(self._last_ms, self._last_seq) < self._limit

    @cython.cfunc
    def _has_names(
        self, out: Listpack, lp: Listpack, names: cython.Py_ssize_t, names_end: cython.Py_ssize_t,
        nfields: cython.Py_ssize_t,
    ) -> cython.bint:  # fmt: skip
        """Return whether two nodes have the same names in their master entries."""
        if master_fields(out) != nfields:
            return False
        start: cython.Py_ssize_t = out.at_next
        end: cython.Py_ssize_t = out.skip(start, nfields)
        return end - start == names_end - names and out.buf[start:end] == lp.buf[names:names_end]

    # -- the node that receives the entries

    @cython.cfunc
    def _is_full(self, size: cython.Py_ssize_t) -> cython.bint:
        """Return whether an entry of that size needs a new node, by the rule of XADD (`Stream.add`)."""
        if self._out is None or self._out.used + size >= self._max_bytes:
            return True
        return 0 < self._max_entries <= self._out_entries

    @cython.cfunc
    def _start_node(
        self, lp: Listpack, names: cython.Py_ssize_t, names_end: cython.Py_ssize_t, nfields: cython.Py_ssize_t,
        ms: cython.ulonglong, seq: cython.ulonglong,
    ) -> cython.bint:  # fmt: skip
        """Start a node with the names of another node's master entry; `_finish_node` writes its entry count."""
        out: Listpack = Listpack(lp.used)
        out.append_int(0)
        out.append_int(0)
        out.append_int(nfields)
        out.append_range(lp, names, names_end, nfields)
        out.append_int(0)
        self._out = out
        self._out_key = encode_key(ms, seq)
        self._out_ms = ms
        self._out_seq = seq
        self._out_entries = self._living = 0
        return True

    @cython.cfunc
    def _append_id(self, flags: cython.longlong, ms: cython.ulonglong, seq: cython.ulonglong) -> cython.bint:
        assert self._out is not None
        self._out.append_int(flags)
        self._out.append_int(delta(ms, self._out_ms))
        self._out.append_int(delta(seq, self._out_seq))
        self._out_entries += 1
        self._living += 1
        self._grown = True
        self._last_ms = ms
        self._last_seq = seq
        return True

    @cython.cfunc
    def _append_body(
        self, lp: Listpack, flags: cython.longlong, same: cython.bint, names: cython.Py_ssize_t,
        body: cython.Py_ssize_t, end: cython.Py_ssize_t, count: cython.Py_ssize_t,
    ) -> cython.bint:  # fmt: skip
        """Append the fields of an entry, stored in lp from `body` to `end`, and the lp-count."""
        assert self._out is not None
        out: Listpack = self._out
        name_end: cython.Py_ssize_t
        value_end: cython.Py_ssize_t
        if flags & _SAMEFIELDS == 0:
            out.append_range(lp, body, end, 2 * count + 1)
            return out.append_int(2 * count + 4)
        if same:
            out.append_range(lp, body, end, count)
            return out.append_int(count + 3)
        out.append_int(count)
        for _ in range(count):
            name_end = lp.skip(names, 1)
            value_end = lp.skip(body, 1)
            out.append_range(lp, names, name_end, 1)
            out.append_range(lp, body, value_end, 1)
            names = name_end
            body = value_end
        return out.append_int(2 * count + 4)

    @cython.cfunc
    def _finish_node(self) -> cython.bint:
        """Write the entry count of the current node, and add the node to those that will be inserted."""
        out: Listpack | None = self._out
        if out is not None and self._grown:
            out.replace_int(_COUNT, self._living)
            out.shrink()
            self._new.append(out)
            self._new_keys.append(self._out_key)
        self._grown = False
        return True


@cython.ccall
def list_slack(children: object) -> cython.Py_ssize_t:
    """Return the unused bytes of a list if they are more than an eighth of it and at least 32, else 0. O(1)"""
    if not isinstance(children, list):
        return 0
    used: cython.Py_ssize_t = 8 * len(children)
    unused: cython.Py_ssize_t = sys.getsizeof(children) - _EMPTY_LIST - used
    return unused if unused >= 32 and unused > used >> 3 else 0


@cython.ccall
def wasted_bytes(lp: Listpack) -> cython.Py_ssize_t:
    """Return a node's unused capacity and the estimated bytes of its tombstones. O(1)"""
    living: cython.longlong = int_at(lp, _COUNT)
    deleted: cython.longlong = int_at(lp, lp.at_next)
    if deleted <= 0 or living < 0:
        return len(lp.buf) - lp.used
    return len(lp.buf) - lp.used + lp.used * deleted // (living + deleted)

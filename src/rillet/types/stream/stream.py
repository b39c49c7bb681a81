"""The stream: an append-only log of entries with rising IDs, stored in a radix tree of listpack nodes.

    Stream ── rax ──► 16-byte master ID ──► Listpack    node: master entry, then up to 100 entries
      │               16-byte master ID ──► Listpack    (`node` shows its bytes)
      │                        …
      │               16-byte master ID ──► Listpack  ◄── tail: where the next entry goes
      └── groups ──► {name: Group}

Besides its nodes, a stream stores four values: the last generated ID (`last_`, even if its entry was deleted), the ID
of the first entry (`first_`, 0-0 if the stream is empty), the greatest ID ever deleted by XDEL (`max_deleted_`), and
the number of entries ever added. A group's lag is computed from these values without counting entries, by one of three
rules (LAG_A, LAG_B and LAG_C of types/compat.py). Every method that uses these values has the rule as a parameter:

                                    A                    B                      C
    a deletion makes the count      at or after          anywhere ahead         as in B
    of a group unknown if it is     first_               of the group
    reading an entry adds 1 to      no deletion at or    no deletion ahead of the group, and the group
    the count if there is           after the entry      has reached first_
    an ID gives the count           always for last_     only after max_deleted_
    lag of an empty stream          by the count         by the count           0
    lag of a group before first_    by the count         by the count           the stream's length

**Appending** fills the tail node until `used + bytes of the new words >= node_max_bytes`, or until it has
`node_max_entries` entries, tombstones included. A full node is shrunk to its exact size; the new node starts with up to
4096 bytes. The stream caches the tail, its ID, its master fields and its counts. Therefore an append does not search
the tree, and reads only the field names of the master entry. Every other change to a node clears this cache, and the
next append fills it again.

**Deleting** turns entries into tombstones, and removes a node together with its last entry. **Trimming** removes whole
nodes from the head and, when exact, turns entries of the first remaining node into tombstones. The delete strategy
defines what happens to the references of groups: KEEPREF leaves them, DELREF drops them, ACKED keeps entries that have
any. DELREF and ACKED must check each entry, so they turn the entries of every node into tombstones, and remove nodes
without other entries. As in Redis, an approximate trim (`~`) with these strategies also trims parts of nodes.

**Iterating** (`StreamIterator`) stores positions in the node's bytes and allocates nothing per entry or field. An
iteration that starts in the tail does not search the tree. Reads by consumers that keep up start there.

Invariants (`check`): IDs rise within and across nodes; each node is valid; `length` is the number of entries that are
not tombstones, and `first_` is the first of them; no entry has a greater ID than `last_`.

Costs: append O(fields); finding an ID O(tree depth + one node); trimming a whole node O(1).
Rejected: an index of IDs beside the tree (100 bytes more per entry), and nodes as Python lists.
"""

from __future__ import annotations

from rillet._cython import cython, public, readonly
from rillet.errors import SegmentUnreadable
from rillet.structs.argument_spans import ArgumentSpans
from rillet.structs.listpack import Listpack
from rillet.structs.rax_iterator import RaxIterator
from rillet.types.compat import LAG_A, LAG_C
from rillet.types.stream.group import Group
from rillet.types.stream.id import delta, encode_key, key_ms, key_seq, less, undelta
from rillet.types.stream.idmp import Producers
from rillet.types.stream.iterator import StreamIterator
from rillet.types.stream.node import (
    append_entry,
    count_deleted,
    entry_before,
    first_entry,
    int_at,
    mark_deleted,
    master_fields,
    new_node,
    size_at,
)
from rillet.types.stream.nodes import NodeIterator, SealedNodes, StreamNodes
from rillet.types.stream.pending import PendingTable

__all__ = ["Stream", "StreamIterator"]

MAX_ENTRY_BYTES = 1 << 30
"""The maximum size of an entry's names and values, and of a node, in bytes (STREAM_LISTPACK_MAX_SIZE)."""

KEEPREF = 0
"""Delete strategy: the groups keep their references to the entry (DELETE_STRATEGY_KEEPREF)."""
DELREF = 1
"""Delete strategy: also remove the entry from the pending entries of every group (DELETE_STRATEGY_DELREF)."""
ACKED = 2
"""Delete strategy: delete only entries that every group has read and acknowledged (DELETE_STRATEGY_ACKED)."""

_KEEPREF = cython.declare(cython.int, 0)
_DELREF = cython.declare(cython.int, 1)
_ACKED = cython.declare(cython.int, 2)
_MAX_BYTES = cython.declare(cython.Py_ssize_t, 1073741824)
# The maximum initial capacity of a new node in bytes (STREAM_LISTPACK_MAX_PRE_ALLOCATE).
_PREALLOCATE = cython.declare(cython.Py_ssize_t, 4096)
# A node's entry count is its first listpack element, directly after the listpack header of 6 bytes.
_COUNT = cython.declare(cython.Py_ssize_t, 6)
_DELETED = cython.declare(cython.longlong, 1)
_SAMEFIELDS = cython.declare(cython.longlong, 2)
_MAX = cython.declare(cython.ulonglong, 0xFFFF_FFFF_FFFF_FFFF)
_MOST = cython.declare(cython.longlong, 0x7FFF_FFFF_FFFF_FFFF)
_LAG_A = cython.declare(cython.int, LAG_A)


@cython.final
@cython.cclass
class Stream(StreamNodes):
    """A stream: its nodes, counters, groups and producers. Redis: stream.h, stream."""

    __slots__ = (
        "edge_ms", "edge_seq", "entries_added", "first_ms", "first_seq", "groups", "idmp", "last_ms", "last_seq",
        "max_deleted_ms", "max_deleted_seq", "next_ms", "next_seq", "pending", "stop_ms", "stop_seq", "stopped",
        "trim_living", "trim_pos", "unread_ms", "unread_seq",
    )  # fmt: skip
    last_ms: public[cython.ulonglong]
    last_seq: public[cython.ulonglong]
    first_ms: public[cython.ulonglong]
    first_seq: public[cython.ulonglong]
    max_deleted_ms: public[cython.ulonglong]
    max_deleted_seq: public[cython.ulonglong]
    entries_added: public[cython.ulonglong]
    groups: readonly[dict[bytes, Group]]
    pending: readonly[PendingTable]
    idmp: public[Producers | None]
    next_ms: readonly[cython.ulonglong]
    next_seq: readonly[cython.ulonglong]
    edge_ms: readonly[cython.ulonglong]
    edge_seq: readonly[cython.ulonglong]
    stopped: readonly[cython.bint]
    trim_living: cython.bint
    trim_pos: cython.Py_ssize_t
    stop_ms: readonly[cython.ulonglong]
    stop_seq: readonly[cython.ulonglong]
    unread_ms: readonly[cython.ulonglong]
    unread_seq: readonly[cython.ulonglong]

    def __init__(self) -> None:
        StreamNodes.__init__(self)
        self.last_ms = self.last_seq = 0
        self.first_ms = self.first_seq = 0
        self.max_deleted_ms = self.max_deleted_seq = 0
        self.entries_added = 0
        self.groups = {}
        self.pending = PendingTable()
        self.idmp = None
        self.next_ms = self.next_seq = 0
        self.edge_ms = self.edge_seq = 0
        self.stopped = False
        self.trim_living = False
        self.trim_pos = 0
        self.stop_ms = self.stop_seq = 0
        self.unread_ms = self.unread_seq = _MAX

    # -- the IDs of new entries

    @cython.ccall
    def next_id(self, now: cython.ulonglong) -> cython.bint:
        """Set next_ms and next_seq to the ID of an entry added at the time `now` (ms). Redis: streamNextID.

        If the clock went back, only the sequence number rises. Return False if no higher ID exists.
        """
        if now > self.last_ms:
            self.next_ms = now
            self.next_seq = 0
            return True
        self.next_ms = self.last_ms
        if self.last_seq != _MAX:
            self.next_seq = self.last_seq + 1
            return True
        if self.last_ms == _MAX:
            return False
        self.next_ms = self.last_ms + 1
        self.next_seq = 0
        return True

    @cython.ccall
    def next_seq_of(self, ms: cython.ulonglong) -> cython.bint:
        """Set next_ms and next_seq to the ID that `ms-*` denotes. Return False if ms has no free sequence number.

        Milliseconds before the last ID give ms-0, which `append` rejects. Redis: streamAppendItem.
        """
        self.next_ms = ms
        self.next_seq = 0
        if ms == self.last_ms:
            if self.last_seq == _MAX:
                return False
            self.next_seq = self.last_seq + 1
        return True

    # -- adding entries

    @cython.ccall
    def append(
        self,
        argv: list[bytes],
        start: cython.Py_ssize_t,
        nfields: cython.Py_ssize_t,
        ms: cython.ulonglong,
        seq: cython.ulonglong,
        node_max_bytes: cython.longlong,
        node_max_entries: cython.longlong,
    ) -> cython.bint:
        """Add an entry with the names and values argv[start : start + 2 * nfields]. See `add`."""
        words: ArgumentSpans = ArgumentSpans()
        words.point_to(argv, start, 2 * nfields)
        return self.add(words, 0, nfields, ms, seq, node_max_bytes, node_max_entries)

    @cython.ccall
    def add(
        self,
        words: ArgumentSpans,
        start: cython.Py_ssize_t,
        nfields: cython.Py_ssize_t,
        ms: cython.ulonglong,
        seq: cython.ulonglong,
        node_max_bytes: cython.longlong,
        node_max_entries: cython.longlong,
    ) -> cython.bint:
        """Add an entry whose names and values are the arguments from `start` on. Return False if it is too large.

        A maximum of 0 means no limit. Raise ValueError unless the ID is greater than the last one. O(fields).
        Redis: streamAppendItem.
        """
        total: cython.Py_ssize_t = 0
        same: cython.bint = True
        behind: cython.bint = False
        i: cython.Py_ssize_t
        if not less(self.last_ms, self.last_seq, ms, seq):
            raise ValueError("the ID of a new entry must be greater than the stream's last ID")
        if start < 0 or nfields < 0 or start + 2 * nfields > words.count:
            raise IndexError("the command has fewer arguments than the entry has names and values")
        for i in range(start, start + 2 * nfields):
            total += words.size[i]
        if total > _MAX_BYTES:
            return False
        lp: Listpack | None = self.find_tail()
        if lp is not None:
            self.node_bytes -= len(lp.buf)
        if lp is not None and self._is_full(lp, total, node_max_bytes, node_max_entries):
            lp.shrink()
            self.node_bytes += len(lp.buf)
            lp = None
            behind = less(ms, seq, self.tail_ms, self.tail_seq)
        if lp is None:
            lp = self._start_node(words, start, nfields, ms, seq, node_max_bytes)
        else:
            same = nfields == self.tail_fields and lp.matches(self.tail_pos, words, start, 2, nfields)
            self._count_up(lp)
        append_entry(lp, same, delta(ms, self.tail_ms), delta(seq, self.tail_seq), words, start, nfields)
        self.node_bytes += len(lp.buf)
        if behind:  # after XSETID to an ID before a node of tombstones, the new node is not the last
            self.tail = None
            self.sums = None
            self.moved()
        self.length = (self.length + 1) & _MAX
        self.entries_added = (self.entries_added + 1) & _MAX
        self.last_ms = ms
        self.last_seq = seq
        if self.length == 1:
            self.first_ms = ms
            self.first_seq = seq
        return True

    @cython.cfunc
    @cython.inline
    @cython.exceptval(-1, check=False)
    def _is_full(
        self, lp: Listpack, total: cython.Py_ssize_t, node_max_bytes: cython.longlong, node_max_entries: cython.longlong
    ) -> cython.bint:
        if node_max_bytes <= 0 or node_max_bytes > _MAX_BYTES:
            node_max_bytes = _MAX_BYTES
        if lp.used + total >= node_max_bytes:
            return True
        return node_max_entries > 0 and self.tail_entries >= node_max_entries

    @cython.cfunc
    def _start_node(
        self,
        words: ArgumentSpans,
        start: cython.Py_ssize_t,
        nfields: cython.Py_ssize_t,
        ms: cython.ulonglong,
        seq: cython.ulonglong,
        node_max_bytes: cython.longlong,
    ) -> Listpack:
        capacity: cython.Py_ssize_t = _PREALLOCATE
        if 0 < node_max_bytes < capacity:
            capacity = node_max_bytes
        lp: Listpack = new_node(words, start, nfields, capacity)
        self.rax.insert(encode_key(ms, seq), lp)
        if self.head is not None and encode_key(ms, seq) < self.head_key:  # XSETID has set the last ID back
            self.head = None
        self.tail = lp
        self.tail_ms = ms
        self.tail_seq = seq
        self.tail_live = self.tail_entries = 1
        self.tail_fields = master_fields(lp)
        self.tail_pos = lp.at_next
        return lp

    @cython.cfunc
    @cython.inline
    @cython.exceptval(-1, check=False)
    def _count_up(self, lp: Listpack) -> cython.bint:
        """Add 1 to the entry count in the tail's master entry. If its encoding grows, move tail_pos."""
        before: cython.Py_ssize_t = lp.used
        self.tail_live += 1
        self.tail_entries += 1
        lp.replace_int(_COUNT, self.tail_live)
        if lp.used != before:
            self.moved()
            self.tail_pos += lp.used - before
            if lp is self.head:
                self.head_pos += lp.used - before
        return True

    # -- deleting and trimming

    @cython.ccall
    def delete(self, ms: cython.ulonglong, seq: cython.ulonglong) -> cython.bint:
        """Delete one entry. Return False if it does not exist. O(one node). Redis: xdelCommand, streamDeleteItem."""
        if not self.delete_unsettled(ms, seq):
            return False
        if self.length == 0 or (ms == self.first_ms and seq == self.first_seq):
            self.settle_first()
        return True

    @cython.ccall
    def delete_unsettled(self, ms: cython.ulonglong, seq: cython.ulonglong) -> cython.bint:
        """Delete one entry, without updating first_ms and first_seq. Call `settle_first` afterwards. O(one node)"""
        it: StreamIterator = StreamIterator(self, ms, seq, ms, seq, False)
        if not it.next_entry():
            return False
        it.remove_and_stop()
        if less(self.max_deleted_ms, self.max_deleted_seq, ms, seq):
            self.max_deleted_ms = ms
            self.max_deleted_seq = seq
        return True

    @cython.ccall
    def trim_maxlen(
        self,
        maxlen: cython.ulonglong,
        approx: cython.bint,
        limit: cython.longlong,
        delete_strategy: cython.int = KEEPREF,
    ) -> cython.longlong:
        """Remove the oldest entries until maxlen remain; return the number removed. Redis: streamTrim.

        approx: remove whole nodes only. limit: the maximum number of entries to remove, 0 = no limit. If the limit
        ended the trim, `stopped` is True, and stop_ms and stop_seq are the ID of the next node.
        """
        if self.length > 0 and self.length <= maxlen:
            self.stopped = False
            return 0
        if delete_strategy == _KEEPREF:
            return self._trim_head(False, maxlen, 0, 0, approx, limit)
        return self._trim_all(False, maxlen, 0, 0, limit, delete_strategy)

    @cython.ccall
    def trim_minid(
        self,
        ms: cython.ulonglong,
        seq: cython.ulonglong,
        approx: cython.bint,
        limit: cython.longlong,
        delete_strategy: cython.int = KEEPREF,
    ) -> cython.longlong:
        """Remove the entries before an ID. The other parameters and the result are those of `trim_maxlen`."""
        if delete_strategy == _KEEPREF:
            return self._trim_head(True, 0, ms, seq, approx, limit)
        return self._trim_all(True, 0, ms, seq, limit, delete_strategy)

    @cython.cfunc
    def _trim_head(
        self,
        by_id: cython.bint,
        maxlen: cython.ulonglong,
        ms: cython.ulonglong,
        seq: cython.ulonglong,
        approx: cython.bint,
        limit: cython.longlong,
    ) -> cython.longlong:
        """Trim with KEEPREF: remove whole nodes from the head and, if exact, the first entries of the next node.

        The stream caches the head node and the position of its first entry that is not a tombstone. If each XADD trims
        the stream to a length, the trim therefore writes one tombstone and does not search through earlier tombstones.
        """
        settled: cython.bint = False
        deleted: cython.longlong = 0
        self.stopped = False
        if by_id and not less(self.first_ms, self.first_seq, ms, seq):
            return 0
        while by_id or self.length > maxlen:
            if self.sealed != 0:
                deleted += self._trim_ranges(by_id, maxlen, ms, seq, limit - deleted if limit != 0 else _MOST)
            if not (by_id or self.length > maxlen) or (by_id and self._is_sealed_from(ms, seq)):
                break
            try:
                lp: Listpack | None = self.find_head()
            except SegmentUnreadable:
                if deleted == 0:
                    raise
                break
            if lp is None:
                break
            entries: cython.longlong = int_at(lp, _COUNT)
            if limit != 0 and deleted + entries > limit:
                self._stop_at(self.head_key)
                break
            if by_id:
                whole: cython.bint = self._ends_before(lp, self.head_key, ms, seq)
            else:
                whole = undelta(self.length, -entries) >= maxlen
            if not whole:
                if not approx:
                    self.thaw(self.head_key, lp)
                    self.node_bytes -= len(lp.buf)
                    deleted += self._trim_node(lp, self.head_key, self.head_pos, by_id, maxlen, ms, seq, _KEEPREF)
                    self.node_bytes += len(lp.buf)
                    self.head_pos = self.trim_pos
                    settled = deleted != 0 and self.trim_living
                break
            self.remove_node(self.head_key, len(lp.buf))
            self.moved()
            if lp is self.tail:
                self.tail = None
            self.head = None
            self.length = undelta(self.length, -entries)
            deleted += entries
        if settled:
            self.first_ms = self.edge_ms
            self.first_seq = self.edge_seq
        elif deleted != 0 or self.length == 0:
            self.settle_first()
        return deleted

    @cython.cfunc
    def _trim_ranges(
        self,
        by_id: cython.bint,
        maxlen: cython.ulonglong,
        ms: cython.ulonglong,
        seq: cython.ulonglong,
        limit: cython.longlong,
    ) -> cython.longlong:
        """Drop the sealed nodes at the head that go as a whole; return their number of entries. O(ranges + log nodes)

        A whole range goes without a read; a part of one needs the index of its segment.
        """
        tree: RaxIterator = RaxIterator(self.rax)
        deleted: cython.longlong = 0
        while (by_id or self.length > maxlen) and tree.seek("^") and tree.next():
            if not isinstance(tree.data, SealedNodes):
                break
            nodes: SealedNodes = tree.data
            key: bytes = tree.key
            if not tree.next():
                break
            rest: SealedNodes | None = None
            if by_id:  # the entries of a node precede the ID of the next one
                whole: cython.bint = not less(ms, seq, key_ms(tree.key), key_seq(tree.key))
            else:
                whole = undelta(self.length, -nodes.entries) >= maxlen
            if not whole or deleted + nodes.entries > limit:
                most: cython.longlong = limit - deleted
                if not by_id:
                    most = min(most, delta(self.length, maxlen))
                try:
                    count: cython.Py_ssize_t = nodes.count_within(most)
                    if by_id:
                        count = min(count, max(nodes.find(encode_key(ms, seq)), 0))
                    if count == 0:
                        break
                    rest = nodes.part(count, nodes.count - count)
                except SegmentUnreadable:
                    if deleted == 0:
                        raise
                    break
            gone: cython.longlong = nodes.entries - (0 if rest is None else rest.entries)
            after: bytes = b"" if rest is None else rest.key_at(0)
            self.drop_range(key, nodes)
            if rest is not None:
                self.put_range(after, rest)
            self.moved()
            self.head = None
            self.length = undelta(self.length, -gone)
            deleted += gone
            if rest is not None:
                break
        return deleted

    @cython.cfunc
    def _is_sealed_from(self, ms: cython.ulonglong, seq: cython.ulonglong) -> cython.bint:
        """Return whether the first node is sealed and has no entry before an ID."""
        tree: RaxIterator = RaxIterator(self.rax)
        if self.sealed == 0 or not tree.seek("^") or not tree.next() or not isinstance(tree.data, SealedNodes):
            return False
        return not less(key_ms(tree.key), key_seq(tree.key), ms, seq)

    @cython.cfunc
    def _trim_all(
        self,
        by_id: cython.bint,
        maxlen: cython.ulonglong,
        ms: cython.ulonglong,
        seq: cython.ulonglong,
        limit: cython.longlong,
        delete_strategy: cython.int,
    ) -> cython.longlong:
        """Trim with DELREF or ACKED: check each entry, make it a tombstone, remove nodes without other entries."""
        it: NodeIterator = NodeIterator(self)
        deleted: cython.longlong = 0
        self.stopped = False
        self.head = None
        self.sums = None
        if delete_strategy == _ACKED:
            self.find_unread()
        it.seek("^")
        while it.next():
            if not by_id and self.length <= maxlen:
                break
            lp: Listpack = it.node()
            key: bytes = it.key
            entries: cython.longlong = int_at(lp, _COUNT)
            if limit != 0 and deleted + entries > limit:
                self._stop_at(key)
                break
            if by_id:
                whole: cython.bint = self._ends_before(lp, key, ms, seq)
            else:
                whole = undelta(self.length, -entries) >= maxlen
            if self.thaw(key, lp):
                it.seek("<=", key)
                it.next()
            self.node_bytes -= len(lp.buf)
            marked: cython.longlong = self._trim_node(lp, key, first_entry(lp), by_id, maxlen, ms, seq, delete_strategy)
            self.node_bytes += len(lp.buf)
            deleted += marked
            if not whole:
                break
            if marked == entries:
                self.remove_node(key, len(lp.buf))
                self.moved()
                self.tail = None
                it.seek(">=", key)
        if delete_strategy == _DELREF:
            self.tidy_pending()
        if deleted != 0 or self.length == 0:
            self.settle_first()
        return deleted

    @cython.cfunc
    def _stop_at(self, key: bytes) -> cython.bint:
        """Record in `stopped`, stop_ms and stop_seq that the limit ended a trim before the node with this key."""
        self.stopped = True
        self.stop_ms = key_ms(key)
        self.stop_seq = key_seq(key)
        return True

    @cython.cfunc
    def _ends_before(self, lp: Listpack, key: bytes, ms: cython.ulonglong, seq: cython.ulonglong) -> cython.bint:
        """Return whether all of a node's IDs, tombstones included, are below ms-seq. Redis: lpGetEdgeStreamID."""
        pos: cython.Py_ssize_t = entry_before(lp, lp.used - 1)
        if pos < 0:
            return True
        pos = lp.skip(pos, 1)
        last_ms: cython.ulonglong = undelta(key_ms(key), int_at(lp, pos))
        return less(last_ms, undelta(key_seq(key), int_at(lp, lp.at_next)), ms, seq)

    @cython.cfunc
    def _trim_node(
        self,
        lp: Listpack,
        key: bytes,
        pos: cython.Py_ssize_t,
        by_id: cython.bint,
        maxlen: cython.ulonglong,
        ms: cython.ulonglong,
        seq: cython.ulonglong,
        delete_strategy: cython.int,
    ) -> cython.longlong:
        """Turn a node's entries from pos on into tombstones until the trim is complete; return their number.

        ACKED skips referenced entries. The node's counts are updated, even if no entry remains. Set trim_pos to the
        final position, and trim_living to whether an entry is at that position; its ID is in edge_ms and edge_seq.
        """
        master_ms: cython.ulonglong = key_ms(key)
        master_seq: cython.ulonglong = key_seq(key)
        nfields: cython.longlong = master_fields(lp)
        deleted: cython.longlong = 0
        if lp is self.tail:
            self.tail = None
        self.moved()
        self.trim_living = False
        while not lp.is_end(pos):
            flags: cython.longlong = int_at(lp, pos)
            entry_ms: cython.ulonglong = undelta(master_ms, int_at(lp, lp.at_next))
            entry_seq: cython.ulonglong = undelta(master_seq, int_at(lp, lp.at_next))
            if (not less(entry_ms, entry_seq, ms, seq)) if by_id else self.length <= maxlen:
                self.trim_living = flags & _DELETED == 0
                self.edge_ms = entry_ms
                self.edge_seq = entry_seq
                break
            boxes: cython.longlong = nfields
            if flags & _SAMEFIELDS == 0:
                boxes = 2 * size_at(lp, lp.at_next)
            after: cython.Py_ssize_t = lp.skip(lp.at_next, boxes + 1)
            if flags & _DELETED == 0 and (delete_strategy != _ACKED or not self.is_held(entry_ms, entry_seq)):
                if delete_strategy == _DELREF:
                    self.drop_references(entry_ms, entry_seq)
                after += mark_deleted(lp, pos, flags)
                deleted += 1
                self.length = (self.length - 1) & _MAX
            pos = after
        after = lp.used
        count_deleted(lp, deleted)
        self.trim_pos = pos + lp.used - after
        return deleted

    @cython.ccall
    def settle_first(self) -> cython.bint:
        """Update first_ms and first_seq, the ID of the first entry, after entries were removed. O(one node).

        If the first node is in a segment that cannot be read, they become the ID of the node.
        """
        self.first_ms = self.first_seq = 0
        if self.length > 0:
            try:
                self.edge(True, True)
            except SegmentUnreadable:
                tree: RaxIterator = RaxIterator(self.rax)
                tree.seek("^")
                tree.next()
                self.edge_ms = key_ms(tree.key)
                self.edge_seq = key_seq(tree.key)
            self.first_ms = self.edge_ms
            self.first_seq = self.edge_seq
        return True

    # -- finding and counting entries

    @cython.ccall
    def contains(self, ms: cython.ulonglong, seq: cython.ulonglong) -> cython.bint:
        """Return whether the entry exists. O(one node). Redis: streamEntryExists."""
        it: StreamIterator = StreamIterator(self, ms, seq, ms, seq, False)
        return it.next_entry()

    @cython.ccall
    def edge(self, first: cython.bint, skip_tombstones: cython.bint) -> cython.bint:
        """Set edge_ms and edge_seq to the ID of the first or last entry. Return False if the stream has no entry.

        Without entries, the first ID is the greatest possible ID and the last is 0-0, as in Redis (streamGetEdgeID).
        """
        it: StreamIterator = StreamIterator(self, 0, 0, _MAX, _MAX, not first)
        it.skip_tombstones = skip_tombstones
        if it.next_entry():
            self.edge_ms = it.ms
            self.edge_seq = it.seq
            return True
        self.edge_ms = self.edge_seq = _MAX if first else 0
        return False

    @cython.ccall
    def has_tombstones_from(self, ms: cython.ulonglong, seq: cython.ulonglong, rule: cython.int = LAG_A) -> cython.bint:
        """Return whether IDs at or after ms-seq may have been deleted. Redis: streamRangeHasTombstones.

        The lag rule LAG_A ignores deletions before the first entry.
        """
        if self.length == 0 or (self.max_deleted_ms == 0 and self.max_deleted_seq == 0):
            return False
        if rule == _LAG_A and less(self.max_deleted_ms, self.max_deleted_seq, self.first_ms, self.first_seq):
            return False
        return not less(self.max_deleted_ms, self.max_deleted_seq, ms, seq)

    @cython.ccall
    def distance_from_first(
        self, ms: cython.ulonglong, seq: cython.ulonglong, rule: cython.int = LAG_A
    ) -> cython.longlong:
        """Return how many entries were ever added up to an ID, or -1 if the number is unknown.

        Redis: streamEstimateDistanceFromFirstEverEntry.
        """
        if self.entries_added == 0:
            return 0
        if less(self.last_ms, self.last_seq, ms, seq):
            return -1
        if self.length == 0:
            return delta(self.entries_added, 0)
        if rule != _LAG_A and (ms != 0 or seq != 0) and less(ms, seq, self.max_deleted_ms, self.max_deleted_seq):
            return -1
        if ms == self.last_ms and seq == self.last_seq:
            return delta(self.entries_added, 0)
        if self.max_deleted_ms != 0 or self.max_deleted_seq != 0:
            if not less(self.max_deleted_ms, self.max_deleted_seq, self.first_ms, self.first_seq):
                return -1
        if less(ms, seq, self.first_ms, self.first_seq):
            return delta(self.entries_added, self.length)
        if ms == self.first_ms and seq == self.first_seq:
            return delta((self.entries_added + 1) & _MAX, self.length)
        return -1

    # -- consumer groups

    @cython.ccall
    def create_group(
        self, name: bytes, ms: cython.ulonglong, seq: cython.ulonglong, entries_read: cython.longlong
    ) -> Group:
        """Create a group with the given last delivered ID; return None if the name exists. Redis: streamCreateCG."""
        if name in self.groups:
            return None  # type: ignore[return-value]
        group: Group = Group(name, ms, seq, entries_read, self.pending)
        self.groups[name] = group
        return group

    @cython.ccall
    def find_group(self, name: bytes) -> Group:
        """Return the group with a name, or None. Redis: streamLookupCG."""
        return self.groups.get(name)  # type: ignore[return-value]

    @cython.ccall
    def destroy_group(self, name: bytes) -> cython.bint:
        """Delete a group with all its pending entries. Return False if it does not exist."""
        group: Group | None = self.groups.pop(name, None)
        if group is None:
            return False
        group.clear()
        self.tidy_pending()
        return True

    @cython.ccall
    def find_unread(self) -> cython.bint:
        """Set unread_ms and unread_seq to the lowest last delivered ID of all groups, for `is_held`. O(groups)

        Redis stores this ID (min_cgroup_last_id) and updates it whenever a group reads. rillet computes it on demand.
        """
        group: Group
        self.unread_ms = self.unread_seq = _MAX
        for group in self.groups.values():
            if less(group.last_ms, group.last_seq, self.unread_ms, self.unread_seq):
                self.unread_ms = group.last_ms
                self.unread_seq = group.last_seq
        return True

    @cython.ccall
    def is_held(self, ms: cython.ulonglong, seq: cython.ulonglong) -> cython.bint:
        """Return whether any group has the entry unread or pending. Redis: streamEntryIsReferenced.

        Call `find_unread` first, and again after a group's last delivered ID changed. O(log pending entries)
        """
        if less(self.unread_ms, self.unread_seq, ms, seq):
            return True
        return self.pending.first_reference(ms, seq) >= 0

    @cython.ccall
    def drop_references(self, ms: cython.ulonglong, seq: cython.ulonglong) -> cython.Py_ssize_t:
        """Remove an entry from the pending entries of every group; return in how many groups it was pending.

        Redis: streamCleanupEntryCGroupRefs.
        """
        dropped: cython.Py_ssize_t = 0
        slot: cython.Py_ssize_t = self.pending.first_reference(ms, seq)
        while slot >= 0:
            group: Group = self.groups[self.pending.owner(slot).group_name]
            group.drop(slot)
            dropped += 1
            slot = self.pending.first_reference(ms, seq)
        return dropped

    @cython.ccall
    def tidy_pending(self) -> cython.bint:
        """Pack the table of pending entries if most of its slots are free.

        Every command that removes pending entries calls this at its end. Packing moves records to new slot numbers, so
        the caller must not use slot numbers that it read before. O(1), O(slots) if the table is packed.
        """
        if not self.pending.wants_packing():
            return False
        self.pack_pending()
        return True

    def pack_pending(self) -> None:
        """Remove all free slots from the table of pending entries, which renumbers the others. O(slots + consumers)"""
        groups = list(self.groups.values())
        indexes = [group.index for group in groups]
        indexes += [consumer.index for group in groups for consumer in group.consumers.values()]
        new_numbers = self.pending.pack(indexes)
        for group in groups:
            group.order.renumber(new_numbers)

    def sorted_groups(self) -> list[Group]:
        """Return the groups in the byte order of their names, the order in which Redis lists and saves them."""
        return [self.groups[name] for name in sorted(self.groups)]

    @cython.ccall
    def advance_group(
        self, group: Group, ms: cython.ulonglong, seq: cython.ulonglong, rule: cython.int = LAG_A
    ) -> cython.bint:
        """Advance a group's last delivered ID to an entry's ID; return False if it is already that ID or greater.

        Redis: streamReplyWithRange.
        """
        if not less(group.last_ms, group.last_seq, ms, seq):
            return False
        if group.entries_read == -1:
            counts: cython.bint = False
        elif rule == _LAG_A:
            counts = not self.has_tombstones_from(ms, seq, rule)
        else:
            counts = not less(group.last_ms, group.last_seq, self.first_ms, self.first_seq)
            counts = counts and not self.has_tombstones_from(group.last_ms, group.last_seq, rule)
        if counts:
            group.entries_read = delta(undelta(1, group.entries_read), 0)
        elif self.entries_added != 0:
            group.entries_read = self.distance_from_first(ms, seq, rule)
        group.last_ms = ms
        group.last_seq = seq
        return True

    def lag(self, group: Group, rule: int = LAG_A) -> int | None:
        """Return the number of entries that the group has not read, or None if the number is unknown.

        As in Redis, the result is negative if ENTRIESREAD was set too high. Redis: streamReplyWithCGLag.
        """
        if self.entries_added == 0:
            return 0
        if rule == LAG_C and (self.length == 0 or self._all_ahead(group)):
            return delta(self.length, 0)
        if group.entries_read != -1 and not self.has_tombstones_from(group.last_ms, group.last_seq, rule):
            read: cython.longlong = group.entries_read
        else:
            read = self.distance_from_first(group.last_ms, group.last_seq, rule)
            if read == -1:
                return None
        return delta(self.entries_added, undelta(0, read))

    @cython.cfunc
    def _all_ahead(self, group: Group) -> cython.bint:
        """Return whether the group has read no existing entry, and all deleted IDs precede the first entry."""
        if not less(group.last_ms, group.last_seq, self.first_ms, self.first_seq):
            return False
        return less(self.max_deleted_ms, self.max_deleted_seq, self.first_ms, self.first_seq)

    # -- the whole stream

    def encoding(self) -> str:
        """Return the encoding name that OBJECT ENCODING shows."""
        return "stream"

    @cython.ccall
    def add_node(self, key: bytes, lp: Listpack) -> cython.bint:
        """Add a node that was read from a file. Return False if the stream has a node with this ID.

        Raise ValueError if the key does not have 16 bytes. The caller validates the node (`validate_node`) and sets the
        stream's counters. Redis: rdbLoadObject.
        """
        key_ms(key)
        self.tail = None
        self.head = None
        self.sums = None
        self.moved()
        if not self.rax.try_insert(key, lp):  # a range of sealed nodes has the key of its first one
            return False
        self.node_bytes += len(lp.buf)
        return True

    def check(self) -> None:
        """Verify the stream, its nodes and groups. Raise AssertionError with the broken invariant. O(entries)"""
        from rillet.types.stream.check import check_stream

        check_stream(self)


# In a compiled module, an imported compiled class is not an attribute of the module. The next assignment makes it an
# attribute, so that `from rillet.types.stream.stream import Stream, StreamIterator` works compiled and interpreted.
globals()["StreamIterator"] = StreamIterator

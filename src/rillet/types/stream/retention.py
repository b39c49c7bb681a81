"""Retention: which entries at the head of a stream its policy removes, and what the groups hold back.

    ─── entries ───────────────────────────────────────────────────────►
        │ go ............ │ held back by a group ..... │ stay
                          └ floor: the first entry     └ the first entry within the limits
                            that a group still needs     of age, number and bytes

A `Policy` limits the age of entries, their number, and the bytes of the nodes; an entry goes if one limit is exceeded.
A group needs an entry until it is delivered and acknowledged: from its oldest pending entry on, or from the entry after
its last delivered one. With `acknowledged`, only entries before the first one that a group needs may go, and without a
group none.

**Granularity.** The nodes of a segment go as a whole, those in memory entry by entry; the limit of bytes removes whole
nodes, and never the last one. A whole range of a segment goes without a read, a part of one by the index of the
segment.

Costs: `Cut` is O(ranges + nodes that go + log nodes + one node). The whole is bounded by `most`, the ranges and nodes
that one call examines, so a caller removes much in steps.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from rillet._cython import cython, readonly
from rillet.structs.integer_text import decimal
from rillet.structs.listpack import Listpack
from rillet.structs.rax_iterator import RaxIterator
from rillet.types.stream.group import Group
from rillet.types.stream.id import encode_key, key_ms, key_seq, less
from rillet.types.stream.iterator import StreamIterator
from rillet.types.stream.node import int_at
from rillet.types.stream.nodes import SealedNodes
from rillet.types.stream.stream import Stream

_COUNT = cython.declare(cython.Py_ssize_t, 6)  # position of a node's entry count, after the listpack header
_MAX = cython.declare(cython.ulonglong, 0xFFFF_FFFF_FFFF_FFFF)
_ALL = cython.declare(cython.Py_ssize_t, 0x7FFF_FFFF_FFFF_FFFF)
_TEXT = re.compile(rb"age=(\d{1,18}) entries=(\d{1,18}) bytes=(\d{1,18}) groups=(acknowledged|ignore)")


class Policy(NamedTuple):
    """The limits of a stream, 0 for none: age in ms, number of entries, bytes of nodes; and the respect for groups."""

    age: int
    entries: int
    size: int
    acknowledged: bool

    def text(self) -> bytes:
        """Return the text that a store keeps."""
        groups = b"acknowledged" if self.acknowledged else b"ignore"
        return b" ".join((b"age=" + decimal(self.age), b"entries=" + decimal(self.entries),
                          b"bytes=" + decimal(self.size), b"groups=" + groups))  # fmt: skip


@lru_cache(1024)
def policy_of(text: bytes) -> Policy | None:
    """Return the policy of a text that a store keeps, None if it is malformed."""
    match = _TEXT.fullmatch(text)
    if match is None:
        return None
    return Policy(int(match[1]), int(match[2]), int(match[3]), match[4] == b"acknowledged")


@cython.final
@cython.cclass
class Cut:
    """Where a stream is cut: the entries before ms-seq go. 0-0: none goes.

    is_complete: False if `find` stopped because it had examined enough, and a later cut may be higher.
    """

    __slots__ = ("is_complete", "ms", "seq")
    ms: readonly[cython.ulonglong]
    seq: readonly[cython.ulonglong]
    is_complete: readonly[cython.bint]

    def __init__(self) -> None:
        self.ms = self.seq = 0
        self.is_complete = True

    @cython.cfunc
    def _at(self, ms: cython.ulonglong, seq: cython.ulonglong) -> cython.bint:
        self.ms = ms
        self.seq = seq
        return True

    @cython.cfunc
    def _after(self, ms: cython.ulonglong, seq: cython.ulonglong) -> cython.bint:
        """Move behind an ID; the greatest ID stays."""
        if seq != _MAX:
            return self._at(ms, seq + 1)
        return self._at(ms + 1, 0) if ms != _MAX else self._at(ms, seq)

    @cython.ccall
    def find_floor(self, stream: Stream) -> cython.bint:
        """Move to the first entry that a group needs; 0-0 without a group. O(groups)"""
        first: cython.bint = True
        lowest: Cut = Cut()
        group: Group
        self._at(0, 0)
        for group in stream.groups.values():
            lowest.find_needed(group)
            if first or less(lowest.ms, lowest.seq, self.ms, self.seq):
                self._at(lowest.ms, lowest.seq)
            first = False
        return not first

    @cython.ccall
    def find_needed(self, group: Group) -> cython.bint:
        """Move to the first entry that a group needs: its oldest pending one, or the one after its position. O(1)"""
        self._after(group.last_ms, group.last_seq)
        slot: cython.Py_ssize_t = group.index.edge(True)
        if slot < 0:
            return False
        ms: cython.ulonglong = group.table.ms(slot)
        seq: cython.ulonglong = group.table.seq(slot)
        return self._at(ms, seq) if less(ms, seq, self.ms, self.seq) else False

    @cython.ccall
    def find(
        self, stream: Stream, policy: Policy, now: cython.longlong, floor: Cut | None, most: cython.Py_ssize_t = 0
    ) -> cython.bint:
        """Move to the first entry within the limits of a policy, at most to `floor`; return whether an entry goes.

        now: ms since the epoch. most: how many ranges and nodes are examined; 0: all. Raise SegmentUnreadable if the
        index of a segment is needed and cannot be read.
        """
        youngest: cython.ulonglong = max(now - policy.age, 0) if policy.age else 0
        excess: cython.longlong = max(stream.length - policy.entries, 0) if policy.entries else 0
        heavy: cython.longlong = max(stream.node_bytes + stream.sealed_bytes - policy.size, 0) if policy.size else 0
        bound: bytes = encode_key(_MAX, _MAX) if floor is None else encode_key(floor.ms, floor.seq)
        old: bytes = encode_key(youngest, 0)
        tree: RaxIterator = RaxIterator(stream.rax)
        more: cython.bint = tree.seek("^") and tree.next()
        self._at(0, 0)
        self.is_complete = True
        if most == 0:
            most = _ALL
        while more:
            data: object = tree.data
            key: bytes = tree.key
            more = tree.next()
            after: bytes = tree.key if more else b""
            nodes: SealedNodes | None = None
            if isinstance(data, SealedNodes):
                nodes = data
                count: cython.longlong = nodes.entries
                weight: cython.longlong = nodes.size
                enough: cython.longlong = weight  # a range goes as a whole only if all of its bytes exceed the limit
            else:
                lp: Listpack = data  # type: ignore[assignment]
                count = int_at(lp, _COUNT)
                weight = len(lp.buf)
                enough = 1
            if more and after <= bound and (after <= old or (excess > 0 and count <= excess) or enough <= heavy):
                self._at(key_ms(after), key_seq(after))
                excess = max(excess - count, 0)
                heavy = max(heavy - weight, 0)
                most -= 1
                if most > 0:
                    continue
                self.is_complete = False
            elif nodes is not None:
                self._cut_range(nodes, after, bound, old, excess, heavy)
            else:
                self._cut_node(stream, key, count, bound, youngest, excess)
            break
        return self.ms != 0 or self.seq != 0

    @cython.cfunc
    def _cut_range(
        self, nodes: SealedNodes, after: bytes, bound: bytes, old: bytes, excess: cython.longlong,
        heavy: cython.longlong,
    ) -> cython.bint:  # fmt: skip
        """Move into a range of sealed nodes, to the first node that stays; `after`: the key behind the range."""
        count: cython.Py_ssize_t = max(nodes.find(old), 0)
        if excess > 0:
            count = max(count, nodes.count_within(excess))
        if heavy > 0 and nodes.size > 0:
            count = max(count, (heavy * nodes.count + nodes.size - 1) // nodes.size)
        if after and after <= bound:
            count = min(count, nodes.count)
        else:
            count = min(count, max(nodes.find(bound), 0))
        if count == 0:
            return False
        key: bytes = after if count == nodes.count else nodes.key_at(count)
        return self._at(key_ms(key), key_seq(key))

    @cython.cfunc
    def _cut_node(
        self,
        stream: Stream,
        key: bytes,
        count: cython.longlong,
        bound: bytes,
        youngest: cython.ulonglong,
        excess: cython.longlong,
    ) -> cython.bint:
        """Move into a node in memory, to the first entry that stays, or behind its last one."""
        ms: cython.ulonglong = key_ms(bound)
        seq: cython.ulonglong = key_seq(bound)
        entries: StreamIterator = StreamIterator(stream, key_ms(key), key_seq(key), ms, seq, False)
        while count > 0 and entries.next_entry():
            if (entries.ms >= youngest and excess <= 0) or not less(entries.ms, entries.seq, ms, seq):
                break
            self._after(entries.ms, entries.seq)
            excess -= 1
            count -= 1
        return True


@cython.final
@cython.cclass
class Amount:
    """How much of a stream lies before IDs that rise.

    Entries as `Cut` removes them: of sealed nodes only whole ones count, and bytes of whole nodes.
    """

    __slots__ = ("_data", "_first", "_more", "_tree", "entries", "size", "stream")
    stream: readonly[Stream]
    entries: readonly[cython.longlong]
    size: readonly[cython.longlong]
    _tree: RaxIterator  # at the node or range behind the current one, if there is `_more`
    _more: cython.bint
    _data: object
    _first: bytes

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.entries = self.size = 0
        self._data = None
        self._first = b""
        self._tree = RaxIterator(stream.rax)
        self._more = self._tree.seek("^") and self._tree.next()
        self._step()

    @cython.cfunc
    def _step(self) -> cython.bint:
        if not self._more:
            self._data = None
            return False
        self._data = self._tree.data
        self._first = self._tree.key
        self._more = self._tree.next()
        return True

    @cython.ccall
    def before(self, ms: cython.ulonglong, seq: cython.ulonglong) -> tuple[int, int]:
        """Return the entries and bytes before an ID that is not below the last one. O(ranges and nodes in between)

        Raise SegmentUnreadable if the index of a segment is needed and cannot be read.
        """
        key: bytes = encode_key(ms, seq)
        while self._data is not None:
            if not self._more or self._tree.key > key:
                return self._part(self._data, self._first, key)
            if isinstance(self._data, SealedNodes):
                nodes: SealedNodes = self._data
                self.entries += nodes.entries
                self.size += nodes.size
            else:
                lp: Listpack = self._data  # type: ignore[assignment]
                self.entries += int_at(lp, _COUNT)
                self.size += len(lp.buf)
            self._step()
        return self.entries, self.size

    @cython.cfunc
    def _part(self, data: object, first: bytes, key: bytes) -> tuple[int, int]:
        """Return the amounts with those of the range or node that contains the ID."""
        if isinstance(data, SealedNodes):
            nodes: SealedNodes = data
            at: cython.Py_ssize_t = nodes.find(key)
            if at <= 0:
                return self.entries, self.size
            part: SealedNodes = nodes.part(0, at)
            return self.entries + part.entries, self.size + part.size
        found: cython.longlong = 0
        if key > first:
            entries: StreamIterator = StreamIterator(
                self.stream, key_ms(first), key_seq(first), key_ms(key), key_seq(key), False
            )
            while entries.next_entry():
                if less(entries.ms, entries.seq, key_ms(key), key_seq(key)):
                    found += 1
        return self.entries + found, self.size

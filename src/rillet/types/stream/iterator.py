"""Iteration over the entries of a stream, forward or backward, without allocating an object per entry.

    Stream ── rax ──► node │master│ entry │ entry │ entry │0xFF    _pos    next element to read
                                          ▲       ▲                _ahead  elements from there to the next entry
                              _flags_pos ─┘       └─ after it

Forward iteration skips an entry's listpack elements; backward iteration uses the lp-count at the end of the entry. An
entry with the master's fields takes its names from the master entry, at a second position beside that of its values.
`next_field` decodes each name and value once and stores the position, and the bounds of the text or the number, in
attributes, so that code that writes them to a reply or a column does not decode them again.

An iteration that starts in the tail does not search the tree, nor does one over the whole stream (`nodes.StreamNodes`
caches both ends). A reader that continues where it stopped, as a consumer group does, keeps a `NodePlace`: the entry,
and the byte behind it.

Costs: a seek is a tree search and at most about a third of a node, O(1) at a place; a step is O(elements of the entry),
or of one element if the caller has read the entry's values. A node from a
file is a valid listpack, but its values may be inconsistent; then the iteration raises Corrupt. Rejected: a generator
of tuples (twelve objects for an entry of five fields), and an array of the positions of the master's fields (decoding a
name again costs less than storing its position).
"""

from __future__ import annotations

from rillet._cython import cython, public, readonly
from rillet.structs.listpack import Listpack
from rillet.types.stream.id import encode_key, key_ms, key_seq, less, undelta
from rillet.types.stream.node import (
    count_deleted,
    entry_before,
    int_at,
    mark_deleted,
    master_fields,
    size_at,
)
from rillet.types.stream.nodes import NodeIterator, StreamNodes

_COUNT = cython.declare(cython.Py_ssize_t, 6)  # position of a node's entry count, after the listpack header
_DELETED = cython.declare(cython.longlong, 1)
_SAMEFIELDS = cython.declare(cython.longlong, 2)
_MAX = cython.declare(cython.ulonglong, 0xFFFF_FFFF_FFFF_FFFF)

_END_OF_NODE = cython.declare(cython.int, 0)
_EMIT = cython.declare(cython.int, 1)
_OUT_OF_RANGE = cython.declare(cython.int, 2)


@cython.final
@cython.no_gc
@cython.cclass
class NodePlace:
    """The point at which an iteration continues after the entry ms-seq.

    It is `ahead` elements after `pos` in a node; pos 0: there is none yet.
    node_ms, node_seq: the node's ID. fields, start: the number of its fields, and where their names begin. changes: the
    stream's, for which the place is valid.
    """

    __slots__ = ("ahead", "changes", "fields", "ms", "node_ms", "node_seq", "pos", "seq", "start")
    changes: cython.longlong
    ms: cython.ulonglong
    seq: cython.ulonglong
    node_ms: cython.ulonglong
    node_seq: cython.ulonglong
    fields: cython.Py_ssize_t
    start: cython.Py_ssize_t
    pos: cython.Py_ssize_t
    ahead: cython.Py_ssize_t

    def __init__(self) -> None:
        self.pos = 0
        self.ms = self.seq = 0


@cython.final
@cython.cclass
class StreamIterator:
    """Iterates over the entries from start to end, both included; in reverse from end to start. Redis: streamIterator.

        while it.next_entry():            # it.ms, it.seq, it.numfields
            while it.next_field():        # it.field_pos, it.value_pos in it.lp; and decoded:
                ...                       # field_text, field_start, field_len or field_int; value_... likewise

    Calling `next_field` is optional. Appending to the stream keeps the iterator valid. Deleting does not, because the
    positions in the node change: create a new iterator (`remove_current` seeks again itself). A command that reads
    often uses one iterator again: it calls `open` or `follow`, and `close` at its end.
    """

    __slots__ = (
        "end_ms", "end_seq", "field_int", "field_len", "field_pos", "field_start", "field_text", "flags", "lp", "ms",
        "numfields", "seq", "skip_tombstones", "start_ms", "start_seq", "stream", "value_int", "value_len",
        "value_pos", "value_start", "value_text", "_ahead", "_field_next", "_fields_left", "_flags_pos",
        "_master_count", "_master_ms", "_master_seq", "_master_start", "_nodes", "_over", "_pos", "_reverse",
    )  # fmt: skip
    stream: readonly[StreamNodes | None]
    start_ms: readonly[cython.ulonglong]
    start_seq: readonly[cython.ulonglong]
    end_ms: readonly[cython.ulonglong]
    end_seq: readonly[cython.ulonglong]
    skip_tombstones: public[cython.bint]
    lp: readonly[Listpack | None]
    ms: readonly[cython.ulonglong]
    seq: readonly[cython.ulonglong]
    numfields: readonly[cython.Py_ssize_t]
    flags: readonly[cython.longlong]
    field_pos: readonly[cython.Py_ssize_t]
    field_text: readonly[cython.bint]
    field_start: readonly[cython.Py_ssize_t]
    field_len: readonly[cython.Py_ssize_t]
    field_int: readonly[cython.longlong]
    value_pos: readonly[cython.Py_ssize_t]
    value_text: readonly[cython.bint]
    value_start: readonly[cython.Py_ssize_t]
    value_len: readonly[cython.Py_ssize_t]
    value_int: readonly[cython.longlong]
    _reverse: cython.bint
    _over: cython.bint
    _nodes: NodeIterator | None
    _master_ms: cython.ulonglong
    _master_seq: cython.ulonglong
    _master_count: cython.Py_ssize_t
    _master_start: cython.Py_ssize_t
    _flags_pos: cython.Py_ssize_t
    _pos: cython.Py_ssize_t
    _ahead: cython.Py_ssize_t
    _field_next: cython.Py_ssize_t
    _fields_left: cython.Py_ssize_t

    def __init__(
        self,
        stream: StreamNodes | None = None,
        start_ms: cython.ulonglong = 0,
        start_seq: cython.ulonglong = 0,
        end_ms: cython.ulonglong = _MAX,
        end_seq: cython.ulonglong = _MAX,
        reverse: cython.bint = False,
    ) -> None:
        if stream is not None:
            self.open(stream, start_ms, start_seq, end_ms, end_seq, reverse, None)

    @cython.cfunc
    def open(
        self,
        stream: StreamNodes,
        start_ms: cython.ulonglong,
        start_seq: cython.ulonglong,
        end_ms: cython.ulonglong,
        end_seq: cython.ulonglong,
        reverse: cython.bint,
        place: NodePlace | None,
    ) -> cython.bint:
        """Begin an iteration; without a search if a place, that of the entry before the start, is still valid."""
        self.stream = stream
        self.start_ms = start_ms
        self.start_seq = start_seq
        self.end_ms = end_ms
        self.end_seq = end_seq
        self.skip_tombstones = True
        self._reverse = reverse
        self._over = False
        self._nodes = None
        self._fields_left = 0
        if place is None or place.pos == 0 or place.changes != stream.changes:
            return self._seek()
        self.lp = stream.find_node(place.node_ms, place.node_seq)
        self._master_ms = place.node_ms
        self._master_seq = place.node_seq
        self._master_count = place.fields
        self._master_start = place.start
        self._pos = place.pos
        self._ahead = place.ahead
        return True

    @cython.cfunc
    def follow(
        self, stream: StreamNodes, place: NodePlace | None, ms: cython.ulonglong, seq: cython.ulonglong
    ) -> cython.bint:
        """Begin an iteration over the entries after an ID; without a search if the place is behind its entry.

        The largest ID is followed by 0-0, as in streamIncrID.
        """
        if place is not None and (place.ms != ms or place.seq != seq):
            place = None
        seq = (seq + 1) & _MAX
        if seq == 0:
            ms = (ms + 1) & _MAX
        return self.open(stream, ms, seq, _MAX, _MAX, False, place)

    @cython.cfunc
    def mark(self, place: NodePlace) -> cython.bint:
        """Let `follow` continue after the current entry."""
        stream: StreamNodes = self.stream  # type: ignore[assignment]
        place.ms = self.ms
        place.seq = self.seq
        place.node_ms = self._master_ms
        place.node_seq = self._master_seq
        place.fields = self._master_count
        place.start = self._master_start
        place.pos = self._pos
        place.ahead = self._ahead
        place.changes = stream.changes
        return True

    @cython.cfunc
    def close(self) -> cython.bint:
        """End the iteration and release the stream."""
        self.stream = None
        self.lp = None
        self._nodes = None
        self._over = True
        return True

    @cython.cfunc
    def _seek(self) -> cython.bint:
        """Find the first node of the range; without a tree search if it is the first or last node of the stream."""
        stream: StreamNodes = self.stream  # type: ignore[assignment]
        self.lp = None
        self._nodes = None
        self._over = False
        if less(self.end_ms, self.end_seq, self.start_ms, self.start_seq) or stream.rax.numele == 0:
            self._over = True
        elif self._reverse and self.end_ms == _MAX and self.end_seq == _MAX and stream.tail is not None:
            self._enter_node(stream.tail, stream.tail_ms, stream.tail_seq)
        elif self._reverse:
            self._seek_node("<=", encode_key(self.end_ms, self.end_seq))
        elif stream.tail is not None and not less(self.start_ms, self.start_seq, stream.tail_ms, stream.tail_seq):
            self._enter_node(stream.tail, stream.tail_ms, stream.tail_seq)
            self._approach(stream.tail)
        elif self.start_ms == 0 and self.start_seq == 0:
            lp: Listpack = stream.find_head()
            self._enter_node(lp, key_ms(stream.head_key), key_seq(stream.head_key))
        elif self._seek_node("<=", encode_key(self.start_ms, self.start_seq)):
            self._approach(self.lp)
        else:
            self._seek_node("^", b"")
        return True

    @cython.cfunc
    def _seek_node(self, operator: str, key: bytes) -> cython.bint:
        """Find a node by its key, and enter it; return False if there is none."""
        stream: StreamNodes = self.stream  # type: ignore[assignment]
        nodes: NodeIterator = NodeIterator(stream)
        nodes.safe = True
        self._nodes = nodes
        return nodes.seek(operator, key) and self._next_node()

    @cython.cfunc
    def _next_node(self) -> cython.bint:
        """Enter the next node in the direction of the iteration; return False if there is none."""
        nodes: NodeIterator | None = self._nodes
        stream: StreamNodes = self.stream  # type: ignore[assignment]
        if nodes is None:
            if not self._reverse and stream.tail is not None and self._is_tail(stream):
                return False
            return self._seek_node("<" if self._reverse else ">", encode_key(self._master_ms, self._master_seq))
        if not (nodes.prev() if self._reverse else nodes.next()):
            return False
        ms: cython.ulonglong = key_ms(nodes.key)
        seq: cython.ulonglong = key_seq(nodes.key)
        if nodes.range is not None and not self._reverse and less(self.end_ms, self.end_seq, ms, seq):
            return False  # before the node is read
        return self._enter_node(nodes.node(), ms, seq)

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def _is_tail(self, stream: StreamNodes) -> cython.bint:
        return stream.tail_ms == self._master_ms and stream.tail_seq == self._master_seq

    @cython.cfunc
    def _enter_node(self, lp: Listpack, ms: cython.ulonglong, seq: cython.ulonglong) -> cython.bint:
        self.lp = lp
        self._master_ms = ms
        self._master_seq = seq
        self._master_count = master_fields(lp)
        self._master_start = lp.at_next
        self._pos = lp.at_next
        self._ahead = self._master_count + 1
        self._flags_pos = lp.used - 1
        return True

    @cython.cfunc
    def _approach(self, lp: Listpack | None) -> cython.bint:
        """In the first node, move close to the range's start: from the node's end if that is probably closer.

        A consumer that keeps up starts at one of the last entries. A step back costs twice a step forward, so the
        search begins at the end only if the start's time is in the last third of the node.
        """
        if lp is None or not less(self._master_ms, self._master_seq, self.start_ms, self.start_seq):
            return False
        pos: cython.Py_ssize_t = entry_before(lp, self._flags_pos)
        if pos < 0:
            return False
        self._read_head(lp, pos)
        if less(self.ms, self.seq, self.start_ms, self.start_seq):
            pos = lp.used - 1
        else:
            span: cython.ulonglong = (self.ms - self._master_ms) & _MAX
            ahead: cython.ulonglong = (self.start_ms - self._master_ms) & _MAX
            if span == 0:
                span = (self.seq - self._master_seq) & _MAX
                ahead = (self.start_seq - self._master_seq) & _MAX
            if ahead < span - span // 3:
                pos = -1
            while pos > 0 and less(self.start_ms, self.start_seq, self.ms, self.seq):
                pos = entry_before(lp, pos)
                if pos > 0:
                    self._read_head(lp, pos)
        if pos > 0:
            self._pos = pos
            self._ahead = 0
        else:
            self._pos = self._master_start
            self._ahead = self._master_count + 1
        self._flags_pos = lp.used - 1
        self._fields_left = 0
        return True

    @cython.ccall
    def next_entry(self) -> cython.bint:
        """Move to the next entry of the range; set ms and seq. Return False at the end. Redis: streamIteratorGetID."""
        while not self._over:
            lp: Listpack | None = self.lp
            if lp is None:
                if not self._next_node():
                    break
                continue
            if self._reverse:
                found: cython.int = self._scan_backward(lp)
            else:
                found = self._scan_forward(lp)
            if found == _EMIT:
                return True
            if found == _OUT_OF_RANGE:
                break
            self.lp = None
        self._over = True
        self.lp = None
        return False

    @cython.cfunc
    def _scan_forward(self, lp: Listpack) -> cython.int:
        while True:
            pos: cython.Py_ssize_t = lp.skip(self._pos, self._ahead)
            if lp.is_end(pos):
                return _END_OF_NODE
            self._read_head(lp, pos)
            if self.skip_tombstones and self.flags & _DELETED != 0:
                continue
            if less(self.ms, self.seq, self.start_ms, self.start_seq):
                continue
            if less(self.end_ms, self.end_seq, self.ms, self.seq):
                return _OUT_OF_RANGE
            return _EMIT

    @cython.cfunc
    def _scan_backward(self, lp: Listpack) -> cython.int:
        while True:
            pos: cython.Py_ssize_t = entry_before(lp, self._flags_pos)
            if pos < 0:
                return _END_OF_NODE
            self._read_head(lp, pos)
            if self.skip_tombstones and self.flags & _DELETED != 0:
                continue
            if less(self.end_ms, self.end_seq, self.ms, self.seq):
                continue
            if less(self.ms, self.seq, self.start_ms, self.start_seq):
                return _OUT_OF_RANGE
            return _EMIT

    @cython.cfunc
    @cython.inline
    @cython.exceptval(-1, check=False)
    def _read_head(self, lp: Listpack, pos: cython.Py_ssize_t) -> cython.bint:
        """Read the flags, ID and number of fields of the entry at pos."""
        self._flags_pos = pos
        self.flags = int_at(lp, pos)
        self.ms = undelta(self._master_ms, int_at(lp, lp.at_next))
        self.seq = undelta(self._master_seq, int_at(lp, lp.at_next))
        if self.flags & _SAMEFIELDS != 0:
            self.numfields = self._master_count
            self._ahead = self.numfields + 1
            self._field_next = self._master_start
        else:
            self.numfields = size_at(lp, lp.at_next)
            self._ahead = 2 * self.numfields + 1
        self._fields_left = self.numfields
        self._pos = lp.at_next
        return True

    @cython.ccall
    def next_field(self) -> cython.bint:
        """Move to the entry's next field. Return False after the last one. Redis: streamIteratorGetField."""
        lp: Listpack | None = self.lp
        pos: cython.Py_ssize_t = self._pos
        if lp is None or self._fields_left == 0:
            return False
        self._fields_left -= 1
        if self.flags & _SAMEFIELDS != 0:
            self.field_pos = self._field_next
            self.field_text = lp.decode(self._field_next)
            self._field_next = lp.at_next
        else:
            self.field_pos = pos
            self.field_text = lp.decode(pos)
            pos = lp.at_next
            self._ahead -= 1
        if self.field_text:
            self.field_start = lp.at_start
            self.field_len = lp.at_len
        else:
            self.field_int = lp.at_int
        self.value_pos = pos
        self.value_text = lp.decode(pos)
        if self.value_text:
            self.value_start = lp.at_start
            self.value_len = lp.at_len
        else:
            self.value_int = lp.at_int
        self._pos = lp.at_next
        self._ahead -= 1
        return True

    @cython.cfunc
    def skip_fields(self, pos: cython.Py_ssize_t) -> cython.bint:
        """Continue at `pos`, behind the last value of the entry, which the caller has found."""
        self._fields_left = 0
        self._pos = pos
        self._ahead = 1
        return True

    def fields(self) -> list[bytes]:
        """Return the remaining names and values of the entry, alternating."""
        words: list[bytes] = []
        lp: Listpack | None = self.lp
        while lp is not None and self.next_field():
            words.append(lp.get_bytes(self.field_pos))
            words.append(lp.get_bytes(self.value_pos))
        return words

    @cython.ccall
    def remove_current(self) -> cython.bint:
        """Delete the current entry and continue after it. Redis: streamIteratorRemoveEntry.

        The caller updates the stream's first and greatest deleted ID, as `Stream.delete` does.
        """
        self.remove_and_stop()
        if self._reverse:
            self.end_ms = self.ms
            self.end_seq = self.seq
        else:
            self.start_ms = self.ms
            self.start_seq = self.seq
        return self._seek()

    @cython.ccall
    def remove_and_stop(self) -> cython.bint:
        """Delete the current entry and end the iteration."""
        lp: Listpack | None = self.lp
        stream: StreamNodes = self.stream  # type: ignore[assignment]
        if lp is None or self._flags_pos == lp.used - 1:
            raise ValueError("the iterator is not at an entry: call next_entry first")
        key: bytes = encode_key(self._master_ms, self._master_seq)
        stream.thaw(key, lp)
        if stream.tail is lp:
            stream.tail = None
        if stream.head is lp:
            stream.head = None
        stream.moved()
        if stream.sums is not None:
            stream.sums.forget(key)
        before: cython.Py_ssize_t = len(lp.buf)
        mark_deleted(lp, self._flags_pos, self.flags)
        if int_at(lp, _COUNT) == 1:
            stream.remove_node(key, before)
        else:
            count_deleted(lp, 1)
            stream.node_bytes += len(lp.buf) - before
        stream.length = (stream.length - 1) & _MAX
        self._over = True
        return True

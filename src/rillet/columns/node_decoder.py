"""Converts listpack nodes of a stream into rows: nodes of a stream in this process, or nodes in a server's reply.

A node is a listpack (types/stream/node.py draws it): a master entry with field names, then entries as deltas to it.
`NodeReader` reads it in place, in the stream's own buffer or in a received reply (node_pages.py):

    master  count deleted n name 1 ... name n 0          field names, shared by all entries with SAMEFIELDS
    entry   flags ms seq value 1 ... value n lp-count    an entry with the master's names (flag SAMEFIELDS)
    entry   flags ms seq m name 1 value 1 ... lp-count   an entry with its own names

For each value it sets `start` and `size`, or `number`, of the field's column, and the `RowBuilder` appends the values.
Listpacks store decimal integers as numbers, so a number for a long column is never converted to text. The first byte of
an element contains its size, so values of fields without a column are skipped.

    decoder = NodeDecoder(rows, stream, after, last)    a stream in this process, with its owner's lock held
    while decoder.decode() == FULL:
        ...                                              take the rows

The stream must not change between two calls of `decode`. After a change, make a new decoder that starts after the last
decoded ID (`last_ms`, `last_seq`).

**Nodes may be hostile.** Every position is compared with the node's end before a byte is read. Corrupt is raised if an
entry's lp-count is wrong, if the master entry is incomplete, or if the node's key does not have 16 bytes.

Cost: O(elements) of the entries. Compiled, an entry of five short fields takes 0.13 microseconds with six columns. A
call that returns its result in attributes is slow, so the code reads the most common elements (texts of up to 63 bytes,
numbers of 7 and 13 bits) without a call.
Rejected: StreamIterator (it decodes every name again, and each value needs a call that checks the whole element); a
Listpack for each node of a reply (a copy of every byte).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rillet._cython import cython, public, readonly
from rillet.columns.column import Column
from rillet.columns.row_builder import RowBuilder, Shape, Slot
from rillet.errors import Corrupt
from rillet.structs.listpack import Listpack, is_int64, parse_int64
from rillet.types.stream.id import encode_key, key_ms, key_seq, less, undelta
from rillet.types.stream.node import validate_node
from rillet.types.stream.nodes import NodeIterator, StreamNodes

if cython.compiled:
    from cython.cimports.libc.string import memcmp  # type: ignore[import-not-found, unused-ignore]

FULL, DONE = 1, 2
_HEADER = cython.declare(cython.Py_ssize_t, 6)
_DELETED = cython.declare(cython.longlong, 1)
_SAMEFIELDS = cython.declare(cython.longlong, 2)
_ABSENT = cython.declare(cython.Py_ssize_t, -1)
_NUMBER = cython.declare(cython.Py_ssize_t, -2)
_SIGN = cython.declare(cython.ulonglong, 1 << 63)
_MAX_INT = cython.declare(cython.longlong, (1 << 63) - 1)
_MASK = cython.declare(cython.ulonglong, (1 << 64) - 1)
_U32 = cython.declare(cython.longlong, 0xFFFFFFFF)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _little(data: cython.p_const_uchar, p: cython.Py_ssize_t, n: cython.Py_ssize_t) -> cython.longlong:
    """Read the signed little-endian number of n bytes at p."""
    bits: cython.ulonglong = 0
    rest: cython.longlong
    i: cython.Py_ssize_t
    byte: cython.ulonglong
    for i in range(n):
        byte = data[p + i]
        bits |= byte << (8 * i)
    if not bits >> (8 * n - 1):
        return bits
    if n < 8:
        rest = bits
        return rest - (cython.cast(cython.longlong, 1) << (8 * n))
    rest = bits - _SIGN
    return rest - _MAX_INT - 1


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _undelta(base: cython.ulonglong, stored: cython.longlong) -> cython.ulonglong:
    """Return base + stored modulo 2^64, as `undelta` does; without a call into its module if stored >= 0."""
    if stored >= 0:
        return (base + cython.cast(cython.ulonglong, stored)) & _MASK
    return undelta(base, stored)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _backlen(n: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """Return the size of the backlen of an element of n bytes (listpack.c: lpEncodeBacklen, with its `<`)."""
    if n <= 127:
        return 1
    if n < 16383:
        return 2
    if n < 2097151:
        return 3
    if n < 268435455:
        return 4
    return 5


@cython.final
@cython.cclass
class NodeReader:
    """Decodes one node after another into the builder `rows`: entries with IDs above `after`, up to `last`.

    `last_ms` and `last_seq` are the ID of the last decoded entry; before the first one, `after`. `over` is set when an
    entry has an ID above `last`.
    """

    __slots__ = (
        "rows", "max_rows", "max_bytes", "after_ms", "after_seq", "end_ms", "end_seq", "last_ms", "last_seq", "over",
        "entries", "buf", "pos", "stop", "master_ms", "master_seq", "shape", "names", "start", "size", "number", "next",
    )  # fmt: skip
    rows: public[RowBuilder]
    max_rows: public[cython.Py_ssize_t]
    max_bytes: public[cython.Py_ssize_t]
    after_ms: cython.ulonglong
    after_seq: cython.ulonglong
    end_ms: cython.ulonglong
    end_seq: cython.ulonglong
    last_ms: readonly[cython.ulonglong]
    last_seq: readonly[cython.ulonglong]
    entries: readonly[cython.Py_ssize_t]  # the number of decoded entries
    over: readonly[cython.bint]
    buf: bytearray
    pos: cython.Py_ssize_t
    stop: cython.Py_ssize_t  # the position of the node's final 0xFF
    master_ms: cython.ulonglong
    master_seq: cython.ulonglong
    shape: Shape
    names: bytes  # the master entry's field names as listpack bytes, compared with the next node's names
    start: cython.Py_ssize_t  # position of the text that _item read
    size: cython.Py_ssize_t
    number: cython.longlong  # the number that _item read
    next: cython.Py_ssize_t  # the position of the next element

    def __init__(
        self, rows: RowBuilder, after: Sequence[int], last: Sequence[int],
        max_rows: int = 16384, max_bytes: int = 32 << 20,
    ) -> None:  # fmt: skip
        """Create a decoder. A batch is full after max_rows entries or max_bytes bytes of entries."""
        self.rows = rows
        self.max_rows = max_rows
        self.max_bytes = max_bytes
        self.after_ms = self.last_ms = after[0]
        self.after_seq = self.last_seq = after[1]
        self.end_ms = last[0]
        self.end_seq = last[1]
        self.over = False
        self.entries = 0
        self.buf = bytearray()
        self.pos = self.stop = self.start = self.size = self.number = self.next = 0
        self.master_ms = self.master_seq = 0
        self.shape = None  # type: ignore[assignment]
        self.names = b""

    # ---- listpack elements -----------------------------------------------------------------------------------

    @cython.cfunc
    @cython.inline
    @cython.exceptval(-1, check=False)
    def _item(self, data: cython.p_const_uchar, p: cython.Py_ssize_t) -> cython.bint:
        """Read the listpack element at p. Return True for a text (in start, size), False for `number`. Set `next`."""
        byte: cython.int
        size: cython.Py_ssize_t
        if p >= self.stop:
            raise Corrupt("stream node: an entry extends past the node's end")
        byte = data[p]
        if byte < 0x80:
            self.number = byte
            self.next = p + 2
        elif byte < 0xC0:
            size = byte & 0x3F
            self.start = p + 1
            self.size = size
            self.next = p + 2 + size
            if self.next > self.stop:
                raise Corrupt("stream node: an entry extends past the node's end")
            return True
        elif byte < 0xE0:
            self.number = ((byte & 0x1F) << 8) | data[p + 1]
            if self.number >= 4096:
                self.number -= 8192
            self.next = p + 3
        else:
            return self._wide_item(data, p, byte)
        if self.next > self.stop:
            raise Corrupt("stream node: an entry extends past the node's end")
        return False

    @cython.cfunc
    def _wide_item(self, data: cython.p_const_uchar, p: cython.Py_ssize_t, byte: cython.int) -> cython.bint:
        """Read a listpack element with one of the less common encodings. Parameters and result as in `_item`."""
        stop: cython.Py_ssize_t = self.stop
        size: cython.Py_ssize_t
        text: cython.bint = False
        if byte < 0xF0:
            self.size = ((byte & 0x0F) << 8) | data[p + 1]
            self.start = p + 2
            text = True
        elif byte == 0xF0 and p + 5 <= stop:
            size = _little(data, p + 1, 4)
            self.size = size & _U32
            self.start = p + 5
            text = True
        elif 0xF1 <= byte <= 0xF4:
            size = 8 if byte == 0xF4 else byte - 0xEF
            if p + 1 + size > stop:
                raise Corrupt("stream node: an entry extends past the node's end")
            self.number = _little(data, p + 1, size)
            self.next = p + 2 + size
        else:
            raise Corrupt("stream node: an element has an unknown encoding byte")
        if text:
            size = self.start - p + self.size
            self.next = p + size + _backlen(size)
        if self.next > stop:
            raise Corrupt("stream node: an entry extends past the node's end")
        return text

    @cython.cfunc
    @cython.inline
    @cython.exceptval(-77777777777, check=True)
    def _int(self, data: cython.p_const_uchar, p: cython.Py_ssize_t) -> cython.longlong:
        """Return the number at p, which may be stored as text (listpack.c: lpGetIntegerIfValid)."""
        if self._item(data, p):
            return self._int_of_text()
        return self.number

    @cython.cfunc
    @cython.inline
    @cython.exceptval(-77777777777, check=True)
    def _small(self, data: cython.p_const_uchar, p: cython.Py_ssize_t) -> cython.longlong:
        """Return the number at p, fast for numbers of 7 and 13 bits. p is at most `stop`, the position of 0xFF."""
        byte: cython.int = data[p]
        number: cython.longlong
        if byte < 0x80 and p + 2 <= self.stop:
            self.next = p + 2
            return byte
        if 0xC0 <= byte < 0xE0 and p + 3 <= self.stop:
            self.next = p + 3
            number = ((byte & 0x1F) << 8) | data[p + 1]
            return number - 8192 if number >= 4096 else number
        return self._int(data, p)

    @cython.cfunc
    @cython.exceptval(-77777777777, check=True)
    def _int_of_text(self) -> cython.longlong:
        text: bytes = bytes(self.buf[self.start : self.start + self.size])
        if not is_int64(text):
            raise Corrupt("stream node: an element has text in place of a number")
        return parse_int64(text)

    # ---- one node --------------------------------------------------------------------------------------------

    @cython.ccall
    def open(
        self, buf: bytearray, start: cython.Py_ssize_t, size: cython.Py_ssize_t,
        ms: cython.ulonglong, seq: cython.ulonglong,
    ) -> cython.bint:  # fmt: skip
        """Start to decode the node buf[start:start + size] with its master ID. buf must not change until DONE."""
        data: cython.p_const_uchar = buf
        count: cython.longlong
        if start < 0 or size < 0 or start > len(buf) - size:
            raise IndexError("the node would exceed the buffer")
        if size <= _HEADER or _little(data, start, 4) & _U32 != size or data[start + size - 1] != 0xFF:
            raise Corrupt("stream node: the bytes are not a listpack")
        self.buf = buf
        self.stop = start + size - 1
        self.master_ms = ms
        self.master_seq = seq
        count = self._int(data, start + _HEADER)
        if count < 0 or self._int(data, self.next) < 0:
            raise Corrupt("stream node: the master entry has a negative count of entries")
        count = self._int(data, self.next)
        if count < 0 or count > size:
            raise Corrupt("stream node: the number of fields is negative or exceeds the node")
        self._read_names(data, self.next, count)
        if self._int(data, self.next) != 0:
            raise Corrupt("stream node: the master entry does not end with 0")
        self.pos = self.next
        return True

    @cython.cfunc
    def _read_names(self, data: cython.p_const_uchar, first: cython.Py_ssize_t, count: cython.longlong) -> cython.bint:
        """Read the master entry's field names into `shape`, unless they equal those of the previous node."""
        size: cython.Py_ssize_t = len(self.names)
        names: list[bytes]
        p: cython.Py_ssize_t = first
        if self.shape is not None and self.shape.count == count and first + size <= self.stop:
            if self._same_names(data, first, size):
                self.next = first + size
                return True
        names = []
        while count > 0:
            names.append(self._word(data, p))
            p = self.next
            count -= 1
        self.shape = self.rows.shape_of(names)
        self.names = bytes(self.buf[first:p])
        self.next = p
        return True

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def _same_names(self, data: cython.p_const_uchar, p: cython.Py_ssize_t, n: cython.Py_ssize_t) -> cython.bint:
        if cython.compiled:
            names: cython.p_const_uchar = self.names
            return memcmp(data + p, names, n) == 0
        return self.buf[p : p + n] == self.names

    @cython.cfunc
    def _word(self, data: cython.p_const_uchar, p: cython.Py_ssize_t) -> bytes:
        """Return the listpack element at p as bytes."""
        if self._item(data, p):
            return bytes(self.buf[self.start : self.start + self.size])
        return b"%d" % self.number

    @cython.ccall
    def decode(self) -> cython.int:
        """Decode the node's entries; return FULL when the batch is full, DONE at the end of the node."""
        rows: RowBuilder = self.rows
        data: cython.p_const_uchar = self.buf
        while self.pos < self.stop:
            if rows.length >= self.max_rows or rows.nbytes >= self.max_bytes:
                return 1
            self._entry(data)
        return 2

    @cython.cfunc
    def _entry(self, data: cython.p_const_uchar) -> cython.bint:
        """Decode the entry at the current position. Skip it if it is deleted or outside the requested range."""
        p: cython.Py_ssize_t = self.pos
        flags: cython.longlong = self._small(data, p)
        ms: cython.ulonglong = _undelta(self.master_ms, self._small(data, self.next))
        seq: cython.ulonglong = _undelta(self.master_seq, self._small(data, self.next))
        count: cython.longlong = self.shape.count
        elements: cython.longlong = count + 3
        if ms > self.end_ms or (ms == self.end_ms and seq > self.end_seq):
            self.over = True
            self.pos = self.stop
            return False
        if flags & _SAMEFIELDS == 0:
            count = self._int(data, self.next)
            if count < 0 or count > self.stop - p:
                raise Corrupt("stream node: the number of fields is negative or exceeds the node")
            elements = 2 * count + 4
        if flags & _DELETED != 0 or ms < self.after_ms or (ms == self.after_ms and seq <= self.after_seq):
            while count > 0:
                self._item(data, self.next)
                if flags & _SAMEFIELDS == 0:
                    self._item(data, self.next)
                count -= 1
        else:
            if flags & _SAMEFIELDS != 0:
                self._values(data, self.next, ms, seq)
            else:
                self._pairs(data, self.next, count, ms, seq)
            self.rows.nbytes += self.next - p + 16
            self.last_ms = ms
            self.last_seq = seq
            self.entries += 1
        if self._small(data, self.next) != elements:
            raise Corrupt("stream node: the lp-count of an entry differs from its number of elements")
        self.pos = self.next
        return True

    @cython.cfunc
    @cython.inline
    @cython.exceptval(-1, check=False)
    def _values(
        self, data: cython.p_const_uchar, p: cython.Py_ssize_t, ms: cython.ulonglong, seq: cython.ulonglong
    ) -> cython.bint:
        """Add a row for an entry with the master entry's names. Set `next` to the position after its last value."""
        rows: RowBuilder = self.rows
        slot: Slot = self.shape.first
        items: Column = rows.items
        stop: cython.Py_ssize_t = self.stop
        first: cython.Py_ssize_t = p
        start: cython.Py_ssize_t
        size: cython.Py_ssize_t
        rows.begin_as(self.shape, ms, seq)
        if items is not None:  # the map column repeats the names in every row, although the node stores them once
            rows.nbytes += len(self.shape.texts)
        while slot is not None:
            if p < stop and 0x80 <= data[p] < 0xC0:  # a text of up to 63 bytes, the most common value
                size = data[p] & 0x3F
                start = p + 1
                p += size + 2
                if p > stop:
                    raise Corrupt("stream node: an entry extends past the node's end")
                if items is not None:
                    items.put_text(data, start, size, stop)
                if slot.owner is not None:
                    slot.owner.start = start
                    slot.owner.size = size
            else:
                self._give(data, p, slot.owner, items)
                p = self.next
            slot = slot.next
        self.next = p
        if not rows.finish_in(data, self.stop):
            self._malformed(data, first, self.shape.first, 0)
            self.next = p
        return True

    @cython.cfunc
    def _give(
        self, data: cython.p_const_uchar, p: cython.Py_ssize_t, owner: Column | None, items: Column | None
    ) -> cython.bint:
        """Store the value at p in its field's column, and append it to the map column."""
        if self._item(data, p):
            if items is not None:
                items.put_text(data, self.start, self.size, self.stop)
            if owner is not None:
                owner.start = self.start
                owner.size = self.size
        else:
            if items is not None:
                items.put_number(self.number)
            if owner is not None:
                owner.number = self.number
                owner.size = _NUMBER
        return True

    @cython.cfunc
    def _pairs(
        self, data: cython.p_const_uchar, p: cython.Py_ssize_t, count: cython.longlong,
        ms: cython.ulonglong, seq: cython.ulonglong,
    ) -> cython.bint:  # fmt: skip
        """Add a row for an entry with its own field names. Set `next` to the position after its last value."""
        rows: RowBuilder = self.rows
        name: bytearray
        first: cython.Py_ssize_t = p
        left: cython.longlong = count
        rows.begin(ms, seq)
        while left > 0:
            if self._item(data, p):
                rows.name(self.buf, self.start, self.size)
            else:
                name = bytearray(b"%d" % self.number)
                rows.name(name, 0, len(name))
            if self._item(data, self.next):
                rows.text(self.buf, self.start, self.size)
            else:
                rows.number(self.number)
            p = self.next
            left -= 1
        self.next = p
        if not rows.finish_in(data, self.stop):
            self._malformed(data, first, None, count)
            self.next = p
        return True

    @cython.cfunc
    def _malformed(
        self, data: cython.p_const_uchar, p: cython.Py_ssize_t, slot: Slot | None, count: cython.longlong
    ) -> cython.bint:
        """Pass all fields of an entry with malformed values to `rows.malformed`."""
        pairs: list[tuple[bytes, bytes]] = []
        name: bytes
        while slot is not None:
            pairs.append((slot.name, self._word(data, p)))
            p = self.next
            slot = slot.next
        while count > 0:
            name = self._word(data, p)
            pairs.append((name, self._word(data, self.next)))
            p = self.next
            count -= 1
        self.rows.malformed(pairs)
        return True


@cython.final
@cython.cclass
class NodeDecoder:
    """Decodes the entries of an in-process stream with IDs above `after`, up to `last`, into the builder `rows`."""

    __slots__ = ("reader", "nodes", "busy")
    reader: readonly[NodeReader]
    nodes: NodeIterator
    busy: cython.bint

    def __init__(
        self, rows: RowBuilder, stream: StreamNodes, after: Sequence[int], last: Sequence[int],
        max_rows: int = 16384, max_bytes: int = 32 << 20,
    ) -> None:  # fmt: skip
        """Create a decoder. A batch is full after max_rows entries or max_bytes bytes of entries."""
        self.reader = NodeReader(rows, after, last, max_rows, max_bytes)
        self.nodes = NodeIterator(stream)
        self.busy = False
        if not self.nodes.seek("<=", encode_key(after[0], after[1])):
            self.nodes.seek("^")

    @property
    def last_ms(self) -> int:
        """The milliseconds of the last decoded ID."""
        return self.reader.last_ms

    @property
    def last_seq(self) -> int:
        """The sequence number of the last decoded ID."""
        return self.reader.last_seq

    @cython.ccall
    def decode(self) -> cython.int:
        """Decode the next entries. Return FULL when the batch is full, DONE at the end of the range."""
        reader: NodeReader = self.reader
        lp: Listpack
        while True:
            if self.busy and reader.decode() == 1:
                return 1
            self.busy = False
            if reader.over or not self.nodes.next():
                return 2
            if less(reader.end_ms, reader.end_seq, key_ms(self.nodes.key), key_seq(self.nodes.key)):
                reader.over = True
                return 2
            lp = self.nodes.node()
            reader.open(lp.buf, 0, lp.used, key_ms(self.nodes.key), key_seq(self.nodes.key))
            self.busy = True


def nodes_of(nodes: Iterable[tuple[bytes, bytes]]) -> StreamNodes:
    """Build a tree of nodes from (16-byte master ID, listpack bytes) pairs. Raise Corrupt if a node is malformed."""
    stream = StreamNodes()
    for key, data in nodes:
        if len(key) != 16:
            raise Corrupt("stream node: the key must be an ID of 16 bytes")
        node = Listpack.from_bytes(data, True)
        if not validate_node(node, True):
            raise Corrupt("stream node: the bytes are not a valid node")
        stream.rax.insert(key, node)
    return stream

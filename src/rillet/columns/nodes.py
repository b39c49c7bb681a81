"""Listpack nodes of a stream, straight into columns: the way for a stream of one's own process, or shipped whole.

`NodeDecoder` walks the range with a StreamIterator, which leaves every name and value as positions in the node's
listpack (or as a number: listpacks store decimal integers as such), and hands them to the same `Rows` that takes
replies off a socket. No reply is written, none is parsed, and a number in a long column is never a text.

    decoder = NodeDecoder(rows, stream, after_ms, after_seq, last_ms, last_seq)
    while decoder.decode() == FULL:     # take the rows, go on
        ...

The stream must not change between two calls of `decode` (the owner's lock is held meanwhile), or the decoder
must be made anew after the last ID that it gave (`last_ms`, `last_seq`).

`nodes_of` makes nodes that arrived as bytes walkable: `(master ID as 16 bytes, listpack bytes)`, checked as a DUMP
payload is, because they came from outside.

Cost: O(boxes) of the entries, and half a node to find the first.
"""

from __future__ import annotations

from collections.abc import Iterable

try:
    import cython
except ModuleNotFoundError:  # interpreted, Cython not installed
    from rillet import _cython as cython

from rillet.columns.builder import Rows
from rillet.errors import Corrupt
from rillet.structs.listpack import Listpack
from rillet.types.stream_iterator import StreamIterator, StreamNodes

if not cython.compiled:  # compiled code has it as a C function, through the .pxd
    from rillet.types.stream_node import validate_node


@cython.final
@cython.cclass
class NodeDecoder:
    """Decodes the entries of (after, last] into `rows`, batch by batch."""

    __slots__ = ("rows", "max_rows", "max_bytes", "last_ms", "last_seq", "iterator")
    rows: Rows
    max_rows: cython.Py_ssize_t
    max_bytes: cython.Py_ssize_t
    last_ms: cython.ulonglong
    last_seq: cython.ulonglong
    iterator: StreamIterator

    def __init__(
        self, rows: Rows, stream: StreamNodes, after: tuple[int, int], last: tuple[int, int],
        max_rows: int = 16384, max_bytes: int = 32 << 20,
    ) -> None:  # fmt: skip
        """A batch is full at max_rows entries or max_bytes of them, whichever comes first."""
        start = ((after[0] << 64) | after[1]) + 1
        if start >> 128:  # nothing comes after the largest ID: a range that is empty
            start, last = 1, (0, 0)
        self.rows = rows
        self.max_rows = max_rows
        self.max_bytes = max_bytes
        self.last_ms, self.last_seq = after
        self.iterator = StreamIterator(stream, start >> 64, start & 0xFFFF_FFFF_FFFF_FFFF, last[0], last[1], False)

    @cython.ccall
    def decode(self) -> cython.int:
        """Decode until the batch is full (FULL) or the range has ended (DONE), the constants of `resp`."""
        rows: Rows = self.rows
        it: StreamIterator = self.iterator
        lp: Listpack
        while rows.length < self.max_rows and rows.nbytes < self.max_bytes:
            if not it.next_entry():
                return 2
            lp = it.lp  # type: ignore[assignment]  # there is one while next_entry is True
            rows.begin(it.ms, it.seq)
            while it.next_field():
                self._field(it, lp.buf)
            rows.finish(lp.buf)
            self.last_ms = it.ms
            self.last_seq = it.seq
        return 1

    @cython.cfunc
    @cython.inline
    def _field(self, it: StreamIterator, buf: bytearray) -> cython.bint:
        """Hand over the field that the iterator is at."""
        rows: Rows = self.rows
        name: bytes
        if it.field_text:
            rows.name(buf, it.field_start, it.field_len)
        else:
            name = b"%d" % it.field_int
            rows.name(bytearray(name), 0, len(name))
        if it.value_text:
            rows.text(buf, it.value_start, it.value_len)
            rows.nbytes += it.value_len
        else:
            rows.number(it.value_int)
        rows.nbytes += 16
        return True


def nodes_of(shipped: Iterable[tuple[bytes, bytes]]) -> StreamNodes:
    """Return nodes given as (16-byte master ID, listpack bytes) in a walkable form; Corrupt where one is not sound."""
    stream = StreamNodes()
    for key, data in shipped:
        if len(key) != 16:
            raise Corrupt("a stream node's key is an ID of 16 bytes")
        node = Listpack.from_bytes(data, True)
        if not validate_node(node, True):
            raise Corrupt("a stream node is not sound")
        stream.rax.insert(key, node)
    return stream

"""Decodes replies to RILLET.XNODES, which contain whole stream nodes, without copying the nodes.

    *  $ next ID or nil  $ first ID or nil  $ 16 bytes  $ listpack  $ 16 bytes  $ listpack ...

`NodePages` is a `ReceiveBuffer`. It opens each node for a `NodeReader` (node_decoder.py), which fills the rows:

    pages = NodePages(NodeReader(rows, after, last))
    pages.decode()
        ANSWER   the head of a reply: pages.go_on is the ID to continue after (None ends the range), pages.first is
                 the stream's first ID. The request for the next page can leave now
        MORE     receive into pages.space(n)
        FULL     take the rows, then decode again
        DONE     the reply is complete

The reader decodes a node in the receive buffer, so receive no bytes between FULL and MORE. This module checks
lines and lengths, the reader checks nodes. Cost: O(lines); a node of a hundred entries has two.
"""

from __future__ import annotations

from rillet._cython import cython, public, readonly
from rillet.columns.node_decoder import NodeReader
from rillet.columns.receive_buffer import ReceiveBuffer
from rillet.columns.resp_decoder import ReplyFailed
from rillet.errors import Corrupt, ProtocolError
from rillet.structs.memory import copy_out
from rillet.types.stream.id import StreamID, key_ms, key_seq

MORE, FULL, DONE, ANSWER = range(4)
_MAX_LENGTH = cython.declare(cython.Py_ssize_t, 1 << 32)
_INCOMPLETE = cython.declare(cython.Py_ssize_t, -2)
_NULL = cython.declare(cython.Py_ssize_t, -1)


@cython.final
@cython.cclass
class NodePages(ReceiveBuffer):
    """Decodes replies to RILLET.XNODES into the rows of a NodeReader."""

    __slots__ = ("reader", "after", "left", "busy", "go_on", "first", "parsed")
    reader: public[NodeReader]
    after: cython.Py_ssize_t
    left: cython.Py_ssize_t  # number of undecoded elements of the reply; -1: no reply has begun
    busy: cython.bint
    go_on: readonly[StreamID | None]
    first: readonly[StreamID | None]
    parsed: StreamID | None  # the ID that _identifier read

    def __init__(self, reader: NodeReader) -> None:
        ReceiveBuffer.__init__(self, 1 << 16)
        self.reader = reader
        self.after = 0
        self.left = -1
        self.busy = False
        self.go_on = self.first = self.parsed = None

    def space(self, n: int) -> memoryview:
        """Return a memoryview to receive at least n bytes into, after MORE. Release it before the next call."""
        if self.busy:
            raise AssertionError("the buffer is in use: decode until MORE")
        return ReceiveBuffer.space(self, n)

    @cython.ccall
    def decode(self) -> cython.int:
        """Decode the received bytes; return MORE, FULL, DONE, or ANSWER once for each reply."""
        while True:
            if self.busy and self.reader.decode() == 1:
                return 1
            self.busy = False
            if self.left == 0:
                self.left = -1
                return 2
            if self.left < 0:
                if not self._head():
                    return 0
                return 3
            if not self._node():
                return 0

    @cython.cfunc
    def _head(self) -> cython.bint:
        """Read the head of a reply: next ID and first ID. Return False if they have not arrived completely."""
        count: cython.Py_ssize_t = self._length(self.pos, 0x2A)
        if count == _INCOMPLETE:
            return False
        if count < 2 or count & 1:
            raise ProtocolError("invalid reply to RILLET.XNODES")
        if not self._identifier():
            return False
        self.go_on = self.parsed
        if not self._identifier():
            return False
        self.first = self.parsed
        self.pos = self.after
        self.left = count - 2
        return True

    @cython.cfunc
    def _identifier(self) -> cython.bint:
        """Read an ID or null at the position `after`, and advance `after`. Return False if it is incomplete."""
        size: cython.Py_ssize_t = self._length(self.after, 0x24)
        p: cython.Py_ssize_t = self.after
        self.parsed = None
        if size == _INCOMPLETE or (size != _NULL and size > self.end - p - 2):
            return False
        if size != _NULL:
            try:
                self.parsed = StreamID.parse(bytes(self.buf[p : p + size]))
            except ValueError:
                raise ProtocolError("invalid ID in a reply to RILLET.XNODES") from None
            self.after = p + size + 2
        return True

    @cython.cfunc
    def _node(self) -> cython.bint:
        """Pass the reply's next node to the reader. Return False if the node is incomplete."""
        key: bytes
        p: cython.Py_ssize_t
        size: cython.Py_ssize_t = self._length(self.pos, 0x24)
        if size == _INCOMPLETE:
            return False
        if size != 16:
            raise Corrupt("stream node: the key must be an ID of 16 bytes")
        if self.after + 18 > self.end:
            return False
        key = copy_out(self.buf, self.after, 16)
        size = self._length(self.after + 18, 0x24)
        p = self.after
        if size == _NULL:
            raise Corrupt("a stream node is null")
        if size == _INCOMPLETE or size > self.end - p - 2:
            return False
        self.reader.open(self.buf, p, size, key_ms(key), key_seq(key))
        self.busy = True
        self.pos = p + size + 2
        self.left -= 2
        return True

    @cython.cfunc
    @cython.exceptval(-3, check=False)
    def _length(self, p: cython.Py_ssize_t, kind: cython.int) -> cython.Py_ssize_t:
        """Return the length in the line at p (`*3`, `$16`; null is -1), and set `after`; -2 if incomplete."""
        buf: bytearray = self.buf
        n: cython.Py_ssize_t = 0
        i: cython.Py_ssize_t = p + 1
        if p < self.end and buf[p] == kind:
            while i < self.end and i < p + 12 and 0x30 <= buf[i] <= 0x39:
                n = n * 10 + (buf[i] - 0x30)
                i += 1
            if i > p + 1 and i + 1 < self.end and buf[i] == 13 and buf[i + 1] == 10 and n <= _MAX_LENGTH:
                self.after = i + 2
                return n
        return self._other_line(p, kind)

    @cython.cfunc
    @cython.exceptval(-3, check=False)
    def _other_line(self, p: cython.Py_ssize_t, kind: cython.int) -> cython.Py_ssize_t:
        """Handle a line that is not a length: return -1 for null, -2 if incomplete; raise an error for any other."""
        line_end: cython.Py_ssize_t = self.buf.find(b"\r\n", p, min(self.end, p + 65536))
        line: bytes
        if line_end < 0:
            if self.end - p >= 65536:
                raise ProtocolError("a line of a reply has no end")
            return _INCOMPLETE
        line = bytes(self.buf[p:line_end])
        self.after = line_end + 2
        if line == b"$-1" or line == b"_":
            return _NULL
        if line[:1] == b"-":
            self.pos = self.after
            raise ReplyFailed(line[1:].decode("utf-8", "replace"))
        if len(line) < 2 or len(line) > 12 or line[0] != kind:
            raise ProtocolError(f"unexpected line in a reply to RILLET.XNODES: {line[:64]!r}")
        raise ProtocolError("invalid length in a reply")

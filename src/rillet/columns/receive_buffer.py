"""A buffer that a connection receives into and a decoder reads in place.

    buf   |  decoded  |  received, not yet decoded  |  room  |
          0           pos                           end      len(buf)

A connection receives into the room without a copy (`space`, `filled`). A decoder, which is a subclass, reads between
`pos` and `end`. Before the next receive, `space` moves the undecoded bytes to the front. If that frees too little, it
grows the buffer, which never shrinks.

The engine in the same process needs no connection: `exchange` swaps the buffer for the one that holds its replies.

Cost: a receive moves only the undecoded bytes, which are less than one entry or node; an exchange is O(1). Rejected:
ReadBuffer of protocol/read_buffer.py, which stores received chunks as separate `bytes` objects. Columns need one
address.
"""

from __future__ import annotations

from rillet._cython import cython, public
from rillet.protocol.reply_writer import ReplyWriter


@cython.cclass
class ReceiveBuffer:
    """A buffer that a connection receives into and a decoder reads from."""

    __slots__ = ("buf", "pos", "end")
    buf: public[bytearray]
    pos: public[cython.Py_ssize_t]
    end: public[cython.Py_ssize_t]

    def __init__(self, size: int) -> None:
        self.buf = bytearray(size)
        self.pos = self.end = 0

    def check(self) -> None:
        """Assert the order of the positions."""
        assert 0 <= self.pos <= self.end <= len(self.buf)

    def space(self, n: int) -> memoryview:
        """Return room for at least n bytes to receive into; release it before the next call of any method."""
        if self.pos:
            self.buf[: self.end - self.pos] = self.buf[self.pos : self.end]
            self.end -= self.pos
            self.pos = 0
        if len(self.buf) - self.end < n:
            self.buf.extend(bytes(n + len(self.buf)))
        with memoryview(self.buf) as whole:
            return whole[self.end :]

    def filled(self, n: int) -> None:
        """Record that n bytes were received into the room."""
        if not 0 <= n <= len(self.buf) - self.end:
            raise ValueError("the received bytes exceed the room")
        self.end += n

    def feed(self, data: bytes) -> None:
        """Append bytes that were received elsewhere."""
        with self.space(len(data)) as room:
            room[: len(data)] = data
        self.filled(len(data))

    def exchange(self, out: ReplyWriter) -> None:
        """Receive all replies of a writer: exchange the buffers, or copy the replies if this buffer is not empty.

        A copy of a page costs little, but the page faults of a new buffer for each page cost more than the decoding.
        """
        self.space(0).release()  # moves undecoded bytes to the front; fails if the buffer is in use
        if self.end:
            self.feed(out.take_bytes())
            return
        if not out.used:  # a writer without a reply may hold the buffer that all such writers share
            return
        received: bytearray = out.buf
        out.use_buffer(self.buf)
        self.buf = received
        self.end, out.used = out.used, 0

"""Inbox: bytes of replies, received where they are decoded.

    buf   |  decoded  |  received, not yet decoded  |  room  |
          0           pos                           end      len(buf)

A connection receives into the room (`space`, `filled`: no copy in between), and the decoder that is made on it reads
from `pos` on and never beyond `end`. Before it receives more, what is not decoded yet moves to the front; the buffer
grows where that leaves too little, and never shrinks.

Cost: each byte is moved at the most once for each time that is received, and a decoder leaves less than an entry or a
node behind. Rejected: protocol/read_buffer.py, which keeps the chunks that it is fed, where here there is but one
buffer,
whose address a decoder can hand to columns.
"""

from __future__ import annotations

try:
    import cython
except ModuleNotFoundError:  # interpreted, Cython not installed
    from rillet import _cython as cython


@cython.cclass
class ReceiveBuffer:
    """A buffer to receive into, and how far it is filled and decoded."""

    __slots__ = ("buf", "pos", "end")
    buf: bytearray
    pos: cython.Py_ssize_t
    end: cython.Py_ssize_t

    def __init__(self, size: int) -> None:
        self.buf = bytearray(size)
        self.pos = self.end = 0

    def space(self, n: int) -> memoryview:
        """Return room for at least n bytes to receive into; release it before any other call here."""
        if self.pos:
            self.buf[: self.end - self.pos] = self.buf[self.pos : self.end]
            self.end -= self.pos
            self.pos = 0
        if len(self.buf) - self.end < n:
            self.buf.extend(bytes(n + len(self.buf)))
        with memoryview(self.buf) as whole:
            return whole[self.end :]

    def filled(self, n: int) -> None:
        """Say that n bytes were received into the room."""
        if not 0 <= n <= len(self.buf) - self.end:
            raise ValueError("more than there was room for")
        self.end += n

    def feed(self, data: bytes) -> None:
        """Add bytes that were received elsewhere."""
        with self.space(len(data)) as room:
            room[: len(data)] = data
        self.filled(len(data))

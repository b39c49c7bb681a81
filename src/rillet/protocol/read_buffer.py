"""The read buffer: received bytes that are not yet parsed; both parsers of this package build on it.

    data   |.....consumed.....|...unparsed...|          bytes, as received
                              pos            size
    tail                                     |.......|  bytearray, received since

A received `bytes` object is kept and parsed in place. Copies are needed only when a message is split between
two reads: later chunks accumulate in `tail` and are joined to the unparsed rest once they suffice for the
parser's next step. `wanted` is the number of bytes which that step needs, counted from pos; 0 means "up to the
end of the line", and then only the new part of `tail` is searched for `terminator`.

A bulk string of 512 MB that arrives in small chunks is therefore copied a constant number of times. Rejected
alternative: one growing bytearray for all input, because each message then moves the bytes after it (or the
buffer grows without bound), and slices of a bytearray need one more copy.

Invariant: `0 <= pos <= size == len(data)`. After an error (`broken`), the buffer holds no bytes.
"""

from __future__ import annotations

from typing import Any

from rillet._cython import cython, public
from rillet.errors import ProtocolError

if cython.compiled:
    from cython.cimports.libc.string import memchr


@cython.cfunc
@cython.inline
def _find(data: bytes, byte: cython.int, start: cython.Py_ssize_t, stop: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """Return the position of the byte in data[start:stop], or -1; O(stop - start)."""
    if not cython.compiled:
        return data.find(byte, start, stop)
    if start < 0 or stop < start or stop > len(data):
        raise IndexError("the slice is outside the buffer")
    buf: cython.p_const_uchar = data
    found: cython.p_const_uchar = cython.cast(cython.p_const_uchar, memchr(buf + start, byte, stop - start))
    return found - buf if found else -1


_NO_TAIL = bytearray()  # of all buffers without a tail; nothing is ever appended to it


@cython.cclass
class ReadBuffer:
    """Received bytes and the parser's position in them."""

    __slots__ = ("data", "pos", "size", "tail", "wanted", "terminator", "strict", "scanned", "max_line",
                 "broken")  # fmt: skip
    data: bytes
    pos: cython.Py_ssize_t
    size: cython.Py_ssize_t
    tail: bytearray
    wanted: cython.Py_ssize_t
    terminator: cython.int
    strict: public[cython.bint]
    scanned: cython.Py_ssize_t
    max_line: cython.Py_ssize_t
    broken: Any

    def __init__(self) -> None:
        self.data = b""
        self.pos = 0
        self.size = 0
        self.tail = _NO_TAIL
        self.wanted = 1
        self.terminator = 13
        self.strict = False
        self.scanned = 0
        self.max_line = 2**62
        self.broken = None

    @property
    def buffered(self) -> int:
        """Return the number of received bytes that are not parsed yet."""
        return self.size - self.pos + len(self.tail)

    @cython.ccall
    def feed(self, data: bytes) -> cython.bint:
        """Add received bytes; O(1) if all earlier bytes are parsed, otherwise O(len)."""
        if not cython.compiled and type(data) is not bytes:  # compiled code checks the type by its signature
            raise TypeError(f"feed() requires bytes, not {type(data).__name__}")
        if self.broken is not None:
            return False
        if self.pos == self.size and len(self.tail) == 0:
            self.data = data
            self.pos = 0
            self.size = len(data)
        elif self.tail is _NO_TAIL:
            self.tail = bytearray(data)
        else:
            self.tail += data
        return True

    @cython.cfunc
    def refill(self) -> cython.bint:
        """Join `tail` to the unparsed bytes if both suffice for the next step; return False if more are needed."""
        unparsed: cython.Py_ssize_t = self.size - self.pos
        total: cython.Py_ssize_t = unparsed + len(self.tail)
        if self.broken is not None:
            raise ProtocolError(self.broken)
        if total == unparsed or (unparsed > 0 and not self.enough(total)):
            return False
        self.data = b"".join((memoryview(self.data)[self.pos :], self.tail)) if unparsed else bytes(self.tail)
        self.tail = _NO_TAIL
        self.pos = 0
        self.size = total
        self.scanned = 0
        return True

    @cython.cfunc
    def enough(self, total: cython.Py_ssize_t) -> cython.bint:
        """Return whether the available bytes complete the step at which the parser stopped; searches each byte once."""
        if self.wanted > 0:
            return total >= self.wanted
        start: cython.Py_ssize_t = self.scanned
        self.scanned = len(self.tail)
        return total > self.max_line or self.tail.find(self.terminator, start) >= 0

    @cython.cfunc
    def line_end(self, terminator: cython.int) -> cython.Py_ssize_t:
        """Return the end of the line at pos, or -1 if the line or the byte after its CR has not arrived."""
        window: cython.Py_ssize_t = self.size
        if window - self.pos > self.max_line:
            window = self.pos + self.max_line + 1
        end: cython.Py_ssize_t = _find(self.data, terminator, self.pos, window)
        if end < 0:
            self.wanted = 0
            self.terminator = terminator
        elif terminator == 13 and end + 2 > self.size:
            self.wanted = end + 2 - self.pos
            return -1
        return end

    @cython.cfunc
    def forget(self, text: str) -> cython.bint:
        """Drop all bytes and accept no more input. Later calls raise ProtocolError with this text."""
        self.broken = text
        self.data = b""
        self.tail = _NO_TAIL
        self.pos = 0
        self.size = 0
        return True

    @cython.cfunc
    def refuse(self, text: str) -> cython.bint:
        """Drop all bytes and raise a ProtocolError."""
        self.forget(text)
        raise ProtocolError(text)

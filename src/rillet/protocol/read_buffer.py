"""Intake: the bytes fed and not yet parsed; both parsers of this package are made on it.

    data   |.....consumed.....|...unparsed...|          bytes, as they were fed
                              pos            size
    tail                                     |.......|  bytearray, fed since

A fed `bytes` is kept and read in place. Only when a message is cut between two feeds do the pieces
meet: later chunks gather in `tail`, and are joined to the unparsed rest once there is enough for the
parser's next step. `wanted` says how much that is, counted from pos; 0 means "up to a line's end",
and then only the part of `tail` that is new is searched for `terminator`.

So a bulk string of 512 MB that arrives in small chunks costs each of its bytes a constant number of
copies. Rejected: one growing bytearray for everything fed: each message then moves what follows it,
or the buffer grows without end, and a bytearray gives slices through one more copy.

Invariant: `0 <= pos <= size == len(data)`. A parser that was refused (`broken`) holds no bytes.
"""

from __future__ import annotations

from typing import Any

try:
    import cython
except ModuleNotFoundError:  # interpreted, Cython not installed
    from rillet import _cython as cython

from rillet.errors import ProtocolError

if cython.compiled:
    from cython.cimports.libc.string import memchr


@cython.cfunc
@cython.inline
def _find(data: bytes, byte: cython.int, start: cython.Py_ssize_t, stop: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """Return where the byte is in data[start:stop], or -1; O(stop - start)."""
    if not cython.compiled:
        return data.find(byte, start, stop)
    if start < 0 or stop < start or stop > len(data):
        raise IndexError("slice outside the buffer")
    buf: cython.p_const_uchar = data
    found: cython.p_const_uchar = cython.cast(cython.p_const_uchar, memchr(buf + start, byte, stop - start))
    return found - buf if found else -1


@cython.cclass
class ReadBuffer:
    """Fed bytes, and where the parser stands in them."""

    __slots__ = ("data", "pos", "size", "tail", "wanted", "terminator", "scanned", "max_line", "broken")
    data: bytes
    pos: cython.Py_ssize_t
    size: cython.Py_ssize_t
    tail: bytearray
    wanted: cython.Py_ssize_t
    terminator: cython.int
    scanned: cython.Py_ssize_t
    max_line: cython.Py_ssize_t
    broken: Any

    def __init__(self) -> None:
        self.data = b""
        self.pos = 0
        self.size = 0
        self.tail = bytearray()
        self.wanted = 1
        self.terminator = 13
        self.scanned = 0
        self.max_line = 2**62
        self.broken = None

    @property
    def buffered(self) -> int:
        """Bytes fed and not yet part of what was parsed."""
        return self.size - self.pos + len(self.tail)

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def feed(self, data: bytes) -> cython.bint:
        """Add bytes as they came from the peer; O(1) when everything before is parsed, else O(len)."""
        if not cython.compiled and type(data) is not bytes:  # compiled, the signature says so
            raise TypeError(f"bytes expected, got {type(data).__name__}")
        if self.broken is not None:
            return False
        if self.pos == self.size and len(self.tail) == 0:
            self.data = data
            self.pos = 0
            self.size = len(data)
        else:
            self.tail += data
        return True

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def refill(self) -> cython.bint:
        """Join tail to the unparsed rest if that is enough for a step; False when more must be fed."""
        unparsed: cython.Py_ssize_t = self.size - self.pos
        total: cython.Py_ssize_t = unparsed + len(self.tail)
        if self.broken is not None:
            raise ProtocolError(self.broken)
        if total == unparsed or (unparsed > 0 and not self.enough(total)):
            return False
        self.data = b"".join((memoryview(self.data)[self.pos :], self.tail)) if unparsed else bytes(self.tail)
        self.tail = bytearray()
        self.pos = 0
        self.size = total
        self.scanned = 0
        return True

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def enough(self, total: cython.Py_ssize_t) -> cython.bint:
        """Return whether the bytes at hand complete what the parser stopped at; searches each byte once."""
        if self.wanted > 0:
            return total >= self.wanted
        start: cython.Py_ssize_t = self.scanned
        self.scanned = len(self.tail)
        return total > self.max_line or self.tail.find(self.terminator, start) >= 0

    @cython.cfunc
    def line_end(self, terminator: cython.int) -> cython.Py_ssize_t:
        """Return where the line at pos ends, -1 if it goes on; a CR counts once the byte after it is there."""
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
    @cython.exceptval(-1, check=False)
    def forget(self, text: str) -> cython.bint:
        """Drop all bytes and take no more: after an error they have no meaning. Later calls raise its text."""
        self.broken = text
        self.data = b""
        self.tail = bytearray()
        self.pos = 0
        self.size = 0
        return True

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def refuse(self, text: str) -> cython.bint:
        """Forget all bytes and raise a ProtocolError."""
        self.forget(text)
        raise ProtocolError(text)

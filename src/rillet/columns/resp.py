"""XRANGE replies, straight from a socket's bytes into columns.

    *2                                      two entries
      *2 $15 1526919030474-0                the first: its ID,
         *4 $4 name $5 Adele $3 age $2 37   its fields and values
      *2 ...

`RangeDecoder` owns a buffer. The connection receives into it (`space`, `filled`: no copy in between) and calls
`decode`, which walks over whatever is there and hands every entry to a `Rows`; an entry that has not
arrived whole is begun again when more is there, so nothing is kept between calls but positions. Answers:

    MORE    the reply goes on: receive
    FULL    the batch has reached its limits: take the rows, then decode again, nothing need be received
    DONE    the reply ended; `entries` were in it, the last has the ID (last_ms, last_seq)

so that the request for the next page can leave before the batch of this one is built and handed on.

    buf   |  decoded  |  received, not yet decoded  |  room  |
          0           pos                           end      len(buf)

Also accepted: RESP3's null, `$-1` or `*-1` in place of an entry's fields (an entry that was deleted, as XREADGROUP
shows it). An error reply raises ReplyFailed with the server's text. Anything else raises ProtocolError.
Bytes are only read below `end`.

Cost: O(bytes), 0.25 microseconds for an entry of five short fields, compiled; memory is the largest entry twice.
Rejected: asking redis-py or hiredis for the reply (eleven objects for each such entry, and the garbage collector's
attention); finding line ends by searching (a length says where its line begins and ends).
"""

from __future__ import annotations

try:
    import cython
except ModuleNotFoundError:  # interpreted, Cython not installed
    from rillet import _cython as cython

from rillet.columns.builder import Rows
from rillet.errors import ProtocolError, RilletError

MORE, FULL, DONE = range(3)
_INCOMPLETE = cython.declare(cython.Py_ssize_t, -2)
_NULL = cython.declare(cython.Py_ssize_t, -1)
_ARRAY = cython.declare(cython.int, 0x2A)
_BULK = cython.declare(cython.int, 0x24)
_MAX_LENGTH = cython.declare(cython.Py_ssize_t, 1 << 40)
_U64_TENTH = cython.declare(cython.ulonglong, ((1 << 64) - 1) // 10)
_AWAITING = cython.declare(cython.Py_ssize_t, -1)


class ReplyFailed(RilletError):
    """The server answered with an error; the text is the server's."""


@cython.final
@cython.cclass
class RangeDecoder:
    """Decodes XRANGE replies, one after the other, into `rows`."""

    __slots__ = (
        "rows", "buf", "pos", "end", "after", "left", "entries", "last_ms", "last_seq", "max_rows", "max_bytes", "ms",
        "seq",
    )  # fmt: skip
    rows: Rows
    buf: bytearray
    pos: cython.Py_ssize_t
    end: cython.Py_ssize_t
    after: cython.Py_ssize_t
    left: cython.Py_ssize_t
    entries: cython.Py_ssize_t
    last_ms: cython.ulonglong
    last_seq: cython.ulonglong
    max_rows: cython.Py_ssize_t
    max_bytes: cython.Py_ssize_t
    ms: cython.ulonglong
    seq: cython.ulonglong

    def __init__(self, rows: Rows, max_rows: int = 16384, max_bytes: int = 32 << 20) -> None:
        """A batch is full at max_rows entries or max_bytes of reply, whichever comes first."""
        self.rows = rows
        self.buf = bytearray(1 << 18)
        self.pos = self.end = self.after = self.entries = 0
        self.left = -1
        self.last_ms = self.last_seq = self.ms = self.seq = 0
        self.max_rows = max_rows
        self.max_bytes = max_bytes

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

    @cython.ccall
    def decode(self) -> cython.int:
        """Decode what is there: MORE, FULL or DONE."""
        rows: Rows = self.rows
        count: cython.Py_ssize_t
        start: cython.Py_ssize_t
        if self.left < 0:
            count = self._header(self.pos, _ARRAY)
            if count == _INCOMPLETE:
                return 0
            self.pos = self.after
            self.left = 0 if count == _NULL else count
            self.entries = self.left
        while self.left > 0:
            if rows.length >= self.max_rows or rows.nbytes >= self.max_bytes:
                return 1
            start = self.pos
            if not self._entry(start):
                return 0
            rows.nbytes += self.pos - start
            self.left -= 1
        self.left = -1
        return 2

    @cython.cfunc
    def _entry(self, p: cython.Py_ssize_t) -> cython.bint:
        """Decode the entry at p and step over it; False when it has not arrived whole."""
        buf: bytearray = self.buf
        rows: Rows = self.rows
        n: cython.Py_ssize_t = self._header(p, _ARRAY)
        value: cython.Py_ssize_t
        size: cython.Py_ssize_t
        if n == _INCOMPLETE:
            return False
        if n != 2:
            raise ProtocolError("an entry of a stream is an array of two")
        size = self._text(self.after)
        if size == _INCOMPLETE:
            return False
        self._id(self.after - size - 2, size)
        n = self._fields_header(self.after)
        if n == _INCOMPLETE:
            return False
        rows.begin(self.ms, self.seq)
        while n > 0:
            size = self._text(self.after)
            if size == _INCOMPLETE:
                return False
            p = self.after
            value = self._text(p)
            if value == _INCOMPLETE:
                return False
            rows.name(buf, p - size - 2, size)
            rows.text(buf, self.after - value - 2, value)
            n -= 2
        rows.finish(buf)
        self.pos = self.after
        self.last_ms = self.ms
        self.last_seq = self.seq
        return True

    @cython.cfunc
    @cython.inline
    def _fields_header(self, p: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Return the number of names and values that follow p, 0 where null takes their place."""
        if p < self.end and self.buf[p] != _ARRAY:
            if self._header(p, _BULK) == _INCOMPLETE:
                return _INCOMPLETE
            return 0
        n: cython.Py_ssize_t = self._header(p, _ARRAY)
        if n > 0 and n & 1:
            raise ProtocolError("an entry has a name without a value")
        return 0 if n == _NULL else n

    @cython.cfunc
    @cython.inline
    def _text(self, p: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Step over the bulk string at p: its length; `after` is behind its CRLF."""
        n: cython.Py_ssize_t = self._header(p, _BULK)
        if n < 0:
            if n == _NULL:
                raise ProtocolError("null where a text of an entry should be")
            return _INCOMPLETE
        p = self.after + n
        if p + 2 > self.end:
            return _INCOMPLETE
        if self.buf[p] != 0x0D or self.buf[p + 1] != 0x0A:
            raise ProtocolError("a bulk string does not end where its length says")
        self.after = p + 2
        return n

    @cython.cfunc
    @cython.inline
    def _header(self, p: cython.Py_ssize_t, kind: cython.int) -> cython.Py_ssize_t:
        """Return the length in the header line at p (`*3`, `$5`; null is -1); `after` is behind its CRLF."""
        buf: bytearray = self.buf
        digit: cython.int
        second: cython.int
        if p + 5 > self.end:
            return self._short_header(p, kind)
        digit = buf[p + 1] - 0x30
        if buf[p] != kind or digit < 0 or digit > 9:
            return self._odd_header(p)
        # Lengths of one and two digits are nearly all there are.
        second = buf[p + 2]
        if second == 0x0D:
            if buf[p + 3] != 0x0A:
                raise ProtocolError("invalid length in a reply")
            self.after = p + 4
            return digit
        if buf[p + 3] == 0x0D and buf[p + 4] == 0x0A and 0x30 <= second <= 0x39:
            self.after = p + 5
            return digit * 10 + second - 0x30
        return self._long_header(p + 1)

    @cython.cfunc
    def _long_header(self, p: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Return the length whose digits begin at p; `after` is behind its CRLF."""
        buf: bytearray = self.buf
        end: cython.Py_ssize_t = self.end
        n: cython.Py_ssize_t = 0
        digit: cython.int = buf[p] - 0x30
        while 0 <= digit <= 9:
            n = n * 10 + digit
            p += 1
            if p + 2 > end:
                return _INCOMPLETE
            if n > _MAX_LENGTH:
                raise ProtocolError("invalid length in a reply")
            digit = buf[p] - 0x30
        if buf[p] != 0x0D or buf[p + 1] != 0x0A:
            raise ProtocolError("invalid length in a reply")
        self.after = p + 2
        return n

    @cython.cfunc
    def _short_header(self, p: cython.Py_ssize_t, kind: cython.int) -> cython.Py_ssize_t:
        """Handle fewer than five bytes at p: RESP3's null and one digit can be whole, anything else is incomplete."""
        if p + 3 <= self.end and bytes(self.buf[p : p + 3]) == b"_\r\n":
            self.after = p + 3
            return _NULL
        if p + 4 > self.end:
            return _INCOMPLETE
        if self.buf[p] != kind or self.buf[p + 1] < 0x30 or self.buf[p + 1] > 0x39:
            return self._odd_header(p)
        return self._long_header(p + 1)

    @cython.cfunc
    def _odd_header(self, p: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Handle what is no plain length at p: nulls, an error reply, or what does not belong here."""
        line_end: cython.Py_ssize_t = self.buf.find(b"\r\n", p, self.end)
        if line_end < 0:
            if self.end - p > 65536:
                raise ProtocolError("a reply's line does not end")
            return _INCOMPLETE
        line: bytes = bytes(self.buf[p:line_end])
        self.after = line_end + 2
        if line == b"*-1" or line == b"$-1" or line == b"_":
            return _NULL
        if line[:1] == b"-":
            self.pos = self.after
            raise ReplyFailed(line[1:].decode("utf-8", "replace"))
        raise ProtocolError(f"unexpected in a reply to XRANGE: {line[:64]!r}")

    @cython.cfunc
    def _id(self, p: cython.Py_ssize_t, n: cython.Py_ssize_t) -> cython.bint:
        """Read the stream ID of n bytes at p into ms and seq."""
        buf: bytearray = self.buf
        stop: cython.Py_ssize_t = p + n
        value: cython.ulonglong = 0
        digit: cython.int
        halves: cython.int = 0
        digits: cython.int = 0
        while p < stop:
            digit = buf[p] - 0x30
            p += 1
            if digit == -3 and halves == 0 and digits > 0:
                self.ms = value
                value = 0
                halves = 1
                digits = 0
                continue
            if digit < 0 or digit > 9 or value > _U64_TENTH or (value == _U64_TENTH and digit > 5):
                raise ProtocolError("invalid stream ID in a reply")
            value = value * 10 + digit
            digits += 1
        if halves == 0 or digits == 0:
            raise ProtocolError("invalid stream ID in a reply")
        self.seq = value
        return True

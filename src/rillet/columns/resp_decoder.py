"""Converts replies to XRANGE into rows, directly from the bytes that a socket received.

    *2                                      two entries
      *2 $15 1526919030474-0                the first: its ID,
         *4 $4 name $5 Adele $3 age $2 37   its fields and values
      *2 ...

`RangeDecoder` is a `ReceiveBuffer`. `decode` passes every complete entry to a `RowBuilder`. If an entry is incomplete,
`decode` starts it again when more bytes have arrived, so it keeps only positions between calls. It returns

    MORE    the reply is incomplete: receive more bytes
    FULL    the batch is full: take the rows, then decode again before receiving
    DONE    the reply is complete: it had `entries` entries, the last with the ID (last_ms, last_seq)
    BEGUN   once after `expect`: the first entry was read, and `met` is True if it is the expected one

At FULL and DONE, a caller can request the next page before it builds the batch of this one.

To detect deletions between two pages, a reader requests the second page from the last entry of the first page on, that
entry included, with COUNT one higher. `expect` skips this entry. If it is gone, the extra entry at the end is skipped
instead, so that a page has the same number of entries in both cases.

A null in place of an entry's fields (`$-1`, `*-1`, RESP3's `_`) is a deleted entry, as XREADGROUP shows it: it makes no
row and is counted in `missing`. An error reply raises ReplyFailed with the server's text. Any other malformed reply
raises ProtocolError. No byte at or after `end` is read.

Consecutive entries of a stream usually have the same names, so all bytes between their values are the same:

    *2 CRLF $15 CRLF 1526919030474-0  CRLF *4 CRLF $4 CRLF name CRLF $  5 CRLF Adele  CRLF $3 CRLF age CRLF $  2 CRLF 37
                     ID               literal of the first field                      literal of the second field

A `Shape` holds these literals. For each field, `_shaped_entry` compares the literal, reads the value's length, and
records the value's position. It skips values of fields without a column. It tries the last eight shapes. If an entry is
incomplete or differs in any byte, `_entry` decodes the entry instead and finds the error, if any. Tests compare the
results of both.

Cost: O(bytes). Compiled, an entry of five short fields takes 0.15 microseconds with six columns, 0.1 with columns for
the ID and one field. Memory is twice the largest entry.
Rejected: replies parsed by redis-py or hiredis (eleven objects per entry, and work for the garbage collector); a search
for line ends (a length gives the position of the next line).
"""

from __future__ import annotations

from rillet._cython import cython, public, readonly
from rillet.columns.receive_buffer import ReceiveBuffer
from rillet.columns.row_builder import RowBuilder, Shape, Slot
from rillet.columns.value_parsing import eight_digits
from rillet.errors import ProtocolError, RilletError

if cython.compiled:
    from cython.cimports.cpython.bytes import PyBytes_AS_STRING  # type: ignore[import-not-found, unused-ignore]
    from cython.cimports.libc.string import memcmp, memcpy  # type: ignore[import-not-found, unused-ignore]

MORE, FULL, DONE, BEGUN = range(4)
_INCOMPLETE = cython.declare(cython.Py_ssize_t, -2)
_NULL = cython.declare(cython.Py_ssize_t, -1)
_ARRAY = cython.declare(cython.int, 0x2A)
_BULK = cython.declare(cython.int, 0x24)
_MAX_LENGTH = cython.declare(cython.Py_ssize_t, 1 << 40)
_U64_TENTH = cython.declare(cython.ulonglong, ((1 << 64) - 1) // 10)
_RECENT = cython.declare(cython.Py_ssize_t, 8)
_MAX_SLOTS = cython.declare(cython.Py_ssize_t, 64)
_MAX_SHAPES = cython.declare(cython.Py_ssize_t, 64)


class ReplyFailed(RilletError):
    """An error reply; the message is the server's text."""


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def matches(data: cython.p_const_uchar, p: cython.Py_ssize_t, literal: bytes, n: cython.Py_ssize_t) -> cython.bint:
    """Return whether data[p:p + n] equals a literal of n bytes. 8 to 16 bytes are compared as two words."""
    if cython.compiled:
        expected: cython.p_const_uchar = cython.cast(cython.p_const_uchar, PyBytes_AS_STRING(literal))
        left: cython.ulonglong = 0
        right: cython.ulonglong = 0
        data += p
        if n < 8 or n > 16:
            return not memcmp(data, expected, n)
        memcpy(cython.address(left), data, 8)
        memcpy(cython.address(right), expected, 8)
        if left != right:
            return False
        memcpy(cython.address(left), data + n - 8, 8)
        memcpy(cython.address(right), expected + n - 8, 8)
        return left == right
    return literal == bytes(data[p : p + n])


@cython.final
@cython.cclass
class RangeDecoder(ReceiveBuffer):
    """Decodes one reply to XRANGE after another and passes the entries to `rows`."""

    __slots__ = (
        "rows", "after", "left", "entries", "last_ms", "last_seq", "max_rows", "max_bytes", "ms", "seq", "missing",
        "recent", "fields", "begin_ms", "begin_seq", "most", "extra", "met", "skipped",
    )  # fmt: skip
    rows: public[RowBuilder]
    after: cython.Py_ssize_t
    left: public[cython.Py_ssize_t]
    entries: public[cython.Py_ssize_t]
    last_ms: public[cython.ulonglong]
    last_seq: public[cython.ulonglong]
    max_rows: public[cython.Py_ssize_t]
    max_bytes: public[cython.Py_ssize_t]
    ms: cython.ulonglong
    seq: cython.ulonglong
    missing: public[cython.Py_ssize_t]  # number of deleted entries (null fields) in the reply
    recent: list[Shape]  # the shapes of the last entries, newest first
    fields: cython.Py_ssize_t  # number of fields of the last decoded entry
    begin_ms: cython.ulonglong  # the ID of the expected first entry
    begin_seq: cython.ulonglong
    most: cython.Py_ssize_t  # decode at most this many entries after the expected one; 0: none is expected; -1: skip
    extra: readonly[cython.Py_ssize_t]  # number of entries to skip at the reply's end
    met: readonly[cython.bint]
    skipped: readonly[cython.Py_ssize_t]  # number of entries of the last reply that `skip` has skipped

    def __init__(self, rows: RowBuilder, max_rows: int = 16384, max_bytes: int = 32 << 20) -> None:
        """Create a decoder. A batch is full after max_rows entries or max_bytes bytes of the reply."""
        ReceiveBuffer.__init__(self, 1 << 18)
        self.rows = rows
        self.after = self.entries = 0
        self.left = -1
        self.last_ms = self.last_seq = self.ms = self.seq = 0
        self.missing = 0
        self.max_rows = max_rows
        self.max_bytes = max_bytes
        self.recent = []
        self.fields = 0
        self.begin_ms = self.begin_seq = 0
        self.most = self.extra = self.skipped = 0
        self.met = False

    @cython.ccall
    def expect(self, ms: cython.ulonglong, seq: cython.ulonglong, most: cython.Py_ssize_t) -> cython.bint:
        """Expect the next reply to begin with the entry ms-seq. Skip that entry and decode at most `most` others."""
        self.begin_ms = ms
        self.begin_seq = seq
        self.most = most
        return True

    @cython.ccall
    def skip(self) -> cython.bint:
        """Skip all entries of the next reply."""
        self.begin_ms = self.begin_seq = 0
        self.most = -1
        return True

    @cython.ccall
    def decode(self) -> cython.int:
        """Decode the received bytes; return MORE, FULL, DONE or BEGUN."""
        rows: RowBuilder = self.rows
        count: cython.Py_ssize_t
        start: cython.Py_ssize_t
        if self.end < 0 or self.end > len(self.buf) or self.pos < 0:
            raise IndexError("the position of the next entry is outside the receive buffer")
        if self.left < 0:
            count = self._header(self.pos, _ARRAY)
            if count == _INCOMPLETE:
                return 0
            self.pos = self.after
            self.left = 0 if count == _NULL else count
            self.entries = self.left
        if self.most > 0:
            return 3 if self._begin() else 0
        if self.most < 0:
            self.extra = self.skipped = self.left
            self.left = self.entries = self.most = 0
        while self.left > 0:
            if rows.length >= self.max_rows or rows.nbytes >= self.max_bytes:
                return 1
            start = self.pos
            if not self._shaped_entry(start):
                if not self._entry(start):
                    return 0
                self._learn()
            rows.nbytes += self.pos - start
            self.left -= 1
            self.last_ms = self.ms
            self.last_seq = self.seq
        while self.extra > 0:
            if not self._pass(self.pos):
                return 0
            self.extra -= 1
        self.left = -1
        return 2

    @cython.cfunc
    def _begin(self) -> cython.bint:
        """Skip the first entry if it is the one read last; set `met`. Return False if that entry is incomplete."""
        start: cython.Py_ssize_t = self.pos
        self.met = False
        if self.left > 0:
            if not self._pass(start):
                return False
            self.met = self.ms == self.begin_ms and self.seq == self.begin_seq
            if self.met:
                self.left -= 1
            else:
                self.pos = start
        self.extra = max(self.left - self.most, 0)
        self.left -= self.extra
        self.entries = self.left
        self.most = 0
        return True

    @cython.cfunc
    @cython.inline
    @cython.exceptval(-1, check=True)
    def _head(self, p: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Read the ID of the entry at p; return the number of names and values that follow, or _NULL."""
        n: cython.Py_ssize_t = self._header(p, _ARRAY)
        size: cython.Py_ssize_t
        if n == _INCOMPLETE:
            return _INCOMPLETE
        if n != 2:
            raise ProtocolError("reply to XRANGE: an entry is not an array of ID and fields")
        size = self._text(self.after)
        if size == _INCOMPLETE:
            return _INCOMPLETE
        self._id(self.after - size - 2, size)
        return self._fields_header(self.after)

    @cython.cfunc
    def _pass(self, p: cython.Py_ssize_t) -> cython.bint:
        """Skip the entry at p and read only its ID. Return False if the entry is incomplete."""
        n: cython.Py_ssize_t = self._head(p)
        if n == _INCOMPLETE:
            return False
        while n > 0:
            if self._text(self.after) == _INCOMPLETE:
                return False
            n -= 1
        self.pos = self.after
        return True

    @cython.cfunc
    def _entry(self, p: cython.Py_ssize_t) -> cython.bint:
        """Decode the entry at p and advance past it. Return False if the entry is incomplete."""
        buf: bytearray = self.buf
        rows: RowBuilder = self.rows
        start: cython.Py_ssize_t = p
        n: cython.Py_ssize_t = self._head(p)
        value: cython.Py_ssize_t
        size: cython.Py_ssize_t
        if n == _INCOMPLETE:
            return False
        self.fields = 0
        if n == _NULL:
            self.missing += 1
            self.pos = self.after
            return True
        rows.begin(self.ms, self.seq)
        self.fields = n >> 1
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
        self.pos = self.after
        if not rows.finish_in(buf, len(buf)):
            rows.malformed(self._pairs(start))
        return True

    def _pairs(self, p: int) -> list[tuple[bytes, bytes]]:
        """Return the names and values of the complete entry at p."""
        words: list[bytes] = []
        self._header(p, _ARRAY)
        self._text(self.after)
        n: cython.Py_ssize_t = self._fields_header(self.after)
        while n > 0:
            size: cython.Py_ssize_t = self._text(self.after)
            words.append(bytes(self.buf[self.after - size - 2 : self.after - 2]))
            n -= 1
        return list(zip(words[::2], words[1::2], strict=True))

    # ---- entries with a recent shape ---------------------------------------------------------------------------

    @cython.cfunc
    def _shaped_entry(self, p: cython.Py_ssize_t) -> cython.bint:
        """Decode the entry at p if it is complete and has the names of a recent Shape; else return False."""
        i: cython.Py_ssize_t
        shape: Shape
        start: cython.Py_ssize_t = self._shaped_head(p)
        if start < 0:
            return False
        for i in range(len(self.recent)):
            shape = self.recent[i]
            if self._shaped_fields(shape, start):
                if i > 0:
                    self.recent[i] = self.recent[0]
                    self.recent[0] = shape
                if not self.rows.finish_in(self.buf, len(self.buf)):
                    self.rows.malformed(self._pairs(p))
                return True
        return False

    @cython.cfunc
    @cython.exceptval(check=False)
    def _shaped_head(self, p: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Read the ID of the entry at p, and note its position for the `id` column; return its end, -1 if unusual."""
        data: cython.p_const_uchar = self.buf
        end: cython.Py_ssize_t = self.end
        stop: cython.Py_ssize_t
        start: cython.Py_ssize_t
        digit: cython.int
        eight: cython.longlong
        value: cython.ulonglong = 0
        # Expect *2 CRLF $, the length of the ID in one or two digits, CRLF, the ID.
        if p + 10 > end or not matches(data, p, b"*2\r\n$", 5):
            return -1
        stop = data[p + 5] - 0x30
        digit = data[p + 6] - 0x30
        p += 6
        if 0 <= digit <= 9:
            stop = stop * 10 + digit
            p += 1
        if stop < 3 or stop > 39 or data[p - 1] > 0x39 or data[p] != 0x0D or data[p + 1] != 0x0A:
            return -1
        p += 2
        start = p
        stop += p
        if stop > end:
            return -1
        if stop - p >= 8:
            eight = eight_digits(data, p)
            if eight >= 0:
                value = eight
                p += 8
        while p < stop:
            digit = data[p] - 0x30
            if digit < 0 or digit > 9:
                break
            value = value * 10 + digit
            p += 1
        # An unsigned 64-bit number holds any 19 digits. Servers write no leading zeros.
        if p == start or p - start > 19 or p + 1 >= stop or stop - p > 20 or data[p] != 0x2D:
            return -1
        if (data[start] == 0x30 and p - start > 1) or (data[p + 1] == 0x30 and stop - p > 2):
            return -1
        self.ms = value
        value = 0
        p += 1
        while p < stop:
            digit = data[p] - 0x30
            if digit < 0 or digit > 9:
                return -1
            value = value * 10 + digit
            p += 1
        self.seq = value
        self.rows.id_start = start
        self.rows.id_size = stop - start
        return stop

    @cython.cfunc
    def _shaped_fields(self, shape: Shape, p: cython.Py_ssize_t) -> cython.bint:
        """Advance past the fields at p and store the positions of their values in the rows.

        Return False if the entry is incomplete or has another shape. The bytes between two values of a shape are
        constant: CRLF, the next name, and the `$` of its value.
        """
        buf: bytearray = self.buf
        data: cython.p_const_uchar = buf
        end: cython.Py_ssize_t = self.end
        rows: RowBuilder = self.rows
        slot: Slot = shape.first
        size: cython.Py_ssize_t
        digit: cython.int
        start: cython.Py_ssize_t = rows.id_start
        id_size: cython.Py_ssize_t = rows.id_size
        if slot is None:
            return False
        rows.begin_as(shape, self.ms, self.seq)
        rows.id_start = start
        rows.id_size = id_size
        while slot is not None:
            # The literal is followed by a length: one digit and CRLF, or more digits.
            if p + slot.size + 4 > end or not matches(data, p, slot.literal, slot.size):
                return False
            p += slot.size
            size = 0
            digit = data[p] - 0x30
            while 0 <= digit <= 9:
                size = size * 10 + digit
                p += 1
                if p + 2 > end or size > _MAX_LENGTH:
                    return False
                digit = data[p] - 0x30
            if data[p] != 0x0D or data[p + 1] != 0x0A or data[p - 1] == 0x24:
                return False
            p += 2
            if size > end - p - 2:
                return False
            if rows.items is not None:
                rows.items.put_text(data, p, size, end)
            if slot.owner is not None:
                slot.owner.start = p
                slot.owner.size = size
            p += size
            slot = slot.next
        if data[p] != 0x0D or data[p + 1] != 0x0A:
            return False
        self.pos = p + 2
        return True

    @cython.cfunc
    def _learn(self) -> cython.bint:
        """Add the Shape (names in order) of the last decoded entry to the recent shapes.

        After _MAX_SHAPES different shapes, add no more: the stream's entries have no common names.
        """
        rows: RowBuilder = self.rows
        if self.fields == 0 or self.fields > _MAX_SLOTS or len(rows.shapes) >= _MAX_SHAPES:
            return False
        shape: Shape = rows.shape_of(rows.pattern[: self.fields])
        if shape in self.recent:
            return False
        self.recent.insert(0, shape)
        del self.recent[_RECENT:]
        return True

    # ---- any entry ---------------------------------------------------------------------------------------------

    @cython.cfunc
    @cython.inline
    @cython.exceptval(-1, check=True)
    def _fields_header(self, p: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Return the number of names and values after the header at p, or _NULL for a null."""
        n: cython.Py_ssize_t
        if p < self.end and self.buf[p] != _ARRAY:
            n = self._header(p, _BULK)
            if n >= 0:
                raise ProtocolError("reply to XRANGE: the fields of an entry are neither an array nor null")
            return n
        n = self._header(p, _ARRAY)
        if n > 0 and n & 1:
            raise ProtocolError("reply to XRANGE: an entry has a name without a value")
        return n

    @cython.cfunc
    @cython.inline
    @cython.exceptval(-1, check=True)
    def _text(self, p: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Return the length of the bulk string at p, and set `after` past its CRLF."""
        n: cython.Py_ssize_t = self._header(p, _BULK)
        if n < 0:
            if n == _NULL:
                raise ProtocolError("reply to XRANGE: an entry has a null name or value")
            return _INCOMPLETE
        p = self.after + n
        if p + 2 > self.end:
            return _INCOMPLETE
        if self.buf[p] != 0x0D or self.buf[p + 1] != 0x0A:
            raise ProtocolError("reply to XRANGE: a bulk string is not followed by CRLF")
        self.after = p + 2
        return n

    @cython.cfunc
    @cython.inline
    @cython.exceptval(-1, check=True)
    def _header(self, p: cython.Py_ssize_t, kind: cython.int) -> cython.Py_ssize_t:
        """Return the length in the header line at p (`*3`, `$5`; null is -1), and set `after` past its CRLF."""
        buf: bytearray = self.buf
        digit: cython.int
        second: cython.int
        if p + 5 > self.end:
            return self._short_header(p, kind)
        digit = buf[p + 1] - 0x30
        if buf[p] != kind or digit < 0 or digit > 9:
            return self._odd_header(p)
        # Nearly all lengths have one or two digits.
        second = buf[p + 2]
        if second == 0x0D:
            if buf[p + 3] != 0x0A:
                raise ProtocolError("reply to XRANGE: an array or string has an invalid length")
            self.after = p + 4
            return digit
        if buf[p + 3] == 0x0D and buf[p + 4] == 0x0A and 0x30 <= second <= 0x39:
            self.after = p + 5
            return digit * 10 + second - 0x30
        return self._long_header(p + 1)

    @cython.cfunc
    def _long_header(self, p: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Return the length whose digits begin at p, and set `after` past its CRLF."""
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
                raise ProtocolError("reply to XRANGE: an array or string has an invalid length")
            digit = buf[p] - 0x30
        if buf[p] != 0x0D or buf[p + 1] != 0x0A:
            raise ProtocolError("reply to XRANGE: an array or string has an invalid length")
        self.after = p + 2
        return n

    @cython.cfunc
    def _short_header(self, p: cython.Py_ssize_t, kind: cython.int) -> cython.Py_ssize_t:
        """Return the length in a header line at p if at most four bytes have arrived, such as $5 CRLF or $-1."""
        if p < self.end and self.buf[p] != kind:
            return self._odd_header(p)
        if p + 4 > self.end:
            return _INCOMPLETE
        if self.buf[p + 1] < 0x30 or self.buf[p + 1] > 0x39:
            return self._odd_header(p)
        return self._long_header(p + 1)

    @cython.cfunc
    def _odd_header(self, p: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Handle a line at p that is not a length: a null, an error reply, or a malformed line."""
        line_end: cython.Py_ssize_t = self.buf.find(b"\r\n", p, self.end)
        if line_end < 0:
            if self.end - p > 65536:
                raise ProtocolError("reply to XRANGE: a header line is too long; CRLF is missing")
            return _INCOMPLETE
        line: bytes = bytes(self.buf[p:line_end])
        self.after = line_end + 2
        if line == b"*-1" or line == b"$-1" or line == b"_":
            return _NULL
        if line[:1] == b"-":
            self.pos = self.after
            raise ReplyFailed(line[1:].decode("utf-8", "replace"))
        raise ProtocolError(f"unexpected line in a reply to XRANGE: {line[:64]!r}")

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
                raise ProtocolError("reply to XRANGE: the ID of an entry is malformed")
            value = value * 10 + digit
            digits += 1
        if halves == 0 or digits == 0:
            raise ProtocolError("reply to XRANGE: the ID of an entry is malformed")
        self.seq = value
        return True

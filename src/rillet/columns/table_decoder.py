"""Converts the replies about keys (HMGET, HGETALL, GET, LRANGE, SMEMBERS, ZRANGE ...) into rows.

A reader sends the same commands for each of many keys in one pipeline, and passes the keys to `expect`. The decoder
reads the replies in place, from the bytes that a socket received, and appends rows to a `RowBuilder`:

    parts of a key                       replies                                  rows
    SCALAR, SCALAR ...                   $3 abc   :12   +hash                     one; a column for each reply
    VALUES                               *2 $3 Ada $-1          (HMGET)           one; a column for each value
    PAIRS, the last part                 *4 $4 name $3 Ada ...  (HGETALL)         one; columns by field, as for a stream
    ITEMS, the only part                 *2 $1 a $1 b    (LRANGE, SMEMBERS)       one for each element
    SCORED, the only part                *4 $1 a $1 1 $1 b $1 2 (ZRANGE)          one for each member, with its score
    INDEXED, the only part               *1 *2 :7 $1 a          (ARSCAN)          one for each value, with its index
    BITS, the only part                  $2 ab                  (GET)             one for each bit that is 1: its offset

`decode` returns MORE (receive more bytes), FULL (take the rows, then decode again) or DONE (all replies are decoded).
It returns FULL between two keys only. So `rollback` can drop the rows of an incomplete key after a lost connection, and
`at` is the number of keys that are complete.

A key without a row:

    absent      its `required` part is null, empty, or the type `none`: the key does not exist, or a hash has none of
                the requested fields. With `keeps`, such a key gets a row of nulls
    failed      a reply is an error, such as WRONGTYPE or MOVED. A `lenient` part is null instead

An incomplete row starts again when more bytes have arrived, because the receive buffer moves. An element of ITEMS,
SCORED or INDEXED is complete as soon as its bytes are there.

Cost: O(bytes). Compiled, about 0.15 microseconds for a hash of five fields. Malformed replies raise ProtocolError.
Rejected: the shapes of resp_decoder.py, because HMGET returns no names, and the order of names in HGETALL differs from
hash to hash.
"""

from __future__ import annotations

from rillet._cython import cython, public, readonly
from rillet.columns.column import Column
from rillet.columns.receive_buffer import ReceiveBuffer
from rillet.columns.row_builder import RowBuilder
from rillet.errors import ProtocolError

COMPILED: bool = cython.compiled
MORE, FULL, DONE = range(3)
SCALAR, VALUES, PAIRS, ITEMS, SCORED, INDEXED, BITS = range(7)
_SCALAR = cython.declare(cython.int, 0)
_VALUES = cython.declare(cython.int, 1)
_PAIRS = cython.declare(cython.int, 2)
_SCORED = cython.declare(cython.int, 4)
_INDEXED = cython.declare(cython.int, 5)
_BITS = cython.declare(cython.int, 6)
_ARRAY = cython.declare(cython.int, 0x2A)
_BULK = cython.declare(cython.int, 0x24)
_INTEGER = cython.declare(cython.int, 0x3A)
_SIMPLE = cython.declare(cython.int, 0x2B)
_ERROR = cython.declare(cython.int, 0x2D)
_ABSENT = cython.declare(cython.Py_ssize_t, -1)
_NUMBER = cython.declare(cython.Py_ssize_t, -2)
_MAX_LENGTH = cython.declare(cython.longlong, 1 << 40)


@cython.final
@cython.cclass
class ReplyPart:
    """The reply to one of the commands that are sent for each key, and the columns of its values."""

    __slots__ = ("kind", "columns", "required", "lenient", "positive")
    kind: public[cython.int]
    # ITEMS: index, element. SCORED: member, score. INDEXED: index, value. BITS: offset
    columns: public[list[Column | None]]
    required: public[cython.bint]  # whether a key without this reply's values has no row
    lenient: public[cython.bint]  # whether an error reply is a null
    positive: public[cython.bint]  # whether a negative integer is a null

    def __init__(
        self, kind: int, columns: list[Column | None], required: bool = False, lenient: bool = False,
        positive: bool = False,
    ) -> None:  # fmt: skip
        self.kind = kind
        self.columns = columns
        self.required = required
        self.lenient = lenient
        self.positive = positive


@cython.final
@cython.cclass
class TableDecoder(ReceiveBuffer):
    """Decodes the replies about one pipeline of keys after another into rows."""

    __slots__ = (
        "rows", "parts", "keys", "at", "prefix", "keeps", "first", "absent", "failed", "max_rows", "max_bytes", "left",
        "begun", "after", "number", "start", "size", "text_start", "text_size", "present", "index", "index_start",
        "index_size",
    )  # fmt: skip
    rows: public[RowBuilder]
    parts: public[list[ReplyPart]]
    keys: public[list[bytes]]
    at: readonly[cython.Py_ssize_t]
    prefix: public[cython.Py_ssize_t]  # bytes at the start of each key that its column omits
    keeps: public[cython.bint]
    first: cython.Py_ssize_t  # the index of the first element of ITEMS
    absent: public[list[bytes]]
    failed: public[list[tuple[bytes, str]]]
    max_rows: public[cython.Py_ssize_t]
    max_bytes: public[cython.Py_ssize_t]
    left: readonly[cython.Py_ssize_t]  # elements of an ITEMS or SCORED reply that are not decoded; -1 before its header
    begun: cython.Py_ssize_t  # number of rows at the start of the current key
    after: cython.Py_ssize_t
    number: cython.longlong
    start: cython.Py_ssize_t
    size: cython.Py_ssize_t
    text_start: cython.Py_ssize_t  # the last text that was decoded, for the column of malformed rows
    text_size: cython.Py_ssize_t
    present: cython.bint
    index: cython.longlong  # of a value of an array; its text, if it is larger
    index_start: cython.Py_ssize_t
    index_size: cython.Py_ssize_t

    def __init__(
        self, rows: RowBuilder, parts: list[ReplyPart], max_rows: int = 16384, max_bytes: int = 32 << 20,
        prefix: int = 0, keeps: bool = False,
    ) -> None:  # fmt: skip
        ReceiveBuffer.__init__(self, 1 << 18)
        self.rows = rows
        self.parts = parts
        self.keys = []
        self.absent = []
        self.failed = []
        self.max_rows = max_rows
        self.max_bytes = max_bytes
        self.prefix = prefix
        self.keeps = keeps
        self.at = self.first = self.begun = self.after = self.start = self.size = 0
        self.number = self.text_start = self.text_size = 0
        self.index = self.index_start = self.index_size = 0
        self.left = -1
        self.present = False

    def expect(self, keys: list[bytes], first: int = 0) -> None:
        """Expect the replies about these keys next. first: the index of the first element of a list's page."""
        self.keys = keys
        self.first = first
        self.at = 0
        self.left = -1

    def rollback(self) -> None:
        """Drop the rows of the incomplete key and all received bytes."""
        if self.left >= 0:
            while self.rows.length > self.begun:
                for column in self.rows.columns:
                    column.drop()
                self.rows.length -= 1
        self.rows.position = 1
        self.rows.begin(0, 0)
        self.left = -1
        self.pos = self.end = 0

    @cython.ccall
    def decode(self) -> cython.int:
        """Decode the received bytes; return MORE, FULL or DONE."""
        rows: RowBuilder = self.rows
        part: ReplyPart = self.parts[0]
        n: cython.Py_ssize_t = len(self.keys)
        done: cython.bint
        if self.end < 0 or self.end > len(self.buf) or self.pos < 0:
            raise IndexError("the position of the next reply is outside the receive buffer")
        while self.at < n:
            if self.left < 0:
                if rows.length >= self.max_rows or rows.nbytes >= self.max_bytes:
                    return 1
                self.begun = rows.length
                rows.key = self.keys[self.at][self.prefix :] if self.prefix else self.keys[self.at]
            if part.kind == _BITS:
                done = self._bits(part)
            else:
                done = self._row() if part.kind <= _PAIRS else self._elements(part)
            if not done:
                return 0
            self.at += 1
        return 2

    # ---- one row for a key -------------------------------------------------------------------------------------

    @cython.cfunc
    def _row(self) -> cython.bint:
        """Decode all replies about a key into one row; return False if they are incomplete."""
        rows: RowBuilder = self.rows
        p: cython.Py_ssize_t = self.pos
        part: ReplyPart
        error: str = ""
        pairs: cython.Py_ssize_t = -1
        rows.begin(0, 0)
        rows.position = 0
        self.present = False
        for part in self.parts:
            if part.kind == _PAIRS:
                pairs = p
            self.size = 0
            if not self._part(part, p):
                rows.position = 1  # so that the next `begin` drops what was set
                return False
            p = self.after
            if self.size < 0 and not error:
                error = bytes(self.buf[self.start : self.start - self.size]).decode("utf-8", "replace")
        rows.nbytes += p - self.pos
        self.pos = p
        if error or not (self.present or self.keeps):
            rows.position = 1
            rows.begin(0, 0)
            if error:
                self.failed.append((self.keys[self.at], error))
            else:
                self.absent.append(self.keys[self.at])
            return True
        if not rows.finish_in(self.buf, len(self.buf)):
            rows.malformed(self._texts() if pairs < 0 else self._pairs(pairs))
        return True

    @cython.cfunc
    def _part(self, part: ReplyPart, p: cython.Py_ssize_t) -> cython.bint:
        """Decode the reply at p; return False if it is incomplete. `size` < 0: an error, its text is at `start`."""
        kind: cython.int = self._line(p)
        column: Column
        n: cython.longlong = self.number
        if kind == 0:
            return False
        if kind == _ERROR:
            if part.lenient:
                self.size = 0
                column = part.columns[0]  # type: ignore[assignment]
                if column is not None:
                    column.size = _ABSENT
            return True
        if part.kind == _SCALAR:
            return self._scalar(part, kind)
        if kind != _ARRAY:
            raise ProtocolError("a reply about a key is not an array")
        if part.kind == _PAIRS:
            return self._fields(part, n)
        if n != len(part.columns):
            raise ProtocolError("a reply to HMGET has another number of values than the request has fields")
        for column in part.columns:  # type: ignore[assignment]
            if not self._text(self.after):
                return False
            if self.size != _ABSENT:
                self.present = True
            if column is not None:
                column.start = self.start
                column.size = self.size
        self.size = 0
        return True

    @cython.cfunc
    def _scalar(self, part: ReplyPart, kind: cython.int) -> cython.bint:
        """Set the column of a bulk string, an integer or a simple string whose line was read."""
        column: Column = part.columns[0]  # type: ignore[assignment]
        if kind == _INTEGER:
            if part.required and self.number != 0:
                self.present = True
            if column is not None:
                column.number = self.number
                column.size = _ABSENT if part.positive and self.number < 0 else _NUMBER
            self.size = 0
            return True
        if kind == _BULK:
            if not self._rest():
                return False
        elif kind == _ARRAY:
            if self.number >= 0:
                raise ProtocolError("a reply about a key is an array, not a single value")
            self.size = _ABSENT
        elif self.size == 4 and self.buf[self.start : self.start + 4] == b"none":  # the reply of TYPE for a missing key
            self.size = _ABSENT
        if self.size >= 0:
            self.text_start = self.start
            self.text_size = self.size
            if part.required:
                self.present = True
        if column is not None:
            column.start = self.start
            column.size = self.size
        self.size = 0
        return True

    @cython.cfunc
    def _fields(self, part: ReplyPart, n: cython.longlong) -> cython.bint:
        """Decode n names and values of a hash; return False if they are incomplete."""
        rows: RowBuilder = self.rows
        buf: bytearray = self.buf
        if n & 1 and n > 0:
            raise ProtocolError("a reply to HGETALL has a name without a value")
        if n > 0:
            self.present = True
        while n > 0:
            if not self._text(self.after):
                return False
            if self.size < 0:
                raise ProtocolError("a reply to HGETALL has a null name")
            rows.name(buf, self.start, self.size)
            if not self._text(self.after):
                return False
            if self.size < 0:
                raise ProtocolError("a reply to HGETALL has a null value")
            rows.text(buf, self.start, self.size)
            n -= 2
        self.size = 0
        return True

    def _texts(self) -> list[tuple[bytes, bytes]]:
        """Return the last text of the row with the name of its column."""
        part = self.parts[len(self.parts) - 1]
        last = part.columns[0 if part.kind == SCORED else len(part.columns) - 1]
        name = b"value" if last is None else last.name
        return [(name, bytes(self.buf[self.text_start : self.text_start + self.text_size]))]

    def _pairs(self, p: int) -> list[tuple[bytes, bytes]]:
        """Return the names and values of the complete reply to HGETALL at p."""
        words: list[bytes] = []
        self._line(p)
        n: cython.longlong = self.number
        while n > 0:
            self._text(self.after)
            words.append(bytes(self.buf[self.start : self.start + self.size]))
            n -= 1
        return list(zip(words[::2], words[1::2], strict=True))

    # ---- one row for an element --------------------------------------------------------------------------------

    @cython.cfunc
    def _elements(self, part: ReplyPart) -> cython.bint:
        """Decode the elements of a list, a set or a sorted set; return False if the reply is incomplete."""
        rows: RowBuilder = self.rows
        kind: cython.int
        step: cython.Py_ssize_t = 2 if part.kind == _SCORED else 1
        one: Column = part.columns[0]  # type: ignore[assignment]
        two: Column = part.columns[1]  # type: ignore[assignment]
        start: cython.Py_ssize_t
        total: cython.Py_ssize_t
        if self.left < 0:
            kind = self._line(self.pos)
            if kind == 0:
                return False
            if kind == _ERROR:
                text = bytes(self.buf[self.start : self.start - self.size]).decode("utf-8", "replace")
                self.failed.append((self.keys[self.at], text))
                self.pos = self.after
                return True
            if kind != _ARRAY:
                raise ProtocolError("a reply about a key is not an array")
            if self.number % step:
                raise ProtocolError("a reply with scores has a member without a score")
            if self.number <= 0:
                self.absent.append(self.keys[self.at])
                self.pos = self.after
                return True
            self.left = self.number // step
            self.number = 0
            self.pos = self.after
        while self.left > 0:
            start = self.pos
            if part.kind == _INDEXED:
                if not self._index(start) or not self._text(self.after):
                    return False
            elif not self._text(start):
                return False
            rows.begin_as(None, 0, 0)  # type: ignore[arg-type]
            self.text_start = self.start
            self.text_size = self.size
            if step == 2:
                if one is not None:
                    one.start = self.start
                    one.size = self.size
                if not self._text(self.after):
                    return False
                if two is not None:
                    two.start = self.start
                    two.size = self.size
            else:
                if part.kind != _INDEXED:
                    if one is not None:
                        one.number = self.first
                        one.size = _NUMBER
                    self.first += 1
                elif one is not None:
                    one.number = self.index
                    one.start = self.index_start
                    one.size = self.index_size
                if two is not None:
                    two.start = self.start
                    two.size = self.size
            total = self.after
            if not rows.finish_in(self.buf, len(self.buf)):
                rows.malformed(self._texts())
            rows.nbytes += total - start
            self.pos = total
            self.left -= 1
        self.first = 0
        self.left = -1
        return True

    @cython.cfunc
    def _bits(self, part: ReplyPart) -> cython.bint:
        """Decode a string into the offsets of its bits that are 1; return False if the reply is incomplete."""
        rows: RowBuilder = self.rows
        offset: Column = part.columns[0]  # type: ignore[assignment]
        kind: cython.int = self._line(self.pos)
        at: cython.Py_ssize_t
        bit: cython.int
        if kind == 0 or (kind == _BULK and not self._rest()):
            return False
        if kind == _ERROR:
            text = bytes(self.buf[self.start : self.start - self.size]).decode("utf-8", "replace")
            self.failed.append((self.keys[self.at], text))
        elif kind != _BULK:
            raise ProtocolError("a reply about a bitmap is not a bulk string")
        self.text_start = self.text_size = 0
        for at in range(max(self.size, 0) if kind == _BULK else 0):
            byte: cython.int = self.buf[self.start + at]
            for bit in range(8):
                if byte & 0x80 >> bit == 0:
                    continue
                rows.begin_as(None, 0, 0)  # type: ignore[arg-type]
                if offset is not None:
                    offset.number = 8 * at + bit
                    offset.size = _NUMBER
                if not rows.finish_in(self.buf, len(self.buf)):
                    rows.malformed(self._texts())
                rows.nbytes += 8
        self.pos = self.after
        return True

    @cython.cfunc
    def _index(self, p: cython.Py_ssize_t) -> cython.bint:
        """Read the header of a pair and its index at p; from 2^63 on, the index is a text. False if incomplete."""
        kind: cython.int = self._line(p)
        if kind == 0:
            return False
        if kind != _ARRAY or self.number != 2:
            raise ProtocolError("a reply about an array has a value without an index")
        kind = self._line(self.after)
        if kind == 0:
            return False
        self.index = self.number
        self.index_size = _NUMBER
        if kind == _BULK:
            if not self._rest():
                return False
            self.index_start = self.start
            self.index_size = self.size
        elif kind != _INTEGER:
            raise ProtocolError("an index in a reply about an array is not an integer")
        return True

    # ---- RESP ----------------------------------------------------------------------------------------------------

    @cython.cfunc
    def _text(self, p: cython.Py_ssize_t) -> cython.bint:
        """Read the bulk string at p: set `start`, `size` (-1: null) and `after`. Return False if it is incomplete."""
        kind: cython.int = self._line(p)
        if kind == 0:
            return False
        if kind != _BULK:
            raise ProtocolError("a value in a reply about a key is not a bulk string")
        return self._rest()

    @cython.cfunc
    def _rest(self) -> cython.bint:
        """Read the bytes of a bulk string whose line was read; return False if they are incomplete."""
        n: cython.longlong = self.number
        if n < 0:
            self.size = _ABSENT
            return True
        if n > _MAX_LENGTH:
            raise ProtocolError("a bulk string has an invalid length")
        if n > self.end - self.after - 2:
            return False
        self.start = self.after
        self.size = n
        self.after += n + 2
        if self.buf[self.after - 2] != 0x0D or self.buf[self.after - 1] != 0x0A:
            raise ProtocolError("a bulk string is not followed by CRLF")
        return True

    @cython.cfunc
    def _line(self, p: cython.Py_ssize_t) -> cython.int:
        """Read the line at p and return its type byte, or 0 if it is incomplete.

        Sets `after`, and `number` for an array, a bulk string or an integer. For a simple string, `start` and `size`
        are its text; for an error, `size` is the negative length of its text.
        """
        buf: bytearray = self.buf
        end: cython.Py_ssize_t = self.end
        kind: cython.int
        digit: cython.int
        value: cython.longlong = 0
        negative: cython.bint = False
        q: cython.Py_ssize_t = p + 1
        if p + 3 > end:
            return 0
        kind = buf[p]
        if kind == _BULK or kind == _ARRAY or kind == _INTEGER:
            if buf[q] == 0x2D:
                negative = True
                q += 1
            while q < end:
                digit = buf[q] - 0x30
                if digit < 0 or digit > 9:
                    break
                if q - p > 19:
                    raise ProtocolError("a number in a reply about a key is too long")
                value = value * 10 + digit
                q += 1
            if q + 2 > end:
                return 0
            if buf[q] != 0x0D or buf[q + 1] != 0x0A or q == p + 1:
                raise ProtocolError("a line in a reply about a key is malformed")
            self.number = -value if negative else value
            self.after = q + 2
            return kind
        if kind != _SIMPLE and kind != _ERROR:
            raise ProtocolError("a reply about a key has an unexpected type")
        q = buf.find(b"\r\n", p, end)
        if q < 0:
            if end - p > 65536:
                raise ProtocolError("a line in a reply about a key is too long; CRLF is missing")
            return 0
        self.start = p + 1
        self.size = q - p - 1 if kind == _SIMPLE else p + 1 - q
        self.after = q + 2
        return kind

"""Converts the rows of Arrow columns into XADD commands, for sinks.

    *7 $4 XADD $6 events $1 *           the head, packed once (with MAXLEN ~ n, if requested)
       $5 delay $2 11                   per row and column that is not null: the field's name, packed once, and the text
       $7 carrier $2 UA

A column is a set of Arrow buffers: offsets (int32) and data of the string and binary types, or the values of a type of
fixed width, which value_formatting.py writes as text; and the validity bitmap. `base` is the position of row 0 in
them, because a slice of an Arrow array shares its parent's buffers. A map column has offsets over two such columns,
names and values.

A row with only nulls raises ValueError: a stream has no entries without fields.

Cost: O(bytes), compiled about 0.15 microseconds for a row of five short values, and 25 nanoseconds more for a double.
"""

from __future__ import annotations

import struct
import sys

from rillet._cython import cython, readonly
from rillet.columns.column import start_of
from rillet.columns.value_formatting import ValueFormatter
from rillet.protocol.reply_writer import put_header

if cython.compiled:
    from cython.cimports.cpython.bytes import PyBytes_AS_STRING  # type: ignore[import-not-found, unused-ignore]
    from cython.cimports.libc.string import memcpy  # type: ignore[import-not-found, unused-ignore]

(
    TEXT, BOOLEAN, INT8, INT16, INT32, INT64, UINT8, UINT16, UINT32, UINT64, FLOAT, DOUBLE, DAY, SECONDS, MILLISECONDS,
    MICROSECONDS, NANOSECONDS,
) = range(17)  # fmt: skip
COMPILED: bool = cython.compiled
WIDTHS = (0, 0, 1, 2, 4, 8, 1, 2, 4, 8, 4, 8, 4, 8, 8, 8, 8)
_TEXT = cython.declare(cython.int, 0)
_BOOLEAN = cython.declare(cython.int, 1)
_INT64 = cython.declare(cython.int, 5)
_UINT64 = cython.declare(cython.int, 9)
_FLOAT = cython.declare(cython.int, 10)
_DOUBLE = cython.declare(cython.int, 11)
_DAY = cython.declare(cython.int, 12)
_SECONDS = cython.declare(cython.int, 13)
_FRAME = cython.declare(cython.Py_ssize_t, 32)  # the maximum overhead of a text: $, 20 digits, CRLF, CRLF


@cython.cfunc
@cython.inline
@cython.exceptval(-1, check=False)
def int32_at(buf: bytes, i: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """Return the i-th int32 of buf in native byte order. Raise IndexError if it is negative."""
    value: cython.int = 0
    if i < 0 or i > (len(buf) >> 2) - 1:
        raise IndexError("the offset is outside its buffer")
    if cython.compiled:
        data: cython.p_const_uchar = cython.cast(cython.p_const_uchar, PyBytes_AS_STRING(buf))
        memcpy(cython.address(value), data + 4 * i, 4)
    else:
        value = int.from_bytes(buf[4 * i : 4 * i + 4], sys.byteorder, signed=True)
    if value < 0:
        raise IndexError("an offset is negative")
    return value


@cython.cfunc
@cython.inline
def whole_at(buf: bytes, i: cython.Py_ssize_t, width: cython.Py_ssize_t, signed: cython.bint) -> cython.longlong:
    """Return the i-th integer of a buffer. Unsigned 64-bit integers from 2^63 on are returned as negative numbers."""
    if i < 0 or i > len(buf) // width - 1:
        raise IndexError("the row is outside its buffer")
    if not cython.compiled:
        return int.from_bytes(buf[width * i : width * i + width], sys.byteorder, signed=signed or width == 8)
    data: cython.p_const_uchar = cython.cast(cython.p_const_uchar, PyBytes_AS_STRING(buf)) + width * i
    eight: cython.longlong = 0
    four: cython.int = 0
    two: cython.short = 0
    one: cython.schar = 0
    if width == 8:
        memcpy(cython.address(eight), data, 8)
        return eight
    if width == 4:
        memcpy(cython.address(four), data, 4)
        eight = four
        return eight if signed else eight & 0xFFFFFFFF
    if width == 2:
        memcpy(cython.address(two), data, 2)
        return two if signed else two & 0xFFFF
    memcpy(cython.address(one), data, 1)
    return one if signed else one & 0xFF


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def unsigned(value: cython.longlong) -> cython.ulonglong:
    """Reinterpret a signed 64-bit number as an unsigned one."""
    if cython.compiled:
        return cython.cast(cython.ulonglong, value)
    return value & (1 << 64) - 1


@cython.cfunc
@cython.inline
def real_at(buf: bytes, i: cython.Py_ssize_t, width: cython.Py_ssize_t) -> cython.double:
    """Return the i-th float or double of a buffer."""
    if i < 0 or i > len(buf) // width - 1:
        raise IndexError("the row is outside its buffer")
    if not cython.compiled:
        real: float = struct.unpack_from("=d" if width == 8 else "=f", buf, width * i)[0]
        return real
    data: cython.p_const_uchar = cython.cast(cython.p_const_uchar, PyBytes_AS_STRING(buf)) + width * i
    value: cython.double = 0
    single: cython.float = 0
    if width == 8:
        memcpy(cython.address(value), data, 8)
        return value
    memcpy(cython.address(single), data, 4)
    return single


@cython.final
@cython.cclass
class StringArrays:
    """A column in Arrow's layout: texts, or values that a ValueFormatter writes as texts (`be_values`)."""

    __slots__ = (
        "head", "valid", "offsets", "data", "base", "first", "start", "size", "kind", "width", "zoned", "writer",
    )  # fmt: skip
    head: bytes
    valid: bytes
    offsets: bytes
    data: bytes
    base: cython.Py_ssize_t
    first: cython.Py_ssize_t
    start: cython.Py_ssize_t
    size: cython.Py_ssize_t
    kind: cython.int
    width: cython.Py_ssize_t
    zoned: cython.bint
    writer: ValueFormatter  # formats values of fixed width; None for texts

    def __init__(
        self, name: bytes, valid: bytes | None, offsets: bytes, data: bytes | None, base: int, first: int = 0
    ) -> None:
        """`base` is the index of row 0 in the buffers; `first` is the offset to which data[0] corresponds."""
        self.head = b"$%d\r\n%b\r\n" % (len(name), name)
        self.valid = valid or b""
        self.offsets = offsets
        self.data = data or b""
        self.base = base
        self.first = first
        self.start = 0
        self.size = -1
        self.kind = TEXT
        self.width = 0
        self.zoned = False
        self.writer = None  # type: ignore[assignment]

    def be_values(self, kind: int, zoned: bool = False) -> StringArrays:
        """Let `data` contain values of fixed width instead of texts. zoned: timestamps end in Z. Return the column."""
        self.kind = kind
        self.width = WIDTHS[kind]
        self.zoned = zoned
        self.writer = ValueFormatter()
        return self

    @cython.cfunc
    def find(self, row: cython.Py_ssize_t) -> cython.bint:
        """Find or format the text of a row, and set `start` and `size`. Return False and set size to -1 for a null."""
        i: cython.Py_ssize_t = self.base + row
        bits: cython.int
        self.size = -1
        if len(self.valid) > 0:
            if i < 0 or (i >> 3) >= len(self.valid):
                raise IndexError("the row is outside its buffer")
            bits = self.valid[i >> 3]
            if not (bits >> (i & 7)) & 1:
                return False
        if self.kind != _TEXT:
            return self._write(i)
        self.start = int32_at(self.offsets, i) - self.first
        i = int32_at(self.offsets, i + 1) - self.first
        if self.start < 0 or i < self.start or i > len(self.data):
            raise IndexError("the text is outside its buffer")
        self.size = i - self.start
        return True

    @cython.cfunc
    def _write(self, i: cython.Py_ssize_t) -> cython.bint:
        """Write the value at index i of `data` as text into the formatter's buffer."""
        kind: cython.int = self.kind
        value: cython.longlong
        bits: cython.int
        if kind == _DOUBLE:
            self.size = self.writer.put_real(real_at(self.data, i, 8))
        elif kind == _FLOAT:
            self.size = self.writer.put_single(real_at(self.data, i, 4))
        elif kind == _BOOLEAN:
            if i < 0 or (i >> 3) >= len(self.data):
                raise IndexError("the row is outside its buffer")
            bits = self.data[i >> 3]
            self.size = self.writer.put_truth((bits >> (i & 7)) & 1 == 1)
        elif kind <= _UINT64:
            value = whole_at(self.data, i, self.width, kind <= _INT64)
            if kind == _UINT64:
                self.size = self.writer.put_unsigned(unsigned(value))
            else:
                self.size = self.writer.put_signed(value)
        elif kind == _DAY:
            self.size = self.writer.put_day(whole_at(self.data, i, 4, True))
        else:
            self.size = self.writer.put_moment(whole_at(self.data, i, 8, True), 3 * (kind - _SECONDS), self.zoned)
        return True


@cython.cclass
class Packer:
    """The buffer of a packer of commands: `used` bytes of `buf` are filled with `commands` commands.

    Subclasses decide what a row becomes. lines: of the replies, if the subclass counts them. With a map column, row i
    has the name-value pairs from ends[base + i] up to ends[base + i + 1]. The methods are final, so that a subclass in
    this module calls them without a table of methods.
    """

    __slots__ = ("buf", "used", "commands", "lines", "ends", "names", "values", "base", "_first", "_last")
    buf: bytearray
    used: readonly[cython.Py_ssize_t]
    commands: readonly[cython.Py_ssize_t]
    lines: readonly[cython.Py_ssize_t]
    ends: bytes
    names: StringArrays
    values: StringArrays
    base: cython.Py_ssize_t
    _first: cython.Py_ssize_t
    _last: cython.Py_ssize_t

    def __init__(self) -> None:
        self.buf = bytearray(1 << 16)
        self.used = self.commands = self.lines = self.base = 0
        self.ends = b""
        self.names = self.values = None  # type: ignore[assignment]
        self._first = self._last = 0

    def map_of(self, ends: bytes, base: int, names: StringArrays, values: StringArrays) -> None:
        """Set the map column."""
        self.ends = ends
        self.base = base
        self.names = names
        self.values = values

    @cython.ccall
    def take_bytes(self) -> bytearray:
        """Return the packed commands, and empty the packer."""
        taken: bytearray = self.buf
        del taken[self.used :]
        self.buf = bytearray(max(1 << 16, self.used + (self.used >> 2)))
        self.used = self.commands = self.lines = 0
        return taken

    # ---- the pairs of a map column -----------------------------------------------------------------------------

    @cython.final
    @cython.cfunc
    def _count_pairs(self, row: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Find the pairs of a row, and return how many have a value."""
        i: cython.Py_ssize_t
        pairs: cython.Py_ssize_t = 0
        self._first = int32_at(self.ends, self.base + row)
        self._last = int32_at(self.ends, self.base + row + 1)
        for i in range(self._first, self._last):
            if self.values.find(i):
                pairs += 1
        return pairs

    @cython.final
    @cython.cfunc
    def _pairs(self) -> cython.bint:
        """Write the pairs that `_count_pairs` found; omit those with a null value."""
        i: cython.Py_ssize_t
        for i in range(self._first, self._last):
            if self.values.find(i):
                if not self.names.find(i):
                    raise ValueError("the map column has a null name")
                self._reserve(self.names.size + self.values.size + 2 * _FRAME)
                self._text(self.names)
                self._text(self.values)
        return True

    # ---- writing into the room that `_reserve` made --------------------------------------------------------------

    @cython.final
    @cython.cfunc
    @cython.inline
    @cython.exceptval(-1, check=False)
    def _text(self, column: StringArrays) -> cython.bint:
        """Write the text that `StringArrays.find` selected as a bulk string."""
        self._number(0x24, column.size)
        if column.kind == _TEXT:
            self._bytes(column.data, column.start, column.size)
        else:
            self._written(column)
        to: cython.p_uchar = start_of(self.buf)
        to[self.used] = 0x0D
        to[self.used + 1] = 0x0A
        self.used += 2
        return True

    @cython.final
    @cython.cfunc
    @cython.inline
    @cython.exceptval(-1, check=False)
    def _written(self, column: StringArrays) -> cython.bint:
        """Write the formatter's text: copy all 32 bytes of its buffer; the next write overwrites the surplus."""
        at: cython.Py_ssize_t = self.used
        if column.size < 0 or column.size > 32 or at > len(self.buf) - 32:
            raise IndexError("the text is outside its buffer")
        if cython.compiled:
            memcpy(start_of(self.buf) + at, start_of(column.writer.buf), 32)
        else:
            self.buf[at : at + column.size] = column.writer.buf[: column.size]
        self.used = at + column.size
        return True

    @cython.final
    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def _number(self, kind: cython.uchar, value: cython.Py_ssize_t) -> cython.bint:
        """Write a RESP header line such as $5."""
        self.used = put_header(start_of(self.buf), self.used, kind, value)
        return True

    @cython.final
    @cython.cfunc
    def _reserve(self, n: cython.Py_ssize_t) -> cython.bint:
        """Reserve room for n more bytes, and for the 32 bytes that a copy of a short text may write."""
        if n + 32 > len(self.buf) - self.used:
            self.buf.extend(bytes(n + len(self.buf)))
        return True

    @cython.final
    @cython.cfunc
    @cython.inline
    @cython.exceptval(-1, check=False)
    def _bytes(self, data: bytes, start: cython.Py_ssize_t, n: cython.Py_ssize_t) -> cython.bint:
        """Write data[start:start + n]. A short text is copied with the bytes after it, which are overwritten next."""
        at: cython.Py_ssize_t = self.used
        if n < 0 or start < 0 or start > len(data) - n or at > len(self.buf) - n:
            raise IndexError("the text is outside its buffer")
        if cython.compiled:
            to: cython.p_uchar = start_of(self.buf) + at
            source: cython.p_const_uchar = cython.cast(cython.p_const_uchar, PyBytes_AS_STRING(data)) + start
            if n <= 16 and start <= len(data) - 16 and at <= len(self.buf) - 16:
                memcpy(to, source, 16)
            else:
                memcpy(to, source, n)
        else:
            self.buf[at : at + n] = data[start : start + n]
        self.used = at + n
        return True


@cython.final
@cython.cclass
class RowPacker(Packer):
    """Packs rows as XADD commands into `buf`; `used` is the number of bytes, `commands` the number of commands."""

    __slots__ = ("head", "tail", "after", "verb", "words", "columns", "ids", "keys")
    head: bytes
    tail: bytes
    after: bytes
    verb: bytes
    words: cython.Py_ssize_t
    columns: list[StringArrays]
    ids: StringArrays
    keys: StringArrays

    def __init__(self, words: list[bytes], after: bytes = b"") -> None:
        """`words` are the words of the command before the ID: XADD, the stream's key, the options.

        `after` is a word that follows the value of the ID column. With IDMP the column contains message IDs (iids),
        and `after` is the entry ID `*`.
        """
        Packer.__init__(self)
        bulks = [b"$%d\r\n%b\r\n" % (len(word), word) for word in words]
        self.head = b"".join(bulks)
        self.verb = bulks[0]
        self.tail = b"".join(bulks[2:])
        self.after = b"$%d\r\n%b\r\n" % (len(after), after) if after else b""
        self.words = len(words) + (2 if after else 1)
        self.columns = []
        self.ids = self.keys = None  # type: ignore[assignment]

    def rows_of(self, columns: list[StringArrays], ids: StringArrays | None, keys: StringArrays | None = None) -> None:
        """Set the columns to pack. ids: entry IDs, None = the server assigns them. keys: each row's stream key."""
        self.columns = columns
        self.ids = ids  # type: ignore[assignment]
        self.keys = keys  # type: ignore[assignment]
        self.names = self.values = None  # type: ignore[assignment]

    def rows_of_map(
        self,
        ends: bytes,
        base: int,
        names: StringArrays,
        values: StringArrays,
        ids: StringArrays | None,
        keys: StringArrays | None = None,
    ) -> None:
        """Set the map column to pack."""
        self.rows_of([], ids, keys)
        self.map_of(ends, base, names, values)

    @cython.ccall
    def pack(self, row: cython.Py_ssize_t, stop: cython.Py_ssize_t, limit: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Append the commands of the rows from `row` on, up to `stop` or `limit` bytes; return the next row."""
        while row < stop and self.used < limit:
            if self.names is not None:
                self._map_row(row)
            else:
                self._row(row)
            self.commands += 1
            row += 1
        return row

    @cython.cfunc
    def _start(self, row: cython.Py_ssize_t, pairs: cython.Py_ssize_t, room: cython.Py_ssize_t) -> cython.bint:
        """Write the beginning of a row's command, up to the ID, and reserve `room` bytes for the fields."""
        if pairs == 0:
            raise ValueError("a row has nothing but nulls, and an entry needs a field")
        if self.ids is not None:
            if not self.ids.find(row):
                raise ValueError("the ID column holds a null")
            room += self.ids.size
        if self.keys is not None:
            if not self.keys.find(row):
                raise ValueError("the stream column holds a null")
            room += self.keys.size
        self._reserve(room + len(self.head) + len(self.after) + 4 * _FRAME)
        self._number(0x2A, self.words + 2 * pairs)
        if self.keys is None:
            self._bytes(self.head, 0, len(self.head))
        else:
            self._bytes(self.verb, 0, len(self.verb))
            self._text(self.keys)
            self._bytes(self.tail, 0, len(self.tail))
        if self.ids is None:
            return self._bytes(b"$1\r\n*\r\n", 0, 7)
        self._text(self.ids)
        return self._bytes(self.after, 0, len(self.after))

    @cython.cfunc
    def _row(self, row: cython.Py_ssize_t) -> cython.bint:
        """Write one row, a field for each column that is not null, as a command."""
        column: StringArrays
        pairs: cython.Py_ssize_t = 0
        room: cython.Py_ssize_t = 0
        for column in self.columns:
            if column.find(row):
                pairs += 1
                room += column.size + len(column.head) + _FRAME
        self._start(row, pairs, room)
        for column in self.columns:
            if column.size >= 0:
                self._bytes(column.head, 0, len(column.head))
                self._text(column)
        return True

    @cython.cfunc
    def _map_row(self, row: cython.Py_ssize_t) -> cython.bint:
        """Write one row of the map column as a command; omit pairs with a null value."""
        self._start(row, self._count_pairs(row), 0)
        return self._pairs()

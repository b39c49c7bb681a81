"""Rows: the columns of one batch, and which field of an entry goes into which.

A decoder (`resp.py`, `nodes.py`) walks over entries and calls, for each,

    rows.begin(ms, seq)                      forget what an unfinished entry left behind
    rows.name(buf, start, n)                 once for each field: its name,
    rows.text(buf, start, n)                 and its value, or rows.number(value)
    rows.finish(buf)                         append one value to every column

Between `begin` and `finish` nothing is final: an entry whose second half has not arrived yet is begun again. A
typed column only notes where its value lies (its registers), so the last of duplicate fields wins and a missing
one is null, both without a test. The map column writes its pairs at once and goes back to its mark when the
entry is begun again.

Which column wants a field is guessed from its position: entries of a stream mostly have the same fields in the
same order, so the name at position i is compared with the name last seen there (`pattern`), which costs a
memcmp; only where it differs a dictionary is asked. Spark refuses a map with a key twice. As long as an entry
follows a pattern without doubles it has none; else its pairs are gone through again, and the last one wins
there too.

Sources of a column: a field, or one of the entry's own columns:

    stream     string       the key
    id         string       ms-seq, exact
    id_ms      long         the ID's first half: 64 unsigned bits in a signed column, so from 2^63 on it
    id_seq     long         reads negative (two's complement); `id` is exact
    timestamp  timestamp    id_ms as a moment; null where microseconds do not fit (beyond the year 294246)
    fields     map          every field

Cost: O(bytes) of the entry, about 15 ns a column besides.
"""

from __future__ import annotations

try:
    import cython
except ModuleNotFoundError:  # interpreted, Cython not installed
    from rillet import _cython as cython

from rillet.columns.column import BINARY, INT, LONG, STRING, TIMESTAMP, Column
from rillet.columns.text import Parser

FIELD, STREAM, ID, ID_MS, ID_SEQ, ID_TIME, MAP = range(7)
_FIELD = cython.declare(cython.int, 0)
_STREAM = cython.declare(cython.int, 1)
_ID = cython.declare(cython.int, 2)
_ID_MS = cython.declare(cython.int, 3)
_ID_SEQ = cython.declare(cython.int, 4)
_ID_TIME = cython.declare(cython.int, 5)
_ABSENT = cython.declare(cython.Py_ssize_t, -1)
_NUMBER = cython.declare(cython.Py_ssize_t, -2)
_MAX_MILLISECONDS = cython.declare(cython.ulonglong, ((1 << 63) - 1) // 1000)
_MAX_PATTERN = cython.declare(cython.Py_ssize_t, 256)
_SIGN = cython.declare(cython.ulonglong, 1 << 63)

SOURCES = {"stream": STREAM, "id": ID, "id_ms": ID_MS, "id_seq": ID_SEQ, "timestamp": ID_TIME, "fields": MAP}
SOURCE_KINDS = {STREAM: STRING, ID: STRING, ID_MS: LONG, ID_SEQ: LONG, ID_TIME: TIMESTAMP}


@cython.cfunc
@cython.inline
def same(name: bytes, buf: bytearray, start: cython.Py_ssize_t, n: cython.Py_ssize_t) -> cython.bint:
    """Tell whether buf[start:start + n] is name; the range must lie inside buf."""
    if n != len(name):
        return False
    if start < 0 or start > len(buf) - n:
        raise IndexError("name outside the buffer")
    if cython.compiled:
        left: cython.p_uchar = name
        right: cython.p_uchar = buf
        i: cython.Py_ssize_t
        right += start
        for i in range(n):
            if left[i] != right[i]:
                return False
        return True
    return buf[start : start + n] == name


@cython.cfunc
@cython.inline
def signed(value: cython.ulonglong) -> cython.longlong:
    """Return the same 64 bits as a signed number."""
    if value < _SIGN:
        return value
    rest: cython.longlong = value - _SIGN
    return rest - 9223372036854775807 - 1


@cython.final
@cython.cclass
class Rows:
    """The columns of a batch under construction."""

    __slots__ = (
        "columns", "wanted", "pattern", "owners", "position", "changed", "unique", "keys", "items", "keys_mark",
        "keys_used", "items_used", "map_ends", "owner", "key", "length", "ms", "seq", "nbytes", "parser",
    )  # fmt: skip
    columns: list[Column]
    wanted: dict[bytes, Column]
    pattern: list[bytes]
    owners: list[Column | None]
    position: cython.Py_ssize_t
    changed: cython.bint
    unique: cython.bint
    keys: Column
    items: Column
    keys_mark: cython.Py_ssize_t
    keys_used: cython.Py_ssize_t
    items_used: cython.Py_ssize_t
    map_ends: Column
    owner: Column
    key: bytearray
    length: cython.Py_ssize_t
    ms: cython.ulonglong
    seq: cython.ulonglong
    nbytes: cython.Py_ssize_t
    parser: Parser

    def __init__(self, key: bytes) -> None:
        """Start without columns; `key` is what a stream column shows."""
        self.columns = []
        self.wanted = {}
        self.pattern = []
        self.owners = []
        self.key = bytearray(key)
        self.parser = Parser()
        self.changed = False
        self.unique = True
        self.position = self.keys_mark = self.keys_used = self.items_used = self.length = self.nbytes = 0
        self.ms = self.seq = 0
        self.keys = self.items = self.map_ends = self.owner = None  # type: ignore[assignment]

    def add_field(self, name: bytes, kind: int) -> None:
        """Add a typed column of the field `name`; two columns of one field are refused."""
        if name in self.wanted:
            raise ValueError(f"two columns take the field {name.decode('utf-8', 'replace')!r}")
        column = Column(name, FIELD, kind, self.parser)
        self.wanted[name] = column
        self.columns.append(column)

    def add_source(self, source: int) -> None:
        """Add one of the entry's own columns (STREAM, ID, ID_MS, ID_SEQ, ID_TIME)."""
        self.columns.append(Column(b"", source, SOURCE_KINDS[source], self.parser))

    def add_map(self, kind: int) -> None:
        """Add the map of all fields; kind (STRING or BINARY) is that of its values, names are strings."""
        if self.keys is not None:
            raise ValueError("a batch has one map column")
        if kind not in (STRING, BINARY):
            raise ValueError("the map's values are strings or binary")
        self.keys = Column(b"", MAP, STRING, self.parser)
        self.items = Column(b"", MAP, kind, self.parser)
        self.map_ends = Column(b"", MAP, INT, self.parser)
        self.columns.append(self.map_ends)

    @cython.ccall
    def begin(self, ms: cython.ulonglong, seq: cython.ulonglong) -> cython.bint:
        """Start an entry, dropping what an unfinished one left."""
        column: Column
        if self.position != 0:
            if self.keys is not None:
                self.keys.truncate(self.keys_mark, self.keys_used)
                self.items.truncate(self.keys_mark, self.items_used)
            for column in self.columns:
                column.size = _ABSENT
        self.position = 0
        self.ms = ms
        self.seq = seq
        return True

    @cython.ccall
    def name(self, buf: bytearray, start: cython.Py_ssize_t, n: cython.Py_ssize_t) -> cython.bint:
        """Take the name of the entry's next field, buf[start:start + n]; its value must follow."""
        self.owner = self._owner(buf, start, n)
        if self.keys is not None:
            self.keys.put(buf, start, n)
        return True

    @cython.ccall
    def text(self, buf: bytearray, start: cython.Py_ssize_t, n: cython.Py_ssize_t) -> cython.bint:
        """Take the value of the field named last: the text buf[start:start + n], which `finish` finds in its `buf`."""
        if self.keys is not None:
            self.items.put(buf, start, n)
        if self.owner is not None:
            self.owner.start = start
            self.owner.size = n
        return True

    @cython.ccall
    def number(self, value: cython.longlong) -> cython.bint:
        """Take the value of the field named last: an integer, as a listpack stores it."""
        if self.keys is not None:
            self.items.put_number(value)
        if self.owner is not None:
            self.owner.number = value
            self.owner.size = _NUMBER
        return True

    @cython.cfunc
    @cython.inline
    def _owner(self, buf: bytearray, start: cython.Py_ssize_t, n: cython.Py_ssize_t) -> Column:
        """Return the column that wants the field at the current position, or None; step on."""
        i: cython.Py_ssize_t = self.position
        self.position = i + 1
        if i < len(self.pattern) and same(self.pattern[i], buf, start, n):
            return self.owners[i]  # type: ignore[return-value]
        return self._learn(i, bytes(buf[start : start + n]))

    @cython.cfunc
    def _learn(self, i: cython.Py_ssize_t, name: bytes) -> Column:
        """Remember the field's name at position i."""
        owner = self.wanted.get(name)
        self.changed = True
        if i < len(self.pattern):
            self.pattern[i] = name
            self.owners[i] = owner
        elif i < _MAX_PATTERN:
            self.pattern.append(name)
            self.owners.append(owner)
        return owner  # type: ignore[return-value]

    @cython.ccall
    def finish(self, buf: bytearray) -> cython.bint:
        """End the entry: one value for every column."""
        column: Column
        source: cython.int
        if self.keys is not None:
            self._finish_map()
        for column in self.columns:
            source = column.source
            if source == _FIELD:
                column.put_register(buf)
            elif source == _ID:
                column.put_decimal(self.ms, 0x2D)
                column.put_decimal(self.seq, 0)
                column.end_text()
            elif source == _ID_MS:
                column.put_integer(signed(self.ms))
            elif source == _ID_SEQ:
                column.put_integer(signed(self.seq))
            elif source == _ID_TIME:
                if self.ms > _MAX_MILLISECONDS:
                    column.put_null()
                else:
                    column.put_integer(self.ms * 1000)
            elif source == _STREAM:
                column.put(self.key, 0, len(self.key))
            else:
                column.put_integer(self.keys.length)
        self.position = 0
        self.length += 1
        return True

    @cython.cfunc
    def _finish_map(self) -> cython.bint:
        """Make the entry's pairs final, without doubles."""
        if self.changed:
            names = [name.decode("utf-8", "replace") for name in self.pattern]
            self.unique = len(set(names)) == len(names)
            self.changed = False
        if not self.unique or self.position > _MAX_PATTERN:
            self._drop_doubles()
        self.keys_mark = self.keys.length
        self.keys_used = self.keys.used
        self.items_used = self.items.used
        return True

    @cython.cfunc
    def _drop_doubles(self) -> cython.bint:
        """Rewrite the entry's pairs: a name keeps its first place and its last value."""
        pairs: dict[bytes, bytes] = {}
        mark: cython.Py_ssize_t = self.keys_mark
        i: cython.Py_ssize_t
        for i in range(mark, self.keys.length):
            pairs[self.keys.value(i)] = self.items.value(i)
        if len(pairs) == self.keys.length - mark:
            return False
        self.keys.truncate(mark, self.keys_used)
        self.items.truncate(mark, self.items_used)
        for name, value in pairs.items():
            self.keys.put_bytes(name)
            self.items.put_bytes(value)
        return True

    def clear(self) -> None:
        """Begin the next batch, after the columns were taken."""
        self.length = self.nbytes = self.keys_mark = self.keys_used = self.items_used = 0

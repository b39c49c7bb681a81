"""Assembles the rows of one batch: assigns each field of an entry to its column.

A decoder (resp_decoder.py, node_decoder.py) walks over entries and calls, for each one,

    rows.begin(ms, seq)                      drop the values of an unfinished entry
    rows.name(buf, start, n)                 for each field: its name,
    rows.text(buf, start, n)                 and its value, or rows.number(value)
    rows.finish(buf)                         append one value to every column

Nothing is final between `begin` and `finish`: if only half of an entry has arrived, the decoder begins the entry again
later. Until `finish`, a typed column stores only the position of its value in the buffer (`start`, `size`). Therefore
the last of duplicate fields wins, and a missing field becomes null, without extra tests. The map column appends its
pairs immediately; `begin` removes the pairs of an unfinished entry.

The builder guesses the column of a field from its position. Entries of a stream mostly have the same fields in the
same order, so the name of field i is compared with the name of field i in the previous entry (`pattern`): one memcmp.
Only a different name needs a dictionary lookup. Spark rejects a map with duplicate keys. An entry that has the same
names as a pattern without duplicates needs no test. Otherwise its pairs are searched, and the last value of a name
wins.

Many entries have the same names: those of similar replies, or those of a node with the master entry's fields. The
decoder looks such names up once and keeps the result as a `Shape`: a chain of `Slot`s, each with a value's column.

    shape = rows.shape_of([b"user", b"amount"])
    rows.begin_as(shape, ms, seq)
    ...                                      for each slot of the shape: set start, size, number of slot.owner (if any),
    rows.finish(buf)                         and append the value to rows.items (if the batch has a map column)

Then no name is compared, and one copy appends all keys of the map.

A value that does not have its column's type becomes null and sets `parser.bad`. `finish` then applies the mode:

    PERMISSIVE      keep the entry. If there is a column of bad entries (`add_corrupt`), finish returns False, and the
                    decoder reads the entry again by its names and gives all of its fields to `malformed`
    DROPMALFORMED   drop the last value of every column
    FAILFAST        raise BadValue with the entry's ID, the field, its text and the type. In this mode, bytes that are
                    not UTF-8 are not a string

Sources of a column: a field, or the entry itself:

    stream     string       the key
    id         string       ms-seq, exact
    id_ms      long         the ID's first half: 64 unsigned bits in a signed column, so 2^63 and more read as
    id_seq     long         negative (two's complement); `id` is exact
    timestamp  timestamp    id_ms as a timestamp; null if its microseconds exceed 64 bits (after the year 294246)
    fields     map          all fields

Cost: O(bytes) of the entry, plus 5 to 15 ns per column if compiled. A field without a column costs nothing here.
"""

from __future__ import annotations

import json

from rillet._cython import cython, public, readonly
from rillet.columns.column import (
    BINARY,
    INT,
    LONG,
    STRING,
    TIMESTAMP,
    Column,
    put_int32,
)
from rillet.columns.value_parsing import ValueParser
from rillet.errors import RilletError

if cython.compiled:
    from cython.cimports.libc.string import memcmp  # type: ignore[import-not-found, unused-ignore]

FIELD, STREAM, ID, ID_MS, ID_SEQ, ID_TIME, MAP, CORRUPT = range(8)
_FIELD = cython.declare(cython.int, 0)
_STREAM = cython.declare(cython.int, 1)
_ID = cython.declare(cython.int, 2)
_ID_MS = cython.declare(cython.int, 3)
_ID_SEQ = cython.declare(cython.int, 4)
_ID_TIME = cython.declare(cython.int, 5)
_MAP = cython.declare(cython.int, 6)
_ABSENT = cython.declare(cython.Py_ssize_t, -1)
_NUMBER = cython.declare(cython.Py_ssize_t, -2)
_MAX_MILLISECONDS = cython.declare(cython.ulonglong, ((1 << 63) - 1) // 1000)
_MAX_PATTERN = cython.declare(cython.Py_ssize_t, 256)
_SIGN = cython.declare(cython.ulonglong, 1 << 63)

SOURCES = {"stream": STREAM, "id": ID, "id_ms": ID_MS, "id_seq": ID_SEQ, "timestamp": ID_TIME, "fields": MAP}
SOURCE_KINDS = {STREAM: STRING, ID: STRING, ID_MS: LONG, ID_SEQ: LONG, ID_TIME: TIMESTAMP}

PERMISSIVE, DROPMALFORMED, FAILFAST = range(3)
MODES = {"PERMISSIVE": PERMISSIVE, "DROPMALFORMED": DROPMALFORMED, "FAILFAST": FAILFAST}
_DROPMALFORMED = cython.declare(cython.int, 1)
_FAILFAST = cython.declare(cython.int, 2)
SHOWN = 100  # the maximum length of a malformed value in an error message, in characters
MOST_FIELDS = 1000  # limit for schema discovery: a stream with more field names probably uses names as data


class TooManyFields(RilletError):
    """Schema discovery found more than MOST_FIELDS field names."""


class BadValue(RilletError, ValueError):
    """A field's value does not have its column's type, and the mode is FAILFAST."""


@cython.cfunc
@cython.inline
def same(name: bytes, buf: bytearray, start: cython.Py_ssize_t, n: cython.Py_ssize_t) -> cython.bint:
    """Return whether buf[start:start + n] equals a name. Raise IndexError if the range exceeds buf."""
    if n != len(name):
        return False
    if start < 0 or start > len(buf) - n:
        raise IndexError("a field name would exceed the buffer")
    if cython.compiled:
        left: cython.p_const_uchar = name
        right: cython.p_const_uchar = buf
        return memcmp(left, right + start, n) == 0
    return buf[start : start + n] == name


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def signed(value: cython.ulonglong) -> cython.longlong:
    """Reinterpret an unsigned 64-bit number as a signed one."""
    if value < _SIGN:
        return value
    rest: cython.longlong = value - _SIGN
    return rest - 9223372036854775807 - 1


@cython.final
@cython.cclass
class Slot:
    """One field of a shape: the constant bytes before its value in a reply, and the value's column."""

    __slots__ = ("name", "owner", "literal", "size", "next")
    name: readonly[bytes]
    owner: readonly[Column]  # the column of this field; None if the batch has none
    literal: readonly[bytes]  # the reply's bytes between the previous value (or ID) and this value's length
    size: readonly[cython.Py_ssize_t]  # length of `literal` in bytes
    next: public[Slot]

    def __init__(self, name: bytes, owner: Column | None, literal: bytes) -> None:
        self.name = name
        self.owner = owner  # type: ignore[assignment]
        self.literal = literal
        self.size = len(literal)
        self.next = None  # type: ignore[assignment]


@cython.final
@cython.cclass
class Shape:
    """An entry's field names in order, looked up once for all entries that have the same names."""

    __slots__ = ("first", "count", "unique", "texts", "ends")
    first: readonly[Slot]
    count: readonly[cython.Py_ssize_t]
    unique: readonly[cython.bint]  # the names contain no duplicates, so they can be keys of a Spark map
    texts: readonly[bytes]  # all names, concatenated as the keys of a map column
    ends: readonly[bytearray]  # end offset of each name in `texts`, as int32

    def __init__(self, names: list[bytes], wanted: dict[bytes, Column]) -> None:
        keys = [name.decode("utf-8", "replace").encode() for name in names]
        self.count = len(names)
        self.unique = len(set(keys)) == len(keys)
        self.texts = b"".join(keys)
        self.ends = bytearray(4 * len(keys))
        self.first = None  # type: ignore[assignment]
        last: Slot = None  # type: ignore[assignment]
        end = 0
        for i, name in enumerate(names):
            end += len(keys[i])
            put_int32(self.ends, i, end)
            head = b"\r\n*%d" % (2 * len(names)) if i == 0 else b""
            slot = Slot(name, wanted.get(name), b"%b\r\n$%d\r\n%b\r\n$" % (head, len(name), name))
            if last is None:
                self.first = slot
            else:
                last.next = slot
            last = slot


@cython.final
@cython.cclass
class RowBuilder:
    """Collects the values of each entry and appends them to the columns of a batch."""

    __slots__ = (
        "columns", "first", "wanted", "pattern", "owners", "position", "changed", "unique", "keys", "items",
        "keys_mark", "keys_used", "items_used", "map_ends", "owner", "key", "length", "ms", "seq", "nbytes", "parser",
        "shapes", "shape", "id_start", "id_size", "mode", "corrupt", "discovers", "noun", "before",
        "twins",
    )  # fmt: skip
    columns: public[list[Column]]
    first: public[Column]
    wanted: public[dict[bytes, Column]]
    twins: list[Column]  # second columns of fields; None if there are none
    pattern: public[list[bytes]]
    owners: public[list[Column | None]]
    position: public[cython.Py_ssize_t]
    changed: public[cython.bint]
    unique: public[cython.bint]
    keys: public[Column]
    items: public[Column]
    keys_mark: public[cython.Py_ssize_t]
    keys_used: public[cython.Py_ssize_t]
    items_used: public[cython.Py_ssize_t]
    map_ends: public[Column]
    owner: Column
    key: public[bytes]
    length: public[cython.Py_ssize_t]
    ms: public[cython.ulonglong]
    seq: public[cython.ulonglong]
    nbytes: public[cython.Py_ssize_t]
    parser: public[ValueParser]
    shapes: public[dict[tuple[bytes, ...], Shape]]
    shape: Shape  # the current entry's shape; None if the decoder passes its names one by one
    id_start: cython.Py_ssize_t
    id_size: cython.Py_ssize_t  # length of the ID's text in the entry's buffer; ABSENT: there is no text
    mode: readonly[cython.int]
    corrupt: readonly[Column]  # the column that shows malformed entries as JSON; or None
    discovers: public[cython.bint]  # whether a field without a column gets a new string column
    noun: public[str]  # the type of the keys for messages, if they are not streams; each key is then one row or several
    before: public[bytes]  # the prefix that `key` lacks, for messages

    def __init__(self, key: bytes, mode: int = PERMISSIVE) -> None:
        """Create a builder without columns; `key` is the value of the `stream` column."""
        self.columns = []
        self.wanted = {}
        self.twins = None  # type: ignore[assignment]
        self.pattern = []
        self.owners = []
        self.shapes = {}
        self.key = key
        self.parser = ValueParser()
        self.mode = mode
        self.changed = False
        self.discovers = False
        self.unique = True
        self.position = self.keys_mark = self.keys_used = self.items_used = self.length = self.nbytes = 0
        self.ms = self.seq = 0
        self.id_start = 0
        self.id_size = -1
        self.first = self.keys = self.items = self.map_ends = self.owner = None  # type: ignore[assignment]
        self.corrupt = self.shape = None  # type: ignore[assignment]
        self.noun = ""
        self.before = b""

    def _add(self, column: Column) -> None:
        column.strict = self.mode == FAILFAST
        if self.columns:
            self.columns[len(self.columns) - 1].next = column
        else:
            self.first = column
        self.columns.append(column)

    def add_field(self, name: bytes, kind: int) -> Column:
        """Add a column for the field `name` and return it. Raise ValueError if the field already has a column."""
        if name in self.wanted:
            raise ValueError(f"two columns take the field {name.decode('utf-8', 'replace')!r}")
        column = Column(name, FIELD, kind, self.parser)
        self.wanted[name] = column
        self._add(column)
        return column

    def add_twin(self, name: bytes, kind: int) -> Column:
        """Add a second column for a field, of another type, and return it. Raise ValueError if the field has two."""
        twin = Column(name, FIELD, kind, self.parser)
        self.twins = self.twins or []
        if any(one.name == name for one in self.twins):
            raise ValueError(f"three columns take the field {name.decode('utf-8', 'replace')!r}")
        self.twins.append(twin)
        self._add(twin)
        return twin

    def add_source(self, source: int) -> None:
        """Add a column for the key or a part of the entry's ID (STREAM, ID, ID_MS, ID_SEQ, ID_TIME)."""
        self._add(Column(b"", source, SOURCE_KINDS[source], self.parser))

    def add_value(self, name: bytes, kind: int) -> Column:
        """Add a column that a decoder fills without the name of a field, and return it; `name` is for messages."""
        column = Column(name, FIELD, kind, self.parser)
        self._add(column)
        return column

    def add_key(self, kind: int) -> Column:
        """Add a column of any kind for the key, and return it."""
        column = Column(b"", STREAM, kind, self.parser)
        self._add(column)
        return column

    def add_corrupt(self) -> None:
        """Add the column that shows entries with malformed values as JSON. It is null for other entries."""
        self._add(Column(b"", CORRUPT, STRING, self.parser))
        if self.mode == PERMISSIVE:
            self.corrupt = self.columns[len(self.columns) - 1]

    def add_map(self, kind: int) -> None:
        """Add the map column of all fields. Its keys are strings; its values are of `kind` STRING or BINARY."""
        if self.keys is not None:
            raise ValueError("the batch already has a map column")
        if kind not in (STRING, BINARY):
            raise ValueError("the values of the map column must be STRING or BINARY")
        self.keys = Column(b"", MAP, STRING, self.parser)
        self.items = Column(b"", MAP, kind, self.parser)
        self.keys.strict = self.items.strict = self.mode == FAILFAST
        self.map_ends = Column(b"", MAP, INT, self.parser)
        self._add(self.map_ends)

    # ---- entries with names passed one by one -------------------------------------------------------------

    @cython.ccall
    def begin(self, ms: cython.ulonglong, seq: cython.ulonglong) -> cython.bint:
        """Start the next entry; drop the values of a preceding entry that was not finished."""
        if self.position != 0:
            self._forget()
        self.shape = None  # type: ignore[assignment]
        self.id_size = _ABSENT
        self.ms = ms
        self.seq = seq
        return True

    @cython.cfunc
    def _forget(self) -> cython.bint:
        """Drop the values of an entry that was begun and not finished."""
        column: Column = self.first
        if self.keys is not None:
            self.keys.truncate(self.keys_mark, self.keys_used)
            self.items.truncate(self.keys_mark, self.items_used)
            self.keys.bad = self.items.bad = _ABSENT
        while column is not None:
            column.size = _ABSENT
            column = column.next
        self.parser.bad = False
        self.id_size = _ABSENT
        self.position = 0
        return True

    @cython.ccall
    def name(self, buf: bytearray, start: cython.Py_ssize_t, n: cython.Py_ssize_t) -> cython.bint:
        """Set the name of the next field to buf[start:start + n]. Set its value next, with `text` or `number`."""
        self.owner = self._owner(buf, start, n)
        if self.keys is not None:
            self.keys.put(buf, start, n)
        return True

    @cython.ccall
    def text(self, buf: bytearray, start: cython.Py_ssize_t, n: cython.Py_ssize_t) -> cython.bint:
        """Set the value of the last named field to buf[start:start + n]. Pass the same buf to `finish`."""
        if self.keys is not None:
            self.items.put(buf, start, n)
        if self.owner is not None:
            self.owner.start = start
            self.owner.size = n
        return True

    @cython.ccall
    def number(self, value: cython.longlong) -> cython.bint:
        """Set the value of the last named field to an integer, for values that a listpack stores as integers."""
        if self.keys is not None:
            self.items.put_number(value)
        if self.owner is not None:
            self.owner.number = value
            self.owner.size = _NUMBER
        return True

    @cython.cfunc
    @cython.inline
    def _owner(self, buf: bytearray, start: cython.Py_ssize_t, n: cython.Py_ssize_t) -> Column:
        """Return the column of the entry's next field, or None if the field has no column; increment `position`."""
        i: cython.Py_ssize_t = self.position
        self.position = i + 1
        if i < len(self.pattern) and same(self.pattern[i], buf, start, n):
            return self.owners[i]  # type: ignore[return-value]
        return self._learn(i, bytes(buf[start : start + n]))

    @cython.cfunc
    def _learn(self, i: cython.Py_ssize_t, name: bytes) -> Column:
        """Store the name of an entry's i-th field for comparison with later entries; return its column or None."""
        owner = self.wanted.get(name)
        if owner is None and self.discovers:
            owner = self._discover(name)
        self.changed = True
        if i < len(self.pattern):
            self.pattern[i] = name
            self.owners[i] = owner
        elif i < _MAX_PATTERN:
            self.pattern.append(name)
            self.owners.append(owner)
        return owner  # type: ignore[return-value]

    def _discover(self, name: bytes) -> Column:
        """Add a string column for a new field, with a null for every earlier row."""
        if len(self.wanted) >= MOST_FIELDS:
            raise TooManyFields(f"more than {MOST_FIELDS:,} different fields")
        column = self.add_field(name, STRING)
        for _ in range(self.length):
            column.put_null()
        return column

    # ---- entries with a shape ----------------------------------------------------------------------------------

    def shape_of(self, names: list[bytes]) -> Shape:
        """Return the shape of entries with these fields in this order. O(names). All columns must exist already."""
        key = tuple(names)
        shape = self.shapes.get(key)
        if shape is None:
            if len(self.shapes) >= 64:
                self.shapes.clear()
            if self.discovers:
                for name in names:
                    if name not in self.wanted:
                        self._discover(name)
            shape = self.shapes[key] = Shape(names, self.wanted)
        return shape

    @cython.ccall
    def begin_as(self, shape: Shape, ms: cython.ulonglong, seq: cython.ulonglong) -> cython.bint:
        """Start an entry with a known shape. For each slot, the caller sets the value in slot.owner and `items`."""
        if self.position != 0:
            self._forget()
        self.shape = shape
        self.position = 1
        self.ms = ms
        self.seq = seq
        return True

    # ---- the end of an entry -----------------------------------------------------------------------------------

    @cython.ccall
    def finish(self, buf: bytearray) -> cython.bint:
        """Append one value of the entry to every column. Return False if the caller must call `malformed` next.

        Raise BadValue if a value does not have its column's type and the mode is FAILFAST.
        """
        return self.finish_in(buf, len(buf))

    @cython.cfunc
    def finish_in(self, data: cython.p_const_uchar, limit: cython.Py_ssize_t) -> cython.bint:
        """Append the entry's values as `finish` does; positions of texts refer to data[:limit]."""
        column: Column = self.first
        if self.keys is not None:
            self._finish_map()
        if self.twins is not None:
            self._set_twins()
        while column is not None:
            if column.source == _FIELD:
                column = column.put_registers(data, limit)
            else:
                self._put_own(column, data, limit)
                column = column.next
        self.position = 0
        self.id_size = _ABSENT
        self.length += 1
        if self.parser.bad:
            return self._finish_bad(data)
        if self.keys is not None:
            self._mark()
        return True

    @cython.cfunc
    def _set_twins(self) -> cython.bint:
        """Give each second column of a field the value of the first one."""
        twin: Column
        column: Column
        for twin in self.twins:
            column = self.wanted[twin.name]
            twin.start, twin.size, twin.number = column.start, column.size, column.number
        return True

    @cython.cfunc
    def _put_own(self, column: Column, data: cython.p_const_uchar, limit: cython.Py_ssize_t) -> cython.bint:
        """Append the stream's key, the entry's ID or a part of the ID to a column whose source this is."""
        source: cython.int = column.source
        if source == _ID:
            if self.id_size >= 0:
                return column.put_text(data, self.id_start, self.id_size, limit)
            return column.put_id(self.ms, self.seq)
        if source == _ID_MS:
            return column.put_integer(signed(self.ms))
        if source == _ID_SEQ:
            return column.put_integer(signed(self.seq))
        if source == _ID_TIME:
            if self.ms > _MAX_MILLISECONDS:
                return column.put_null()
            return column.put_integer(self.ms * 1000)
        if source == _STREAM:
            return column.put_text(self.key, 0, len(self.key), len(self.key))
        if source == _MAP:
            return column.put_integer(self.keys.length)
        return column.put_null()

    @cython.cfunc
    def _mark(self) -> cython.bint:
        """Record that the entry's pairs in the map column are complete, so that the next `begin` keeps them."""
        self.keys_mark = self.keys.length
        self.keys_used = self.keys.used
        self.items_used = self.items.used
        return True

    @cython.cfunc
    def _finish_map(self) -> cython.bint:
        """Append the names of the entry's fields to the map column, and remove duplicate names."""
        if self.shape is not None:
            self.keys.put_block(self.shape.texts, self.shape.ends, self.shape.count)
            if self.keys.length != self.items.length:
                raise AssertionError("the decoder set fewer values than the entry's shape has fields")
            if not self.shape.unique:
                self._drop_duplicates()
            return True
        if self.changed:
            names = [name.decode("utf-8", "replace") for name in self.pattern]
            self.unique = len(set(names)) == len(names)
            self.changed = False
        if not self.unique or self.position > _MAX_PATTERN:
            self._drop_duplicates()
        return True

    @cython.cfunc
    def _drop_duplicates(self) -> cython.bint:
        """Remove duplicate names from the entry's map. A name keeps its first position and its last value."""
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

    # ---- malformed values --------------------------------------------------------------------------------------

    @cython.cfunc
    def _finish_bad(self, data: cython.p_const_uchar) -> cython.bint:
        """Keep, drop or reject an entry with malformed values, as the mode requires; return the result of `finish`."""
        column: Column
        self.parser.bad = False
        if self.mode == _FAILFAST:
            self._fail(data)
        for column in self.columns:
            column.bad = _ABSENT
        if self.mode == _DROPMALFORMED:
            for column in self.columns:
                column.drop()
            self.length -= 1
            if self.keys is not None:
                self.keys.truncate(self.keys_mark, self.keys_used)
                self.items.truncate(self.keys_mark, self.items_used)
            return True
        if self.keys is not None:
            self._mark()
        return self.corrupt is None

    @cython.cfunc
    def _fail(self, data: cython.p_const_uchar) -> cython.bint:
        """Raise BadValue for the entry's first malformed value."""
        column: Column
        shown: str = "bytes that are not UTF-8"
        what: str = "a name or a value in the column 'fields'"
        kind: str = "string"
        for column in self.columns:
            if column.bad != _ABSENT:
                what = f"the field {column.name.decode('utf-8', 'replace')!r}"
                kind = column.label
                if column.source == _STREAM:  # the key is not in the entry's bytes
                    what = "the key"
                    if column.kind != STRING:
                        shown = repr(self.key.decode("utf-8", "replace"))
                elif column.bad == _NUMBER:
                    shown = f"{column.number}"
                else:
                    text = bytes(data[column.start : column.start + column.bad]).decode("utf-8", "replace")
                    shown = repr(text[:SHOWN]) + ("..." if len(text) > SHOWN else "")
                break
        stream: str = self.before.decode("utf-8", "replace") + self.key.decode("utf-8", "replace")
        if self.noun:
            text = f"in the {self.noun} {stream!r}, {what} is not of type {kind}"
            raise BadValue(f"rillet: {text}: {shown} (mode FAILFAST)")
        raise BadValue(
            f"rillet: in the stream {stream!r}, entry {self.ms}-{self.seq}, {what} is not of type {kind}: {shown} "
            "(mode FAILFAST)"
        )

    def malformed(self, pairs: list[tuple[bytes, bytes]]) -> None:
        """Set the last row of the column for malformed entries to a JSON text of all fields of the entry."""
        if self.corrupt is not None:
            texts = {name.decode("utf-8", "replace"): value.decode("utf-8", "replace") for name, value in pairs}
            self.corrupt.drop()
            self.corrupt.put_bytes(json.dumps(texts, ensure_ascii=False).encode())

    def clear(self) -> None:
        """Reset the builder for the next batch, after the caller has taken the columns."""
        self.length = self.nbytes = self.keys_mark = self.keys_used = self.items_used = 0

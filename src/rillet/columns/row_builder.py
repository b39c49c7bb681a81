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

A decoder that knows an entry's names beforehand (a reply like the one before, a node whose entries have the master
entry's fields) has them looked up once, as a `Shape`: a chain of `Slot`s, each with the column that wants the value.

    shape = rows.shape_of([b"user", b"amount"])
    rows.begin_as(shape, ms, seq)
    rows.slot_text(slot, buf, start, n)      for shape.first, slot.next, ..., or rows.slot_number(slot, value);
    rows.finish(buf)                         not needed where rows.takes(slot) is False

No name is looked at then, and the map's keys are copied in one piece.

A value that is none of its column's type becomes null, `parser.bad` says so, and `finish` does what the mode asks:

    PERMISSIVE      the entry stays. If there is a column of corrupt entries (`add_corrupt`), finish is False, and
                    the decoder hands all fields of the entry to `malformed`: rare enough to be done again by names
    DROPMALFORMED   every column forgets its last value
    FAILFAST        BadValue, with the entry's ID, the field, its text and the type; bytes that are not UTF-8 are no
                    string in this mode

Sources of a column: a field, or one of the entry's own columns:

    stream     string       the key
    id         string       ms-seq, exact
    id_ms      long         the ID's first half: 64 unsigned bits in a signed column, so from 2^63 on it
    id_seq     long         reads negative (two's complement); `id` is exact
    timestamp  timestamp    id_ms as a moment; null where microseconds do not fit (beyond the year 294246)
    fields     map          every field

Cost: O(bytes) of the entry, compiled 5 to 15 ns a column besides; a slot that no column wants costs nothing here.
"""

from __future__ import annotations

try:
    import cython
except ModuleNotFoundError:  # interpreted, Cython not installed
    from rillet import _cython as cython

import json

from rillet.columns.column import BINARY, INT, LONG, STRING, TIMESTAMP, Column
from rillet.columns.value_parsing import ValueParser
from rillet.errors import RilletError

if cython.compiled:
    from cython.cimports.libc.string import memcmp  # type: ignore[import-not-found, unused-ignore]
else:
    from rillet.columns.column import put_int32  # compiled code has it as a C function, through the .pxd

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
SHOWN = 100  # characters of a bad value in an error
MOST_FIELDS = 1000  # that are discovered: more of them are data, not columns


class TooManyFields(RilletError):
    """The entries have more different fields than there should be columns."""


class BadValue(RilletError, ValueError):
    """A field's text is no value of its column's type, and the mode is FAILFAST."""


@cython.cfunc
@cython.inline
@cython.exceptval(-1, check=False)
def same(name: bytes, buf: bytearray, start: cython.Py_ssize_t, n: cython.Py_ssize_t) -> cython.bint:
    """Tell whether buf[start:start + n] is name; the range must lie inside buf."""
    if n != len(name):
        return False
    if start < 0 or start > len(buf) - n:
        raise IndexError("name outside the buffer")
    if cython.compiled:
        left: cython.p_const_uchar = name
        right: cython.p_const_uchar = buf
        return memcmp(left, right + start, n) == 0
    return buf[start : start + n] == name


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def signed(value: cython.ulonglong) -> cython.longlong:
    """Return the same 64 bits as a signed number."""
    if value < _SIGN:
        return value
    rest: cython.longlong = value - _SIGN
    return rest - 9223372036854775807 - 1


@cython.final
@cython.cclass
class Slot:
    """One field of a shape: what comes before its value in a reply, and the column that wants it."""

    __slots__ = ("name", "owner", "literal", "size", "next")
    name: bytes
    owner: Column  # or None: nobody wants the value
    literal: bytes  # from the end of the value before (or of the ID) to the $ of this value's length
    size: cython.Py_ssize_t  # of the literal
    next: Slot

    def __init__(self, name: bytes, owner: Column | None, literal: bytes) -> None:
        self.name = name
        self.owner = owner  # type: ignore[assignment]
        self.literal = literal
        self.size = len(literal)
        self.next = None  # type: ignore[assignment]


@cython.final
@cython.cclass
class Shape:
    """The names of an entry's fields in order, looked up once for all entries that have the same."""

    __slots__ = ("first", "count", "unique", "texts", "ends")
    first: Slot
    count: cython.Py_ssize_t
    unique: cython.bint  # no two names are the same key of a map
    texts: bytes  # the names as keys of a map, one after the other
    ends: bytearray  # and where each ends, int32

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
    """The columns of a batch under construction."""

    __slots__ = (
        "columns", "first", "wanted", "pattern", "owners", "position", "changed", "unique", "keys", "items",
        "keys_mark", "keys_used", "items_used", "map_ends", "owner", "key", "length", "ms", "seq", "nbytes", "parser",
        "shapes", "shape", "id_start", "id_size", "mode", "corrupt", "discovers",
    )  # fmt: skip
    columns: list[Column]
    first: Column
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
    parser: ValueParser
    shapes: dict[tuple[bytes, ...], Shape]
    shape: Shape  # of the entry being read, None where its names come one by one
    id_start: cython.Py_ssize_t
    id_size: cython.Py_ssize_t  # of the ID's text in the buffer, ABSENT where it has to be written
    mode: cython.int
    corrupt: Column  # takes entries with bad values as JSON, or None
    discovers: cython.bint  # a field that has no column gets one, of strings

    def __init__(self, key: bytes, mode: int = PERMISSIVE) -> None:
        """Start without columns; `key` is what a stream column shows."""
        self.columns = []
        self.wanted = {}
        self.pattern = []
        self.owners = []
        self.shapes = {}
        self.key = bytearray(key)
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

    def _add(self, column: Column) -> None:
        column.strict = self.mode == FAILFAST
        if self.columns:
            self.columns[len(self.columns) - 1].next = column
        else:
            self.first = column
        self.columns.append(column)

    def add_field(self, name: bytes, kind: int) -> Column:
        """Add a typed column of the field `name` and return it; two columns of one field are refused."""
        if name in self.wanted:
            raise ValueError(f"two columns take the field {name.decode('utf-8', 'replace')!r}")
        column = Column(name, FIELD, kind, self.parser)
        self.wanted[name] = column
        self._add(column)
        return column

    def add_source(self, source: int) -> None:
        """Add one of the entry's own columns (STREAM, ID, ID_MS, ID_SEQ, ID_TIME)."""
        self._add(Column(b"", source, SOURCE_KINDS[source], self.parser))

    def add_corrupt(self) -> None:
        """Add the column of entries with bad values: what `malformed` is given, null for sound entries."""
        self._add(Column(b"", CORRUPT, STRING, self.parser))
        if self.mode == PERMISSIVE:
            self.corrupt = self.columns[len(self.columns) - 1]

    def add_map(self, kind: int) -> None:
        """Add the map of all fields; kind (STRING or BINARY) is that of its values, names are strings."""
        if self.keys is not None:
            raise ValueError("a batch has one map column")
        if kind not in (STRING, BINARY):
            raise ValueError("the map's values are strings or binary")
        self.keys = Column(b"", MAP, STRING, self.parser)
        self.items = Column(b"", MAP, kind, self.parser)
        self.keys.strict = self.items.strict = self.mode == FAILFAST
        self.map_ends = Column(b"", MAP, INT, self.parser)
        self._add(self.map_ends)

    # ---- an entry whose names come one by one ------------------------------------------------------------------

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def begin(self, ms: cython.ulonglong, seq: cython.ulonglong) -> cython.bint:
        """Start an entry, dropping what an unfinished one left."""
        if self.position != 0:
            self._forget()
        self.shape = None  # type: ignore[assignment]
        self.id_size = _ABSENT
        self.ms = ms
        self.seq = seq
        return True

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _forget(self) -> cython.bint:
        """Drop what an unfinished entry left."""
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
    @cython.exceptval(-1, check=False)
    def name(self, buf: bytearray, start: cython.Py_ssize_t, n: cython.Py_ssize_t) -> cython.bint:
        """Take the name of the entry's next field, buf[start:start + n]; its value must follow."""
        self.owner = self._owner(buf, start, n)
        if self.keys is not None:
            self.keys.put(buf, start, n)
        return True

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def text(self, buf: bytearray, start: cython.Py_ssize_t, n: cython.Py_ssize_t) -> cython.bint:
        """Take the value of the field named last: the text buf[start:start + n], which `finish` finds in its `buf`."""
        if self.keys is not None:
            self.items.put(buf, start, n)
        if self.owner is not None:
            self.owner.start = start
            self.owner.size = n
        return True

    @cython.ccall
    @cython.exceptval(-1, check=False)
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
        """Add a column of strings for a field that was not seen before, null in the rows that are there."""
        if len(self.wanted) >= MOST_FIELDS:
            raise TooManyFields(f"more than {MOST_FIELDS:,} different fields")
        column = self.add_field(name, STRING)
        for _ in range(self.length):
            column.put_null()
        return column

    # ---- an entry whose names are known beforehand -------------------------------------------------------------

    def shape_of(self, names: list[bytes]) -> Shape:
        """Return the shape of entries that have these fields in this order; O(names), all columns must be there."""
        key = tuple(names)
        found = self.shapes.get(key)
        if found is None:
            if len(self.shapes) >= 64:
                self.shapes.clear()
            if self.discovers:
                for name in names:
                    if name not in self.wanted:
                        self._discover(name)
            found = self.shapes[key] = Shape(names, self.wanted)
        return found

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def begin_as(self, shape: Shape, ms: cython.ulonglong, seq: cython.ulonglong) -> cython.bint:
        """Start an entry of that shape: every slot's value must follow, in order, before `finish`.

        Where `takes(slot)` is False the value may be left out.
        """
        if self.position != 0:
            self._forget()
        self.shape = shape
        self.position = 1
        self.ms = ms
        self.seq = seq
        return True

    @cython.ccall
    @cython.exceptval(check=False)
    def takes(self, slot: Slot) -> cython.bint:
        """Tell whether anything here wants the value of that slot."""
        return slot.owner is not None or self.keys is not None

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def slot_text(self, slot: Slot, buf: bytearray, start: cython.Py_ssize_t, n: cython.Py_ssize_t) -> cython.bint:
        """Take the value of a slot: the text buf[start:start + n], which `finish` finds in its `buf`."""
        if self.keys is not None:
            self.items.put(buf, start, n)
        if slot.owner is not None:
            slot.owner.start = start
            slot.owner.size = n
        return True

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def slot_number(self, slot: Slot, value: cython.longlong) -> cython.bint:
        """Take the value of a slot: an integer, as a listpack stores it."""
        if self.keys is not None:
            self.items.put_number(value)
        if slot.owner is not None:
            slot.owner.number = value
            slot.owner.size = _NUMBER
        return True

    # ---- the end of an entry -----------------------------------------------------------------------------------

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def finish(self, buf: bytearray) -> cython.bint:
        """End the entry: one value for every column; False where `malformed` wants to see it whole.

        BadValue where a value is none of its column's type and the mode is FAILFAST.
        """
        return self.finish_in(buf, len(buf))

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def finish_in(self, data: cython.p_const_uchar, limit: cython.Py_ssize_t) -> cython.bint:
        """Do finish for texts that lie within data[:limit]."""
        column: Column = self.first
        if self.keys is not None:
            self._finish_map()
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
    @cython.exceptval(-1, check=False)
    def _put_own(self, column: Column, data: cython.p_const_uchar, limit: cython.Py_ssize_t) -> cython.bint:
        """Append the value of one of the entry's own columns."""
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
    @cython.exceptval(-1, check=False)
    def _mark(self) -> cython.bint:
        """Make the entry's pairs final."""
        self.keys_mark = self.keys.length
        self.keys_used = self.keys.used
        self.items_used = self.items.used
        return True

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _finish_map(self) -> cython.bint:
        """Complete the entry's pairs, without doubles."""
        if self.shape is not None:
            self.keys.put_block(self.shape.texts, self.shape.ends, self.shape.count)
            if self.keys.length != self.items.length:
                raise AssertionError("an entry whose values are not those of its shape")
            if not self.shape.unique:
                self._drop_doubles()
            return True
        if self.changed:
            names = [name.decode("utf-8", "replace") for name in self.pattern]
            self.unique = len(set(names)) == len(names)
            self.changed = False
        if not self.unique or self.position > _MAX_PATTERN:
            self._drop_doubles()
        return True

    @cython.cfunc
    @cython.exceptval(-1, check=False)
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

    # ---- bad values --------------------------------------------------------------------------------------------

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _finish_bad(self, data: cython.p_const_uchar) -> cython.bint:
        """Do with an entry that has bad values what the mode says."""
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
    @cython.exceptval(-1, check=False)
    def _fail(self, data: cython.p_const_uchar) -> cython.bint:
        """Raise BadValue about the first bad value."""
        column: Column
        shown: str = "bytes that are not UTF-8"
        what: str = "a name or a value in the column 'fields'"
        kind: str = "string"
        for column in self.columns:
            if column.bad != _ABSENT:
                what = f"the field {column.name.decode('utf-8', 'replace')!r}"
                kind = column.label
                if column.source == _STREAM:  # its text is the key, which lies outside `data`
                    what = "the key"
                elif column.bad == _NUMBER:
                    shown = f"{column.number}"
                else:
                    text = bytes(data[column.start : column.start + column.bad]).decode("utf-8", "replace")
                    shown = repr(text[:SHOWN]) + ("..." if len(text) > SHOWN else "")
                break
        stream: str = self.key.decode("utf-8", "replace")
        raise BadValue(
            f"rillet: in the stream {stream!r}, entry {self.ms}-{self.seq}, {what} is no {kind}: {shown} "
            "(mode FAILFAST)"
        )

    def malformed(self, pairs: list[tuple[bytes, bytes]]) -> None:
        """Show the entry that was finished last, all its fields and values, in the column of malformed entries."""
        if self.corrupt is not None:
            texts = {name.decode("utf-8", "replace"): value.decode("utf-8", "replace") for name, value in pairs}
            self.corrupt.drop()
            self.corrupt.put_bytes(json.dumps(texts, ensure_ascii=False).encode())

    def clear(self) -> None:
        """Begin the next batch, after the columns were taken."""
        self.length = self.nbytes = self.keys_mark = self.keys_used = self.items_used = 0

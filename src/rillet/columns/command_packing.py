"""Packs rows as commands that write keys: HSET, SET, RPUSH, SADD, ZADD, HINCRBY and so on.

    CommandForm([b"ZADD", 0, 2, 1])    a word for each literal, and for each column by its index:

       *4 $4 ZADD   $6 scores  $3 1.5  $3 ann
       literal      column 0   column 2 column 1

A command is sent for a row only if all of its columns have a value. It may have more words than those:

    pairs      columns whose values follow with their names, where they are not null        HSET key  age 37  name Ada
    nulls      columns whose names follow where they are null                               HDEL key  email
    of_map     the pairs of the map column follow                                           HSET key  ...
    only_null  the command is sent only if this column is null                              DEL key

Without any pair, name or map pair, such a command is left out. So a row may produce no command at all.
`pack_keys` packs commands that differ in their keys only.

`lines` counts the lines of the replies: one for each command, two if the reply is a bulk string (`bulk`).

Columns are StringArrays (row_packing.py), which format numbers and times as text. Cost: O(bytes), compiled about 0.2
microseconds for a row of five short values.
"""

from __future__ import annotations

from rillet._cython import cython, public
from rillet.columns.column import start_of
from rillet.columns.row_packing import Packer, StringArrays
from rillet.protocol.reply_writer import put_header

if cython.compiled:
    from cython.cimports.cpython.bytes import PyBytes_AS_STRING  # type: ignore[import-not-found, unused-ignore]
    from cython.cimports.libc.string import memcpy  # type: ignore[import-not-found, unused-ignore]

COMPILED: bool = cython.compiled
_FRAME = cython.declare(cython.Py_ssize_t, 32)  # the maximum overhead of a text: $, 20 digits, CRLF, CRLF


@cython.ccall
def pack_keys(around: list[tuple[bytes, bytes]], keys: list[bytes]) -> bytearray:
    """Pack the same commands for each of many keys: for each command, the bytes before and after the key's word."""
    pair: tuple[bytes, bytes]
    key: bytes
    before: bytes
    after: bytes
    room: cython.Py_ssize_t = 0
    used: cython.Py_ssize_t = 0
    for pair in around:
        room += len(pair[0]) + len(pair[1]) + _FRAME
    room *= len(keys)
    for key in keys:
        room += len(key) * len(around)
    buf: bytearray = bytearray(room)
    for key in keys:
        for pair in around:
            before, after = pair
            used = _put(buf, used, before)
            used = _put(buf, put_header(start_of(buf), used, 0x24, len(key)), key)
            used = _put(buf, _put(buf, used, b"\r\n"), after)
    del buf[used:]
    return buf


@cython.cfunc
@cython.inline
def _put(buf: bytearray, at: cython.Py_ssize_t, data: bytes) -> cython.Py_ssize_t:
    """Write bytes into the buffer; return the position after them."""
    n: cython.Py_ssize_t = len(data)
    if at < 0 or at > len(buf) - n:
        raise IndexError("the text is outside its buffer")
    if cython.compiled:
        memcpy(start_of(buf) + at, PyBytes_AS_STRING(data), n)
    else:
        buf[at : at + n] = data
    return at + n


@cython.final
@cython.cclass
class CommandForm:
    """One command for each row: the literals around the columns, and the fields that follow."""

    __slots__ = ("literals", "places", "words", "pairs", "nulls", "of_map", "only_null", "bulk")
    literals: public[list[bytes]]  # packed words before, between and after the columns
    places: public[list[int]]
    words: public[cython.Py_ssize_t]
    pairs: public[list[int]]
    nulls: public[list[int]]
    of_map: public[cython.bint]
    only_null: public[cython.Py_ssize_t]
    bulk: public[cython.bint]

    def __init__(
        self, words: list[bytes | int], pairs: list[int] | None = None, nulls: list[int] | None = None,
        of_map: bool = False, only_null: int = -1, bulk: bool = False,
    ) -> None:  # fmt: skip
        self.literals = [b""]
        self.places = []
        for word in words:
            if isinstance(word, int):
                self.places.append(word)
                self.literals.append(b"")
            else:
                self.literals[len(self.literals) - 1] += b"$%d\r\n%b\r\n" % (len(word), word)
        self.words = len(words)
        self.pairs = pairs or []
        self.nulls = nulls or []
        self.of_map = of_map
        self.only_null = only_null
        self.bulk = bulk


@cython.final
@cython.cclass
class CommandPacker(Packer):
    """Packs rows as commands into `buf`; counts bytes (`used`), `commands` and the `lines` of their replies."""

    __slots__ = ("forms", "columns")
    forms: public[list[CommandForm]]
    columns: list[StringArrays]

    def __init__(self, forms: list[CommandForm]) -> None:
        Packer.__init__(self)
        self.forms = forms
        self.columns = []

    def rows_of(self, columns: list[StringArrays]) -> None:
        """Set the columns of the rows to pack."""
        self.columns = columns

    @cython.ccall
    def pack(self, row: cython.Py_ssize_t, stop: cython.Py_ssize_t, limit: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Append the commands of the rows from `row` on, up to `stop` or `limit` bytes; return the next row."""
        form: CommandForm
        while row < stop and self.used < limit:
            for form in self.forms:
                self._command(form, row)
            row += 1
        return row

    @cython.cfunc
    def _command(self, form: CommandForm, row: cython.Py_ssize_t) -> cython.bint:
        """Append one command for a row; return False if the row does not need it."""
        column: StringArrays
        i: cython.Py_ssize_t
        room: cython.Py_ssize_t = 0
        more: cython.Py_ssize_t = 0
        literal: bytes
        pairs: cython.bint = form.of_map and self.names is not None
        if form.only_null >= 0:
            column = self.columns[form.only_null]
            if column.find(row):
                return False
        for i in range(len(form.places)):
            column = self.columns[form.places[i]]
            if not column.find(row):
                return False
            room += column.size + _FRAME
        for i in range(len(form.pairs)):
            column = self.columns[form.pairs[i]]
            if column.find(row):
                more += 2
                room += column.size + len(column.head) + _FRAME
        for i in range(len(form.nulls)):
            column = self.columns[form.nulls[i]]
            if not column.find(row):
                more += 1
                room += len(column.head) + _FRAME
        if pairs:
            more += 2 * self._count_pairs(row)
        if more == 0 and (form.of_map or len(form.pairs) > 0 or len(form.nulls) > 0):
            return False
        for i in range(len(form.literals)):
            literal = form.literals[i]
            room += len(literal)
        self._reserve(room + 2 * _FRAME)
        self._number(0x2A, form.words + more)
        for i in range(len(form.literals)):
            literal = form.literals[i]
            self._bytes(literal, 0, len(literal))
            if i < len(form.places):
                self._text(self.columns[form.places[i]])
        for i in range(len(form.pairs)):
            column = self.columns[form.pairs[i]]
            if column.size >= 0:
                self._bytes(column.head, 0, len(column.head))
                self._text(column)
        for i in range(len(form.nulls)):
            column = self.columns[form.nulls[i]]
            if column.size < 0:
                self._bytes(column.head, 0, len(column.head))
        if pairs:
            self._pairs()
        self.commands += 1
        self.lines += 2 if form.bulk else 1
        return True

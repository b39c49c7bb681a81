"""Values at rest: a small value as bytes in the dict of the keyspace, instead of as Python objects.

    +--------+---------------------------------+
    | tag u8 | payload                         |
    +--------+---------------------------------+
      0        string set by SET; its text selects int, embstr or raw      the bytes
      1        string of INCRBYFLOAT: embstr or raw, never int             the bytes
      2        string that was changed in place: raw                       the bytes
      3        hash                                                        a listpack
      4        sorted set                                                  a listpack
      5        set                                                         a listpack
      6        set                                                         an intset
      7        list of one node     flags u8 | fill i16 | depth u16 | a listpack
                                    flags: 1 = encoding listpack, 2 = node limits of 7.0
      8        set, encoded as hashtable                               a listpack of the members
      9        hash, encoded as hashtable                              a listpack of fields and values
      10       hash, encoded as listpackex                             due u64 | the listpack of triples
      11       hash, encoded as hashtable, with field expiry           due u64 | a listpack of fields, values and times

A value that commands change is an object, *awake*. `to_rest` returns its bytes if it is small, and `awaken` returns an
object that is equal in each respect that a client can see: data, encoding, and the bytes of DUMP. Values above `LIMIT`
bytes stay awake: their objects add little to their size. Streams and sorted sets in a skiplist stay awake.

A hashtable of up to TABLE_LIMIT elements rests as a listpack in the order of its entries. `awaken` builds a new table,
which has the fewest buckets: a scan continues in it as after any other change of the size.

Objects cost far more than the bytes of a small value: a string of 5 bytes takes 86 bytes as objects and 6 here, a hash
of three such fields 270 and 45, a hashtable of three members 2,000 and 30.

Rejected alternative: DUMP's own format as the payload. It compresses, has a checksum, and is slower to read and write.
"""

from __future__ import annotations

from typing import Any

from rillet._cython import cython

if cython.compiled:
    from cython.cimports.cpython.bytearray import (  # type: ignore[import-not-found, unused-ignore]
        PyByteArray_FromStringAndSize,
    )

from rillet.errors import Corrupt
from rillet.structs.dict import Dict
from rillet.structs.intset import Intset
from rillet.structs.listpack import Listpack
from rillet.structs.quicklist import Quicklist, QuicklistNode
from rillet.types.encoding_limits import PACKED_LIMIT, PACKED_TABLE_LIMIT
from rillet.types.hash import FieldExpiry, Hash
from rillet.types.list import List
from rillet.types.set import Set
from rillet.types.string import String, new_string
from rillet.types.zset import Zset

LIMIT = PACKED_LIMIT
TABLE_LIMIT = PACKED_TABLE_LIMIT
LAST_STRING = 2
"""The tags up to this one are strings; a string's tag is its `form`."""

_LIMIT = cython.declare(cython.Py_ssize_t, LIMIT)
_LAST_STRING = cython.declare(cython.int, 2)
_HASH = cython.declare(cython.int, 3)
_ZSET = cython.declare(cython.int, 4)
_SET = cython.declare(cython.int, 5)
_INTSET = cython.declare(cython.int, 6)
_LIST = cython.declare(cython.int, 7)
_SET_TABLE = cython.declare(cython.int, 8)
_HASH_TABLE = cython.declare(cython.int, 9)
_TRIPLES = cython.declare(cython.int, 10)
_HASH_TIMES = cython.declare(cython.int, 11)
_DUE = cython.declare(cython.Py_ssize_t, 8)
_TABLE_LIMIT = cython.declare(cython.Py_ssize_t, TABLE_LIMIT)
_TAGS = (b"\x00", b"\x01", b"\x02", b"\x03", b"\x04", b"\x05", b"\x06", b"\x07", b"\x08", b"\x09",
         b"\x0a", b"\x0b")  # fmt: skip
_PLAIN_TAG = cython.declare(bytes, b"\x00")
_LIST_HEAD = cython.declare(cython.Py_ssize_t, 6)
_TYPES = (String, String, String, Hash, Zset, Set, Set, List, Set, Hash, Hash, Hash)


@cython.ccall
def string_at_rest(data: bytes, form: cython.int) -> bytes:
    """Return a string's bytes with their tag, or None if it must stay awake. O(bytes)"""
    if len(data) > _LIMIT or form > _LAST_STRING:
        return None  # type: ignore[return-value]
    if form == 0:
        return _PLAIN_TAG + data
    tag: bytes = _TAGS[form]
    return tag + data


@cython.ccall
def to_rest(value: object) -> bytes:
    """Return the value as bytes with a tag, or None if it must stay awake. O(bytes)"""
    kind: object = type(value)
    if isinstance(value, String):
        string: String = value
        if string.length() > _LIMIT:
            return None  # type: ignore[return-value]
        return string_at_rest(string.value(), string.form)
    if kind is Hash:
        if value.expiry is not None:  # type: ignore[attr-defined]
            return _expiring_at_rest(value)
        if value.table is not None:  # type: ignore[attr-defined]
            return _table_at_rest(_HASH_TABLE, value.table)  # type: ignore[attr-defined]
        return _packed(_HASH, value.listpack)  # type: ignore[attr-defined]
    if kind is Zset:
        return _packed(_ZSET, value.listpack)  # type: ignore[attr-defined]
    if kind is Set:
        members: Set = value  # type: ignore[assignment]
        if members.table is not None:
            return _table_at_rest(_SET_TABLE, members.table)
        if members.intset is None:
            return _packed(_SET, members.listpack)
        if members.intset.nbytes() > _LIMIT:
            return None  # type: ignore[return-value]
        tag: bytes = _TAGS[_INTSET]
        return tag + members.intset.to_bytes()
    if kind is List:
        return _list_at_rest(value.elements)  # type: ignore[attr-defined]
    return None  # type: ignore[return-value]


@cython.cfunc
def _packed(tag: cython.int, listpack: object) -> bytes:
    if listpack is None:
        return None  # type: ignore[return-value]
    packed: Listpack = listpack  # type: ignore[assignment]
    if packed.used > _LIMIT:
        return None  # type: ignore[return-value]
    head: bytes = _TAGS[tag]
    return head + packed.to_bytes()


@cython.cfunc
def _table_at_rest(tag: cython.int, table: Dict) -> bytes:
    """Return the keys of a table, and its values if it has any, in the order of the entries."""
    # An integer of 20 characters takes 10 bytes in the listpack, 21 in the arena.
    if table.used0 + table.used1 > _TABLE_LIMIT or table.arena.live > 3 * _LIMIT:
        return None  # type: ignore[return-value]
    packed: Listpack = Listpack()
    n: cython.Py_ssize_t
    for n in table.entries_between(0, table.top):
        packed.append(table.entry_key(n))
        if tag == _HASH_TABLE:
            packed.append(table.entry_value(n))
    return _packed(tag, packed)


@cython.cfunc
def _expiring_at_rest(value: object) -> bytes:
    """Return a hash whose fields may expire: the time for which it is registered, and its fields with their times."""
    expiry: Any = value.expiry  # type: ignore[attr-defined]
    packed: Listpack | None = expiry.triples
    tag: bytes = _TAGS[_TRIPLES]
    if packed is None:
        table: Dict = value.table  # type: ignore[attr-defined]
        if table.used0 + table.used1 > _TABLE_LIMIT or table.arena.live > 3 * _LIMIT:
            return None  # type: ignore[return-value]
        tag = _TAGS[_HASH_TIMES]
        packed = Listpack()
        n: cython.Py_ssize_t
        for n in table.entries_between(0, table.top):
            name: bytes = table.entry_key(n)
            packed.append(name)
            packed.append(table.entry_value(n))
            packed.append_int(expiry.times.get(name))
    if packed.used + _DUE > _LIMIT:
        return None  # type: ignore[return-value]
    due: object = expiry.due
    return tag + due.to_bytes(8, "little") + packed.to_bytes()  # type: ignore[attr-defined, no-any-return]


@cython.cfunc
def _awake_expiring(data: bytes) -> object:
    """Return the hash of `_expiring_at_rest`."""
    value: Any = Hash.__new__(Hash)
    packed: Listpack = _listpack(data, 1 + _DUE)
    due: int = int.from_bytes(data[1 : 1 + _DUE], "little")
    value.listpack = value.table = None
    value.tag = 0
    value.expiry = FieldExpiry(packed, None, due)
    if data[0] == _HASH_TIMES:
        value.to_hashtable()
    return value


@cython.cfunc
def _table(data: bytes, values: cython.bint) -> Dict:
    """Return the table of `_table_at_rest`."""
    words: list[Any] = _listpack(data, 1).texts()
    table: Dict = Dict(values=values, newest=True)
    at: cython.Py_ssize_t = 0
    table.resize(len(words) >> 1 if values else len(words))
    while at < len(words):
        if values:
            table.add_value(words[at], words[at + 1])
            at += 2
        else:
            table.add(words[at])
            at += 1
    return table


@cython.cfunc
def _list_at_rest(elements: Quicklist) -> bytes:
    node: QuicklistNode | None = elements.head
    if elements.nodes != 1 or elements.bookmark is not None or node is None or node.packed is None:
        return None  # type: ignore[return-value]
    if node.packed.used > _LIMIT:
        return None  # type: ignore[return-value]
    head = bytearray(_LIST_HEAD)
    head[0] = _LIST
    head[1] = (1 if elements.single else 0) | (2 if elements.classic else 0)
    head[2:4] = (elements.fill & 0xFFFF).to_bytes(2, "little")
    head[4:6] = elements.depth.to_bytes(2, "little")
    return bytes(head) + node.packed.to_bytes()


@cython.ccall
def awaken(data: bytes) -> Any:
    """Return a new object for bytes of `to_rest`. O(bytes)"""
    tag: cython.int = data[0]
    value: Any
    kind: type = Hash  # `kind.__new__(kind)` compiles to a direct call
    if tag <= _LAST_STRING:
        return new_string(data[1:], tag)
    if tag == _HASH:
        value = kind.__new__(kind)  # type: ignore[call-overload]
        value.listpack = _listpack(data, 1)
        value.table = value.expiry = None
        value.tag = 0
        return value
    if tag == _ZSET:
        kind = Zset
        value = kind.__new__(kind)
        value.listpack = _listpack(data, 1)
        value.skiplist = value.table = None
        return value
    if tag == _SET:
        return Set(None, _listpack(data, 1))
    if tag == _INTSET:
        return Set(Intset.from_bytes(data[1:], False))
    if tag == _LIST:
        return _awake_list(data)
    if tag == _SET_TABLE:
        return Set(None, None, _table(data, False))
    if tag == _HASH_TABLE:
        value = Hash.__new__(Hash)
        value.listpack = value.expiry = None
        value.tag = 0
        value.table = _table(data, True)
        return value
    if tag == _TRIPLES or tag == _HASH_TIMES:
        return _awake_expiring(data)
    raise Corrupt("a value at rest has an unknown tag")


@cython.cfunc
def _listpack(data: bytes, start: cython.Py_ssize_t) -> Listpack:
    """Return the listpack in data[start:], without spare capacity. The bytes are trusted."""
    packed: Listpack = Listpack.__new__(Listpack)
    if cython.compiled:
        at: cython.p_char = data
        packed.buf = PyByteArray_FromStringAndSize(at + start, len(data) - start)
    else:
        packed.buf = bytearray(data[start:])
    packed.used = len(data) - start
    packed.at_start = packed.at_len = packed.at_int = packed.at_next = 0
    return packed


@cython.cfunc
def _awake_list(data: bytes) -> object:
    flags: cython.int = data[1]
    fill: cython.int = data[2] | data[3] << 8
    depth: cython.int = data[4] | data[5] << 8
    packed: Listpack = _listpack(data, _LIST_HEAD)
    elements: Quicklist = Quicklist(fill - 0x10000 if fill & 0x8000 else fill, depth, flags & 2 != 0, flags & 1 != 0)
    elements.append_node(packed, None)
    value: Any = List.__new__(List)
    value.elements = elements
    return value


def type_at_rest(tag: int) -> type:
    """Return the class of the values with a tag."""
    return _TYPES[tag]

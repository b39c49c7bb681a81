"""The keys of an RDB file whose values are strings or rest as bytes: written and read without an object per key.

Most keys of a large file are of this kind, so this module is compiled. The writer and the loader handle all other
keys, one by one; this module returns to them at the first of those.

    value at rest (types/at_rest.py)                      written as
    string                                                type 0, a string
    hash, sorted set in a listpack                        type 16 or 17, the listpack
    set in an intset                                      type 11, the intset
    list of one node                                      type 18, one node, the listpack

The bytes at rest are the bytes of the file, so they are copied. Types 16 to 18 exist since RDB version 10; for older
versions, and for other values, the writer converts. Keys are written in the order in which they rest in memory.
"""

from __future__ import annotations

from typing import Any

from rillet._cython import cython, readonly
from rillet.errors import Corrupt
from rillet.keyspace.database import Database
from rillet.structs.dict import Dict
from rillet.structs.dict_table import u64
from rillet.types.array import Array
from rillet.types.rdb.primitives import RdbReader, RdbWriter
from rillet.types.rdb.tables import write_key
from rillet.types.stream.stream import Stream
from rillet.types.string import String

END, LIMIT, OTHER = 0, 1, 2
"""The results of `PlainKeys.write`."""
_AT_LIMIT = cython.declare(cython.int, 1)
_AT_OTHER = cython.declare(cython.int, 2)
_FREE_MARK = cython.declare(cython.ulonglong, (1 << 64) - 1)
_EXPIRE_MS = cython.declare(cython.int, 0xFC)
_CHUNK_SHIFT = cython.declare(cython.int, 12)  # of the objects of a Dict: 4096 in each chunk (structs/dict.py)
_LAST_STRING = cython.declare(cython.int, 2)  # the tags of values at rest
_HASH = cython.declare(cython.int, 3)
_ZSET = cython.declare(cython.int, 4)
_INTSET = cython.declare(cython.int, 6)
_LIST = cython.declare(cython.int, 7)
_LIST_HEAD = cython.declare(cython.Py_ssize_t, 6)
_CHECKED = cython.declare(cython.Py_ssize_t, 16384)  # keys that `read` loads before it returns


@cython.final
@cython.cclass
class PlainKeys:
    """A walk over the keys of a database, from entry `at` on; `written` counts the keys that it wrote."""

    __slots__ = ("_database", "_out", "_packed", "at", "written")
    _out: RdbWriter
    _database: Database
    _packed: cython.bint
    at: readonly[cython.Py_ssize_t]
    written: readonly[cython.Py_ssize_t]

    def __init__(self, out: RdbWriter, database: Database, packed: cython.bint) -> None:
        """packed: whether the RDB version has the types 16 to 18."""
        self._out = out
        self._database = database
        self._packed = packed
        self.at = 0
        self.written = 0

    @cython.ccall
    def write(self, limit: cython.Py_ssize_t) -> cython.int:
        """Write up to `limit` keys; return END, LIMIT, or OTHER if the caller must write the key `at`. O(keys)"""
        keys: Dict = self._database.keys
        stop: cython.Py_ssize_t = self.written + limit
        while self.at < keys._top:
            if u64(keys._record(self.at), 8) == _FREE_MARK:
                self.at += 1
                continue
            if self.written == stop:
                return _AT_LIMIT
            if not self._write_one(keys, self.at):
                return _AT_OTHER
            self.written += 1
            self.at += 1
            self._out.spill()
        return 0

    @cython.ccall
    def skip(self) -> cython.bint:
        """Pass the key `at`, which the caller has written."""
        self.at += 1
        return True

    @cython.cfunc
    def _write_one(self, keys: Dict, n: cython.Py_ssize_t) -> cython.bint:
        """Write a key; return False if its value is of another kind."""
        out: RdbWriter = self._out
        awake: object = keys.object_at(n)
        if awake is not None:
            if type(awake) is not String:
                return False
            string: String = awake
            self._head(keys, n, 0)
            return out.string(string.value())
        at: cython.p_const_uchar = keys.value_span(n)
        size: cython.Py_ssize_t = keys.span_size
        tag: cython.int = at[0]
        skipped: cython.Py_ssize_t = 1
        kind: cython.int
        if tag <= _LAST_STRING:
            kind = 0
        elif tag == _INTSET:
            kind = 11
        elif not self._packed:
            return False
        elif tag == _HASH:
            kind = 16
        elif tag == _ZSET:
            kind = 17
        elif tag == _LIST:
            kind = 18
            skipped = _LIST_HEAD
        else:
            return False
        self._head(keys, n, kind)
        if kind == 18:
            out.length(1)
            out.length(2)
        if cython.compiled:
            return out.string_span(at + skipped, size - skipped)
        return out.string(bytes(at[skipped:size]))

    @cython.cfunc
    def _head(self, keys: Dict, n: cython.Py_ssize_t, kind: cython.int) -> cython.bint:
        """Write the expiry of a key, the type of its value, and its name."""
        expires: Dict = self._database.expires
        if expires.used0 + expires.used1:
            entry: cython.Py_ssize_t = expires.find_same(keys, n)
            if entry >= 0:
                self._out.byte(_EXPIRE_MS)
                self._out.milliseconds(expires.number(entry))
        self._out.byte(kind)
        return write_key(self._out, keys, n)


@cython.ccall
def versioned_values(keys: Dict) -> list[Any]:
    """Return all streams and arrays of a keyspace, which may need a newer RDB version than 10. O(objects)"""
    found: list[Any] = []
    chunk: object
    value: object
    for chunk in keys._objects:
        if chunk is not None:
            for value in chunk:  # type: ignore[attr-defined]
                if type(value) is Stream or type(value) is Array:
                    found.append(value)
    return found


@cython.ccall
def key_of(keys: Dict, wanted: object) -> bytes | None:
    """Return the key of a value that is an object, None if no key has it. O(objects); no other value is touched"""
    number: cython.Py_ssize_t
    at: cython.Py_ssize_t
    chunk: object
    for number in range(len(keys._objects)):
        chunk = keys._objects[number]
        if chunk is not None:
            for at in range(len(chunk)):  # type: ignore[arg-type]
                if chunk[at] is wanted:  # type: ignore[index]
                    key: bytes = keys.entry_key((number << _CHUNK_SHIFT) + at)
                    return key
    return None


@cython.ccall
def read_plain_keys(reader: RdbReader, database: Database, merge: cython.bint) -> cython.Py_ssize_t:
    """Read strings without expiry as long as they follow each other; return their number. O(bytes)

    It stops before another record, and after some thousand keys. merge: replace existing keys.
    """
    count: cython.Py_ssize_t = 0
    keys: Dict = database.keys
    while count < _CHECKED:
        if reader.at == reader.limit or reader.p[reader.at] != 0:
            return count
        reader.byte()
        key: bytes = reader.string()
        data: bytes = reader.string()
        if not merge and keys.find(key) >= 0:
            raise Corrupt(f"the key {key.decode('utf-8', 'backslashreplace')!r} occurs twice", "RDB has duplicated key")
        database.set_string(key, data)
        count += 1
    return count

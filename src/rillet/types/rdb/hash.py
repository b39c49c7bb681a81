"""Hashes as RDB bytes (Redis: rdb.c, rdbSaveObject and rdbLoadObject).

    type                       value
     4  hash                   count, then each field and its value as strings             read, written
     9  hash of a zipmap       the zipmap as a string                                      read
    13  hash of a ziplist      the ziplist as a string: field, value, field, value ...     read, written up to RDB 9
    16  hash of a listpack     the listpack as a string, in the same order                 read, written from RDB 10 on

The limits choose the encoding of the loaded hash, by Redis's rules: for type 4 and zipmaps both limits count, for the
other types only the number of fields. Duplicate fields are rejected in all types: a ziplist or listpack would contain
both values, and the encoding would decide which value is read.

Types 22 to 25 are hashes with field expiry, which rillet does not support.
"""

from __future__ import annotations

from collections.abc import Callable

from rillet.errors import Corrupt
from rillet.structs.listpack import Listpack
from rillet.structs.ziplist import read_ziplist, write_ziplist
from rillet.structs.zipmap import read_zipmap
from rillet.types.encoding_limits import EncodingLimits
from rillet.types.hash import Hash
from rillet.types.rdb.primitives import EmptyValue, RdbReader, RdbWriter
from rillet.types.rdb.tables import save_table

TYPE_HASH, TYPE_HASH_ZIPMAP, TYPE_HASH_ZIPLIST, TYPE_HASH_LISTPACK = 4, 9, 13, 16
_LISTPACKS_SINCE = 10
# The messages that Redis logs about a duplicate field (rdbReportCorruptRDB).
_TWICE, _TWICE_IN_FEW = "Duplicate hash fields detected", "Hash with dup elements"
_TWICE_IN_ZIPMAP = "Hash zipmap with dup elements"
EXPIRING_TYPES = range(22, 26)
"""Types of hashes with field expiry, which are not supported (Redis 7.4 and its previews; 22 also in Valkey)."""


def type_of(value: Hash, version: int) -> int:
    """Return the RDB type for writing a hash in an RDB version (rdbSaveObjectType)."""
    if value.listpack is None:
        return TYPE_HASH
    return TYPE_HASH_LISTPACK if version >= _LISTPACKS_SINCE else TYPE_HASH_ZIPLIST


def save(out: RdbWriter, value: Hash, kind: int) -> None:
    """Append the hash as RDB type `kind`, which `type_of` returned. O(bytes)"""
    if kind == TYPE_HASH_LISTPACK and value.listpack is not None:
        out.string(value.listpack.to_bytes())
    elif kind == TYPE_HASH_ZIPLIST:
        out.string(write_ziplist(value.words()))
    else:
        assert value.table is not None, "a hash that is not a listpack is a table"
        save_table(out, value.table)


# -- reading ------------------------------------------------------------------------------------------


def _load_hash(reader: RdbReader, limits: EncodingLimits) -> Hash:
    """Read a hash of strings. The hash starts as a listpack and is converted at the first field that does not fit."""
    count = reader.length()
    if not count:
        raise EmptyValue("a hash is empty")
    value = Hash()
    if count > limits.hash_max_listpack_entries:
        value.to_hashtable()
    seen: set[bytes] = set()
    for _ in range(count):
        field, content = reader.string(), reader.string()
        if field in (seen if value.table is None else value.table):
            raise Corrupt("a hash has a duplicate field", _TWICE if value.listpack is None else _TWICE_IN_FEW)
        if value.listpack is not None:
            widest = max(len(field), len(content))
            if widest > limits.hash_max_listpack_value or not value.listpack.can_append(len(field) + len(content)):
                value.to_hashtable()
        if value.table is not None:
            value.table.set(field, content)
        else:
            assert value.listpack is not None
            seen.add(field)
            value.listpack.append(field)
            value.listpack.append(content)
    return value


def _of_listpack(listpack: Listpack, limits: EncodingLimits, check: str = "") -> Hash:
    """Return a hash that uses the listpack. check: the name that Redis logs if the fields contain a duplicate."""
    value = Hash()
    value.listpack = listpack
    words = value.words()
    fields = words[::2]
    if not words:
        raise EmptyValue("a hash is empty")
    if len(words) % 2 or len(set(fields)) != len(fields):
        raise Corrupt("a hash has a duplicate field, or a field without a value", check)
    if len(fields) > limits.hash_max_listpack_entries:
        value.to_hashtable()
    return value


def _of_words(words: list[bytes], limits: EncodingLimits, check: str = "") -> Hash:
    """Return the hash of alternating fields and values, from a ziplist or zipmap."""
    return _of_listpack(Listpack.of(words), limits, check)


def _load_zipmap(reader: RdbReader, limits: EncodingLimits) -> Hash:
    words = read_zipmap(reader.string())
    if not words:
        raise Corrupt("a zipmap is empty")  # no server writes an empty zipmap, so this is not an EmptyValue
    value = _of_words(words, limits, _TWICE_IN_ZIPMAP)
    if value.listpack is not None and max(map(len, value.words())) > limits.hash_max_listpack_value:
        value.to_hashtable()
    return value


def _load_ziplist(reader: RdbReader, limits: EncodingLimits) -> Hash:
    return _of_words(read_ziplist(reader.string()), limits)


def _load_listpack(reader: RdbReader, limits: EncodingLimits) -> Hash:
    return _of_listpack(Listpack.from_bytes(reader.string()), limits)


LOADERS: dict[int, Callable[[RdbReader, EncodingLimits], Hash]] = {
    TYPE_HASH: _load_hash,
    TYPE_HASH_ZIPMAP: _load_zipmap,
    TYPE_HASH_ZIPLIST: _load_ziplist,
    TYPE_HASH_LISTPACK: _load_listpack,
}
"""The RDB types of hashes, each with the function that reads the type."""

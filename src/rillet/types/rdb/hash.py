"""Hashes as RDB bytes (Redis: rdb.c, rdbSaveObject and rdbLoadObject).

    type                       value
     4  hash                   count, then each field and its value as strings             read, written
     9  hash of a zipmap       the zipmap as a string                                      read
    13  hash of a ziplist      the ziplist as a string: field, value, field, value ...     read, written up to RDB 9
    16  hash of a listpack     the listpack as a string, in the same order                 read, written from RDB 10 on

The limits choose the encoding of the loaded hash, by Redis's rules: for type 4 and zipmaps both limits count, for the
other types only the number of fields. Duplicate fields are rejected in all types: a ziplist or listpack would contain
both values, and the encoding would decide which value is read.

Hashes with field expiry (types/hash.py); a time is in ms since the epoch, in 8 bytes:

    24  hashtable of Redis 7.4     the earliest time, count, then for each field: its time as a length, 0 for none,
                                   otherwise 1 + the difference to the earliest time; field, value
    25  listpackex                 the time for which the keyspace registered the hash (0: none), the listpack of
                                   triples as a string
    22  hashtable, 23 listpackex   of the previews of 7.4: without the first time, and with absolute times         read
    22  hashtable of Valkey 9      in RDB version 80: count, then for each field: field, value, its time (-1: none)

Type 22 therefore depends on the version of the file or of the DUMP payload. RDB versions 12 and newer have types 24 and
25, version 80 has Valkey's 22. In other versions, and if no field expires, a hash is written without times.
"""

from __future__ import annotations

from collections.abc import Callable

from rillet.errors import Corrupt
from rillet.structs.listpack import Listpack
from rillet.structs.ziplist import read_ziplist, write_ziplist
from rillet.structs.zipmap import read_zipmap
from rillet.types import field_triples
from rillet.types.compat import COMPATS
from rillet.types.encoding_limits import EncodingLimits
from rillet.types.hash import FieldExpiry, Hash
from rillet.types.rdb.primitives import EmptyValue, RdbReader, RdbWriter
from rillet.types.rdb.tables import save_table

TYPE_HASH, TYPE_HASH_ZIPMAP, TYPE_HASH_ZIPLIST, TYPE_HASH_LISTPACK = 4, 9, 13, 16
_LISTPACKS_SINCE = 10
# The messages that Redis logs about a duplicate field (rdbReportCorruptRDB).
_TWICE, _TWICE_IN_FEW = "Duplicate hash fields detected", "Hash with dup elements"
_TWICE_IN_ZIPMAP = "Hash zipmap with dup elements"
TYPE_HASH_PREVIEW, TYPE_LISTPACKEX_PREVIEW, TYPE_HASH_TIMES, TYPE_LISTPACKEX = 22, 23, 24, 25
TYPE_HASH_VALKEY = 22
"""Valkey's hash with field expiry, in RDB version 80."""
TIMES_SINCE = 12
"""The first RDB version of Redis with field expiry."""
VALKEY_VERSION = COMPATS["valkey"].rdb_version
_LAST_TIME = (1 << 48) - 2  # ebuckets.h: EB_EXPIRE_TIME_MAX


def type_of(value: Hash, version: int) -> int:
    """Return the RDB type for writing a hash in an RDB version (rdbSaveObjectType)."""
    if value.expiry is not None:
        if version == VALKEY_VERSION and value.earliest():
            return TYPE_HASH_VALKEY
        if TIMES_SINCE <= version != VALKEY_VERSION and value.table is None:
            return TYPE_LISTPACKEX
        if TIMES_SINCE <= version != VALKEY_VERSION and value.earliest():
            return TYPE_HASH_TIMES
    if value.table is not None:
        return TYPE_HASH
    return TYPE_HASH_LISTPACK if version >= _LISTPACKS_SINCE else TYPE_HASH_ZIPLIST


def oldest_type(value: Hash, version: int = _LISTPACKS_SINCE) -> int:
    """Return the type for an RDB version, or the oldest type that holds the expiry of fields."""
    return type_of(value, max(version, TIMES_SINCE) if value.earliest() else min(version, TIMES_SINCE - 1))


def losses(value: Hash, kind: int) -> list[str]:
    """Describe the expiry of fields that an RDB type cannot hold. O(fields)"""
    if not value.earliest() or TYPE_HASH_VALKEY <= kind <= TYPE_LISTPACKEX:
        return []
    return [f"the expiry of {sum(1 for _, _, when in value.rows() if when)} fields"]


def save(out: RdbWriter, value: Hash, kind: int) -> None:
    """Append the hash as RDB type `kind`, which `type_of` returned. O(bytes)"""
    if kind == TYPE_HASH_VALKEY:
        _save_valkey(out, value)
    elif kind == TYPE_LISTPACKEX:
        assert value.expiry is not None and value.expiry.triples is not None
        out.milliseconds(value.expiry.due)
        out.string(value.expiry.triples.to_bytes())
    elif kind == TYPE_HASH_TIMES:
        _save_times(out, value)
    elif kind == TYPE_HASH_LISTPACK:
        packed = value.listpack
        out.string(Listpack.from_values(value.words()).to_bytes() if packed is None else packed.to_bytes())
    elif kind == TYPE_HASH_ZIPLIST:
        out.string(write_ziplist(value.words()))
    else:
        assert value.table is not None, "a hash that is not a listpack is a table"
        save_table(out, value.table)


def _save_times(out: RdbWriter, value: Hash) -> None:
    """Append the fields of a hashtable with their times; times that Redis does not have become its last one."""
    earliest = min(value.earliest(), _LAST_TIME)
    out.milliseconds(earliest)
    out.length(len(value))
    for field, content, when in value.rows():
        out.length(min(when, _LAST_TIME) - earliest + 1 if when else 0)
        out.string(field)
        out.string(content)
        out.spill()


def _save_valkey(out: RdbWriter, value: Hash) -> None:
    """Append the fields with their times, in Valkey's form."""
    out.length(len(value))
    for field, content, when in value.rows():
        out.string(field)
        out.string(content)
        out.milliseconds(when or -1)
        out.spill()


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
    return _of_listpack(Listpack.from_values(words), limits, check)


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


def _new_expiring(count: int, limits: EncodingLimits) -> Hash:
    """Return an empty hash for `count` fields with times."""
    if not count:
        raise EmptyValue("a hash is empty")
    value = Hash()
    if count > limits.hash_max_listpack_entries:
        value.to_hashtable()
    value.start_expiry(limits)
    return value


def _add(value: Hash, row: tuple[bytes, bytes, int], limits: EncodingLimits) -> None:
    """Add a field with its time to a hash that is loaded."""
    field, content, when = row
    assert value.expiry is not None
    if value.expiry.triples is not None:
        room = value.expiry.triples.can_append(len(field) + len(content) + 9)
        if max(len(field), len(content)) > limits.hash_max_listpack_value or not room:
            value.to_hashtable()
        else:
            field_triples.insert(value.expiry.triples, field, content, when)
            return
    assert value.table is not None and value.expiry.times is not None
    value.table.set(field, content)
    if when:
        value.expiry.times.set(field, when)


def _load_times(reader: RdbReader, limits: EncodingLimits, preview: bool = False) -> Hash:
    """Read a hash of strings with times."""
    earliest = 1 if preview else reader.milliseconds()
    count = reader.length()
    value = _new_expiring(count, limits)
    seen: set[bytes] = set()
    for _ in range(count):
        when = reader.length()
        if when:
            when += earliest - 1
        if not 0 <= when <= _LAST_TIME:
            raise Corrupt(f"a field of a hash has the expiry {when}", "invalid expireAt time")
        row = reader.string(), reader.string(), when
        if row[0] in (seen if value.table is None else value.table):
            raise Corrupt("a hash has a duplicate field", _TWICE if value.table is not None else _TWICE_IN_FEW)
        if value.table is None:
            seen.add(row[0])
        _add(value, row, limits)
    return _registered(value)


def _load_preview(reader: RdbReader, limits: EncodingLimits) -> Hash:
    return _load_times(reader, limits, True)


def load_valkey(reader: RdbReader, limits: EncodingLimits) -> Hash:
    """Read Valkey's hash with field expiry; for another server than Valkey in the encoding that its limits choose."""
    count = reader.length()
    value = _new_expiring(count, limits)
    seen: set[bytes] = set()
    for _ in range(count):
        row = reader.string(), reader.string(), reader.milliseconds()
        if row[2] < -1:
            raise Corrupt(f"a field of a hash has the expiry {row[2]}")
        if row[0] in (seen if value.table is None else value.table):
            raise Corrupt("a hash has a duplicate field", _TWICE)
        if value.table is None:
            seen.add(row[0])
        # A field with the time 0 has expired long ago; here 0 means that a field has no time.
        _add(value, (row[0], row[1], 0 if row[2] == -1 else max(row[2], 1)), limits)
    return _registered(value)


def _registered(value: Hash) -> Hash:
    """Note the earliest time as the one for which the keyspace registers the hash."""
    assert value.expiry is not None
    value.expiry.due = value.earliest()
    return value


def _load_listpackex(reader: RdbReader, limits: EncodingLimits) -> Hash:
    reader.milliseconds()
    return _load_triples(reader, limits)


def _load_triples(reader: RdbReader, limits: EncodingLimits) -> Hash:
    """Read a listpack of triples; Redis takes the times as they are, here their order is required."""
    packed = Listpack.from_bytes(reader.string())
    if not packed.length():
        raise EmptyValue("a hash is empty")
    try:
        rows = field_triples.rows(packed)
    except (IndexError, ValueError):
        raise Corrupt("a hash has a field without a value or a time") from None
    times = [when for _, _, when in rows]
    expiring = [when for when in times if when]
    if len({field for field, _, _ in rows}) != len(rows) or packed.length() % field_triples.WIDTH:
        raise Corrupt("a hash has a duplicate field, or a field without a value or a time")
    if times[: len(expiring)] != sorted(expiring) or not all(0 < when < 1 << 63 for when in expiring):
        raise Corrupt("the fields of a hash are not in the order of their times")
    value = Hash()
    value.listpack, value.expiry = None, FieldExpiry(packed, None)
    if len(rows) > limits.hash_max_listpack_entries or limits.compat.valkey:
        value.to_hashtable()
    return _registered(value)


LOADERS: dict[int, Callable[[RdbReader, EncodingLimits], Hash]] = {
    TYPE_HASH: _load_hash,
    TYPE_HASH_ZIPMAP: _load_zipmap,
    TYPE_HASH_ZIPLIST: _load_ziplist,
    TYPE_HASH_LISTPACK: _load_listpack,
    TYPE_HASH_PREVIEW: _load_preview,
    TYPE_LISTPACKEX_PREVIEW: _load_triples,
    TYPE_HASH_TIMES: _load_times,
    TYPE_LISTPACKEX: _load_listpackex,
}
"""The RDB types of hashes, each with the function that reads the type."""

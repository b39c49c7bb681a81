"""Values as RDB bytes, for DUMP, RESTORE and RDB files (Redis: rdb.c).

A DUMP payload is a type, the value in the form of that type, and a footer of ten bytes:

    type (1)  value ...  RDB version (2, little endian)  CRC-64 of all before (8, little endian)

A string (type 0) is one string of `primitives`. The other types have a module each: `list`, `set`, `hash`, `zset`,
`array`, `stream`. The value of a module's type (type 7) is the number of the type and the parts that the module writes
(rillet.types.module).

By default a value is written as the oldest RDB type that can hold it, with the RDB version that introduced this type,
so that as many servers as possible can read it. With `compat` the value is written as one server writes it, byte for
byte, and without the parts that this server does not have. In a file for a given RDB version (`type_within`), each
value is written as the oldest type that can hold it, or as the newest type of that version; `losses` lists the parts
that do not fit. A hash with field expiry needs RDB version 12, or Valkey's 80. All versions are read: Redis's up to
14, and Valkey's 80.
"""

from __future__ import annotations

from types import ModuleType

from rillet.errors import Corrupt
from rillet.structs.crc64 import crc64
from rillet.types.array import Array
from rillet.types.compat import COMPATS, Compat
from rillet.types.encoding_limits import DEFAULTS, EncodingLimits
from rillet.types.hash import Hash
from rillet.types.list import List
from rillet.types.module import NOWHERE, KeyPlace, ModuleValue, find_type, type_name
from rillet.types.rdb import array as rdb_array
from rillet.types.rdb import hash as rdb_hash
from rillet.types.rdb import list as rdb_list
from rillet.types.rdb import set as rdb_set
from rillet.types.rdb import zset as rdb_zset
from rillet.types.rdb.primitives import EmptyValue, RdbReader, RdbWriter
from rillet.types.rdb.stream import (
    STREAM_TYPES,
    TYPE_SEALED,
    TYPE_STREAM_72,
    load_sealed,
    load_stream,
    lost_of_stream,
    newest_type,
    oldest_type,
    save_sealed,
    save_stream,
)
from rillet.types.set import Set
from rillet.types.stream.stream import Stream
from rillet.types.string import String, new_string
from rillet.types.zset import Zset

RDB_VERSION = 10
"""The oldest RDB version that is written."""
NEWEST_VERSION = 14
"""The newest RDB version of Redis that is read."""
TYPE_STRING = 0
TYPE_MODULE = 7
_VALKEY = COMPATS["valkey"].rdb_version
# From this RDB version on, a DUMP omits expired message IDs (iids) of idempotent producers.
_FILTERS_EXPIRED = 14
_FOOTER = 10
STREAMS_OF_VALKEY = 11
"""The RDB version at which Valkey forked from Redis."""
_CODECS: dict[type, ModuleType] = {List: rdb_list, Set: rdb_set, Hash: rdb_hash, Zset: rdb_zset, Array: rdb_array}
# RDB types whose value is a ziplist, listpack, ...: the message that Redis logs if its bytes are corrupt.
_BLOCK_CHECKS = {
    rdb_hash.TYPE_HASH_ZIPMAP: "Zipmap integrity check failed",
    rdb_hash.TYPE_HASH_ZIPLIST: "Hash ziplist integrity check failed",
    rdb_hash.TYPE_HASH_LISTPACK: "Hash listpack integrity check failed",
    rdb_hash.TYPE_LISTPACKEX_PREVIEW: "Hash listpack integrity check failed",
    rdb_hash.TYPE_LISTPACKEX: "Hash listpack integrity check failed",
    rdb_list.TYPE_LIST_ZIPLIST: "List ziplist integrity check failed",
    rdb_list.TYPE_LIST_QUICKLIST: "Ziplist integrity check failed",
    rdb_list.TYPE_LIST_QUICKLIST_2: "Listpack integrity check failed",
    rdb_set.TYPE_SET_INTSET: "Intset integrity check failed",
    rdb_set.TYPE_SET_LISTPACK: "Set listpack integrity check failed",
    rdb_zset.TYPE_ZSET_ZIPLIST: "Zset ziplist integrity check failed",
    rdb_zset.TYPE_ZSET_LISTPACK: "Zset listpack integrity check failed",
}

__all__ = [
    "TYPE_SEALED", "TYPE_STREAM_72", "check_of", "dump", "fits", "load", "refusal", "restore", "save", "seal_is_valid",
    "type_of", "version_of",
]  # fmt: skip


def dump(
    value: object, compression: bool = True, compat: Compat | None = None, now: int = 0, place: KeyPlace = NOWHERE
) -> bytes:
    """Return the DUMP payload of a value, in the RDB type that `type_of` returns (createDumpPayload).

    now: the time in ms. Parts that expired before are omitted if servers that write this type omit them.
    place: the database and the key of the value, for modules.
    """
    kind = type_of(value, compat)
    version = version_of(kind) if compat is None else compat.rdb_version
    out = RdbWriter(compression)
    out.raw(bytes((kind,)))
    save(out, value, kind, now if compat is None or version == _FILTERS_EXPIRED else 0, place)
    out.raw(version.to_bytes(2, "little"))
    out.raw(crc64(bytes(out.out)).to_bytes(8, "little"))
    return bytes(out.out)


def seal_is_valid(payload: bytes, unchecked: bool = False, optional: bool = False, relaxed: bool = False) -> bool:
    """Return whether a DUMP payload has a known version and the right checksum (verifyDumpPayload).

    unchecked: skip the checksum. optional: a checksum of 0 means that there is none, as in Redis 8.6. relaxed: accept
    later versions, too (rdb-version-check).
    """
    if len(payload) < _FOOTER:
        return False
    version = int.from_bytes(payload[-10:-8], "little")
    if version > NEWEST_VERSION and version != _VALKEY and not relaxed:
        return False
    checksum = int.from_bytes(payload[-8:], "little")
    return unchecked or (optional and not checksum) or crc64(payload[:-8]) == checksum


def restore(
    payload: bytes,
    limits: EncodingLimits = DEFAULTS,
    now: int = 0,
    strict: bool = False,
    place: KeyPlace = NOWHERE,
    corrected: list[str] | None = None,
) -> object:
    """Return the value of a DUMP payload whose footer is valid. The parameters and errors are those of `load`.

    corrected: receives a sentence for each counter that contradicted the rest of the value.
    """
    reader = RdbReader(payload, 0, len(payload) - _FOOTER)
    if corrected is not None:
        reader.corrected = corrected
    version = int.from_bytes(payload[-10:-8], "little")
    return load(reader, reader.byte(), limits, now, strict, version, place)


def check_of(error: Exception, kind: int) -> str:
    """Return the name that Redis logs for the failed check of a value of RDB type `kind`, "" if it logs none."""
    if not isinstance(error, Corrupt):
        return ""
    return error.check or ("" if isinstance(error, EmptyValue) else _BLOCK_CHECKS.get(kind, ""))


def refusal(payload: bytes, error: Exception) -> str:
    """Return the log message for a DUMP payload that `restore` rejected: Redis's name of the check, and the cause."""
    cause = str(error) or "not enough memory for the size that the payload declares"
    check = check_of(error, payload[0])
    return f"{check}: {cause}" if check else cause


def type_of(value: object, compat: Compat | None = None) -> int:
    """Return the RDB type for writing a value: with `compat` the server's type, else the oldest that can hold it."""
    if isinstance(value, String):
        return TYPE_STRING
    if isinstance(value, Stream):
        return oldest_type(value) if compat is None else compat.stream_type
    if compat is None and isinstance(value, Hash):
        return rdb_hash.oldest_type(value)
    if isinstance(value, ModuleValue):
        return TYPE_MODULE
    return _type_in(value, RDB_VERSION if compat is None else compat.rdb_version)


def _type_in(value: object, version: int) -> int:
    kind: int = _codec(value).type_of(value, version)
    return kind


def _codec(value: object) -> ModuleType:
    """Return the module that reads and writes a list, set, hash or sorted set as RDB bytes."""
    if type(value) not in _CODECS:
        raise TypeError("RDB has no form for a value of this type")
    return _CODECS[type(value)]


def can_write(version: int) -> bool:
    """Return whether rillet can write files of an RDB version."""
    return 9 <= version <= NEWEST_VERSION or version == _VALKEY


def type_within(value: object, version: int) -> int:
    """Return the RDB type for writing a value to a file of an RDB version (see `can_write`)."""
    if isinstance(value, Stream):
        return min(oldest_type(value), newest_type(STREAMS_OF_VALKEY if version == _VALKEY else version))
    if isinstance(value, Hash) and not value.earliest():
        return rdb_hash.oldest_type(value, version)
    if isinstance(value, ModuleValue):
        return TYPE_MODULE
    return TYPE_STRING if isinstance(value, String) else _type_in(value, version)


def losses(value: object, kind: int) -> list[str]:
    """Describe the parts of a value that an RDB type cannot hold: only of streams and hashes. O(parts)"""
    if isinstance(value, Hash):
        return rdb_hash.losses(value, kind)
    return lost_of_stream(value, kind) if isinstance(value, Stream) else []


def fits(value: object, version: int) -> bool:
    """Return whether an RDB version has a type for the value; only arrays are too new for some."""
    return not isinstance(value, Array) or (rdb_array.VERSION <= version != _VALKEY)


def version_of(kind: int) -> int:
    """Return the RDB version in the DUMP footer for an RDB type: the first that has the type, at least 10."""
    if kind == rdb_array.TYPE_ARRAY:
        return rdb_array.VERSION
    if kind in (rdb_hash.TYPE_HASH_TIMES, rdb_hash.TYPE_LISTPACKEX):
        return rdb_hash.TIMES_SINCE
    if kind == rdb_hash.TYPE_HASH_VALKEY:
        return _VALKEY
    return max(RDB_VERSION, STREAM_TYPES.get(kind, RDB_VERSION))


def save(out: RdbWriter, value: object, kind: int | None = None, now: int = 0, place: KeyPlace = NOWHERE) -> None:
    """Append a value without its type (rdbSaveObject); kind defaults to `type_of`. O(bytes)"""
    if isinstance(value, String):
        out.string(value.value())
    elif isinstance(value, Stream) and kind == TYPE_SEALED:
        save_sealed(out, value)
    elif isinstance(value, Stream):
        save_stream(out, value, oldest_type(value) if kind is None else kind, now)
    elif isinstance(value, ModuleValue):
        value.type.save(out, value.value, place)
    else:
        _codec(value).save(out, value, type_of(value) if kind is None else kind)


def load(
    reader: RdbReader,
    kind: int,
    limits: EncodingLimits = DEFAULTS,
    now: int = 0,
    strict: bool = False,
    version: int = NEWEST_VERSION,
    place: KeyPlace = NOWHERE,
) -> object:
    """Read the next value, of RDB type `kind`. Raise Corrupt for a malformed value or unknown type (rdbLoadObject).

    limits: the limits that choose the encoding of a list, set, hash or sorted set.
    now: the time in ms; parts that expired before are omitted. 0 keeps all parts, which loading a log requires.
    strict: also reject values that only the newest Redis rejects.
    version: the RDB version of the file or payload, which decides between Redis's and Valkey's type 22.
    place: the database and the key of the value, for modules.
    """
    if kind == TYPE_STRING:
        return new_string(reader.string())
    if kind in STREAM_TYPES:
        return load_stream(reader, kind, now, strict)
    if kind == TYPE_SEALED:
        return load_sealed(reader)
    if kind == rdb_hash.TYPE_HASH_VALKEY and version == _VALKEY:
        return rdb_hash.load_valkey(reader, limits)
    for codec in _CODECS.values():
        if kind in codec.LOADERS:
            value: object = codec.LOADERS[kind](reader, limits)
            return value
    if kind == TYPE_MODULE:
        return _load_module(reader, limits, place)
    raise Corrupt(f"RDB type {kind} is unknown", "Unknown RDB encoding type")


def _load_module(reader: RdbReader, limits: EncodingLimits, place: KeyPlace) -> ModuleValue:
    """Read a value of a module's type; raise Corrupt if no loaded module has the type."""
    number = reader.length()
    kind = find_type(limits.module_types, number)
    if kind is None:
        name = type_name(number)
        text = f"The RDB file contains module data I can't load: no matching module type '{name}'"  # rdb.c
        raise Corrupt(f"the type {name} of a module that is not loaded", text)
    loaded: ModuleValue = kind.load(reader, number & 1023, place)
    return loaded

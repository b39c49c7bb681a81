"""Values as RDB bytes: what DUMP shows, RESTORE takes, and an RDB file holds (Redis: rdb.c).

A DUMP payload is a type, the value in that type's form, and ten bytes that seal it:

    type (1)  value ...  RDB version (2, little endian)  CRC-64 of all before (8, little endian)

A string (type 0) is one string of `rdb_bytes`. A stream has five types: `stream_rdb` draws them. Lists and sets are in
`rdb_list_set`, hashes in `rdb_hash`.

Values are written in the oldest form that carries them, with the version that had that form first, so
that as many servers as possible read them: an ordinary stream is what Redis 7.0 writes, and all from 7.0
on, and every Valkey, take it. DUMP can be told to write what one server writes instead (`compat`),
byte for byte, and then leaves out what that server does not know.

A file can be asked for in a version (`type_within`): then each value takes the oldest form that carries it, or the
newest one that this version has, and `losses` names what has no place in that.

Every version that is known is read, whatever is written: Redis's to 14, and Valkey's 80.
"""

from __future__ import annotations

from rillet.errors import Corrupt
from rillet.structs.crc64 import crc64
from rillet.types.compat import COMPATS, Compat
from rillet.types.encoding_limits import DEFAULTS, EncodingLimits
from rillet.types.hash import Hash
from rillet.types.list import List
from rillet.types.rdb import hash as rdb_hash
from rillet.types.rdb import list_set as rdb_list_set
from rillet.types.rdb import zset as rdb_zset
from rillet.types.rdb.primitives import EmptyValue, RdbReader, RdbWriter
from rillet.types.rdb.stream import (
    STREAM_TYPES,
    TYPE_STREAM_72,
    load_stream,
    lost_of_stream,
    newest_type,
    oldest_type,
    save_stream,
)
from rillet.types.set import Set
from rillet.types.stream.value import Stream
from rillet.types.string import String, new_string
from rillet.types.zset import Zset

RDB_VERSION = 10
"""The oldest version that is written."""
NEWEST_VERSION = 14
"""The newest of Redis's versions that is read."""
TYPE_STRING = 0
_VALKEY = COMPATS["valkey"].rdb_version
# Redis leaves out of a DUMP, from this version on, the iids that expired.
_FILTERS_EXPIRED = 14
_FOOTER = 10
_STREAMS_OF_VALKEY = 11  # it left Redis with that version's
_NO_VALUE = "a value of a type that is not known"
# RDB type of a value that is stored in blocks -> what Redis's log says where a block is none (rdbReportCorruptRDB).
_BLOCK_CHECKS = {
    rdb_hash.TYPE_HASH_ZIPMAP: "Zipmap integrity check failed",
    rdb_hash.TYPE_HASH_ZIPLIST: "Hash ziplist integrity check failed",
    rdb_hash.TYPE_HASH_LISTPACK: "Hash listpack integrity check failed",
    rdb_list_set.TYPE_LIST_ZIPLIST: "List ziplist integrity check failed",
    rdb_list_set.TYPE_LIST_QUICKLIST: "Ziplist integrity check failed",
    rdb_list_set.TYPE_LIST_QUICKLIST_2: "Listpack integrity check failed",
    rdb_list_set.TYPE_SET_INTSET: "Intset integrity check failed",
    rdb_list_set.TYPE_SET_LISTPACK: "Set listpack integrity check failed",
    rdb_zset.TYPE_ZSET_ZIPLIST: "Zset ziplist integrity check failed",
    rdb_zset.TYPE_ZSET_LISTPACK: "Zset listpack integrity check failed",
}

__all__ = [
    "TYPE_STREAM_72", "check_of", "dump", "load", "refusal", "restore", "save", "seal_is_valid", "type_of",
    "version_of",
]  # fmt: skip


def dump(value: object, compression: bool = True, compat: Compat | None = None, now: int = 0) -> bytes:
    """Return the DUMP payload of a value: the oldest that carries it, or that of a server (createDumpPayload).

    now: what expired inside the value until then (ms) is left out, where the form is one whose writer does so.
    """
    kind = type_of(value, compat)
    version = version_of(kind) if compat is None else compat.rdb_version
    out = RdbWriter(compression)
    out.raw(bytes((kind,)))
    save(out, value, kind, now if compat is None or version == _FILTERS_EXPIRED else 0)
    out.raw(version.to_bytes(2, "little"))
    out.raw(crc64(bytes(out.out)).to_bytes(8, "little"))
    return bytes(out.out)


def seal_is_valid(payload: bytes, unchecked: bool = False) -> bool:
    """Whether the version of a DUMP payload is known, and its checksum right or unchecked (verifyDumpPayload)."""
    if len(payload) < _FOOTER:
        return False
    version = int.from_bytes(payload[-10:-8], "little")
    if version > NEWEST_VERSION and version != _VALKEY:
        return False
    return unchecked or crc64(payload[:-8]) == int.from_bytes(payload[-8:], "little")


def restore(payload: bytes, limits: EncodingLimits = DEFAULTS, now: int = 0, strict: bool = False) -> object:
    """Return the value of a DUMP payload whose seal is valid; Corrupt where it is malformed (`load`)."""
    reader = RdbReader(payload, 0, len(payload) - _FOOTER)
    return load(reader, reader.byte(), limits, now, strict)


def check_of(error: Exception, kind: int) -> str:
    """Return what Redis's log calls the check that refused a value of that RDB type, "" where it has no name."""
    if not isinstance(error, Corrupt):
        return ""
    return error.check or ("" if isinstance(error, EmptyValue) else _BLOCK_CHECKS.get(kind, ""))


def refusal(payload: bytes, error: Exception) -> str:
    """Return what the log says of a DUMP payload that `restore` refused: Redis's name of the check, and our cause."""
    cause = str(error) or "there is no memory for what it claims to hold"
    check = check_of(error, payload[0])
    return f"{check}: {cause}" if check else cause


def type_of(value: object, compat: Compat | None = None) -> int:
    """Return the RDB type in which a value is written: the oldest that carries it, or the one of a server."""
    if isinstance(value, String):
        return TYPE_STRING
    if isinstance(value, Stream):
        return oldest_type(value) if compat is None else compat.stream_type
    if isinstance(value, (List, Set)):
        return rdb_list_set.type_of(value, RDB_VERSION if compat is None else compat.rdb_version)
    if isinstance(value, Hash):
        return rdb_hash.type_of(value, RDB_VERSION if compat is None else compat.rdb_version)
    if isinstance(value, Zset):
        return rdb_zset.type_of(value, RDB_VERSION if compat is None else compat.rdb_version)
    raise TypeError(_NO_VALUE)


def can_write(version: int) -> bool:
    """Whether a file of that version can be asked for."""
    return 9 <= version <= NEWEST_VERSION or version == _VALKEY


def type_within(value: object, version: int) -> int:
    """Return the RDB type in which a value is written for the readers of a version (see `can_write`)."""
    if isinstance(value, Stream):
        return min(oldest_type(value), newest_type(_STREAMS_OF_VALKEY if version == _VALKEY else version))
    if isinstance(value, (List, Set)):
        return rdb_list_set.type_of(value, version)
    if isinstance(value, Hash):
        return rdb_hash.type_of(value, version)
    if isinstance(value, Zset):
        return rdb_zset.type_of(value, version)
    return type_of(value)


def losses(value: object, kind: int) -> list[str]:
    """Return what that type has no place for, of a value; nothing of any but a stream. O(groups and consumers)"""
    return lost_of_stream(value, kind) if isinstance(value, Stream) else []


def version_of(kind: int) -> int:
    """Return the version with which a value of that type is written: the first that had it, but none before 10."""
    return max(RDB_VERSION, STREAM_TYPES.get(kind, RDB_VERSION))


def save(out: RdbWriter, value: object, kind: int | None = None, now: int = 0) -> None:
    """Append a value without its type, which is that of `type_of` unless given (rdbSaveObject). O(bytes)"""
    if isinstance(value, String):
        out.string(value.value())
    elif isinstance(value, Stream):
        save_stream(out, value, oldest_type(value) if kind is None else kind, now)
    elif isinstance(value, (List, Set)):
        rdb_list_set.save(out, value, type_of(value) if kind is None else kind)
    elif isinstance(value, Hash):
        rdb_hash.save(out, value, type_of(value) if kind is None else kind)
    elif isinstance(value, Zset):
        rdb_zset.save(out, value, type_of(value) if kind is None else kind)
    else:
        raise TypeError(_NO_VALUE)


def load(
    reader: RdbReader, kind: int, limits: EncodingLimits = DEFAULTS, now: int = 0, strict: bool = False
) -> object:
    """Return the next value, of RDB type `kind` (rdbLoadObject); Corrupt where it is malformed or unknown.

    limits: which encoding a list, set or hash takes.
    now: what expired inside the value until then (ms) is left out; 0 leaves out nothing, as a log needs it.
    strict: refuse what only the newest server refuses.
    """
    if kind == TYPE_STRING:
        return new_string(reader.string())
    if kind in STREAM_TYPES:
        return load_stream(reader, kind, now, strict)
    if kind in rdb_list_set.LOADERS:
        return rdb_list_set.load(reader, kind, limits)
    if kind in rdb_hash.LOADERS:
        return rdb_hash.load(reader, kind, limits)
    if kind in rdb_zset.LOADERS:
        return rdb_zset.load(reader, kind, limits)
    if kind in rdb_hash.EXPIRING_TYPES:
        raise Corrupt(f"RDB type {kind}, a hash whose fields expire, is not read", "Unknown RDB encoding type")
    raise Corrupt(f"RDB type {kind} is not known", "Unknown RDB encoding type")

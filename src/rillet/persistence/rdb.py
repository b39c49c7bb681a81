"""An RDB file: the data set of redis-server at one moment, read key by key (Redis: rdb.c, rdbLoadRioWithLoadingCtx).

    REDIS0010 or VALKEY080                 magic and version
    FA  name value                         facts about the file (redis-ver, used-mem, aof-base ...), skipped
    FE  n                                  what follows belongs to database n
    FB  keys expires                       sizes for a hash table, skipped
    F4  slot keys expires                  the same for a slot of a cluster, skipped
    [FC ms] [FD s] [F8 idle] [F9 freq]     of the next key: when it expires, how lately and often it was used
    type key value                         a key; the value as in rillet.types.rdb
    FF  CRC-64 (8, little endian)          the end; a checksum of 0 was not computed

This is what lies under a log of redis-server as its base, so a directory of Redis can be opened as it is, and what SAVE
writes (rillet.persistence.rdb_writer). Strings, lists, sets, hashes and streams are read. A key of another type is
refused by name, and a module's data or a function library too: to leave them out would lose them when the log is
rewritten next.

A key whose time has come is kept under a log, which says when it went; a file that stands alone says nothing more, so
there the key is dropped (`drop_expired`), as Redis does.
"""

from __future__ import annotations

import mmap
import re
from pathlib import Path
from typing import Any, NamedTuple

from rillet.commands.stream_idmp import track
from rillet.engine import Engine
from rillet.errors import Corrupt, LogCorrupt, NewerFormat
from rillet.structs.crc64 import crc64
from rillet.types import rdb
from rillet.types.compat import COMPATS
from rillet.types.rdb_bytes import RdbReader
from rillet.types.rdb_hash import EXPIRING_TYPES

MAGICS = (b"REDIS", b"VALKEY")
HEADER = 9
_HEADER = re.compile(rb"(REDIS|VALKEY)(\d+)")
# As of its own versions, Valkey has a magic of its own.
NEWEST_VALKEY = COMPATS["valkey"].rdb_version
_SLOT_SIZES = 0xF4
_FUNCTION, _FUNCTION_OLD, _MODULE = 0xF5, 0xF6, 0xF7
_IDLE, _FREQUENCY, _FACT, _SIZES, _EXPIRE_MS, _EXPIRE_S, _DATABASE, _END = range(0xF8, 0x100)
_TYPES = {
    3: "sorted set", 5: "sorted set", 6: "module value", 7: "module value", 12: "sorted set", 17: "sorted set",
    **dict.fromkeys(EXPIRING_TYPES, "hash whose fields expire"),
}  # fmt: skip


class Loaded(NamedTuple):
    """What was read: where the RDB part of the file ends (bytes), how many keys were kept, how many had expired."""

    end: int
    keys: int
    expired: int


def load_rdb(path: Path, engine: Engine, *, drop_expired: bool = False, merge: bool = False) -> Loaded:
    """Put the keys of the file into the engine's databases.

    merge: a key that is there already is replaced, as in DEBUG RELOAD MERGE.
    LogCorrupt tells file and offset of what is malformed, NewerFormat names what is not read. O(bytes)
    """
    if not path.stat().st_size:  # which cannot be mapped
        raise LogCorrupt(str(path), 0, "the file is empty")
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        source: Any = data  # slices of a map are bytes
        return _RdbFile(path, engine, RdbReader(source), drop_expired, merge).load()


class _RdbFile:
    def __init__(self, path: Path, engine: Engine, reader: RdbReader, drop_expired: bool, merge: bool) -> None:
        self.path = path
        self.engine = engine
        self.reader = reader
        # Keys whose time is before this are dropped.
        self.now = engine.clock.now_ms() if drop_expired else -1
        self.merge = merge
        self.database = engine.databases[0]
        self.expires = -1
        self.keys = self.expired = 0

    def load(self) -> Loaded:
        reader = self.reader
        try:
            self._header()
            while (kind := reader.byte()) != _END:
                if kind >= _SLOT_SIZES:
                    self._about(kind)
                else:
                    self._key(kind)
            self._checksum()
        except (Corrupt, IndexError, OverflowError, MemoryError) as error:
            raise LogCorrupt(str(self.path), reader.position, str(error)) from None
        return Loaded(reader.position, self.keys, self.expired)

    def _header(self) -> None:
        header = _HEADER.fullmatch(self.reader.raw(HEADER))
        if header is None:
            raise Corrupt("not an RDB file")
        version, newest = int(header[2]), rdb.NEWEST_VERSION if header[1] == b"REDIS" else NEWEST_VALKEY
        if version > newest:
            raise NewerFormat(f"{self.path}: RDB version {version}; rillet reads up to {newest}: upgrade rillet")

    def _about(self, kind: int) -> None:
        """Read what stands between keys."""
        reader = self.reader
        if kind == _FACT:
            reader.string()
            reader.string()
        elif kind == _DATABASE:
            number = reader.length()
            if number >= len(self.engine.databases):
                raise NewerFormat(f"{self.path}: database {number}; there are {len(self.engine.databases)} (databases)")
            self.database = self.engine.databases[number]
        elif kind == _SIZES:
            reader.length()
            reader.length()
        elif kind == _SLOT_SIZES:
            for _ in range(3):
                reader.length()
        elif kind == _EXPIRE_MS:
            self.expires = reader.milliseconds()
        elif kind == _EXPIRE_S:
            self.expires = int.from_bytes(reader.raw(4), "little", signed=True) * 1000
        elif kind == _IDLE:
            reader.length()
        elif kind == _FREQUENCY:
            reader.byte()
        else:
            what = "data of a module" if kind == _MODULE else "a function library"
            raise NewerFormat(f"{self.path}: offset {reader.position - 1}: {what}, which this version does not read")

    def _key(self, kind: int) -> None:
        key = self.reader.string()
        if kind in _TYPES:
            name = key.decode("utf-8", "backslashreplace")
            raise NewerFormat(
                f"{self.path}: the key {name!r} (database {self.database.index}) holds a {_TYPES[kind]}; this version "
                "reads strings, lists, sets, hashes and streams"
            )
        value = rdb.load(self.reader, kind, self.engine.settings, max(self.now, 0))
        expires, self.expires = self.expires, -1
        if 0 <= expires < self.now:
            self.expired += 1
            return
        if not self.merge and self.database.lookup(key) is not None:
            raise Corrupt(f"the key {key.decode('utf-8', 'backslashreplace')!r} twice")
        self.database.set(key, value)
        track(self.database, key, value)
        if expires >= 0:
            self.database.set_expire(key, expires)
        self.keys += 1

    def _checksum(self) -> None:
        reader = self.reader
        end = reader.position
        stored = int.from_bytes(reader.raw(8), "little")
        if not stored:
            return
        found = 0
        for start in range(0, end, 1 << 20):
            found = crc64(reader.data[start : min(start + (1 << 20), end)], found)
        if found != stored:
            raise Corrupt(f"the checksum is {stored:016x}, of the bytes it is {found:016x}")

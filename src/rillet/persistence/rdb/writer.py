"""Writes an RDB file, the data at one moment, key by key (Redis: rdb.c, rdbSaveRio).

rillet.persistence.rdb.records draws the bytes.

The version precedes the keys, so it is determined first: the oldest version that supports the type of every value. Only
streams, arrays and hashes with field expiry can need a newer one than 10; the keyspace knows whether it has such
hashes. With `compat` valkey, a file with such hashes has Valkey's version 80.
Every server since Redis 7.0 reads a file of strings and ordinary streams. For this, one field is omitted if `compat` is
7.0: the times at which consumers were active. Data written by commands is never omitted.

With an explicit version, 9 to 14 or Valkey's 80, the servers of that version can load the file. Each value has the
oldest encoding that preserves it, or else the one that preserves most; each loss is reported (`Lost`).

The file is written in pieces under another name, synced and renamed, so a reader sees the old file or the complete new
one. A piece ends between keys, or between the elements of a large value, so it needs a megabyte of memory, or the bytes
of one list if that is larger. The engine waits meanwhile; BGSAVE does the same in a forked child. The keys are written
in the order in which they rest in memory; rillet.persistence.rdb.plain_keys, which is compiled, copies most of them.

The base of a log refers to the nodes of streams that lie in segments (types.rdb.stream.save_sealed); every other file
contains their bytes, which are read one node at a time.

Expired keys are written, as in Redis: the reader drops them, or keeps them if a log follows the file.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from rillet.errors import StoreError
from rillet.keyspace.database import Database
from rillet.keyspace.lru import LFU
from rillet.persistence.debug_delay import debug_delay
from rillet.persistence.disk import REAL, SYNC_EVERY, Disk, Sink, write_all
from rillet.persistence.rdb import records
from rillet.persistence.rdb.plain_keys import END, OTHER, PlainKeys, versioned_values
from rillet.persistence.rdb.reader import Kept, KeptValue, kept_of
from rillet.runtime.engine import Engine
from rillet.runtime.replica_versions import problem, rdb_type, shown
from rillet.scripting.functions import OPCODE, library_codes
from rillet.structs.crc64 import crc64
from rillet.types.compat import Compat
from rillet.types.module import AFTER_KEYS, BEFORE_KEYS, KeyPlace
from rillet.types.rdb import value as rdb
from rillet.types.rdb.hash import TIMES_SINCE
from rillet.types.rdb.primitives import RdbWriter
from rillet.types.stream.stream import Stream

OLDEST_VERSION = 9
"""The oldest version that can be requested: Redis 5, the first with streams."""
_FUNCTIONS_SINCE = 10
_LISTPACKS_SINCE = 10

# Report progress every 1024 keys (rdb.c: rdbSaveDb).
_PROGRESS_MASK = 1023


class Lost(NamedTuple):
    """Data that the requested RDB version cannot store: the database (-1: none), the key, a description."""

    database: int
    key: bytes
    what: str


class NotReadable(StoreError):
    """A value that the reader of the file cannot hold; the message names it."""


class RdbParts(NamedTuple):
    """The parts of an RDB file that a replica asks for, its form, and the server that must be able to read it."""

    data: bool = True
    functions: bool = True
    compressed: bool = True
    checked: bool = True
    reader: Compat | None = None


def stream_rdb(file: Sink, engine: Engine, parts: RdbParts, progress: Callable[[int], None] | None = None) -> int:
    """Write all databases, or a part of the data, to a pipe or an open file; return the number of keys. O(bytes)"""
    out = _RdbFileWriter(file, engine, progress, None, None, parts)
    out.write(False)
    return out.keys


def write_rdb(
    path: Path,
    engine: Engine,
    *,
    log_base: bool = False,
    draft: Path | None = None,
    progress: Callable[[int], None] | None = None,
    before_rename: Callable[[], None] | None = None,
    version: int | None = None,
    lost: list[Lost] | None = None,
    disk: Disk = REAL,
) -> int:
    """Write all databases to the file, sync it, and return the number of keys. O(bytes)

    After OSError the previous file is unchanged. log_base: commands will follow the file in a log. draft: the path
    until the file is complete. progress(keys done so far) and before_rename, which is called when the draft is on the
    disk, may raise to stop the writing. version: see OLDEST_VERSION, else ValueError; `lost` receives the losses.
    """
    if version is not None and not rdb.can_write(version):
        raise ValueError(f"cannot write RDB version {version}: choose 9 to {rdb.NEWEST_VERSION}, or Valkey's 80")
    draft = draft or path.with_name(f"temp-{os.getpid()}-{path.name}")
    try:
        file = disk.create(draft)
        try:
            out = _RdbFileWriter(file, engine, progress, version, lost)
            out.write(log_base)
            file.sync()
        finally:
            file.close()
        if before_rename is not None:
            before_rename()
        disk.rename(draft, path)
        disk.sync_folder(path.parent)
    finally:
        disk.remove(draft)
    return out.keys


def readable_by(compat: Compat, value: object) -> Compat | None:
    """Return `compat` if that server reads a stream only without the active times of consumers, else None."""
    newer = isinstance(value, Stream) and rdb.type_of(value) == rdb.TYPE_STREAM_72
    return compat if newer and compat.stream_type < rdb.TYPE_STREAM_72 else None


class _RdbFileWriter:
    """An RDB file that is being written; `piece` buffers the next bytes."""

    def __init__(
        self,
        file: Sink,
        engine: Engine,
        progress: Callable[[int], None] | None,
        version: int | None,
        lost: list[Lost] | None,
        parts: RdbParts | None = None,
    ) -> None:
        self.parts = parts = parts or RdbParts()
        self.file = file
        self.engine = engine
        self.progress = progress
        self.delay = engine.settings.rdb_key_save_delay
        self.piece = RdbWriter(engine.settings.rdbcompression and parts.compressed, self._take)
        self.compat = parts.reader or engine.settings.compat
        self.version = version
        self.lost = lost
        self.kept: Kept = kept_of(engine)
        self.access = engine.access
        self.access.update()
        self.saves_access: bool = engine.settings.maxmemory_policy.endswith(("lru", "lfu"))
        self.checked = engine.settings.rdbchecksum and parts.checked
        self.checksum = 0
        self.seals = False
        self.keys = 0
        self.syncs = False
        self.unsynced = 0

    def write(self, log_base: bool) -> None:
        """Write all parts of the RDB file in order."""
        settings = self.engine.settings
        self.seals = log_base and self.engine.segments is not None
        self.syncs = settings.aof_rewrite_incremental_fsync if log_base else settings.rdb_save_incremental_fsync
        self._header(log_base)
        if self.parts.data:
            self._module_data(BEFORE_KEYS)
            for raw in self.kept.before:
                self.piece.raw(raw)
        if self.parts.functions:
            self._functions()
        if self.parts.data:
            self._databases()
        self.piece.byte(records.END)
        self.piece.flush()
        write_all(self.file, self.checksum.to_bytes(8, "little"))

    def _functions(self) -> None:
        """Write the function libraries, if the version has them."""
        functions = library_codes(self.engine)
        if self.version is None or self.version >= _FUNCTIONS_SINCE:
            for code in functions:
                self.piece.byte(OPCODE)
                self.piece.string(code)
        elif functions and self.lost is not None:
            self.lost.append(Lost(-1, b"", f"{len(functions)} function libraries"))

    def _databases(self) -> None:
        """Write the keys of all databases, and the data of modules behind them."""
        for database in self.engine.databases:
            foreign = [value for value in self.kept.values if value.database == database.index]
            if len(database) or foreign:
                self._database(database, foreign)
        self._module_data(AFTER_KEYS)
        for raw in self.kept.after:
            self.piece.raw(raw)

    def _module_data(self, when: int) -> None:
        """Write the data of loaded modules that belongs to no key (rdbSaveModulesAux)."""
        for kind in self.engine.settings.module_types.values():
            kind.save_aux(self.piece, records.MODULE_AUX, when)
            self.piece.spill()

    def _header(self, log_base: bool) -> None:
        """Write the magic, the version and the auxiliary fields (rdbSaveInfoAuxFields)."""
        engine = self.engine
        version = self.version
        if self.parts.reader is not None and self.parts.data:
            self._refuse_newer(self.parts.reader)
        if version is None:
            values = (value for database in engine.databases for value in versioned_values(database.keys))
            version = max((rdb.version_of(self._type_of(value)) for value in values), default=rdb.RDB_VERSION)
            version = self._version_of_hashes(version)
        self.piece.raw(b"REDIS%04d" % version if version <= rdb.NEWEST_VERSION else b"VALKEY%03d" % version)
        facts = {
            b"redis-ver": engine.settings.compat.redis_version.encode(), b"redis-bits": b"64",
            b"ctime": b"%d" % (engine.clock.now_ms() // 1000),
            b"used-mem": b"%d" % engine.services.memory()["used_memory"],
            **({} if log_base else engine.replication.saved_position()), b"aof-base": b"%d" % log_base,
        }  # fmt: skip
        if log_base and engine.segments is not None:
            facts[records.SEGMENT_NAMES] = " ".join(sorted(self._segments())).encode()
        for name, value in facts.items():
            self.piece.byte(records.FACT)
            self.piece.string(name)
            self.piece.string(value)

    def _segments(self) -> set[str]:
        """Return the names of the segments to which the file refers."""
        return {nodes.source.path.name for database in self.engine.databases
                for value in versioned_values(database.keys) if isinstance(value, Stream)
                for _, nodes in value.sealed_ranges()}  # fmt: skip

    def _version_of_hashes(self, version: int) -> int:
        """Return the version of a file whose streams need `version` and whose hashes may have fields that expire."""
        times = ((database, key) for database in self.engine.databases for key, _ in database.subexpires.items())
        if not any(database.peek(key).earliest() for database, key in times):  # a time may outlast its field's expiry
            return version
        if self.compat.valkey and version <= rdb.STREAMS_OF_VALKEY:
            self.version = self.compat.rdb_version
            return self.version
        return max(version, TIMES_SINCE)

    def _database(self, database: Database, foreign: list[KeptValue]) -> None:
        """Write the keys of a database (rdbSaveDb)."""
        piece = self.piece
        piece.byte(records.DATABASE)
        piece.length(database.index)
        piece.byte(records.SIZES)
        piece.length(len(database) + len(foreign))
        piece.length(len(database.expires) + sum(value.expires >= 0 for value in foreign))
        walk = PlainKeys(piece, database, self.version is None or self.version >= _LISTPACKS_SINCE)
        plain = not self.saves_access and not self.delay
        database.keys.pauses += 1
        try:
            while True:
                if self.keys & _PROGRESS_MASK == 0 and self.progress is not None:
                    self.progress(self.keys)
                before = walk.written
                reached = walk.write(_PROGRESS_MASK + 1 - (self.keys & _PROGRESS_MASK) if plain else 0)
                self.keys += walk.written - before
                if reached == END:
                    break
                if reached == OTHER or not plain:
                    self._key(database, walk.at)
                    walk.skip()
        finally:
            database.keys.pauses -= 1
        for kept in foreign:
            self._expiry(kept.expires)
            self._head(records.MODULE_VALUE, kept.key)
            piece.raw(kept.value)
            piece.spill()

    def _key(self, database: Database, n: int) -> None:
        """Write the key of an entry."""
        key, value = database.keys.entry_key(n), database.value_at(n)
        if self.version is not None and not rdb.fits(value, self.version):
            if self.lost is not None:
                self.lost.append(Lost(database.index, key, "an array"))
            return
        kind = self._type_of(value)
        if self.version is not None and self.lost is not None:
            self.lost += [Lost(database.index, key, what) for what in rdb.losses(value, kind)]
        self._expiry(database.get_expire(key))
        self._access(database, n)
        self._head(kind, key)
        rdb.save(self.piece, value, kind, place=KeyPlace(database.index, key))
        self.keys += 1
        if self.delay:
            debug_delay(self.delay)
        self.piece.spill()

    def _expiry(self, expires: int) -> None:
        if expires >= 0:
            self.piece.byte(records.EXPIRE_MS)
            self.piece.milliseconds(expires)

    def _access(self, database: Database, n: int) -> None:
        """Write the idle time or the frequency of an entry if the policy is LRU or LFU (rdbSaveKeyValuePair)."""
        if not self.saves_access:
            return
        bits = database.keys.lru(n)
        if self.access.mode == LFU:
            self.piece.byte(records.FREQUENCY)
            self.piece.byte(self.access.frequency(bits))
        else:
            self.piece.byte(records.IDLE)
            self.piece.length(self.access.idle_time(bits))

    def _head(self, kind: int, key: bytes) -> None:
        self.piece.byte(kind)
        self.piece.string(key)

    def _refuse_newer(self, reader: Compat) -> None:
        """Raise NotReadable for a value that the reader cannot hold. O(versioned values)"""
        for database in self.engine.databases:
            unable = [value for value in versioned_values(database.keys) if problem(value, reader)]
            keys = (key for key, value in database.items() if value is unable[0]) if unable else ()
            for key in (*keys, *(name for name, _ in database.subexpires.items())):
                reason = problem(database.peek(key), reader)
                if reason:
                    raise NotReadable(
                        f"{shown(reader)} cannot hold the value at key {key.decode('utf-8', 'backslashreplace')!r} "
                        f"of database {database.index}: {reason}"
                    )

    def _type_of(self, value: object) -> int:
        if self.seals and isinstance(value, Stream) and value.sealed:
            return rdb.TYPE_SEALED
        if self.parts.reader is not None:
            return rdb_type(value, self.parts.reader)
        if self.version is not None:
            return rdb.type_within(value, self.version)
        return rdb.type_of(value, readable_by(self.compat, value))

    def _take(self, data: bytes) -> None:
        """Write a full buffer to the file, and update the checksum."""
        if self.checked:
            self.checksum = crc64(data, self.checksum)
        write_all(self.file, data)
        self.unsynced += len(data)
        if self.syncs and self.unsynced >= SYNC_EVERY:
            self.file.sync()
            self.unsynced = 0

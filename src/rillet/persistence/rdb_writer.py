"""Writing an RDB file: the data set at one moment, key by key (Redis: rdb.c, rdbSaveRio).

    REDIS0010                              magic and version
    FA  name value                         facts about the file: redis-ver, redis-bits, ctime, used-mem, aof-base
    FE  n   FB  keys expires               a database that has keys, and sizes for the reader's hash tables
    [FC ms] type key value                 a key, its expiry before it; the value as in rillet.types.rdb
    FF  CRC-64 (8, little endian)          the end; a checksum of 0 was not computed (rdbchecksum no)

The version stands before the keys, so what they need is asked first: it is the oldest one whose readers know the
type of every value, and a data set of strings and ordinary streams is read by every server from Redis 7.0 on. One
thing is left out for its sake: when consumers were active, where `compat` is 7.0. What commands put into a value
never is.

The file is written piece by piece under another name, synced, and renamed: whoever opens it sees the old one or the
new one, whole, and the memory that it costs is a piece's (1 MB, or one value where that is larger). Meanwhile the
engine stands still. Rejected: a child process, as Redis has one. Python's reference counts would make the kernel copy
nearly every page that the child looks at, and threads that hold locks do not come along.

A key whose time has come is written all the same, as Redis does: the reader drops it, or keeps it where a log behind
the file says when it went.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from rillet.commands.info import memory_facts
from rillet.engine import Engine
from rillet.keyspace.database import Database
from rillet.persistence.manifest import sync_folder
from rillet.structs.crc64 import crc64
from rillet.types import rdb
from rillet.types.compat import Compat
from rillet.types.rdb_bytes import RdbWriter
from rillet.types.stream import Stream

_FACT, _SIZES, _EXPIRE_MS, _DATABASE, _END = b"\xfa", b"\xfb", b"\xfc", b"\xfe", b"\xff"
_PIECE = 1 << 20
# Progress is told every 1024 keys (rdb.c: rdbSaveDb).
_PROGRESS_MASK = 1023


def write_rdb(path: Path, engine: Engine, *, log_base: bool = False, draft: Path | None = None,
              progress: Callable[[int], None] | None = None, before_rename: Callable[[], None] | None = None) -> int:
    """Write all databases to the file and return the number of keys; it is on disk, whole, when this returns. O(bytes)

    OSError where that fails, with the file as it was before. log_base: commands will follow it in a log. draft: the
    file's name until it is whole. progress(keys done so far); it and before_rename, called when the draft is on disk,
    may raise what is to end the writing.
    """
    draft = draft or path.with_name(f"temp-{os.getpid()}-{path.name}")
    try:
        with open(draft, "wb") as file:
            out = _RdbFile(file, engine, progress)
            out.header(log_base)
            for database in engine.databases:
                if len(database):
                    out.database(database)
            out.end()
            file.flush()
            os.fsync(file.fileno())
        if before_rename is not None:
            before_rename()
        os.replace(draft, path)
        sync_folder(path.parent)
    finally:
        draft.unlink(missing_ok=True)
    return out.keys


def readable_by(compat: Compat, value: object) -> Compat | None:
    """Return the compat where its server can read a stream if consumers' active times are left out, else None."""
    newer = isinstance(value, Stream) and rdb.type_of(value) == rdb.TYPE_STREAM_72
    return compat if newer and compat.stream_type < rdb.TYPE_STREAM_72 else None


class _RdbFile:
    """A file in the making: `piece` is what was not written yet."""

    def __init__(self, file: BinaryIO, engine: Engine, progress: Callable[[int], None] | None) -> None:
        self.file = file
        self.engine = engine
        self.progress = progress
        self.delay = engine.settings.rdb_key_save_delay
        self.piece = RdbWriter(engine.settings.rdbcompression)
        self.compat = engine.settings.compat
        self.checked = engine.settings.rdbchecksum
        self.checksum = 0
        self.keys = 0

    def header(self, log_base: bool) -> None:
        """Write the magic, the version and the facts (rdbSaveInfoAuxFields)."""
        engine = self.engine
        values = (value for database in engine.databases for value in database.values.values())
        kinds = {rdb.type_of(value, readable_by(self.compat, value)) for value in values}
        self.piece.raw(b"REDIS%04d" % max(map(rdb.version_of, kinds), default=rdb.RDB_VERSION))
        facts = {
            b"redis-ver": engine.settings.compat.redis_version.encode(), b"redis-bits": b"64",
            b"ctime": b"%d" % (engine.clock.now_ms() // 1000),
            b"used-mem": b"%d" % memory_facts(engine)["used_memory"], b"aof-base": b"%d" % log_base,
        }  # fmt: skip
        for name, value in facts.items():
            self.piece.raw(_FACT)
            self.piece.string(name)
            self.piece.string(value)

    def database(self, database: Database) -> None:
        """Write the keys of a database (rdbSaveDb)."""
        piece = self.piece
        piece.raw(_DATABASE)
        piece.length(database.index)
        piece.raw(_SIZES)
        piece.length(len(database))
        piece.length(len(database.expires))
        expires = database.expires
        for key, value in database.values.items():
            when = expires.get(key)
            if when is not None:
                piece.raw(_EXPIRE_MS)
                piece.milliseconds(when)
            kind = rdb.type_of(value, readable_by(self.compat, value))
            piece.raw(bytes((kind,)))
            piece.string(key)
            rdb.save(piece, value, kind)
            if self.keys & _PROGRESS_MASK == 0 and self.progress is not None:
                self.progress(self.keys)
            self.keys += 1
            if self.delay:
                debug_delay(self.delay)
            if len(piece.out) >= _PIECE:
                self._write()

    def end(self) -> None:
        """Write the end and the checksum of all before it."""
        self.piece.raw(_END)
        self._write()
        self.file.write(self.checksum.to_bytes(8, "little"))

    def _write(self) -> None:
        data = bytes(self.piece.out)
        self.piece.out.clear()
        if self.checked:
            self.checksum = crc64(data, self.checksum)
        self.file.write(data)


def debug_delay(usec: int) -> None:
    """Wait so many microseconds; of a negative number one, now and then (debug.c: debugDelay). For tests only."""
    if usec < 0:
        usec = int(random.randrange(-usec) == 0)
    if usec:
        time.sleep(usec / 1_000_000)


__all__ = ["debug_delay", "readable_by", "write_rdb"]

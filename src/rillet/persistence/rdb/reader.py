"""An RDB file: the data set of a server at one moment, read key by key (Redis: rdb.c, rdbLoadRioWithLoadingCtx).

    REDIS0010 or VALKEY080                 magic and version
    FA  name value                         facts about the file: redis-ver, used-mem, aof-base ...
    FE  n                                  what follows belongs to database n
    FB  keys expires                       sizes for a hash table, skipped
    F4  slot keys expires                  the same for a slot of a cluster, skipped
    F5  code                               a function library; F6 as 7.0's first previews wrote one
    F7  module 2 when  parts 0             what a module keeps beside the keys
    [FC ms] [FD s] [F8 idle] [F9 freq]     of the next key: when it expires, how lately and often it was used
    type key value                         a key; the value as in rillet.types.rdb.value
    FF  CRC-64 (8, little endian)          the end; since version 5. A checksum of 0 was not computed

Versions 1 to 14 and Valkey's 80 are read, from a path or from whatever gives bytes, seekable or not, in pieces: memory
is what the data takes, and a window of the file (rillet.types.rdb.primitives). This is what lies under a log as its
base,
so a directory of Redis can be opened as it is, and what SAVE writes (rillet.persistence.rdb.writer).

**What is refused.** A key of a type that rillet has not, by its name; what is malformed, with the file, the offset and
what was expected there; bytes that the checksum does not vouch for. All of it by an exception: what was loaded until
then is in the databases, and whoever called decides what becomes of them.

**What is left out on request.** Function libraries, modules' values and what modules keep beside the keys can be
stepped over without knowing them. `unknown`, or else the setting `rdb-foreign`, says what becomes of them: "refuse" is
the default, since leaving them out would lose them with the next SAVE; "skip" leaves them out and counts them; "keep"
puts their bytes aside (`Kept`), and whoever writes the data set writes them too.

A key whose time has come is kept under a log, which says when it went; a file that stands alone says nothing more, so
there the key is dropped (`drop_expired`), as Redis does. A value without an element, which bugs of old servers left in
their files, is left out and counted, as Redis does, too; the log of a server names the first ten.
"""

from __future__ import annotations

import gc
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from io import RawIOBase
from pathlib import Path
from typing import Any, BinaryIO, Literal, NamedTuple

from rillet.commands.stream.idmp import track
from rillet.errors import Corrupt, LogCorrupt, NewerFormat
from rillet.persistence.debug_delay import debug_delay
from rillet.persistence.disk import REAL, Disk
from rillet.persistence.worker_thread import WorkerThread
from rillet.runtime.engine import Engine
from rillet.types.compat import COMPATS
from rillet.types.rdb import value as rdb
from rillet.types.rdb.hash import EXPIRING_TYPES
from rillet.types.rdb.primitives import EmptyValue, RdbReader, RdbWriter
from rillet.types.stream.value import Stream
from rillet.types.string import new_string

Unknown = Literal["refuse", "skip", "keep"]
"""What becomes of function libraries and modules' data."""

MAGICS = (b"REDIS", b"VALKEY")
HEADER = 9
_HEADER = re.compile(rb"(REDIS|VALKEY)(\d+)")
# As of its own versions, Valkey has a magic of its own.
NEWEST_VALKEY = COMPATS["valkey"].rdb_version
_CHECKSUM_SINCE = 5
_LITTLE_ENDIAN_SINCE = 9
_KEY_METADATA, _SLOT_SIZES, _FUNCTION, _FUNCTION_PREVIEW, _MODULE_AUX = range(0xF3, 0xF8)
_IDLE, _FREQUENCY, _FACT, _SIZES, _EXPIRE_MS, _EXPIRE_S, _DATABASE, _END = range(0xF8, 0x100)
_MODULE_VALUE = 7
# The parts of what a module writes (RDB_MODULE_OPCODE_*), and how many bytes one has that is no length or string.
_PART_END, _PART_SIGNED, _PART_UNSIGNED, _PART_FLOAT, _PART_DOUBLE, _PART_STRING = range(6)
_AFTER_KEYS = 2
_NAMED = 10  # so many keys that are left out are named
_TYPES = {
    6: "a module value of Redis 4.0's previews", _MODULE_VALUE: "a module value", 28: "an array", 29: "a rate limit",
    **dict.fromkeys(EXPIRING_TYPES, "a hash whose fields expire"),
}  # fmt: skip
_READS = "this version reads strings, lists, sets, hashes, sorted sets and streams"


class Loaded(NamedTuple):
    """What was read: where the RDB part of the file ends (bytes), how many keys were kept, how many had expired."""

    end: int
    keys: int
    expired: int
    empty: int = 0
    """Keys without an element, which were left out."""
    skipped: int = 0
    """Function libraries, modules' values and other data of modules that were left out."""
    version: int = 0
    facts: dict[bytes, bytes] = {}
    """What the file says about itself (redis-ver, ctime ...)."""


class KeptValue(NamedTuple):
    """A module's value: its database, its key, when it expires (ms, -1: never), and its bytes."""

    database: int
    key: bytes
    expires: int
    value: bytes


@dataclass
class Kept:
    """What a file held that rillet has no use for, as bytes, to be written back (`kept_of`)."""

    functions: list[bytes] = field(default_factory=list)
    before: list[bytes] = field(default_factory=list)
    after: list[bytes] = field(default_factory=list)
    values: list[KeptValue] = field(default_factory=list)


def kept_of(engine: Engine) -> Kept:
    """Return what is kept for the next RDB file of this engine; empty unless a file was loaded with unknown="keep"."""
    if engine.preserved is None:
        engine.preserved = Kept()
    kept: Kept = engine.preserved
    return kept


def load_rdb(
    path: Path,
    engine: Engine,
    *,
    drop_expired: bool = False,
    merge: bool = False,
    unknown: Unknown | None = None,
    disk: Disk = REAL,
    progress: Callable[[int], None] | None = None,
) -> Loaded:
    """Put the keys of the file into the engine's databases.

    merge: a key that is there already is replaced, as in DEBUG RELOAD MERGE. unknown: see the module.
    progress(bytes read so far) is called as the file is read.
    LogCorrupt tells file and offset of what is malformed, NewerFormat names what is not read. O(bytes)
    """
    with disk.read_from(path) as file:
        return load_rdb_from(
            file, str(path), engine, drop_expired=drop_expired, merge=merge, unknown=unknown, progress=progress
        )


def load_rdb_from(
    source: BinaryIO | RawIOBase,
    name: str,
    engine: Engine,
    *,
    drop_expired: bool = False,
    merge: bool = False,
    unknown: Unknown | None = None,
    progress: Callable[[int], None] | None = None,
) -> Loaded:
    """Do what load_rdb does, from what was opened to be read, a pipe too; `name` is what errors call it.

    More bytes than those of the RDB part may have been read when it returns.
    """
    reader = RdbReader.of(_reading(source, progress))
    # Whatever is made here is kept, so looking through all of it for garbage again and again is in vain.
    collects = gc.isenabled()
    gc.disable()
    helper = reader.helper = WorkerThread()
    try:
        return _RdbFile(name, engine, reader, drop_expired, merge, unknown or engine.settings.rdb_foreign).load()
    finally:
        helper.close()
        if collects:
            gc.enable()


def _reading(source: Any, progress: Callable[[int], None] | None) -> Callable[[memoryview], int | None]:
    """Return what fills a buffer from the source."""
    into: Callable[[memoryview], int | None] = source.readinto
    if progress is None:
        return into
    total = 0

    def read(view: memoryview) -> int | None:
        nonlocal total
        got = into(view)
        total += got or 0
        progress(total)
        return got

    return read


class _RdbFile:
    def __init__(
        self, name: str, engine: Engine, reader: RdbReader, drop_expired: bool, merge: bool, unknown: Unknown
    ) -> None:
        self.name = name
        self.engine = engine
        self.reader = reader
        # Keys whose time is before this are dropped.
        self.now = engine.clock.now_ms() if drop_expired else -1
        self.merge = merge
        self.delay: int = engine.settings.key_load_delay
        self.unknown = unknown
        settings = engine.settings
        self.checked: bool = settings.rdbchecksum and not settings.skip_checksum_validation
        self.version = 0
        self.database = engine.databases[0]
        self.expires = -1
        self.keys = self.expired = self.empty = self.skipped = 0
        self.facts: dict[bytes, bytes] = {}

    def load(self) -> Loaded:
        reader = self.reader
        kind = -1
        try:
            self._header()
            while (kind := reader.byte()) != _END:
                if kind >= _KEY_METADATA:
                    self._about(kind)
                elif kind == _MODULE_VALUE and self.unknown != "refuse":
                    self._module_value()
                else:
                    self._key(kind)
            self._checksum()
        except (Corrupt, IndexError, OverflowError, MemoryError) as error:
            reason, check = str(error) or "no memory for what is there", rdb.check_of(error, kind)
            raise LogCorrupt(self.name, reader.mark, f"{reason} ({check})" if check else reason, check) from None
        return Loaded(reader.position, self.keys, self.expired, self.empty, self.skipped, self.version, self.facts)

    def _header(self) -> None:
        magic = self.reader.raw(1)
        magic += self.reader.raw(HEADER - 1)
        header = _HEADER.fullmatch(magic)
        if header is None:
            raise Corrupt(f"not an RDB file: REDIS or VALKEY and a version expected, found {magic!r}")
        self.version, valkey = int(header[2]), header[1] == b"VALKEY"
        newest = NEWEST_VALKEY if valkey else rdb.NEWEST_VERSION
        if self.version > newest:
            newer = "Valkey newer than 9" if valkey else "Redis newer than 8.8"
            raise NewerFormat(
                f"{self.name}: RDB version {self.version}; rillet reads up to {newest}: upgrade rillet, "
                f"or use what wrote it, a {newer}"
            )
        if self.version < 1 or (valkey and self.version <= rdb.NEWEST_VERSION):
            raise Corrupt(f"not an RDB file: there is no version {self.version} of {header[1].decode()}")

    def _about(self, kind: int) -> None:
        """Read what stands between keys."""
        reader = self.reader
        if kind == _FACT:
            name = reader.string()
            self.facts[name] = reader.string()
        elif kind == _DATABASE:
            number = reader.length()
            if number >= len(self.engine.databases):
                there = len(self.engine.databases)
                raise NewerFormat(
                    f"{self.name}: offset {self.reader.mark}: database {number}; there are {there} (databases)"
                )
            self.database = self.engine.databases[number]
        elif kind == _SIZES:
            reader.length()
            reader.length()
        elif kind == _SLOT_SIZES:
            for _ in range(3):
                reader.length()
        elif kind == _EXPIRE_MS:
            # Before version 9 in the byte order of the machine that wrote it (rdb.c: rdbLoadMillisecondTime).
            order: Any = "little" if self.version >= _LITTLE_ENDIAN_SINCE else sys.byteorder
            self.expires = int.from_bytes(reader.raw(8), order, signed=True)
        elif kind == _EXPIRE_S:
            self.expires = int.from_bytes(reader.raw(4), "little", signed=True) * 1000
        elif kind == _IDLE:
            reader.length()
        elif kind == _FREQUENCY:
            reader.byte()
        else:
            self._foreign(kind)

    def _foreign(self, kind: int) -> None:
        """Read what rillet has no use for, as `unknown` says."""
        reader = self.reader
        refused = kind == _KEY_METADATA or self.unknown == "refuse"
        if refused:
            what = "a function library" if kind in (_FUNCTION, _FUNCTION_PREVIEW) else "data of a module"
            if kind == _KEY_METADATA:
                what = "metadata of keys, or the state of a slot's import"
            raise NewerFormat(f"{self.name}: offset {reader.mark}: {what}, which this version does not read")
        reader.keep()
        kept = kept_of(self.engine)
        place = kept.functions
        if kind == _FUNCTION:
            reader.string()
        elif kind == _FUNCTION_PREVIEW:
            library = self._preview_library()
        else:
            reader.length()
            if reader.length() != _PART_UNSIGNED:
                raise Corrupt("a module's data that does not say when it is read")
            place = kept.after if reader.length() == _AFTER_KEYS else kept.before
            self._parts()
        raw = bytes((kind,)) + reader.kept()
        if kind == _FUNCTION_PREVIEW:
            raw = library
        if self.unknown == "keep":
            place.append(raw)
        else:
            self.skipped += 1

    def _preview_library(self) -> bytes:
        """Read a library as 7.0's previews wrote it; return it as what came later (rdbFunctionLoad)."""
        reader = self.reader
        name, engine = reader.string(), reader.string()
        if reader.length():
            reader.string()  # its description, which nobody kept
        out = RdbWriter()
        out.byte(_FUNCTION)
        out.string(b"#!%b name=%b\n%b" % (engine, name, reader.string()))
        return bytes(out.out)

    def _module_value(self) -> None:
        """Step over a module's value: its parts say themselves what they are (rdb.c: rdbLoadCheckModuleValue)."""
        key = self.reader.string()
        self.reader.keep()
        self.reader.length()
        self._parts()
        value = self.reader.kept()
        expires, self.expires = self.expires, -1
        if self.unknown == "keep":
            kept_of(self.engine).values.append(KeptValue(self.database.index, key, expires, value))
        else:
            self.skipped += 1

    def _parts(self) -> None:
        reader = self.reader
        while (part := reader.length()) != _PART_END:
            if part in (_PART_SIGNED, _PART_UNSIGNED):
                reader.length()
            elif part == _PART_FLOAT:
                reader.raw(4)
            elif part == _PART_DOUBLE:
                reader.raw(8)
            elif part == _PART_STRING:
                reader.string()
            else:
                raise Corrupt(f"a part of a module's data expected, 0 to 5, found {part}")

    def _key(self, kind: int) -> None:
        reader = self.reader
        began = reader.mark
        key = reader.string()
        if kind in _TYPES:
            name = key.decode("utf-8", "backslashreplace")
            raise NewerFormat(
                f"{self.name}: offset {began}: the key {name!r} (database {self.database.index}) holds {_TYPES[kind]}; "
                f"{_READS}"
            )
        expires, self.expires = self.expires, -1
        value: object
        try:
            if kind == rdb.TYPE_STRING:  # without asking for each of a million small ones what else it could be
                value = new_string(reader.string())
            else:
                value = rdb.load(reader, kind, self.engine.settings, max(self.now, 0))
        except EmptyValue:
            self._leave_out(key)
            return
        if 0 <= expires < self.now:
            self.expired += 1
            return
        database = self.database
        if not self.merge and key in database.values:
            raise Corrupt(f"the key {key.decode('utf-8', 'backslashreplace')!r} twice", "RDB has duplicated key")
        database.set(key, value)
        if self.delay:
            debug_delay(self.delay)
        if isinstance(value, Stream):
            track(database, key, value)
        if expires >= 0:
            database.set_expire(key, expires)
        self.keys += 1

    def _leave_out(self, key: bytes) -> None:
        """Count a key without an element, and name the first ones to whoever runs the server."""
        self.empty += 1
        if self.empty <= _NAMED:
            name = key.decode("utf-8", "backslashreplace")
            self.engine.host.log_line(
                f"rdbLoadObject skipping empty key: {name if name.isprintable() else repr(name)}"
            )

    def _checksum(self) -> None:
        reader = self.reader
        if self.version < _CHECKSUM_SINCE:
            # No log ever followed such a file: what stands here is the checksum of one whose version is damaged.
            if not reader.is_over():
                raise Corrupt(f"the end of a file of version {self.version} expected, found more")
            return
        found = reader.checksum_so_far()
        stored = int.from_bytes(reader.raw(8), "little")
        if stored and found != stored and self.checked:
            # rdb.c: rdbLoadRioWithLoadingCtx, "RDB CRC error"
            raise Corrupt(
                f"RDB CRC error: the checksum {stored:016x} expected, that of the bytes before is {found:016x}"
            )


__all__ = ["HEADER", "MAGICS", "Kept", "KeptValue", "Loaded", "Unknown", "kept_of", "load_rdb", "load_rdb_from"]

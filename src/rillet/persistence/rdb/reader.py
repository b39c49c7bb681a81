"""Reads an RDB file, the data of a server at one moment, key by key (Redis: rdb.c, rdbLoadRioWithLoadingCtx).

rillet.persistence.rdb.records draws the records, and finds them.

Versions 1 to 14 and Valkey's 80 are read from a path or from any stream of bytes, seekable or not. Memory holds the
data and a window of the file (rillet.types.rdb.primitives). The base of a log is such a file, so a directory of Redis
can be opened directly; SAVE writes one (rillet.persistence.rdb.writer).

**Rejected.** A key of a type that rillet lacks, by its name; malformed bytes, with the file, the offset and the
expected content; a wrong checksum. Each raises an exception. The keys loaded before it stay in the databases, and the
caller decides what to do with them.

**Kept.** Function libraries are kept as records (`Kept.functions`). rillet.scripting.functions loads them when a
command needs functions, so that reading a file runs no code of it. Only the first line of a library is checked here.

**Omitted on request.** Values of modules and other data of modules can be skipped without being understood.
`unknown`, or else the setting `rdb-foreign`, selects the treatment: "refuse" is the default, because the next SAVE
would lose skipped data; "skip" omits and counts them; "keep" stores their bytes (`Kept`), and the writer writes them
back.

An expired key is kept below a log, which contains its deletion. In an independent file it is dropped (`drop_expired`),
as Redis does. A value without elements, which bugs of old servers left in their files, is omitted and counted, as Redis
does; the server's log names the first ten. So it does for streams whose counters contradict their nodes, which are
loaded with corrected counters (rillet.types.rdb.stream).
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable
from dataclasses import dataclass, field
from io import RawIOBase
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, NamedTuple, TypedDict

from rillet.commands.stream.idmp import track
from rillet.errors import CommandError, Corrupt, LogCorrupt, NewerFormat
from rillet.persistence.debug_delay import debug_delay
from rillet.persistence.disk import REAL, Disk
from rillet.persistence.rdb.plain_keys import read_plain_keys
from rillet.persistence.rdb.records import (
    CHECKSUM_SINCE,
    DATABASE,
    END,
    FUNCTION,
    FUNCTION_PREVIEW,
    HEADER,
    HEADER_FORM,
    KEY_METADATA,
    MODULE_VALUE,
    RdbRecords,
    Unsupported,
    wrong_checksum,
)
from rillet.persistence.rdb.value_sizes import UNREAD, skip_parts
from rillet.persistence.worker_thread import WorkerThread
from rillet.runtime.engine import Engine
from rillet.scripting.functions import library_names, library_record, metadata, preview_code
from rillet.structs.crc64 import crc64
from rillet.types.hash import Hash
from rillet.types.module import KeyPlace, find_type, type_name
from rillet.types.rdb import value as rdb
from rillet.types.rdb.primitives import EmptyValue, RdbReader
from rillet.types.stream.stream import Stream
from rillet.types.string import new_string

if TYPE_CHECKING:
    from typing import Unpack

Unknown = Literal["refuse", "skip", "keep"]
"""The treatment of function libraries and of modules' data."""

_PART_UNSIGNED = 2  # a type of a part of a module's data (RDB_MODULE_OPCODE_UINT)
_FACTS = 4096  # bytes at the beginning of a file that hold its auxiliary fields
_PIECE = 1 << 20
_AFTER_KEYS = 2  # the load time of module data that follows the keys
_NAMED = 10  # how many omitted, and how many corrected keys the server's log names
_READS = "this version reads strings, lists, sets, hashes, sorted sets, arrays and streams"


class Loaded(NamedTuple):
    """The result of a load: the offset after the RDB data, and the numbers of loaded and of expired keys."""

    end: int
    keys: int
    expired: int
    empty: int = 0
    """The number of keys that were omitted because their values have no elements."""
    skipped: int = 0
    """The number of function libraries and of pieces of module data that were omitted."""
    version: int = 0
    facts: dict[bytes, bytes] = {}
    """The auxiliary fields (redis-ver, ctime ...)."""


class KeptValue(NamedTuple):
    """A module's value: database, key, expiry (ms, -1: never) and bytes."""

    database: int
    key: bytes
    expires: int
    value: bytes


@dataclass
class Kept:
    """Data of an RDB file that rillet does not use, kept as bytes for the next RDB file (`kept_of`)."""

    functions: list[bytes] = field(default_factory=list)
    before: list[bytes] = field(default_factory=list)
    after: list[bytes] = field(default_factory=list)
    values: list[KeptValue] = field(default_factory=list)


def kept_of(engine: Engine) -> Kept:
    """Return the data kept for this engine's next RDB file; empty unless a file was loaded with unknown="keep"."""
    if engine.preserved is None:
        engine.preserved = Kept()
    kept: Kept = engine.preserved
    return kept


class LoadOptions(TypedDict, total=False):
    """The options of load_rdb; for `unknown` see the module docstring."""

    drop_expired: bool
    on_expired: Callable[[int, list[bytes]], object]  # receives the database and a command that repeats the deletion
    merge: bool  # replace existing keys, as DEBUG RELOAD MERGE does
    unknown: Unknown | None
    progress: Callable[[int], None] | None  # receives the number of bytes read so far
    databases: list[Any]  # the databases to load into, instead of those of the engine
    kept: Kept  # where function libraries and unknown data go, instead of the next file of the engine
    keeps: Callable[[bytes], bool] | None  # whether to keep a key; the values of the others are read and dropped


def load_rdb(path: Path, engine: Engine, *, disk: Disk = REAL, **options: Unpack[LoadOptions]) -> Loaded:
    """Load the file into the engine's databases. O(bytes)

    LogCorrupt names the file and offset of malformed bytes, NewerFormat an unsupported type.
    """
    with disk.read_from(path) as file:
        return load_rdb_from(file, str(path), engine, **options)


def read_aux_fields(path: Path, disk: Disk = REAL, size: int = _FACTS) -> dict[bytes, bytes]:
    """Return the auxiliary fields at the beginning of the file, its first `size` bytes (redis-ver, ctime ...). O(1)"""
    with disk.read_from(path) as file:
        records = RdbRecords(RdbReader(file.read(size)))
    # An error: not an RDB file, or longer fields. What was read is what is known.
    with contextlib.suppress(Corrupt, IndexError):
        records.header(relaxed=True)
        records.next()
    return records.facts


def verify_checksum(path: Path, disk: Disk = REAL) -> None:
    """Compare the bytes of a file that holds RDB data only with its checksum; LogCorrupt. O(bytes)

    A file before version 5, or written with `rdbchecksum no`, has no checksum.
    """
    size = disk.size(path)
    with disk.read_from(path) as file:
        piece = file.read(HEADER)
        header = HEADER_FORM.fullmatch(piece)
        if header is None or size < HEADER + 1 + 8:
            raise LogCorrupt(str(path), 0, f"not an RDB file: REDIS or VALKEY and a version expected, found {piece!r}")
        if int(header[2]) < CHECKSUM_SINCE:
            return
        actual, left = crc64(piece), size - HEADER - 8
        while left and (piece := file.read(min(left, _PIECE))):
            actual, left = crc64(piece, actual), left - len(piece)
        stored = int.from_bytes(file.read(8), "little")
    if left or piece[-1] != END:
        raise LogCorrupt(str(path), size, "the RDB file ends too early")
    if stored and actual != stored:
        raise LogCorrupt(str(path), size - 8, wrong_checksum(stored, actual))


def load_rdb_from(source: BinaryIO | RawIOBase, name: str, engine: Engine, **options: Unpack[LoadOptions]) -> Loaded:
    """Load an open file or pipe (`name` for messages); may read bytes beyond the end of the RDB data. O(bytes)"""
    reader = RdbReader.reading(_reading(source, options.get("progress")))
    # All loaded objects stay alive, so garbage collections would find nothing.
    collects = gc.isenabled()
    gc.disable()
    helper = reader.helper = WorkerThread()
    try:
        return _RdbLoader(name, engine, reader, options).load()
    finally:
        helper.close()
        if collects:
            gc.enable()


def _reading(source: Any, progress: Callable[[int], None] | None) -> Callable[[memoryview], int | None]:
    """Return a function that fills a buffer from the source and reports progress."""
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


class _RdbLoader:
    def __init__(self, name: str, engine: Engine, reader: RdbReader, options: LoadOptions) -> None:
        settings = engine.settings
        engine.access.update()
        self.name = name
        self.engine = engine
        self.reader = reader
        reader.sources = None if engine.segments is None else engine.segments.open
        self.records = RdbRecords(reader)
        # Drop keys that expired before this time (ms since the epoch; -1: keep all keys).
        self.now = engine.clock.now_ms() if options.get("drop_expired") else -1
        self.on_expired = options.get("on_expired")
        self.merge = options.get("merge", False)
        self.delay: int = settings.key_load_delay
        self.progress = options.get("progress")
        self.unknown: Unknown = options.get("unknown") or settings.rdb_foreign
        self.omits_libraries = options.get("unknown") == "skip"
        self.checked: bool = settings.rdbchecksum and not settings.skip_checksum_validation
        self.relaxed = settings.rdb_version_check == "relaxed"
        self.databases: list[Any] = options.get("databases") or engine.databases
        self.kept = options.get("kept")
        self.keeps = options.get("keeps")
        self.database = self.databases[0]
        self.keys = self.expired = self.empty = self.skipped = self.corrected = 0
        # Whether modules listen to the event `loaded`, which each key then causes.
        self.libraries: set[bytes] | None = None  # the names of the function libraries, once there is one in the file
        self.heard: bool = engine.modules is not None and engine.modules.hears_loading

    def load(self) -> Loaded:
        reader, records = self.reader, self.records
        try:
            records.header(self.relaxed)
            while (kind := self._next()) != END:
                if kind == DATABASE:
                    self._select()
                elif kind >= KEY_METADATA:
                    self._foreign(kind)
                elif kind == MODULE_VALUE:
                    self._module_value()
                else:
                    self._key(kind)
            records.checksum(self.checked)
        except Unsupported as error:
            raise NewerFormat(f"{self.name}: offset {reader.mark}: {error}") from None
        except (Corrupt, IndexError, OverflowError, MemoryError) as error:
            reason, check = str(error) or "out of memory", rdb.check_of(error, records.kind)
            raise LogCorrupt(self.name, reader.mark, f"{reason} ({check})" if check else reason, check) from None
        return Loaded(reader.position, self.keys, self.expired, self.empty, self.skipped, records.version,
                      records.facts)  # fmt: skip

    def _wait(self) -> None:
        """Sleep as `key-load-delay` says, which may change meanwhile, and report the progress."""
        self.delay = self.engine.settings.key_load_delay
        debug_delay(self.delay)
        if self.progress is not None:
            self.progress(self.reader.position)

    def _next(self) -> int:
        """Load the keys that are plain strings; return the kind of the next record."""
        records = self.records
        if not self.delay and not self.heard and self.keeps is None and records.kind < KEY_METADATA:
            while count := read_plain_keys(self.reader, self.database, self.merge):
                self.keys += count
        return records.next()

    def _select(self) -> None:
        """Continue with the keys of another database."""
        number = self.reader.length()
        if number >= len(self.databases):
            raise Unsupported(f"database {number}; the setting databases is {len(self.databases)}")
        self.database = self.databases[number]

    def _foreign(self, kind: int) -> None:
        """Keep a function library; reject, skip or keep data of a module, as the option `unknown` requires."""
        reader = self.reader
        began = reader.mark
        if kind in (FUNCTION, FUNCTION_PREVIEW):
            self._library(reader.string() if kind == FUNCTION else preview_code(reader))
            return
        reader.keep()
        number = reader.length()
        known = find_type(self.engine.settings.module_types, number)
        if known is not None:
            reader.kept()
            known.load_aux(reader, number & 1023, self._when())
            return
        if self.unknown == "refuse":
            raise self._no_module(began, "data", number)
        kept = self._kept()
        place = kept.after if self._when() == _AFTER_KEYS else kept.before
        skip_parts(reader)
        raw = bytes((kind,)) + reader.kept()
        if self.unknown == "keep":
            place.append(raw)
        else:
            self.skipped += 1

    def _no_module(self, offset: int, what: str, number: int) -> Unsupported:
        self.reader.mark = offset
        return Unsupported(
            f"{what} of the module type {type_name(number)!r}; no loaded module has this "
            'type: rdb_foreign="skip" (rillet serve --rdb-foreign skip) omits such data, and "keep" keeps its bytes'
        )

    def _library(self, code: bytes) -> None:
        """Keep a function library, unless the caller omits it; Corrupt if it is malformed or already there."""
        if self.omits_libraries:
            self.skipped += 1
            return
        try:
            name = metadata(code, self.engine.settings.compat.valkey)[0]
        except CommandError as error:
            raise Corrupt(f"Failed loading library, {str(error).removeprefix('ERR ')}") from None
        if self.libraries is None:
            self.libraries = set() if self.kept is not None else set(library_names(self.engine))
        if name in self.libraries and not self.merge:
            shown = name.decode("utf-8", "backslashreplace")
            raise Corrupt(f"Failed loading library, Library '{shown}' already exists")
        self.libraries.add(name)
        self._kept().functions.append(library_record(code))

    def _module_value(self) -> None:
        """Read past a module's value: each of its parts begins with a type (rdb.c: rdbLoadCheckModuleValue)."""
        began = self.reader.mark
        key = self.reader.string()
        self.reader.keep()
        number = self.reader.length()
        kind = find_type(self.engine.settings.module_types, number)
        if kind is not None:
            self.reader.kept()
            self._store(key, kind.load(self.reader, number & 1023, KeyPlace(self.database.index, key)))
            return
        if self.unknown == "refuse":
            name = key.decode("utf-8", "backslashreplace")
            what = f"the key {name!r} (database {self.database.index}) holds a value"
            raise self._no_module(began, what, number)
        skip_parts(self.reader)
        value = self.reader.kept()
        if self.unknown == "keep":
            self._kept().values.append(KeptValue(self.database.index, key, self.records.expires, value))
        else:
            self.skipped += 1

    def _kept(self) -> Kept:
        return kept_of(self.engine) if self.kept is None else self.kept

    def _when(self) -> int:
        """Read the load time of a module's data: before or after the keys."""
        if self.reader.length() != _PART_UNSIGNED:
            raise Corrupt("expected the load time of a module's data (before or after the keys)")
        return self.reader.length()

    def _key(self, kind: int) -> None:
        reader = self.reader
        began = reader.mark
        key = reader.string()
        if kind in UNREAD:
            name = key.decode("utf-8", "backslashreplace")
            reader.mark = began
            raise Unsupported(f"the key {name!r} (database {self.database.index}) holds {UNREAD[kind]}; {_READS}")
        value: object
        try:
            if kind == rdb.TYPE_STRING:  # the fast path for files with millions of strings
                value = new_string(reader.string())
            else:
                value = rdb.load(reader, kind, self.engine.settings, max(self.now, 0), False, self.records.version)
                if reader.corrected:
                    self._report_corrected(key)
        except EmptyValue:
            self._leave_out(key)
            return
        self._store(key, value)

    def _store(self, key: bytes, value: object) -> None:
        """Store a value that was read, with the expiry and the access data that preceded it."""
        expires = self.records.expires
        if self.keeps is not None and not self.keeps(key):
            return
        if 0 <= expires < self.now or (isinstance(value, Hash) and not self._keep_fields(key, value)):
            self.expired += 1
            self._report_expired(b"UNLINK" if self.engine.settings.lazyfree_lazy_expire else b"DEL", key)
            return
        database = self.database
        if not self.merge and key in database.keys:
            raise Corrupt(f"the key {key.decode('utf-8', 'backslashreplace')!r} occurs twice", "RDB has duplicated key")
        database.put(key, value)
        if self.records.idle >= 0 or self.records.frequency >= 0:
            database.restore_access(key, self.records.idle, self.records.frequency)
        if self.delay:
            self._wait()
        if isinstance(value, Stream):
            track(database, key, value)
        if expires >= 0:
            database.set_expire(key, expires)
        if self.heard:
            self.engine.modules.key_loaded(database, key)
        self.keys += 1

    def _report_expired(self, *argv: bytes) -> None:
        if self.on_expired is not None:
            self.on_expired(self.database.index, list(argv))

    def _keep_fields(self, key: bytes, value: Hash) -> bool:
        """Drop expired fields of an independent file, as Valkey does; return whether fields remain."""
        if self.now > 0 and value.expiry is not None and self.engine.settings.compat.valkey:
            for name in value.due(self.now - 1, len(value)):
                value.remove(name)
                self._report_expired(b"HDEL", key, name)
            value.expiry.due = value.earliest()
        return len(value) > 0

    def _leave_out(self, key: bytes) -> None:
        """Count a key whose value has no elements; write the first ten such keys to the server's log."""
        self.empty += 1
        if self.empty <= _NAMED:
            name = key.decode("utf-8", "backslashreplace")
            shown = name if name.isprintable() else repr(name)
            self.engine.services.log_line(f"rdbLoadObject skipping empty key: {shown}")

    def _report_corrected(self, key: bytes) -> None:
        """Log what the loader of a value corrected: one line for each of the first ten keys."""
        found = "; ".join(self.reader.corrected)
        self.reader.corrected.clear()
        self.corrected += 1
        if self.corrected <= _NAMED:
            name = key.decode("utf-8", "backslashreplace")
            shown = name if name.isprintable() else repr(name)
            self.engine.services.log_line(f"{self.name}: the key {shown} (database {self.database.index}): {found}")

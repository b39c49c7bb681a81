"""Loads everything sound of a damaged RDB file into an engine, and lists what was lost.

rillet.persistence.rdb.record_scan finds the records and the gaps between them. Then each value is loaded and validated
as in an ordinary load; a value that is damaged inside, while its length is right, is lost alone, and of a stream only
the damaged parts (stream_salvage). A key whose database is unknown, because the record that selects the database is
lost, is written to the next one, and the report says so.

Memory: the file, and its data. Damage that leaves every value valid (a changed byte of a string) cannot be located: the
file's checksum is then wrong, and the report says that some value may differ.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from rillet.commands.stream.idmp import track
from rillet.errors import Corrupt
from rillet.persistence.disk import REAL
from rillet.persistence.rdb.reader import KeptValue, kept_of
from rillet.persistence.rdb.record_scan import RdbScan
from rillet.persistence.rdb.records import (
    CHECKSUM_SINCE,
    DATABASE,
    EXPIRE_MS,
    FUNCTION,
    FUNCTION_PREVIEW,
    KEY_METADATA,
    MODULE_AUX,
    MODULE_VALUE,
    NEWEST_VALKEY,
    SIZES,
    RdbRecord,
)
from rillet.persistence.rdb.stream_salvage import salvage_sealed, salvage_stream
from rillet.persistence.segments.folder import SegmentFolder
from rillet.persistence.segments.segment import Segment
from rillet.runtime.engine import Engine
from rillet.scripting.functions import library_record, preview_code
from rillet.structs.crc64 import crc64
from rillet.types.rdb import value as rdb
from rillet.types.rdb.primitives import EmptyValue, RdbReader
from rillet.types.rdb.stream import STREAM_TYPES
from rillet.types.stream.stream import Stream

_CHECKSUM = 8
_NEAR = 3  # records before a gap that may have been read with a wrong length
_BAD_VALUE = (Corrupt, IndexError, OverflowError, MemoryError)


@dataclass(frozen=True, slots=True)
class LostBytes:
    """Bytes of a file that could not be saved: path, first and last offset + 1, a description.

    keys: database and name of the keys that the bytes concern, as far as known. commands: the number of whole commands
    among the bytes that were not executed.
    """

    path: Path
    start: int
    end: int
    what: str
    keys: tuple[tuple[int, bytes], ...] = ()
    commands: int = 0

    def __str__(self) -> str:
        names = ", ".join(f"{_shown(name)} (database {at})" for at, name in self.keys)
        lost = f": {names}" if names else ""
        return f"{self.path}: bytes {self.start} to {self.end} ({self.end - self.start}): {self.what}{lost}"


def _shown(name: bytes) -> str:
    return repr(name.decode("utf-8", "backslashreplace"))


@dataclass(slots=True)
class Salvaged:
    """The result of a salvage: figures of the saved data, the losses, and remarks about uncertain data.

    segments: the files to which streams still refer; close it when the data is written.
    """

    keys: int = 0
    commands: int = 0
    losses: list[LostBytes] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    segments: SegmentFolder | None = None


def salvage_rdb(path: Path, data: bytes, engine: Engine, report: Salvaged) -> int:
    """Load the sound keys of an RDB file into the engine; return the offset after the RDB data. O(bytes)"""
    return _RdbSalvage(path, data, engine, report).run()


class _RdbSalvage:
    def __init__(self, path: Path, data: bytes, engine: Engine, report: Salvaged) -> None:
        self.path = path
        self.data = data
        self.engine = engine
        self.report = report
        self.database = 0
        self.stated = -1  # keys of the current database by the file's own count, -1: unknown
        self.loaded = 0  # keys of the current database that were loaded
        self.damaged = False  # whether the current database lost a key
        self.losses = 0
        self.last_name = b""
        self.gap_follows = False  # whether the current record, or one soon after it, may end at a wrong place

    def run(self) -> int:
        scan = RdbScan(self.data, self._is_sound)
        gaps = scan.gaps[::-1]
        for number, record in enumerate(scan.records):
            while gaps and gaps[-1][0] < record.start:
                self._gap(*gaps.pop(), record)
            near = scan.records[number : number + _NEAR][-1].end
            self.gap_follows = bool(gaps) and gaps[-1][0] <= near
            self._take(record)
        while gaps:
            self._gap(*gaps.pop(), None)
        self._database_ends()
        if not scan.ended:
            self.report.remarks.append(f"{self.path}: the end of the file is missing")
        self._check_sum(scan)
        return scan.end

    def _check_sum(self, scan: RdbScan) -> None:
        before = scan.end - _CHECKSUM
        if scan.version < CHECKSUM_SINCE or not scan.ended or self.losses:
            return
        stored = int.from_bytes(self.data[before : scan.end], "little")
        if stored and crc64(self.data[:before]) != stored:
            what = ("every record can be read, but the checksum of the file is wrong: a value or a name may differ "
                    "from what was written")  # fmt: skip
            self.report.losses.append(LostBytes(self.path, 0, scan.end, what))

    def _is_sound(self, record: RdbRecord) -> bool:
        try:
            self._value(record)
        except EmptyValue:
            return True
        except _BAD_VALUE:
            return False
        return True

    def _value(self, record: RdbRecord) -> object:
        if record.kind == MODULE_VALUE:
            return None
        reader = RdbReader(self.data, record.value, record.end)
        # The scan reads type 22 as Valkey's.
        reader.sources = self._source
        value = rdb.load(reader, record.kind, self.engine.settings, version=NEWEST_VALKEY)
        if reader.position != record.end:
            raise Corrupt(f"{record.end - reader.position} bytes after the value")
        if reader.corrected:  # in a damaged file, a wrong counter is damage
            raise Corrupt("; ".join(reader.corrected))
        return value

    def _source(self, reference: bytes) -> Segment:
        """Return the segment that a stream refers to, whether its file exists or not."""
        segments = self.engine.segments
        if segments is None:
            segments = self.engine.segments = SegmentFolder(REAL, self.path.parent)
        found: Segment = segments.open(reference)
        return found

    # -- records -------------------------------------------------------------------------------------

    def _take(self, record: RdbRecord) -> None:
        if record.key >= 0:
            self._take_key(record)
        elif record.kind == DATABASE:
            self._database_ends()
            number = RdbReader(self.data, record.start + 1).length()
            if number >= len(self.engine.databases):
                self._lose(record, f"database {number}: expected a number below {len(self.engine.databases)}")
            else:
                self.database = number
        elif record.kind == SIZES:
            self.stated = RdbReader(self.data, record.start + 1).length()
        elif record.kind in (FUNCTION, MODULE_AUX):
            kept = kept_of(self.engine)
            place = kept.functions if record.kind == FUNCTION else kept.after
            place.append(self.data[record.start : record.end])
        elif record.kind == FUNCTION_PREVIEW:
            reader = RdbReader(self.data, record.start + 1, record.end)
            kept_of(self.engine).functions.append(library_record(preview_code(reader)))

    def _take_key(self, record: RdbRecord) -> None:
        try:
            name = RdbReader(self.data, record.key, record.value).string()
        except _BAD_VALUE as error:
            self._lose(record, f"the name of a key: {error}")
            return
        database = self.engine.databases[self.database]
        try:
            value = self._sealed(record, name) if record.kind == rdb.TYPE_SEALED else self._value(record)
        except EmptyValue:
            self.report.remarks.append(f"{self.path}: the key {_shown(name)} is empty, as old servers left it: omitted")
            return
        except _BAD_VALUE as error:
            found = self._parts(record, name)
            if found is None:
                self._lose(record, str(error) or "out of memory", name)
                return
            value = found
        if record.kind == MODULE_VALUE:
            raw = self.data[record.value : record.end]
            kept_of(self.engine).values.append(KeptValue(self.database, name, record.expires, raw))
        elif name in database.keys:
            self._lose(record, "the key occurs a second time", name)
            return
        else:
            database.put(name, value)
            if isinstance(value, Stream):
                track(database, name, value)
            if record.expires >= 0:
                database.set_expire(name, record.expires)
        self.last_name = name
        self.loaded += 1

    def _sealed(self, record: RdbRecord, name: bytes) -> Stream:
        """Return a stream with those nodes of its segments that can be read, and report the others."""
        found = salvage_sealed(self.data, record.value, record.end, self._source, not self.gap_follows)
        if found is None:
            raise Corrupt("no part of the stream can be read")
        stream, losses, in_segments = found
        self.losses += len(losses)
        self.report.losses += [LostBytes(self.path, *loss, ((self.database, name),)) for loss in losses]
        self.report.losses += [LostBytes(*loss, ((self.database, name),)) for loss in in_segments]
        return stream

    def _parts(self, record: RdbRecord, name: bytes) -> Stream | None:
        """Return the sound parts of a damaged stream and report the others; None if nothing is sound."""
        if record.kind not in STREAM_TYPES or name in self.engine.databases[self.database].keys:
            return None
        found = salvage_stream(self.data, record.value, record.end, record.kind, not self.gap_follows)
        if found is None:
            return None
        stream, losses = found
        self.losses += len(losses)
        for start, end, what in losses:
            self.report.losses.append(LostBytes(self.path, start, end, what, ((self.database, name),)))
        return stream

    def _damage(self) -> None:
        self.damaged = True
        self.losses += 1

    def _lose(self, record: RdbRecord, what: str, name: bytes | None = None) -> None:
        self._damage()
        keys = () if name is None else ((self.database, name),)
        self.report.losses.append(LostBytes(self.path, record.start, record.end, what, keys))

    # -- gaps ----------------------------------------------------------------------------------------

    def _gap(self, begin: int, end: int, following: RdbRecord | None) -> None:
        name = self._name_at(begin)
        keys = () if name is None else ((self.database, name),)
        self.report.losses.append(LostBytes(self.path, begin, end, "no record can be read", keys))
        self._damage()
        if following is None:
            return
        if name is None and self.last_name:
            # The bytes are not the beginning of a key: perhaps the end of the value before them.
            self.report.remarks.append(f"{self.path}: offset {begin}: the key {_shown(self.last_name)} precedes a gap: "
                                       "its value may be cut")  # fmt: skip
        sizes = following.kind == SIZES and following.key < 0
        if (sizes and (self.stated >= 0 or self.loaded)) or (following.key >= 0 and 0 <= self.stated <= self.loaded):
            # The gap contains the beginning of another database.
            self._database_ends()
            self.database = min(self.database + 1, len(self.engine.databases) - 1)
            self.report.remarks.append(f"{self.path}: offset {following.start}: the keys from here on belong to an "
                                       f"unknown database: they were written to database {self.database}")  # fmt: skip
        if following.key >= 0 and self.data[following.start] != EXPIRE_MS:
            first = RdbReader(self.data, following.key, following.value).string()
            self.report.remarks.append(f"{self.path}: offset {following.start}: the key {_shown(first)} follows a gap: "
                                       "if it had an expiry, that may be lost")  # fmt: skip

    def _name_at(self, at: int) -> bytes | None:
        """Return the name of the key whose record begins at an offset, None if it is not readable text."""
        try:
            reader = RdbReader(self.data, at)
            kind = reader.byte()
            if kind == EXPIRE_MS:
                reader.raw(8)
                kind = reader.byte()
            name = reader.string() if kind < KEY_METADATA else b""
            return name if name and name.decode().isprintable() else None
        except (*_BAD_VALUE, UnicodeDecodeError):
            return None

    def _database_ends(self) -> None:
        """Report how many keys of a database are missing, by the count that the file states."""
        if self.stated >= 0 and (self.damaged or self.loaded < self.stated):
            self.report.remarks.append(f"{self.path}: database {self.database}: the file states {self.stated} keys, "
                                       f"{self.loaded} were saved")  # fmt: skip
        self.stated, self.loaded, self.damaged = -1, 0, False

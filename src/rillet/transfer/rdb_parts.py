"""Divides a stored snapshot into parts, each of which a task reads without the rest.

    REDIS0011 FA.. FE 0 FB.. │ key key key ... │ key key ... FE 1 key │ key ... FF crc
                              part 1: db 0      part 2: db 0            part 3: db 1

An RDB file is a sequence of records without an index. The driver reads the file once, steps over the records by the
lengths in them (rillet.persistence.rdb.records), verifies the checksum, and notes where a part begins and which
database is selected there. A part has at least `size` bytes, so that memory is bounded by the size of a part or by the
largest value. The notes are stored beside the snapshot as JSON.

A key becomes a `SnapshotKey`, whose payload is that of DUMP: the bytes of the value in the file between its type and a
footer. So no value is decoded before it is needed. Values of modules and function libraries are left out.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from rillet.errors import Corrupt, LogCorrupt
from rillet.persistence.rdb.records import DATABASE, END, HEADER, MODULE_VALUE, RdbRecords
from rillet.structs.crc64 import crc64
from rillet.types.rdb.primitives import RdbReader


class SnapshotPart(NamedTuple):
    """The records in file[start:end]; db: the selected database at the start; version: that of the RDB format."""

    start: int
    end: int
    db: int
    version: int


class SnapshotParts(NamedTuple):
    """The parts of a snapshot; made: when the server made it, ms since 1970 (0: unknown)."""

    made: int
    parts: list[SnapshotPart]

    def json(self) -> bytes:
        """Return the parts as JSON."""
        return json.dumps({"made": self.made, "parts": self.parts}).encode()

    @classmethod
    def parse(cls, text: bytes) -> SnapshotParts:
        """Return the parts from the JSON of `json`."""
        stored = json.loads(text)
        return cls(stored["made"], [SnapshotPart(*one) for one in stored["parts"]])


class SnapshotKey(NamedTuple):
    """A key of a snapshot. expires: ms since 1970, or -1 for never. payload: the value as DUMP returns it."""

    db: int
    key: bytes
    expires: int
    payload: bytes


def split(source: Any, name: str, size: int) -> SnapshotParts:
    """Return the parts of a snapshot; source has `read`. LogCorrupt names the file and the offset. O(bytes)"""

    def fill(view: memoryview) -> int:
        data = source.read(len(view))
        view[: len(data)] = data
        return len(data)

    reader = RdbReader.reading(fill)
    try:
        return _split(RdbRecords(reader), size)
    except (Corrupt, IndexError, OverflowError) as error:
        raise LogCorrupt(name, reader.mark, str(error) or "the file ends too early") from None


def _split(records: RdbRecords, size: int) -> SnapshotParts:
    reader, parts = records.reader, []
    records.header(relaxed=True)
    begun = SnapshotPart(HEADER, HEADER, 0, records.version)
    db = 0
    while (kind := records.next()) != END:
        if kind == DATABASE:
            db = reader.length()
        else:
            records.skip(kind)
        if reader.position - begun.start >= size:
            parts.append(begun._replace(end=reader.position))
            begun = SnapshotPart(reader.position, reader.position, db, records.version)
    end = reader.position - 1
    if end > begun.start or not parts:
        parts.append(begun._replace(end=end))
    records.checksum()
    return SnapshotParts(int(records.facts.get(b"ctime", b"0")) * 1000, parts)


def snapshot_keys(data: bytes, part: SnapshotPart) -> Iterator[SnapshotKey]:
    """Yield the keys of a part, whose bytes are `data`."""
    reader, db, footer = RdbReader(data), part.db, part.version.to_bytes(2, "little")
    records = RdbRecords(reader, part.version)
    while reader.position < len(data):
        record = records.record()
        if record.kind == DATABASE:
            db = RdbReader(data, record.start + 1).length()
        elif record.key >= 0 and record.kind != MODULE_VALUE:
            payload = bytes((record.kind,)) + data[record.value : record.end] + footer
            key = RdbReader(data, record.key, record.value).string()
            yield SnapshotKey(db, key, record.expires, payload + crc64(payload).to_bytes(8, "little"))

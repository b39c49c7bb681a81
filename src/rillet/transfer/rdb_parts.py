"""Divides a stored snapshot into parts, each of which a task reads without the rest.

    REDIS0011 FA.. FE 0 FB.. │ key key key ... │ key key ... FE 1 key │ key ... FF crc
                              part 1: db 0      part 2: db 0            part 3: db 1

An RDB file is a sequence of records without an index. The driver reads the file once, steps over the records by the
lengths in them (rillet.persistence.rdb.record_scan), verifies the checksum, and notes where a part begins and which
database is selected there. A part has at least `size` bytes, so that memory is bounded by the size of a part or by the
largest value. The notes are stored beside the snapshot as JSON.

A key becomes a `SnapshotKey`, whose payload is that of DUMP: the bytes of the value in the file between its type and a
footer. So no value is decoded before it is needed. Values of modules and function libraries are left out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from rillet.errors import Corrupt, LogCorrupt
from rillet.persistence.rdb.reader import HEADER
from rillet.persistence.rdb.record_scan import DATABASE, END, FACT, MODULE_VALUE, RdbRecord, length_at, read_record
from rillet.structs.crc64 import crc64
from rillet.types.rdb.primitives import RdbReader

_HEADER = re.compile(rb"(?:REDIS|VALKEY)(\d+)")
_PIECE = 4 << 20
_CHECKSUM_SINCE = 5


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


class _Window:
    """The bytes of a file from `base` on, read as far as they are needed; the checksum of the bytes before."""

    def __init__(self, source: Any, name: str) -> None:
        self.source, self.name = source, name
        self.data, self.base, self.checksum = b"", 0, 0
        self.ended = False

    def more(self, at: int) -> None:
        """Drop the bytes before `at`, and read at least as many as are left."""
        self.checksum = crc64(self.data[:at], self.checksum)
        self.base += at
        left = self.data[at:]
        pieces, wanted = [left], max(len(left), _PIECE)
        while wanted > 0:
            piece = self.source.read(wanted)
            if not piece:
                self.ended = True
                break
            pieces.append(piece)
            wanted -= len(piece)
        self.data = b"".join(pieces)

    def records(self, version: int, at: int) -> Iterator[RdbRecord]:
        """Yield the records from an offset of the window on, in offsets of `data`; LogCorrupt."""
        while True:
            try:
                record = read_record(self.data, at, version)
            except (Corrupt, IndexError) as error:
                if self.ended:
                    raise LogCorrupt(self.name, self.base + at, str(error) or "the file ends too early") from None
                self.more(at)
                at = 0
                continue
            yield record
            if record.kind == END:
                return
            at = record.end


def split(source: Any, name: str, size: int) -> SnapshotParts:
    """Return the parts of a snapshot; source has `read`. LogCorrupt names the file and the offset. O(bytes)"""
    window = _Window(source, name)
    window.more(0)
    header = _HEADER.fullmatch(window.data[:HEADER])
    if header is None:
        raise LogCorrupt(name, 0, f"not an RDB file: it begins with {window.data[:HEADER]!r}")
    version, db, made = int(header[1]), 0, 0
    parts: list[SnapshotPart] = []
    begun = SnapshotPart(HEADER, HEADER, 0, version)
    for record in window.records(version, HEADER):
        if record.kind == FACT:
            fact = RdbReader(window.data, record.start + 1, record.end)
            if fact.string() == b"ctime":
                made = int(fact.string()) * 1000
        elif record.kind == DATABASE:
            db = length_at(window.data, record.start + 1)[0]
        end = window.base + (record.start if record.kind == END else record.end)
        if end - begun.start >= size or record.kind == END:
            if end > begun.start or not parts:
                parts.append(begun._replace(end=end))
            begun = SnapshotPart(end, end, db, version)
        if record.kind == END and version >= _CHECKSUM_SINCE:
            _verify(window, record.end)
    return SnapshotParts(made, parts)


def _verify(window: _Window, end: int) -> None:
    """Compare the checksum after the end with that of the bytes before; 0 means that the server wrote none."""
    if len(window.data) < end + 8:
        window.more(end)
        end = 0
    stored = int.from_bytes(window.data[end : end + 8], "little")
    found = crc64(window.data[:end], window.checksum)
    if stored and stored != found:
        raise LogCorrupt(window.name, window.base + end,
                         f"the stored checksum is {stored:016x}, but that of the bytes is {found:016x}")  # fmt: skip


def snapshot_keys(data: bytes, part: SnapshotPart) -> Iterator[SnapshotKey]:
    """Yield the keys of a part, whose bytes are `data`."""
    at, db, footer = 0, part.db, part.version.to_bytes(2, "little")
    while at < len(data):
        record = read_record(data, at, part.version)
        at = record.end
        if record.kind == DATABASE:
            db = length_at(data, record.start + 1)[0]
        elif record.key >= 0 and record.kind != MODULE_VALUE:
            payload = bytes((record.kind,)) + data[record.value : record.end] + footer
            key = RdbReader(data, record.key, record.value).string()
            yield SnapshotKey(db, key, record.expires, payload + crc64(payload).to_bytes(8, "little"))


__all__ = ["SnapshotKey", "SnapshotPart", "SnapshotParts", "snapshot_keys", "split"]

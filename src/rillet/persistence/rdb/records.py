"""The records of an RDB file, in order: the only place that reads its opcodes (Redis: rdb.c, rdbLoadRioWithLoadingCtx).

    REDIS0010 or VALKEY080                 magic and version
    FA  name value                         auxiliary fields: redis-ver, used-mem, aof-base ...
    FE  n                                  the following keys belong to database n
    FB  keys expires                       hash table sizes
    F4  slot keys expires                  the same for a slot of a cluster
    F5  code                               a function library; F6: the format of the first 7.0 previews
    F7  module 2 when  parts 0             data of a module that belongs to no key
    [FC ms] [FD s] [F8 idle] [F9 freq]     of the next key: expiry, idle time, access frequency
    type key value                         a key; the value as in rillet.types.rdb.value
    FF  CRC-64 (8, little endian)          the end; since version 5. 0 means no checksum

`RdbRecords.next` returns the kind of the next record that concerns its caller: the type of a key, or the opcode of a
database, a library, data of a module, or the end. The caller reads the operands, or the key and its value, from
`reader`, or passes over them with `skip`. `record` returns the offsets of any record, and reads no value.
"""

from __future__ import annotations

import re
import sys
from typing import Any, NamedTuple

from rillet.errors import Corrupt
from rillet.persistence.rdb.value_sizes import skip_parts, skip_value
from rillet.types.compat import COMPATS
from rillet.types.rdb.primitives import RdbReader
from rillet.types.rdb.value import NEWEST_VERSION

KEY_METADATA, SLOT_SIZES, FUNCTION, FUNCTION_PREVIEW, MODULE_AUX = range(0xF3, 0xF8)
IDLE, FREQUENCY, FACT, SIZES, EXPIRE_MS, EXPIRE_S, DATABASE, END = range(0xF8, 0x100)
MODULE_VALUE = 7
MAGICS = (b"REDIS", b"VALKEY")
HEADER = 9
HEADER_FORM = re.compile(rb"(REDIS|VALKEY)(\d+)")
CHECKSUM_SINCE = 5
# Since Valkey 9, the magic of its files is VALKEY.
NEWEST_VALKEY = COMPATS["valkey"].rdb_version
SEGMENT_NAMES = b"rillet-segments"
"""The auxiliary field of a log's base with the names of the segments to which it refers."""
_LITTLE_ENDIAN_SINCE = 9
_LENGTHS = {DATABASE: 1, SIZES: 2, SLOT_SIZES: 3}


class Unsupported(Corrupt):
    """A record that only a newer version of rillet or another server can read."""


class RdbRecord(NamedTuple):
    """A record: data[start:end]; kind is an opcode or the RDB type of a value that begins at `value`.

    key: the offset of the key's name, -1 if the record is not a key. expires: in ms since the epoch, -1: never.
    """

    start: int
    end: int
    kind: int
    key: int = -1
    value: int = -1
    expires: int = -1


class RdbRecords:
    """Reads records from `reader`. expires (ms), idle (s), frequency: of the key that `next` found, -1: unknown."""

    def __init__(self, reader: RdbReader, version: int = NEWEST_VERSION) -> None:
        self.reader = reader
        self.version = version
        self.valkey = False
        self.facts: dict[bytes, bytes] = {}
        """The auxiliary fields."""
        self.kind = -1
        self.expires = self.idle = self.frequency = -1

    def header(self, relaxed: bool = False) -> None:
        """Read the magic and the version; relaxed: accept versions that are newer than rillet (rdb-version-check)."""
        magic = self.reader.raw(1)
        magic += self.reader.raw(HEADER - 1)
        header = HEADER_FORM.fullmatch(magic)
        if header is None:
            raise Corrupt(f"not an RDB file: REDIS or VALKEY and a version expected, found {magic!r}")
        self.version, self.valkey = int(header[2]), header[1] == b"VALKEY"
        newest = NEWEST_VALKEY if self.valkey else NEWEST_VERSION
        if self.version > newest and not relaxed:
            newer = "Valkey newer than 9" if self.valkey else "Redis newer than 8.8"
            raise Unsupported(f"RDB version {self.version}; rillet reads up to {newest}: upgrade rillet, "
                              f"or use the server that wrote it, a {newer}")  # fmt: skip
        if self.version < 1 or (self.valkey and self.version <= NEWEST_VERSION):
            raise Corrupt(f"not an RDB file: unknown version {self.version} of {header[1].decode()}")

    def next(self) -> int:
        """Return the kind of the next record that concerns the caller, which must read or skip its contents."""
        if self.kind < KEY_METADATA:  # the expiry ... of a key do not belong to the one after it
            self.expires = self.idle = self.frequency = -1
        reader = self.reader
        while (kind := self._after_prefixes()) in (FACT, SIZES, SLOT_SIZES):
            if kind == FACT:
                name = reader.string()
                self.facts[name] = reader.string()
            else:
                self.skip(kind)
        if kind == KEY_METADATA:
            raise Unsupported("metadata of keys, or the state of a slot's import, which this version does not read")
        self.kind = kind
        return kind

    def _after_prefixes(self) -> int:
        """Return the kind of the next record, after what precedes a key."""
        reader = self.reader
        while (kind := reader.byte()) in (EXPIRE_MS, EXPIRE_S, IDLE, FREQUENCY):
            if kind == EXPIRE_MS:
                # Before RDB version 9, the time has the byte order of the machine that wrote it
                # (rdbLoadMillisecondTime).
                order: Any = "little" if self.version >= _LITTLE_ENDIAN_SINCE else sys.byteorder
                self.expires = int.from_bytes(reader.raw(8), order, signed=True)
            elif kind == EXPIRE_S:
                self.expires = int.from_bytes(reader.raw(4), "little", signed=True) * 1000
            elif kind == IDLE:
                self.idle = reader.length()
            else:
                self.frequency = reader.byte()
        return kind

    def skip(self, kind: int) -> None:
        """Pass over the operands of an opcode, or over a key and its value."""
        reader = self.reader
        if kind < KEY_METADATA:
            reader.skip_string()
            skip_value(reader, kind)
        elif kind in _LENGTHS:
            for _ in range(_LENGTHS[kind]):
                reader.length()
        elif kind == FACT:
            reader.skip_string()
            reader.skip_string()
        elif kind == FUNCTION:
            reader.skip_string()
        elif kind == FUNCTION_PREVIEW:
            reader.skip_string()
            reader.skip_string()
            for _ in range(2 if reader.length() else 1):
                reader.skip_string()
        elif kind == MODULE_AUX:
            reader.length()
            skip_parts(reader)
        elif kind != END:
            raise Corrupt("an opcode that this version does not read")

    def record(self) -> RdbRecord:
        """Read one record, with what precedes its key, and return where it is; Corrupt or IndexError."""
        reader = self.reader
        start, self.expires = reader.position, -1
        kind = self._after_prefixes()
        if kind >= KEY_METADATA:
            if reader.position != start + 1:
                raise Corrupt("a key expected after its expiry")
            self.skip(kind)
            return RdbRecord(start, reader.position, kind)
        key = reader.position
        reader.skip_string()
        value = reader.position
        skip_value(reader, kind)
        return RdbRecord(start, reader.position, kind, key, value, self.expires)

    def checksum(self, checked: bool = True) -> None:
        """Read what follows the end, and compare the checksum with that of the bytes before it, unless not checked."""
        reader = self.reader
        if self.version < CHECKSUM_SINCE:
            # Such a file has no checksum and no log after it, so more bytes mean that its version field is damaged.
            if not reader.is_over():
                raise Corrupt(f"expected the end of the file after RDB version {self.version}, found more bytes")
            return
        actual = reader.checksum_so_far()
        stored = int.from_bytes(reader.raw(8), "little")
        if stored and actual != stored and checked:
            raise Corrupt(wrong_checksum(stored, actual))


def wrong_checksum(stored: int, actual: int) -> str:
    """Return the text about a wrong checksum; Redis's also begins with "RDB CRC error"."""
    return f"RDB CRC error: the file states the checksum {stored:016x}, but its bytes have {actual:016x}"

"""A DUMP payload as parts: its type, the blocks of bytes inside, its footer (types/rdb, docs/formats/rdb.md).

    type (1)  value ...  RDB version (2, little endian)  CRC-64 of all before (8, little endian)

Each listpack, intset and ziplist of the value becomes a `Block`, decompressed where LZF was used. A value without such
blocks (a string, a hashtable, a skiplist) has none: DUMP writes its elements one after the other, and `elements` is
their number. The structures in memory of these encodings are not in the payload.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from rillet.errors import Corrupt
from rillet.structs.crc64 import crc64
from rillet.structs.lzf import decompress
from rillet.types.stream.id import StreamID

_FOOTER = 10
_LZF = 3
KINDS = {
    0: ("string", "string"), 1: ("list", "list of strings"), 2: ("set", "hashtable"), 3: ("zset", "skiplist"),
    4: ("hash", "hashtable"), 5: ("zset", "skiplist"), 7: ("module", "value of a module"), 9: ("hash", "zipmap"),
    10: ("list", "ziplist"), 11: ("set", "intset"), 12: ("zset", "ziplist"), 13: ("hash", "ziplist"),
    14: ("list", "quicklist of ziplists"), 15: ("stream", "stream of Redis 5.0"), 16: ("hash", "listpack"),
    17: ("zset", "listpack"), 18: ("list", "quicklist"), 19: ("stream", "stream of Redis 7.0"), 20: ("set", "listpack"),
    21: ("stream", "stream of Redis 7.2"), 22: ("hash", "hashtable with expiring fields"),
    23: ("hash", "listpack with expiring fields"), 24: ("hash", "hashtable with expiring fields"),
    25: ("hash", "listpack with expiring fields"), 26: ("stream", "stream of Redis 8.6"),
    27: ("stream", "stream of Redis 8.8"),
}  # fmt: skip
"""The RDB types: the type of the value, and its form."""
STREAMS = (15, 19, 21, 26, 27)


@dataclass(slots=True)
class Block:
    """A block of bytes in the value. format: "listpack", "intset", "plain" or "other". key: the node's ID in a stream.

    at: where the block begins in the payload. packed: its size there, if LZF compresses it.
    """

    format: str
    data: bytes
    at: int
    packed: int | None = None
    key: bytes = b""


@dataclass(slots=True)
class Payload:
    """A payload: RDB type and version, whether the checksum is right, the blocks, and facts about the value."""

    kind: int
    version: int
    sealed: bool
    size: int
    blocks: list[Block] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)
    elements: int | None = None

    @property
    def type(self) -> str:
        """The type of the value, such as "stream"."""
        return KINDS.get(self.kind, ("unknown", ""))[0]

    @property
    def form(self) -> str:
        """The form of the value, such as "quicklist"."""
        return KINDS.get(self.kind, ("", f"RDB type {self.kind}"))[1]


class _Parts:
    """The lengths and strings of RDB, with their places."""

    def __init__(self, data: bytes, at: int, end: int) -> None:
        self.data, self.at, self.end = data, at, end

    def read_bytes(self, size: int) -> bytes:
        if size < 0 or self.at + size > self.end:
            raise Corrupt("DUMP payload: it ends inside a part")
        self.at += size
        return self.data[self.at - size : self.at]

    def length(self) -> int:
        number, special = self._length()
        if special:
            raise Corrupt("DUMP payload: a length expected, found a special form of a string")
        return number

    def _length(self) -> tuple[int, bool]:
        first = self.read_bytes(1)[0]
        if first < 0x40:
            return first, False
        if first < 0x80:
            return (first & 0x3F) << 8 | self.read_bytes(1)[0], False
        if first >= 0xC0:
            return first & 0x3F, True
        if first not in (0x80, 0x81):
            raise Corrupt(f"DUMP payload: the byte {first:#04x} is not a length")
        return int.from_bytes(self.read_bytes(4 if first == 0x80 else 8), "big"), False

    def block(self, format: str, key: bytes = b"") -> Block:
        """Take a string, and return it with its place."""
        number, special = self._length()
        if not special:
            return Block(format, self.read_bytes(number), self.at - number, None, key)
        if number < _LZF:
            at = self.at
            value = int.from_bytes(self.read_bytes(1 << number), "little", signed=True)
            return Block(format, b"%d" % value, at, 1 << number, key)
        if number != _LZF:
            raise Corrupt(f"DUMP payload: the special form {number} is unknown")
        packed, size = self.length(), self.length()
        at = self.at
        return Block(format, decompress(self.read_bytes(packed), size), at, packed, key)

    def id(self) -> StreamID:
        return StreamID(self.length(), self.length())


def read_payload(data: bytes) -> Payload:
    """Return the parts of a DUMP payload; Corrupt if they are malformed. O(bytes)"""
    if len(data) < _FOOTER + 1:
        raise Corrupt("DUMP payload: it is shorter than its footer")
    version, checksum = int.from_bytes(data[-10:-8], "little"), int.from_bytes(data[-8:], "little")
    payload = Payload(data[0], version, crc64(data[:-8]) == checksum, len(data))
    parts = _Parts(data, 1, len(data) - _FOOTER)
    reader = _READERS.get(payload.kind)
    if payload.kind in STREAMS:
        reader = _stream
    if reader is not None:
        reader(payload, parts)
    return payload


def _stream(payload: Payload, parts: _Parts) -> None:
    for _ in range(parts.length()):
        key = parts.block("key").data
        if len(key) != 16:
            raise Corrupt(f"DUMP payload: the ID of a stream node has {len(key)} bytes instead of 16")
        payload.blocks.append(parts.block("listpack", key))
    facts = payload.facts
    facts["length"], facts["last ID"] = parts.length(), str(parts.id())
    if payload.kind > 15:
        facts["first ID"], facts["max deleted ID"] = str(parts.id()), str(parts.id())
        facts["entries added"] = parts.length()
    facts["groups"] = parts.length()


def _one(format: str) -> Callable[[Payload, _Parts], None]:
    def read(payload: Payload, parts: _Parts) -> None:
        payload.blocks.append(parts.block(format))

    return read


def _expiring(payload: Payload, parts: _Parts) -> None:
    if payload.kind == 25:
        payload.facts["earliest expiry"] = int.from_bytes(parts.read_bytes(8), "little")
    payload.blocks.append(parts.block("listpack"))


def _quicklist(payload: Payload, parts: _Parts) -> None:
    for _ in range(parts.length()):
        plain = payload.kind == 18 and parts.length() == 1
        payload.blocks.append(parts.block("plain" if plain else "listpack" if payload.kind == 18 else "other"))


def _counted(payload: Payload, parts: _Parts) -> None:
    payload.elements = parts.length()


_READERS: dict[int, Callable[[Payload, _Parts], None]] = {
    0: _one("plain"), 1: _counted, 2: _counted, 3: _counted, 4: _counted, 5: _counted, 9: _one("other"),
    10: _one("other"), 11: _one("intset"), 12: _one("other"), 13: _one("other"), 14: _quicklist, 16: _one("listpack"),
    17: _one("listpack"), 18: _quicklist, 20: _one("listpack"), 23: _expiring, 25: _expiring,
}  # fmt: skip

"""RDB files as written by servers of every version, built here byte by byte from the parts of the format."""

from __future__ import annotations

import struct
from collections.abc import Iterable

from rillet.structs.crc64 import crc64
from rillet.structs.listpack import Listpack
from rillet.structs.lzf import compress
from rillet.structs.ziplist import write_ziplist

FAR = 9_000_000_000
"""A time in seconds that has not come."""


def size(n: int) -> bytes:
    """Return the shortest encoding of a length."""
    if n < 64:
        return bytes((n,))
    if n < 16384:
        return struct.pack(">H", 0x4000 | n)
    return struct.pack(">BI", 0x80, n) if n < 1 << 32 else struct.pack(">BQ", 0x81, n)


def text(data: bytes) -> bytes:
    """Return an uncompressed string."""
    return size(len(data)) + data


def block(data: bytes) -> bytes:
    """Return a string as an LZF block."""
    packed = compress(data)
    assert packed
    return b"\xc3" + size(len(packed)) + size(len(data)) + packed


def many(words: Iterable[bytes]) -> bytes:
    """Return a count and the words as strings."""
    words = list(words)
    return size(len(words)) + b"".join(map(text, words))


def listpack(*values: bytes | int) -> bytes:
    """Return a listpack of the values."""
    packed = Listpack()
    for value in values:
        packed.append(value if isinstance(value, bytes) else b"%d" % value)
    return packed.to_bytes()


def key(kind: int, name: bytes, value: bytes) -> bytes:
    """Return a key with this RDB type."""
    return bytes((kind,)) + text(name) + value


def file(version: int | bytes, *parts: bytes, checksum: bool = True) -> bytes:
    """Return a file; checksum False: its checksum is 0, which means none."""
    head = version if isinstance(version, bytes) else b"REDIS%04d" % version
    data = head + b"".join(parts) + b"\xff"
    if isinstance(version, int) and version < 5:
        return data
    return data + (crc64(data) if checksum else 0).to_bytes(8, "little")


INTSET = struct.pack("<IIhhh", 2, 3, -7, 0, 300)
ZIPMAP = b"\x02\x03foo\x03\x00bar\x05hello\x05\x02world..\xff"
# 1-1 a=1, 1-2 deleted, 2-0 with other names; the master entry lends "a".
NODE = listpack(2, 1, 1, b"a", 0, 2, 0, 0, 1, 4, 3, 0, 1, 2, 4, 0, 1, -1, 1, b"other", b"value", 6)
ID = struct.pack(">QQ", 1, 1)


def raw_id(ms: int, seq: int) -> bytes:
    """Return a stream ID as 16 bytes."""
    return struct.pack(">QQ", ms, seq)


def stream_5() -> bytes:
    """Return a stream as Redis 5 wrote it (type 15), with a group, a consumer and two pending entries."""
    pending = [raw_id(1, 1), raw_id(2, 0)]
    return b"".join((
        size(1), text(ID), block(NODE) if compress(NODE) else text(NODE), size(2), size(2), size(0), size(1),
        text(b"g"), size(2), size(0), size(2),
        *(one + struct.pack("<q", 1_700_000_000_000) + size(3) for one in pending),
        size(1), text(b"c"), struct.pack("<q", 1_700_000_000_500), size(2), *pending,
    ))  # fmt: skip


# A key for each type, with the first version that had the type, oldest first.
PARTS: list[tuple[int, bytes]] = [
    (1, key(0, b"plain", text(b"value"))),
    (1, key(0, b"int8", b"\xc0\xfb")),
    (1, key(0, b"int16", b"\xc1\x39\x30")),
    (1, key(0, b"int32", b"\xc2\x00\x00\x00\x80")),
    (1, key(0, b"packed", block(b"abc" * 100))),
    (1, key(1, b"list", many((b"a", b"b", b"12", b"x" * 100)))),
    (1, key(2, b"set", many((b"a", b"b", b"7")))),
    (1, key(3, b"zset", size(3) + text(b"one") + b"\x011" + text(b"low") + b"\xff" + text(b"high") + b"\xfe")),
    (1, key(4, b"hash", size(2) + b"".join(map(text, (b"f", b"v", b"g", b"12"))))),
    (1, b"\xfd" + struct.pack("<i", 2_000_000_000) + key(0, b"seconds", text(b"x"))),
    (2, key(9, b"zipmap", text(ZIPMAP))),
    (2, key(10, b"ziplist", text(write_ziplist([b"a", b"1", b"-70000", b"x" * 300])))),
    (2, key(11, b"intset", text(INTSET))),
    (2, key(12, b"zziplist", text(write_ziplist([b"low", b"-1.5", b"mid", b"2", b"top", b"1e20"])))),
    (3, b"\xfc" + struct.pack("<q", FAR * 1000) + key(0, b"milliseconds", text(b"x"))),
    (4, key(13, b"hziplist", text(write_ziplist([b"f", b"v", b"n", b"123456789012"])))),
    (7, key(14, b"quick", size(2) + text(write_ziplist([b"a", b"5"])) + block(write_ziplist([b"z" * 300])))),
    (8, key(5, b"zset2", size(2) + text(b"a") + struct.pack("<d", 1.5) + text(b"b") + struct.pack("<d", float("inf")))),
    (9, b"\xf8\x05" + key(0, b"idle", text(b"x"))),
    (9, b"\xf9\x7f" + key(0, b"often", text(b"x"))),
    (9, key(15, b"stream", stream_5())),
    (10, key(16, b"hlistpack", text(listpack(b"f", b"v", b"g", 12)))),
    (10, key(17, b"zlistpack", text(listpack(b"low", b"-1.5", b"mid", 2)))),
    (10, key(18, b"quick2", size(2) + b"\x02" + text(listpack(b"a", 5)) + b"\x01" + text(b"plain node"))),
    (11, key(20, b"slistpack", text(listpack(b"a", b"b", 7)))),
]


def of_version(version: int, *more: bytes, checksum: bool = True) -> bytes:
    """Return a file with all types of this version in database 0, and its header fields."""
    head = b"\xfe\x00"
    if version >= 7:
        head = b"\xfa" + text(b"redis-ver") + text(b"old") + b"\xfe\x00\xfb" + size(30) + size(2)
    keys = [part for since, part in PARTS if since <= version]
    return file(version, head, *keys, *more, b"\xfe\x03", key(0, b"elsewhere", text(b"x")), checksum=checksum)

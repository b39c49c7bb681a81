"""Helpers that extract listpacks from DUMP payloads of lists and hashes, and that build such payloads."""

from __future__ import annotations

import struct

from rillet.structs.crc64 import crc64

LIST_QUICKLIST_2 = 18  # rdb.h: RDB_TYPE_LIST_QUICKLIST_2
HASH_LISTPACK = 16  # rdb.h: RDB_TYPE_HASH_LISTPACK
PACKED = 2  # quicklist.h: QUICKLIST_NODE_CONTAINER_PACKED
FOOTER = 10  # RDB version u16, CRC-64


def sealed(body: bytes) -> bytes:
    """Return a RESTORE payload of RDB version 10 with its checksum."""
    body += struct.pack("<H", 10)
    return body + struct.pack("<Q", crc64(body))


def read_length(data: bytes, pos: int) -> tuple[int, int]:
    """Return an RDB length and the position after it."""
    first = data[pos]
    if first < 0x40:
        return first, pos + 1
    if first < 0x80:
        return ((first & 0x3F) << 8) | data[pos + 1], pos + 2
    assert first == 0x80, "compressed and integer-encoded strings are not supported here"
    return struct.unpack_from(">I", data, pos + 1)[0], pos + 5


def write_length(n: int) -> bytes:
    """Return n as an RDB length."""
    if n < 64:
        return bytes([n])
    return struct.pack(">H", 0x4000 | n) if n < 16384 else b"\x80" + struct.pack(">I", n)


def hash_listpack(payload: bytes) -> bytes:
    """Return the listpack of a DUMP of a small hash."""
    assert payload[0] == HASH_LISTPACK
    n, pos = read_length(payload, 1)
    assert pos + n + FOOTER == len(payload)
    return payload[pos : pos + n]


def list_listpacks(payload: bytes) -> list[bytes]:
    """Return the listpacks of a list's DUMP, one per quicklist node."""
    assert payload[0] == LIST_QUICKLIST_2
    nodes, pos = read_length(payload, 1)
    out = []
    for _ in range(nodes):
        container, pos = read_length(payload, pos)
        assert container == PACKED
        n, pos = read_length(payload, pos)
        out.append(payload[pos : pos + n])
        pos += n
    assert pos + FOOTER == len(payload)
    return out


def list_payload(listpack: bytes) -> bytes:
    """Return a RESTORE payload for a list of one node, with a checksum of zero."""
    body = bytes([LIST_QUICKLIST_2, 1, PACKED]) + write_length(len(listpack)) + listpack
    return body + struct.pack("<H", 10) + bytes(8)

"""A second, minimal implementation of the listpack format, as an oracle for tests."""

from __future__ import annotations

import re
import struct

CANONICAL = re.compile(rb"0|-?[1-9][0-9]{0,18}")
INTEGERS = ((0xF1, 2), (0xF2, 3), (0xF3, 4), (0xF4, 8))
BACKLEN_STEPS = (128, 16383, 2097151, 268435455)  # smallest length that needs one more byte


def as_stored(value: bytes) -> bytes | int:
    """Return the value as the listpack stores it."""
    if CANONICAL.fullmatch(value) and -(2**63) <= int(value) < 2**63:
        return int(value)
    return value


def encode_entry(stored: bytes | int) -> bytes:
    """Return encoding and data of one entry."""
    if isinstance(stored, bytes):
        n = len(stored)
        if n < 64:
            return bytes([0x80 | n]) + stored
        if n < 4096:
            return struct.pack(">H", 0xE000 | n) + stored
        return struct.pack("<BI", 0xF0, n) + stored
    if 0 <= stored < 128:
        return bytes([stored])
    if -4096 <= stored < 4096:
        return struct.pack(">H", 0xC000 | (stored & 0x1FFF))
    for code, size in INTEGERS:
        if -(1 << (8 * size - 1)) <= stored < 1 << (8 * size - 1):
            return bytes([code]) + stored.to_bytes(size, "little", signed=True)
    raise AssertionError("not a 64-bit integer")


def encode_backlen(n: int) -> bytes:
    """Return the backlen of an entry of n bytes."""
    size = 1 + sum(n >= step for step in BACKLEN_STEPS)
    groups = [(n >> (7 * i)) & 127 for i in range(size)][::-1]
    return bytes([groups[0], *(group | 128 for group in groups[1:])])


def encode(values: list[bytes]) -> bytes:
    """Return the whole listpack of the values."""
    entries = [encode_entry(as_stored(value)) for value in values]
    body = b"".join(entry + encode_backlen(len(entry)) for entry in entries)
    return struct.pack("<IH", 7 + len(body), min(len(values), 65535)) + body + b"\xff"

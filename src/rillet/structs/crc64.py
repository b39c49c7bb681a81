"""CRC-64 with the Jones polynomial: the checksum of RDB files and DUMP payloads (Redis: crc64.c).

Polynomial 0xad93d23594c935a9, input and output reflected, initial value 0, no final xor;
crc64(b"123456789") is 0xe9c6d914c4b8d9ca.

If the package anycrc is installed, it computes the checksum in C. The fallback uses a table of 256 entries
and is about a hundred times slower. Both return the same value.
"""

from __future__ import annotations

from functools import cache

_POLYNOMIAL = 0x95AC9329AC4BC9B5  # 0xad93d23594c935a9 with its 64 bits reflected


@cache
def _table() -> tuple[int, ...]:
    rows = []
    for row in range(256):
        for _ in range(8):
            row = (row >> 1) ^ _POLYNOMIAL if row & 1 else row >> 1
        rows.append(row)
    return tuple(rows)


def crc64_by_table(data: bytes | memoryview, crc: int = 0) -> int:
    """Return the checksum of data in pure Python, continuing from crc. O(n)"""
    rows = _table()
    for byte in data:
        crc = rows[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc


try:
    from anycrc import CRC as _CRC
except ModuleNotFoundError:
    crc64 = crc64_by_table
else:
    _engine = _CRC(width=64, poly=0xAD93D23594C935A9, init=0, refin=True, refout=True, xorout=0)

    def crc64(data: bytes | memoryview, crc: int = 0) -> int:
        """Return the checksum of data, continuing from crc. O(n)"""
        value: int = _engine.calc(data, crc) if crc else _engine.calc(data)
        return value

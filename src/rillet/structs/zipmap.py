"""The zipmap: the format of small hashes up to Redis 2.4, before the ziplist; read only (Redis: zipmap.c).

    +-------+------------------+-------------------------------+-- .. --+------+
    | pairs | length | field   | length | free | value | unused|        | 0xFF |
    +-------+------------------+-------------------------------+-- .. --+------+

A length is one byte up to 253, or 0xFE and four little-endian bytes for 254 and more. `free` is the number of unused
bytes after the value. A `pairs` byte above 253 means that the number is unknown.

Reading validates everything: every pair is within the bytes, and their number matches the header.
"""

from __future__ import annotations

from rillet.errors import Corrupt

_LARGE = 0xFE
_END = 0xFF


def read_zipmap(data: bytes) -> list[bytes]:
    """Return fields and values alternately; raise Corrupt if malformed (zipmapValidateIntegrity). O(n)"""
    end = len(data) - 1
    if end < 1 or data[end] != _END:
        raise Corrupt("zipmap: not a valid zipmap")
    words: list[bytes] = []
    at = 1
    while data[at] != _END:
        for free in (0, 1):
            size, at = _length(data, at, end)
            start = at + free
            at = start + size + (data[at] if free else 0)
            if at > end or start + size > end:
                raise Corrupt("zipmap: a field or value extends past the end")
            words.append(data[start : start + size])
    if at != end or (data[0] < _LARGE and data[0] != len(words) // 2):
        raise Corrupt("zipmap: the header does not match the pairs")
    return words


def _length(data: bytes, at: int, end: int) -> tuple[int, int]:
    """Return the length at a position, and the position after the length; raise Corrupt if the bytes end there."""
    size, following = data[at], at + 1
    if size == _LARGE:
        size, following = int.from_bytes(data[at + 1 : at + 5], "little"), at + 5
        if size < _LARGE:  # older servers accept this and then read at wrong positions
            raise Corrupt("zipmap: a short length has the long encoding")
    if data[at] == _END or following >= end:
        raise Corrupt("zipmap: a length is missing")
    return size, following

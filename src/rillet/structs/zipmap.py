"""The zipmap: what small hashes were stored in before the ziplist, up to Redis 2.4; only read (Redis: zipmap.c).

    +-------+------------------+-------------------------------+-- .. --+------+
    | pairs | length | field   | length | free | value | unused|        | 0xFF |
    +-------+------------------+-------------------------------+-- .. --+------+

A length is one byte up to 253, or 0xFE and four bytes, the lowest first. `free` is the number of bytes behind the
value that nothing is in. `pairs` above 253 says that nobody counted.

Reading trusts nothing: every pair lies within the bytes, and there are as many as the header says.
"""

from __future__ import annotations

from rillet.errors import Corrupt

_LARGE = 0xFE
_END = 0xFF


def read_zipmap(data: bytes) -> list[bytes]:
    """Return fields and values in turn; Corrupt where the bytes are no zipmap (zipmapValidateIntegrity). O(n)"""
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
                raise Corrupt("zipmap: a word reaches beyond the end")
            words.append(data[start : start + size])
    if at != end or (data[0] < _LARGE and data[0] != len(words) // 2):
        raise Corrupt("zipmap: header and pairs do not fit")
    return words


def _length(data: bytes, at: int, end: int) -> tuple[int, int]:
    """Return the length at a position and the position behind it, which lies before the end."""
    size, following = data[at], at + 1
    if size == _LARGE:
        size, following = int.from_bytes(data[at + 1 : at + 5], "little"), at + 5
    if data[at] == _END or following >= end:
        raise Corrupt("zipmap: a length expected")
    return size, following


__all__ = ["read_zipmap"]

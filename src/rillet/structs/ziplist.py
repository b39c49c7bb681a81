"""The ziplist: the format of small lists, sorted sets and hashes before the listpack (Redis: ziplist.c).

    +---------+----------+----------+---------+---------+-- .. --+------+
    | bytes   | last u32 | count    | entry 0 | entry 1 |        | 0xFF |
    | u32     |          | u16      |         |         |        |      |
    +---------+----------+----------+---------+---------+-- .. --+------+
    0         4          8          10

    entry:  | size of the entry before (1 byte, or 0xFE and u32) | encoding | data |

`last` is the position of the last entry. Numbers are little-endian, lengths of strings big-endian. RDB files and
DUMP payloads of Redis 6 and older contain ziplists. rillet stores no value as a ziplist: it converts ziplists to
current encodings when it reads them, and writes them only for servers that support nothing newer.

    00LLLLLL                    string of 0 to 63 bytes
    01LLLLLL LLLLLLLL           string of up to 16383 bytes
    10000000 + u32              longer string
    11000000 11010000 11100000  integer of 16, 32, 64 bits
    11110000 11111110           integer of 24, 8 bits
    1111xxxx                    the integer xxxx - 1, for xxxx from 1 to 13

Reading validates everything: each entry is within the bytes and states the size of the entry before it, and the
last entry is at the header's position. Writing encodes as Redis does: the text of a 64-bit integer becomes the
shortest integer form.
"""

from __future__ import annotations

from rillet.errors import Corrupt
from rillet.structs.listpack import is_int64

HEADER_SIZE = 10
_INTEGERS = {0xC0: 2, 0xD0: 4, 0xE0: 8, 0xF0: 3, 0xFE: 1}
_SHORTEST = ((0xFE, 1), (0xC0, 2), (0xF0, 3), (0xD0, 4), (0xE0, 8))


def read_ziplist(data: bytes) -> list[bytes]:
    """Return the entries, integers as their text; raise Corrupt if malformed (ziplistValidateIntegrity)."""
    end = len(data) - 1
    if end < HEADER_SIZE or int.from_bytes(data[:4], "little") != len(data) or data[end] != 0xFF:
        raise Corrupt("ziplist: not a valid ziplist")
    entries: list[bytes] = []
    at, last, size = HEADER_SIZE, HEADER_SIZE, 0
    while at < end:
        value, following = _entry(data, at, end, size)
        entries.append(value)
        last, size, at = at, following - at, following
    count = int.from_bytes(data[8:10], "little")
    if at != end or count not in (len(entries), 0xFFFF) or int.from_bytes(data[4:8], "little") != last:
        raise Corrupt("ziplist: the header does not match the entries")
    return entries


def _entry(data: bytes, at: int, end: int, before: int) -> tuple[bytes, int]:
    """Return the entry at a position and the position after it; `before` is the size of the preceding entry."""
    stated, at = (data[at], at + 1) if data[at] < 0xFE else (int.from_bytes(data[at + 1 : at + 5], "little"), at + 5)
    if stated != before or at >= end:
        raise Corrupt("ziplist: an entry states a wrong size for the entry before it")
    form = data[at]
    at += 1
    if form < 0xC0:
        kind = form >> 6
        width = (0, 1, 4)[kind]
        size = (form & 0x3F if kind < 2 else 0) << 8 * width | int.from_bytes(data[at : at + width], "big")
        start = at + width
        value = data[start : start + size]
    elif 0xF1 <= form <= 0xFD:
        start, size, value = at, 0, b"%d" % ((form & 0x0F) - 1)
    elif form in _INTEGERS:
        start, size = at, _INTEGERS[form]
        value = b"%d" % int.from_bytes(data[start : start + size], "little", signed=True)
    else:
        raise Corrupt("ziplist: unknown encoding")
    if start + size > end:
        raise Corrupt("ziplist: an entry extends past the end")
    return value, start + size


def write_ziplist(entries: list[bytes]) -> bytes:
    """Serialize entries as a ziplist. Raise OverflowError if they exceed 4 GiB, the maximum in its header. O(bytes)"""
    parts = [b""]
    last, at, before = HEADER_SIZE, HEADER_SIZE, 0
    for entry in entries:
        stated = bytes((before,)) if before < 0xFE else b"\xfe" + before.to_bytes(4, "little")
        body = _written(entry)
        parts += (stated, body)
        before = len(stated) + len(body)
        last, at = at, at + before
    parts.append(b"\xff")
    parts[0] = b"".join(
        ((at + 1).to_bytes(4, "little"), last.to_bytes(4, "little"), min(len(entries), 0xFFFF).to_bytes(2, "little"))
    )
    return b"".join(parts)


def _written(entry: bytes) -> bytes:
    """Return the encoding and data of an entry (zipStoreEntryEncoding, zipSaveInteger)."""
    size = len(entry)
    if size <= 20 and is_int64(entry):
        value = int(entry)
        if 0 <= value <= 12:
            return bytes((0xF1 + value,))
        form, width = next(
            (form, width) for form, width in _SHORTEST if -(1 << 8 * width - 1) <= value < 1 << 8 * width - 1
        )
        return bytes((form,)) + value.to_bytes(width, "little", signed=True)
    if size < 1 << 6:
        return bytes((size,)) + entry
    if size < 1 << 14:
        return (0x4000 | size).to_bytes(2, "big") + entry
    return b"\x80" + size.to_bytes(4, "big") + entry

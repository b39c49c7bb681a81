"""The listpack of a hash with field expiry: field, value, time, field, value, time ... (Redis: t_hash.c, listpackEx).

    6 fields and 3 times             f4 v4 1700000000050 | f1 v1 1700000000100 | f6 v6 1700000000100 | f2 v2 0 | ...

A time is an integer in ms since the epoch; 0 means that the field does not expire. The fields that expire come first,
the earliest first. A field is inserted before the first one with the same or a later time, so among equal times the
last one that was set comes first. Fields without expiry keep the order in which they were set.

All functions are O(n), as in Redis; a hash of this encoding has at most hash-max-listpack-entries fields.
"""

from __future__ import annotations

from rillet.structs.listpack import HEADER_SIZE, Listpack

WIDTH = 3
"""Entries of one field."""


def find(packed: Listpack, field: bytes) -> int:
    """Return the position of a field, or -1."""
    pos: int = packed.find(HEADER_SIZE, field, WIDTH - 1)
    return pos


def time_at(packed: Listpack, pos: int) -> int:
    """Return the time of the field at a position."""
    when: int = packed.get_int(packed.skip(pos, WIDTH - 1))
    return when


def insert(packed: Listpack, field: bytes, value: bytes, when: int) -> None:
    """Insert a field that does not exist (listpackExAddInternal)."""
    pos = -1 if when == 0 else _place(packed, when)
    if pos == -1:
        packed.append(field)
        packed.append(value)
        packed.append_int(when)
    else:
        packed.insert_int(pos, when, False)
        packed.insert(pos, value, False)
        packed.insert(pos, field, False)


def _place(packed: Listpack, when: int) -> int:
    """Return the position of the first field that does not expire before `when`, -1 if all do."""
    pos = HEADER_SIZE
    while not packed.is_end(pos):
        at = packed.skip(pos, WIDTH - 1)
        found = packed.get_int(at)
        if found == 0 or found >= when:
            return pos
        pos = packed.skip(at)
    return -1


def remove(packed: Listpack, pos: int) -> None:
    """Remove the field at a position."""
    packed.delete(pos)
    packed.delete(pos)
    packed.delete(pos)


def set_time(packed: Listpack, pos: int, when: int) -> None:
    """Give the field at a position another time: it is removed and inserted again (listpackExUpdateExpiry)."""
    field, value = packed.get_bytes(pos), packed.get_bytes(packed.skip(pos))
    remove(packed, pos)
    insert(packed, field, value, when)


def of_pairs(pairs: Listpack) -> Listpack:
    """Return the triples of fields and values that do not expire (hashTypeConvertListpack)."""
    packed = Listpack()
    words = pairs.texts()
    for at in range(0, len(words), 2):
        packed.append(words[at])
        packed.append(words[at + 1])
        packed.append_int(0)
    return packed


def rows(packed: Listpack) -> list[tuple[bytes, bytes, int]]:
    """Return field, value and time of each field, in order."""
    words = packed.texts()
    return [(words[at], words[at + 1], int(words[at + 2])) for at in range(0, len(words), WIDTH)]


def check(packed: Listpack) -> None:
    """Raise AssertionError if a field occurs twice, or if the times are not in order."""
    packed.check()
    assert packed.length() % WIDTH == 0
    found = rows(packed)
    times = [when for _, _, when in found if when]
    assert len({field for field, _, _ in found}) == len(found)
    assert times == sorted(times) and all(when > 0 for when in times)
    assert all(when for _, _, when in found[: len(times)])


__all__ = ["WIDTH", "check", "find", "insert", "of_pairs", "remove", "rows", "set_time", "time_at"]

"""The settings that values depend on: size limits of compact encodings, and the compatibility level.

A server's settings object, which belongs to a higher layer, has the attributes of `EncodingLimits`. Code without a
server, such as a tool or a test, uses `DEFAULTS`.
"""

from __future__ import annotations

from typing import Protocol

from rillet.types.compat import NEWEST, Compat


class EncodingLimits(Protocol):
    """The settings attributes that lists, sets and hashes read, under their names in redis.conf."""

    compat: Compat
    list_max_listpack_size: int
    list_compress_depth: int
    quicklist_packed_threshold: int  # DEBUG QUICKLIST-PACKED-THRESHOLD; 0 = none
    set_max_intset_entries: int
    set_max_listpack_entries: int
    set_max_listpack_value: int
    hash_max_listpack_entries: int
    hash_max_listpack_value: int
    zset_max_listpack_entries: int
    zset_max_listpack_value: int


class Defaults:
    """Redis's default limits."""

    def __init__(self) -> None:
        self.compat = NEWEST
        self.list_max_listpack_size = -2
        self.list_compress_depth = 0
        self.quicklist_packed_threshold = 0
        self.set_max_intset_entries = 512
        self.set_max_listpack_entries = 128
        self.set_max_listpack_value = 64
        self.hash_max_listpack_entries = 512
        self.hash_max_listpack_value = 64
        self.zset_max_listpack_entries = 128
        self.zset_max_listpack_value = 64


DEFAULTS: EncodingLimits = Defaults()


def has_compact(limits: EncodingLimits) -> bool:
    """Return whether small lists and small sets of strings use listpacks: since Redis 7.2, and in Valkey."""
    return limits.compat.knows(72)

"""What the settings say about the forms of values: how large a compact form may grow, and whose rules hold.

The settings themselves are above the types; they have these attributes and are handed in as they are. Values
that nobody's settings apply to (a payload read by a tool, a test) take `DEFAULTS`.
"""

from __future__ import annotations

from typing import Protocol

from rillet.types.compat import NEWEST, Compat


class EncodingLimits(Protocol):
    """The attributes of the settings that lists, sets and hashes ask for, by their names in redis.conf."""

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
    """Redis's defaults."""

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
    """Whether small lists, and small sets of strings, are listpacks: since Redis 7.2, and in Valkey."""
    return limits.compat.knows(72)

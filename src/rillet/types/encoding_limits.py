"""The settings that values depend on: size limits of compact encodings, and the compatibility level.

A server's settings object, which belongs to a higher layer, has the attributes of `EncodingLimits`. Code without a
server, such as a tool or a test, uses `DEFAULTS`.
"""

from __future__ import annotations

from typing import Any, Protocol

from rillet.types.compat import NEWEST, Compat

PACKED_LIMIT = 1024
"""A value rests if its payload has at most this number of bytes (types/at_rest.py)."""
PACKED_TABLE_LIMIT = 64
"""A hashtable rests if it has at most this number of elements."""


class EncodingLimits(Protocol):
    """The settings that choose the encoding of values, under their names in redis.conf, with Redis's defaults."""

    compat: Compat = NEWEST
    list_max_listpack_size: int = -2
    list_compress_depth: int = 0
    quicklist_packed_threshold: int = 0  # DEBUG QUICKLIST-PACKED-THRESHOLD; 0 = none
    set_max_intset_entries: int = 512
    set_max_listpack_entries: int = 128
    set_max_listpack_value: int = 64
    hash_max_listpack_entries: int = 512
    hash_max_listpack_value: int = 64
    zset_max_listpack_entries: int = 128
    zset_max_listpack_value: int = 64
    stream_node_max_bytes: int = 4096
    stream_node_max_entries: int = 100
    array_slice_size: int = 4096
    array_sparse_kmax: int = 10
    array_sparse_kmin: int = 5
    module_types: dict[int, Any] = {}  # the types of loaded modules (types.module.TypeHandle)


class Defaults(EncodingLimits):
    """Redis's default limits."""


DEFAULTS: EncodingLimits = Defaults()


def has_compact(limits: EncodingLimits) -> bool:
    """Return whether small lists and small sets of strings use listpacks: since Redis 7.2, and in Valkey."""
    return limits.compat.knows(72)


def sizes_lists_anew(limits: EncodingLimits) -> bool:
    """Return whether the size of a list's nodes decides about PLAIN nodes and SORT ... STORE: since 7.4, and Valkey."""
    return limits.compat.knows(74) or limits.compat.valkey


def plain_threshold(limits: EncodingLimits) -> int:
    """Return the bytes from which an element of a list has a PLAIN node; 0: one more than a node may hold."""
    return limits.quicklist_packed_threshold or (0 if sizes_lists_anew(limits) else 1 << 30)

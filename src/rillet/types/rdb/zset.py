"""Sorted sets as RDB bytes (Redis: rdb.c, rdbSaveObject and rdbLoadObject).

    type                            value
     3  sorted set                  count, then each member as a string and its score as text        read
     5  sorted set, binary scores   count, then each member as a string and its score, 8 bytes       read, written
    12  sorted set of a ziplist     the ziplist as a string                                          read, written
    17  sorted set of a listpack    the listpack as a string                                         read, written

    score as text      length (1 byte), its characters; instead of a length 253 not a number, 254 inf, 255 -inf
    score in 8 bytes   IEEE 754, little endian

A skiplist is written from the greatest member to the smallest, so that a reader inserts each one at the front. The
limits choose the encoding of a loaded sorted set; for types 12 and 17, the number of members counts but not their
length. Type 17 is written from RDB 10 on; for RDB 9 the same pairs are written as type 12.

Loading rejects an empty sorted set, a duplicate member, a score that is not a number, and pairs that are not in order.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

from rillet.errors import Corrupt
from rillet.structs.float_text import parse, parse_bound
from rillet.structs.listpack import Listpack
from rillet.structs.ziplist import read_ziplist, write_ziplist
from rillet.types.encoding_limits import EncodingLimits
from rillet.types.rdb.primitives import EmptyValue, RdbReader, RdbWriter
from rillet.types.rdb.tables import load_ranked, save_ranked
from rillet.types.zset import Pair, Zset

TYPE_ZSET, TYPE_ZSET_2, TYPE_ZSET_ZIPLIST, TYPE_ZSET_LISTPACK = 3, 5, 12, 17
_LISTPACKS_SINCE = 10
_NAN, _INFINITE, _MINUS_INFINITE = 253, 254, 255


def type_of(value: Zset, version: int) -> int:
    """Return the RDB type for writing a sorted set in an RDB version (rdbSaveObjectType)."""
    if value.listpack is None:
        return TYPE_ZSET_2
    return TYPE_ZSET_LISTPACK if version >= _LISTPACKS_SINCE else TYPE_ZSET_ZIPLIST


def save(out: RdbWriter, value: Zset, kind: int) -> None:
    """Append the sorted set as RDB type `kind`, which `type_of` returned. O(bytes)"""
    if kind == TYPE_ZSET_LISTPACK and value.listpack is not None:
        out.string(value.listpack.to_bytes())
    elif kind == TYPE_ZSET_ZIPLIST and value.listpack is not None:
        out.string(write_ziplist(value.listpack.texts()))
    else:
        assert value.skiplist is not None and value.table is not None
        save_ranked(out, value.table, value.skiplist)


# -- reading ------------------------------------------------------------------------------------------


def _text_score(reader: RdbReader) -> float:
    """Read a score that is stored as text (rdbLoadDoubleValue)."""
    size = reader.byte()
    if size >= _NAN:
        return (float("nan"), float("inf"), float("-inf"))[size - _NAN]
    score = parse_bound(reader.raw(size))
    return float("nan") if score is None else score


def _load_text_pairs(reader: RdbReader, limits: EncodingLimits) -> Zset:
    count, value = _started(reader, limits)
    for _ in range(count):
        member, score = reader.string(), _text_score(reader)
        if score != score:
            raise Corrupt("a score in a sorted set is not a number", "Zset with NAN score detected")
        if member in value:
            raise Corrupt("a sorted set has a duplicate member", "Duplicate zset fields detected")
        value.add(member, score)
    return _ended(value, limits)


def _load_pairs(reader: RdbReader, limits: EncodingLimits) -> Zset:
    count, value = _started(reader, limits)
    assert value.skiplist is not None and value.table is not None
    load_ranked(reader, value.table, value.skiplist, count)
    return _ended(value, limits)


def _started(reader: RdbReader, limits: EncodingLimits) -> tuple[int, Zset]:
    """Read the number of members; return it and an empty skiplist. The members may come in any order."""
    count = reader.length()
    if not count:
        raise EmptyValue("a sorted set is empty")
    return count, Zset.for_size(sys.maxsize, 0, limits)


def _ended(value: Zset, limits: EncodingLimits) -> Zset:
    """Return the loaded sorted set in the encoding that the limits allow."""
    return Zset.from_pairs(value, limits) if len(value) <= limits.zset_max_listpack_entries else value


def _load_ziplist(reader: RdbReader, limits: EncodingLimits) -> Zset:
    return _of_listpack(Listpack.from_values(read_ziplist(reader.string())), limits)


def _load_listpack(reader: RdbReader, limits: EncodingLimits) -> Zset:
    return _of_listpack(Listpack.from_bytes(reader.string()), limits)


def _of_listpack(packed: Listpack, limits: EncodingLimits) -> Zset:
    values = packed.values()
    pairs: list[Pair] = []
    for at in range(0, len(values) - 1, 2):
        member, score = values[at], values[at + 1]
        number = float(score) if isinstance(score, int) else parse(score)
        if number is None:
            raise Corrupt("a score in a sorted set is not a number")
        pairs.append((member if isinstance(member, bytes) else b"%d" % member, number))
    if not values:
        raise EmptyValue("a sorted set is empty")
    if len(values) % 2 or len(dict(pairs)) != len(pairs):
        raise Corrupt("a sorted set has a duplicate member, or a member without a score")
    if any((one[1], one[0]) > (other[1], other[0]) for one, other in zip(pairs, pairs[1:], strict=False)):
        raise Corrupt("the members of a sorted set are not in order")
    if any(isinstance(score, bytes) and b"x" in score.lower() for score in values[1::2]):
        return Zset.from_pairs(pairs, limits)  # hexadecimal scores, which no server writes, become decimal
    value = Zset()
    value.listpack = packed
    if len(pairs) > limits.zset_max_listpack_entries:
        value.to_skiplist()
    return value


LOADERS: dict[int, Callable[[RdbReader, EncodingLimits], Zset]] = {
    TYPE_ZSET: _load_text_pairs,
    TYPE_ZSET_2: _load_pairs,
    TYPE_ZSET_ZIPLIST: _load_ziplist,
    TYPE_ZSET_LISTPACK: _load_listpack,
}
"""The RDB types of sorted sets, each with the function that reads the type."""

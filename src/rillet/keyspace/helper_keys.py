"""Helper keys: keys beside a stream, with delayed entries, the times of retries, and the order by key.

    rillet:delayed:{TAG}STREAM           entries that are added when they are due; score: that time, in ms since 1970
    rillet:retries:{TAG}STREAM:GROUP     pending messages that nobody may claim before a time; score: that time
    rillet:ordered:{TAG}STREAM:GROUP     the order by key (consuming/order_steps.py), a hash; its two sorted sets are
    rillet:lanes:{TAG}STREAM:GROUP       the messages of each key, and
    rillet:turns:{TAG}STREAM:GROUP       the time from which each key may be taken, in microseconds since 1970
    rillet:partitions:{TAG}NAME          a hash: the form of a partitioned stream (rillet.store.partitions)
    rillet:consumers:{TAG}NAME:GROUP     a hash: the consumers of its group, and their partitions
    rillet:owner:{TAG}STREAM:GROUP       a string: the token of the consumer that reads this partition
    rillet:moved:{TAG}STREAM             a hash: how far the delayed entries of earlier partitions were moved here
    rillet:retention                     a hash: the policy of each stream (types/stream/retention.py). One key for all,
                                         because the engine looks for policies; a cluster, which has no policies, would
                                         need one for each slot

**Slots.** A script moves entries between a helper key and its stream, so both must be in the same slot of a cluster,
for any name. TAG is the stream's hash tag. A name without a hash tag is its own TAG, unless it is empty or contains
"}". Then TAG is the smallest number with the same slot.

The names are unambiguous: TAG contains no "}", and ":" and "%" in a group's name are written as %3A and %25.

The first two also contain an empty member with the score +inf. So the key remains when nothing waits, and consumers see
from it that delays are in use and that they must look often. Nothing creates one of them before the first delayed
entry, retry or extended lease. The keys of the order exist only while messages of a loop with order_by are pending.
Those of a partitioned stream are created by its first use.
"""

from __future__ import annotations

import re
from binascii import crc_hqx
from functools import lru_cache
from itertools import count

DELAYED, RETRIES = b"rillet:delayed:{", b"rillet:retries:{"
ORDERED, LANES, TURNS = b"rillet:ordered:{", b"rillet:lanes:{", b"rillet:turns:{"
PARTITIONS, CONSUMERS, OWNER = b"rillet:partitions:{", b"rillet:consumers:{", b"rillet:owner:{"
MOVED = b"rillet:moved:{"
RETENTION = b"rillet:retention"
_SLOTS = 16384
_PARTITION = re.compile(rb"([^{]*):(\d+):(\d+):\{\d+\}", re.DOTALL)


@lru_cache(1024)
def delayed_key(stream: bytes) -> bytes:
    """Return the key of the delayed entries of a stream."""
    return DELAYED + _tag(stream) + b"}" + stream


@lru_cache(1024)
def retries_key(stream: bytes, group: bytes) -> bytes:
    """Return the key of the retries of a group."""
    return RETRIES + _place(stream, group)


@lru_cache(1024)
def order_keys(stream: bytes, group: bytes) -> tuple[bytes, bytes, bytes]:
    """Return the keys of the order of a group: the hash, the messages of each lane, and the turns."""
    place = _place(stream, group)
    return ORDERED + place, LANES + place, TURNS + place


def _place(stream: bytes, group: bytes) -> bytes:
    name = group.replace(b"%", b"%25").replace(b":", b"%3A")
    return _tag(stream) + b"}" + stream + b":" + name


def partitions_key(name: bytes) -> bytes:
    """Return the key of the form of a partitioned stream."""
    return PARTITIONS + _tag(name) + b"}" + name


def partition_of_key(key: bytes) -> tuple[bytes, int, int] | None:
    """Return the partitioned stream, the epoch and the number of a key that has the form of a partition, else None.

    Other keys may have that form, too: then the partitioned stream does not exist.
    """
    found = _PARTITION.fullmatch(key)
    if found is None:
        return None
    return found[1].replace(b"%7B", b"{").replace(b"%25", b"%"), int(found[2]), int(found[3])


def consumers_key(name: bytes, group: bytes) -> bytes:
    """Return the key of the consumers of a group of a partitioned stream."""
    return CONSUMERS + _place(name, group)


@lru_cache(1024)
def owner_key(stream: bytes, group: bytes) -> bytes:
    """Return the key of the token with which a group reads one partition."""
    return OWNER + _place(stream, group)


def moved_key(stream: bytes) -> bytes:
    """Return the key that says how far the delayed entries of earlier partitions were moved to this one."""
    return MOVED + _tag(stream) + b"}" + stream


@lru_cache(1024)
def _tag(stream: bytes) -> bytes:
    """Return a text without "}" whose slot is the stream's (cluster.c, keyHashSlot)."""
    opening = stream.find(b"{")
    if opening >= 0:
        closing = stream.find(b"}", opening + 1)
        if closing > opening + 1:
            return stream[opening + 1 : closing]
    if stream and b"}" not in stream:
        return stream
    slot = crc_hqx(stream, 0) % _SLOTS
    return next(tag for tag in (b"%d" % number for number in count()) if crc_hqx(tag, 0) % _SLOTS == slot)

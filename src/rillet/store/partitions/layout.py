"""The form of a partitioned stream: its keys, the hash, and its description in the store.

**The partition** of an entry is the xxh3_64 (seed 0) of the bytes of its `by` field, modulo the number of partitions.
XXH3 has a published specification, and libraries in C, Java, Go, Rust, JavaScript and Python; each of them computes the
same number. Rejected: Python's `hash`, which differs in every process; Kafka's murmur2, of which Kafka has a variant
with a sign that other libraries lack; crc32, which distributes short decimal keys unevenly.

**The keys** are ordinary streams:

    orders:1:3:{5}      NAME:EPOCH:PARTITION:{TAG}

An epoch is the time between two changes of the number of partitions. The slots of a cluster have N equal parts for N
partitions. TAG is the smallest number whose slot is in the part of its partition, so the keys are on different nodes,
as evenly as the nodes share the slots. "{" and "%" in NAME are written as %7B and %25.

**The description** is a hash, `rillet:partitions:{TAG}NAME` (rillet.keyspace.helper_keys):

    by              the field
    hash            xxh3_64
    epoch           the epoch whose keys receive entries; 0 while the first keys are created
    partitions:1    the number of partitions of epoch 1, as long as its keys exist
    next            the number of partitions of the next epoch, while a change is under way
    group:billing   the epoch that the group `billing` reads
    deleted:1       the number of partitions of an epoch whose keys are being deleted
    retain          the words of RILLET.XRETAIN for each key, after PartitionedStream.retain

**Sealed keys.** The last ID of a stream whose epoch has ended is the highest possible one (XSETID). So each server
itself refuses every XADD to it, also one of a plain Redis client, and a writer needs no check of its own. A writer with
an old description gets the error, reads the description again, and adds the entry to the new epoch. It uses NOMKSTREAM,
so that it cannot create the key of an epoch again that was deleted. Rejected: a key beside each partition that a script
reads before each XADD, which doubles the cost of an entry, and which other clients ignore.
"""

from __future__ import annotations

import re
from binascii import crc_hqx
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import count
from typing import Any

from xxhash import xxh3_64_intdigest

from rillet.errors import CommandError, StoreError
from rillet.keyspace.helper_keys import partitions_key
from rillet.store.arguments.encoding import decode
from rillet.store.entry import pairs_in
from rillet.types.stream.id import MAX

HASH = b"xxh3_64"
MOST_PARTITIONS = 1024
SEALED = b"%d-%d" % (MAX, MAX)  # the last ID of a key whose epoch has ended
_SLOTS = 16384


@dataclass(frozen=True, slots=True)
class Layout:
    """What the store knows of a partitioned stream.

    epochs: the number of partitions of each epoch whose keys exist, the oldest first. groups: the epoch of each group.
    next: the number of partitions of the next epoch while a change is under way, else 0. deleted: as epochs, for those
    whose keys are being deleted. retain: the limits of each key, as RILLET.XRETAIN receives them.
    """

    name: bytes
    by: bytes
    epoch: int
    epochs: dict[int, int]
    next: int = 0
    groups: dict[bytes, int] = field(default_factory=dict)
    deleted: dict[int, int] = field(default_factory=dict)
    retain: tuple[bytes, ...] = ()

    @property
    def partitions(self) -> int:
        """The number of partitions that receive entries."""
        return self.epochs[self.epoch]

    def streams(self, epoch: int | None = None) -> tuple[bytes, ...]:
        """Return the keys of an epoch, by default of the one that receives entries."""
        epoch = self.epoch if epoch is None else epoch
        return keys_of(self.name, epoch, self.epochs[epoch])

    def all_keys(self) -> list[bytes]:
        """Return the keys of all epochs, the oldest first."""
        return [key for epoch in self.epochs for key in self.streams(epoch)]

    def key_for(self, value: bytes, epoch: int | None = None) -> bytes:
        """Return the key that receives an entry with that value of the field, or received it in an earlier epoch."""
        keys = self.streams(epoch)
        return keys[partition_of(value, len(keys))]


def description_key(name: bytes) -> bytes:
    """Return the key of the description of a partitioned stream; for the connector, which does not see the keyspace."""
    return partitions_key(name)


def epoch_of(name: bytes, key: bytes) -> int | None:
    """Return the epoch of a key of a partitioned stream; None for another key."""
    found = re.fullmatch(rb"%b:(\d+):\d+:\{\d+\}" % re.escape(_escaped(name)), key)
    return None if found is None else int(found[1])


def partition_of(value: bytes, partitions: int) -> int:
    """Return the partition of the entries with that value of the `by` field."""
    return xxh3_64_intdigest(value) % partitions


@lru_cache(256)
def keys_of(name: bytes, epoch: int, partitions: int) -> tuple[bytes, ...]:
    """Return the keys of the partitions of an epoch."""
    safe, places = _escaped(name), enumerate(_tags(partitions))
    return tuple(b"%b:%d:%d:{%d}" % (safe, epoch, partition, tag) for partition, tag in places)


def _escaped(name: bytes) -> bytes:
    return name.replace(b"%", b"%25").replace(b"{", b"%7B")


@lru_cache(64)
def _tags(partitions: int) -> tuple[int, ...]:
    """Return for each part of the slots the smallest number whose slot is in it. O(n log n)"""
    found: dict[int, int] = {}
    for number in count():
        found.setdefault(crc_hqx(b"%d" % number, 0) % _SLOTS * partitions // _SLOTS, number)
        if len(found) == partitions:
            return tuple(found[part] for part in range(partitions))
    raise AssertionError


def layout_of(name: bytes, reply: Any) -> Layout | None:
    """Return the description in a reply of HGETALL (RESP2: one list, RESP3: a map); None if there is none."""
    pairs = dict(pairs_in(reply))
    if not pairs:
        return None
    if pairs.get(b"hash") != HASH:
        raise StoreError(
            f"{decode(partitions_key(name))!r} has the hash {decode(pairs.get(b'hash', b''))!r}, not "
            f"{HASH.decode()!r}: it was written by another version of rillet, or is the key of something else"
        )
    epochs, deleted = (
        {int(key[len(kind) :]): int(number) for key, number in pairs.items() if key.startswith(kind)}
        for kind in (b"partitions:", b"deleted:")
    )
    groups = {key[6:]: int(epoch) for key, epoch in pairs.items() if key.startswith(b"group:")}
    return Layout(name, pairs[b"by"], int(pairs[b"epoch"]), dict(sorted(epochs.items())),
                  int(pairs.get(b"next", 0)), groups, deleted, tuple(pairs.get(b"retain", b"").split()))  # fmt: skip


def is_sealed(error: object) -> bool:
    """Return whether an error of XADD says that the key accepts no entry any more."""
    return isinstance(error, CommandError) and "exhausted the last possible ID" in str(error)

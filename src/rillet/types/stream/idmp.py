"""Idempotent producers: for each producer, the messages that a stream has already received (Redis 8.6, IDMP).

A producer that does not know whether its XADD succeeded sends it again with the same producer ID (`pid`) and message ID
(`iid`). For each producer the stream stores the entries of its last messages:

    Producers ── pid ──► Producer ── ids ────► {iid: ID of the entry}
              ── pid ──► Producer      order ► iid, iid, ... oldest first

An iid expires `duration` seconds after the time in its entry's ID, or when the producer has `max_entries` newer ones.
So the memory of a stream is bounded by the number of producers that were active within `duration`, times `max_entries`.
An entry's ID is stored as one number of 128 bits, ms << 64 | seq.

With IDMPAUTO the iid is a hash of the message: XXH3-128 of each pair of name and value, combined so that the order of
the pairs does not matter. It has the same bytes as in Redis, because DUMP contains it:

    hash of a pair   XXH3-128(name, its length in 8 bytes little endian, value)
    low 64 bits      (sum of the pairs' low halves)  ^ rotate left by 1(xor of the pairs' high halves)
    high 64 bits     (sum of the pairs' high halves) ^ rotate left by 1(xor of the pairs' low halves)
    iid              low half, high half: 8 bytes each, little endian

Intended differences from Redis: an expired iid is never found (in Redis a message remains a duplicate until the next
cron, up to a second later); and the log is replayed differently (rillet.commands.stream.idmp).

Copied from Redis: looking up a producer creates it, even if the XADD then fails. Only the oldest iids are checked for
expiry, so an old iid that was recorded late (XIDMPRECORD) stays as long as the iids before it. If an RDB file contains
more than `max_entries` iids, all stay, and each addition removes one.

Costs: O(1) each; `expire` O(producers + expired iids). Rejected: one ordered dict per producer, because finding its
first key skips all deleted ones (Python's dict) or costs 60 bytes more per entry (OrderedDict).
"""

from __future__ import annotations

from collections import deque
from itertools import dropwhile

DURATION = 100
"""The default number of seconds until an iid expires."""
MAX_ENTRIES = 100
"""The default number of iids that are stored per producer."""
DURATION_RANGE = (1, 86400)
MAX_ENTRIES_RANGE = (1, 10000)

_U64 = (1 << 64) - 1
_SWEEP = 64


def idempotency_hash(argv: list[bytes], start: int) -> bytes:
    """Return the iid of the message whose names and values are argv[start:] (createIdempotencyHash). O(bytes)"""
    from xxhash import xxh3_128_intdigest  # imported here because few producers use IDMPAUTO

    sum_low = sum_high = xor_low = xor_high = 0
    for at in range(start, len(argv) - 1, 2):
        name = argv[at]
        pair = xxh3_128_intdigest(b"".join((name, len(name).to_bytes(8, "little"), argv[at + 1])))
        low, high = pair & _U64, pair >> 64
        sum_low += low
        sum_high += high
        xor_low ^= low
        xor_high ^= high
    low = (sum_low & _U64) ^ _rotate_left(xor_high)
    high = (sum_high & _U64) ^ _rotate_left(xor_low)
    return (high << 64 | low).to_bytes(16, "little")


def _rotate_left(value: int) -> int:
    return (value << 1 | value >> 63) & _U64


class Producer:
    """The stored messages of one producer: the entry ID (ms << 64 | seq) of each iid, and the iids, oldest first.

    iid_bytes: the sum of the lengths of the iids.
    """

    __slots__ = ("ids", "iid_bytes", "order")

    def __init__(self) -> None:
        self.ids: dict[bytes, int] = {}
        self.order: deque[bytes] = deque()
        self.iid_bytes = 0

    def expire(self, limit: int) -> bool:
        """Remove the oldest iids, whose entry IDs have a time of at most `limit` ms. Return whether there were any."""
        removed = False
        while self.order and self.ids[self.order[0]] >> 64 <= limit:
            self.drop_oldest()
            removed = True
        return removed

    def drop_oldest(self) -> None:
        """Remove the oldest message."""
        iid = self.order.popleft()
        del self.ids[iid]
        self.iid_bytes -= len(iid)

    def remove(self, iid: bytes) -> None:
        """Remove a message by its iid. O(iids)"""
        self.order.remove(iid)
        del self.ids[iid]
        self.iid_bytes -= len(iid)

    def load(self, iid: bytes, ms: int, seq: int) -> bool:
        """Add a message as the newest, without applying max_entries. Return False if the iid exists."""
        if iid in self.ids:
            return False
        self.ids[iid] = ms << 64 | seq
        self.order.append(iid)
        self.iid_bytes += len(iid)
        return True


class Producers:
    """All producers of a stream: two limits, two counters, and a Producer for each pid."""

    __slots__ = ("duration", "max_entries", "producers", "added", "duplicates", "_sweep_at")

    def __init__(self, duration: int = DURATION, max_entries: int = MAX_ENTRIES) -> None:
        self.duration = duration
        self.max_entries = max_entries
        self.producers: dict[bytes, Producer] = {}
        self.added = 0
        self.duplicates = 0
        self._sweep_at = _SWEEP

    @property
    def is_default(self) -> bool:
        """Whether there is no producer and all limits and counters have their initial values."""
        limits = self.duration == DURATION and self.max_entries == MAX_ENTRIES
        return limits and not self.producers and not self.added and not self.duplicates

    def find(self, pid: bytes, iid: bytes, now: int) -> int:
        """Return the ID (ms << 64 | seq) of a message's entry, or -1. Create the producer if it does not exist.

        now: ms since the epoch. Iids that expired before are not found; 0 = nothing expires.
        """
        producer = self.producers.get(pid)
        if producer is None:
            self._make(pid, now)
            return -1
        producer.expire(self._limit(now))
        return producer.ids.get(iid, -1)

    def _make(self, pid: bytes, now: int) -> None:
        """Create a producer. If their number doubled, remove expired ones: an embedded database has no cron."""
        if len(self.producers) >= self._sweep_at:
            self.expire(now)
            self._sweep_at = max(_SWEEP, 2 * len(self.producers))
        self.producers[pid] = Producer()

    def add(self, pid: bytes, iid: bytes, ms: int, seq: int) -> None:
        """Store the entry of a message. Remove the producer's oldest message if it has more than max_entries."""
        producer = self.producers.get(pid)
        if producer is None:
            producer = self.producers[pid] = Producer()
        if iid in producer.ids:  # only in a replay: the stored iid had expired when the XADD was executed
            producer.remove(iid)
        producer.load(iid, ms, seq)
        self.added = self.added + 1 & _U64
        if len(producer.ids) > self.max_entries:
            producer.drop_oldest()

    def expire(self, now: int, empty: bool = True) -> bool:
        """Remove iids that have expired by `now` (ms), and producers without iids. Return whether any was removed.

        Unless `empty`, a producer without iids stays if none of its iids expired in this call. O(producers + iids).
        Redis: handleExpiredIdmpEntries.
        """
        limit = self._limit(now)
        any_removed = False
        for pid, producer in list(self.producers.items()):
            removed = producer.expire(limit)
            if not producer.order and (removed or empty):
                del self.producers[pid]
                removed = True
            any_removed = any_removed or removed
        return any_removed

    def unexpired(self, pid: bytes, now: int) -> list[tuple[bytes, int]]:
        """Return (iid, ID) for a producer's messages, from the oldest that has not expired by `now` (ms) on. O(iids)"""
        limit = self._limit(now)
        producer = self.producers[pid]
        messages = [(iid, producer.ids[iid]) for iid in producer.order]
        return list(dropwhile(lambda message: message[1] >> 64 <= limit, messages))

    def is_expired(self, ms: int, now: int) -> bool:
        """Return whether the iid of an entry whose ID has the time `ms` has expired at the time `now`."""
        return ms <= self._limit(now)

    def _limit(self, now: int) -> int:
        return now - self.duration * 1000 if now else -1

    def configure(self, duration: int, max_entries: int) -> bool:
        """Set the limits (XCFGSET). If one changes, remove all producers and return True."""
        if (duration, max_entries) == (self.duration, self.max_entries):
            return False
        self.duration = duration
        self.max_entries = max_entries
        self.producers.clear()
        return True

    def tracked(self) -> int:
        """Return the number of iids of all producers. O(producers)"""
        return sum(len(producer.ids) for producer in self.producers.values())

    def copy(self) -> Producers:
        """Return a deep copy. O(iids)"""
        twin = Producers(self.duration, self.max_entries)
        twin.added, twin.duplicates = self.added, self.duplicates
        for pid, producer in self.producers.items():
            twin.producers[pid] = own = Producer()
            own.ids = producer.ids.copy()
            own.order = producer.order.copy()
            own.iid_bytes = producer.iid_bytes
        return twin

    def memory_usage(self) -> int:
        """Return an estimate of the bytes in memory. O(iids)"""
        total = 200
        for pid, producer in self.producers.items():
            total += 400 + len(pid) + sum(200 + len(iid) for iid in producer.ids)
        return total

    def check(self) -> None:
        """Raise AssertionError with the first broken invariant. O(iids)"""
        for pid, producer in self.producers.items():
            if len(producer.order) != len(producer.ids) or set(producer.order) != set(producer.ids):
                raise AssertionError(f"producer {pid!r} has each iid once, in order")
            if producer.iid_bytes != sum(map(len, producer.ids)):
                raise AssertionError(f"producer {pid!r} knows the bytes of its iids")
            if any(not 0 <= entry < 1 << 128 for entry in producer.ids.values()):
                raise AssertionError(f"the entry IDs of producer {pid!r} have 128 bits")
        limits = (self.duration, *DURATION_RANGE), (self.max_entries, *MAX_ENTRIES_RANGE)
        if not all(low <= value <= high for value, low, high in limits):
            raise AssertionError("the limits of producers are within their range")

"""Idempotent producers: which message of which producer a stream has already (Redis 8.6: t_stream.c, IDMP).

A producer that is not sure whether its XADD arrived sends it again, with the same two names: its own
(`pid`) and the message's (`iid`). The stream keeps, for each producer, the entry that each of its last messages became:

    Producers ── pid ──► Producer ── ids ────► {iid: ID of the entry}
              ── pid ──► Producer      order ► iid, iid, ... oldest first

An iid is forgotten `duration` seconds after its entry's ID says it was added, or when the producer has more
than `max_entries` younger ones. So a stream's share of memory is bounded by producers that were active
within `duration`, times `max_entries`; the entry's ID is one number of 128 bits, ms above seq.

With IDMPAUTO the iid is a hash of the message: XXH3-128 of each pair of name and value, the pairs' hashes
combined so that their order does not matter. It is stored as Redis stores it (a DUMP carries it):

    hash of a pair   XXH3-128(name, its length in 8 bytes little endian, value)
    low 64 bits      (sum of the pairs' low halves)  ^ rotate left by 1(xor of the pairs' high halves)
    high 64 bits     (sum of the pairs' high halves) ^ rotate left by 1(xor of the pairs' low halves)
    iid              low half, high half: 8 bytes each, little endian

Differences to Redis, on purpose: an iid whose time has come is not met again (there a message is a duplicate until
the cron has passed, up to a second later); and how the log is replayed (rillet.commands.stream.idmp).

Copied from Redis: a producer that was asked for exists, even if its XADD then failed; only the oldest iids are looked
at for expiry, so that one recorded late (XIDMPRECORD) holds those behind it; what an RDB file holds beyond
`max_entries` stays, each addition dropping one.

Costs: O(1) each; `expire` O(producers + what goes). Rejected: one ordered dict per producer, whose first key costs a
walk over all that were deleted before it (Python's dict) or 60 bytes an entry more (OrderedDict).
"""

from __future__ import annotations

from collections import deque
from itertools import dropwhile

DURATION = 100
"""Seconds that an iid is remembered, unless the settings or XCFGSET say otherwise."""
MAX_ENTRIES = 100
"""How many iids of a producer are remembered, unless the settings or XCFGSET say otherwise."""
DURATION_RANGE = (1, 86400)
MAX_ENTRIES_RANGE = (1, 10000)

_U64 = (1 << 64) - 1
_SWEEP = 64


def idempotency_hash(argv: list[bytes], start: int) -> bytes:
    """Return the iid of the message whose names and values are argv[start:] (createIdempotencyHash). O(bytes)"""
    from xxhash import xxh3_128_intdigest  # at its first use: few producers use IDMPAUTO

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
    """One producer's remembered messages: the ID (ms << 64 | seq) of each iid, and the iids, oldest first."""

    __slots__ = ("ids", "order")

    def __init__(self) -> None:
        self.ids: dict[bytes, int] = {}
        self.order: deque[bytes] = deque()

    def expire(self, limit: int) -> bool:
        """Forget the oldest iids whose entries have IDs of `limit` ms or less; True where any went."""
        went = False
        while self.order and self.ids[self.order[0]] >> 64 <= limit:
            del self.ids[self.order.popleft()]
            went = True
        return went

    def load(self, iid: bytes, ms: int, seq: int) -> bool:
        """Remember a message as the newest; False where the iid is there already. Nothing is evicted."""
        if iid in self.ids:
            return False
        self.ids[iid] = ms << 64 | seq
        self.order.append(iid)
        return True


class Producers:
    """What a stream knows of its producers: two limits, two counters, and a Producer for each pid."""

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
        """Whether nothing was ever set, recorded or counted: as good as no Producers at all."""
        limits = self.duration == DURATION and self.max_entries == MAX_ENTRIES
        return limits and not self.producers and not self.added and not self.duplicates

    def find(self, pid: bytes, iid: bytes, now: int) -> int:
        """Return the ID (ms << 64 | seq) of the entry that the message became, or -1; the producer is made.

        now: ms since the epoch; what expired until then is not met. A now of 0 lets nothing expire.
        """
        producer = self.producers.get(pid)
        if producer is None:
            self._make(pid, now)
            return -1
        producer.expire(self._limit(now))
        return producer.ids.get(iid, -1)

    def _make(self, pid: bytes, now: int) -> None:
        """Add a producer; whoever has no cron is rid of those that fell silent whenever their number has doubled."""
        if len(self.producers) >= self._sweep_at:
            self.expire(now)
            self._sweep_at = max(_SWEEP, 2 * len(self.producers))
        self.producers[pid] = Producer()

    def add(self, pid: bytes, iid: bytes, ms: int, seq: int) -> None:
        """Remember that a message became the entry; the producer's oldest one is dropped if it has too many."""
        producer = self.producers.get(pid)
        if producer is None:
            producer = self.producers[pid] = Producer()
        if iid in producer.ids:  # a log is replayed: in its own time the older record had expired
            producer.order.remove(iid)
            del producer.ids[iid]
        producer.load(iid, ms, seq)
        self.added = self.added + 1 & _U64
        if len(producer.ids) > self.max_entries:
            del producer.ids[producer.order.popleft()]

    def expire(self, now: int, empty: bool = True) -> bool:
        """Forget what expired until now (ms), and producers that have nothing left; True where any went.

        Without `empty`, a producer that had nothing stays. O(producers + what goes). Redis: handleExpiredIdmpEntries.
        """
        limit = self._limit(now)
        any_went = False
        for pid, producer in list(self.producers.items()):
            went = producer.expire(limit)
            if not producer.order and (went or empty):
                del self.producers[pid]
                went = True
            any_went = any_went or went
        return any_went

    def unexpired(self, pid: bytes, now: int) -> list[tuple[bytes, int]]:
        """Return a producer's (iid, ID) from the oldest that has not expired on, in order. O(iids)"""
        limit = self._limit(now)
        producer = self.producers[pid]
        messages = [(iid, producer.ids[iid]) for iid in producer.order]
        return list(dropwhile(lambda message: message[1] >> 64 <= limit, messages))

    def is_expired(self, ms: int, now: int) -> bool:
        """Whether an entry whose ID has that ms is forgotten by now."""
        return ms <= self._limit(now)

    def _limit(self, now: int) -> int:
        return now - self.duration * 1000 if now else -1

    def configure(self, duration: int, max_entries: int) -> bool:
        """Set the limits; where one changes, everything is forgotten, and True returned (XCFGSET)."""
        if (duration, max_entries) == (self.duration, self.max_entries):
            return False
        self.duration = duration
        self.max_entries = max_entries
        self.producers.clear()
        return True

    def tracked(self) -> int:
        """Return how many iids are remembered in all. O(producers)"""
        return sum(len(producer.ids) for producer in self.producers.values())

    def copy(self) -> Producers:
        """Return a copy that shares nothing which can change. O(iids)"""
        twin = Producers(self.duration, self.max_entries)
        twin.added, twin.duplicates = self.added, self.duplicates
        for pid, producer in self.producers.items():
            twin.producers[pid] = own = Producer()
            own.ids = producer.ids.copy()
            own.order = producer.order.copy()
        return twin

    def memory_usage(self) -> int:
        """Return an estimate of the bytes in memory. O(iids)"""
        total = 200
        for pid, producer in self.producers.items():
            total += 400 + len(pid) + sum(200 + len(iid) for iid in producer.ids)
        return total

    def check(self) -> None:
        """Verify the invariants; AssertionError names the broken one. O(iids)"""
        for pid, producer in self.producers.items():
            if len(producer.order) != len(producer.ids) or set(producer.order) != set(producer.ids):
                raise AssertionError(f"producer {pid!r} has each iid once, in order")
            if any(not 0 <= entry < 1 << 128 for entry in producer.ids.values()):
                raise AssertionError(f"producer {pid!r} remembers IDs")
        limits = (self.duration, *DURATION_RANGE), (self.max_entries, *MAX_ENTRIES_RANGE)
        if not all(low <= value <= high for value, low, high in limits):
            raise AssertionError("the limits of producers are within their range")

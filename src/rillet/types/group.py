"""Consumer groups: who was given which entry, and what is still unacknowledged.

    Group ── pel ─────────────► Rax   16-byte ID ──► PendingEntry ◄─┐
      │                                                 │ consumer  │ the same objects
      └── consumers ──► Consumer ── pel ──► Rax  16-byte ID ────────┘
                           ▲                            │
                           └────────────────────────────┘

A delivered entry has one `PendingEntry` (Redis calls it a NACK), and two trees lead to it: the
group's, which has all of them, and that of the consumer that owns it. So acknowledging by ID finds the owner,
and a consumer's own history is a walk of its own tree; neither ever searches the other.

Invariants (`check`): each pending entry of the group is in exactly one consumer's tree, under the
same ID, and is the same object in both; it names that consumer; no consumer has one that the group
has not. While an RDB file is read, entries lie in the group without an owner (`load_pending`) until their
consumers come (`assign_pending`); `orphans` tells whether any were left over.

A pending entry refers to its consumer, whose tree refers to the entry. The trees are invisible to
the garbage collector, by choice: a million pending entries must cost a collection nothing. So the
ring is broken by hand, in `clear`, when a consumer is deleted and when a group is freed.

Costs: every operation on one pending entry is O(1) tree walks of 16 bytes; deleting a consumer is
O(its pending entries). Consumers are in a dict, and listed in the byte order of their names, which is the
order of Redis's tree. Rejected: one dict of pending entries, because XPENDING, XAUTOCLAIM and the
history of XREADGROUP all start at an ID and go on in order.
"""

from __future__ import annotations

try:
    import cython
except ModuleNotFoundError:  # interpreted, Cython not installed
    from rillet import _cython as cython

from rillet.structs.rax import NOT_FOUND, Rax
from rillet.types.group_check import check_group

ENTRIES_READ_UNKNOWN = -1
"""`Group.entries_read` where no count is known (SCG_INVALID_ENTRIES_READ)."""

_NOT_FOUND = cython.declare(object, NOT_FOUND)
_MASK = cython.declare(cython.ulonglong, 0xFFFF_FFFF_FFFF_FFFF)


@cython.final
@cython.cclass
class Consumer:
    """One consumer: its name, when it was last seen (ms), and what it has not acknowledged. Redis: streamConsumer."""

    __slots__ = ("name", "pel", "seen_time")
    name: bytes
    seen_time: cython.longlong
    pel: Rax

    def __init__(self, name: bytes, seen_time: cython.longlong) -> None:
        self.name = name
        self.seen_time = seen_time
        self.pel = Rax()


@cython.final
@cython.no_gc
@cython.cclass
class PendingEntry:
    """An entry that was delivered and not acknowledged: when (ms), how often, to whom. Redis: streamNACK."""

    __slots__ = ("consumer", "delivery_count", "delivery_time")
    delivery_time: cython.longlong
    delivery_count: cython.ulonglong
    consumer: Consumer | None

    def __init__(
        self, delivery_time: cython.longlong, delivery_count: cython.ulonglong, consumer: Consumer | None
    ) -> None:
        self.delivery_time = delivery_time
        self.delivery_count = delivery_count
        self.consumer = consumer

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def redelivered(self, now: cython.longlong) -> cython.bint:
        """Count one more delivery, made now."""
        self.delivery_time = now
        self.delivery_count = (self.delivery_count + 1) & _MASK
        return True


@cython.final
@cython.cclass
class Group:
    """A consumer group of a stream. Redis: streamCG."""

    __slots__ = ("consumers", "entries_read", "last_ms", "last_seq", "name", "pel")
    name: bytes
    last_ms: cython.ulonglong
    last_seq: cython.ulonglong
    entries_read: cython.longlong
    pel: Rax
    consumers: dict[bytes, Consumer]

    def __init__(
        self, name: bytes, last_ms: cython.ulonglong, last_seq: cython.ulonglong, entries_read: cython.longlong
    ) -> None:
        self.name = name
        self.last_ms = last_ms
        self.last_seq = last_seq
        self.entries_read = entries_read
        self.pel = Rax()
        self.consumers = {}

    def __del__(self) -> None:
        self.clear()

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def clear(self) -> cython.bint:
        """Forget all consumers and pending entries, breaking their rings. O(pending entries)."""
        consumer: Consumer
        for consumer in self.consumers.values():
            consumer.pel.clear()
        self.consumers.clear()
        return self.pel.clear()

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def set_id(self, ms: cython.ulonglong, seq: cython.ulonglong, entries_read: cython.longlong) -> cython.bint:
        """Make this the last delivered ID (XGROUP SETID)."""
        self.last_ms = ms
        self.last_seq = seq
        self.entries_read = entries_read
        return True

    # -- consumers

    @cython.ccall
    def find_consumer(self, name: bytes) -> Consumer:
        """Return the consumer, or None. Redis: streamLookupConsumer, which also sets seen_time: the caller's part."""
        return self.consumers.get(name)  # type: ignore[return-value]

    @cython.ccall
    def create_consumer(self, name: bytes, now: cython.longlong) -> Consumer:
        """Return a new consumer, seen now (ms), or None when the name is taken. Redis: streamCreateConsumer."""
        if name in self.consumers:
            return None  # type: ignore[return-value]
        consumer: Consumer = Consumer(name, now)
        self.consumers[name] = consumer
        return consumer

    @cython.ccall
    def delete_consumer(self, name: bytes) -> cython.Py_ssize_t:
        """Delete a consumer with its pending entries; return how many those were, -1 without such a consumer.

        O(its pending entries). Redis: streamDelConsumer.
        """
        consumer: Consumer | None = self.consumers.pop(name, None)
        pending: cython.Py_ssize_t
        if consumer is None:
            return -1
        pending = consumer.pel.numele
        for key, _ in consumer.pel.items():
            self.pel.remove(key)
        consumer.pel.clear()
        return pending

    def sorted_consumers(self) -> list[Consumer]:
        """Return the consumers in the byte order of their names, as Redis lists and saves them."""
        return [self.consumers[name] for name in sorted(self.consumers)]

    # -- pending entries

    @cython.ccall
    def find_pending(self, key: bytes) -> PendingEntry:
        """Return the pending entry of the 16-byte ID, or None."""
        found: object = self.pel.find(key)
        if found is _NOT_FOUND:
            return None  # type: ignore[return-value]
        return cython.cast(PendingEntry, found)

    @cython.ccall
    def add_pending(self, key: bytes, consumer: Consumer, now: cython.longlong) -> PendingEntry:
        """Note a first delivery, made now (ms), to the consumer; an entry pending elsewhere moves to it.

        That happens after XGROUP SETID to an earlier ID. Redis: streamReplyWithRange.
        """
        entry: PendingEntry = PendingEntry(now, 1, consumer)
        if self.pel.try_insert(key, entry):
            consumer.pel.insert(key, entry)
            return entry
        entry = self.pel.find(key)
        if entry.consumer is not None:
            entry.consumer.pel.remove(key)
        entry.consumer = consumer
        entry.delivery_time = now
        entry.delivery_count = 1
        consumer.pel.insert(key, entry)
        return entry

    @cython.ccall
    def force_pending(self, key: bytes, now: cython.longlong) -> PendingEntry:
        """Return a new pending entry without an owner; the caller must `transfer` it (XCLAIM with FORCE)."""
        entry: PendingEntry = PendingEntry(now, 1, None)
        self.pel.insert(key, entry)
        return entry

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def transfer(self, key: bytes, entry: PendingEntry, consumer: Consumer) -> cython.bint:
        """Make the consumer the owner; False where it is already. Times and counts stay. Redis: xclaimCommand."""
        if entry.consumer is consumer:
            return False
        if entry.consumer is not None:
            entry.consumer.pel.remove(key)
        consumer.pel.insert(key, entry)
        entry.consumer = consumer
        return True

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def acknowledge(self, key: bytes) -> cython.bint:
        """Forget a pending entry, in the group and at its owner; False when there is none. Redis: xackCommand."""
        found: object = self.pel.find(key)
        if found is _NOT_FOUND:
            return False
        entry: PendingEntry = cython.cast(PendingEntry, found)
        self.pel.remove(key)
        if entry.consumer is not None:
            entry.consumer.pel.remove(key)
        return True

    # -- loading

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def load_pending(self, key: bytes, delivery_time: cython.longlong, delivery_count: cython.ulonglong) -> cython.bint:
        """Add a pending entry that has no owner yet; False when the ID is there already (RDB: rdbLoadObject)."""
        return self.pel.try_insert(key, PendingEntry(delivery_time, delivery_count, None))

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def assign_pending(self, key: bytes, consumer: Consumer) -> cython.bint:
        """Give a loaded pending entry its owner; False when it is not in the group or has one (RDB: rdbLoadObject)."""
        entry: PendingEntry | None = self.find_pending(key)
        if entry is None or entry.consumer is not None:
            return False
        entry.consumer = consumer
        return consumer.pel.insert(key, entry)

    def orphans(self) -> int:
        """Return how many pending entries have no owner: none, once loading is over. O(consumers)."""
        owned = 0
        for consumer in self.consumers.values():
            owned += consumer.pel.numele
        return self.pel.numele - owned

    def check(self) -> None:
        """Verify every invariant of the module's essay, O(pending entries); AssertionError names the broken one."""
        check_group(self)

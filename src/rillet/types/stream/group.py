"""Consumer groups: which consumer received which entry, and which entries are not acknowledged yet.

    Group ── index ────────────► slots by ID        every entry that is pending in the group
      │ ──── order ────────────► slots by time      the same, released ones (XNACK) first
      └───── consumers ──► Consumer ── index ──► slots by ID    the entries pending with that consumer

A slot is the number of a pending entry's record in the stream's table (`pending` shows the record). The record has the
number of its owner, so that acknowledging by ID finds the consumer. The history of a consumer is an iteration over the
consumer's index. A released entry (XNACK) belongs to the group's `nobody`, an unlisted consumer without a name, whose
index stays empty.

Invariants (`check`): each slot of the group's index is in the index of its owner, and in no other consumer's, or
belongs to `nobody`; the order by time has the same slots as the index, and its released slots are those of `nobody`.
While an RDB file is loaded, slots have no owner and no place in the order (`load`) until their consumers are read
(`assign`) and `settle` sorts them; `orphans` counts the slots that still have no owner.

Costs: an operation on one pending entry is a few searches of O(log n), O(1) if acknowledging follows the order of
delivery; deleting a consumer is O(its pending entries). Consumers are in a dict, and listed in the byte order of their
names, as in Redis's radix tree. Rejected: a dict of pending entries, because XPENDING, XAUTOCLAIM and the history of
XREADGROUP all start at an ID and continue in order.
"""

from __future__ import annotations

from typing import Any

from rillet._cython import cython, public, readonly
from rillet.types.stream.group_check import check_group
from rillet.types.stream.iterator import NodePlace
from rillet.types.stream.pending import PendingIndex, PendingIterator, PendingTable
from rillet.types.stream.time_order import TimeOrder

__all__ = ["ENTRIES_READ_UNKNOWN", "Consumer", "Group", "PendingIndex", "PendingIterator", "PendingTable"]

ENTRIES_READ_UNKNOWN = -1
"""`Group.entries_read` if the count is unknown (SCG_INVALID_ENTRIES_READ)."""
MAX_DELIVERIES = (1 << 63) - 1
"""The highest possible delivery count since Redis 8.4. XNACK FATAL sets it."""

_MASK = cython.declare(cython.ulonglong, 0xFFFF_FFFF_FFFF_FFFF)
_MAX_DELIVERIES = cython.declare(cython.ulonglong, 0x7FFF_FFFF_FFFF_FFFF)


@cython.final
@cython.no_gc
@cython.cclass
class Consumer:
    """One consumer: its name, the times at which it was last seen and active (ms; -1 = never), its pending entries.

    The records of pending entries refer to the consumer by `number`. Redis: streamConsumer.
    """

    __slots__ = ("active_time", "group_name", "index", "name", "number", "seen_time")
    name: readonly[bytes]
    group_name: readonly[bytes]
    seen_time: public[cython.longlong]
    active_time: public[cython.longlong]
    number: readonly[cython.Py_ssize_t]
    index: readonly[PendingIndex]

    def __init__(self, name: bytes, group_name: bytes, seen_time: cython.longlong) -> None:
        self.name = name
        self.group_name = group_name
        self.seen_time = seen_time
        self.active_time = -1
        self.number = -1
        self.index = PendingIndex()

    @property
    def pending_count(self) -> int:
        """The number of entries pending with the consumer."""
        return self.index.count


@cython.final
@cython.cclass
class Group:
    """A consumer group of a stream; it shares the stream's `table`. Redis: streamCG."""

    __slots__ = (
        "consumers", "entries_read", "index", "last_ms", "last_seq", "name", "nobody", "order", "place", "table",
    )  # fmt: skip
    name: readonly[bytes]
    last_ms: public[cython.ulonglong]
    last_seq: public[cython.ulonglong]
    entries_read: public[cython.longlong]
    table: readonly[PendingTable]
    index: readonly[PendingIndex]
    order: readonly[TimeOrder]
    consumers: readonly[dict[bytes, Consumer]]
    nobody: readonly[Consumer]
    place: readonly[NodePlace | None]  # of the last delivered entry, so that the next delivery need not search it

    def __init__(
        self,
        name: bytes,
        last_ms: cython.ulonglong,
        last_seq: cython.ulonglong,
        entries_read: cython.longlong,
        table: PendingTable | None = None,
    ) -> None:
        self.name = name
        self.last_ms = last_ms
        self.last_seq = last_seq
        self.entries_read = entries_read
        self.table = PendingTable() if table is None else table
        self.index = PendingIndex()
        self.order = TimeOrder()
        self.consumers = {}
        self.place = None
        self.nobody = Consumer(b"", name, 0)
        self.nobody.number = self.table.add_owner(self.nobody)

    @property
    def pending_count(self) -> int:
        """The number of entries pending in the group."""
        return self.index.count

    @property
    def nacked_count(self) -> int:
        """The number of pending entries that were released (XNACK) and not delivered since."""
        return self.order.released

    @cython.ccall
    def clear(self) -> cython.bint:
        """Remove all consumers and pending entries, also from the stream's table. O(pending entries)."""
        consumer: Consumer
        pending: PendingIterator = PendingIterator(self.table, self.index)
        while pending.next():
            self.table.release(pending.slot)
        self.index.clear()
        self.order.clear()
        for consumer in self.consumers.values():
            self.table.remove_owner(consumer.number)
        self.table.remove_owner(self.nobody.number)
        self.consumers.clear()
        return True

    @cython.ccall
    def set_id(self, ms: cython.ulonglong, seq: cython.ulonglong, entries_read: cython.longlong) -> cython.bint:
        """Set the group's last delivered ID and entries-read (XGROUP SETID)."""
        self.last_ms = ms
        self.last_seq = seq
        self.entries_read = entries_read
        return True

    # -- consumers

    @cython.ccall
    def find_consumer(self, name: bytes) -> Consumer:
        """Return the consumer with a name, or None. Redis: streamLookupConsumer; here the caller sets seen_time."""
        return self.consumers.get(name)  # type: ignore[return-value]

    @cython.ccall
    def create_consumer(self, name: bytes, now: cython.longlong) -> Consumer:
        """Create a consumer, seen at `now` (ms) and never active; return None if a consumer has the name.

        Redis: streamCreateConsumer.
        """
        if name in self.consumers:
            return None  # type: ignore[return-value]
        consumer: Consumer = Consumer(name, self.name, now)
        consumer.number = self.table.add_owner(consumer)
        self.consumers[name] = consumer
        return consumer

    @cython.ccall
    @cython.exceptval(-2, check=False)
    def delete_consumer(self, name: bytes) -> cython.Py_ssize_t:
        """Delete a consumer. Return the number of its pending entries, or -1 if the consumer does not exist.

        O(its pending entries). Redis: streamDelConsumer.
        """
        consumer: Consumer | None = self.consumers.pop(name, None)
        if consumer is None:
            return -1
        deleted: cython.Py_ssize_t = consumer.index.count
        pending: PendingIterator = PendingIterator(self.table, consumer.index)
        while pending.next():
            self.index.remove(self.table, pending.slot)
            self.order.remove(self.table, pending.slot, False)
            self.table.release(pending.slot)
        consumer.index.clear()
        self.table.remove_owner(consumer.number)
        return deleted

    def sorted_consumers(self) -> list[Consumer]:
        """Return the consumers in the byte order of their names, the order in which Redis lists and saves them."""
        return [self.consumers[name] for name in sorted(self.consumers)]

    # -- pending entries

    @cython.cfunc
    def _owner(self, slot: cython.Py_ssize_t) -> Consumer:
        return cython.cast(Consumer, self.table.owners[self.table.owner_number(slot)])

    @cython.ccall
    @cython.exceptval(-2, check=False)
    def find(self, ms: cython.ulonglong, seq: cython.ulonglong) -> cython.Py_ssize_t:
        """Return the slot of a pending entry, or -1 if the entry is not pending in the group."""
        return self.index.find(self.table, ms, seq)

    @cython.cfunc
    def _new(
        self,
        ms: cython.ulonglong,
        seq: cython.ulonglong,
        time: cython.longlong,
        count: cython.ulonglong,
        consumer: Consumer,
    ) -> cython.Py_ssize_t:
        """Create a pending entry of a consumer: add its slot to the indexes of the group and of the consumer."""
        slot: cython.Py_ssize_t = self.table.new(ms, seq, time, count, consumer.number)
        self.index.insert(self.table, slot, ms, seq)
        if consumer is not self.nobody:
            consumer.index.insert(self.table, slot, ms, seq)
        return slot

    @cython.ccall
    def deliver(
        self, ms: cython.ulonglong, seq: cython.ulonglong, consumer: Consumer, now: cython.longlong
    ) -> cython.Py_ssize_t:
        """Record the first delivery of an entry to a consumer, now (ms); return its slot. Redis: streamReplyWithRange.

        After XGROUP SETID to an earlier ID the entry may already be pending: then it moves to the consumer.
        """
        slot: cython.Py_ssize_t = self.index.edge(False)
        if slot >= 0 and self.table.compare(slot, ms, seq) >= 0:
            slot = self.index.find(self.table, ms, seq)
            if slot >= 0:
                self.transfer(slot, consumer)
                self.set_delivery(slot, now, 1)
                return slot
        return self.force(ms, seq, consumer, now)

    @cython.ccall
    def force(
        self, ms: cython.ulonglong, seq: cython.ulonglong, consumer: Consumer, now: cython.longlong
    ) -> cython.Py_ssize_t:
        """Create a pending entry with a delivery count of 1 and return its slot (XCLAIM with FORCE)."""
        slot: cython.Py_ssize_t = self._new(ms, seq, now, 1, consumer)
        self.order.append(self.table, slot)
        return slot

    @cython.ccall
    def transfer(self, slot: cython.Py_ssize_t, consumer: Consumer) -> cython.bint:
        """Move a pending entry to another consumer; return False if it already owns the entry. Redis: xclaimCommand."""
        owner: Consumer = self._owner(slot)
        if owner is consumer:
            return False
        self.table.set_owner(slot, consumer.number)
        if owner is self.nobody:
            self.order.remove(self.table, slot, True)
            self.order.insert(self.table, slot)
        else:
            owner.index.remove(self.table, slot)
        return consumer.index.insert(self.table, slot, self.table.ms(slot), self.table.seq(slot))

    @cython.ccall
    def set_delivery(self, slot: cython.Py_ssize_t, time: cython.longlong, count: cython.ulonglong) -> cython.bint:
        """Set the delivery time (ms) and count of an entry that has an owner. Redis 8.4: pelListUpdate."""
        self.order.remove(self.table, slot, False)
        self.table.set_time(slot, time)
        self.table.set_count(slot, count)
        return self.order.insert(self.table, slot)

    @cython.ccall
    def redeliver(self, slot: cython.Py_ssize_t, now: cython.longlong, saturates: cython.bint) -> cython.bint:
        """Record a delivery at `now` (ms). The delivery count stops at 2**63-1 if `saturates`, else wraps at 2**64."""
        count: cython.ulonglong = self.table.delivery_count(slot)
        if not saturates or count != _MAX_DELIVERIES:
            count = (count + 1) & _MASK
        return self.set_delivery(slot, now, count)

    @cython.ccall
    def release(self, slot: cython.Py_ssize_t, count: cython.ulonglong) -> cython.bint:
        """Release a pending entry from its consumer, with a delivery count; the next claim takes the entry (XNACK)."""
        owner: Consumer = self._owner(slot)
        if owner is not self.nobody:
            owner.index.remove(self.table, slot)
            self.table.set_owner(slot, self.nobody.number)
        self.order.remove(self.table, slot, owner is self.nobody)
        self.table.set_count(slot, count)
        return self.order.release(self.table, slot)

    @cython.ccall
    def force_released(self, ms: cython.ulonglong, seq: cython.ulonglong, count: cython.ulonglong) -> cython.Py_ssize_t:
        """Create a pending entry that is released and return its slot (XNACK with FORCE)."""
        slot: cython.Py_ssize_t = self._new(ms, seq, 0, count, self.nobody)
        self.order.release(self.table, slot)
        return slot

    @cython.ccall
    def drop(self, slot: cython.Py_ssize_t) -> cython.bint:
        """Remove a pending entry from the group and its consumer."""
        owner: Consumer = self._owner(slot)
        self.index.remove(self.table, slot)
        if owner is not self.nobody:
            owner.index.remove(self.table, slot)
        self.order.remove(self.table, slot, owner is self.nobody)
        return self.table.release(slot)

    @cython.ccall
    def acknowledge(self, ms: cython.ulonglong, seq: cython.ulonglong) -> cython.bint:
        """Remove a pending entry. Return False if the entry is not pending. Redis: xackCommand."""
        slot: cython.Py_ssize_t = self.index.find(self.table, ms, seq)
        if slot < 0:
            return False
        return self.drop(slot)

    @cython.ccall
    @cython.exceptval(-2, check=False)
    def oldest(self) -> cython.Py_ssize_t:
        """Return the slot of the oldest delivery, or -1 if nothing is pending. Released entries precede all others.

        `PendingTable.next_by_time` returns the following slots.
        """
        return self.order.head if self.index.count else -1

    # -- loading from an RDB file

    @cython.ccall
    def load(
        self, ms: cython.ulonglong, seq: cython.ulonglong, time: cython.longlong, count: cython.ulonglong
    ) -> cython.bint:
        """Add a pending entry without an owner. Return False if the ID is already pending (rdbLoadObject)."""
        if self.index.find(self.table, ms, seq) >= 0:
            return False
        self._new(ms, seq, time, count, self.nobody)
        return True

    @cython.cfunc
    @cython.exceptval(-2, check=False)
    def _find_unowned(self, ms: cython.ulonglong, seq: cython.ulonglong) -> cython.Py_ssize_t:
        """Return the slot of a pending entry that has no owner, -1 if there is no such entry."""
        slot: cython.Py_ssize_t = self.index.find(self.table, ms, seq)
        return slot if slot >= 0 and self.table.owner_number(slot) == self.nobody.number else -1

    @cython.ccall
    def assign(self, ms: cython.ulonglong, seq: cython.ulonglong, consumer: Consumer) -> cython.bint:
        """Set the owner of a loaded entry. Return False if it is not pending or has an owner (rdbLoadObject)."""
        slot: cython.Py_ssize_t = self._find_unowned(ms, seq)
        if slot < 0:
            return False
        self.table.set_owner(slot, consumer.number)
        return consumer.index.insert(self.table, slot, ms, seq)

    @cython.ccall
    def load_nacked(self, ms: cython.ulonglong, seq: cython.ulonglong) -> cython.bint:
        """Record that a loaded entry was released (RDB type 27), after those already recorded.

        Return False if the entry is not pending, has an owner, or is already recorded as released.
        """
        slot: cython.Py_ssize_t = self._find_unowned(ms, seq)
        if slot < 0 or self.order.contains(self.table, slot):
            return False
        return self.order.release(self.table, slot)

    def settle(self) -> None:
        """Sort the loaded pending entries by delivery time, then by ID, after the released entries. O(n log n)"""
        table = self.table
        nobody = self.nobody.number
        slots = [slot for slot in self.index.slots() if table.owner_number(slot) != nobody]
        for _, _, slot in sorted((table.delivery_time(slot), place, slot) for place, slot in enumerate(slots)):
            self.order.append(table, slot)

    def chain_as(self, other: Group) -> None:
        """Copy the order by delivery time from a group with the same entries (Redis 8.8 COPY: streamDup). O(n log n)"""
        self.order.clear()
        theirs: cython.Py_ssize_t = other.oldest()
        while theirs >= 0:
            slot = self.find(other.table.ms(theirs), other.table.seq(theirs))
            if self.table.owner_number(slot) == self.nobody.number:
                self.order.release(self.table, slot)
            else:
                self.order.append(self.table, slot)
            theirs = other.table.next_by_time(theirs)

    def orphans(self) -> int:
        """Return the number of loaded pending entries that have no consumer yet and are not released.

        The number must be 0 after the whole stream was loaded. O(consumers)
        """
        owned = 0
        for consumer in self.consumers.values():
            owned += consumer.index.count
        return self.index.count - owned - self.order.released

    def pending(self) -> list[dict[str, Any]]:
        """Return every pending entry as a dict: id, consumer (b"" = released), time, count. O(n)"""
        table = self.table
        return [
            {"id": (table.ms(slot), table.seq(slot)), "consumer": table.owner(slot).name,
             "time": table.delivery_time(slot), "count": table.delivery_count(slot)}
            for slot in self.index.slots()
        ]  # fmt: skip

    def check(self) -> None:
        """Raise AssertionError with the first broken invariant of the group. O(pending entries)"""
        check_group(self)

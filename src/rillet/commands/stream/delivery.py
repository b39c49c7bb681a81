"""The entries of one stream that XREADGROUP gives to one consumer: claimed, new, or pending again.

    XREADGROUP ... CLAIM 60000 COUNT 5 STREAMS s >

    by time   released ─► oldest ─► ... ─► newest        the group's pending entries, of all consumers
              └─── idle for long enough ──┘              `claim_idle`: these first, up to COUNT
    by ID     ... last delivered ─► new ─► new           `deliver_new`: then these, up to the rest of COUNT

    XREADGROUP ... STREAMS s 0                           `write_history`: the consumer's pending entries after an ID

Each method writes its entries, changes the group, and logs the changes once all of its entries are written. An
entry has two parts, ID and fields; with CLAIM it has four: also the milliseconds since its last delivery and the number
of deliveries, both 0 for a new entry.
"""

from __future__ import annotations

from rillet._cython import cython
from rillet.commands.stream.arguments import to_signed
from rillet.commands.stream.propagation import log_claims, log_group_id
from rillet.commands.stream.read_reply import ReadReply
from rillet.protocol.reply_writer import ReplyWriter
from rillet.runtime.session import Session
from rillet.types.stream.entry_lookup import EntryLookup
from rillet.types.stream.group import Consumer, Group
from rillet.types.stream.id import format_id
from rillet.types.stream.iterator import NodePlace, StreamIterator
from rillet.types.stream.pending import PendingIterator, PendingTable
from rillet.types.stream.stream import Stream


@cython.cclass
class Delivery(ReadReply):
    """An XREADGROUP: selects the entries of a stream for the consumer and writes them to the reply.

    key         the stream's, which commands repeat
    changes     the number of changes to the group of a stream, each of which is a command in the log
    slots       the positions (in the group's pending table) of entries to log; None if there is no log
    """

    __slots__ = ("changes", "key", "slots")
    key: bytes
    changes: cython.longlong
    slots: list[int] | None

    def __init__(self) -> None:
        ReadReply.__init__(self)
        self.grouped = True
        self.key = b""

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def claim_idle(
        self, session: Session, stream: Stream, group: Group, consumer: Consumer, min_idle: cython.longlong,
        count: cython.longlong,
    ) -> cython.longlong:  # fmt: skip
        """Claim entries that have been idle for min_idle ms, in the order of their delivery; return how many.

        Redis: streamReplyWithRange. A claimed entry moves to the end of the order by delivery time, so the loop ends
        when it reaches the first entry that it claimed.
        """
        out: ReplyWriter = session.out
        table: PendingTable = group.table
        entries: EntryLookup = EntryLookup(stream)
        now: cython.longlong = self.now
        saturates: cython.bint = self.level >= 88
        written: cython.longlong = 0
        slot: cython.Py_ssize_t = group.oldest()
        first: cython.Py_ssize_t = -1
        after: cython.Py_ssize_t
        idle: cython.longlong
        deliveries: cython.ulonglong
        while slot >= 0 and slot != first and not self.is_full(out):
            after = table.next_by_time(slot)
            idle = now - table.delivery_time(slot)
            if not is_idle(idle, min_idle):
                break
            if entries.find(table.ms(slot), table.seq(slot)):
                deliveries = table.delivery_count(slot)
                self.writer.write(out, entries.entries)
                out.integer(idle)
                out.integer(to_signed(deliveries))
                group.transfer(slot, consumer)
                group.redeliver(slot, now, saturates)
                if first < 0:
                    first = slot
                self._note_change(consumer, slot)
                self.written += 1
                written += 1
                if written == count:
                    break
            slot = after
        if self.slots:
            self._log(session, group, format_id(group.last_ms, group.last_seq))
        return written

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def deliver_new(
        self, session: Session, stream: Stream, group: Group, consumer: Consumer, found: cython.bint,
        count: cython.longlong,
    ) -> cython.longlong:  # fmt: skip
        """Deliver entries that the group has not read: the one that `find_next` found, if `found`, and up to `count`.

        Return how many. With NOACK they do not become pending.
        """
        out: ReplyWriter = session.out
        entries: StreamIterator = self.entries
        place: NodePlace = NodePlace() if group.place is None else group.place
        claims: cython.bint = self.writer.parts == 4
        # LASTID of the logged XCLAIMs: since Redis 8.4 the group's last ID before this read.
        last: bytes | None = None
        written: cython.longlong = 0
        moved: cython.bint = False
        if self.slots is not None and self.level >= 84:
            last = format_id(group.last_ms, group.last_seq)
        group.place = place
        while found and not self.is_full(out):
            if stream.advance_group(group, entries.ms, entries.seq, self.lag_rule):
                moved = True
            self.writer.write(out, entries)
            entries.mark(place)
            if claims:
                out.integer(0)
                out.integer(0)
            if not self.noack:
                self._note_change(consumer, group.deliver(entries.ms, entries.seq, consumer, self.now))
            self.written += 1
            written += 1
            if written == count:
                break
            found = entries.next_entry()
        if self.slots:
            self._log(session, group, last)
        if moved:
            self.changes += 1
            if session.logged and (self.noack or self.level >= 74 or self.valkey
                                   or session.engine.settings.log_entries_read):  # fmt: skip
                log_group_id(session, self.key, group)
        return written

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def write_history(
        self, session: Session, stream: Stream, group: Group, consumer: Consumer, count: cython.longlong
    ) -> cython.longlong:
        """Write the consumer's pending entries after an ID (a deleted entry as ID and null); return how many.

        Redis: streamReplyWithRangeFromConsumerPEL. The delivery is counted, but not logged.
        """
        out: ReplyWriter = session.out
        entries: EntryLookup = EntryLookup(stream)
        pending: PendingIterator = PendingIterator(group.table, consumer.index, self.ms, self.seq)
        saturates: cython.bint = self.level >= 88
        written: cython.longlong = 0
        while (count == 0 or written < count) and not self.is_full(out) and pending.next():
            if pending.ms == self.ms and pending.seq == self.seq:
                continue
            if entries.find(pending.ms, pending.seq):
                self.writer.write(out, entries.entries)
                group.redeliver(pending.slot, self.now, saturates)
            else:
                out.array(2)
                out.stream_id(pending.ms, pending.seq)
                out.null_array()
            self.written += 1
            written += 1
        return written

    @cython.cfunc
    @cython.inline
    @cython.exceptval(-1, check=False)
    def _note_change(self, consumer: Consumer, slot: cython.Py_ssize_t) -> cython.bint:
        """Record a delivery: the consumer was active, the group changed, and `_log` must log the entry."""
        consumer.active_time = self.now
        self.changes += 1
        if self.slots is not None:
            self.slots.append(slot)
        return True

    @cython.cfunc
    def _log(self, session: Session, group: Group, last: bytes | None) -> cython.bint:
        """Log the deliveries as XCLAIM commands with the LASTID `last`, or if None with each entry's own ID."""
        assert self.slots is not None
        log_claims(session, self.key, group, self.slots, last)
        self.slots = []
        return True


@cython.cfunc
@cython.exceptval(check=False)
def is_idle(idle: cython.longlong, min_idle: cython.longlong) -> cython.bint:
    """Return whether an entry is idle for at least min_idle ms, or, as in Redis, its delivery time is in the future."""
    return idle < 0 or idle >= min_idle

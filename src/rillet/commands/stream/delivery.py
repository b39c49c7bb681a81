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

try:
    import cython
except ModuleNotFoundError:  # Cython is not installed: use a replacement for its names
    from rillet import _cython as cython

from rillet.commands.stream.range import EntryWriter
from rillet.commands.stream.read_reply import ReadReply
from rillet.protocol.reply_writer import ReplyWriter
from rillet.runtime.session import Session
from rillet.types.stream.entry_lookup import EntryLookup
from rillet.types.stream.group import Consumer, Group
from rillet.types.stream.iterator import StreamIterator
from rillet.types.stream.pending import PendingIterator, PendingTable
from rillet.types.stream.value import Stream

if not cython.compiled:  # for compiled code, the .pxd declares these names
    from rillet.commands.stream.arguments import to_signed
    from rillet.commands.stream.propagation import log_claims, log_group_id
    from rillet.commands.stream.read_reply import entries_after
    from rillet.types.stream.id import format_id


@cython.final
@cython.cclass
class Delivery:
    """One stream's part of an XREADGROUP: selects entries for the consumer and writes them to the reply.

    changes     the number of changes to the group, each of which is a command in the log
    slots       the positions (in the group's pending table) of entries to log; None if there is no log
    """

    __slots__ = ("changes", "consumer", "group", "key", "out", "reply", "session", "slots", "stream", "writer")
    reply: ReadReply
    session: Session
    out: ReplyWriter
    writer: EntryWriter
    key: bytes
    stream: Stream
    group: Group
    consumer: Consumer
    changes: cython.longlong
    slots: list[int] | None

    def __init__(
        self, reply: ReadReply, session: Session, key: bytes, stream: Stream, group: Group, consumer: Consumer
    ) -> None:
        self.reply = reply
        self.session = session
        self.out = session.out
        self.writer = EntryWriter(self.out)
        self.key = key
        self.stream = stream
        self.group = group
        self.consumer = consumer
        self.changes = 0
        self.slots = [] if session.engine.log is not None else None

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def claim_idle(self, min_idle: cython.longlong, count: cython.longlong) -> cython.longlong:
        """Claim entries that have been idle for min_idle ms, in the order of their delivery; return how many.

        Redis: streamReplyWithRange. A claimed entry moves to the end of the order by delivery time, so the loop ends
        when it reaches the first entry that it claimed.
        """
        out: ReplyWriter = self.out
        group: Group = self.group
        table: PendingTable = group.table
        entries: EntryLookup = EntryLookup(self.stream)
        now: cython.longlong = self.reply.now
        saturates: cython.bint = self.reply.arguments.level >= 88
        written: cython.longlong = 0
        slot: cython.Py_ssize_t = group.oldest()
        first: cython.Py_ssize_t = -1
        after: cython.Py_ssize_t
        idle: cython.longlong
        deliveries: cython.ulonglong
        self.writer.parts = 4
        while slot >= 0 and slot != first and not self.reply.is_full(out):
            after = table.next_by_time(slot)
            idle = now - table.delivery_time(slot)
            if not is_idle(idle, min_idle):
                break
            if entries.find(table.ms(slot), table.seq(slot)):
                deliveries = table.delivery_count(slot)
                self.writer.write(entries.entries)
                out.integer(idle)
                out.integer(to_signed(deliveries))
                group.transfer(slot, self.consumer)
                group.redeliver(slot, now, saturates)
                if first < 0:
                    first = slot
                self._note_change(slot)
                self.reply.written += 1
                written += 1
                if written == count:
                    break
            slot = after
        if self.slots:
            self._log(format_id(group.last_ms, group.last_seq))
        return written

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def deliver_new(self, count: cython.longlong, noack: cython.bint, claims: cython.bint) -> cython.longlong:
        """Deliver entries that the group has not read; return how many. If `noack`, they do not become pending."""
        out: ReplyWriter = self.out
        stream: Stream = self.stream
        group: Group = self.group
        entries: StreamIterator = entries_after(stream, group.last_ms, group.last_seq)
        now: cython.longlong = self.reply.now
        level: cython.int = self.reply.arguments.level
        rule: cython.int = self.session.engine.settings.compat.lag_rule
        # LASTID of the logged XCLAIMs: since Redis 8.4 the group's last ID before this read.
        last: bytes | None = None
        written: cython.longlong = 0
        moved: cython.bint = False
        if self.slots is not None and level >= 84:
            last = format_id(group.last_ms, group.last_seq)
        if claims:
            self.writer.parts = 4
        while not self.reply.is_full(out) and entries.next_entry():
            if stream.advance_group(group, entries.ms, entries.seq, rule):
                moved = True
            self.writer.write(entries)
            if claims:
                out.integer(0)
                out.integer(0)
            if not noack:
                self._note_change(group.deliver(entries.ms, entries.seq, self.consumer, now))
            self.reply.written += 1
            written += 1
            if written == count:
                break
        if self.slots:
            self._log(last)
        if moved and (noack or level >= 74 or self.reply.arguments.valkey
                      or self.session.engine.settings.log_entries_read):  # fmt: skip
            log_group_id(self.session, self.key, group)
            self.changes += 1
        return written

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def write_history(
        self, ms: cython.ulonglong, seq: cython.ulonglong, count: cython.longlong
    ) -> cython.longlong:
        """Write the consumer's pending entries after an ID (a deleted entry as ID and null); return how many.

        Redis: streamReplyWithRangeFromConsumerPEL. The delivery is counted, but not logged.
        """
        out: ReplyWriter = self.out
        group: Group = self.group
        entries: EntryLookup = EntryLookup(self.stream)
        pending: PendingIterator = PendingIterator(group.table, self.consumer.index, ms, seq)
        now: cython.longlong = self.reply.now
        saturates: cython.bint = self.reply.arguments.level >= 88
        written: cython.longlong = 0
        while (count == 0 or written < count) and not self.reply.is_full(out) and pending.next():
            if pending.ms == ms and pending.seq == seq:
                continue
            if entries.find(pending.ms, pending.seq):
                self.writer.write(entries.entries)
                group.redeliver(pending.slot, now, saturates)
            else:
                out.array(2)
                out.stream_id(pending.ms, pending.seq)
                out.null_array()
            self.reply.written += 1
            written += 1
        return written

    @cython.cfunc
    @cython.inline
    @cython.exceptval(-1, check=False)
    def _note_change(self, slot: cython.Py_ssize_t) -> cython.bint:
        """Record a delivery: the consumer was active, the group changed, and `_log` must log the entry."""
        self.consumer.active_time = self.reply.now
        self.changes += 1
        if self.slots is not None:
            self.slots.append(slot)
        return True

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _log(self, last: bytes | None) -> cython.bint:
        """Log the deliveries as XCLAIM commands with the LASTID `last`, or if None with each entry's own ID."""
        assert self.slots is not None
        log_claims(self.session, self.key, self.group, self.slots, last)
        self.slots = []
        return True


@cython.cfunc
@cython.exceptval(check=False)
def is_idle(idle: cython.longlong, min_idle: cython.longlong) -> cython.bint:
    """Return whether an entry is idle for at least min_idle ms, or, as in Redis, its delivery time is in the future."""
    return idle < 0 or idle >= min_idle

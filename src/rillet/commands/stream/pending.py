"""XPENDING: the pending entries of a group, as a summary or one by one."""

from __future__ import annotations

from rillet._cython import cython
from rillet.commands.stream import command
from rillet.commands.stream.arguments import SYNTAX_ERROR, Interval, integer, option, to_signed
from rillet.commands.stream.lookup import lookup_read, require_stream_and_group
from rillet.errors import CommandError
from rillet.protocol.reply_writer import ReplyWriter
from rillet.runtime.session import Session
from rillet.types.stream.group import Consumer, Group
from rillet.types.stream.id import less
from rillet.types.stream.pending import PendingIndex, PendingIterator, PendingTable


@command("xpending", arity=-3, flags="readonly", since="5.0.0",
         syntax="key group [[IDLE min-idle-time] start end count [consumer]]",
         complexity="O(N) for the N entries returned, or scanned where IDLE filters; the summary is O(consumers).")
def xpending(session: Session, argv: list[bytes]) -> None:
    """Returns the pending entries of a group: a summary, or entry by entry."""
    if len(argv) == 3:
        _, group = require_stream_and_group(lookup_read(session, argv[1]), argv[1], argv[2])
        _write_summary(session.out, group)
        return
    if not 6 <= len(argv) <= 9:
        raise CommandError(SYNTAX_ERROR)
    min_idle: cython.longlong = 0
    at: cython.Py_ssize_t = 3
    if option(argv[3]) == b"idle":
        min_idle = integer(argv[4])
        if len(argv) < 8:
            raise CommandError(SYNTAX_ERROR)
        at = 5
    count: cython.longlong = integer(argv[at + 2])
    interval: Interval = Interval()
    interval.read_start(argv[at], len(argv[at]))
    interval.read_end(argv[at + 1], len(argv[at + 1]))
    _, group = require_stream_and_group(lookup_read(session, argv[1]), argv[1], argv[2])
    index: PendingIndex = group.index
    if at + 3 < len(argv):
        consumer: Consumer = group.find_consumer(argv[at + 3])
        if consumer is None:
            session.out.array(0)
            return
        index = consumer.index
    _write_entries(session, group, index, interval, count, min_idle)


@cython.cfunc
def _write_entries(session: Session, group: Group, index: PendingIndex, interval: Interval, count: cython.longlong,
                   min_idle: cython.longlong) -> cython.bint:
    """Write up to `count` pending entries in a range of IDs: ID, consumer, idle time in ms, deliveries.

    An entry released by XNACK has no consumer and an idle time of -1, and the IDLE filter always includes it.
    """
    table: PendingTable = group.table
    out: ReplyWriter = session.out
    mark: cython.Py_ssize_t = out.mark()
    written: cython.longlong = 0
    now: cython.longlong = session.db.clock.now_ms()
    idle: cython.longlong
    owner: Consumer
    pending: PendingIterator = PendingIterator(table, index, interval.start_ms, interval.start_seq)
    while written < count and pending.next() and not less(
        interval.end_ms, interval.end_seq, pending.ms, pending.seq
    ):
        owner = table.owner(pending.slot)
        idle = now - table.delivery_time(pending.slot)
        if owner is group.nobody:
            idle = -1
        elif min_idle != 0 and idle < min_idle:
            continue
        elif idle < 0:
            idle = 0
        out.array(4)
        out.stream_id(pending.ms, pending.seq)
        out.bulk(owner.name)
        out.integer(idle)
        out.integer(to_signed(table.delivery_count(pending.slot)))
        written += 1
    return out.insert_array(mark, written)


def _write_summary(out: ReplyWriter, group: Group) -> None:
    """Write the group's number of pending entries, the lowest and highest ID, and the number per consumer."""
    out.array(4)
    out.integer(group.pending_count)
    if group.pending_count == 0:
        out.null()
        out.null()
        out.null_array()
        return
    for first in (True, False):
        slot = group.index.edge(first)
        out.stream_id(group.table.ms(slot), group.table.seq(slot))
    busy = [consumer for consumer in group.sorted_consumers() if consumer.pending_count]
    out.array(len(busy))
    for consumer in busy:
        out.array(2)
        out.bulk(consumer.name)
        out.bulk_int(consumer.pending_count)

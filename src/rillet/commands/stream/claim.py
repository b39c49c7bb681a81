"""XCLAIM and XAUTOCLAIM: change the owner of pending entries.

    XCLAIM      key group consumer min-idle-time id ...   the given entries
    XAUTOCLAIM  key group consumer min-idle-time start    the pending entries from an ID on

Both skip entries whose last delivery is more recent than min-idle-time, except released ones (XNACK), and both remove
pending entries whose stream entry was deleted. Each change is logged as the XCLAIM that leads to the same state. The
XCLAIM of a deleted entry makes a replay remove it too. A deleted entry that was released has no consumer for an XCLAIM,
so it is logged as XACK.

    the claiming consumer                          Redis 7.0           since 7.2
    is created, and its seen time is set           at its first claim  always, before the first claim
    its active time is set                         -                   at each claim

A log has no other record of these times. A replay takes them from the XCLAIM of a delivery: its TIME.

Costs: XCLAIM O(log n) per entry, XAUTOCLAIM O(1) for entries that are neighbours in the stream (`EntryLookup`).
"""

from __future__ import annotations

from typing import Any

from rillet._cython import cython
from rillet.commands.arguments import text
from rillet.commands.stream import command
from rillet.commands.stream.arguments import SYNTAX_ERROR, Interval, integer, option, read_id
from rillet.commands.stream.cold import first_pending, must_wait, named_ids
from rillet.commands.stream.lookup import LOGGED_MS, find_or_create_consumer, lookup_read, require_stream_and_group
from rillet.commands.stream.propagation import log_ack, log_claim, log_consumer, log_group_id
from rillet.commands.stream.range import EntryWriter
from rillet.errors import CommandError
from rillet.protocol.reply_writer import ReplyWriter
from rillet.runtime.session import Session
from rillet.types.stream.entry_lookup import EntryLookup
from rillet.types.stream.group import MAX_DELIVERIES, Consumer, Group
from rillet.types.stream.id import IDReader, format_id, less
from rillet.types.stream.pending import PendingIterator
from rillet.types.stream.stream import Stream

_MASK = cython.declare(cython.ulonglong, 0xFFFF_FFFF_FFFF_FFFF)
_MAX_DELIVERIES = cython.declare(cython.ulonglong, MAX_DELIVERIES)
# XAUTOCLAIM examines at most COUNT times this number of pending entries.
_ATTEMPTS = cython.declare(cython.longlong, 10)
_MAX_COUNT = cython.declare(cython.longlong, ((1 << 63) - 1) // 16)
# Redis allocates 16 bytes per entry of COUNT. A greater COUNT exceeds the address space of 2**47 bytes.
_MAX_MEMORY_COUNT = cython.declare(cython.longlong, (1 << 47) // 16)


@cython.final
@cython.cclass
class ClaimRequest:
    """The state of one XCLAIM or XAUTOCLAIM: consumer, options, and the number of entries in the reply."""

    __slots__ = (
        "by_asking", "claimed", "consumer", "created", "finder", "force", "group", "justid", "key", "min_idle", "name",
        "now", "out", "retrycount", "saturates", "session", "stream", "time", "writer", "written",
    )  # fmt: skip
    session: Session
    key: bytes
    stream: Stream
    group: Group
    name: bytes
    consumer: Consumer | None
    created: cython.bint
    out: ReplyWriter
    finder: EntryLookup
    writer: EntryWriter
    min_idle: cython.longlong
    now: cython.longlong
    time: cython.longlong
    retrycount: cython.longlong
    force: cython.bint
    justid: cython.bint
    written: cython.longlong
    claimed: cython.bint  # True after an XCLAIM was logged
    saturates: cython.bint
    by_asking: cython.bint

    def __init__(self, session: Session, argv: list[bytes], stream: Stream, group: Group, out: ReplyWriter) -> None:
        level: cython.int = session.engine.settings.compat.level
        self.session = session
        self.key = argv[1]
        self.stream = stream
        self.group = group
        self.name = argv[3]
        self.consumer = None
        self.created = False
        self.out = out
        self.finder = EntryLookup(stream)
        self.writer = EntryWriter()
        self.min_idle = 0
        self.now = session.db.clock.now_ms()
        self.time = self.now
        self.retrycount = -1
        self.force = False
        self.justid = False
        self.written = 0
        self.claimed = False
        self.saturates = level >= 88
        self.by_asking = level >= 72

    @cython.cfunc
    def find_consumer(self) -> cython.bint:
        """Look up the claiming consumer, and create it if it is missing."""
        if self.consumer is None:
            if self.session.trusted:  # the TIME of a logged claim is the time at which the consumer was seen
                self.session.remember(LOGGED_MS, max(self.session.extra.get(LOGGED_MS, 0), self.time))
            self.created = self.group.find_consumer(self.name) is None
            self.consumer = find_or_create_consumer(self.session, self.key, self.group, self.name)
        return True

    @cython.cfunc
    def finish(self) -> cython.bint:
        """Log the creation of a consumer that received no entry; for others, the logged XCLAIM creates the consumer."""
        self.stream.tidy_pending()
        if self.created and self.written == 0 and self.consumer is not None:
            return log_consumer(self.session, self.key, self.group, self.consumer)
        return False

    @cython.cfunc
    def is_recent(self, slot: cython.Py_ssize_t) -> cython.bint:
        """Return whether the last delivery is too recent for a claim; for a released entry (XNACK) it never is."""
        group: Group = self.group
        if self.min_idle == 0 or group.table.owner_number(slot) == group.nobody.number:
            return False
        return self.now - group.table.delivery_time(slot) < self.min_idle

    @cython.cfunc
    def forget(self, ident: bytes, slot: cython.Py_ssize_t) -> cython.bint:
        """Remove the pending entry of a deleted stream entry."""
        group: Group = self.group
        if group.table.owner_number(slot) == group.nobody.number:
            log_ack(self.session, self.key, group, ident)
        else:
            log_claim(self.session, self.key, group, ident, slot)
            self.claimed = True
        self.session.dirty += 1
        return group.drop(slot)

    @cython.cfunc
    def claim_entry(
        self, ident: bytes | None, ms: cython.ulonglong, seq: cython.ulonglong, slot: cython.Py_ssize_t
    ) -> cython.bint:
        """Assign an entry to the claiming consumer and write it to the reply. slot -1: it was not pending.

        `finder` is at the entry. ident: the ID as written to the log; None = `ms-seq`.
        """
        group: Group = self.group
        count: cython.ulonglong
        self.find_consumer()
        consumer: Consumer = self.consumer  # type: ignore[assignment]
        if slot < 0:
            slot = group.force(ms, seq, consumer, self.now)
        else:
            group.transfer(slot, consumer)
        consumer.active_time = consumer.seen_time if self.session.trusted else self.now
        count = group.table.delivery_count(slot)
        if self.retrycount >= 0:
            count = self.retrycount
        elif not self.justid and not (self.saturates and count == _MAX_DELIVERIES):
            count = (count + 1) & _MASK
        group.set_delivery(slot, self.time, count)
        if self.justid:
            self.out.stream_id(ms, seq)
        else:
            self.writer.write(self.out, self.finder.entries)
        self.written += 1
        self.claimed = True
        self.session.dirty += 1
        if self.session.logged:
            log_claim(self.session, self.key, group, format_id(ms, seq) if ident is None else ident, slot)
        return True

    @cython.cfunc
    def take_named(self, ident: bytes, ms: cython.ulonglong, seq: cython.ulonglong) -> cython.bint:
        """Claim one entry by ID, if it exists and is pending, or with FORCE even if it is not pending."""
        slot: cython.Py_ssize_t = self.group.find(ms, seq)
        if not self.finder.find(ms, seq):
            return slot >= 0 and self.forget(ident, slot)
        if slot < 0:
            return self.force and self.claim_entry(ident, ms, seq, slot)
        return not self.is_recent(slot) and self.claim_entry(ident, ms, seq, slot)

    @cython.cfunc
    def take_from(self, pending: PendingIterator, count: cython.longlong) -> list[Any]:
        """Claim up to `count` pending entries; return the IDs of those whose stream entry is deleted, also counted."""
        deleted: list[Any] = []
        attempts: cython.longlong = count * _ATTEMPTS
        while attempts > 0 and count > 0 and pending.next():
            attempts -= 1
            if not self.finder.find(pending.ms, pending.seq):
                deleted.append((pending.ms, pending.seq))
                self.forget(format_id(pending.ms, pending.seq), pending.slot)
            elif self.is_recent(pending.slot):
                continue
            else:
                self.claim_entry(None, pending.ms, pending.seq, pending.slot)
            count -= 1
        return deleted


@command("xclaim", arity=-6, flags="write fast", since="5.0.0",
         syntax="key group consumer min-idle-time id [id ...] [IDLE ms] [TIME unix-time-milliseconds] [RETRYCOUNT "
         "count] " "[FORCE] [JUSTID] [LASTID lastid]", complexity="O(log N) with N pending entries in the group.")
def xclaim(session: Session, argv: list[bytes]) -> None:
    """Changes the owner of pending entries of a group, as if they were delivered to the given consumer."""
    stream, group = require_stream_and_group(lookup_read(session, argv[1]), argv[1], argv[2])
    claim: ClaimRequest = ClaimRequest(session, argv, stream, group, session.out)
    min_idle: cython.longlong = integer(argv[4], "Invalid min-idle-time argument for XCLAIM")
    reader: IDReader = IDReader()
    last: IDReader = IDReader()
    at: cython.Py_ssize_t = 5
    end: cython.Py_ssize_t
    moved: cython.bint
    claim.min_idle = max(0, min_idle)
    while at < len(argv) and reader.read(argv[at], 0, True):
        at += 1
    end = at
    _read_options(claim, argv, end, last)
    if stream.sealed != 0 and must_wait(session, argv, stream, named_ids(argv, 5, end)):
        session.db.hits -= 1  # the lookup counts when the command begins again
        return
    session.propagate_nothing()
    moved = less(claim.group.last_ms, claim.group.last_seq, last.ms, last.seq)
    if moved:
        claim.group.last_ms = last.ms
        claim.group.last_seq = last.seq
    if claim.by_asking:
        claim.find_consumer()
    mark: cython.Py_ssize_t = session.out.mark()
    for at in range(5, end):
        reader.read(argv[at], 0, True)
        claim.take_named(argv[at], reader.ms, reader.seq)
    claim.finish()
    # A logged claim contains the group's last ID. If nothing was claimed, log the ID alone.
    if moved and not claim.claimed:
        log_group_id(session, claim.key, claim.group)
        session.dirty += 1
    session.out.insert_array(mark, claim.written)


@cython.cfunc
def _read_options(claim: ClaimRequest, argv: list[bytes], at: cython.Py_ssize_t, last: IDReader) -> cython.bint:
    """Read the options of XCLAIM into `claim`, and LASTID into `last` (0-0 by default)."""
    delivered: Any = -1  # a Python int, because now - IDLE may exceed 64 bits
    while at < len(argv):
        word: bytes = option(argv[at])
        more: cython.bint = at + 1 < len(argv)
        if word == b"force":
            claim.force = True
        elif word == b"justid":
            claim.justid = True
        elif more and (word == b"idle" or word == b"time" or word == b"retrycount"):
            at += 1
            number: Any = integer(argv[at], f"Invalid {word.decode().upper()} option argument for XCLAIM")
            if word == b"retrycount":
                claim.retrycount = number
            else:
                delivered = claim.now - number if word == b"idle" else number
        elif more and word == b"lastid":
            at += 1
            read_id(last, argv[at])
        else:
            raise CommandError(f"Unrecognized XCLAIM option '{text(argv[at])}'")
        at += 1
    # A delivery time before 1970 or in the future, as another machine's clock may give, becomes the current time.
    if 0 <= delivered <= claim.now:
        claim.time = delivered
    return True


@command("xautoclaim", arity=-6, flags="write fast", since="6.2.0",
         syntax="key group consumer min-idle-time start [COUNT count] [JUSTID]", complexity="O(1) if COUNT is small.")
def xautoclaim(session: Session, argv: list[bytes]) -> None:
    """Changes the owner of entries that were idle for a given time, as if they were delivered to the given consumer."""
    min_idle: cython.longlong = integer(argv[4], "Invalid min-idle-time argument for XAUTOCLAIM")
    interval: Interval = Interval()
    interval.read_start(argv[5], len(argv[5]))
    count, justid = _auto_options(argv)
    stream, group = require_stream_and_group(lookup_read(session, argv[1]), argv[1], argv[2])
    if count > _MAX_MEMORY_COUNT:
        raise CommandError("Insufficient memory, failed allocating transient memory, COUNT too high.")
    out: ReplyWriter = session.out
    # The reply begins with the cursor, which is known only at the end.
    body: ReplyWriter = ReplyWriter()
    body.resp = out.resp
    claim: ClaimRequest = ClaimRequest(session, argv, stream, group, body)
    claim.min_idle = max(0, min_idle)
    claim.justid = justid
    pending: PendingIterator = PendingIterator(
        claim.group.table, claim.group.index, interval.start_ms, interval.start_seq
    )
    if stream.sealed != 0 and must_wait(session, argv, stream, first_pending(pending, count)):
        session.db.hits -= 1  # the lookup counts when the command begins again
        return
    pending.seek(interval.start_ms, interval.start_seq)
    session.propagate_nothing()
    if claim.by_asking:
        claim.find_consumer()
    deleted: list[Any] = claim.take_from(pending, count)
    claim.finish()
    out.array(3)
    if pending.next():
        out.stream_id(pending.ms, pending.seq)
    else:
        out.stream_id(0, 0)
    out.array(claim.written)
    out.raw(body.take_bytes())
    out.array(len(deleted))
    for ms, seq in deleted:
        out.stream_id(ms, seq)


def _auto_options(argv: list[bytes]) -> tuple[int, bool]:
    """Return COUNT and JUSTID of XAUTOCLAIM."""
    count: cython.longlong = 100
    justid = False
    at: cython.Py_ssize_t = 6
    while at < len(argv):
        word: bytes = option(argv[at])
        if word == b"count" and at + 1 < len(argv):
            at += 1
            count = integer(argv[at], "COUNT must be > 0")
            if not 1 <= count <= _MAX_COUNT:
                raise CommandError("COUNT must be > 0")
        elif word == b"justid":
            justid = True
        else:
            raise CommandError(SYNTAX_ERROR)
        at += 1
    return count, justid

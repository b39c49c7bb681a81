"""XCLAIM and XAUTOCLAIM: pending entries change hands.

    XCLAIM      key group consumer min-idle-time id ...   the entries that are named
    XAUTOCLAIM  key group consumer min-idle-time start    those found pending from an ID on

Both skip what was delivered less than min-idle-time ago, and both forget a pending entry whose
stream entry is gone. Each change is logged as the XCLAIM that leads to the same state (`log_claim`);
the log of a deleted one names an entry that is not there, which a replay forgets in its turn.
"""

from __future__ import annotations

from rillet.commands.args import text
from rillet.commands.registry import command
from rillet.commands.session import Session
from rillet.commands.stream_args import (
    MAX_U64,
    SYNTAX_ERROR,
    Interval,
    find_group,
    integer,
    option,
    read_id,
)
from rillet.commands.stream_read import log_claim, log_consumer, log_group_id, meet_consumer, write_entries
from rillet.errors import CommandError
from rillet.types.group import MAX_DELIVERIES, Consumer, Group
from rillet.types.pending import PendingIterator
from rillet.types.stream import Stream
from rillet.types.stream_id import IDReader, less

# How many entries XAUTOCLAIM looks at for each one that it may return.
_ATTEMPTS = 10
_MAX_COUNT = ((1 << 63) - 1) // 16
# What Redis could not allocate 16 bytes each for: the address space of one process.
_MAX_MEMORY_COUNT = (1 << 47) // 16


SEEN_BY_ASKING = 72
"""The level from which on a consumer is made, and seen, also where it gets nothing."""


class Claim:
    """A claim under way: who claims what, which options hold, and what was written."""

    __slots__ = ("consumer", "force", "group", "justid", "key", "min_idle", "name", "now", "retrycount", "saturates",
                 "seen_by_asking", "session", "stream", "time", "written")  # fmt: skip

    def __init__(self, session: Session, argv: list[bytes], stream: Stream, group: Group) -> None:
        self.session = session
        self.key = argv[1]
        self.stream = stream
        self.group = group
        self.name = argv[3]
        self.consumer: Consumer | None = None
        self.min_idle = 0
        self.now: int = session.db.clock.now_ms()
        self.time = self.now
        self.retrycount = -1
        self.force = False
        self.justid = False
        self.written = 0
        compat = session.engine.settings.compat
        self.saturates = compat.knows(84)
        self.seen_by_asking = compat.knows(SEEN_BY_ASKING)

    def is_recent(self, slot: int) -> bool:
        """Whether the entry was delivered too recently to be claimed; one that was released (XNACK) never is."""
        table = self.group.table
        if not self.min_idle or table.owner(slot) is self.group.nobody:
            return False
        return self.now - table.delivery_time(slot) < self.min_idle

    def meet(self) -> Consumer:
        """Return the claiming consumer, who is made if need be, and is seen now."""
        if self.consumer is None:
            self.consumer, created = meet_consumer(self.session, self.key, self.group, self.name)
            # Where it comes to nothing no XCLAIM is logged that would make the consumer, too.
            if created and self.seen_by_asking:
                log_consumer(self.session, self.key, self.group, self.consumer)
        return self.consumer

    def forget(self, ident: bytes, slot: int) -> None:
        """Drop the pending entry of a stream entry that is gone."""
        if self.group.table.owner(slot) is self.group.nobody:
            self.session.propagate([b"XACK", self.key, self.group.name, ident])
        else:
            log_claim(self.session, self.key, self.group, ident, slot)
        self.group.drop(slot)
        self.session.dirty += 1

    def take(self, ident: bytes, ms: int, seq: int, slot: int) -> None:
        """Hand the pending entry (slot -1: make it one) to the claiming consumer, who is made on the way; write it."""
        group = self.group
        consumer = self.meet()
        consumer.active_time = self.now
        if slot < 0:
            slot = group.force(ms, seq, consumer, self.now)
        group.transfer(slot, consumer)
        count = group.table.delivery_count(slot)
        if self.retrycount >= 0:
            count = self.retrycount
        elif not self.justid and not (count == MAX_DELIVERIES and self.saturates):
            count = (count + 1) & MAX_U64
        group.set_delivery(slot, self.time, count)
        if self.justid:
            self.session.out.stream_id(ms, seq)
        else:
            write_entries(self.session.out, self.stream, ms, seq, ms, seq, 1)
        self.written += 1
        log_claim(self.session, self.key, self.group, ident, slot)
        self.session.dirty += 1


@command(
    "xclaim", arity=-6, flags="write fast", keys=(1, 1, 1), group="stream", since="5.0.0",
    complexity="O(log N) with N pending entries in the group.",
    syntax="key group consumer min-idle-time id [id ...] [IDLE ms] [TIME unix-time-milliseconds] [RETRYCOUNT count] "
    "[FORCE] [JUSTID] [LASTID lastid]",
)  # fmt: skip
def xclaim(session: Session, argv: list[bytes]) -> None:
    """Changes the owner of pending entries of a group, as if they were delivered to the given consumer."""
    stream, group = find_group(session, argv[1], argv[2])
    claim = Claim(session, argv, stream, group)
    claim.min_idle = max(0, integer(argv[4], "Invalid min-idle-time argument for XCLAIM"))
    keys = _leading_ids(argv)
    last = _read_options(claim, argv, 5 + len(keys))
    session.propagate_nothing()
    group_moved = less(group.last_ms, group.last_seq, last.ms, last.seq)
    if group_moved:
        group.last_ms, group.last_seq = last.ms, last.seq
    if claim.seen_by_asking:
        claim.meet()
    dirty = session.dirty
    mark = session.out.mark()
    for position, (ms, seq) in enumerate(keys):
        _claim_one(claim, argv[5 + position], ms, seq)
    # A claim that was logged carries the group's last ID along.
    if group_moved and session.dirty == dirty:
        log_group_id(session, claim.key, group)
        session.dirty += 1
    session.out.insert_array(mark, claim.written)


def _leading_ids(argv: list[bytes]) -> list[tuple[int, int]]:
    """Return the IDs from argv[5] on, up to the first word that is none: options follow."""
    reader = IDReader()
    keys = []
    for word in argv[5:]:
        if not reader.read(word, 0, True):
            break
        keys.append((reader.ms, reader.seq))
    return keys


def _read_options(claim: Claim, argv: list[bytes], at: int) -> IDReader:
    """Read the options of XCLAIM into the claim and return LASTID (0-0 where there is none)."""
    last = IDReader()
    delivered = -1
    while at < len(argv):
        word = option(argv[at])
        more = at + 1 < len(argv)
        if word == b"force":
            claim.force = True
        elif word == b"justid":
            claim.justid = True
        elif word in (b"idle", b"time", b"retrycount") and more:
            at += 1
            number = integer(argv[at], f"Invalid {word.decode().upper()} option argument for XCLAIM")
            if word == b"retrycount":
                claim.retrycount = number
            else:
                delivered = claim.now - number if word == b"idle" else number
        elif word == b"lastid" and more:
            at += 1
            read_id(last, argv[at])
        else:
            raise CommandError(f"Unrecognized XCLAIM option '{text(argv[at])}'")
        at += 1
    # A time before the epoch or after now is nonsense that clocks apart can cause: taken as now.
    claim.time = delivered if 0 <= delivered <= claim.now else claim.now
    return last


def _claim_one(claim: Claim, ident: bytes, ms: int, seq: int) -> None:
    """Claim one entry by ID, if it exists and is pending or FORCE makes it so."""
    slot = claim.group.find(ms, seq)
    if not claim.stream.contains(ms, seq):
        if slot >= 0:
            claim.forget(ident, slot)
        return
    if slot < 0:
        if not claim.force:
            return
    elif claim.is_recent(slot):
        return
    claim.take(ident, ms, seq, slot)


@command(
    "xautoclaim", arity=-6, flags="write fast", keys=(1, 1, 1), group="stream", since="6.2.0",
    complexity="O(1) if COUNT is small.", syntax="key group consumer min-idle-time start [COUNT count] [JUSTID]",
)  # fmt: skip
def xautoclaim(session: Session, argv: list[bytes]) -> None:
    """Changes the owner of entries that have been pending for long, as if they were delivered to the given consumer."""
    min_idle = max(0, integer(argv[4], "Invalid min-idle-time argument for XAUTOCLAIM"))
    interval = Interval()
    interval.read_start(argv[5])
    count, justid = _auto_options(argv)
    stream, group = find_group(session, argv[1], argv[2])
    if count > _MAX_MEMORY_COUNT:
        raise CommandError("Insufficient memory, failed allocating transient memory, COUNT too high.")
    claim = Claim(session, argv, stream, group)
    claim.min_idle = min_idle
    claim.justid = justid
    session.propagate_nothing()
    if claim.seen_by_asking:
        claim.meet()
    out = session.out
    iterator = PendingIterator(group.table, group.index, interval.start_ms, interval.start_seq)
    # The reply begins with the cursor, which is known last: the claimed entries are written, then moved behind it.
    mark = out.mark()
    deleted = _claim_from(claim, iterator, count)
    out.insert_array(mark, claim.written)
    claimed = out.buf[mark : out.used]
    out.truncate(mark)
    out.array(3)
    if iterator.next():
        out.stream_id(iterator.ms, iterator.seq)
    else:
        out.stream_id(0, 0)
    out.raw(bytes(claimed))
    out.array(len(deleted))
    for ms, seq in deleted:
        out.stream_id(ms, seq)


def _auto_options(argv: list[bytes]) -> tuple[int, bool]:
    """Return COUNT and JUSTID of XAUTOCLAIM."""
    count = 100
    justid = False
    at = 6
    while at < len(argv):
        word = option(argv[at])
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


def _claim_from(claim: Claim, iterator: PendingIterator, count: int) -> list[tuple[int, int]]:
    """Claim up to count entries as the iterator meets them; return the IDs of those that are gone, which count too."""
    deleted: list[tuple[int, int]] = []
    attempts = count * _ATTEMPTS
    while attempts and count and iterator.next():
        attempts -= 1
        ms, seq, slot = iterator.ms, iterator.seq, iterator.slot
        ident = b"%d-%d" % (ms, seq)
        if not claim.stream.contains(ms, seq):
            claim.forget(ident, slot)
            deleted.append((ms, seq))
        elif claim.is_recent(slot):
            continue
        else:
            claim.take(ident, ms, seq, slot)
        count -= 1
    return deleted

"""XREADGROUP: a consumer of a group reads new entries, which become pending, or its pending entries again.

The path of an XREADGROUP:

    1. arguments   `read_arguments`   the options, the keys with their groups, the ID or `>` of each
    2. select      `XreadGroupReply`  for each stream: its history, idle entries to claim, new entries, or nothing
    3. claim       `delivery`         with CLAIM: pending entries of any consumer that have been idle for long enough
    4. write       `delivery`         the entries, into the frame of keys and counts that `read_reply` writes
    5. log         `propagation`      XCLAIM for each delivery, XGROUP SETID, XGROUP CREATECONSUMER
    6. block       `read_blocking`    if no stream has anything and BLOCK was given

Reading for a group is a write: entries become pending. The log has its effects, never the command itself.

With CLAIM a blocked client also has a timer (`XreadGroupReply.retry_at`). It ends when the pending entry that was
delivered first, of those that still exist, has been idle for long enough. If nothing is pending, it retries
after the idle time, because another consumer may receive an entry now; but not sooner than Redis's cron does, or
clients that claim with an idle time of 0 would retry all the time.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from rillet._cython import cython
from rillet.commands.stream import command
from rillet.commands.stream.delivery import Delivery, is_idle
from rillet.commands.stream.lookup import find_or_create_consumer
from rillet.commands.stream.propagation import log_consumer
from rillet.commands.stream.read_arguments import keys_of_read
from rillet.commands.stream.read_blocking import ReadCommand
from rillet.commands.stream.read_reply import ReadReply
from rillet.runtime.session import Session
from rillet.structs.argument_spans import ArgumentSpans
from rillet.types.stream.group import Consumer, Group
from rillet.types.stream.pending import PendingTable
from rillet.types.stream.stream import Stream

_MAX_U64 = cython.declare(cython.ulonglong, 0xFFFF_FFFF_FFFF_FFFF)
_MAX_I64 = cython.declare(cython.longlong, 0x7FFF_FFFF_FFFF_FFFF)
_MIN_RETRY_MS = 100


@cython.final
@cython.cclass
class XreadGroupReply(Delivery):
    """The reply of an XREADGROUP."""

    __slots__ = ("claim_after", "oldest")
    claim_after: cython.longlong  # min-idle-time of CLAIM for the following streams, -1 = do not claim
    oldest: cython.longlong  # the earliest delivery time of a pending entry in any of the streams

    @cython.cfunc
    def begin(self, session: Session) -> cython.bint:
        """Begin an attempt with an empty reply."""
        self.claim_after = self.min_idle
        self.oldest = _MAX_I64
        return ReadReply.begin(self, session)

    # -- selecting the entries of a stream

    @cython.cfunc
    def write_stream(
        self, session: Session, words: ArgumentSpans, stream: Stream, at: cython.Py_ssize_t, ready: cython.bint
    ) -> cython.bint:
        """Write a stream's history of the consumer, or claimed and new entries; return False if there are none."""
        group: Group = stream.find_group(self.group)
        history: cython.bint = self.ms != _MAX_U64 or self.seq != _MAX_U64
        selected: cython.bint = ready or history or (self.claim_after >= 0 and self._has_claimable(stream, group))
        new: cython.bint = not history and self.find_next(stream, group.place, group.last_ms, group.last_seq)
        if history:
            # Redis's quirk: after a stream whose history is read, the command claims nothing in the following streams.
            self.claim_after = -1
        selected = selected or new
        if self.level < 72 and not selected:
            return False
        return self._read(session, words, stream, group, at, selected, history, new, self.stream_limit(ready))

    @cython.cfunc
    def _has_claimable(self, stream: Stream, group: Group) -> cython.bint:
        """Return whether the oldest pending entry is idle for min_idle ms; store its delivery time in `oldest`."""
        table: PendingTable = group.table
        slot: cython.Py_ssize_t = group.oldest()
        time: cython.longlong
        while slot >= 0:
            if stream.contains(table.ms(slot), table.seq(slot)):
                time = table.delivery_time(slot)
                if time < self.oldest:
                    self.oldest = time
                return is_idle(self.now - time, self.claim_after)
            slot = table.next_by_time(slot)
        return False

    # -- reading the selected entries

    @cython.cfunc
    def _read(
        self, session: Session, words: ArgumentSpans, stream: Stream, group: Group, at: cython.Py_ssize_t,
        selected: cython.bint, history: cython.bint, found: cython.bint, count: cython.longlong,
    ) -> cython.bint:  # fmt: skip
        """Create the consumer if missing; write and log the entries if any kind is `selected`, which it returns."""
        if not words.equals(at, self.key):
            self.key = words.get(at)
        before: cython.Py_ssize_t = len(group.consumers)
        consumer: Consumer = find_or_create_consumer(session, self.key, group, self.consumer)
        created: cython.bint = len(group.consumers) != before
        self.changes = 0
        if created:
            if self.noack and self.level < 88:
                log_consumer(session, self.key, group, consumer)
                created = False
            if found and session.db.notifies:  # a module's callback may have changed the stream
                found = self.find_next(stream, group.place, group.last_ms, group.last_seq)
        if selected:
            self._write_selected(session, words, stream, group, consumer, at, history, found, count)
        # A logged XCLAIM creates the consumer on replay. Without one (NOACK or no change), log the creation.
        if created and (self.noack or self.changes == 0):
            log_consumer(session, self.key, group, consumer)
        return selected

    @cython.cfunc
    def _write_selected(
        self, session: Session, words: ArgumentSpans, stream: Stream, group: Group, consumer: Consumer,
        at: cython.Py_ssize_t, history: cython.bint, found: cython.bint, count: cython.longlong,
    ) -> cython.bint:  # fmt: skip
        """Write a stream's key and the selected entries."""
        mark: cython.Py_ssize_t = self.write_key(session.out, words, at)
        written: cython.longlong = 0
        self.slots = [] if session.logged else None
        self.writer.parts = 4 if self.claim_after >= 0 else 2
        if history:
            written = self.write_history(session, stream, group, consumer, count)
        else:
            if self.claim_after >= 0:
                written = self.claim_idle(session, stream, group, consumer, self.claim_after, count)
            if found and (count == 0 or written < count):
                count = 0 if count == 0 else count - written
                written += self.deliver_new(session, stream, group, consumer, found, count)
        if self.changes or self.level < 74:
            session.dirty += 1
        return session.out.insert_array(mark, written)

    # -- blocking

    def retry_at(self) -> int:
        """Return when the oldest pending entry can be claimed (ms since the epoch), 0 = no CLAIM."""
        min_idle: Any = self.min_idle  # Python ints, because the sum with min-idle-time may exceed 64 bits
        oldest: Any = self.oldest
        if min_idle < 0:
            return 0
        if self.oldest == _MAX_I64:
            return self.now + max(min_idle, _MIN_RETRY_MS)  # type: ignore[no-any-return]
        return oldest + min_idle  # type: ignore[no-any-return]


command("xreadgroup", arity=-7, flags="blocking write movablekeys", keys=(0, 0, 0), since="5.0.0",
        syntax="GROUP group consumer [COUNT count] [MAXCOUNT maxcount]@8.10.0 [MAXSIZE maxsize]@8.10.0 "
        "[BLOCK milliseconds] [CLAIM min-idle-time]@8.4.0 [NOACK] STREAMS key [key ...] id [id ...]",
        summary="Returns new entries to a consumer of a group, where they become pending, or its pending entries "
        "again.",
        complexity="O(M) for the M entries returned; an XADD pays O(N) for the N clients that wait for the stream.",
        get_keys=keys_of_read)(partial(ReadCommand, XreadGroupReply))

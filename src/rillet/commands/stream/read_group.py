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

from typing import Any

try:
    import cython
except ModuleNotFoundError:  # Cython is not installed: use a replacement for its names
    from rillet import _cython as cython

from rillet.commands.stream import command
from rillet.commands.stream.delivery import Delivery
from rillet.commands.stream.read import BLOCKED_COUNT
from rillet.commands.stream.read_arguments import ReadArguments, keys_of_read
from rillet.commands.stream.read_reply import ReadReply
from rillet.runtime.session import Session
from rillet.types.stream.group import Consumer, Group
from rillet.types.stream.pending import PendingTable
from rillet.types.stream.value import Stream

if not cython.compiled:  # for compiled code, the .pxd declares these names
    from rillet.commands.stream.delivery import is_idle
    from rillet.commands.stream.lookup import find_or_create_consumer
    from rillet.commands.stream.propagation import log_consumer
    from rillet.commands.stream.read_blocking import block_or_reply_null
    from rillet.commands.stream.read_reply import has_entries_after

_MAX_I64 = cython.declare(cython.longlong, 0x7FFF_FFFF_FFFF_FFFF)
_MIN_RETRY_MS = 100


@cython.final
@cython.cclass
class XreadGroupReply(ReadReply):
    """The reply of an XREADGROUP."""

    __slots__ = ("min_idle", "oldest")
    min_idle: cython.longlong  # min-idle-time of CLAIM for the following streams, -1 = do not claim
    oldest: cython.longlong  # the earliest delivery time of a pending entry in any of the streams

    def __init__(self, arguments: ReadArguments) -> None:
        ReadReply.__init__(self, arguments)
        self.min_idle = -1
        self.oldest = _MAX_I64

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def begin(self, session: Session) -> cython.bint:
        """Begin an attempt with an empty reply."""
        self.min_idle = self.arguments.min_idle
        self.oldest = _MAX_I64
        return ReadReply.begin(self, session)

    # -- selecting the entries of a stream

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def write_stream(self, session: Session, stream: Stream, index: cython.Py_ssize_t) -> cython.bint:
        """Write a stream's history of the consumer, or claimed and new entries; return False if there are none."""
        assert self.arguments.group is not None
        group: Group = stream.find_group(self.arguments.group)
        history: cython.bint = self.arguments.reads_history(index)
        claims: cython.bint = self.min_idle >= 0 and self._has_claimable(stream, group)
        new: cython.bint = not history and has_entries_after(stream, group.last_ms, group.last_seq)
        if history:
            # Redis's quirk: after a stream whose history is read, the command claims nothing in the following streams.
            self.min_idle = -1
        if self.arguments.level < 72 and not history and not new:
            return False
        return self._read(session, stream, group, index, history, claims, new, self.stream_limit())

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def write_ready_stream(self, session: Session, stream: Stream, index: cython.Py_ssize_t) -> cython.bint:
        """Write the new entries of the stream that unblocked the client (Redis 7.0)."""
        assert self.arguments.group is not None
        group: Group = stream.find_group(self.arguments.group)
        return self._read(session, stream, group, index, False, False, True, self.arguments.count or BLOCKED_COUNT)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
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
                return is_idle(self.now - time, self.min_idle)
            slot = table.next_by_time(slot)
        return False

    # -- reading the selected entries

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _read(
        self, session: Session, stream: Stream, group: Group, index: cython.Py_ssize_t, history: cython.bint,
        claims: cython.bint, new: cython.bint, count: cython.longlong,
    ) -> cython.bint:  # fmt: skip
        """Create the consumer if missing; write and log the selected entries; return whether any kind is selected."""
        key: bytes = self.arguments.keys[index]
        noack: cython.bint = self.arguments.noack
        created: cython.bint = group.find_consumer(self.arguments.consumer) is None
        consumer: Consumer = find_or_create_consumer(session, key, group, self.arguments.consumer)
        selected: cython.bint = history or claims or new
        changes: cython.longlong = 0
        if created and noack and self.arguments.level < 88:
            log_consumer(session, key, group, consumer)
            created = False
        if selected:
            changes = self._write_selected(session, stream, group, consumer, index, history, new, count)
        # A logged XCLAIM creates the consumer on replay. Without one (NOACK or no change), log the creation.
        if created and (noack or changes == 0):
            log_consumer(session, key, group, consumer)
        return selected

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _write_selected(
        self, session: Session, stream: Stream, group: Group, consumer: Consumer, index: cython.Py_ssize_t,
        history: cython.bint, new: cython.bint, count: cython.longlong,
    ) -> cython.longlong:  # fmt: skip
        """Write a stream's key and the selected entries; return the number of changes to the group."""
        key: bytes = self.arguments.keys[index]
        mark: cython.Py_ssize_t = self.write_key(session.out, key)
        delivery: Delivery = Delivery(self, session, key, stream, group, consumer)
        written: cython.longlong = 0
        if history:
            start: tuple[int, int] = self.arguments.starts[index]
            written = delivery.write_history(start[0], start[1], count)
        else:
            if self.min_idle >= 0:
                written = delivery.claim_idle(self.min_idle, count)
            if new and (count == 0 or written < count):
                count = 0 if count == 0 else count - written
                written += delivery.deliver_new(count, self.arguments.noack, self.min_idle >= 0)
        session.out.insert_array(mark, written)
        if delivery.changes or self.arguments.level < 74:
            session.dirty += 1
        return delivery.changes

    # -- blocking

    def retry_at(self) -> int:
        """Return when the oldest pending entry can be claimed (ms since the epoch), 0 = no CLAIM."""
        min_idle: Any = self.arguments.min_idle  # Python ints, because the sum with min-idle-time may exceed 64 bits
        oldest: Any = self.oldest
        if min_idle < 0:
            return 0
        if self.oldest == _MAX_I64:
            return self.now + max(min_idle, _MIN_RETRY_MS)  # type: ignore[no-any-return]
        return oldest + min_idle  # type: ignore[no-any-return]


@command("xreadgroup", arity=-7, flags="blocking write movablekeys", keys=(0, 0, 0), since="5.0.0",
         syntax="GROUP group consumer [COUNT count] [MAXCOUNT maxcount]@8.10.0 [MAXSIZE maxsize]@8.10.0 "
         "[BLOCK milliseconds] [CLAIM min-idle-time]@8.4.0 [NOACK] STREAMS key [key ...] id [id ...]",
         complexity="O(M) for the M entries returned; an XADD pays O(N) for the N clients that wait for the stream.",
         get_keys=keys_of_read)
def xreadgroup(session: Session, argv: list[bytes]) -> None:
    """Returns new entries to a consumer of a group, where they become pending, or its pending entries again."""
    arguments: ReadArguments = ReadArguments(session.engine.settings.compat)
    arguments.read(session, argv, True)
    streams: list[Any] = arguments.find_streams(session, argv)
    session.propagate_nothing()
    reply: XreadGroupReply = XreadGroupReply(arguments)
    if not reply.write(session, streams):
        block_or_reply_null(session, reply)

"""The run of XREAD and XREADGROUP, and blocking: a client waits until one of its streams has entries for it.

A blocked client keeps its arguments. `$` is the last ID at the time of the call; each attempt resolves `>` and `+`
again. Since Redis 7.2 a ready key causes the whole command to run again; before, the command read only that key:

    command       the ready key holds              reply in 7.0                        reply since 7.2
    XREAD         a stream with a newer last ID    its entries, at most COUNT or 1000  as if the client called now
    XREADGROUP    a stream with the group          its new entries                     the same
                  a stream without the group       NOGROUP                             NOGROUP
                  another type, or nothing         UNBLOCKED                           WRONGTYPE, NOGROUP

A client that waits with CLAIM also has a timer (`BlockedClient.retry_at`): it tries again when the pending entry that
was delivered first has been idle for long enough (`XreadGroupReply.retry_at`).
"""

from __future__ import annotations

from typing import Any

from rillet._cython import cython
from rillet.commands.lookup import value_for_blocked
from rillet.commands.stream.cold import absent_between, absent_of, first_pending
from rillet.commands.stream.lookup import stream_at
from rillet.commands.stream.read_reply import ReadReply
from rillet.errors import NoGroup, Unblocked
from rillet.protocol.reply_writer import ReplyWriter
from rillet.runtime.implementation import Implementation
from rillet.runtime.session import Session
from rillet.structs.argument_spans import ArgumentSpans
from rillet.types.stream.group import Consumer, Group
from rillet.types.stream.id import less
from rillet.types.stream.pending import PendingIterator
from rillet.types.stream.stream import Stream

_MAX_U64 = cython.declare(cython.ulonglong, 0xFFFF_FFFF_FFFF_FFFF)
_ALL = cython.declare(cython.longlong, 1 << 62)


@cython.final
@cython.cclass
class BlockedRead:
    """A client that is blocked in XREAD or XREADGROUP; `serve` and `expired` are the callbacks of `Session.block`."""

    __slots__ = ("argv", "reply")
    argv: list[bytes]
    reply: ReadReply

    def __init__(self, reply: ReadReply, argv: list[bytes]) -> None:
        self.reply = reply
        self.argv = argv

    def serve(self, session: Session, key: bytes) -> bool:
        """Try the read again after a key changed or `retry_at` passed; return False if the client must wait on."""
        reply: ReadReply = self.reply
        words: ArgumentSpans = ArgumentSpans()
        words.point_to(self.argv, 0, len(self.argv))
        session.batch_ms = 0
        if reply.level < 72:
            return self._serve_key(session, words, key, session.db.lookup(key))
        if reply.grouped:
            session.propagate_nothing()
        elif not isinstance(value_for_blocked(session, key), Stream):
            return False
        # Run the whole command again (Redis 7.2, blocked.c: unblockClientOnKey).
        reply.check(session, words)
        if reply.write(session, words):
            return True
        retry_at = reply.retry_at()
        if retry_at:
            session.engine.blocking.retry_at(session, retry_at)
        return False

    def expired(self, session: Session) -> None:
        """Reply null: the timeout has passed."""
        session.out.null_array()

    @cython.cfunc
    def _serve_key(self, session: Session, words: ArgumentSpans, key: bytes, value: object) -> cython.bint:
        """Reply with the entries of the key that changed (Redis 7.0, blocked.c: serveClientsBlockedOnStreamKey)."""
        out: ReplyWriter = session.out
        reply: ReadReply = self.reply
        at: cython.Py_ssize_t = self.argv.index(key, reply.keys_at)
        stream: Stream
        ms: cython.ulonglong
        seq: cython.ulonglong
        if not isinstance(value, Stream):
            if not reply.grouped:
                return False
            raise Unblocked("the stream key no longer exists")
        stream = value
        reply.find_start(words, at, stream)
        ms = reply.ms
        seq = reply.seq
        if reply.grouped:
            session.propagate_nothing()
            group: Group | None = stream.find_group(reply.group)
            if group is None:
                raise NoGroup("the consumer group this client was blocked on no longer exists")
            ms = group.last_ms
            seq = group.last_seq
        if not less(ms, seq, stream.last_ms, stream.last_seq):
            return False
        reply.begin(session)
        if out.resp == 2:
            out.array(1)
        else:
            out.map(1)
        return reply.write_stream(session, words, stream, at, True)


@cython.final
@cython.cclass
class ReadCommand(Implementation):
    """XREAD or XREADGROUP (xreadCommand), by the class of its reply. _reply: that of the last call, None during one."""

    __slots__ = ("_kind", "_reply")
    _kind: type[ReadReply]
    _reply: ReadReply | None

    def __init__(self, kind: type[ReadReply]) -> None:
        self._kind = kind
        self._reply = None

    @cython.ccall
    def run(self, session: Session, words: ArgumentSpans) -> cython.bint:
        """Reply with entries, wait for them, or reply null."""
        reply: ReadReply = self._kind() if self._reply is None else self._reply
        self._reply = None
        reply.read(session, words)
        if session.engine.cold_reads is not None and self._must_wait(session, words, reply):
            self._reply = reply
            return True
        reply.check(session, words)
        if reply.grouped and session.logged:
            session.propagate_nothing()
        if not reply.write(session, words):
            if reply.timeout >= 0 and session.can_block:
                return self._block(session, words, reply)
            session.out.null_array()
        self._reply = reply
        return True

    @cython.cfunc
    def _must_wait(self, session: Session, words: ArgumentSpans, reply: ReadReply) -> cython.bint:
        """Let the client wait if the disk must read entries of a stream; return whether it waits."""
        reads: Any = session.engine.cold_reads
        absent: list[Any] = []
        at: cython.Py_ssize_t
        if not reads.may_hold(session):
            return False
        for at in range(reply.keys_at, reply.ids_at):
            stream: Stream | None = stream_at(session.db, session.db.locate(words, at))
            if stream is None or stream.sealed == 0:
                continue
            reply.find_start(words, at, stream)
            start: tuple[int, int] = (reply.ms, reply.seq)
            if reply.grouped:
                group: Group | None = stream.find_group(reply.group)
                if group is None:
                    continue
                if start != (_MAX_U64, _MAX_U64):  # the pending entries of a consumer
                    consumer: Consumer | None = group.find_consumer(reply.consumer)
                    if consumer is not None:
                        pending: PendingIterator = PendingIterator(group.table, consumer.index, reply.ms, reply.seq)
                        absent += absent_of(stream, first_pending(pending, reply.count or _ALL))
                    continue
                start = (group.last_ms, group.last_seq)
            absent += absent_between(stream, start, (_MAX_U64, _MAX_U64), reply.count or -1, False)
        if absent:
            words.restore()
            reads.hold(session, words.to_list(), absent)
        return len(absent) > 0

    @cython.cfunc
    def _block(self, session: Session, words: ArgumentSpans, reply: ReadReply) -> cython.bint:
        argv: list[bytes] = words.to_list()
        read: BlockedRead = BlockedRead(reply, argv)
        # Clients that wait for new entries of the same group share a queue. If the first client of a queue receives
        # nothing, the others are not tried. Clients with CLAIM have no queue, because their idle times may differ.
        queue: bytes | None = reply.group if reply.grouped and reply.min_idle < 0 else None
        words.restore()
        session.argv = words.to_list()
        session.block(argv[reply.keys_at : reply.ids_at], reply.timeout, read.serve, read.expired, queue)
        session.blocked.retry_at = session.engine.blocking.uptime_at(reply.retry_at())
        return True

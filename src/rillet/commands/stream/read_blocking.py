"""Blocking in XREAD and XREADGROUP: a client waits until one of its streams has entries for it.

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

try:
    import cython
except ModuleNotFoundError:  # Cython is not installed: use a replacement for its names
    from rillet import _cython as cython

from rillet.commands.lookup import value_for_blocked
from rillet.commands.stream.read_arguments import ReadArguments
from rillet.commands.stream.read_reply import ReadReply
from rillet.errors import NoGroup, Unblocked
from rillet.protocol.reply_writer import ReplyWriter
from rillet.runtime.session import Session
from rillet.types.stream.group import Group
from rillet.types.stream.value import Stream

if not cython.compiled:  # for compiled code, the .pxd declares these names
    from rillet.types.stream.id import less


@cython.cfunc
@cython.exceptval(-1, check=False)
def block_or_reply_null(session: Session, reply: ReadReply) -> cython.bint:
    """Block the client if its command has BLOCK and the session may block; otherwise reply null."""
    arguments: ReadArguments = reply.arguments
    if arguments.timeout == -1 or not session.can_block:
        return session.out.null_array()
    read: BlockedRead = BlockedRead(arguments, reply)
    # Clients that wait for new entries of the same group share a queue. If the first client of a queue receives
    # nothing, the others are not tried. Clients with CLAIM have no queue, because their idle times may differ.
    queue: bytes | None = arguments.group if arguments.min_idle < 0 else None
    session.block(arguments.keys, arguments.timeout, read.serve, read.expired, queue)
    session.blocked.retry_at = session.engine.blocking.uptime_at(reply.retry_at())
    return True


@cython.final
@cython.cclass
class BlockedRead:
    """A client that is blocked in XREAD or XREADGROUP; `serve` and `expired` are the callbacks of `Session.block`."""

    __slots__ = ("arguments", "reply")
    arguments: ReadArguments
    reply: ReadReply

    def __init__(self, arguments: ReadArguments, reply: ReadReply) -> None:
        self.arguments = arguments
        self.reply = reply

    def serve(self, session: Session, key: bytes) -> bool:
        """Try the read again after a key changed or `retry_at` passed; return False if the client must wait on."""
        if self.arguments.level < 72:
            return self._serve_key(session, key, session.db.lookup(key))
        if self.arguments.group is not None:
            session.propagate_nothing()
        elif not isinstance(value_for_blocked(session, key), Stream):
            return False
        return self._serve_again(session)

    def expired(self, session: Session) -> None:
        """Reply null: the timeout has passed."""
        session.out.null_array()

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _serve_again(self, session: Session) -> cython.bint:
        """Run the whole command again (Redis 7.2, blocked.c: unblockClientOnKey)."""
        streams: list[Any] = self.arguments.find_streams_again(session)
        if self.reply.write(session, streams):
            return True
        retry_at = self.reply.retry_at()
        if retry_at:
            session.engine.blocking.retry_at(session, retry_at)
        return False

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _serve_key(self, session: Session, key: bytes, value: object) -> cython.bint:
        """Reply with the entries of the key that changed (Redis 7.0, blocked.c: serveClientsBlockedOnStreamKey)."""
        out: ReplyWriter = session.out
        index: cython.Py_ssize_t = self.arguments.keys.index(key)
        stream: Stream
        ms: cython.ulonglong
        seq: cython.ulonglong
        if not isinstance(value, Stream):
            if self.arguments.group is None:
                return False
            raise Unblocked("the stream key no longer exists")
        stream = value
        if self.arguments.group is None:
            ms, seq = self.arguments.starts[index]
        else:
            session.propagate_nothing()
            group: Group | None = stream.find_group(self.arguments.group)
            if group is None:
                raise NoGroup("the consumer group this client was blocked on no longer exists")
            ms = group.last_ms
            seq = group.last_seq
        if not less(ms, seq, stream.last_ms, stream.last_seq):
            return False
        self.reply.begin(session)
        if out.resp == 2:
            out.array(1)
        else:
            out.map(1)
        return self.reply.write_ready_stream(session, stream, index)

"""XREAD: the entries of streams after given IDs, now or as soon as there are any.

The path of an XREAD: its arguments (`read_arguments`), the entries of each stream (`XreadReply` below, in the
array that `read_reply` writes), and blocking if there are no entries (`read_blocking`).
"""

from __future__ import annotations

from typing import Any

try:
    import cython
except ModuleNotFoundError:  # Cython is not installed: use a replacement for its names
    from rillet import _cython as cython

from rillet.commands.stream import command
from rillet.commands.stream.range import EntryWriter
from rillet.commands.stream.read_arguments import ReadArguments, keys_of_read
from rillet.commands.stream.read_reply import ReadReply
from rillet.protocol.reply_writer import ReplyWriter
from rillet.runtime.session import Session
from rillet.types.stream.iterator import StreamIterator
from rillet.types.stream.value import Stream

if not cython.compiled:  # for compiled code, the .pxd declares these names
    from rillet.commands.stream.read_blocking import block_or_reply_null
    from rillet.commands.stream.read_reply import entries_after, has_entries_after

BLOCKED_COUNT = 1000
"""The most entries that Redis 7.0 gives a client that blocked without COUNT (XREAD_BLOCKED_DEFAULT_COUNT)."""


@cython.final
@cython.cclass
class XreadReply(ReadReply):
    """The reply of an XREAD."""

    __slots__ = ()

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def write_stream(self, session: Session, stream: Stream, index: cython.Py_ssize_t) -> cython.bint:
        """Write a stream's key and its entries after the ID that the command gives; return False if there are none."""
        start: tuple[int, int] = self.arguments.starts[index]
        if not has_entries_after(stream, start[0], start[1]):
            return False
        return self._write_pair(session.out, stream, index, self.stream_limit())

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def write_ready_stream(self, session: Session, stream: Stream, index: cython.Py_ssize_t) -> cython.bint:
        """Write the stream that unblocked the client (Redis 7.0), without entries if the new ones were deleted."""
        return self._write_pair(session.out, stream, index, self.arguments.count or BLOCKED_COUNT)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _write_pair(
        self, out: ReplyWriter, stream: Stream, index: cython.Py_ssize_t, count: cython.longlong
    ) -> cython.bint:
        """Write a stream's key and up to `count` entries (0 = all) after the ID that the command gives."""
        start: tuple[int, int] = self.arguments.starts[index]
        mark: cython.Py_ssize_t = self.write_key(out, self.arguments.keys[index])
        writer: EntryWriter = EntryWriter(out)
        entries: StreamIterator = entries_after(stream, start[0], start[1])
        written: cython.longlong = 0
        while not self.is_full(out) and entries.next_entry():
            writer.write(entries)
            self.written += 1
            written += 1
            if written == count:
                break
        return out.insert_array(mark, written)


@command("xread", arity=-4, flags="blocking readonly movablekeys", keys=(0, 0, 0), since="5.0.0",
         syntax="[COUNT count] [MAXCOUNT maxcount]@8.10.0 [MAXSIZE maxsize]@8.10.0 [BLOCK milliseconds] "
         "STREAMS key [key ...] id [id ...]",
         complexity="O(N) for the N entries returned; an XADD pays O(M) for the M clients that wait for the stream.",
         get_keys=keys_of_read)
def xread(session: Session, argv: list[bytes]) -> None:
    """Returns entries of one or more streams after the given IDs, and with BLOCK waits until there are any."""
    arguments: ReadArguments = ReadArguments(session.engine.settings.compat)
    arguments.read(session, argv, False)
    streams: list[Any] = arguments.find_streams(session, argv)
    reply: XreadReply = XreadReply(arguments)
    if not reply.write(session, streams):
        block_or_reply_null(session, reply)

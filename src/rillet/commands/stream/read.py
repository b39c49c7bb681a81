"""XREAD: the entries of streams after given IDs, now or as soon as there are any.

The path of an XREAD: its arguments (`read_arguments`), the entries of each stream (`XreadReply` below, in the
array that `read_reply` writes), and blocking if there are no entries (`read_blocking`).
"""

from __future__ import annotations

from functools import partial

from rillet._cython import cython
from rillet.commands.stream import command
from rillet.commands.stream.read_arguments import keys_of_read
from rillet.commands.stream.read_blocking import ReadCommand
from rillet.commands.stream.read_reply import ReadReply
from rillet.protocol.reply_writer import ReplyWriter
from rillet.runtime.session import Session
from rillet.structs.argument_spans import ArgumentSpans
from rillet.types.stream.stream import Stream


@cython.final
@cython.cclass
class XreadReply(ReadReply):
    """The reply of an XREAD."""

    __slots__ = ()

    @cython.cfunc
    def write_stream(
        self, session: Session, words: ArgumentSpans, stream: Stream, at: cython.Py_ssize_t, ready: cython.bint
    ) -> cython.bint:
        """Write a stream's key and its entries after the ID that the command gives; return False if there are none."""
        found: cython.bint = self.find_next(stream, None, self.ms, self.seq)
        if not found and not ready:
            return False
        out: ReplyWriter = session.out
        mark: cython.Py_ssize_t = self.write_key(out, words, at)
        count: cython.longlong = self.stream_limit(ready)
        written: cython.longlong = 0
        while found and not self.is_full(out):
            self.writer.write(out, self.entries)
            self.written += 1
            written += 1
            if written == count:
                break
            found = self.entries.next_entry()
        return out.insert_array(mark, written)


command("xread", arity=-4, flags="blocking readonly movablekeys", keys=(0, 0, 0), since="5.0.0",
        syntax="[COUNT count] [MAXCOUNT maxcount]@8.10.0 [MAXSIZE maxsize]@8.10.0 [BLOCK milliseconds] "
        "STREAMS key [key ...] id [id ...]",
        summary="Returns entries of one or more streams after the given IDs, and with BLOCK waits until there are any.",
        complexity="O(N) for the N entries returned; an XADD pays O(M) for the M clients that wait for the stream.",
        get_keys=keys_of_read)(partial(ReadCommand, XreadReply))

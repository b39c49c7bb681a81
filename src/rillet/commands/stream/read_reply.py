"""The reply of XREAD and XREADGROUP: a pair of key and entries for each stream, within the limits of the command.

    RESP2   *streams   *2 $ key *entries entry ...   *2 $ key *entries entry ...
    RESP3   %streams      $ key *entries entry ...      $ key *entries entry ...

Streams are served in the order of the command. COUNT limits each stream, MAXCOUNT all streams together, and MAXSIZE
ends the reply once it has that many bytes, headers included; the first entry is always written. After a
limit is reached, the remaining streams are left out of the reply. The number of entries, and of streams, is inserted
before them once it is known (`ReplyWriter.insert_array`).

`XreadReply` (`read`) and `XreadGroupReply` (`read_group`) supply the entries of a stream.
"""

from __future__ import annotations

from rillet._cython import cython
from rillet.commands.stream.lookup import stream_at
from rillet.commands.stream.range import EntryWriter
from rillet.commands.stream.read_arguments import ReadArguments
from rillet.protocol.reply_writer import ReplyWriter
from rillet.runtime.session import Session
from rillet.structs.argument_spans import ArgumentSpans
from rillet.types.stream.id import less
from rillet.types.stream.iterator import NodePlace, StreamIterator
from rillet.types.stream.stream import Stream

# The most entries that Redis 7.0 gives a client that blocked without COUNT (XREAD_BLOCKED_DEFAULT_COUNT).
_BLOCKED_COUNT = cython.declare(cython.longlong, 1000)


@cython.cclass
class ReadReply(ReadArguments):
    """One XREAD or XREADGROUP: its arguments and its reply; a blocked client uses it again for each attempt."""

    __slots__ = ("entries", "now", "start", "writer", "written")
    entries: StreamIterator
    writer: EntryWriter
    start: cython.Py_ssize_t  # the offset of this reply in the output
    written: cython.longlong  # number of entries written so far, in all streams
    now: cython.longlong

    def __init__(self) -> None:
        ReadArguments.__init__(self)
        self.entries = StreamIterator()
        self.writer = EntryWriter()

    @cython.cfunc
    def begin(self, session: Session) -> cython.bint:
        """Start a new attempt to serve the client, with an empty reply."""
        self.start = session.out.mark()
        self.written = 0
        self.now = session.now_ms()
        return True

    @cython.cfunc
    def write(self, session: Session, words: ArgumentSpans) -> cython.bint:
        """Write the entries that are available now; return False if there are none."""
        out: ReplyWriter = session.out
        served: cython.Py_ssize_t = 0
        at: cython.Py_ssize_t
        self.begin(session)
        for at in range(self.keys_at, self.ids_at):
            if self.is_full(out):
                break
            # Redis looks up every key twice, and counts two hits or misses: for the ID and for the entries.
            stream: Stream | None = stream_at(session.db, session.db.locate_read(words, at))
            if stream is None:
                continue
            self.find_start(words, at, stream)
            if self.write_stream(session, words, stream, at, False):
                served += 1
        self.entries.close()
        if served == 0:
            return False
        if out.resp == 2:
            out.insert_array(self.start, served)
        else:
            out.insert_map(self.start, served)
        return True

    @cython.cfunc
    def write_stream(
        self, session: Session, words: ArgumentSpans, stream: Stream, at: cython.Py_ssize_t, ready: cython.bint
    ) -> cython.bint:
        """Write the key words[at] and entries of its stream; return False if it has no entries for this client.

        ready: the stream unblocked the client (Redis 7.0); there may be no entries.
        """
        raise NotImplementedError

    def retry_at(self) -> int:
        """Return when a blocked client must try again although no key changed (ms since the epoch), 0 = never."""
        return 0

    @cython.cfunc
    def write_key(self, out: ReplyWriter, words: ArgumentSpans, at: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Write a stream's key; return the output position for the number of entries, which is inserted later."""
        if out.resp == 2:
            out.array(2)
        if cython.compiled:
            out.bulk_span(words.at[at], words.size[at])
        else:
            out.bulk(words.get(at))
        return out.mark()

    @cython.cfunc
    def is_full(self, out: ReplyWriter) -> cython.bint:
        """Return whether MAXCOUNT or MAXSIZE is reached."""
        if self.written == 0:
            return False
        if self.max_count and self.written >= self.max_count:
            return True
        return self.max_size > 0 and out.mark() - self.start >= self.max_size

    @cython.cfunc
    @cython.exceptval(check=False)
    def stream_limit(self, ready: cython.bint) -> cython.longlong:
        """Return how many entries the next stream may add to the reply, 0 = any number."""
        count: cython.longlong = _BLOCKED_COUNT if ready and self.count == 0 else self.count
        left: cython.longlong
        if self.max_count == 0:
            return count
        left = self.max_count - self.written
        return left if count == 0 or left < count else count

    @cython.cfunc
    def find_next(
        self, stream: Stream, place: NodePlace | None, ms: cython.ulonglong, seq: cython.ulonglong
    ) -> cython.bint:
        """Move `entries` to the first entry after an ID; return False if there is none."""
        if stream.length == 0 or not less(ms, seq, stream.last_ms, stream.last_seq):
            return False
        self.entries.follow(stream, place, ms, seq)
        return self.entries.next_entry()

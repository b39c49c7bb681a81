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

from typing import Any

try:
    import cython
except ModuleNotFoundError:  # Cython is not installed: use a replacement for its names
    from rillet import _cython as cython

from rillet.commands.stream.read_arguments import ReadArguments
from rillet.keyspace import lru
from rillet.protocol.reply_writer import ReplyWriter
from rillet.runtime.session import Session
from rillet.types.stream.iterator import StreamIterator
from rillet.types.stream.value import Stream

if not cython.compiled:  # for compiled code, the .pxd declares these names
    from rillet.types.stream.id import less

_LFU = cython.declare(cython.int, lru.LFU)
_MAX_U64 = cython.declare(cython.ulonglong, 0xFFFF_FFFF_FFFF_FFFF)


@cython.cclass
class ReadReply:
    """The reply of one XREAD or XREADGROUP; a blocked client uses it again for each attempt."""

    __slots__ = ("arguments", "now", "start", "written")
    arguments: ReadArguments
    start: cython.Py_ssize_t  # the offset of this reply in the output
    written: cython.longlong  # number of entries written so far, in all streams
    now: cython.longlong

    def __init__(self, arguments: ReadArguments) -> None:
        self.arguments = arguments
        self.start = 0
        self.written = self.now = 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def begin(self, session: Session) -> cython.bint:
        """Start a new attempt to serve the client, with an empty reply."""
        self.start = session.out.mark()
        self.written = 0
        self.now = session.db.clock.now_ms()
        return True

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def write(self, session: Session, streams: list[Any]) -> cython.bint:
        """Write the entries that are available now; return False if there are none."""
        out: ReplyWriter = session.out
        served: cython.Py_ssize_t = 0
        index: cython.Py_ssize_t
        self.begin(session)
        for index in range(len(streams)):
            stream: Stream | None = streams[index]
            if self.is_full(out):
                break
            # Count a second keyspace hit or miss: Redis looks up every key twice, for the ID and for the entries.
            session.db.count_read(self.arguments.keys[index], stream is not None)
            if session.db.access.mode == _LFU:
                session.db.touch_access(self.arguments.keys[index])
            if stream is not None and self.write_stream(session, stream, index):
                served += 1
        if served == 0:
            return False
        if out.resp == 2:
            out.insert_array(self.start, served)
        else:
            out.insert_map(self.start, served)
        return True

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def write_stream(self, session: Session, stream: Stream, index: cython.Py_ssize_t) -> cython.bint:
        """Write the key and entries of one stream; return False if the stream has no entries for this client."""
        raise NotImplementedError

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def write_ready_stream(self, session: Session, stream: Stream, index: cython.Py_ssize_t) -> cython.bint:
        """Write the key and entries of the stream that unblocked a client (Redis 7.0); there may be no entries."""
        raise NotImplementedError

    def retry_at(self) -> int:
        """Return when a blocked client must try again although no key changed (ms since the epoch), 0 = never."""
        return 0

    @cython.cfunc
    def write_key(self, out: ReplyWriter, key: bytes) -> cython.Py_ssize_t:
        """Write a stream's key; return the output position for the number of entries, which is inserted later."""
        if out.resp == 2:
            out.array(2)
        out.bulk(key)
        return out.mark()

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def is_full(self, out: ReplyWriter) -> cython.bint:
        """Return whether MAXCOUNT or MAXSIZE is reached."""
        if self.written == 0:
            return False
        if self.arguments.max_count and self.written >= self.arguments.max_count:
            return True
        return self.arguments.max_size > 0 and out.mark() - self.start >= self.arguments.max_size

    @cython.cfunc
    @cython.exceptval(check=False)
    def stream_limit(self) -> cython.longlong:
        """Return how many entries the next stream may add to the reply, 0 = any number."""
        count: cython.longlong = self.arguments.count
        left: cython.longlong
        if self.arguments.max_count == 0:
            return count
        left = self.arguments.max_count - self.written
        return left if count == 0 or left < count else count


@cython.cfunc
@cython.exceptval(-1, check=False)
def has_entries_after(stream: Stream, ms: cython.ulonglong, seq: cython.ulonglong) -> cython.bint:
    """Return whether the stream has an entry after the ID."""
    if stream.length == 0 or not less(ms, seq, stream.last_ms, stream.last_seq):
        return False
    stream.edge(False, True)  # compare with the last entry; the entry of `last_id` may be deleted
    return less(ms, seq, stream.edge_ms, stream.edge_seq)


@cython.cfunc
def entries_after(stream: Stream, ms: cython.ulonglong, seq: cython.ulonglong) -> StreamIterator:
    """Return an iterator over the entries after an ID; the largest ID is followed by 0-0, as in streamIncrID."""
    if seq != _MAX_U64:
        seq += 1
    else:
        seq = 0
        ms = 0 if ms == _MAX_U64 else ms + 1
    return StreamIterator(stream, ms, seq, _MAX_U64, _MAX_U64, False)

"""XLEN, XRANGE and XREVRANGE, and the writer of entries for all commands.

`EntryWriter` writes an entry directly from the bytes of its listpack, without an object per field or value:

    *2  $ id  *2n  $ field $ value ...

"""

from __future__ import annotations

from functools import partial
from typing import Any

from rillet._cython import cython, public
from rillet.commands.stream import command
from rillet.commands.stream.arguments import SYNTAX_ERROR, Interval, integer_at, is_named
from rillet.commands.stream.cold import absent_between
from rillet.commands.stream.lookup import lookup_read, stream_at
from rillet.errors import CommandError
from rillet.protocol.reply_writer import ReplyWriter
from rillet.runtime.implementation import Implementation
from rillet.runtime.session import Session
from rillet.structs.argument_spans import ArgumentSpans
from rillet.structs.listpack import Listpack
from rillet.types.stream.iterator import StreamIterator
from rillet.types.stream.node import SAMEFIELDS
from rillet.types.stream.stream import Stream

_SAMEFIELDS = cython.declare(cython.longlong, SAMEFIELDS)
_KEPT = cython.declare(cython.Py_ssize_t, 65536)  # bytes of a node that a writer keeps


# -- entries -------------------------------------------------------------------------------------------


@cython.final
@cython.cclass
class EntryWriter:
    """Writes entries of a stream to a reply, one after the other.

    For entries with their node's field names, from the node's second entry on, the writer copies the names' reply bytes
    (`names`; the first includes the header of the array of fields) and decodes only the values. A writer that is used
    again may already have the names of the node `lp`, which never change; it keeps no large node.
    """

    __slots__ = ("lp", "names", "parts")
    lp: Listpack | None
    names: list[bytes] | None
    parts: public[cython.int]  # the array length of an entry: 2 = ID and fields; the caller writes any further elements

    def __init__(self) -> None:
        self.parts = 2
        self.lp = None
        self.names = None

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def write_all(self, out: ReplyWriter, entries: StreamIterator, count: cython.longlong) -> cython.longlong:
        """Write up to `count` entries (-1 = all) from the next one on; return how many."""
        written: cython.longlong = 0
        while written != count and entries.next_entry():
            self.write(out, entries)
            written += 1
        return written

    @cython.ccall
    def write(self, out: ReplyWriter, entries: StreamIterator) -> cython.bint:
        """Write the current entry of the iterator: its ID and an array of its fields and values. O(fields)"""
        lp: Listpack | None = entries.lp
        assert lp is not None, "the iterator must be at an entry"
        out.array(self.parts)
        out.stream_id(entries.ms, entries.seq)
        if entries.flags & _SAMEFIELDS != 0:
            if lp is self.lp:
                return self._write_values(out, lp, entries)
            self.lp = lp if lp.used <= _KEPT else None
            self.names = None
        out.array(2 * entries.numfields)
        while entries.next_field():
            if entries.field_text:
                out.bulk_slice(lp.buf, entries.field_start, entries.field_len)
            else:
                out.bulk_int(entries.field_int)
            if entries.value_text:
                out.bulk_slice(lp.buf, entries.value_start, entries.value_len)
            else:
                out.bulk_int(entries.value_int)
        return True

    @cython.cfunc
    def _write_values(self, out: ReplyWriter, lp: Listpack, entries: StreamIterator) -> cython.bint:
        """Write the fields and values of an entry that has the field names of its node."""
        names: list[bytes] | None = self.names
        buf: bytearray = lp.buf
        end: cython.Py_ssize_t = lp.used - 1
        index: cython.Py_ssize_t
        pos: cython.Py_ssize_t
        byte: cython.int
        size: cython.Py_ssize_t
        if not entries.next_field():
            return out.array(0)
        if names is None:
            names = self.names = _shared_names(lp, entries.field_pos, entries.numfields)
        pos = entries.value_pos
        for index in range(entries.numfields):
            byte = buf[pos] if pos < end else 0
            size = byte & 0x3F
            if 0x80 <= byte < 0xC0 and pos + size + 2 <= end:
                # Read the header of a short string here: a function call would take as long as copying the string.
                out.raw_then_slice(names[index], buf, pos + 1, size)
                pos += size + 2
                continue
            if lp.decode(pos):
                out.raw_then_slice(names[index], buf, lp.at_start, lp.at_len)
            else:
                out.raw(names[index])
                out.bulk_int(lp.at_int)
            pos = lp.at_next
        return entries.skip_fields(pos)


@cython.cfunc
def _shared_names(lp: Listpack, pos: cython.Py_ssize_t, count: cython.Py_ssize_t) -> list[bytes]:
    """Return the field names of a node, each as RESP bytes; pos is the first name's position in the listpack."""
    names: list[bytes] = []
    out: ReplyWriter = ReplyWriter()
    left: cython.Py_ssize_t = count
    out.array(2 * count)
    while left > 0:
        if lp.decode(pos):
            out.bulk_slice(lp.buf, lp.at_start, lp.at_len)
        else:
            out.bulk_int(lp.at_int)
        names.append(out.take_bytes())
        pos = lp.at_next
        left -= 1
    return names


@command("xlen", arity=2, flags="readonly fast", since="5.0.0", syntax="key", complexity="O(1)")
def xlen(session: Session, argv: list[bytes]) -> None:
    """Returns the number of entries in a stream."""
    stream: Stream | None = lookup_read(session, argv[1])
    session.out.integer(0 if stream is None else stream.length)


@cython.final
@cython.cclass
class Xrange(Implementation):
    """XRANGE and XREVRANGE (t_stream.c: xrangeGenericCommand)."""

    __slots__ = ("_entries", "_interval", "_low", "_writer")
    _entries: StreamIterator
    _interval: Interval
    _low: cython.Py_ssize_t  # the position of the lower end
    _writer: EntryWriter

    def __init__(self, low: int) -> None:
        self._entries = StreamIterator()
        self._interval = Interval()
        self._low = low
        self._writer = EntryWriter()

    @cython.ccall
    def run(self, session: Session, words: ArgumentSpans) -> cython.bint:
        """Reply with the entries between two IDs."""
        out: ReplyWriter = session.out
        interval: Interval = self._interval
        count: cython.longlong = -1
        at: cython.Py_ssize_t = 4
        low: cython.Py_ssize_t = self._low
        interval.read_start(words.at[low], words.size[low])
        interval.read_end(words.at[5 - low], words.size[5 - low])
        while at < words.count:
            if at + 1 == words.count or not is_named(words, at, b"count"):
                raise CommandError(SYNTAX_ERROR)
            count = max(0, integer_at(words, at + 1))
            at += 2
        stream: Stream | None = stream_at(session.db, session.db.locate_read(words))
        if stream is None:
            return out.array(0)
        if count == 0:
            return out.null_array()
        if stream.sealed != 0 and self._must_wait(session, words, stream, count):
            return True
        entries: StreamIterator = self._entries
        entries.open(stream, interval.start_ms, interval.start_seq, interval.end_ms, interval.end_seq, low == 3,
                     None)  # fmt: skip
        mark: cython.Py_ssize_t = out.mark()
        written: cython.longlong = self._writer.write_all(out, entries, count)
        entries.close()
        return out.insert_array(mark, written)

    @cython.cfunc
    def _must_wait(self, session: Session, words: ArgumentSpans, stream: Stream, count: cython.longlong) -> cython.bint:
        """Let the client wait if the disk must read entries of the interval; return whether it waits."""
        interval: Interval = self._interval
        reads: Any = session.engine.cold_reads
        if reads is None or not reads.may_hold(session):
            return False
        absent: list[Any] = absent_between(stream, (interval.start_ms, interval.start_seq),
                                           (interval.end_ms, interval.end_seq), count, self._low == 3)  # fmt: skip
        if absent:
            words.restore()
            reads.hold(session, words.to_list(), absent)
            session.db.hits -= 1  # the lookup counts when the command begins again
        return len(absent) > 0


command("xrange", arity=-4, flags="readonly", since="5.0.0", syntax="key start end [COUNT count]",
        summary="Returns the entries between two IDs, oldest first.",
        complexity="O(N) for the N entries returned.")(partial(Xrange, 2))
command("xrevrange", arity=-4, flags="readonly", since="5.0.0", syntax="key end start [COUNT count]",
        summary="Returns the entries between two IDs, newest first.",
        complexity="O(N) for the N entries returned.")(partial(Xrange, 3))

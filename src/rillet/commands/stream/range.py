"""XLEN, XRANGE and XREVRANGE, and the writer of entries for all commands.

`EntryWriter` writes an entry directly from the bytes of its listpack, without an object per field or value:

    *2  $ id  *2n  $ field $ value ...

"""

from __future__ import annotations

try:
    import cython
except ModuleNotFoundError:  # Cython is not installed: use a replacement for its names
    from rillet import _cython as cython

from rillet.commands.stream import command
from rillet.commands.stream.arguments import SYNTAX_ERROR, Interval
from rillet.errors import CommandError
from rillet.protocol.reply_writer import ReplyWriter
from rillet.runtime.session import Session
from rillet.structs.listpack import Listpack
from rillet.types.stream.iterator import StreamIterator
from rillet.types.stream.node import SAMEFIELDS
from rillet.types.stream.value import Stream

if not cython.compiled:  # for compiled code, the .pxd declares these names
    from rillet.commands.stream.arguments import integer, option
    from rillet.commands.stream.lookup import lookup_read

_SAMEFIELDS = cython.declare(cython.longlong, SAMEFIELDS)


# -- entries -------------------------------------------------------------------------------------------


@cython.final
@cython.cclass
class EntryWriter:
    """Writes entries of a stream to a reply, one after the other.

    For entries with their node's field names, from the node's second entry on, the writer copies the names' reply bytes
    (`names`; the first includes the header of the array of fields) and decodes only the values.
    """

    __slots__ = ("lp", "names", "out", "parts")
    parts: cython.int  # the array length of an entry: 2 = ID and fields; the caller writes any further elements

    def __init__(self, out: ReplyWriter) -> None:
        self.out = out
        self.parts = 2
        self.lp: Listpack | None = None
        self.names: list[bytes] | None = None

    @cython.ccall
    def write(self, entries: StreamIterator) -> cython.bint:
        """Write the current entry of the iterator: its ID and an array of its fields and values. O(fields)"""
        out: ReplyWriter = self.out
        lp: Listpack | None = entries.lp
        assert lp is not None, "the iterator must be at an entry"
        out.array(self.parts)
        out.stream_id(entries.ms, entries.seq)
        if entries.flags & _SAMEFIELDS != 0:
            if lp is self.lp:
                return self._write_values(lp, entries)
            self.lp = lp
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
    def _write_values(self, lp: Listpack, entries: StreamIterator) -> cython.bint:
        """Write the fields and values of an entry that has the field names of its node."""
        out: ReplyWriter = self.out
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
        return True


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
        names.append(out.take())
        pos = lp.at_next
        left -= 1
    return names


@cython.ccall
def write_entries(
    out: ReplyWriter,
    stream: Stream,
    start_ms: cython.ulonglong,
    start_seq: cython.ulonglong,
    end_ms: cython.ulonglong,
    end_seq: cython.ulonglong,
    count: cython.longlong = 0,
    reverse: cython.bint = False,
) -> cython.longlong:
    """Write up to `count` entries (0 = all) of a range, without an array header; return how many. O(log N + entries)"""
    written: cython.longlong = 0
    entries: StreamIterator = StreamIterator(stream, start_ms, start_seq, end_ms, end_seq, reverse)
    writer: EntryWriter = EntryWriter(out)
    while entries.next_entry():
        writer.write(entries)
        written += 1
        if written == count:
            break
    return written


@command("xlen", arity=2, flags="readonly fast", since="5.0.0", syntax="key", complexity="O(1)")
def xlen(session: Session, argv: list[bytes]) -> None:
    """Returns the number of entries in a stream."""
    stream: Stream | None = lookup_read(session, argv[1])
    session.out.integer(0 if stream is None else stream.length)


@command("xrange", arity=-4, flags="readonly", since="5.0.0", syntax="key start end [COUNT count]",
         complexity="O(N) for the N entries returned.")
def xrange(session: Session, argv: list[bytes]) -> None:
    """Returns the entries between two IDs, oldest first."""
    _range(session, argv, False)


@command("xrevrange", arity=-4, flags="readonly", since="5.0.0", syntax="key end start [COUNT count]",
         complexity="O(N) for the N entries returned.")
def xrevrange(session: Session, argv: list[bytes]) -> None:
    """Returns the entries between two IDs, newest first."""
    _range(session, argv, True)


@cython.cfunc
def _range(session: Session, argv: list[bytes], reverse: cython.bint) -> cython.bint:
    """Execute XRANGE or XREVRANGE (t_stream.c: xrangeGenericCommand)."""
    interval: Interval = Interval()
    count: cython.longlong = -1
    at: cython.Py_ssize_t = 4
    interval.read_start(argv[3] if reverse else argv[2])
    interval.read_end(argv[2] if reverse else argv[3])
    while at < len(argv):
        if at + 1 == len(argv) or option(argv[at]) != b"count":
            raise CommandError(SYNTAX_ERROR)
        count = integer(argv[at + 1])
        if count < 0:
            count = 0
        at += 2
    out: ReplyWriter = session.out
    stream: Stream | None = lookup_read(session, argv[1])
    if stream is None:
        return out.array(0)
    if count == 0:
        return out.null_array()
    mark: cython.Py_ssize_t = out.mark()
    written: cython.longlong = write_entries(
        out, stream, interval.start_ms, interval.start_seq, interval.end_ms, interval.end_seq,
        0 if count == -1 else count, reverse,
    )  # fmt: skip
    return out.insert_array(mark, written)

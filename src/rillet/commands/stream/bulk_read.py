"""RILLET.XNODES, XCOUNT, XRANK and XAFTER: commands of rillet that count and copy, which Redis does not have.

    RILLET.XNODES key after last COUNT n    the nodes with the entries in (after, last], at least n entries
    RILLET.XCOUNT key start end             the number of entries in a range, which is that of XRANGE
    RILLET.XRANK key id [id ...]            for each ID the number of entries at or before it
    RILLET.XAFTER key after count           the ID of the count-th entry after an ID, or of the last entry

**XNODES** copies listpacks unchanged, one memcpy per node of about a hundred entries, while XRANGE decodes and writes
every value. `columns/node_pages.py` reads the reply:

    *  $ next ID or nil   $ first ID or nil  $ 16 bytes  $ listpack  $ 16 bytes  $ listpack ...
       │                  └ the stream's first ID at the time of the copy: shows whether a trim has passed the reader
       └ first, so that the client can send the next request before it decodes the nodes

Nodes are complete: the first may begin before the range, the last may end after it, and tombstones are included, so the
client must check IDs and flags. The next ID is the greatest one before the next node, so that the next request finds
that node by its key; nil means that the range has no more nodes. A reply ends after the node with which it exceeds
REPLY_BYTES, regardless of COUNT.

**XCOUNT, XRANK and XAFTER** use the counts in the master entries, summed in pieces (`types/stream/counts.py`), and the
entries of one node. XAFTER is nil if no entry follows the ID. In XRANK and as `last`, an ID without a sequence number
stands for its whole millisecond, as at the end of a range.

Costs: XNODES O(log N + bytes), the others O(nodes) at the first call, then O(log nodes). Rejected: positions by
`entries-added`, which are wrong after the first deletion.

The commands are read-only, exist with every `compat`, and are never logged. Redis replies "unknown command", so clients
need a fallback.
"""

from __future__ import annotations

from rillet._cython import cython
from rillet.commands.stream import command
from rillet.commands.stream.arguments import INVALID_ID, SYNTAX_ERROR, Interval, integer, option
from rillet.commands.stream.lookup import lookup_read
from rillet.errors import CommandError
from rillet.protocol.reply_writer import ReplyWriter
from rillet.runtime.session import Session
from rillet.structs.listpack import Listpack
from rillet.types.stream.counts import StreamCounts, counts_of
from rillet.types.stream.id import IDReader, encode_key, key_ms, key_seq, less
from rillet.types.stream.iterator import StreamIterator
from rillet.types.stream.node import int_at
from rillet.types.stream.nodes import NodeIterator
from rillet.types.stream.stream import Stream

REPLY_BYTES = 16 << 20
_REPLY_BYTES = cython.declare(cython.Py_ssize_t, REPLY_BYTES)
_MAX = cython.declare(cython.ulonglong, 0xFFFF_FFFF_FFFF_FFFF)
_COUNT = cython.declare(cython.Py_ssize_t, 6)  # offset of a node's entry count: after the 6-byte listpack header


@cython.cfunc
def _id(word: bytes, missing_seq: cython.ulonglong) -> IDReader:
    """Parse an ID, `-` or `+`; missing_seq is the sequence number of an ID that has none."""
    reader: IDReader = IDReader()
    if not reader.read(word, missing_seq, False):
        raise CommandError(INVALID_ID)
    return reader


@cython.cfunc
def _positive(word: bytes) -> cython.longlong:
    """Return an argument as an integer; raise CommandError if it is below 1."""
    value: cython.longlong = integer(word)
    if value < 1:
        raise CommandError("value is out of range, must be positive")
    return value


@cython.cfunc
def _nodes_from(stream: Stream, ms: cython.ulonglong, seq: cython.ulonglong) -> NodeIterator:
    """Return an iterator over the nodes of a stream, from the node that could contain the ID on."""
    nodes: NodeIterator = NodeIterator(stream)
    if not nodes.seek("<=", encode_key(ms, seq)):
        nodes.seek("^")
    return nodes


@cython.cfunc
@cython.inline
def _living(
    stream: Stream, key: bytes, lp: Listpack, start_ms: cython.ulonglong, start_seq: cython.ulonglong
) -> cython.longlong:
    """Return how many entries of a node are at or after the ID. O(1) if all of them are."""
    entries: StreamIterator
    count: cython.longlong = int_at(lp, _COUNT)
    if not less(key_ms(key), key_seq(key), start_ms, start_seq):
        return count
    if start_seq != 0:
        entries = StreamIterator(stream, key_ms(key), key_seq(key), start_ms, start_seq - 1, False)
    else:
        entries = StreamIterator(stream, key_ms(key), key_seq(key), start_ms - 1, _MAX, False)
    while entries.next_entry():
        count -= 1
    return count


@command("rillet.xnodes", arity=6, flags="readonly", since="1.0.0", syntax="key after last <COUNT count>",
         complexity="O(log N + bytes of the nodes returned).")
def xnodes(session: Session, argv: list[bytes]) -> None:
    """Returns the nodes of a stream that contain a range of IDs, in their stored form."""
    after: IDReader = _id(argv[2], 0)
    last: IDReader = _id(argv[3], _MAX)
    if option(argv[4]) != b"count":
        raise CommandError(SYNTAX_ERROR)
    count: cython.longlong = _positive(argv[5])
    stream: Stream | None = lookup_read(session, argv[1])
    if stream is not None and less(after.ms, after.seq, last.ms, last.seq):
        _write_nodes(session.out, stream, after, last, count)
        return
    session.out.array(2)
    session.out.null()
    _write_first(session.out, stream)


@cython.cfunc
def _write_first(out: ReplyWriter, stream: Stream | None) -> cython.bint:
    """Write the ID of the stream's first entry, nil if there is none. O(one node)"""
    if stream is None or not stream.edge(True, True):
        out.null()
    else:
        out.stream_id(stream.edge_ms, stream.edge_seq)
    return True


@cython.cfunc
def _write_nodes(
    out: ReplyWriter, stream: Stream, after: IDReader, last: IDReader, count: cython.longlong
) -> cython.bint:
    """Write the reply of RILLET.XNODES for a range that is not empty."""
    start_ms: cython.ulonglong = after.ms if after.seq != _MAX else after.ms + 1
    start_seq: cython.ulonglong = after.seq + 1 if after.seq != _MAX else 0
    nodes: NodeIterator = _nodes_from(stream, start_ms, start_seq)
    pages: list[tuple[bytes, Listpack]] = []
    more: cython.bint = False
    size: cython.Py_ssize_t = 0
    living: cython.longlong
    lp: Listpack
    while nodes.next():
        if less(last.ms, last.seq, key_ms(nodes.key), key_seq(nodes.key)):
            break
        if count <= 0 or size > _REPLY_BYTES:
            more = True
            break
        lp = nodes.node()
        living = _living(stream, nodes.key, lp, start_ms, start_seq)
        if living > 0:
            pages.append((nodes.key, lp))
            count -= living
            size += lp.used
    out.reserve(size + 64 * (len(pages) + 1))
    out.array(2 + 2 * len(pages))
    if more:
        start_ms = key_ms(nodes.key)
        start_seq = key_seq(nodes.key)
        if start_seq != 0:
            out.stream_id(start_ms, start_seq - 1)
        else:
            out.stream_id(start_ms - 1, _MAX)
    else:
        out.null()
    _write_first(out, stream)
    for key, lp in pages:
        out.bulk(key)
        out.bulk_slice(lp.buf, 0, lp.used)
    return True


@command("rillet.xcount", arity=4, flags="readonly", since="1.0.0", syntax="key start end",
         complexity="O(N) for the N nodes of the stream at the first call, then O(log N).")
def xcount(session: Session, argv: list[bytes]) -> None:
    """Returns the number of entries in a range of IDs."""
    interval: Interval = Interval()
    interval.read_start(argv[2], len(argv[2]))
    interval.read_end(argv[3], len(argv[3]))
    stream: Stream | None = lookup_read(session, argv[1])
    ms: cython.ulonglong = interval.start_ms
    seq: cython.ulonglong = interval.start_seq
    sums: StreamCounts
    count: cython.longlong = 0
    if stream is not None and not less(interval.end_ms, interval.end_seq, ms, seq):
        sums = counts_of(stream)
        count = sums.rank(stream, interval.end_ms, interval.end_seq)
        if seq != 0:
            count -= sums.rank(stream, ms, seq - 1)
        elif ms != 0:
            count -= sums.rank(stream, ms - 1, _MAX)
    session.out.integer(count)


@command("rillet.xrank", arity=-3, flags="readonly", since="1.0.0", syntax="key id [id ...]",
         complexity="O(N) for the N nodes of the stream at the first call, then O(log N) for each ID.")
def xrank(session: Session, argv: list[bytes]) -> None:
    """Returns for each ID the number of entries at or before it."""
    wanted: list[IDReader] = [_id(argv[at], _MAX) for at in range(2, len(argv))]
    stream: Stream | None = lookup_read(session, argv[1])
    reader: IDReader
    sums: StreamCounts
    session.out.array(len(wanted))
    if stream is None:
        for _ in wanted:
            session.out.integer(0)
        return
    sums = counts_of(stream)
    for reader in wanted:
        session.out.integer(sums.rank(stream, reader.ms, reader.seq))


@command("rillet.xafter", arity=4, flags="readonly", since="1.0.0", syntax="key after count",
         complexity="O(N) for the N nodes of the stream at the first call, then O(log N).")
def xafter(session: Session, argv: list[bytes]) -> None:
    """Returns the ID of the count-th entry after an ID, or of the last entry."""
    after: IDReader = _id(argv[2], 0)
    count: cython.longlong = _positive(argv[3])
    stream: Stream | None = lookup_read(session, argv[1])
    sums: StreamCounts
    rank: cython.longlong
    left: cython.longlong
    if stream is None:
        session.out.null()
        return
    sums = counts_of(stream)
    rank = sums.rank(stream, after.ms, after.seq)
    left = stream.length - rank
    if left <= 0:
        session.out.null()
        return
    sums.find(stream, rank + min(count, left))
    session.out.stream_id(sums.found_ms, sums.found_seq)

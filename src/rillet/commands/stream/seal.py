"""RILLET.SEAL, RILLET.UNSEAL and RILLET.XSEGMENTS: nodes that lie in segments (docs/formats/segment.md).

**RILLET.SEAL** is in the log of a store only. The log has the entries as XADD commands before, so a replay has the
nodes in memory again. This command replaces them by the segment, if it has the same bytes. If it does not, because a
setting for the size of nodes has changed since, the nodes stay in memory: the data is the same either way.
**RILLET.UNSEAL** takes nodes into memory again, when the owner of the store empties a segment.

**RILLET.XSEGMENTS** states which IDs of a stream lie in which file, so that a process on the same machine can read the
files itself, as Spark's tasks do. It reads no file:

    [folder, [first ID, reference, number of the first node, nodes, ID of the next node], ...]

Every entry of the stream from `first ID` on and before the next node is in those nodes, and those nodes have no other
entries: a node from which an entry is deleted leaves its segment first. So the reply and the files together are the
stream at this moment, whatever happens to it later. HOLD keeps the files for so many milliseconds.
"""

from __future__ import annotations

import contextlib
import os
from typing import Any

from rillet.commands.arguments import integer, syntax_error
from rillet.commands.stream import command
from rillet.commands.stream.arguments import read_ids
from rillet.commands.stream.lookup import lookup_read, lookup_write
from rillet.errors import CommandError, SegmentUnreadable
from rillet.runtime.session import Session
from rillet.types.stream.id import encode_key, key_ms, key_seq
from rillet.types.stream.nodes import NodeIterator, SealedNodes
from rillet.types.stream.stream import Stream

HOLD_MS = 24 * 3600 * 1000
"""The longest hold in ms."""


def _nodes_of(session: Session, argv: list[bytes]) -> tuple[Stream, Any, int, int]:
    """Return the stream, the segment, and the first node and the number of nodes of its arguments."""
    segments = session.engine.segments
    if not session.trusted or segments is None:
        raise CommandError(f"{argv[0].decode().upper()} is a command of the log of a store with segments")
    source, first, count = segments.open(argv[2]), integer(argv[3]), integer(argv[4])
    stream = lookup_write(session, argv[1])
    if stream is None or not 0 <= first <= first + count <= source.sealed.nodes or count < 1:
        raise CommandError("no such nodes")
    return stream, source, first, count


@command(
    "rillet.seal",
    arity=5,
    flags="write",
    since="1.0.0",
    syntax="key reference first count",
    complexity="O(bytes of the nodes).",
)
def seal(session: Session, argv: list[bytes]) -> None:
    """Replaces nodes of a stream by a range of a segment. Only the log of a store contains this command."""
    stream, source, first, count = _nodes_of(session, argv)
    nodes = NodeIterator(stream)
    nodes.seek("<=", source.key(first))
    for number in range(first, first + count):
        if not nodes.next() or nodes.range is not None or nodes.key != source.key(number):
            break
        if not source.matches(number, nodes.node()):
            break
    else:
        if nodes.next():  # the last node of a stream stays in memory
            stream.seal(SealedNodes(source, first, count, source.living_of(first, count)))
    session.out.ok()


@command(
    "rillet.unseal",
    arity=5,
    flags="write",
    since="1.0.0",
    syntax="key reference first count",
    complexity="O(bytes of the nodes).",
)
def unseal(session: Session, argv: list[bytes]) -> None:
    """Takes nodes of a stream from a segment into memory. Only the log of a store contains this command."""
    stream, source, first, count = _nodes_of(session, argv)
    with contextlib.suppress(SegmentUnreadable):  # the nodes stay where they are, and whoever reads them gets the error
        stream.unseal(source, first, count)
    session.out.ok()


@command(
    "rillet.xsegments",
    arity=-4,
    flags="readonly admin",
    since="1.0.0",
    syntax="key after last [HOLD milliseconds]",
    complexity="O(N) for the N nodes in memory and ranges in segments up to the last range.",
)
def xsegments(session: Session, argv: list[bytes]) -> None:
    """Returns the segments that contain the IDs (after, last] of a stream, nil if none does."""
    (after, last), hold = (encode_key(*one) for one in read_ids(argv[:4], 2)), 0
    if len(argv) > 4:
        if len(argv) != 6 or argv[4].lower() != b"hold":
            raise syntax_error()
        hold = integer(argv[5])
        if not 0 <= hold <= HOLD_MS:
            raise CommandError(f"HOLD must be 0 to {HOLD_MS} milliseconds")
    segments, stream = session.engine.segments, lookup_read(session, argv[1])
    ranges = [] if stream is None or not stream.ranges else ranges_of(stream, after, last)
    if segments is None or not ranges:
        session.out.null_array()
        return
    if hold:
        names = {nodes.source.path.name for _, nodes, _ in ranges}
        segments.hold(names, session.engine.clock.now_ms() + hold)
    out = session.out
    out.array(1 + len(ranges))
    out.bulk(os.fsencode(segments.path.absolute()))
    for first, nodes, after in ranges:
        out.array(5)
        out.stream_id(key_ms(first), key_seq(first))
        out.bulk(nodes.source.reference())
        out.integer(nodes.first)
        out.integer(nodes.count)
        out.stream_id(key_ms(after), key_seq(after))


def ranges_of(stream: Stream, after: bytes, last: bytes) -> list[tuple[bytes, SealedNodes, bytes]]:
    """Return the ranges with IDs in (after, last], each with its first ID and the ID of the node behind it."""
    found, begun, seen = [], None, 0
    for key, value in stream.rax.items():
        if begun is not None:
            if key > after:
                found.append((*begun, key))
            begun = None
            if seen == stream.ranges:
                break
        if key > last:
            break
        if isinstance(value, SealedNodes):
            begun = key, value
            seen += 1
    return found

"""RILLET.SEAL: in the log of a store, nodes of a stream that have gone into a segment (docs/formats/segment.md).

The log has the entries as XADD commands before, so a replay has the nodes in memory again. This command replaces them
by the segment, if it has the same bytes. If it does not, because a setting for the size of nodes has changed since, the
nodes stay in memory: the data is the same either way.
"""

from __future__ import annotations

from rillet.commands.arguments import integer
from rillet.commands.stream import command
from rillet.commands.stream.lookup import lookup_write
from rillet.errors import CommandError
from rillet.runtime.session import Session
from rillet.types.stream.nodes import NodeIterator, SealedNodes


@command("rillet.seal", arity=5, flags="write", since="1.0.0", syntax="key reference first count",
         complexity="O(bytes of the nodes).")
def seal(session: Session, argv: list[bytes]) -> None:
    """Replaces nodes of a stream by a range of a segment. Only the log of a store contains this command."""
    segments = session.engine.segments
    if not session.trusted or segments is None:
        raise CommandError("RILLET.SEAL is a command of the log of a store with segments")
    source, first, count = segments.open(argv[2]), integer(argv[3]), integer(argv[4])
    stream = lookup_write(session, argv[1])
    if stream is None or not 0 <= first <= first + count <= source.sealed.nodes or count < 1:
        raise CommandError("no such nodes")
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

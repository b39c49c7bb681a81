"""RILLET.XMEMORY: the bytes of a stream by structure, for `Store.stats`; Redis does not have it.

    RILLET.XMEMORY key [SAMPLES count]
        stream      the object: a constant             groups   groups and consumers, without their indexes
        rax         the tree over the nodes            pending  the table of pending entries and all its indexes
        listpacks   the nodes with the entries         idmp     the message IDs of idempotent producers
        measured    how many listpacks were measured

The sum of the bytes is what MEMORY USAGE with the same SAMPLES returns for the value. A listpack counts with its
allocated size. Without SAMPLES the first thousand listpacks and the last are measured; 0 measures all.

Like the other commands of rillet it exists with every `compat` and is never logged. Redis replies "unknown command".
"""

from __future__ import annotations

from rillet.commands.arguments import syntax_error
from rillet.commands.replies import write_tree
from rillet.commands.stream import command
from rillet.commands.stream.arguments import integer, option
from rillet.commands.stream.lookup import lookup_read, require_stream
from rillet.runtime.session import Session
from rillet.types.stream.check import memory_by_structure

SAMPLES = 1000


@command(
    "rillet.xmemory",
    arity=-2,
    flags="readonly",
    since="1.0.0",
    syntax="key [SAMPLES count]",
    complexity="O(N) for N samples",
)
def xmemory(session: Session, argv: list[bytes]) -> None:
    """Returns the bytes of a stream by structure."""
    samples = SAMPLES
    if len(argv) > 2:
        if len(argv) != 4 or option(argv[2]) != b"samples":
            raise syntax_error()
        samples = integer(argv[3])
        if samples < 0:
            raise syntax_error()
    parts, measured = memory_by_structure(require_stream(lookup_read(session, argv[1])), samples)
    write_tree(session.out, {**{name.encode(): size for name, size in parts.items()}, b"measured": measured})

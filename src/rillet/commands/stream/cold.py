"""Nodes that a command needs and the disk still has: they are read before the command runs.

    XRANGE, XREAD ...   `absent_between`   the sealed nodes of the range, as far as COUNT, that are not in memory
                        ColdReads.hold     the client waits, a thread reads them, and the command begins again

Nothing depends on the guess: a node that is absent all the same is read where it is needed, and other clients wait.
"""

from __future__ import annotations

from typing import Any

from rillet.structs.rax_iterator import RaxIterator
from rillet.types.stream.id import encode_key
from rillet.types.stream.node import int_at
from rillet.types.stream.nodes import SealedNodes
from rillet.types.stream.stream import Stream

_COUNT = 6  # position of a node's entry count, after the listpack header
_MOST = 8 << 20
"""The bytes of nodes that a command waits for; what it reads beyond them, it reads itself."""


def absent_between(
    stream: Stream, start: tuple[int, int], end: tuple[int, int], count: int, reverse: bool
) -> list[Any]:
    """Return what must be read of the nodes with the entries between two IDs, at most `count` of them; -1: all.

    The elements are those of `NodeSource.absent`. O(nodes of the range, up to 8 MiB)
    """
    low, high = encode_key(*start), encode_key(*end)
    tree = RaxIterator(stream.rax)
    if not tree.seek("<=", high if reverse else low) and (reverse or not tree.seek("^")):
        return []
    left, size = count, 0
    absent: list[Any] = []
    step = tree.prev if reverse else tree.next
    while step() and (tree.key <= high or reverse):
        value = tree.data
        if not isinstance(value, SealedNodes):
            left -= int_at(value, _COUNT)
        else:
            source = value.source
            index = source.absent(-1, 0)
            if index is not None:  # what follows is unknown without it
                return [*absent, index]
            first, last = max(value.find(low), 0), value.find(high)
            numbers = range(last, first - 1, -1) if reverse else range(first, last + 1)
            wanted = []
            for at in numbers:
                wanted.append(value.first + at)
                left -= source.living(value.first + at)
                size += source.size(value.first + at)
                if size > _MOST or (count >= 0 and left <= 0):
                    break
            if wanted:
                nodes = source.absent(min(wanted), len(wanted))
                if nodes is not None:
                    absent.append(nodes)
        if size > _MOST or (count >= 0 and left <= 0) or (reverse and tree.key < low):
            break
    return absent


__all__ = ["absent_between"]

"""Nodes that a command needs and the disk still has: they are read before the command runs.

    XRANGE, XREAD ...   `absent_between`   the sealed nodes of the range, as far as COUNT, that are not in memory
    XCLAIM, XDEL ...    `absent_of`        those of single entries
                        ColdReads.hold     the client waits, a thread reads them, and the command begins again

Nothing depends on the guess: a node that is absent all the same is read where it is needed, and other clients wait.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rillet.runtime.session import Session
from rillet.structs.rax_iterator import RaxIterator
from rillet.types.stream.id import IDReader, encode_key
from rillet.types.stream.node import int_at
from rillet.types.stream.nodes import SealedNodes
from rillet.types.stream.pending import PendingIterator
from rillet.types.stream.stream import Stream

_COUNT = 6  # position of a node's entry count, after the listpack header
_MOST = 8 << 20
"""The bytes of nodes that a command waits for; what it reads beyond them, it reads itself."""
_MOST_PENDING = 4096
_LOWEST, _HIGHEST = bytes(16), b"\xff" * 16


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
            first = 0 if low == _LOWEST else max(value.find(low), 0)
            last = value.count - 1 if high == _HIGHEST else value.find(high)
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


def absent_of(stream: Stream, ids: Iterable[tuple[int, int]]) -> list[Any]:
    """Return what must be read of the nodes with these entries. O(log nodes) for each, up to 8 MiB of nodes"""
    tree = RaxIterator(stream.rax)
    size = 0
    absent: dict[tuple[int, int], Any] = {}
    for ident in ids:
        key = encode_key(*ident)
        if not tree.seek("<=", key) or not tree.next() or not isinstance(tree.data, SealedNodes):
            continue
        source, at = tree.data.source, tree.data.find(key)
        index = source.absent(-1, 0)
        if index is not None:
            return [*absent.values(), index]
        place = (id(source), tree.data.first + at)
        if place in absent:
            continue
        part = source.absent(place[1], 1)
        if part is not None:
            absent[place] = part
            size += source.size(place[1])
            if size > _MOST:
                break
    return list(absent.values())


def must_wait(session: Session, argv: list[bytes], stream: Stream, ids: Iterable[tuple[int, int]]) -> bool:
    """Let the client wait if the disk must read these entries of a stream with sealed nodes; return whether it waits.

    Nothing has changed yet.
    """
    reads: Any = session.engine.cold_reads
    if reads is None or not reads.may_hold(session):
        return False
    absent = absent_of(stream, ids)
    if absent:
        reads.hold(session, argv, absent)
    return bool(absent)


def named_ids(argv: list[bytes], start: int, end: int) -> list[tuple[int, int]]:
    """Return the IDs of some words, which are valid."""
    reader = IDReader()
    found: list[tuple[int, int]] = []
    for at in range(start, end):
        reader.read(argv[at], 0, True)
        found.append((reader.ms, reader.seq))
    return found


def first_pending(pending: PendingIterator, count: int) -> list[tuple[int, int]]:
    """Return the IDs of the next pending entries, at most `count` of them, and of some thousand."""
    found: list[tuple[int, int]] = []
    while len(found) < min(count, _MOST_PENDING) and pending.next():
        found.append((pending.ms, pending.seq))
    return found


__all__ = ["absent_between", "absent_of", "first_pending", "must_wait", "named_ids"]

"""Verification of a stream's invariants, entry by entry, and the size of a stream in memory.

The functions use public attributes only, so they work on compiled and interpreted streams. `check_stream` decodes each
node from the listpack's values, without `StreamIterator`, so that it also finds errors of the iterator.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from rillet.types.stream.group_check import must
from rillet.types.stream.node import DELETED, SAMEFIELDS, validate_node
from rillet.types.stream.nodes import NodeIterator, SealedNodes

if TYPE_CHECKING:
    from rillet.structs.listpack import Listpack
    from rillet.structs.rax import Rax
    from rillet.types.stream.pending import PendingIndex
    from rillet.types.stream.stream import Stream

_WRAP = 1 << 64

# The sizes that MEMORY USAGE of Redis 7.0 assumes on a 64-bit machine (object.c, objectComputeSize).
_OBJECT_AND_STREAM = 16 + 80
_GROUP = 40
_CONSUMER = 24


def node_entries(lp: Listpack, master: int) -> list[tuple[int, bool]]:
    """Return (ID as a 128-bit number, whether the entry is a tombstone) for each entry of a valid node."""
    values = lp.values()
    nfields = int(values[2])
    at = 4 + nfields
    found = []
    while at < len(values):
        flags, ms, seq = (int(value) for value in values[at : at + 3])
        entry = ((master // _WRAP + ms) % _WRAP) * _WRAP + (master + seq) % _WRAP
        found.append((entry, bool(flags & DELETED)))
        at += 4 + (nfields if flags & SAMEFIELDS else 1 + 2 * int(values[at + 3]))
    return found


def _check_head(stream: Stream, nodes: NodeIterator) -> None:
    """Verify the stream's cache of its first node: `head` is that node, and only tombstones precede `head_pos`."""
    must(nodes.seek("^") and nodes.next() and nodes.key == stream.head_key, "a stream with `head` has this node")
    assert stream.head is not None
    if nodes.range is None:
        must(nodes.node() is stream.head, "`head` is the first node")
    else:
        must(nodes.node().to_bytes() == stream.head.to_bytes(), "`head` is a copy of the first node")
    values = stream.head.values()
    at = stream.head.first()
    boxes = 0
    while at not in (-1, stream.head_pos):
        at = stream.head.next(at)
        boxes += 1
    must(at != -1 or stream.head.is_end(stream.head_pos), "`head_pos` is at an entry or the end of the node")
    start = 4 + int(values[2])
    while start < boxes:
        flags = int(values[start])
        must(bool(flags & DELETED), "only tombstones precede head_pos")
        start += 4 + (int(values[2]) if flags & SAMEFIELDS else 1 + 2 * int(values[start + 3]))
    must(start == boxes, "head_pos is the start of an entry")


def check_stream(stream: Stream) -> None:
    """Verify a stream, its nodes and its groups. O(entries)."""
    stream.rax.check()
    living: list[int] = []
    set_back = False
    last_node: Listpack | None = None
    buffers = ranges = sealed = sealed_entries = sealed_bytes = 0
    nodes = NodeIterator(stream)
    nodes.seek("^")
    while nodes.next():
        key, lp = nodes.key, nodes.node()
        if nodes.range is None:
            buffers += len(lp.buf)
        else:
            sealed += 1
            must(nodes.living() == int(lp.values()[0]), "the index of sealed nodes has their counts")
        must(len(key) == 16, "a node's key has 16 bytes")
        lp.check()
        must(validate_node(lp), f"node {key.hex()} is valid")
        master = int.from_bytes(key, "big")
        entries = node_entries(lp, master)
        alive = [entry for entry, deleted in entries if not deleted]
        must(bool(entries) and entries[0][0] == master, f"node {key.hex()} begins with its master ID")
        must(int(lp.values()[0]) == len(alive), f"node {key.hex()} has the right entry count")
        set_back = set_back or any(entry < master for entry in alive)
        living += alive
        last_node = lp
    for _, value in stream.rax.items():
        if isinstance(value, SealedNodes):
            ranges += 1
            sealed_entries += value.entries
            sealed_bytes += value.size
            must(value.entries == value.source.living_of(value.first, value.count), "a range has its entries' number")
    must((stream.ranges, stream.sealed) == (ranges, sealed), "ranges and sealed are those of the tree")
    must((stream.sealed_entries, stream.sealed_bytes) == (sealed_entries, sealed_bytes), "as are their contents")
    must(stream.node_bytes == buffers, "node_bytes is the size of the nodes' buffers")
    must(stream.length == len(living), "length is the number of entries that are not tombstones")
    # XSETID may set the last ID back, before deleted entries. New entries then precede tombstones, so tombstones may
    # be out of order. In a node that had only tombstones, entries may even precede the master ID, as in Redis.
    if not set_back:
        must(stream.last_ms * _WRAP + stream.last_seq >= max(living, default=0), "no ID is above last_ms, last_seq")
        must(all(entry < after for entry, after in pairwise(living)), "the IDs of entries rise")
        first = living[0] if living else 0
        must(stream.first_ms * _WRAP + stream.first_seq == first, "first_ms and first_seq are the first entry's ID")
    must(stream.entries_added >= stream.length, "entries_added is at least length")
    must(stream.tail is None or stream.tail is last_node, "`tail` is the last node")
    if stream.head is not None:
        _check_head(stream, nodes)
    if stream.tail is not None:
        values = stream.tail.values()
        facts = (stream.tail_live, stream.tail_entries, stream.tail_fields)
        must(
            facts == (values[0], int(values[0]) + int(values[1]), values[2]),
            "the cached counts of the tail equal its master entry",
        )
        must(stream.tail.get(stream.tail_pos) == values[3], "tail_pos is the position of the tail's field names")
    stream.pending.check()
    must(
        stream.pending.count == sum(group.pending_count for group in stream.groups.values()),
        "every record of the table is pending in a group",
    )
    for name, group in stream.groups.items():
        must(group.name == name, f"group {name!r} has the right name")
        group.check()
        must(group.table is stream.pending, f"group {name!r} uses the stream's table of pending entries")


def memory_by_structure(stream: Stream, samples: int) -> tuple[dict[str, int], int]:
    """Return the bytes of each structure of a stream, and the number of listpacks that were measured. O(samples)

    samples: how many listpacks are measured from the first on, 0 for all; the rest counts with their average size.
    """
    sizes: list[int] = []
    nodes = NodeIterator(stream)
    in_memory = stream.node_count - stream.sealed
    nodes.seek("^")
    while (samples == 0 or len(sizes) < samples) and nodes.next():
        if not nodes.skip_range():
            sizes.append(len(nodes.node().buf))
    listpacks = sum(sizes)
    if in_memory > len(sizes):
        nodes.seek("$")
        nodes.next()
        listpacks = sum(sizes) // len(sizes) * (in_memory - 1) + len(nodes.node().buf)
    groups, pending = 0, len(stream.pending.buf) + _memory_of_index(stream.pending.refs)
    for group in stream.groups.values():
        groups += _GROUP
        pending += _memory_of_index(group.index)
        for consumer in group.consumers.values():
            groups += _CONSUMER + len(consumer.name)
            pending += _memory_of_index(consumer.index)
    parts = {
        "stream": _OBJECT_AND_STREAM, "rax": _memory_of_rax(stream.rax), "listpacks": listpacks, "groups": groups,
        "pending": pending, "idmp": stream.idmp.memory_usage() if stream.idmp is not None else 0,
    }  # fmt: skip
    return parts, len(sizes)


def _memory_of_index(index: PendingIndex) -> int:
    return len(index.bounds) + sum(len(page.buf) for page in index.pages)


def _memory_of_rax(rax: Rax) -> int:
    # object.c, streamRadixTreeMemoryUsage: 16 bytes per key; a header and thirty words per node.
    return 16 * rax.numele + (4 + 8 * 30) * rax.numnodes

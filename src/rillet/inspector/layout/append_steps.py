"""The four steps that added an entry to its node, and the node's bytes after each (docs/xadd.md).

The steps are taken again by the functions that add entries (`types/stream`): the earlier entries of the node are added
to an empty stream, then the entry, step by step. Entries that were deleted later are there, as they were then.

    1 ID      2 node                 3 count                  4 entry
    ms-seq    header master ff       count + 1                header master entry ff
                                     ^^^^^                    ^^^^^^        ^^^^^
"""

from __future__ import annotations

from dataclasses import dataclass

from rillet.inspector.layout.stream_node import SAMEFIELDS, NodeEntry, NodeLayout, lay_out_node
from rillet.structs.argument_spans import ArgumentSpans
from rillet.structs.listpack import HEADER_SIZE, Listpack
from rillet.types.stream.id import StreamID
from rillet.types.stream.node import new_node
from rillet.types.stream.stream import Stream

_ROOM = 4096


@dataclass(slots=True)
class AppendStep:
    """A step: its name, what happens, the node's bytes afterwards (empty: no node), and the ranges that it changed."""

    name: str
    note: str
    data: bytes
    changed: list[tuple[int, int]]


def append_steps(key: bytes, data: bytes, wanted: StreamID) -> list[AppendStep]:
    """Return the steps of an entry of a node; KeyError if the node has no such entry. O(bytes)"""
    node = lay_out_node(key, data)
    place = next((at for at, one in enumerate(node.entries) if one.id == wanted), None)
    if place is None:
        raise KeyError(f"the node {node.master} has no entry {wanted}")
    stream = Stream()
    for entry in node.entries[:place]:
        _add(stream, node, entry)
    before = _bytes(stream)
    entry = node.entries[place]
    words = _words(node, entry)
    _add(stream, node, entry)
    after = _bytes(stream)
    counted = _counted(before) if place else _started(words)
    same = "The names are those of the master entry" if entry.flags & SAMEFIELDS else "The entry has names of its own"
    return [
        AppendStep("1. The ID", _identity(node, place), before, []),
        AppendStep(
            "2. The node",
            f"The node has room: {len(before)} bytes, and {sum(map(len, words))} of the words." if place
            else "No node has room. A new one has a header and a master entry with these names.",
            before or counted, [] if before else [(0, len(counted))],
        ),
        AppendStep("3. The count", f"The count in the master entry is now {place + 1}.", counted,
                   [(HEADER_SIZE, _end_of_count(counted))]),
        AppendStep("4. The entry", f"{same}. Flags, differences of the ID, values and lp-count are written before the "
                   "end; the header gets the new size and number of elements.", after,
                   [(0, HEADER_SIZE), (len(counted) - 1, len(after) - 1)]),
    ]  # fmt: skip


def _identity(node: NodeLayout, place: int) -> str:
    id, first = node.entries[place].id, node.master
    last = f"It follows {node.entries[place - 1].id}" if place else "It becomes the ID of the node, too"
    difference = f"{id.ms - first.ms} and {id.seq - first.seq}"
    return f"{last}. The entry stores its difference to {first}, the ID of the node: {difference}."


def _words(node: NodeLayout, entry: NodeEntry) -> list[bytes]:
    """Return the names and values of an entry, alternately."""
    elements = node.packed.elements[entry.first : entry.last]
    texts = [b"%d" % one.value if isinstance(one.value, int) else one.value for one in elements]
    if entry.flags & SAMEFIELDS:
        return [word for pair in zip(node.fields, texts[3:], strict=True) for word in pair]
    return texts[4:]


def _add(stream: Stream, node: NodeLayout, entry: NodeEntry) -> None:
    words = _words(node, entry)
    stream.append(words, 0, len(words) // 2, entry.id.ms, entry.id.seq, 0, 0)


def _bytes(stream: Stream) -> bytes:
    return b"".join(packed.to_bytes() for _, packed in stream.rax.items())


def _started(words: list[bytes]) -> bytes:
    spans = ArgumentSpans()
    spans.point_to(words, 0, len(words))
    return new_node(spans, 0, len(words) // 2, _ROOM).to_bytes()


def _counted(data: bytes) -> bytes:
    packed = Listpack.from_bytes(data)
    packed.replace_int(HEADER_SIZE, int(packed.get_int(HEADER_SIZE)) + 1)
    return packed.to_bytes()


def _end_of_count(data: bytes) -> int:
    return int(Listpack.from_bytes(data).skip(HEADER_SIZE, 1))

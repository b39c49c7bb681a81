"""The meaning of the elements of a stream's node: master entry, entries, flags, deltas (docs/formats/stream_node.md).

    count deleted num-fields field ... 0 | flags ms-delta seq-delta [num-fields] [field] value ... lp-count | ff
    \\_____________ master ____________/   \\_______________________ entry ______________________________/
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rillet.errors import Corrupt
from rillet.inspector.layout.listpack import ListpackLayout, PackedElement, lay_out
from rillet.inspector.layout.span import Span
from rillet.types.stream.id import StreamID

WORDS = {
    "count": "`count` is the number of entries in the node that are not deleted",
    "deleted": "`deleted` is the number of tombstones",
    "num-fields of the master": "The fields are the names of the first entry.",
    "master field": "it only holds names for the entries that have the same names in the same order",
    "master end": "The final 0 of the master entry ends that walk.",
    "DELETED": "a tombstone: the entry is deleted, and its bytes remain in the node",
    "SAMEFIELDS": "the entry has the names of the master entry, so it stores neither the names nor their number",
    "flags": "Deleting an entry sets its flag DELETED and changes the two counts of the master entry.",
    "ms-delta": "The deltas are the ID minus the master ID, computed separately for the two halves.",
    "seq-delta": "Deltas are computed modulo 2^64 and stored as signed numbers.",
    "num-fields": "The third entry has different names, so it stores them.",
    "lp-count": "`lp-count` is the number of boxes of the entry before this one.",
}
"""Explanations, which docs/formats/stream_node.md contains word for word (a test compares them)."""
DELETED, SAMEFIELDS = 1, 2
_64 = 1 << 64


@dataclass(slots=True)
class NodeEntry:
    """An entry of a node: its ID, its flags, and the numbers of its first and last element."""

    id: StreamID
    flags: int
    first: int
    last: int

    @property
    def deleted(self) -> bool:
        """Whether the entry is a tombstone."""
        return bool(self.flags & DELETED)


@dataclass(slots=True)
class NodeLayout:
    """A node: the listpack's layout, whose spans are grouped by entry, and the entries."""

    master: StreamID
    packed: ListpackLayout
    entries: list[NodeEntry]
    fields: list[bytes]
    spans: list[Span]

    def facts(self) -> dict[str, Any]:
        """Return the figures of the node for JSON."""
        return {
            "id": str(self.master),
            "live": sum(not one.deleted for one in self.entries),
            "tombstones": sum(one.deleted for one in self.entries),
            "samefields": sum(bool(one.flags & SAMEFIELDS) for one in self.entries),
            "entries": [{"id": str(one.id), "deleted": one.deleted, "samefields": bool(one.flags & SAMEFIELDS)}
                        for one in self.entries],
        }  # fmt: skip


def lay_out_node(key: bytes, data: bytes) -> NodeLayout:
    """Return the layout of a node whose master ID is `key`; Corrupt if it is malformed. O(bytes)"""
    master = StreamID.unpack(key)
    packed = lay_out(data)
    walk = _Walk(packed.elements)
    spans = [packed.spans[0]]
    names, span = _master(walk)
    spans.append(span)
    entries = []
    while not walk.done():
        entry, span = _entry(walk, master, names)
        entries.append(entry)
        spans.append(span)
    spans.append(packed.spans[-1])
    return NodeLayout(master, packed, entries, names, spans)


class _Walk:
    """The elements in order; each one taken gets a role."""

    def __init__(self, elements: list[PackedElement]) -> None:
        self.elements = elements
        self.at = 0

    def done(self) -> bool:
        return self.at >= len(self.elements)

    def read_element(self, role: str, note: str = "") -> PackedElement:
        if self.done():
            raise Corrupt("stream node: the listpack ends inside an entry")
        element = self.elements[self.at]
        self.at += 1
        element.span.name = f"{role} ({element.span.name})"
        element.span.kind = role.split(" ")[0]
        if note:
            element.span.note = note
        return element

    def number(self, role: str, note: str = "") -> int:
        element = self.read_element(role, note)
        # Redis reads a number that is stored as text, too.
        try:
            return int(element.value)
        except ValueError:
            raise Corrupt(f"stream node: {role} is not a number") from None


def _master(walk: _Walk) -> tuple[list[bytes], Span]:
    walk.number("count", WORDS["count"])
    walk.number("deleted", WORDS["deleted"])
    count = walk.number("num-fields", WORDS["num-fields of the master"])
    names = [_bytes(walk.read_element("field", WORDS["master field"])) for _ in range(count)]
    walk.number("master-end", WORDS["master end"])
    parts = [element.span for element in walk.elements[: walk.at]]
    return names, Span(parts[0].start, parts[-1].end, "master", "master entry", f"{count} fields", parts=parts)


def _entry(walk: _Walk, master: StreamID, names: list[bytes]) -> tuple[NodeEntry, Span]:
    first = walk.at
    flags = walk.number("flags")
    words = [name for name, bit in (("DELETED", DELETED), ("SAMEFIELDS", SAMEFIELDS)) if flags & bit]
    flag_span = walk.elements[first].span
    flag_span.value = f"{flags}: {' | '.join(words) or 'none'}"
    flag_span.note = "; ".join(WORDS[word] for word in words) or WORDS["flags"]
    ms = (master.ms + walk.number("ms-delta", WORDS["ms-delta"])) % _64
    seq = (master.seq + walk.number("seq-delta", WORDS["seq-delta"])) % _64
    id = StreamID(ms, seq)
    if flags & SAMEFIELDS:
        for name in names:
            walk.read_element("value", f"of the master's field {name[:60]!r}")
    else:
        for _ in range(walk.number("num-fields", WORDS["num-fields"])):
            walk.read_element("field")
            walk.read_element("value")
    walk.number("lp-count", WORDS["lp-count"])
    parts = [element.span for element in walk.elements[first : walk.at]]
    kind = "tombstone" if flags & DELETED else "entry"
    span = Span(parts[0].start, parts[-1].end, kind, f"{kind} {id}", str(id), WORDS["DELETED"] if flags & DELETED
                else "", parts)  # fmt: skip
    return NodeEntry(id, flags, first, walk.at - 1), span


def _bytes(element: PackedElement) -> bytes:
    return b"%d" % element.value if isinstance(element.value, int) else element.value

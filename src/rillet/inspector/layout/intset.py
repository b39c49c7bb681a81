"""An intset as spans: the size of a member, the number of members, the members (docs/formats/intset.md)."""

from __future__ import annotations

from rillet.errors import Corrupt
from rillet.inspector.layout.span import Span
from rillet.structs.intset import HEADER_SIZE, Intset

WORDS = {
    "encoding": "bytes of each member: 2, 4 or 8",
    "length": "number of members",
    "member": "signed, two's complement",
    "order": "the members rise, so binary search finds a member in O(log n).",
}
"""Explanations, which docs/formats/intset.md contains word for word (a test compares them)."""


def lay_out_intset(data: bytes, most: int = 100_000) -> list[Span]:
    """Return the spans of an intset; Corrupt if the bytes are not one. O(bytes)"""
    members = Intset.from_bytes(data)
    width = int.from_bytes(data[:4], "little")
    spans = [
        Span(0, 4, "total", "encoding, u32", str(width), WORDS["encoding"]),
        Span(4, HEADER_SIZE, "count", "length, u32", str(len(members)), WORDS["length"]),
    ]
    for number in range(min(len(members), most)):
        at = HEADER_SIZE + number * width
        value = int.from_bytes(data[at : at + width], "little", signed=True)
        spans.append(Span(at, at + width, "data", f"member {number}", str(value), WORDS["member"]))
    if spans[-1].end < len(data):
        spans.append(Span(spans[-1].end, len(data), "rest", f"{len(members) - most} more members"))
    if spans[-1].end != len(data):
        raise Corrupt("intset: the members are longer than the bytes")
    return spans

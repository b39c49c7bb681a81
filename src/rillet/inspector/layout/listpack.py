"""A listpack as spans: header, elements with encoding, data and backlen, and the end (docs/formats/listpack.md).

    07 00 00 00   01 00   85 68 65 6c 6c 6f   06   ff
    total         count   |  data             |    end
                          encoding            backlen

The decoder reads the bytes by itself, in Python, because it reports the place of each part; `Listpack` validates them
first. A page of bytes has a bounded number of elements (`most`); `rest` says how many bytes follow.
"""

from __future__ import annotations

from dataclasses import dataclass

from rillet.errors import Corrupt
from rillet.inspector.layout.span import Span
from rillet.inspector.text import shown
from rillet.structs.listpack import COUNT_UNKNOWN, HEADER_SIZE, Listpack

WORDS = {
    "total": "Header numbers are little-endian.",
    "count": "The header counts up to 65534 entries; 65535 means \"unknown: walk and count\".",
    "int7": "integer 0 to 127",
    "str6": "string of 0 to 63 bytes",
    "int13": "integer -4096 to 4095, two's complement of 13 bits, high bits first",
    "str12": "string of 64 to 4095 bytes, length with the high bits first",
    "str32": "string of 4096 bytes or more, length little-endian",
    "int16": "integer of 16 bits, little-endian, as are the next three",
    "int24": "integer of 24 bits",
    "int32": "integer of 32 bits",
    "int64": "integer of 64 bits",
    "backlen": "The backlen is the length of its entry: encoding and data, without the backlen itself.",
    "end": "end of the listpack",
}
"""Explanations, which docs/formats/listpack.md contains word for word (a test compares them)."""
PATTERNS = {
    "int7": "0xxxxxxx", "str6": "10xxxxxx", "int13": "110xxxxx xxxxxxxx", "str12": "1110xxxx xxxxxxxx",
    "str32": "11110000 + u32", "int16": "11110001", "int24": "11110010", "int32": "11110011", "int64": "11110100",
}  # fmt: skip
_INTEGERS = {0xF1: ("int16", 2), 0xF2: ("int24", 3), 0xF3: ("int32", 4), 0xF4: ("int64", 8)}
_SHOWN = 256  # bytes of a string that are shown as text


@dataclass(slots=True)
class PackedElement:
    """An element: its span, the name of its encoding, and its value."""

    span: Span
    encoding: str
    value: bytes | int

    @property
    def text(self) -> str:
        """The value as printable text, cut if it is long."""
        if isinstance(self.value, int):
            return str(self.value)
        text, cut = shown(self.value, _SHOWN)
        return text + ("..." if cut else "")


@dataclass(slots=True)
class ListpackLayout:
    """A listpack: the spans of header, elements and end, and the elements themselves. rest: elements not decoded."""

    size: int
    count: int
    spans: list[Span]
    elements: list[PackedElement]
    rest: int


def lay_out(data: bytes, most: int = 100_000) -> ListpackLayout:
    """Return the layout of a listpack; Corrupt if the bytes are not one. O(bytes)"""
    packed = Listpack.from_bytes(data)
    stored = int.from_bytes(data[4:HEADER_SIZE], "little")
    count = "unknown (65535)" if stored == COUNT_UNKNOWN else f"{stored}"
    head = Span(0, HEADER_SIZE, "header", "listpack header", parts=[
        Span(0, 4, "total", "total bytes, u32", str(len(data)), WORDS["total"]),
        Span(4, HEADER_SIZE, "count", "elements, u16", count, WORDS["count"]),
    ])  # fmt: skip
    elements: list[PackedElement] = []
    at = HEADER_SIZE
    while data[at] != 0xFF and len(elements) < most:
        element = _element(data, at)
        elements.append(element)
        at = element.span.end
    spans = [head, *(one.span for one in elements)]
    rest = len(packed) - len(elements)
    if rest:
        spans.append(Span(at, len(data) - 1, "rest", f"{rest} more elements"))
    spans.append(Span(len(data) - 1, len(data), "end", "end", "ff", WORDS["end"]))
    return ListpackLayout(len(data), len(packed), spans, elements, rest)


def _element(data: bytes, at: int) -> PackedElement:
    encoding, head, size, value = _decoded(data, at)
    end = at + head + size
    back = _backlen_size(head + size)
    parts = [Span(at, at + head, "encoding", PATTERNS[encoding], _length(encoding, size), WORDS[encoding])]
    element = PackedElement(Span(at, end + back, "element", ""), encoding, value)
    if size:
        parts.append(Span(at + head, end, "data", "data", element.text))
    else:
        parts[0].value = element.text
    parts.append(Span(end, end + back, "backlen", "backlen", str(head + size), WORDS["backlen"]))
    element.span.parts = parts
    element.span.value = element.text
    element.span.name = f"{'integer' if isinstance(value, int) else 'string'}, {encoding}"
    return element


def _length(encoding: str, size: int) -> str:
    return f"{size} bytes follow" if encoding.startswith("str") else encoding


def _decoded(data: bytes, at: int) -> tuple[str, int, int, bytes | int]:
    """Return the encoding of an element, the bytes of its encoding and of its data, and its value."""
    first = data[at]
    if first < 0x80:
        return "int7", 1, 0, first
    if first < 0xC0:
        size = first & 0x3F
        return "str6", 1, size, data[at + 1 : at + 1 + size]
    if first < 0xE0:
        number = (first & 0x1F) << 8 | data[at + 1]
        return "int13", 2, 0, number - 8192 if number >= 4096 else number
    if first < 0xF0:
        size = (first & 0x0F) << 8 | data[at + 1]
        return "str12", 2, size, data[at + 2 : at + 2 + size]
    if first == 0xF0:
        size = int.from_bytes(data[at + 1 : at + 5], "little")
        return "str32", 5, size, data[at + 5 : at + 5 + size]
    if first not in _INTEGERS:
        raise Corrupt(f"listpack: the byte {first:#04x} is not an encoding")
    encoding, size = _INTEGERS[first]
    return encoding, 1, size, int.from_bytes(data[at + 1 : at + 1 + size], "little", signed=True)


def _backlen_size(length: int) -> int:
    """Return the bytes of a backlen; the limits are those of lpEncodeBacklen, of which three are one too low."""
    for size, limit in enumerate((128, 16383, 2097151, 268435455), 1):
        if length < limit:
            return size
    return 5

"""Span: some bytes with a name, a value and an explanation; spans can contain spans."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

HEX = 64
"""The most bytes of a part that are shown."""


@dataclass(slots=True)
class Span:
    """Bytes start to end (exclusive) of a block.

    kind: what the page colours them by, such as "header", "encoding", "data", "backlen". name: a few words. value: the
    decoded value as text. note: a sentence from the format page. parts: the spans inside, in order, without gaps.
    """

    start: int
    end: int
    kind: str
    name: str
    value: str = ""
    note: str = ""
    parts: list[Span] = field(default_factory=list)

    def as_dict(self, data: bytes, words: dict[str, int]) -> dict[str, Any]:
        """Return the span for JSON: empty attributes are absent, a note is its number in `words`.

        A span without parts has its first HEX bytes.
        """
        found: dict[str, Any] = {"start": self.start, "end": self.end, "kind": self.kind, "name": self.name}
        if self.value:
            found["value"] = self.value
        if self.note:
            found["note"] = words.setdefault(self.note, len(words))
        if self.parts:
            found["parts"] = [part.as_dict(data, words) for part in self.parts]
        else:
            found["hex"] = data[self.start : min(self.end, self.start + HEX)].hex()
        return found


def check(spans: list[Span], start: int, end: int) -> None:
    """Raise AssertionError unless the spans cover start to end in order, without gaps, and so do their parts."""
    at = start
    for span in spans:
        assert span.start == at, f"{span.name}: begins at {span.start}, not at {at}"
        assert span.end >= span.start
        if span.parts:
            check(span.parts, span.start, span.end)
        at = span.end
    assert at == end, f"the spans end at {at}, not at {end}"

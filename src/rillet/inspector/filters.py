"""Filters on the fields of entries: `carrier=UA, delay>=30`, `text~error`, a word for any field.

    field=value  field!=value       the value as text
    field<9.5  <=  >  >=            as numbers; an entry whose value is not a number does not match
    field~word                      the value contains the word
    word                            any field or value contains the word

A comma separates two filters, and all of them must match. A value with a comma is in quotation marks
(`name="Doe, Jane"`), or the comma is an escape sequence (`name=Doe\\x2c Jane`). An entry without the field does not
match, except for `!=`. Field and value are in the notation of rillet.inspector.text.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from rillet.inspector.text import from_text

_FILTER = re.compile(
    r"""\s*(?:([^=!<>~,]+?)\s*(!=|<=|>=|=|<|>|~)\s*)?(?:"([^"]*)"(?=\s*(?:,|\Z))|([^,]*?))\s*(?:,|\Z)""", re.DOTALL
)
_NUMBERS: dict[str, Callable[[float, float], bool]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class FieldFilter:
    """One filter: a field (b"" is any), an operator and a value."""

    field: bytes
    operator: str
    value: bytes

    def matches(self, flat: list[bytes]) -> bool:
        """Return whether alternating fields and values match."""
        if not self.field:
            return any(self.value in word for word in flat)
        values = [flat[at + 1] for at in range(0, len(flat) - 1, 2) if flat[at] == self.field]
        if self.operator == "!=":
            return self.value not in values
        return any(self._holds(value) for value in values)

    def _holds(self, value: bytes) -> bool:
        if self.operator == "=":
            return value == self.value
        if self.operator == "~":
            return self.value in value
        try:
            return _NUMBERS[self.operator](float(value), float(self.value))
        except ValueError:
            return False


def parse_filters(texts: Iterable[str]) -> list[FieldFilter]:
    """Return the filters of texts; ValueError for a comparison with a text that is not a number."""
    return [one for text in texts for one in _filters(text)]


def _filters(text: str) -> Iterator[FieldFilter]:
    at = 0
    while at < len(text):
        match = _FILTER.match(text, at)
        assert match is not None  # the last alternative matches any text
        at = match.end()
        field, sign, quoted, plain = match.groups()
        value = plain if quoted is None else quoted
        if sign in _NUMBERS:
            try:
                float(value)
            except ValueError:
                what = f"the filter {match[0].strip(' ,')!r} compares with {value!r}"
                raise ValueError(f"{what}, which is not a number") from None
        if sign:
            yield FieldFilter(from_text(field), sign, from_text(value))
        elif value:
            yield FieldFilter(b"", "~", from_text(value))


def matches(filters: list[FieldFilter], flat: list[bytes]) -> bool:
    """Return whether an entry matches all filters."""
    return all(one.matches(flat) for one in filters)

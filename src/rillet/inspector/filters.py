"""Filters on the fields of entries: `carrier=UA`, `delay>=30`, `text~error`, a word for any field.

    field=value  field!=value       the value as text
    field<9.5  <=  >  >=            as numbers; an entry whose value is not a number does not match
    field~word                      the value contains the word
    word                            any field or value contains the word

Several filters must all match. An entry without the field does not match, except for `!=`. Field and value are in the
notation of rillet.inspector.text.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from rillet.inspector.text import from_text

_FORM = re.compile(r"([^=!<>~]+?)\s*(!=|<=|>=|=|<|>|~)\s*(.*)", re.DOTALL)
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
    found = []
    for text in texts:
        if not text.strip():
            continue
        match = _FORM.fullmatch(text.strip())
        if match is None:
            found.append(FieldFilter(b"", "~", from_text(text.strip())))
            continue
        field, sign, value = match.groups()
        if sign in _NUMBERS:
            try:
                float(value)
            except ValueError:
                raise ValueError(f"the filter {text!r} compares with {value!r}, which is not a number") from None
        found.append(FieldFilter(from_text(field), sign, from_text(value)))
    return found


def matches(filters: list[FieldFilter], flat: list[bytes]) -> bool:
    """Return whether an entry matches all filters."""
    return all(one.matches(flat) for one in filters)


__all__ = ["FieldFilter", "matches", "parse_filters"]

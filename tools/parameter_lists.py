"""An extension of griffe: parameters in docstrings become a list in the reference, internal names are left out.

    start, entries_read: the position ...        - **start**, **entries_read**: the position ...
    mkstream: create a missing stream; ...       - **mkstream**: create a missing stream; ...

A line that begins with names of parameters (or of errors, or of a class's attributes) and a colon begins an item; the
lines after it belong to it. Docstrings stay as they are in the source, where this form is the shortest.
"""

from __future__ import annotations

import re
from pkgutil import resolve_name
from typing import Any

import griffe

from rillet.store import internal_names

_ITEM = re.compile(r"([A-Za-z_]\w*(?:, [A-Za-z_]\w*)*): (.*)")


def listed(text: str, names: set[str]) -> str:
    """Return a docstring whose paragraphs about `names` are items of a list."""
    lines: list[str] = []
    inside = False
    for line in text.splitlines():
        match = _ITEM.fullmatch(line)
        if match and all(name in names or name[:1].isupper() for name in match[1].split(", ")):
            if not inside and lines and lines[-1]:
                lines.append("")
            lines.append(f"- {', '.join(f'**{name}**' for name in match[1].split(', '))}: {match[2]}")
            inside = True
            continue
        inside = inside and bool(line)
        lines.append(f"    {line}" if inside else line)
    return "\n".join(lines)


class ParameterLists(griffe.Extension):  # type: ignore[misc, unused-ignore]
    """Applies `listed` to functions and classes."""

    def on_function(self, *, func: griffe.Function, **_: Any) -> None:
        if func.docstring is not None:
            func.docstring.value = listed(func.docstring.value, {one.name for one in func.parameters} | _WORDS)

    def on_class_members(self, *, cls: griffe.Class, **_: Any) -> None:
        for name in _internal(cls) & cls.members.keys():
            del cls.members[name]
        if cls.docstring is not None:
            cls.docstring.value = listed(cls.docstring.value, {*cls.members, *_slots(cls)} | _WORDS)


def _internal(cls: griffe.Class) -> set[str]:
    """Return the names of a class of the API that are for rillet alone."""
    if not cls.path.startswith("rillet.store."):
        return set()
    found = resolve_name(cls.path)
    return internal_names(found) if isinstance(found, type) else set()


def _slots(cls: griffe.Class) -> set[str]:
    found = cls.members.get("__slots__")
    return set(re.findall(r"\w+", str(getattr(found, "value", ""))))


_WORDS: set[str] = set()

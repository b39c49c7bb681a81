"""The conditions of `where`: fields, and the values that they must have.

    where={"type": "order"}                          entries whose field `type` is "order"
    where={"type": ["order", "refund"], "eu": 1}     one of two types, and `eu` is 1

A field that occurs twice has its last value, and one that is missing matches nothing. Values are compared as bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast

from rillet.store.arguments.argument_checks import encoded
from rillet.store.arguments.encoding import encode_name, find_field
from rillet.store.entry import Where


class Conditions:
    """The checked conditions of a `where`. words: as the Lua scripts read them (consuming/filter_steps.py)."""

    __slots__ = ("_wanted", "words")

    def __init__(self, where: Where) -> None:
        if not isinstance(where, Mapping):
            raise TypeError(f"where must be a mapping from fields to values, such as {{'type': 'order'}}, "
                            f"not {where!r:.200}")  # fmt: skip
        if not where:
            raise ValueError("where needs at least one field: {'type': 'order'}")
        self._wanted = [(encode_name(field, "a field of where"), _values(field, where[field])) for field in where]
        self.words: list[bytes] = []
        for name, values in self._wanted:
            self.words += [name, b"%d" % len(values), *sorted(values)]

    def match(self, flat: list[bytes]) -> bool:
        """Return whether an entry with these names and values matches."""
        return all(cast("bytes | None", find_field(flat, name)) in values for name, values in self._wanted)


def _values(field: Any, wanted: Any) -> frozenset[bytes]:
    """Return the bytes of one value, or of several."""
    name = f"where[{field!r:.100}]"
    if isinstance(wanted, Mapping) or not isinstance(wanted, Iterable) or isinstance(wanted, (str, bytes, bytearray,
                                                                                               memoryview)):
        return frozenset((encoded(wanted, name),))
    values = frozenset(encoded(one, f"one of {name}") for one in wanted)
    if not values:
        raise ValueError(f"{name} needs at least one value")
    return values

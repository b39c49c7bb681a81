"""INFO KEYSIZES: how many keys of each type have which size, per database, in powers of two (Redis 8: db.c).

    db0_distrib_strings_sizes:8=2,1K=1         two strings of 8 to 15 bytes, and one of 1,024 to 2,047
    db0_distrib_lists_items:4=3                three lists of 4 to 7 elements

Redis updates a histogram with each change of a value. Here the section is computed from the keys when it is requested,
in O(keys), so commands need not maintain it. Therefore only `INFO keysizes` contains it, and `INFO all` does not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from rillet.types.array import Array
from rillet.types.hash import Hash
from rillet.types.list import List
from rillet.types.set import Set
from rillet.types.string import String
from rillet.types.zset import Zset

if TYPE_CHECKING:
    from rillet.runtime.command_engine import CommandEngine

_FIELDS: dict[type, str] = {
    String: "distrib_strings_sizes", List: "distrib_lists_items", Set: "distrib_sets_items",
    Zset: "distrib_zsets_items", Hash: "distrib_hashes_items",
    Array: "distrib_arrays_items",
}  # fmt: skip
_UNITS = " KMGTPE"


def size_bin(size: int) -> int:
    """Return the bin of a size: 0 for 0, else 1 + the power of two at or below it."""
    return size.bit_length()


def bin_label(number: int) -> str:
    """Return the least size of a bin, as 0, 1, 2 ... 512, 1K, 2K ... 1M."""
    if number == 0:
        return "0"
    power = number - 1
    return f"{1 << power % 10}{_UNITS[power // 10].strip()}"


def key_sizes(engine: CommandEngine) -> dict[str, str]:
    """Return the fields of the section. O(keys)"""
    found: dict[str, str] = {}
    for database in engine.databases:
        bins: dict[str, Counter[int]] = {field: Counter() for field in _FIELDS.values()}
        for field, size in _sizes(value for _, value in database.items()):
            bins[field][size_bin(size)] += 1
        for field, counts in bins.items():
            if counts:
                text = ",".join(f"{bin_label(number)}={counts[number]}" for number in sorted(counts))
                found[f"db{database.index}_{field}"] = text
    return found


def _sizes(values: Iterable[Any]) -> Iterable[tuple[str, int]]:
    for value in values:
        field = _FIELDS.get(type(value))
        if field is not None:
            yield field, value.length() if isinstance(value, String) else len(value)

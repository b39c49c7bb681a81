"""The dict's statistics as DEBUG HTSTATS prints them, and the verification of its invariants."""

from __future__ import annotations

from struct import pack, unpack
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rillet.structs.dict import Dict

_TITLES = ("main hash table", "rehashing target")


def _float32(value: float) -> float:
    """Round to the C type `float`, in which Redis divides."""
    rounded: float = unpack("f", pack("f", value))[0]
    return rounded


def _ratio(a: int, b: int) -> float:
    return _float32(_float32(a) / _float32(b))


def describe(table: Dict, full: bool) -> str:
    """Return the text of dictGetStats: one part for each table that exists."""
    text = _describe_table(table, 0, full)
    return text + _describe_table(table, 1, full) if table.rehashing else text


def _describe_table(table: Dict, number: int, full: bool) -> str:
    used, exp = (table.used1, table.exp1) if number else (table.used0, table.exp0)
    title = f"Hash table {number} stats ({_TITLES[number]}):\n"
    if used == 0:
        return title + "No stats available for empty dictionaries\n"
    size = 1 << exp
    text = f"{title} table size: {size}\n number of elements: {used}\n"
    if not full:
        return text
    lengths = table.chain_lengths(number)
    slots = size - lengths[0]
    longest = max(length for length, count in enumerate(lengths) if count)
    average = f"{_ratio(used, slots):.2f}"
    text += f" different slots: {slots}\n max chain length: {longest}\n"
    text += f" avg chain length (counted): {average}\n avg chain length (computed): {average}\n"
    text += " Chain length distribution:\n"
    for length, count in enumerate(lengths[:-1]):
        if count:
            text += f"   {length}: {count} ({_float32(_ratio(count, size) * 100):.2f}%)\n"
    return text


def check_dict(table: Dict) -> None:
    """Raise AssertionError if a chain, a gap, a count, an item or an object of the dict is wrong. O(n)"""
    layout = table.layout()
    hashes, places, gaps = layout["hashes"], layout["places"], layout["gaps"]
    seen = set(gaps)
    assert len(seen) == len(gaps) == layout["gap_count"]
    for number, rows in enumerate(layout["chains"]):
        assert sum(map(len, rows)) == (table.used1 if number else table.used0)
        for index, row in enumerate(rows):
            assert not (number == 0 and row and index < table.rehashidx), "a bucket below rehashidx has entries"
            for n in row:
                assert n not in seen, "an entry is in two chains, or is a gap"
                seen.add(n)
                assert hashes[n] & (len(rows) - 1) == index
                assert hash(table.entry_key(n)) & 0xFFFFFFFF == hashes[n]
    assert seen == set(range(layout["records"]))
    assert (table.rehashidx >= 0) == (table.exp1 >= 0)
    _check_items(table, layout["sizes"], places, set(gaps))
    keys = {table.entry_key(n) for n in seen - set(gaps)}
    assert len(keys) == len(table)
    assert layout["object_slots"] == sum(len(chunk) for chunk in layout["objects"] if chunk is not None)
    for at, chunk in enumerate(layout["objects"]):
        for slot, value in enumerate(chunk or ()):
            n = (at << 12) + slot
            assert value is None or (n < layout["records"] and n not in gaps), "an object has no entry"


def _check_items(table: Dict, sizes: list[int], places: list[int], gaps: set[int]) -> None:
    table.arena.check()
    spans = sorted((places[n], sizes[n]) for n in range(len(places)) if n not in gaps)
    assert sum(size for _, size in spans) == table.arena.live
    for (place, size), (following, _) in zip(spans, spans[1:], strict=False):
        assert place >> 16 != following >> 16 or place + size <= following, "two items overlap"

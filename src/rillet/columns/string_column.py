"""Converts Arrow arrays to texts, because the fields of a stream are byte strings.

Strings and bytes stay unchanged. Numbers become decimal text; doubles have an exponent from 10^10 on and below 10^-6
(1.5e+10), decimals never have one. Booleans become true and false. Dates and timestamps become ISO 8601
(2013-01-01T05:15:00.000000Z; without Z if the type has no time zone). `without_text` lists the types without a text.

The compiled packer formats most types itself, from their buffers (value_formatting.py). Arrow's casts format the rest
with the same result: decimals, dictionaries, times of day, and arrays with a timestamp outside the years 1 to 9999.
The interpreted packer leaves every type to Arrow's casts.
"""

from __future__ import annotations

import sys
from functools import lru_cache
from typing import Any

from rillet.columns import row_packing as pack
from rillet.columns.row_packing import StringArrays
from rillet.columns.value_formatting import FIRST_DAY, LAST_DAY

_UNITS = {"s": pack.SECONDS, "ms": pack.MILLISECONDS, "us": pack.MICROSECONDS, "ns": pack.NANOSECONDS}


def without_text(kind: Any) -> bool:
    """Return whether an Arrow type has no text form: null, intervals, and nested types, which callers write as JSON."""
    import pyarrow as pa

    return bool(pa.types.is_nested(kind) or pa.types.is_null(kind) or pa.types.is_interval(kind))


def texts(array: Any, name: str = "", direct: bool = pack.COMPILED) -> StringArrays:
    """Return an Arrow array as a StringArrays. direct: RowPacker formats values if it supports the type."""
    kind = _kind_of(array.type) if direct and len(array) else None
    if kind is not None and _has_plain_years(array, kind):
        return _values(array, name, kind)
    array = as_texts(array)
    valid, offsets, data = array.buffers()
    if offsets is None or not len(array):
        return StringArrays(name.encode(), None, bytes(4), None, 0)
    # A sliced array shares its parent's buffers. Copy only its part, from the byte with its first validity bit on.
    base = array.offset & 7
    lead = array.offset - base
    ends = offsets.slice(4 * lead, 4 * (base + len(array) + 1)).to_pybytes()
    first = int.from_bytes(ends[4 * base : 4 * base + 4], sys.byteorder)
    last = int.from_bytes(ends[-4:], sys.byteorder)
    text = None if data is None else data.slice(first, last - first).to_pybytes()
    return StringArrays(name.encode(), _validity(array), ends, text, base, first)


def _validity(array: Any) -> bytes | None:
    """Return the validity bits of a (sliced) array from the byte with its first bit on; None if it has no nulls."""
    if not array.null_count:
        return None
    base = array.offset & 7
    bits: bytes = array.buffers()[0].slice(array.offset >> 3).slice(0, (base + len(array) + 7) >> 3).to_pybytes()
    return bits


def _values(array: Any, name: str, kind: int) -> StringArrays:
    """Return an array of numbers, booleans, dates or timestamps as a StringArrays that RowPacker formats."""
    base = array.offset & 7
    lead = array.offset - base
    width = pack.WIDTHS[kind]
    if kind == pack.BOOLEAN:
        data = array.buffers()[1].slice(lead >> 3, (base + len(array) + 7) >> 3)
    else:
        data = array.buffers()[1].slice(width * lead, width * (base + len(array)))
    column = StringArrays(name.encode(), _validity(array), b"", data.to_pybytes(), base)
    return column.be_values(kind, kind >= pack.SECONDS and array.type.tz is not None)


@lru_cache(maxsize=1)
def _kinds() -> dict[Any, int]:
    import pyarrow as pa

    return {
        pa.bool_(): pack.BOOLEAN, pa.int8(): pack.INT8, pa.int16(): pack.INT16, pa.int32(): pack.INT32,
        pa.int64(): pack.INT64, pa.uint8(): pack.UINT8, pa.uint16(): pack.UINT16, pa.uint32(): pack.UINT32,
        pa.uint64(): pack.UINT64, pa.float32(): pack.FLOAT, pa.float64(): pack.DOUBLE, pa.date32(): pack.DAY,
    }  # fmt: skip


def _kind_of(kind: Any) -> int | None:
    """Return the packer's kind for an Arrow type, or None if the packer cannot format it."""
    import pyarrow as pa

    return _UNITS[kind.unit] if pa.types.is_timestamp(kind) else _kinds().get(kind)


def _has_plain_years(array: Any, kind: int) -> bool:
    """Return whether all timestamps or dates of an array lie in the years 1 to 9999; True for other kinds."""
    if kind < pack.DAY or kind == pack.NANOSECONDS:  # nanoseconds in 64 bits cover the years 1677 to 2262
        return True
    import pyarrow as pa
    import pyarrow.compute as pc

    plain = array.view(pa.int32() if kind == pack.DAY else pa.int64())
    ends = pc.min_max(plain).as_py()
    if ends["min"] is None:
        return True
    unit = 1 if kind == pack.DAY else 86_400 * 1000 ** (kind - pack.SECONDS)
    return bool(ends["min"] >= FIRST_DAY * unit and ends["max"] < (LAST_DAY + 1) * unit)


def as_texts(array: Any) -> Any:
    """Return an Arrow array as an array of strings or bytes, with 32-bit offsets."""
    import pyarrow as pa

    kind = array.type
    if pa.types.is_timestamp(kind):
        return _iso_8601(array)
    if pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind) or pa.types.is_binary_view(kind):
        return array.cast(pa.binary())
    if pa.types.is_decimal(kind):
        return _plain(array)
    return array if pa.types.is_string(kind) or pa.types.is_binary(kind) else array.cast(pa.string())


def _plain(array: Any) -> Any:
    """Return decimals as digits and a point; Arrow's cast writes small ones with an exponent (0E-10)."""
    import pyarrow as pa
    import pyarrow.compute as pc

    text = array.cast(pa.string())
    if not pc.any(pc.match_substring(text, "E")).as_py():
        return text
    return pa.array([None if value is None else f"{value:f}" for value in array.to_pylist()], pa.string())


def _iso_8601(array: Any) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    plain = array.cast(pa.timestamp(array.type.unit)).cast(pa.string())
    plain = pc.replace_substring(plain, " ", "T", max_replacements=1)
    return plain if array.type.tz is None else pc.binary_join_element_wise(plain, "Z", "")

"""Arrow arrays as texts: what a stream's fields hold.

Strings and bytes as they are, numbers in decimal (1e+16 for large and small doubles, decimals never so), booleans
true and false, dates and timestamps as ISO 8601 (2013-01-01T05:15:00.000000Z; without Z where the type has no time
zone). `without_text` tells what has none.
"""

from __future__ import annotations

import sys
from typing import Any

from rillet.columns.pack import Texts


def without_text(kind: Any) -> bool:
    """Tell whether values of an Arrow type have no text: lists, structs and maps are JSON's affair."""
    import pyarrow as pa

    return bool(pa.types.is_nested(kind) or pa.types.is_null(kind) or pa.types.is_interval(kind))


def texts(array: Any, name: str = "") -> Texts:
    """Return an Arrow array as a column of texts."""
    array = as_texts(array)
    valid, offsets, data = array.buffers()
    if offsets is None or not len(array):
        return Texts(name.encode(), None, bytes(4), None, 0)
    # A slice shares its parent's buffers: only its own part is copied, from a whole byte of validity bits on.
    base = array.offset & 7
    lead = array.offset - base
    ends = offsets.slice(4 * lead, 4 * (base + len(array) + 1)).to_pybytes()
    first = int.from_bytes(ends[4 * base : 4 * base + 4], sys.byteorder)
    last = int.from_bytes(ends[-4:], sys.byteorder)
    text = None if data is None else data.slice(first, last - first).to_pybytes()
    bits = valid.slice(lead >> 3).slice(0, (base + len(array) + 7) >> 3).to_pybytes() if array.null_count else None
    return Texts(name.encode(), bits, ends, text, base, first)


def as_texts(array: Any) -> Any:
    """Return an Arrow array as one of strings or of bytes, with offsets of 32 bits."""
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
    """Return decimals as digits and a point; Arrow's own cast writes small ones with an exponent (0E-10)."""
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

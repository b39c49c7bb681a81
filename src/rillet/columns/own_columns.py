"""The columns that a source adds to the fields of an entry, in rows that are written to a stream.

    stream id id_ms id_seq timestamp

Rows that were read can be written back, so these columns are left out. A column of the user with such a name must not
be lost silently:

    one of them has another type, such as a bigint `id`      the rows are not a source's: all five are written
    their types are the source's, and there is an ID         left out; `check_own_columns` compares values
    a `timestamp` or a `stream` without an ID                an error: it may be the user's

The user decides by naming the columns (`fieldColumns` in Spark, `columns` of `add_arrow`), or by leaving them out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

TEXT, INTEGER, TIME, OTHER = "text", "integer", "time", "other"
OWN_COLUMNS = {"stream": TEXT, "id": TEXT, "id_ms": INTEGER, "id_seq": INTEGER, "timestamp": TIME}
_ID = "^([0-9]{1,20}-[0-9]{1,20})?$"  # an empty text, as INSERT needs one, loses nothing


def own_columns(kinds: Mapping[str, str], named: Iterable[str | None] = ()) -> tuple[list[str], list[str]]:
    """Return the columns to leave out, and those of which it is unknown whether they are the source's.

    kinds: TEXT, INTEGER, TIME or OTHER for each column. named: columns that have another use, such as the IDs.
    """
    used = set(named)
    if any(kinds.get(name, kind) != kind and name not in used for name, kind in OWN_COLUMNS.items()):
        return [], []
    found = [name for name in OWN_COLUMNS if name in kinds and name not in used]
    return (found, []) if "id" in kinds or "id_ms" in kinds else ([], found)


def check_own_columns(left_out: Iterable[str], batch: Any, remedy: str) -> None:
    """Raise ValueError if `id` or `timestamp`, which are left out, have values that no source gives. O(rows)"""
    import pyarrow as pa
    import pyarrow.compute as pc

    left_out = list(left_out)
    if "id" not in batch.schema.names or not batch.num_rows or not {"id", "timestamp"} & set(left_out):
        return
    ids = batch.column("id").cast(pa.string())
    wrong = pc.index(pc.fill_null(pc.match_substring_regex(ids, _ID), False), False).as_py()
    if wrong >= 0:
        raise ValueError(f"the columns {', '.join(left_out)} are left out as those of entries that were read, but the "
                         f"id {ids[wrong].as_py()!r} is not that of an entry: {remedy}")  # fmt: skip
    if "timestamp" in left_out:
        times = batch.column("timestamp").cast(pa.timestamp("ms"), safe=False).cast(pa.int64())
        # Without an ID, a time is not the source's.
        parts = pc.split_pattern(pc.if_else(pc.equal(ids, ""), None, ids), "-")
        ms = pc.list_element(parts, 0).cast(pa.uint64()).cast(pa.int64(), safe=False)
        same = pc.or_kleene(pc.is_null(times), pc.fill_null(pc.equal(times, ms), False))
        wrong = pc.index(same, False).as_py()
        if wrong >= 0:
            raise ValueError(f"the columns {', '.join(left_out)} are left out as those of entries that were read, but "
                             f"a timestamp is not the time of the id {ids[wrong].as_py()!r}: {remedy}")  # fmt: skip

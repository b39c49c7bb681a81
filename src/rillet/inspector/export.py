"""Export of a range of entries, in parts: CSV, JSON lines, Parquet.

    csv      id, time, and a column for each field of the first 1,000 entries; other fields as JSON in `other_fields`
    jsonl    {"id": ..., "time": ..., "fields": {...}}; exact, in the notation of rillet.inspector.text
    parquet  columns of the narrowest types that fit (Stream.to_arrow), at most 1,000,000 entries; needs pyarrow

A text in CSV that a spreadsheet would run as a formula ("=cmd()") gets an apostrophe, which numbers do not.
"""

from __future__ import annotations

import csv
import io
import json
import tempfile
from collections.abc import Iterator
from datetime import datetime, timezone
from itertools import islice
from typing import Any

import rillet
from rillet.extras import require
from rillet.inspector.filters import FieldFilter, matches
from rillet.inspector.place import InspectedPlace
from rillet.inspector.text import to_text
from rillet.store.arguments.encoding import parse_id
from rillet.types.stream.id import StreamID

FORMATS = {
    "csv": "text/csv; charset=utf-8", "jsonl": "application/x-ndjson", "parquet": "application/vnd.apache.parquet",
}  # fmt: skip
MOST = 5_000_000
"""The most entries of an export."""
_PAGE, _CHUNK = 500, 1 << 16
_DISCOVERY = 1000
_PARQUET = 1_000_000
Row = tuple[bytes, list[bytes]]


def export(place: InspectedPlace, key: bytes, form: str, start: str, end: str, filters: list[FieldFilter],
           most: int = MOST) -> Iterator[bytes]:  # fmt: skip
    """Yield the bytes of the export; ValueError for an unknown format. O(entries)"""
    if form == "parquet":
        return _parquet(place, key, start, end, filters, min(most, _PARQUET))
    rows = _rows(place, key, start, end, filters, most)
    if form == "jsonl":
        return _json_lines(rows)
    if form == "csv":
        return _csv(rows)
    raise ValueError(f"the format {form!r} is unknown: use csv, jsonl or parquet")


def _rows(place: InspectedPlace, key: bytes, start: str, end: str, filters: list[FieldFilter],
          most: int) -> Iterator[Row]:  # fmt: skip
    low, count, left = start.encode(), 16, most
    while left > 0:
        argv = [b"XRANGE", key, low, end.encode(), b"COUNT", b"%d" % count]
        with place.budget.asking():
            rows = place.call(lambda store, argv=argv: store.run(argv))  # type: ignore[misc]
        size = 1
        for raw_id, flat in rows:
            size += sum(map(len, flat))
            if matches(filters, flat):
                yield raw_id, flat
                left -= 1
                if left <= 0:
                    return
        if len(rows) < count:
            return
        low = b"(" + rows[-1][0]
        count = max(1, min(_PAGE, (1 << 20) * len(rows) // size))


def time_of(id: StreamID) -> str:
    """Return the time of an ID in ISO 8601; "" if it is not one."""
    if id.ms >= 253_402_300_800_000:
        return ""
    return datetime.fromtimestamp(id.ms / 1000, timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _json_lines(rows: Iterator[Row]) -> Iterator[bytes]:
    for raw_id, flat in rows:
        id = parse_id(raw_id)
        pairs = [(to_text(flat[at]), to_text(flat[at + 1])) for at in range(0, len(flat) - 1, 2)]
        found: dict[str, Any] = {"id": str(id), "time": time_of(id), "fields": dict(pairs)}
        if len(found["fields"]) < len(pairs):
            found["pairs"] = pairs  # a field occurs twice
        yield json.dumps(found, ensure_ascii=False).encode() + b"\n"


def _csv(rows: Iterator[Row]) -> Iterator[bytes]:
    first: list[Row] = []
    for row in rows:
        first.append(row)
        if len(first) >= _DISCOVERY:
            break
    names = list(dict.fromkeys(name for _, flat in first for name in flat[::2]))
    columns = {name: at for at, name in enumerate(names)}
    text = io.StringIO()
    out = csv.writer(text)
    out.writerow(["id", "time", *map(_cell, names), "other_fields"])
    for part in (first, rows):
        for raw_id, flat in part:
            id = parse_id(raw_id)
            cells, other = [""] * len(names), {}
            for at in range(0, len(flat) - 1, 2):
                place = columns.get(flat[at])
                if place is None:
                    other[to_text(flat[at])] = to_text(flat[at + 1])
                else:
                    cells[place] = _cell(flat[at + 1])
            out.writerow([str(id), time_of(id), *cells, json.dumps(other, ensure_ascii=False) if other else ""])
            if text.tell() > _CHUNK:
                yield text.getvalue().encode()
                text.seek(0)
                text.truncate()
    yield text.getvalue().encode()


def _cell(raw: bytes) -> str:
    text = to_text(raw)
    if text[:1] in "=+-@" and text:
        try:
            float(text)
        except ValueError:
            return "'" + text
    return text


def _parquet(place: InspectedPlace, key: bytes, start: str, end: str, filters: list[FieldFilter],
             most: int) -> Iterator[bytes]:  # fmt: skip
    require("arrow", "an export to Parquet")
    from pyarrow import parquet

    table = _table(place, key, start, end, filters, most + 1)
    if table.num_rows > most:
        raise ValueError(f"a Parquet export has at most {most:,} entries: choose a range, or use csv or jsonl")

    def parts() -> Iterator[bytes]:
        with tempfile.TemporaryFile() as file:
            parquet.write_table(table, file, compression="zstd")
            file.seek(0)
            while part := file.read(_CHUNK):
                yield part

    return parts()


def _table(place: InspectedPlace, key: bytes, start: str, end: str, filters: list[FieldFilter], most: int) -> Any:
    """Return the entries as an Arrow table, whose columns fit those that match: they become a stream in memory."""
    if not filters:
        with place.budget.asking():
            return place.call(lambda store: store.stream(key).to_arrow(start, end, count=most))
    with rillet.open() as matching:
        rows = _rows(place, key, start, end, filters, most)
        while batch := list(islice(rows, _PAGE)):
            matching.run_many([[b"XADD", key, raw_id, *flat] for raw_id, flat in batch])
        return matching.stream(key).to_arrow()

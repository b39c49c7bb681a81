"""The partition columns of an archive: which folders its files are divided into.

    date        the UTC date of the ID; always there, because retention removes days
    hour        the UTC hour of the ID, 0 to 23
    stream      always there, because a file has entries of one stream; the last one if it is not named
    others      columns of the archive's schema that are texts, whole numbers or booleans

A file has one value of each, which its `Part` holds in the manifest, or Delta's log. The columns are not in the file,
because readers take them from the folders' names or from the log.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rillet.spark.archive.files import ArchiveError
from rillet.spark.archive.manifest import ArchiveManifest, Part, Value

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

STANDARD = ("date", "stream")
HOUR_MS = 3_600_000
_OWN = ("id", "id_ms", "id_seq", "timestamp", "fields")


def partition_columns(text: str) -> tuple[str, ...]:
    """Return the columns that a text names, separated by commas; () for the standard ones. Raise ValueError."""
    names = tuple(name.strip() for name in text.split(","))
    if "date" not in names or "" in names or len(set(names)) < len(names) or set(names) & set(_OWN):
        raise ValueError("expected date, and other columns that differ: date,region")
    names = names if "stream" in names else (*names, "stream")
    return () if names == STANDARD else names


def data_columns(columns: Sequence[str]) -> tuple[str, ...]:
    """Return the partition columns whose values a `Part` holds: all but date and stream."""
    return tuple(name for name in columns if name not in STANDARD)


def constants(manifest: ArchiveManifest, file: Part) -> dict[str, Value]:
    """Return the columns of the data that have one value in a file."""
    values = dict(zip(data_columns(manifest.partition_by), file.values, strict=True))
    values.pop("hour", None)
    return values


def partitioned(manifest: ArchiveManifest, wanted: tuple[str, ...] | None, path: object) -> ArchiveManifest:
    """Return the manifest with the partition columns that a job asks for; ArchiveError if the archive has others."""
    if wanted is None or (manifest.commit and wanted == manifest.partition_by):
        return manifest
    if manifest.commit:
        present, other = (", ".join(columns or STANDARD) for columns in (manifest.partition_by, wanted))
        raise ArchiveError(f"rillet: the archive {path} is partitioned by {present}; the job asks for {other}")
    return replace(manifest, partition_by=wanted)


def check_columns(columns: Sequence[str], schema: StructType) -> None:
    """Raise ArchiveError if rows of a schema cannot be partitioned by some columns."""
    from pyspark.sql.types import BooleanType, IntegralType, StringType

    for name in data_columns(columns):
        kind = schema[name].dataType if name in schema.names else None
        if name == "hour" and kind is not None:
            raise ArchiveError("rillet: hour is the hour of the ID: the column of this name cannot be a partition")
        if name != "hour" and not isinstance(kind, (StringType, IntegralType, BooleanType)):
            found = "is not in the schema" if kind is None else f"has the type {kind.simpleString()}"
            raise ArchiveError(
                f"rillet: the partition column {name} {found}: name columns of --schema that are texts, whole numbers "
                "or booleans"
            )


def pieces(rows: Any, names: Sequence[str]) -> Iterator[tuple[tuple[Value, ...], Any]]:
    """Yield (values, rows) for each combination of values of some data columns; rows keep their order. O(n log n)"""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not names:
        yield (), rows
        return
    columns = [_hours(rows) if name == "hour" else rows.column(name) for name in names]
    codes = pa.repeat(pa.scalar(0, pa.int64()), rows.num_rows)
    for column in columns:
        one = column.dictionary_encode(null_encoding="encode")
        codes = pc.add(pc.multiply(codes, len(one.dictionary)), one.indices.cast(pa.int64()))
    order = pc.sort_indices(codes)  # stable
    rows, columns = rows.take(order), [column.take(order) for column in columns]
    start = 0
    for end in pc.run_end_encode(codes.take(order)).run_ends.to_pylist():
        yield tuple(column[start].as_py() for column in columns), rows.slice(start, end - start)
        start = end


def _hours(rows: Any) -> Any:
    """Return the UTC hour of each ID; null for IDs from 2^63 ms on, which are negative and have no date."""
    import pyarrow as pa
    import pyarrow.compute as pc

    hours = pc.divide(rows.column("id_ms"), HOUR_MS)
    known = pc.subtract(hours, pc.multiply(pc.divide(hours, 24), 24))
    return pc.if_else(pc.less(rows.column("id_ms"), 0), pa.scalar(None, pa.int64()), known)


def text_of(value: Value) -> str | None:
    """Return a value as in the name of a folder, or in Delta's log; None for null."""
    return str(value).lower() if isinstance(value, bool) else None if value is None else str(value)

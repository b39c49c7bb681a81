"""The two formats of an archive: a folder of rillet's own format, and a Delta table.

    rillet   layout.py: a folder on a shared file system. The default: fewer steps, no library, and every Parquet reader
             of the folder sees each entry once
    delta    delta.py: a Delta table, in a folder or an object store, for readers in other tools
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from rillet.spark.archive.delta import DeltaArchive
from rillet.spark.archive.files import ArchiveError
from rillet.spark.archive.layout import MANIFEST, Archive

FORMATS = ("rillet", "delta")
AnyArchive = Archive | DeltaArchive


def open_archive(
    path: str | Path, format: str | None = None, storage_options: Mapping[str, str] | None = None,
    merge_schema: bool = False, partition_by: tuple[str, ...] | None = None,
) -> AnyArchive:  # fmt: skip
    """Return the archive at a path or URL; without a format, that of the existing archive, or delta for a URL."""
    if format not in (None, *FORMATS):
        raise ArchiveError(f"rillet: the format of an archive is rillet or delta, not {format!r}")
    url = "://" in str(path)
    present = None
    if not url:
        present = "delta" if (Path(path) / "_delta_log").is_dir() else None
        present = "rillet" if (Path(path) / MANIFEST).is_file() else present
    if format is not None and present not in (None, format):
        raise ArchiveError(f"rillet: the archive {path} has the format {present}, not {format}")
    if (format or present or ("delta" if url else "rillet")) == "delta":
        return DeltaArchive(path, storage_options, merge_schema=merge_schema, partition_by=partition_by)
    if merge_schema or storage_options:
        raise ArchiveError(f"rillet: merge_schema and storage_options are for Delta tables; {path} has rillet's format")
    return Archive(path, partition_by=partition_by)

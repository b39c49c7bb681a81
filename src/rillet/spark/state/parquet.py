"""A state table in rillet's own format: Parquet files in folders, and the manifest of an archive (archive/layout.py).

    orders.state/
      bucket=0/000000005120-0_5120-0_c17.parquet     the rows of the bucket's keys
      bucket=1/...
      _rillet/manifest.json, commits/ ...            the list of files and the offset, as in an archive
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rillet.spark.archive.layout import Archive
from rillet.spark.archive.manifest import ArchiveManifest, Part


class ParquetState(Archive):
    """The folder of a `StateTable`: each bucket has one file, which a batch that changes its keys replaces."""

    keep_replaced = 60.0  # seconds
    storage = None  # readers try the places of a file

    def bucket(self, manifest: ArchiveManifest, number: int) -> list[Part]:
        """Return the files of a bucket."""
        return manifest.files.in_folder(f"bucket={number}")

    def upsert(
        self, manifest: ArchiveManifest, rows: Iterable[dict[str, Any]], offset: dict[str, Any]
    ) -> ArchiveManifest | None:
        """Return None: only whole files are written (`rewrite`)."""
        return None

    def tidy(self, manifest: ArchiveManifest, keep: float) -> ArchiveManifest:
        """Return the manifest unchanged: a bucket never has small files to merge."""
        return manifest

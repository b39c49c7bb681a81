"""A state table in Delta Lake: each batch is a MERGE by key, and the table keeps the rows before and after it.

    s3://bucket/orders/
      bucket=0/part-....parquet      the rows of the bucket's keys, without the column `bucket`
      _change_data/...               the rows that a MERGE changed, before and after (Delta's change data feed)
      _delta_log/...                 the list of the files
      _rillet/state-17-46....json    the offset of the server's stream after commit 17, as in an archive

A batch is one entry of Delta's log, which has the number of the commit and names the file of the offset
(archive/delta.py). A batch that was committed is never merged again: a second writer finds another number, and is
refused. A snapshot, FLUSHDB, FLUSHALL and SWAPDB replace the files of all buckets in one entry, as in rillet's own
format; Delta then reports all their rows as deleted and inserted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rillet.spark.archive.delta import DeltaArchive
from rillet.spark.archive.manifest import ArchiveChange, ArchiveManifest, Part
from rillet.spark.archive.targets import DeltaStorage
from rillet.spark.state.files import schema
from rillet.types.stream.id import StreamID

if TYPE_CHECKING:
    from deltalake import CommitProperties, DeltaTable

COLUMNS = ("bucket",)
SMALL_FILES = 16  # of a bucket, which are merged then
GROUP_ROWS = 1 << 8  # a task that looks up keys holds a row group
_KEY = "t.bucket = s.bucket AND t.db = s.db AND t.key_bytes = s.key_bytes"


class BucketStorage(DeltaStorage):
    """The storage of a state table's files."""

    def place(self, part: Part) -> str:
        """Return the folder for a new file."""
        return f"bucket={part.stream}"


class DeltaState(DeltaArchive):
    """The Delta table of a `StateTable`."""

    configuration: Mapping[str, str] = {"delta.enableChangeDataFeed": "true"}

    def __init__(self, path: str | Path, storage_options: Mapping[str, str] | None = None) -> None:
        super().__init__(path, storage_options, partition_by=COLUMNS)
        self.storage = BucketStorage(self.storage.uri, self.storage.options)

    def _files(self, table: DeltaTable, columns: tuple[str, ...]) -> tuple[list[Part], int]:
        import pyarrow as pa

        if columns != COLUMNS:
            return [], 0  # not a state table: its offset shows it
        place = StreamID(0, 0)
        rows = pa.table(table.get_add_actions(flatten=True)).to_pylist()
        return [
            Part(row["path"], str(row["partition.bucket"]), None, place, place, row["num_records"], row["size_bytes"],
                 (row["partition.bucket"],))
            for row in rows
        ], 0  # fmt: skip

    def _columns(self, schema_: str, partitions: Any) -> Any:
        import pyarrow as pa

        return schema().append(pa.field("bucket", pa.int32()))

    def rewrite(
        self, manifest: ArchiveManifest, files: Mapping[str, Part], offset: dict[str, Any], rows: str
    ) -> ArchiveManifest:
        """Commit one new file for each of some buckets, in place of the bucket's files; rows: their schema."""
        self._create_or_extend(rows, list(COLUMNS), new=not manifest.commit)
        buckets = {part.stream for part in files.values()}
        gone = [file.path for file in manifest.files if file.stream in buckets]
        added = [part._replace(values=(int(part.stream),)) for part in files.values()]
        manifest = replace(manifest, partition_by=COLUMNS)
        return self._commit(manifest, ArchiveChange(added, gone, offset=offset, schema=rows), data_change=True)

    def bucket(self, manifest: ArchiveManifest, number: int) -> list[Part]:
        """Return the files of a bucket."""
        return [file for file in manifest.files if file.stream == str(number)]

    def places(self, manifest: ArchiveManifest, path: str) -> list[str]:
        """Return the path of a file, which is its only place."""
        return [path]

    def upsert(
        self, manifest: ArchiveManifest, rows: Iterable[dict[str, Any]], offset: dict[str, Any]
    ) -> ArchiveManifest | None:
        """Merge rows of keys by db and key_bytes, and commit them with the offset; `gone` is true in rows to delete."""
        import pyarrow as pa

        kinds = self._columns("", COLUMNS)
        source = pa.Table.from_pylist(list(rows), schema=kinds.append(pa.field("gone", pa.bool_())))
        columns = {name: f"s.{name}" for name in kinds.names}
        buckets = ", ".join(map(str, sorted(set(source.column("bucket").to_pylist()))))

        def write(table: DeltaTable, properties: CommitProperties) -> None:
            from deltalake import WriterProperties

            merge = table.merge(
                source, f"{_KEY} AND t.bucket IN ({buckets})" if buckets else "false", "s", "t",
                writer_properties=WriterProperties(compression="ZSTD", max_row_group_size=GROUP_ROWS),
                commit_properties=properties,
            )  # fmt: skip
            merge = merge.when_matched_delete("s.gone").when_matched_update(columns)
            merge.when_not_matched_insert(columns, "NOT s.gone").execute()

        self._record(manifest, offset, manifest.schema, write)
        return self.manifest()

    def tidy(self, manifest: ArchiveManifest, keep: float) -> ArchiveManifest:
        """Merge the files of buckets that have many, and delete those that were replaced `keep` seconds ago."""
        counts = Counter(file.stream for file in manifest.files)
        many = [bucket for bucket, files in counts.items() if files >= SMALL_FILES]
        table = self._newest()
        if not many or table is None:
            return manifest
        table.optimize.compact([("bucket", "in", many)])
        self.vacuum(keep)
        return self.manifest()

"""StateTable: the value of every key of a server at one offset of its stream, in Parquet files.

The files are a folder (state/parquet.py) or a Delta table (state/delta.py). A batch is one commit: new files for the
buckets whose keys it changed, in place of the old ones, and the offset after the batch. So a batch is applied
completely or not at all, and a repeated batch begins with the table before it. There is no other state: the engine that
applies a batch is filled from the table.

    touched keys ──► lookup tasks ──► engine on the driver ──► merge tasks ──► commit

Costs of a batch: the files of all buckets that it touches are read and written; the keys that it touches are in memory
on the driver, with their whole values. FLUSHDB, FLUSHALL and SWAPDB rewrite all buckets.

Rejected: one row for each element (a list of a million elements would move a million rows with each LPUSH); a file of
changed rows for each batch, merged by the reader (every Parquet reader should see the table); an engine in each
executor with a share of the keys (RENAME, SUNIONSTORE, MOVE and transactions combine any keys); an engine that stays in
memory between batches (it would need the memory of the server).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from rillet.spark.archive.backends import open_archive
from rillet.spark.archive.files import ArchiveError
from rillet.spark.archive.layout import Archive
from rillet.spark.archive.manifest import ArchiveManifest, Part
from rillet.spark.archive.targets import FileTarget
from rillet.spark.changes.storage import Storage, StoredFile
from rillet.spark.connect import Work
from rillet.spark.local_source import data_source
from rillet.spark.state.batches import batch_commands
from rillet.spark.state.delta import DeltaState
from rillet.spark.state.files import RowMaker, bucket_of, lookup_task, merge_task, schema, snapshot_task
from rillet.spark.state.parquet import ParquetState
from rillet.transfer.batch_engine import BatchEngine, StateKey
from rillet.transfer.rdb_parts import SnapshotPart
from rillet.transfer.touched_keys import TouchedKeys

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

BUCKETS = 32
StateFiles: TypeAlias = ParquetState | DeltaState
_FORMAT = "rillet-state"


@dataclass
class StateCounts:
    """The changes of a table: keys written and removed, commits, refused commands."""

    written: int = 0
    removed: int = 0
    commits: int = 0
    refused: int = 0
    refusal: str = ""  # the first one


class StateTable:
    """A state table for writing, inside `writing`; `offset` is that of the last commit, {} if there is none."""

    def __init__(self, archive: StateFiles, work: Work, parallelism: int, *, buckets: int = BUCKETS,
                 keep_replaced: float | None = None, compression: str = "zstd") -> None:  # fmt: skip
        self.archive = archive
        self.counts = StateCounts()
        self._work, self._parallelism = work, parallelism
        self._keep = archive.keep_replaced if keep_replaced is None else keep_replaced
        self._buckets, self._compression = buckets, compression
        self._manifest = ArchiveManifest()

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Lock the table, and complete an interrupted commit."""
        with self.archive.writing() as manifest:
            if not self.archive.can_merge():
                raise ArchiveError(f"rillet: the file system of {self.archive.path} cannot exchange two folders "
                                   "atomically, which a state table needs")  # fmt: skip
            if manifest.commit and "buckets" not in manifest.offset:
                raise ArchiveError(f"rillet: {self.archive.path} is an archive, not a state table")
            self._manifest = manifest
            self._buckets = int(manifest.offset.get("buckets", self._buckets))
            yield

    @property
    def offset(self) -> dict[str, Any]:
        """The source's offset after the last commit; {} if there is none."""
        return {name: value for name, value in self._manifest.offset.items() if name != "buckets"}

    def load_snapshot(self, folder: str, run: str, parts: Sequence[SnapshotPart], version: int,
                      offset: dict[str, Any]) -> None:  # fmt: skip
        """Replace everything by a snapshot; version: its position in the stream."""
        target = self._target()
        share = -(-len(parts) // (4 * self._parallelism))
        groups = [parts[at : at + share] for at in range(0, len(parts), share)]
        pieces: dict[int, list[str]] = {bucket: [] for bucket in range(self._buckets)}
        tasks = [(snapshot_task, folder, run, group, version, self._buckets, target) for group in groups]
        for written in self._work(tasks):
            for part in written:
                pieces[int(part.stream)].append(part.path)
        nothing: frozenset[tuple[int, bytes]] = frozenset()
        merges = [(merge_task, bucket, version, olds, nothing, None, (), target) for bucket, olds in pieces.items()]
        made = self._work(merges)
        self.counts.written += sum(part.rows for part in made)
        self._commit(made, offset)

    def apply(self, storage: Storage, files: Sequence[StoredFile], compat: str, offset: dict[str, Any]) -> None:
        """Apply a batch of changes, which ends at an offset. O(touched buckets)"""
        batch, touched = list(batch_commands(storage, files)), TouchedKeys()
        for one in batch:
            touched.add(one.db, one.words, one.end)
        with BatchEngine(compat, touched.databases) as engine:
            engine.load(self._lookup(touched))
            engine.apply(batch)
            written = list(engine.written(touched))
        if engine.refused:
            self.counts.refused += len(engine.refused)
            self.counts.refusal = self.counts.refusal or engine.refused[0]
        self.counts.written += len(written)
        self.counts.removed += len(touched.written) - len(written)
        self._merge(touched, written, offset)

    def _lookup(self, touched: TouchedKeys) -> Iterable[StateKey]:
        wanted: dict[int, set[tuple[int, bytes]]] = {}
        for place in touched.needed:
            wanted.setdefault(bucket_of(place[1], self._buckets), set()).add(place)
        if touched.whole:
            wanted = {bucket: wanted.get(bucket, set()) for bucket in range(self._buckets)}
        target = self._target()
        tasks = [(lookup_task, file.path, frozenset(places), frozenset(touched.whole), target)
                 for bucket, places in sorted(wanted.items()) for file in self._files(bucket) if file.rows]  # fmt: skip
        return [key for found in self._work(tasks) for key in found]

    def _merge(self, touched: TouchedKeys, written: Iterable[StateKey], offset: dict[str, Any]) -> None:
        """Commit the written keys, the removals, and what happened to whole databases."""
        version = int(offset["offset"])
        gone: dict[int, set[tuple[int, bytes]]] = {}
        for place in touched.written:
            gone.setdefault(bucket_of(place[1], self._buckets), set()).add(place)
        fresh: dict[int, list[StateKey]] = {}
        for one in written:
            fresh.setdefault(bucket_of(one.key, self._buckets), []).append(one)
        moves = touched.moves()
        if moves is None:
            complete = {**offset, "buckets": self._buckets}
            merged = self.archive.upsert(self._manifest, self._rows(gone, fresh), complete)
            if merged is not None:
                self._manifest = merged
                self.counts.commits += 1
                return
        buckets = sorted(gone) if moves is None else range(self._buckets)
        target = self._target()
        tasks = [(merge_task, bucket, version, [file.path for file in self._files(bucket)],
                  frozenset(gone.get(bucket, ())), moves, fresh.get(bucket, []), target)
                 for bucket in buckets]  # fmt: skip
        self._commit(self._work(tasks), offset)

    def _rows(
        self, gone: dict[int, set[tuple[int, bytes]]], fresh: dict[int, list[StateKey]]
    ) -> Iterator[dict[str, Any]]:
        """Yield the rows of written keys, and the keys that a MERGE deletes."""
        with RowMaker() as maker:
            for bucket, places in gone.items():
                written = fresh.get(bucket, [])
                for one in written:
                    yield {**maker.row(one)[0], "bucket": bucket, "gone": False}
                for db, key in places - {(one.db, one.key) for one in written}:
                    yield {"db": db, "key_bytes": key, "bucket": bucket, "gone": True}

    def finish(self) -> None:
        """Merge small files."""
        self._manifest = self.archive.tidy(self._manifest, self._keep)

    def _files(self, bucket: int) -> list[Part]:
        return self.archive.bucket(self._manifest, bucket)

    def _target(self) -> FileTarget:
        return self.archive.target(self._compression)

    def _commit(self, files: Iterable[Part], offset: dict[str, Any]) -> None:
        self.archive.at("written")
        manifest = self.archive.forget(self._manifest, self._keep)
        self._manifest = self.archive.rewrite(manifest, {f"bucket={file.stream}": file for file in files},
                                              {**offset, "buckets": self._buckets}, _spark_schema())  # fmt: skip
        self.counts.commits += 1


def _spark_schema() -> str:
    from pyspark.sql.pandas.types import from_arrow_schema

    text: str = from_arrow_schema(schema()).json()
    return text


# -- reading ---------------------------------------------------------------------------------------------------------


def open_state(
    path: str | Path, format: str | None = None, storage_options: Mapping[str, str] | None = None
) -> StateFiles:
    """Return the files of a state table; format: as for `open_archive`."""
    if isinstance(open_archive(path, format, storage_options), Archive):
        return ParquetState(Path(path).absolute())
    return DeltaState(path, storage_options)


def read_state(
    spark: SparkSession, path: str | Path, storage_options: Mapping[str, str] | None = None
) -> DataFrame:
    """Return a state table at its last commit as a DataFrame."""
    from pyspark.sql.pandas.types import from_arrow_schema

    archive = open_state(path, None, storage_options)
    manifest = archive.existing()
    if "buckets" not in manifest.offset:
        raise ArchiveError(f"rillet: {path} is an archive, not a state table")
    places = [list(map(str, archive.places(manifest, file.path))) for file in manifest.files if file.rows]
    columns: StructType = from_arrow_schema(schema())
    spark.dataSource.register(data_source(_FORMAT, columns, places, partial(_read_file, archive.storage)))
    return spark.read.format(_FORMAT).load()


def _read_file(storage: FileTarget | None, places: list[str]) -> Iterator[Any]:
    from rillet.spark.archive.parquet_reader import open_file

    with open_file([Path(place) for place in places]) if storage is None else storage.read(places[0]) as file:
        for number in range(file.num_row_groups):
            yield from file.read_row_group(number).cast(schema()).to_batches()

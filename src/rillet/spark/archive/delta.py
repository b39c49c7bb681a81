"""An archive in a Delta Lake table, through the package `deltalake`: for object stores, and for readers in other tools.

    s3://bucket/events/
      date=2024-05-01/<hash of the stream>/1714521600000-0_1714564812345-2_0c1f2a3b4c5d.parquet
            first ID, last ID, random
      _delta_log/...                       Delta's log: the list of the table's files, and its partition columns
      _rillet/state-17-4611....json        the source's offset after commit 17

    commit     1  tasks write files under their final names; no reader looks at them before the log lists them
               2  the driver writes the state: the source's offset and the schema; in a folder, it syncs it to disk
               3  one entry of Delta's log adds the files, and has two transactions:
                    rillet = 17                  the number of the commit
                    rillet-state = 4611...       the random number in the name of the state             <- commit

A log entry is created only if it does not exist yet, so it commits files and offset together. After a kill before the
commit, the next run reads the batch again; `vacuum` removes the files that no log entry lists. After the commit no step
remains.

Delta removes old log entries with all that is in them, except transactions, which every checkpoint repeats. So the
state is found by a transaction, and not by metadata of a log entry. A file whose path begins with `_` is not vacuumed.

Delta accepts a transaction again whose number it has. So a commit first reads the table's present number, allows Delta
no retry, and retries itself after it has read the number again. If the answer to a commit is lost, the random number of
its state shows whether the commit took place. If another process has archived meanwhile, the number is another one, and
the commit fails: no entry is archived twice.

Merging small files adds the merged file and removes the others in one log entry, marked as no change of data. Readers
of older versions need the removed files, so `vacuum` keeps them for `keep_replaced`, by default a week. Files that no
version lists may be those of a running job; `vacuum` keeps them for at least an hour, whatever `keep_replaced` is.

deltalake's readers into pyarrow (`to_pyarrow_table`) may abort the process when it exits: Arrow's threads still hold
objects of Python then (exit status 134, "terminate called without an active exception"). This module reads files
itself, in the calling thread.
"""

from __future__ import annotations

import io
import json
import math
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rillet.extras import require
from rillet.spark.archive.files import ArchiveError, ArchiveOvertaken, sync
from rillet.spark.archive.manifest import ArchiveChange, ArchiveManifest, FileTable, Part
from rillet.spark.archive.merging import Mergeable
from rillet.spark.archive.parquet_reader import ArchiveTask
from rillet.spark.archive.partitions import STANDARD, constants, data_columns, text_of
from rillet.spark.archive.targets import DeltaStorage, day_text, delta_storage
from rillet.types.stream.id import StreamID

if TYPE_CHECKING:
    from deltalake import CommitProperties, DeltaTable

APP, STATE = "rillet", "rillet-state"
STATES = "_rillet"
RECEIVED = "_rillet/received/"  # changes of a state table that are not committed
KEEP_REPLACED = 7 * 86400.0
FRESH = 3600.0  # seconds for which vacuum keeps files that no version lists: a running job may be about to commit them
_ATTEMPTS = 20
_SYNCED = 20  # entries of the log that a writer syncs at its start: others may have followed the last commit
_DAY_0 = date(1970, 1, 1)
_U63 = 1 << 63


class DeltaArchive:
    """A Delta table that holds an archive; `at` is called with the name of every write step, for simulated crashes."""

    keep_replaced = KEEP_REPLACED
    configuration: Mapping[str, str] = {}  # of a new table

    def __init__(
        self, path: str | Path, storage_options: Mapping[str, str] | None = None, *, merge_schema: bool = False,
        partition_by: tuple[str, ...] | None = None, at: Callable[[str], None] = lambda step: None,
    ) -> None:  # fmt: skip
        require("delta", "an archive in Delta tables")
        self.path = str(path)
        self.storage = delta_storage(path, storage_options)
        self.merge_schema, self.partition_by = merge_schema, partition_by
        self.at = at
        self._table: DeltaTable | None = None
        self._small = Mergeable()

    # ---- reading -------------------------------------------------------------------------------------------------

    def manifest(self) -> ArchiveManifest:
        """Return the files and the offset of the table's newest version; an empty manifest without a table."""
        table = self._newest()
        if table is None:
            return ArchiveManifest()
        commit, token = table.transaction_version(APP), table.transaction_version(STATE)
        if commit is None or token is None:
            return ArchiveManifest()
        state = self._state(commit, token)
        columns = tuple(table.metadata().partition_columns)
        files, foreign = self._files(table, columns)
        return ArchiveManifest(
            commit, state["schema"], state["offset"], FileTable(files), foreign=foreign,
            partition_by=() if columns == STANDARD else columns,
        )  # fmt: skip

    def existing(self) -> ArchiveManifest:
        """Return the manifest of an archive; raise ArchiveError if the archive does not exist."""
        manifest = self.manifest()
        if not manifest.commit:
            raise ArchiveError(f"rillet: there is no archive at {self.path}")
        return manifest

    def task(self, manifest: ArchiveManifest, file: Part, after: StreamID, last: StreamID) -> ArchiveTask:
        """Return the task input for the entries of a file with after < ID <= last."""
        values = constants(manifest, file)
        return ArchiveTask((Path(file.path),), file.stream, after, last, storage=self.storage, values=values)

    def _files(self, table: DeltaTable, columns: tuple[str, ...]) -> tuple[list[Part], int]:
        """Return the files of a table, and the number of files of other programs."""
        return _parts(table, data_columns(columns))

    def _columns(self, schema: str, partitions: Sequence[str]) -> Any:
        """Return the Arrow schema of a table for rows of a schema (Spark's JSON)."""
        return _arrow_schema(schema, partitions)

    def _newest(self) -> DeltaTable | None:
        """Return the table at its newest version; None if there is no table."""
        from deltalake import DeltaTable
        from deltalake.exceptions import TableNotFoundError

        try:
            if self._table is None:
                self._table = DeltaTable(self.storage.uri, storage_options=self.storage.storage_options)
            else:
                self._table.update_incremental()
        except TableNotFoundError:
            return None
        except Exception as error:
            raise ArchiveError(f"rillet: the Delta table {self.path} cannot be read: {error}") from None
        return self._table

    def _state(self, commit: int, token: int) -> dict[str, Any]:
        name = _state_name(commit, token)
        try:
            with self.storage.handler().open_input_file(name) as file:
                state: dict[str, Any] = json.loads(file.read())
            return {"schema": state["schema"], "offset": state["offset"]}
        except (OSError, ValueError, KeyError) as error:
            raise ArchiveError(f"rillet: the Delta table {self.path} lacks its offset: {name}: {error}") from None

    # ---- writing -------------------------------------------------------------------------------------------------

    @contextmanager
    def writing(self, wait: float = 0.0) -> Iterator[ArchiveManifest]:
        """Yield the manifest, without waiting. Another process may write too: the slower one is refused."""
        manifest = self.manifest()
        if manifest.commit:  # its writer may have been killed before it synced the log
            self._sync(manifest.commit, _SYNCED)
        yield manifest

    def check_stream(self, stream: str) -> None:
        """Raise ArchiveError if a stream cannot be archived: Delta has no partition for an empty name."""
        if not stream:
            raise ArchiveError(f"rillet: a stream with an empty name cannot be archived to the Delta table {self.path}")

    def target(self, compression: str) -> DeltaStorage:
        """Return the storage that tasks write to."""
        return replace(self.storage, compression=compression)

    def fits(self, manifest: ArchiveManifest, schema: str) -> bool:
        """Return whether rows of a schema (Spark's JSON) can be appended."""
        return not manifest.commit or manifest.schema == schema or self.merge_schema

    def append(
        self, manifest: ArchiveManifest, parts: Sequence[Part], offset: dict[str, Any], schema: str
    ) -> ArchiveManifest:
        """Commit files together with the source's offset after their entries; return the new manifest."""
        parts = sorted(parts, key=lambda part: (part.stream, part.first))
        combined = _combined(manifest.schema, schema) if manifest.commit else schema
        self._create_or_extend(combined, list(manifest.partition_by or STANDARD), new=combined != manifest.schema)
        return self._commit(manifest, ArchiveChange(parts, offset=offset, schema=combined), data_change=True)

    def merge(self, manifest: ArchiveManifest, merged: Sequence[tuple[Sequence[Part], Part]]) -> ArchiveManifest:
        """Commit merged files; each replaces several files of one stream and day. Return the new manifest."""
        self.at("merged")
        gone = [old.path for olds, _ in merged for old in olds]
        change = ArchiveChange([part for _, part in merged], gone, offset=manifest.offset, schema=manifest.schema)
        return self._commit(manifest, change, data_change=False)

    def remove(self, manifest: ArchiveManifest, folders: Sequence[str]) -> ArchiveManifest:
        """Commit the removal of all files of some folders; `vacuum` deletes them later. Return the new manifest."""
        gone = [file.path for folder in folders for file in manifest.files.in_folder(folder)]
        change = ArchiveChange([], gone, offset=manifest.offset, schema=manifest.schema)
        return self._commit(manifest, change, data_change=True)

    def mergeable(self, manifest: ArchiveManifest, least: int, target: int) -> list[list[Part]]:
        """Return lists of adjacent small files to merge."""
        return self._small.runs(manifest.files, least, target)

    def can_merge(self) -> bool:
        """Return True: Delta's log replaces several files in one step."""
        return True

    def forget(self, manifest: ArchiveManifest, keep: float) -> ArchiveManifest:
        """Return the manifest unchanged. `vacuum` deletes replaced files, because that requires a list of all files."""
        return manifest

    def vacuum(self, keep: float) -> int:
        """Delete files that the table does not use, and old states; return the number of files.

        A file that a merge replaced is kept for `keep` seconds. A file that no version of the table lists may belong to
        a running job that has not committed, so it is kept for at least FRESH seconds.
        """
        table = self._newest()
        if table is None:
            return 0
        kept = max(keep, FRESH)
        removed = _vacuum(table, keep, full=False) if keep < kept else set()
        removed |= _vacuum(table, kept, full=True)
        self.at("vacuumed")
        current = _state_name(table.transaction_version(APP), table.transaction_version(STATE))
        handler = self.storage.handler()
        for info in handler.get_file_info_selector(_selector(STATES)):
            old = info.mtime is not None and info.mtime.timestamp() < time.time() - kept
            if info.is_file and not info.path.endswith(current) and old and RECEIVED not in info.path:
                handler.delete_file(info.path)
        return len(removed)

    def _create_or_extend(self, schema: str, columns: list[str], new: bool) -> None:
        """Create the table, or add the columns that it lacks; both may be repeated."""
        from deltalake import DeltaTable, Schema

        if not new and self._table is not None:
            return
        wanted = Schema.from_arrow(self._columns(schema, columns))
        table = self._newest()
        try:
            if table is None:
                DeltaTable.create(
                    self.storage.uri, wanted, mode="ignore", partition_by=columns,
                    configuration=dict(self.configuration), storage_options=self.storage.storage_options,
                )  # fmt: skip
                self.at("created")
                table = self._newest()
                assert table is not None
            if list(table.metadata().partition_columns) != columns:
                raise ArchiveError(
                    f"rillet: the Delta table {self.path} is partitioned by {table.metadata().partition_columns}; an "
                    f"archive needs {columns}"
                )
            present = {field.name: field for field in table.schema().fields}
            other = [f.name for f in wanted.fields if f.name in present and present[f.name].type != f.type]
            if other:
                raise ArchiveError(f"rillet: the Delta table {self.path} has other types for: {', '.join(other)}")
            if missing := [field for field in wanted.fields if field.name not in present]:
                table.alter.add_columns(missing)
                self.at("extended")
        except ArchiveError:
            raise
        except Exception as error:
            raise ArchiveError(f"rillet: the Delta table {self.path} cannot be written: {error}") from None

    def _commit(self, manifest: ArchiveManifest, change: ArchiveChange, data_change: bool) -> ArchiveManifest:
        removed = manifest.files.select(change.removed)
        actions = _actions(change.added, removed, data_change, manifest.partition_by or STANDARD)

        def write(table: DeltaTable, properties: CommitProperties) -> None:
            table.create_write_transaction(
                actions, "append", table.schema(), partition_by=table.metadata().partition_columns,
                commit_properties=properties,
            )  # fmt: skip

        self._record(manifest, change.offset, change.schema, write)
        return replace(change.applied(manifest), replaced={})

    def _record(
        self, manifest: ArchiveManifest, offset: dict[str, Any] | None, schema: str | None,
        write: Callable[[DeltaTable, CommitProperties], None],
    ) -> None:  # fmt: skip
        """Write the state after a commit, and let `write` append the entry to Delta's log that has its name."""
        self.at("staged")
        commit, token = manifest.commit + 1, secrets.randbits(62)
        state = {"format": 1, "commit": commit, "schema": schema, "offset": offset}
        try:
            self.storage.upload(_state_name(commit, token), io.BytesIO(json.dumps(state).encode()))
        except OSError as error:
            raise ArchiveError(f"rillet: the Delta table {self.path} cannot be written: {error}") from None
        self.at("drafted")
        self._transact(write, manifest.commit, token)
        self.at("committed")
        self._sync(commit)

    def _transact(
        self, write: Callable[[DeltaTable, CommitProperties], None], before: int, token: int
    ) -> None:
        """Append an entry to Delta's log if the table's last commit is `before`, exactly once."""
        from deltalake import CommitProperties, Transaction

        last: Exception | None = None
        now = int(time.time() * 1000)
        properties = CommitProperties(
            max_commit_retries=0,
            app_transactions=[Transaction(APP, before + 1, now), Transaction(STATE, token, now)],
        )
        for attempt in range(_ATTEMPTS):
            table = self._newest()
            assert table is not None
            if table.transaction_version(STATE) == token:
                return  # the answer to an earlier attempt was lost, or only the work after its commit failed
            if (present := table.transaction_version(APP) or 0) != before:
                raise ArchiveOvertaken(
                    f"rillet: another process has written to the Delta table {self.path}: it is at commit {present}, "
                    f"not {before}. Nothing was added; run the job again"
                )
            try:
                self.at("transacting")
                write(table, properties)
                self.at("transacted")
                return
            except Exception as error:  # deltalake has no class for the errors of all stores
                last = error
            time.sleep(min(0.05 * attempt, 1.0))
        raise ArchiveError(f"rillet: the Delta table {self.path} did not accept commit {before + 1}: {last}")

    def _sync(self, commit: int, entries: int = 2) -> None:
        """Sync the newest entries of a log on a file system to disk, which deltalake does not."""
        if self.storage.folder is None:
            return
        log = self.storage.folder / "_delta_log"
        try:
            for entry in sorted(log.glob("*.json"))[-entries:]:
                sync(entry)
            for folder in (log, self.storage.folder / STATES, self.storage.folder):
                sync(folder)
        except OSError as error:
            raise ArchiveError(
                f"rillet: the Delta table {self.path} cannot be synced, so whether commit {commit} is durable is "
                f"unknown: {error.strerror}. Run the job again: it continues after this commit if it finds it"
            ) from None


# ---- actions and schemas --------------------------------------------------------------------------------------------


def _state_name(commit: int | None, token: int | None) -> str:
    return f"{STATES}/state-{commit}-{token}.json"


def _vacuum(table: DeltaTable, keep: float, *, full: bool) -> set[str]:
    """Remove files that were replaced `keep` seconds ago, and if `full`, files as old that no version lists."""
    hours = math.ceil(keep / 3600)
    return set(table.vacuum(hours, dry_run=False, enforce_retention_duration=False, full=full))


def _selector(folder: str) -> Any:
    from pyarrow.fs import FileSelector

    return FileSelector(folder, allow_not_found=True, recursive=True)


def _actions(
    added: Sequence[Part], removed: Sequence[Part], data_change: bool, columns: Sequence[str]
) -> list[Any]:
    """Return the actions of a log entry."""
    from deltalake.transaction import AddAction, RemoveAction

    now = int(time.time() * 1000)
    adds = [
        AddAction(part.path, part.bytes, _partition(part, columns), now, data_change, json.dumps(file_stats(part)))
        for part in added
    ]
    removes = [RemoveAction(part.path, data_change, now, part.bytes, _partition(part, columns)) for part in removed]
    return [*adds, *removes]


def _partition(part: Part, columns: Sequence[str]) -> dict[str, str | None]:
    known = {"date": None if part.day is None else day_text(part.day), "stream": part.stream}
    known.update(zip(data_columns(columns), map(text_of, part.values), strict=True))
    return {name: known[name] for name in columns}


def file_stats(part: Part) -> dict[str, Any]:
    """Return the statistics of a file, from which readers skip files: rows, and the range of IDs and times."""
    first, last = part.first.ms, part.last.ms
    known: dict[str, Any] = {"numRecords": part.rows, "minValues": {}, "maxValues": {}, "nullCount": {}}
    if (first < _U63) == (last < _U63):  # id_ms is signed: from 2^63 on it is negative
        for bound, ms in (("minValues", first), ("maxValues", last)):
            known[bound]["id_ms"] = ms - 2 * _U63 * (ms >= _U63)
    if part.day is not None:
        known["minValues"]["timestamp"], known["maxValues"]["timestamp"] = map(_time, (part.first, part.last))
    return known


def _time(identifier: StreamID) -> str:
    return f"{identifier.datetime:%Y-%m-%dT%H:%M:%S}.{identifier.ms % 1000:03}Z"


def _parts(table: DeltaTable, names: Sequence[str]) -> tuple[list[Part], int]:
    """Return the files of a table that an archive has written, and the number of files of other programs."""
    import pyarrow as pa

    listed = pa.table(table.get_add_actions(flatten=True))
    parts: list[Part] = []
    if not listed.num_rows:
        return parts, 0
    columns = ["path", "partition.stream", "partition.date", "num_records", "size_bytes"]
    columns += [f"partition.{name}" for name in names]
    for path, stream, day, rows, size, *values in zip(*(listed.column(c).to_pylist() for c in columns), strict=True):
        try:
            first, last, _ = path.rpartition("/")[2].split("_")
            ids = StreamID.parse(first), StreamID.parse(last)
        except ValueError:
            continue
        parts.append(Part(path, stream, None if day is None else (day - _DAY_0).days, *ids, rows, size,
                          tuple(values)))  # fmt: skip
    return parts, listed.num_rows - len(parts)


def _arrow_schema(schema: str, partitions: Sequence[str]) -> Any:
    """Return the Arrow schema of a table for rows of a schema (Spark's JSON)."""
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from rillet.spark.spark_versions import arrow_schema

    rows = arrow_schema(StructType.fromJson(json.loads(schema)))
    columns = [field.with_nullable(True).remove_metadata() for field in rows if field.name not in STANDARD]
    hour = [pa.field("hour", pa.int32())] if "hour" in partitions else []
    return pa.schema([*columns, pa.field("date", pa.date32()), *hour, pa.field("stream", pa.string())])


def _combined(stored: str, schema: str) -> str:
    """Return the columns of two schemas (Spark's JSON): the stored ones, then those that only the other one has."""
    from pyspark.sql.types import StructType

    old, new = (StructType.fromJson(json.loads(one)) for one in (stored, schema))
    return StructType([*old.fields, *(field for field in new.fields if field.name not in old.names)]).json()

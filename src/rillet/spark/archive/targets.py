"""The targets of an archive job's tasks: the staging folder of an archive, or a Delta table's storage.

    path, file = target.create()          a new file, not visible to readers
    ...                                   the task writes Parquet to it
    part = target.finish(part, file)      syncs or uploads the file; the part then has its final path in this storage
    with target.read(path) as parquet:    opens a stored file, for merging

A target is sent to the tasks, so it holds settings and no connections.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Protocol

from rillet.extras import require
from rillet.spark.archive.files import ArchiveError, sync
from rillet.spark.archive.manifest import Part

if TYPE_CHECKING:
    from deltalake.fs import DeltaStorageHandler

CHUNK = 8 << 20


class FileTarget(Protocol):
    """The storage that tasks write to."""

    @property
    def compression(self) -> str:
        """The codec of the Parquet files."""

    def create(self) -> tuple[str, IO[bytes]]:
        """Create a file; return its path and the open file."""

    def finish(self, part: Part, file: IO[bytes]) -> Part:
        """Store a file durably and close it; return the part with its path in the storage."""

    def schema(self, path: str) -> Any:
        """Return the Arrow schema of a stored file."""

    def read(self, path: str) -> Any:
        """Open a stored Parquet file, as a context manager."""


@dataclass(frozen=True)
class StagingFolder:
    """The staging folder of an archive in rillet's own format: the driver renames the files after the commit."""

    root: Path
    staging: str  # relative to root
    compression: str = "zstd"

    def create(self) -> tuple[str, IO[bytes]]:
        """Create a file; return its path and the open file."""
        path = f"{self.staging}/{uuid.uuid4().hex}.part"
        return path, open(self.root / path, "wb")

    def finish(self, part: Part, file: IO[bytes]) -> Part:
        """Sync a file to disk and close it."""
        file.flush()
        os.fsync(file.fileno())
        file.close()
        return part

    def schema(self, path: str) -> Any:
        """Return the Arrow schema of a file of the archive."""
        import pyarrow.parquet as pq

        return pq.read_schema(self.root / path)

    def read(self, path: str) -> Any:
        """Open a file of the archive."""
        import pyarrow.parquet as pq

        return pq.ParquetFile(self.root / path)


@dataclass(frozen=True)
class DeltaStorage:
    """The storage of a Delta table: a folder, or a prefix in an object store.

    A file has its final name before the commit. Readers of the table find files by its log only, so they do not see it.
    """

    uri: str
    options: tuple[tuple[str, str], ...] = field(default=(), repr=False)  # may contain credentials
    compression: str = "zstd"

    @property
    def folder(self) -> Path | None:
        """The folder of a table on a file system; None for an object store."""
        if "://" in self.uri:
            return Path(self.uri.removeprefix("file://")) if self.uri.startswith("file://") else None
        return Path(self.uri)

    @property
    def storage_options(self) -> dict[str, str]:
        """The options of the object store, such as credentials."""
        return dict(self.options)

    def place(self, part: Part) -> str:
        """Return the folder for a new file."""
        return delta_folder(part)

    def handler(self) -> DeltaStorageHandler:
        """Return the table's file operations; paths are relative to the table."""
        require("delta", "an archive in Delta tables")
        from deltalake.fs import DeltaStorageHandler

        return DeltaStorageHandler(self.uri, self.storage_options)

    def create(self) -> tuple[str, IO[bytes]]:
        """Create a file: beside the table's files, or a temporary one that `finish` uploads."""
        if self.folder is None:
            file = tempfile.NamedTemporaryFile(prefix="rillet-", suffix=".parquet")  # noqa: SIM115 (finish closes it)
            return file.name, file
        staging = self.folder / "_rillet" / "staging"
        staging.mkdir(parents=True, exist_ok=True)
        path = staging / f"{uuid.uuid4().hex}.part"
        return str(path), open(path, "wb")

    def finish(self, part: Part, file: IO[bytes]) -> Part:
        """Give a file its final name, which contains its first and last ID; upload it to an object store."""
        final = f"{self.place(part)}/{part.first}_{part.last}_{uuid.uuid4().hex[:12]}.parquet"
        file.flush()
        if self.folder is None:
            with file, open(part.path, "rb") as written:
                self.upload(final, written)
        else:
            os.fsync(file.fileno())
            file.close()
            target = self.folder / final
            target.parent.mkdir(parents=True, exist_ok=True)
            os.replace(part.path, target)
            for folder in (target.parent, target.parent.parent, self.folder):
                sync(folder)
        return part._replace(path=final)

    def upload(self, path: str, source: IO[bytes]) -> None:
        """Write the bytes of a file to a path of the storage; sync it to disk in a folder, as deltalake does not."""
        # The handler wraps this stream for Arrow, which passes buffers that deltalake does not accept.
        stream: Any = self.handler()._handler.open_output_stream(path, None)
        while chunk := source.read(CHUNK):
            stream.write(chunk)
        stream.close()
        if self.folder is not None:
            target = self.folder / path
            for changed in (target, target.parent, self.folder):
                sync(changed)

    def schema(self, path: str) -> Any:
        """Return the Arrow schema of a file of the table; reads its footer only."""
        import pyarrow.parquet as pq

        with self._open(path) as stored:
            return pq.read_schema(stored)

    def _open(self, path: str) -> Any:
        """Open a file of the table for reading."""
        try:
            return open(self.folder / path, "rb") if self.folder else self.handler().open_input_file(path)
        except OSError as error:
            raise ArchiveError(
                f"rillet: {self.uri}/{path} cannot be read: {error}. If vacuum removed it after a merge, start the "
                "read again"
            ) from None

    @contextmanager
    def read(self, path: str) -> Iterator[Any]:
        """Open a file of the table; a file in an object store is downloaded first."""
        import pyarrow.parquet as pq

        if self.folder is not None:
            with self._open(path) as stored, pq.ParquetFile(stored) as file:
                yield file
            return
        with tempfile.TemporaryFile(prefix="rillet-") as copy:
            with self._open(path) as stored:
                shutil.copyfileobj(stored, copy, CHUNK)
            with pq.ParquetFile(copy) as file:
                yield file


def delta_folder(part: Part) -> str:
    """Return the folder for files of a stream's day, and of its other partition columns, in a Delta table.

    The log holds the stream's name and the values. A path in the log is percent-encoded, so the folder has only plain
    characters.
    """
    day = "none" if part.day is None else day_text(part.day)
    place = part.stream if not part.values else json.dumps([part.stream, *part.values])
    return f"date={day}/{hashlib.sha1(place.encode(), usedforsecurity=False).hexdigest()[:12]}"


def day_text(day: int) -> str:
    """Return a day, counted from 1970, as YYYY-MM-DD."""
    from datetime import date, timedelta

    return (date(1970, 1, 1) + timedelta(days=day)).isoformat()


def delta_storage(uri: str | Path, options: Mapping[str, str] | None, compression: str = "zstd") -> DeltaStorage:
    """Return the storage of a Delta table; a folder becomes an absolute path, because tasks run elsewhere."""
    text = str(uri)
    if "://" not in text:
        text = str(Path(text).absolute())
        if options:
            raise ArchiveError(f"rillet: storage_options are for object stores, and {uri} is a folder")
    return DeltaStorage(text.rstrip("/"), tuple(sorted((options or {}).items())), compression)

"""The folder of an archive: Parquet files by date and stream, and the manifest that lists the valid files.

    events.archive/
      date=2024-05-01/stream=events/1714521600000-0_1714564812345-2_c17.parquet     rows in the order of their IDs
      _rillet/manifest.json      the list of the archive's files, and the ID up to which every stream is archived
      _rillet/commits/...json    the changes of the commits since then
      _rillet/staging/...        files that are being written
      _rillet/replaced/...       files that compaction replaced, for readers with an older manifest
      _rillet/lock               the file that the writing process locks

A commit writes one file and renames it to its final name: fsync, rename, fsync of the folder. The rename is the commit.
The file is the next increment, `commits/<number>.json`, or from time to time a new base, `manifest.json`
(archive/manifest.py). Both hold the changed list of files, with first ID, last ID and rows of each, and the source's
offset after these files, so files and offset cannot disagree. They also list the steps that remain after the commit. If
the writer is killed, the next writer completes these steps (`settle`):

    append     1  tasks write <uuid>.part into staging, fsync
               2  commit: files added, offset, place {final name: staged name}
               3  rename each staged file to its final name, in the order of IDs
    compact    1  tasks write merged files into staging
               2  a new folder in staging gets the merged files, and links to the files that were not merged;
                  _rillet/replaced gets links to the files that were merged
               3  commit: merged files instead of the old ones, swap {folder: new folder}
               4  exchange old and new folder in one step (renameat2, RENAME_EXCHANGE); remove the old folder
    remove     1  _rillet/replaced gets links to the files of the removed folders; an empty folder in staging for each
               2  commit: without these files, swap {folder: empty folder}
               3  rename each folder onto its empty folder in staging; remove it there
    new base   1  the whole manifest, with the changes of this commit, replaces manifest.json: the commit
               2  remove the increments that it contains

After the rename a commit cannot be taken back. If a later sync or step fails, the writer does not know what a power
failure would leave. It reports that, and commits again only after `writing` has synced and read the manifest again.

After a kill before the commit, the next start removes the staged files and reads the batch again. After a kill after
the commit, the next start finishes the remaining steps. Every step may be repeated.

A reader of the manifest (`rillet.spark.history`) sees exactly one commit. It reads the base and the increments that
follow it; if the base was replaced meanwhile, it starts again. It opens a file at its final path, or else in staging,
or else among the replaced files, which are kept for a while. A reader of the bare folder (pyarrow, DuckDB, another
Spark: date=*/stream=*/*.parquet) sees whole files only, each entry at most once: the files of a batch appear within
milliseconds of each other, and a compaction takes effect at one moment. If compaction removes a file that such a reader
has already listed, the reader gets an error, never a wrong number.

Rejected: Spark's streaming file sink (other readers see the leftovers of failed tasks, and its files cannot be
compacted); a new folder of links for each commit (O(files), and not every glob follows symbolic links); one manifest
that each commit rewrites (O(files): 1.6 s at 73,000 files); one log to which commits append (a reader may see half of a
record, and a writer must repair the end of the file after a crash). A table format is the second backend,
archive/delta.py: it needs a library, and readers of the bare folder count its replaced files.
"""

from __future__ import annotations

import os
import re
import shutil
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import date, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

from rillet.real_time import monotonic
from rillet.spark.archive.files import ArchiveError, can_exchange, exchange, link, sync
from rillet.spark.archive.manifest import (
    FEW_INCREMENTS,
    FORMAT,
    MOST_INCREMENTS,
    OLDEST,
    PARTITIONED,
    ArchiveChange,
    ArchiveManifest,
    Part,
    UnknownFormat,
    Value,
    base_text,
    increment_text,
    parse_base,
    parse_increment,
)
from rillet.spark.archive.merging import Mergeable
from rillet.spark.archive.parquet_reader import ArchiveTask
from rillet.spark.archive.partitions import STANDARD, constants, data_columns, text_of
from rillet.spark.archive.targets import StagingFolder
from rillet.types.stream.id import StreamID

OWN = "_rillet"
MANIFEST = f"{OWN}/manifest.json"
COMMITS = f"{OWN}/commits"
STAGING = f"{OWN}/staging"
REPLACED = f"{OWN}/replaced"
KEEP_REPLACED = 3600.0
NO_OBJECTS = (
    "an archive in rillet's own format commits by a rename, which object stores do not have; use the format delta there"
)
DAY_MS = 86_400_000
MAX_NAME = 255  # bytes: the longest folder name on common file systems
_TRIES = 20  # attempts to read a manifest whose base is replaced meanwhile
_PAUSE = 0.01  # seconds
_HEAD = 64  # bytes that contain format and commit
_TURN = 0.1  # seconds between two attempts to lock the archive
_LAST_DAY = (date.max - date(1970, 1, 1)).days
_CAPITAL = re.compile(r"%..|[A-Z]")  # Keep %.. sequences and encode capitals in a quoted name.
_PLAIN = " !$&()+,;@^~"  # characters of a folder's name that are not percent-encoded
_NO_VALUE = "__HIVE_DEFAULT_PARTITION__"  # Hive's name for a null partition value.


def folder_of(
    stream: str, day: int | None, column: str = "stream", columns: tuple[str, ...] = (), values: Sequence[Value] = ()
) -> str:
    """Return the partition folder of a stream's day, with special characters percent-encoded.

    column: the name of `stream`. columns, values: the partition columns, and the values of those of the data.

    Capital letters are encoded too: on a file system that ignores case, the streams `Events` and `events` would share a
    folder, and a commit of one stream would replace the other stream's files. Raise ArchiveError if the name is too
    long for a folder.
    """
    when = None if day is None else (date(1970, 1, 1) + timedelta(days=day)).isoformat()
    texts: dict[str, str | None] = {"date": when, "stream": stream}
    texts.update(zip(data_columns(columns), map(text_of, values), strict=True))
    return "/".join(_folder(column if name == "stream" else name, texts[name]) for name in columns or STANDARD)


def _folder(column: str, value: str | None) -> str:
    name = f"{column}={_CAPITAL.sub(_capital, quote(value or '', safe=_PLAIN)) or _NO_VALUE}"
    if len(name) > MAX_NAME:
        what = "name of the stream" if column == "stream" else f"value of {column}"
        raise ArchiveError(
            f"rillet: the {what} {str(value)[:40]!r}... is too long for a folder of an archive: {len(name)} bytes "
            f"after percent-encoding; the limit is {MAX_NAME}"
        )
    return name


def _capital(match: re.Match[str]) -> str:
    return match[0] if match[0].startswith("%") else f"%{ord(match[0]):02X}"


def day_of(ms: int) -> int | None:
    """Return the UTC day of an ID's milliseconds, in days since 1970; None beyond the year 9999."""
    day = ms // DAY_MS
    return day if 0 <= day <= _LAST_DAY else None


@dataclass
class Stored:
    """The stored form of a manifest: the format and size of its base, and the increments that follow it."""

    format: int = 0  # 0: nothing
    base_bytes: int = 0
    increments: int = 0
    increment_bytes: int = 0

    def add(self, size: int) -> None:
        """Count one more increment."""
        self.increments += 1
        self.increment_bytes += size

    def wants_base(self, size: int) -> bool:
        """Return whether the next commit, whose increment has this size, writes a base."""
        if self.format not in (FORMAT, PARTITIONED) or self.increments >= MOST_INCREMENTS:
            return True
        return self.increments >= FEW_INCREMENTS and self.increment_bytes + size > self.base_bytes


def _increment(commit: int) -> str:
    return f"{COMMITS}/{commit:012}.json"


class Archive:
    """An archive's folder; `at` is called with the name of every write step, so that tests can simulate a crash.

    column: the name of the partition column within a date; `stream` except for archives of changes. partition_by: the
    partition columns that a job asks for (partitions.py).
    """

    keep_replaced = KEEP_REPLACED

    def __init__(
        self, path: str | Path, at: Callable[[str], None] = lambda step: None, column: str = "stream",
        *, partition_by: tuple[str, ...] | None = None,
    ) -> None:  # fmt: skip
        if "://" in str(path):
            raise ArchiveError(f"rillet: {path} is not a folder of a file system: {NO_OBJECTS}")
        self.path = Path(path)
        self.at = at
        self.column = column
        self.partition_by = partition_by
        self._stored = Stored()
        self._known: ArchiveManifest | None = None  # after the last `writing`, and the state of the folder then
        self._seen: tuple[bytes | None, list[int]] = (None, [])
        self._unfinished = 0  # the number of a commit that was renamed, and whose sync or remaining steps failed
        self._small = Mergeable()

    # ---- reading -------------------------------------------------------------------------------------------------

    def manifest(self) -> ArchiveManifest:
        """Return the archive's manifest; an empty one if the archive does not exist yet. O(files)"""
        return self._read()[0]

    def _read(self) -> tuple[ArchiveManifest, Stored]:
        """Return the manifest and what is stored of it; start again if the base is replaced meanwhile."""
        for attempt in range(_TRIES):
            if attempt:
                time.sleep(_PAUSE)
            text = self._bytes(MANIFEST)
            if text is None:
                return ArchiveManifest(), Stored()
            try:
                number, manifest = parse_base(text)
                stored = Stored(number, len(text))
                commits = self._increments(manifest.commit)
                for commit in commits:
                    change = self._bytes(_increment(commit))
                    if change is None or commit != manifest.commit + 1:
                        break  # removed by a writer, unless the archive is damaged
                    manifest = parse_increment(change, commit).applied(manifest)
                    stored.add(len(change))
                else:
                    if self._is_base(text):
                        return manifest, stored
            except UnknownFormat as error:
                raise ArchiveError(
                    f"rillet: the archive {self.path} has format {error}; this version reads {OLDEST} to {PARTITIONED}"
                ) from None
            except (ValueError, KeyError, TypeError) as error:
                raise ArchiveError(f"rillet: the manifest of the archive {self.path} is damaged: {error!r}") from None
        raise ArchiveError(
            f"rillet: the manifest of the archive {self.path} is damaged: {COMMITS} lacks commit {manifest.commit + 1}"
        )

    def _bytes(self, path: str, size: int = -1) -> bytes | None:
        """Return the bytes of a file of the manifest, or its first ones; None if it does not exist."""
        try:
            with open(self.path / path, "rb") as file:
                return file.read(size)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise ArchiveError(f"rillet: the archive {self.path} cannot be read: {error.strerror}") from None

    def _is_base(self, text: bytes) -> bool:
        """Return whether a text is still the beginning of the base: bases differ in their commit numbers."""
        return self._bytes(MANIFEST, _HEAD) == text[:_HEAD]

    def _increments(self, above: int) -> list[int]:
        """Return the numbers of the stored increments above a commit, sorted."""
        try:
            names = os.listdir(self.path / COMMITS)
        except FileNotFoundError:
            return []
        numbers = (int(name.removesuffix(".json")) for name in names if name.removesuffix(".json").isdigit())
        return sorted(number for number in numbers if number > above)

    def existing(self) -> ArchiveManifest:
        """Return the manifest of an archive; raise ArchiveError if the archive does not exist."""
        manifest = self.manifest()
        if not manifest.commit:
            raise ArchiveError(f"rillet: there is no archive at {self.path}: {MANIFEST} is missing")
        return manifest

    def places(self, manifest: ArchiveManifest, path: str) -> list[Path]:
        """Return the possible paths of a file in the manifest: its final path, then staging, then the replaced files.

        A reader that tries them in turn while the file is being moved may miss it at each, and must try again.
        """
        places = [path]
        if path in manifest.place:
            places.append(manifest.place[path])
        folder, _, name = path.rpartition("/")
        if folder in manifest.swap:
            places.append(f"{manifest.swap[folder]}/{name}")
        return [self.path / place for place in (*places, f"{REPLACED}/{path}.old")]

    def task(self, manifest: ArchiveManifest, file: Part, after: StreamID, last: StreamID) -> ArchiveTask:
        """Return the task input for the entries of a file with after < ID <= last."""
        values = constants(manifest, file)
        return ArchiveTask(tuple(self.places(manifest, file.path)), file.stream, after, last, values=values)

    # ---- writing -------------------------------------------------------------------------------------------------

    @contextmanager
    def writing(self, wait: float = 0.0) -> Iterator[ArchiveManifest]:
        """Lock the archive for writing, complete the last commit's remaining steps, and yield the manifest.

        wait: seconds to wait for another process that is writing. O(files), or O(1) if nobody has written since the
        last time.
        """
        import fcntl

        try:
            (self.path / COMMITS).mkdir(parents=True, exist_ok=True)
            lock = open(self.path / OWN / "lock", "a")  # noqa: SIM115 (closing it releases the lock)
        except OSError as error:
            raise ArchiveError(f"rillet: the archive {self.path} cannot be written: {error.strerror}") from None
        with lock:
            deadline = monotonic() + wait
            while True:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except OSError:
                    if monotonic() >= deadline:
                        raise ArchiveError(f"rillet: another process is writing to the archive {self.path}") from None
                    time.sleep(_TURN)
            try:  # before anything relies on the last commit, whose writer may have been killed before its sync
                sync(self.path / COMMITS)
                sync(self.path / OWN)
            except OSError as error:
                raise ArchiveError(f"rillet: the archive {self.path} cannot be written: {error.strerror}") from None
            manifest = self._known
            if manifest is None or self._unfinished or self._seen != self._state():
                manifest, self._stored = self._read()
                with self._after(manifest.commit):
                    self.settle(manifest, again=True)
                    self._prune(manifest.commit - self._stored.increments)
                shutil.rmtree(self.path / STAGING, ignore_errors=True)
            self._unfinished = 0
            self._known = manifest
            try:
                yield manifest
                self._seen = self._state()
            except BaseException:
                self._known = None
                raise

    def _state(self) -> tuple[bytes | None, list[int]]:
        """Return what changes with each commit: the head of the base, and the increments. O(increments)"""
        return self._bytes(MANIFEST, _HEAD), self._increments(0)

    def stage(self) -> str:
        """Create a staging folder for the files that tasks write; return its path relative to the archive's folder."""
        folder = f"{STAGING}/{uuid.uuid4().hex}"
        (self.path / folder).mkdir(parents=True)
        return folder

    def append(
        self, manifest: ArchiveManifest, parts: Sequence[Part], offset: dict[str, Any], schema: str
    ) -> ArchiveManifest:
        """Commit files in staging together with the source's offset after their entries; return the new manifest."""
        commit = manifest.commit + 1
        added, place = [], {}
        for part in sorted(parts, key=lambda part: (part.stream, part.first)):
            folder = folder_of(part.stream, part.day, self.column, manifest.partition_by, part.values)
            final = f"{folder}/{part.first}_{part.last}_c{commit}.parquet"
            place[final] = part.path
            added.append(part._replace(path=final))
        for folder in {part.folder for part in parts}:
            sync(self.path / folder)
        changed = None if schema == manifest.schema else schema
        new = self._commit(manifest, ArchiveChange(added, offset=offset, schema=changed, place=place))
        self._tidy()
        return new

    def merge(self, manifest: ArchiveManifest, merged: Sequence[tuple[Sequence[Part], Part]]) -> ArchiveManifest:
        """Commit merged files; each replaces several files of one folder. Return the new manifest."""
        commit = manifest.commit + 1
        gone = {old.path for olds, _ in merged for old in olds}
        new_files: list[Part] = []
        swap: dict[str, str] = {}
        for olds, part in merged:
            folder = os.path.dirname(olds[0].path)
            name = f"{part.first}_{part.last}_c{commit}.parquet"
            if folder not in swap:
                swap[folder] = self.stage()
            os.replace(self.path / part.path, self.path / swap[folder] / name)
            new_files.append(part._replace(path=f"{folder}/{name}"))
        self.at("merged")
        for folder, staged in swap.items():
            for file in manifest.files.in_folder(folder):
                if file.path in gone:
                    link(self.path / file.path, self.path / REPLACED / f"{file.path}.old")
                else:
                    link(self.path / file.path, self.path / staged / os.path.basename(file.path))
            sync(self.path / staged)
        new = self._commit(manifest, ArchiveChange(new_files, sorted(gone), time.time(), swap=swap))
        self._tidy()
        return new

    def rewrite(
        self, manifest: ArchiveManifest, files: dict[str, Part], offset: dict[str, Any], schema: str
    ) -> ArchiveManifest:
        """Commit one new file for each of some folders, in place of the folder's files, and the source's offset."""
        commit = manifest.commit + 1
        gone: list[str] = []
        new_files: list[Part] = []
        swap: dict[str, str] = {}
        for folder, part in files.items():
            swap[folder] = self.stage()
            name = f"{part.first}_{part.last}_c{commit}.parquet"
            os.replace(self.path / part.path, self.path / swap[folder] / name)
            new_files.append(part._replace(path=f"{folder}/{name}"))
            (self.path / folder).mkdir(parents=True, exist_ok=True)
            for old in manifest.files.in_folder(folder):
                link(self.path / old.path, self.path / REPLACED / f"{old.path}.old")
                gone.append(old.path)
            sync(self.path / swap[folder])
        sync(self.path)
        self.at("merged")
        changed = None if schema == manifest.schema else schema
        new = self._commit(manifest, ArchiveChange(new_files, sorted(gone), time.time(), offset, changed, swap=swap))
        self._tidy()
        return new

    def remove(self, manifest: ArchiveManifest, folders: Sequence[str]) -> ArchiveManifest:
        """Commit the removal of all files of some folders; return the new manifest."""
        gone = [file.path for folder in folders for file in manifest.files.in_folder(folder)]
        swap = {folder: self.stage() for folder in folders}
        for path in gone:
            link(self.path / path, self.path / REPLACED / f"{path}.old")
        self.at("merged")
        new = self._commit(manifest, ArchiveChange([], gone, time.time(), swap=swap))
        self._tidy()
        return new

    def _tidy(self) -> None:
        """Remove empty folders in staging; the next writer removes the other folders there."""
        with suppress(OSError):
            for folder in os.listdir(self.path / STAGING):
                with suppress(OSError):
                    os.rmdir(self.path / STAGING / folder)

    def _commit(self, manifest: ArchiveManifest, change: ArchiveChange) -> ArchiveManifest:
        """Commit a change by an increment or by a new base, complete the remaining steps, return the new manifest."""
        if self._unfinished:
            raise ArchiveError(
                f"rillet: commit {self._unfinished} of the archive {self.path} was not completed: its manifest must be "
                "read again before the next commit"
            )
        self.at("staged")
        replaced = manifest.files.select(change.removed)
        lasts = {part.stream: manifest.files.last(part.stream) for part in change.added}
        new = change.applied(manifest)
        text = increment_text(new.commit, change)
        whole = self._stored.wants_base(len(text))
        try:
            if whole:
                text = base_text(new)
                self._replace(MANIFEST, text, new.commit)
                self._stored = Stored(FORMAT, len(text))
            else:
                self._replace(_increment(new.commit), text, new.commit)
                self._stored.add(len(text))
        except OSError as error:
            manifest.files.undo(change.added, replaced, lasts)
            if self._unfinished:
                raise ArchiveError(
                    f"rillet: the archive {self.path} cannot be synced, so whether commit {new.commit} is durable is "
                    f"unknown: {error.strerror}. Run the job again: it continues after this commit if it finds it"
                ) from None
            raise ArchiveError(f"rillet: the archive {self.path} cannot be written: {error.strerror}") from None
        self.at("committed")
        with self._after(new.commit):
            self.settle(new)
            self.at("settled")
            if whole:
                self._prune(new.commit)
        self._unfinished = 0
        self._known = new
        return new

    @contextmanager
    def _after(self, commit: int) -> Iterator[None]:
        """Report an error of the operating system in a step after a commit; the next writer repeats the step."""
        try:
            yield
        except OSError as error:
            raise ArchiveError(
                f"rillet: the archive {self.path}: commit {commit} is written, but a step after it failed: "
                f"{error.strerror}. Run the job again: it completes the step"
            ) from None

    def _replace(self, path: str, text: bytes, commit: int) -> None:
        """Write a file of the manifest in one atomic step, the commit, and sync it to disk."""
        target = self.path / path
        draft = target.parent / "draft"
        with open(draft, "wb") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        self.at("drafted")
        os.replace(draft, target)
        self._unfinished = commit
        sync(target.parent)

    def _prune(self, base: int) -> None:
        """Remove the increments that the base contains, the oldest first."""
        for commit in self._increments(0):
            if commit <= base:
                (self.path / _increment(commit)).unlink(missing_ok=True)
                self.at("pruned")

    def settle(self, manifest: ArchiveManifest, again: bool = False) -> None:
        """Complete the steps that remain after a commit; skip steps that are already done.

        again: sync also the folders of steps that another process has done, which may have been killed before its sync.
        """
        folders, new = set(), set()  # to sync: changed folders, and the folders above new ones
        for final, staged in manifest.place.items():
            target = self.path / final
            if (self.path / staged).exists():
                if not target.parent.exists():
                    target.parent.mkdir(parents=True)
                    new |= self._above(target.parent)
                os.replace(self.path / staged, target)
                folders.add(target.parent)
                self.at("placed")
            elif again and target.exists():
                folders.add(target.parent)
        for folder, staged in manifest.swap.items():
            self._swap(manifest, folder, staged)
            if manifest.files.in_folder(folder):
                folders.add(self.path / folder)
            new |= self._above(self.path / folder)
        if again:
            new |= {above for folder in folders for above in self._above(folder)}
        for target in folders | new:
            if target.exists():  # the folder of a date whose days were removed does not
                sync(target)
        missing = [final for final in manifest.place if not (self.path / final).exists()]
        if missing:
            raise ArchiveError(f"rillet: the archive {self.path} lacks {missing[0]}, which its manifest lists")

    def _above(self, folder: Path) -> set[Path]:
        """Return the folders that contain a partition's folder, up to the archive's."""
        return {parent for parent in folder.parents if parent.is_relative_to(self.path)}

    def _swap(self, manifest: ArchiveManifest, folder: str, staged: str) -> None:
        """Exchange a compacted folder with the old folder, unless that is already done; remove the old folder.

        If the commit has removed all files of the folder, remove the folder, and those above it that are empty.
        """
        files = manifest.files.in_folder(folder)
        if not files:
            if (self.path / folder).exists():
                (self.path / staged).mkdir(parents=True, exist_ok=True)
                os.replace(self.path / folder, self.path / staged)
                self.at("exchanged")
            shutil.rmtree(self.path / staged, ignore_errors=True)
            with suppress(OSError):
                for above in sorted(self._above(self.path / folder) - {self.path}, reverse=True):  # the deepest first
                    os.rmdir(above)
            return
        fresh = [file.path for file in files if file.path.endswith(f"_c{manifest.commit}.parquet")]
        if not all((self.path / path).exists() for path in fresh):
            exchange(self.path / staged, self.path / folder)
            self.at("exchanged")
        shutil.rmtree(self.path / staged, ignore_errors=True)

    def forget(self, manifest: ArchiveManifest, keep: float) -> ArchiveManifest:
        """Delete files that were replaced more than `keep` seconds ago; return the manifest for the next commit."""
        old = [path for path, since in manifest.replaced.items() if since < time.time() - keep]
        for path in old:
            (self.path / REPLACED / f"{path}.old").unlink(missing_ok=True)
        return replace(manifest, replaced={path: t for path, t in manifest.replaced.items() if path not in old})

    def mergeable(self, manifest: ArchiveManifest, least: int, target: int) -> list[list[Part]]:
        """Return lists of adjacent small files to merge, from folders with at least `least` small files."""
        return self._small.runs(manifest.files, least, target)

    def can_merge(self) -> bool:
        """Return whether the file system can exchange a folder with its merged files in one step."""
        return can_exchange(self.path / OWN)

    # ---- what a job asks ----------------------------------------------------------------------------------------

    def check_stream(self, stream: str) -> None:
        """Raise ArchiveError if the stream's name is too long for a folder."""
        folder_of(stream, None, self.column)

    def target(self, compression: str) -> StagingFolder:
        """Return a new staging folder, to which tasks write."""
        return StagingFolder(self.path.absolute(), self.stage(), compression)

    def fits(self, manifest: ArchiveManifest, schema: str) -> bool:
        """Return whether rows of a schema (Spark's JSON) can be appended: an archive keeps its first schema."""
        return not manifest.commit or manifest.schema == schema

"""The folder of an archive: Parquet files by date and stream, and the manifest that lists the valid files.

    events.archive/
      date=2024-05-01/stream=events/1714521600000-0_1714564812345-2_c17.parquet     rows in the order of their IDs
      _rillet/manifest.json      the list of the archive's files, and the ID up to which every stream is archived
      _rillet/staging/...        files that are being written
      _rillet/replaced/...       files that compaction replaced, for readers with an older manifest
      _rillet/lock               the file that the writing process locks

The manifest is one file, replaced as a whole: fsync, rename, fsync of the folder. The rename is the commit. The
manifest holds the list of files, with first ID, last ID and rows of each, and the source's offset after these files, so
files and offset cannot disagree. The manifest also lists the steps that remain after the commit. If the writer is
killed, the next writer completes these steps (`settle`):

    append     1  tasks write <uuid>.part into staging, fsync
               2  new manifest: files added, offset, place {final name: staged name}            <- commit
               3  rename each staged file to its final name, in the order of IDs
    compact    1  tasks write merged files into staging
               2  a new folder in staging gets the merged files, and links to the files that were not merged;
                  _rillet/replaced gets links to the files that were merged
               3  new manifest: merged files instead of the old ones, swap {folder: new folder}  <- commit
               4  exchange old and new folder in one step (renameat2, RENAME_EXCHANGE); remove the old folder

After a kill before the commit, the next start removes the staged files and reads the batch again. After a kill after
the commit, the next start finishes the remaining steps. Every step may be repeated.

A reader of the manifest (`rillet.spark.history`) sees exactly one commit. It opens a file at its final path, or else in
staging, or else among the replaced files, which are kept for a while. A reader of the bare folder (pyarrow, DuckDB,
another Spark: date=*/stream=*/*.parquet) sees whole files only, each entry at most once: the files of a batch appear
within milliseconds of each other, and a compaction takes effect at one moment. If compaction removes a file that such a
reader has already listed, the reader gets an error, never a wrong number.

Rejected: Spark's streaming file sink (other readers see the leftovers of failed tasks, and its files cannot be
compacted); a table format such as Delta or Iceberg (a dependency and a catalogue, for one writer that only appends); a
new folder of links for each commit (O(files), and not every glob follows symbolic links).
"""

from __future__ import annotations

import json
import os
import re
import shutil
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from datetime import date, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

from rillet.spark.archive.files import ArchiveError, exchange, link, sync
from rillet.types.stream.id import StreamID

FORMAT = 1
OWN = "_rillet"
MANIFEST = f"{OWN}/manifest.json"
STAGING = f"{OWN}/staging"
REPLACED = f"{OWN}/replaced"
KEEP_REPLACED = 3600.0
NO_OBJECTS = (
    "an archive commits by a rename, which object stores do not have; archive to a folder and copy it, or write "
    "there with Spark's own sink (writeStream.format('parquet'))"
)
DAY_MS = 86_400_000
MAX_NAME = 255  # bytes: the longest folder name on common file systems
_LAST_DAY = (date.max - date(1970, 1, 1)).days
_CAPITAL = re.compile(r"%..|[A-Z]")  # Keep %.. sequences and encode capitals in a quoted name.
_NO_DATE = "__HIVE_DEFAULT_PARTITION__"  # Hive's name for a null partition value.


@dataclass(frozen=True)
class Part:
    """A Parquet file with entries of one stream and one day: its path, IDs, rows and bytes."""

    path: str  # path relative to the archive's folder
    stream: str
    day: int | None  # days since 1970; None beyond the year 9999
    first: StreamID
    last: StreamID
    rows: int
    bytes: int


@dataclass(frozen=True)
class ArchiveManifest:
    """The manifest of an archive after a commit: the archive's files, and the source's offset after them."""

    commit: int = 0
    schema: str = ""  # The schema of the rows, as Spark's JSON.
    offset: dict[str, Any] = field(default_factory=dict)  # The source's offset after the last commit.
    files: tuple[Part, ...] = ()
    place: dict[str, str] = field(default_factory=dict)
    swap: dict[str, str] = field(default_factory=dict)
    replaced: dict[str, float] = field(default_factory=dict)

    def last(self, stream: str) -> StreamID:
        """Return the ID of a stream's last archived entry; 0-0 if no entry is archived."""
        return max((file.last for file in self.files if file.stream == stream), default=StreamID(0, 0))

    def held(self, stream: str) -> StreamID:
        """Return the ID up to which all entries that the stream now holds are archived; 0-0 if no entry is archived.

        This is the last archived ID, or the stored offset for a stream that was recreated with lower IDs.
        """
        position = self.offset.get("streams", {}).get(stream)
        return min(self.last(stream), StreamID(0, 0) if position is None else StreamID.parse(position))

    def read_up_to(self, stream: str) -> StreamID:
        """Return the ID up to which every entry of a stream is in the archive or was deleted before archiving."""
        position = self.offset.get("streams", {}).get(stream)
        return self.last(stream) if position is None else max(StreamID.parse(position), self.last(stream))

    def streams(self) -> list[str]:
        """Return the streams that have archived entries, sorted."""
        return sorted({file.stream for file in self.files})


def folder_of(stream: str, day: int | None) -> str:
    """Return the partition folder of a stream's day, with special characters percent-encoded.

    Capital letters are encoded too: on a file system that ignores case, the streams `Events` and `events` would share a
    folder, and a commit of one stream would replace the other stream's files. Raise ArchiveError if the name is too
    long for a folder.
    """
    when = _NO_DATE if day is None else (date(1970, 1, 1) + timedelta(days=day)).isoformat()
    encoded = _CAPITAL.sub(_capital, quote(stream, safe=" !$&()+,;@^~"))
    name = f"stream={encoded or _NO_DATE}"
    if len(name) > MAX_NAME:
        raise ArchiveError(
            f"rillet: the name of the stream {stream[:40]!r}... is too long for a folder of an archive: {len(name)} "
            f"bytes after percent-encoding; the limit is {MAX_NAME}"
        )
    return f"date={when}/{name}"


def _capital(match: re.Match[str]) -> str:
    return match[0] if match[0].startswith("%") else f"%{ord(match[0]):02X}"


def day_of(ms: int) -> int | None:
    """Return the UTC day of an ID's milliseconds, in days since 1970; None beyond the year 9999."""
    day = ms // DAY_MS
    return day if 0 <= day <= _LAST_DAY else None


class Archive:
    """An archive's folder; `at` is called with the name of every write step, so that tests can simulate a crash."""

    def __init__(self, path: str | Path, at: Callable[[str], None] = lambda step: None) -> None:
        if "://" in str(path):
            raise ArchiveError(f"rillet: {path} is not a folder of a file system: {NO_OBJECTS}")
        self.path = Path(path)
        self.at = at

    # ---- reading -------------------------------------------------------------------------------------------------

    def manifest(self) -> ArchiveManifest:
        """Return the archive's manifest; an empty one if the archive does not exist yet."""
        try:
            text = (self.path / MANIFEST).read_bytes()
        except FileNotFoundError:
            return ArchiveManifest()
        except OSError as error:
            raise ArchiveError(f"rillet: the archive {self.path} cannot be read: {error.strerror}") from None
        try:
            stored = json.loads(text)
            if stored["format"] != FORMAT:
                raise ArchiveError(
                    f"rillet: the archive {self.path} has format {stored['format']}; this version reads 1"
                )
            return _parse(stored)
        except (ValueError, KeyError, TypeError) as error:
            raise ArchiveError(f"rillet: the manifest of the archive {self.path} is damaged: {error!r}") from None

    def existing(self) -> ArchiveManifest:
        """Return the manifest of an archive; raise ArchiveError if the archive does not exist."""
        manifest = self.manifest()
        if not manifest.commit:
            raise ArchiveError(f"rillet: there is no archive at {self.path}: {MANIFEST} is missing")
        return manifest

    def places(self, manifest: ArchiveManifest, path: str) -> list[Path]:
        """Return the possible paths of a file in the manifest, in the order in which commits move the file."""
        places = [path]
        if path in manifest.place:
            places.append(manifest.place[path])
        folder, _, name = path.rpartition("/")
        if folder in manifest.swap:
            places.append(f"{manifest.swap[folder]}/{name}")
        return [self.path / place for place in (*places, f"{REPLACED}/{path}.old")]

    # ---- writing -------------------------------------------------------------------------------------------------

    @contextmanager
    def writing(self) -> Iterator[ArchiveManifest]:
        """Lock the archive for writing, complete the last commit's remaining steps, and yield the manifest."""
        import fcntl

        try:
            (self.path / OWN).mkdir(parents=True, exist_ok=True)
            lock = open(self.path / OWN / "lock", "a")  # noqa: SIM115 (closing it releases the lock)
        except OSError as error:
            raise ArchiveError(f"rillet: the archive {self.path} cannot be written: {error.strerror}") from None
        with lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise ArchiveError(f"rillet: another process is writing to the archive {self.path}") from None
            manifest = self.manifest()
            self.settle(manifest)
            shutil.rmtree(self.path / STAGING, ignore_errors=True)
            yield manifest

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
            final = f"{folder_of(part.stream, part.day)}/{part.first}_{part.last}_c{commit}.parquet"
            place[final] = part.path
            added.append(replace(part, path=final))
        for folder in {os.path.dirname(part.path) for part in parts}:
            sync(self.path / folder)
        new = replace(
            manifest, commit=commit, schema=schema, offset=offset, files=(*manifest.files, *added), place=place, swap={}
        )
        self._commit(new)
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
            new_files.append(replace(part, path=f"{folder}/{name}"))
        self.at("merged")
        for file in manifest.files:
            folder, _, name = file.path.rpartition("/")
            if file.path in gone:
                link(self.path / file.path, self.path / REPLACED / f"{file.path}.old")
            elif folder in swap:
                link(self.path / file.path, self.path / swap[folder] / name)
        now = time.time()
        files = [file for file in manifest.files if file.path not in gone]
        files.extend(new_files)
        new = replace(
            manifest, commit=commit, files=tuple(sorted(files, key=lambda file: (file.stream, file.first))),
            place={}, swap=swap, replaced={**manifest.replaced, **dict.fromkeys(gone, now)},
        )  # fmt: skip
        for folder in swap.values():
            sync(self.path / folder)
        self._commit(new)
        self._tidy()
        return new

    def _tidy(self) -> None:
        """Remove empty folders in staging; the next writer removes the other folders there."""
        for folder in os.listdir(self.path / STAGING):
            try:
                os.rmdir(self.path / STAGING / folder)
            except OSError:
                pass

    def _commit(self, manifest: ArchiveManifest) -> None:
        self.at("staged")
        draft = self.path / OWN / "manifest.draft"
        with open(draft, "wb") as file:
            file.write(_text(manifest))
            file.flush()
            os.fsync(file.fileno())
        self.at("drafted")
        os.replace(draft, self.path / MANIFEST)
        sync(self.path / OWN)
        self.at("committed")
        self.settle(manifest)
        self.at("settled")

    def settle(self, manifest: ArchiveManifest) -> None:
        """Complete the steps that remain after a commit; skip steps that are already done."""
        folders = set()
        for final, staged in manifest.place.items():
            if (self.path / staged).exists():
                target = self.path / final
                target.parent.mkdir(parents=True, exist_ok=True)
                os.replace(self.path / staged, target)
                folders.add(target.parent)
                self.at("placed")
        for folder, staged in manifest.swap.items():
            self._swap(manifest, folder, staged)
            folders.add(self.path / folder)
        for target in folders:
            sync(target)
            sync(target.parent)
        if folders:
            sync(self.path)
        missing = [final for final in manifest.place if not (self.path / final).exists()]
        if missing:
            raise ArchiveError(f"rillet: the archive {self.path} lacks {missing[0]}, which its manifest lists")

    def _swap(self, manifest: ArchiveManifest, folder: str, staged: str) -> None:
        """Exchange a compacted folder with the old folder, unless that is already done; remove the old folder."""
        fresh = [file.path for file in manifest.files if file.path.endswith(f"_c{manifest.commit}.parquet")]
        names = [os.path.basename(path) for path in fresh if os.path.dirname(path) == folder]
        if not all((self.path / folder / name).exists() for name in names):
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
        by_folder: dict[str, list[Part]] = {}
        for file in manifest.files:
            by_folder.setdefault(os.path.dirname(file.path), []).append(file)
        mergeable: list[list[Part]] = []
        for files in by_folder.values():
            if sum(file.bytes < target // 2 for file in files) >= least:
                mergeable += _runs(sorted(files, key=lambda file: file.first), target)
        return mergeable


def _runs(files: Iterable[Part], target: int) -> Iterator[list[Part]]:
    run: list[Part] = []
    for file in files:
        small = file.bytes < target // 2
        above = not run or run[len(run) - 1].last < file.first  # false after a stream was recreated with lower IDs
        if run and (not small or not above or sum(one.bytes for one in run) + file.bytes > target):
            if len(run) > 1:
                yield run
            run = []
        if small:
            run.append(file)
    if len(run) > 1:
        yield run


# ---- the manifest's text ------------------------------------------------------------------------------------------


def _text(manifest: ArchiveManifest) -> bytes:
    stored = asdict(manifest)
    stored["files"] = [{**fields, "first": str(file.first), "last": str(file.last)}
                       for fields, file in zip(stored["files"], manifest.files, strict=True)]  # fmt: skip
    return json.dumps({"format": FORMAT, **stored}, indent=1).encode()


def _parse(stored: dict[str, Any]) -> ArchiveManifest:
    files = [Part(**{**fields, "first": StreamID.parse(fields["first"]), "last": StreamID.parse(fields["last"])})
             for fields in stored["files"]]  # fmt: skip
    return ArchiveManifest(
        int(stored["commit"]),
        stored["schema"],
        stored["offset"],
        tuple(files),
        stored["place"],
        stored["swap"],
        stored["replaced"],
    )

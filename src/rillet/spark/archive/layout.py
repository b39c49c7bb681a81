"""The folder of an archive: Parquet files by date and stream, and the manifest that says which of them count.

    events.archive/
      date=2024-05-01/stream=events/1714521600000-0_1714564812345-2_c17.parquet     rows in the order of their IDs
      _rillet/manifest.json      what is in the archive, and how far every stream is archived
      _rillet/staging/...        files in the making
      _rillet/replaced/...       what compaction replaced, for those who read with an older manifest
      _rillet/lock               held by the one process that writes

The manifest is one file, replaced as a whole: fsync, rename, fsync of the folder. That rename is the commit. It holds
the files, with first and last ID and rows of each, and the offset of the source after them, so that data and offset
cannot disagree. What is left to do after a commit is written in it too, and whoever comes next does it (`settle`):

    append     1  tasks write <uuid>.part into staging, fsync
               2  manifest: + files, offset, place {final name: staged name}                    <- commit
               3  rename each staged file to its final name, in the order of IDs
    compact    1  tasks write merged files into staging
               2  a new folder in staging: merged files, links to those that stay; in replaced: links to those that go
               3  manifest: - old files + merged ones, swap {folder: new folder}                <- commit
               4  exchange the two folders, which is one step (renameat2 with RENAME_EXCHANGE); remove the old one

Killed before a commit: the staged files are swept at the next start, and the batch is read again. Killed after it: the
next start finishes. Every step may be done twice.

Who reads by the manifest (`rillet.spark.history`) has exactly one commit: a file is looked for at its final place, then
where the manifest says that it waits, then among the replaced, which are kept for a while. Who reads the
folder with pyarrow, DuckDB (date=*/stream=*/*.parquet) or another Spark sees whole files only, each entry at most once:
a batch's files turn up one after the other, within milliseconds; a compaction happens at one moment. Such a reader may
find a file gone that it had listed before; that is an error it can see, never a wrong number.

Rejected: Spark's streaming file sink (its list of files is known to Spark alone, others see what failed tasks left
behind, and it cannot be compacted); a table format (Delta, Iceberg: a dependency and a catalogue, for one
writer that only appends); a new version of the folder by links for each commit (O(files), and globs do not follow
symbolic links everywhere).
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import re
import shutil
import sys
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from datetime import date, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

from rillet.errors import RilletError
from rillet.types.stream.id import StreamID

FORMAT = 1
OWN = "_rillet"
MANIFEST = f"{OWN}/manifest.json"
STAGING = f"{OWN}/staging"
REPLACED = f"{OWN}/replaced"
KEEP_REPLACED = 3600.0
NO_OBJECTS = (
    "an archive's commit is a rename, which object stores do not have; archive into a folder and copy that, or have "
    "Spark's own sink write there (writeStream.format('parquet'))"
)
DAY_MS = 86_400_000
MOST_NAME = 255  # bytes of a folder's name, on file systems of all kinds
_LAST_DAY = (date.max - date(1970, 1, 1)).days
_CAPITAL = re.compile(r"%..|[A-Z]")  # of a name that is percent-encoded
_NO_DATE = "__HIVE_DEFAULT_PARTITION__"  # what every reader of such folders takes for null


class ArchiveError(RilletError):
    """An archive cannot be read or written; the text names the folder."""


@dataclass(frozen=True)
class Part:
    """A Parquet file that a task wrote: where it lies, and which entries of one stream and one day are in it."""

    path: str  # below the archive's folder
    stream: str
    day: int | None  # days since 1970; None where no date has it
    first: StreamID
    last: StreamID
    rows: int
    bytes: int


@dataclass(frozen=True)
class ArchiveManifest:
    """One state of an archive."""

    commit: int = 0
    schema: str = ""  # of the rows, Spark's JSON
    offset: dict[str, Any] = field(default_factory=dict)  # the source's, after the last commit
    files: tuple[Part, ...] = ()
    place: dict[str, str] = field(default_factory=dict)
    swap: dict[str, str] = field(default_factory=dict)
    replaced: dict[str, float] = field(default_factory=dict)

    def last(self, stream: str) -> StreamID:
        """Return the ID of a stream's last archived entry; 0-0 where none is."""
        return max((file.last for file in self.files if file.stream == stream), default=StreamID(0, 0))

    def held(self, stream: str) -> StreamID:
        """Return the ID up to which all that the stream has is archived; 0-0 where nothing is.

        It is the last archived one, but for a stream that was made anew with lower IDs: that one's offset.
        """
        told = self.offset.get("streams", {}).get(stream)
        return min(self.last(stream), StreamID(0, 0) if told is None else StreamID.parse(told))

    def read_up_to(self, stream: str) -> StreamID:
        """Return the ID up to which everything of a stream is in the archive or was deleted before."""
        told = self.offset.get("streams", {}).get(stream)
        return self.last(stream) if told is None else max(StreamID.parse(told), self.last(stream))

    def streams(self) -> list[str]:
        """Return the streams of which there are entries."""
        return sorted({file.stream for file in self.files})


def folder_of(stream: str, day: int | None) -> str:
    """Return the partition folder of a stream's day; what is special in names is percent-encoded.

    So are capitals: `Events` and `events` would be one folder where the file system ignores case, and a commit of the
    one would replace files of the other. ArchiveError where that is too long for a folder.
    """
    when = _NO_DATE if day is None else (date(1970, 1, 1) + timedelta(days=day)).isoformat()
    encoded = _CAPITAL.sub(_capital, quote(stream, safe=" !$&()+,;@^~"))
    name = f"stream={encoded or _NO_DATE}"
    if len(name) > MOST_NAME:
        raise ArchiveError(
            f"rillet: the name of the stream {stream[:40]!r}... is too long for a folder of an archive: {len(name)} "
            f"bytes with what has to be encoded, and {MOST_NAME} are possible"
        )
    return f"date={when}/{name}"


def _capital(found: re.Match[str]) -> str:
    return found[0] if found[0].startswith("%") else f"%{ord(found[0]):02X}"


def day_of(ms: int) -> int | None:
    """Return the UTC day of an ID's time, None beyond the year 9999."""
    day = ms // DAY_MS
    return day if 0 <= day <= _LAST_DAY else None


class Archive:
    """An archive's folder; `at` is called with the name of every step, for those who test what a crash there does."""

    def __init__(self, path: str | Path, at: Callable[[str], None] = lambda step: None) -> None:
        if "://" in str(path):
            raise ArchiveError(f"rillet: {path} is no folder of a file system: {NO_OBJECTS}")
        self.path = Path(path)
        self.at = at

    # ---- reading -------------------------------------------------------------------------------------------------

    def manifest(self) -> ArchiveManifest:
        """Return the archive's state; an empty one where there is no archive yet."""
        try:
            text = (self.path / MANIFEST).read_bytes()
        except FileNotFoundError:
            return ArchiveManifest()
        except OSError as error:
            raise ArchiveError(f"rillet: the archive {self.path} cannot be read: {error.strerror}") from None
        try:
            told = json.loads(text)
            if told["format"] != FORMAT:
                raise ArchiveError(f"rillet: the archive {self.path} has the format {told['format']}, this reads 1")
            return _parse(told)
        except (ValueError, KeyError, TypeError) as error:
            raise ArchiveError(f"rillet: the manifest of the archive {self.path} is damaged: {error!r}") from None

    def existing(self) -> ArchiveManifest:
        """Return the state of an archive that must be there."""
        found = self.manifest()
        if not found.commit:
            raise ArchiveError(f"rillet: there is no archive at {self.path}: {MANIFEST} is missing")
        return found

    def places(self, manifest: ArchiveManifest, path: str) -> list[Path]:
        """Return where a file of the manifest may lie, in the order in which it moves on."""
        found = [path]
        if path in manifest.place:
            found.append(manifest.place[path])
        folder, _, name = path.rpartition("/")
        if folder in manifest.swap:
            found.append(f"{manifest.swap[folder]}/{name}")
        return [self.path / one for one in (*found, f"{REPLACED}/{path}.old")]

    # ---- writing -------------------------------------------------------------------------------------------------

    @contextmanager
    def writing(self) -> Iterator[ArchiveManifest]:
        """Be the only writer, finish what a predecessor left half done, and give the archive's state."""
        import fcntl

        try:
            (self.path / OWN).mkdir(parents=True, exist_ok=True)
            lock = open(self.path / OWN / "lock", "a")  # noqa: SIM115 (it is held as long as the lock)
        except OSError as error:
            raise ArchiveError(f"rillet: the archive {self.path} cannot be written: {error.strerror}") from None
        with lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise ArchiveError(f"rillet: another process is writing the archive {self.path}") from None
            manifest = self.manifest()
            self.settle(manifest)
            shutil.rmtree(self.path / STAGING, ignore_errors=True)
            yield manifest

    def stage(self) -> str:
        """Make a folder for the files of tasks, and return its path below the archive's."""
        made = f"{STAGING}/{uuid.uuid4().hex}"
        (self.path / made).mkdir(parents=True)
        return made

    def append(
        self, manifest: ArchiveManifest, parts: Sequence[Part], offset: dict[str, Any], schema: str
    ) -> ArchiveManifest:
        """Commit staged files together with the offset after them; return the new state."""
        commit = manifest.commit + 1
        added, place = [], {}
        for part in sorted(parts, key=lambda part: (part.stream, part.first)):
            final = f"{folder_of(part.stream, part.day)}/{part.first}_{part.last}_c{commit}.parquet"
            place[final] = part.path
            added.append(replace(part, path=final))
        for folder in {os.path.dirname(part.path) for part in parts}:
            _sync(self.path / folder)
        new = replace(
            manifest, commit=commit, schema=schema, offset=offset, files=(*manifest.files, *added), place=place, swap={}
        )
        self._commit(new)
        self._tidy()
        return new

    def merge(self, manifest: ArchiveManifest, merged: Sequence[tuple[Sequence[Part], Part]]) -> ArchiveManifest:
        """Commit merged files in the place of those that they were made of, all of one folder each."""
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
                _link(self.path / file.path, self.path / REPLACED / f"{file.path}.old")
            elif folder in swap:
                _link(self.path / file.path, self.path / swap[folder] / name)
        now = time.time()
        files = [file for file in manifest.files if file.path not in gone]
        files.extend(new_files)
        new = replace(
            manifest, commit=commit, files=tuple(sorted(files, key=lambda file: (file.stream, file.first))),
            place={}, swap=swap, replaced={**manifest.replaced, **dict.fromkeys(gone, now)},
        )  # fmt: skip
        for folder in swap.values():
            _sync(self.path / folder)
        self._commit(new)
        self._tidy()
        return new

    def _tidy(self) -> None:
        """Remove the folders that tasks wrote into; what is still in one is swept at the next start."""
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
        _sync(self.path / OWN)
        self.at("committed")
        self.settle(manifest)
        self.at("settled")

    def settle(self, manifest: ArchiveManifest) -> None:
        """Do what the last commit left to be done; all of it may have been done before."""
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
            _sync(target)
            _sync(target.parent)
        if folders:
            _sync(self.path)
        missing = [final for final in manifest.place if not (self.path / final).exists()]
        if missing:
            raise ArchiveError(f"rillet: the archive {self.path} has lost {missing[0]}, which its manifest names")

    def _swap(self, manifest: ArchiveManifest, folder: str, staged: str) -> None:
        """Put a compacted folder in the place of the old one, unless it is there already, and remove the old one."""
        fresh = [file.path for file in manifest.files if file.path.endswith(f"_c{manifest.commit}.parquet")]
        names = [os.path.basename(path) for path in fresh if os.path.dirname(path) == folder]
        if not all((self.path / folder / name).exists() for name in names):
            exchange(self.path / staged, self.path / folder)
            self.at("exchanged")
        shutil.rmtree(self.path / staged, ignore_errors=True)

    def forget(self, manifest: ArchiveManifest, keep: float) -> ArchiveManifest:
        """Remove files that were replaced longer ago than `keep` seconds; the next commit knows of it."""
        old = [path for path, since in manifest.replaced.items() if since < time.time() - keep]
        for path in old:
            (self.path / REPLACED / f"{path}.old").unlink(missing_ok=True)
        return replace(manifest, replaced={path: t for path, t in manifest.replaced.items() if path not in old})

    def mergeable(self, manifest: ArchiveManifest, least: int, target: int) -> list[list[Part]]:
        """Return runs of neighbours that make one file each: small ones, of folders with `least` of them or more."""
        by_folder: dict[str, list[Part]] = {}
        for file in manifest.files:
            by_folder.setdefault(os.path.dirname(file.path), []).append(file)
        found: list[list[Part]] = []
        for files in by_folder.values():
            if sum(file.bytes < target // 2 for file in files) >= least:
                found += _runs(sorted(files, key=lambda file: file.first), target)
        return found


def _runs(files: Iterable[Part], target: int) -> Iterator[list[Part]]:
    run: list[Part] = []
    for file in files:
        small = file.bytes < target // 2
        above = not run or run[len(run) - 1].last < file.first  # not so where a stream was made anew with lower IDs
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
    told = asdict(manifest)
    told["files"] = [{**one, "first": str(file.first), "last": str(file.last)}
                     for one, file in zip(told["files"], manifest.files, strict=True)]  # fmt: skip
    return json.dumps({"format": FORMAT, **told}, indent=1).encode()


def _parse(told: dict[str, Any]) -> ArchiveManifest:
    files = [Part(**{**one, "first": StreamID.parse(one["first"]), "last": StreamID.parse(one["last"])})
             for one in told["files"]]  # fmt: skip
    return ArchiveManifest(
        int(told["commit"]), told["schema"], told["offset"], tuple(files), told["place"], told["swap"], told["replaced"]
    )


# ---- the file system ----------------------------------------------------------------------------------------------


def _sync(folder: Path) -> None:
    """Make the names in a folder outlast a power failure."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _link(source: Path, target: Path) -> None:
    """Give a file another name, or copy it where the file system has no links."""
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source, target)
    except FileExistsError:
        pass  # from an attempt that was killed
    except OSError:
        shutil.copy2(source, target)


_AT_FDCWD = -100
_EXCHANGE = 2  # RENAME_EXCHANGE of Linux and RENAME_SWAP of macOS


def exchange(one: Path, other: Path) -> None:
    """Exchange two folders in one step; ArchiveError where the system has none for that."""
    library = ctypes.CDLL(None, use_errno=True)
    first, second = os.fsencode(one), os.fsencode(other)
    try:
        if sys.platform == "darwin":
            failed = library.renamex_np(first, second, _EXCHANGE)
        else:
            failed = library.renameat2(_AT_FDCWD, first, _AT_FDCWD, second, _EXCHANGE)
        number = ctypes.get_errno() if failed else 0
    except AttributeError:
        number = errno.ENOSYS
    if number:
        raise ArchiveError(f"rillet: {other} and its compacted files cannot change places: {os.strerror(number)}")


def can_exchange(folder: Path) -> bool:
    """Tell whether the file system of a folder can exchange two folders in one step."""
    pair = [folder / f"exchange-{uuid.uuid4().hex}" for _ in range(2)]
    try:
        for one in pair:
            one.mkdir(parents=True)
        exchange(*pair)
    except ArchiveError:
        return False
    finally:
        for one in pair:
            shutil.rmtree(one, ignore_errors=True)
    return True

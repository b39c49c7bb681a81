"""Checks files without changing them: every byte is read, every structure is built and verified.

    an RDB file            read to its end, with its checksum
    a log (its folder,     the manifest and the files that it names, replayed in order; other files in the folder are
    its manifest, or the   reported
    single file of a
    server before 7.0)
    a directory of a       everything above that it contains
    store or a server

The data is loaded into a separate engine in memory, and `check()` of every value and database runs there: the nodes of
a stream are walked to the last byte, counters are recomputed, pending entries are compared with their consumers.

One kind of damage can be repaired on request: a torn end, which a power loss leaves in the last file of a log. `repair`
copies the file to `<name>.torn-<offset>` and cuts it at the end of the last complete command, as opening the log would
do without the copy. All other damage is reported with its file, its offset and the expected content; a person must
decide what to do.

An open store cannot be checked, because its owner writes.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from rillet.errors import Corrupt, LogCorrupt, NewerFormat, SegmentUnreadable, StoreBusy, StoreError
from rillet.persistence.aof.loader import copy_torn, replay
from rillet.persistence.aof.manifest import read_manifest
from rillet.persistence.directory_lock import DirectoryLock
from rillet.persistence.disk import REAL, Disk
from rillet.persistence.file_lock import try_lock
from rillet.persistence.rdb.reader import load_rdb
from rillet.persistence.rdb.records import MAGICS
from rillet.runtime.engine import Engine
from rillet.runtime.engine_services import DefaultServices
from rillet.runtime.settings.settings import Settings
from rillet.types.stream.stream import Stream
from rillet.units import counted

MANY_DATABASES = 128
NOT_LOADED = ".not-loaded"
"""The suffix, before a number, of a file or folder that a server renamed because it did not load it."""

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Damage:
    """One damaged place: the file, the offset (-1: unknown) and a description. torn: `repair` can repair it."""

    path: Path
    offset: int
    what: str
    torn: bool = False

    def __str__(self) -> str:
        where = f"{self.path}: offset {self.offset}: " if self.offset >= 0 else f"{self.path}: "
        return where + self.what.removeprefix(where)


@dataclass(slots=True)
class CheckReport:
    """The result of a check: lines about the files read, the damages, and remarks about harmless findings."""

    read: list[str] = field(default_factory=list)
    damages: list[Damage] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)

    @property
    def sound(self) -> bool:
        """True if no damage was found."""
        return not self.damages


def check(path: Path, progress: Progress | None = None) -> CheckReport:
    """Check a file or directory; StoreError if there is nothing to check, or if the store is open. O(bytes)"""
    report = CheckReport()
    with held(path):
        for what, target in _targets(path):
            what(target, report, progress)
        if not report.read and not report.damages:
            raise StoreError(f"{path} holds neither a log nor an RDB file")
    return report


def repair(path: Path, damage: Damage, disk: Disk = REAL) -> Path:
    """Copy the file, cut its torn end off and return the path of the copy; OSError leaves the file unchanged."""
    assert damage.torn
    with held(path):
        kept = copy_torn(disk, damage.path, damage.offset)
        disk.truncate(damage.path, damage.offset)
    return kept


# -- finding the files ------------------------------------------------------------------------------


@contextlib.contextmanager
def held(path: Path) -> Iterator[None]:
    """Lock the store that contains the path; StoreBusy if it is open."""
    # A log needs the lock, because its owner writes it. An RDB file is complete as soon as it has its name.
    around = () if path.suffix == ".rdb" else path.absolute().parents[:2]
    store = next((one for one in around if (one / "rillet.json").is_file()), path)
    with contextlib.ExitStack() as locks:
        if (store / "lock").is_file():
            # A read-only descriptor can be locked, so a store on a read-only file system can be checked.
            number = os.open(store / "lock", os.O_RDONLY)
            locks.callback(os.close, number)
            if not try_lock(number):
                raise StoreBusy(f"{store} is open{_by_whom(store)}: close it there, then check it")
        if path.is_dir():
            manifests = [*path.glob("*.manifest"), *path.glob("*/*.manifest")]
        else:
            manifests = [] if path.suffix == ".rdb" else [*path.parent.glob("*.manifest")]
        for folder in {one.parent for one in manifests}:
            lock = DirectoryLock()
            locks.callback(lock.release)
            lock.acquire(folder)  # so that no server opens the log during the check
        yield


def _by_whom(path: Path) -> str:
    try:
        return f" in process {int(json.loads((path / 'owner.json').read_bytes())['pid'])}"
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def _targets(path: Path) -> Iterator[tuple[Callable[[Path, CheckReport, Progress | None], None], Path]]:
    """Yield (check function, path) for each file to check."""
    if not path.exists():
        raise StoreError(f"{path} does not exist")
    if path.is_dir():
        yield from _in_folder(path)
    elif path.name.endswith(".manifest"):
        yield _check_log, path
    elif path.suffix == ".rdb" or (_magic(path).startswith(MAGICS) and path.suffix != ".aof"):
        yield _check_rdb, path
    else:
        yield _check_single, path


def _in_folder(path: Path) -> Iterator[tuple[Callable[[Path, CheckReport, Progress | None], None], Path]]:
    entries = sorted(path.iterdir())
    manifests = [one for one in entries if one.name.endswith(".manifest") and not one.name.startswith("temp-")]
    for one in manifests:
        yield _check_log, one
    for one in entries:
        if one.is_dir():
            yield from ((_check_log, found) for found in sorted(one.glob("*.manifest"))
                        if not found.name.startswith("temp-"))  # fmt: skip
        elif one.is_file() and not manifests:
            if one.suffix == ".rdb" and not one.name.startswith("temp-"):
                yield _check_rdb, one
            elif one.suffix == ".aof":
                yield _check_single, one


def _magic(path: Path) -> bytes:
    with open(path, "rb") as file:
        return file.read(9)


# -- checking ---------------------------------------------------------------------------------------


class _Remarks(DefaultServices):
    """The host of the engine that loads the files: what its log would say is a remark of the report."""

    def __init__(self, engine: Engine, report: CheckReport) -> None:
        super().__init__(engine)
        self._report = report

    def log_line(self, text: str, level: str = "warning") -> None:
        self._report.remarks.append(text)


def _engine(report: CheckReport) -> Engine:
    engine = Engine(Settings(databases=MANY_DATABASES))
    engine.services = _Remarks(engine, report)
    return engine


def _check_rdb(path: Path, report: CheckReport, progress: Progress | None) -> None:
    """Check an RDB file."""
    engine = _engine(report)
    engine.loading = True
    with _damages(path, report):
        loaded = load_rdb(path, engine)
        size = path.stat().st_size
        if loaded.end != size:
            raise LogCorrupt(str(path), loaded.end, f"{size - loaded.end} bytes after the end of the RDB file")
        report.read.append(f"{path}: RDB, {size} bytes, {loaded.keys} keys")
        _check_values(path, engine, report)


def _check_single(path: Path, report: CheckReport, progress: Progress | None) -> None:
    """Check a log that is a single file, as Redis before 7.0 wrote it."""
    _check_files(path, [path], report, progress)


def _check_log(path: Path, report: CheckReport, progress: Progress | None) -> None:
    """Check the log that a manifest describes."""
    with _damages(path, report):
        manifest = read_manifest(path)
        report.read.append(f"{path}: manifest of {len(manifest.files)} files")
        missing = [file.name for file in manifest.loaded if not (path.parent / file.name).exists()]
        for name in missing:
            report.damages.append(Damage(path, -1, f"the file {name} is missing"))
        _name_strays(path, {file.name for file in manifest.files}, report)
        if not missing:
            _check_files(path, [path.parent / file.name for file in manifest.loaded], report, progress)


def _name_strays(path: Path, known: set[str], report: CheckReport) -> None:
    """Report files that the manifest does not name, for example drafts of an interrupted rewrite."""
    for entry in sorted(path.parent.iterdir()):
        if entry.name not in known and entry != path and entry.is_file():
            leaving = entry.name.startswith("temp-")
            what = "left by an interrupted rewrite; the next opening removes it" if leaving else "not part of the log"
            report.remarks.append(f"{entry}: {what}")


def _check_files(path: Path, files: list[Path], report: CheckReport, progress: Progress | None) -> None:
    """Replay the files of a log into an engine and check its data."""
    engine = _engine(report)
    with _damages(path, report):
        found = replay(engine, files, progress, repairs=False)
        report.read.append(
            f"{path}: {found.commands} commands after a base of {found.keys} keys, {found.bytes} bytes in "
            f"{len(files)} file{'s' if len(files) != 1 else ''}"
        )
        _check_values(path, engine, report)
        if found.dropped:
            torn = [file for file in files if file.stat().st_size][-1]
            kind = "transaction" if "transaction" in found.torn.partition(": ")[2] else "command"
            what = f"a torn end: {found.dropped} bytes of an unfinished {kind}"
            report.damages.append(Damage(torn, found.offset, what, torn=True))


def _check_values(path: Path, engine: Engine, report: CheckReport) -> None:
    """Run check() of every value and database."""
    kinds: Counter[str] = Counter()
    entries = 0
    for database in engine.databases:
        for key, value in database.items():
            kinds[type(value).__name__.lower()] += 1
            entries += value.length if isinstance(value, Stream) else 0
            try:
                value.check()
            except (AssertionError, Corrupt, IndexError, SegmentUnreadable) as error:
                name = key.decode("utf-8", "backslashreplace")
                is_whole = not isinstance(error, SegmentUnreadable)
                fault = f"is inconsistent: {error}" if is_whole else f"cannot be read whole: {str(error)[8:]}"
                what = f"the key {name!r} (database {database.index}) {fault}"
                report.damages.append(Damage(path, -1, what))
    try:
        engine.check()
    except SegmentUnreadable:
        pass  # reported above
    except AssertionError as error:
        report.damages.append(Damage(path, -1, f"the databases are inconsistent: {error}"))
    counts = ", ".join(
        counted(count, kind, "hashes" if kind == "hash" else None) for kind, count in sorted(kinds.items())
    )
    streams = f" ({counted(entries, 'entry', 'entries')} in streams)" if kinds["stream"] else ""
    report.read.append(f"{path}: every structure checked: {counts or 'no keys'}{streams}")


@contextlib.contextmanager
def _damages(path: Path, report: CheckReport) -> Iterator[None]:
    """Record an error that the `with` block raises while it reads a file as damage of that file."""
    try:
        yield
    except LogCorrupt as error:
        report.damages.append(Damage(Path(error.path), error.offset, error.reason))
    except NewerFormat as error:
        where, _, what = str(error).partition(": ")  # the error's text begins with the path of the file
        report.damages.append(Damage(Path(where), -1, what))
    except OSError as error:
        report.damages.append(Damage(Path(error.filename or path), -1, f"cannot be read: {error.strerror}"))

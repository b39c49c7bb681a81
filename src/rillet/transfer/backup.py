"""Copies the data of a store or server to a new directory or RDB file, while it runs (`rillet backup`, `restore`).

    source                                        how its data is read
    directory with a log, open or not             the files are opened, and copied up to their size at that moment
    RDB file, log of one file, manifest           the same
    url                                           the server sends an RDB file (client.rdb_transfer), or writes one

A log only grows, so a copy of its files is the state after some command: it contains every change that was acknowledged
before the copy began, and no part of an unfinished transaction, because the end is cut there (aof/end.py). The process
that owns the log takes no part, so it cannot stall; a rewrite meanwhile does no harm (read_only.py).

    target/.partial-<random>/appendonlydir/     the copies are synced, cut, and verified here
    target/appendonlydir/                       one rename puts the result in force
    target/rillet.json                          if the source is the directory of a store

So the target is complete or has no data. The names in it are those of the source, because frames contain the numbers of
their files. Verification loads the copy, and checks every structure; that needs memory for the data. `quick` verifies
the checksums and the form of each command instead.

The layout is that of Redis 7: rillet.open, `rillet serve --appendonly yes` and `redis-server --appendonly yes` open it.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from rillet.errors import LogCorrupt, StoreError
from rillet.host.directory import LOG_FOLDER, MARKER, SINGLE_FILE, check_marker, check_parents
from rillet.persistence.aof.end import LogEnd, cut, find_end
from rillet.persistence.aof.folder import SEGMENTS, log_files
from rillet.persistence.aof.loader import replay
from rillet.persistence.aof.manifest import AofManifest, LogFile, commit, read_manifest
from rillet.persistence.checking import MANY_DATABASES, NOT_LOADED, CheckReport, check
from rillet.persistence.disk import REAL, SYNC_EVERY, Disk, write_file
from rillet.persistence.rdb.records import HEADER, MAGICS
from rillet.persistence.rdb.writer import write_rdb
from rillet.persistence.segments.folder import SUFFIX, with_segments
from rillet.real_time import monotonic
from rillet.runtime.engine import Engine
from rillet.runtime.settings.settings import Settings
from rillet.store.backends.read_only import OpenFiles, open_files
from rillet.store.display.progress import ProgressBar

_PIECE = 1 << 20
_PART = re.compile(r"(.+)\.([1-9]\d{0,17})\.(base|incr)\.(rdb|aof)")

Progress = Callable[[int, int | None], None]
Bar = Callable[[str], AbstractContextManager[Progress]]
Receive = Callable[[Path, Progress], None]


@dataclass(slots=True)
class Backup:
    """The result: the files of the source, the bytes of the copy, its end, and the report of its verification."""

    target: Path
    files: list[str] = field(default_factory=list)
    bytes: int = 0
    end: LogEnd = field(default_factory=LogEnd)
    verified: CheckReport | None = None
    seconds: float = 0.0


def back_up(source: Path, target: Path, *, to: int = -1, quick: bool = False, bar: Bar = ProgressBar) -> Backup:
    """Copy the data at a path, as it is now or as it was at the second `to`; the process that has it open continues.

    StoreError: the target exists, or there is nothing to copy, or not that time. LogCorrupt: the data is damaged.
    """
    began = monotonic()
    source, target = source.absolute(), target.absolute()
    if source.is_dir() and source in (target, *target.parents):
        raise StoreError(f"{target} is inside {source}: choose another place for the copy")
    if source.is_dir() and (source / MARKER).is_file():
        check_marker(source)
    with _place(target) as work:
        opened, files = open_files(source, lambda: with_segments(data_files(source)))
        paths = [path for path in opened if path.suffix != SUFFIX]
        with files:
            made = _copies(paths, source, files, work / LOG_FOLDER, bar)
            _copy_segments(opened[len(paths) :], files, work / LOG_FOLDER / SEGMENTS)
        backup = _finish(made, [path.name for path in paths], target, work, to, quick, bar)
        if (source / MARKER).is_file() and target.suffix != ".rdb":
            shutil.copyfile(source / MARKER, target / MARKER)
            REAL.sync_folder(target)
    backup.seconds = monotonic() - began
    return backup


def back_up_server(receive: Receive, target: Path, *, quick: bool = False, bar: Bar = ProgressBar) -> Backup:
    """Make a backup of the RDB file that `receive(path, progress)` writes to a path."""
    began = monotonic()
    target = target.absolute()
    with _place(target) as work:
        path = work / LOG_FOLDER / f"{SINGLE_FILE}.1.base.rdb"
        REAL.make_folder(path.parent)
        with bar(f"{target.name}: receiving") as progress:
            receive(path, progress)
        backup = _finish([path], [path.name], target, work, -1, quick, bar)
    backup.seconds = monotonic() - began
    return backup


# -- the source ----------------------------------------------------------------------------------------


def data_files(source: Path) -> list[Path]:
    """Return the files that hold the data at a path, in the order of their replay; StoreError, LogCorrupt."""
    if not source.exists():
        raise StoreError(f"{source} does not exist")
    if not source.is_dir():
        if source.name.endswith(".manifest"):
            return [source.parent / file.name for file in read_manifest(source).loaded]
        return [source]
    folders = [source, source / LOG_FOLDER, *(one.parent for one in sorted(source.glob("*/*.manifest")))]
    found: dict[Path, list[Path]] = {}
    for folder in folders:
        if folder.is_dir() and NOT_LOADED not in folder.name and (paths := log_files(folder, SINGLE_FILE)):
            found[folder] = paths
    if len(found) > 1:
        names = ", ".join(folder.name for folder in found)
        raise StoreError(f"{source} holds several logs: {names}; give the path of one of them")
    if found:
        return next(iter(found.values()))
    single = source / SINGLE_FILE
    snapshots = [one for one in sorted(source.glob("*.rdb")) if not one.name.startswith("temp-")]
    if single.is_file() or len(snapshots) == 1:
        return [single if single.is_file() else snapshots[0]]
    what = "several RDB files: give the path of one of them" if snapshots else "neither a log nor an RDB file"
    raise StoreError(f"{source} holds {what}")


# -- the target ----------------------------------------------------------------------------------------


@contextmanager
def _place(target: Path) -> Iterator[Path]:
    """Yield a new folder for the copies inside the target, or beside an RDB file; it is removed at the end."""
    is_file = target.suffix == ".rdb"
    if target.exists() and (is_file or not target.is_dir() or any(target.iterdir())):
        raise StoreError(f"{target} exists{' and is not empty' if target.is_dir() else ''}: give a new name")
    home = target.parent if is_file else target
    is_new = not home.exists()
    try:
        check_parents(target)
        home.mkdir(exist_ok=True)
        work = home / f".partial-{os.urandom(4).hex()}"
        work.mkdir(mode=0o700)
    except OSError as error:
        raise StoreError(f"{error.filename or home} cannot be created: {error.strerror}") from error
    try:
        yield work
    finally:
        shutil.rmtree(work, ignore_errors=True)
        if is_new and not any(home.iterdir()):
            home.rmdir()


def _copies(paths: list[Path], source: Path, files: OpenFiles, folder: Path, bar: Bar) -> list[Path]:
    """Copy the open files to the folder, sync them, and return their new paths. O(bytes)"""
    REAL.make_folder(folder)
    copies = [folder / name for name in _names(paths, files)]
    total, before = sum(files.size(path) for path in paths), 0
    with bar(f"{source.name}: copying") as progress:
        for path, copy in zip(paths, copies, strict=True):

            def report(done: int, before: int = before) -> None:
                progress(before + done, total)

            with files.read_from(path) as reading:
                write_file(REAL, copy, _pieces(reading, report), SYNC_EVERY)
            copy.chmod(files.mode(path))
            before += files.size(path)
    REAL.sync_folder(folder)
    return copies


def _copy_segments(paths: list[Path], files: OpenFiles, folder: Path) -> None:
    """Copy the segments of streams beside the copy of the log. O(bytes)"""
    if paths:
        REAL.make_folder(folder)
    for path in paths:
        with files.read_from(path) as reading:
            write_file(REAL, folder / path.name, _pieces(reading, lambda done: None), SYNC_EVERY)
    if paths:
        REAL.sync_folder(folder)


def _pieces(file: BinaryIO, report: Callable[[int], None]) -> Iterator[bytes]:
    done = 0
    while piece := file.read(_PIECE):
        yield piece
        done += len(piece)
        report(done)


def _names(paths: list[Path], disk: Disk) -> list[str]:
    """Return the names that the files get in the copy: their own, if those are names of a log of Redis 7."""
    found = [_PART.fullmatch(path.name) for path in paths]
    if all(found) and len({one[1] for one in found if one}) == 1:
        return [path.name for path in paths]
    if len(paths) != 1:  # a manifest with other names
        raise StoreError(f"{paths[0].parent}: the files of the log have unusual names: "
                         f"{', '.join(one.name for one in paths)}; copy it with BGSAVE")  # fmt: skip
    path = paths[0]
    is_rdb = path.suffix == ".rdb" or (path.suffix != ".aof" and _is_rdb(path, disk))
    return [f"{SINGLE_FILE}.1.base.{'rdb' if is_rdb else 'aof'}"]


def _is_rdb(path: Path, disk: Disk) -> bool:
    with disk.read_from(path) as file:
        return file.read(HEADER).startswith(MAGICS)


def _finish(made: list[Path], names: list[str], target: Path, work: Path, to: int, quick: bool, bar: Bar) -> Backup:
    """Cut, verify and install the copies."""
    with bar(f"{target.name}: reading") as progress:
        end = find_end(made, to, progress)
    for path in made[end.file + 1 :]:
        path.unlink()
    made = made[: end.file + 1]
    cut(made[-1], end)
    backup = Backup(target, names, end=end)
    if target.suffix == ".rdb":
        backup.verified = _install_rdb(made, target, work, quick, bar)
        backup.bytes = target.stat().st_size
        return backup
    backup.bytes = sum(path.stat().st_size for path in with_segments(made))
    _write_manifest(made)
    if not quick:
        backup.verified = _verified(work / LOG_FOLDER, work, bar)
    REAL.rename(work / LOG_FOLDER, target / LOG_FOLDER)
    REAL.sync_folder(target)
    REAL.sync_folder(target.parent)
    return backup


def _write_manifest(paths: list[Path]) -> None:
    manifest = AofManifest()
    log = ""
    for path in paths:
        part = _PART.fullmatch(path.name)
        assert part is not None
        log, seq = part[1], int(part[2])
        one = LogFile(path.name, seq, part[3][0])
        if one.type == "b":
            manifest = AofManifest(one, incrs=manifest.incrs, base_seq=seq, incr_seq=manifest.incr_seq)
        else:
            manifest = AofManifest(manifest.base, incrs=(*manifest.incrs, one), base_seq=manifest.base_seq,
                                   incr_seq=seq)  # fmt: skip
    commit(paths[0].parent / f"{log}.manifest", manifest, [])


def _verified(path: Path, work: Path, bar: Bar) -> CheckReport:
    """Load the copy and check every structure; LogCorrupt names the file of the copy. O(bytes)"""
    with bar("verifying the copy") as progress:
        report = check(path, progress)
    for damage in report.damages:
        name = damage.path.relative_to(work) if damage.path.is_relative_to(work) else damage.path
        raise LogCorrupt(str(name), max(damage.offset, 0), f"{damage.what}; no backup was made (--quick makes one "
                         "without loading the data)")  # fmt: skip
    # The copy moves from the work folder to the folder above it.
    lines = [[line.replace(str(work), str(work.parent)) for line in part] for part in (report.read, report.remarks)]
    return CheckReport(lines[0], [], lines[1])


def _install_rdb(paths: list[Path], target: Path, work: Path, quick: bool, bar: Bar) -> CheckReport | None:
    """Make the copy one RDB file, and verify it. An RDB file stays as it is; a log is loaded and written. O(data)"""
    draft = work / target.name
    if len(paths) == 1 and paths[0].suffix == ".rdb":
        REAL.rename(paths[0], draft)
    else:
        engine = Engine(Settings(databases=MANY_DATABASES, rdb_foreign="keep"))
        with bar(f"{target.name}: loading") as progress:
            replay(engine, paths, progress, repairs=False)
        write_rdb(draft, engine)
    report = None if quick else _verified(draft, work, bar)
    REAL.rename(draft, target)
    REAL.sync_folder(target.parent)
    return report

"""rillet.open(path, readonly=True): the data of a directory at this moment, without a change of the directory.

    1. read the manifest, open its files, read the manifest again: repeat until it is the same
    2. note the size of each open file; later bytes are not read
    3. replay the files into an engine in memory that rejects writes

Nothing is created, written, locked, truncated or renamed, so this works on read-only media, without write permission,
and while another process owns the directory: rillet, `rillet serve` or a redis-server. That process notices nothing,
and a rewrite of its log does no harm, because removed files stay readable while they are open. The store does not
follow later changes: open the directory again to see them. To read a live store, attach to its owner (`rillet.open`).

The path may also be that of an RDB file, such as a backup. A torn end is ignored. An interrupted commit of a manifest
is completed in memory only. Without a log, the RDB file is read. A write is refused with READONLY before it has an
effect, by each interface (write_gate.READ_ONLY).

**Rejected.** To attach to a live owner and filter the commands: the result would depend on whether an owner lives, and
a client that speaks RESP to the owner's socket (`store.redis()`) would pass the filter.
"""

from __future__ import annotations

import io
import logging
import os
import stat
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from errno import ENOENT
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, cast

from rillet.errors import LogCorrupt, NotAStore, StoreError
from rillet.host.directory import LOG_FOLDER, MARKER, check_marker
from rillet.host.recovery import LOGGER, Recovery, note_of
from rillet.modules.loading import NO_MODULES, OpenModules
from rillet.persistence.aof.folder import log_files
from rillet.persistence.aof.loader import LoadResult, load_snapshot, replay
from rillet.persistence.disk import Disk
from rillet.persistence.rdb.records import HEADER, MAGICS
from rillet.persistence.remedies import salvageable
from rillet.persistence.segments.folder import SUFFIX, with_segments
from rillet.persistence.write_gate import WriteGate
from rillet.runtime.admission import READ_ONLY
from rillet.runtime.engine import Engine
from rillet.runtime.settings.settings import Settings
from rillet.store.backends.backend import Execute, MemoryBackend
from rillet.store.display.progress import ProgressBar

# How often the files may change while they are opened. A process that rewrites its log changes them once.
_ATTEMPTS = 50
_PAUSE = 0.02

Progress = Callable[[int, int], None]


class ReadOnlyBackend(MemoryBackend):
    """The data of a directory in an engine in memory that rejects writes."""

    def __init__(self, path: str | os.PathLike[str], settings: Settings, progress: Progress | None = None,
                 modules: OpenModules = NO_MODULES) -> None:  # fmt: skip
        folder = Path(path).absolute()
        super().__init__(settings, active_expiry=False, modules=modules)
        self.path = str(folder)
        self._recovery = _load(folder, self.transport().engine, progress)
        WriteGate(self.transport().engine).set(READ_ONLY, READ_ONLY)

    @property
    def recovery(self) -> Recovery:
        """The stats of the replay; `dropped` bytes at the end of the log were ignored, not removed."""
        return self._recovery

    def save(self, execute: Execute, path: Path | None) -> Path:
        if path is None:
            raise ValueError("the store is open read-only: pass the path of the RDB file")
        return super().save(execute, path)

    def _close(self) -> None:
        segments = self.transport().engine.segments
        super()._close()
        if segments is not None:
            segments.close()

    def __repr__(self) -> str:
        return f"{self.path!r}, read-only"


class _OpenFile(io.RawIOBase):
    """A file that ends at the size that it had when it was opened; closing it has no effect on other readers."""

    def __init__(self, descriptor: int, size: int) -> None:
        self._descriptor = descriptor
        self._size = size
        self._at = 0

    def readable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._at = offset + (0, self._at, self._size)[whence]
        return self._at

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        room = memoryview(buffer)[: max(0, self._size - self._at)]
        if not room:
            return 0
        got = _read_at(self._descriptor, room, self._at)
        self._at += got
        return got


_guard = threading.Lock()


def _read_at(descriptor: int, room: memoryview, offset: int) -> int:
    if hasattr(os, "preadv"):
        return os.preadv(descriptor, [room], offset)
    with _guard:  # Windows
        os.lseek(descriptor, offset, os.SEEK_SET)
        data = os.read(descriptor, len(room))
    room[: len(data)] = data
    return len(data)


class OpenFiles(Disk):
    """Files that were opened at one moment; reading them later returns their bytes of that moment."""

    __slots__ = ("_files",)

    def __init__(self, paths: list[Path]) -> None:
        self._files: dict[Path, tuple[int, int]] = {}
        try:
            for path in paths:
                descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0))
                self._files[path] = (descriptor, os.fstat(descriptor).st_size)
        except OSError:
            self.close()
            raise

    def read_from(self, path: Path) -> BinaryIO:
        """Return a reader of the open file."""
        return cast("BinaryIO", _OpenFile(*self._opened(path)))

    def read_at(self, file: BinaryIO, offset: int, size: int) -> bytes:
        """Read from a place of an open file."""
        file.seek(offset)
        return file.read(size)

    def size(self, path: Path) -> int:
        """Return the size of the file when it was opened."""
        return self._opened(path)[1]

    def _opened(self, path: Path) -> tuple[int, int]:
        if path not in self._files:
            raise FileNotFoundError(ENOENT, os.strerror(ENOENT), str(path))
        return self._files[path]

    def mode(self, path: Path) -> int:
        """Return the file's permissions."""
        return stat.S_IMODE(os.fstat(self._files[path][0]).st_mode)

    def close(self) -> None:
        """Close the files."""
        for descriptor, _ in self._files.values():
            os.close(descriptor)
        self._files.clear()

    def __enter__(self) -> OpenFiles:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:  # fmt: skip
        self.close()


def _load(folder: Path, engine: Engine, progress: Progress | None) -> Recovery:
    with salvageable(folder):
        return _load_files(folder, engine, progress)


def _load_files(folder: Path, engine: Engine, progress: Progress | None) -> Recovery:
    opened, files = open_files(folder, lambda: with_segments(_paths(folder, engine.settings)))
    paths = [path for path in opened if path.suffix != SUFFIX]
    is_rdb = len(paths) == 1 and paths[0] in (folder, folder / str(engine.settings.dbfilename))
    with ExitStack() as stack:
        stack.enter_context(files)
        with ProgressBar(f"{folder.name}: replaying") as bar:
            if is_rdb:
                found = load_snapshot(engine, paths[0], progress or bar, disk=files)
            else:
                found = replay(engine, paths, progress or bar, disk=files, repairs=False)
        if engine.segments is not None:  # they are read later
            engine.segments.keep(files)
            stack.pop_all()
    engine.dirty = 0
    recovery = _recovery_of(folder, found)
    LOGGER.log(logging.INFO, "%s", recovery)
    return recovery


def _recovery_of(folder: Path, found: LoadResult) -> Recovery:
    note = note_of(found).replace(" were dropped at ", " were ignored at ")
    return Recovery(folder, found.keys, found.commands, found.bytes, found.seconds, None, found.dropped, found.offset,
                    note)  # fmt: skip


def open_files(folder: Path, find: Callable[[], list[Path]]) -> tuple[list[Path], OpenFiles]:
    """Return the paths of a consistent set of files, and the open files; StoreError, LogCorrupt, NewerFormat.

    find: returns the files that hold the data at the moment. It is called again until the files stayed the same while
    they were opened.
    """
    problem: Exception | None = None
    for _ in range(_ATTEMPTS):
        try:
            paths = find()
            files = OpenFiles(paths)
        except (FileNotFoundError, LogCorrupt) as error:
            problem = error  # the files are being replaced, or one is missing
        except OSError as error:
            raise StoreError(f"{error.filename or folder} cannot be opened: {error.strerror}") from error
        else:
            if find() == paths:
                return paths, files
            files.close()
        time.sleep(_PAUSE)
    if isinstance(problem, LogCorrupt):
        raise problem
    if isinstance(problem, FileNotFoundError):
        missing = Path(problem.filename)
        raise LogCorrupt(str(missing.parent), 0, f"the file {missing.name} is missing: {problem.strerror}")
    raise StoreError(f"{folder}: the files of the log change too often: try again")


def _paths(folder: Path, settings: Settings) -> list[Path]:
    """Return the files that hold the data, in the order of their replay; none for a new store."""
    if folder.is_file():
        if _begins_as_rdb(folder):
            return [folder]
        raise NotAStore(f"{folder} is a file, neither the directory of a store nor an RDB file")
    if not folder.is_dir():
        raise NotAStore(f"{folder} does not exist")
    is_store = (folder / MARKER).exists()
    if is_store:
        check_marker(folder)
    paths = log_files(folder / LOG_FOLDER, settings.appendfilename)
    if paths:
        return paths
    for name in (settings.appendfilename, settings.dbfilename):
        if name and (folder / name).is_file():
            return [folder / name]
    if is_store:
        return []
    rdb = settings.dbfilename or "an RDB file"
    raise NotAStore(f"{folder} is not a store: it has neither {MARKER} nor a log nor {rdb}")


def _begins_as_rdb(path: Path) -> bool:
    with open(path, "rb") as file:
        return file.read(HEADER).startswith(MAGICS)

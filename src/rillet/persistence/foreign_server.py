"""Finds a redis-server that uses a directory: it takes no lock, but Linux shows its files in /proc.

    /proc/<pid>/cwd          redis-server works in its `dir`
    /proc/<pid>/fd/<n>       it keeps the last file of its log open
    /proc/<pid>/fdinfo/<n>   whether a file is open for writing: a reader of the log does no harm

Files are compared by device and inode, so a server in a container with other paths is found, too. Processes of other
users are hidden from a process without privileges, and other systems have no /proc: there `AppendOnlyLog.obstacle`
detects the server when it writes. O(processes)

Most openings need no search (`reject_writer`): Linux grants a lease for reading on a file only while no process has it
open for writing. If it grants one for each file of the log, nothing else appends to the log. O(files of the log)
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

from rillet.errors import StoreBusy
from rillet.real_time import monotonic

try:
    from fcntl import F_RDLCK, F_SETLEASE, F_SETSIG, F_UNLCK, fcntl
except ImportError:  # not Linux
    F_SETLEASE = 0  # type: ignore[misc]

PROC = Path("/proc")
_SERVERS = ("redis-server", "valkey-server", "keydb-server")
# A killed process keeps its files open until the kernel has closed all of them.
_DYING_SECONDS = 0.5
_PAUSE = 0.01
_ACCESS_MODE = os.O_RDONLY | os.O_WRONLY | os.O_RDWR

Identity = tuple[int, int]


def reject_writer(folder: Path, log_folder: Path) -> None:
    """Raise StoreBusy with the process ID if a server without a lock writes the log."""
    if any(_may_be_written(path) for path in _written_files(folder, log_folder)):
        reject_foreign_server(folder, log_folder)


def _may_be_written(path: Path) -> bool:
    """Return whether a process has a file open for writing, or the system does not report that."""
    if not F_SETLEASE:
        return True
    try:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            # A process that opens the file meanwhile makes the kernel send a signal: not SIGIO, which ends a process.
            fcntl(descriptor, F_SETSIG, signal.SIGURG)
            fcntl(descriptor, F_SETLEASE, F_RDLCK)
            fcntl(descriptor, F_SETLEASE, F_UNLCK)
        finally:
            os.close(descriptor)
    except OSError:
        return True
    return False


def reject_foreign_server(folder: Path, log_folder: Path | None = None) -> None:
    """Raise StoreBusy with the process ID if a server without a lock uses the folder or writes the log."""
    deadline = monotonic() + _DYING_SECONDS
    while (found := foreign_server(folder, log_folder)) is not None:
        if monotonic() > deadline:
            pid, name = found
            raise StoreBusy(f"{folder} is in use by process {pid} ({name}): stop it first, or use rillet.connect() to "
                            "reach it")  # fmt: skip
        time.sleep(_PAUSE)


def foreign_server(folder: Path, log_folder: Path | None) -> tuple[int, str] | None:
    """Return the process ID and the name of a process that uses the folder as a server; None if none is visible."""
    here = _identity(folder)
    files = {_identity(path) for path in _written_files(folder, log_folder)} - {None} if log_folder else set()
    if here is None:
        return None
    for pid in _processes():
        process = f"{PROC}/{pid}"
        try:
            place = _identity(f"{process}/cwd")
            if place is None:
                continue  # a thread of the kernel
            name = _name(process)
            if place == here and name in _SERVERS:
                return int(pid), name
            if files and (place == here or name in _SERVERS) and _writes(process, files):
                return int(pid), name
        except (OSError, ValueError):
            continue  # the process ended, or belongs to another user
    return None


def _name(process: str) -> str:
    descriptor = os.open(f"{process}/comm", os.O_RDONLY)
    try:
        return os.read(descriptor, 64).decode("utf-8", "replace").strip()
    finally:
        os.close(descriptor)


def _written_files(folder: Path, log_folder: Path) -> Iterator[Path]:
    """Yield the files to which a server appends: the incremental files, and the single file before Redis 7."""
    for place, ending in ((folder, ".aof"), (log_folder, ".incr.aof")):
        with contextlib.suppress(FileNotFoundError, NotADirectoryError, PermissionError):
            yield from (place / name for name in os.listdir(place) if name.endswith(ending))


def _processes() -> Iterator[str]:
    own = str(os.getpid())
    try:
        names = sorted((name for name in os.listdir(PROC) if name.isdigit()), key=int)
    except OSError:
        return
    yield from (name for name in names if name != own)


def _identity(path: Path | str) -> Identity | None:
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


def _writes(process: str, files: set[Identity | None]) -> bool:
    """Return whether the process has one of the files open for writing."""
    for number in os.listdir(f"{process}/fd"):
        if _identity(f"{process}/fd/{number}") in files:
            lines = Path(f"{process}/fdinfo/{number}").read_text().splitlines()
            flags = next((int(line.split()[1], 8) for line in lines if line.startswith("flags:")), 0)
            if flags & _ACCESS_MODE != os.O_RDONLY:
                return True
    return False

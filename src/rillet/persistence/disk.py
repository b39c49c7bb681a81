"""The file system calls of persistence: the only place that opens, writes, syncs and renames its files.

    Disk       files by path: append_to, create, read_from, rename, remove, truncate, sync_folder ...
    DiskFile   a file open for writing: write, sync, truncate, close

The durability of each call:

    write         the operating system has the bytes: they survive the end of this process, but a power loss may lose
                  any of them, in any order
    sync          every byte written to the file before is on the disk
    create,       other processes see the name; after a power loss the folder may have the state before or after, until
    rename,       sync_folder returns. A rename replaces an existing file in one step
    remove

So a file that must be complete is written under another name, synced and renamed, and then the folder is synced. Every
call raises OSError if it fails. Tests replace the disk with one that loses and tears what was not synced, and fails on
request (tests/persistence/simulated_disk.py).

Windows has no fdatasync and cannot sync a folder: NTFS logs changes of names itself.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import BinaryIO, Protocol

from rillet.persistence.file_status import links_of, size_of

_BINARY = getattr(os, "O_BINARY", 0)
_AT_ONCE = 1 << 18  # bytes that `is_cached` reads at once
_CAN_OPEN_FOLDERS = hasattr(os, "O_DIRECTORY")


class Sink(Protocol):
    """Interface of what bytes are written to in order: a file, or a pipe."""

    def write(self, data: bytes | bytearray | memoryview) -> int:
        """Write as many of the bytes as there is room for, and return their number."""

    def sync(self) -> None:
        """Put the written bytes on the disk, if there is one."""


class DiskFile(Protocol):
    """Interface of a file that is written at its end."""

    def write(self, data: bytes | bytearray | memoryview) -> int:
        """Write as many of the bytes as the disk has room for, and return their number."""

    def sync(self) -> None:
        """Put the written bytes on the disk (fdatasync); after a failure their state is unknown."""

    def truncate(self, size: int) -> None:
        """Cut the file to this size; the next write continues there."""

    def close(self) -> None:
        """Close the file without syncing it."""

    def fileno(self) -> int:
        """Return the file descriptor, -1 if there is none."""

    def size_at(self, path: Path) -> int:
        """Return the size of the file in bytes; -1 if the path does not lead to this file."""

    def is_removed(self) -> bool:
        """Return whether no path leads to this file."""


class _RealFile:
    """A file of the operating system."""

    __slots__ = ("_descriptor", "_device", "_inode", "_name", "_path", "write")

    def __init__(self, path: Path, flags: int) -> None:
        self._use(_open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | _BINARY | flags))
        status = os.fstat(self._descriptor)
        self._device, self._inode = status.st_dev, status.st_ino
        self._path, self._name = path, os.fsencode(path)

    def _use(self, descriptor: int) -> None:
        self._descriptor = descriptor
        # A store calls this for each command. A partial object costs no call of a Python function.
        self.write: Callable[[bytes | bytearray | memoryview], int] = partial(os.write, descriptor)

    def sync(self) -> None:
        if hasattr(os, "fdatasync"):
            os.fdatasync(self._descriptor)
        else:
            os.fsync(self._descriptor)

    def truncate(self, size: int) -> None:
        os.ftruncate(self._descriptor, size)

    def close(self) -> None:
        descriptor = self._descriptor
        self._use(-1)
        if descriptor >= 0:
            os.close(descriptor)

    def fileno(self) -> int:
        return self._descriptor

    def size_at(self, path: Path) -> int:
        if path is not self._path:
            self._path, self._name = path, os.fsencode(path)
        return size_of(self._name, self._device, self._inode)

    def is_removed(self) -> bool:
        return links_of(self._descriptor) == 0


def _open(path: Path, flags: int) -> int:
    if sys.platform == "win32":  # pragma: no cover
        import _winapi
        import msvcrt

        # Unlike os.open, allow that other handles read, write and rename the file while it is open.
        creation = 2 if flags & os.O_TRUNC else 4  # CREATE_ALWAYS, OPEN_ALWAYS
        access = 0xC0000000  # GENERIC_READ | GENERIC_WRITE
        return msvcrt.open_osfhandle(_winapi.CreateFile(str(path), access, 7, 0, creation, 0x80, 0), flags)
    return os.open(path, flags, 0o644)


class Disk:
    """The operating system's files."""

    __slots__ = ()

    def append_to(self, path: Path) -> DiskFile:
        """Open a file to write at its end; create it if it does not exist."""
        return _RealFile(path, 0)

    def create(self, path: Path) -> DiskFile:
        """Open an empty file for writing, replacing an existing one."""
        return _RealFile(path, os.O_TRUNC)

    def read_from(self, path: Path) -> BinaryIO:
        """Open a file for reading, unbuffered: the reader should request large pieces."""
        return open(path, "rb", buffering=0)

    def read_at(self, file: BinaryIO, offset: int, size: int) -> bytes:
        """Read from a place of a file that `read_from` opened; fewer bytes only at its end.

        Where the system has pread, this does not move the file's position, which a forked child shares.
        """
        if not hasattr(os, "pread"):
            file.seek(offset)
            return file.read(size)
        data = os.pread(file.fileno(), size, offset)
        while 0 < len(data) < size and (more := os.pread(file.fileno(), size - len(data), offset + len(data))):
            data += more
        return data

    def is_cached(self, file: BinaryIO, offset: int, size: int) -> bool:
        """Return whether a read of this part would not wait for the disk; True if the system does not say. OSError."""
        if not hasattr(os, "RWF_NOWAIT"):
            return True
        buffer = memoryview(bytearray(min(size, _AT_ONCE)))
        for at in range(offset, offset + size, _AT_ONCE):
            part = min(_AT_ONCE, offset + size - at)
            try:
                if os.preadv(file.fileno(), [buffer[:part]], at, os.RWF_NOWAIT) < part:
                    return False
            except BlockingIOError:
                return False
            except OSError as error:
                if error.errno in (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS):
                    return True
                raise
        return True

    def read_into(self, file: BinaryIO, offset: int, buffer: memoryview) -> int:
        """Do `read_at` for a buffer; return the number of bytes, fewer than it has room for only at the file's end."""
        if not hasattr(os, "preadv"):
            file.seek(offset)
            return file.readinto(buffer)  # type: ignore[attr-defined, no-any-return]
        size = 0
        while size < len(buffer) and (more := os.preadv(file.fileno(), [buffer[size:]], offset + size)):
            size += more
        return size

    def exists(self, path: Path) -> bool:
        """Return whether there is a file or folder of that name."""
        return path.exists()

    def size(self, path: Path) -> int:
        """Return the size of the file in bytes."""
        return path.stat().st_size

    def identity(self, path: Path) -> tuple[int, int] | None:
        """Return numbers that identify the file or folder at the path, None if there is none."""
        try:
            found = os.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        return found.st_dev, found.st_ino

    def names(self, folder: Path) -> list[str]:
        """Return the sorted names in the folder; none if it does not exist."""
        try:
            return sorted(os.listdir(folder))
        except FileNotFoundError:
            return []

    def make_folder(self, path: Path) -> None:
        """Create the folder and its parents if they do not exist."""
        path.mkdir(parents=True, exist_ok=True)

    def rename(self, old: Path, new: Path) -> None:
        """Rename the file in one step, replacing an existing one."""
        os.replace(old, new)

    def remove(self, path: Path) -> None:
        """Remove the file, if it exists."""
        path.unlink(missing_ok=True)

    def truncate(self, path: Path, size: int) -> None:
        """Cut a file that no process writes to this size, and sync it."""
        descriptor = os.open(path, os.O_WRONLY | _BINARY)
        try:
            os.ftruncate(descriptor, size)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def sync_folder(self, folder: Path) -> None:
        """Put the folder's own entries on the disk: the names of its files."""
        if not _CAN_OPEN_FOLDERS:
            return
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def write_all(file: Sink, data: bytes | bytearray | memoryview) -> None:
    """Write all of the bytes, in as many calls as necessary."""
    written = file.write(data)
    if written < len(data):
        rest = memoryview(data)
        while written < len(data):
            written += file.write(rest[written:])


def write_file(disk: Disk, path: Path, pieces: Iterable[bytes], sync_every: int = 0) -> None:
    """Create the file, write the pieces and sync it; its name still needs sync_folder. OSError. O(bytes)

    sync_every: sync also after so many bytes, so that the last sync is short.
    """
    unsynced = 0
    file = disk.create(path)
    try:
        for piece in pieces:
            write_all(file, piece)
            unsynced += len(piece)
            if 0 < sync_every <= unsynced:
                file.sync()
                unsynced = 0
        file.sync()
    finally:
        file.close()


REAL = Disk()
SYNC_EVERY = 4 * 1024 * 1024
"""The bytes between two syncs of a large file (server.h: REDIS_AUTOSYNC_BYTES)."""

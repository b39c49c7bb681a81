"""The disk, as far as persistence needs it: the one place where files are opened, written, synced and renamed.

    Disk       files by their path: append_to, create, read_from, rename, remove, truncate, sync_folder ...
    DiskFile   one that is written: write, sync, truncate, close

What lies behind it decides what a power loss leaves, so each call says what it promises:

    write         the bytes are the kernel's: the end of this process costs none, a power loss any of them, in any order
    sync          all that was written to the file before is on the disk
    create,       the file is found under its name by who lives; after a power loss the folder may hold the state before
    rename,       or after, until sync_folder says that it is on the disk. A rename replaces what is there in one step
    remove

So whatever must be found whole is written under another name, synced, renamed, and then the folder is synced. Every
call raises OSError where it fails. Tests put a disk behind the same calls that forgets what was not synced, tears it,
and fails when told to (tests/persistence/simulated_disk.py).
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import BinaryIO, Protocol


class DiskFile(Protocol):
    """A file that is written at its end."""

    def write(self, data: bytes | bytearray | memoryview) -> int:
        """Write the bytes, or as many of them as there is room for, and return how many."""

    def sync(self) -> None:
        """Put what was written on the disk (fdatasync); after a failure nobody knows what is there."""

    def truncate(self, size: int) -> None:
        """Cut the file to so many bytes; what is written next follows them."""

    def close(self) -> None:
        """Let go of the file, without syncing it."""

    def fileno(self) -> int:
        """Return the operating system's number of the file, -1 where it has none."""


class _RealFile:
    """A file of the operating system."""

    __slots__ = ("_number",)

    def __init__(self, path: Path, flags: int) -> None:
        self._number = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | flags, 0o644)

    def write(self, data: bytes | bytearray | memoryview) -> int:
        return os.write(self._number, data)

    def sync(self) -> None:
        os.fdatasync(self._number)

    def truncate(self, size: int) -> None:
        os.ftruncate(self._number, size)

    def close(self) -> None:
        number, self._number = self._number, -1
        if number >= 0:
            os.close(number)

    def fileno(self) -> int:
        return self._number


class Disk:
    """The operating system's files."""

    __slots__ = ()

    def append_to(self, path: Path) -> DiskFile:
        """Open a file to write at its end; it is made where there is none."""
        return _RealFile(path, 0)

    def create(self, path: Path) -> DiskFile:
        """Open an empty file to be written, in place of one that is there."""
        return _RealFile(path, os.O_TRUNC)

    def read_from(self, path: Path) -> BinaryIO:
        """Open a file to read; unbuffered, so the reader asks for large pieces."""
        return open(path, "rb", buffering=0)

    def exists(self, path: Path) -> bool:
        """Whether there is a file or folder of that name."""
        return path.exists()

    def size(self, path: Path) -> int:
        """Return the bytes that the file holds."""
        return path.stat().st_size

    def names(self, folder: Path) -> list[str]:
        """Return what lies in the folder, by name; nothing where there is no folder."""
        try:
            return sorted(os.listdir(folder))
        except FileNotFoundError:
            return []

    def make_folder(self, path: Path) -> None:
        """Make the folder, and those above it, where it is not there."""
        path.mkdir(parents=True, exist_ok=True)

    def rename(self, old: Path, new: Path) -> None:
        """Give the file another name, in one step, in place of what has that name."""
        os.replace(old, new)

    def remove(self, path: Path) -> None:
        """Remove the file, if it is there."""
        path.unlink(missing_ok=True)

    def truncate(self, path: Path, size: int) -> None:
        """Cut a file that nobody writes to so many bytes, on the disk when this returns."""
        number = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.ftruncate(number, size)
            os.fsync(number)
        finally:
            os.close(number)

    def sync_folder(self, folder: Path) -> None:
        """Put the folder's own entries on the disk: which files it has, under which names."""
        number = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(number)
        finally:
            os.close(number)


def write_all(file: DiskFile, data: bytes | bytearray | memoryview) -> None:
    """Write all of the bytes, in as many calls as that takes."""
    written = file.write(data)
    if written < len(data):
        rest = memoryview(data)
        while written < len(data):
            written += file.write(rest[written:])


REAL = Disk()

__all__ = ["REAL", "Disk", "DiskFile", "write_all"]

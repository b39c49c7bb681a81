"""File system operations for the commits of an archive: sync a folder, link a file, exchange two folders."""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
import sys
import uuid
from pathlib import Path

from rillet.errors import RilletError


class ArchiveError(RilletError):
    """The error if an archive cannot be read or written; the message names the archive's folder."""


class ArchiveOvertaken(ArchiveError):
    """The error if another process has committed meanwhile; nothing was added."""


def sync(folder: Path) -> None:
    """Sync a folder to disk, so that new and renamed files in it survive a power failure."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def link(source: Path, target: Path) -> None:
    """Create a hard link to a file; copy the file if the file system has no hard links."""
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source, target)
    except FileExistsError:
        pass  # created by an earlier attempt that was killed
    except OSError:
        shutil.copy2(source, target)


_AT_FDCWD = -100
_EXCHANGE = 2  # RENAME_EXCHANGE of Linux and RENAME_SWAP of macOS


def exchange(one: Path, other: Path) -> None:
    """Exchange the names of two folders in one atomic step; raise ArchiveError if the file system cannot."""
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
        raise ArchiveError(f"rillet: {other} cannot be exchanged with its compacted files: {os.strerror(number)}")


def can_exchange(folder: Path) -> bool:
    """Return whether a folder's file system can exchange the names of two folders in one atomic step."""
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

"""The lock on a log's folder: only one process writes a log.

Two processes that append to the same file and rewrite it would destroy it. A store has a lock file beside its log; a
server, like redis-server, has no lock file. Both therefore lock the folder itself. This adds no file that redis-server
does not know, and the operating system releases the lock when its holder ends. Windows cannot lock a folder; there the
lock is on the file `.lock` in the folder.

    take        open the folder (create it if necessary) and lock it; StoreBusy names the process that holds the lock
    take again  if the folder was removed and created anew, lock the new one
    release     release the lock; so does the end of the process

redis-server neither takes nor respects the lock. If a folder cannot be locked (some network file systems), there is no
lock and no error. A forked child closes its copy of the descriptor (file_lock.py); otherwise the lock would last as
long as the child.
"""

from __future__ import annotations

import os
from pathlib import Path

from rillet.errors import StoreBusy
from rillet.persistence.file_lock import close_lock, holder, open_to_lock, try_lock

_LOCKS_FOLDERS = hasattr(os, "O_DIRECTORY")


class LogLocked(StoreBusy):
    """Another process, or another object of this process, holds the lock of a log's folder."""


class DirectoryLock:
    """A lock on the folder of a log."""

    __slots__ = ("_descriptor",)

    def __init__(self) -> None:
        self._descriptor = -1

    def acquire(self, folder: Path) -> None:
        """Lock the folder and release the previous one; StoreBusy, or OSError if the folder cannot be created."""
        try:
            descriptor = open_to_lock(lambda: _open(folder))
        except FileNotFoundError:
            folder.mkdir(parents=True, exist_ok=True)
            descriptor = open_to_lock(lambda: _open(folder))
        if self._descriptor >= 0 and os.path.samestat(os.fstat(descriptor), os.fstat(self._descriptor)):
            close_lock(descriptor)
            return
        try:
            locked = try_lock(descriptor)
        except OSError:
            close_lock(descriptor)
            descriptor = -1
        else:
            if not locked:
                process = f"process {pid}" if (pid := holder(descriptor)) else "another process"
                close_lock(descriptor)
                raise LogLocked(f"{folder} is in use: {process} writes the log there")
        self.release()
        self._descriptor = descriptor

    def holds(self, folder: Path) -> bool:
        """Return whether the lock is held, and the path leads to the locked folder."""
        try:
            return self._descriptor >= 0 and os.path.samestat(os.stat(_locked(folder)), os.fstat(self._descriptor))
        except FileNotFoundError:
            return False

    def release(self) -> None:
        """Release the lock."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            close_lock(descriptor)


def _open(folder: Path) -> int:
    if _LOCKS_FOLDERS:
        return os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    return os.open(_locked(folder), os.O_RDWR | os.O_CREAT)


def _locked(folder: Path) -> Path:
    """Return what is locked: the folder, or a file in it on Windows."""
    return folder if _LOCKS_FOLDERS else folder / ".lock"

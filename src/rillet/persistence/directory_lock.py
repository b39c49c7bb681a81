"""Whose log it is: who writes to a log's folder holds a lock on the folder itself, for as long as it lives.

Two who append to the same file, and rewrite it under each other, leave nothing that could be read. A store has a lock
file beside its log; a server has none, as redis-server has none. The folder is what all of them share, so it is what is
locked (flock): no file is added that redis-server would not know, and the system gives the lock back when its holder
ends, however it ends.

    take        opens the folder (it is made where there is none) and locks it; StoreBusy names the process that has it
    take again  after the folder was removed and made anew: the lock is on what is there now
    release     lets go; so does the end of the process

redis-server neither takes nor heeds it. Where a folder cannot be locked (some network file systems) there is no lock,
and no complaint. A forked child has to let go of its copy (rillet.persistence.fork closes every descriptor), else the
lock would live as long as the child.
"""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path

from rillet.errors import StoreBusy


class DirectoryLock:
    """A lock on the folder of a log, or none."""

    __slots__ = ("_number",)

    def __init__(self) -> None:
        self._number = -1

    def take(self, folder: Path) -> None:
        """Lock the folder, in place of what was locked before; StoreBusy where another has it, OSError without one."""
        try:
            number = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except FileNotFoundError:
            folder.mkdir(parents=True, exist_ok=True)
            number = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        if self._number >= 0 and os.path.samestat(os.fstat(number), os.fstat(self._number)):
            os.close(number)
            return
        try:
            fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            whom = f"process {pid}" if (pid := holder(number)) else "another process"
            os.close(number)
            if error.errno in (errno.EWOULDBLOCK, errno.EAGAIN):
                raise StoreBusy(f"{folder} is in use: {whom} writes the log there") from None
            number = -1
        self.release()
        self._number = number

    def release(self) -> None:
        """Let go of the folder."""
        number, self._number = self._number, -1
        if number >= 0:
            os.close(number)


def holder(number: int) -> int | None:
    """Return the process that has locked the file of this descriptor; None where the system does not tell (/proc)."""
    found = os.fstat(number)
    wanted = f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}:{found.st_ino}"
    try:
        with open("/proc/locks", encoding="ascii") as locks:
            for line in locks:
                words = line.split()
                if len(words) > 5 and words[1] == "FLOCK" and words[5] == wanted and int(words[4]) > 0:
                    return int(words[4])
    except (OSError, ValueError):
        return None
    return None


__all__ = ["DirectoryLock", "holder"]

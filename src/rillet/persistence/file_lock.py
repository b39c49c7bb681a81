"""An advisory lock on an open file: flock on POSIX, msvcrt.locking on Windows.

The operating system releases the lock when its holder ends, however it ends.
"""

from __future__ import annotations

import os

try:
    import fcntl
except ModuleNotFoundError:  # Windows
    fcntl = None  # type: ignore[assignment]


def try_lock(descriptor: int) -> bool:
    """Lock the file; return False if another process has locked it, raise OSError if it cannot be locked."""
    try:
        if fcntl is not None:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        else:
            import msvcrt

            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined, unused-ignore]
    except (BlockingIOError, PermissionError):
        return False
    return True


def holder(descriptor: int) -> int | None:
    """Return the process that has locked this file, None if the system does not report it (/proc/locks)."""
    info = os.fstat(descriptor)
    wanted = f"{os.major(info.st_dev):02x}:{os.minor(info.st_dev):02x}:{info.st_ino}" if hasattr(os, "major") else ""
    try:
        with open("/proc/locks", encoding="ascii") as locks:
            for line in locks:
                words = line.split()
                if len(words) > 5 and words[1] == "FLOCK" and words[5] == wanted and int(words[4]) > 0:
                    return int(words[4])
    except (OSError, ValueError):
        return None
    return None


__all__ = ["holder", "try_lock"]

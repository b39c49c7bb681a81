"""An advisory lock on an open file: flock on POSIX, msvcrt.locking on Windows.

The operating system releases the lock when its holder ends, however it ends. A forked child shares the lock of its
parent, and would hold it after the parent's end. So a child closes its copies: not only those that an object knows, but
also that of a thread which was about to take a lock when another thread forked.

    before the fork          wait until no thread is between open and the registration of its descriptor
    in the child             close every registered descriptor
    close_lock(descriptor)   close it, unless this process is such a child
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from threading import RLock

try:
    import fcntl
except ModuleNotFoundError:  # Windows
    fcntl = None  # type: ignore[assignment]


# The descriptors of this process that hold a lock, or are about to. The guard is held while one is opened.
_descriptors: set[int] = set()
_guard = RLock()  # reentrant: a signal handler may fork or open a store


def open_to_lock(opener: Callable[[], int]) -> int:
    """Return the descriptor that `opener` opens for `try_lock`; a forked child closes its copy."""
    with _guard:
        descriptor = opener()
        _descriptors.add(descriptor)
    return descriptor


def close_lock(descriptor: int) -> None:
    """Close a descriptor of `open_to_lock`, which releases its lock; a forked child has closed it already."""
    with _guard:
        if descriptor in _descriptors:
            _descriptors.discard(descriptor)
            os.close(descriptor)


def _close_in_child() -> None:
    global _guard
    _guard = RLock()
    for descriptor in _descriptors:
        with contextlib.suppress(OSError):
            os.close(descriptor)
    _descriptors.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=lambda: _guard.acquire(), after_in_parent=lambda: _guard.release(), after_in_child=_close_in_child
    )


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

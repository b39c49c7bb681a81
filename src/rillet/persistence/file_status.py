"""The status of a file, from C's `stat`, for the check that precedes a reply (rillet.persistence.aof.file).

`os.stat` computes the nanoseconds of the file's times in long integers, and that arithmetic runs signal handlers. A
handler that wrote to the store in the middle of a write of the log would be rejected (NestedCall). The functions here
run no Python code, and take half of the time.
"""

from __future__ import annotations

import os

from rillet._cython import cython

if cython.compiled:
    from cython.cimports.libc.errno import (  # type: ignore[import-not-found, unused-ignore]
        ENOENT,
        ENOTDIR,
        errno,
    )
    from cython.cimports.posix.stat import (  # type: ignore[import-not-found, unused-ignore]
        fstat,
        stat,
        struct_stat,
    )


def size_of(path: bytes, device: cython.ulonglong, inode: cython.ulonglong) -> cython.longlong:
    """Return the size in bytes of the file at the path; -1 if the path does not lead to this file. OSError"""
    if not cython.compiled:
        try:
            found = os.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return -1
        return found.st_size if found.st_ino == inode and found.st_dev == device else -1
    status = cython.declare(struct_stat)
    name: cython.p_char = path
    failed: cython.int = 0
    with cython.nogil:  # a file system in the network may take its time
        if stat(name, cython.address(status)) < 0:
            failed = errno
    if failed == ENOENT or failed == ENOTDIR:
        return -1
    if failed:
        raise OSError(failed, os.strerror(failed), os.fsdecode(path))
    if cython.cast(cython.ulonglong, status.st_ino) != inode or cython.cast(cython.ulonglong, status.st_dev) != device:
        return -1
    return status.st_size


def links_of(descriptor: cython.int) -> cython.longlong:
    """Return how many paths lead to an open file. OSError"""
    if not cython.compiled:
        return os.fstat(descriptor).st_nlink
    status = cython.declare(struct_stat)
    failed: cython.int = 0
    with cython.nogil:
        if fstat(descriptor, cython.address(status)) < 0:
            failed = errno
    if failed:
        raise OSError(failed, os.strerror(failed))
    return status.st_nlink

"""The C library's heap: returning free pages to the operating system.

glibc keeps freed blocks for later allocations, unless they are at the end of the heap. `malloc_trim` returns the whole
pages of all free blocks. Its cost is the kernel's, about 0.15 ms for each MiB, so active defragmentation calls it after
each MiB that it has freed, instead of once at the end. The call keeps the interpreter's lock, because another thread
could hold the lock for longer than the call takes. Other C libraries (musl, macOS, Windows) have no such function.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable


def _find() -> Callable[[int], int] | None:
    if not sys.platform.startswith("linux"):
        return None
    try:
        function: Callable[[int], int] = ctypes.PyDLL(None).malloc_trim
    except (OSError, AttributeError):
        return None
    return function


_malloc_trim = _find()


def release_free_pages() -> bool:
    """Return free pages of the heap to the system; return whether the C library can do that. O(free pages)"""
    if _malloc_trim is None:
        return False
    _malloc_trim(0)
    return True

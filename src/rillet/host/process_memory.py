"""The memory of this process, as the operating system reports it."""

from __future__ import annotations

import os
import sys

try:
    import resource
except ModuleNotFoundError:  # Windows has no resource module
    resource = None  # type: ignore[assignment]


def memory() -> dict[str, int]:
    """Return the resident bytes of this process and their peak, 0 if the system does not report them."""
    if resource is None:
        return {"used_memory": 0, "used_memory_peak": 0}
    unit = 1 if sys.platform == "darwin" else 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    try:
        with open("/proc/self/statm", "rb") as file:
            used = int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        used = peak
    return {"used_memory": used, "used_memory_peak": max(peak, used)}

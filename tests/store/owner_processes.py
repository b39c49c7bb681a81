"""The owner processes of `rillet.open(path, owner="process")` that run on this machine."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

NAME = b"rillet.store.sharing.owner_process"
PATIENCE = 60.0


def owner_processes(folder: Path) -> list[int]:
    """Return the owner processes of the stores below a folder."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = entry.read_bytes().split(b"\0")
        except OSError:
            continue
        if NAME in words and any(word.startswith(bytes(folder)) for word in words):
            found.append(int(entry.parent.name))
    return sorted(found)


def announced_pid(path: Path) -> int:
    """Return the process that owner.json names."""
    return int(json.loads((path / "owner.json").read_text())["pid"])


def await_end(folder: Path) -> None:
    """Wait until no owner process of a store below the folder runs; AssertionError if one stays."""
    until = time.monotonic() + PATIENCE
    while left := owner_processes(folder):
        assert time.monotonic() < until, f"owner processes are left: {left}"
        time.sleep(0.01)


def end(pid: int, number: int = signal.SIGKILL) -> None:
    """Send a signal to a process, and wait until it has ended and all its files are closed."""
    os.kill(pid, number)
    until = time.monotonic() + PATIENCE
    while lives(pid):
        assert time.monotonic() < until, f"process {pid} lives"
        time.sleep(0.001)


def lives(pid: int) -> bool:
    """Return whether a thread of a process lives; the first one may have ended, with the files still open."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        return state not in "ZX" or len(os.listdir(f"/proc/{pid}/task")) > 1
    except OSError:
        return False

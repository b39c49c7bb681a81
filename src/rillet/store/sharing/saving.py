"""Store.save of a store in a directory: BGSAVE in the process that owns it, and a copy of the file that it wrote."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rillet.errors import CommandError, StoreError
from rillet.persistence.disk import REAL, write_all
from rillet.store.arguments.encoding import encode
from rillet.store.transports.transport import wait_for

_PIECE = 1 << 20
_BUSY = "already in progress"
_SCHEDULED_SECONDS = 600.0  # the longest time that a scheduled snapshot waits for a rewrite of the log


def save_in_background(execute: Callable[..., Any]) -> None:
    """Run BGSAVE in the owner of a directory and wait for its end; raise StoreError if it fails."""

    def info() -> dict[str, str]:
        lines = execute("INFO", "persistence").decode().splitlines()
        return dict(line.split(":", 1) for line in lines if ":" in line)

    def idle() -> bool:
        found = info()
        return found["rdb_bgsave_in_progress"] == "0" and found.get("rdb_bgsave_scheduled", "0") == "0"

    while True:
        before = int(info()["rdb_saves"])
        try:
            reply = execute("BGSAVE", "SCHEDULE")
            break
        except CommandError as error:
            if _BUSY not in str(error):
                raise StoreError(str(error).removeprefix("ERR ")) from error
        # The running save began before this call, so it may lack recent data. Wait for its end, then try again.
        wait_for(idle, math.inf)
    if b"scheduled" in encode(reply):  # a server does not report that; it begins after a rewrite of its log
        wait_for(lambda: int(info()["rdb_saves"]) != before, _SCHEDULED_SECONDS)
    wait_for(idle, math.inf)
    found = info()
    if int(found["rdb_saves"]) <= before:
        raise StoreError("the process that owns the store ended while it wrote the RDB file; try again")
    if found["rdb_last_bgsave_status"] != "ok":
        reason = found.get("rdb_last_bgsave_error", "see the server's log")
        raise StoreError(f"the RDB file cannot be written: {reason}")


def copy_file(source: Path, target: Path) -> None:
    """Copy a file to the target atomically and sync it; if OSError is raised, the target is unchanged. O(bytes)"""
    draft = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        file = REAL.create(draft)
        try:
            with REAL.read_from(source) as reading:
                while piece := reading.read(_PIECE):
                    write_all(file, piece)
            file.sync()
        finally:
            file.close()
        REAL.rename(draft, target)
        REAL.sync_folder(target.parent)
    finally:
        REAL.remove(draft)

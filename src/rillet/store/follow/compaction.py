"""A process that applies the closed logs of a replica to its base: `python -m rillet.store.follow.compaction`.

    parent ── {"index": ..., "logs": [...], "folder": ..., "settings": {...}} ──► stdin    one line; then it stays open
           ◄── {"position": "<id>:<offset>:<db>"} ─────────────────────────── stdout

The new base is the file `.compacted`; the parent gives it its name. When the parent ends, the process ends.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path
from typing import Any

from rillet.errors import RilletError
from rillet.persistence.aof.rewrite_process import exit_with_parent
from rillet.persistence.rdb.writer import write_rdb
from rillet.replication.changes import ChangePosition
from rillet.runtime.engine import Engine
from rillet.runtime.settings.settings import Settings
from rillet.store.follow.directory import load_files


def compact(request: dict[str, Any]) -> str:
    """Write the new base, and return its position. O(bytes)"""
    folder, index = Path(request["folder"]), request["index"]
    engine = Engine(Settings(**request["settings"]))
    at = ChangePosition(index["id"], index["offset"], index["db"])
    position, _ = load_files(engine, folder / index["base"], [folder / name for name in request["logs"]], at)
    write_rdb(folder / ".compacted", engine, draft=folder / ".compacting")
    return str(position)


def main() -> None:
    """Execute the request on stdin."""
    request = json.loads(sys.stdin.buffer.readline())
    threading.Thread(target=exit_with_parent, args=(sys.stdin.buffer,), daemon=True).start()
    try:
        answer, status = json.dumps({"position": compact(request)}), 0
    except (OSError, RilletError, MemoryError) as error:
        answer, status = str(error) or type(error).__name__, 1
    sys.stdout.write(answer)
    sys.stdout.flush()
    os._exit(status)  # a normal exit would wait for the thread that reads stdin


if __name__ == "__main__":
    main()

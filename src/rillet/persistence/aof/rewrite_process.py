"""A process that writes the base of a log from its closed files: `python -m rillet.persistence.aof.rewrite_process`.

    parent ── {"path": ..., "sources": [...], "settings": {...}, "what": ...} ──► stdin   one line; then it stays open
           ◄── {"kind": "rdb"} or {"error": "..."} ────────────────────────── stdout      one line

The request also names the modules of the owner, and the values of their settings. The process replays the files into an
engine and writes its data; with "what": "snapshot", into an independent RDB file.
The owner of the log writes a later file meanwhile. When the owner ends for any reason, the operating system closes
stdin, and the process ends too, so that it cannot interfere with the next owner.

The files are closed and synced, so an incomplete last command is an error.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

from rillet.errors import RilletError
from rillet.modules.loading import load_all
from rillet.persistence.aof.base import write_base
from rillet.persistence.aof.loader import replay
from rillet.persistence.aof.rewrite_format import SNAPSHOT
from rillet.persistence.rdb.snapshots import draft_name
from rillet.persistence.rdb.writer import write_rdb
from rillet.runtime.engine import Engine
from rillet.runtime.settings.settings import Settings


def compact(request: dict[str, Any]) -> str:
    """Write the requested base or RDB file, and return its kind. O(bytes of the files)"""
    engine = Engine(Settings(**request["settings"]))
    load_all(engine, request.get("modules", ()), request.get("module_settings"))
    replay(engine, [Path(source) for source in request["sources"]], truncates=False)
    path = Path(request["path"])
    if request.get("what") == SNAPSHOT:
        write_rdb(path, engine, draft=path.with_name(draft_name(os.getpid())))
        return "rdb"
    return write_base(path, engine)


def exit_with_parent(stdin: BinaryIO, end: Callable[[int], Any] = os._exit) -> None:
    """End the process when its parent closes the pipe."""
    while stdin.read(1024):
        pass
    end(1)


def main() -> int:
    """Execute the request on stdin and return the exit status."""
    warnings.simplefilter("ignore")
    request = json.loads(sys.stdin.buffer.readline())
    threading.Thread(target=exit_with_parent, args=(sys.stdin.buffer,), daemon=True).start()
    try:
        answer = {"kind": compact(request)}
    except (OSError, RilletError, MemoryError) as error:
        answer = {"error": getattr(error, "strerror", None) or str(error) or type(error).__name__}
    sys.stdout.write(json.dumps(answer))
    sys.stdout.flush()
    # A normal exit would wait for the thread that reads stdin.
    os._exit(int("error" in answer))


if __name__ == "__main__":
    sys.exit(main())

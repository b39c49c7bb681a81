"""A process that writes the base of a log from the log's closed files: `python -m
rillet.persistence.aof.rewrite_process`.

    parent ── {"path": ..., "sources": [...], "settings": {...}, "what": ...} ──► stdin   one line; then it stays open:
           ◄── {"kind": "rdb"} or {"error": "..."} ────────────────────────── stdout      the leash; one line, the end

Asked for a "snapshot" it writes an RDB file that stands alone. The files are replayed into an engine of this process,
and what they led to is written. Nobody waits for it: the owner of the log goes on writing the file behind them. When
the owner ends, however that is, the leash is closed, and so ends this process: a base that nobody asks for any more
would only be in somebody's way.

The files are closed, so nothing may be torn there; what cannot be replayed is an error and no base.
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
from rillet.persistence.aof.base import write_base
from rillet.persistence.aof.loader import replay
from rillet.persistence.aof.rewrite_format import SNAPSHOT
from rillet.persistence.rdb.snapshots import draft_name
from rillet.persistence.rdb.writer import write_rdb
from rillet.runtime.engine import Engine
from rillet.runtime.settings import Settings


def compact(request: dict[str, Any]) -> str:
    """Write the base, or the RDB file, that was asked for, and return its kind. O(bytes of the files)"""
    engine = Engine(Settings(**request["settings"]))
    replay(engine, [Path(source) for source in request["sources"]], truncates=False)
    path = Path(request["path"])
    if request.get("what") == SNAPSHOT:
        write_rdb(path, engine, draft=path.with_name(draft_name(os.getpid())))
        return "rdb"
    return write_base(path, engine)


def end_with(leash: BinaryIO, end: Callable[[int], Any] = os._exit) -> None:
    """End the process when the other side of the pipe is closed."""
    while leash.read(1024):
        pass
    end(1)


def main() -> int:
    """Do what the line on stdin asks for; return the exit status."""
    warnings.simplefilter("ignore")
    request = json.loads(sys.stdin.buffer.readline())
    threading.Thread(target=end_with, args=(sys.stdin.buffer,), daemon=True).start()
    try:
        answer = {"kind": compact(request)}
    except (OSError, RilletError, MemoryError) as error:
        answer = {"error": getattr(error, "strerror", None) or str(error) or type(error).__name__}
    sys.stdout.write(json.dumps(answer))
    sys.stdout.flush()
    # The thread that holds the leash is in a read, which would be waited for.
    os._exit(int("error" in answer))


if __name__ == "__main__":
    sys.exit(main())

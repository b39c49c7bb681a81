"""Loading a master's snapshot into a server that continues to answer (Redis: readSyncBulkPayload, rdbLoadRio).

    file       socket ──► temp-….rdb ──► dump.rdb ──► databases    `disabled`
    diskless   socket ─────────────────────────────► databases    `on-empty-db`, `flushdb`: empty before
                                         └──► new databases ⇄       `swapdb`: exchanged at the end

The loader is a thread that takes turns with the event loop (serve_while_loading.py). Without a file it reads what the
socket has brought, and gives the turn back when that is not enough. Reading stops while many bytes wait.

With `swapdb`, a transfer that fails leaves the old data. If the snapshot continues the history of the old data,
commands read the old data meanwhile; otherwise they are refused as during every load.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

from rillet.keyspace.database import Database
from rillet.persistence.rdb.reader import Kept, Loaded, load_rdb_from
from rillet.runtime.engine import Engine
from rillet.scripting.functions import forget_libraries
from rillet.server.serve_while_loading import LoadingPhase, Progress

_MOST_WAITING = 8 << 20  # bytes that wait for the loader before reading stops
_READ = 1 << 20


class Incoming(LoadingPhase):
    """A load from bytes that come in pieces; `hold` stops and continues the reading of the socket."""

    def __init__(self, engine: Engine, hold: Callable[[bool], None], *, refuses: bool) -> None:
        super().__init__(engine, refuses=refuses)
        self._chunks: deque[memoryview] = deque()
        self._waiting = 0
        self._ended = False
        self._hold = hold
        self._held = False
        self._starved = False
        self._came = asyncio.Event()
        self.cancelled = False

    def receive(self, data: bytes) -> None:
        """Receive bytes of the snapshot."""
        self._chunks.append(memoryview(data))
        self._waiting += len(data)
        if self._waiting > _MOST_WAITING and not self._held:
            self._held = True
            self._hold(True)
        self._came.set()

    def end(self) -> None:
        """Take the end of the snapshot."""
        self._ended = True
        self._came.set()

    def cancel(self) -> None:
        """Abort the load."""
        self.cancelled = True
        self._came.set()

    async def _pause(self) -> None:
        if self._held and self._waiting <= _MOST_WAITING // 2:
            self._held = False
            self._hold(False)
        if not self._starved or self._done:
            await asyncio.sleep(0)
            return
        while not (self._chunks or self._ended or self.cancelled):
            self._came.clear()
            await self._came.wait()
        self._starved = False

    def readinto(self, view: memoryview) -> int:
        """Fill a buffer with the next bytes, 0 at the end; the loader calls this."""
        while not self._chunks:
            if self._ended:
                return 0
            self._starved = True
            self._yield()
        chunk = self._chunks.popleft()
        size = min(len(chunk), len(view))
        view[:size] = chunk[:size]
        if size < len(chunk):
            self._chunks.appendleft(chunk[size:])
        self._waiting -= size
        return size


class SnapshotFile:
    """The file of a snapshot that is being received."""

    def __init__(self, folder: Path, seconds: int) -> None:
        self.path = folder / f"temp-{seconds}.{os.getpid()}.rdb"
        self._file: BinaryIO = open(self.path, "wb")  # noqa: SIM115 - it is closed by `finish` or `remove`

    def receive(self, data: bytes) -> None:
        """Write bytes; OSError."""
        self._file.write(data)

    def finish(self, path: Path) -> None:
        """Sync the file and give it its name; OSError."""
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        os.replace(self.path, path)

    def remove(self) -> None:
        """Close and delete the file."""
        self._file.close()
        self.path.unlink(missing_ok=True)


class NewData:
    """Databases beside those of the engine, and functions, until `exchange`."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.databases = [Database(old.index, engine.clock, old.access, old.buffer) for old in engine.databases]
        self.kept = Kept()
        for old, new in zip(engine.databases, self.databases, strict=True):
            new.lazy, new.embeds_expiry = old.lazy, old.embeds_expiry
            new.resize_as(bool(old.keys.newest))

    def exchange(self) -> None:
        """Give the engine this data, and free the old data in steps."""
        engine = self._engine
        for old, new in zip(engine.databases, self.databases, strict=True):
            old.swap(new)
            gate = new.keys.gate
            old.limit_growth(gate)
            new.limit_growth(None)
            new.flush(lazy=True)
        forget_libraries(engine)
        engine.preserved = self.kept
        engine.tracking.invalidate_all()


def empty(engine: Engine, lazy: bool) -> None:
    """Delete all keys and functions. O(keys), or later with `lazy`"""
    if engine.modules is not None:
        engine.modules.server_event("flush", -1)
    for database in engine.databases:
        database.flush(lazy)
    forget_libraries(engine)
    engine.tracking.invalidate_all()


def load(engine: Engine, source: Any, name: str, new: NewData | None, progress: Progress | None,
         total: int) -> Loaded:  # fmt: skip
    """Load a snapshot, into `new` or into the engine; Corrupt, StoreError or OSError. O(bytes)"""
    report = None if progress is None else lambda done: progress(done, total)
    if new is None:
        return load_rdb_from(source, name, engine, progress=report)
    return load_rdb_from(source, name, engine, progress=report, databases=new.databases, kept=new.kept)

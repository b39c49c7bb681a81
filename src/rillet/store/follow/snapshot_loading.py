"""Loads the snapshot of a full synchronisation beside the old data, in a thread, while the store is read.

    link's thread ── take ──► pieces ── readinto ──► loader: new databases ── exchange ──► the engine's databases

The loader holds the engine's lock while it computes, because loading uses parts of the engine, and releases it each
time it needs more bytes. So other threads have their turn after each piece.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from io import RawIOBase
from typing import Any

from rillet.errors import RilletError
from rillet.persistence.rdb.reader import Loaded, load_rdb_from
from rillet.runtime.engine import Engine
from rillet.server.replica_loading import NewData

_MOST_WAITING = 8 << 20
_PIECE = 1 << 16  # bytes that the loader takes at once, so that it does not hold the lock for long


class _Cancelled(Exception):
    """The transfer was aborted."""


class SnapshotLoading(RawIOBase):
    """One load; `take`, `end` and `cancel` are for the link's thread."""

    def __init__(self, engine: Engine, lock: Any, keeps: Callable[[bytes], bool] | None) -> None:
        self._engine = engine
        self._lock = lock
        self._keeps = keeps
        self._changed = threading.Condition()
        self._pieces: deque[memoryview] = deque()
        self._waiting = 0
        self._ended = self._cancelled = False
        self.data = NewData(engine)
        self.loaded: Loaded | None = None
        self.problem: BaseException | None = None
        self._thread = threading.Thread(target=self._load, name="rillet-follow-load", daemon=True)
        self._thread.start()

    def feed(self, data: bytes) -> None:
        """Add bytes of the snapshot."""
        with self._changed:
            self._pieces.append(memoryview(data))
            self._waiting += len(data)
            self._changed.notify_all()

    def wait_for_room(self) -> None:
        """Wait until few bytes wait for the loader; the caller must not hold the engine's lock."""
        with self._changed:
            while self._waiting > _MOST_WAITING and self._thread.is_alive() and not self._cancelled:
                self._changed.wait(0.1)

    def end(self) -> None:
        """Take the end of the snapshot."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    @property
    def is_ending(self) -> bool:
        """Whether everything was received, or the load has failed."""
        return self._ended or not self._thread.is_alive()

    def cancel(self) -> None:
        """Abort the load."""
        with self._changed:
            self._cancelled = True
            self._changed.notify_all()

    def join(self) -> None:
        """Wait for the end of the load; the caller must not hold the engine's lock."""
        self._thread.join()

    def readable(self) -> bool:
        return True

    def readinto(self, view: Any) -> int:
        """Fill a buffer with the next bytes, 0 at the end; the loader calls this."""
        self._lock.__exit__(None, None, None)
        try:
            with self._changed:
                while not self._pieces:
                    if self._cancelled:
                        raise _Cancelled
                    if self._ended:
                        return 0
                    self._changed.wait()
                piece = self._pieces.popleft()
                size = min(len(piece), len(view), _PIECE)
                view[:size] = piece[:size]
                if size < len(piece):
                    self._pieces.appendleft(piece[size:])
                self._waiting -= size
                self._changed.notify_all()
                return size
        finally:
            self._lock.__enter__()

    def _load(self) -> None:
        new = self.data
        try:
            with self._lock:
                self.loaded = load_rdb_from(self, "the snapshot of the server", self._engine, databases=new.databases,
                                            kept=new.kept, keeps=self._keeps)  # fmt: skip
        except (RilletError, OSError, ValueError, _Cancelled) as error:
            self.problem = error
        finally:
            with self._changed:
                self._pieces.clear()
                self._waiting = 0
                self._changed.notify_all()

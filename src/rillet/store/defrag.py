"""DefragThread: the active defragmentation of a store in memory (rillet.keyspace.defrag).

A store in a directory has an event loop, whose timer runs the steps. A store in memory has none, so a thread runs them,
but only while `activedefrag` is yes. The lock is free between two steps. The thread holds no reference that keeps the
store alive after `close`.
"""

from __future__ import annotations

import threading
from typing import Any

from rillet.loggers import logger
from rillet.runtime.engine import Engine

LOGGER = logger("store")


class DefragThread:
    """Runs the defragmentation of an engine without an event loop."""

    def __init__(self, engine: Engine, lock: Any) -> None:
        self._engine = engine
        self._lock = lock
        self._wake = threading.Event()
        self._closed = False
        self.running = False
        engine.defrag.on_enabled = self.start
        self.start()

    def start(self) -> None:
        """Start the thread if the setting requires it. The caller holds the lock, if other threads use the engine."""
        if self._engine.settings.activedefrag and not self.running and not self._closed:
            self.running = True
            threading.Thread(target=self._run, name="rillet-defrag", daemon=True).start()

    def _run(self) -> None:
        try:
            while (pause := self._step()) is not None and not self._wake.wait(pause):
                pass
        except Exception:
            LOGGER.exception("the defragmentation failed; it continues when a setting is changed")
            with self._lock:
                self.running = False

    def _step(self) -> float | None:
        """Do one step; return the pause in seconds, None = end the thread."""
        with self._lock:
            if self._closed:
                return None
            pause = self._engine.defrag_step()
            if not self._engine.settings.activedefrag:
                self.running = False
                return None
            return pause

    def close(self) -> None:
        """End the thread. The caller holds the lock."""
        self._closed = True
        self._engine.defrag.on_enabled = None
        self._wake.set()


__all__ = ["DefragThread"]

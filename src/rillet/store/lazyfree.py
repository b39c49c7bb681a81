"""LazyFreeThread: frees the large values that commands dropped, of a store in memory (keyspace/lazyfree.py).

A store in a directory has an event loop, whose timer runs the steps. A store in memory has none, so a thread runs them,
but only while values wait. The lock is free between two steps. The start of the thread is inside a command, during
which no signal handler may run, so it is a function in C.
"""

from __future__ import annotations

import contextlib
from _thread import start_new_thread
from functools import partial
from time import sleep
from typing import Any

from rillet.keyspace.lazyfree import PAUSE
from rillet.loggers import logger
from rillet.runtime.engine import Engine

LOGGER = logger("store")


class LazyFreeThread:
    """Runs the steps of an engine without an event loop while values wait to be freed."""

    def __init__(self, engine: Engine, lock: Any) -> None:
        self._engine = engine
        self._lock = lock
        self._closed = False
        start = partial(start_new_thread, self._run, ())
        engine.lazyfree.on_pending = start
        if engine.lazyfree.pending:  # in a forked child
            with contextlib.suppress(RuntimeError):  # no thread can be started
                start()

    def _run(self) -> None:
        try:
            while self._step():
                sleep(PAUSE)
        except Exception:
            LOGGER.exception("the freeing of dropped values failed")

    def _step(self) -> bool:
        with self._lock:
            return not self._closed and self._engine.lazyfree.step()

    def close(self) -> None:
        """End the thread. The caller holds the lock."""
        self._closed = True
        self._engine.lazyfree.on_pending = None


__all__ = ["LazyFreeThread"]

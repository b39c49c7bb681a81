"""EvictionThread: continues an unfinished eviction of a store in memory (keyspace/eviction.py).

A run of the eviction is limited in time, so a much lower `maxmemory` takes several. A store in a directory has an event
loop, whose timer continues. A store in memory has none, so a thread does, but only while the eviction is unfinished.
The lock is free between two runs. The start of the thread is inside a command, during which no signal handler may run,
so it is a function in C.
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


class EvictionThread:
    """Runs the eviction of an engine without an event loop until the data fits."""

    def __init__(self, engine: Engine, lock: Any) -> None:
        self._engine = engine
        self._lock = lock
        self._closed = False
        start = partial(start_new_thread, self._run, ())
        engine.eviction.on_unfinished = start
        if engine.eviction.running:  # in a forked child
            with contextlib.suppress(RuntimeError):  # no thread can be started
                start()

    def _run(self) -> None:
        try:
            while self._step():
                sleep(PAUSE)
        except Exception:
            LOGGER.exception("the eviction of keys failed; it continues with the next command")

    def _step(self) -> bool:
        with self._lock:
            if self._closed or not self._engine.eviction.running:
                return False
            self._engine.make_room()
            return bool(self._engine.eviction.running)

    def close(self) -> None:
        """End the thread. The caller holds the lock."""
        self._closed = True
        self._engine.eviction.on_unfinished = None


__all__ = ["EvictionThread"]

"""Threads that do the work of an event loop's timer for a store in memory, step by step, only while work waits.

    LazyFreeThread    frees the large values that commands dropped        keyspace/lazyfree.py
    EvictionThread    continues an eviction whose time ended              keyspace/eviction.py

A store in a directory has an event loop, whose timer runs the steps. The lock is free between two steps of a thread.

    idle      running is false    a command makes work: the engine starts the thread, and sets `running`
    at work   running is true     a step ends the work, or fails: the thread ends, and `running` is false

So the first command that makes work after a failed step starts a thread again. The start of the thread is inside a
command, during which no signal handler may run, so the engine calls a function in C.

DefragThread (store/defrag.py) and ActiveExpiry (store/expiry.py) decide for how long they sleep, and something wakes
them, so they share no code with these.
"""

from __future__ import annotations

from _thread import start_new_thread
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from time import sleep
from typing import Any

from rillet.keyspace.eviction import Eviction
from rillet.keyspace.lazyfree import PAUSE, LazyFree
from rillet.loggers import logger
from rillet.runtime.engine import Engine

LOGGER = logger("store")


class StepThread(ABC):
    """Runs the steps of one kind of work of an engine without an event loop; `failure` is the text to log."""

    failure: str

    def __init__(self, engine: Engine, lock: Any) -> None:
        self._engine = engine
        self._lock = lock
        self._closed = False
        start = partial(start_new_thread, self._run, ())
        self._work.running = self._waits()  # true only in a forked child, which has no thread yet
        self._listen(start)
        if self._work.running:
            try:
                start()
            except RuntimeError:  # no thread can be started
                self._work.running = False

    @property
    @abstractmethod
    def _work(self) -> Eviction | LazyFree:
        """The part of the engine that has the work."""

    @abstractmethod
    def _waits(self) -> bool:
        """Return whether work waits."""

    @abstractmethod
    def _listen(self, start: Callable[[], object] | None) -> None:
        """Let the engine call `start` when work begins to wait."""

    @abstractmethod
    def _step(self) -> bool:
        """Do a part of the work; return whether more waits. The caller holds the lock."""

    def _run(self) -> None:
        try:
            while self._continue():
                sleep(PAUSE)
        except Exception:
            LOGGER.exception(self.failure)
            with self._lock:
                self._work.running = False

    def _continue(self) -> bool:
        with self._lock:
            return not self._closed and self._step()

    def close(self) -> None:
        """End the thread. The caller holds the lock."""
        self._closed = True
        self._listen(None)


class LazyFreeThread(StepThread):
    """Frees dropped values while some wait."""

    failure = "the freeing of dropped values failed; it continues when another value is dropped"

    @property
    def _work(self) -> LazyFree:
        return self._engine.lazyfree

    def _waits(self) -> bool:
        return self._work.pending > 0

    def _listen(self, start: Callable[[], object] | None) -> None:
        self._work.on_pending = start

    def _step(self) -> bool:
        return self._work.step()


class EvictionThread(StepThread):
    """Evicts keys until the data fits, after a run that reached its limit of time."""

    failure = "the eviction of keys failed; it continues with the next command"

    @property
    def _work(self) -> Eviction:
        return self._engine.eviction

    def _waits(self) -> bool:
        return self._work.running

    def _listen(self, start: Callable[[], object] | None) -> None:
        self._work.on_unfinished = start

    def _step(self) -> bool:
        if self._work.running:
            self._engine.make_room()
        return self._work.running


__all__ = ["EvictionThread", "LazyFreeThread", "StepThread"]

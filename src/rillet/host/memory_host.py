"""The host of a store in memory: a thread that calls functions of modules later, while it holds the engine's lock.

    module ── post, call_later ──► heap of jobs ──► thread ── lock ── function ── log

The thread starts with the first job and ends when none is left. A store that also serves a socket has an event loop,
which calls the functions instead (rillet.server.host).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from typing import TYPE_CHECKING, Any

from rillet.host.timers import Timer
from rillet.loggers import logger
from rillet.protocol.peer_replies import Replies
from rillet.real_time import monotonic
from rillet.runtime.engine import Engine
from rillet.runtime.host import DefaultHost

if TYPE_CHECKING:
    from rillet.client.peer_sockets import PeerSockets

LOGGER = logger("store")


class MemoryHost(DefaultHost):
    """The host of an engine in memory."""

    def __init__(self, engine: Engine, lock: Any) -> None:
        super().__init__(engine)
        self._numbers = count()
        self.peers: PeerSockets | None = None
        self._begin(lock)

    def _begin(self, lock: Any) -> None:
        self._lock = lock
        self._heap: list[Timer] = []
        self._changed = threading.Condition(threading.Lock())
        self._running = self._closed = False

    def after_fork(self, lock: Any) -> None:
        """In a forked child, which has no thread: forget the jobs and the sockets of the parent."""
        self.peers = None
        self._begin(lock)

    def exchange(self, address: tuple[str, str], setup: list[list[bytes]], database: int,
                 commands: list[list[bytes]], timeout_ms: int) -> Replies:  # fmt: skip
        """Send commands to another server and return its replies (MIGRATE)."""
        if self.peers is None:
            from rillet.client.peer_sockets import PeerSockets

            self.peers = PeerSockets()
        return self.peers.exchange(address, setup, database, commands, timeout_ms)

    def log_line(self, text: str, level: str = "warning") -> None:
        """Write a line to the logger of stores."""
        LOGGER.log({"warning": 30, "notice": 20}.get(level, 10), "%s", text)

    def post(self, function: Callable[[], object]) -> None:
        """Call a function soon in the thread."""
        self._add(0.0, function)

    def call_later(self, seconds: float, function: Callable[[], object]) -> Callable[[], object]:
        """Call a function after a time in the thread; return a function that cancels this."""
        return self._add(seconds, function).cancel

    def _add(self, seconds: float, function: Callable[[], object]) -> Timer:
        job = Timer(monotonic() + seconds, next(self._numbers), function)
        with self._changed:
            heappush(self._heap, job)
            self._changed.notify()
            if not self._running and not self._closed:
                self._running = True
                threading.Thread(target=self._run, name="rillet-jobs", daemon=True).start()
        return job

    def _run(self) -> None:
        while (job := self._next()) is not None:
            try:
                with self._lock:
                    if job.function is not None and not self._closed:
                        job.function()
                        if self._engine.log is not None:
                            self._engine.log.write()
            except Exception:
                LOGGER.exception("a function of a module failed")

    def _next(self) -> Timer | None:
        """Wait for the next job that is due; return None and end if there is none."""
        with self._changed:
            while not self._closed and self._heap:
                if self._heap[0].function is None:
                    heappop(self._heap)
                    continue
                wait = self._heap[0].due - monotonic()
                if wait <= 0:
                    return heappop(self._heap)
                self._changed.wait(wait)
            self._running = False
            return None

    def close(self) -> None:
        """Drop the jobs, end the thread and close the connections to other servers."""
        if self.peers is not None:
            self.peers.close()
        with self._changed:
            self._closed = True
            self._changed.notify()


__all__ = ["MemoryHost"]

"""Loading the data while clients are answered: most of them with LOADING, some in full (Redis: server.c, startLoading).

A server listens before it has read its files, so that who waits for it sees that it is there, may ask INFO how far it
has come, and may end it. Reading is one long call, and an event loop has one thread; so the reading has a thread of its
own, and a baton goes back and forth:

    loop     ... events ──go──► waits                       ──► events ──go──► waits ...
    reader                      reads until `progress` ──back──►               reads on

Never do both run at once, so nothing needs a lock. The baton comes back with the first progress after `_TURN` seconds,
which the readers report for about every megabyte. Rejected: readers written as generators (a value of hundreds of
megabytes is one step deep inside compiled code), and Redis's own way, to run the loop inside the reading (asyncio's
loops cannot be entered twice).
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable

from rillet.runtime.engine import Engine

_TURN = 0.02  # seconds

Progress = Callable[[int, int], None]


class _Stopped(BaseException):
    """The server is to end: the reading is given up."""


class LoadingPhase:
    """One loading of an engine's data; `facts` is for INFO persistence."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._go = threading.Semaphore(0)
        self._back = threading.Semaphore(0)
        self._done = False
        self._stopped = False
        self._error: BaseException | None = None
        self._began = self._turn = 0.0
        self._start_time = 0
        self._bytes = self._total = 0

    async def run(self, job: Callable[[Progress], None], stopping: Callable[[], bool]) -> bool:
        """Do the job, a turn at a time; what it raises is raised here. False where the server was to end meanwhile."""
        self._began = time.monotonic()
        self._start_time = self._engine.clock.now_ms() // 1000
        self._engine.loading = True
        reader = threading.Thread(target=self._read, args=(job,), name="rillet-loading", daemon=True)
        reader.start()
        try:
            while not self._done:
                self._stopped = stopping()
                self._turn = time.monotonic()
                self._go.release()
                self._back.acquire()
                # The reader takes `loading` back when it has read one of several files.
                self._engine.loading = not self._done
                await asyncio.sleep(0)
        finally:
            self._engine.loading = False
        reader.join()
        if isinstance(self._error, _Stopped):
            return False
        if self._error is not None:
            raise self._error
        return True

    def _read(self, job: Callable[[Progress], None]) -> None:
        self._go.acquire()
        try:
            job(self._progress)
        except BaseException as error:
            self._error = error
        self._done = True
        self._back.release()

    def _progress(self, done: int, total: int) -> None:
        """Note how far it has come, and let the loop have a turn where one is due."""
        self._bytes, self._total = done, total
        if time.monotonic() - self._turn >= _TURN:
            self._back.release()
            self._go.acquire()
            if self._stopped:
                raise _Stopped

    def facts(self) -> dict[str, object]:
        """Return what INFO persistence tells while it goes on (server.c: genRedisInfoString)."""
        if not self._engine.loading:
            return {}
        elapsed = time.monotonic() - self._began
        eta = int(elapsed * (self._total - self._bytes) / self._bytes) if self._bytes else 1
        return {
            "loading_start_time": self._start_time, "loading_total_bytes": self._total,
            "loading_rdb_used_mem": 0, "loading_loaded_bytes": self._bytes,
            "loading_loaded_perc": f"{self._bytes * 100 / self._total if self._total else 0:.2f}",
            "loading_eta_seconds": max(eta, 0),
        }  # fmt: skip


__all__ = ["LoadingPhase", "Progress"]

"""Loading the data while the server answers clients, most of them with LOADING (Redis: server.c, startLoading).

A server listens before it has read its files, so that clients see it, can read its progress in INFO, and can stop it.
Loading is one long call, and an event loop has one thread, so loading runs in a second thread. The two take turns:

    loop     ... events ──go──► waits                       ──► events ──go──► waits ...
    loader                      loads until `progress` ──back──►               continues

They never run at the same time, so no lock is needed. The loop gets its turn at the first progress report after `_TURN`
seconds; the loaders report about once per megabyte. Rejected: loaders written as generators (one value of hundreds of
megabytes is a single call of compiled code), and Redis's way, running the loop from inside the loader (asyncio's
loops are not reentrant).
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

from rillet.real_time import monotonic
from rillet.runtime.engine import Engine

_TURN = 0.02  # seconds of loading between two turns of the event loop

Progress = Callable[[int, int], None]


class _Stopped(BaseException):
    """Raised inside the loader to abort it, because the server stops."""


class LoadingPhase:
    """One load of an engine's data, and its fields of INFO persistence."""

    def __init__(self, engine: Engine, *, refuses: bool = True) -> None:
        self._engine = engine
        # Whether commands are refused meanwhile; otherwise the loader leaves the databases alone.
        self.refuses = refuses
        self._go = threading.Semaphore(0)
        self._back = threading.Semaphore(0)
        self._done = False
        self._stopped = False
        self._error: BaseException | None = None
        self._began = self._turn = 0.0
        self._start_time = 0
        self._bytes = self._total = 0

    async def run(self, job: Callable[[Progress], None], stopping: Callable[[], bool]) -> bool:
        """Run the job in turns with the event loop; raise the job's exception; return False if the server stopped."""
        self._began = monotonic()
        self._start_time = self._engine.clock.now_ms() // 1000
        self._engine.loading = self.refuses
        reader = threading.Thread(target=self._read, args=(job,), name="rillet-loading", daemon=True)
        reader.start()
        try:
            while not self._done:
                self._stopped = stopping()
                self._turn = monotonic()
                self._go.release()
                self._back.acquire()
                # The loader resets `loading` after each of several files.
                self._engine.loading = self.refuses and not self._done
                if not self._done:  # the caller continues at once: nothing changes the new data before it
                    await self._pause()
        finally:
            self._engine.loading = False
        reader.join()
        if isinstance(self._error, _Stopped):
            return False
        if self._error is not None:
            raise self._error
        return True

    async def _pause(self) -> None:
        """Let the event loop run once."""
        await asyncio.sleep(0)

    def _read(self, job: Callable[[Progress], None]) -> None:
        self._go.acquire()
        try:
            job(self._progress)
        except BaseException as error:
            self._error = error
        self._done = True
        self._back.release()

    def _progress(self, done: int, total: int) -> None:
        """Record the progress, and let the event loop run if its turn is due."""
        self._bytes, self._total = done, total
        if monotonic() - self._turn >= _TURN:
            self._yield()

    def _yield(self) -> None:
        """Let the event loop run, from inside the loader."""
        self._back.release()
        self._go.acquire()
        if self._stopped:
            raise _Stopped

    def info(self) -> dict[str, object]:
        """Return the loading fields of INFO persistence (server.c: genRedisInfoString)."""
        if self._done or not self._began:
            return {}
        elapsed = monotonic() - self._began
        eta = int(elapsed * (self._total - self._bytes) / self._bytes) if self._bytes else 1
        return {
            "loading_start_time": self._start_time, "loading_total_bytes": self._total,
            "loading_rdb_used_mem": 0, "loading_loaded_bytes": self._bytes,
            "loading_loaded_perc": f"{self._bytes * 100 / self._total if self._total else 0:.2f}",
            "loading_eta_seconds": max(eta, 0),
        }  # fmt: skip

"""A thread that does one thing at a time while its owner does another: `start` hands it over, `wait` waits for its end.

It is for work that runs without Python's lock; the thread begins with the first such work and ends with `close`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable


class WorkerThread:
    """One thread, and what it is to do."""

    def __init__(self) -> None:
        self._job: Callable[[], object] | None = None
        self._thread: threading.Thread | None = None
        self._go = threading.Lock()
        self._done = threading.Lock()
        self._go.acquire()
        self._done.acquire()

    def start(self, job: Callable[[], object]) -> None:
        """Have the job begin; it raises nothing."""
        self._job = job
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="rillet-helper", daemon=True)
            self._thread.start()
        self._go.release()

    def wait(self) -> None:
        """Return when the job is done."""
        self._done.acquire()

    def close(self) -> None:
        """End the thread, after the job that it is at."""
        self._job = None
        if self._thread is not None:
            self._go.release()
            self._thread.join()

    def _run(self) -> None:
        while True:
            self._go.acquire()
            job = self._job
            if job is None:
                return
            job()
            self._done.release()


__all__ = ["WorkerThread"]

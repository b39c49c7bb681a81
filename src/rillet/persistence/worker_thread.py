"""A thread that runs one job at a time beside its owner: `start` begins a job, `wait` returns at its end.

Use it for jobs that release the GIL. The thread starts with the first job and ends with `close`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable


class WorkerThread:
    """A thread that runs one job at a time."""

    def __init__(self) -> None:
        self._job: Callable[[], object] | None = None
        self._thread: threading.Thread | None = None
        self._go = threading.Lock()
        self._done = threading.Lock()
        self._go.acquire()
        self._done.acquire()

    def start(self, job: Callable[[], object]) -> None:
        """Start the job, which must not raise."""
        self._job = job
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="rillet-helper", daemon=True)
            self._thread.start()
        self._go.release()

    def wait(self) -> None:
        """Wait for the end of the job."""
        self._done.acquire()

    def close(self) -> None:
        """End the thread after its current job."""
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

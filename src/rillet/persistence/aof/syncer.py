"""Syncs a log to the disk: the lock, the last error, the position that is synced, and the thread.

    always        a waiting caller syncs, or the thread does on request; one sync serves all bytes written before it
                  began (group commit), and other threads read and write meanwhile
    everysec      the thread syncs once a second: a power loss costs at most that second
    no            the operating system decides when to write

`lock` is held during a sync and while the current file is replaced. It is reentrant: a signal handler that interrupts
the caller's sync may wait for its own write, and then syncs as well. After a failed sync, `error` is set and
nothing is synced again: the kernel reports a write error once, and a later sync would report success for bytes that are
lost.

With threads=False every request is served at once by the caller, so that a simulated disk sees the same calls in the
same order each time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from rillet.persistence.aof.file import AofFile
from rillet.real_time import monotonic_ns

_SECOND = 1.0


class AofSyncer:
    """Syncs the current file of a log; `current` returns this file and the position of the log's end."""

    def __init__(self, current: Callable[[], tuple[AofFile | None, int]], fsync: str, *, threads: bool) -> None:
        self.fsync = fsync
        self.threads = threads
        self.lock = threading.RLock()
        self.synced = 0
        self.error: OSError | None = None
        # While this is set, replies do not wait for syncs (no-appendfsync-on-rewrite, while a child writes).
        self.paused = False
        # The syncing thread calls this after a sync, because `AppendOnlyLog.settled` may now return True.
        self._on_synced: Callable[[], None] | None = None
        self._current = current
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None
        self._stopping = False
        # The duration of the last sync in nanoseconds, for LATENCY.
        self.last_ns = 0
        self.syncing = False

    def sync(self) -> None:
        """Sync all bytes written so far; the caller holds `lock`. Do nothing after an error."""
        file, end = self._current()
        if file is None or self.error is not None:
            return
        began = monotonic_ns()
        self.syncing = True
        try:
            file.sync()
        except OSError as error:
            self.error = error
        else:
            self.last_ns = monotonic_ns() - began
            self.synced = max(self.synced, end)  # a signal handler may have synced more meanwhile
        finally:
            self.syncing = False

    def sync_pending(self) -> None:
        """Sync if the file has bytes that are not synced; the caller holds `lock`."""
        if self.synced < self._current()[1]:
            self.sync()

    def request(self, on_synced: Callable[[], None] | None = None) -> None:
        """Sync soon, and call `on_synced` after this sync and each later one; without threads, sync now."""
        if on_synced is not None:
            self._on_synced = on_synced
        if self.threads:
            self._start()
            self._wake.set()
        else:
            self._sync_and_report()

    def set_policy(self, fsync: str, *, running: bool) -> None:
        """Set appendfsync: always, everysec or no. running: whether the log is open."""
        self.fsync = fsync
        if fsync == "everysec" and self.threads and running:
            self._start()
            self._wake.set()

    def stop(self) -> None:
        """Stop the thread after its current sync."""
        if self._thread is not None:
            self._stopping = True
            self._wake.set()
            self._thread.join()
            self._thread = None

    def _start(self) -> None:
        if self._thread is None:
            self._stopping = False
            self._thread = threading.Thread(target=self._run, name="rillet-fsync", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while True:
            requested = self._wake.wait(_SECOND if self.fsync == "everysec" else None)
            self._wake.clear()
            if self._stopping:
                return
            if requested or not self.paused:
                self._sync_and_report()

    def _sync_and_report(self) -> None:
        with self.lock:
            self.sync_pending()
        if self._on_synced is not None:
            self._on_synced()

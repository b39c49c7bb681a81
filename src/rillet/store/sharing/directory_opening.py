"""DirectoryOpening: opens a store's directory in another thread, so an interrupted caller leaves nothing half done.

    idle        nothing happens; there is no thread
    awaited     a caller waits for the thread
    under way   the thread works; if its caller was interrupted, it continues, and nothing waits for it

An interrupt ends `awaited` only. The next caller waits until the thread has finished that work, and finds its result.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeVar

from rillet.host.engine_thread import EngineThread

Result = TypeVar("Result")


class DirectoryOpening:
    """The opening of one directory in this process; one caller at a time, as its owner's lock ensures.

    lock: held while the thread works. The thread may enter it again.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.awaited = False
        self.under_way = False
        self._thread = EngineThread()

    def run(self, work: Callable[..., Result], ended: Callable[[], object], *arguments: Any) -> Result:
        """Do `work(*arguments)` in the thread, then `ended()`; return the result when both are done."""
        self.awaited = True
        try:
            result: Result = self._thread.run(self._work, work, ended, arguments)
            return result
        finally:
            self.awaited = False
            if not self.under_way:
                self._thread.stop()

    def _work(self, work: Callable[..., Result], ended: Callable[[], object], arguments: tuple[Any, ...]) -> Result:
        with self.lock:
            self.under_way = True
            try:
                return work(*arguments)
            finally:
                self.under_way = False  # first: `ended` does what could not be done while the work was under way
                ended()

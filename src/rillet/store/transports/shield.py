"""EngineThread: in the interpreted build, the commands of the main thread run in another thread.

Python runs signal handlers in the main thread only, between any two steps of interpreted code: also in the middle of a
command, between two changes that belong together. An exception from the handler (KeyboardInterrupt) would leave a
structure half changed, and a call of the store in the handler would meet it. In the compiled build, the code of the
commands has no such steps. In the interpreted build, the main thread hands its commands to this thread and waits.

    main thread      execute ── put ── wait ....................... reply
    engine thread                 └─ lock ── command ── log ── done ┘
    signal handler                      execute ── put ── wait ── reply     runs after the command, with its own session

An interrupted caller stops waiting, and the command still completes. The hand-over takes about 20 microseconds.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, TypeVar

Result = TypeVar("Result")
THREAD_NAME = "rillet-engine"


class EngineThread:
    """A thread that runs the functions that the main thread passes to it, in order."""

    def __init__(self) -> None:
        self._queue: SimpleQueue[Any] | None = None
        self._process = 0

    def run(self, function: Callable[..., Result], *arguments: Any) -> Result:
        """Run a function in the thread and return its result, or raise its exception."""
        if threading.current_thread() is not threading.main_thread():
            return function(*arguments)  # no signal handler runs here
        done = threading.Lock()
        done.acquire()
        outcome: list[Any] = []
        self._put((function, arguments, outcome, done))
        done.acquire()
        result, error = outcome[0]
        if error is not None:
            try:
                raise error
            finally:
                del error, outcome
        return result  # type: ignore[no-any-return]

    def later(self, function: Callable[..., Any], *arguments: Any) -> None:
        """Run a function after those that were passed before, without waiting for it."""
        if threading.current_thread() is not threading.main_thread():
            function(*arguments)
        else:
            self._put((function, arguments, [], threading.Lock()))

    def _put(self, job: Any) -> None:
        if self._queue is None or self._process != os.getpid():  # a fork copies no threads
            self._queue, self._process = SimpleQueue(), os.getpid()
            threading.Thread(target=_work, args=(self._queue,), name=THREAD_NAME, daemon=True).start()
        self._queue.put(job)

    def stop(self) -> None:
        """End the thread after the functions that were passed before."""
        if self._queue is not None and self._process == os.getpid():
            self._queue.put(None)
        self._queue = None

    __del__ = stop


def _work(queue: SimpleQueue[Any]) -> None:
    while (job := queue.get()) is not None:
        function, arguments, outcome, done = job
        try:
            outcome.append((function(*arguments), None))
        except BaseException as error:
            outcome.append((None, error))
        if done.locked():
            done.release()
        del job, function, arguments, outcome, done


__all__ = ["THREAD_NAME", "EngineThread"]

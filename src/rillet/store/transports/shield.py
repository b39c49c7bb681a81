"""EngineThread: runs the parts of a command that an exception from outside could tear, in another thread.

Between any two steps of interpreted code, Python may run a signal handler (in the main thread) or raise an exception
that another thread sent (PyThreadState_SetAsyncExc). In the middle of a command this would leave a structure half
changed, or memory different from the log; and a call of the store in the handler would meet that state. So the thread
that calls hands such commands to this thread and waits.

    caller           execute ── put ── wait ....................... reply
    engine thread                 └─ lock ── command ── log ── done ┘
    signal handler                      execute ── put ── wait ── reply     runs after the command, with its own session

An interrupted caller stops waiting, and the command still completes. The hand-over takes about 20 microseconds.

A steady command needs no hand-over (`steady_names`): in the compiled build, those of streams and strings. Python looks
for signals and exceptions only in interpreted code, and these commands call none after their first change. What they
call in the frontend of a waiting client is called again if it was interrupted (Blocking.wake).
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, TypeVar

from rillet import commands
from rillet.runtime.registry import TABLE
from rillet.store.transports.lock import COMPILED_STEPS

Result = TypeVar("Result")
THREAD_NAME = "rillet-engine"
_names: set[bytes] = set()  # of the steady commands, in upper and lower case; empty until the first call


def steady_names() -> set[bytes]:
    """Return the names of the commands that nothing can interrupt, in upper and in lower case."""
    if COMPILED_STEPS and not _names:
        commands.load()
        for name, entry in TABLE.by_name.items():
            if entry.subcommands is None and type(entry.handler).__name__ == "cython_function_or_method":
                _names.update((name, name.upper()))
    return _names


class EngineThread:
    """A thread that runs the functions that other threads pass to it, in order."""

    def __init__(self) -> None:
        self._queues: dict[int, SimpleQueue[Any]] = {}  # process -> its queue: a fork copies no threads

    def run(self, function: Callable[..., Result], *arguments: Any) -> Result:
        """Run a function in the thread and return its result, or raise its exception."""
        if threading.current_thread().name == THREAD_NAME:  # the garbage collector ran a finalizer in such a thread
            return function(*arguments)
        done = threading.Lock()
        done.acquire()
        outcome: list[Any] = []
        self._queue().put((function, arguments, outcome, done))
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
        self._queue().put((function, arguments, [], threading.Lock()))

    def _queue(self) -> SimpleQueue[Any]:
        process = os.getpid()
        queue = self._queues.get(process)
        if queue is None:
            # The thread starts first: if this caller is interrupted, no queue is left without a thread.
            fresh: SimpleQueue[Any] = SimpleQueue()
            threading.Thread(target=_work, args=(fresh,), name=THREAD_NAME, daemon=True).start()
            queue = self._queues.setdefault(process, fresh)
            if queue is not fresh:  # another caller was faster
                fresh.put(None)
        return queue

    def stop(self) -> None:
        """End the thread after the functions that were passed before."""
        queue = self._queues.pop(os.getpid(), None)
        if queue is not None:
            queue.put(None)

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


__all__ = ["THREAD_NAME", "EngineThread", "steady_names"]

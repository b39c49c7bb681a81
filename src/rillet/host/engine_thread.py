"""EngineThread: runs the parts of a command that an exception from outside could tear, in another thread.

Between any two steps of interpreted code, Python may run a signal handler (in the main thread) or raise an exception
that another thread sent (PyThreadState_SetAsyncExc). In the middle of a command this would leave a structure half
changed, or memory different from the log; and a call of the store in the handler would meet that state. So the thread
that calls hands such commands to this thread and waits.

    caller           execute ── put ── wait ....................... reply
    engine thread                 └─ lock ── command ── log ── done ┘
    signal handler                      execute ── put ── wait ── reply     runs after the command, with its own session

An interrupted caller stops waiting, and the command still completes. The hand-over takes about 20 microseconds. While
Python ends, no thread can start and no signal handler runs; finalizers then run their commands themselves.

A steady command needs no hand-over (`steady_names`): in the compiled build, the commands of streams, strings, lists,
sets, hashes, sorted sets and keys. Python looks for signals and exceptions only in interpreted code and in arithmetic
with long integers, and these commands have none after their first change. A transaction of steady commands is steady
too. What they call in the frontend of a waiting
client is called again if it was interrupted (Blocking.wake).
"""

from __future__ import annotations

import _thread
import os
import sys
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue
from typing import Any, TypeVar
from weakref import ReferenceType, ref

from rillet.host.engine_lock import COMPILED_STEPS
from rillet.runtime.registry import TABLE, Command

Result = TypeVar("Result")
START_SECONDS = 1.0  # after this time, a thread that has not begun is given up
_engine_threads: set[int] = set()  # the identifiers of this process's engine threads
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_engine_threads.clear)
RUNS_OTHERS = {b"exec"}  # steady only as a part of a batch that contains the whole transaction
CALL_THE_HOST = {b"flushall"}  # saves the empty file of a server with save points after the change, in interpreted code
_names: set[bytes] = set()  # of the steady commands that were used before, in upper and lower case


def steady_names() -> set[bytes]:
    """Return the names of the commands that nothing can interrupt, in upper and lower case: a set that grows.

    The first call of a command imports its module, so the engine's thread runs it.
    """
    return _names


def _add_if_steady(entry: Command) -> None:
    name = entry.name.encode()
    code: Any = getattr(entry.handler, "func", entry.handler)  # a class may be in a partial
    compiled = type(getattr(code, "run", code)).__name__ == "cython_function_or_method"
    if compiled and entry.subcommands is None and name not in CALL_THE_HOST | RUNS_OTHERS:
        _names.update((name, name.upper()))


if COMPILED_STEPS:
    TABLE.watch(_add_if_steady)


class EngineThread:
    """A thread that runs the functions that other threads pass to it, in order."""

    def __init__(self) -> None:
        self._queues: dict[int, SimpleQueue[Any]] = {}  # process -> its queue: a fork copies no threads

    def run(self, function: Callable[..., Result], *arguments: Any) -> Result:
        """Run a function in the thread and return its result, or raise its exception."""
        # The garbage collector may run a finalizer in such a thread.
        if _thread.get_ident() in _engine_threads or sys.is_finalizing():
            return function(*arguments)
        done = _thread.allocate_lock()
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
        if sys.is_finalizing():
            function(*arguments)
            return
        self._queue().put((function, arguments, [], _thread.allocate_lock()))

    def when_freed(self, owner: Any, function: Callable[..., Any], *arguments: Any) -> ReferenceType[Any]:
        """Return a weak reference, while which exists the thread runs a function as soon as `owner` is freed.

        The reference calls C code only: Python drops exceptions from outside that come in a finalizer.
        """
        return ref(owner, partial(self._queue().put, (function, arguments, [], _thread.allocate_lock())))

    def _queue(self) -> SimpleQueue[Any]:
        """Return the queue of this process's thread; start the thread first if it does not run.

        The thread itself enters its queue, so an interrupted caller leaves no queue without a thread. In CPython 3.11,
        an exception that is sent to the caller at this moment may reach the new thread instead, and end it before it
        has begun. `threading.Thread.start` would then wait forever; this function starts another thread.
        """
        process = os.getpid()
        while (queue := self._queues.get(process)) is None:
            running = _thread.allocate_lock()
            running.acquire()
            _thread.start_new_thread(_work, (self._queues, process, running))
            running.acquire(timeout=START_SECONDS)
        return queue

    def stop(self) -> None:
        """End the thread after the functions that were passed before."""
        queue = self._queues.pop(os.getpid(), None)
        if queue is not None:
            queue.put(None)

    def __del__(self) -> None:
        # An interrupt may have ended __init__, and the end of Python clears modules.
        if hasattr(self, "_queues") and os is not None:
            self.stop()


def completed(function: Callable[..., Result], *arguments: Any) -> Result:
    """Run a function in a new thread and return its result; an interrupt ends only the wait of the caller.

    For Python code that waits and has locks, such as that of `threading` and `concurrent.futures`: an exception from
    outside could leave the locks held.
    """
    thread = EngineThread()
    try:
        return thread.run(function, *arguments)
    finally:
        thread.stop()


def _work(queues: dict[int, SimpleQueue[Any]], process: int, running: Any) -> None:
    """Run what comes through the queue, until None comes. End at once if another thread was faster."""
    own: SimpleQueue[Any] = SimpleQueue()
    queue = queues.setdefault(process, own)
    running.release()
    if queue is not own:
        return
    del queues
    ident = _thread.get_ident()
    _engine_threads.add(ident)
    while (job := own.get()) is not None:
        function, arguments, outcome, done = job
        try:
            outcome.append((function(*arguments), None))
        except BaseException as error:
            outcome.append((None, error))
        if done.locked():
            done.release()
        del job, function, arguments, outcome, done
    _engine_threads.discard(ident)

"""The lock around an engine: reentrant, fair, and safe to interrupt.

A signal handler runs between two steps of Python, and so does an exception that another thread raises in this one. A
lock written in Python could be interrupted after it was acquired and before the `with` statement knows about it; the
process would then hang. So the steps of this class are compiled: an interrupt takes effect before the lock is acquired
or inside the `with` block, which releases the lock.

The end of Python stops all threads but one wherever they are. A finalizer that needs a lock of such a thread raises
RuntimeError instead of waiting forever.

The interpreted build uses Python's own reentrant lock, which is as safe, but neither fair nor aware of the end.
"""

from __future__ import annotations

import sys
import threading
from typing import Any

from rillet._cython import cython

COMPILED_STEPS = bool(cython.compiled)
"""Whether the steps of this class and of the common commands are compiled, so that nothing can interrupt them."""


@cython.final
@cython.cclass
class FairLock:
    """A reentrant lock that is granted in the order of the requests.

    A plain lock is free only for a moment between two commands of a busy thread, too short for a thread that must be
    woken first: attached clients would wait for tens of milliseconds while the owner's process adds in a loop. Here,
    the next thread in turn holds a turnstile lock, and the busy thread queues behind it. While no thread waits,
    entering takes one call of the plain lock.

    Python runs signal handlers also while a thread waits for a lock. The turnstile is reentrant, so that a handler of
    the next thread in turn can acquire the lock.
    """

    _lock: Any
    _acquire: Any
    _release: Any
    _owned: Any
    _enter: Any
    _leave: Any
    _next: Any
    _waiting: cython.int
    _depth: cython.int

    def __init__(self) -> None:
        lock, turnstile = threading.RLock(), threading.RLock()
        self._lock = lock
        self._acquire, self._release = lock.acquire, lock.release
        self._owned = lock._is_owned  # type: ignore[attr-defined]
        self._enter, self._leave = turnstile.acquire, turnstile.release
        self._next = turnstile._is_owned  # type: ignore[attr-defined]
        self._waiting = 0  # threads in `_queue`
        self._depth = 0  # how often the owner has entered; only the owner changes it

    def __enter__(self) -> bool:
        """Acquire the lock; return False if this thread held it before."""
        if self._waiting or not self._acquire(False):
            self._queue()
        self._depth += 1
        return self._depth == 1

    @cython.cfunc
    def _queue(self) -> cython.bint:
        """Wait behind the threads that came before, unless this thread holds the lock."""
        if self._owned():
            self._acquire()
            return True
        if sys.is_finalizing():
            raise RuntimeError("Python is ending, and a thread that no longer runs holds the store")
        self._waiting += 1
        try:
            self._enter()
            try:
                self._acquire()
            finally:
                self._leave()
        finally:
            self._waiting -= 1
        return True

    def __exit__(self, *_: object) -> None:
        self._depth -= 1
        try:
            self._release()
        except RuntimeError:  # this thread does not hold the lock
            self._depth += 1
            raise

    def _is_owned(self) -> bool:
        """Return whether the calling thread holds the lock."""
        return bool(self._owned())

    def _has_turn(self) -> bool:
        """Return whether the calling thread is the next to get the lock: it waits, and a signal handler runs."""
        return bool(self._next())


def has_turn(lock: Any) -> bool:
    """Return whether the calling thread waits for an engine's lock, and no other thread can have it before."""
    return type(lock) is FairLock and lock._has_turn()


def engine_lock() -> Any:
    """Return a new lock for an engine: a FairLock in the compiled build, else a threading.RLock."""
    return FairLock() if cython.compiled else threading.RLock()


__all__ = ["COMPILED_STEPS", "FairLock", "engine_lock", "has_turn"]

"""The lock around an engine: reentrant, fair, and safe to interrupt.

A signal handler runs between two steps of Python, and so does an exception that another thread raises in this one. A
lock written in Python could be interrupted after it was acquired and before the `with` statement knows about it; the
process would then hang. So the steps of this class are compiled: an interrupt takes effect before the lock is acquired
or inside the `with` block, which releases the lock.

The interpreted build uses Python's own reentrant lock, which is as safe, but not fair.
"""

from __future__ import annotations

import threading
from typing import Any

try:
    import cython
except ModuleNotFoundError:  # Cython is not installed: run interpreted
    from rillet import _cython as cython


COMPILED_STEPS = bool(cython.compiled)
"""Whether the steps of this class and of the common commands are compiled, so that nothing can interrupt them."""


@cython.final
@cython.cclass
class FairLock:
    """A reentrant lock that is granted in the order of the requests.

    A plain lock is free only for a moment between two commands of a busy thread, too short for a thread that must be
    woken first: attached clients would wait for tens of milliseconds while the owner's process adds in a loop. Here,
    waiting threads hold a turnstile lock, and the busy thread queues behind them.
    """

    _lock: Any
    _acquire: Any
    _release: Any
    _owned: Any
    _enter: Any
    _leave: Any

    def __init__(self) -> None:
        lock, turnstile = threading.RLock(), threading.Lock()
        self._lock = lock
        self._acquire, self._release = lock.acquire, lock.release
        self._owned = lock._is_owned  # type: ignore[attr-defined]
        self._enter, self._leave = turnstile.acquire, turnstile.release

    def __enter__(self) -> bool:
        """Acquire the lock; return False if this thread held it before."""
        if self._owned():
            self._acquire()
            return False
        self._enter()
        try:
            self._acquire()
        finally:
            self._leave()
        return True

    def __exit__(self, *_: object) -> None:
        self._release()

    def _is_owned(self) -> bool:
        """Return whether the calling thread holds the lock."""
        return bool(self._owned())


def engine_lock() -> Any:
    """Return a new lock for an engine: a FairLock in the compiled build, else a threading.RLock."""
    return FairLock() if cython.compiled else threading.RLock()


__all__ = ["COMPILED_STEPS", "FairLock", "engine_lock"]

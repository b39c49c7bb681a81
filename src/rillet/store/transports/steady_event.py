"""SteadyEvent: an event that an exception from outside cannot break.

A signal handler that raises, or another thread (PyThreadState_SetAsyncExc), may interrupt Python code between any two
steps. `threading.Event` and `threading.Condition` are Python code around a lock: an exception between the lock's
acquisition and the block that releases it leaves the lock held, and the next thread that sets the event, or waits for
it, waits forever. So does a signal handler that sets an event in the middle of the same thread's `set`.

A SteadyEvent has no lock. Each waiting thread sleeps on a lock of the interpreter that no other thread acquires, and
`set` releases these locks. A lock of the interpreter is safe in a `with` statement as well: Python raises exceptions
from outside either before the acquisition or inside the block.

    waiting thread    register lock ── is it set? ── sleep on the lock ── deregister
    set               flag = True ── release the locks that are registered
"""

from __future__ import annotations

from _thread import TIMEOUT_MAX, allocate_lock


class SteadyEvent:
    """A flag that threads wait for, as threading.Event."""

    __slots__ = ("_flag", "_sleepers")

    def __init__(self) -> None:
        self._flag = False
        self._sleepers: list[object] = []

    def is_set(self) -> bool:
        """Return whether the event is set."""
        return self._flag

    def set(self) -> None:
        """Set the event and wake the threads that wait for it."""
        self._flag = True
        try:
            self._wake()
        except BaseException:
            self._wake()  # an interrupt, perhaps before the last thread was woken
            raise

    def _wake(self) -> None:
        for sleeper in self._sleepers.copy():
            try:
                sleeper.release()  # type: ignore[attr-defined]
            except RuntimeError:
                pass  # another thread has woken it

    def clear(self) -> None:
        """Reset the event."""
        self._flag = False

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the event is set, at most `timeout` seconds of real time; return whether it is set."""
        if self._flag:
            return True
        sleeper = allocate_lock()
        sleeper.acquire()
        self._sleepers.append(sleeper)
        try:
            if not self._flag:  # it may have been set before this thread registered
                sleeper.acquire(timeout=-1 if timeout is None else min(max(timeout, 0.0), TIMEOUT_MAX))
            return self._flag
        finally:
            self._sleepers.remove(sleeper)  # an interrupt here leaves a lock that nothing waits for

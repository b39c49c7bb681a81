"""The lock around an engine: reentrant, fair, and safe to interrupt.

A signal handler runs between two steps of Python, and so does an exception that another thread raises in this one. A
lock written in Python could be interrupted after it was acquired and before the `with` statement knows about it; the
process would then hang. So the steps of this class are compiled: an interrupt takes effect before the lock is acquired
or inside the `with` block, which releases the lock.

The lock is a few numbers, which a thread reads and changes while it holds Python's global lock. Only a thread that must
wait uses a lock of the system: its own, on which it sleeps.

    owner, depth      the thread that holds the lock, and how often it has entered
    first ─► waiter ─► waiter     the threads behind it, in their order; the last `leave` of the owner makes the first
                                  of them the owner, and then wakes it

No step between two of these changes creates an object: the garbage collector could run a finalizer there, which may
need the lock.

The end of Python stops all threads but one wherever they are. A finalizer that needs a lock of such a thread raises
RuntimeError instead of waiting forever.

The interpreted build uses Python's own reentrant lock, which is as safe, but neither fair nor aware of the end.
"""

from __future__ import annotations

import sys
import threading
from _thread import allocate_lock, get_ident
from typing import Any

from rillet._cython import cython

if cython.compiled:
    from cython.cimports.cpython.pythread import PyThread_get_thread_ident  # type: ignore[import-not-found, unused-ignore]

COMPILED_STEPS = bool(cython.compiled)
"""Whether the steps of this class and of the common commands are compiled, so that nothing can interrupt them."""


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def this_thread() -> cython.ulong:
    """Return the identifier of the calling thread, which is never 0."""
    if cython.compiled:
        return PyThread_get_thread_ident()  # type: ignore[no-any-return, unused-ignore]
    return get_ident()


@cython.final
@cython.cclass
class _Waiter:
    """A thread that waits for the lock. sleep, wake: acquire and release the lock on which it sleeps."""

    __slots__ = ("after", "granted", "sleep", "thread", "wake")
    thread: cython.ulong
    after: _Waiter | None
    granted: cython.bint
    sleep: Any
    wake: Any

    def __init__(self) -> None:
        gate = allocate_lock()
        gate.acquire()
        self.thread = this_thread()
        self.after = None
        self.granted = False
        self.sleep, self.wake = gate.acquire, gate.release


@cython.final
@cython.cclass
class FairLock:
    """A reentrant lock that is granted in the order of the requests.

    A plain lock is free only for a moment between two commands of a busy thread, too short for a thread that must be
    woken first: attached clients would wait for tens of milliseconds while the owner's process adds in a loop. Here
    the busy thread gives the lock to the first one that waits, and queues behind it.

    Python runs signal handlers also while a thread waits for a lock. What a handler of a waiting thread acquires, it
    gets together with its thread.
    """

    __slots__ = ("_depth", "_first", "_owner")
    _owner: cython.ulong
    _depth: cython.int
    _first: _Waiter | None

    def __init__(self) -> None:
        self._owner = 0  # the identifier of a thread, 0 if the lock is free
        self._depth = 0
        self._first = None

    def __enter__(self) -> bool:
        """Acquire the lock; return False if this thread held it before."""
        return self.enter() == 1

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def enter(self) -> cython.int:
        """Acquire the lock; return how often this thread holds it now."""
        thread: cython.ulong = this_thread()
        if self._owner == 0:
            self._owner = thread
        elif self._owner != thread:
            return self._queue()
        self._depth += 1
        return self._depth

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _queue(self) -> cython.int:
        """Wait behind the threads that came before."""
        if sys.is_finalizing():
            raise RuntimeError("Python is ending, and a thread that no longer runs holds the store")
        waiter: _Waiter = _Waiter()  # first: another thread may run while memory is allocated
        if self._owner == 0:
            return self.enter()
        last: _Waiter | None = self._first
        if last is None:
            self._first = waiter
        else:
            while last.after is not None:
                last = last.after
            last.after = waiter
        try:
            waiter.sleep()
        except BaseException:  # a signal handler has raised it
            if waiter.granted:
                self.leave()
            else:
                self._unlink(waiter)
            raise
        return self._depth

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def leave(self) -> cython.int:
        """Undo one `enter`; at the last one, give the lock to the first thread that waits. RuntimeError if not held."""
        if self._owner != this_thread():
            raise RuntimeError("this thread does not hold the lock")
        self._depth -= 1
        if self._depth == 0:
            self._owner = 0
            if self._first is not None and not sys.is_finalizing():  # then no other thread runs any more
                self._give(self._first.thread)
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _give(self, thread: cython.ulong) -> cython.int:
        """Make a thread the owner, as often as it waits: in its call, and in signal handlers that interrupted it."""
        waiter: _Waiter | None = self._first
        self._owner = thread
        while waiter is not None:
            if waiter.thread == thread:
                self._unlink(waiter)
                self._depth += 1
                waiter.granted = True
                waiter.wake()
            waiter = waiter.after
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _unlink(self, waiter: _Waiter) -> cython.int:
        """Take a waiter out of the line."""
        before: _Waiter | None = self._first
        if before is waiter:
            self._first = waiter.after
            return 0
        while before is not None and before.after is not waiter:
            before = before.after
        if before is not None:
            before.after = waiter.after
        return 0

    def __exit__(self, *_: object) -> None:
        self.leave()

    def _is_owned(self) -> bool:
        """Return whether the calling thread holds the lock."""
        return self._owner == this_thread()

    def _is_waiting(self) -> bool:
        """Return whether the calling thread waits for the lock: it does, and a signal handler runs."""
        thread: cython.ulong = this_thread()
        waiter: _Waiter | None = self._first
        while waiter is not None and waiter.thread != thread:
            waiter = waiter.after
        return waiter is not None


def is_waiting(lock: Any) -> bool:
    """Return whether the calling thread waits for an engine's lock, and a signal handler has interrupted it."""
    return type(lock) is FairLock and lock._is_waiting()


def engine_lock() -> Any:
    """Return a new lock for an engine: a FairLock in the compiled build, else a threading.RLock."""
    return FairLock() if cython.compiled else threading.RLock()

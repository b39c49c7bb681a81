"""TimerThread: a thread that calls functions when they are due, by the real time, which no test stops.

    later ── new ──► thread: heap, sleeps by real time ──► the function

The thread starts with the first timer and ends when none is left. A new timer wakes the thread only if the timer is due
before the thread would wake. A cancelled timer loses its function and stays in the heap; the thread removes cancelled
timers once they are the larger part.

No Python lock is involved: an exception from outside (^C) may arrive in the middle of `later`, and must not leave a
lock held. A list, a lock of the interpreter as the thread's alarm, and the order of the steps are enough. A caller in
the middle of a command, where no signal handler may run, uses `starter`, which is a function in C.

Costs: O(log n) for each timer, in the thread.
"""

from __future__ import annotations

import contextlib
import threading
from _thread import allocate_lock, get_ident, start_new_thread
from collections import deque
from collections.abc import Callable
from functools import partial
from heapq import heapify, heappop, heappush
from itertools import count
from math import inf

from rillet.loggers import logger
from rillet.real_time import monotonic

LOGGER = logger("store")
MANY = 1024  # timers that may wait for the thread, or that the heap may hold, before the cancelled ones are removed
_numbers = count()


class Timer:
    """A function that is called when it is due; `due` in seconds of `monotonic`."""

    __slots__ = ("_number", "due", "function")

    def __init__(self, seconds: float, function: Callable[[], object]) -> None:
        self.due = monotonic() + seconds
        self.function: Callable[[], object] | None = function
        self._number = next(_numbers)

    def __lt__(self, other: Timer) -> bool:
        return (self.due, self._number) < (other.due, other._number)

    @property
    def cancelled(self) -> bool:
        """Whether the function is not needed any more."""
        return self.function is None

    def cancel(self) -> None:
        """Forget the function."""
        self.function = None

    def fire(self) -> None:
        """Call the function; in the thread of the timers."""
        if self.function is not None:
            self.function()


class TimerThread:
    """Timers, and the thread that calls their functions, one after the other.

    failed: called after a function raised an exception, which is logged with the text `failure`. runs: whether there is
    a thread.
    """

    def __init__(self, failure: str = "a function failed", failed: Callable[[], object] | None = None) -> None:
        self._failure = failure
        self._failed = failed
        self._new: deque[Timer] = deque()
        self._heap: list[Timer] = []  # of the thread alone
        self._most = MANY
        self._turn = allocate_lock()  # held by the thread: a second one that was started ends at once
        self._alarm = allocate_lock()
        self._alarm.acquire()
        self._wakes_at = inf  # when the thread wakes by itself; `inf` while it is awake
        self._ident = 0
        self.ended = False
        self.runs = False

    def later(self, seconds: float, function: Callable[[], object]) -> Timer:
        """Call a function after a time; any thread may call this."""
        timer = Timer(seconds, function)
        self.add(timer)
        return timer

    def add(self, timer: Timer) -> None:
        """Set a timer; RuntimeError if no thread can be started. After `end`, do nothing."""
        if self.ended:
            return
        self._new.append(timer)
        if not self.runs:
            start_new_thread(self._run, ())
        # The thread sets `_wakes_at` before it looks for new timers the last time: either it finds this one, or the
        # time is the one at which it wakes.
        elif (timer.due < self._wakes_at or len(self._new) > MANY) and get_ident() != self._ident:
            self._wake()

    def starter(self, function: Callable[[], object]) -> Callable[[], object]:
        """Return a function in C that lets the thread call `function` soon; it raises RuntimeError without a thread."""
        return partial(start_new_thread, self._run, (function,))

    def end(self) -> None:
        """Call no more functions, and end after the current one; any thread may call this."""
        self.ended = True
        self._wake()

    def join(self) -> None:
        """Wait for the end of the thread."""
        with self._turn:
            pass

    def is_this_thread(self) -> bool:
        """Return whether the caller runs in the thread."""
        return self.runs and get_ident() == self._ident

    def _wake(self) -> None:
        with contextlib.suppress(RuntimeError):  # the alarm was given already
            self._alarm.release()

    def _sleep(self, seconds: float) -> None:
        """Wait for the alarm, or for a time; `inf`: without a limit."""
        self._alarm.acquire(timeout=-1 if seconds == inf else min(seconds, threading.TIMEOUT_MAX))

    def _rests(self) -> bool:
        """Return whether the thread ends while there is no timer."""
        return True

    def _run(self, function: Callable[[], object] | None = None) -> None:
        if function is not None:
            self._new.append(Timer(0, function))
            self._wake()
        # After the end of `_work`, a thread whose start found the turn taken may have left a timer.
        first = True
        while (first or (self._new and not self.ended)) and self._turn.acquire(blocking=False):
            first = False
            self._ident, self.runs = get_ident(), True
            try:
                self._work()
            finally:
                self.runs = False
                self._turn.release()

    def _work(self) -> None:
        while not self.ended:
            self._wakes_at = inf
            self._take_new()
            now = monotonic()
            while self._heap and self._heap[0].due <= now and not self.ended:
                try:
                    heappop(self._heap).fire()
                except Exception:
                    LOGGER.exception(self._failure)
                    if self._failed is not None:
                        self._failed()
            while self._heap and self._heap[0].cancelled:
                heappop(self._heap)
            wakes_at = self._heap[0].due if self._heap else inf
            if wakes_at == inf and not self._new and self._rests():
                return
            self._wakes_at = wakes_at
            if not self._new:
                self._sleep(max(wakes_at - monotonic(), 0.0))

    def _take_new(self) -> None:
        while self._new:
            timer = self._new.popleft()
            if not timer.cancelled:
                heappush(self._heap, timer)
        if len(self._heap) > self._most:
            self._heap = [timer for timer in self._heap if not timer.cancelled]
            heapify(self._heap)
            self._most = max(2 * len(self._heap), MANY)

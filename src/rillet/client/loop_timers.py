"""Timers by real time, for tasks in the application's event loop.

An event loop of asyncio reads its clock from `time.monotonic`. A test that freezes Python's clocks stops it: then
`loop.call_later`, `asyncio.sleep` and `asyncio.timeout` never end, or all of them end at once. So a wait of the store
uses these functions. One thread of the process sleeps until the next timer is due, and calls the loop of that timer.

    call_later ── new ──► thread: heap, sleeps by real time ── call_soon_threadsafe ──► loop: function

A new timer wakes the thread only if the timer is due before the thread would wake. A cancelled timer loses its function
and its loop, and stays in the heap; the thread removes cancelled timers once they are the larger part.

No Python lock is involved: an exception from outside (^C) may arrive in the middle of `call_later`, and must not leave
a lock held. A list, a lock of the interpreter as the thread's alarm, and the order of the steps are enough.

Costs: O(log n) for each timer, in the thread. `call_later` costs about as much as the loop's own.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from _thread import allocate_lock, start_new_thread
from collections import deque
from collections.abc import AsyncIterator, Callable
from heapq import heapify, heappop, heappush
from itertools import count
from math import inf
from typing import Any

from rillet.real_time import monotonic

_MANY = 1024  # timers that may wait for the thread, or that the heap may hold, before the cancelled ones are removed
# A loop that was busy reads what arrived in its next turn, after the calls that wait. So a limit of time that was
# reached meanwhile is looked at after that, as by the loop's own timers.
_TURNS = 2


class LoopTimer:
    """A function that a loop calls when it is due; `due` in seconds of `monotonic`."""

    __slots__ = ("_function", "_loop", "_number", "due")

    def __init__(self, loop: asyncio.AbstractEventLoop, due: float, number: int,
                 function: Callable[[], object]) -> None:  # fmt: skip
        self._loop: asyncio.AbstractEventLoop | None = loop
        self.due = due
        self._number = number
        self._function: Callable[[], object] | None = function

    def __lt__(self, other: LoopTimer) -> bool:
        return (self.due, self._number) < (other.due, other._number)

    @property
    def cancelled(self) -> bool:
        """True if the function was called or is not needed any more."""
        return self._function is None

    def cancel(self) -> None:
        """Forget the function and the loop. In the thread of the loop: the function is not called after this."""
        self._function = self._loop = None

    def fire(self) -> None:
        """Let the loop call the function soon; called by the thread of the timers."""
        loop = self._loop
        if loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop was closed
                loop.call_soon_threadsafe(self._call, _TURNS)

    def _call(self, turns: int) -> None:
        """Call the function after a number of turns of the loop."""
        function, loop = self._function, self._loop
        if function is None or loop is None:
            return
        if turns:
            loop.call_soon(self._call, turns - 1)
            return
        self.cancel()
        function()


class _Timers:
    """The timers of this process, and the thread that sleeps until they are due."""

    def __init__(self) -> None:
        self._new: deque[LoopTimer] = deque()
        self._heap: list[LoopTimer] = []  # of the thread alone
        self._most = _MANY
        self._numbers = count()
        self._alarm = allocate_lock()
        self._alarm.acquire()
        self._turn = allocate_lock()  # held by the thread: a second one that was started ends at once
        self._wakes_at = inf  # when the thread wakes by itself; `inf` while it is awake
        self._runs = False

    def add(self, loop: asyncio.AbstractEventLoop, seconds: float, function: Callable[[], object]) -> LoopTimer:
        """Set a timer."""
        timer = LoopTimer(loop, monotonic() + seconds, next(self._numbers), function)
        self._new.append(timer)
        if not self._runs:
            start_new_thread(self._run, ())
        # The thread sets `_wakes_at` before it looks for new timers the last time: either it finds this one, or the
        # time is the one at which it wakes.
        if timer.due < self._wakes_at or len(self._new) > _MANY:
            with contextlib.suppress(RuntimeError):  # the alarm was given already
                self._alarm.release()
        return timer

    def _run(self) -> None:
        if not self._turn.acquire(blocking=False):
            return
        self._runs = True
        while True:
            self._wakes_at = inf
            self._take_new()
            now = monotonic()
            while self._heap and self._heap[0].due <= now:
                heappop(self._heap).fire()
            wakes_at = self._heap[0].due if self._heap else inf
            self._wakes_at = wakes_at
            if not self._new:
                seconds = max(wakes_at - monotonic(), 0.0)
                self._alarm.acquire(timeout=-1 if wakes_at == inf else min(seconds, threading.TIMEOUT_MAX))

    def _take_new(self) -> None:
        while self._new:
            timer = self._new.popleft()
            if not timer.cancelled:
                heappush(self._heap, timer)
        if len(self._heap) > self._most:
            self._heap = [timer for timer in self._heap if not timer.cancelled]
            heapify(self._heap)
            self._most = max(2 * len(self._heap), _MANY)


_timers = _Timers()


def _begin_again() -> None:
    """In a forked child, which has neither the thread nor the loops."""
    global _timers
    _timers = _Timers()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_again)


def call_later(loop: asyncio.AbstractEventLoop, seconds: float, function: Callable[[], object]) -> LoopTimer:
    """Let a loop call a function after a time; in the thread of the loop."""
    return _timers.add(loop, seconds, function)


async def sleep(seconds: float) -> None:
    """Suspend the task for a time."""
    loop = asyncio.get_running_loop()
    over: asyncio.Future[None] = loop.create_future()

    def end() -> None:
        if not over.done():
            over.set_result(None)

    timer = call_later(loop, seconds, end)
    try:
        await over
    finally:
        timer.cancel()


@contextlib.asynccontextmanager
async def time_limit(seconds: float | None) -> AsyncIterator[None]:
    """Raise TimeoutError if the block takes longer, as asyncio.timeout does; None: no limit."""
    async with asyncio.timeout(None) as limit:
        timer = None if seconds is None else call_later(
            asyncio.get_running_loop(), seconds, lambda: limit.reschedule(-inf)
        )  # fmt: skip
        try:
            yield
        finally:
            if timer is not None:
                timer.cancel()


async def within(seconds: float, task: asyncio.Future[Any]) -> None:
    """Wait until a task or future is done, or for a time; raise nothing, and do not cancel it."""
    with contextlib.suppress(TimeoutError):
        async with time_limit(seconds):
            await asyncio.wait([task])


__all__ = ["LoopTimer", "call_later", "sleep", "time_limit", "within"]

"""Timers by real time, for tasks in the application's event loop.

An event loop of asyncio reads its clock from `time.monotonic`. A test that freezes Python's clocks stops it: then
`loop.call_later`, `asyncio.sleep` and `asyncio.timeout` never end, or all of them end at once. So a wait of the store
uses these functions. One thread of the process sleeps until the next timer is due, and calls the loop of that timer.

    call_later ── new ──► thread: heap, sleeps by real time ── call_soon_threadsafe ──► loop: function

A cancelled timer loses its function and its loop. Costs: O(log n) for each timer, in the thread (rillet.timer_thread).
`call_later` costs about as much as the loop's own.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable
from math import inf
from types import TracebackType
from typing import Any

from rillet.timer_thread import Timer, TimerThread

# A loop that was busy reads what arrived in its next turn, after the calls that wait. So a limit of time that was
# reached meanwhile is looked at after that, as by the loop's own timers.
_TURNS = 2


class LoopTimer(Timer):
    """A function that a loop calls when it is due; `due` in seconds of `monotonic`."""

    __slots__ = ("_loop",)

    def __init__(self, loop: asyncio.AbstractEventLoop, seconds: float, function: Callable[[], object]) -> None:
        super().__init__(seconds, function)
        self._loop: asyncio.AbstractEventLoop | None = loop

    def cancel(self) -> None:
        """Forget the function and the loop. In the thread of the loop: the function is not called after this."""
        self.function = self._loop = None

    def fire(self) -> None:
        """Let the loop call the function soon; called by the thread of the timers."""
        loop = self._loop
        if loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop was closed
                loop.call_soon_threadsafe(self._call, _TURNS)

    def _call(self, turns: int) -> None:
        """Call the function after a number of turns of the loop."""
        function, loop = self.function, self._loop
        if function is None or loop is None:
            return
        if turns:
            loop.call_soon(self._call, turns - 1)
            return
        self.cancel()
        function()


class _Timers(TimerThread):
    """The timers of this process. Their thread stays: the next wait follows soon."""

    def _rests(self) -> bool:
        return False


_timers = _Timers()


def _begin_again() -> None:
    """In a forked child, which has neither the thread nor the loops."""
    global _timers
    _timers = _Timers()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_again)


def call_later(loop: asyncio.AbstractEventLoop, seconds: float, function: Callable[[], object]) -> LoopTimer:
    """Let a loop call a function after a time; in the thread of the loop."""
    timer = LoopTimer(loop, seconds, function)
    _timers.add(timer)
    return timer


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


class time_limit:  # named as asyncio.timeout
    """Raise TimeoutError if the block takes longer, as asyncio.timeout does; None: no limit.

    Not a generator: if a coroutine is collected after its loop was closed, its generators may have ended before it.
    """

    def __init__(self, seconds: float | None) -> None:
        self._seconds = seconds
        self._timer: LoopTimer | None = None

    async def __aenter__(self) -> None:
        self._limit = limit = await asyncio.timeout(None).__aenter__()
        if self._seconds is not None:
            self._timer = call_later(asyncio.get_running_loop(), self._seconds, lambda: limit.reschedule(-inf))

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()
        await self._limit.__aexit__(kind, error, trace)


async def within(seconds: float, task: asyncio.Future[Any]) -> None:
    """Wait until a task or future is done, or for a time; raise nothing, and do not cancel it."""
    with contextlib.suppress(TimeoutError):
        async with time_limit(seconds):
            await asyncio.wait([task])

"""TaskWakener: what a task of an event loop waits on until the engine has served its session; see `wakeners`."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable

from rillet.client.loop_timers import call_later
from rillet.runtime.engine import Engine
from rillet.store.transports.wakeners import Wakener


class TaskWakener(Wakener):
    """Wakes a task of an event loop. In the loop's thread this costs one future; from other threads, a system call."""

    __slots__ = ("_loop", "_thread", "_waiting", "_woken")

    def __init__(self, engine: Engine, loop: asyncio.AbstractEventLoop, thread: int) -> None:
        super().__init__(engine)
        self._loop = loop
        self._thread = thread
        self._waiting: asyncio.Future[None] | None = None
        self._woken = False

    def wake(self) -> None:
        """Wake the task."""
        # Without a current task this may be a signal handler that interrupts the loop's sleep: then only a write to the
        # loop's pipe ends the sleep.
        if threading.get_ident() == self._thread and asyncio.current_task(self._loop) is not None:
            self._set()
        else:
            with contextlib.suppress(RuntimeError):  # the event loop was closed
                self._loop.call_soon_threadsafe(self._set)

    def _set(self) -> None:
        self._woken = True
        waiting = self._waiting
        if waiting is not None and not waiting.done():
            waiting.set_result(None)

    async def sleep(self, seconds: float | None) -> None:
        """Suspend the task until the session is woken, or for a number of seconds."""
        if not self._woken:
            self._waiting = self._loop.create_future()
            timer = None if seconds is None else call_later(self._loop, seconds, self._set)
            try:
                await self._waiting
            finally:
                self._waiting = None
                if timer is not None:
                    timer.cancel()
        self._woken = False


def waker(loop: asyncio.AbstractEventLoop, event: asyncio.Event) -> Callable[[], None]:
    """Return a function that sets an asyncio event of the loop and can be called from any thread."""

    def wake() -> None:
        # An event loop that was closed needs no wake-up; call_soon_threadsafe raises RuntimeError.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(event.set)

    return wake

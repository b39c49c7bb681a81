"""Waits of callers until the engine has served their session: `session.on_wake` of a session in this process.

    ThreadWakener     a thread sleeps
    TaskWakener       an asyncio task is suspended
    MessageDelivery   wakes a subscription when messages arrive; closes it if it does not read them

The engine calls a wakener in the thread whose command served the session, with the store's lock held.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable

from rillet.client.loop_timers import call_later
from rillet.runtime.engine import Engine
from rillet.runtime.session import Session


class Wakener(ABC):
    """Wakes a waiting caller when its session has a reply.

    since: the offset of the log before the reply. The session needs it to detect that the log failed after this offset,
    because another client, whose command served the session, may have received the error.
    """

    __slots__ = ("_engine", "since")

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.since: int | None = None

    def __call__(self) -> None:
        self.note()
        self.wake()

    @abstractmethod
    def wake(self) -> None:
        """Wake the caller."""

    def note(self) -> None:
        """Record the current offset of the log. The caller must hold the lock."""
        log = self._engine.log
        if log is not None and log.failure is None:
            self.since = log.position - 1


class ThreadWakener(Wakener):
    """Wakes a thread. It sleeps on a lock of the interpreter, because an interrupt cannot break that lock's state."""

    __slots__ = ("_awake",)

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self._awake = threading.Lock()
        self._awake.acquire()

    def wake(self) -> None:
        """Wake the thread."""
        with contextlib.suppress(RuntimeError):  # it was released already
            self._awake.release()

    def sleep(self, seconds: float | None) -> None:
        """Sleep until the session is woken, or for a number of seconds."""
        self._awake.acquire(timeout=-1 if seconds is None else min(seconds, threading.TIMEOUT_MAX))


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


class MessageDelivery:
    """Delivers messages to a subscription or redis-py connection: wakes it, or closes it if it does not read."""

    __slots__ = ("_above_since", "_engine", "_on_wake", "_session")

    def __init__(self, engine: Engine, session: Session, on_wake: Callable[[], None]) -> None:
        self._engine = engine
        self._session = session
        self._on_wake = on_wake
        self._above_since = 0

    def __call__(self) -> None:
        session = self._session
        limit = self._engine.settings.client_output_buffer_limit.pubsub
        reached, self._above_since = limit.reached(session.out.used, self._above_since, self._engine.clock.now_ms())
        if reached:
            session.closing = True
            session.out.take_bytes()
        self._on_wake()


def waker(loop: asyncio.AbstractEventLoop, event: asyncio.Event) -> Callable[[], None]:
    """Return a function that sets an asyncio event of the loop and can be called from any thread."""

    def wake() -> None:
        # An event loop that was closed needs no wake-up; call_soon_threadsafe raises RuntimeError.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(event.set)

    return wake


__all__ = ["MessageDelivery", "TaskWakener", "ThreadWakener", "Wakener", "waker"]

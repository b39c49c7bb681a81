"""Waits of callers until the engine has served their session: `session.on_wake` of a session in this process.

    ThreadWakener     a thread sleeps
    TaskWakener       an asyncio task is suspended (transports/task_wakeners.py)
    MessageDelivery   wakes a subscription when messages arrive; closes it if it does not read them

The engine calls a wakener in the thread whose command served the session, with the store's lock held.
"""

from __future__ import annotations

import contextlib
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable

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

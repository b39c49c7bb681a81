"""EngineLoop: the event loop of a server, and the lock that is held during each access to its engine.

    call_soon, create_task     the loop's thread
    post, call_later           any thread: the function runs with the guard held, then the log is written

The parts of a server get this object, because it exists before the event loop: what is posted earlier waits for
`begin`.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine
from typing import Any


class EngineLoop:
    """An event loop around an engine. guard: the lock. shared: other threads use the engine, and call `call_soon`.

    wrote: called with the guard held after a function that may have changed data.
    """

    def __init__(self, guard: contextlib.AbstractContextManager[Any] | None, wrote: Callable[[], None],
                 shared: bool = False) -> None:  # fmt: skip
        self.guard = guard or contextlib.nullcontext()
        self.loop: asyncio.AbstractEventLoop
        self.thread = 0  # the identifier of the loop's thread
        self._wrote = wrote
        self._shared = shared
        # Functions that were posted before the loop ran; None once it runs.
        self._early: list[Callable[[], None]] | None = []

    def use(self, loop: asyncio.AbstractEventLoop, thread: int) -> None:
        """Name the event loop and its thread."""
        self.loop, self.thread = loop, thread

    def begin(self) -> None:
        """Schedule what was posted before the loop ran."""
        early, self._early = self._early or [], None
        for function in early:
            function()

    @property
    def runs_here(self) -> bool:
        """Whether the loop runs, and in the caller's thread."""
        return self._early is None and threading.get_ident() == self.thread

    def create_task(self, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run a coroutine; in the loop's thread."""
        return self.loop.create_task(coroutine)

    def call_soon(self, function: Callable[..., object], *arguments: object) -> None:
        """Call a function in the next iteration; from the loop's thread, or from any thread if the engine is shared."""
        if not self._shared:
            self.loop.call_soon(function, *arguments)
            return
        # If the loop has ended, its clients are disconnected, and their messages are dropped.
        with contextlib.suppress(RuntimeError):
            self.loop.call_soon_threadsafe(function, *arguments)

    def post(self, function: Callable[[], object]) -> None:
        """Call a function in a later iteration, while the guard is held; any thread may call this method."""
        if self._early is not None:
            self._early.append(lambda: self.post(function))
            return
        with contextlib.suppress(RuntimeError):  # the event loop has ended
            if threading.get_ident() == self.thread:
                self.loop.call_soon(self._run, function)
            else:
                self.loop.call_soon_threadsafe(self._run, function)

    def call_later(self, seconds: float, function: Callable[[], object]) -> Callable[[], object]:
        """Call a function after a time, while the guard is held; return a function that cancels this."""
        cancelled = False
        handles: list[asyncio.TimerHandle] = []

        def start() -> None:
            if not cancelled:
                handles.append(self.loop.call_later(seconds, self._run, function))

        def cancel() -> None:
            nonlocal cancelled
            cancelled = True
            for handle in handles:
                handle.cancel()

        if self._early is not None:
            self._early.append(start)
        elif threading.get_ident() == self.thread:
            start()
        else:
            with contextlib.suppress(RuntimeError):
                self.loop.call_soon_threadsafe(start)
        return cancel

    def _run(self, function: Callable[[], object]) -> None:
        with self.guard:
            function()
            self._wrote()

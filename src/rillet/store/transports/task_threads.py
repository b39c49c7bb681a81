"""Threads that run functions for the tasks of event loops.

    await in_thread(function, ...)              in an idle thread of this process, or a new one
    await in_thread_of(thread, function, ...)   in a thread that runs one function after another

A signal handler may raise in the loop's thread at any time. A call that this interrupts, or that is cancelled, ends
only its own wait: the function runs to its end, and the thread is then free for other calls.

Rejected: asyncio.to_thread and ThreadPoolExecutor. Their pools and futures have locks of Python code (`threading`),
which such an exception leaves held: every later call of the pool hangs, and so does the end of the loop and of Python.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from functools import partial
from typing import Any, ParamSpec, TypeVar

from rillet.client.loop_timers import sleep
from rillet.host.engine_thread import EngineThread
from rillet.store.transports.task_wakeners import waker

P = ParamSpec("P")
Result = TypeVar("Result")
MOST = 512  # busy threads, about
KEPT = 32  # idle threads; others end
_idle: list[EngineThread] = []
_busy: set[EngineThread] = set()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_busy.clear)


async def in_thread(function: Callable[P, Result], *args: P.args, **kwargs: P.kwargs) -> Result:
    """Run a function in a thread that runs nothing else meanwhile, and return its result."""
    while len(_busy) >= MOST:
        await sleep(0.01)
    try:
        thread = _idle.pop()
    except IndexError:
        thread = EngineThread()
    return await in_thread_of(thread, _then_idle, thread, partial(function, *args, **kwargs))


async def in_thread_of(
    thread: EngineThread, function: Callable[P, Result], *args: P.args, **kwargs: P.kwargs
) -> Result:
    """Run a function in a thread, after those that were passed to it before, and return its result."""
    done = asyncio.Event()
    outcome: list[tuple[Any, BaseException | None]] = []
    wake = waker(asyncio.get_running_loop(), done)
    thread.later(_run, partial(function, *args, **kwargs), outcome, wake)
    await done.wait()
    result, error = outcome.pop()
    if error is not None:
        raise error
    return result  # type: ignore[no-any-return]


def _run(function: Callable[[], Any], outcome: list[tuple[Any, BaseException | None]],
         wake: Callable[[], None]) -> None:  # fmt: skip
    try:
        outcome.append((function(), None))
    except BaseException as error:
        outcome.append((None, error))
    wake()


def _then_idle(thread: EngineThread, function: Callable[[], Result]) -> Result:
    _busy.add(thread)
    try:
        return function()
    finally:
        _busy.discard(thread)
        if len(_idle) < KEPT:
            _idle.append(thread)

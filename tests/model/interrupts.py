"""Exceptions from outside in the middle of a call: at a line, from another thread, from a signal handler.

At most one exception is raised for each call. `sent` is true afterwards if it was raised, also if something in the call
caught it: then the outcome of the call counts as the store reported it.
"""

from __future__ import annotations

import contextlib
import ctypes
import random
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, TypeVar

Result = TypeVar("Result")


class Interrupt(BaseException):
    """The exception that is raised at a moment that the call cannot know."""


class Undisturbed:
    """Makes calls that nothing interrupts."""

    sent = False

    def call(self, function: Callable[[], Result]) -> Result:
        """Make a call."""
        return function()

    def close(self) -> None:
        """Release what the interrupts need."""


class AtPlace(Undisturbed):
    """Raises in the n-th place of a call where Python looks for exceptions from outside, so that every line is reached.

    These places are the beginning of a function and the return from a call of C, in the package and in what it calls:
    PyThreadState_SetAsyncExc and signal handlers raise there. Rejected: to raise at the line itself (sys.settrace). The
    end of a `with` block is a line too, and an exception there would leave the block without a call of __exit__, which
    cannot happen.
    """

    kind: type[BaseException] = Interrupt

    def __init__(self, choose: Callable[[], int]) -> None:
        self._choose = choose
        self._left = 0
        # A bound method that lives as long as this object. CPython 3.11 uses a profile function after it has collected
        # garbage, in which `_look` may have removed itself.
        self._profile = self._look

    def call(self, function: Callable[[], Result]) -> Result:
        """Make a call that is interrupted if it has as many places."""
        self.sent = False
        self._left = self._choose()
        sys.setprofile(self._profile)
        try:
            return function()
        finally:
            sys.setprofile(None)

    def _look(self, frame: FrameType, event: str, argument: Any) -> None:
        # An exception in the import system leaves the interpreter's import lock taken, so other threads hang (CPython).
        file = frame.f_code.co_filename
        if event in ("call", "c_return") and file != __file__ and not file.startswith("<frozen importlib"):
            self._left -= 1
            if self._left == 0:
                sys.setprofile(None)
                self.sent = True
                raise self.kind


class FromThread(Undisturbed):
    """A thread that raises in the calls of other threads, at random moments (PyThreadState_SetAsyncExc)."""

    def __init__(self, source: random.Random) -> None:
        self._thread = threading.get_ident()
        self._source = source
        self._armed = False
        self._over = False
        self._guard = threading.Lock()
        self._sender = threading.Thread(target=self._send, name="interrupts", daemon=True)
        self._sender.start()

    def _send(self) -> None:
        while not self._over:
            time.sleep(self._source.choice((0.00005, 0.0003, 0.001, 0.003)))
            with self._guard:
                if self._armed:
                    self._armed, self.sent = False, True
                    ctypes.pythonapi.PyThreadState_SetAsyncExc(
                        ctypes.c_ulong(self._thread), ctypes.py_object(Interrupt)
                    )

    def call(self, function: Callable[[], Result]) -> Result:
        """Make a call; an exception may come at any moment until this method ends."""
        self.sent = False
        self._armed = True
        try:
            return function()
        finally:
            with self._guard:
                self._armed = False
            limit = time.monotonic() + 0.05
            while self.sent and time.monotonic() < limit:  # it is on its way, unless it came already
                time.sleep(0)

    def close(self) -> None:
        """End the sending thread."""
        self._over = True
        self._sender.join()


class FromHandler(Undisturbed):
    """A timer whose signal handler raises, or makes a call of its own. For the main thread."""

    def __init__(self, source: random.Random, nested: Callable[[], None] | None = None) -> None:
        self._source = source
        self._nested = nested
        self._armed = False
        self._before = signal.signal(signal.SIGALRM, self._handle)

    def _handle(self, *_: object) -> None:
        if self._armed:
            self._armed = False
            if self._nested is not None:
                self._nested()
            else:
                self.sent = True
                raise Interrupt

    def call(self, function: Callable[[], Result]) -> Result:
        """Make a call during which the handler runs, if the call takes as long."""
        self.sent = False
        self._armed = True
        try:
            signal.setitimer(signal.ITIMER_REAL, self._source.choice((0.00002, 0.00005, 0.0001, 0.0003, 0.002)))
            return function()
        finally:
            self._armed = False
            signal.setitimer(signal.ITIMER_REAL, 0)

    def close(self) -> None:
        """Restore the handler."""
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, self._before)


def in_time(call: Callable[[], object], limit: float) -> None:
    """Make a call in another thread; AssertionError if it does not end within `limit` seconds."""
    problems: list[BaseException] = []

    def run() -> None:
        try:
            call()
        except BaseException as error:
            problems.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(limit)
    if thread.is_alive():
        frame = sys._current_frames()[thread.ident or 0]
        raise AssertionError("a call hangs:\n" + "".join(traceback.format_stack(frame)))
    for problem in problems:
        raise problem


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Do not print interrupts that come in a callback of the collector, where Python cannot raise them."""
    before = sys.unraisablehook
    sys.unraisablehook = lambda problem: None if isinstance(problem.exc_value, Interrupt) else before(problem)
    try:
        yield
    finally:
        sys.unraisablehook = before


__all__ = ["AtPlace", "FromHandler", "FromThread", "Interrupt", "Undisturbed", "in_time", "quiet"]

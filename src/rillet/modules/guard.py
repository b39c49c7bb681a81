"""The guard: calls the code of modules, so that an error or an endless loop harms only that call.

    engine ── call(function) ──► the module's function ── returns
                  │                        ▲
                  └─ ticket ──► watchdog ──┘ after `module-time-limit` ms: raises ModuleTimeout in the thread

**Exceptions.** CommandError and Corrupt pass: they are answers. Any other exception is logged with its place, and
becomes a ModuleFailure, an error reply.

**Time.** A thread, the watchdog, holds a ticket for each call. When a ticket's time has passed, it raises ModuleTimeout
in the thread of the call (PyThreadState_SetAsyncExc). Python raises such an exception between two steps of interpreted
code: so a loop in Python ends, but a long call of C code does not, such as `time.sleep`, a hanging socket, or a regular
expression that backtracks. ModuleTimeout is no Exception, so `except Exception` does not stop it; to code that catches
everything it is raised again, ten times a second.

**The engine's own steps.** While a module calls the engine (`uninterrupted`), its ticket waits: an exception in the
middle of a command could leave a structure half changed. The steps are short, except for a command that a module calls
through `Context.call`, whose time counts, too: the exception then comes after the command. Code of a module that such a
step calls has its own ticket, and only the innermost ticket of a thread can be due.

No exception comes after the end of a call: `_end` takes back, under the lock, one that was raised and did not yet come.

Costs: about a microsecond per call. Rejected: signal.setitimer, which works in the main thread only; sys.settrace,
which makes Python slow; a separate process for modules, which would copy each value. docs/design/0028-modules.md
"""

from __future__ import annotations

import _thread
import ctypes
import os
import traceback
from _thread import get_ident
from collections.abc import Callable
from typing import Any

from rillet.errors import CommandError, Corrupt, ModuleFailure
from rillet.real_time import monotonic

_AGAIN = 0.1  # seconds between two exceptions to code that catches the first
_LEAST = 0.005  # seconds between two looks
_IDLE = 3600.0


class ModuleTimeout(BaseException):
    """A call of a module's code has run longer than `module-time-limit`."""


class _Ticket:
    """One call that is being watched."""

    __slots__ = ("deadline", "fired", "paused", "thread")

    def __init__(self, thread: int, deadline: float) -> None:
        self.thread = thread
        self.deadline = deadline
        self.fired = False
        self.paused = 0  # the nested steps of the engine that this call is in


def _raise_in(thread: int, error: type[BaseException]) -> None:
    """Raise an exception in a thread soon. It replaces one that has not come yet."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(error))


def _take_back() -> None:
    """Take back an exception that was raised in this thread and may not have come yet.

    Another one replaces it, and is caught here. To set None instead leaves a flag of Python 3.11 set for ever: each
    later step would be slow, and endless under sys.setprofile.
    """
    try:
        while True:  # a destructor or a callback can swallow it
            _raise_in(get_ident(), ModuleTimeout)
            for _ in range(100):
                pass
    except ModuleTimeout:
        pass


class Watchdog:
    """The thread that interrupts calls; it starts with the first ticket and sleeps while nothing is due.

    Its locks are plain ones, which a `with` statement takes and releases in C: an exception that comes at any step
    leaves none of them taken. A Condition or an Event, which is written in Python, would stay locked.
    """

    def __init__(self) -> None:
        self._reset()

    def _reset(self) -> None:
        self._lock = _thread.allocate_lock()
        self._waker = _thread.allocate_lock()
        self._waker.acquire()
        self._tickets: dict[int, list[_Ticket]] = {}  # thread -> its calls, the innermost last
        self._wakes = 0.0
        self._started = False

    def begin(self, ticket: _Ticket) -> None:
        """Watch a call."""
        with self._lock:
            self._tickets.setdefault(ticket.thread, []).append(ticket)
            if not self._started:
                self._started = True
                _thread.start_new_thread(self._run, ())
            elif ticket.deadline < self._wakes and self._waker.locked():
                self._waker.release()

    def end(self, ticket: _Ticket) -> None:
        """Stop watching a call; no exception comes afterwards."""
        with self._lock:
            stack = self._tickets.get(ticket.thread, [])
            if ticket in stack:
                del stack[stack.index(ticket) :]
                if not stack:
                    del self._tickets[ticket.thread]
            if ticket.fired:
                _take_back()

    def pause(self) -> None:
        """Postpone the guard's exceptions in this thread until `resume`, including those already on their way."""
        thread = get_ident()
        with self._lock:
            stack = self._tickets.get(thread)
            if stack:
                if stack[-1].fired:  # first, so that no exception comes between the count and the return
                    _take_back()
                stack[-1].paused += 1

    def resume(self) -> None:
        """End a `pause`."""
        with self._lock:
            stack = self._tickets.get(get_ident())
            if stack and stack[-1].paused:
                stack[-1].paused -= 1

    def _run(self) -> None:
        while True:
            with self._lock:
                now = monotonic()
                for ticket in (stack[-1] for stack in self._tickets.values()):
                    if ticket.deadline <= now:
                        ticket.deadline = now + _AGAIN
                        if not ticket.paused:
                            ticket.fired = True
                            _raise_in(ticket.thread, ModuleTimeout)
                tickets = (ticket for stack in self._tickets.values() for ticket in stack)
                self._wakes = max(min((ticket.deadline for ticket in tickets), default=now + _IDLE), now + _LEAST)
            self._waker.acquire(timeout=self._wakes - now)

    def after_fork(self) -> None:
        """In a forked child, which has no thread: forget the calls of the parent."""
        self._reset()


WATCHDOG = Watchdog()
"""The watchdog of this process."""
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=WATCHDOG.after_fork)


class Guard:
    """Calls the functions of an engine's modules. limit: returns the greatest time of a call in ms; 0: none."""

    def __init__(self, limit: Callable[[], int], log_line: Callable[[str], None]) -> None:
        self._limit = limit
        self._log_line = log_line
        self.watchdog = WATCHDOG

    def call(self, module: str, function: Callable[..., Any], *arguments: Any) -> Any:
        """Return the function's result; raise CommandError or Corrupt, which may be a ModuleFailure."""
        limit = self._limit()
        if not limit:
            return self._call_unlimited(module, function, arguments)
        ticket = _Ticket(get_ident(), monotonic() + limit / 1000)
        watchdog = self.watchdog
        try:
            try:
                watchdog.begin(ticket)
                return function(*arguments)
            finally:
                watchdog.end(ticket)
        except ModuleTimeout as error:
            self._end(ticket)
            if not ticket.fired:  # an outer call of a module has run too long
                raise
            failure = self._failed(module, function, f"was interrupted after {limit} ms", error)
        except (CommandError, Corrupt):
            raise
        except (Exception, SystemExit) as error:
            failure = self._failed(module, function, _shown(error), error)
        raise failure from None

    def _call_unlimited(self, module: str, function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        try:
            return function(*arguments)
        except (CommandError, Corrupt):
            raise
        except (Exception, SystemExit) as error:
            failure = self._failed(module, function, _shown(error), error)
        raise failure from None

    def call_in_thread(self, module: str, function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        """Call a function in a new thread, without a limit of time."""
        return self._call_unlimited(module, function, arguments)

    def _end(self, ticket: _Ticket) -> None:
        """End a ticket although further exceptions may come meanwhile."""
        while True:
            try:
                self.watchdog.end(ticket)
                return
            except ModuleTimeout:
                continue

    def _failed(self, module: str, function: Callable[..., Any], what: str, error: BaseException) -> ModuleFailure:
        """Log a failed call, and return the error for the client."""
        name = getattr(function, "__qualname__", None) or repr(function)
        frames = traceback.extract_tb(error.__traceback__)[1:] or traceback.extract_tb(error.__traceback__)
        place = f" ({frames[-1].filename}, line {frames[-1].lineno})" if frames else ""
        self._log_line(f"Module {module}: {name} {what}{place}")
        return ModuleFailure(f"the module '{module}' failed: {what}")


def _shown(error: BaseException) -> str:
    """Return an exception on one line."""
    text = " ".join(str(error).split()) if _has_text(error) else ""
    return f"{type(error).__name__}: {text[:200]}" if text else type(error).__name__


def _has_text(error: BaseException) -> bool:
    try:
        return bool(str(error))
    except Exception:  # the module's own __str__ failed
        return False

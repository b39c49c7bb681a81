"""Timers of modules: functions that run once, after a time, in the engine (Redis: RM_CreateTimer).

`EngineServices.call_later` calls the engine back: in the event loop of a server, or in a thread of a store in memory.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from rillet.keyspace.database import Database

if TYPE_CHECKING:
    from rillet.modules.engine_calls import EngineCalls
    from rillet.runtime.engine import Engine


_MILLISECOND = 1_000_000  # ns


class TimerOwner(Protocol):
    """The module of a timer."""

    def run(self, function: Callable[..., Any], database: Database, *arguments: Any) -> Any:
        """Call function(context, ...); return None if it fails, which is logged."""


class _Timer(NamedTuple):
    module: TimerOwner
    database: Database
    due: int  # ns of Clock.ticks
    function: Callable[..., Any]
    data: Any
    cancel: Callable[[], object]


class Timers:
    """The timers of an engine's modules."""

    def __init__(self, engine: Engine, calls: EngineCalls) -> None:
        self._engine = engine
        self._calls = calls
        self._timers: dict[int, _Timer] = {}
        self._last = 0

    def add(self, module: TimerOwner, database: Database, milliseconds: int, function: Callable[..., Any],
            data: Any) -> int:  # fmt: skip
        """Add a timer and return its ID. O(1)"""
        if milliseconds < 0:
            raise ValueError("the time of a timer is negative")
        self._last += 1
        number, engine = self._last, self._engine
        due = engine.clock.ticks() + milliseconds * _MILLISECOND
        cancel = engine.services.call_later(milliseconds / 1000, lambda: self._fire(number))
        self._timers[number] = _Timer(module, database, due, function, data, cancel)
        return number

    def stop(self, module: TimerOwner, number: int) -> Any:
        """Remove a timer and return its data; KeyError if the module has no such timer."""
        timer = self._find(module, number)
        del self._timers[number]
        timer.cancel()
        return timer.data

    def info(self, module: TimerOwner, number: int) -> tuple[int, Any]:
        """Return the milliseconds that remain, and the data; KeyError if the module has no such timer."""
        timer = self._find(module, number)
        return max(timer.due - self._engine.clock.ticks(), 0) // _MILLISECOND, timer.data

    def _find(self, module: TimerOwner, number: int) -> _Timer:
        timer = self._timers[number]
        if timer.module is not module:
            raise KeyError(number)
        return timer

    def any_of(self, module: TimerOwner) -> bool:
        """Return whether a module has a timer that has not run."""
        return any(timer.module is module for timer in self._timers.values())

    def _fire(self, number: int) -> None:
        """Run a timer that is due. Its ID becomes invalid first (module.c: moduleTimerHandler)."""
        timer = self._timers.pop(number, None)
        if timer is not None:
            self._calls.run_in_engine(timer.module.run, timer.function, timer.database, timer.data)

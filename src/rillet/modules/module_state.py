"""ModuleState: a loaded module as its contexts, timers and blocked calls see it: its state, and what it may use.

    context, timer, blocked call ──► ModuleState ──► calls, timers, guard, engine
                                          ▲
    manager ──────────────────────── LoadedModule, which also has commands, types and listeners
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from types import SimpleNamespace, TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple

from rillet.keyspace.database import Database
from rillet.modules.engine_calls import EngineCalls
from rillet.modules.guard import Guard, Watchdog
from rillet.modules.settings import ModuleSetting
from rillet.modules.timers import Timers
from rillet.runtime.session import Session

if TYPE_CHECKING:
    from rillet.runtime.engine import Engine


class ModuleServices(NamedTuple):
    """The services of an engine that its modules share."""

    engine: Engine
    calls: EngineCalls
    timers: Timers
    guard: Guard

    def log(self, text: str, level: str = "warning") -> None:
        """Write a line to the server's log."""
        self.engine.services.log_line(text, level)


class _Uninterrupted:
    """A step of the engine, during which the watchdog raises nothing. `with` may be nested."""

    __slots__ = ("_watchdog",)

    def __init__(self, watchdog: Watchdog) -> None:
        self._watchdog = watchdog

    def __enter__(self) -> None:
        self._watchdog.pause()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:  # fmt: skip
        self._watchdog.resume()


class ModuleState(ABC):
    """A module in one engine: its state, settings and services, and the calls of its functions."""

    def __init__(self, services: ModuleServices, name: str, settings: Sequence[ModuleSetting]) -> None:
        self.services = services
        self.engine = services.engine
        self.name = name
        self._settings = settings
        self.state = SimpleNamespace()
        self.waiting: set[object] = set()  # the blocked calls whose clients wait
        self.uninterrupted = _Uninterrupted(services.guard.watchdog)

    @abstractmethod
    def reply_to(self, session: Session, argv: list[bytes], function: Callable[..., Any], wait: bool = False) -> bool:
        """Reply to a client that was blocked with the result of function(context); False if it keeps waiting."""

    @abstractmethod
    def run(self, function: Callable[..., Any], database: Database, *arguments: Any) -> Any:
        """Call function(context, ...) outside of a command; return None if it fails, which is logged."""

    def post(self, function: Callable[..., Any], database: Database) -> None:
        """Run function(context) in the engine soon. Any thread."""
        self.services.calls.post(self.run, function, database)

    def setting(self, name: str) -> Any:
        """Return the value of a setting of the module."""
        for setting in self._settings:
            if setting.name == name:
                return getattr(self.engine.settings, setting.type.attribute)
        raise KeyError(name)

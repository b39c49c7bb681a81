"""An engine with a manual clock and a log in memory."""

from __future__ import annotations

from typing import Any

from rillet.keyspace.clock import ManualClock
from rillet.runtime.engine import Engine
from rillet.runtime.settings.settings import Settings
from tests.differential.wire import Local

NOW = 1_700_000_000_000


class CreepingClock(ManualClock):
    """A clock on which two milliseconds pass at each reading of the ticks, so that everything takes time."""

    def ticks(self) -> int:
        self.advance(2)
        return super().ticks()


class ListLog:
    """A log that stores its commands in a list."""

    def __init__(self) -> None:
        self.commands: list[tuple[int, list[bytes]]] = []

    def append(self, db: int, argv: list[bytes]) -> None:
        self.commands.append((db, argv))

    def flush(self) -> None:
        pass

    def take(self) -> list[list[bytes]]:
        """Return the commands since the last call."""
        commands, self.commands = self.commands, []
        return [argv for _, argv in commands]


class Bench(Local):
    """An engine at a fixed time, with a log, and one session."""

    def __init__(self, **settings: Any) -> None:
        self.clock = ManualClock(NOW)
        super().__init__(Engine(Settings(enable_debug_command="yes", **{"compat": "7.0", **settings}), self.clock))
        self.log = ListLog()
        self.engine.log = self.log

    def beside(self) -> Local:
        """Return another session of the same engine."""
        return Local(self.engine)

    def logged(self, *words: bytes | str | int) -> list[list[bytes]]:
        """Run a command and return what it logged."""
        self.log.take()
        self(*words)
        return self.log.take()

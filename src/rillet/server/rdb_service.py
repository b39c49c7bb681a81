"""The server's RDB file: SAVE, BGSAVE and save points.

rillet.persistence.rdb.snapshots works on the data. This module connects it with the event loop (a pipe reports the
end of a child) and with CONFIG SET.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Callable
from typing import Any

from rillet.errors import LogCorrupt, StoreError
from rillet.persistence.fork import Child, Children
from rillet.persistence.rdb.snapshots import Snapshots
from rillet.persistence.remedies import salvageable
from rillet.persistence.write_gate import WriteGate
from rillet.runtime.engine import Engine
from rillet.runtime.settings.settings import SettingError
from rillet.server.log_lines import WARNING, say, say_line


class ExpiredAtStart:
    """Commands that repeat the deletions of a start, with their databases, up to the size of the backlog."""

    _SHORTEST = 20  # bytes of the shortest DEL

    def __init__(self, settings: Any) -> None:
        self.commands: deque[tuple[int, list[bytes]]] = deque(maxlen=settings.repl_backlog_size // self._SHORTEST + 1)
        self.count = 0

    def add(self, database: int, argv: list[bytes]) -> None:
        """Add a command."""
        self.commands.append((database, argv))
        self.count += 1

    def take(self) -> list[tuple[int, list[bytes]]] | None:
        """Return and forget the commands; None if the backlog could not hold all of them."""
        complete, commands = self.count == len(self.commands), list(self.commands)
        self.commands.clear()
        self.count = 0
        return commands if complete else None


class RdbService:
    """The RDB file of a server's engine."""

    def __init__(self, engine: Engine, children: Children, refusals: WriteGate) -> None:
        self._engine = engine
        self._settings: Any = engine.settings
        self._children = children
        # What the start removed because it had expired: the replicas, which continue, must remove it, too.
        self.expired = ExpiredAtStart(engine.settings)
        self._folder: str = engine.settings.dir
        self.snapshots = Snapshots(engine, children=children, refusals=refusals, say=say_line)

    def open(self, progress: Callable[[int, int], None] | None = None) -> None:
        """Load the RDB file, if it exists, and log the result; StoreError if the file cannot be read."""
        path = self.snapshots.path
        if path.exists():
            try:
                # The master of a replica sends its deletions.
                is_master = not self._settings.replicaof
                loaded = self.snapshots.load(progress, drop_expired=is_master, on_expired=self.expired.add)
            except OSError as error:
                raise StoreError(f"{path} cannot be read: {error.strerror}") from error
            except LogCorrupt as error:
                say(f"Internal error in RDB reading offset {error.offset}: {error.reason}", WARNING)
                say("Terminating server after rdb file reading failure.", WARNING)
                with salvageable(path):
                    raise
            say(f"Done loading RDB, keys loaded: {loaded.keys}, keys expired: {loaded.expired}, "
                f"empty keys skipped: {loaded.empty}.")  # fmt: skip

    def attach(self) -> None:
        """Watch child processes with the event loop."""
        loop = asyncio.get_running_loop()

        def unwatch(number: int) -> None:
            loop.remove_reader(number)

        def watch(child: Child) -> None:
            child.on_close = unwatch
            loop.add_reader(child.fileno(), self._children.poll)

        self._children.watch = watch

    def setting_changed(self, name: str) -> None:
        """Apply a setting of the RDB file that CONFIG SET changed; SettingError if that is impossible."""
        if name == "dir":
            self._enter(self._settings.dir)
        elif name in ("save", "stop-writes-on-bgsave-error"):
            self.snapshots.refuse_or_not()

    def _enter(self, folder: str) -> None:
        """Change the folder of the RDB file; a relative path is relative to the previous folder (setConfigDirOption).

        The working directory of the process does not change, because sys.path may contain relative paths.
        """
        path = os.path.join(self._folder, folder)
        try:
            os.stat(os.path.join(path, "."))  # raises OSError for the same paths as chdir would
        except OSError as error:
            raise SettingError(str(error.strerror)) from error
        self._folder = self._settings.dir = os.path.realpath(path)

    def info(self) -> dict[str, object]:
        """Return the fields of INFO persistence about child processes and the RDB file."""
        return {**self._children.info(), **self.snapshots.info()}


__all__ = ["RdbService"]

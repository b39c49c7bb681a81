"""The position of a server after a restart, from the auxiliary fields of its RDB file (Redis: rdbPopulateSaveInfo).

    repl-id, repl-offset    the history and the offset of the data
    repl-stream-db          the database that the stream had selected there

A log ends with the same fields, also after a crash (rillet.persistence.aof.position). Redis begins with a full
synchronisation when it has a log.

A replica continues at this position. A master begins a new history that continues the stored one, so that its replicas
continue, too, if its backlog holds what they lack.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rillet.runtime.engine import Engine
    from rillet.runtime.settings.settings import Settings


def restore(engine: Engine, facts: Mapping[bytes, bytes], *, replica: bool) -> bool:
    """Take the position of loaded data; return whether the fields contain one."""
    name, offset = facts.get(b"repl-id", b""), facts.get(b"repl-offset", b"")
    if len(name) != 40 or not offset.isdigit():
        return False
    state = engine.replication
    state.offset = int(offset)
    if replica:
        state.id = name.decode("ascii", "replace")
        db = facts.get(b"repl-stream-db", b"0")
        state.db = int(db) if db.isdigit() and int(db) < len(engine.databases) else 0
    else:
        state.id2, state.second_offset = name.decode("ascii", "replace"), state.offset + 1
    return True


class ExpiredAtStart:
    """Commands that repeat the deletions of a start, with their databases, up to the size of the backlog.

    The replicas, which continue, must delete what has expired meanwhile, too.
    """

    _SHORTEST = 20  # bytes of the shortest DEL

    def __init__(self, settings: Settings) -> None:
        self.commands: deque[tuple[int, list[bytes]]] = deque(maxlen=settings.repl_backlog_size // self._SHORTEST + 1)
        self.count = 0

    def add(self, database: int, argv: list[bytes]) -> None:
        """Add a command."""
        self.commands.append((database, argv))
        self.count += 1

    def take_commands(self) -> list[tuple[int, list[bytes]]] | None:
        """Return and forget the commands; None if the backlog could not hold all of them."""
        complete, commands = self.count == len(self.commands), list(self.commands)
        self.commands.clear()
        self.count = 0
        return commands if complete else None

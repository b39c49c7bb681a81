"""The services of the engine that the code of modules uses: commands, types, steps between commands, events.

Contexts, timers and blocked calls have an EngineCalls. Only the manager loads and unloads modules.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from rillet.keyspace.database import Database
from rillet.runtime import session_state
from rillet.runtime.keyspace_events import CLASS
from rillet.runtime.registry import TABLE, Command
from rillet.runtime.session import Session
from rillet.types.module import ModuleType, TypeHandle

if TYPE_CHECKING:
    from rillet.runtime.engine import Engine

LOADED = b"L"
"""The class of the event `loaded`, which is for modules only: a key was read from an RDB file."""
EVENT_CLASSES = {letter: bit for letter, bit in CLASS.items() if letter not in b"KE"} | {LOADED: 1 << 30}
"""The classes of keyspace events that a module may listen to or publish, as bits."""
_CALLABLE = session_state.IN_EXEC  # the state of an inner session: its commands do not block


class EngineCalls:
    """The engine, for the code of modules. commands: those of modules, by their lower-case names."""

    __slots__ = ("_commands", "_engine", "_spare")

    def __init__(self, engine: Engine, commands: dict[bytes, Command]) -> None:
        self._engine = engine
        self._commands = commands
        self._spare: list[Session] = []

    def find_command(self, argv: list[bytes]) -> Command | None:
        """Return the command or subcommand that argv calls, None for an unknown command."""
        entry = TABLE.find(argv[0], self._engine.settings.compat) or self._commands.get(argv[0].lower())
        if entry is not None and entry.subcommands is not None and len(argv) > 1:
            return entry.subcommands.get(argv[1].lower(), entry)
        return entry

    def handle_of(self, kind: type[ModuleType]) -> TypeHandle:
        """Return the type of a class of a loaded module."""
        for handle in self._engine.settings.module_types.values():
            if type(handle.type) is kind:
                found: TypeHandle = handle
                return found
        raise ValueError(f"{kind.__name__} is not a type of a loaded module: declare it with @module.type")

    def name_of_type(self, database: Database, n: int) -> str:
        """Return the name of the type of an entry's value."""
        from rillet.commands.keys.lookup import type_name

        return type_name(database, n).decode()

    def inner_session(self, database: Database, logged: bool) -> Session:
        """Return a session for one call of a command by a module; pass it to `release` afterwards."""
        inner = self._spare.pop() if self._spare else Session(self._engine, database, 0)
        inner.db = database
        inner.state = _CALLABLE if logged else _CALLABLE | session_state.TRUSTED
        return inner

    def release(self, inner: Session) -> None:
        """Take back a session."""
        inner.out.truncate(0)
        if len(self._spare) < 16:
            self._spare.append(inner)

    def run_in_engine(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function outside of a command, and act on the effects: log them together, serve blocked clients."""
        engine = self._engine
        engine.propagation.depth += 1
        try:
            return function(*arguments)
        finally:
            engine.propagation.depth -= 1
            if engine.propagation.depth == 0:
                if engine.propagation.pending:
                    engine.propagation.flush_pending()
                if engine.blocking.ready:
                    engine.blocking.serve_ready()

    def post(self, function: Callable[..., Any], *arguments: Any) -> None:
        """Run a function in the engine soon. Any thread."""
        self._engine.services.post(lambda: self.run_in_engine(function, *arguments))

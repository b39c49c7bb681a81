"""An engine without a server, its session, and its log, for tests of modules."""

from __future__ import annotations

from typing import Any

from rillet.errors import CommandError
from rillet.modules import Module
from rillet.modules.loading import load_module
from rillet.protocol.reply_parser import parse_all
from rillet.runtime.engine import Engine
from rillet.runtime.settings.settings import Settings


class Bench:
    """An engine with modules. `logged` is what it logged: (database, argv). `lines` are those of its server's log."""

    def __init__(self, *modules: Any, **settings: Any) -> None:
        self.engine = Engine(Settings(**{"enable_debug_command": "yes", "enable_module_command": "yes", **settings}))
        self.lines: list[str] = []
        self.engine.services.log_line = lambda text, level="warning": self.lines.append(text)  # type: ignore[method-assign]
        for module in modules:
            spec, *arguments = module if isinstance(module, tuple) else (module,)
            load_module(self.engine, spec, [str(word).encode() for word in arguments])
        self.logged: list[tuple[int, list[bytes]]] = []
        self.engine.log = self
        self.session = self.engine.session()

    def append(self, db: int, argv: list[bytes]) -> None:
        """Take a logged command."""
        self.logged.append((db, argv))

    def flush(self) -> None:
        """Do nothing: the list is durable enough."""

    def raw(self, *words: Any, session: Any = None) -> bytes:
        """Run a command and return the bytes of its reply, empty if it blocks."""
        session = session or self.session
        self.engine.execute(session, [one if isinstance(one, bytes) else str(one).encode() for one in words])
        return bytes(session.out.take_bytes())

    def __call__(self, *words: Any) -> Any:
        """Run a command and return its reply; raise an error reply."""
        raw = self.raw(*words)
        reply = parse_all(raw)[0] if raw else None
        if isinstance(reply, CommandError):
            raise reply
        return reply

    def outcome(self, *words: Any) -> Any:
        """Run a command and return its reply, or the text of its error."""
        try:
            return self(*words)
        except CommandError as error:
            return str(error)

    def log(self) -> list[str]:
        """Return the logged commands as text, and forget them."""
        found = [" ".join(word.decode("latin-1") for word in argv) for _, argv in self.logged]
        self.logged.clear()
        return found


def declared(function: Any = None, **options: Any) -> Module:
    """Return a module with one command, `t.run`, that calls the function."""
    module = Module("t", 1)
    if function is not None:
        module.command("t.run", **{"arity": -1, **options})(function)
    return module

"""LoadedModule: a module in one engine, with its commands, types and listeners, and the calls of its code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rillet.errors import CommandError, Corrupt, ModuleFailure
from rillet.keyspace.database import Database
from rillet.modules.blocking import KEEP_WAITING, BlockedCall
from rillet.modules.context import Context
from rillet.modules.declaration import CommandDeclaration, Module
from rillet.modules.module_state import ModuleServices, ModuleState
from rillet.modules.reply import NO_REPLY, WrongReply, write_reply
from rillet.protocol.reply_parser import parse_all
from rillet.runtime.registry import Command
from rillet.runtime.session import Session
from rillet.types.module import TypeHandle

FAILURES = (CommandError, Corrupt)
"""The exceptions that the guard lets through."""


class LoadedModule(ModuleState):
    """A module in one engine."""

    def __init__(self, services: ModuleServices, declaration: Module, path: str, arguments: list[bytes]) -> None:
        super().__init__(services, declaration.name, declaration.settings)
        self.declaration = declaration
        self.path = path
        self.arguments = arguments
        self.handles: list[TypeHandle] = []
        self.commands: list[Command] = []
        self._listening: set[Callable[..., Any]] = set()

    # -- calling the module's code -------------------------------------------------------------------

    def handler(self, declared: CommandDeclaration) -> Callable[[Session, list[bytes]], None]:
        """Return the handler of a command, as the engine calls it."""
        function = declared.handler

        def run(session: Session, argv: list[bytes]) -> None:
            session.propagate_nothing()  # a module replicates explicitly
            context = Context(self, session.db, session, argv)
            mark = session.out.mark()
            try:
                self._write(session, context, self.services.guard.call(self.name, function, context, argv), mark)
            except FAILURES as error:
                if session.blocked is not None:
                    self.engine.blocking.unblock(session)
                if isinstance(error, Corrupt):
                    raise CommandError(str(error)) from None
                raise

        return run

    def _write(self, session: Session, context: Context, value: Any, mark: int) -> None:
        """Write the result of a command, unless the client waits; ModuleFailure if it cannot be a reply.

        mark: the position in the output at which the reply begins.
        """
        if context.blocked_on is not None or isinstance(value, BlockedCall):
            return
        try:
            if value is NO_REPLY:
                _check_written(session, mark)
            else:
                session.out.truncate(mark)
                write_reply(session.out, value)
        except WrongReply as error:
            session.out.truncate(mark)
            name = "the reply" if session.command is None else session.command.fullname
            self.services.log(f"Module {self.name}: {name}: {error}")
            raise ModuleFailure(f"the module '{self.name}' failed: {error}") from None

    def reply_to(self, session: Session, argv: list[bytes], function: Callable[..., Any], wait: bool = False) -> bool:
        """Reply to a client that was blocked with the result of function(context); False if it keeps waiting."""
        context = Context(self, session.db, session, argv)
        mark = session.out.mark()
        try:
            value = self.services.guard.call(self.name, function, context)
            if wait and value is KEEP_WAITING:
                session.out.truncate(mark)
                return False
            self._write(session, context, value, mark)
        except FAILURES as error:
            self.engine.stats.count_failure(session.command)
            session.reply_error(mark, error if isinstance(error, CommandError) else CommandError(str(error)))
        return True

    def run(self, function: Callable[..., Any], database: Database, *arguments: Any) -> Any:
        """Call function(context, ...) outside of a command; return None if it fails, which is logged."""
        try:
            return self.services.guard.call(self.name, function, Context(self, database), *arguments)
        except ModuleFailure:  # logged by the guard
            return None
        except FAILURES as error:
            self.services.log(f"Module {self.name}: {getattr(function, '__qualname__', 'a function')}: {error}")
            return None

    def hear(self, function: Callable[..., Any], database: Database, event: bytes, key: bytes) -> None:
        """Call a listener for an event, unless the event comes from this listener (module.c: sub->active)."""
        if function not in self._listening:
            self._listening.add(function)
            try:
                self.run(function, database, event, key)
            finally:
                self._listening.discard(function)


def _check_written(session: Session, mark: int) -> None:
    """Raise WrongReply unless the module has written one complete reply itself."""
    try:
        complete = len(parse_all(bytes(session.out.buf[mark : session.out.used]))) == 1
    except Exception:
        complete = False
    if not complete:
        raise WrongReply("the module wrote no complete reply")

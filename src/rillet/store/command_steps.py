"""Commands as the steps of a generator: what decides them does no I/O, so both APIs share it.

    generator -> command -> the store -> reply -> generator -> ... -> result
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from rillet.errors import CommandError
from rillet.store.retries import PATIENCE

if TYPE_CHECKING:
    from rillet.store.store import Store

Result = TypeVar("Result")
Command: TypeAlias = "list[bytes] | list[list[bytes]]"  # one command, or a transaction: from MULTI to EXEC
Commands: TypeAlias = Generator[Command, Any, Result]  # yields commands, receives their replies, returns a result


def drive(store: Store, commands: Commands[Result], patience: float = PATIENCE, raises: bool = True) -> Result:
    """Run the commands of a generator, and return its result. patience: see rillet.store.retries.

    raises: an error reply is raised in the generator; else it is sent to the generator as a value.
    """
    reply: Any = None
    failure: CommandError | None = None
    while True:
        try:
            command = commands.send(reply) if failure is None else commands.throw(failure)
        except StopIteration as end:
            result: Result = end.value
            return result
        reply = failure = None
        try:
            reply = run_step(store, command, patience)
        except CommandError as error:
            if raises:
                failure = error
            else:
                reply = error


def run_step(store: Store, command: Any, patience: float = PATIENCE) -> Any:
    """Run a command or a transaction; return the reply, or the replies. patience: see rillet.store.retries."""
    if isinstance(command[0], list):
        return store.run_many(command, patience)
    return store.run(command, patience)

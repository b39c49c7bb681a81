"""The asyncio form of rillet.store.command_steps.

Made from store/command_steps.py by `python -m tools.make_aio`; edit that file, then run the command.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rillet.errors import CommandError
from rillet.store.command_steps import Commands, Result
from rillet.store.retries import PATIENCE

if TYPE_CHECKING:
    from rillet.store.aio.store import AsyncStore


async def drive(store: AsyncStore, commands: Commands[Result], patience: float = PATIENCE,
                raises: bool = True) -> Result:  # fmt: skip
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
            reply = await run_step(store, command, patience)
        except CommandError as error:
            if raises:
                failure = error
            else:
                reply = error


async def run_step(store: AsyncStore, command: Any, patience: float = PATIENCE) -> Any:
    """Run a command or a transaction; return the reply, or the replies. patience: see rillet.store.retries."""
    if isinstance(command[0], list):
        return await store.run_many(command, patience)
    return await store.run(command, patience)

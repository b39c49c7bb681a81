"""Retries for tasks of an event loop; see rillet.store.retries."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from rillet.client.loop_timers import sleep
from rillet.store.retries import FAILURES, PATIENCE, Failures, Retries
from rillet.store.transports.task_threads import in_thread
from rillet.store.transports.transport import Transport

if TYPE_CHECKING:
    from rillet.store.store import Store

Result = TypeVar("Result")


async def patiently_async(store: Store, attempt: Callable[[Transport], Awaitable[Result]],
                          commands: Sequence[list[bytes]], patience: float = PATIENCE) -> Result:  # fmt: skip
    """Await attempt(transport) as `patiently` does; only the task waits."""
    transport = store.transport
    try:
        return await attempt(transport)
    except FAILURES as error:
        retries = Retries(patience)
        transport = await in_thread(store.replacement, transport, error, retries, commands)
    return await again_async(store, attempt, commands, transport, retries, FAILURES)


async def again_async(store: Store, attempt: Callable[[Transport], Awaitable[Result]], commands: Sequence[list[bytes]],
                      transport: Transport, retries: Retries, failures: Failures) -> Result:  # fmt: skip
    """Await attempt(transport) as `again` does; only the task waits."""
    while True:
        if retries.pause:
            await sleep(retries.pause)
        try:
            return await attempt(transport)
        except failures as error:
            transport = await in_thread(store.replacement, transport, error, retries, commands)
